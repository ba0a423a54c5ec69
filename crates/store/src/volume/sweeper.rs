//! The sweeper: removes what no volume shows any more, in the background.
//!
//! Model. A record lists each removal; [`Sweeper::sweep`] works on them in steps, and the record
//! goes with the last step, so the sweep continues after a crash. A caller that had the volume when
//! it was removed may finish its work: the sweep waits for all such callers.
//!
//! A tree that no volume shows any more is removed by ranges, its directory with it. In a tree that
//! is still shown, records that only the removed volume showed belong to vnodes that were changed
//! around its epoch: those are tidied (`tree/version_collection.rs`), found by the notes of changes
//! (`c` records).

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use types::{VnodeNo, VolumeId};

use super::Volume;
use crate::StoreError;
use crate::body::files::{failed, is_named};
use crate::error::Result;
use crate::format::header::{ForkOrigin, HeadState, TreeHeader};
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record;
use crate::media::Media;
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::tree::state::{HeaderState, put_header};
use crate::tree::writer::put_garbage;
use crate::tree::{EpochView, TreeState, Trees};

/// The sweeper, see the head of the file.
pub(crate) struct Sweeper {
    trees: Arc<Trees>,
    progress: Mutex<Progress>,
}

/// The state of the sweeper beyond the records.
struct Progress {
    /// Removals may wait for the sweep.
    waiting: bool,
    /// Removed things that callers may still have, with their trees: the sweep waits for them.
    held: Vec<(VolumeId, SweptVolume)>,
    /// The progress of the current sweep: the last note of a change that it processed.
    reached: Option<(RemovalId, Vec<u8>)>,
}

/// The handles that may still use what was removed.
enum SweptVolume {
    Volume(Weak<Volume>),
    /// The tree, which no volume shows any more: the handles of any of its volumes.
    Tree(Weak<TreeState>),
    /// A volume that goes on: the readers of its former epoch.
    Shown(Weak<EpochView>),
}

impl SweptVolume {
    fn is_in_use(&self) -> bool {
        match self {
            SweptVolume::Volume(volume) => volume.strong_count() > 0,
            SweptVolume::Tree(tree_state) => tree_state.strong_count() > 0,
            SweptVolume::Shown(tree) => tree.strong_count() > 0,
        }
    }
}

/// The volume, and the epoch that it no longer shows.
type RemovalId = (VolumeId, u64);

/// A removal that waits for the sweep.
#[derive(Clone, Copy, Debug)]
struct Removal {
    volume: VolumeId,
    /// The volume still exists, and shows another epoch.
    stays: bool,
    tree: VolumeId,
    /// The epoch that the volume showed; [`WHOLE_TREE`]: no volume shows the tree any more.
    epoch: u64,
    /// The origin of a tree that no volume shows any more: kept until the tree is swept.
    origin: Option<ForkOrigin>,
}

const WHOLE_TREE: u64 = 0;

impl Removal {
    fn id(&self) -> RemovalId {
        (self.volume, self.epoch)
    }

    fn key(&self) -> key::Key {
        if self.stays {
            key::removal_of_epoch(self.volume, self.epoch)
        } else {
            key::removal(self.volume)
        }
    }

    fn put(&self, batch: &mut Batch) {
        let key = self.key();
        let mut numbers = vec![self.tree.0, self.epoch];
        numbers.extend(self.origin.iter().flat_map(|origin| [origin.tree.0, origin.epoch]));
        batch.put(&key, &record::encode_numbers(&key, &numbers));
    }

    /// Decodes the record; `None`: it is damaged.
    fn get(key: &[u8], value: &[u8]) -> Option<Removal> {
        let volume = VolumeId(key::number_at(key, 0)?);
        let stays = key::number_at(key, 1).is_some();
        if let Ok([tree, epoch]) = record::decode_numbers(key, value) {
            return Some(Removal { volume, stays, tree: VolumeId(tree), epoch, origin: None });
        }
        let [tree, epoch, origin, of] = record::decode_numbers(key, value).ok()?;
        let origin = Some(ForkOrigin { tree: VolumeId(origin), epoch: of });
        Some(Removal { volume, stays, tree: VolumeId(tree), epoch, origin })
    }
}

/// With more removals than this, the notes of changes stay for a later one.
const REMOVALS_CHECKED_MAX: usize = 1000;

/// The kinds of records that are removed with a tree, each a range.
const OF_TREES: [u8; 11] = [
    kind::VNODE,
    kind::ENTRIES,
    kind::INLINE,
    kind::SUMS,
    kind::XATTR,
    kind::ORPHAN,
    kind::UNSTABLE,
    kind::GARBAGE,
    kind::CHANGE,
    kind::PACK,
    kind::CIPHER,
];

impl Sweeper {
    pub(crate) fn new(trees: Arc<Trees>) -> Sweeper {
        // An earlier process may have left removals.
        let progress = Progress { waiting: true, held: Vec::new(), reached: None };
        Sweeper { trees, progress: Mutex::new(progress) }
    }

    fn media(&self) -> &Media {
        &self.trees.media
    }

    /// Records that a removal waits for the sweep.
    pub(crate) fn wake(&self) {
        self.progress.lock().waiting = true;
    }

    fn wait_for(&self, tree: VolumeId, held: SweptVolume) {
        let mut progress = self.progress.lock();
        progress.waiting = true;
        progress.held.push((tree, held));
    }

    /// The volume was removed, and `put_removal` recorded that; the sweep waits for its users. The
    /// caller holds the catalog lock.
    pub(crate) fn wait_for_volume(&self, volume: &Arc<Volume>) {
        self.wait_for(volume.tree_id(), SweptVolume::Volume(Arc::downgrade(volume)));
    }

    /// The read-write volume no longer shows this epoch; readers may still do.
    pub(crate) fn wait_for_readers(&self, shown: &Arc<EpochView>) {
        self.wait_for(shown.id, SweptVolume::Shown(Arc::downgrade(shown)));
    }

    /// Whether removed records of the tree's head, or files written in that epoch, wait for the
    /// sweep: their names must not be used again before.
    pub(crate) fn is_still_swept(&self, tree: VolumeId, epoch: u64) -> Result<bool> {
        let engine = &self.media().engine;
        if engine.get(&key::removal(tree))?.is_some() {
            return Ok(true);
        }
        let prefix = key::of_volume(kind::GARBAGE, tree);
        let mut found = false;
        engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
            found = key::number_at(key, 2) == Some(epoch);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Changes the header of a tree that fewer volumes show than before; `batch` is applied with
    /// it. A tree that none shows is swept as a whole. There are no writers, and the caller holds
    /// the catalog lock.
    pub(crate) fn shrink(
        &self,
        tree_state: &Arc<TreeState>,
        header: &mut HeaderState,
        new: TreeHeader,
        mut batch: Batch,
    ) -> Result<()> {
        debug_assert!(
            header.stored.head == new.head || !new.head.has_volume(),
            "VO-3: only what no volume shows is left to the sweep"
        );
        let whole = put_rest(tree_state, &new, &mut batch);
        self.media().apply(&batch)?;
        header.stored = new;
        tree_state.follow_header(&header.stored);
        if whole {
            self.trees.forget(tree_state.id);
            self.wait_for(tree_state.id, SweptVolume::Tree(Arc::downgrade(tree_state)));
        }
        self.wake();
        Ok(())
    }

    /// The head of the tree, which a stream filled, has no owner any more; otherwise as
    /// [`Sweeper::shrink`].
    pub(crate) fn drop_head(
        &self,
        tree_state: &Arc<TreeState>,
        header: &mut HeaderState,
        new: TreeHeader,
        mut batch: Batch,
    ) -> Result<()> {
        put_removal(tree_state.id, false, tree_state.id, new.epoch, &mut batch);
        self.shrink(tree_state, header, new, batch)?;
        self.media().gates.forget(tree_state.id);
        Ok(())
    }

    /// Sweeps up to about `max` files or vnodes of removed volumes; returns how many, 0 if only
    /// those are left that callers still have.
    pub(crate) fn sweep(&self, max: usize) -> Result<usize> {
        if !self.progress.lock().waiting {
            return Ok(0);
        }
        // A removal's record exists a moment before the handles of its volume are registered; both
        // happen under this lock.
        let catalog = self.trees.catalog();
        let mut progress = self.progress.lock();
        progress.held.retain(|(_, held)| held.is_in_use());
        let mut next = None;
        let mut waits = false;
        self.each_removal(&mut |removal| {
            let held = progress.held.iter().any(|(tree, _)| *tree == removal.tree);
            waits |= held;
            next = (!held).then_some(removal);
            held
        })?;
        progress.waiting = waits || next.is_some();
        let Some(next) = next else { return Ok(0) };
        let reached =
            progress.reached.take().filter(|(of, _)| *of == next.id()).map(|(_, reached)| reached);
        drop((progress, catalog));
        if next.epoch == WHOLE_TREE {
            self.sweep_tree(next, max)
        } else {
            self.sweep_epoch(next, reached, max)
        }
    }

    /// Visits the removals, until `visit` stops it. A damaged record stays; scrub reports it.
    fn each_removal(&self, visit: &mut dyn FnMut(Removal) -> bool) -> Result<()> {
        let prefix = [kind::REMOVAL];
        self.media().engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
            let removal = Removal::get(key, value);
            if removal.is_none_or(&mut *visit) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    }

    /// Whether no other removal of the tree waits, as far as a short search shows.
    fn is_alone(&self, removal: Removal) -> Result<bool> {
        let (mut checked, mut alone) = (0, true);
        self.each_removal(&mut |other| {
            checked += 1;
            alone = checked < REMOVALS_CHECKED_MAX
                && (other.tree != removal.tree || other.id() == removal.id());
            alone
        })?;
        Ok(alone)
    }

    fn sweep_tree(&self, removal: Removal, max: usize) -> Result<usize> {
        let media = self.media();
        debug_assert!(
            !matches!(media.engine.get(&key::volume(removal.tree)), Ok(Some(_))),
            "VO-3: a tree that has a header is not swept as a whole"
        );
        // A crash must not bring back records that name the files.
        media.sync()?;
        let files = media.disk.clear(removal.tree, max).map_err(failed("removal of bodies"))?;
        if files == max {
            return Ok(files);
        }
        let mut batch = Batch::default();
        for kind in OF_TREES {
            let prefix = key::of_volume(kind, removal.tree);
            batch.delete_range(&prefix, &prefix_end(&prefix));
        }
        batch.delete(&removal.key());
        match removal.origin {
            Some(origin) => self.leave(origin, batch)?,
            None => media.apply(&batch).map(drop)?,
        }
        media.ciphers.forget(removal.tree);
        Ok(files + 1)
    }

    /// Adds to the batch that a tree with this origin no longer exists.
    fn leave(&self, origin: ForkOrigin, mut batch: Batch) -> Result<()> {
        let Some(tree_state) = self.trees.tree(origin.tree)? else {
            return self.media().apply(&batch).map(drop);
        };
        let _no_writers = tree_state.writers.write();
        let _catalog = self.trees.catalog();
        let mut header = tree_state.header.lock();
        let mut tree = header.stored.clone();
        if tree.hide(origin.epoch) {
            put_hidden(tree_state.id, origin.epoch, &mut batch);
        }
        self.shrink(&tree_state, &mut header, tree, batch)
    }

    /// One step of the sweep of records that only one epoch of a tree showed.
    fn sweep_epoch(&self, removal: Removal, reached: Option<Vec<u8>>, max: usize) -> Result<usize> {
        let Some(tree_state) = self.trees.tree(removal.tree)? else {
            // All of the tree was removed meanwhile.
            return self.end_removal(removal, Batch::default()).map(|()| 1);
        };
        let header = tree_state.header.lock().stored.clone();
        let changes = changes_around(&tree_state, &header, removal.epoch, reached, max)?;
        for change in &changes {
            let tidied = match change.bucket {
                Some(hash) => tree_state.tidy_bucket(change.vnode, hash),
                None => tree_state.tidy(change.vnode, change.with_entries),
            };
            match tidied {
                // An unreadable record stays; scrub reports it.
                Err(StoreError::Damaged(what)) => {
                    tracing::warn!(what, "the sweep skips a damaged record");
                }
                result => result?,
            }
        }
        if let (true, Some(last)) = (changes.len() == max, changes.last()) {
            self.progress.lock().reached = Some((removal.id(), last.key.clone()));
            return Ok(changes.len());
        }
        let mut batch = Batch::default();
        // Other removals read the notes too.
        if self.is_alone(removal)? {
            self.forget_changes(&tree_state, &mut batch);
        }
        if !header.head.has_head() {
            self.drop_head_leftovers(&tree_state, header.head, &mut batch)?;
        }
        if header.head == HeadState::TakenBack && removal.epoch == header.epoch {
            batch.delete(&removal.key());
            end_restoring(&tree_state, batch)?;
        } else {
            self.end_removal(removal, batch)?;
        }
        Ok(changes.len() + 1)
    }

    fn end_removal(&self, removal: Removal, mut batch: Batch) -> Result<()> {
        batch.delete(&removal.key());
        self.media().apply(&batch).map(drop)
    }

    /// Removes notes of changes up to the oldest shown epoch, which no reader needs.
    fn forget_changes(&self, tree_state: &TreeState, batch: &mut Batch) {
        let prefix = key::of_volume(kind::CHANGE, tree_state.id);
        let end = match tree_state.header.lock().stored.sealed.first() {
            Some(oldest) => key::changes(tree_state.id, oldest.epoch + 1).to_vec(),
            None => prefix_end(&prefix),
        };
        batch.delete_range(&prefix, &end);
    }

    /// Removes what only the head used: files of updates that a crash cut off, and orphans.
    fn drop_head_leftovers(
        &self,
        tree_state: &TreeState,
        head: HeadState,
        batch: &mut Batch,
    ) -> Result<()> {
        let media = self.media();
        if head == HeadState::Unowned {
            let orphans = key::of_volume(kind::ORPHAN, tree_state.id);
            batch.delete_range(&orphans, &prefix_end(&orphans));
        }
        let marks = key::of_volume(kind::UNSTABLE, tree_state.id);
        let mut marked = Vec::new();
        media.engine.scan(&marks, &prefix_end(&marks), &mut |key, _| {
            marked.extend(BodyName::of_key(key).map(|name| (key.to_vec(), name)));
            ControlFlow::Continue(())
        })?;
        for (mark, name) in marked {
            if !is_named(media, name)? {
                put_garbage(name, batch);
                media.garbage.store(true, Ordering::SeqCst);
            }
            batch.delete(&mark);
        }
        Ok(())
    }
}

/// After the sweep of a stream that was taken back: the volume continues where it was.
fn end_restoring(tree_state: &TreeState, batch: Batch) -> Result<()> {
    let _no_writers = tree_state.writers.write();
    let mut header = tree_state.header.lock();
    if header.stored.head != HeadState::TakenBack {
        // The volume was removed meanwhile: the next step of the sweep finds the removal's record.
        return Ok(());
    }
    let mut new = TreeHeader { epoch: header.stored.floor(), ..header.stored.clone() };
    new.become_head(HeadState::Serving, "taken back and swept");
    new.hide(new.epoch);
    tree_state.change(&mut header, new, batch)?;
    tree_state.follow_header(&header.stored);
    Ok(())
}

/// Adds to `batch` that a volume no longer shows this epoch of the tree, which no other volume
/// shows. `stays`: a volume with this number and name shows another epoch from then on.
pub(crate) fn put_removal(
    volume: VolumeId,
    stays: bool,
    tree: VolumeId,
    epoch: u64,
    batch: &mut Batch,
) {
    Removal { volume, stays, tree, epoch, origin: None }.put(batch);
}

/// The same for the read-write volume, which goes on.
pub(crate) fn put_hidden(tree: VolumeId, epoch: u64, batch: &mut Batch) {
    put_removal(tree, true, tree, epoch, batch);
}

/// Removes the sealed epoch that the read-write volume shows, and no other volume ever showed, from
/// the header of its tree.
pub(crate) fn hide_restored(tree: VolumeId, new: &mut TreeHeader, batch: &mut Batch) {
    let shown = new.floor();
    if new.hide(shown) {
        put_hidden(tree, shown, batch);
    }
}

/// Adds the header of a tree that fewer volumes show to the batch; returns whether none shows it.
fn put_rest(tree_state: &TreeState, tree: &TreeHeader, batch: &mut Batch) -> bool {
    let whole = !tree.head.has_head() && tree.sealed.is_empty();
    if whole {
        batch.delete(&key::volume(tree_state.id));
        batch.delete(&key::usage(tree_state.id));
        // Under the tree's number, which is not used again before all of it is removed.
        let (stays, epoch, origin) = (false, WHOLE_TREE, tree.origin);
        Removal { volume: tree_state.id, stays, tree: tree_state.id, epoch, origin }.put(batch);
    } else {
        put_header(tree_state.id, tree, batch);
    }
    whole
}

/// A note of a change.
struct Change {
    key: Vec<u8>,
    vnode: VnodeNo,
    /// The hash of a directory's bucket; `None`: the change of a vnode.
    bucket: Option<u64>,
    /// The note does not list buckets: all entries may have changed.
    with_entries: bool,
}

/// Up to `max` notes of changes behind `reached`, of vnodes that may have records which only the
/// removed epoch showed. Newer records hide such a record from all epochs shown behind it, or no
/// epoch is shown behind it.
fn changes_around(
    tree_state: &TreeState,
    header: &TreeHeader,
    epoch: u64,
    reached: Option<Vec<u8>>,
    max: usize,
) -> Result<Vec<Change>> {
    let head = header.head.has_head().then_some(header.epoch);
    let shown = || header.sealed.iter().map(|sealed| sealed.epoch).chain(head);
    let (behind, up_to) = match shown().find(|shown| *shown > epoch) {
        Some(next) => (epoch, next),
        None => (shown().filter(|shown| *shown < epoch).max().unwrap_or(0), header.epoch),
    };
    let from = match reached {
        // The next possible key.
        Some(reached) => [&reached[..], &[0]].concat(),
        None => key::changes(tree_state.id, behind + 1).to_vec(),
    };
    let mut found = Vec::new();
    tree_state.media.engine.scan(
        &from,
        &key::changes(tree_state.id, up_to + 1),
        &mut |key, value| {
            found.extend(key::number_at(key, 2).map(|vnode| Change {
                key: key.to_vec(),
                vnode: VnodeNo(vnode),
                bucket: key::number_at(key, 3),
                with_entries: !record::is_change_with_buckets(key, value),
            }));
            if found.len() >= max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )?;
    Ok(found)
}
