//! An open file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::Caller;

use super::{End, FileBytes, Sequence};
use crate::base::{Backing, Error, OpenMode, RequestContext};

pub(crate) struct Open {
    pub file: Arc<FileBytes>,
    pub mode: OpenMode,
    pub caller: Caller,
    /// Failed writes that were reported to this handle.
    pub seen: AtomicU64,
    /// The file's count of lost locks when the first lock was taken through this handle, plus one;
    /// 0: no lock was taken.
    pub locked: AtomicU64,
    pub sequence: Mutex<Sequence>,
    /// The kernel does not report its close before `close` returns: as long as a delegation covers
    /// the file, whoever asks for it sees what was written.
    pub quiet: bool,
    /// As [`OpenReply::direct`].
    pub direct: bool,
    pub made: bool,
    /// The backing file that the kernel uses for this handle.
    pub backing: Option<Backing>,
}

impl Open {
    /// A request in the name of the caller that opened the file: its rights count for this handle,
    /// whichever process uses it now.
    pub fn request<'a>(&'a self, request: &RequestContext<'a>) -> RequestContext<'a> {
        RequestContext { caller: &self.caller, cancel: request.cancel, groups: None }
    }

    /// How near the end of a lock through this handle is: without a `FLUSH` the client learns of
    /// the close only afterwards.
    pub fn end_of_locks(&self) -> End {
        if self.quiet || !self.mode.write { End::Near } else { End::Far }
    }

    /// Reports failed background writes that were not reported to this handle yet.
    ///
    /// # Errors
    /// The last failure, once; [`Error::Lost`] for ever if a preallocated body was lost.
    pub fn take_error(&self) -> Result<(), Error> {
        if self.file.is_lost() {
            return Err(Error::Lost);
        }
        let data = self.file.data.lock();
        if self.seen.swap(data.errors, Ordering::AcqRel) == data.errors {
            return Ok(());
        }
        Err(data.error.clone().unwrap_or(Error::Protocol))
    }

    /// Checks the locks that were taken through this handle.
    ///
    /// # Errors
    /// [`Error::LockLost`], for ever, once one of them is lost.
    pub fn check_locks(&self) -> Result<(), Error> {
        let locked = self.locked.load(Ordering::Acquire);
        if locked == 0 || self.file.data.lock().locks_lost + 1 == locked {
            return Ok(());
        }
        Err(Error::LockLost)
    }

    /// A lock was taken through this handle, after `lost` lost ones.
    pub fn set_locked(&self, lost: u64) {
        let _ = self.locked.compare_exchange(0, lost + 1, Ordering::AcqRel, Ordering::Acquire);
    }
}
