//! Where body files are: real files, or memory that can crash.

mod ciphered;
mod files;
mod memory;
mod packed;

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
pub(crate) use ciphered::Ciphered;
pub(crate) use files::Files;
pub(crate) use memory::{MemDisk, MemFiles, UNLIMITED_BYTES};
pub(crate) use packed::{CHUNK_BYTES, pack, unpack, unpack_frame};
use types::{VnodeNo, VolumeId};

use crate::{BlankName, Space, StoreError};

/// One body file for ever: generations of one vnode and epoch are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BodyName {
    pub(crate) volume: VolumeId,
    pub(crate) vnode: VnodeNo,
    pub(crate) epoch: u64,
    pub(crate) generation: u32,
    /// What has the same numbers, compressed (`packed.rs`).
    pub(crate) packed: bool,
}

/// Its file's name below the directory that the volume and the vnode choose.
pub(crate) fn file_name(name: BodyName) -> String {
    let end = if name.packed { PACKED } else { "" };
    format!("{:x}.{:x}.{:x}{end}", name.vnode.0, name.epoch, name.generation)
}

/// What names of packed bodies end with.
const PACKED: &str = ".z";

/// Opens a body file, packed or not; `None` if there is none.
pub(crate) fn open_body(disk: &dyn Disk, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>> {
    match disk.open(name)? {
        Some(file) if name.packed => Ok(Some(Arc::new(packed::Packed::open(file)?))),
        file => Ok(file),
    }
}

/// The body that a file belongs to; `None`: to none. Only the name itself is taken, no other form
/// of the same numbers.
pub(crate) fn parse_name(volume: VolumeId, text: &str) -> Option<BodyName> {
    let (numbers, packed) =
        text.strip_suffix(PACKED).map_or((text, false), |numbers| (numbers, true));
    let mut parts = numbers.split('.').map(|part| u64::from_str_radix(part, 16).ok());
    let vnode = VnodeNo(parts.next()??);
    let epoch = parts.next()??;
    let generation = u32::try_from(parts.next()??).ok()?;
    let name = BodyName { volume, vnode, epoch, generation, packed };
    (file_name(name) == text).then_some(name)
}

/// The disk below the bodies. Thread-safe.
pub(crate) trait Disk: Send + Sync {
    /// Makes an empty body file; what has that name (from an update that never committed) is
    /// emptied.
    fn create(&self, name: BodyName) -> io::Result<Arc<dyn BodyFile>>;
    /// Makes a body file with the bytes and holes of another, in place of what has that name (from
    /// an update that never committed). Neither it nor its name need be on disk.
    fn copy(&self, from: BodyName, to: BodyName) -> io::Result<Arc<dyn BodyFile>>;
    /// Opens a body file, as it is; `None` if there is none.
    fn open(&self, name: BodyName) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// Removes a body file; fine if there is none.
    fn remove(&self, name: BodyName) -> io::Result<()>;
    /// The names of a volume's body files; of unreadable ones the text.
    fn list(
        &self,
        volume: VolumeId,
        visit: &mut dyn FnMut(Result<BodyName, String>),
    ) -> io::Result<()>;
    /// Removes up to `max` of a volume's body files, and at last what else was made for it; says
    /// how many files, fewer than `max` at the end.
    fn clear(&self, volume: VolumeId, max: usize) -> io::Result<usize>;
    /// The directory entry of a body file is on disk, or that there is none any more.
    fn sync_name(&self, name: BodyName) -> Result<(), StoreError>;
    /// Every body file and its name is on disk.
    fn sync_all(&self) -> Result<(), StoreError>;
    /// Whether somebody else has the file open for writing, or mapped so. Whoever asks has closed
    /// it.
    fn is_written(&self, name: BodyName) -> io::Result<bool>;
    /// Whether its files have descriptors to hand out.
    fn has_descriptors(&self) -> bool;
    /// Makes an empty file that is no body yet.
    fn make_blank(&self, name: BlankName) -> io::Result<Arc<dyn BodyFile>>;
    /// Opens one; `None` if there is none.
    fn open_blank(&self, name: BlankName) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// All of them.
    fn blanks(&self) -> io::Result<Vec<BlankName>>;
    /// Makes one a body file too, in place of what has that name (from an update that never
    /// committed); `None`: there is no such blank.
    fn adopt_blank(
        &self,
        blank: BlankName,
        body: BodyName,
    ) -> io::Result<Option<Arc<dyn BodyFile>>>;
    /// Takes its name as a blank away; fine if there is none.
    fn remove_blank(&self, name: BlankName) -> io::Result<()>;
    /// Room.
    fn space(&self) -> io::Result<Space>;
    /// Changes with each start of the operating system.
    ///
    /// # Errors
    /// The system's. No boot is known by an empty name.
    fn boot_id(&self) -> io::Result<String>;
    /// Remembers for the rest of this boot that a sync failed, also where the disk takes nothing
    /// more.
    fn note_sync_failed(&self);
    /// Whether that was noted.
    fn has_sync_failed(&self) -> bool;
    /// A new verifier is stable, so the note has done its work.
    fn forget_sync_failed(&self);
}

/// What tells one state of a file from another: each change changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) length: u64,
    /// Times of modification and change, in nanoseconds, or counters.
    pub(crate) times: [i128; 2],
}

/// Frames of a packed body that follow each other.
pub(crate) struct Frames {
    /// Bytes of each; 0: the chunk is all zeros, and has none.
    pub(crate) lengths: Vec<u32>,
    /// One behind the other.
    pub(crate) bytes: Bytes,
}

/// One open body file. Thread-safe.
pub(crate) trait BodyFile: Send + Sync {
    /// Reads into all of `buffer`; says how many bytes there were before the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// The frames of these chunks, if the body is packed and has them, and they are fewer bytes
    /// than that.
    fn frames(&self, _chunks: Range<u64>, _below: u64) -> io::Result<Option<Frames>> {
        Ok(None)
    }
    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Writes all of `data` at the end; says where. One step for everybody who appends.
    fn append(&self, data: &[u8]) -> io::Result<u64>;
    /// The length.
    fn length(&self) -> io::Result<u64>;
    /// Cuts or grows.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Grows to at least this length; never cuts.
    fn extend(&self, length: u64) -> io::Result<()>;
    /// On return no page is writable through a map without a fault, which changes the state.
    fn settle_maps(&self) -> io::Result<()>;
    /// Its state.
    fn stamp(&self) -> io::Result<Stamp>;
    /// The next run of bytes at or behind `from` that are no hole.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>>;
    /// Makes a hole; the length stays.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Reserves room; the length stays.
    fn reserve(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Whether anything was ever written into the range.
    fn has_data(&self, offset: u64, length: u64) -> io::Result<bool>;
    /// Data and length are on disk.
    fn sync(&self) -> Result<(), StoreError>;
    /// A read-only descriptor of the same file, where there is such a thing.
    fn descriptor(&self) -> io::Result<Option<OwnedFd>>;
}
