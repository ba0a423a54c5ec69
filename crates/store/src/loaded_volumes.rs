//! Volumes in memory: each at most once while anybody has it, and a bounded number of those that
//! were asked for lately.
//!
//! A volume is loaded when it is asked for and not there, under the lock of the [`Residents`]: so
//! there is one of it, and one trunk of its tree, whoever asks. Those that were loaded are kept in
//! a ring; the oldest leaves it, unless it was asked for again since it came in. What nobody has
//! any more is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use types::VolumeId;

use crate::Volume;
use crate::tree_state::TreeState;

/// Volumes that stay though nobody has them: some hundred bytes each.
const RECENT_MAX: usize = 1024;
/// Entries of things that are gone are cleared away when there are so many more than at the last
/// clearing.
const CLEAR_AFTER: usize = 4 * RECENT_MAX;

#[derive(Default)]
pub(crate) struct Residents {
    volumes: HashMap<VolumeId, Weak<Volume>>,
    trunks: HashMap<VolumeId, Weak<TreeState>>,
    recent: VecDeque<Arc<Volume>>,
    clear_at: usize,
}

impl Residents {
    pub(crate) fn volume(&self, id: VolumeId) -> Option<Arc<Volume>> {
        let volume = self.volumes.get(&id)?.upgrade()?;
        volume.asked_for.store(true, Ordering::Relaxed);
        Some(volume)
    }

    pub(crate) fn trunk(&self, tree: VolumeId) -> Option<Arc<TreeState>> {
        self.trunks.get(&tree)?.upgrade()
    }

    /// The volume was just loaded or made.
    pub(crate) fn add(&mut self, volume: &Arc<Volume>) {
        self.add_trunk(&volume.trunk);
        self.volumes.insert(volume.id(), Arc::downgrade(volume));
        self.recent.push_back(Arc::clone(volume));
        self.drop_old();
        self.clear();
    }

    /// The tree was just loaded or made.
    pub(crate) fn add_trunk(&mut self, trunk: &Arc<TreeState>) {
        self.trunks.insert(trunk.id, Arc::downgrade(trunk));
    }

    /// The volume is no more.
    pub(crate) fn remove(&mut self, id: VolumeId) {
        self.recent.retain(|volume| volume.id() != id);
        self.volumes.remove(&id);
    }

    /// Nothing of the tree is shown any more.
    pub(crate) fn remove_trunk(&mut self, tree: VolumeId) {
        self.trunks.remove(&tree);
    }

    fn drop_old(&mut self) {
        // Each may get one more round, so the second one ends it.
        for _ in 0..=2 * self.recent.len() {
            if self.recent.len() <= RECENT_MAX {
                break;
            }
            let oldest = self.recent.pop_front().expect("there are too many");
            if oldest.asked_for.swap(false, Ordering::Relaxed) {
                self.recent.push_back(oldest);
            }
        }
    }

    fn clear(&mut self) {
        if self.volumes.len() >= self.clear_at.max(CLEAR_AFTER) {
            self.volumes.retain(|_, volume| volume.strong_count() > 0);
            self.trunks.retain(|_, trunk| trunk.strong_count() > 0);
            self.clear_at = self.volumes.len() + CLEAR_AFTER;
        }
    }
}
