//! The beginning and the end of a feed.

use std::sync::Arc;

use types::{FeedPlace, VolumeId};

use super::followed::with_standbys;
use crate::StoreError;
use crate::error::Result;
use crate::format::header::HeadState;
use crate::media::engine::Batch;
use crate::tree::feed::{Feed, FeedEntry};
use crate::volume::Volume;
use crate::volume::clone::NewClone;
use crate::volume::set::VolumeSet;

impl VolumeSet {
    /// Seals what the read-write volume shows, as a base, and logs each change from then on; the
    /// place is that of the first one. The header says from now on that the volume has standbys.
    ///
    /// # Errors
    /// As [`VolumeSet::clone_volume`]; `Busy` while the volume is being restored or moved.
    pub fn begin_feed(&self, of: VolumeId, base: &NewClone) -> Result<(Arc<Volume>, FeedPlace)> {
        let place = std::cell::Cell::new(FeedPlace::default());
        let base = self.sealing(of, &|of, seal_copies| {
            let tree_state = &of.tree_state;
            if !of.is_writable() || tree_state.head_state() != HeadState::Serving {
                return Err(StoreError::Busy("the volume is being moved or restored"));
            }
            let mut header = tree_state.header.lock();
            let new = with_standbys(&header.stored, true);
            let quota = new.quota;
            tree_state.change(&mut header, new, Batch::default())?;
            drop(header);
            let base = self.seal(of, base, seal_copies, None)?;
            let feed = tree_state.begin_feed(self.trees().media.random());
            self.pin(tree_state);
            place.set(feed.end());
            // The header of the base has no quota.
            feed.add(FeedEntry { quota: Some(quota), ..FeedEntry::default() });
            Ok(base)
        })?;
        Ok((base, place.get()))
    }

    /// The volume has no standbys any more: nothing is logged.
    ///
    /// # Errors
    /// `NoVolume`, `Medium`.
    pub fn end_feed(&self, of: VolumeId) -> Result<()> {
        let of = self.existing(of)?;
        let tree_state = &of.tree_state;
        tree_state.stop_feed();
        self.unpin(tree_state.id);
        let mut header = tree_state.header.lock();
        if header.stored.has_standbys {
            let new = with_standbys(&header.stored, false);
            tree_state.change(&mut header, new, Batch::default())?;
        }
        drop(header);
        self.trees().media.sync()
    }
}

impl Volume {
    /// The log of its changes, while there is one.
    pub fn feed(&self) -> Option<Arc<Feed>> {
        if self.is_writable() { self.tree_state.feed() } else { None }
    }

    /// Whether the header says that the volume has standbys, which stays so over restarts.
    pub fn has_standbys(&self) -> bool {
        self.is_writable() && self.tree_state.header.lock().stored.has_standbys
    }
}
