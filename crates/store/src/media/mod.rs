//! The layers below a partition: the engine (`engine/`), the disk of bodies (`disk/`), encryption
//! (`cipher.rs`), the gates of bodies (`gates.rs`, `body_state.rs`), and the one log that makes
//! changes stable. Imports `format/` only.
//!
//! Model. Every applied batch gets a number; `applied` is the last one, `synced` the last one known
//! to be on disk. A caller of `sync` waits until `synced` reaches the value that `applied` had at
//! the call. If no sync is in progress the caller becomes the leader: it syncs the log once, for
//! all batches that were applied by then, and wakes all waiters. A caller that was too late for
//! that sync leads the next one (group commit). After a failed sync or a failed write of the log
//! the state of the disk is unknown: `failed` is set for good, changes are refused (DU-3), and the
//! boot verifier changes.
//!
//! Room is checked before each change (`room`), or, far from the end of the disk, once per commit
//! scope (`engine/write_combiner.rs`). The engine writes new tables before it drops old ones, so
//! its own work may bring the partition to the last level of room for a while: a batch waits for
//! that to end. Removed records leave the engine's tables only then; after a refusal for want of
//! room, `reclaim` starts this.

pub(crate) mod body_state;
pub(crate) mod cipher;
pub(crate) mod disk;
pub(crate) mod engine;
pub(crate) mod format_file;
pub(crate) mod free_space;
pub(crate) mod gates;
pub(crate) mod health;
pub(crate) mod health_file;
pub(crate) mod host_fs;
pub(crate) mod machine;
pub(crate) mod shared_run;
mod watched;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use observe::names::STORE_WRITE;
use observe::{Wait, part_span};
use parking_lot::{Condvar, Mutex};
use rand::Rng;
use rand::distr::{Distribution, StandardUniform};
use rand::rngs::StdRng;
use types::KeyKeeper;

use self::cipher::Ciphers;
use self::disk::{Ciphered, Disk};
use self::engine::{Batch, Engine, WriteCombiner, prefix_end};
use self::format_file::{FORMAT_STANDBYS, FORMAT_VERSION};
use self::free_space::{Space, SpaceLevel, reserve_bytes};
use self::gates::Gates;
use self::health::Health;
use self::watched::{WatchedDisk, WatchedEngine};
use crate::StoreError;
use crate::format::record;

/// The longest time that a batch waits for room that the engine is about to give back.
const TIDYING_MAX: Duration =
    if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };
/// The time between two checks of room during that wait.
const TIDYING_STEP: Duration = Duration::from_millis(10);
/// With so much room above the reserve, one check is enough for a commit scope: far more than one
/// scope can write.
const FAR_BYTES: u64 = 1 << 30;

/// Receives the key and value of a record; an error ends the scan.
type VisitRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'a;

/// The layers below a partition, see the head of the file.
pub(crate) struct Media {
    pub(crate) engine: Arc<WriteCombiner>,
    /// Keys of encrypted trees; the disk uses the same ones.
    pub(crate) ciphers: Arc<Ciphers>,
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) gates: Gates,
    /// Observed below `engine` and `disk`.
    pub(crate) health: Arc<Health>,
    applied: AtomicU64,
    synced: AtomicU64,
    failed: AtomicBool,
    /// The error that set `failed`.
    why_failed: OnceLock<String>,
    /// Whether a leader is syncing.
    leading: Mutex<bool>,
    led: Condvar,
    verifier: AtomicU64,
    /// A change was refused for want of room since the last [`Media::reclaim`].
    refused: AtomicBool,
    /// The last reclaim: when it ended, and how long it took.
    reclaimed: Mutex<Option<(Instant, Duration)>>,
    /// The last wait for the engine brought no room: on a disk that is full to the last byte the
    /// engine may work for hours.
    waited_in_vain: AtomicBool,
    /// There may be garbage records.
    pub(crate) garbage: AtomicBool,
    /// Bodies that only sealed epochs show are packed.
    pub(crate) packs: bool,
    /// There may be notes of bodies to pack.
    pub(crate) to_pack: AtomicBool,
    random: Mutex<StdRng>,
    /// The version of the partition's format.
    format: AtomicU32,
}

impl Media {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        disk: Box<dyn Disk>,
        open_bodies_max: usize,
        packs: bool,
        keeper: Option<Arc<dyn KeyKeeper>>,
        health: Health,
        random: StdRng,
    ) -> Arc<Media> {
        let health = Arc::new(health);
        let engine = WatchedEngine { inner: engine, health: Arc::clone(&health) };
        let disk = WatchedDisk { inner: disk, health: Arc::clone(&health) };
        let engine = Arc::new(WriteCombiner::new(Box::new(engine)));
        let ciphers = Arc::new(Ciphers::new(Arc::clone(&engine), keeper));
        Arc::new(Media {
            engine,
            disk: Box::new(Ciphered::new(Box::new(disk), Arc::clone(&ciphers))),
            ciphers,
            gates: Gates::new(open_bodies_max),
            health,
            applied: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            why_failed: OnceLock::new(),
            leading: Mutex::new(false),
            led: Condvar::new(),
            verifier: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            reclaimed: Mutex::new(None),
            waited_in_vain: AtomicBool::new(false),
            garbage: AtomicBool::new(true),
            packs,
            to_pack: AtomicBool::new(true),
            random: Mutex::new(random),
            format: AtomicU32::new(FORMAT_VERSION),
        })
    }

    /// The version of the partition's format.
    pub(crate) fn format(&self) -> u32 {
        self.format.load(Ordering::SeqCst)
    }

    /// The file FORMAT says this.
    pub(crate) fn set_format(&self, version: u32) {
        self.format.store(version, Ordering::SeqCst);
    }

    /// Checks that a program that opens a partition of this format knows the records of standbys
    /// (VE-6).
    pub(crate) fn need_format_of_standbys(&self) -> Result<(), StoreError> {
        let (found, needed) = (self.format(), FORMAT_STANDBYS);
        if found >= needed { Ok(()) } else { Err(StoreError::OldFormat { found, needed }) }
    }

    /// There are notes of bodies to pack.
    pub(crate) fn wake_packer(&self) {
        self.to_pack.store(self.packs, Ordering::SeqCst);
    }

    /// A random number, or a number from the seed.
    pub(crate) fn random<T>(&self) -> T
    where
        StandardUniform: Distribution<T>,
    {
        self.random.lock().random()
    }

    /// The number in a record; `None`: there is none.
    pub(crate) fn number(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let value = self.engine.get(key)?;
        let number = value.map(|value| record::decode_numbers::<1>(key, &value)).transpose()?;
        Ok(number.map(|[number]| number))
    }

    /// Visits every record under a prefix.
    pub(crate) fn each(
        &self,
        prefix: &[u8],
        visit: &mut VisitRecord<'_>,
    ) -> Result<(), StoreError> {
        let mut result = Ok(());
        self.engine.scan(prefix, &prefix_end(prefix), &mut |key, value| {
            result = visit(key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
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
            return Err(StoreError::Medium(
                "an earlier sync failed; open the partition again".to_owned(),
            ));
        }
        Ok(())
    }

    /// The failure after which changes are refused (DU-3), if there was one.
    pub(crate) fn why_failed(&self) -> Option<String> {
        let failed = self.failed.load(Ordering::SeqCst);
        failed.then(|| self.why_failed.get().cloned().unwrap_or_default())
    }

    /// Records a failure of the disk: its state is unknown from now on, and changes are refused.
    pub(crate) fn fail(&self, error: &StoreError) {
        if !self.failed.swap(true, Ordering::SeqCst) {
            let _ = self.why_failed.set(error.to_string());
            tracing::error!(%error, "DU-3: no more changes until the partition is opened again");
            self.disk.note_sync_failed();
            self.verifier.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Applies a batch without a scope, as [`Media::apply_in`].
    ///
    /// # Errors
    /// As [`Media::apply_in`].
    pub(crate) fn apply(&self, batch: &Batch) -> Result<u64, StoreError> {
        self.apply_in(None, batch)
    }

    /// Applies a batch of the scope; [`Media::is_synced`] reports for the returned number whether
    /// it is stable.
    ///
    /// # Errors
    /// `NoSpace`, which changes nothing and passes; `Medium`, which is permanent.
    pub(crate) fn apply_in(
        &self,
        scope: Option<&CommitScope>,
        batch: &Batch,
    ) -> Result<u64, StoreError> {
        let _in_span = part_span!(STORE_WRITE).entered();
        self.usable()?;
        let applied = if self.gathers(scope)? {
            self.engine.gather(batch)
        } else {
            self.room_for_the_log()?;
            self.engine.apply(batch)
        };
        match applied {
            // The engine found no room for its tables. It tries again by itself, and takes no
            // batches until then.
            Err(StoreError::NoSpace) => return Err(StoreError::NoSpace),
            result => result.inspect_err(|error| self.fail(error))?,
        }
        Ok(self.applied.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Every batch applied before the call survives the death of the process, gathered ones too.
    ///
    /// # Errors
    /// `NoSpace`, `Medium`; from then on every change is refused (DU-3), because readers saw
    /// changes that may never be written.
    pub(crate) fn write_out(&self) -> Result<WrittenOut, StoreError> {
        self.engine.write_out().inspect_err(|error| self.fail(error))?;
        Ok(WrittenOut(()))
    }

    /// Whether batches of the scope are gathered: it is one of this partition, and the disk had
    /// much room when the scope was asked first.
    fn gathers(&self, scope: Option<&CommitScope>) -> Result<bool, StoreError> {
        let Some(scope) = scope.filter(|scope| std::ptr::eq(&*scope.media, self)) else {
            return Ok(false);
        };
        if let Some(gathers) = scope.gathers.get() {
            return Ok(*gathers);
        }
        let space = self.disk.space().map_err(|e| StoreError::from_io("statvfs", &e))?;
        let has_room = space.free_bytes >= reserve_bytes(space.total_bytes) + FAR_BYTES;
        Ok(*scope.gathers.get_or_init(|| has_room))
    }

    /// The number of the last batch that was applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied.load(Ordering::SeqCst)
    }

    pub(crate) fn is_synced(&self, number: u64) -> bool {
        self.synced.load(Ordering::SeqCst) >= number
    }

    /// Every batch applied before the call is on disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let wanted = self.applied.load(Ordering::SeqCst);
        if self.is_synced(wanted) {
            return self.usable();
        }
        let began = Instant::now();
        let synced = self.sync_to(wanted);
        observe::record(Wait::StoreSync, began.elapsed());
        synced
    }

    fn sync_to(&self, wanted: u64) -> Result<(), StoreError> {
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
        let result = self.write_out().and_then(|_| self.engine.sync());
        match &result {
            Ok(()) => {
                debug_assert!(covered >= wanted, "DU-1: a sync covers what its caller applied");
                self.synced.fetch_max(covered, Ordering::SeqCst);
            }
            Err(error) => self.fail(error),
        }
        *self.leading.lock() = false;
        self.led.notify_all();
        result
    }

    /// Syncs bodies, with the same consequences on failure.
    pub(crate) fn sync_disk(
        &self,
        sync: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.usable()?;
        let began = Instant::now();
        let synced = sync().inspect_err(|error| self.fail(error));
        observe::record(Wait::StoreSync, began.elapsed());
        synced
    }

    /// Room, without the reserve for records.
    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        let space = self.disk.space().map_err(|e| StoreError::from_io("statvfs", &e))?;
        let free_bytes = space.free_bytes.saturating_sub(reserve_bytes(space.total_bytes));
        Ok(Space { free_bytes, ..space })
    }

    /// Whether bodies may grow by `bytes`.
    pub(crate) fn room_for(&self, bytes: u64) -> Result<(), StoreError> {
        if self.space()?.free_bytes >= bytes {
            return Ok(());
        }
        self.refused.store(true, Ordering::Relaxed);
        Err(StoreError::NoSpace)
    }

    /// Whether records may grow: removals still find room when this refuses.
    pub(crate) fn room_for_records(&self, scope: Option<&CommitScope>) -> Result<(), StoreError> {
        if self.gathers(scope)? { Ok(()) } else { self.room_below(SpaceLevel::NoRecords) }
    }

    /// Whether the log may take a batch at all.
    fn room_for_the_log(&self) -> Result<(), StoreError> {
        let end = Instant::now() + TIDYING_MAX;
        while let Err(error) = self.room_below(SpaceLevel::Nothing) {
            let tidying = self.engine.is_tidying();
            if !tidying || self.waited_in_vain.load(Ordering::Relaxed) || Instant::now() >= end {
                self.waited_in_vain.store(tidying, Ordering::Relaxed);
                return Err(error);
            }
            std::thread::sleep(TIDYING_STEP);
        }
        self.waited_in_vain.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is more room than this level requires. One system call, a fraction of the cost
    /// of a commit.
    fn room_below(&self, step: SpaceLevel) -> Result<(), StoreError> {
        let space = self.disk.space().map_err(|e| StoreError::from_io("statvfs", &e))?;
        if SpaceLevel::of(space.total_bytes, space.free_bytes) < step {
            return Ok(());
        }
        self.refused.store(true, Ordering::Relaxed);
        Err(StoreError::NoSpace)
    }

    /// After a refusal: makes the engine give back the room of removed records. Takes at most a
    /// tenth of the time.
    pub(crate) fn reclaim(&self) {
        let Some(mut last) = self.reclaimed.try_lock() else { return };
        let rested = last.is_none_or(|(end, took)| end.elapsed() >= 9 * took);
        if rested && self.refused.swap(false, Ordering::Relaxed) {
            let start = Instant::now();
            self.engine.reclaim();
            *last = Some((Instant::now(), start.elapsed()));
        }
    }
}

/// The proof that every change that any thread gathered before survives the death of the process.
/// A sender demands it before anything leaves the process (DU-2).
#[derive(Debug)]
pub struct WrittenOut(());

impl WrittenOut {
    /// The proof for several partitions.
    ///
    /// # Errors
    /// The first one; the others are asked all the same.
    pub fn of_all(
        all: impl Iterator<Item = Result<WrittenOut, StoreError>>,
    ) -> Result<WrittenOut, StoreError> {
        all.fold(Ok(WrittenOut(())), Result::and)
    }
}

/// A commit scope: the changes of updates that name it are gathered, see
/// [`crate::Partition::gather`].
#[must_use = "its changes survive the death of the process once it is written out"]
pub struct CommitScope {
    media: Arc<Media>,
    /// Whether there is so much room that its batches are gathered; the first one decides.
    gathers: OnceLock<bool>,
    has_ended: bool,
}

impl CommitScope {
    pub(crate) fn begin(media: &Arc<Media>) -> CommitScope {
        CommitScope { media: Arc::clone(media), gathers: OnceLock::new(), has_ended: false }
    }

    /// Ends the scope: its changes survive the death of the process from now on.
    ///
    /// # Errors
    /// `NoSpace`, `Medium`: the caller must not report any change of the scope, and the partition
    /// takes no more changes (DU-3).
    pub fn write_out(mut self) -> Result<WrittenOut, StoreError> {
        self.has_ended = true;
        self.media.write_out()
    }
}

impl Drop for CommitScope {
    fn drop(&mut self) {
        if !self.has_ended {
            debug_assert!(std::thread::panicking(), "DU-2: a commit scope ends by writing out");
            // Senders write out by themselves; this only bounds the time until then.
            let _ = self.media.write_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rand::SeedableRng;

    use super::*;
    use crate::MemMachine;
    use crate::media::engine::Visit;
    use crate::media::machine::{MemDisk, MemEngine};

    /// An engine that is always tidying; counts the queries.
    struct Tidying(MemEngine, Arc<AtomicUsize>);

    impl Engine for Tidying {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.0.get(key)
        }

        fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
            self.0.scan(from, end, visit)
        }

        fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
            self.0.apply(batch)
        }

        fn sync(&self) -> Result<(), StoreError> {
            self.0.sync()
        }

        fn flush(&self) -> Result<(), StoreError> {
            self.0.flush()
        }

        fn reclaim(&self) {}

        fn is_tidying(&self) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            true
        }

        fn stats(&self) -> String {
            self.0.stats()
        }
    }

    fn media_of(machine: &MemMachine, engine: impl Engine + 'static) -> Arc<Media> {
        let (disk, random) = (Box::new(MemDisk(machine.0.clone())), StdRng::seed_from_u64(1));
        Media::new(Box::new(engine), disk, 4, false, None, Health::default(), random)
    }

    fn put(key: &[u8]) -> Batch {
        let mut batch = Batch::default();
        batch.put(key, b"1");
        batch
    }

    #[test]
    fn st1_batches_with_and_without_a_scope_keep_their_order() {
        let (machine, other) = (MemMachine::new(), MemMachine::new());
        let below = MemEngine(machine.0.clone());
        let media = media_of(&machine, MemEngine(machine.0.clone()));
        let there = || [b"a", b"b", b"c"].map(|key| below.get(key).unwrap().is_some());
        let scope = CommitScope::begin(&media);
        let elsewhere = CommitScope::begin(&media_of(&other, MemEngine(other.0.clone())));
        media.apply_in(Some(&scope), &put(b"a")).unwrap();
        assert_eq!(there(), [false, false, false], "it is gathered");
        assert!(media.engine.get(b"a").unwrap().is_some(), "and visible");
        media.apply(&put(b"b")).unwrap();
        assert_eq!(there(), [true, true, false], "the same thread, without the scope");
        media.apply_in(Some(&scope), &put(b"c")).unwrap();
        assert_eq!(there(), [true, true, false]);
        media.apply_in(Some(&elsewhere), &put(b"d")).unwrap();
        assert_eq!(there(), [true, true, true], "a scope of another partition is none here");
        assert!(below.get(b"d").unwrap().is_some());
        scope.write_out().and(elsewhere.write_out()).unwrap();
    }

    #[test]
    fn a_scope_in_which_nothing_may_be_gathered_writes_through() {
        let machine = MemMachine::new();
        let below = MemEngine(machine.0.clone());
        let media = media_of(&machine, MemEngine(machine.0.clone()));
        machine.set_capacity(FAR_BYTES);
        let scope = CommitScope::begin(&media);
        media.apply_in(Some(&scope), &put(b"a")).unwrap();
        assert!(below.get(b"a").unwrap().is_some());
        machine.set_capacity(1 << 40);
        media.apply_in(Some(&scope), &put(b"b")).unwrap();
        assert!(below.get(b"b").unwrap().is_some(), "decided once a scope");
        scope.write_out().unwrap();
    }

    #[test]
    fn an_engine_without_room_is_waited_for_once() {
        let (machine, asked) = (MemMachine::new(), Arc::new(AtomicUsize::new(0)));
        let engine = Tidying(MemEngine(machine.0.clone()), Arc::clone(&asked));
        let media = media_of(&machine, engine);
        let (volume, vnode) = (types::VolumeId(1), types::VnodeNo(2));
        let name = crate::format::names::BodyName {
            volume,
            vnode,
            epoch: 1,
            generation: 1,
            packed: false,
        };
        let body = media.disk.create(name).unwrap();
        body.write_at(0, &[1; 1 << 16]).unwrap();
        let batch = put(b"a");
        let state = || {
            let refused = media.apply(&batch).is_err();
            (refused, asked.swap(0, Ordering::Relaxed))
        };
        assert_eq!(state(), (false, 0));
        for _ in 0..2 {
            machine.set_capacity(1 << 16);
            let (refused, waited) = state();
            assert!(refused && waited > 1, "{waited}");
            assert_eq!(state(), (true, 1));
            machine.set_capacity(1 << 40);
            assert_eq!(state(), (false, 0), "there is room again");
        }
    }
}
