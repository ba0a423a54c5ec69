//! The beginning and the end of a feed.

use std::sync::Arc;

use types::{FeedPlace, VolumeId};

use crate::StoreError;
use crate::error::Result;
use crate::tree::feed::Feed;
use crate::volume::Volume;
use crate::volume::clone::NewClone;
use crate::volume::set::VolumeSet;

impl VolumeSet {
    /// Seals what the read-write volume shows, as a base, and logs each change from then on; the
    /// place is that of the first one. The header says from now on that the volume has standbys.
    ///
    /// # Errors
    /// As [`VolumeSet::clone_volume`]; `Busy` while the volume is being restored.
    pub fn begin_feed(&self, _of: VolumeId, _base: &NewClone) -> Result<(Arc<Volume>, FeedPlace)> {
        Err(StoreError::Misuse("not built"))
    }

    /// The volume has no standbys any more: nothing is logged.
    ///
    /// # Errors
    /// `NoVolume`, `Medium`.
    pub fn end_feed(&self, _of: VolumeId) -> Result<()> {
        Err(StoreError::Misuse("not built"))
    }
}

impl Volume {
    /// The log of its changes, while there is one.
    pub fn feed(&self) -> Option<Arc<Feed>> {
        None
    }

    /// Whether the header says that the volume has standbys, which stays so over restarts.
    pub fn has_standbys(&self) -> bool {
        false
    }
}
