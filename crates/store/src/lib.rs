//! The store of a partition: volumes, vnodes, directory entries, bodies and epochs, on a key-value
//! engine and plain files.
//!
//! `docs/spec/store.md` describes the layout. A [`Partition`] is opened on a directory, or on a
//! [`MemMachine`] that simulates power loss. A [`Volume`] reads records and bodies, and changes
//! them in two steps: its methods collect changes in an [`Update`] (body bytes go to their file at
//! once), and [`Volume::commit`] applies the update as one atomic batch. The caller serialises the
//! writers of one vnode; readers need no serialisation.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod bodies;
mod body;
mod body_loans;
mod body_sync;
mod bucket;
mod catalog;
mod cipher;
mod clone;
mod copy_on_write;
mod disk;
mod engine;
mod error;
mod fork;
mod format;
mod free_space;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod header;
mod host_fs;
mod key;
mod loaded_volumes;
mod machine;
mod media;
mod origin;
mod orphan_bodies;
mod pack;
mod partition;
mod preallocated;
mod reader;
mod record;
mod removal;
mod scrub;
mod sessions;
mod shared_run;
mod stream;
mod sums;
#[cfg(test)]
mod tests;
mod tree;
mod tree_state;
mod update;
mod version_collection;
mod vnode;
mod volume;
mod volume_facts;

pub use cipher::Rewrapped;
pub use clone::NewClone;
pub use error::{OpenError, StoreError};
pub use fork::NewFork;
pub use format::{FORMAT_VERSION, Format, check_format};
pub use free_space::SpaceLevel;
pub use host_fs::Compression;
pub use machine::MemMachine;
pub use media::CommitScope;
pub use partition::{OpenOptions, Partition, PartitionConfig, Space};
pub use preallocated::BlankName;
pub use reader::BodyReader;
pub use scrub::{FINDINGS_MAX, ScrubFinding, ScrubProgress, ScrubReport};
pub use sessions::{SessionRecord, StoredReply};
pub use stream::{FinishAs, IncomingInfo, IncomingState, PART_BYTES_MIN, StreamHead, StreamPart};
pub use update::Update;
pub use vnode::{BodyLocation, DIRECTORY_BYTES, EntryTarget, StoredEntry, Vnode};
pub use volume::{NewRoot, Usage, Volume, VolumeQuota};
pub use volume_facts::{VolumeFacts, VolumeFields};

/// Bytes of a block: the unit of checksums, and the unit in which body files are charged.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// The longest body that is kept inline, in bytes.
pub const INLINE_BYTES_MAX: u64 = BLOCK_BYTES;
/// The most names of one directory that may share a hash.
pub const BUCKET_ENTRIES_MAX: usize = 16;
