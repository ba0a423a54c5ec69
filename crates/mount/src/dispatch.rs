//! Maps each request of the kernel to the operation of venus, and the result to the reply.
//!
//! A [`Task`] is one request in progress: its volume, its mount and its reply. Its operations (in
//! `names`, `files`, `directories`, `locks`, `status`, `xattrs`) reply themselves, return a value
//! that is the reply, or return a [`RequestRefusal`], which becomes the reply.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use observe::names::MOUNT_REQUEST;
use observe::{Wait, request_span};
use rustix::io::Errno;

use crate::abi::{self, flag, opcode};
use crate::calling::Intent;
use crate::channel::Requester;
use crate::connections::{Handler, Urgency};
use crate::errno::RequestRefusal;
use crate::interrupts::RequestUse;
use crate::mounted_volumes::MountedVolume;
use crate::nodes::{HIDDEN_DIR_NODE, Slot};
use crate::request::{DecodeError, KernelRequest, Operation, forgets};
use crate::submounts::{ATTACHING, Edges};
use crate::task::{MountShared, Task, walking};
use crate::volume_view::VolumeView;
use crate::{attributes, files, groups, locks, names, status, xattrs};

/// From this size on a write's data stays in the buffer that it came in, and is not copied: the
/// buffer is 1 MiB, and many small writes must not hold one each.
const UNCOPIED_BYTES_MIN: usize = 64 << 10;

/// The requests of one mount.
pub(crate) struct Dispatch {
    /// The volume that the mount begins with.
    pub first: Arc<VolumeView>,
    pub mount: MountShared,
}

impl Task<'_> {
    fn write(&self, of: &abi::WriteIn, data: Bytes) -> Result<(), RequestRefusal> {
        let drops = of.write_flags & flag::WRITE_KILL_SUIDGID != 0;
        let dropping = files::dropping_set_ids(self, drops)?;
        let wrote = files::write(self, of, data)?;
        dropping.end();
        let _ = self.reply.value(&wrote);
        Ok(())
    }

    /// A request for a mount point itself: a walk found nothing mounted upon it. A caller that
    /// looks gets its own status. For others, and where the kernel has detached the volume, that is
    /// mounted or shown, and the kernel repeats the walk.
    fn run_on_mount_point(&self, operation: &Operation<'_>) -> Result<(), RequestRefusal> {
        let edges = self.mount.edges.as_ref();
        let was_entered = edges.is_some_and(|edges| edges.was_entered(self.header.nodeid));
        let looks = || self.mount.walks.intent_of(self.header.pid) == Intent::Look;
        let intent = if !was_entered && looks() { Intent::Look } else { Intent::Enter };
        match (operation, intent) {
            (Operation::Getattr(_), Intent::Look) => return self.status(attributes::attr_out),
            (Operation::Statx(_), Intent::Look) => return self.status(attributes::statx_out),
            (Operation::Getxattr { name, .. }, Intent::Look) if !xattrs::is_virtual(name) => {
                return Err(RequestRefusal(Errno::NODATA));
            }
            (Operation::Listxattr { size }, Intent::Look) => return self.reply.sized(*size, &[]),
            _ => {}
        }
        if let Some(edges) = &self.mount.edges {
            // The others come with the directory locked.
            let waits = matches!(
                operation,
                Operation::Getattr(_)
                    | Operation::Statx(_)
                    | Operation::Opendir(_)
                    | Operation::Getxattr { .. }
                    | Operation::Listxattr { .. }
            );
            let patience = if waits { ATTACHING } else { Duration::ZERO };
            walking(self, |walk| edges.enter(walk, self.header.nodeid, patience))?;
        }
        if let Some(flat) = &self.mount.flat {
            let fid = self.fid()?;
            walking(self, |walk| flat.enter(walk, self.on, fid))?;
        }
        self.mount.walks.repeat(self.header.pid);
        Err(RequestRefusal(Errno::STALE))
    }

    fn run(&self, operation: Operation<'_>) -> Result<(), RequestRefusal> {
        if let Operation::Lookup { name: name @ (b"." | b"..") } = operation {
            return names::lookup_by_number(self, name == b"..");
        }
        if let Some(edges) = &self.mount.edges {
            match (&operation, self.header.nodeid) {
                (Operation::Lookup { name }, HIDDEN_DIR_NODE) => {
                    return self.lookup_in_hidden_dir(edges, name);
                }
                (Operation::Getattr(_), HIDDEN_DIR_NODE) => {
                    let _ = self.reply.value(&attributes::hidden_dir_status());
                    return Ok(());
                }
                (_, HIDDEN_DIR_NODE) => return Err(RequestRefusal(Errno::ACCESS)),
                (operation, node) if edges.has(node) => {
                    return self.run_on_mount_point(operation);
                }
                _ => {}
            }
        }
        if self.mount.flat.as_ref().is_some_and(|flat| flat.is_shown_point(self.header.nodeid)) {
            return self.run_on_mount_point(&operation);
        }
        let refuses = self.on.refuses_changes || self.mount.options.is_read_only();
        if refuses && is_change(&operation) {
            return Err(RequestRefusal(Errno::ROFS));
        }
        let (venus, request, locks) = (self.venus(), &self.request(), &self.on.locks);
        let done = |result: Result<(), RequestRefusal>| result.map(|()| self.reply.done());
        match operation {
            Operation::Lookup { name } => self.lookup(name),
            Operation::Symlink { name, target } => self.symlink(name, target),
            Operation::Mknod { of, name } => self.mknod(&of, name),
            Operation::Mkdir { of, name } => self.mkdir(&of, name),
            Operation::Unlink { name } => {
                self.mount.check_removal(&self.header, name)?;
                done(names::unlink(venus, request, self.fid()?, name))
            }
            Operation::Rmdir { name } => {
                self.mount.check_removal(&self.header, name)?;
                done(names::rmdir(venus, request, self.fid()?, name))
            }
            Operation::Rename { newdir, flags, from, to } => {
                let (from, to) = ((self.fid(), from), (self.fid_beside(newdir), to));
                done(names::rename(venus, request, flags, from, to))
            }
            Operation::Link { oldnodeid, name } => self.link(oldnodeid, name),
            Operation::Readlink => {
                let target = venus.readlink(request, self.fid()?)?;
                files::note_read(self, self.fid()?);
                let _ = self.reply.parts(&[IoSlice::new(&target)]);
                Ok(())
            }

            Operation::Getattr(_) => self.status(attributes::attr_out),
            Operation::Statx(_) => self.status(attributes::statx_out),
            Operation::Setattr(of) => self.setattr(&of),
            Operation::Statfs => {
                let volume = venus.control().statfs(request, self.fid()?)?;
                let _ = self.reply.value(&status::statfs_out(&volume));
                Ok(())
            }
            Operation::Syncfs => done(Ok(venus.syncfs(request, self.fid()?)?)),

            Operation::Open(of) => self.open(of),
            Operation::Create { of, name } => self.create(&of, name),
            Operation::Tmpfile(of) => self.tmpfile(&of),
            Operation::Read(of) => {
                let data = files::read(venus, request, &of)?;
                files::note_bytes_read(self, &of)?;
                let _ = self.reply.parts(&[IoSlice::new(&data)]);
                Ok(())
            }
            Operation::Write { of, data } => self.write(&of, types::buffer::copied(data)),
            Operation::Flush(of) => done(files::flush(venus, request, locks, self.fid(), &of)),
            Operation::Release(of) => done(files::release(venus, request, locks, self.fid(), &of)),
            Operation::Fsync(of) => done(files::fsync(venus, request, &of)),
            Operation::Fallocate(of) => {
                // The kernel does not say whether the caller keeps the bits: the server decides.
                let dropping = files::dropping_set_ids(self, self.header.uid != 0)?;
                files::fallocate(venus, request, &of)?;
                dropping.end();
                self.reply.done();
                Ok(())
            }
            Operation::Lseek(of) => {
                let _ = self.reply.value(&files::lseek(venus, request, &of)?);
                Ok(())
            }

            Operation::Opendir(_) => self.opendir(),
            Operation::Readdir { of, plus } => self.readdir(&of, plus),
            Operation::Releasedir(_) => {
                self.reply.done();
                Ok(())
            }
            Operation::Fsyncdir(_) => done(Ok(venus.dirs().fsyncdir(request, self.fid()?)?)),

            Operation::Setxattr { of, name, value } => self.setxattr(&of, name, value),
            Operation::Getxattr { size, name } => self.getxattr(size, name),
            Operation::Listxattr { size } => self.listxattr(size),
            Operation::Removexattr { name } => self.removexattr(name),

            Operation::Getlk(of) => {
                let _ = self.reply.value(&locks::conflict(locks, venus, request, self.fid(), &of)?);
                Ok(())
            }
            Operation::Setlk { of, wait } => done(locks.set(venus, request, self.fid(), &of, wait)),

            Operation::Unoffered(opcode::IOCTL) => Err(RequestRefusal(Errno::NOTTY)),
            Operation::Unoffered(_) => Err(RequestRefusal(Errno::NOSYS)),
            Operation::Destroy => {
                self.reply.done();
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

/// Whether the request ends the use of a file, and so goes on in a volume that was removed.
fn is_farewell(code: u32) -> bool {
    matches!(code, opcode::FLUSH | opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY)
}

/// The error of a request that did not wait longer for a server that is away. A program that wrote
/// must take its bytes for lost, although they are still sent if the server comes back.
fn abandoned(code: u32) -> Errno {
    match code {
        opcode::WRITE | opcode::FSYNC | opcode::FLUSH => Errno::IO,
        _ => Errno::TIMEDOUT,
    }
}

impl Dispatch {
    /// All volumes that the mount shows.
    pub fn views(&self) -> impl Iterator<Item = Arc<VolumeView>> {
        let others = self.mount.flat.iter().flat_map(|flat| flat.views());
        std::iter::once(Arc::clone(&self.first)).chain(others)
    }

    /// Has the mount points, or the volumes below, that a predecessor recorded.
    pub fn inherit(&self, mounts: &HashMap<u64, Arc<MountedVolume<Edges>>>) {
        if let Some(edges) = &self.mount.edges {
            edges.inherit(|node| self.first.nodes.fid(node), mounts);
        }
        self.mount.flat.iter().for_each(|flat| flat.inherit());
    }

    fn run_request(
        &self,
        on: &VolumeView,
        header: abi::InHeader,
        requester: &dyn Requester,
        run: impl FnOnce(&Task<'_>) -> Result<(), RequestRefusal>,
    ) {
        on.note_use();
        let of = RequestUse::of(header.opcode);
        let running = self.mount.interrupts.running(header.unique, header.pid, of);
        self.mount.interrupts.asks(header.unique, &on.venus, on.nodes.root());
        let groups = move || groups::of_process(header.pid);
        let began = Instant::now();
        let _in_span = request_span!(
            MOUNT_REQUEST,
            opcode::name(header.opcode),
            on.nodes.fid(header.nodeid),
            header.pid,
            header.unique
        )
        .entered();
        let task = Task::new(&self.mount, on, header, requester, (&running.cancel, &groups));
        let result = if on.is_removed() && !is_farewell(header.opcode) {
            Err(RequestRefusal(Errno::STALE))
        } else {
            run(&task)
        };
        if let Err(RequestRefusal(errno)) = result {
            task.reply.refuse(match errno {
                Errno::INTR if running.cancel.is_abandoned() => abandoned(header.opcode),
                errno => self.mount.unless_removed(&task, errno),
            });
        }
        running.cancel.request_over();
        // Locks wait for other programs.
        if of != RequestUse::Wait {
            observe::record(Wait::MountRequest, began.elapsed());
        }
    }

    /// Runs with the node's volume.
    fn of<R>(&self, node: u64, run: impl FnOnce(&VolumeView) -> R) -> Option<R> {
        match &self.mount.flat {
            Some(flat) if Slot::of(node) != Slot::FIRST => {
                flat.view(Slot::of(node)).map(|other| run(&other))
            }
            _ => Some(run(&self.first)),
        }
    }

    fn run(
        &self,
        header: abi::InHeader,
        requester: &dyn Requester,
        run: impl FnOnce(&Task<'_>) -> Result<(), RequestRefusal>,
    ) {
        if self.of(header.nodeid, |on| self.run_request(on, header, requester, run)).is_none() {
            let _ = requester.reply(header.unique, Err(Errno::STALE));
        }
    }

    fn forget_any(&self, node: u64, count: u64) {
        self.of(node, |on| self.mount.forget(on, node, count));
    }

    /// Operations that have no reply.
    fn take_notice(&self, request: &KernelRequest<'_>) -> bool {
        match request.operation {
            Operation::Interrupt { unique } => self.mount.interrupts.interrupt(unique),
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
        self.mount.interrupts.end();
        self.views().for_each(|volume| volume.notifier.ended());
    }

    fn refuse(&self, request: &[u8], requester: &dyn Requester) {
        if let Ok(header) = KernelRequest::header(request) {
            let _ = requester.reply(header.unique, Err(Errno::NOLCK));
        }
    }
}
