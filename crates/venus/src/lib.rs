//! The cache manager: a file system in fids that answers from its cache while the server's promises hold.
//!
//! The walk of a request: `mount` calls an operation of [`Venus`] (`look`, `change`, `list`, `open`, `read`, `write`,
//! `locks`); the operation asks the `tables` (statuses and names under promises) or a `file` (its bytes); what is not there is
//! fetched with one call, and the answer is entered if no break overtook it (CB-3). Breaks come in through `events`.
//! Changes that a delegation covers are answered here (`delegate`, `lend`) and sent later (`journal`, `flush`).
//!
//! # Locks
//! In this order, and none is held over a call to the server, to [`Invalidate`], or over a wait for another thread's call:
//!
//! 1. `opens`, `dirs`, one handle's `sequence` (each alone); one file's `choice`, which alone is held over calls (`pass.rs`)
//! 2. one pinned body (`cached.rs`), then one file's `data`
//! 3. `tables`
//! 4. `gate`; one directory handle's `progress` or `early`
//! 5. a file's `scratch`, the `blanks`, the journal, `cuts`, `chores`, a [`budget`](crate::budget) pot, `space`, the disk cache's index (leaves)
//!
//! So a break, which takes `tables`, `gate` and `data` in turn, never waits for a call in flight.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod volume_summary;
mod attach_body;
mod read_ahead;
mod preallocated;
mod direct_body;
mod budget;
mod cache_body;
mod change;
mod mount_shared;
mod config;
mod local_answers;
mod disk_cache;
mod dynroot;
mod error;
mod events;
mod extents;
mod file_data;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod kernel_port;
mod janitor;
mod journal;
mod unstable_writes;
mod verified_blocks;
mod admission;
mod delegation;
mod listing;
mod access_pattern;
mod server_instance;
mod locks;
mod lookup;
mod mountpoint;
mod dir_names;
mod other_cells;
mod nodes;
mod open;
mod passthrough;
mod cache_body_sync;
mod compact_nodes;
mod pool;
mod read;
mod read_cache;
mod request;
mod result;
mod rights;
mod journal_writes;
mod seek;
mod core;
mod dir_prefetch;
mod snapshots;
mod free_space;
mod entry_invalidation;
mod effective_identity;
mod node_tables;
mod unstable_metadata;
mod venus;
mod volumes;
mod write;

pub use volume_summary::VolumeSummary;
pub use config::VenusConfig;
pub use dynroot::{DYNROOT, Dynroot, KnownCells};
pub use error::Error;
pub use kernel_port::{Backing, KernelPort, NoKernel};
pub use other_cells::{Neighbours, CellOpener};
pub use request::RequestContext;
pub use result::{
    Attributes, DirHandle, EntryReply, LookupReply, OpenHandle, ListEntry, DirListing, OpenMode, OpenReply, Passthrough, Stamp, Wrote,
};
pub use rights::somebody;
pub use venus::Venus;
pub use volumes::Volumes;
