//! A store with a fault: an engine and a disk that omit one of the requested syncs, to prove that a
//! test detects it.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use types::VolumeId;

use crate::format::key::Key;
use crate::format::names::BodyName;
use crate::media::disk::{BodyFile, Disk, Frames, Stamp};
use crate::media::engine::{Batch, Engine, Visit};
use crate::partition::Below;
use crate::{BlankName, Space, StoreError};

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Bodies are never synced.
    NoBodySync,
    /// Bodies are synced only after the log is.
    LogFirst,
    /// The log is never synced.
    NoLogSync,
    /// The log is not synced before bytes of a stable body change (rule 2 of `body.rs`).
    NoMarkSync,
    /// The log is not synced before body files are removed.
    NoSweepSync,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 5] = [
        Mistake::NoBodySync,
        Mistake::LogFirst,
        Mistake::NoLogSync,
        Mistake::NoMarkSync,
        Mistake::NoSweepSync,
    ];
}

/// The current operation of the caller, for faults in one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Changing,
    Sweeping,
    Other,
}

/// The state that engine and disk share.
pub(crate) struct Carelessness {
    mistake: Mistake,
    phase: Mutex<Phase>,
    late: Mutex<Vec<LateSync>>,
}

type LateSync = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

impl Carelessness {
    pub(crate) fn new(mistake: Mistake) -> Arc<Carelessness> {
        Arc::new(Carelessness { mistake, phase: Mutex::new(Phase::Other), late: Mutex::default() })
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    /// Wraps the layers below a partition.
    pub(crate) fn between(self: &Arc<Self>, (engine, disk): Below) -> Below {
        let disk: Arc<dyn Disk> = disk.into();
        (Box::new(CarelessEngine(engine, self.clone())), Box::new(CarelessDisk(disk, self.clone())))
    }

    fn sync_body(
        &self,
        sync: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        match self.mistake {
            Mistake::NoBodySync => Ok(()),
            Mistake::LogFirst => {
                self.late.lock().push(Box::new(sync));
                Ok(())
            }
            _ => sync(),
        }
    }

    fn sync_log(&self, sync: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let phase = *self.phase.lock();
        let skips = match self.mistake {
            Mistake::NoBodySync | Mistake::LogFirst => false,
            Mistake::NoLogSync => true,
            Mistake::NoMarkSync => phase == Phase::Changing,
            Mistake::NoSweepSync => phase == Phase::Sweeping,
        };
        if skips {
            return Ok(());
        }
        sync()?;
        let late = std::mem::take(&mut *self.late.lock());
        late.into_iter().try_for_each(|sync| sync())
    }
}

/// Methods that forward their arguments.
macro_rules! forward {
    ($(fn $name:ident($($what:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($what: $of),*) -> $result { self.0.$name($($what),*) })*
    };
}

struct CarelessEngine(Box<dyn Engine>, Arc<Carelessness>);

impl Engine for CarelessEngine {
    forward! {
        fn get(key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
        fn get_many(keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
        fn scan(from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError>;
        fn apply(batch: &Batch) -> Result<(), StoreError>;
        fn flush() -> Result<(), StoreError>;
        fn reclaim() -> ();
        fn is_tidying() -> bool;
        fn stats() -> String;
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.1.sync_log(|| self.0.sync())
    }
}

struct CarelessDisk(Arc<dyn Disk>, Arc<Carelessness>);

impl CarelessDisk {
    fn file(&self, file: Arc<dyn BodyFile>) -> Arc<dyn BodyFile> {
        Arc::new(CarelessFile(file, self.1.clone()))
    }
}

impl Disk for CarelessDisk {
    forward! {
        fn remove(name: BodyName) -> io::Result<()>;
        fn list(
            volume: VolumeId,
            visit: &mut dyn FnMut(Result<BodyName, String>)
        ) -> io::Result<()>;
        fn clear(volume: VolumeId, max: usize) -> io::Result<usize>;
        fn is_written(name: BodyName) -> io::Result<bool>;
        fn has_descriptors() -> bool;
        fn blanks() -> io::Result<Vec<BlankName>>;
        fn remove_blank(name: BlankName) -> io::Result<()>;
        fn space() -> io::Result<Space>;
        fn boot_id() -> io::Result<String>;
        fn note_sync_failed() -> ();
        fn has_sync_failed() -> bool;
        fn forget_sync_failed() -> ();
    }

    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        Ok(self.file(self.0.create(name)?))
    }

    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        Ok(self.file(self.0.copy(from, to)?))
    }

    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        Ok(self.0.open(name)?.map(|file| self.file(file)))
    }

    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>> {
        Ok(self.file(self.0.make_blank(name)?))
    }

    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        Ok(self.0.open_blank(name)?.map(|file| self.file(file)))
    }

    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>> {
        Ok(self.0.adopt_blank(blank, body)?.map(|file| self.file(file)))
    }

    fn sync_name(&self, name: BodyName) -> Result<(), StoreError> {
        let disk = self.0.clone();
        self.1.sync_body(move || disk.sync_name(name))
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        let disk = self.0.clone();
        self.1.sync_body(move || disk.sync_all())
    }
}

struct CarelessFile(Arc<dyn BodyFile>, Arc<Carelessness>);

impl BodyFile for CarelessFile {
    forward! {
        fn read_at(offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
        fn frames(chunks: Range<u64>, below: u64) -> io::Result<Option<Frames>>;
        fn write_at(offset: u64, data: &[u8]) -> io::Result<()>;
        fn append(data: &[u8]) -> io::Result<u64>;
        fn length() -> io::Result<u64>;
        fn set_length(length: u64) -> io::Result<()>;
        fn extend(length: u64) -> io::Result<()>;
        fn settle_maps() -> io::Result<()>;
        fn stamp() -> io::Result<Stamp>;
        fn next_data(from: u64) -> io::Result<Option<Range<u64>>>;
        fn punch(offset: u64, length: u64) -> io::Result<()>;
        fn reserve(offset: u64, length: u64) -> io::Result<()>;
        fn has_data(offset: u64, length: u64) -> io::Result<bool>;
        fn descriptor() -> io::Result<Option<OwnedFd>>;
    }

    fn sync(&self) -> Result<(), StoreError> {
        let file = self.0.clone();
        self.1.sync_body(move || file.sync())
    }
}
