//! A machine in memory that can lose its power: an engine's log and a disk of body files with one
//! state.
//!
//! A power loss may take unsynced data: any tail of the log; of each body file any choice among the
//! versions that each 4 KiB block and the length had since the last sync; of names the last
//! creations and removals. Death of the process alone loses nothing: open a partition on the same
//! machine again.

mod disk;
mod engine;

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::disk::UNLIMITED_BYTES;
pub(crate) use self::disk::{MemDisk, MemFiles};
pub(crate) use self::engine::{MemEngine, MemLog};
use crate::StoreError;

pub(crate) type Shared = Arc<Mutex<MemMachineState>>;

/// A machine whose disk is memory, for tests and simulation.
#[derive(Clone)]
pub struct MemMachine(pub(crate) Shared);

/// The state of the machine.
#[derive(Clone)]
pub(crate) struct MemMachineState {
    pub(crate) log: MemLog,
    pub(crate) files: MemFiles,
    /// The number of power losses.
    boot: u64,
    /// A sync failed in this boot.
    pub(crate) sync_failed: bool,
    fail_syncs: bool,
    /// The boot id cannot be read, or, with `Some(None)`, is empty.
    boot_unknown: Option<Option<io::ErrorKind>>,
    /// The capacity of the disk in bytes.
    pub(crate) capacity_bytes: u64,
    /// The states just before and after each sync, while they are collected.
    images: Option<Vec<MemMachineState>>,
}

impl Default for MemMachine {
    fn default() -> Self {
        MemMachine::new()
    }
}

impl MemMachine {
    /// A machine with an empty disk of 1 TiB.
    pub fn new() -> MemMachine {
        MemMachine::of(MemMachineState {
            log: MemLog::default(),
            files: MemFiles::default(),
            boot: 1,
            sync_failed: false,
            fail_syncs: false,
            boot_unknown: None,
            capacity_bytes: UNLIMITED_BYTES,
            images: None,
        })
    }

    fn of(machine: MemMachineState) -> MemMachine {
        MemMachine(Arc::new(Mutex::new(machine)))
    }

    /// The machine after a loss of power right now; `seed` selects one of the possible states.
    pub fn power_loss(&self, seed: u64) -> MemMachine {
        MemMachine::of(self.0.lock().clone().power_loss(&mut SmallRng::seed_from_u64(seed)))
    }

    /// The machine as a new process finds it if this one dies right now.
    #[cfg(test)]
    pub(crate) fn killed(&self) -> MemMachine {
        MemMachine::of(self.0.lock().clone())
    }

    /// Begins to collect the machine's states around each sync, for [`MemMachine::images`].
    pub fn keep_images(&self) {
        self.0.lock().images = Some(Vec::new());
    }

    /// The states just before and just after each sync since [`MemMachine::keep_images`].
    pub fn images(&self) -> Vec<MemMachine> {
        let images = self.0.lock().images.take().unwrap_or_default();
        images.into_iter().map(MemMachine::of).collect()
    }

    #[cfg(test)]
    pub(crate) fn set_boot_unknown(&self, how: Option<Option<io::ErrorKind>>) {
        self.0.lock().boot_unknown = how;
    }

    /// Sets whether syncs fail.
    pub fn fail_syncs(&self, fail: bool) {
        self.0.lock().fail_syncs = fail;
    }

    /// Sets the bytes that the disk can hold of bodies.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_bytes = bytes;
    }

    /// The number of batches that power loss may take.
    pub fn unsynced_batches(&self) -> usize {
        self.0.lock().log.unsynced()
    }
}

impl MemMachineState {
    /// Runs a sync, or lets it fail.
    pub(crate) fn sync_point(
        &mut self,
        sync: impl FnOnce(&mut MemMachineState),
    ) -> Result<(), StoreError> {
        if self.fail_syncs {
            return Err(StoreError::Medium("sync failed as configured".to_owned()));
        }
        self.keep_image();
        sync(self);
        self.keep_image();
        Ok(())
    }

    fn keep_image(&mut self) {
        if let Some(mut images) = self.images.take() {
            images.push(self.clone());
            self.images = Some(images);
        }
    }

    fn power_loss(mut self, rng: &mut SmallRng) -> MemMachineState {
        let survivors = rng.random_range(0..=self.log.unsynced());
        self.log = self.log.after_power_loss(survivors);
        self.files = self.files.after_power_loss(rng);
        self.boot += 1;
        self.sync_failed = false;
        self.fail_syncs = false;
        self.images = None;
        self
    }

    pub(crate) fn boot_id(&self) -> io::Result<String> {
        match self.boot_unknown {
            None => Ok(format!("memory boot {}", self.boot)),
            Some(error) => error.map_or_else(|| Ok(String::new()), |kind| Err(kind.into())),
        }
    }
}
