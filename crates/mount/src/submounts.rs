//! Mount points in a mount: every volume is a file system of its own, mounted below its mount point
//! when a walk reaches it (`docs/spec/volumes.md`).
//!
//! Model. A mount point is a directory in the kernel, and nothing about it may be cached until
//! something is mounted upon it. So each walk through it looks its name up (LOOKUP), and that
//! request makes the mount: a FUSE mount with its own cache manager, which is attached to the
//! directory before the reply. The kernel continues from the reply into the mount. A caller
//! that only looks at a mount point gets its own status, and mounts nothing (`calling.rs`).
//!
//! - To attach something to a directory the kernel must have its name already, but a first look-up
//!   makes the name only with the reply. So every mount point has a second name, which only this
//!   process looks up: its number in the *hidden directory*, which no listing shows. A directory
//!   has one place in the kernel: with the reply the kernel moves it, and what is mounted upon it,
//!   from the hidden directory to where it was looked up.
//! - Attaching takes locks that requests which wait for us may hold. So it happens in a separate
//!   thread, and a request waits for it no longer than [`ATTACHING`]. The directory's status may
//!   not be cached either: a walk that gets there unattached requests it (GETATTR), or looks a name
//!   up in it, which attaches too, and is answered `ESTALE`. At this the kernel repeats the walk
//!   once; then the look-up of the mount point waits until it is attached. (The look-up in it
//!   cannot: it holds the lock.)
//! - The kernel detaches a mount when the name below it ends (an epoch, or the name itself), and
//!   may forget the directory too. Its users stay in it; the next walk attaches it again.
//! - A volume has one file system, and any number of places (`mounted_volumes.rs`).
//! - A mount without requests for [`MountPlan::idle`], and not in use, is unmounted, by the
//!   descriptor of its mount point: a thread of ours that walked to it could not be killed. A walk
//!   that was let through the mount point is not in the mount yet, so nothing is unmounted for
//!   [`ARRIVING`] after that: a walk that meets the end twice would fail with `ESTALE`, since the
//!   kernel repeats it only once.
//! - A volume that was removed from the cell gives way (`MountShared::unless_removed`): it is
//!   detached from its mount points, and the next walk finds the volume that has its name then.
//! - A volume is not mounted below itself, on whichever path: walks through it would have no end.
//! - A mount point in a read-only volume prefers the read-only copy of what it leads to. Source:
//!   AFS.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::{Cancel, RemoteVolume};
use keep::Keeper;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use types::Fault;
use types::{Fid, MountPoint, VolumeId};
use venus::{Error, Venus, Volumes};

use crate::calling::RepeatedWalks;
use crate::errno;
use crate::invalidation::Notifier;
use crate::mount_options::LiveOptions;
use crate::mounted_volumes::{MountPoints, MountedVolume, MountedVolumes, Submount};
use crate::mounting::{self, MountError, MountNumber};
use crate::nodes::{self, HIDDEN_DIR};
use crate::readdir_helper::ReaddirHelper;
use crate::removals::Removals;
use crate::succession::{Anchor, Legacy, PointRecord};
use crate::sysname::Sysnames;
use crate::walk::{LOOK_AGAIN, Walk};
use crate::workers::{KernelTransport, Workers, WorkersConfig};

/// Attaching takes microseconds, unless the requester holds the directory's lock, or the machine is
/// so loaded that the thread does not run.
pub(crate) const ATTACHING: Duration = Duration::from_millis(200);
/// The same for a walk that fails if it does not find the volume attached.
pub(crate) const ATTACHING_AT_LAST: Duration = Duration::from_secs(5);
/// How long a second request waits for the first.
const MAKING: Duration = Duration::from_secs(10);
/// How long a mount stays unused until it leaves, if there are many.
const CROWDED_IDLE: Duration = Duration::from_secs(1);
/// How long a walk through a mount point may take until it is in the mount, or is repeated.
const ARRIVING: Duration = Duration::from_secs(2);
/// How long the end of an unused mount may take once nothing of ours delays it. It lasts longer if
/// a program is still in it, at no mount point.
const ENDING: Duration = Duration::from_secs(10);

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
    /// Walks that the kernel repeats.
    pub walks: Arc<RepeatedWalks>,
    /// Programs that remove trees.
    pub removals: Arc<Removals>,
    /// Whether device nodes have their numbers.
    pub devices: bool,
    /// Options that the kernel applies.
    pub options: LiveOptions,
    /// As in [`crate::MountConfig`].
    pub patience: Option<Duration>,
    /// The workers of all mounts below the first.
    pub pool: Option<Arc<Workers>>,
    /// Holds what a successor of this process needs.
    pub keeper: Option<Arc<Keeper>>,
    /// All mounts below the first.
    pub mounted: Arc<MountedVolumes<Edges>>,
    /// The volumes that are mounted, or can be.
    pub volumes: Arc<Volumes>,
    /// Makes mounts below.
    pub make: MakeSubmount,
}

/// Makes a mount for a mount point, attached nowhere yet (`mount.rs`): a mount has mount points, so
/// it is of a layer above. The arguments are the volume, its cache manager, and what ends the wait
/// for its server.
pub(crate) type MakeSubmount = fn(
    &MountPlan,
    &RemoteVolume,
    Arc<Venus>,
    Option<&Cancel>,
) -> Result<(Box<dyn Submount<Edges>>, Anchor), MountError>;

/// Where a mount is.
pub(crate) enum MountLocation {
    /// The first one: at this path.
    Path(PathBuf),
    /// Upon mount points of others: these, or some of them.
    Below(Mutex<Vec<(Weak<Edges>, u64)>>),
}

/// The mount points of one mount that the kernel knows.
pub(crate) struct Edges {
    pub(crate) venus: Arc<Venus>,
    pub(crate) plan: MountPlan,
    place: MountLocation,
    /// The volumes on all paths to this mount, its own too.
    way: Mutex<BTreeSet<VolumeId>>,
    /// Its volume is read-only, so that mount points prefer such.
    read_only: bool,
    notifier: Arc<Notifier>,
    /// There is at least one point.
    any: AtomicBool,
    points: Mutex<HashMap<u64, Arc<Point>>>,
    /// The records of this mount for a successor.
    legacy: Option<Legacy>,
}

/// A mount point.
struct Point {
    fid: Fid,
    state: Mutex<State>,
    changed: Condvar,
}

impl Point {
    /// The copy that was attached then is unmounted. A walk may have attached another one since.
    fn is_left(&self, attaching: &Arc<Attaching>) {
        let mut state = self.state.lock();
        state.child.take_if(|child| Arc::ptr_eq(&child.attaching, attaching));
    }
}

#[derive(Default)]
struct State {
    making: bool,
    child: Option<Child>,
    /// When a walk was last let through.
    entered: Option<Instant>,
}

/// The mount upon a mount point.
struct Child {
    volume: Arc<MountedVolume<Edges>>,
    attaching: Arc<Attaching>,
}

/// An attachment that another thread makes, or has made.
#[derive(Default)]
struct Attaching {
    /// Once it is over: the copy that was attached, if it was.
    result: Mutex<Option<Option<MountNumber>>>,
    changed: Condvar,
}

impl Attaching {
    fn end(&self, attached: Option<MountNumber>) {
        *self.result.lock() = Some(attached);
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        self.result.lock().is_some()
    }

    fn copy(&self) -> Option<MountNumber> {
        self.result.lock().clone().flatten()
    }

    /// Waits for its end, but not for ever: the thread may need a lock that our caller holds.
    fn wait(&self, most: Duration) {
        let mut result = self.result.lock();
        self.changed.wait_while_for(&mut result, |result| result.is_none(), most);
    }
}

impl Edges {
    /// For the mount whose kernel `notifier` notifies.
    pub fn new(
        venus: &Arc<Venus>,
        plan: MountPlan,
        place: MountLocation,
        (volume, read_only): (VolumeId, bool),
        notifier: &Arc<Notifier>,
        legacy: Option<Legacy>,
    ) -> Arc<Self> {
        Arc::new(Edges {
            venus: Arc::clone(venus),
            plan,
            place,
            way: Mutex::new(BTreeSet::from([volume])),
            read_only,
            notifier: Arc::clone(notifier),
            any: AtomicBool::new(false),
            points: Mutex::default(),
            legacy,
        })
    }

    /// Has the mount points that a predecessor recorded: `fid` finds them by their nodes, `mounts`
    /// the volumes by the numbers of their mounts.
    pub fn inherit(
        self: &Arc<Self>,
        fid: impl Fn(u64) -> Option<Fid>,
        mounts: &HashMap<u64, Arc<MountedVolume<Edges>>>,
    ) {
        for (node, record) in self.legacy.iter().flat_map(Legacy::points) {
            let Some(fid) = fid(node).filter(|fid| fid.unique.0 == record.unique) else {
                self.legacy.iter().for_each(|legacy| legacy.remove_point(node));
                continue;
            };
            let upon = record.upon.and_then(|(mount, copy)| Some((mounts.get(&mount)?, copy)));
            let child = upon.map(|(volume, copy)| {
                let attaching = Arc::<Attaching>::default();
                attaching.end(Some(copy));
                Child { volume: Arc::clone(volume), attaching }
            });
            let below = child.as_ref().and_then(|child| child.volume.mount.edges()).cloned();
            let state = Mutex::new(State { child, ..State::default() });
            let point = Arc::new(Point { fid, state, changed: Condvar::new() });
            self.points.lock().insert(node, point);
            self.any.store(true, Ordering::Release);
            if let Some(below) = below {
                self.notifier.has_below();
                below.add_place(self, node);
                let way = self.way.lock().clone();
                below.extend_way(&way);
            }
        }
    }

    /// Records a mount point that the kernel is about to get.
    pub fn remember(&self, number: u64, fid: Fid) {
        let new = || Arc::new(Point { fid, state: Mutex::default(), changed: Condvar::new() });
        let mut points = self.points.lock();
        let mut is_new = false;
        let point = points.entry(number).or_insert_with(|| {
            is_new = true;
            new()
        });
        if point.fid != fid {
            // The slot is reused; the kernel detached the mount with the name.
            (*point, is_new) = (new(), true);
        }
        if let Some(legacy) = self.legacy.as_ref().filter(|_| is_new) {
            legacy.put_point(number, &PointRecord { unique: fid.unique.0, upon: None });
        }
        self.any.store(true, Ordering::Release);
    }

    /// The kernel forgot it, and did not look its name up again meanwhile (`is_unknown`).
    pub fn forget(&self, node: u64, is_unknown: impl FnOnce() -> bool) {
        if self.any.load(Ordering::Acquire) {
            let mut points = self.points.lock();
            // Under the lock: a look-up counts the node first, and then its mount point.
            let point = if is_unknown() { points.remove(&node) } else { None };
            if let Some(legacy) = self.legacy.as_ref().filter(|_| point.is_some()) {
                legacy.remove_point(node);
            }
            drop(points);
            drop(point);
        }
    }

    /// This mount is upon one more mount point.
    fn add_place(&self, above: &Arc<Edges>, node: u64) {
        let MountLocation::Below(places) = &self.place else { return };
        let mut places = places.lock();
        places.retain(|(edges, node)| edges.upgrade().is_some_and(|edges| edges.has(*node)));
        places.push((Arc::downgrade(above), node));
    }

    /// These volumes are above this mount, and above all mounts in it.
    fn extend_way(&self, above: &BTreeSet<VolumeId>) {
        let grown = {
            let mut way = self.way.lock();
            let before = way.len();
            way.extend(above);
            (way.len() > before).then(|| way.clone())
        };
        let Some(way) = grown else { return };
        for volume in self.children() {
            volume.mount.edges().iter().for_each(|edges| edges.extend_way(&way));
        }
    }

    fn children(&self) -> Vec<Arc<MountedVolume<Edges>>> {
        let child = |point: &Arc<Point>| {
            point.state.lock().child.as_ref().map(|child| Arc::clone(&child.volume))
        };
        self.points().iter().filter_map(|(_, point)| child(point)).collect()
    }

    /// Whether its volume is read-only, so that mount points prefer such.
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

    /// Whether its volume was mounted upon this mount point, and perhaps still is.
    pub fn was_entered(&self, node: u64) -> bool {
        let point = self.points.lock().get(&node).cloned();
        point.is_some_and(|point| {
            let state = point.state.lock();
            state.making || state.child.is_some()
        })
    }

    /// Mounts the volume of this mount point, or has another request do so. Waits so long until it
    /// is attached; a request that has the directory locked must not wait.
    ///
    /// # Errors
    /// The reason why it cannot be mounted.
    pub fn enter(
        self: &Arc<Self>,
        walk: &Walk<'_>,
        node: u64,
        patience: Duration,
    ) -> Result<(), Errno> {
        let Some(point) = self.points.lock().get(&node).cloned() else { return Err(Errno::STALE) };
        let mut state = point.state.lock();
        // Before the sweep can look at it: it is about to be there.
        state.entered = Some(Instant::now());
        while state.making {
            walk.go_on()?;
            point.changed.wait_for(&mut state, LOOK_AGAIN);
        }
        let attaching = state.child.as_ref().map(|child| Arc::clone(&child.attaching));
        if let Some(attaching) = attaching.filter(|attaching| !attaching.is_over()) {
            drop(state);
            attaching.wait(patience);
            return Ok(());
        }
        if state.child.as_ref().is_some_and(|child| self.is_there(child)) {
            return Ok(());
        }
        let was = state.child.take();
        state.making = true;
        drop(state);
        let made = match was.filter(|was| !was.volume.mount.is_over()) {
            // The kernel detached it while in use.
            Some(was) => self.attach(&was.volume, node, point.fid),
            None => self.make(walk, node, point.fid),
        };
        let mut state = point.state.lock();
        state.making = false;
        state.entered = Some(Instant::now());
        point.changed.notify_all();
        let attaching = Arc::clone(&state.child.insert(made?).attaching);
        drop(state);
        attaching.wait(patience);
        Ok(())
    }

    fn make(self: &Arc<Self>, walk: &Walk<'_>, node: u64, fid: Fid) -> Result<Child, Errno> {
        let request = &walk.request;
        let point = self.venus.mount_point(request, fid).map_err(|error| errno::of(&error))?;
        let volumes = self.plan.volumes.of_cell(&point).map_err(|error| errno::of(&error))?;
        let abroad = !Arc::ptr_eq(&volumes, &self.plan.volumes);
        walk.waits_for_close_of(&volumes, &point.volume)?;
        // Source: AFS. A cell shows others its released volumes.
        let to = volumes
            .follow(request, &point, self.read_only || abroad)
            .map_err(|error| errno::of(&error))?;
        // The numbers of another cell's volumes are unrelated; a path back finds the volumes open.
        if !abroad && self.way.lock().contains(&to.id()) {
            return Err(Errno::LOOP);
        }
        let mut plan = self.plan.clone();
        if let Some(cell) = point.cell.as_ref().filter(|_| abroad) {
            plan.source = format!("rialto:{cell}");
            plan.volumes = volumes;
            // A successor would look the name up in this cell, and serve another volume.
            plan.keeper = None;
        }
        let volume = self.mounted(walk, &plan, &to, (&point, fid))?;
        if !abroad && let Some(edges) = volume.mount.edges() {
            let way = self.way.lock().clone();
            edges.extend_way(&way);
        }
        self.attach(&volume, node, fid)
    }

    /// The volume, mounted. If it is just being mounted or unmounted, the walk waits: the last
    /// changes of an unmounted volume have to be sent, and its server may be away.
    fn mounted(
        &self,
        walk: &Walk<'_>,
        plan: &MountPlan,
        to: &Arc<RemoteVolume>,
        (point, fid): (&MountPoint, Fid),
    ) -> Result<Arc<MountedVolume<Edges>>, Errno> {
        let (mounted, volumes) = (&plan.mounted, &plan.volumes);
        let begun = Instant::now();
        loop {
            mounted.close_ended();
            if let Some(volume) = mounted.find(volumes, to.id()) {
                return Ok(volume);
            }
            if mounted.is_full() {
                if begun.elapsed() < MAKING {
                    walk.go_on()?;
                    std::thread::sleep(LOOK_AGAIN);
                    continue;
                }
                tracing::warn!(%point, %fid, "refusing to mount a volume: too many are in use");
                return Err(Errno::MFILE);
            }
            match volumes.open(to) {
                Ok(venus) => {
                    let _making = mounted.begin(volumes, to.id());
                    walk.asks(&venus, to.id());
                    let made = (plan.make)(plan, to, venus, walk.request.cancel);
                    let (mount, anchor) = made.map_err(|error| {
                        volumes.close(to.id());
                        refused(&error, fid)
                    })?;
                    self.notifier.has_below();
                    tracing::info!(%point, %fid, "volume mounted below its mount point");
                    return Ok(mounted.add(mount, anchor));
                }
                Err(Error::Fault(Fault::Busy)) => {
                    let changes = mounted.is_changing(volumes, to.id());
                    if !walk.waits_for_close(volumes, to.id())?
                        && !changes
                        && begun.elapsed() >= ENDING
                    {
                        tracing::warn!(
                            %point,
                            "the volume is the mount's first, or a program that has left its \
                            mount points still uses it"
                        );
                        return Err(Errno::BUSY);
                    }
                }
                Err(error) => return Err(errno::of(&error)),
            }
        }
    }

    /// Attaches one more copy of the volume to a mount point.
    fn attach(
        self: &Arc<Self>,
        volume: &Arc<MountedVolume<Edges>>,
        node: u64,
        fid: Fid,
    ) -> Result<Child, Errno> {
        self.notifier.has_below();
        volume.mount.edges().iter().for_each(|edges| edges.add_place(self, node));
        match self.path() {
            Ok(path) => {
                let attaching = attach(Arc::clone(volume), path, (node, fid), self.legacy.clone());
                Ok(Child { volume: Arc::clone(volume), attaching })
            }
            Err(error) => {
                // The path is changing. The caller walks again, and finds it.
                tracing::warn!(%error, %fid, "cannot attach a volume");
                Err(Errno::STALE)
            }
        }
    }

    /// The mount point itself, not what is mounted upon it.
    fn place_of(&self, node: u64, fid: Fid) -> Result<OwnedFd, MountError> {
        mounting::place_of(&self.path()?, node, nodes::generation(node, fid))
    }

    /// Whether this mount is upon mount points of others.
    pub fn is_below(&self) -> bool {
        matches!(self.place, MountLocation::Below(_))
    }

    /// The volume was removed from the cell: its mount points become free, in a separate thread, as
    /// in [`attach`].
    pub fn give_way(self: &Arc<Self>) {
        let MountLocation::Below(places) = &self.place else { return };
        let places = places.lock().clone();
        let detaching = Arc::<Attaching>::default();
        let (this, its) = (Arc::clone(self), Arc::clone(&detaching));
        let started = std::thread::Builder::new().name("mount-detach".into()).spawn(move || {
            for (above, node) in places {
                if let Some(above) = above.upgrade() {
                    above.detach(node, &this);
                }
            }
            its.end(None);
            this.plan.mounted.removed(&this);
        });
        match started {
            Ok(_) => detaching.wait(ATTACHING),
            Err(error) => tracing::error!(%error, "cannot start a thread to detach a volume"),
        }
    }

    /// Detaches the mount of `edges` from the mount point `node`, if it is there.
    fn detach(&self, node: u64, edges: &Edges) {
        let Some(fid) = self.point_of(node, edges) else { return };
        let Some(point) = self.points.lock().get(&node).cloned() else { return };
        let attaching = point.state.lock().child.as_ref().map(|child| Arc::clone(&child.attaching));
        let Some(attaching) = attaching else { return };
        let place = self.place_of(node, fid).map_err(|error| error.to_string());
        let detached = place.and_then(|place| {
            mounting::detach_upon(place.as_fd()).map_err(|errno| errno.to_string())
        });
        match detached {
            Ok(()) => point.is_left(&attaching),
            Err(error) => {
                tracing::error!(error, %fid, "a removed volume stays upon its mount point");
            }
        }
    }

    /// The present path of this mount.
    fn path(&self) -> Result<PathBuf, MountError> {
        match &self.place {
            MountLocation::Path(path) => Ok(path.clone()),
            MountLocation::Below(places) => {
                let places = places.lock().clone();
                let mut paths = places.iter().rev().filter_map(|(above, node)| {
                    let above = above.upgrade()?;
                    let fid = above.point_of(*node, self)?;
                    mounting::path_of(above.place_of(*node, fid).ok()?.as_fd()).ok()
                });
                paths.next().ok_or(MountError::Device(Errno::NODEV))
            }
        }
    }

    fn is_there(&self, child: &Child) -> bool {
        let copy = child.attaching.copy();
        !child.volume.mount.is_over()
            && copy.is_some_and(|copy| self.plan.mounted.is_attached(&copy))
    }

    /// The mount point `node`, if the mount of `edges` is upon it.
    fn point_of(&self, node: u64, edges: &Edges) -> Option<Fid> {
        let point = self.points.lock().get(&node).cloned()?;
        let state = point.state.lock();
        let child = state.child.as_ref()?;
        let its = child.volume.mount.edges()?;
        (std::ptr::eq(Arc::as_ptr(its), edges) && self.is_there(child)).then_some(point.fid)
    }

    fn points(&self) -> Vec<(u64, Arc<Point>)> {
        self.points.lock().iter().map(|(node, point)| (*node, Arc::clone(point))).collect()
    }

    /// Unmounts what is mounted upon a mount point, so that the next walk resolves it anew.
    ///
    /// # Errors
    /// `BUSY` while it is in use.
    pub fn leave(&self, node: u64) -> Result<(), Errno> {
        let Some(point) = self.points.lock().get(&node).cloned() else { return Ok(()) };
        let (volume, attaching) = match &point.state.lock().child {
            Some(child) if self.is_there(child) => {
                (Arc::clone(&child.volume), Arc::clone(&child.attaching))
            }
            _ => return Ok(()),
        };
        volume.mount.edges().iter().for_each(|edges| edges.leave_all());
        if !self.take_away(node, point.fid) {
            return Err(Errno::BUSY);
        }
        point.is_left(&attaching);
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
        let Ok(place) = self.place_of(node, fid) else { return false };
        match mounting::unmount_upon(place.as_fd()) {
            Ok(()) => {
                tracing::info!(%fid, "an idle volume was unmounted");
                true
            }
            Err(error) => {
                tracing::debug!(%error, %fid, "a volume stays mounted");
                false
            }
        }
    }

    /// The mount has ended. The first waits until the last user of each below is gone.
    pub fn wait(&self) {
        self.points.lock().clear();
        if matches!(self.place, MountLocation::Path(_)) {
            self.plan.mounted.wait();
        }
    }
}

impl MountPoints for Edges {
    fn count(&self) -> usize {
        self.points().iter().filter(|(_, point)| point.state.lock().child.is_some()).count()
    }

    fn take_idle_away(&self) {
        for (node, point) in self.points() {
            let attaching = {
                let mut state = point.state.lock();
                let Some(child) = &state.child else { continue };
                if !child.attaching.is_over() {
                    // It is about to be there.
                    continue;
                }
                if !self.is_there(child) {
                    // It ended, was unmounted, or was detached long ago.
                    state.child = None;
                    continue;
                }
                let arrives = state.entered.is_some_and(|at| at.elapsed() < ARRIVING);
                if arrives || !child.volume.is_idle() {
                    continue;
                }
                Arc::clone(&child.attaching)
            };
            if self.take_away(node, point.fid) {
                point.is_left(&attaching);
                // At once: others may be waiting for room.
                self.plan.mounted.let_unused_go();
            }
        }
    }

    fn present_path(&self) -> Option<PathBuf> {
        self.path().ok()
    }
}

fn refused(error: &MountError, fid: Fid) -> Errno {
    if let MountError::Volume(Error::Interrupted) = error {
        return Errno::INTR;
    }
    tracing::error!(%error, %fid, "cannot mount a volume");
    Errno::IO
}

/// Attaches one more copy of the volume, in a separate thread; see the head of the file.
fn attach(
    volume: Arc<MountedVolume<Edges>>,
    path: PathBuf,
    (node, fid): (u64, Fid),
    legacy: Option<Legacy>,
) -> Arc<Attaching> {
    let attaching = Arc::<Attaching>::default();
    let its = Arc::clone(&attaching);
    let work = move || -> Result<MountNumber, MountError> {
        let copy = volume.copy()?;
        let place = mounting::place_of(&path, node, nodes::generation(node, fid))
            .or_else(|_| mounting::place_in(&path, HIDDEN_DIR, node))?;
        let number = mounting::number_of(copy.as_fd())?;
        if let Some((legacy, below)) = legacy.zip(volume.mount.legacy()) {
            let upon = Some((below.number(), number.clone()));
            legacy.put_point(node, &PointRecord { unique: fid.unique.0, upon });
        }
        mounting::attach(copy.as_fd(), place.as_fd())?;
        Ok(number)
    };
    let started = std::thread::Builder::new().name("mount-attach".into()).spawn(move || {
        let attached = work().inspect_err(
            |error| tracing::warn!(%error, "cannot attach a volume to its mount point"),
        );
        its.end(attached.ok());
    });
    if let Err(error) = started {
        tracing::error!(%error, "cannot start a thread to attach a volume");
        attaching.end(None);
    }
    attaching
}

/// Sweeps now and then, until the first mount has ended.
///
/// # Errors
/// If no thread can be started.
pub fn sweep_periodically(edges: &Arc<Edges>) -> std::io::Result<()> {
    let (mounted, idle) = (Arc::clone(&edges.plan.mounted), edges.plan.idle);
    let edges = Arc::downgrade(edges);
    std::thread::Builder::new().name("mount-edges".into()).spawn(move || {
        loop {
            let crowded = mounted.wait_for_sweep(idle);
            let Some(edges) = edges.upgrade() else { return };
            mounted.sweep(&edges);
            if crowded {
                std::thread::sleep(CROWDED_IDLE);
                mounted.sweep(&edges);
            }
        }
    })?;
    Ok(())
}
