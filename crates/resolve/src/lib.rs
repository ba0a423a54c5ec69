//! Finds the servers of a cell that DNS knows.
//!
//! A name of a cell goes in, endpoints that `client` can dial come out, the best first.
//! [`CellsOfDns`] (`srv.rs`) reads the records of a cell and remembers them as long as they say;
//! `dns.rs` asks name servers one question and knows nothing of cells. The files that name cells
//! (`cells.toml`) are read by the commands, which ask here about cells that no file names. Only the
//! commands depend on this crate.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod dns;
mod srv;

pub use srv::CellsOfDns;
