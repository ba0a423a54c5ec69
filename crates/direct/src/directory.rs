//! Names: status, listings, new directories, removal, renaming.

use bytes::Bytes;
use client::Remote;
use types::{
    Answer, Call, Cookie, CreateHow, Fault, Kind, Name, NewKind, RemoveWhat, RenameMode, Status,
    limits::MESSAGE_BYTES_MAX,
};

use crate::path::{LastLink, Place};
use crate::{DirectCell, DirectError};

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirectEntry {
    /// The name.
    pub name: Name,
    /// Its file's kind.
    pub kind: Kind,
    /// Its file's status; `None`: the caller may not see it.
    pub status: Option<Status>,
}

/// The status of the file with this path; `follow`: of the file that a symbolic link names, and of
/// the root of the volume that a mount point leads to.
///
/// # Errors
/// `Refused` with the server's reason; errors of the path.
pub fn status(cell: &DirectCell, path: &str, follow: bool) -> Result<Status, DirectError> {
    let last = if follow { LastLink::Followed } else { LastLink::Shown };
    Ok(Place::find(cell, path, last)?.status)
}

/// The entries of a directory, in the order of the server.
///
/// # Errors
/// As [`status`].
pub fn list(cell: &DirectCell, path: &str) -> Result<Vec<DirectEntry>, DirectError> {
    let Place { volume, status } = Place::find(cell, path, LastLink::Followed)?;
    let (mut found, mut cookie) = (Vec::new(), Cookie(0));
    loop {
        let bytes_max = MESSAGE_BYTES_MAX as u32 / 2;
        let call = Call::ReadDir { dir: status.fid, cookie, bytes_max, plus: true };
        let Answer::Entries { entries, end, .. } = volume.call(cell.caller(), call, None)?.answer
        else {
            return Err(DirectError::Odd);
        };
        let Some(last) = entries.last() else { return Ok(found) };
        cookie = last.cookie;
        found.extend(entries.into_iter().map(|entry| DirectEntry {
            name: entry.name,
            kind: entry.kind,
            status: entry.status,
        }));
        if end {
            return Ok(found);
        }
    }
}

/// Makes a directory.
///
/// # Errors
/// As [`status`]; `Exists`.
pub fn make_directory(cell: &DirectCell, path: &str, mode: u16) -> Result<(), DirectError> {
    let (Place { volume, status }, name) = Place::parent(cell, path)?;
    let (kind, how) = (NewKind::Directory, CreateHow::Guarded);
    let call = Call::Make { dir: status.fid, name, kind, mode, how };
    volume.call(cell.caller(), call, None)?;
    Ok(())
}

/// Makes a symbolic link with this target.
///
/// # Errors
/// As [`make_directory`].
pub fn make_link(cell: &DirectCell, path: &str, target: &[u8]) -> Result<(), DirectError> {
    let (Place { volume, status }, name) = Place::parent(cell, path)?;
    let kind = NewKind::Symlink(Bytes::copy_from_slice(target));
    let (mode, how) = (0o777, CreateHow::Guarded);
    let call = Call::Make { dir: status.fid, name, kind, mode, how };
    volume.call(cell.caller(), call, None)?;
    Ok(())
}

/// The target of a symbolic link.
///
/// # Errors
/// As [`status`].
pub fn link_target(cell: &DirectCell, path: &str) -> Result<Vec<u8>, DirectError> {
    let Place { volume, status } = Place::find(cell, path, LastLink::Shown)?;
    match volume.call(cell.caller(), Call::ReadLink { fid: status.fid }, None)?.answer {
        Answer::Target(target) => Ok(target.to_vec()),
        _ => Err(DirectError::Odd),
    }
}

/// Removes a name.
///
/// # Errors
/// As [`status`].
pub fn remove(cell: &DirectCell, path: &str, what: RemoveWhat) -> Result<(), DirectError> {
    let (Place { volume, status }, name) = Place::parent(cell, path)?;
    let call = Call::Remove { dir: status.fid, name, what, hold: false };
    volume.call(cell.caller(), call, None)?;
    Ok(())
}

/// Gives a file or directory another name in the same volume. A file that has that name goes, if
/// `replace`; otherwise the call is refused.
///
/// # Errors
/// As [`status`]; `Exists`; `CrossVolume`.
pub fn rename(cell: &DirectCell, from: &str, to: &str, replace: bool) -> Result<(), DirectError> {
    let (old, from) = Place::parent(cell, from)?;
    let (new, to) = Place::parent(cell, to)?;
    let (from_dir, to_dir) = (old.fid(), new.fid());
    if from_dir.volume != to_dir.volume {
        return Err(DirectError::Refused(Fault::CrossVolume));
    }
    let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
    let call = Call::Rename { from_dir, from, to_dir, to, mode, hold: false };
    old.volume.call(cell.caller(), call, None)?;
    Ok(())
}
