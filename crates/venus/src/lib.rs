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

mod base;
mod cache;
mod core;
mod data;
mod delegation;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod names;
mod ops;
mod passthrough;
mod prefetch;
mod reading;
mod session;
mod volumes;
mod writeback;

pub use base::config::VenusConfig;
pub use base::error::Error;
pub use base::kernel_port::{Backing, KernelPort, NoKernel};
pub use base::request::RequestContext;
pub use base::result::{
    Attributes, DirHandle, DirListing, EntryReply, ListEntry, LookupReply, OpenHandle, OpenMode,
    OpenReply, PassthroughState, Stamp, Wrote,
};
pub use ops::rights::somebody;
pub use ops::venus::Venus;
pub use volumes::dynroot::{DYNROOT, Dynroot, KnownCells};
pub use volumes::volume_summary::VolumeSummary;
pub use volumes::volumes::{CellOpener, Neighbours, Volumes};
