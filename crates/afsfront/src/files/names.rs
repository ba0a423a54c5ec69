//! Changes of directories.

use afs3::files::FilesAnswer;
use afs3::structs::{AfsFid, AfsName, StoreStatus, store_mask};
use bytes::Bytes;
use types::{
    Answer, Call, CreateHow, Fault, Fid, Name, NameError, NewKind, RemoveWhat, RenameMode, Status,
};

use super::{FileCall, find, unexpected};
use crate::{Refusal, foreign_fid};

/// The mode of a new file whose maker names none, as AFS's servers have it.
const MODE: u16 = 0o777;
/// A name that ends so stands for one of the client's system: no file can have it.
const SYSTEM_ENDING: &[u8] = b"@sys";

/// A name that a file may get.
fn need_ordinary(name: &AfsName) -> Result<(), Refusal> {
    if name.as_bytes().ends_with(SYSTEM_ENDING) { Err(Refusal::INVALID) } else { Ok(()) }
}

impl FileCall<'_> {
    /// The directory of a call, and the name in it.
    fn place(&self, dir: AfsFid, name: &AfsName) -> Result<(Fid, Name), Refusal> {
        let dir = find(self, dir)?.fid;
        let name = Name::new(name.as_bytes()).map_err(|error| match error {
            NameError::TooLong => Refusal::NAME_TOO_LONG,
            NameError::Empty | NameError::BadByte | NameError::Dots => Refusal::INVALID,
        })?;
        Ok((dir, name))
    }

    fn make(
        &self,
        dir: AfsFid,
        name: &AfsName,
        kind: NewKind,
        given: &StoreStatus,
    ) -> Result<(Status, Status), Refusal> {
        need_ordinary(name)?;
        let (dir, name) = self.place(dir, name)?;
        let names_mode = given.mask & store_mask::MODE != 0;
        let mode = if names_mode { (given.mode & 0o7777) as u16 } else { MODE };
        let call = Call::Make { dir, name, kind, mode, how: CreateHow::Guarded };
        match self.services.ask(call)? {
            Answer::Made { status, dir, .. } => Ok((status, dir)),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn create(
        &self,
        dir: AfsFid,
        name: &AfsName,
        given: &StoreStatus,
    ) -> Result<FilesAnswer, Refusal> {
        let (status, dir_status) = self.make(dir, name, NewKind::File, given)?;
        Ok(FilesAnswer::CreateFile {
            fid: foreign_fid(status.fid)?,
            status: self.shown_as(&status)?,
            dir_status: self.shown_as(&dir_status)?,
            callback: self.callback(),
            sync: self.sync_of(dir.volume)?,
        })
    }

    pub(super) fn make_directory(
        &self,
        dir: AfsFid,
        name: &AfsName,
        given: &StoreStatus,
    ) -> Result<FilesAnswer, Refusal> {
        let (status, dir_status) = self.make(dir, name, NewKind::Directory, given)?;
        Ok(FilesAnswer::MakeDir {
            fid: foreign_fid(status.fid)?,
            status: self.shown_as(&status)?,
            dir_status: self.shown_as(&dir_status)?,
            callback: self.callback(),
            sync: self.sync_of(dir.volume)?,
        })
    }

    /// A link without execute bits whose target begins as one is a mount point.
    pub(super) fn symlink(
        &self,
        dir: AfsFid,
        name: &AfsName,
        target: &[u8],
        given: &StoreStatus,
    ) -> Result<FilesAnswer, Refusal> {
        let names_mode = given.mask & store_mask::MODE != 0;
        let is_mount_point =
            names_mode && given.mode & 0o111 == 0 && matches!(target.first(), Some(b'#' | b'%'));
        let target = Bytes::copy_from_slice(target);
        let kind =
            if is_mount_point { NewKind::MountPoint(target) } else { NewKind::Symlink(target) };
        let (status, dir_status) = self.make(dir, name, kind, given)?;
        Ok(FilesAnswer::Symlink {
            fid: foreign_fid(status.fid)?,
            status: self.shown_as(&status)?,
            dir_status: self.shown_as(&dir_status)?,
            sync: self.sync_of(dir.volume)?,
        })
    }

    pub(super) fn link(
        &self,
        dir: AfsFid,
        name: &AfsName,
        existing: AfsFid,
    ) -> Result<FilesAnswer, Refusal> {
        if dir.volume != existing.volume {
            return Err(Refusal::CROSS_DEVICE);
        }
        let sync = self.sync_of(dir.volume)?;
        let fid = find(self, existing)?.fid;
        need_ordinary(name)?;
        let (dir, name) = self.place(dir, name)?;
        match self.services.ask(Call::Link { fid, dir, name })? {
            Answer::Made { status, dir, .. } => Ok(FilesAnswer::Link {
                status: self.shown_as(&status)?,
                dir_status: self.shown_as(&dir)?,
                sync,
            }),
            _ => Err(unexpected()),
        }
    }

    /// Removes an entry; a mount point if the services say that it is one.
    fn remove(&self, dir: AfsFid, name: &AfsName, what: RemoveWhat) -> Result<Status, Refusal> {
        let (dir, name) = self.place(dir, name)?;
        let ask = |what| {
            let call = Call::Remove { dir, name: name.clone(), what, hold: false };
            self.services.ask(call)
        };
        let removed = match ask(what) {
            Err(Fault::Busy) if what == RemoveWhat::File => ask(RemoveWhat::MountPoint),
            removed => removed,
        };
        match removed? {
            Answer::Removed { dir, .. } => Ok(dir),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn remove_file(&self, dir: AfsFid, name: &AfsName) -> Result<FilesAnswer, Refusal> {
        let sync = self.sync_of(dir.volume)?;
        let dir = self.remove(dir, name, RemoveWhat::File)?;
        Ok(FilesAnswer::RemoveFile { dir_status: self.shown_as(&dir)?, sync })
    }

    pub(super) fn remove_directory(
        &self,
        dir: AfsFid,
        name: &AfsName,
    ) -> Result<FilesAnswer, Refusal> {
        let sync = self.sync_of(dir.volume)?;
        let dir = self.remove(dir, name, RemoveWhat::Directory)?;
        Ok(FilesAnswer::RemoveDir { dir_status: self.shown_as(&dir)?, sync })
    }

    pub(super) fn rename(
        &self,
        (old_dir, old_name): (AfsFid, &AfsName),
        (new_dir, new_name): (AfsFid, &AfsName),
    ) -> Result<FilesAnswer, Refusal> {
        if old_dir.volume != new_dir.volume {
            return Err(Refusal::CROSS_DEVICE);
        }
        let sync = self.sync_of(old_dir.volume)?;
        let (from_dir, from) = self.place(old_dir, old_name)?;
        need_ordinary(new_name)?;
        let (to_dir, to) = self.place(new_dir, new_name)?;
        let ask = |mode| {
            let (from, to) = (from.clone(), to.clone());
            self.services.ask(Call::Rename { from_dir, from, to_dir, to, mode, hold: false })
        };
        let renamed = match ask(RenameMode::Replace) {
            Err(Fault::Busy) => ask(RenameMode::MountPoint),
            renamed => renamed,
        };
        match renamed? {
            Answer::Renamed { from_dir, to_dir, .. } => Ok(FilesAnswer::Rename {
                old_dir_status: self.shown_as(&from_dir)?,
                new_dir_status: self.shown_as(&to_dir)?,
                sync,
            }),
            _ => Err(unexpected()),
        }
    }
}
