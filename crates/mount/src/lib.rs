//! FUSE: the kernel's requests to venus, venus's invalidations to the kernel, and the only errno
//! table.
//!
//! A request passes [`channel`] (a `read` of `/dev/fuse`) and `workers` (its thread), or `rings`
//! (io_uring), `request` (bytes to a checked [`abi`] struct), `dispatch` (the operation of venus),
//! one of `names`, `files`, `directories`, `status`, `locks` and `xattrs`, and returns through the
//! channel. `invalidation` works in the other direction.
//!
//! Layers, from top to bottom:
//!
//! - `null`, `handler_mount`, `mount`: whole mounts
//! - `dispatch`: from a request to its operation
//! - `xattrs`, `virtual_xattrs`, `directories`, `files`, `names`, `status`: the operations
//! - `task`: a request in progress
//! - `submounts`, `flat_tree`: the two ways to show the volumes below a volume
//! - `mounted_volumes`: the volumes that are mounted below others
//! - `volume_view`, `invalidation`: one volume as a mount shows it, and what the kernel forgets
//! - `access_cache`, `readdir_helper`, `rings`, `succession`, `mounting`, `replier`, `workers`,
//!   `fuzzing`: rights that the kernel checks; records for a successor; transports and threads
//! - `attributes`, `cache_control`, `calling`, `channel`, `connections`, `init`, `interrupts`,
//!   `locks`, `logins`, `mount_options`, `node_records`, `nodes`, `removals`, `request`,
//!   `listings`, `sysname`, `walk`: values, tables and the requests themselves
//! - `abi`, `errno`, `groups`, `signals`: the kernel's interface

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod abi;
mod access_cache;
mod attributes;
mod cache_control;
mod calling;
pub mod channel;
mod connections;
mod directories;
mod dispatch;
mod errno;
mod files;
mod flat_tree;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod groups;
pub mod handler_mount;
mod init;
mod interrupts;
mod invalidation;
mod listings;
mod locks;
mod logins;
mod mount;
mod mount_options;
mod mounted_volumes;
mod mounting;
mod names;
mod node_records;
mod nodes;
pub mod null;
pub mod readdir_helper;
mod removals;
mod replier;
pub mod request;
mod rings;
mod signals;
mod status;
mod submounts;
mod succession;
mod sysname;
mod task;
mod virtual_xattrs;
mod volume_view;
mod walk;
mod workers;
mod xattrs;

pub use connections::{Handler, Urgency};
pub use errno::of_fault as errno_of_fault;
pub use logins::renew_tokens;
pub use mount::{Mount, MountConfig};
pub use mount_options::{AccessTimes, MountOptions};
pub use mounting::MountError;
pub use rings::{URING_SWITCH, offers_uring};
pub use workers::{KernelTransport, WorkersConfig};
