//! The legacy of a daemon: records and descriptors that outlive it, even if it is killed, for its
//! successor.
//!
//! Model. A *keeper* is a small process that starts the daemon, holds what the daemon gives it, and
//! starts a successor when the daemon ends unasked. Descriptors are held by name ([`Held`] is the
//! keeper's side, [`Keeper`] the daemon's); one of them is the memory of the [`Keep`], the records.
//!
//! Layers, from top to bottom:
//!
//! - `places`: a keeper that starts no daemons
//! - `held`: the keeper's side
//! - `keeper`: the daemon's side
//! - `messages`: their messages
//! - `records`, `kind`: the records

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod held;
mod keeper;
pub mod kind;
mod messages;
mod places;
mod records;

pub use held::{Event, Held};
pub use keeper::Keeper;
pub use places::HeldPlaces;
pub use records::{Keep, Key, RECORD_BYTES_MAX, Record, Words};
