//! Maps each request of the kernel to the operation of venus, and the result to the reply.
//!
//! A [`Task`] is one request in progress. Its operations (in `names`, `files`, `directories`,
//! `locks`, `status`, `xattrs`) reply themselves, or return a [`RequestRefusal`], which becomes the
//! reply.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use client::Cancel;
use observe::names::MOUNT_REQUEST;
use observe::{Wait, request_span};
use rustix::io::Errno;
use types::{Caller, Fid, Name, NameError};
use venus::{Venus, Volumes};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, opcode};
use crate::attributes::Validity;
use crate::channel::Requester;
use crate::flat_tree::Flat;
use crate::init::Agreement;
use crate::interrupts::Interrupts;
use crate::invalidation::Notifier;
use crate::listings::Listings;
use crate::locks::MountLocks;
use crate::nodes::{KernelNodes, Slot};
use crate::request::{DecodeError, KernelRequest, Operation, forgets};
use crate::submounts::{Edges, HIDDEN_DIR_NODE};
use crate::sysname::Sysnames;
use crate::workers::{Handler, Urgency};
use crate::{attributes, errno, files, groups};

/// From this size on a write's data stays in the buffer that it came in, and is not copied: the
/// buffer is 1 MiB, and many small writes must not hold one each.
const UNCOPIED_BYTES_MIN: usize = 64 << 10;

/// State that all requests of one mount share, or of one volume of a mount of many.
pub struct Dispatch {
    /// The volume's cache manager.
    pub venus: Arc<Venus>,
    /// The nodes that the kernel knows.
    pub nodes: Arc<KernelNodes>,
    /// The requests in progress.
    pub interrupts: Arc<Interrupts>,
    /// Invalidates the kernel's caches.
    pub notifier: Arc<Notifier>,
    /// Directories that are being listed.
    pub listings: Listings,
    /// The owners of byte-range locks.
    pub locks: MountLocks,
    /// The kernel's abilities.
    pub agreement: Agreement,
    /// All volumes of this client.
    pub volumes: Arc<Volumes>,
    /// Volumes below, if they are mounted.
    pub edges: Option<Arc<Edges>>,
    /// All other volumes of the mount, if it shows them.
    pub flat: Option<Arc<Flat>>,
    /// The volume is read-only, and the kernel does not refuse changes by itself.
    pub refuses_changes: bool,
    /// The names for `@sys`, in all mounts of this client.
    pub sysnames: Arc<Sysnames>,
    /// Whether device nodes have their numbers.
    pub devices: bool,
    /// A request came since [`Self::was_used`].
    pub used: AtomicBool,
}

/// The errno of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRefusal(pub Errno);

impl From<Errno> for RequestRefusal {
    fn from(errno: Errno) -> Self {
        RequestRefusal(errno)
    }
}

impl From<venus::Error> for RequestRefusal {
    fn from(error: venus::Error) -> Self {
        RequestRefusal(errno::of(&error))
    }
}

impl From<NameError> for RequestRefusal {
    fn from(error: NameError) -> Self {
        RequestRefusal(errno::of_name(error))
    }
}

/// One request in progress.
pub struct Task<'a> {
    pub(crate) on: &'a Dispatch,
    pub(crate) header: abi::InHeader,
    requester: &'a dyn Requester,
    caller: Caller,
    cancel: &'a Cancel,
    groups: &'a (dyn Fn() -> Box<[u32]> + Sync),
}

impl Task<'_> {
    pub(crate) fn venus(&self) -> &Venus {
        &self.on.venus
    }

    pub(crate) fn request(&self) -> venus::RequestContext<'_> {
        venus::RequestContext {
            caller: &self.caller,
            cancel: Some(self.cancel),
            groups: Some(self.groups),
        }
    }

    /// The file that the request is about.
    pub(crate) fn fid(&self) -> Result<Fid, RequestRefusal> {
        self.fid_of(self.header.nodeid)
    }

    pub(crate) fn fid_of(&self, node: u64) -> Result<Fid, RequestRefusal> {
        self.on.nodes.fid(node).ok_or(RequestRefusal(Errno::STALE))
    }

    /// A second file of a request, which must be of the same volume.
    pub(crate) fn fid_beside(&self, node: u64) -> Result<Fid, RequestRefusal> {
        if self.on.nodes.has_number(node) {
            self.fid_of(node)
        } else {
            Err(RequestRefusal(Errno::XDEV))
        }
    }

    /// The same request, as one of another volume of the mount.
    pub(crate) fn in_volume<'b>(&'b self, on: &'b Dispatch) -> Task<'b> {
        let Task { header, requester, cancel, groups, .. } = *self;
        Task { on, header, requester, caller: self.caller.clone(), cancel, groups }
    }

    /// Whether all volumes on the way here are read-only, so that mount points prefer such.
    pub(crate) fn prefers_read_only(&self) -> bool {
        let flat =
            self.on.flat.as_ref().is_some_and(|flat| flat.is_read_only(self.on.nodes.slot()));
        flat || self.on.edges.as_ref().is_some_and(|edges| edges.is_read_only())
    }

    pub(crate) fn name(&self, bytes: &[u8]) -> Result<Name, RequestRefusal> {
        Ok(Name::new(bytes)?)
    }

    /// Replies. A request may be cancelled by now, so a failed reply is no error of ours.
    pub(crate) fn parts(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.log(self.requester.reply(self.header.unique, Ok(parts)))
    }

    /// How long the kernel may cache the present answer, if it may.
    pub(crate) fn validity(&self, may: bool) -> Validity {
        if may { Validity::of(self.venus().kernel_keeps_for()) } else { Validity::NONE }
    }

    pub(crate) fn value<T: IntoBytes + Immutable>(&self, value: &T) -> Result<(), Errno> {
        self.parts(&[IoSlice::new(value.as_bytes())])
    }

    pub(crate) fn done(&self) {
        let _ = self.parts(&[]);
    }

    pub(crate) fn refuse(&self, errno: Errno) {
        let _ = self.log(self.requester.reply(self.header.unique, Err(errno)));
    }

    fn log(&self, sent: Result<(), Errno>) -> Result<(), Errno> {
        match sent {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => {
                tracing::error!(%error, opcode = self.header.opcode, "the kernel refuses a reply: \
                    the request fails with EIO");
                // Without a reply an application would wait for ever.
                if error != Errno::IO {
                    let _ = self.requester.reply(self.header.unique, Err(Errno::IO));
                }
            }
        }
        sent
    }

    fn run(&self, operation: Operation<'_>) -> Result<(), RequestRefusal> {
        if let Some(edges) = &self.on.edges {
            match (&operation, self.header.nodeid) {
                (Operation::Lookup { name }, HIDDEN_DIR_NODE) => {
                    return self.lookup_in_hidden_dir(edges, name);
                }
                (Operation::Getattr(_), HIDDEN_DIR_NODE) => {
                    let _ = self.value(&attributes::hidden_dir_status());
                    return Ok(());
                }
                (_, HIDDEN_DIR_NODE) => return Err(RequestRefusal(Errno::ACCESS)),
                (_, node) if edges.has(node) => {
                    edges.enter(&self.request(), node)?;
                    return Err(RequestRefusal(Errno::STALE));
                }
                _ => {}
            }
        }
        if let Some(flat) = &self.on.flat
            && flat.ends_at(self.header.nodeid)
        {
            flat.enter(self, self.fid()?)?;
            return Err(RequestRefusal(Errno::STALE));
        }
        if self.on.refuses_changes && is_change(&operation) {
            return Err(RequestRefusal(Errno::ROFS));
        }
        match operation {
            Operation::Lookup { name } => self.lookup(name),
            Operation::Symlink { name, target } => self.symlink(name, target),
            Operation::Mknod { of, name } => self.mknod(&of, name),
            Operation::Mkdir { of, name } => self.mkdir(&of, name),
            Operation::Unlink { name } => self.unlink(name),
            Operation::Rmdir { name } => self.rmdir(name),
            Operation::Rename { newdir, flags, from, to } => self.rename(newdir, flags, from, to),
            Operation::Link { oldnodeid, name } => self.link(oldnodeid, name),
            Operation::Readlink => self.readlink(),

            Operation::Getattr(_) => self.getattr(),
            Operation::Statx(_) => self.statx(),
            Operation::Setattr(of) => self.setattr(&of),
            Operation::Statfs => self.statfs(),
            Operation::Syncfs => self.syncfs(),

            Operation::Open(of) => self.open(of),
            Operation::Create { of, name } => self.create(&of, name),
            Operation::Tmpfile(of) => self.tmpfile(&of),
            Operation::Read(of) => self.read(&of),
            Operation::Write { of, data } => self.write(&of, types::buffer::copied(data)),
            Operation::Flush(of) => self.flush(&of),
            Operation::Release(of) => self.release(&of),
            Operation::Fsync(of) => self.fsync(&of),
            Operation::Fallocate(of) => self.fallocate(&of),
            Operation::Lseek(of) => self.lseek(&of),

            Operation::Opendir(_) => self.opendir(),
            Operation::Readdir { of, plus } => self.readdir(&of, plus),
            Operation::Releasedir(_) => {
                self.done();
                Ok(())
            }
            Operation::Fsyncdir(_) => self.fsyncdir(),

            Operation::Setxattr { of, name, value } => self.setxattr(&of, name, value),
            Operation::Getxattr { size, name } => self.getxattr(size, name),
            Operation::Listxattr { size } => self.listxattr(size),
            Operation::Removexattr { name } => self.removexattr(name),

            Operation::Getlk(of) => self.getlk(&of),
            Operation::Setlk { of, wait } => self.setlk(&of, wait),

            Operation::Unoffered(opcode::IOCTL) => Err(RequestRefusal(Errno::NOTTY)),
            Operation::Unoffered(_) => Err(RequestRefusal(Errno::NOSYS)),
            Operation::Destroy => {
                self.done();
                Ok(())
            }
            Operation::Init { .. } => Err(RequestRefusal(Errno::IO)),
            // Handled before a task exists, and never answered.
            Operation::Interrupt { .. } | Operation::Forget { .. } | Operation::BatchForget(_) => {
                Ok(())
            }
        }
    }
}

/// Whether the kernel refuses it in a read-only mount.
fn is_change(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Open(of) => files::writes(of.flags),
        Operation::Setattr(_)
        | Operation::Symlink { .. }
        | Operation::Mknod { .. }
        | Operation::Mkdir { .. }
        | Operation::Unlink { .. }
        | Operation::Rmdir { .. }
        | Operation::Rename { .. }
        | Operation::Link { .. }
        | Operation::Create { .. }
        | Operation::Tmpfile(_)
        | Operation::Setxattr { .. }
        | Operation::Removexattr { .. } => true,
        _ => false,
    }
}

impl Dispatch {
    fn run_request(
        &self,
        header: abi::InHeader,
        requester: &dyn Requester,
        run: impl FnOnce(&Task<'_>) -> Result<(), RequestRefusal>,
    ) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let running =
            self.interrupts.running(header.unique, header.pid, header.opcode == opcode::SETLKW);
        let caller = Caller {
            uid: header.uid,
            gid: header.gid,
            groups: None,
            who: types::RequestIdentity::NAMED,
        };
        let groups = move || groups::of_process(header.pid);
        let began = Instant::now();
        let _in_span = request_span!(
            MOUNT_REQUEST,
            opcode::name(header.opcode),
            self.nodes.fid(header.nodeid),
            header.pid,
            header.unique
        )
        .entered();
        let task =
            Task { on: self, header, requester, caller, cancel: &running.cancel, groups: &groups };
        if let Err(RequestRefusal(errno)) = run(&task) {
            task.refuse(errno);
        }
        // Locks wait for other programs.
        if header.opcode != opcode::SETLKW {
            observe::record(Wait::MountRequest, began.elapsed());
        }
    }

    /// Whether a request came since the last call.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        if let Some(fid) = self.nodes.forget(node, count) {
            if let Some(edges) = self.edges.as_ref().filter(|_| self.nodes.fid(node).is_none()) {
                edges.forget(node);
            }
            if let Some(flat) = self.flat.as_ref().filter(|_| self.nodes.fid(node).is_none()) {
                flat.forget(node);
            }
            self.venus.forget(fid, count);
        }
    }

    /// Runs with the dispatch of the node's volume.
    fn of<R>(&self, node: u64, run: impl FnOnce(&Dispatch) -> R) -> Option<R> {
        match &self.flat {
            Some(flat) if Slot::of(node) != Slot::FIRST => {
                flat.dispatch(Slot::of(node)).map(|other| run(&other))
            }
            _ => Some(run(self)),
        }
    }

    fn run(
        &self,
        header: abi::InHeader,
        requester: &dyn Requester,
        run: impl FnOnce(&Task<'_>) -> Result<(), RequestRefusal>,
    ) {
        if self.of(header.nodeid, |on| on.run_request(header, requester, run)).is_none() {
            let _ = requester.reply(header.unique, Err(Errno::STALE));
        }
    }

    fn forget_any(&self, node: u64, count: u64) {
        self.of(node, |on| on.forget(node, count));
    }

    /// Operations that have no reply.
    fn take_notice(&self, request: &KernelRequest<'_>) -> bool {
        match request.operation {
            Operation::Interrupt { unique } => self.interrupts.interrupt(unique),
            Operation::Forget { lookups } => self.forget_any(request.header.nodeid, lookups),
            Operation::BatchForget(bytes) => {
                forgets(bytes).for_each(|one| self.forget_any(one.nodeid, one.nlookup));
            }
            _ => return false,
        }
        true
    }
}

fn refuse_undecoded(bytes: &[u8], error: DecodeError, requester: &dyn Requester) {
    tracing::error!(%error, "cannot decode a request of the kernel: it fails");
    let Ok(header) = KernelRequest::header(bytes) else { return };
    if !matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
        let errno = if matches!(error, DecodeError::Unknown(_)) { Errno::NOSYS } else { Errno::IO };
        let _ = requester.reply(header.unique, Err(errno));
    }
}

impl Handler for Dispatch {
    fn urgency(&self, request: &[u8]) -> Urgency {
        match KernelRequest::header(request).map(|header| header.opcode) {
            Ok(opcode::INTERRUPT) => Urgency::Urgent,
            Ok(opcode::FORGET | opcode::BATCH_FORGET) => Urgency::Forgets,
            Ok(opcode::SETLKW) => Urgency::Waits,
            _ => Urgency::Normal,
        }
    }

    fn handle(&self, bytes: &mut Vec<u8>, requester: &dyn Requester) {
        let (header, of, length) = match KernelRequest::decode(bytes) {
            Err(error) => return refuse_undecoded(bytes, error, requester),
            Ok(request) if self.take_notice(&request) => return,
            Ok(KernelRequest { header, operation: Operation::Write { of, data } })
                if data.len() >= UNCOPIED_BYTES_MIN =>
            {
                (header, of, data.len())
            }
            Ok(KernelRequest { header, operation }) => {
                return self.run(header, requester, |task| task.run(operation));
            }
        };
        // The data is the end of the request: the write takes the buffer, and nothing is copied.
        let whole = Bytes::from(std::mem::take(bytes));
        let data = whole.slice(whole.len() - length..);
        self.run(header, requester, |task| task.write(&of, data));
    }

    fn ended(&self) {
        self.interrupts.end();
        self.notifier.ended();
        self.flat
            .iter()
            .flat_map(|flat| flat.dispatches())
            .for_each(|volume| volume.notifier.ended());
    }

    fn refuse(&self, request: &[u8], requester: &dyn Requester) {
        if let Ok(header) = KernelRequest::header(request) {
            let _ = requester.reply(header.unique, Err(Errno::NOLCK));
        }
    }
}
