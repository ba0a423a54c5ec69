//! A partition: how it opens and how it becomes stable. `catalog.rs` has its volumes, `sessions.rs`
//! its sessions.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use siphasher::sip::SipHasher13;
use types::{BootVerifier, KeyKeeper, VolumeId};

use crate::disk::{Disk, Files, MemDisk};
use crate::engine::{Batch, Engine, MemEngine, RocksEngine, prefix_end};
use crate::key;
use crate::loaded_volumes::Residents;
use crate::media::{CommitScope, Media};
use crate::orphan_bodies::Search;
use crate::removal::Removals;
use crate::sessions::Counter;
use crate::shared_run::Together;
use crate::stream::Incoming;
use crate::volume::Result;
use crate::{Compression, MemMachine, OpenError, StoreError, body_sync, format, record};

/// The settings of a new partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionConfig {
    /// The server that owns the partition, for `sysid`.
    pub server: String,
}

/// How to open a partition.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The size of the engine's block cache, in bytes.
    pub cache_bytes: usize,
    /// The most body files that stay open.
    pub open_bodies_max: usize,
    /// The seed of random numbers; `None`: the operating system supplies them.
    pub seed: Option<u64>,
    /// Compresses bodies that only sealed epochs show in the background (`pack.rs`), unless the
    /// file system below does it. Packed bodies can be read either way.
    pub compress: bool,
    /// The keeper of the keys of encrypted volumes; without it none can be made, and existing ones
    /// are offline.
    pub keys: Option<Arc<dyn KeyKeeper>>,
    /// Encrypts all new volumes, also those that come from elsewhere.
    pub encrypt: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            cache_bytes: 128 << 20,
            open_bodies_max: 512,
            seed: None,
            compress: false,
            keys: None,
            encrypt: false,
        }
    }
}

/// Room on the file system below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that bodies may still use.
    pub free_bytes: u64,
}

/// An open partition; clones are handles to the same one.
#[derive(Clone)]
pub struct Partition(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) media: Arc<Media>,
    id: u128,
    server: String,
    compression: Compression,
    /// New volumes are encrypted.
    pub(crate) encrypts: bool,
    /// Locked while the set of volumes or their names change.
    pub(crate) catalog: Mutex<()>,
    pub(crate) residents: Mutex<Residents>,
    pub(crate) removals: Mutex<Removals>,
    pub(crate) incomings: Mutex<HashMap<VolumeId, Arc<Incoming>>>,
    pub(crate) rng: Mutex<StdRng>,
    pub(crate) sessions: Mutex<Counter>,
    syncing: Together,
    pub(crate) strays: Mutex<Search>,
    /// The lock on the directory while the partition is open.
    _lock: Option<fs::File>,
}

/// The layers below a partition.
pub(crate) type Below = (Box<dyn Engine>, Box<dyn Disk>);

/// Receives the key and value of a record; an error ends the scan.
type VisitRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Partition-wide records.
pub(crate) mod which {
    pub(crate) const BOOT: u64 = 0;
    pub(crate) const NEXT_SESSION: u64 = 1;
    pub(crate) const NEXT_VOLUME: u64 = 2;
}

// Options are moved in: a caller does not use them again.
#[allow(clippy::needless_pass_by_value)]
impl Partition {
    /// Creates a partition in an empty (or absent) directory and opens it.
    ///
    /// # Errors
    /// `NotEmpty`, `Medium`.
    pub fn create(
        path: &Path,
        config: &PartitionConfig,
        options: OpenOptions,
    ) -> std::result::Result<Partition, OpenError> {
        let lock = format::prepare(path, config)?;
        let id = rng(&options).random();
        let files = open_files(path, id)?;
        let engine = open_engine(path, &options, true)?;
        format::seal(path, id)?;
        let found =
            format::Format { version: format::FORMAT_VERSION, id, server: config.server.clone() };
        start(path, Box::new(engine), Box::new(files), found, &options, Some(lock))
    }

    /// Opens a partition.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: OpenOptions) -> std::result::Result<Partition, OpenError> {
        Partition::open_through(path, &options, |below| below)
    }

    /// As [`Partition::open`], with a layer between the partition and its engine and files, for
    /// tests.
    pub(crate) fn open_through(
        path: &Path,
        options: &OpenOptions,
        between: impl FnOnce(Below) -> Below,
    ) -> std::result::Result<Partition, OpenError> {
        let found = format::check_format(path)?;
        let lock = format::lock(path)?;
        let files = open_files(path, found.id)?;
        let engine = open_engine(path, options, false)?;
        let (engine, disk) = between((Box::new(engine), Box::new(files)));
        start(path, engine, disk, found, options, Some(lock))
    }

    /// Opens the partition of a machine in memory, or creates it. Only one may be open at a time.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn open_memory(
        machine: &MemMachine,
        options: OpenOptions,
    ) -> std::result::Result<Partition, OpenError> {
        let engine = Box::new(MemEngine(machine.0.clone()));
        let found =
            format::Format { version: format::FORMAT_VERSION, id: 0, server: "memory".to_owned() };
        start(
            Path::new("memory"),
            engine,
            Box::new(MemDisk(machine.0.clone())),
            found,
            &options,
            None,
        )
    }

    /// The partition's identifier: 128 random bits.
    pub fn id(&self) -> u128 {
        self.0.id
    }

    /// The server that owns the partition.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// The boot verifier: changes whenever unstable changes may have been lost, with the operating
    /// system's boot or when a sync failed.
    pub fn boot_verifier(&self) -> BootVerifier {
        BootVerifier(self.0.media.verifier())
    }

    /// Begins a commit scope: changes of this thread are combined until it ends. All readers see
    /// them, but the death of the process loses them until they are written out. Before
    /// [`Partition::write_out`] the caller sends nothing that depends on them out of the process.
    /// Near the end of the disk changes are not combined.
    pub fn gather(&self) -> CommitScope {
        CommitScope::begin(&self.0.media)
    }

    /// Every change that any thread combined before the call survives the death of the process.
    /// Costs nothing where there is none.
    ///
    /// # Errors
    /// As [`CommitScope::end`].
    pub fn write_out(&self) -> Result<()> {
        self.0.media.write_out()
    }

    /// Every batch applied before the call is on disk. Group commit: one sync serves all waiters.
    ///
    /// # Errors
    /// `Medium`; from then on every change is refused (DU-3).
    pub fn sync(&self) -> Result<()> {
        self.0.media.sync()
    }

    /// How many batches were applied since the partition was opened: a caller that stores the
    /// number before a sync can tell later whether another sync is necessary.
    pub fn applied(&self) -> u64 {
        self.0.media.applied()
    }

    /// Whether every batch that was applied is on disk.
    pub fn is_stable(&self) -> bool {
        self.0.media.is_synced(self.0.media.applied())
    }

    /// As `sync`, and every body too: for the commit of a volume, and the server's background
    /// thread. Calls that arrive while one is in progress share the next.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_all(&self) -> Result<()> {
        self.0.syncing.run(|| body_sync::sync_all(&self.0.media, &|id| self.writer(id)))
    }

    /// Why the partition takes no more changes until it is opened again (DU-3); `None`: it takes
    /// them.
    pub fn stopped(&self) -> Option<String> {
        self.0.media.why_failed()
    }

    /// Removes up to `max` body files without a record, or as much of removed volumes; returns how
    /// many, 0 if nothing is left. Where there are none and room was refused, it makes the engine
    /// give back what removed records hold. Then it packs bodies for a moment, if any wait. After a
    /// loss of power it removes files without a record. For a background thread.
    ///
    /// # Errors
    /// `NoSpace`, which passes; `Medium`.
    pub fn sweep(&self, max: usize) -> Result<usize> {
        let swept = body_sync::sweep(&self.0.media, max)?;
        let swept = if swept > 0 { swept } else { self.sweep_removals(max)? };
        let swept = if swept > 0 { swept } else { self.pack_some()? };
        if swept > 0 { Ok(swept) } else { self.sweep_strays() }
    }

    /// Writes the engine's log into tables, so that the next start replays little. For an orderly
    /// stop.
    ///
    /// # Errors
    /// `Medium`.
    pub fn flush(&self) -> Result<()> {
        self.sync_all()?;
        self.0.media.engine.flush()
    }

    /// Room on the file system below, without the reserve for records.
    ///
    /// # Errors
    /// `Medium`.
    pub fn space(&self) -> Result<Space> {
        self.0.media.space()
    }

    /// The compression of bodies that only sealed epochs show.
    pub fn compression(&self) -> &Compression {
        &self.0.compression
    }

    /// The engine's statistics, for people.
    pub fn engine_stats(&self) -> String {
        self.0.media.engine.stats()
    }

    pub(crate) fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        let value = self.0.media.engine.get(key)?;
        value
            .map(|value| record::decode_numbers::<1>(key, &value).map(|[number]| number))
            .transpose()
    }

    /// Visits every record under a prefix.
    pub(crate) fn each(&self, prefix: &[u8], visit: &mut VisitRecord<'_>) -> Result<()> {
        let mut result = Ok(());
        self.0.media.engine.scan(prefix, &prefix_end(prefix), &mut |key, value| {
            result = visit(key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }
}

fn open_engine(
    path: &Path,
    options: &OpenOptions,
    create: bool,
) -> std::result::Result<RocksEngine, OpenError> {
    let disk_bytes = rustix::fs::statvfs(path).map_or(0, |fs| fs.f_blocks * fs.f_frsize);
    RocksEngine::open(&path.join("meta"), options.cache_bytes, disk_bytes, create).map_err(
        |error| {
            let path = path.display().to_string();
            let why = format!("metadata engine: {error}");
            use rocksdb::ErrorKind::{Corruption, InvalidArgument};
            match error {
                waldb::WalOpenError::Engine(error)
                    if matches!(error.kind(), Corruption | InvalidArgument) =>
                {
                    OpenError::Damaged { path, why }
                }
                waldb::WalOpenError::Lost { .. } => OpenError::Damaged { path, why },
                waldb::WalOpenError::Engine(_) | waldb::WalOpenError::Note { .. } => {
                    OpenError::Medium { path, why }
                }
            }
        },
    )
}

fn open_files(path: &Path, id: u128) -> std::result::Result<Files, OpenError> {
    let failed = |error| OpenError::Medium {
        path: path.display().to_string(),
        why: format!("bodies: {error}"),
    };
    Files::open(path, id).map_err(failed)
}

fn rng(options: &OpenOptions) -> StdRng {
    options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
}

/// Opens everything apart from the FORMAT file: boot verifier, volumes, marks.
fn start(
    path: &Path,
    engine: Box<dyn Engine>,
    disk: Box<dyn Disk>,
    found: format::Format,
    options: &OpenOptions,
    lock: Option<fs::File>,
) -> std::result::Result<Partition, OpenError> {
    let compression = Compression::at(path, options.compress);
    let packs = compression == Compression::Packed;
    let partition = Partition(Arc::new(Inner {
        media: Media::new(engine, disk, options.open_bodies_max, packs, options.keys.clone()),
        encrypts: options.encrypt,
        compression,
        id: found.id,
        server: found.server,
        catalog: Mutex::default(),
        residents: Mutex::default(),
        removals: Mutex::default(),
        incomings: Mutex::default(),
        rng: Mutex::new(rng(options)),
        sessions: Mutex::default(),
        syncing: Together::default(),
        strays: Mutex::default(),
        _lock: lock,
    }));
    match partition.recover() {
        Ok(()) => Ok(partition),
        Err(error) => {
            let path = path.display().to_string();
            let why = error.to_string();
            Err(if matches!(error, StoreError::Damaged(_)) {
                OpenError::Damaged { path, why }
            } else {
                OpenError::Medium { path, why }
            })
        }
    }
}

impl Partition {
    fn recover(&self) -> Result<()> {
        let media = &self.0.media;
        // The recovery acts on what it reads now (it removes files), so a crash must not undo it.
        media.engine.sync()?;
        media.ciphers.check_any()?;
        let power_lost = self.recover_verifier()?;
        let next = self.number(&key::partition(which::NEXT_SESSION))?.unwrap_or(1);
        *self.0.sessions.lock() = Counter::from(next);
        body_sync::recall_marks(media, power_lost, &|id| self.writer(id))?;
        if power_lost {
            self.search_strays();
        }
        media.sync()
    }

    /// Returns whether unstable changes may have been lost.
    fn recover_verifier(&self) -> Result<bool> {
        let media = &self.0.media;
        let key = key::partition(which::BOOT);
        // Without the boot id a loss of power looks like a restart of the server.
        let boot = media.disk.boot_id().and_then(|id| {
            if id.is_empty() { Err(io::Error::other("it is empty")) } else { Ok(id) }
        });
        let boot = boot.map_err(|error| {
            StoreError::Medium(format!(
                "the boot id of the system cannot be read (/proc/sys/kernel/random/boot_id: \
                 {error}): without it \
                 the server cannot know whether power was lost; mount /proc where the server runs"
            ))
        })?;
        let sync_failed = media.disk.has_sync_failed();
        let stored = match media.engine.get(&key)? {
            Some(value) => record::decode_bytes("boot", &key, value)?.unwrap_or_default(),
            None => Bytes::new(),
        };
        if let Some((verifier, of)) = stored.split_first_chunk::<8>()
            && of == boot.as_bytes()
            && !sync_failed
        {
            media.set_verifier(u64::from_le_bytes(*verifier));
            return Ok(false);
        }
        // Differs from the last one even if random numbers repeat, as they do with a seed.
        let verifier = self.0.rng.lock().random::<u64>()
            ^ SipHasher13::new().hash(&[&stored, boot.as_bytes()].concat());
        let mut batch = Batch::default();
        batch.put(
            &key,
            &record::encode_bytes(&key, &[&verifier.to_le_bytes(), boot.as_bytes()].concat()),
        );
        media.apply(&batch)?;
        media.sync()?;
        if sync_failed {
            media.disk.forget_sync_failed();
        }
        media.set_verifier(verifier);
        Ok(true)
    }
}
