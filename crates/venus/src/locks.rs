//! Locks, all of them the server's, but those in volumes that nobody can change: they are this
//! client's own, whichever server has the volume. What was written under a lock is at the server
//! before the lock is given back, and what others wrote is seen after it is had, because their
//! writes ended our promise.
//!
//! A lock that ends with its open file ends after `close` has returned: the kernel tells us later.
//! Who then asks for one without waiting must not be told that it is taken. So he waits for locks
//! of this client whose file may be closed already: a moment, and as long as it takes once we hear
//! of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Cancel;
use types::{Answer, ByteRange, Call, Fault, LockConflict, LockFamily, LockMode, LockOwner};

use crate::file_data::{End, FileBytes, Granted};
use crate::{Error, OpenHandle, RequestContext, Venus};

/// How much later than `close` returns the kernel may tell us of it.
const CLOSING: Duration = Duration::from_millis(50);
/// How often a waiter looks whether he is interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Venus {
    /// The lock in the way of one, if any.
    ///
    /// # Errors
    /// As the service says.
    pub fn getlk(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, Error> {
        let open = self.core.open_of(handle)?;
        let file = Arc::clone(&open.file);
        if self.core.own_locks {
            let wanted = Granted { owner, pid: 0, family, range, mode, handle, end: End::Far };
            let found = file.data.lock().conflict(&wanted);
            return Ok(found.map(|lock| LockConflict {
                pid: lock.pid,
                range: lock.range,
                mode: lock.mode,
            }));
        }
        let fid = file.fid;
        match self
            .core
            .call(&open.request(request), Call::TestLock { fid, owner, family, range, mode })?
        {
            Answer::LockTest(conflict) => Ok(conflict),
            _ => Err(Error::Protocol),
        }
    }

    /// Takes a lock; with `wait`, blocks until it is had or the request is cancelled.
    ///
    /// # Errors
    /// [`types::Fault::Locked`] without `wait`; [`types::Fault::Deadlock`]; as the service says.
    #[allow(clippy::too_many_arguments)] // They are the lock.
    pub fn setlk(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: LockOwner,
        pid: u32,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
        wait: bool,
    ) -> Result<(), Error> {
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        let file = Arc::clone(&open.file);
        let lock = Granted { owner, pid, family, range, mode, handle, end: open.end_of_locks() };
        if !wait {
            wait_for_closing(&file, &lock, request.cancel);
        }
        if self.core.own_locks {
            return grant(&file, lock, wait, request.cancel);
        }
        self.core.send_all(&file, request.cancel)?;
        let call =
            Call::Lock { fid: file.fid, owner, pid, family, range, mode, wait, reclaim: false };
        let lost = file.data.lock().locks_lost;
        self.core.call(&open.request(request), call)?;
        let mut data = file.data.lock();
        if data.locks_lost != lost {
            return Err(Error::LockLost);
        }
        data.granted(lock);
        open.set_locked(lost);
        Ok(())
    }

    /// Lets go of a lock, or of a part; what was written under it is at the server before.
    ///
    /// # Errors
    /// As the service says.
    pub fn unlock(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
    ) -> Result<(), Error> {
        let open = self.core.open_of(handle)?;
        let file = &open.file;
        if self.core.own_locks {
            file.data.lock().ungranted(owner, family, range);
            file.moved.notify_all();
            return Ok(());
        }
        let these = |lock: &Granted| {
            lock.owner == owner && lock.family == family && lock.range.overlaps(range)
        };
        file.data.lock().ends(End::Now, these);
        // An unlock is not taken back: the kernel has no lock any more.
        let sent = self.core.send_all(file, None);
        let call = Call::Unlock { fid: file.fid, owner, family, range };
        let unlocked =
            sent.and_then(|()| self.core.call(&RequestContext { cancel: None, ..*request }, call));
        let mut data = file.data.lock();
        match unlocked {
            Ok(_) => data.ungranted(owner, family, range),
            Err(_) => data.ends(End::Far, these),
        }
        drop(data);
        file.moved.notify_all();
        unlocked.map(drop)
    }
}

/// Waits while a lock of this client is in the way whose file may be closed already.
fn wait_for_closing(file: &FileBytes, wanted: &Granted, cancel: Option<&Cancel>) {
    let until = Instant::now() + CLOSING;
    let mut data = file.data.lock();
    while let Some(lock) = data.conflict(wanted) {
        let now = Instant::now();
        let over = lock.end == End::Far || lock.end == End::Near && now >= until;
        if over || cancel.is_some_and(Cancel::is_cancelled) {
            return;
        }
        let look = if lock.end == End::Near { until } else { now + POLL_INTERVAL };
        file.moved.wait_until(&mut data, look);
    }
}

/// A lock of our own. Nobody has such a file open for writing, so what is exclusive is `flock`'s,
/// which knows no deadlocks.
fn grant(
    file: &Arc<FileBytes>,
    lock: Granted,
    wait: bool,
    cancel: Option<&Cancel>,
) -> Result<(), Error> {
    let _listening = cancel.map(|cancel| {
        let file = Arc::clone(file);
        cancel.on_cancel(move || {
            drop(file.data.lock());
            file.moved.notify_all();
        })
    });
    let mut data = file.data.lock();
    while data.conflict(&lock).is_some() {
        if !wait {
            return Err(Fault::Locked.into());
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::Interrupted);
        }
        file.moved.wait(&mut data);
    }
    data.granted(lock);
    drop(data);
    // A lock that was made shared lets others in.
    file.moved.notify_all();
    Ok(())
}
