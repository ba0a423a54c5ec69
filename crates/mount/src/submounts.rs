//! Mount points in a mount: every volume is a file system of its own, mounted below its mount point
//! when a walk reaches it (`docs/spec/volumes.md`).
//!
//! Model. A mount point is a directory in the kernel, and nothing about it may be cached until
//! something is mounted upon it. So each walk looks its name up (LOOKUP), and that request makes
//! the mount: a FUSE mount with its own cache manager, which is attached to the directory before
//! the reply. The kernel continues from the reply into the mount, and tools see its device number
//! at their first access.
//!
//! - To attach something to a directory the kernel must have its name already, but a first look-up
//!   makes the name only with the reply. So every mount point has a second name, which only this
//!   process looks up: its number in the *hidden directory*, which no listing shows. A directory
//!   has one place in the kernel: with the reply the kernel moves it, and what is mounted upon it,
//!   from the hidden directory to where it was looked up.
//! - Attaching takes locks that requests which wait for us may hold. So it happens in a separate
//!   thread, and a request waits for it no longer than [`ATTACHING`]. The directory's status may
//!   not be cached either: a walk that gets there unattached requests it (GETATTR), which attaches
//!   too, and is answered `ESTALE`, at which the kernel repeats the walk once.
//! - The kernel detaches a mount when the name below it ends (an epoch, or the name itself), and
//!   may forget the directory too. Its users stay in it; the next walk attaches it again. For that
//!   every mount has an *anchor*, which is attached nowhere: a mount of the same file system, of
//!   which copies are attached.
//! - Two file systems of one volume in one client would each cache what is changed through the
//!   other. So a volume has one, and one place. When its mount has ended, the cache manager sends
//!   its changes and ends too; until then the volume is not mounted anew.
//! - A mount without requests for [`MountPlan::idle`], and not in use, is unmounted by `umount` in
//!   a separate process: a thread of ours that walked to it could not be killed.
//! - A volume is not mounted below itself: walks through it would have no end.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use client::RemoteVolume;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use types::Fault;
use types::{Fid, MountPoint, VolumeId};
use venus::{Error, RequestContext, Venus, Volumes};

use crate::errno;
use crate::invalidation::Notifier;
use crate::mounting::{self, MountError, MountNumber};
use crate::nodes::HIDDEN_DIR;
use crate::readdir_helper::ReaddirHelper;
use crate::sysname::Sysnames;
use crate::workers::{KernelTransport, WorkersConfig};

/// Attaching takes microseconds unless the requester holds the directory's lock.
const ATTACHING: Duration = Duration::from_millis(200);
/// How long a second request waits for the first.
const MAKING: Duration = Duration::from_secs(10);
/// How long the end of an unused mount may take.
const ENDING: Duration = Duration::from_secs(1);
/// Mounts below one mount. Each has threads and a queue in the kernel.
const EDGES_MAX: usize = 512;

/// Parameters that all mounts of one client share.
#[derive(Clone)]
pub(crate) struct MountPlan {
    /// The source that the first mount shows.
    pub source: String,
    /// As in [`crate::MountConfig`].
    pub allow_other: bool,
    /// As in [`crate::MountConfig`].
    pub workers: WorkersConfig,
    /// As in [`crate::MountConfig`].
    pub transport: KernelTransport,
    /// How long an unused mount stays.
    pub idle: Duration,
    /// The readdir helper of all mounts.
    pub forerunner: Option<Arc<ReaddirHelper>>,
    /// The meaning of `@sys`.
    pub sysnames: Arc<Sysnames>,
    /// Whether device nodes have their numbers.
    pub devices: bool,
    /// The volumes that are mounted, or can be.
    pub volumes: Arc<Volumes>,
    /// Makes mounts below.
    pub make: MakeSubmount,
}

/// A mount below another. Dropping it unmounts.
pub(crate) trait Submount: Send + Sync {
    /// The volumes of its cell.
    fn volumes(&self) -> &Arc<Volumes>;

    /// Its volume.
    fn volume(&self) -> VolumeId;

    /// Whether the mount has ended for all users.
    fn is_over(&self) -> bool;

    /// Unmounts idle mounts below; returns whether there are any, or a request came since the last
    /// time.
    fn sweep(&self) -> bool;

    /// Unmounts what is mounted below and not in use.
    fn leave_below(&self);

    /// Waits until it is unmounted and every request is handled.
    fn wait(&self);
}

/// Makes a mount for a mount point, attached nowhere yet (`mount.rs`): a mount has mount points, so
/// it is of a layer above. The arguments are the place, the volumes on the path with whether all of
/// them are read-only, and the volume with its cache manager.
pub(crate) type MakeSubmount = fn(
    &MountPlan,
    MountLocation,
    (Vec<VolumeId>, bool),
    &RemoteVolume,
    Arc<Venus>,
) -> Result<(Box<dyn Submount>, OwnedFd), MountError>;

/// The place of a mount.
pub(crate) enum MountLocation {
    /// The first one.
    Path(PathBuf),
    /// On this mount point of the one above.
    Below(Weak<Edges>, u64),
}

/// The mount points of one mount that the kernel knows.
pub(crate) struct Edges {
    pub(crate) venus: Arc<Venus>,
    pub(crate) plan: MountPlan,
    place: MountLocation,
    /// The volumes on the path, this mount's own last.
    way: Vec<VolumeId>,
    /// All of them are read-only.
    read_only: bool,
    notifier: Arc<Notifier>,
    /// There is at least one point.
    any: AtomicBool,
    points: Mutex<HashMap<u64, Arc<Point>>>,
    /// Detached, and perhaps still in use.
    retired: Mutex<Vec<Retired>>,
}

/// A mount point.
struct Point {
    fid: Fid,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    making: bool,
    child: Option<Child>,
}

/// A mount that was upon a mount point.
struct Retired {
    fid: Fid,
    mount: Box<dyn Submount>,
    /// `None`: it ends with its last user.
    anchor: Option<OwnedFd>,
}

/// The mount upon a mount point.
struct Child {
    mount: Box<dyn Submount>,
    anchor: OwnedFd,
    /// The copy that was attached last; `None`: none yet.
    number: Option<MountNumber>,
}

impl Child {
    fn is_there(&self) -> bool {
        !self.mount.is_over() && self.number.as_ref().is_some_and(mounting::is_attached)
    }
}

impl Edges {
    /// For the mount whose kernel `notifier` notifies.
    pub fn new(
        venus: &Arc<Venus>,
        plan: MountPlan,
        place: MountLocation,
        (way, read_only): (Vec<VolumeId>, bool),
        notifier: &Arc<Notifier>,
    ) -> Arc<Self> {
        Arc::new(Edges {
            venus: Arc::clone(venus),
            plan,
            place,
            way,
            read_only,
            notifier: Arc::clone(notifier),
            any: AtomicBool::new(false),
            points: Mutex::default(),
            retired: Mutex::default(),
        })
    }

    /// Records a mount point that the kernel is about to get.
    pub fn remember(&self, number: u64, fid: Fid) {
        let new = || Arc::new(Point { fid, state: Mutex::default(), changed: Condvar::new() });
        let mut points = self.points.lock();
        let point = points.entry(number).or_insert_with(new);
        if point.fid != fid {
            // The slot is reused; the kernel detached the mount with the name.
            let gone = std::mem::replace(point, new());
            self.retire(&gone);
        }
        self.any.store(true, Ordering::Release);
    }

    /// The kernel forgot it: perhaps only to look its name up again.
    pub fn forget(&self, node: u64) {
        if self.any.load(Ordering::Acquire)
            && let Some(point) = self.points.lock().remove(&node)
        {
            self.retire(&point);
        }
    }

    fn retire(&self, point: &Point) {
        if let Some(child) = point.state.lock().child.take() {
            self.retire_child(point.fid, child);
        }
    }

    /// It may still be in use, though `umount` succeeded: in a copy that the kernel had detached.
    fn retire_child(&self, fid: Fid, child: Child) {
        self.retired.lock().push(Retired { fid, mount: child.mount, anchor: Some(child.anchor) });
        self.close_ended();
    }

    /// Closes volumes whose mounts have ended.
    fn close_ended(&self) {
        let over: Vec<Retired> =
            self.retired.lock().extract_if(.., |one| one.mount.is_over()).collect();
        for one in over {
            let (volumes, volume) = (Arc::clone(one.mount.volumes()), one.mount.volume());
            drop(one);
            volumes.close(volume);
        }
    }

    /// The mount of this volume that was upon this mount point, if it can be attached again.
    fn recall(&self, fid: Fid, volume: VolumeId) -> Option<Child> {
        let mut retired = self.retired.lock();
        let fits =
            |one: &Retired| one.fid == fid && one.anchor.is_some() && one.mount.volume() == volume;
        let at = retired.iter().position(|one| fits(one) && !one.mount.is_over())?;
        let Retired { mount, anchor, .. } = retired.swap_remove(at);
        anchor.map(|anchor| Child { mount, anchor, number: None })
    }

    /// Whether all volumes on the path are read-only, so that mount points prefer such.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the node is a mount point.
    pub fn has(&self, node: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.points.lock().contains_key(&node)
    }

    /// The mount point of this number, for a look-up in the hidden directory.
    pub fn point(&self, node: u64) -> Option<Fid> {
        self.points.lock().get(&node).map(|point| point.fid)
    }

    /// Mounts the volume of this mount point, or has another request do so.
    ///
    /// # Errors
    /// The reason why it cannot be mounted.
    pub fn enter(self: &Arc<Self>, request: &RequestContext<'_>, node: u64) -> Result<(), Errno> {
        let Some(point) = self.points.lock().get(&node).cloned() else { return Err(Errno::STALE) };
        let mut state = point.state.lock();
        while state.making {
            if point.changed.wait_for(&mut state, MAKING).timed_out() {
                return Err(Errno::AGAIN);
            }
        }
        if state.child.as_ref().is_some_and(Child::is_there) {
            return Ok(());
        }
        let was = state.child.take();
        state.making = true;
        drop(state);
        let made = match was {
            Some(detached) if !detached.mount.is_over() => {
                self.attach_to(detached, node, point.fid)
            }
            over => {
                over.into_iter().for_each(|child| self.retire_child(point.fid, child));
                self.make(request, node, point.fid)
            }
        };
        let mut state = point.state.lock();
        state.making = false;
        point.changed.notify_all();
        state.child = Some(made?);
        Ok(())
    }

    fn make(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        node: u64,
        fid: Fid,
    ) -> Result<Child, Errno> {
        if self.count() >= EDGES_MAX {
            tracing::warn!(%fid, "refusing to mount a volume: {EDGES_MAX} are mounted below one");
            return Err(Errno::MFILE);
        }
        let point = self.venus.mount_point(request, fid).map_err(|error| errno::of(&error))?;
        let volumes = self.plan.volumes.of_cell(&point).map_err(|error| errno::of(&error))?;
        let abroad = !Arc::ptr_eq(&volumes, &self.plan.volumes);
        // Source: AFS. A cell shows others its released volumes.
        let to = volumes
            .follow(request, &point, self.read_only || abroad)
            .map_err(|error| errno::of(&error))?;
        // The numbers of another cell's volumes are unrelated; a path back finds the volumes open.
        if !abroad && self.way.contains(&to.id()) {
            return Err(Errno::LOOP);
        }
        if let Some(detached) = self.recall(fid, to.id()) {
            return self.attach_to(detached, node, fid);
        }
        let mut plan = self.plan.clone();
        if let Some(cell) = point.cell.as_ref().filter(|_| abroad) {
            plan.source = format!("rialto:{cell}");
            plan.volumes = volumes;
        }
        let venus = self.open(&plan.volumes, &to, &point).map_err(|error| errno::of(&error))?;
        let mounted = self.mount((node, fid), &plan, &point, &to, venus);
        let mounted = mounted.map_err(|error| {
            plan.volumes.close(to.id());
            refused(&error, fid)
        });
        self.attach_to(mounted?, node, fid)
    }

    /// A cache manager for the volume, if no mount shows it. One unmounted a moment ago may be
    /// ending.
    fn open(
        &self,
        volumes: &Volumes,
        to: &Arc<RemoteVolume>,
        point: &MountPoint,
    ) -> Result<Arc<Venus>, Error> {
        let end = Instant::now() + ENDING;
        let volume = to.id();
        self.retired
            .lock()
            .iter_mut()
            .filter(|one| one.mount.volume() == volume)
            .for_each(|one| one.anchor = None);
        loop {
            self.close_ended();
            match volumes.open(to) {
                Err(Error::Fault(Fault::Busy)) if Instant::now() < end => {
                    std::thread::sleep(ENDING / 100);
                }
                Err(Error::Fault(Fault::Busy)) => {
                    tracing::warn!(%point, "the volume is at another mount point already");
                    return Err(Fault::Busy.into());
                }
                opened => return opened,
            }
        }
    }

    /// It is new, or the kernel detached it while in use.
    fn attach_to(&self, mut child: Child, node: u64, fid: Fid) -> Result<Child, Errno> {
        match self.attach_copy(&child.anchor, node, fid) {
            Ok(number) => {
                child.number = Some(number);
                Ok(child)
            }
            Err(error) => {
                // The path is changing. The caller walks again, and finds it.
                tracing::warn!(%error, %fid, "cannot attach a volume");
                self.retire_child(fid, child);
                Err(Errno::STALE)
            }
        }
    }

    /// Attaches a copy of the anchor; returns its number.
    fn attach_copy(
        &self,
        anchor: &OwnedFd,
        node: u64,
        fid: Fid,
    ) -> Result<MountNumber, MountError> {
        let copy = mounting::copy(anchor.as_fd())?;
        let number = mounting::number_of(copy.as_fd())?;
        attach(copy, self.path()?, (node, fid));
        Ok(number)
    }

    /// Mounts the volume, attached nowhere yet.
    fn mount(
        self: &Arc<Self>,
        (node, fid): (u64, Fid),
        plan: &MountPlan,
        point: &MountPoint,
        to: &RemoteVolume,
        venus: Arc<Venus>,
    ) -> Result<Child, MountError> {
        let abroad = !Arc::ptr_eq(&plan.volumes, &self.plan.volumes);
        let read_only = (self.read_only || abroad) && to.is_read_only();
        let way = if abroad { vec![to.id()] } else { [&self.way[..], &[to.id()]].concat() };
        let place = MountLocation::Below(Arc::downgrade(self), node);
        let (mount, anchor) = (plan.make)(plan, place, (way, read_only), to, venus)?;
        self.notifier.has_below();
        tracing::info!(%point, %fid, "volume mounted below its mount point");
        Ok(Child { mount, anchor, number: None })
    }

    /// The mount point itself, not what is mounted upon it.
    fn place_of(&self, node: u64, fid: Fid) -> Result<OwnedFd, MountError> {
        mounting::place_of(&self.path()?, node, fid.unique.0)
    }

    /// The present path of this mount.
    fn path(&self) -> Result<PathBuf, MountError> {
        match &self.place {
            MountLocation::Path(path) => Ok(path.clone()),
            MountLocation::Below(above, node) => {
                let above = above.upgrade().ok_or(MountError::Device(Errno::NODEV))?;
                let fid = above.points.lock().get(node).map(|point| point.fid);
                let fid = fid.ok_or(MountError::Device(Errno::NODEV))?;
                mounting::path_of(above.place_of(*node, fid)?.as_fd())
            }
        }
    }

    fn points(&self) -> Vec<(u64, Arc<Point>)> {
        self.points.lock().iter().map(|(node, point)| (*node, Arc::clone(point))).collect()
    }

    /// The number of volumes mounted here.
    pub fn count(&self) -> usize {
        self.points().iter().filter(|(_, point)| point.state.lock().child.is_some()).count()
    }

    /// Unmounts what was not used since the last call. Returns whether anything is left.
    pub fn sweep(&self) -> bool {
        self.drop_unused();
        let mut left = false;
        for (node, point) in self.points() {
            let idle = {
                let mut state = point.state.lock();
                let Some(child) = &state.child else { continue };
                if !child.is_there() {
                    // It ended, was unmounted, or was detached long ago.
                    let gone = state.child.take();
                    drop(state);
                    gone.into_iter().for_each(|child| self.retire_child(point.fid, child));
                    continue;
                }
                left = true;
                !child.mount.sweep()
            };
            if idle && self.take_away(node, point.fid) {
                self.retire(&point);
            }
        }
        left
    }

    /// Those that were detached and not used since the last call end with their last user.
    fn drop_unused(&self) {
        self.retired
            .lock()
            .iter_mut()
            .filter(|one| !one.mount.sweep())
            .for_each(|one| one.anchor = None);
        self.close_ended();
    }

    /// Unmounts what is mounted upon a mount point, so that the next walk resolves it anew.
    ///
    /// # Errors
    /// `BUSY` while it is in use.
    pub fn leave(&self, node: u64) -> Result<(), Errno> {
        let Some(point) = self.points.lock().get(&node).cloned() else { return Ok(()) };
        match &point.state.lock().child {
            Some(child) if child.is_there() => child.mount.leave_below(),
            _ => return Ok(()),
        }
        if !self.take_away(node, point.fid) {
            return Err(Errno::BUSY);
        }
        self.retire(&point);
        Ok(())
    }

    /// [`Self::leave`], for each that is not in use.
    pub fn leave_all(&self) {
        for (node, point) in self.points() {
            if self.leave(node).is_err() {
                tracing::debug!(fid = %point.fid, "volume is in use and stays mounted");
            }
        }
    }

    /// Unmounts it if it is not in use; whether it is gone.
    fn take_away(&self, node: u64, fid: Fid) -> bool {
        let place = self.place_of(node, fid).and_then(|place| mounting::path_of(place.as_fd()));
        let Ok(path) = place else { return false };
        let quiet = Stdio::null;
        let ended = Command::new("umount")
            .args(["--internal-only", "--no-canonicalize"])
            .arg(&path)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .status();
        match ended {
            Ok(status) => {
                tracing::info!(path = %path.display(), %status, "unmounting an idle volume");
                status.success()
            }
            Err(error) => {
                tracing::warn!(%error, "cannot run umount: idle volumes stay mounted");
                false
            }
        }
    }

    /// The mount has ended: waits until the last user of each below is gone.
    pub fn wait(&self) {
        self.points().into_iter().for_each(|(_, point)| self.retire(&point));
        let retired = std::mem::take(&mut *self.retired.lock());
        let mounts: Vec<Box<dyn Submount>> = retired.into_iter().map(|one| one.mount).collect();
        mounts.iter().for_each(|mount| mount.wait());
    }
}

fn refused(error: &MountError, fid: Fid) -> Errno {
    tracing::error!(%error, %fid, "cannot mount a volume");
    Errno::IO
}

/// Runs in a separate thread; see the head of the file.
fn attach(mount: OwnedFd, path: PathBuf, (node, fid): (u64, Fid)) {
    let (done, through) = mpsc::channel();
    let attaching = std::thread::Builder::new().name("mount-attach".into()).spawn(move || {
        let place = mounting::place_of(&path, node, fid.unique.0)
            .or_else(|_| mounting::place_in(&path, HIDDEN_DIR, node));
        let attached = place.and_then(|place| mounting::attach(mount.as_fd(), place.as_fd()));
        if let Err(error) = attached {
            tracing::warn!(%error, "cannot attach a volume to its mount point");
        }
        drop(mount);
        // The receiver is gone if this took too long.
        let _ = done.send(());
    });
    match attaching {
        Ok(_) => {
            let _ = through.recv_timeout(ATTACHING);
        }
        Err(error) => tracing::error!(%error, "cannot start a thread to attach a volume"),
    }
}

/// Sweeps now and then, until the first mount has ended.
///
/// # Errors
/// If no thread can be started.
pub fn sweep_periodically(edges: &Arc<Edges>) -> std::io::Result<()> {
    let (edges, idle) = (Arc::downgrade(edges), edges.plan.idle);
    std::thread::Builder::new().name("mount-edges".into()).spawn(move || {
        loop {
            std::thread::sleep(idle);
            let Some(edges) = edges.upgrade() else { return };
            edges.sweep();
        }
    })?;
    Ok(())
}
