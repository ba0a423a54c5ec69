//! Open files. An open costs no request: a status under a promise is enough, because the server
//! reports a removal, and the client then answers that the file is open here (`Removed` breaks,
//! `hold`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{CallError, Remote};
use parking_lot::Mutex;
use types::limits::HOLD_FIDS_MAX;
use types::{ByteRange, Call, Caller, Fault, Fid, Kind, LockFamily, LockOwner, StatusChange};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::{OpenHandle, OpenMode, OpenReply};
use crate::core::Core;
use crate::data::file_data::{End, FileBytes, Granted};
use crate::data::open_file::Open;
use crate::names::node_tables::Tables;
use crate::ops::venus::Venus;

/// After so many answers that a break overtook, an open goes on without a promise.
const TRIES: usize = 16;

impl Core {
    /// Counts one more open of `fid`, an existing plain file.
    fn count_open(&self, request: &RequestContext<'_>, fid: Fid) -> Result<Arc<FileBytes>, Error> {
        for _ in 0..TRIES {
            let mut tables = self.tables.lock();
            while tables.nodes.whole(&fid).is_some_and(|node| node.removing > 0) {
                self.removed.wait(&mut tables);
            }
            if tables.status(fid).is_some() {
                return Self::count(&mut tables, fid);
            }
            let snapshot = tables.holder.begin();
            drop(tables);
            self.fetch_status(request, Call::GetStatus { fid })?;
            let mut tables = self.tables.lock();
            let removing = tables.nodes.whole(&fid).is_some_and(|node| node.removing > 0);
            if tables.holder.promised(fid, snapshot) && !removing {
                return Self::count(&mut tables, fid);
            }
        }
        Self::count(&mut self.tables.lock(), fid)
    }

    fn count(tables: &mut Tables, fid: Fid) -> Result<Arc<FileBytes>, Error> {
        let node = tables.node(fid);
        match node.status {
            Some(status) if status.kind == Kind::Directory => return Err(Fault::IsDirectory.into()),
            Some(status) if status.kind != Kind::File => return Err(Fault::Invalid.into()),
            Some(status) if status.links == 0 && !node.held => return Err(Fault::Stale.into()),
            _ => {}
        }
        node.opens += 1;
        let file = Arc::clone(node.file.get_or_insert_with(|| Arc::new(FileBytes::new(fid))));
        tables.files.insert(fid, Arc::clone(&file));
        Ok(file)
    }

    fn enter(
        &self,
        request: &RequestContext<'_>,
        file: Arc<FileBytes>,
        mode: OpenMode,
        made: bool,
    ) -> Result<OpenReply, Error> {
        let chosen = self.select_backing(request, &file, mode, made);
        let backing = chosen.inspect_err(|_| self.count_release(&file))?;
        let handle = OpenHandle(self.number());
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
            && self.tables.lock().covers(file.fid);
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
        };
        self.opens.lock().insert(handle, Arc::new(open));
        Ok(OpenReply { handle, direct, quiet, backing })
    }

    /// Whether writes through a new file's handle bypass the kernel's pages. The kernel sends each
    /// write to us in any case; so the first one need not ask for `security.capability` before, and
    /// the bytes are copied once less. A later reader of the file asks for them once. Long files do
    /// not bypass: past its pages the kernel splits a write at the page boundaries of the
    /// application's memory, and that is in the middle of blocks.
    fn writes_past(&self, mode: OpenMode) -> bool {
        mode.write && !mode.read && self.expects_short()
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
        let file = Self::count(&mut self.tables.lock(), fid)?;
        self.enter(request, file, mode, true)
    }

    /// Of these files, those that each caller has open. A file without a handle here counts as
    /// opened by this machine.
    pub fn openers(&self, fids: &[Fid]) -> Vec<(Caller, Vec<Fid>)> {
        let mut callers: HashMap<Caller, BTreeSet<Fid>> = HashMap::new();
        let mut left: HashSet<Fid> = fids.iter().copied().collect();
        let wanted = left.clone();
        for open in self.opens.lock().values().filter(|open| wanted.contains(&open.file.fid)) {
            left.remove(&open.file.fid);
            callers.entry(open.caller.clone()).or_default().insert(open.file.fid);
        }
        if !left.is_empty() {
            callers.entry(Caller::ROOT).or_default().extend(left);
        }
        callers.into_iter().map(|(caller, fids)| (caller, fids.into_iter().collect())).collect()
    }

    /// Reports through `remote` that these files are open here.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn report_held(&self, remote: &dyn Remote, fids: &[Fid]) -> Result<(), CallError> {
        for (caller, fids) in self.openers(fids) {
            for fids in fids.chunks(HOLD_FIDS_MAX) {
                remote.call(&caller, Call::Hold { fids: fids.to_vec() }, None)?;
            }
        }
        Ok(())
    }

    /// Before the file's mode changes: whether a caller other than its owner has it open, and goes
    /// on with the rights of the old mode. Then the server is asked for a hold.
    pub fn hold_for_others(&self, fid: Fid) -> bool {
        let status = self.tables.lock().nodes.get(&fid).and_then(|node| node.status);
        let Some(owner) = status.map(|status| status.uid) else { return false };
        let others = |open: &Arc<Open>| {
            open.file.fid == fid && self.local_caller(&open.caller).caller.uid != owner
        };
        let any = self.opens.lock().values().any(others);
        if any && let Some(node) = self.tables.lock().nodes.whole_mut(&fid) {
            node.held = true;
        }
        any
    }

    /// One handle less; the last one of a held file ends the hold.
    pub fn count_release(&self, file: &FileBytes) {
        let mut tables = self.tables.lock();
        let Some(node) = tables.nodes.whole_mut(&file.fid) else { return };
        // A shutdown has closed all of them.
        node.opens = node.opens.saturating_sub(1);
        let unhold = node.opens == 0 && node.held;
        drop(tables);
        if unhold {
            self.chores.lock().unhold.push(file.fid);
            self.poke.notify_one();
        }
        self.drop_if_unused(file);
    }
}

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
        let file = core.count_open(request, fid)?;
        if mode.truncate {
            let change =
                StatusChange { size: Some(0), through_handle: true, ..StatusChange::default() };
            if let Err(error) = self.setattr(request, fid, change) {
                core.count_release(&file);
                return Err(error);
            }
        }
        core.enter(request, file, mode, false)
    }

    /// Whether the kernel caches no writes through the handle, so that the client must make
    /// synchronous writes stable itself.
    pub fn is_direct(&self, handle: OpenHandle) -> bool {
        self.core.open_of(handle).is_ok_and(|open| open.direct)
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
        let open = self.core.open_of(handle)?;
        // It may be the last descriptor of this handle.
        open.file.data.lock().ends(End::Near, |lock| lock.handle == handle);
        let gone = || open.file.has_blank() && self.core.is_gone(open.file.fid);
        let sent = if open.mode.write && !gone() {
            self.core.send_all(&open.file, request.cancel)
        } else {
            Ok(())
        };
        if let Some(owner) = owner {
            let held = |lock: &Granted| lock.owner == owner && lock.family == LockFamily::Posix;
            if open.file.data.lock().locks.iter().any(held) {
                self.unlock(request, handle, owner, LockFamily::Posix, ByteRange::ALL)?;
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
        let open = self.core.open_of(handle)?;
        let unlocked = match flock_owner {
            Some(owner) => self.unlock(request, handle, owner, LockFamily::Flock, ByteRange::ALL),
            None => Ok(()),
        };
        if self.core.opens.lock().remove(&handle).is_none() {
            return Err(Error::BadHandle);
        }
        if open.quiet {
            self.core.flush_now(&open.file);
        }
        if open.made {
            self.core.note_made(open.file.fid);
        }
        let blank = open.file.has_blank();
        self.core.release_backing(request, &open.file, open.mode);
        if blank {
            self.core.flush_now(&open.file);
            self.core.refresh_blanks();
        }
        self.core.count_release(&open.file);
        unlocked
    }
}
