//! Locks of applications here, and the locks of whole files at file servers that stand for them.
//!
//! Model: AFS locks a whole file for a host, shared or exclusive. So a file with locks of
//! applications has one lock at its server: exclusive if any of theirs is. Among the applications
//! of this mount ranges, owners and families count as everywhere. The server's lock ends with the
//! last of theirs, or 5 minutes after the client extended it last.
//!
//! A server does not tell when a lock becomes free, so one that waits asks again.

use std::ops::Deref;
use std::time::Duration;

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::lock_type;
use client::{CallError, Cancel};
use parking_lot::Mutex;
use types::limits::LOCKS_PER_SESSION_MAX;
use types::{Answer, ByteRange, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner};

use crate::context::{AfsCall, Answered};
use crate::lock_table::{LockedFile, OwnLock};
use crate::statuses::foreign;
use crate::users::AfsUser;

/// How often a lock that waits is tried again: here, and at the server.
const PAUSE_HERE: Duration = Duration::from_millis(20);
const PAUSE_THERE: Duration = Duration::from_millis(500);
/// How a status shows a lock for writing: -1.
const WRITE_LOCKED: u32 = u32::MAX;

fn wait(pause: Duration, cancel: Option<&Cancel>) -> Result<(), CallError> {
    if cancel.is_some_and(Cancel::is_cancelled) {
        return Err(CallError::Cancelled);
    }
    std::thread::sleep(pause.min(PAUSE_THERE));
    Ok(())
}

/// The calls about locks.
pub(crate) struct LockCalls<'c>(pub &'c AfsCall<'c>);

impl<'c> Deref for LockCalls<'c> {
    type Target = AfsCall<'c>;

    fn deref(&self) -> &AfsCall<'c> {
        self.0
    }
}

impl LockCalls<'_> {
    pub(crate) fn lock(
        &self,
        fid: Fid,
        wanted: OwnLock,
        waits: bool,
    ) -> Result<Answered, CallError> {
        loop {
            let pause = {
                let file = self.cell.locks.of(fid);
                let mut file = file.lock();
                if file.own.len() >= LOCKS_PER_SESSION_MAX {
                    return Err(Fault::NoSpace.into());
                }
                if file.conflict(&wanted).is_some() {
                    PAUSE_HERE
                } else {
                    match self.lock_there(fid, &mut file, wanted.mode) {
                        Ok(()) => {
                            file.take(wanted);
                            return Ok(Answered::plain(Answer::Done));
                        }
                        Err(CallError::Fault(Fault::Locked)) => PAUSE_THERE,
                        Err(error) => return Err(error),
                    }
                }
            };
            if !waits {
                self.cell.locks.sweep();
                return Err(Fault::Locked.into());
            }
            wait(pause, self.cancel)?;
        }
    }

    /// Has the server lock the file for this mode and those that are held.
    fn lock_there(&self, fid: Fid, file: &mut LockedFile, mode: LockMode) -> Result<(), CallError> {
        let needed = file.needed(Some(mode)).unwrap_or(mode);
        match file.there {
            Some((LockMode::Exclusive, _)) => return Ok(()),
            Some((LockMode::Shared, _)) if needed == LockMode::Shared => return Ok(()),
            Some((LockMode::Shared, holder)) => {
                // A server does not turn one into the other. If another host is quicker the shared
                // lock comes back, unless that host writes.
                self.unlock_there(fid, holder)?;
                file.there = None;
                if let Err(error) = self.set_lock(fid, file, LockMode::Exclusive) {
                    let _ = self.set_lock(fid, file, LockMode::Shared);
                    return Err(error);
                }
            }
            None => self.set_lock(fid, file, needed)?,
        }
        Ok(())
    }

    fn set_lock(&self, fid: Fid, file: &mut LockedFile, mode: LockMode) -> Result<(), CallError> {
        let kind = match mode {
            LockMode::Shared => lock_type::READ,
            LockMode::Exclusive => lock_type::WRITE,
        };
        let (answer, ..) =
            self.change(fid.volume, &FilesCall::SetLock { fid: foreign(fid)?, kind })?;
        let FilesAnswer::SetLock { .. } = answer else { return Err(CallError::Unreadable) };
        file.there = Some((mode, self.user));
        Ok(())
    }

    fn unlock_there(&self, fid: Fid, holder: AfsUser) -> Result<(), CallError> {
        let call = FilesCall::ReleaseLock { fid: foreign(fid)? };
        AfsCall { user: holder, ..*self.0 }.change(fid.volume, &call).map(drop)
    }

    pub(crate) fn unlock(
        &self,
        fid: Fid,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
    ) -> Result<Answered, CallError> {
        let file = self.cell.locks.of(fid);
        let mut locked = file.lock();
        locked.cut(owner, family, range);
        if locked.own.is_empty()
            && let Some((_, holder)) = locked.there.take()
            && let Err(error) = self.unlock_there(fid, holder)
        {
            tracing::warn!(
                %fid,
                %error,
                consequence = "other hosts wait for it for 5 minutes at most",
                "a lock was not released at its server"
            );
        }
        drop(locked);
        drop(file);
        self.cell.locks.sweep();
        Ok(Answered::plain(Answer::Done))
    }

    pub(crate) fn test_lock(&self, fid: Fid, wanted: OwnLock) -> Result<Answered, CallError> {
        let file = self.cell.locks.of(fid);
        let locked = file.lock();
        let conflict = locked.conflict(&wanted).map(|lock| LockConflict {
            range: lock.range,
            mode: lock.mode,
            pid: lock.pid,
        });
        let ours = locked.there.map(|(mode, _)| mode);
        drop(locked);
        if conflict.is_some() || ours == Some(LockMode::Exclusive) {
            return Ok(Answered::plain(Answer::LockTest(conflict)));
        }
        let count = self.fetch_status(fid)?.status.lock_count;
        let others = count.saturating_sub(u32::from(ours.is_some()));
        let mode = match count {
            WRITE_LOCKED => Some(LockMode::Exclusive),
            _ if others > 0 && wanted.mode == LockMode::Exclusive => Some(LockMode::Shared),
            _ => None,
        };
        let conflict = mode.map(|mode| LockConflict { range: ByteRange::ALL, mode, pid: 0 });
        Ok(Answered::plain(Answer::LockTest(conflict)))
    }

    /// The lock of a file at its server goes on for 5 minutes; one that ended is taken again.
    pub(crate) fn extend_lock(&self, fid: Fid, file: &Mutex<LockedFile>) {
        let mut file = file.lock();
        let Some((mode, holder)) = file.there else { return };
        let call = AfsCall { user: holder, ..*self.0 };
        let extended = foreign(fid)
            .map_err(CallError::from)
            .and_then(|fid| call.change(call_volume(fid), &FilesCall::ExtendLock { fid }));
        if let Err(error) = extended
            && let Err(again) = LockCalls(&call).set_lock(fid, &mut file, mode)
        {
            tracing::warn!(
                %fid,
                %error,
                %again,
                consequence = "another host may take it",
                "the lock of a file has ended at its server"
            );
        }
    }
}

fn call_volume(fid: afs3::structs::AfsFid) -> types::VolumeId {
    types::VolumeId(fid.volume.into())
}
