//! What a mount point leads to: the root of a volume. The server does not follow mount points; clients do, and this is where.

use types::{Answer, Call, Fault, Fid, MountPoint, Name, VolumeCall, VolumeInfo, VolumeKind, WhichVolume};

use crate::{Error, Request, Venus};

/// What released volumes' names end with. Source: AFS.
const READ_ONLY: &[u8] = b".readonly";

/// A volume that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Its root directory.
    pub root: Fid,
    /// Its name.
    pub volume: Name,
    /// Nobody writes it: mount points in it prefer read-only volumes.
    pub read_only: bool,
}

impl Venus {
    /// What the mount point `fid` says.
    ///
    /// # Errors
    /// As the service says; `Damaged` if it cannot be read.
    pub fn mount_point(&self, request: &Request<'_>, fid: Fid) -> Result<MountPoint, Error> {
        let target = self.readlink(request, fid)?;
        MountPoint::parse(&target).map_err(|_| Fault::Damaged.into())
    }

    /// The volume that a mount point leads to. `read_only`: all volumes above are.
    ///
    /// # Errors
    /// `NoVolume` if there is none; as the service says.
    pub fn follow(&self, request: &Request<'_>, point: &MountPoint, read_only: bool) -> Result<Location, Error> {
        if point.cell.is_some() {
            // Other cells' servers are not known here yet.
            return Err(Fault::NoVolume.into());
        }
        if !point.read_write
            && read_only
            && let Ok(released) = Name::new(&[point.volume.as_bytes(), READ_ONLY].concat())
        {
            match self.locate(request, released) {
                Err(Error::Fault(Fault::NoVolume)) => {}
                found => return found,
            }
        }
        self.locate(request, point.volume.clone())
    }

    /// Asks where a volume is: the one server that there is knows.
    fn locate(&self, request: &Request<'_>, volume: Name) -> Result<Location, Error> {
        let root = self.core.status_by(request, Call::Root { volume: volume.clone() })?;
        let read_only = self.volume_info(request, volume.clone())?.kind != VolumeKind::ReadWrite;
        Ok(Location { root: root.status.fid, volume, read_only })
    }

    /// What the server says about a volume.
    ///
    /// # Errors
    /// As the service says.
    pub fn volume_info(&self, request: &Request<'_>, volume: Name) -> Result<VolumeInfo, Error> {
        let call = Call::Volume(VolumeCall::Examine { volume: WhichVolume::Name(volume) });
        let Answer::Volumes { volumes, .. } = self.core.call(request, call)? else { return Err(Error::Protocol) };
        volumes.into_iter().next().ok_or(Error::Protocol)
    }
}
