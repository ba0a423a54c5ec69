//! The volumes that calls use: each has one [`ViceVolume`] as long as anybody uses it, since its
//! locks must be the same for all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::VolumeId;

use super::ViceVolume;

/// Volumes that are kept although nobody uses them now: a server has many more than are in use.
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

    /// The one that is known by now, or this one from now on.
    pub fn insert(&self, id: VolumeId, volume: ViceVolume) -> Arc<ViceVolume> {
        let mut known = self.volumes.write();
        if known.get(&id).is_some_and(|old| old.store.is_gone()) {
            known.remove(&id);
        }
        if known.len() >= IDLE_MAX {
            // Whoever has one took it from here, and nobody can while the table is locked.
            known.retain(|_, volume| Arc::strong_count(volume) > 1);
        }
        Arc::clone(known.entry(id).or_insert_with(|| Arc::new(volume)))
    }

    /// The volume is gone, or another has its number.
    pub fn forget(&self, id: VolumeId) {
        self.volumes.write().remove(&id);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    /// Changes after a volume was forgotten, and before its promises are broken. Who had one
    /// before, and registers a promise after that, would answer with what nobody breaks any more
    /// (CB-2): it sees this change, and looks again.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }
}
