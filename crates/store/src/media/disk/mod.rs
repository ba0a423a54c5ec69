//! The disk of body files: real files. `machine/` has one in memory that simulates crashes.

mod ciphered;
mod files;
mod packed;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
pub(crate) use ciphered::Ciphered;
pub(crate) use files::Files;
pub(crate) use packed::{CHUNK_BYTES, pack, unpack, unpack_frame};
use types::VolumeId;

use super::free_space::Space;
use crate::StoreError;
use crate::format::names::{BlankName, BodyName};

/// Opens a body file, packed or not; `None` if there is none.
pub(crate) fn open_body(disk: &dyn Disk, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
    match disk.open(name)? {
        Some(file) if name.packed => Ok(Some(Arc::new(packed::Packed::open(file)?))),
        file => Ok(file),
    }
}

/// The disk below the bodies. Thread-safe.
pub(crate) trait Disk: Send + Sync {
    /// Creates an empty body file, or empties one of that name (from an update that never
    /// committed).
    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>>;
    /// Creates a body file with the bytes and holes of another, in place of one with that name
    /// (from an update that never committed). Neither it nor its name need be on disk.
    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>>;
    /// Opens a body file in its stored form; `None` if there is none.
    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// Removes a body file; succeeds if there is none.
    fn remove(&self, name: BodyName) -> io::Result<()>;
    /// The names of a volume's body files; the text of unparsable ones.
    fn list(
        &self,
        volume: VolumeId,
        visit: &mut dyn FnMut(Result<BodyName, String>),
    ) -> io::Result<()>;
    /// Removes up to `max` of a volume's body files, and finally its directories; returns the
    /// number of files, fewer than `max` at the end.
    fn clear(&self, volume: VolumeId, max: usize) -> io::Result<usize>;
    /// Brings the directory entry of a body file, or its removal, to the disk.
    fn sync_name(&self, name: BodyName) -> Result<(), StoreError>;
    /// Brings every body file and its name to the disk.
    fn sync_all(&self) -> Result<(), StoreError>;
    /// Whether another process has the file open or mapped for writing. The caller has closed it.
    fn is_written(&self, name: BodyName) -> io::Result<bool>;
    /// Whether files have descriptors that can be passed on.
    fn has_descriptors(&self) -> bool;
    /// Creates a blank: an empty file that is no body yet.
    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>>;
    /// Opens a blank; `None` if there is none.
    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// All blanks.
    fn blanks(&self) -> io::Result<Vec<BlankName>>;
    /// Makes a blank a body file too, in place of one with that name (from an update that never
    /// committed); `None`: there is no such blank.
    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// Removes the name of a blank; succeeds if there is none.
    fn remove_blank(&self, name: BlankName) -> io::Result<()>;
    /// The size and the free room of the disk.
    fn space(&self) -> io::Result<Space>;
    /// The identifier of the current boot of the operating system.
    ///
    /// # Errors
    /// The system's. An empty identifier identifies no boot.
    fn boot_id(&self) -> io::Result<String>;
    /// Notes for the rest of this boot that a sync failed, even if the disk takes no more writes.
    fn note_sync_failed(&self);
    /// Whether a failed sync was noted.
    fn has_sync_failed(&self) -> bool;
    /// Removes the note, after the new verifier is stable.
    fn forget_sync_failed(&self);
}

/// The state of a file: every change of the file changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) length: u64,
    /// Times of modification and change, in nanoseconds, or counters.
    pub(crate) times: [i128; 2],
}

/// Consecutive frames of a packed body.
pub(crate) struct Frames {
    /// The length of each in bytes; 0: the chunk is all zeros, and has no frame.
    pub(crate) lengths: Vec<u32>,
    /// The concatenated frames.
    pub(crate) bytes: Bytes,
}

/// One open body file. Thread-safe.
pub(crate) trait BodyFile: Send + Sync {
    /// Reads into all of `buffer`; returns the number of bytes before the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// The frames of these chunks, if the body is packed, has them, and they are shorter than that.
    fn frames(&self, _chunks: Range<u64>, _below: u64) -> io::Result<Option<Frames>> {
        Ok(None)
    }
    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Writes all of `data` at the end; returns the offset. Atomic among concurrent appends.
    fn append(&self, data: &[u8]) -> io::Result<u64>;
    /// The length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Sets the length.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Grows to at least this length; never cuts.
    fn extend(&self, length: u64) -> io::Result<()>;
    /// On return a store through any map causes a page fault, which changes the state.
    fn settle_maps(&self) -> io::Result<()>;
    /// The state of the file.
    fn stamp(&self) -> io::Result<Stamp>;
    /// The next run of data at or behind `from`.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>>;
    /// Makes a hole; the length stays.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Reserves room; the length stays.
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Whether the range was ever written.
    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool>;
    /// Brings data and length to the disk.
    fn sync(&self) -> Result<(), StoreError>;
    /// A read-only descriptor of the same file, if the disk has descriptors.
    fn descriptor(&self) -> io::Result<Option<OwnedFd>>;
}
