//! Parts of a volume that is put together vnode by vnode.

use bytes::Bytes;

use crate::{Kind, Name, Timestamp, Uniquifier, VnodeNo};

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
