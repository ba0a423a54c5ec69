//! An update: the changes of one operation, collected here and applied as one batch by
//! [`crate::Volume::commit`] (ST-1).
//!
//! An update that wrote to bodies holds their gates until it is committed or dropped. Dropped after
//! a write, it leaves blocks that may disagree with their sums; the body is then suspect until the
//! next settling computes new sums.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use types::{ReplyAddress, VnodeNo};

use crate::StoreError;
use crate::error::Result;
use crate::format::header::{HeadState, VolumeQuota};
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record::{self, BucketEntry, GROUP_BLOCKS, Sums, count};
use crate::format::vnode::{Vnode, initial_used};
use crate::media::body_state::FormerFile;
use crate::media::disk::Stamp;
use crate::media::engine::{Batch, prefix_end};
use crate::media::gates::WriteGate;
use crate::media::{CommitScope, Media};
use crate::tree::feed::{Feed, FeedEntry};
use crate::tree::state::WriteGuard;
use crate::tree::writer::put_garbage;
use crate::tree::{EpochView, RecordWriter, TreeState};

/// Collects the changes of one operation.
#[derive(Default)]
pub struct Update<'s> {
    /// Gathers its batches.
    scope: Option<&'s CommitScope>,
    /// `None`: removed.
    pub(super) vnodes: Vec<(VnodeNo, Option<Vnode>)>,
    pub(super) buckets: Vec<((VnodeNo, u64), Vec<BucketEntry>)>,
    /// Buckets as read by an operation that may change them.
    read_buckets: Vec<((VnodeNo, u64), Vec<BucketEntry>)>,
    /// `None`: the inline body is removed.
    pub(super) inline: Vec<(VnodeNo, Option<Vec<u8>>)>,
    pub(super) sums: BTreeMap<(VnodeNo, u64), Sums>,
    /// The first group from which on sums are removed, before `sums` are put.
    pub(super) cut_sums: Vec<(VnodeNo, u64)>,
    pub(super) xattrs: Vec<XattrChange>,
    orphans: Vec<(VnodeNo, bool)>,
    pub(super) replies: Vec<(ReplyAddress, Bytes)>,
    /// Body files that no record names any more.
    garbage: Vec<BodyName>,
    /// Body files whose marks are removed.
    unmark: Vec<BodyName>,
    pub(super) quota: Option<VolumeQuota>,
    pub(crate) bytes_delta: i64,
    pub(crate) files_delta: i64,
    pub(super) bodies: Vec<BodyInUpdate>,
    /// Released after the gates.
    writes: Option<WriteGuard>,
}

/// An attribute by vnode and name, and its new value; `None`: removed.
type XattrChange = ((VnodeNo, Vec<u8>), Option<Vec<u8>>);

/// A body that the update changes.
pub(super) struct BodyInUpdate {
    pub(super) vnode: VnodeNo,
    pub(super) gate: WriteGate,
    /// The update changed the file.
    touched: bool,
    /// The file that the update created for the body.
    pub(super) made: Option<NewBody>,
    /// The update lends the body.
    pub(super) lends: bool,
    /// Of a lent body: the state of the file that the records will match.
    pub(super) settles: Option<Stamp>,
    media: Arc<Media>,
    committed: bool,
}

/// A new body file, and the state of the gate before it.
pub(super) struct NewBody {
    pub(super) name: BodyName,
    pub(super) former: FormerFile,
}

impl BodyInUpdate {
    /// Records that the file may differ from the records from here on.
    pub(super) fn touch(&mut self) {
        self.touched = true;
        self.gate.count_write();
    }

    /// The batch of the update is applied; `gone`: it removes the body with its file.
    fn commit(&mut self, gone: bool) {
        self.committed = true;
        if gone && self.made.is_none() {
            self.gate.lose_file();
        } else if let Some(stamp) = self.settles {
            self.gate.settle_loan(stamp);
        }
        if self.touched {
            self.gate.settle_own_change();
        }
    }
}

impl Drop for BodyInUpdate {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        if let Some(NewBody { name, former }) = self.made.take() {
            self.gate.undo_file(former);
            let mut batch = Batch::default();
            batch.delete(&name.unstable_key());
            // If either fails, the next start finds the mark, or scrub the file.
            if self.media.apply(&batch).is_err() || self.media.disk.remove(name).is_err() {
                tracing::warn!(?name, "body file of a dropped update stays until the next start");
            }
        } else if self.lends {
            // No kernel has the file yet.
            self.gate.end_loan(true, "dropped update");
        }
        if self.touched {
            self.gate.become_suspect("dropped update");
        }
    }
}

/// The most sums that are removed one by one; more are removed as a range, which makes the engine
/// slower if there are many.
const CUT_ONE_BY_ONE_MAX: usize = 64;

impl<'s> Update<'s> {
    /// An update without changes, whose batches are not gathered.
    pub fn new() -> Update<'s> {
        Update::default()
    }

    /// An update without changes. A scope of the volume's partition gathers its batches.
    pub fn within(scope: Option<&'s CommitScope>) -> Update<'s> {
        Update { scope, ..Update::default() }
    }

    pub(super) fn scope(&self) -> Option<&'s CommitScope> {
        self.scope
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

    pub(crate) fn drop_vnode(&mut self, vnode: &Vnode) {
        self.files_delta -= 1;
        self.bytes_delta -= vnode.status.used as i64;
        set(&mut self.vnodes, vnode.no(), None);
    }

    /// The gate of a body; locks it if the update does not hold it.
    pub(super) fn hold(&mut self, tree_state: &TreeState, vnode: VnodeNo) -> &mut BodyInUpdate {
        let at = self.bodies.iter().position(|held| held.vnode == vnode).unwrap_or_else(|| {
            self.writes.get_or_insert_with(|| tree_state.write());
            let gate = tree_state.media.gates.gate((tree_state.id, vnode)).write_arc();
            let media = tree_state.media.clone();
            self.bodies.push(BodyInUpdate {
                vnode,
                gate,
                touched: false,
                made: None,
                lends: false,
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
    pub(crate) fn sums(&self, tree: &EpochView, vnode: VnodeNo, group: u64) -> Result<Sums> {
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
    pub(crate) fn cut_sums(&mut self, tree: &EpochView, vnode: VnodeNo, from: u64) -> Result<u64> {
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

    /// Puts all changes of the volume's records into the batch, without usage and header.
    pub(crate) fn fill(&self, tree: &EpochView, batch: &mut Batch) -> Result<()> {
        let mut records = RecordWriter::new(tree, batch);
        for (no, vnode) in &self.vnodes {
            match vnode {
                Some(vnode) => records.put_vnode(vnode)?,
                None => records.erase_vnode(*no)?,
            }
            if tree.is_sealed() {
                records.note_change(*no);
            }
        }
        for ((dir, hash), bucket) in &self.buckets {
            let prefix = key::entries(tree.id, *dir, *hash);
            if tree.is_sealed() {
                records.note_bucket(*dir, *hash);
            }
            if bucket.is_empty() {
                records.erase(&prefix)?;
            } else {
                records.put(&prefix, |key| record::encode_bucket(key, bucket))?;
            }
        }
        for (no, bytes) in &self.inline {
            let prefix = key::of_vnode(kind::INLINE, tree.id, *no);
            let sealed = match bytes {
                Some(bytes) => tree.media.ciphers.seal_inline(tree.id, *no, bytes)?,
                None => None,
            };
            put_bytes(&mut records, &prefix, sealed.as_deref().or(bytes.as_deref()))?;
        }
        for ((no, name), value) in &self.xattrs {
            put_bytes(&mut records, &key::xattr(tree.id, *no, name), value.as_deref())?;
        }
        self.fill_sums(tree, batch)?;
        self.fill_marks(tree, batch);
        Ok(())
    }

    fn fill_sums(&self, tree: &EpochView, batch: &mut Batch) -> Result<()> {
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
                batch.delete_range(&prefix.number(*from), &prefix_end(&prefix));
            } else {
                let mut records = RecordWriter::new(tree, batch);
                groups
                    .iter()
                    .try_for_each(|group| records.erase(&key::sums(tree.id, *no, *group)))?;
            }
        }
        let mut records = RecordWriter::new(tree, batch);
        self.sums.iter().try_for_each(|((no, group), sums)| records.put_sums(*no, *group, sums))
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
            put_garbage(*name, batch);
        }
        for name in &self.unmark {
            batch.delete(&name.unstable_key());
        }
        for (origin, reply) in &self.replies {
            let key = key::reply(origin.session, origin.slot);
            batch.put(&key, &record::encode_reply(&key, origin.request, reply));
        }
    }

    /// The feed of the tree, if there is one, and the entry for it.
    fn entry_for(
        &self,
        tree_state: &TreeState,
        tree: &EpochView,
    ) -> Option<(Arc<Feed>, FeedEntry)> {
        let feed = tree_state.feed()?;
        match self.entry(tree) {
            Ok(entry) => entry.map(|entry| (feed, entry)),
            Err(error) => {
                tracing::warn!(%error, "a change cannot be logged; standbys begin anew");
                feed.stop();
                None
            }
        }
    }

    /// Applies the update to the head as one batch. The caller has checked that the head takes it.
    ///
    /// # Errors
    /// As [`crate::Volume::commit`].
    pub(crate) fn commit(mut self, tree_state: &TreeState) -> Result<()> {
        self.enter(tree_state);
        let media = &tree_state.media;
        let is_whole =
            self.bodies.iter().all(|held| self.vnodes.iter().any(|(no, _)| *no == held.vnode));
        if !is_whole {
            return Err(StoreError::Misuse("a body was changed without its vnode"));
        }
        // A nearly full partition refuses more files or bytes.
        if self.files_delta > 0 || self.bytes_delta > 0 {
            media.room_for_records(self.scope)?;
        }
        let mut batch = Batch::default();
        let tree = tree_state.head();
        self.fill(&tree, &mut batch)?;
        let state = tree_state.head_state();
        debug_assert!(state.has_head(), "VO-3: nothing is written to a head that is swept");
        // The usage of a stream over a volume counts only when it takes the volume's place.
        let entry = self.entry_for(tree_state, &tree);
        let delta = match state {
            HeadState::Restoring => [0, 0],
            _ => [self.bytes_delta, self.files_delta],
        };
        if delta != [0, 0] {
            batch.add(&key::usage(tree_state.id), &delta);
        }
        let highest = self.vnodes.iter().map(|(no, _)| no.0 / 2).max();
        tree_state.use_slot(highest.unwrap_or(0));
        let is_change =
            !self.vnodes.is_empty() || !self.buckets.is_empty() || !self.xattrs.is_empty();
        let ends_base = state == HeadState::Serving && tree_state.is_based() && is_change;
        if self.quota.is_some() || ends_base {
            tree_state.change_fields(self.quota, ends_base, batch)?;
        } else if !batch.is_empty() {
            media.apply_in(self.scope, &batch)?;
        }
        if let Some((feed, entry)) = entry {
            feed.add(entry);
        }
        tree_state.add_used(delta);
        if !self.garbage.is_empty() || tree.has_gap() {
            media.garbage.store(true, Ordering::SeqCst);
        }
        debug_assert!(
            self.bodies.iter().all(|held| !held.lends || held.gate.is_lent()),
            "PT-2: a body that was lent with an update is lent after it"
        );
        for held in &mut self.bodies {
            held.commit(self.garbage.iter().any(|name| name.vnode == held.vnode));
        }
        Ok(())
    }
}

fn put_bytes(records: &mut RecordWriter<'_>, prefix: &[u8], bytes: Option<&[u8]>) -> Result<()> {
    match bytes {
        Some(bytes) => records.put(prefix, |key| record::encode_bytes(key, bytes)),
        None => records.erase(prefix),
    }
}

/// Sets the value of a key in a short list.
fn set<K: PartialEq, V>(list: &mut Vec<(K, V)>, key: K, value: V) {
    match list.iter_mut().find(|(of, _)| *of == key) {
        Some((_, old)) => *old = value,
        None => list.push((key, value)),
    }
}
