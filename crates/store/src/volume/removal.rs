//! Removal of volumes.
//!
//! The removal itself is one batch: the volume's header and name go, and a record lists what to
//! sweep (`sweeper.rs`). From then on the number finds no volume.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::VolumeId;

use super::Volume;
use super::set::VolumeSet;
use super::sweeper::{hide_restored, put_removal};
use crate::StoreError;
use crate::body::pack::note_epoch;
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader};
use crate::format::key;
use crate::media::engine::Batch;

impl VolumeSet {
    /// Removes the volume; stable when it returns. Its number finds no volume from then on, and its
    /// room is given back in the background.
    ///
    /// # Errors
    /// `NoVolume`, `Medium`; `Busy` while a stream comes in over it.
    pub(crate) fn remove(&self, id: VolumeId) -> Result<()> {
        let volume = self.existing(id)?;
        let tree_state = &volume.tree_state;
        let no_writers = tree_state.writers.write();
        let catalog = self.trees().catalog();
        volume.is_there()?;
        let mut header = tree_state.header.lock();
        if volume.is_writable() && header.stored.head.comes_in() {
            return Err(StoreError::Busy("a stream over it has just begun"));
        }
        let mut tree = header.stored.clone();
        let mut batch = Batch::default();
        self.hide(&volume, &mut tree, false, &mut batch);
        self.sweeper().shrink(tree_state, &mut header, tree, batch)?;
        drop(header);
        if volume.is_writable() {
            tree_state.stop_feed();
        }
        self.note_removed(&volume);
        drop((catalog, no_writers));
        self.trees().media.sync()
    }

    /// Adds the removal of the volume, and the change of its tree's header, to `batch`; the header
    /// stays for now. `stays`: a volume with this number and name shows another epoch from then on.
    pub(super) fn hide(
        &self,
        volume: &Volume,
        tree: &mut TreeHeader,
        stays: bool,
        batch: &mut Batch,
    ) {
        let (id, tree_id) = (volume.id(), volume.tree_id());
        match volume.view_header() {
            Some(view) => {
                let view = view.lock();
                batch.delete(&key::view(id));
                batch.delete(&key::name(view.name.as_bytes()));
                if tree.hide(view.epoch) {
                    put_removal(id, stays, tree_id, view.epoch, batch);
                }
            }
            None => {
                batch.delete(&key::name(tree.name.as_bytes()));
                if tree.head.is_being_restored() {
                    hide_restored(tree_id, tree, batch);
                }
                tree.become_head(HeadState::Unowned, "volume removed");
                tree.arriving = false;
                tree.has_standbys = false;
                tree.base = None;
                // Snapshots of the volume have no writer from now on.
                let mut base = 0;
                for sealed in &tree.sealed {
                    note_epoch(&self.trees().media, tree_id, base, sealed.epoch, batch);
                    base = sealed.epoch;
                }
                put_removal(id, stays, tree_id, tree.epoch, batch);
            }
        }
    }

    /// The batch of [`VolumeSet::hide`] is applied. The caller holds the catalog lock.
    pub(super) fn note_removed(&self, volume: &Arc<Volume>) {
        volume.gone.store(true, Ordering::SeqCst);
        let media = &self.trees().media;
        media.wake_packer();
        if volume.is_writable() {
            media.gates.forget(volume.tree_id());
        }
        self.forget(volume.id());
        self.sweeper().wait_for_volume(volume);
    }
}
