//! Extended attributes that are not kept: what a mount says about volumes, and is told (`docs/volumes.md`).
//!
//! | name | read | set | removed |
//! |---|---|---|---|
//! | `rialto.fid` | the file's volume, vnode and uniquifier | | |
//! | `rialto.volume` | the number of the volume that the file is in | | |
//! | `rialto.mount:NAME` | of a directory: what the mount point NAME in it says | makes it | removes it; what it leads to stays |
//!
//! They are in no list of attributes: who copies a file's attributes must not copy these.

use bytes::Bytes;
use rustix::io::Errno;
use types::{Kind, Name, NewKind};
use venus::Found;

use crate::dispatch::{Refusal, Task};

const PREFIX: &[u8] = b"rialto.";
const MOUNT: &[u8] = b"rialto.mount:";

/// One of them.
pub(crate) enum Virtual {
    Fid,
    Volume,
    Mount(Name),
}

impl Virtual {
    /// None: it is an attribute that is kept.
    ///
    /// # Errors
    /// `ENODATA` if there is no such name, or what is wrong with NAME.
    pub fn of(name: &[u8]) -> Option<Result<Virtual, Refusal>> {
        let rest = name.strip_prefix(PREFIX)?;
        Some(match (rest, name.strip_prefix(MOUNT)) {
            (b"fid", _) => Ok(Virtual::Fid),
            (b"volume", _) => Ok(Virtual::Volume),
            (_, Some(entry)) => Name::new(entry).map(Virtual::Mount).map_err(Refusal::from),
            _ => Err(Refusal(Errno::NODATA)),
        })
    }
}

impl Task<'_> {
    pub(crate) fn virtual_value(&self, wanted: Virtual) -> Result<Bytes, Refusal> {
        let fid = self.fid()?;
        Ok(match wanted {
            Virtual::Fid => fid.to_string().into(),
            Virtual::Volume => fid.volume.0.to_string().into(),
            Virtual::Mount(name) => {
                let found = self.venus().lookup(&self.request(), fid, &name)?;
                let Found::Entry(entry) = found else { return Err(Refusal(Errno::NODATA)) };
                let leaf = entry.status;
                // The look-up counted a reference that the kernel does not get.
                self.venus().forget(leaf.fid, 1);
                if leaf.kind != Kind::MountPoint {
                    return Err(Refusal(Errno::NODATA));
                }
                self.venus().readlink(&self.request(), leaf.fid)?
            }
        })
    }

    pub(crate) fn set_virtual(&self, wanted: Virtual, value: &[u8]) -> Result<(), Refusal> {
        let Virtual::Mount(name) = wanted else { return Err(Refusal(Errno::PERM)) };
        let (dir, kind) = (self.fid()?, NewKind::MountPoint(Bytes::copy_from_slice(value)));
        let made = self.venus().make(&self.request(), dir, &name, kind, 0)?;
        self.venus().forget(made.status.fid, 1);
        self.on.notifier.name_changed(dir, &name);
        self.done();
        Ok(())
    }

    pub(crate) fn remove_virtual(&self, wanted: Virtual) -> Result<(), Refusal> {
        let Virtual::Mount(name) = wanted else { return Err(Refusal(Errno::PERM)) };
        let dir = self.fid()?;
        self.venus().remove_mount_point(&self.request(), dir, &name)?;
        self.on.notifier.name_changed(dir, &name);
        self.done();
        Ok(())
    }
}
