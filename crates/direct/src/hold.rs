//! The calls by which an open file gets and gives up an open and locks at the server.
//!
//! Model. A [`FileHold`] is what the clones of one `DirectFile` share. `claims` knows what it has.
//! Each call that grants something is made until its answer counts there. A call that ends
//! something is made after the table has forgotten it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{CallError, Cancel, Remote, RemoteVolume, Reply};
use parking_lot::{Condvar, Mutex};
use types::{
    Answer, ByteRange, Call, DataUse, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner,
    OpenId, PersistHow, ShareKey,
};

use crate::claims::{Claims, GrantNoted, HeldNumber, HeldOpen, LockedBytes, persist, unlock};
use crate::{DirectCell, DirectError};

/// How often a thread whose time is over looks whether the server is there: without it the outcome
/// of a cancelled request would be unknown.
const AWAY_POLL: Duration = Duration::from_millis(50);

/// See the head of the file. Its open and its locks end with it.
pub(crate) struct FileHold {
    cell: DirectCell,
    volume: Arc<RemoteVolume>,
    claims: Arc<Claims>,
    fid: Fid,
    number: HeldNumber,
}

/// An owner of locks that this process has not used yet.
pub(crate) fn fresh_owner() -> LockOwner {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LockOwner(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

impl FileHold {
    /// Has nothing yet.
    pub fn new(cell: &DirectCell, volume: &Arc<RemoteVolume>, fid: Fid) -> FileHold {
        let claims = cell.claims(volume);
        let number = claims.add(fid);
        FileHold { cell: cell.clone(), volume: Arc::clone(volume), claims, fid, number }
    }

    /// Opens the file at its server.
    ///
    /// # Errors
    /// `Refused`; `Lost`.
    pub fn open(
        cell: &DirectCell,
        volume: &Arc<RemoteVolume>,
        fid: Fid,
        (access, deny): (DataUse, DataUse),
        key: Option<ShareKey>,
    ) -> Result<FileHold, DirectError> {
        let claims = cell.claims(volume);
        loop {
            let before = volume.association();
            let call = Call::Open { fid, access, deny, key, claims: false };
            let id = match volume.call(cell.caller(), call, None) {
                Ok(Reply { answer: Answer::Opened { open, .. }, .. }) => open,
                Ok(_) => return Err(DirectError::Odd),
                // The session took an open along that it may have had.
                Err(CallError::Lost) if volume.association() != before => continue,
                Err(error) => return Err(error.into()),
            };
            let open = HeldOpen { id, access, deny, key };
            if let Some(number) = claims.add_open(volume, before, fid, open) {
                let (cell, volume) = (cell.clone(), Arc::clone(volume));
                return Ok(FileHold { cell, volume, claims, fid, number });
            }
            claims.end(volume, &Call::Close { fid, open: id })?;
        }
    }

    /// May an operation begin? One that begins while the server is away would be sent in the next
    /// session, if this one's lease ends meanwhile. So this waits for the server, by a question:
    /// the volume is looked for elsewhere while calls wait.
    ///
    /// # Errors
    /// As [`FileHold::check`].
    pub fn begin(&self) -> Result<(), DirectError> {
        if !self.volume.stands() && self.claims.has_any(self.number) {
            // Its answer does not matter, and the operation gets the same error.
            let _ = self.volume.call(self.cell.caller(), Call::GetStatus { fid: self.fid }, None);
        }
        self.check()
    }

    /// Makes a call as an operation of the file. With an open or a lock it is sent in the session
    /// that has them, or not at all.
    ///
    /// # Errors
    /// As [`Remote::call`]; those of [`FileHold::check`].
    pub fn call(&self, call: &Call) -> Result<Reply, DirectError> {
        loop {
            self.begin()?;
            let cancel = self.claims.has_any(self.number).then(Cancel::of_session);
            match self.volume.call(self.cell.caller(), call.clone(), cancel.as_ref()) {
                // The connection broke before it was sent.
                Err(CallError::Cancelled) if cancel.is_some() => {}
                result => {
                    let reply = result?;
                    return self.check().map(|()| reply);
                }
            }
        }
    }

    /// Must an operation of the file be sent in the session of now?
    pub fn is_of_session(&self) -> bool {
        self.claims.has_any(self.number)
    }

    /// Does the server keep all that this has?
    ///
    /// # Errors
    /// `LostOpen`, `LostLock`, `Closed`.
    pub fn check(&self) -> Result<(), DirectError> {
        self.claims.check(&self.volume, self.number)
    }

    /// The owner that the program named.
    ///
    /// # Errors
    /// `Closed`.
    pub fn owner(&self, named: LockOwner) -> Result<LockOwner, DirectError> {
        self.claims.owner(self.number, named, fresh_owner)
    }

    /// Locks bytes; waits for others that have them locked, for `within` at most.
    ///
    /// # Errors
    /// `Refused(Locked)`, `Refused(Deadlock)`, other refusals; those of [`FileHold::check`].
    pub fn lock(
        &self,
        owner: LockOwner,
        range: ByteRange,
        mode: LockMode,
        within: Option<Duration>,
    ) -> Result<(), DirectError> {
        let until = within.and_then(|within| Instant::now().checked_add(within));
        // LK-5: the owner's earlier unlock may be among them.
        self.claims.await_releases();
        loop {
            self.begin()?;
            let before = self.volume.association();
            match self.ask(owner, range, mode, until) {
                Ok(()) => {}
                Err(CallError::Lost) if self.volume.association() != before => continue,
                Err(CallError::Lost | CallError::TimedOut | CallError::Unreadable) => {
                    // The owner may have it or not, and so may lack a lock that it had there.
                    self.claims.lose(self.number);
                    self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
                    return Err(DirectError::Lost);
                }
                Err(CallError::Cancelled) => return Err(DirectError::Refused(Fault::Locked)),
                Err(error) => return Err(error.into()),
            }
            let locked = LockedBytes { range, mode, is_persistent: false };
            match self.claims.note_lock(&self.volume, (self.number, before), owner, locked) {
                Ok(GrantNoted::Held) => return Ok(()),
                // The same request again changes nothing if the owner has the lock.
                Ok(GrantNoted::Again) => {}
                Err(error) => {
                    self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
                    return Err(error);
                }
            }
        }
    }

    /// Makes bytes that the owner has locked exclusively persistent; to repair the file it takes
    /// them, too.
    ///
    /// # Errors
    /// As [`FileHold::lock`]; `Refused(LockBroken)`.
    pub fn persist(
        &self,
        owner: LockOwner,
        range: ByteRange,
        how: PersistHow,
    ) -> Result<(), DirectError> {
        self.claims.await_releases();
        loop {
            self.begin()?;
            let before = self.volume.association();
            match self.volume.call(self.cell.caller(), persist(self.fid, owner, range, how), None) {
                Ok(_) => {}
                Err(CallError::Lost) if self.volume.association() != before => continue,
                Err(CallError::Lost | CallError::TimedOut | CallError::Unreadable) => {
                    self.claims.lose(self.number);
                    self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
                    return Err(DirectError::Lost);
                }
                Err(error) => return Err(error.into()),
            }
            let locked = LockedBytes { range, mode: LockMode::Exclusive, is_persistent: true };
            match self.claims.note_lock(&self.volume, (self.number, before), owner, locked) {
                Ok(GrantNoted::Held) => return Ok(()),
                // A new lock was taken before, and is claimed: the same request again changes
                // nothing. A repair passes the record that it has left itself.
                Ok(GrantNoted::Again) => {}
                Err(error) => {
                    self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
                    return Err(error);
                }
            }
        }
    }

    /// Ends a persistent lock normally.
    ///
    /// # Errors
    /// `Refused`; those of [`FileHold::check`], and `LostLock`: others learn of an abnormal end.
    pub fn finish(&self, owner: LockOwner, range: ByteRange) -> Result<(), DirectError> {
        self.check()?;
        // It is claimed until that is done: the record that a move renews is the one that ends.
        let before = self.volume.association();
        let call = Call::FinishLock { fid: self.fid, owner, range };
        match self.volume.call(self.cell.caller(), call, None) {
            Ok(_) => {}
            Err(CallError::Lost | CallError::Fault(Fault::Stale)) => {
                return Err(DirectError::LostLock);
            }
            Err(error) => return Err(error.into()),
        }
        // This work was done, though the lock may be lost since.
        let _ = self.claims.forget_lock(self.number, owner, range);
        if self.volume.association() != before {
            // It may have been claimed after it was finished.
            self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
        }
        Ok(())
    }

    /// Asks for the lock, at first without waiting: most locks are free.
    fn ask(
        &self,
        owner: LockOwner,
        range: ByteRange,
        mode: LockMode,
        until: Option<Instant>,
    ) -> Result<(), CallError> {
        let (fid, family, pid) = (self.fid, LockFamily::Posix, std::process::id());
        let call = |wait| Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim: false };
        let caller = self.cell.caller();
        let asked = self.volume.call(caller, call(false), None).map(drop);
        let is_taken = matches!(asked, Err(CallError::Fault(Fault::Locked)));
        match until {
            _ if !is_taken => asked,
            None => self.volume.call(caller, call(true), None).map(drop),
            Some(until) if until <= Instant::now() => asked,
            Some(until) => {
                let cancel = Cancel::new();
                cancelled_at(until, &self.volume, &cancel, || {
                    self.volume.call(caller, call(true), Some(&cancel)).map(drop)
                })
            }
        }
    }

    /// Unlocks bytes of the owner.
    ///
    /// # Errors
    /// `Refused`; those of [`FileHold::check`]: the owner has no lock there all the same.
    pub fn unlock(&self, owner: LockOwner, range: ByteRange) -> Result<(), DirectError> {
        let forgotten = self.claims.forget_lock(self.number, owner, range);
        match self.claims.end(&self.volume, &unlock(self.fid, owner, range)) {
            // A session that ended took the lock along.
            Ok(()) | Err(CallError::Lost) => forgotten,
            Err(error) => Err(error.into()),
        }
    }

    /// As [`FileHold::unlock`], for `drop`.
    pub fn release(&self, owner: LockOwner, range: ByteRange) {
        // A file that was closed has given up all its locks.
        if !matches!(self.claims.forget_lock(self.number, owner, range), Err(DirectError::Closed)) {
            self.claims.release(&self.volume, vec![unlock(self.fid, owner, range)]);
        }
    }

    /// A lock of another owner that conflicts with this one, if there is any.
    ///
    /// # Errors
    /// `Refused`; those of [`FileHold::check`].
    pub fn test(
        &self,
        owner: LockOwner,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, DirectError> {
        self.check()?;
        let (fid, family) = (self.fid, LockFamily::Posix);
        let call = Call::TestLock { fid, owner, family, range, mode };
        match self.volume.call(self.cell.caller(), call, None)?.answer {
            Answer::LockTest(conflict) => Ok(conflict),
            _ => Err(DirectError::Odd),
        }
    }

    /// The open has less access, or denies less, from now on.
    ///
    /// # Errors
    /// `Refused(Invalid)`: that is more than it has, or there is no open; those of
    /// [`FileHold::check`].
    pub fn downgrade(&self, access: DataUse, deny: DataUse) -> Result<(), DirectError> {
        let mut asked: Option<OpenId> = None;
        loop {
            self.check()?;
            let before = self.volume.association();
            // It is claimed with these uses from now on.
            let open = self.claims.downgrade(self.number, access, deny)?;
            let call = Call::Downgrade { fid: self.fid, open, access, deny };
            match self.volume.call(self.cell.caller(), call, None) {
                Ok(_) if self.volume.association() == before => return Ok(()),
                // The next instance may have been asked for the uses that it had before.
                Ok(_) => {}
                Err(CallError::Lost) if self.volume.association() != before => {}
                Err(CallError::Fault(Fault::Stale)) if asked != Some(open) => {}
                Err(error) => return Err(error.into()),
            }
            asked = Some(open);
        }
    }

    /// Ends all that it has.
    ///
    /// # Errors
    /// `Closed`: that was done before. `LostOpen`, `LostLock`: it was lost before. `Refused`;
    /// `Lost`.
    pub fn close(&self) -> Result<(), DirectError> {
        let (ends, lost) = self.claims.close(self.number)?;
        let mut failed = lost.map(|lost| lost.error());
        for call in ends {
            match self.claims.end(&self.volume, &call) {
                // A session that ended took it along.
                Ok(()) | Err(CallError::Lost) => {}
                Err(error) => failed = failed.or(Some(error.into())),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for FileHold {
    fn drop(&mut self) {
        if let Ok((ends, _)) = self.claims.close(self.number) {
            self.claims.release(&self.volume, ends);
        }
    }
}

/// Runs a call that another thread cancels at `until`, or as soon after that as the server is
/// there.
fn cancelled_at(
    until: Instant,
    volume: &RemoteVolume,
    cancel: &Cancel,
    call: impl FnOnce() -> Result<(), CallError>,
) -> Result<(), CallError> {
    let (is_over, ended) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|threads| {
        let watch = || {
            let mut is_over = is_over.lock();
            let mut next = until;
            while !*is_over {
                if ended.wait_until(&mut is_over, next).timed_out() {
                    if volume.stands() {
                        drop(is_over);
                        return cancel.cancel();
                    }
                    next = Instant::now() + AWAY_POLL;
                }
            }
        };
        let watching = std::thread::Builder::new().spawn_scoped(threads, watch);
        let result = match watching {
            Ok(_) => call(),
            Err(error) => Err(CallError::Refused(format!("no thread to wait with: {error}"))),
        };
        *is_over.lock() = true;
        ended.notify_all();
        result
    })
}
