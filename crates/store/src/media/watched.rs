//! The engine and the disk of bodies, observed: each error of the disk and the time of each flush
//! of the log go to `health.rs` (PH-1). Nothing else changes.
//!
//! Bytes that a kernel reads and writes through a descriptor are not seen here: their errors reach
//! the application, and the sync of the body reports them here.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use types::VolumeId;

use super::disk::{BodyFile, Disk, Frames, Stamp};
use super::engine::{Batch, Engine, Visit};
use super::free_space::Space;
use super::health::Health;
use crate::StoreError;
use crate::format::key::Key;
use crate::format::names::{BlankName, BodyName};

/// A result that tells whether the disk failed.
trait Outcome {
    fn note(self, health: &Health, what: &'static str) -> Self;
}

impl<T> Outcome for io::Result<T> {
    fn note(self, health: &Health, what: &'static str) -> Self {
        self.inspect_err(|error| {
            if is_of_the_disk(error) {
                health.failed(&format!("{what}: {error}"));
            }
        })
    }
}

impl<T> Outcome for Result<T, StoreError> {
    fn note(self, health: &Health, what: &'static str) -> Self {
        self.inspect_err(|error| {
            if let StoreError::Medium(why) = error
                && !is_of_the_process(why)
            {
                health.failed(&format!("{what}: {why}"));
            }
        })
    }
}

/// Whether the error says that the disk, or the file system on it, does not work. A full disk, a
/// limit of the process or a missing file says nothing about the disk. Source: the errors of block
/// devices (`blk_status_t` in Linux's `block/blk-core.c`), and those of ext4 and XFS after damage.
fn is_of_the_disk(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(
            Errno::IO
                | Errno::ROFS
                | Errno::NXIO
                | Errno::NODEV
                | Errno::UCLEAN
                | Errno::BADMSG
                | Errno::REMOTEIO
                | Errno::TIMEDOUT
                | Errno::NOLINK
                | Errno::NOMEDIUM
                | Errno::SHUTDOWN
                | Errno::NODATA
        )
    )
}

/// Whether the engine's error, which is text, is about the server's process: it says nothing about
/// the disk, and a caller who exhausts a limit must not have volumes moved.
fn is_of_the_process(why: &str) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM].iter().any(|errno| {
        let text = io::Error::from(*errno).to_string();
        let words = text.split(" (os error").next().unwrap_or(&text);
        why.contains(words)
    })
}

/// Methods that forward their arguments, and note what went wrong.
macro_rules! observe {
    ($(fn $name:ident($($what:ident: $of:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($what: $of),*) -> $result {
            self.inner.$name($($what),*).note(&self.health, stringify!($name))
        })*
    };
}

/// Methods that forward their arguments.
macro_rules! forward {
    ($(fn $name:ident($($what:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($what: $of),*) $(-> $result)? { self.inner.$name($($what),*) })*
    };
}

/// An engine below the records.
pub(crate) struct WatchedEngine {
    pub(crate) inner: Box<dyn Engine>,
    pub(crate) health: Arc<Health>,
}

impl Engine for WatchedEngine {
    observe! {
        fn get(key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
        fn get_many(keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError>;
        fn scan(from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError>;
        fn apply(batch: &Batch) -> Result<(), StoreError>;
        fn flush() -> Result<(), StoreError>;
    }

    forward! {
        fn reclaim();
        fn is_tidying() -> bool;
        fn stats() -> String;
    }

    fn sync(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let synced = self.inner.sync().note(&self.health, "sync");
        self.health.flushed(began.elapsed());
        synced
    }
}

/// A disk below the bodies.
pub(crate) struct WatchedDisk {
    pub(crate) inner: Box<dyn Disk>,
    pub(crate) health: Arc<Health>,
}

impl WatchedDisk {
    fn watch(&self, inner: Arc<dyn BodyFile>) -> Arc<dyn BodyFile> {
        Arc::new(WatchedFile { inner, health: Arc::clone(&self.health) })
    }

    fn watched<T>(
        &self,
        what: &'static str,
        opened: io::Result<T>,
        watch: impl FnOnce(T) -> T,
    ) -> io::Result<T> {
        opened.note(&self.health, what).map(watch)
    }
}

impl Disk for WatchedDisk {
    observe! {
        fn remove(name: BodyName) -> io::Result<()>;
        fn list(
            volume: VolumeId,
            visit: &mut dyn FnMut(Result<BodyName, String>)
        ) -> io::Result<()>;
        fn clear(volume: VolumeId, max: usize) -> io::Result<usize>;
        fn sync_name(name: BodyName) -> Result<(), StoreError>;
        fn sync_all() -> Result<(), StoreError>;
        fn is_written(name: BodyName) -> io::Result<bool>;
        fn blanks() -> io::Result<Vec<BlankName>>;
        fn remove_blank(name: BlankName) -> io::Result<()>;
        fn space() -> io::Result<Space>;
    }

    forward! {
        fn has_descriptors() -> bool;
        fn boot_id() -> io::Result<String>;
        fn note_sync_failed();
        fn has_sync_failed() -> bool;
        fn forget_sync_failed();
    }

    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        self.watched("create", self.inner.create(name), |file| self.watch(file))
    }

    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>> {
        self.watched("copy", self.inner.copy(from, to), |file| self.watch(file))
    }

    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let watch = |file: Option<_>| file.map(|file| self.watch(file));
        self.watched("open", self.inner.open(name), watch)
    }

    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>> {
        self.watched("create", self.inner.make_blank(name), |file| self.watch(file))
    }

    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let watch = |file: Option<_>| file.map(|file| self.watch(file));
        self.watched("open", self.inner.open_blank(name), watch)
    }

    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>> {
        let watch = |file: Option<_>| file.map(|file| self.watch(file));
        self.watched("link", self.inner.adopt_blank(blank, body), watch)
    }
}

/// One open file.
struct WatchedFile {
    inner: Arc<dyn BodyFile>,
    health: Arc<Health>,
}

impl BodyFile for WatchedFile {
    observe! {
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
        fn sync() -> Result<(), StoreError>;
        fn descriptor() -> io::Result<Option<OwnedFd>>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ph1_only_errors_of_the_disk_count() {
        let counts = |error: io::Error| {
            let health = Health::default();
            let _ = Err::<(), _>(error).note(&health, "read");
            health.report().errors == 1
        };
        for errno in [Errno::IO, Errno::ROFS, Errno::UCLEAN, Errno::NODEV] {
            assert!(counts(errno.into()), "{errno:?}");
        }
        for errno in [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::FBIG,
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::NOENT,
            Errno::INTR,
            Errno::OPNOTSUPP,
        ] {
            assert!(!counts(errno.into()), "{errno:?}");
        }
        assert!(!counts(io::ErrorKind::InvalidData.into()), "a wrong checksum is no error of it");
        let health = Health::default();
        let _ = Err::<(), _>(StoreError::NoSpace).note(&health, "sync");
        assert_eq!(health.report().errors, 0);
        let open = "IO error: While open a file: 000012.log: Too many open files".to_owned();
        let _ = Err::<(), _>(StoreError::Medium(open)).note(&health, "apply");
        assert_eq!(health.report().errors, 0, "a limit of the process");
        let _ = Err::<(), _>(StoreError::Medium("EIO".to_owned())).note(&health, "sync");
        assert_eq!(health.report().last_error, "sync: EIO");
    }
}
