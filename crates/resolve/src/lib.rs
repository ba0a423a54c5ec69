//! Finds the servers of a cell in DNS.
//!
//! Takes the name of a cell and returns endpoints that `client` can dial, the best first.
//! [`CellsOfDns`] (`srv.rs`) reads the records of a cell and caches them for their lifetime;
//! `dns.rs` asks name servers one question and knows nothing of cells. The commands read the files
//! that name cells (`cells.toml`), and ask here about other cells. Only the commands depend on this
//! crate.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod dns;
mod srv;

pub use srv::CellsOfDns;
