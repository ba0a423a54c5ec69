//! A cell on one machine, for the programs that work on it.
//!
//! The cell's directory (`cell`) and access to its files (`privacy`), processes that outlive the
//! command which started them (`daemon`), the kernel's mounts (`mounts`), and queries of a running
//! server (`ask`). `failure` has the errors of commands, and `show` their output: tables for
//! people, JSON for programs. This crate has no commands, and stores and serves no files. The
//! commands and `bench` depend on it.

pub mod ask;
pub mod cell;
pub mod daemon;
pub mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod mounts;
pub mod privacy;
pub mod show;
