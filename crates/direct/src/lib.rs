//! Files of a cell without a mount and without the kernel's page cache.
//!
//! A program names memory, and the server moves the bytes there, or fetches them from there. On the
//! server's own host both map that memory: a read costs one copy and, while there is work, no
//! system call on either side. `docs/spec/direct-access.md` has the model.
//!
//! ```no_run
//! use rialto_client::{DirectOptions, DirectCell, DirectFile, Group};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cell = DirectCell::connect(DirectOptions::new("unix:/srv/rialto/server.sock".parse()?))?;
//! let file = DirectFile::open(&cell, "data/matrix")?;
//! let memory = cell.memory(64 << 20)?;
//! let group = Group::new();
//! for part in 0..32 {
//!     let buffer = memory.buffer(1 << 20).expect("there is room for 64");
//!     file.read(&group, buffer, part << 20, part)?;
//! }
//! for completion in group.wait(32, None) {
//!     println!("part {}: {} bytes", completion.tag, completion.result?.bytes);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Layers, from top to bottom:
//!
//! - `directory`, `stream`: names and listings; files as streams
//! - `sharing`: opens, keys and locks, as a program has them
//! - `file`: operations on one file
//! - `group`: where operations complete
//! - `path`: from names to files, through mount points
//! - `hold`: the calls by which a file gets and gives up an open and locks
//! - `cell`: sessions with servers, and memory
//! - `claims`: the opens and locks that the program has, over restarts and moves
//! - `error`: why an operation failed

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod cell;
mod claims;
mod directory;
mod error;
mod file;
mod group;
mod hold;
mod path;
mod sharing;
mod stream;
#[cfg(test)]
mod tests;

pub use cell::{DirectCell, DirectOptions, Memory};
pub use directory::{
    DirectEntry, link_target, list, make_directory, make_link, remove, rename, status,
};
pub use error::DirectError;
pub use file::{DirectFile, NotBegun};
pub use group::{Completion, Group, MovedBytes};
pub use mem::arena::Buffer;
pub use sharing::{FileLock, MakeFile, OpenHow, PersistentLock};
pub use stream::{FileReader, FileWriter};
pub use types::{ByteRange, DataUse, LockConflict, LockMode, LockOwner, ShareKey};
