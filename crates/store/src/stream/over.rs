//! A dump that comes in over a read-write volume: its next state (an increment), or another state
//! (a full dump).
//!
//! Model. The volume is *frozen* first, in one batch: its head is sealed, the volume shows that
//! epoch from then on and counts as one that does, takes no changes, and the dump is put together
//! where its head was. Readers see the former state. *Finishing* is one batch too: the volume shows
//! the new head, and records that only the old one used are swept like those of a removed snapshot.
//! *Taking it back* is one batch and a sweep: the dump's records go, then the volume continues in
//! the epoch that was sealed, unchanged. After a crash the volume is frozen, with a partial dump,
//! or in one of the two final states.
//!
//! An increment fits a volume that equals its start. The *base* in the tree's header records that:
//! a volume that came in whole is a copy of the tree and epoch that was sent, until its first
//! change removes the base in the same batch. Epochs may have other numbers here than at the
//! source, since snapshots may be made of a restored volume.
//!
//! A full dump may be older than the volume, and clients identify files by their fids and versions.
//! So versions are then shifted above all that the volume ever had (its root shows the highest),
//! and those of later increments by as much.
//!
//! A full dump of another volume, whose names have another hash, fits too: it is put together as it
//! is, and the volume takes over its key. No other volume may show the tree then, as a tree has one
//! key.
//!
//! A body file that the volume shows is never changed, though the head has it too: programs may
//! have it open.

use std::ops::ControlFlow;
use std::sync::Arc;

use types::{StreamCursor, Timestamp, VnodeNo, VolumeId};

use super::codec::StreamHead;
use super::incoming::{IncomingInfo, end_progress, is_same_stream, put_progress};
use crate::body_sync::settle_tree;
use crate::catalog::FROZEN;
use crate::engine::{Batch, Engine, prefix_end};
use crate::header::{Base, TreeHeader};
use crate::key::{self, kind};
use crate::tree_state::TreeState;
use crate::volume::Result;
use crate::{Partition, StoreError, Volume, record};

/// The distance between two shifts; versions of a volume differ by less.
const SHIFT: u64 = 1 << 40;

/// The volume below a stream that comes in over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Under {
    /// The epoch that the stream starts from, as numbered here; 0: the stream is full.
    pub(crate) since: u64,
    /// How much higher versions are here than at the source.
    pub(crate) shift: u64,
    /// Orphans that clients had open.
    pub(crate) orphans: Vec<VnodeNo>,
}

impl Partition {
    /// As [`Partition::begin_incoming`], over the read-write volume of that number, which must
    /// equal the start of an increment; a full stream fits any. Until [`Partition::finish_over`]
    /// the volume shows its former state and takes no changes.
    ///
    /// # Errors
    /// `NoVolume`; `NoStream` if the stream is of another volume, or does not start from the
    /// current state; `Busy` while bodies are lent, the volume is moved, another stream comes in,
    /// or one is swept; `NoSpace`, `Medium`.
    pub fn begin_over(&self, tree: VolumeId, head: &StreamHead) -> Result<StreamCursor> {
        self.0.media.room_for_records()?;
        if let Some(incoming) = self.incoming(tree)? {
            let state = incoming.state.lock();
            if !state.over {
                let same = state.under.is_some() && is_same_stream(&state.stable.head, head);
                return if same {
                    Ok(state.cursor)
                } else {
                    Err(StoreError::Busy("another stream comes in already"))
                };
            }
        }
        let volume = self
            .volume(tree)?
            .filter(|volume| volume.is_writable())
            .ok_or(StoreError::NoVolume(tree))?;
        settle_tree(&volume.tree_state, &|no| volume.resum(no))?;
        let no_writers = volume.tree_state.writers.write();
        settle_tree(&volume.tree_state, &|no| volume.resum_quietly(no))?;
        self.freeze(&volume, head)?;
        drop(no_writers);
        self.0.media.sync()?;
        Ok(StreamCursor::START)
    }

    /// Freezes the volume in one batch. The tree has no writers.
    fn freeze(&self, volume: &Volume, head: &StreamHead) -> Result<()> {
        let tree_state = &volume.tree_state;
        let catalog = self.0.catalog.lock();
        volume.is_there()?;
        if self.lent().iter().any(|(tree, _)| *tree == tree_state.id) {
            return Err(StoreError::Busy("programs have its files open for writing"));
        }
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        if stored.frozen || stored.held || stored.arriving {
            return Err(FROZEN);
        }
        if stored.hash_key != head.hash_key && !may_change_key(stored, head) {
            return Err(StoreError::NoStream(
                "it is of another volume, and other volumes show the tree on this partition",
            ));
        }
        if head.encrypted && !volume.is_encrypted() {
            return Err(StoreError::NoStream(
                "its files are encrypted at the source and not on this partition",
            ));
        }
        let under = self.under(volume, stored, head)?;
        let epoch = head.epoch.max(stored.epoch + 1);
        if self.is_still_swept(tree_state.id, epoch)? {
            return Err(StoreError::Busy("the sweep of its removed records is not complete"));
        }
        let next_slot = stored.next_slot.max(head.next_slot);
        let mut new =
            TreeHeader { incoming: true, frozen: true, epoch, next_slot, ..stored.clone() };
        new.show(stored.epoch);
        let info = IncomingInfo {
            tree: tree_state.id,
            head: *head,
            cursor: StreamCursor::START,
            bytes: 0,
            over: true,
        };
        let mut batch = Batch::default();
        put_progress(&info, Some(&under), &mut batch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.skip_slots(&mut header);
        tree_state.follow_header(&header.stored);
        drop((header, catalog));
        Ok(())
    }

    fn under(&self, volume: &Volume, stored: &TreeHeader, head: &StreamHead) -> Result<Under> {
        let orphans = orphans_of(&volume.tree_state)?;
        if head.since != 0 {
            let is_it = |base: &Base| {
                base.epoch == head.since && [VolumeId(0), head.tree].contains(&base.tree)
            };
            let base = stored.base.filter(is_it);
            let base = base.ok_or(StoreError::NoStream(
                "the volume does not equal the start of the increment",
            ))?;
            return Ok(Under { since: stored.epoch, shift: base.shift, orphans });
        }
        let root = volume
            .vnode(VnodeNo::ROOT)?
            .ok_or_else(|| StoreError::Damaged("the root".to_owned()))?;
        let highest = root.status.data_version.max(root.status.status_version);
        Ok(Under { since: 0, shift: (highest / SHIFT + 1).saturating_mul(SHIFT), orphans })
    }

    /// Replaces the read-write volume's state by the complete stream over it, in one batch; stable
    /// when it returns.
    ///
    /// # Errors
    /// `NoVolume` if no stream comes in there over a volume; `NoStream` if it is incomplete;
    /// `Medium`.
    pub fn finish_over(&self, tree: VolumeId, now: Timestamp) -> Result<Arc<Volume>> {
        let incoming = self.incoming(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = incoming.state.lock();
        let Some(under) = state.under.clone().filter(|_| !state.over) else {
            return Err(StoreError::NoVolume(tree));
        };
        if state.cursor != StreamCursor::END {
            return Err(StoreError::NoStream("the stream is incomplete"));
        }
        self.settle_incoming(&incoming, &mut state)?;
        let stream = state.stable.head;
        let tree_state = &incoming.volume.tree_state;
        let no_writers = tree_state.writers.write();
        let catalog = self.0.catalog.lock();
        let mut header = tree_state.header.lock();
        let base = Some(Base { tree: stream.tree, epoch: stream.epoch, shift: under.shift });
        let hash_key = stream.hash_key;
        let mut new =
            TreeHeader { frozen: false, updated: now, base, hash_key, ..header.stored.clone() };
        let mut batch = Batch::default();
        self.thaw(tree_state, &mut new, &mut batch);
        end_progress(tree_state, &mut new, stream.usage, &mut batch);
        let shown = tree_state.shown();
        tree_state.change(&mut header, new, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        tree_state.set_used(stream.usage);
        self.note_hidden(tree_state.id, Arc::downgrade(&shown));
        drop((catalog, no_writers, shown));
        state.over = true;
        self.0.incomings.lock().remove(&tree);
        self.0.media.wake_packer();
        self.0.media.sync()?;
        self.volume(tree)?.ok_or(StoreError::NoVolume(tree))
    }

    /// Removes the volume's sealed epoch, which no other volume ever showed, from the header.
    pub(crate) fn thaw(&self, tree_state: &TreeState, new: &mut TreeHeader, batch: &mut Batch) {
        let frozen = new.floor();
        if new.hide(frozen) {
            self.put_hidden(tree_state.id, frozen, batch);
        }
    }

    /// Adds to the batch that the stream over the volume is taken back; the volume stays frozen
    /// until its records are swept.
    pub(crate) fn take_back(
        &self,
        tree_state: &TreeState,
        under: &Under,
        new: &TreeHeader,
        batch: &mut Batch,
    ) {
        let orphans = key::of_volume(kind::ORPHAN, tree_state.id);
        batch.delete_range(&orphans, &prefix_end(&orphans));
        for no in &under.orphans {
            let key = key::of_vnode(kind::ORPHAN, tree_state.id, *no);
            batch.put(&key, &record::encode_numbers(&key, &[]));
        }
        self.put_hidden(tree_state.id, new.epoch, batch);
    }

    /// After the sweep: the volume continues where it was.
    pub(crate) fn unfreeze(&self, tree_state: &TreeState, batch: Batch) -> Result<()> {
        let no_writers = tree_state.writers.write();
        let mut header = tree_state.header.lock();
        let mut new =
            TreeHeader { frozen: false, epoch: header.stored.floor(), ..header.stored.clone() };
        new.hide(new.epoch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.follow_header(&header.stored);
        drop((header, no_writers));
        Ok(())
    }

    /// The epoch of which the tree's read-write volume is a copy, if no client changed it since.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn base_epoch(&self, tree: VolumeId) -> Result<Option<u64>> {
        let base = |tree_state: Arc<TreeState>| {
            tree_state.header.lock().stored.base.map(|base| base.epoch)
        };
        Ok(self.tree_of(tree)?.and_then(base))
    }
}

/// Whether the tree has only its read-write volume, so that a stream may bring another hash key.
fn may_change_key(stored: &TreeHeader, head: &StreamHead) -> bool {
    head.since == 0 && stored.sealed.is_empty() && stored.origin.is_none()
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
