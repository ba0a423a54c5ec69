//! State that all volumes of one mount share: the disk cache, threads, and limits of memory.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::DiskCache;
use crate::base::{Pot, Scheduler, VenusConfig, WorkerThreads};

#[derive(Default)]
pub(crate) struct MountShared {
    /// Opened with the first volume whose server is on another machine.
    disk: OnceLock<DiskCache>,
    opening: Mutex<()>,
    pub scheduler: Arc<Scheduler>,
    pub threads: WorkerThreads,
    pub unsent: Arc<Pot>,
    pub unstable: Arc<Pot>,
    pub ahead: Arc<Pot>,
    pub filling: Arc<Pot>,
    pub siblings: Arc<Pot>,
    pub nodes: Arc<Pot>,
    pub names: Arc<Pot>,
}

impl MountShared {
    pub fn disk(&self) -> Option<&DiskCache> {
        self.disk.get()
    }

    /// Opens the disk cache, if the configuration has one and it is not open.
    ///
    /// # Errors
    /// If its directory cannot be used.
    pub fn open_disk(&self, config: &VenusConfig) -> std::io::Result<()> {
        let _turn = self.opening.lock();
        if let (Some(dir), None) = (&config.cache_dir, self.disk.get()) {
            let opened = DiskCache::open(dir, config.cache_bytes_max)?;
            // No other thread has this value yet.
            let _ = self.disk.set(opened);
        }
        Ok(())
    }
}
