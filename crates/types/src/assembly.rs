//! Parts of a volume that is put together vnode by vnode.

use bytes::Bytes;

use crate::{Fault, Kind, Name, Timestamp, Uniquifier, VnodeNo};

/// A vnode that comes in with the number that it has elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComingVnode {
    /// Its number: odd for directories.
    pub vnode: VnodeNo,
    /// Its uniquifier.
    pub unique: Uniquifier,
    /// Its kind.
    pub kind: Kind,
    /// Mode bits.
    pub mode: u16,
    /// Owner and group.
    pub owner: (u32, u32),
    /// The version of its contents elsewhere.
    pub data_version: u64,
    /// The last change of its contents.
    pub modified: Timestamp,
    /// The last change.
    pub changed: Timestamp,
    /// The encoded access list of a directory that has its own.
    pub list: Option<Bytes>,
}

/// An entry of a directory that comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComingEntry {
    /// Its name.
    pub name: Name,
    /// The vnode that it names.
    pub vnode: VnodeNo,
    /// That one's uniquifier.
    pub unique: Uniquifier,
}

/// Counts of a volume that was put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblyReport {
    /// Vnodes that the volume has now.
    pub vnodes: u64,
    /// Entries that were left out, because they name nothing, or a directory a second time.
    pub bad_entries: u64,
    /// Vnodes that were removed, because no entry names them.
    pub unnamed: u64,
}

/// A volume that is put together while it is offline. After an error it has a part of its contents.
pub trait Assembly {
    /// A vnode that is here stays as it is.
    ///
    /// # Errors
    /// `Invalid`: it is not here; the store's.
    fn stays(&mut self, vnode: VnodeNo, unique: Uniquifier) -> Result<(), Fault>;

    /// A vnode comes in, or changes. It has no contents then, except that a directory keeps its
    /// entries until the end.
    ///
    /// # Errors
    /// `Invalid`: its number does not fit its kind; `Busy`: the volume is in service; the store's.
    fn put(&mut self, coming: &ComingVnode) -> Result<(), Fault>;

    /// Bytes of a file, or the target of a link, behind those that came before. Zeros become a
    /// hole.
    ///
    /// # Errors
    /// `Stale`: there is no such vnode; `Busy`: the volume is in service; the store's.
    fn write(&mut self, vnode: VnodeNo, offset: u64, data: &[u8]) -> Result<(), Fault>;

    /// All entries of a directory.
    ///
    /// # Errors
    /// `NoSpace`: there is no memory for so many.
    fn set_entries(&mut self, dir: VnodeNo, entries: Vec<ComingEntry>) -> Result<(), Fault>;

    /// All is there: vnodes that neither came nor stay are removed, what does not fit together is
    /// left out, and the rest is made stable, as the volume's state of `updated`.
    ///
    /// # Errors
    /// `Busy`: the volume is in service; the store's.
    fn finish(self: Box<Self>, updated: Timestamp) -> Result<AssemblyReport, Fault>;
}
