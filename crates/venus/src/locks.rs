//! Locks, all of them the server's. What was written under a lock is at the server before the lock is given back, and what
//! others wrote is seen after it is had, because their writes ended our promise.

use std::sync::Arc;

use types::{Answer, ByteRange, Call, LockConflict, LockFamily, LockMode, LockOwner};

use crate::file::Granted;
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
        let fid = self.core.open_of(handle)?.file.fid;
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
        // An unlock is not taken back: the kernel has no lock any more.
        self.core.send_all(file, None)?;
        let fid = file.fid;
        self.core.call(&Request { cancel: None, ..*request }, Call::Unlock { fid, owner, family, range })?;
        file.data.lock().ungranted(owner, family, range);
        Ok(())
    }
}
