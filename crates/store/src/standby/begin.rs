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

/// The feeds of the read-write volumes of a partition.
pub struct TreeFeeds {
    volumes: Arc<VolumeSet>,
}

impl TreeFeeds {
    pub(crate) fn new(volumes: Arc<VolumeSet>) -> TreeFeeds {
        TreeFeeds { volumes }
    }

    /// Seals what the read-write volume shows, as a base, and logs each change from then on; the
    /// place is that of the first one. The header says from now on that the volume has standbys.
    ///
    /// # Errors
    /// As [`VolumeSet::clone_volume`]; `OldFormat`; `Busy` while the volume is being restored or
    /// moved.
    pub fn begin(&self, of: VolumeId, base: &NewClone) -> Result<(Arc<Volume>, FeedPlace)> {
        self.volumes.trees().media.need_format_of_standbys()?;
        let place = std::cell::Cell::new(FeedPlace::default());
        let base = self.volumes.sealing(of, &|of, seal_copies| {
            let tree_state = &of.tree_state;
            if !of.is_writable() || tree_state.head_state() != HeadState::Serving {
                return Err(StoreError::Busy("the volume is being moved or restored"));
            }
            let mut header = tree_state.header.lock();
            let new = with_standbys(&header.stored, true);
            let quota = new.quota;
            tree_state.change(&mut header, new, Batch::default())?;
            drop(header);
            let base = self.volumes.seal(of, base, seal_copies, None)?;
            let feed = tree_state.begin_feed(self.volumes.trees().media.random());
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
    pub fn end(&self, of: VolumeId) -> Result<()> {
        let of = self.volumes.existing(of)?;
        let tree_state = &of.tree_state;
        tree_state.stop_feed();
        let mut header = tree_state.header.lock();
        if header.stored.has_standbys {
            let new = with_standbys(&header.stored, false);
            tree_state.change(&mut header, new, Batch::default())?;
        }
        drop(header);
        self.volumes.trees().media.sync()
    }
}

impl Feed {
    /// The log of a volume's changes, while there is one.
    pub fn of(volume: &Volume) -> Option<Arc<Feed>> {
        if volume.is_writable() { volume.tree_state.feed() } else { None }
    }
}
