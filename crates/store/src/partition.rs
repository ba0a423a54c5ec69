//! A partition: how it opens, how it becomes stable, and its parts: volumes (`volume/`), streams
//! that come in (`stream/`), sessions (`sessions.rs`).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use siphasher::sip::SipHasher13;
use types::{BootVerifier, KeyKeeper, SessionId, VnodeNo, VolumeId};

use crate::body::orphans::StraySearch;
use crate::body::{pack, sync};
use crate::error::Result;
use crate::format::key::{self, which};
use crate::format::names::BlankName;
use crate::format::record;
use crate::media::cipher::{Anew, Rewrapped};
use crate::media::disk::{Disk, Files};
use crate::media::engine::{Batch, Engine, RocksEngine};
use crate::media::format_file::{self, PartitionConfig};
use crate::media::free_space::Space;
use crate::media::health::{Health, HealthReport};
use crate::media::health_file::HealthFile;
use crate::media::host_fs::Compression;
use crate::media::machine::{MemDisk, MemEngine, MemMachine};
use crate::media::shared_run::Together;
use crate::media::{CommitScope, Media, WrittenOut};
use crate::sessions::SessionTable;
use crate::standby::{Standbys, TreeFeeds};
use crate::stream::IncomingStreams;
use crate::tree::Trees;
use crate::volume::set::VolumeSet;
use crate::{BLOCK_BYTES, OpenError, StoreError};

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
    /// The directory that remembers the health of disks, on another disk (PH-1); `None`: it is
    /// forgotten when the partition is closed.
    pub health: Option<PathBuf>,
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
            health: None,
        }
    }
}

/// An open partition; clones are handles to the same one.
#[derive(Clone)]
pub struct Partition(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) media: Arc<Media>,
    /// The directory; `None`: it is in memory.
    path: Option<PathBuf>,
    /// Held while its format is raised.
    raising: Mutex<()>,
    id: u128,
    server: String,
    compression: Compression,
    trees: Arc<Trees>,
    volumes: Arc<VolumeSet>,
    streams: IncomingStreams,
    standbys: Standbys,
    feeds: TreeFeeds,
    sessions: SessionTable,
    syncing: Together,
    pub(crate) strays: StraySearch,
    /// The lock on the directory while the partition is open.
    _lock: Option<fs::File>,
}

/// The layers below a partition.
pub(crate) type Below = (Box<dyn Engine>, Box<dyn Disk>);

// Options are moved in: a caller does not use them again.
#[allow(clippy::needless_pass_by_value)]
impl Partition {
    /// Creates a partition of the newest format in an empty (or absent) directory and opens it.
    ///
    /// # Errors
    /// `NotEmpty`, `Medium`.
    pub fn create(
        path: &Path,
        config: &PartitionConfig,
        options: OpenOptions,
    ) -> std::result::Result<Partition, OpenError> {
        Partition::create_as(path, config, format_file::FORMAT_VERSION, options)
    }

    /// As [`Partition::create`], in this version of the format.
    ///
    /// # Errors
    /// As [`Partition::create`].
    pub fn create_as(
        path: &Path,
        config: &PartitionConfig,
        version: u32,
        options: OpenOptions,
    ) -> std::result::Result<Partition, OpenError> {
        debug_assert!(version >= format_file::FORMAT_OLDEST, "an older format is not written");
        let lock = format_file::prepare(path, config)?;
        let id = rng(&options).random();
        let files = open_files(path, id)?;
        let engine = open_engine(path, &options, true)?;
        format_file::seal(path, version, id)?;
        let found = format_file::Format { version, id, server: config.server.clone() };
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
        let found = format_file::check_format(path)?;
        let lock = format_file::lock(path)?;
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
        let found = format_file::Format {
            version: format_file::FORMAT_VERSION,
            id: 0,
            server: "memory".to_owned(),
        };
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

    /// The version of its format.
    pub fn format(&self) -> u32 {
        self.0.media.format()
    }

    /// Whether its format has the records of standbys.
    pub fn has_standbys_format(&self) -> bool {
        self.format() >= format_file::FORMAT_STANDBYS
    }

    /// Raises the version of its format: programs that know only older ones do not open it any
    /// more. Nothing is converted. Stable when it returns; a lower version changes nothing.
    ///
    /// # Errors
    /// `Misuse` if this program does not know the version; `Medium`.
    pub fn raise_format(&self, version: u32) -> Result<()> {
        if version > format_file::FORMAT_VERSION {
            return Err(StoreError::Misuse("this program does not know the format"));
        }
        let _raising = self.0.raising.lock();
        if version <= self.format() {
            return Ok(());
        }
        if let Some(path) = &self.0.path {
            format_file::write_format(path, version, self.0.id)
                .map_err(|e| StoreError::from_io("FORMAT", &e))?;
        }
        // The file first: records of the new format come only after it.
        self.0.media.set_format(version);
        Ok(())
    }

    /// The boot verifier: changes whenever unstable changes may have been lost, with the operating
    /// system's boot or when a sync failed.
    pub fn boot_verifier(&self) -> BootVerifier {
        BootVerifier(self.0.media.verifier())
    }

    /// Begins a commit scope: updates that name it ([`crate::Update::within`]) are gathered, and
    /// written out together. All readers see them at once, but the death of the process loses them
    /// until then. Before [`Partition::write_out`] the caller sends nothing that depends on them
    /// out of the process. Near the end of the disk nothing is gathered.
    pub fn gather(&self) -> CommitScope {
        CommitScope::begin(&self.0.media)
    }

    /// Every change that any thread gathered before the call survives the death of the process.
    /// Costs nothing where there is none.
    ///
    /// # Errors
    /// As [`CommitScope::write_out`].
    pub fn write_out(&self) -> Result<WrittenOut> {
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
        self.0.syncing.run(|| sync::sync_all(&self.0.trees))
    }

    /// Why the partition takes no more changes until it is opened again (DU-3); `None`: it takes
    /// them.
    pub fn stopped(&self) -> Option<String> {
        self.0.media.why_failed()
    }

    /// The health of the disk below (PH-1).
    pub fn health(&self) -> HealthReport {
        self.0.media.health.report()
    }

    /// The disk below counts as well from now on (PH-5).
    ///
    /// # Errors
    /// `Medium` if the partition takes no changes until it is opened again (DU-3), or the trust
    /// cannot be remembered.
    pub fn trust(&self) -> Result<()> {
        self.0.media.usable()?;
        self.0.media.health.trust().map_err(|error| StoreError::from_io("health", &error))
    }

    /// Removes up to `max` body files without a record, or as much of removed volumes; returns how
    /// many, 0 if nothing is left. Where there are none and room was refused, it makes the engine
    /// give back what removed records hold. Then it packs bodies for a moment, if any wait. After a
    /// loss of power it removes files without a record. For a background thread.
    ///
    /// # Errors
    /// `NoSpace`, which passes; `Medium`.
    pub fn sweep(&self, max: usize) -> Result<usize> {
        let swept = sync::sweep(&self.0.media, max)?;
        let swept = if swept > 0 { swept } else { self.0.volumes.sweeper().sweep(max)? };
        let swept = if swept > 0 { swept } else { pack::pack_some(&self.0.trees)? };
        if swept > 0 { Ok(swept) } else { self.0.strays.sweep(&self.0.trees) }
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

    /// The volumes.
    pub fn volumes(&self) -> &VolumeSet {
        &self.0.volumes
    }

    /// The streams that come in.
    pub fn streams(&self) -> &IncomingStreams {
        &self.0.streams
    }

    /// The feeds of its volumes.
    pub fn feeds(&self) -> &TreeFeeds {
        &self.0.feeds
    }

    /// The trees for which it stands by.
    pub fn standbys(&self) -> &Standbys {
        &self.0.standbys
    }

    /// The sessions that survive a restart.
    pub fn sessions(&self) -> &SessionTable {
        &self.0.sessions
    }

    /// Removes the volume, and first abandons a stream that comes in over it; stable when it
    /// returns. Its number finds no volume from then on, and its room is given back in the
    /// background.
    ///
    /// # Errors
    /// `NoVolume`, `Medium`; `Busy` if a stream over it begins meanwhile.
    pub fn remove_volume(&self, id: VolumeId) -> Result<()> {
        if self.0.volumes.existing(id)?.is_being_restored()
            && self.0.streams.incoming(id)?.is_some()
        {
            self.0.streams.abandon_incoming(id)?;
        }
        self.0.volumes.remove(id)
    }

    /// All lent bodies.
    pub fn lent(&self) -> Vec<(VolumeId, VnodeNo)> {
        self.0.media.gates.lent(None)
    }

    /// Whether bodies have descriptors that clients can get.
    pub fn has_descriptors(&self) -> bool {
        self.0.media.disk.has_descriptors()
    }

    /// Creates a blank, with a descriptor for reading it; `None` where bodies have no descriptors.
    ///
    /// # Errors
    /// `Medium`, `NoSpace`.
    pub fn make_blank(&self, session: SessionId) -> Result<(BlankName, Option<OwnedFd>)> {
        let media = &self.0.media;
        media.usable()?;
        media.room_for(BLOCK_BYTES)?;
        let name = BlankName { session, number: media.random() };
        let file = media.disk.make_blank(name).map_err(|e| StoreError::from_io("new blank", &e))?;
        let descriptor =
            file.descriptor().map_err(|e| StoreError::from_io("descriptor of a blank", &e))?;
        Ok((name, descriptor))
    }

    /// All blanks.
    ///
    /// # Errors
    /// `Medium`.
    pub fn blanks(&self) -> Result<Vec<BlankName>> {
        self.0.media.disk.blanks().map_err(|e| StoreError::from_io("list of blanks", &e))
    }

    /// Removes a blank; succeeds if there is none. The body of an adopted blank stays.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove_blank(&self, name: BlankName) -> Result<()> {
        let removed = self.0.media.disk.remove_blank(name);
        removed.map_err(|e| StoreError::from_io("removal of a blank", &e))
    }

    /// Wraps the keys of all encrypted volumes with the keeper's current key. Stable when it
    /// returns; after an interruption some have the old wrapping and some the new one. No body is
    /// written.
    ///
    /// # Errors
    /// `Medium`.
    pub fn wrap_keys_anew(&self) -> Result<Rewrapped> {
        let media = &self.0.media;
        let (anew, left) = media.ciphers.wrapped_anew()?;
        let mut wrapped = 0;
        for Anew { key, old, new } in anew {
            let _catalog = self.0.trees.catalog();
            // The tree is gone meanwhile, or its key was wrapped just now.
            if media.engine.get(&key)?.as_ref() != Some(&old) {
                continue;
            }
            let mut batch = Batch::default();
            batch.put(&key, &new);
            media.apply(&batch)?;
            wrapped += 1;
        }
        media.sync()?;
        Ok(Rewrapped { wrapped, left })
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
    found: format_file::Format,
    options: &OpenOptions,
    lock: Option<fs::File>,
) -> std::result::Result<Partition, OpenError> {
    let compression = Compression::at(path, options.compress);
    let packs = compression == Compression::Packed;
    let file = options.health.as_ref().map(|dir| HealthFile::new(dir, found.id));
    let health = file.map_or_else(Health::default, Health::remembered_by);
    let media = Media::new(
        engine,
        disk,
        options.open_bodies_max,
        packs,
        options.keys.clone(),
        health,
        rng(options),
    );
    media.set_format(found.version);
    let trees = Arc::new(Trees::new(Arc::clone(&media)));
    let recovered = recover(&trees);
    let (sessions, power_lost) = recovered.map_err(|error| {
        let path = path.display().to_string();
        let why = error.to_string();
        if matches!(error, StoreError::Damaged(_)) {
            OpenError::Damaged { path, why }
        } else {
            OpenError::Medium { path, why }
        }
    })?;
    let strays = StraySearch::default();
    if power_lost {
        strays.begin();
    }
    let volumes = Arc::new(VolumeSet::new(Arc::clone(&trees), options.encrypt));
    Ok(Partition(Arc::new(Inner {
        media,
        path: lock.is_some().then(|| path.to_owned()),
        raising: Mutex::default(),
        id: found.id,
        server: found.server,
        compression,
        trees,
        streams: IncomingStreams::new(Arc::clone(&volumes)),
        standbys: Standbys::new(Arc::clone(&volumes)),
        feeds: TreeFeeds::new(Arc::clone(&volumes)),
        volumes,
        sessions,
        syncing: Together::default(),
        strays,
        _lock: lock,
    })))
}

/// Brings the partition to a state from which it can go on; returns its sessions, and whether
/// unstable changes may have been lost.
fn recover(trees: &Trees) -> Result<(SessionTable, bool)> {
    let media = &trees.media;
    // The recovery acts on what it reads now (it removes files), so a crash must not undo it.
    media.engine.sync()?;
    media.ciphers.check_any()?;
    let power_lost = recover_verifier(media)?;
    let sessions = SessionTable::open(media)?;
    sync::recall_marks(trees, power_lost)?;
    media.sync()?;
    Ok((sessions, power_lost))
}

/// Returns whether unstable changes may have been lost.
fn recover_verifier(media: &Media) -> Result<bool> {
    let key = key::partition(which::BOOT);
    // Without the boot id a loss of power looks like a restart of the server.
    let boot = media
        .disk
        .boot_id()
        .and_then(|id| if id.is_empty() { Err(io::Error::other("it is empty")) } else { Ok(id) });
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
    let verifier =
        media.random::<u64>() ^ SipHasher13::new().hash(&[&stored, boot.as_bytes()].concat());
    assert!(
        !stored.starts_with(&verifier.to_le_bytes()),
        "DU-2: a loss of unstable changes shows in the boot verifier"
    );
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
