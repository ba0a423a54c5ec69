//! What a partition stands on: the engine, the disk of bodies, and the one log that makes changes stable.
//!
//! Model. Every applied batch gets a number; `applied` is the last one, `synced` the last one known to be on disk.
//! A caller of `sync` needs `synced` to reach what `applied` was when it came. If nobody is syncing it becomes the
//! leader: it syncs the log once, for all who have applied by then, and wakes everyone; who came too late for that sync
//! leads the next one (group commit). After a sync or a write of the log failed nothing is known of the disk any more:
//! `failed` is set for good, changes are refused (DU-3), and the boot verifier changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::bodies::Bodies;
use crate::disk::Disk;
use crate::engine::{Batch, Engine};
use crate::{Space, StoreError};

/// Least room that is kept from bodies, so that the engine can write its log and tables.
const RESERVE_BYTES_MIN: u64 = 64 << 20;
/// Room beyond which a larger disk reserves no more.
const RESERVE_BYTES_MAX: u64 = 1 << 30;
/// Commits between looks at the room that is left for records.
const ROOM_CHECK_COMMITS: u64 = 64;

pub(crate) struct Media {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) bodies: Bodies,
    applied: AtomicU64,
    synced: AtomicU64,
    failed: AtomicBool,
    /// Whether a leader is at work.
    leading: Mutex<bool>,
    led: Condvar,
    verifier: AtomicU64,
    commits: AtomicU64,
    no_room: AtomicBool,
    /// There may be garbage records.
    pub(crate) garbage: AtomicBool,
}

impl Media {
    pub(crate) fn new(engine: Box<dyn Engine>, disk: Box<dyn Disk>, open_bodies_max: usize) -> Arc<Media> {
        Arc::new(Media {
            engine,
            disk,
            bodies: Bodies::new(open_bodies_max),
            applied: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            leading: Mutex::new(false),
            led: Condvar::new(),
            verifier: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            no_room: AtomicBool::new(false),
            garbage: AtomicBool::new(true),
        })
    }

    pub(crate) fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::SeqCst)
    }

    pub(crate) fn set_verifier(&self, verifier: u64) {
        self.verifier.store(verifier, Ordering::SeqCst);
    }

    /// Refuses after a failed sync (DU-3).
    pub(crate) fn usable(&self) -> Result<(), StoreError> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(StoreError::Medium("an earlier sync failed; open the partition again".to_owned()));
        }
        Ok(())
    }

    /// Nothing is known of the disk any more.
    pub(crate) fn fail(&self, error: &StoreError) {
        if !self.failed.swap(true, Ordering::SeqCst) {
            tracing::error!(%error, "DU-3: the partition takes no more changes");
            self.disk.note_sync_failed();
            self.verifier.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Applies a batch; the number tells [`Media::is_synced`] when it is stable.
    pub(crate) fn apply(&self, batch: &Batch) -> Result<u64, StoreError> {
        self.usable()?;
        self.engine.apply(batch).inspect_err(|error| self.fail(error))?;
        Ok(self.applied.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(crate) fn is_synced(&self, number: u64) -> bool {
        self.synced.load(Ordering::SeqCst) >= number
    }

    /// Every batch applied before the call is on disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let wanted = self.applied.load(Ordering::SeqCst);
        let mut leading = self.leading.lock();
        loop {
            self.usable()?;
            if self.is_synced(wanted) {
                return Ok(());
            }
            if !*leading {
                break;
            }
            self.led.wait(&mut leading);
        }
        *leading = true;
        drop(leading);
        let covered = self.applied.load(Ordering::SeqCst);
        let result = self.engine.sync();
        match &result {
            Ok(()) => drop(self.synced.fetch_max(covered, Ordering::SeqCst)),
            Err(error) => self.fail(error),
        }
        *self.leading.lock() = false;
        self.led.notify_all();
        result
    }

    /// A sync of bodies, with the same consequences if it fails.
    pub(crate) fn sync_disk(&self, sync: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.usable()?;
        sync().inspect_err(|error| self.fail(error))
    }

    /// Room, without what is reserved for records.
    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        let space = self.disk.space().map_err(|e| StoreError::from_io("statvfs", &e))?;
        let free_bytes = space.free_bytes.saturating_sub(reserve_bytes(space.total_bytes));
        Ok(Space { free_bytes, ..space })
    }

    /// Whether bodies may grow by `bytes`.
    pub(crate) fn room_for(&self, bytes: u64) -> Result<(), StoreError> {
        if self.space()?.free_bytes < bytes { Err(StoreError::NoSpace) } else { Ok(()) }
    }

    /// Whether records may grow: removals still find room when this refuses. Looks at the disk now and then.
    pub(crate) fn room_for_records(&self) -> Result<(), StoreError> {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        if commits.is_multiple_of(ROOM_CHECK_COMMITS) || self.no_room.load(Ordering::Relaxed) {
            let space = self.disk.space().map_err(|e| StoreError::from_io("statvfs", &e))?;
            let full = space.free_bytes < reserve_bytes(space.total_bytes) / 2;
            self.no_room.store(full, Ordering::Relaxed);
        }
        if self.no_room.load(Ordering::Relaxed) { Err(StoreError::NoSpace) } else { Ok(()) }
    }
}

/// A hundredth of the disk within bounds, but never more than a quarter of it.
fn reserve_bytes(total: u64) -> u64 {
    (total / 100).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX).min(total / 4)
}
