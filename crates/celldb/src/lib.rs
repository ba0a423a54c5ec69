//! The cell's shared records: volume locations, servers, and the numbers of volumes.
//!
//! Model. A cell has one database, and every change of it has a *revision*, the next number. A
//! record carries the revision of its last change, and a caller who changes it names the one that
//! it read: if another caller changed it meanwhile, the change fails and nothing is overwritten
//! unseen (`Conflict`). The changes since a revision can be read, so that servers and clients that
//! cache records learn which ones to drop. [`Embedded`] has it in a directory of one server,
//! [`Etcd`] in etcd, where each server reads and changes it: Rialto has no consensus of its own.
//! [`RemoteCellDb`] is the database of another server, through sessions with it; [`Migration`]
//! moves a database between the first two.
//!
//! A change is on disk before its call returns. Names and numbers are unique in the cell: a change
//! that would use one twice is refused.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access;
pub mod backup;
mod copy;
mod embedded;
mod engine;
mod error;
mod etcd;
mod following;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod key;
mod listeners;
mod migrate;
mod operations;
mod reading;
mod record;
pub mod remote;
mod restore;
#[cfg(test)]
mod tests;

pub use access::{Access, News};
pub use copy::{CELL_VALUE_BYTES_MAX, CellCopy, CopyCursor, CopyPart, CopySink, copy_records};
pub use embedded::Embedded;
pub use error::CellError;
pub use etcd::{Etcd, EtcdConfig, EtcdMember, EtcdMemberState};
pub use following::{AWAY_MAX, Following, roles_text};
pub use format::{FORMAT_VERSION, check_format};
pub use migrate::{Migrated, Migration};
pub use operations::need_standbys_level;
pub use record::RecordKind;
pub use remote::RemoteCellDb;
pub use restore::{Restored, Restoring};

use types::{Changed, Name, Revised, Revision, ServerId, ServerInfo, VolumeGroup, VolumeId};

/// The highest level of a cell that this program knows (docs/spec/versions.md).
pub const CELL_LEVEL_KNOWN: u32 = 2;

/// The interface of every engine. Thread-safe.
pub trait CellDb: Send + Sync {
    /// The group with this base name.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; so for every method that reads.
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>, CellError>;

    /// The group that this number belongs to, as read-write, read-only or backup volume.
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>, CellError>;

    /// Up to `max` groups whose read-write numbers are above `after`, in their order.
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>, CellError>;

    /// Creates (`expected` 0) or changes the group with this read-write number; returns its new
    /// revision.
    ///
    /// # Errors
    /// `Conflict` if it is not at `expected`; `Taken` if another group has its name or one of its
    /// numbers; `Medium`.
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision, CellError>;

    /// Removes a group.
    ///
    /// # Errors
    /// `Conflict`, `Medium`.
    fn remove_group(&self, read_write: VolumeId, expected: Revision)
    -> Result<Revision, CellError>;

    /// The first of `count` consecutive numbers that no volume ever had or will get again; all are
    /// above `above`, the highest that the caller has seen: volumes may be older than the database.
    ///
    /// # Errors
    /// `Medium`; `Misuse` if there are no more.
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId, CellError>;

    /// Every server, by its id.
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>, CellError>;

    /// Creates (`expected` 0) or changes a server.
    ///
    /// # Errors
    /// `Conflict`, `Medium`.
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision, CellError>;

    /// Removes a server.
    ///
    /// # Errors
    /// `Conflict`, `Medium`.
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision, CellError>;

    /// The revision of the last change.
    fn revision(&self) -> Result<Revision, CellError>;

    /// The changes after `since`, the oldest first, up to `max`; a record appears once for each of
    /// its changes.
    ///
    /// # Errors
    /// `Forgotten` if changes that old are no longer stored: then everything may have changed;
    /// `Medium`.
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>, CellError>;

    /// Begins a copy of all records as of the present revision; [`copy_records`] reads it whole.
    ///
    /// # Errors
    /// `Medium`; `Away` where another server has the database.
    fn copy(&self) -> Result<Box<dyn CellCopy>, CellError>;

    /// Principals and rules.
    fn access(&self) -> &dyn Access;
}
