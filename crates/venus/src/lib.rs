//! The cache manager: a file system in fids which answers from its cache while the server's
//! promises hold.
//!
//! The walk of a request: `mount` calls an operation of [`Venus`] (`lookup`, `change`, `listing`,
//! `open`, `read`, `write`, `locks`). The operation reads `node_tables` (statuses and names under
//! promises) or `file_data` (a file's bytes). One call fetches a missing value; its answer is
//! entered if no break overtook it (CB-3). `events` receives the breaks. The client answers changes
//! that a delegation covers itself (`delegation`, `local_answers`) and sends them later (`journal`,
//! `flush`).
//!
//! # Locks
//! They are taken in this order. None is held over a call to the server or to [`KernelPort`], or
//! over a wait for another thread's call:
//!
//! 1. `opens`, `dirs`, one handle's `sequence` (each alone); one file's `choice`, which alone is
//!    held over calls (`passthrough.rs`)
//! 2. one pinned body (`cache_body.rs`), then one file's `data`
//! 3. `tables`
//! 4. `gate`; one directory handle's `progress` or `early`
//! 5. a file's `scratch`, the `blanks`, the journal, `cuts`, `chores`, a [`budget`](crate::budget)
//!    pot, `space`, the disk cache's index (leaves)
//!
//! So a break, which takes `tables`, `gate` and `data` in turn, never waits for a call in flight.

// A library reports through `tracing` and its results; it does not print.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access_pattern;
mod admission;
mod attach_body;
mod budget;
mod cache_body;
mod cache_body_sync;
mod change;
mod compact_nodes;
mod config;
mod core;
mod delegation;
mod dir_names;
mod dir_prefetch;
mod direct_body;
mod disk_cache;
mod dynroot;
mod effective_identity;
mod entry_invalidation;
mod error;
mod events;
mod extents;
mod file_data;
mod flush;
mod free_space;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod janitor;
mod journal;
mod journal_writes;
mod kernel_port;
mod listing;
mod local_answers;
mod locks;
mod lookup;
mod mount_shared;
mod mountpoint;
mod node_tables;
mod nodes;
mod open;
mod other_cells;
mod passthrough;
mod pool;
mod preallocated;
mod read;
mod read_ahead;
mod read_cache;
mod request;
mod result;
mod rights;
mod seek;
mod server_instance;
mod snapshots;
mod unstable_metadata;
mod unstable_writes;
mod venus;
mod verified_blocks;
mod volume_summary;
mod volumes;
mod write;

pub use config::VenusConfig;
pub use dynroot::{DYNROOT, Dynroot, KnownCells};
pub use error::Error;
pub use kernel_port::{Backing, KernelPort, NoKernel};
pub use other_cells::{CellOpener, Neighbours};
pub use request::RequestContext;
pub use result::{
    Attributes, DirHandle, DirListing, EntryReply, ListEntry, LookupReply, OpenHandle, OpenMode,
    OpenReply, PassthroughState, Stamp, Wrote,
};
pub use rights::somebody;
pub use venus::Venus;
pub use volume_summary::VolumeSummary;
pub use volumes::Volumes;
