//! Byte-range and whole-file locks. The server grants them; in read-only volumes this client grants
//! them itself, whichever server has the volume. Bytes that were written under a lock are at the
//! server before the lock is released. After a lock is granted its owner sees the others' writes,
//! because these broke our promise.
//!
//! A lock that ends with its open file ends after `close` has returned, because the kernel reports
//! the release later. Another application that then asks for a lock without waiting must not find
//! it taken. So its request waits for locks of this client whose file may be closed already: for
//! [`CLOSING`], and until the unlock is done once the kernel has reported the close.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Cancel;
use types::{Answer, ByteRange, Call, Fault, LockConflict, LockFamily, LockMode, LockOwner};

use super::Handles;
use crate::base::{Error, OpenHandle, POLL_INTERVAL, RequestContext};
use crate::calls::Calls;
use crate::data::{Data, End, FileBytes, Granted, VolumeLegacy};
use crate::writeback::Writeback;

/// The longest time from the return of `close` to the kernel's report of it.
const CLOSING: Duration = Duration::from_millis(50);

/// See the head of the file.
pub struct FileLocks {
    handles: Arc<Handles>,
    calls: Arc<Calls>,
    writeback: Arc<Writeback>,
    own_locks: bool,
    legacy: Option<Arc<VolumeLegacy>>,
}

impl FileLocks {
    pub(crate) fn new(
        handles: &Arc<Handles>,
        calls: &Arc<Calls>,
        writeback: &Arc<Writeback>,
        own_locks: bool,
        legacy: Option<&Arc<VolumeLegacy>>,
    ) -> Self {
        FileLocks {
            handles: Arc::clone(handles),
            calls: Arc::clone(calls),
            writeback: Arc::clone(writeback),
            own_locks,
            legacy: legacy.cloned(),
        }
    }

    /// Records a file's locks for a successor, after each change.
    fn record(&self, file: &FileBytes, data: &mut Data) {
        if let Some(legacy) = &self.legacy {
            legacy.put_locks(file.fid, &data.locks, &mut data.locks_record);
        }
    }

    /// A file has these locks of a predecessor.
    pub(crate) fn inherit(&self, file: &FileBytes, locks: Vec<Granted>) {
        let mut data = file.data.lock();
        for lock in &locks {
            if let Ok(open) = self.handles.open_of(lock.handle) {
                open.set_locked(data.locks_lost);
            }
        }
        data.locks = locks;
        self.record(file, &mut data);
    }

    /// The lock that conflicts with the wanted one, if any.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn getlk(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, Error> {
        let open = self.handles.open_of(handle)?;
        let file = Arc::clone(&open.file);
        if self.own_locks {
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
            .calls
            .call(&open.request(request), Call::TestLock { fid, owner, family, range, mode })?
        {
            Answer::LockTest(conflict) => Ok(conflict),
            _ => Err(Error::Protocol),
        }
    }

    /// Takes a lock; with `wait`, blocks until it is granted or the request is cancelled.
    ///
    /// # Errors
    /// [`types::Fault::Locked`] without `wait`; [`types::Fault::Deadlock`]; the service's refusal.
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
        let open = self.handles.open_of(handle)?;
        open.check_locks()?;
        let file = Arc::clone(&open.file);
        let lock = Granted { owner, pid, family, range, mode, handle, end: open.end_of_locks() };
        if !wait {
            wait_for_closing(&file, &lock, request.cancel);
        }
        if self.own_locks {
            grant(&file, lock, wait, request.cancel)?;
            self.record(&file, &mut file.data.lock());
            return Ok(());
        }
        self.writeback.send_all(&file, request.cancel)?;
        let call =
            Call::Lock { fid: file.fid, owner, pid, family, range, mode, wait, reclaim: false };
        let lost = file.data.lock().locks_lost;
        self.calls.call(&open.request(request), call)?;
        let mut data = file.data.lock();
        if data.locks_lost != lost {
            return Err(Error::LockLost);
        }
        data.granted(lock);
        self.record(&file, &mut data);
        open.set_locked(lost);
        Ok(())
    }

    /// Releases a lock or a part of one; bytes that were written under it are at the server before.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn unlock(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
    ) -> Result<(), Error> {
        let open = self.handles.open_of(handle)?;
        let file = &open.file;
        if self.own_locks {
            let mut data = file.data.lock();
            data.ungranted(owner, family, range);
            self.record(file, &mut data);
            drop(data);
            file.moved.notify_all();
            return Ok(());
        }
        file.data.lock().releases(owner, family, range);
        // An unlock cannot be cancelled: the kernel has dropped the lock already.
        let sent = self.writeback.send_all(file, None);
        let call = Call::Unlock { fid: file.fid, owner, family, range };
        let unlocked =
            sent.and_then(|()| self.calls.call(&RequestContext { cancel: None, ..*request }, call));
        let mut data = file.data.lock();
        match unlocked {
            Ok(_) => {
                data.ungranted(owner, family, range);
                self.record(file, &mut data);
            }
            Err(_) => data.ends(End::Far, |lock| {
                lock.owner == owner && lock.family == family && lock.range.overlaps(range)
            }),
        }
        drop(data);
        file.moved.notify_all();
        unlocked.map(drop)
    }
}

/// Waits while a lock of this client conflicts whose file may be closed already.
fn wait_for_closing(file: &FileBytes, wanted: &Granted, cancel: Option<&Cancel>) {
    let until = Instant::now() + CLOSING;
    let mut data = file.data.lock();
    while let Some(lock) = data.conflict(wanted) {
        let now = Instant::now();
        let over = lock.end == End::Far || lock.end == End::Near && now >= until;
        if over || cancel.is_some_and(Cancel::is_cancelled) {
            return;
        }
        let check_at = if lock.end == End::Near { until } else { now + POLL_INTERVAL };
        file.moved.wait_until(&mut data, check_at);
    }
}

/// Grants a lock here. No application has such a file open for writing, so exclusive locks are
/// `flock`'s, which has no deadlock detection.
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
    // A lock that became shared lets other owners in.
    file.moved.notify_all();
    Ok(())
}
