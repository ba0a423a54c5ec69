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

mod about;
mod adopt;
mod ahead;
mod blank;
mod body;
mod budget;
mod cached;
mod change;
mod common;
mod config;
mod delegate;
mod disk;
mod dynroot;
mod error;
mod events;
mod extents;
mod file;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod invalidate;
mod janitor;
mod journal;
mod kept;
mod known;
mod leftout;
mod lend;
mod list;
mod lists;
mod lives;
mod locks;
mod look;
mod mountpoint;
mod names;
mod neighbours;
mod nodes;
mod open;
mod pass;
mod pinned;
mod plain;
mod pool;
mod read;
mod reads;
mod request;
mod result;
mod rights;
mod seal;
mod seek;
mod shared;
mod siblings;
mod snapshots;
mod space;
mod spare;
mod standing;
mod tables;
mod unsaved;
mod venus;
mod volumes;
mod write;

pub use about::VolumeSummary;
pub use config::VenusConfig;
pub use dynroot::{DYNROOT, Dynroot, KnownCells};
pub use error::Error;
pub use invalidate::{Backing, Invalidate, NoKernel};
pub use neighbours::{Neighbours, CellOpener};
pub use request::RequestContext;
pub use result::{
    Attributes, DirHandle, EntryReply, LookupReply, Handle, ListEntry, DirListing, OpenMode, Opened, Passthrough, Stamp, Wrote,
};
pub use rights::somebody;
pub use venus::Venus;
pub use volumes::Volumes;
