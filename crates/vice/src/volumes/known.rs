//! The volumes that calls use: each has one [`ViceVolume`] as long as anybody uses it, since its locks must be the same for all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use types::VolumeId;

use super::ViceVolume;

/// Volumes that are kept although nobody uses them now: a server has many more than are in use.
const IDLE_MAX: usize = 4096;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Known(RwLock<HashMap<VolumeId, Arc<ViceVolume>>>);

impl Known {
    pub fn get(&self, id: VolumeId) -> Option<Arc<ViceVolume>> {
        self.0.read().get(&id).map(Arc::clone)
    }

    /// The one that is known by now, or this one from now on.
    pub fn insert(&self, id: VolumeId, volume: ViceVolume) -> Arc<ViceVolume> {
        let mut known = self.0.write();
        if known.len() >= IDLE_MAX {
            // Whoever has one took it from here, and nobody can while the table is locked.
            known.retain(|_, volume| Arc::strong_count(volume) > 1);
        }
        Arc::clone(known.entry(id).or_insert_with(|| Arc::new(volume)))
    }

    /// The volume is gone.
    pub fn forget(&self, id: VolumeId) {
        self.0.write().remove(&id);
    }
}
