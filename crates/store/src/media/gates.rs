//! The gates of bodies, between readers and a writer.
//!
//! A body's bytes and its records (sums, size) change one after the other. A writer therefore holds
//! the body's gate from the first byte until the records are committed, and readers wait at the
//! gate: they see both before or both after. Gates are created on demand and dropped when they hold
//! no state that must stay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use types::VolumeId;

use super::body_state::{BodyId, BodyState};

pub(crate) type ReadGate = ArcRwLockReadGuard<RawRwLock, BodyState>;
pub(crate) type WriteGate = ArcRwLockWriteGuard<RawRwLock, BodyState>;

/// The number of maps of gates, each with its own lock.
const SHARDS: usize = 64;

/// All gates of a partition.
pub(crate) struct Gates {
    shards: Vec<Mutex<Shard>>,
    /// The number of gates in a shard that starts a clearing.
    shard_max: usize,
    /// The lent bodies.
    lent: Arc<Mutex<BTreeSet<BodyId>>>,
}

#[derive(Default)]
struct Shard {
    gates: HashMap<BodyId, Arc<RwLock<BodyState>>>,
    /// The number of gates that starts the next clearing.
    clear_at: usize,
}

impl Gates {
    pub(crate) fn new(open_max: usize) -> Gates {
        let shard_max = (open_max / SHARDS).max(2);
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(Shard { clear_at: shard_max, ..Shard::default() }))
            .collect();
        Gates { shards, shard_max, lent: Arc::default() }
    }

    /// The gate of a body.
    pub(crate) fn gate(&self, id: BodyId) -> Arc<RwLock<BodyState>> {
        let spread = (id.0.0 ^ (id.1.0 >> 1)) as usize % SHARDS;
        let mut shard = self.shards[spread].lock();
        if let Some(gate) = shard.gates.get(&id) {
            return gate.clone();
        }
        if shard.gates.len() >= shard.clear_at {
            shard.clear();
            shard.clear_at = self.shard_max.max(shard.gates.len() * 2);
        }
        let state = || Arc::new(RwLock::new(BodyState::new(id, Arc::clone(&self.lent))));
        shard.gates.entry(id).or_insert_with(state).clone()
    }

    /// Whether the body is lent; does not wait for its gate, which a writer may hold.
    pub(crate) fn is_lent(&self, id: BodyId) -> bool {
        self.lent.lock().contains(&id)
    }

    /// The lent bodies, of one tree or all.
    pub(crate) fn lent(&self, tree: Option<VolumeId>) -> Vec<BodyId> {
        let lent = self.lent.lock();
        lent.iter().filter(|id| tree.is_none_or(|tree| id.0 == tree)).copied().collect()
    }

    /// Drops all state of the tree's bodies. They must have no writers.
    pub(crate) fn forget(&self, tree: VolumeId) {
        for shard in &self.shards {
            shard.lock().gates.retain(|id, _| id.0 != tree);
        }
        self.lent.lock().retain(|id| id.0 != tree);
    }

    /// The bodies (of one tree, or all) for which [`BodyState::must_stay`] holds, in order, so that
    /// a simulation repeats. Waits for writers.
    pub(crate) fn unsettled(&self, tree: Option<VolumeId>) -> Vec<BodyId> {
        let mut gates: Vec<_> =
            self.shards.iter().flat_map(|shard| shard.lock().snapshot()).collect();
        gates.retain(|(id, _)| tree.is_none_or(|tree| id.0 == tree));
        let mut unsettled: Vec<_> = gates
            .into_iter()
            .filter(|(_, gate)| gate.read().must_stay())
            .map(|(id, _)| id)
            .collect();
        unsettled.sort_unstable();
        unsettled
    }
}

impl Shard {
    /// Drops gates without users and closes the files of the other gates without users.
    fn clear(&mut self) {
        self.gates.retain(|_, gate| {
            let Some(unused) = Arc::get_mut(gate) else { return true };
            let gate = unused.get_mut();
            gate.close();
            gate.must_stay()
        });
    }

    fn snapshot(&self) -> Vec<(BodyId, Arc<RwLock<BodyState>>)> {
        self.gates.iter().map(|(id, gate)| (*id, gate.clone())).collect()
    }
}
