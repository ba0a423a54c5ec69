//! A copy of a volume becomes the read-write volume, because the former one was lost with its
//! server.
//!
//! Model. One batch gives the tree a head again, in a new generation of epochs
//! (`tree/generation.rs`): the read-write volume begins as the newest sealed epoch, under the
//! tree's number and the given name. It is *arriving*: it serves no client before the cell's
//! database names this place. No record and no body is copied, and the volumes of sealed epochs
//! stay. The quota was the lost volume's alone; the new one has none.
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

impl VolumeSet {
    /// Makes the read-write volume of the tree from what `copy` shows, the newest sealed epoch of
    /// the tree; arriving, and stable when it returns. `above`: an epoch that the tree had
    /// elsewhere.
    ///
    /// # Errors
    /// `NoVolume` if there is no such copy; `Taken` if the tree has a read-write volume, or another
    /// volume has the name; `Misuse` if the tree has a newer epoch; `Busy` while a stream comes in,
    /// or removed records are swept; `NoSpace`, `Medium`.
    pub fn take_over(
        &self,
        copy: VolumeId,
        name: &Name,
        above: u64,
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
            offline: false,
            arriving: true,
            has_standbys: false,
            next_slot: stored.next_slot + LOST_SLOTS,
            epoch: generation::next(stored.epoch.max(above)),
            base: None,
            ..stored.clone()
        };
        new.become_head(HeadState::Serving, "volume taken over");
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
