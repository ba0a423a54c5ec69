//! All volumes in one mount, if there cannot be a mount for each (`submounts.rs`): for users other
//! than root, and namespaces that mounts below do not reach.
//!
//! Model. Every volume in use has a dispatch of its own, with its cache manager, and a [`Slot`]:
//! the upper bits of all its nodes' numbers. The mount's handler is the first volume's dispatch; it
//! passes requests of another slot to that one's, on the same channel.
//!
//! - A walk through a mount point gets the root of the volume that it leads to. The kernel caches
//!   the name as the directory above promises, the root's status as its own volume does. A mount
//!   point without a volume is answered as itself, and so is one that a caller only looks at
//!   (`calling.rs`). The kernel caches nothing of such a *shown point*, and whoever goes through it
//!   later gets the volume, or the error.
//! - The target of a mount point is resolved once, and stored until its volume is closed or a
//!   caller orders a new resolution.
//! - A volume has one place: a directory has one place in the kernel. It is free for another when
//!   its mount point is gone, or the kernel has no node of the volume.
//! - A volume keeps its slot, so that the numbers of files do not change. It is closed when no
//!   request for it came for [`MountPlan::idle`] and the kernel has forgotten all its nodes; newer
//!   kernels can be asked to forget unused nodes.
//! - A volume that was removed from the cell leaves at once (`MountShared::unless_removed`): its
//!   files are stale, its slot is never used again, and its mount point is resolved anew.
//! - The kernel's read-only flag is the mount's, so changes of read-only volumes are refused here.
//! - Epochs (`invalidation.rs`) are the mount's: after a break of a directory in one volume the
//!   names of all are looked up again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use client::{Cancel, RemoteVolume};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use types::{Caller, Fault, Fid, Name, VolumeId};
use venus::{Error, RequestContext, Venus, Volumes};

use crate::channel::Channel;
use crate::errno;
use crate::init::Agreement;
use crate::interrupts::Interrupts;
use crate::invalidation::Notifier;
use crate::nodes::{KernelNodes, Slot};
use crate::readdir_helper::{ReaddirHelper, Root};
use crate::submounts::MountPlan;
use crate::succession::{Legacy, SlotRecord};
use crate::volume_view::VolumeView;
use crate::walk::{LOOK_AGAIN, Walk};

/// How long a volume may be open that is neither shown nor closing.
const ENDING: Duration = Duration::from_secs(1);
/// Volumes of one mount. Each has two sleeping threads.
const VOLUMES_MAX: usize = 2048;

/// The volumes of one mount.
pub struct Flat {
    plan: MountPlan,
    first: Arc<Venus>,
    channel: Arc<dyn Channel>,
    agreement: Agreement,
    pub(crate) interrupts: Arc<Interrupts>,
    legacy: Option<Legacy>,
    /// The readdir helper of all volumes.
    ahead: OnceLock<(Arc<ReaddirHelper>, Root)>,
    rows: RwLock<HashMap<Slot, Arc<Row>>>,
    places: Mutex<Places>,
    /// Nodes of mount points that the kernel has as themselves.
    shown_points: Mutex<HashSet<u64>>,
    any_shown_point: AtomicBool,
}

/// A volume that is shown.
struct Row {
    view: Arc<VolumeView>,
    /// Requests that are about to send the kernel its root.
    visitors: AtomicUsize,
}

/// A request at this volume: the volume stays shown meanwhile.
pub struct Visit(Arc<Row>);

impl Visit {
    pub(crate) fn view(&self) -> &VolumeView {
        &self.0.view
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
struct Places {
    /// Volumes that have had a slot. The entry holds its cell's volumes, so that their address
    /// stays unique. `None`: a predecessor's, of another cell.
    slots: Vec<Option<(Arc<Volumes>, VolumeId)>>,
    of: HashMap<Slot, Place>,
    points: HashMap<u64, Arc<Point>>,
}

/// The place of a volume.
#[derive(Clone)]
struct Place {
    /// Its mount point; `None` for the first.
    point: Option<(Slot, Fid)>,
    /// The volumes on the path, its own last, in its cell.
    way: Vec<VolumeId>,
    /// All of them are read-only.
    read_only: bool,
}

/// A mount point in use, and the volume that it leads to.
struct Point {
    fid: Fid,
    leads: Mutex<Option<Slot>>,
}

impl Flat {
    /// For a mount that begins with this volume.
    pub fn new(
        plan: MountPlan,
        first: &Arc<Venus>,
        (way, read_only): (Vec<VolumeId>, bool),
        channel: &Arc<dyn Channel>,
        agreement: Agreement,
        legacy: Option<Legacy>,
    ) -> Arc<Self> {
        let interrupts = Interrupts::with_patience(plan.patience);
        let place = Place { point: None, way, read_only };
        let places = Places { of: HashMap::from([(Slot::FIRST, place)]), ..Places::default() };
        Arc::new(Flat {
            plan,
            first: Arc::clone(first),
            channel: Arc::clone(channel),
            agreement,
            interrupts,
            legacy,
            ahead: OnceLock::new(),
            rows: RwLock::default(),
            places: Mutex::new(places),
            shown_points: Mutex::default(),
            any_shown_point: AtomicBool::new(false),
        })
    }

    /// Lets the readdir helper list directories of volumes that are shown from now on.
    pub fn lists_ahead(&self, forerunner: &Arc<ReaddirHelper>, root: Root) {
        // Called once, when the mount exists.
        let _ = self.ahead.set((Arc::clone(forerunner), root));
    }

    /// The volume of this slot, which is not the first.
    pub(crate) fn view(&self, slot: Slot) -> Option<Arc<VolumeView>> {
        self.rows.read().get(&slot).map(|row| Arc::clone(&row.view))
    }

    fn all(&self) -> Vec<Arc<Row>> {
        self.rows.read().values().cloned().collect()
    }

    /// Every volume but the first.
    pub(crate) fn views(&self) -> Vec<Arc<VolumeView>> {
        self.all().iter().map(|row| Arc::clone(&row.view)).collect()
    }

    /// Volumes that are shown below the first.
    pub fn count(&self) -> usize {
        self.rows.read().len()
    }

    /// Whether mount points in this volume prefer read-only ones.
    pub fn is_read_only(&self, slot: Slot) -> bool {
        self.places.lock().of.get(&slot).is_some_and(|place| place.read_only)
    }

    /// The volume that the mount point `fid` of the volume `on` leads to.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn enter(&self, walk: &Walk<'_>, on: &VolumeView, fid: Fid) -> Result<Visit, Errno> {
        let point = self.point(on.nodes.number(fid), fid);
        let mut leads = loop {
            if let Some(leads) = point.leads.try_lock_for(LOOK_AGAIN) {
                break leads;
            }
            walk.go_on()?;
        };
        if let Some(visit) = leads.and_then(|slot| self.visit(slot)) {
            return Ok(visit);
        }
        let visit = self.follow(walk, on, fid)?;
        *leads = Some(visit.view().nodes.slot());
        Ok(visit)
    }

    /// Whether its volume is shown.
    pub(crate) fn was_entered(&self, on: &VolumeView, fid: Fid) -> bool {
        let point = self.places.lock().points.get(&on.nodes.number(fid)).cloned();
        let leads = point.filter(|point| point.fid == fid).and_then(|point| *point.leads.lock());
        leads.is_some_and(|slot| self.rows.read().contains_key(&slot))
    }

    fn point(&self, node: u64, fid: Fid) -> Arc<Point> {
        let new = || Arc::new(Point { fid, leads: Mutex::new(None) });
        let mut places = self.places.lock();
        let point = places.points.entry(node).or_insert_with(new);
        if point.fid != fid {
            *point = new();
        }
        Arc::clone(point)
    }

    fn visit(&self, slot: Slot) -> Option<Visit> {
        let rows = self.rows.read();
        let row = rows.get(&slot)?;
        row.visitors.fetch_add(1, Ordering::AcqRel);
        Some(Visit(Arc::clone(row)))
    }

    fn follow(&self, walk: &Walk<'_>, on: &VolumeView, fid: Fid) -> Result<Visit, Errno> {
        let request = &walk.request;
        let from = on.nodes.slot();
        let above = self.places.lock().of.get(&from).cloned().ok_or(Errno::STALE)?;
        let point = on.venus.mount_point(request, fid).map_err(|error| errno::of(&error))?;
        let volumes = on.volumes.of_cell(&point).map_err(|error| errno::of(&error))?;
        let abroad = !Arc::ptr_eq(&volumes, &on.volumes);
        walk.waits_for_close_of(&volumes, &point.volume)?;
        // As in `submounts.rs`.
        let read_only = above.read_only || abroad;
        let to = volumes.follow(request, &point, read_only).map_err(|error| errno::of(&error))?;
        if !abroad && above.way.contains(&to.id()) {
            return Err(Errno::LOOP);
        }
        let way = if abroad { vec![to.id()] } else { [&above.way[..], &[to.id()]].concat() };
        let place =
            Place { point: Some((from, fid)), way, read_only: read_only && to.is_read_only() };
        self.show(walk, &volumes, &to, place)
    }

    /// Shows the volume there, if it has no other place. Waits for one that is closing: its last
    /// changes have to be sent, and its server may be away.
    fn show(
        &self,
        walk: &Walk<'_>,
        volumes: &Arc<Volumes>,
        to: &Arc<RemoteVolume>,
        place: Place,
    ) -> Result<Visit, Errno> {
        let slot = self.slot_of(volumes, to.id()).ok_or(Errno::MFILE)?;
        let end = Instant::now() + ENDING;
        loop {
            if let Some(visit) = self.visit(slot) {
                self.take_place(&walk.request, &visit, place.clone())?;
                self.record(slot, volumes, to, &place);
                return Ok(visit);
            }
            if self.count() >= VOLUMES_MAX {
                tracing::warn!("refusing to show a volume: {VOLUMES_MAX} are shown in this mount");
                return Err(Errno::MFILE);
            }
            match volumes.open(to) {
                Ok(venus) => {
                    self.record(slot, volumes, to, &place);
                    walk.asks(&venus, to.id());
                    let cancel = walk.request.cancel;
                    let visit = self.add((slot, place), volumes, to, venus, cancel);
                    return visit
                        .inspect_err(|_| volumes.close(to.id()))
                        .map_err(|error| errno::of(&error));
                }
                Err(Error::Fault(Fault::Busy)) => {
                    if !walk.waits_for_close(volumes, to.id())? && Instant::now() >= end {
                        return Err(Errno::BUSY);
                    }
                }
                Err(error) => return Err(errno::of(&error)),
            }
        }
    }

    fn slot_of(&self, volumes: &Arc<Volumes>, volume: VolumeId) -> Option<Slot> {
        let mut places = self.places.lock();
        let known = places.slots.iter().position(
            |one| matches!(one, Some((whose, id)) if *id == volume && Arc::ptr_eq(whose, volumes)),
        );
        let count = known.unwrap_or(places.slots.len());
        let slot = Slot::new(count)?;
        if known.is_none() {
            places.slots.push(Some((Arc::clone(volumes), volume)));
        }
        Some(slot)
    }

    /// Whether the volume has this place: it had it, or the place is free and becomes its.
    fn take_place(
        &self,
        request: &RequestContext<'_>,
        visit: &Visit,
        place: Place,
    ) -> Result<(), Errno> {
        let nodes = &visit.view().nodes;
        let old = self.places.lock().of.get(&nodes.slot()).and_then(|old| old.point);
        let is_here = old == place.point;
        if !is_here && !nodes.is_empty() && old.is_some_and(|old| self.is_there(request, old)) {
            tracing::warn!(
                volume = nodes.root().volume.0,
                "cannot show a volume twice: it is at another mount point"
            );
            return Err(Errno::BUSY);
        }
        self.places.lock().of.insert(nodes.slot(), place);
        Ok(())
    }

    /// Records where a volume is about to be shown. A successor finds volumes by their names, in
    /// its own cell.
    fn record(&self, slot: Slot, volumes: &Arc<Volumes>, to: &RemoteVolume, place: &Place) {
        let is_ours = Arc::ptr_eq(volumes, &self.plan.volumes);
        if let (Some(legacy), Some((from, fid))) = (&self.legacy, place.point)
            && is_ours
        {
            let record = SlotRecord {
                volume: to.name().as_bytes().to_vec(),
                point: (from.number(), fid),
                way: place.way.clone(),
                read_only: place.read_only,
            };
            legacy.put_slot(slot.number(), &record);
        }
    }

    /// Shows the volumes that a predecessor showed. Called before the first request is received.
    pub(crate) fn inherit(&self) {
        for (number, record) in self.legacy.iter().flat_map(Legacy::slots) {
            match self.show_again(number, &record) {
                Ok(view) => view.notifier.drop_unknown(),
                Err(error) => {
                    let volume = String::from_utf8_lossy(&record.volume);
                    tracing::error!(%error, %volume, "a volume that was shown is lost");
                    self.legacy.iter().for_each(|legacy| legacy.remove_slot(number));
                }
            }
        }
    }

    fn show_again(&self, number: u64, record: &SlotRecord) -> Result<Arc<VolumeView>, Error> {
        let (slot, count) = Slot::numbered(number).ok_or(Error::Protocol)?;
        let from = Slot::numbered(record.point.0).map_or(Slot::FIRST, |(slot, _)| slot);
        let name = Name::new(&record.volume).map_err(|_| Error::Protocol)?;
        let volumes = &self.plan.volumes;
        let to = volumes.find(&RequestContext::of(&Caller::ROOT), &name)?;
        let venus = volumes.open(&to)?;
        {
            let slots = &mut self.places.lock().slots;
            slots.resize(slots.len().max(count + 1), None);
            slots[count] = Some((Arc::clone(volumes), to.id()));
        }
        let point = Some((from, record.point.1));
        let place = Place { point, way: record.way.clone(), read_only: record.read_only };
        let visit = self.add((slot, place), volumes, &to, venus, None);
        let visit = visit.inspect_err(|_| volumes.close(to.id()))?;
        Ok(Arc::clone(&visit.0.view))
    }

    /// Whether this is still a mount point.
    fn is_there(&self, request: &RequestContext<'_>, (slot, fid): (Slot, Fid)) -> bool {
        let shown = self.view(slot).map(|view| Arc::clone(&view.venus));
        let venus = if slot == Slot::FIRST { Some(Arc::clone(&self.first)) } else { shown };
        venus.is_some_and(|venus| venus.getattr(request, fid).is_ok())
    }

    fn add(
        &self,
        (slot, place): (Slot, Place),
        volumes: &Arc<Volumes>,
        to: &RemoteVolume,
        venus: Arc<Venus>,
        cancel: Option<&Cancel>,
    ) -> Result<Visit, Error> {
        let request = RequestContext { cancel, ..RequestContext::of(&Caller::ROOT) };
        let root = venus.root(&request, to.name())?.status;
        let nodes = KernelNodes::in_slot(root.fid, slot);
        let nodes = match &self.legacy {
            Some(legacy) => nodes.recorded(legacy.nodes()),
            None => nodes,
        };
        let nodes = Arc::new(nodes);
        let notifier =
            Arc::new(Notifier::new(Arc::clone(&self.channel), Arc::clone(&nodes), self.agreement));
        notifier.try_passthrough();
        if let Some((forerunner, root)) = self.ahead.get() {
            notifier.list_ahead(forerunner, *root);
        }
        venus.set_invalidate(Arc::clone(&notifier) as _);
        let (volumes, refuses) = (Arc::clone(volumes), to.is_read_only());
        let view = Arc::new(VolumeView::new(venus, nodes, notifier, volumes, refuses));
        let row = Arc::new(Row { view, visitors: AtomicUsize::new(1) });
        self.places.lock().of.insert(slot, place);
        self.rows.write().insert(slot, Arc::clone(&row));
        tracing::info!(volume = to.id().0, "volume shown below its mount point");
        Ok(Visit(row))
    }

    /// Records a mount point that the kernel gets as itself.
    pub(crate) fn shows_point(&self, node: u64) {
        self.shown_points.lock().insert(node);
        self.any_shown_point.store(true, Ordering::Release);
    }

    /// Whether the node is such a mount point.
    pub(crate) fn is_shown_point(&self, node: u64) -> bool {
        self.any_shown_point.load(Ordering::Acquire) && self.shown_points.lock().contains(&node)
    }

    /// The kernel forgot a node.
    pub(crate) fn forget(&self, node: u64) {
        if self.any_shown_point.load(Ordering::Acquire) {
            self.shown_points.lock().remove(&node);
        }
    }

    /// The next walk resolves this mount point anew.
    pub(crate) fn leave(&self, node: u64) {
        self.places.lock().points.remove(&node);
    }

    /// The next walks resolve all mount points of this mount anew.
    pub(crate) fn leave_all(&self) {
        self.places.lock().points.clear();
    }

    /// Closes the volumes that were not used since the last call, as far as the kernel has
    /// forgotten them, and asks it to forget.
    fn sweep(&self) {
        let unused: Vec<Arc<Row>> =
            self.all().into_iter().filter(|row| !row.view.was_used()).collect();
        for row in &unused {
            row.view.notifier.prune();
        }
        for row in unused {
            self.close(row.view.nodes.slot());
        }
    }

    /// The kernel has no node of it, unless a request is just sending one.
    fn close(&self, slot: Slot) {
        let mut rows = self.rows.write();
        let is_free =
            |row: &Arc<Row>| row.visitors.load(Ordering::Acquire) == 0 && row.view.nodes.is_empty();
        let Some(row) = rows.get(&slot).filter(|row| is_free(row)).cloned() else { return };
        rows.remove(&slot);
        drop(rows);
        self.places.lock().of.remove(&slot);
        self.legacy.iter().for_each(|legacy| legacy.remove_slot(slot.number()));
        row.view.volumes.close(row.view.nodes.root().volume);
    }

    /// The volume was removed from the cell.
    pub(crate) fn give_way(&self, view: &VolumeView) {
        let (slot, volume) = (view.nodes.slot(), view.nodes.root().volume);
        self.rows.write().remove(&slot);
        let mut places = self.places.lock();
        places.of.remove(&slot);
        // The kernel may still name its nodes.
        for known in &mut places.slots {
            if known
                .as_ref()
                .is_some_and(|(whose, id)| *id == volume && Arc::ptr_eq(whose, &view.volumes))
            {
                *known = None;
            }
        }
        drop(places);
        self.legacy.iter().for_each(|legacy| legacy.remove_slot(slot.number()));
        view.volumes.close(volume);
        view.notifier.end_names();
    }

    /// The mount has ended, and every request is handled.
    pub fn end(&self) {
        self.rows.write().clear();
    }
}

/// Sweeps now and then, until the mount has ended.
///
/// # Errors
/// If no thread can be started.
pub fn sweep_periodically(flat: &Arc<Flat>) -> std::io::Result<()> {
    let (flat, idle): (Weak<Flat>, _) = (Arc::downgrade(flat), flat.plan.idle);
    std::thread::Builder::new().name("mount-flat".into()).spawn(move || {
        loop {
            std::thread::sleep(idle);
            let Some(flat) = flat.upgrade() else { return };
            flat.sweep();
        }
    })?;
    Ok(())
}
