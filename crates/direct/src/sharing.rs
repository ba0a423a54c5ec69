//! Opens, keys and locks as a program has them (docs/spec/sharing.md).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use types::{ByteRange, DataUse, Fault, LockConflict, LockMode, LockOwner, PersistHow, ShareKey};

use crate::hold::{FileHold, fresh_owner};
use crate::path::{LastLink, Place};
use crate::{DirectCell, DirectError, DirectFile};

/// Is a file made that does not exist?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MakeFile {
    /// No: the open is refused with `NotFound`.
    #[default]
    Never,
    /// Yes, with this mode. It is opened after that, so another program may open it first.
    IfMissing(u16),
    /// It is made with this mode; one that exists is refused with `Exists`.
    Always(u16),
}

/// How a program opens a file at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// The uses that the program makes of the file's data: at least one.
    pub access: DataUse,
    /// The uses that no other open, and no other client, has meanwhile.
    pub deny: DataUse,
    /// All who have the file open meanwhile have this key.
    pub key: Option<ShareKey>,
    /// Is a file made that does not exist?
    pub make: MakeFile,
}

impl OpenHow {
    /// Denies nothing, and has no key.
    pub fn new(access: DataUse) -> OpenHow {
        OpenHow { access, deny: DataUse::Nothing, key: None, make: MakeFile::Never }
    }
}

/// Locked bytes, with an owner of their own: they conflict with all other locks. They are unlocked
/// when it is dropped; if the server is away then, as soon as it is back.
pub struct FileLock {
    hold: Arc<OnceLock<FileHold>>,
    owner: LockOwner,
    range: ByteRange,
    is_unlocked: bool,
}

/// Bytes that are locked exclusively by an owner of their own, for a change that must be whole.
/// Others learn of any end but [`PersistentLock::finish`]: their locks of these bytes are refused
/// with `LockBroken` until one of them repairs the file. When it is dropped it ends so, too.
pub struct PersistentLock {
    lock: FileLock,
}

impl DirectFile {
    /// Locks bytes persistently (docs/spec/sharing.md). Waits as [`DirectFile::lock`] does.
    ///
    /// # Errors
    /// As [`DirectFile::lock`]. `Refused(LockBroken)`: an earlier holder did not finish its work,
    /// see [`DirectFile::lock_to_repair`].
    pub fn lock_persistently(
        &self,
        range: ByteRange,
        within: Option<Duration>,
    ) -> Result<PersistentLock, DirectError> {
        let lock = self.lock(range, LockMode::Exclusive, within)?;
        self.hold().persist(lock.owner, range, PersistHow::New)?;
        Ok(PersistentLock { lock })
    }

    /// As [`DirectFile::lock_persistently`], although earlier holders did not finish their work
    /// there, and without waiting: the caller makes the file whole, and then finishes the lock.
    ///
    /// # Errors
    /// As [`DirectFile::lock`]; `Refused(Locked)`: another holder is at work.
    pub fn lock_to_repair(&self, range: ByteRange) -> Result<PersistentLock, DirectError> {
        let owner = fresh_owner();
        self.hold().persist(owner, range, PersistHow::Repairs)?;
        let hold = Arc::clone(&self.hold);
        Ok(PersistentLock { lock: FileLock { hold, owner, range, is_unlocked: false } })
    }

    /// Opens the file with this path at its server, which holds others to `how` until the last
    /// clone is dropped, or one of them [closed](DirectFile::close).
    ///
    /// # Errors
    /// `Refused`, with `ShareConflict` or `KeyConflict` because of another open; `Busy`: a kernel
    /// writes the file; as [`DirectFile::open`].
    pub fn open_with(
        cell: &DirectCell,
        path: &str,
        how: &OpenHow,
    ) -> Result<DirectFile, DirectError> {
        let made = match how.make {
            MakeFile::Never => {
                let place = Place::find(cell, path, LastLink::Followed)?;
                DirectFile::at(cell, place.volume, place.status.fid)
            }
            MakeFile::IfMissing(mode) => Self::create(cell, path, mode)?,
            MakeFile::Always(mode) => Self::create_new(cell, path, mode)?,
        };
        let uses = (how.access, how.deny);
        let hold = FileHold::open(cell, &made.volume, made.fid, uses, how.key)?;
        Ok(DirectFile { hold: Arc::new(OnceLock::from(hold)), ..made })
    }

    /// Ends the open, and all locks that were taken by this file or its clones. Their operations
    /// fail with `Closed` from now on; those that were begun go on. Dropping the last clone does
    /// the same, but tells no errors.
    ///
    /// # Errors
    /// `LostOpen`, `LostLock`: others may have used the file before. `Closed`: it was closed
    /// before. `Refused`; in each case it is closed.
    pub fn close(self) -> Result<(), DirectError> {
        self.hold.get().map_or(Ok(()), FileHold::close)
    }

    /// The open has less access, or denies less, from now on.
    ///
    /// # Errors
    /// `Refused(Invalid)`: that is more than it has, no access, or the file has no open at the
    /// server. `LostOpen`; `LostLock`; `Closed`.
    pub fn downgrade(&self, access: DataUse, deny: DataUse) -> Result<(), DirectError> {
        let hold = self.hold.get().ok_or(DirectError::Refused(Fault::Invalid))?;
        hold.downgrade(access, deny)
    }

    /// Locks bytes, against all other locks of the family of `fcntl`, of mounts, too. Waits for
    /// those that are in the way, for `within` at most; `None`: without end.
    ///
    /// # Errors
    /// `Refused(Locked)`: they were still in the way. `Refused`, with `Deadlock` or another reason.
    /// `LostOpen`; `LostLock`; `Closed`. `Lost`: the server went away while it was asked to give up
    /// waiting.
    pub fn lock(
        &self,
        range: ByteRange,
        mode: LockMode,
        within: Option<Duration>,
    ) -> Result<FileLock, DirectError> {
        let owner = fresh_owner();
        self.hold().lock(owner, range, mode, within)?;
        let hold = Arc::clone(&self.hold);
        Ok(FileLock { hold, owner, range, is_unlocked: false })
    }

    /// As [`DirectFile::lock`], for an owner of the program's, which is one of this file and its
    /// clones alone. As with `fcntl` the owner's later locks replace earlier ones on the bytes that
    /// they share, and the bytes stay locked until [`DirectFile::unlock_as`] or the end of the
    /// file. One thread at a time locks and unlocks for an owner.
    ///
    /// # Errors
    /// As [`DirectFile::lock`].
    pub fn lock_as(
        &self,
        owner: LockOwner,
        range: ByteRange,
        mode: LockMode,
        within: Option<Duration>,
    ) -> Result<(), DirectError> {
        let hold = self.hold();
        hold.lock(hold.owner(owner)?, range, mode, within)
    }

    /// Unlocks bytes of an owner.
    ///
    /// # Errors
    /// `LostOpen`, `LostLock`: they were lost before; `Closed`; `Refused`. The owner has no lock
    /// there in any case.
    pub fn unlock_as(&self, owner: LockOwner, range: ByteRange) -> Result<(), DirectError> {
        let hold = self.hold();
        hold.unlock(hold.owner(owner)?, range)
    }

    /// A lock that would be in the way of this one of the owner, if there is any.
    ///
    /// # Errors
    /// `Refused`; `LostOpen`; `LostLock`; `Closed`.
    pub fn test_lock(
        &self,
        owner: LockOwner,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, DirectError> {
        let hold = self.hold();
        hold.test(hold.owner(owner)?, range, mode)
    }

    fn hold(&self) -> &FileHold {
        self.hold.get_or_init(|| FileHold::new(&self.cell, &self.volume, self.fid))
    }
}

impl PersistentLock {
    /// The locked bytes.
    pub fn range(&self) -> ByteRange {
        self.lock.range
    }

    /// Makes the file's data stable, and unlocks the bytes: the work is done.
    ///
    /// # Errors
    /// `LostLock`, `LostOpen`: the lock was lost before, or its session ended meanwhile; others
    /// learn of it. `Closed`; `Refused`.
    pub fn finish(mut self) -> Result<(), DirectError> {
        let FileLock { owner, range, .. } = self.lock;
        let result = self.lock.hold.get().map_or(Ok(()), |hold| hold.finish(owner, range));
        self.lock.is_unlocked = result.is_ok();
        result
    }
}

impl FileLock {
    /// The locked bytes.
    pub fn range(&self) -> ByteRange {
        self.range
    }

    /// Unlocks the bytes.
    ///
    /// # Errors
    /// `LostOpen`, `LostLock`: the lock was lost before. `Closed`: it ended with its file.
    /// `Refused`. It is no lock any more in any case.
    pub fn unlock(mut self) -> Result<(), DirectError> {
        self.is_unlocked = true;
        self.hold.get().map_or(Ok(()), |hold| hold.unlock(self.owner, self.range))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let (false, Some(hold)) = (self.is_unlocked, self.hold.get()) {
            hold.release(self.owner, self.range);
        }
    }
}
