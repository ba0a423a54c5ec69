//! The cache manager: a file system in fids which answers from its cache while the server's
//! promises hold.
//!
//! Layers, from top to bottom; each folder's `mod.rs` has its model:
//!
//! - `volumes`: the volumes of a mount
//! - `ops`, `core`: the operations of [`Venus`], breaks, the janitor
//! - `delegation`: changes of names, answered here or sent; rights
//! - `writeback`: sending and committing
//! - `passthrough`: bodies that the kernel has
//! - `reading`: reads, read-ahead, listings, prefetch
//! - `calls`: calls, the journal before them, what the server may lose
//! - `cache`: bytes that were read or fetched ahead
//! - `session`: the server and its instances; the janitor's list
//! - `names`, `fuzzing`: statuses, names, rights and delegations under promises
//! - `data`: one file's bytes on this machine; the disk cache
//! - `base`: configuration, requests, results, limits, threads and the scheduler, the port to the
//!   kernel
//!
//! The walk of a request: `mount` calls an operation of [`Venus`] (`ops`). It reads `names` or
//! `data`. One call fetches a missing value; its answer is entered if no break overtook it (CB-3).
//! `ops/events.rs` receives the breaks. The client answers changes that a delegation covers itself
//! (`delegation/changes.rs`, `names/local_answers.rs`) and sends them later (`calls/journal.rs`,
//! `calls/flusher.rs`).
//!
//! # Locks
//! They are taken in this order. None is held over a call to the server or to [`KernelPort`], or
//! over a wait for another thread's call:
//!
//! 1. `Handles`, one handle's `sequence` (each alone); one file's `choice`, which alone is held
//!    over calls (`passthrough/backing.rs`)
//! 2. one pinned body (`data/cache_body.rs`), then one file's `data`
//! 3. the tables of `Names`
//! 4. the gate of `Names`; one directory handle's `progress` or `early`
//! 5. a file's `scratch`, `Blanks`, the journal and the `Flusher`'s cuts, `Chores`, a pot
//!    (`base/budget.rs`), `Space`, the disk cache's index, the scheduler (leaves)
//!
//! So a break, which takes the tables, the gate and `data` in turn, never waits for a call in
//! flight.

// A library reports through `tracing` and its results; it does not print.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod base;
mod cache;
mod calls;
mod core;
mod data;
mod delegation;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod names;
mod ops;
mod passthrough;
mod reading;
mod session;
mod volumes;
mod writeback;

pub use base::{
    Attributes, Backing, DirHandle, DirListing, EntryReply, Error, KernelPort, ListEntry,
    LookupReply, NoKernel, OpenHandle, OpenMode, OpenReply, PassthroughState, RequestContext,
    Stamp, VenusConfig, WriteOptions, Wrote,
};
pub use delegation::{AccessRights, Changes, somebody};
pub use names::Identity;
pub use ops::{FileLocks, OpenDirs, Venus, VolumeControl, VolumeSummary, Xattrs};
pub use volumes::{CellOpener, DYNROOT, Dynroot, KnownCells, Neighbours, UnsavedVolume, Volumes};
