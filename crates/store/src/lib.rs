//! What lies on a partition: volumes, vnodes, entries, bodies and epochs, on a key-value engine and plain files.
//!
//! `docs/store.md` is the layout. A [`Partition`] is opened on a directory, or on a [`MemMachine`] that can lose its power.
//! A [`Volume`] reads records and bodies, and changes them in two steps: its methods gather what they do in an
//! [`Update`] (body bytes go to their file at once), and [`Volume::commit`] applies the update as one atomic batch.
//! The caller serialises the writers of one vnode; readers need no help.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod aside;
mod below;
mod blank;
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
mod info;
mod key;
mod lent;
mod machine;
mod media;
mod origin;
mod pack;
mod partition;
mod reader;
mod record;
mod removal;
mod resident;
mod room;
mod scrub;
mod sessions;
mod settle;
mod strays;
mod stream;
mod sums;
#[cfg(test)]
mod tests;
mod tidy;
mod together;
mod tree;
mod trunk;
mod update;
mod vnode;
mod volume;

pub use below::Compression;
pub use blank::BlankName;
pub use cipher::Rewrapped;
pub use clone::NewClone;
pub use error::{OpenError, StoreError};
pub use fork::NewFork;
pub use format::{FORMAT_VERSION, Format, check_format};
pub use info::{VolumeFields, VolumeInfo};
pub use machine::MemMachine;
pub use media::Gathering;
pub use partition::{OpenOptions, Partition, PartitionConfig, Space};
pub use reader::Reader;
pub use room::Room;
pub use scrub::{FINDINGS_MAX, Finding, ScrubProgress, ScrubReport};
pub use sessions::{SessionRecord, StoredReply};
pub use stream::{FinishAs, IncomingInfo, PART_BYTES_MIN, Standing, StreamHead, StreamPart};
pub use update::Update;
pub use vnode::{DIRECTORY_BYTES, Entry, Place, Target, Vnode};
pub use volume::{NewRoot, Quota, Usage, Volume};

/// Bytes of a block: what has one checksum, and the unit in which body files are charged.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// A body up to here is kept inline.
pub const INLINE_BYTES_MAX: u64 = BLOCK_BYTES;
/// Names of one directory that may share a hash.
pub const BUCKET_ENTRIES_MAX: usize = 16;
