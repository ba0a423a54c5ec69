//! The state that all volumes of one tree share while any of them is used: the header, the head,
//! and the lock of its writers.
//!
//! Model. Updates write the head. An update *writes* from the first body that it holds, at the
//! latest from its commit, to its end; any number write at a time. Sealing the head, or removing
//! its volume, excludes writers: so each batch is wholly in the epoch before or after, and a body
//! that is changed in an epoch is committed in it.
//!
//! Locks, in this order: `writers`, gates of bodies, the catalog (`trees.rs`), `header`, `usage`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{ArcRwLockReadGuard, Mutex, RawRwLock, RwLock};
use types::{RUN_SLOTS, RunKey, VnodeNo, VnodeSlots, VolumeId};

use super::feed::Feed;
use super::view::EpochView;
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader, Usage, ViewHeader, VolumeQuota};
use crate::format::key::{self, kind};
use crate::format::record;
use crate::format::vnode::Vnode;
use crate::media::Media;
use crate::media::engine::{Batch, Engine, prefix_end};

/// The shared lock that a writer holds.
pub(crate) type WriteGuard = ArcRwLockReadGuard<RawRwLock, ()>;

/// Slots that are reserved in one stable step, so that few allocations wait for the disk.
const SLOTS_AT_ONCE: u64 = 2 * RUN;
/// Slots whose fids one key makes ([`types::RunKey`]).
const RUN: u64 = RUN_SLOTS as u64;

/// The state of a tree, see the head of the file.
pub(crate) struct TreeState {
    pub(crate) media: Arc<Media>,
    /// The tree's number, part of the keys of its records.
    pub(crate) id: VolumeId,
    /// The view of the origin, for records that this tree does not have.
    pub(crate) origin: Option<Arc<EpochView>>,
    pub(crate) writers: Arc<RwLock<()>>,
    views: RwLock<Views>,
    pub(crate) header: Mutex<HeaderState>,
    usage: Mutex<[i64; 2]>,
    /// The first change of the read-write volume must remove the base.
    based: AtomicBool,
    /// The highest slot that a vnode may have.
    slots_used: AtomicU64,
    /// The log of changes, while the read-write volume has standbys.
    feed: RwLock<Option<Arc<Feed>>>,
}

/// The views that follow from the header.
struct Views {
    state: HeadState,
    head: Arc<EpochView>,
    /// The view of the read-write volume: the head, unless it is being restored over.
    shown: Arc<EpochView>,
}

impl Views {
    fn new(head: EpochView, header: &TreeHeader) -> Views {
        let head = Arc::new(head);
        let shown = if header.head.is_being_restored() {
            // The newest sealed epoch, under the volume's own number.
            Arc::new(head.at(header.floor()))
        } else {
            Arc::clone(&head)
        };
        Views { state: header.head, head, shown }
    }
}

/// The header, and the slots between the allocated and the reserved ones.
///
/// Sessions get slots in whole runs; single slots come from runs that no session has, because a
/// session knows the key of its runs, and with it the fids of all files in them.
pub(crate) struct HeaderState {
    pub(crate) stored: TreeHeader,
    /// The first slot of the next run.
    next_run: u64,
    /// The rest of the run that single slots come from.
    singles: std::ops::Range<u64>,
}

impl HeaderState {
    /// After a start: all reserved slots may be in use.
    fn new(stored: TreeHeader) -> HeaderState {
        let next_run = stored.next_slot.next_multiple_of(RUN);
        // A new volume has the rest of its root's run.
        let singles = if stored.next_slot == 1 { 1..RUN } else { next_run..next_run };
        HeaderState { stored, next_run, singles }
    }
}

impl TreeState {
    /// The state of a tree that was just read or created; `origin` is the view of the origin in its
    /// header.
    pub(crate) fn new(
        media: Arc<Media>,
        id: VolumeId,
        header: TreeHeader,
        usage: [i64; 2],
        origin: Option<Arc<EpochView>>,
    ) -> Arc<TreeState> {
        let views = Views::new(head_of(&media, id, &header, origin.clone()), &header);
        let next_slot = header.next_slot;
        Arc::new(TreeState {
            media,
            id,
            origin,
            writers: Arc::default(),
            views: RwLock::new(views),
            based: AtomicBool::new(header.base.is_some()),
            header: Mutex::new(HeaderState::new(header)),
            usage: Mutex::new(usage),
            // Slots that an earlier process reserved may be in use.
            slots_used: AtomicU64::new(next_slot),
            feed: RwLock::default(),
        })
    }

    /// The head at this moment. It does not change while the caller writes.
    pub(crate) fn head(&self) -> Arc<EpochView> {
        Arc::clone(&self.views.read().head)
    }

    /// The view of the read-write volume at this moment.
    pub(crate) fn shown(&self) -> Arc<EpochView> {
        Arc::clone(&self.views.read().shown)
    }

    /// Updates the head after a change of the header's epochs. There are no writers.
    pub(crate) fn follow_header(&self, header: &TreeHeader) {
        assert!(self.writers.is_locked_exclusive(), "VO-1: an update is wholly in one epoch");
        let head = head_of(&self.media, self.id, header, self.origin.clone());
        *self.views.write() = Views::new(head, header);
        self.based.store(header.base.is_some(), Ordering::SeqCst);
    }

    /// The log of changes, if there is one that is not over.
    pub(crate) fn feed(&self) -> Option<Arc<Feed>> {
        self.feed.read().clone().filter(|feed| !feed.is_over())
    }

    /// Logs changes from now on, with the number `id` if nothing is logged yet. There are no
    /// writers.
    pub(crate) fn begin_feed(&self, id: u64) -> Arc<Feed> {
        assert!(self.writers.is_locked_exclusive(), "a feed begins between two changes");
        let feed =
            self.feed().unwrap_or_else(|| Arc::new(Feed::new(id, self.id, self.head().hash_key)));
        *self.feed.write() = Some(Arc::clone(&feed));
        feed
    }

    /// Logs nothing any more: standbys begin anew, if there still are any.
    pub(crate) fn stop_feed(&self) {
        if let Some(feed) = self.feed.write().take() {
            feed.stop();
        }
    }

    /// The owner of the head. This does not change while the caller writes.
    pub(crate) fn head_state(&self) -> HeadState {
        self.views.read().state
    }

    /// Whether the header has a base of the read-write volume. Only the caller can change this
    /// while it writes.
    pub(crate) fn is_based(&self) -> bool {
        self.based.load(Ordering::SeqCst)
    }

    /// Adds to `batch`, which changes the read-write volume, the removal of the base, and a new
    /// quota if one is given.
    pub(crate) fn change_fields(
        &self,
        quota: Option<VolumeQuota>,
        changes: bool,
        batch: Batch,
    ) -> Result<()> {
        let mut header = self.header.lock();
        let stored = &header.stored;
        let base = stored.base.filter(|_| !changes);
        let new = TreeHeader { quota: quota.unwrap_or(stored.quota), base, ..stored.clone() };
        self.change(&mut header, new, batch)?;
        self.based.store(base.is_some(), Ordering::SeqCst);
        Ok(())
    }

    /// Locks the tree for a writer. A writer may lock it again, even while another thread waits for
    /// the exclusive lock: it holds what other writers may need to finish.
    pub(crate) fn write(&self) -> WriteGuard {
        self.writers.read_arc_recursive()
    }

    /// The usage of the head.
    pub(crate) fn used(&self) -> Usage {
        let [bytes, files] = *self.usage.lock();
        Usage { bytes: bytes.max(0) as u64, files: files.max(0) as u64 }
    }

    /// Sets the usage of the head.
    pub(crate) fn set_used(&self, usage: Usage) {
        *self.usage.lock() = [usage.bytes as i64, usage.files as i64];
    }

    /// Adds bytes and files to the usage of the head.
    pub(crate) fn add_used(&self, delta: [i64; 2]) {
        if delta != [0, 0] {
            let mut usage = self.usage.lock();
            usage[0] += delta[0];
            usage[1] += delta[1];
        }
    }

    /// Adds to the batch that makes a volume of what came in: there is no progress any more, and
    /// the usage is that of the stream.
    pub(crate) fn put_arrival(&self, usage: Usage, batch: &mut Batch) {
        batch.delete(&key::progress(self.id));
        batch.delete(&key::usage(self.id));
        batch.add(&key::usage(self.id), &[usage.bytes as i64, usage.files as i64]);
    }

    /// Changes the header, stable after the next sync; `batch` is applied with it.
    pub(crate) fn change(
        &self,
        header: &mut HeaderState,
        new: TreeHeader,
        mut batch: Batch,
    ) -> Result<()> {
        assert!(new.floor() < new.epoch, "VO-1: the head is newer than every sealed epoch");
        assert!(
            new.next_slot >= header.stored.next_slot,
            "AC-9: a slot that may be in use is not allocated again"
        );
        put_header(self.id, &new, &mut batch);
        self.media.apply(&batch)?;
        header.stored = new;
        Ok(())
    }

    /// The vnode's records, newest first.
    pub(crate) fn vnode_records(&self, no: VnodeNo) -> Result<Vec<(Vec<u8>, Option<Vnode>)>> {
        let prefix = key::of_vnode(kind::VNODE, self.id, no);
        let mut found = Ok(Vec::new());
        self.media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
            match (record::decode_vnode(key, self.id, no, value), &mut found) {
                (Ok(vnode), Ok(records)) => records.push((key.to_vec(), vnode)),
                (Err(error), _) => found = Err(error),
                _ => {}
            }
            if found.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        found
    }

    /// Allocates a slot that was never used and will not be used again.
    pub(crate) fn allocate_slot(&self) -> Result<u64> {
        let mut header = self.header.lock();
        if header.singles.is_empty() {
            let first = self.next_run(&mut header)?;
            header.singles = first..first + RUN;
        }
        let slot = header.singles.start;
        if slot >= header.stored.next_slot {
            self.reserve_slots(&mut header, slot + 1)?;
        }
        header.singles.start += 1;
        debug_assert!(slot < header.stored.next_slot, "AC-9: a slot is reserved first");
        Ok(slot)
    }

    /// Allocates a run of such slots.
    pub(crate) fn allocate_run(&self, volume: VolumeId) -> Result<VnodeSlots> {
        let mut header = self.header.lock();
        let first = self.next_run(&mut header)?;
        Ok(VnodeSlots { first, count: RUN_SLOTS, key: self.run_key(&header, volume, first) })
    }

    /// The key that makes the fid of a slot.
    pub(crate) fn key_of_slot(&self, volume: VolumeId, slot: u64) -> RunKey {
        self.run_key(&self.header.lock(), volume, slot)
    }

    fn run_key(&self, header: &HeaderState, volume: VolumeId, slot: u64) -> RunKey {
        RunKey::derive(header.stored.hash_key, volume, slot)
    }

    fn next_run(&self, header: &mut HeaderState) -> Result<u64> {
        let first = header.next_run;
        if first + RUN > header.stored.next_slot {
            self.reserve_slots(header, first + RUN)?;
        }
        header.next_run = first + RUN;
        debug_assert!(header.next_run <= header.stored.next_slot, "AC-9: a run is reserved first");
        Ok(first)
    }

    /// Reserves all slots below `next`: they may be in use from now on, even after a crash.
    fn reserve_slots(&self, header: &mut HeaderState, next: u64) -> Result<()> {
        let next_slot = (next + SLOTS_AT_ONCE).next_multiple_of(RUN);
        let more = TreeHeader { next_slot, ..header.stored.clone() };
        self.change(header, more, Batch::default())?;
        self.media.sync()
    }

    /// Vnodes come in with the numbers that they have elsewhere, in slots up to this one. Allocates
    /// neither these nor any that is reserved now. Returns the first slot that may be allocated.
    pub(crate) fn take_slots(&self, last: u64) -> Result<u64> {
        let mut header = self.header.lock();
        if last >= header.stored.next_slot {
            self.reserve_slots(&mut header, last + 1)?;
        }
        self.skip_slots(&mut header);
        Ok(header.stored.next_slot)
    }

    /// Treats all reserved slots as used, as after a start: vnodes with them come in from another
    /// server.
    pub(crate) fn skip_slots(&self, header: &mut HeaderState) {
        *header = HeaderState::new(header.stored.clone());
        self.use_slot(header.stored.next_slot);
    }

    /// Whether this process or an earlier one may have allocated the slot, and whether a vnode may
    /// use it.
    pub(crate) fn slot(&self, slot: u64) -> (bool, bool) {
        let given = (1..self.header.lock().stored.next_slot).contains(&slot);
        (given, slot <= self.slots_used.load(Ordering::SeqCst))
    }

    /// Records that a vnode uses this slot.
    pub(crate) fn use_slot(&self, slot: u64) {
        self.slots_used.fetch_max(slot, Ordering::SeqCst);
    }
}

pub(crate) fn head_of(
    media: &Arc<Media>,
    id: VolumeId,
    header: &TreeHeader,
    origin: Option<Arc<EpochView>>,
) -> EpochView {
    let TreeHeader { epoch, hash_key, .. } = *header;
    EpochView {
        media: media.clone(),
        id,
        shown: id,
        epoch,
        floor: header.floor(),
        hash_key,
        origin,
    }
}

pub(crate) fn put_header(id: VolumeId, header: &TreeHeader, batch: &mut Batch) {
    let key = key::volume(id);
    batch.put(&key, &header.encode(&key));
}

pub(crate) fn put_view(id: VolumeId, header: &ViewHeader, batch: &mut Batch) {
    let key = key::view(id);
    batch.put(&key, &header.encode(&key));
}

/// The orphans of a tree, which clients have open.
pub(crate) fn orphans_of(tree_state: &TreeState) -> Result<Vec<VnodeNo>> {
    let prefix = key::of_volume(kind::ORPHAN, tree_state.id);
    let mut found = Vec::new();
    tree_state.media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        found.extend(key::number_at(key, 1).map(VnodeNo));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
