//! What lies on a partition: volumes, vnodes, entries, bodies and epochs, on a key-value engine and plain files.
//!
//! `docs/store.md` is the layout. A [`Partition`] is opened on a directory, or on a [`MemMachine`] that can lose its power.
//! A [`Volume`] reads records and bodies, and changes them in two steps: its methods gather what they do in an
//! [`Update`] (body bytes go to their file at once), and [`Volume::commit`] applies the update as one atomic batch.
//! The caller serialises the writers of one vnode; readers need no help.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod copy_on_write;
mod host_fs;
mod preallocated;
mod bodies;
mod body;
mod bucket;
mod catalog;
mod cipher;
mod clone;
mod disk;
mod engine;
mod error;
mod fork;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod group;
mod header;
mod volume_facts;
mod key;
mod body_loans;
mod machine;
mod media;
mod origin;
mod pack;
mod partition;
mod reader;
mod record;
mod removal;
mod loaded_volumes;
mod free_space;
mod scrub;
mod sessions;
mod body_sync;
mod orphan_bodies;
mod stream;
mod sums;
#[cfg(test)]
mod tests;
mod version_collection;
mod shared_run;
mod tree;
mod tree_state;
mod update;
mod vnode;
mod volume;

pub use host_fs::Compression;
pub use preallocated::BlankName;
pub use cipher::{KEY_BYTES, KeyKeeper, Rewrapped, TreeKey};
pub use clone::NewClone;
pub use error::{OpenError, StoreError};
pub use fork::NewFork;
pub use format::{FORMAT_VERSION, Format, check_format};
pub use volume_facts::{VolumeFields, VolumeFacts};
pub use machine::MemMachine;
pub use media::CommitScope;
pub use partition::{OpenOptions, Partition, PartitionConfig, Space};
pub use reader::BodyReader;
pub use free_space::SpaceLevel;
pub use scrub::{FINDINGS_MAX, ScrubFinding, ScrubProgress, ScrubReport};
pub use sessions::{SessionRecord, StoredReply};
pub use stream::{FinishAs, IncomingInfo, PART_BYTES_MIN, IncomingState, StreamHead, StreamPart};
pub use update::Update;
pub use vnode::{DIRECTORY_BYTES, StoredEntry, BodyLocation, EntryTarget, Vnode};
pub use volume::{NewRoot, VolumeQuota, Usage, Volume};

/// Bytes of a block: what has one checksum, and the unit in which body files are charged.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// A body up to here is kept inline.
pub const INLINE_BYTES_MAX: u64 = BLOCK_BYTES;
/// Names of one directory that may share a hash.
pub const BUCKET_ENTRIES_MAX: usize = 16;
