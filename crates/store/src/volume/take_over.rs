//! A tree that has sealed epochs alone gets a head again.
//!
//! Model. One batch makes the read-write volume, which begins as the newest sealed epoch, under the
//! tree's number and the given name. It is *arriving*: it serves no client before the cell's
//! database names this place. No record and no body is copied, and the volumes of sealed epochs
//! stay. It has no quota. There are two reasons:
//!
//! - The former read-write volume was lost with its server, and the copy *takes over*, in a new
//!   generation of epochs (`tree/generation.rs`). The quota was the lost volume's alone.
//! - The copy is *refilled*: its next state comes from a server that does not count epochs, vnode
//!   by vnode. The volume is offline meanwhile, is sealed then, and goes.
//!
//! Files that had no name in that epoch are orphans of the new volume as after a move.

use std::sync::Arc;

use types::{Name, Timestamp, VolumeId};

use super::Volume;
use super::set::VolumeSet;
use crate::StoreError;
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader, VolumeQuota};
use crate::media::engine::Batch;
use crate::tree::generation::{self, LOST_SLOTS};

/// Why a tree gets a head again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewHead {
    /// The former read-write volume is lost. `above`: an epoch that the tree had elsewhere; 0: none
    /// is known.
    TakesOver {
        /// That epoch.
        above: u64,
    },
    /// The next state comes in; the volume is offline.
    IsRefilled,
}

impl NewHead {
    /// The header with the numbers from which the head goes on.
    fn begin(self, stored: &TreeHeader) -> TreeHeader {
        match self {
            NewHead::TakesOver { above } => TreeHeader {
                offline: false,
                next_slot: stored.next_slot + LOST_SLOTS,
                epoch: generation::next(stored.epoch.max(above)),
                ..stored.clone()
            },
            NewHead::IsRefilled => TreeHeader {
                offline: true,
                epoch: generation::own_epoch(stored.epoch),
                ..stored.clone()
            },
        }
    }
}

impl VolumeSet {
    /// Makes the read-write volume of the tree from what `copy` shows, the newest sealed epoch of
    /// the tree; arriving, and stable when it returns.
    ///
    /// # Errors
    /// `NoVolume` if there is no such copy; `Taken` if the tree has a read-write volume, or another
    /// volume has the name; `Misuse` if the tree has a newer epoch; `Busy` while a stream comes in,
    /// or removed records are swept; `NoSpace`, `Medium`.
    pub fn regain_head(
        &self,
        copy: VolumeId,
        name: &Name,
        why: NewHead,
        now: Timestamp,
    ) -> Result<Arc<Volume>> {
        let media = &self.trees().media;
        media.room_for_records(None)?;
        let copy = self.existing(copy)?;
        let tree_state = &copy.tree_state;
        let Some(view) = copy.view_header() else { return Err(StoreError::Taken("number")) };
        let no_writers = tree_state.writers.write();
        let catalog = self.trees().catalog();
        copy.is_there()?;
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        match stored.head {
            HeadState::Unowned => {}
            HeadState::Following => {
                return Err(StoreError::Busy("the partition stands by for the volume"));
            }
            HeadState::Incoming => {
                return Err(StoreError::Busy("a stream comes in; finish or abandon it first"));
            }
            _ => return Err(StoreError::Taken("number")),
        }
        if view.lock().epoch != stored.floor() {
            return Err(StoreError::Misuse("another volume shows a newer epoch of the tree"));
        }
        if self.sweeper().is_still_swept(tree_state.id, stored.epoch)? {
            return Err(StoreError::Busy("the sweep of its removed records is not complete"));
        }
        let mut new = TreeHeader {
            name: name.clone(),
            created: view.lock().created,
            updated: now,
            quota: VolumeQuota::default(),
            arriving: true,
            has_standbys: false,
            base: None,
            ..why.begin(stored)
        };
        new.become_head(HeadState::Serving, "head regained");
        let usage = view.lock().usage;
        let mut batch = Batch::default();
        catalog.take_name(name, tree_state.id, &mut batch)?;
        tree_state.put_arrival(usage, &mut batch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.skip_slots(&mut header);
        tree_state.follow_header(&header.stored);
        tree_state.set_used(usage);
        drop((header, catalog, no_writers));
        media.sync()?;
        self.existing(tree_state.id)
    }
}
