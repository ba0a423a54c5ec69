//! Open files. An open costs no request: a status under a promise is enough, because the server
//! reports a removal, and the client then answers that the file is open here (`Removed` breaks,
//! `hold`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{CallError, Remote};
use parking_lot::Mutex;
use types::limits::HOLD_FIDS_MAX;
use types::{ByteRange, Call, Fid, LockFamily, LockOwner, StatusChange};

use super::Venus;
use crate::base::{Error, OpenHandle, OpenMode, OpenReply, RequestContext};
use crate::core::Core;
use crate::data::{End, FileBytes, Granted, Open};

impl Venus {
    /// Opens a plain file. The kernel checks rights (`default_permissions`), by the status that it
    /// was given.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn open(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        mode: OpenMode,
    ) -> Result<OpenReply, Error> {
        let core = &self.core;
        let file = core
            .ground
            .names
            .count_open(fid, || core.calls.fetch_status(request, Call::GetStatus { fid }))?;
        if mode.truncate {
            let change =
                StatusChange { size: Some(0), through_handle: true, ..StatusChange::default() };
            if let Err(error) = self.setattr(request, fid, change) {
                core.cache.count_release(&file);
                return Err(error);
            }
        }
        core.enter(request, file, mode, false)
    }

    /// Whether the kernel caches no writes through the handle, so that the client must make
    /// synchronous writes stable itself.
    pub fn is_direct(&self, handle: OpenHandle) -> bool {
        self.core.handles.open_of(handle).is_ok_and(|open| open.direct)
    }

    /// A descriptor is closed: all writes are at the server afterwards, and `owner`'s byte-range
    /// locks end.
    ///
    /// # Errors
    /// That of a background write, once for each handle.
    pub fn flush(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        owner: Option<LockOwner>,
    ) -> Result<(), Error> {
        let open = self.core.handles.open_of(handle)?;
        // It may be the last descriptor of this handle.
        open.file.data.lock().ends(End::Near, |lock| lock.handle == handle);
        let gone = || open.file.has_blank() && self.core.ground.names.is_gone(open.file.fid);
        let sent = if open.mode.write && !gone() {
            self.core.writeback.send_all(&open.file, request.cancel)
        } else {
            Ok(())
        };
        if let Some(owner) = owner {
            let held = |lock: &Granted| lock.owner == owner && lock.family == LockFamily::Posix;
            if open.file.data.lock().locks.iter().any(held) {
                self.core.locks.unlock(
                    request,
                    handle,
                    owner,
                    LockFamily::Posix,
                    ByteRange::ALL,
                )?;
            }
        }
        sent.and(open.take_error())
    }

    /// The last descriptor of the handle is closed; `flock_owner`'s whole-file lock ends.
    ///
    /// # Errors
    /// If there is no such handle, or the lock could not be released; the handle is gone in any
    /// case.
    pub fn release(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        flock_owner: Option<LockOwner>,
    ) -> Result<(), Error> {
        let open = self.core.handles.open_of(handle)?;
        let unlocked = match flock_owner {
            Some(owner) => {
                self.core.locks.unlock(request, handle, owner, LockFamily::Flock, ByteRange::ALL)
            }
            None => Ok(()),
        };
        self.core.handles.remove(handle)?;
        if open.quiet {
            self.core.writeback.flush_now(&open.file);
        }
        if open.made {
            self.core.blanks.note_made(open.file.fid);
        }
        let blank = open.file.has_blank();
        self.core.passthrough.release_backing(request, &open.file, open.mode);
        if blank {
            self.core.writeback.flush_now(&open.file);
            self.core.preallocated.refresh_blanks();
        }
        self.core.cache.count_release(&open.file);
        unlocked
    }
}

impl Core {
    fn enter(
        &self,
        request: &RequestContext<'_>,
        file: Arc<FileBytes>,
        mode: OpenMode,
        made: bool,
    ) -> Result<OpenReply, Error> {
        let chosen = self.passthrough.select_backing(request, &file, mode, made);
        let backing = chosen.inspect_err(|_| self.cache.count_release(&file))?;
        let errors = {
            let mut data = file.data.lock();
            if mode.read || data.opener.is_none() {
                data.opener = Some(request.caller.clone());
            }
            data.errors
        };
        // An application that opens an older file for reading too is likely to keep it open and to
        // share it: without the delegation every write would have to go through.
        let quiet = backing.is_none()
            && mode.write
            && !mode.append
            && (made || !mode.read)
            && self.ground.names.lock().nodes.covers(file.fid);
        let pinned = backing.is_some() && file.pinned().is_some();
        let direct = if backing.is_some() {
            mode.write && pinned
        } else {
            mode.append || made && self.writes_past(mode)
        };
        if made && (direct || backing.is_some()) {
            file.past_pages.store(true, Ordering::Release);
        }
        let open = Open {
            file,
            mode,
            caller: request.caller.clone(),
            seen: AtomicU64::new(errors),
            locked: AtomicU64::new(0),
            sequence: Mutex::default(),
            quiet,
            direct,
            made,
            backing,
        };
        let handle = self.handles.add(open);
        Ok(OpenReply { handle, direct, quiet, backing })
    }

    /// Whether writes through a new file's handle bypass the kernel's pages. The kernel sends each
    /// write to us in any case; so the first one need not ask for `security.capability` before, and
    /// the bytes are copied once less. A later reader of the file asks for them once. Long files do
    /// not bypass: past its pages the kernel splits a write at the page boundaries of the
    /// application's memory, and that is in the middle of blocks.
    fn writes_past(&self, mode: OpenMode) -> bool {
        mode.write && !mode.read && self.blanks.expects_short()
    }

    /// Opens a file that an answer just made or found: it is counted even if the promise is gone
    /// already.
    ///
    /// # Errors
    /// Why the file cannot be opened: the service's refusal or no answer.
    pub fn open_made(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        mode: OpenMode,
    ) -> Result<OpenReply, Error> {
        let file = self.ground.names.lock().count_open(fid)?;
        self.enter(request, file, mode, true)
    }

    /// Reports through `remote` that these files are open here.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn report_held(&self, remote: &dyn Remote, fids: &[Fid]) -> Result<(), CallError> {
        for (caller, fids) in self.handles.openers(fids) {
            for fids in fids.chunks(HOLD_FIDS_MAX) {
                remote.call(&caller, Call::Hold { fids: fids.to_vec() }, None)?;
            }
        }
        Ok(())
    }

    /// Before the file's mode changes: whether a caller other than its owner has it open, and goes
    /// on with the rights of the old mode. Then the server is asked for a hold.
    pub fn hold_for_others(&self, fid: Fid) -> bool {
        let status = self.ground.names.lock().nodes.get(&fid).and_then(|node| node.status);
        let Some(owner) = status.map(|status| status.uid) else { return false };
        let others = |open: &Open| {
            open.file.fid == fid && self.identity.local_caller(&open.caller).caller.uid != owner
        };
        let any = self.handles.any(others);
        if any && let Some(node) = self.ground.names.lock().nodes.whole_mut(&fid) {
            node.held = true;
        }
        any
    }
}
