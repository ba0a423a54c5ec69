//! Locks, all of them the server's, but those in volumes that nobody can change: they are this client's own, whichever server has the volume. What was written under a lock is at the server before the lock is given back, and what
//! others wrote is seen after it is had, because their writes ended our promise.

use std::sync::Arc;

use client::Cancel;
use types::{Answer, ByteRange, Call, Fault, LockConflict, LockFamily, LockMode, LockOwner};

use crate::file::{File, Granted};
use crate::{Error, Handle, Request, Venus};

impl Venus {
    /// The lock in the way of one, if any.
    ///
    /// # Errors
    /// As the service says.
    pub fn getlk(
        &self,
        request: &Request<'_>,
        handle: Handle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, Error> {
        let file = Arc::clone(&self.core.open_of(handle)?.file);
        if self.core.own_locks {
            let found = file.data.lock().conflict(&Granted { owner, pid: 0, family, range, mode });
            return Ok(found.map(|lock| LockConflict { pid: lock.pid, range: lock.range, mode: lock.mode }));
        }
        let fid = file.fid;
        match self.core.call(request, Call::TestLock { fid, owner, family, range, mode })? {
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
        request: &Request<'_>,
        handle: Handle,
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
        if self.core.own_locks {
            return grant(&file, Granted { owner, pid, family, range, mode }, wait, request.cancel);
        }
        self.core.send_all(&file, request.cancel)?;
        let call = Call::Lock { fid: file.fid, owner, pid, family, range, mode, wait, reclaim: false };
        let lost = file.data.lock().locks_lost;
        self.core.call(request, call)?;
        let mut data = file.data.lock();
        if data.locks_lost != lost {
            return Err(Error::LockLost);
        }
        data.granted(Granted { owner, pid, family, range, mode });
        open.set_locked(lost);
        Ok(())
    }

    /// Lets go of a lock, or of a part; what was written under it is at the server before.
    ///
    /// # Errors
    /// As the service says.
    pub fn unlock(
        &self,
        request: &Request<'_>,
        handle: Handle,
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
        // An unlock is not taken back: the kernel has no lock any more.
        self.core.send_all(file, None)?;
        let fid = file.fid;
        self.core.call(&Request { cancel: None, ..*request }, Call::Unlock { fid, owner, family, range })?;
        file.data.lock().ungranted(owner, family, range);
        Ok(())
    }
}

/// A lock of our own. Nobody has such a file open for writing, so what is exclusive is `flock`'s, which knows no deadlocks.
fn grant(file: &Arc<File>, lock: Granted, wait: bool, cancel: Option<&Cancel>) -> Result<(), Error> {
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
