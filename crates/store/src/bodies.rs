//! The state of bodies beyond their records: the gate between readers and a writer, the open file,
//! the unstable mark.
//!
//! A body's bytes and its records (sums, size) change one after the other. A writer therefore holds
//! the body's gate from the first byte until the records are committed, and readers wait at the
//! gate: they see both before or both after. Gates are created on demand and dropped when they hold
//! no state that must stay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use types::{VnodeNo, VolumeId};

use crate::StoreError;
use crate::disk::{BodyFile, BodyName, Disk, Stamp, open_body};

/// The key of a body: tree and vnode.
pub(crate) type BodyId = (VolumeId, VnodeNo);
pub(crate) type ReadGate = ArcRwLockReadGuard<RawRwLock, BodyState>;
pub(crate) type WriteGate = ArcRwLockWriteGuard<RawRwLock, BodyState>;

/// The state of one body.
#[derive(Default)]
pub(crate) struct BodyState {
    file: Mutex<Option<(BodyName, Arc<dyn BodyFile>)>>,
    /// The mark in the log that the file has unstable writes.
    pub(crate) mark: Option<Mark>,
    /// Blocks may disagree with their sums: after a crash, or after an update that wrote but did
    /// not commit.
    pub(crate) suspect: bool,
    /// Kernels write into the file without notice to the store (`body_loans.rs`).
    pub(crate) lent: bool,
    /// Of a lent body: kernels may have it mapped for writing. Stores into a page that is dirty
    /// already do not change the times.
    pub(crate) mapped: bool,
    /// Of a lent body: the state of the file from which the records were last updated.
    pub(crate) settled: Option<Stamp>,
    /// The file below has no bytes behind the end.
    pub(crate) trimmed: bool,
    /// The record of the inline body that the file replaced still exists.
    pub(crate) backup: bool,
    /// The file's directory entry may not be on disk.
    pub(crate) unsynced_name: bool,
    /// Counts writes, so that a sync can check whether it covered all.
    pub(crate) writes: u64,
}

/// A mark in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) name: BodyName,
    /// The number of its batch.
    pub(crate) batch: u64,
    /// The body's size when it was marked: a crash must not damage blocks below it unmarked.
    pub(crate) size: u64,
}

impl BodyState {
    /// The open file, opened if necessary; `None` if it does not exist.
    pub(crate) fn file(
        &self,
        disk: &dyn Disk,
        name: BodyName,
    ) -> Result<Option<Arc<dyn BodyFile>>, StoreError> {
        let mut cached = self.file.lock();
        if let Some((of, file)) = &*cached
            && *of == name
        {
            return Ok(Some(file.clone()));
        }
        let file = open_body(disk, name).map_err(|e| StoreError::from_io("open of a body", &e))?;
        *cached = file.clone().map(|file| (name, file));
        Ok(file)
    }

    /// Stores the handle of a new file.
    pub(crate) fn set_file(&mut self, name: BodyName, file: Arc<dyn BodyFile>) {
        *self.file.get_mut() = Some((name, file));
    }

    pub(crate) fn close(&mut self) {
        *self.file.get_mut() = None;
    }

    /// Whether blocks may disagree with their sums.
    pub(crate) fn doubtful(&self) -> bool {
        self.suspect || self.lent
    }

    /// Whether the gate holds state that exists nowhere else.
    pub(crate) fn must_stay(&self) -> bool {
        self.mark.is_some() || self.suspect || self.lent || self.unsynced_name
    }
}

/// The number of maps of gates, each with its own lock.
const SHARDS: usize = 64;

pub(crate) struct Bodies {
    shards: Vec<Mutex<Shard>>,
    /// The number of gates in a shard that starts a clearing.
    shard_max: usize,
    /// The lent bodies.
    pub(crate) lent: Mutex<BTreeSet<BodyId>>,
}

#[derive(Default)]
struct Shard {
    gates: HashMap<BodyId, Arc<RwLock<BodyState>>>,
    /// The number of gates that starts the next clearing.
    clear_at: usize,
}

impl Bodies {
    pub(crate) fn new(open_max: usize) -> Bodies {
        let shard_max = (open_max / SHARDS).max(2);
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(Shard { clear_at: shard_max, ..Shard::default() }))
            .collect();
        Bodies { shards, shard_max, lent: Mutex::default() }
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
        shard.gates.entry(id).or_default().clone()
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
