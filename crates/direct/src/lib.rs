//! Files of a cell without a mount and without the kernel's page cache.
//!
//! A program names memory, and the server moves the bytes there, or fetches them from there. On the
//! server's own host both map that memory: a read costs one copy and, while there is work, no
//! system call on either side. `docs/spec/direct-access.md` has the model.
//!
//! ```no_run
//! use rialto_client::{DirectConnection, DirectFile, Group};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = DirectConnection::connect("unix:/run/rialto/cell.sock")?;
//! let file = DirectFile::open(&connection, "home", "data/matrix")?;
//! let memory = connection.memory(64 << 20)?;
//! let group = Group::new(&connection);
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
//! - `file`: operations on one file
//! - `group`: where operations complete
//! - `connection`: a session with a server, and its memory
//! - `error`: why an operation failed

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod connection;
mod error;
mod file;
mod group;

pub use connection::{DirectConnection, Memory};
pub use error::DirectError;
pub use file::{DirectFile, NotBegun};
pub use group::{Completion, Group, MovedBytes};
pub use mem::arena::Buffer;
