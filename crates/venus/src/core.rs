//! The state that all operations share: the session, the tables, the open files, the threads. The
//! order of the locks is at the head of `lib.rs`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use client::{Cancel, Remote, Reply};
use lease::CallStart;
use parking_lot::{Condvar, Mutex, RwLock};
use types::{Answer, Call, Caller, Fault, Fid, Status};

use crate::base::budget::Share;
use crate::base::config::VenusConfig;
use crate::base::error::Error;
use crate::base::kernel_port::{KernelPort, NoKernel};
use crate::base::pool::JobPool;
use crate::base::request::RequestContext;
use crate::base::result::{DirHandle, OpenHandle, Stamp};
use crate::data::disk_cache::DiskCache;
use crate::data::file_data::FileBytes;
use crate::data::open_file::Open;
use crate::names::made_up::is_made_up;
use crate::names::node_tables::Tables;
use crate::passthrough::blank_pool::BlankPool;
use crate::prefetch::admission::Admission;
use crate::prefetch::mount_shared::MountShared;
use crate::prefetch::open_dir::{EarlyDirs, OpenDir};
use crate::prefetch::siblings::Siblings;
use crate::writeback::chores::Chores;
use crate::writeback::free_space::Space;
use crate::writeback::journal::{Journal, JournalEntry};
use crate::writeback::server_instance::ServerInstance;
use crate::writeback::unstable_metadata::{MetadataSubject, UnstableMetadata};

/// Files whose cache bodies are brought up to date at the same time.
const FOLLOWERS: usize = 4;

pub(crate) struct Core {
    pub remote: Arc<dyn Remote>,
    pub config: VenusConfig,
    /// The volume is read-only, so locks exclude only this client's applications from each other:
    /// the client grants them itself.
    pub own_locks: bool,
    /// Shared with the other volumes of the mount.
    pub common: Arc<MountShared>,
    pub tables: Mutex<Tables>,
    pub removed: Condvar,
    /// Counts breaks and losses. A thread that replies into the kernel holds it for reading.
    pub gate: RwLock<u64>,
    /// Counts the events that end body loans: lost leases and restarts of the server.
    pub life: AtomicU64,
    /// When trust ends without a renewal, in nanoseconds of [`client::clock`]: for replies into the
    /// kernel, which must not take the tables' lock.
    pub trusted_until: AtomicU64,
    /// How often a body was given to the kernel.
    pub passed: AtomicU64,
    pub invalidate: RwLock<Arc<dyn KernelPort>>,
    pub opens: Mutex<HashMap<OpenHandle, Arc<Open>>>,
    pub dirs: Mutex<HashMap<DirHandle, Arc<OpenDir>>>,
    pub next: AtomicU64,
    pub unsent: Share,
    pub unstable: Share,
    /// Bytes of all files that were read ahead.
    pub ahead: Share,
    pub siblings: Siblings,
    pub early_dirs: EarlyDirs,
    pub space: Space,
    pub senders: JobPool,
    pub readers: JobPool,
    /// Threads that write the disk cache and send invalidations to the kernel; `filling` bytes wait
    /// for them.
    pub fillers: JobPool,
    pub filling: Share,
    /// Threads that bring the bodies which the kernel has up to the server's state.
    pub followers: JobPool,
    /// Cancels the followers' calls at the end.
    pub leaving: Cancel,
    pub chores: Mutex<Chores>,
    pub poke: Condvar,
    pub left_out: Admission,
    pub stopped: AtomicBool,
    pub journal: Journal,
    pub unstable_metadata: UnstableMetadata,
    pub instance: ServerInstance,
    pub blanks: Mutex<BlankPool>,
    /// Entries cut out of the journal, whose bytes are still to be freed.
    pub cuts: Mutex<Vec<JournalEntry>>,
    /// Counts answers of the server that differ from those given here (DE-5), except behind a lost
    /// change.
    pub differences: AtomicU64,
    /// Entries up to this number may depend on a lost one.
    pub distrusted: AtomicU64,
    /// A reference to this value, for background jobs.
    pub this: OnceLock<Weak<Core>>,
}

impl Core {
    /// Opens the disk cache if necessary.
    ///
    /// # Errors
    /// Why the disk cache cannot be opened.
    pub fn new(
        common: &Arc<MountShared>,
        remote: Arc<dyn Remote>,
        config: VenusConfig,
        own_locks: bool,
    ) -> std::io::Result<Self> {
        if !remote.passes_descriptors() {
            common.open_disk(&config)?;
        }
        let journal = Journal::default();
        let mut tables = Tables::new(&config, common);
        tables.landed = journal.counter();
        Ok(Core {
            tables: Mutex::new(tables),
            removed: Condvar::new(),
            gate: RwLock::new(0),
            life: AtomicU64::new(1),
            trusted_until: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            invalidate: RwLock::new(Arc::new(NoKernel)),
            opens: Mutex::default(),
            dirs: Mutex::default(),
            next: AtomicU64::new(1),
            unsent: Share::of(&common.unsent),
            unstable: Share::of(&common.unstable),
            ahead: Share::of(&common.ahead),
            siblings: Siblings::new(&common.siblings),
            early_dirs: EarlyDirs::default(),
            space: Space::default(),
            senders: JobPool::new("venus-send", config.flusher_threads),
            readers: JobPool::new("venus-read", config.reader_threads),
            fillers: JobPool::new("venus-fill", 1),
            filling: Share::of(&common.filling),
            followers: JobPool::new("venus-follow", FOLLOWERS),
            leaving: Cancel::new(),
            chores: Mutex::default(),
            poke: Condvar::new(),
            left_out: Admission::default(),
            stopped: AtomicBool::new(false),
            journal,
            unstable_metadata: UnstableMetadata::default(),
            instance: ServerInstance::default(),
            blanks: Mutex::default(),
            cuts: Mutex::default(),
            differences: AtomicU64::new(0),
            distrusted: AtomicU64::new(0),
            this: OnceLock::new(),
            common: Arc::clone(common),
            own_locks,
            remote,
            config,
        })
    }

    /// The server is on this machine and passes descriptors: a crash of the machine ends both, so
    /// this client stores no unstable changes for it.
    pub fn is_local(&self) -> bool {
        self.remote.passes_descriptors()
    }

    pub fn disk(&self) -> Option<&DiskCache> {
        self.common.disk().filter(|_| !self.is_local())
    }

    /// Calls the server, after the changes that were answered here about the same files have been
    /// sent. Looks up the caller's groups and calls again if the server answers that they decide.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn call(&self, request: &RequestContext<'_>, call: Call) -> Result<Answer, Error> {
        self.call_with_body(request, call).map(|reply| reply.answer)
    }

    /// As [`Core::call`]; returns the body's descriptor too.
    ///
    /// # Errors
    /// As [`Core::call`].
    pub fn call_with_body(
        &self,
        request: &RequestContext<'_>,
        mut call: Call,
    ) -> Result<Reply, Error> {
        if call.changes() && call.fids_mut().into_iter().any(|fid| is_made_up(*fid)) {
            return Err(Fault::ReadOnly.into());
        }
        self.send_related(request, &mut call)?;
        let (place, subject) = (self.instance.place(), MetadataSubject::of(&call));
        let reply = self.ask_with_groups(request, call)?;
        self.check_instance(place, &reply);
        if let Some(subject) = subject {
            self.note(place, &reply, subject);
        }
        Ok(reply)
    }

    fn ask_with_groups(&self, request: &RequestContext<'_>, call: Call) -> Result<Reply, Error> {
        let Some(groups) = request.groups.filter(|_| request.caller.groups.is_none()) else {
            return Ok(self.remote.call(request.caller, call, request.cancel)?);
        };
        match self.remote.call(request.caller, call.clone(), request.cancel) {
            Err(error) if error.fault() == Some(Fault::GroupsNeeded) => {
                let caller = Caller { groups: Some(groups()), ..request.caller.clone() };
                Ok(self.remote.call(&caller, call, request.cancel)?)
            }
            first => Ok(first?),
        }
    }

    pub fn begin(&self) -> CallStart {
        self.tables.lock().holder.begin()
    }

    /// Taken under the same lock of the tables as the answer that it stamps.
    pub fn stamp(&self) -> Stamp {
        Stamp(*self.gate.read())
    }

    /// A call that answers with a status, which is entered; the server's view of the file.
    ///
    /// # Errors
    /// The service's refusal; [`Error::Protocol`] if the answer is no status.
    pub fn fetch_status(&self, request: &RequestContext<'_>, call: Call) -> Result<Status, Error> {
        let snapshot = self.begin();
        match self.call(request, call)? {
            Answer::Status(status) => {
                self.tables.lock().put(snapshot, status);
                Ok(status)
            }
            _ => Err(Error::Protocol),
        }
    }

    /// The open file of a handle.
    ///
    /// # Errors
    /// [`Error::BadHandle`].
    pub fn open_of(&self, handle: OpenHandle) -> Result<Arc<Open>, Error> {
        self.opens.lock().get(&handle).cloned().ok_or(Error::BadHandle)
    }

    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn invalidator(&self) -> Arc<dyn KernelPort> {
        Arc::clone(&self.invalidate.read())
    }

    /// The data of `fid`, if it has bytes here or is open.
    pub fn file_of(&self, fid: Fid) -> Option<Arc<FileBytes>> {
        self.tables.lock().files.get(&fid).cloned()
    }

    /// All files that are open or have bytes here.
    pub fn files(&self) -> Vec<Arc<FileBytes>> {
        self.tables.lock().files.values().cloned().collect()
    }

    /// Drops the file's data when nothing needs it.
    pub fn drop_if_unused(&self, file: &FileBytes) {
        let Some(learned) = self.is_dropped(file) else { return };
        if let Some(disk) = self.disk() {
            disk.rest(file.fid);
        }
        if learned {
            self.drop_pages(file.fid);
        }
        self.drop_pages_of_whole(file.fid);
    }

    /// Whether the data was dropped; if so, whether all blocks of the file were known to be good.
    fn is_dropped(&self, file: &FileBytes) -> Option<bool> {
        let data = file.data.lock();
        let mut tables = self.tables.lock();
        let node = tables.nodes.whole_mut(&file.fid)?;
        let this = node.file.as_ref().is_some_and(|here| std::ptr::eq(&raw const **here, file));
        let idle = file.is_clean()
            && data.passed.is_none()
            && data.sealed.is_empty()
            && data.unstable.is_empty()
            && data.workers == 0
            && node.opens == 0;
        if !(this && idle) {
            return None;
        }
        let whole = |status: &Status| data.reads.known.is_whole(status.data_version, status.size);
        let known = node.status.filter(whole);
        let learned = known.is_some_and(|status| status.data_version != node.known);
        if let Some(status) = known {
            node.known = status.data_version;
        }
        self.drop_ahead(data.reads.bytes());
        node.file = None;
        tables.files.remove(&file.fid);
        Some(learned)
    }
}
