//! Paths in a cell: names, symbolic links, and mount points, which lead to other volumes.

use std::collections::VecDeque;
use std::sync::Arc;

use client::{Remote, RemoteVolume};
use types::{Answer, Call, Fault, Fid, Kind, MountPoint, Name, Status};

use crate::{DirectCell, DirectError};

/// Symbolic links that one path may follow, as Linux has it.
const LINKS_MAX: usize = 40;

/// A file or directory, in its volume.
#[derive(Clone)]
pub(crate) struct Place {
    pub volume: Arc<RemoteVolume>,
    pub status: Status,
}

/// Is the symbolic link or mount point followed that a path ends with?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    Followed,
    Shown,
}

impl Place {
    /// The root of the volume of this name.
    fn root(cell: &DirectCell, name: &Name) -> Result<Place, DirectError> {
        Self::root_of(cell, cell.volume(name)?)
    }

    fn root_of(cell: &DirectCell, volume: Arc<RemoteVolume>) -> Result<Place, DirectError> {
        let call = Call::Root { volume: volume.name().clone() };
        match volume.call(cell.caller(), call, None)?.answer {
            Answer::Status(status) => Ok(Place { volume, status }),
            _ => Err(DirectError::Odd),
        }
    }

    /// The file with this path. A path with a leading `/` is the same without.
    ///
    /// # Errors
    /// The server's refusals; those of paths that no file can have or that leave the cell.
    pub fn find(cell: &DirectCell, path: &str, last: LastLink) -> Result<Place, DirectError> {
        let root = Place::root_of(cell, cell.root()?)?;
        let mut walk = Walk { cell, above: vec![root], links: 0 };
        walk.go(path.split('/').map(|part| part.as_bytes().to_vec()).collect(), last)?;
        Ok(walk.here().clone())
    }

    /// The directory of a new or existing file with this path, and its name there.
    ///
    /// # Errors
    /// As [`Place::find`].
    pub fn parent(cell: &DirectCell, path: &str) -> Result<(Place, Name), DirectError> {
        let path = path.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let name = Name::new(name.as_bytes()).map_err(|_| DirectError::BadPath)?;
        Ok((Place::find(cell, parent, LastLink::Followed)?, name))
    }

    pub fn fid(&self) -> Fid {
        self.status.fid
    }
}

/// A way from the root.
struct Walk<'a> {
    cell: &'a DirectCell,
    /// The directories on the way, the root first; never empty.
    above: Vec<Place>,
    links: usize,
}

impl Walk<'_> {
    fn here(&self) -> &Place {
        self.above.last().expect("the root is never left")
    }

    fn go(&mut self, mut parts: VecDeque<Vec<u8>>, last: LastLink) -> Result<(), DirectError> {
        while let Some(part) = parts.pop_front() {
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    if self.above.len() > 1 {
                        self.above.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let is_last = parts.iter().all(Vec::is_empty);
            let name = Name::new(&part).map_err(|_| DirectError::BadPath)?;
            let found = self.look_up(name)?;
            match found.status.kind {
                Kind::Symlink if !is_last || last == LastLink::Followed => {
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(DirectError::TooManyLinks);
                    }
                    let target = self.target(&found)?;
                    if target.first() == Some(&b'/') {
                        // It leaves the cell: nothing here knows where the cell is mounted.
                        return Err(DirectError::AbsoluteLink);
                    }
                    for part in target.split(|byte| *byte == b'/').rev() {
                        parts.push_front(part.to_vec());
                    }
                }
                Kind::MountPoint if !is_last || last == LastLink::Followed => {
                    let point = MountPoint::parse(&self.target(&found)?)
                        .map_err(|_| DirectError::Refused(Fault::Damaged))?;
                    let root = self.enter(&point)?;
                    self.above.push(root);
                }
                _ => self.above.push(found),
            }
        }
        Ok(())
    }

    fn look_up(&self, name: Name) -> Result<Place, DirectError> {
        let Place { volume, status } = self.here();
        let call = Call::Lookup { dir: status.fid, name };
        match volume.call(self.cell.caller(), call, None)?.answer {
            Answer::Entry { status, .. } => Ok(Place { volume: Arc::clone(volume), status }),
            _ => Err(DirectError::Odd),
        }
    }

    fn target(&self, link: &Place) -> Result<Vec<u8>, DirectError> {
        let call = Call::ReadLink { fid: link.fid() };
        match link.volume.call(self.cell.caller(), call, None)?.answer {
            Answer::Target(target) => Ok(target.to_vec()),
            _ => Err(DirectError::Odd),
        }
    }

    /// The root of the volume that a mount point leads to: on a path of read-only volumes the
    /// released one, if there is one, as in a mount.
    fn enter(&self, point: &MountPoint) -> Result<Place, DirectError> {
        if point.cell.is_some() {
            return Err(DirectError::OtherCell);
        }
        if !point.read_write
            && self.here().volume.is_read_only()
            && let Ok(released) = Name::new(&[point.volume.as_bytes(), b".readonly"].concat())
        {
            match Place::root(self.cell, &released) {
                Err(DirectError::Refused(Fault::NoVolume)) => {}
                found => return found,
            }
        }
        Place::root(self.cell, &point.volume)
    }
}
