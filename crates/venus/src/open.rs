//! Open files. An open costs no request: a status under a promise is enough, because the server
//! tells of a removal and hears then that the file is open here (`Removed` breaks, `hold`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{CallError, Remote};
use parking_lot::Mutex;
use types::limits::HOLD_FIDS_MAX;
use types::{ByteRange, Call, Caller, Fault, Fid, Kind, LockFamily, LockOwner, StatusChange};

use crate::core::Core;
use crate::file_data::{End, FileBytes};
use crate::read_ahead::Sequence;
use crate::{Error, OpenHandle, OpenMode, OpenReply, RequestContext, Venus};

/// Answers that were broken on their way before an open goes on without a promise.
const TRIES: usize = 16;

/// One open file.
pub(crate) struct Open {
    pub file: Arc<FileBytes>,
    pub mode: OpenMode,
    pub caller: Caller,
    /// Failed writes that this handle's user has been told of.
    seen: AtomicU64,
    /// Lost locks of the file when the first lock was taken through this handle, and one more; 0:
    /// none was.
    locked: AtomicU64,
    pub sequence: Mutex<Sequence>,
    /// Its closing says nothing: as long as a delegation covers the file, who asks for it gets what
    /// was written.
    pub quiet: bool,
    /// As [`OpenReply::direct`].
    direct: bool,
    /// It made the file.
    made: bool,
}

impl Open {
    /// The operation in the name of the caller that opened the file: its rights count for what goes
    /// through the handle, whichever process uses it now.
    pub fn request<'a>(&'a self, request: &RequestContext<'a>) -> RequestContext<'a> {
        RequestContext { caller: &self.caller, cancel: request.cancel, groups: None }
    }

    /// How near the end is of a lock that is had through this handle now: without a `FLUSH` we hear
    /// of its close when it is done.
    pub fn end_of_locks(&self) -> End {
        if self.quiet || !self.mode.write { End::Near } else { End::Far }
    }

    /// Fails once for failed writes in the background that this handle was not told of.
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

    /// Fails for ever once a lock that was taken through this handle is lost.
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

impl Core {
    /// Counts one more open of `fid`, which is a plain file that exists.
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

    fn count(tables: &mut crate::node_tables::Tables, fid: Fid) -> Result<Arc<FileBytes>, Error> {
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
        // Who opens an older file for reading too is likely to keep it open and to share it:
        // without the delegation every write would have to go through.
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

    /// Whether what is written through a new file's handle goes past the kernel's pages. Each write
    /// asks us in any case; so the first one need not ask for `security.capability` before, and the
    /// bytes are copied once less. Who reads the file later asks for it once. Not so with long
    /// files: past its pages the kernel cuts what is written where the application's memory has its
    /// pages, and that is in the middle of blocks.
    fn writes_past(&self, mode: OpenMode) -> bool {
        mode.write && !mode.read && self.expects_short()
    }

    /// Opens a file that was just made or found by an answer: it is counted even if the promise is
    /// gone already.
    pub fn open_made(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        mode: OpenMode,
    ) -> Result<OpenReply, Error> {
        let file = Self::count(&mut self.tables.lock(), fid)?;
        self.enter(request, file, mode, true)
    }

    /// These files, with each caller that has one open. A file that no handle says anything of is
    /// the machine's own.
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

    /// Says through `remote` that these files are open here.
    pub fn say_held(&self, remote: &dyn Remote, fids: &[Fid]) -> Result<(), CallError> {
        for (caller, fids) in self.openers(fids) {
            for fids in fids.chunks(HOLD_FIDS_MAX) {
                remote.call(&caller, Call::Hold { fids: fids.to_vec() }, None)?;
            }
        }
        Ok(())
    }

    /// The mode of the file is about to change: whether somebody has it open who is not its owner,
    /// and goes on with what the mode allows now. Then the server holds the file for us from now
    /// on.
    pub fn hold_for_others(&self, fid: Fid) -> bool {
        let status = self.tables.lock().nodes.get(&fid).and_then(|node| node.status);
        let Some(owner) = status.map(|status| status.uid) else { return false };
        let others =
            |open: &Arc<Open>| open.file.fid == fid && self.asker(&open.caller).caller.uid != owner;
        let any = self.opens.lock().values().any(others);
        if any && let Some(node) = self.tables.lock().nodes.whole_mut(&fid) {
            node.held = true;
        }
        any
    }

    /// One handle less; the last one of a held file lets go of it.
    pub fn count_release(&self, file: &FileBytes) {
        let mut tables = self.tables.lock();
        let Some(node) = tables.nodes.whole_mut(&file.fid) else { return };
        // A shutdown has let go of all of them.
        node.opens = node.opens.saturating_sub(1);
        let unhold = node.opens == 0 && node.held;
        drop(tables);
        if unhold {
            self.chores.lock().unhold.push(file.fid);
            self.poke.notify_one();
        }
        self.let_go(file);
    }
}

impl Venus {
    /// Opens a plain file. Rights are the kernel's business (`default_permissions`), on the status
    /// that it was given.
    ///
    /// # Errors
    /// As the service says.
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

    /// Whether the kernel caches nothing of what is written through the handle, and leaves it to us
    /// to make stable what must be at once.
    pub fn is_direct(&self, handle: OpenHandle) -> bool {
        self.core.open_of(handle).is_ok_and(|open| open.direct)
    }

    /// A descriptor is closed: everything written is at the server afterwards, and `owner`'s
    /// byte-range locks end.
    ///
    /// # Errors
    /// That of a write in the background, once for each handle.
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
            let held = |lock: &crate::file_data::Granted| {
                lock.owner == owner && lock.family == LockFamily::Posix
            };
            if open.file.data.lock().locks.iter().any(held) {
                self.unlock(request, handle, owner, LockFamily::Posix, ByteRange::ALL)?;
            }
        }
        sent.and(open.take_error())
    }

    /// The last descriptor of the handle is closed; `flock_owner`'s whole-file lock ends.
    ///
    /// # Errors
    /// If there is no such handle, or the lock could not be given back; the handle is gone in any
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
