//! A volume: published interface.
#![allow(clippy::unimplemented, unused_variables)]
use std::os::fd::OwnedFd;

use bytes::Bytes;
use types::{AllocateMode, Name, SeekWhat, Timestamp, Uniquifier, VnodeNo, VolumeId};

use crate::{Entry, StoreError, Target, Update, Vnode};

/// Limits of a volume; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// In bytes.
    pub bytes: u64,
    /// In files.
    pub files: u64,
}

/// What a volume uses: the sum over its vnodes (ST-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `used` of every vnode.
    pub bytes: u64,
    /// Vnodes, the root directory included.
    pub files: u64,
}

/// The root directory of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewRoot {
    /// Mode bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All its times.
    pub now: Timestamp,
    /// The volume's quota.
    pub quota: Quota,
}

type Result<T> = std::result::Result<T, StoreError>;

/// One volume of an open partition.
pub struct Volume {}

/// A vnode and its body at one moment: no change of the body commits while it lives. Drop it soon, and never
/// write the same vnode from the thread that holds it.
pub struct Reader {}

impl Reader {
    /// The vnode that the body belongs to.
    pub fn vnode(&self) -> &Vnode {
        unimplemented!()
    }
    /// Up to `length` bytes, fewer only at the end of the body. Verified: `Damaged` if a block fails its sum.
    pub fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        unimplemented!()
    }
    /// The next data or hole at or after `offset`; `None` if there is none before the end (which is a hole), or
    /// `offset` is at or past the end.
    pub fn seek(&self, offset: u64, what: SeekWhat) -> Result<Option<u64>> {
        unimplemented!()
    }
    /// Sums of up to `count` blocks from block `first` on; 0 is a hole. Inline bodies have none.
    pub fn sums(&self, first: u64, count: u32) -> Result<Vec<u32>> {
        unimplemented!()
    }
    /// A read-only descriptor of the body file; `None` if the body is inline (or in memory).
    pub fn open_body(&self) -> Result<Option<OwnedFd>> {
        unimplemented!()
    }
}

impl Volume {
    /// Its number.
    pub fn id(&self) -> VolumeId {
        unimplemented!()
    }
    /// Its name.
    pub fn name(&self) -> &Name {
        unimplemented!()
    }
    /// What it uses now, without I/O.
    pub fn usage(&self) -> Usage {
        unimplemented!()
    }
    /// Its limits, without I/O.
    pub fn quota(&self) -> Quota {
        unimplemented!()
    }
    /// A vnode, as of its last commit.
    pub fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        unimplemented!()
    }
    /// One entry.
    pub fn lookup(&self, dir: VnodeNo, name: &[u8]) -> Result<Option<Entry>> {
        unimplemented!()
    }
    /// Up to `entries_max` entries behind `cookie` (0: from the first), in cookie order; and whether that was the last.
    pub fn read_dir(&self, dir: VnodeNo, cookie: u64, entries_max: usize) -> Result<(Vec<Entry>, bool)> {
        unimplemented!()
    }
    /// A slot that was never used.
    pub fn allocate(&self, directory: bool) -> Result<(VnodeNo, Uniquifier)> {
        unimplemented!()
    }
    /// Makes or replaces an entry (a replaced one keeps its cookie) and counts it in `dir.entries`.
    pub fn put_entry(&self, dir: &mut Vnode, name: &Name, target: Target, update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// Removes an entry; says which, `None` if there is none.
    pub fn remove_entry(&self, dir: &mut Vnode, name: &[u8], update: &mut Update) -> Result<Option<Entry>> {
        unimplemented!()
    }
    /// An attribute's value.
    pub fn xattr(&self, vnode: &Vnode, name: &[u8]) -> Result<Option<Bytes>> {
        unimplemented!()
    }
    /// Names of attributes and the lengths of their values.
    pub fn xattrs(&self, vnode: &Vnode) -> Result<Vec<(Bytes, usize)>> {
        unimplemented!()
    }
    /// Makes or replaces an attribute.
    pub fn put_xattr(&self, vnode: &mut Vnode, name: &[u8], value: &[u8], update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// Removes an attribute; says whether it was there.
    pub fn remove_xattr(&self, vnode: &mut Vnode, name: &[u8], update: &mut Update) -> Result<bool> {
        unimplemented!()
    }
    /// A symbolic link's target.
    pub fn target(&self, vnode: &Vnode) -> Result<Bytes> {
        unimplemented!()
    }
    /// Gives a new symbolic link its target.
    pub fn set_target(&self, vnode: &mut Vnode, target: &[u8], update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// The vnode and its body, consistent with each other. Waits for an update that wrote the body to commit.
    pub fn reader(&self, no: VnodeNo) -> Result<Option<Reader>> {
        unimplemented!()
    }
    /// [`Volume::reader`] and [`Reader::read`] in one; `Gone` if it is not the same file any more.
    pub fn read(&self, vnode: &Vnode, offset: u64, length: usize) -> Result<Bytes> {
        unimplemented!()
    }
    /// [`Volume::reader`] and [`Reader::seek`] in one.
    pub fn seek(&self, vnode: &Vnode, offset: u64, what: SeekWhat) -> Result<Option<u64>> {
        unimplemented!()
    }
    /// Writes `data`. `NoSpace` and `TooBig` are found here. Other readers see it after the commit. If the update
    /// is dropped after this, the blocks' contents are undefined (but not damaged).
    pub fn write(&self, vnode: &mut Vnode, offset: u64, data: &[u8], update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// Cuts or grows the body to `size`.
    pub fn truncate(&self, vnode: &mut Vnode, size: u64, update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// Reserves, zeroes or punches a range.
    pub fn allocate_range(
        &self,
        vnode: &mut Vnode,
        offset: u64,
        length: u64,
        mode: AllocateMode,
        update: &mut Update,
    ) -> Result<()> {
        unimplemented!()
    }
    /// Removes a vnode with body and attributes, and its orphan mark; counts one file less. `vnode` must be current.
    pub fn drop_vnode(&self, vnode: &Vnode, update: &mut Update) -> Result<()> {
        unimplemented!()
    }
    /// Applies `update` as one batch: visible now, kept over the death of the process, durable after the next sync.
    /// `NoSpace` if it adds something and the partition is nearly full.
    pub fn commit(&self, update: Update) -> Result<()> {
        unimplemented!()
    }
    /// The body's data is on disk. Follow with [`crate::Partition::sync`] for the records.
    pub fn sync_body(&self, vnode: &Vnode) -> Result<()> {
        unimplemented!()
    }
    /// Vnodes marked as orphans.
    pub fn orphans(&self) -> Result<Vec<VnodeNo>> {
        unimplemented!()
    }
}
