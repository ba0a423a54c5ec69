//! The volumes that calls use: each has one [`ViceVolume`] as long as any call uses it, since all
//! must share its locks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::VolumeId;

use super::ViceVolume;

/// Volumes that are kept while no call uses them: a server has many more than are in use.
const IDLE_MAX: usize = 4096;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct VolumesInUse {
    volumes: RwLock<HashMap<VolumeId, Arc<ViceVolume>>>,
    forgotten: AtomicU64,
}

impl VolumesInUse {
    pub fn get(&self, id: VolumeId) -> Option<Arc<ViceVolume>> {
        self.volumes.read().get(&id).filter(|volume| !volume.store.is_gone()).map(Arc::clone)
    }

    /// Returns the known volume, or adds this one.
    pub fn insert(&self, id: VolumeId, volume: ViceVolume) -> Arc<ViceVolume> {
        let mut known = self.volumes.write();
        if known.get(&id).is_some_and(|old| old.store.is_gone()) {
            known.remove(&id);
        }
        if known.len() >= IDLE_MAX {
            // New references come only from here, and none can while the table is locked.
            known.retain(|_, volume| Arc::strong_count(volume) > 1);
        }
        Arc::clone(known.entry(id).or_insert_with(|| Arc::new(volume)))
    }

    /// The volume is removed, or another has its number.
    pub fn forget(&self, id: VolumeId) {
        self.volumes.write().remove(&id);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes after a volume was removed here, and before its promises are broken. A call that had
    /// the volume before, and registers a promise after that, would answer with data that no break
    /// covers (CB-2): it detects this change, and reads again.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }
}
