//! The store of a partition: volumes, vnodes, directory entries, bodies and epochs, on a key-value
//! engine and plain files.
//!
//! `docs/spec/store.md` describes the layout. A [`Partition`] is opened on a directory, or on a
//! [`MemMachine`] that simulates power loss. A [`Volume`] reads records and bodies, and changes
//! them in two steps: its methods collect changes in an [`Update`] (body bytes go to their file at
//! once), and [`Volume::commit`] applies the update as one atomic batch. The caller serialises the
//! writers of one vnode; readers need no serialisation.
//!
//! Layers, from top to bottom; each folder's `mod.rs` has its model:
//!
//! - `fuzzing`, `scrub`: checks of a whole partition
//! - `partition`: all of it behind one type
//! - `standby`: copies that follow each change
//! - `stream`: epochs on their way between partitions
//! - `volume`: volumes, their making and removal
//! - `body`: the bytes of files
//! - `tree`, `sessions`: trees and epochs; records of sessions
//! - `media`: the engine, files, keys, and room
//! - `format`: every byte on disk
//! - `error`: failures

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod body;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod media;
mod partition;
mod scrub;
mod sessions;
mod standby;
mod stream;
#[cfg(test)]
mod tests;
mod tree;
mod volume;

pub use body::{BodyEdit, BodyLoans, BodyReader, Update};
pub use error::{OpenError, StoreError};
pub use format::header::{Usage, VolumeQuota};
pub use format::names::BlankName;
pub use format::record::{SessionRecord, StoredReply};
pub use format::vnode::{BodyLocation, DIRECTORY_BYTES, EntryTarget, StoredEntry, Vnode};
pub use format::{BLOCK_BYTES, BUCKET_ENTRIES_MAX, INLINE_BYTES_MAX};
pub use media::cipher::Rewrapped;
pub use media::format_file::{
    FORMAT_OLDEST, FORMAT_VERSION, Format, PartitionConfig, check_format, format_of_level,
};
pub use media::free_space::{Space, SpaceLevel};
pub use media::health::HealthReport;
pub use media::host_fs::Compression;
pub use media::machine::MemMachine;
pub use media::{CommitScope, WrittenOut};
pub use partition::{OpenOptions, Partition};
pub use scrub::{FINDINGS_MAX, ScrubFinding, ScrubProgress, ScrubReport};
pub use sessions::SessionTable;
pub use standby::{StandbyState, Standbys, TreeFeeds, place_behind};
pub use stream::{
    FinishAs, IncomingInfo, IncomingStreams, PART_BYTES_MIN, StreamHead, StreamPart, changes_part,
    packed_changes_part,
};
pub use tree::SlotAllocator;
pub use tree::facts::{IncomingState, VolumeFacts, VolumeFields};
pub use tree::feed::{Feed, Heir};
pub use volume::clone::NewClone;
pub use volume::fork::NewFork;
pub use volume::set::VolumeSet;
pub use volume::take_over::NewHead;
pub use volume::{NewRoot, VnodeEdit, Volume, vnode_numbers};
