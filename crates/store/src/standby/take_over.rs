//! A standby takes over: what it applied becomes the read-write volume.
//!
//! Model. As with a copy of a released volume (`volume/take_over.rs`) the volume begins in a new
//! generation of epochs: the former server may have shown clients changes that it never
//! acknowledged, and so never came here. The records of what was applied belong to the last epoch
//! of the former generation, and no volume shows that epoch, as after the removal of a snapshot.

use std::sync::Arc;

use types::{Name, Timestamp, VolumeId};

use super::followed::Standbys;
use crate::StoreError;
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader};
use crate::format::key;
use crate::media::engine::Batch;
use crate::tree::generation::{self, LOST_SLOTS};
use crate::volume::Volume;

impl Standbys {
    /// Makes the read-write volume of what was applied, in a new generation of epochs, *arriving*;
    /// the partition no longer stands by. All of it is on disk when it returns.
    ///
    /// # Errors
    /// `NoVolume` if it does not follow; `Taken` if another volume has the name; `Medium`.
    pub fn take_over(&self, tree: VolumeId, name: &Name, now: Timestamp) -> Result<Arc<Volume>> {
        let followed = self.following(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = followed.state.lock();
        if state.stored.base == 0 {
            return Err(StoreError::NoVolume(tree));
        }
        let tree_state = &followed.volume.tree_state;
        self.settle(tree_state, &mut state)?;
        let no_writers = tree_state.writers.write();
        let catalog = self.volumes.trees().catalog();
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        let mut new = TreeHeader {
            name: name.clone(),
            updated: now,
            offline: false,
            arriving: true,
            has_standbys: false,
            next_slot: stored.next_slot + LOST_SLOTS,
            epoch: generation::next(stored.epoch),
            base: None,
            ..stored.clone()
        };
        new.become_head(HeadState::Serving, "standby took over");
        let mut batch = Batch::default();
        catalog.take_name(name, tree, &mut batch)?;
        batch.delete(&key::standby(tree));
        tree_state.change(&mut header, new, batch)?;
        tree_state.skip_slots(&mut header);
        tree_state.follow_header(&header.stored);
        state.stored.base = 0;
        drop((header, catalog, no_writers, state));
        self.forget(tree);
        self.media().wake_packer();
        self.media().sync()?;
        self.volumes.existing(tree)
    }
}
