//! A dump that comes in over a read-write volume: its next state (an increment), or another state
//! (a full dump).
//!
//! Model. The volume is *being restored* first, in one batch: its head is sealed, the volume shows
//! that epoch from then on and counts as one that does, takes no changes, and the dump is put
//! together where its head was. Readers see the former state. *Finishing* is one batch too: the
//! volume shows the new head, and records that only the old one used are swept like those of a
//! removed snapshot. *Taking it back* is one batch and a sweep: the dump's records go, then the
//! volume continues in the epoch that was sealed, unchanged. After a crash the volume is being
//! restored, with a partial dump, or in one of the two final states.
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

use std::sync::Arc;

use types::{StreamCursor, Timestamp, VnodeNo, VolumeId};

use super::codec::StreamHead;
use super::incoming::{IncomingStreams, is_same_stream};
use super::progress::{IncomingInfo, Under, put_progress};
use crate::StoreError;
use crate::body::sync::{settle_tree, settle_tree_quietly};
use crate::error::Result;
use crate::format::header::{Base, HeadState, TreeHeader};
use crate::media::engine::Batch;
use crate::tree::state::orphans_of;
use crate::volume::sweeper::hide_restored;
use crate::volume::{BEING_RESTORED, Volume};

/// The distance between two shifts; versions of a volume differ by less.
const SHIFT: u64 = 1 << 40;

impl IncomingStreams {
    /// As [`IncomingStreams::begin_incoming`], over the read-write volume of that number, which
    /// must equal the start of an increment; a full stream fits any. Until
    /// [`IncomingStreams::finish_over`] the volume shows its former state and takes no changes.
    ///
    /// # Errors
    /// `NoVolume`; `NoStream` if the stream is of another volume, or does not start from the
    /// current state; `Busy` while bodies are lent, the volume is moved, another stream comes in,
    /// or one is swept; `NoSpace`, `Medium`.
    pub fn begin_over(&self, tree: VolumeId, head: &StreamHead) -> Result<StreamCursor> {
        self.media().room_for_records(None)?;
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
            .volumes()
            .volume(tree)?
            .filter(|volume| volume.is_writable())
            .ok_or(StoreError::NoVolume(tree))?;
        settle_tree(&volume.tree_state)?;
        let no_writers = volume.tree_state.writers.write();
        settle_tree_quietly(&volume.tree_state)?;
        self.begin_restoring(&volume, head)?;
        drop(no_writers);
        self.media().sync()?;
        Ok(StreamCursor::START)
    }

    /// The volume shows its sealed state from now on, in one batch. The tree has no writers.
    fn begin_restoring(&self, volume: &Volume, head: &StreamHead) -> Result<()> {
        let tree_state = &volume.tree_state;
        let catalog = self.volumes().trees().catalog();
        volume.is_there()?;
        if !self.media().gates.lent(Some(tree_state.id)).is_empty() {
            return Err(StoreError::Busy("programs have its files open for writing"));
        }
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        if stored.head != HeadState::Serving || stored.arriving {
            return Err(BEING_RESTORED);
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
        let under = under(volume, stored, head)?;
        let epoch = head.epoch.max(stored.epoch + 1);
        if self.volumes().sweeper().is_still_swept(tree_state.id, epoch)? {
            return Err(StoreError::Busy("the sweep of its removed records is not complete"));
        }
        // Standbys begin anew with what comes in.
        tree_state.stop_feed();
        let next_slot = stored.next_slot.max(head.next_slot);
        let mut new = TreeHeader { epoch, next_slot, ..stored.clone() };
        new.show(stored.epoch);
        new.become_head(HeadState::Restoring, "stream over the volume begun");
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
        let catalog = self.volumes().trees().catalog();
        let mut header = tree_state.header.lock();
        let base = Some(Base { tree: stream.tree, epoch: stream.epoch, shift: under.shift });
        let hash_key = stream.hash_key;
        let mut new = TreeHeader { updated: now, base, hash_key, ..header.stored.clone() };
        new.become_head(HeadState::Serving, "stream over the volume finished");
        let mut batch = Batch::default();
        hide_restored(tree_state.id, &mut new, &mut batch);
        tree_state.put_arrival(stream.usage, &mut batch);
        let shown = tree_state.shown();
        assert!(shown.epoch < new.epoch, "VO-1: a restored volume shows another epoch from now on");
        tree_state.change(&mut header, new, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        tree_state.set_used(stream.usage);
        self.volumes().sweeper().wait_for_readers(&shown);
        drop((catalog, no_writers, shown));
        state.over = true;
        self.forget(tree);
        self.media().wake_packer();
        self.media().sync()?;
        self.volumes().existing(tree)
    }
}

/// Whether the tree has only its read-write volume, so that a stream may bring another hash key.
fn may_change_key(stored: &TreeHeader, head: &StreamHead) -> bool {
    head.since == 0 && stored.sealed.is_empty() && stored.origin.is_none()
}

/// The facts about the volume that the stream over it needs.
fn under(volume: &Volume, stored: &TreeHeader, head: &StreamHead) -> Result<Under> {
    let orphans = orphans_of(&volume.tree_state)?;
    if head.since != 0 {
        let is_it =
            |base: &Base| base.epoch == head.since && [VolumeId(0), head.tree].contains(&base.tree);
        let base = stored.base.filter(is_it);
        let base = base
            .ok_or(StoreError::NoStream("the volume does not equal the start of the increment"))?;
        return Ok(Under { since: stored.epoch, shift: base.shift, orphans });
    }
    let root =
        volume.vnode(VnodeNo::ROOT)?.ok_or_else(|| StoreError::Damaged("the root".to_owned()))?;
    let highest = root.status.data_version.0.max(root.status.status_version.0);
    Ok(Under { since: 0, shift: (highest / SHIFT + 1).saturating_mul(SHIFT), orphans })
}
