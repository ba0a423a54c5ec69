//! An update: the changes of one operation, collected here and applied as one batch by
//! [`crate::Volume::commit`] (ST-1).
//!
//! An update that wrote to bodies holds their gates until it is committed or dropped. Dropped after
//! a write, it leaves blocks that may disagree with their sums; the body is then suspect until the
//! next settling computes new sums.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use types::{ReplyAddress, VnodeNo};

use crate::StoreError;
use crate::bodies::{Mark, WriteGate};
use crate::disk::{BodyName, Stamp};
use crate::engine::Batch;
use crate::key::{self, kind};
use crate::media::Media;
use crate::record::{self, BucketEntry, GROUP_BLOCKS, Sums};
use crate::tree::EpochView;
use crate::tree_state::{TreeState, WriteGuard};
use crate::vnode::{Vnode, initial_used};
use crate::volume::VolumeQuota;

/// Collects the changes of one operation.
#[derive(Default)]
pub struct Update {
    /// `None`: removed.
    vnodes: Vec<(VnodeNo, Option<Vnode>)>,
    buckets: Vec<((VnodeNo, u64), Vec<BucketEntry>)>,
    /// Buckets as read by an operation that may change them.
    read_buckets: Vec<((VnodeNo, u64), Vec<BucketEntry>)>,
    /// `None`: the inline body is removed.
    inline: Vec<(VnodeNo, Option<Vec<u8>>)>,
    sums: BTreeMap<(VnodeNo, u64), Sums>,
    /// The first group from which on sums are removed, before `sums` are put.
    cut_sums: Vec<(VnodeNo, u64)>,
    xattrs: Vec<XattrChange>,
    orphans: Vec<(VnodeNo, bool)>,
    replies: Vec<(ReplyAddress, Bytes)>,
    /// Body files that no record names any more.
    garbage: Vec<BodyName>,
    /// Body files whose marks are removed.
    unmark: Vec<BodyName>,
    pub(crate) quota: Option<VolumeQuota>,
    pub(crate) bytes_delta: i64,
    pub(crate) files_delta: i64,
    pub(crate) bodies: Vec<BodyInUpdate>,
    /// Released after the gates.
    writes: Option<WriteGuard>,
}

/// An attribute by vnode and name, and its new value; `None`: removed.
type XattrChange = ((VnodeNo, Vec<u8>), Option<Vec<u8>>);

/// A body that the update changes.
pub(crate) struct BodyInUpdate {
    pub(crate) vnode: VnodeNo,
    pub(crate) gate: WriteGate,
    /// The update changed the file.
    pub(crate) touched: bool,
    /// The file that the update created for the body.
    pub(crate) made: Option<NewBody>,
    /// Of a lent body: the state of the file that the records will match.
    pub(crate) settles: Option<Stamp>,
    media: Arc<Media>,
    committed: bool,
}

/// A new body file, and the state of the gate before it.
pub(crate) struct NewBody {
    pub(crate) name: BodyName,
    pub(crate) mark: Option<Mark>,
    pub(crate) backup: bool,
    /// The file is lent from the start.
    pub(crate) lent: bool,
}

impl Drop for BodyInUpdate {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        if self.touched {
            self.gate.suspect = true;
            self.gate.trimmed = false;
        }
        if let Some(NewBody { name, mark, backup, lent }) = self.made.take() {
            self.gate.close();
            if lent {
                self.gate.lent = false;
                self.gate.mapped = false;
                self.gate.settled = None;
                self.media.bodies.lent.lock().remove(&(name.volume, name.vnode));
            }
            self.gate.mark = mark;
            self.gate.unsynced_name = false;
            self.gate.backup = backup;
            let mut batch = Batch::default();
            batch.delete(&unstable_key(name));
            // If either fails, the next start finds the mark, or scrub the file.
            if self.media.apply(&batch).is_err() || self.media.disk.remove(name).is_err() {
                tracing::warn!(?name, "body file of a dropped update stays until the next start");
            }
        }
    }
}

/// Key of the mark that a body file has unstable writes.
pub(crate) fn unstable_key(name: BodyName) -> key::Key {
    key::of_vnode(kind::UNSTABLE, name.volume, name.vnode)
        .number(name.epoch)
        .number(u64::from(name.generation))
}

/// The most sums that are removed one by one; more are removed as a range, which makes the engine
/// slower if there are many.
const CUT_ONE_BY_ONE_MAX: usize = 64;

impl Update {
    /// An update without changes.
    pub fn new() -> Update {
        Update::default()
    }

    /// Adds a new vnode: counts one file more. `put_vnode` of the same vnode may follow.
    pub fn create_vnode(&mut self, vnode: &Vnode) {
        self.files_delta += 1;
        self.bytes_delta += initial_used(vnode.status.kind) as i64;
        self.put_vnode(vnode);
    }

    /// Sets the state of a vnode; the last call counts. Needed after every body, entry and
    /// attribute operation.
    pub fn put_vnode(&mut self, vnode: &Vnode) {
        set(&mut self.vnodes, vnode.no(), Some(vnode.clone()));
    }

    /// Marks a vnode as an orphan: it has no names and is still held.
    pub fn add_orphan(&mut self, vnode: VnodeNo) {
        set(&mut self.orphans, vnode, true);
    }

    /// Removes the mark of an orphan.
    pub fn remove_orphan(&mut self, vnode: VnodeNo) {
        set(&mut self.orphans, vnode, false);
    }

    /// Stores the reply to the request, so that it is applied exactly once.
    pub fn reply(&mut self, origin: ReplyAddress, reply: Bytes) {
        self.replies.push((origin, reply));
    }

    /// Sets the quota of the volume.
    pub fn set_quota(&mut self, quota: VolumeQuota) {
        self.quota = Some(quota);
    }

    /// Whether the update adds files or bytes, which a nearly full partition refuses.
    pub(crate) fn grows(&self) -> bool {
        self.files_delta > 0 || self.bytes_delta > 0
    }

    /// Whether the update changes the volume.
    pub(crate) fn changes(&self) -> bool {
        !self.vnodes.is_empty() || !self.buckets.is_empty() || !self.xattrs.is_empty()
    }

    pub(crate) fn drop_vnode(&mut self, vnode: &Vnode) {
        self.files_delta -= 1;
        self.bytes_delta -= vnode.status.used as i64;
        set(&mut self.vnodes, vnode.no(), None);
    }

    /// The gate of a body; locks it if the update does not hold it.
    pub(crate) fn hold(&mut self, tree_state: &TreeState, vnode: VnodeNo) -> &mut BodyInUpdate {
        let at = self.bodies.iter().position(|held| held.vnode == vnode).unwrap_or_else(|| {
            self.writes.get_or_insert_with(|| tree_state.write());
            let gate = tree_state.media.bodies.gate((tree_state.id, vnode)).write_arc();
            let media = tree_state.media.clone();
            self.bodies.push(BodyInUpdate {
                vnode,
                gate,
                touched: false,
                made: None,
                settles: None,
                media,
                committed: false,
            });
            self.bodies.len() - 1
        });
        &mut self.bodies[at]
    }

    /// Prevents the seal of the tree until the update ends.
    pub(crate) fn enter(&mut self, tree_state: &TreeState) {
        self.writes.get_or_insert_with(|| tree_state.write());
    }

    pub(crate) fn set_inline(&mut self, vnode: VnodeNo, bytes: Option<Vec<u8>>) {
        set(&mut self.inline, vnode, bytes);
    }

    /// The update's change of an inline body, if there is one.
    pub(crate) fn inline(&self, vnode: VnodeNo) -> Option<&Option<Vec<u8>>> {
        self.inline.iter().find(|(of, _)| *of == vnode).map(|(_, bytes)| bytes)
    }

    /// A bucket that the update changes or has read.
    pub(crate) fn bucket(&self, dir: VnodeNo, hash: u64) -> Option<&Vec<BucketEntry>> {
        self.buckets
            .iter()
            .chain(&self.read_buckets)
            .find(|(of, _)| *of == (dir, hash))
            .map(|(_, bucket)| bucket)
    }

    pub(crate) fn set_read_bucket(&mut self, dir: VnodeNo, hash: u64, bucket: Vec<BucketEntry>) {
        set(&mut self.read_buckets, (dir, hash), bucket);
    }

    /// The highest slot of a vnode that the update puts.
    pub(crate) fn highest_slot(&self) -> u64 {
        self.vnodes.iter().map(|(no, _)| no.0 / 2).max().unwrap_or(0)
    }

    pub(crate) fn set_bucket(&mut self, dir: VnodeNo, hash: u64, bucket: Vec<BucketEntry>) {
        set(&mut self.buckets, (dir, hash), bucket);
    }

    pub(crate) fn set_xattr(&mut self, vnode: VnodeNo, name: &[u8], value: Option<Vec<u8>>) {
        set(&mut self.xattrs, (vnode, name.to_vec()), value);
    }

    /// The update's changes of attributes: names with new values, or `None`.
    pub(crate) fn xattrs(
        &self,
        vnode: VnodeNo,
    ) -> impl Iterator<Item = (&Vec<u8>, &Option<Vec<u8>>)> {
        self.xattrs
            .iter()
            .filter(move |((of, _), _)| *of == vnode)
            .map(|((_, name), value)| (name, value))
    }

    /// Sums with the changes of this update.
    pub(crate) fn sums(
        &self,
        tree: &EpochView,
        vnode: VnodeNo,
        group: u64,
    ) -> Result<Sums, StoreError> {
        if let Some(sums) = self.sums.get(&(vnode, group)) {
            return Ok(*sums);
        }
        if self.cut_sums.iter().any(|(of, from)| *of == vnode && *from <= group) {
            return Ok([0; GROUP_BLOCKS as usize]);
        }
        tree.sums(vnode, group)
    }

    pub(crate) fn set_sums(&mut self, vnode: VnodeNo, group: u64, sums: Sums) {
        self.sums.insert((vnode, group), sums);
    }

    /// Groups of `from..to` whose sums this update puts.
    pub(crate) fn pending_groups(&self, vnode: VnodeNo, from: u64, to: u64) -> BTreeSet<u64> {
        self.sums.range((vnode, from)..(vnode, to)).map(|((_, group), _)| *group).collect()
    }

    /// Makes holes of all groups from `from` on; returns how many blocks were none.
    pub(crate) fn cut_sums(
        &mut self,
        tree: &EpochView,
        vnode: VnodeNo,
        from: u64,
    ) -> Result<u64, StoreError> {
        let mut blocks = 0;
        tree.each_group(vnode, from, &mut |group, stored| {
            if !self.sums.contains_key(&(vnode, group))
                && !self.cut_sums.iter().any(|(of, cut)| *of == vnode && *cut <= group)
            {
                blocks += count(&stored);
            }
            ControlFlow::Continue(())
        })?;
        while let Some((&at, sums)) = self.sums.range((vnode, from)..=(vnode, u64::MAX)).next() {
            blocks += count(sums);
            self.sums.remove(&at);
        }
        self.forget_sums(vnode, from);
        Ok(blocks)
    }

    /// As `cut_sums`, for a caller that knows the number.
    pub(crate) fn forget_sums(&mut self, vnode: VnodeNo, from: u64) {
        self.sums.retain(|(of, group), _| *of != vnode || *group < from);
        self.cut_sums.push((vnode, from));
    }

    /// Removes a body file with this update.
    pub(crate) fn discard(&mut self, name: BodyName) {
        self.garbage.push(name);
        self.unmark.push(name);
    }

    /// Removes the file's mark with this update.
    pub(crate) fn unmark(&mut self, name: BodyName) {
        self.unmark.push(name);
    }

    pub(crate) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Puts all changes of the volume's records into the batch; the volume adds usage and header.
    pub(crate) fn fill(&self, tree: &EpochView, batch: &mut Batch) -> Result<(), StoreError> {
        for (no, vnode) in &self.vnodes {
            match vnode {
                Some(vnode) => tree.put_vnode(vnode, batch)?,
                None => tree.erase_vnode(*no, batch)?,
            }
            if tree.is_sealed() {
                tree.note_change(*no, batch);
            }
        }
        for ((dir, hash), bucket) in &self.buckets {
            let prefix = key::entries(tree.id, *dir, *hash);
            if tree.is_sealed() {
                tree.note_bucket(*dir, *hash, batch);
            }
            if bucket.is_empty() {
                tree.erase(&prefix, batch)?;
            } else {
                tree.make_way(&prefix, batch)?;
                let key = prefix.epoch(tree.epoch);
                batch.put(&key, &record::encode_bucket(&key, bucket));
            }
        }
        for (no, bytes) in &self.inline {
            let prefix = key::of_vnode(kind::INLINE, tree.id, *no);
            let sealed = match bytes {
                Some(bytes) => tree.media.ciphers.seal_inline(tree.id, *no, bytes)?,
                None => None,
            };
            put_bytes(tree, &prefix, sealed.as_deref().or(bytes.as_deref()), batch)?;
        }
        for ((no, name), value) in &self.xattrs {
            put_bytes(tree, &key::xattr(tree.id, *no, name), value.as_deref(), batch)?;
        }
        self.fill_sums(tree, batch)?;
        self.fill_marks(tree, batch);
        Ok(())
    }

    fn fill_sums(&self, tree: &EpochView, batch: &mut Batch) -> Result<(), StoreError> {
        for (no, from) in &self.cut_sums {
            let mut groups = Vec::new();
            let at_once = |count: usize| {
                count > CUT_ONE_BY_ONE_MAX && !tree.is_sealed() && tree.origin.is_none()
            };
            tree.each_group(*no, *from, &mut |group, _| {
                groups.push(group);
                if at_once(groups.len()) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            if at_once(groups.len()) {
                let prefix = key::of_vnode(kind::SUMS, tree.id, *no);
                batch.delete_range(&prefix.number(*from), &crate::engine::prefix_end(&prefix));
            } else {
                groups
                    .iter()
                    .try_for_each(|group| tree.erase(&key::sums(tree.id, *no, *group), batch))?;
            }
        }
        for ((no, group), sums) in &self.sums {
            let prefix = key::sums(tree.id, *no, *group);
            if count(sums) == 0 {
                tree.erase(&prefix, batch)?;
            } else {
                tree.make_way(&prefix, batch)?;
                let key = prefix.epoch(tree.epoch);
                batch.put(&key, &tree.encode_sums(*no, &key, sums)?);
            }
        }
        Ok(())
    }

    fn fill_marks(&self, tree: &EpochView, batch: &mut Batch) {
        for (no, held) in &self.orphans {
            let key = key::of_vnode(kind::ORPHAN, tree.id, *no);
            if *held {
                batch.put(&key, &record::encode_numbers(&key, &[]));
            } else {
                batch.delete(&key);
            }
        }
        for name in &self.garbage {
            let key = key::garbage(name.volume, name.vnode, name.epoch, name.generation);
            batch.put(&key, &record::encode_numbers(&key, &[]));
        }
        for name in &self.unmark {
            batch.delete(&unstable_key(*name));
        }
        for (origin, reply) in &self.replies {
            let key = key::reply(origin.session, origin.slot);
            batch.put(&key, &record::encode_reply(&key, origin.request, reply));
        }
    }

    /// Whether the update has the vnode of every changed body.
    pub(crate) fn is_whole(&self) -> bool {
        self.bodies.iter().all(|held| self.vnodes.iter().any(|(no, _)| *no == held.vnode))
    }

    /// Opens the gates after the batch is applied.
    pub(crate) fn committed(mut self) {
        for held in &mut self.bodies {
            held.committed = true;
            held.gate.settled = held.settles.or(held.gate.settled);
            let gone = self.garbage.iter().find(|name| name.vnode == held.vnode);
            if let Some(gone) = gone.filter(|_| held.made.is_none()) {
                held.gate.mark = None;
                held.gate.suspect = false;
                if std::mem::take(&mut held.gate.lent) {
                    held.media.bodies.lent.lock().remove(&(gone.volume, gone.vnode));
                }
                held.gate.mapped = false;
                held.gate.settled = None;
                held.gate.unsynced_name = false;
                held.gate.trimmed = false;
                held.gate.backup = false;
                held.gate.close();
            }
        }
    }
}

/// The number of blocks that are not holes.
pub(crate) fn count(sums: &Sums) -> u64 {
    sums.iter().filter(|sum| **sum != 0).count() as u64
}

fn put_bytes(
    tree: &EpochView,
    prefix: &[u8],
    bytes: Option<&[u8]>,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    match bytes {
        Some(bytes) => {
            tree.make_way(prefix, batch)?;
            let key = tree.current(prefix);
            batch.put(&key, &record::encode_bytes(&key, bytes));
            Ok(())
        }
        None => tree.erase(prefix, batch),
    }
}

/// Sets the value of a key in a short list.
fn set<K: PartialEq, V>(list: &mut Vec<(K, V)>, key: K, value: V) {
    match list.iter_mut().find(|(of, _)| *of == key) {
        Some((_, old)) => *old = value,
        None => list.push((key, value)),
    }
}
