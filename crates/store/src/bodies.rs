//! What is known of bodies beyond their records: the gate between readers and a writer, the open
//! file, the unstable mark.
//!
//! A body's bytes and its records (sums, size) change one after the other. Whoever changes a body
//! therefore holds its gate from the first byte until the records are committed, and readers wait
//! at the gate: they see both before or both after. Gates are made when needed and forgotten when
//! they hold nothing that must be remembered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
use types::{VnodeNo, VolumeId};

use crate::StoreError;
use crate::disk::{BodyFile, BodyName, Disk, Stamp, open_body};

/// Which body.
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
    /// Kernels write into the file without our knowledge (`body_loans.rs`).
    pub(crate) lent: bool,
    /// Of a lent body: kernels may have it mapped for writing. Stores into a page that is dirty
    /// already leave no trace in the times.
    pub(crate) mapped: bool,
    /// Of a lent body: the state of the file that the records were last brought up to.
    pub(crate) settled: Option<Stamp>,
    /// Nothing lies behind the end of the file below.
    pub(crate) trimmed: bool,
    /// The inline body that the file grew out of is still in its record.
    pub(crate) backup: bool,
    /// The file's directory entry is not known to be on disk.
    pub(crate) unsynced_name: bool,
    /// Counts writes, so that a sync can tell whether it covered all.
    pub(crate) writes: u64,
}

/// A mark in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) name: BodyName,
    /// Number of its batch.
    pub(crate) batch: u64,
    /// The body's size when it was marked: blocks below are the ones that a crash must not spoil
    /// unmarked.
    pub(crate) size: u64,
}

impl BodyState {
    /// The open file, opened if need be; `None` if it is not there.
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

    /// Remembers a file that was just made.
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

    /// Whether the gate knows what is nowhere else.
    pub(crate) fn must_stay(&self) -> bool {
        self.mark.is_some() || self.suspect || self.lent || self.unsynced_name
    }
}

/// Gates are kept in this many maps, each with its own lock.
const SHARDS: usize = 64;

pub(crate) struct Bodies {
    shards: Vec<Mutex<Shard>>,
    /// Gates of a shard that start a clearing.
    shard_max: usize,
    /// Those that are lent.
    pub(crate) lent: Mutex<BTreeSet<BodyId>>,
}

#[derive(Default)]
struct Shard {
    gates: HashMap<BodyId, Arc<RwLock<BodyState>>>,
    /// Number of gates that starts the next clearing.
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

    /// Nothing of the tree's bodies is worth knowing any more. Nobody writes them.
    pub(crate) fn forget(&self, tree: VolumeId) {
        for shard in &self.shards {
            shard.lock().gates.retain(|id, _| id.0 != tree);
        }
        self.lent.lock().retain(|id| id.0 != tree);
    }

    /// The bodies (of one tree, or all) that [`BodyState::must_stay`] holds for, in order, so that
    /// a simulation repeats. Waits for writers at work.
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
    /// Forgets gates that nobody uses and closes the files of the others that nobody uses.
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
