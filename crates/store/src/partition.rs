//! A partition: what opens, its volumes, sessions and counters, and stability.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use siphasher::sip::SipHasher13;
use types::{BootVerifier, ClientId, Fid, Kind, Name, SessionId, VnodeNo, VolumeId};

use crate::disk::{Disk, Files, MemDisk};
use crate::engine::{Batch, Engine, MemEngine, RocksEngine, prefix_end};
use crate::key::{self, kind};
use crate::media::{Gathering, Media};
use crate::record::{self, VolumeHeader};
use crate::volume::{Result, put_header};
use crate::{MemMachine, NewRoot, OpenError, StoreError, Update, Vnode, Volume, format, settle};

/// What a new partition is told.
#[derive(Clone, Debug, Default)]
pub struct PartitionConfig {
    /// The server that owns it, for `sysid`.
    pub server: String,
}

/// How to open a partition.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of the engine's block cache.
    pub cache_bytes: usize,
    /// Body files kept open.
    pub open_bodies_max: usize,
    /// Where random numbers come from; `None`: the operating system.
    pub seed: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { cache_bytes: 128 << 20, open_bodies_max: 512, seed: None }
    }
}

/// Room on the file system below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of it.
    pub total_bytes: u64,
    /// Bytes that bodies may still use.
    pub free_bytes: u64,
}

/// A session that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub session: SessionId,
    /// Whose it is.
    pub client: ClientId,
    /// Which life of the client.
    pub incarnation: u64,
    /// What else its owner wants to know again.
    pub extra: Bytes,
}

/// The last reply of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// The slot.
    pub slot: u32,
    /// The number of the request.
    pub request: u64,
    /// The encoded reply.
    pub reply: Bytes,
}

/// An open partition; clones are handles to the same one.
#[derive(Clone)]
pub struct Partition(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) media: Arc<Media>,
    id: u128,
    server: String,
    volumes: RwLock<BTreeMap<VolumeId, Arc<Volume>>>,
    pub(crate) rng: Mutex<StdRng>,
    sessions: Mutex<Counter>,
    /// Held while the partition is open.
    _lock: Option<fs::File>,
}

/// Numbers that are never used twice: `next` is handed out, below `stored` may have been.
#[derive(Default)]
struct Counter {
    next: u64,
    stored: u64,
}

/// Sees the key and value of a record; an error ends the scan.
type VisitRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Session numbers that are set aside in one durable step.
const SESSIONS_AT_ONCE: u64 = 64;

/// Partition-wide records.
mod which {
    pub(super) const BOOT: u64 = 0;
    pub(super) const NEXT_SESSION: u64 = 1;
    pub(super) const NEXT_VOLUME: u64 = 2;
}

// Options are handed over: a caller keeps none.
#[allow(clippy::needless_pass_by_value)]
impl Partition {
    /// Makes a partition in an empty (or absent) directory and opens it.
    ///
    /// # Errors
    /// `NotEmpty`, `Medium`.
    pub fn create(
        path: &Path,
        config: &PartitionConfig,
        options: OpenOptions,
    ) -> std::result::Result<Partition, OpenError> {
        let lock = format::prepare(path, config)?;
        let engine = open_engine(path, &options, true)?;
        let id = rng(&options).random();
        format::seal(path, id)?;
        let found = format::Format { version: format::FORMAT_VERSION, id, server: config.server.clone() };
        start(path, Box::new(engine), Box::new(Files::new(path)), found, &options, Some(lock))
    }

    /// Opens a partition.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: OpenOptions) -> std::result::Result<Partition, OpenError> {
        let found = format::check_format(path)?;
        let lock = format::lock(path)?;
        let engine = open_engine(path, &options, false)?;
        start(path, Box::new(engine), Box::new(Files::new(path)), found, &options, Some(lock))
    }

    /// Opens the partition of a machine in memory, or makes it. Only one may be open at a time.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn open_memory(machine: &MemMachine, options: OpenOptions) -> std::result::Result<Partition, OpenError> {
        let engine = Box::new(MemEngine(machine.0.clone()));
        let found = format::Format { version: format::FORMAT_VERSION, id: 0, server: "memory".to_owned() };
        start(Path::new("memory"), engine, Box::new(MemDisk(machine.0.clone())), found, &options, None)
    }

    /// 128 random bits.
    pub fn id(&self) -> u128 {
        self.0.id
    }

    /// The server that owns it.
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Every volume.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        self.0.volumes.read().values().cloned().collect()
    }

    /// A volume by number.
    pub fn volume(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.0.volumes.read().get(&id).cloned()
    }

    /// A volume by name.
    pub fn volume_named(&self, name: &[u8]) -> Option<Arc<Volume>> {
        self.0.volumes.read().values().find(|volume| volume.name().as_bytes() == name).cloned()
    }

    /// Makes a volume with an empty root directory; stable when it returns.
    ///
    /// # Errors
    /// `Misuse` if the name is taken; `NoSpace`, `Medium`.
    pub fn create_volume(&self, name: &Name, root: &NewRoot) -> Result<Arc<Volume>> {
        let media = &self.0.media;
        let mut volumes = self.0.volumes.write();
        if volumes.values().any(|volume| volume.name() == name) {
            return Err(StoreError::Misuse("a volume has this name"));
        }
        let key = key::partition(which::NEXT_VOLUME);
        let number = self.number(&key)?.unwrap_or(1);
        let id = VolumeId(number);
        media.disk.add_volume(id).map_err(|e| StoreError::from_io("directories of a volume", &e))?;
        let header = VolumeHeader {
            name: name.clone(),
            hash_key: self.0.rng.lock().random(),
            created: root.now,
            quota: root.quota,
            next_slot: 1,
            epoch: 1,
            sealed: Vec::new(),
        };
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_numbers(&key, &[number + 1]));
        put_header(id, &header, &mut batch);
        media.apply(&batch)?;
        let volume = Arc::new(Volume::new(media.clone(), id, header, [0, 0]));
        let fid = Fid::root(id);
        let vnode = Vnode::new(fid, Kind::Directory, root.mode, root.uid, root.gid, VnodeNo::ROOT, root.now);
        let mut update = Update::new();
        update.create_vnode(&vnode);
        volume.commit(update)?;
        media.sync()?;
        volumes.insert(id, volume.clone());
        Ok(volume)
    }

    /// Changes whenever unstable changes may have been lost: with the operating system's boot, or when a sync failed.
    pub fn boot_verifier(&self) -> BootVerifier {
        BootVerifier(self.0.media.verifier())
    }

    /// Changes of this thread are gathered from now on, until the scope is ended: everybody sees them, but the death of the process
    /// loses them until they are written out. Whoever opens a scope tells nobody outside of the process what anybody saw meanwhile, before
    /// [`Partition::write_out`]. Near the end of the disk nothing is gathered.
    pub fn gather(&self) -> Gathering {
        Gathering::begin(&self.0.media)
    }

    /// What was gathered before the call, by any thread, survives the death of the process. Costs nothing where there is nothing.
    ///
    /// # Errors
    /// As [`Gathering::end`].
    pub fn write_out(&self) -> Result<()> {
        self.0.media.write_out()
    }

    /// Every batch applied before the call is on disk. Group commit: one sync serves all who wait.
    ///
    /// # Errors
    /// `Medium`; from then on every change is refused (DU-3).
    pub fn sync(&self) -> Result<()> {
        self.0.media.sync()
    }

    /// As `sync`, and every body too: commit of a volume, and the server's background thread.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_all(&self) -> Result<()> {
        settle::sync_all(&self.0.media, &|id| self.volume(id.0))
    }

    /// Removes up to `max` body files that nothing names any more; says how many. Where there are none and room was refused, it takes
    /// the time to get back what removed records hold. For a background thread.
    ///
    /// # Errors
    /// `NoSpace`, which passes; `Medium`.
    pub fn sweep(&self, max: usize) -> Result<usize> {
        settle::sweep(&self.0.media, max)
    }

    /// Writes the engine's log into tables, so that the next start has little to replay. For an orderly stop.
    ///
    /// # Errors
    /// `Medium`.
    pub fn flush(&self) -> Result<()> {
        self.sync_all()?;
        self.0.media.engine.flush()
    }

    /// Room on the file system below, without what is reserved for records.
    ///
    /// # Errors
    /// `Medium`.
    pub fn space(&self) -> Result<Space> {
        self.0.media.space()
    }

    /// The engine's numbers about itself, for people.
    pub fn engine_stats(&self) -> String {
        self.0.media.engine.stats()
    }

    /// A session number that was never used. Durable when it returns.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate_session(&self) -> Result<SessionId> {
        let mut counter = self.0.sessions.lock();
        if counter.next == counter.stored {
            let key = key::partition(which::NEXT_SESSION);
            let stored = counter.next + SESSIONS_AT_ONCE;
            let mut batch = Batch::default();
            batch.put(&key, &record::encode_numbers(&key, &[stored]));
            self.0.media.apply(&batch)?;
            self.0.media.sync()?;
            counter.stored = stored;
        }
        counter.next += 1;
        Ok(SessionId(counter.next - 1))
    }

    /// Every session record.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn sessions(&self) -> Result<Vec<SessionRecord>> {
        let mut sessions = Vec::new();
        self.each(&[kind::SESSION], &mut |key, value| {
            let session = SessionId(key::number_at(key, 0).ok_or_else(|| record::damaged("session", key))?);
            sessions.push(record::decode_session(key, session, value)?);
            Ok(())
        })?;
        Ok(sessions)
    }

    /// Writes a session record (unstable until the next sync).
    ///
    /// # Errors
    /// `Medium`.
    pub fn put_session(&self, record: &SessionRecord) -> Result<()> {
        let key = key::session(record.session);
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_session(&key, record));
        self.0.media.apply(&batch).map(drop)
    }

    /// Removes a session with its replies.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove_session(&self, session: SessionId) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete(&key::session(session));
        for reply in self.replies(session)? {
            batch.delete(&key::reply(session, reply.slot));
        }
        self.0.media.apply(&batch).map(drop)
    }

    /// A session's stored replies, by slot.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn replies(&self, session: SessionId) -> Result<Vec<StoredReply>> {
        let mut replies = Vec::new();
        self.each(&key::replies(session), &mut |key, value| {
            let slot = key::number_at(key, 1).and_then(|slot| u32::try_from(slot).ok());
            let slot = slot.ok_or_else(|| record::damaged("reply", key))?;
            replies.push(record::decode_reply(key, slot, value)?);
            Ok(())
        })?;
        Ok(replies)
    }

    /// The highest incarnation of a client that was ever recorded.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn incarnation(&self, client: ClientId) -> Result<Option<u64>> {
        self.number(&key::client(client))
    }

    /// Records a client's incarnation (unstable until the next sync).
    ///
    /// # Errors
    /// `Medium`.
    pub fn put_incarnation(&self, client: ClientId, incarnation: u64) -> Result<()> {
        let key = key::client(client);
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_numbers(&key, &[incarnation]));
        self.0.media.apply(&batch).map(drop)
    }

    fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        let value = self.0.media.engine.get(key)?;
        value.map(|value| record::decode_numbers::<1>(key, &value).map(|[number]| number)).transpose()
    }

    /// Visits every record under a prefix.
    fn each(&self, prefix: &[u8], visit: &mut VisitRecord<'_>) -> Result<()> {
        let mut result = Ok(());
        self.0.media.engine.scan(prefix, &prefix_end(prefix), &mut |key, value| {
            result = visit(key, value);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }
}

fn open_engine(path: &Path, options: &OpenOptions, create: bool) -> std::result::Result<RocksEngine, OpenError> {
    let disk_bytes = Files::new(path).space().map_or(0, |space| space.total_bytes);
    RocksEngine::open(&path.join("meta"), options.cache_bytes, disk_bytes, create).map_err(|error| {
        let path = path.display().to_string();
        let why = format!("metadata engine: {error}");
        match error.kind() {
            rocksdb::ErrorKind::Corruption | rocksdb::ErrorKind::InvalidArgument => OpenError::Damaged { path, why },
            _ => OpenError::Medium { path, why },
        }
    })
}

fn rng(options: &OpenOptions) -> StdRng {
    options.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)
}

/// Everything behind the FORMAT file: boot verifier, volumes, marks.
fn start(
    path: &Path,
    engine: Box<dyn Engine>,
    disk: Box<dyn Disk>,
    found: format::Format,
    options: &OpenOptions,
    lock: Option<fs::File>,
) -> std::result::Result<Partition, OpenError> {
    let partition = Partition(Arc::new(Inner {
        media: Media::new(engine, disk, options.open_bodies_max),
        id: found.id,
        server: found.server,
        volumes: RwLock::default(),
        rng: Mutex::new(rng(options)),
        sessions: Mutex::default(),
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
        // What is read now is acted upon (files are removed), so it must not go back.
        media.engine.sync()?;
        let power_lost = self.recover_verifier()?;
        let next = self.number(&key::partition(which::NEXT_SESSION))?.unwrap_or(1);
        *self.0.sessions.lock() = Counter { next, stored: next };
        self.recover_volumes()?;
        settle::recall_marks(media, power_lost, &|id| self.volume(id.0))?;
        media.sync()
    }

    /// Says whether unstable changes may have been lost.
    fn recover_verifier(&self) -> Result<bool> {
        let media = &self.0.media;
        let key = key::partition(which::BOOT);
        let boot = media.disk.boot_id();
        let sync_failed = media.disk.take_sync_failed();
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
        // Differs from the last one even where random numbers repeat, as they do from a seed.
        let verifier =
            self.0.rng.lock().random::<u64>() ^ SipHasher13::new().hash(&[&stored, boot.as_bytes()].concat());
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_bytes(&key, &[&verifier.to_le_bytes(), boot.as_bytes()].concat()));
        media.apply(&batch)?;
        media.sync()?;
        media.set_verifier(verifier);
        Ok(true)
    }

    /// A volume whose header is damaged is left out; the others work.
    fn recover_volumes(&self) -> Result<()> {
        let mut headers: Vec<(VolumeId, VolumeHeader)> = Vec::new();
        self.each(&[kind::VOLUME], &mut |key, value| {
            match (key::number_at(key, 0), record::decode_volume(key, value)) {
                (Some(id), Ok(header)) => headers.push((VolumeId(id), header)),
                (_, Err(error)) => tracing::error!(%error, "volume is left out"),
                (None, _) => tracing::error!(?key, "volume record without a number is left out"),
            }
            Ok(())
        })?;
        let media = &self.0.media;
        let mut volumes = self.0.volumes.write();
        for (id, header) in headers {
            let key = key::usage(id);
            // A crash in the middle of making a volume leaves a header without a root.
            let Some(value) = media.engine.get(&key)? else { continue };
            let usage = record::decode_usage(&key, &value)?;
            volumes.insert(id, Arc::new(Volume::new(media.clone(), id, header, usage)));
        }
        Ok(())
    }
}
