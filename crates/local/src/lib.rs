//! A cell as one machine has it, for the programs that work on it.
//!
//! The cell's directory (`cell`) and access to what lies in it (`privacy`), processes that outlive
//! the command which started them (`daemon`), what the kernel has mounted (`mounts`), and
//! questions to a server that runs (`ask`). `failure` is how an error of a command reads, and
//! `show` is what a command prints: tables for people, JSON for programs. Nothing here is a
//! command, and nothing here stores or serves a file. The commands and `bench` depend on this
//! crate.

pub mod ask;
pub mod cell;
pub mod daemon;
pub mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod mounts;
pub mod privacy;
pub mod show;
