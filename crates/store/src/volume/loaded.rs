//! VolumeSet in memory: each at most once while it has users, and a bounded number of recently used
//! ones.
//!
//! A volume is loaded on demand under the lock of the [`Residents`]: so there is one instance of it
//! for all callers. Loaded volumes enter a ring; the oldest leaves
//! it, unless it was used again since it came in. VolumeSet without users are dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use types::VolumeId;

use super::Volume;

/// The number of volumes that stay without users: some hundred bytes each.
const RECENT_MAX: usize = 1024;
/// Dead entries are cleared when there are so many more entries than after the last clearing.
const CLEAR_AFTER: usize = 4 * RECENT_MAX;

#[derive(Default)]
pub(crate) struct Residents {
    volumes: HashMap<VolumeId, Weak<Volume>>,
    recent: VecDeque<Arc<Volume>>,
    clear_at: usize,
}

impl Residents {
    pub(crate) fn volume(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let volume = self.volumes.get(&id)?.upgrade()?;
        volume.recently_used.store(true, Ordering::Relaxed);
        Some(volume)
    }

    /// Adds a volume that was just loaded.
    pub(crate) fn add(&mut self, volume: &Arc<Volume>) {
        self.volumes.insert(volume.id(), Arc::downgrade(volume));
        self.recent.push_back(Arc::clone(volume));
        self.drop_old();
        self.clear();
    }

    /// Forgets a volume that was removed.
    pub(crate) fn remove(&mut self, id: VolumeId) {
        self.recent.retain(|volume| volume.id() != id);
        self.volumes.remove(&id);
    }

    fn drop_old(&mut self) {
        // Each volume may get one more round, so the second round ends the loop.
        for _ in 0..=2 * self.recent.len() {
            if self.recent.len() <= RECENT_MAX {
                break;
            }
            let oldest = self.recent.pop_front().expect("there are too many");
            if oldest.recently_used.swap(false, Ordering::Relaxed) {
                self.recent.push_back(oldest);
            }
        }
    }

    fn clear(&mut self) {
        if self.volumes.len() >= self.clear_at.max(CLEAR_AFTER) {
            self.volumes.retain(|_, volume| volume.strong_count() > 0);
            self.clear_at = self.volumes.len() + CLEAR_AFTER;
        }
    }
}
