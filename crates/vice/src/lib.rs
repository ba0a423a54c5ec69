//! The file service without sockets, clocks or threads: every rule of access and of POSIX lives here.
//!
//! A driver hands requests to [`Vice::perform`] and gets [`Effect`]s back: replies, breaks of promises, ended sessions.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod calls;
mod change;
mod config;
mod effect;
mod gate;
mod growth;
mod guarded;
mod lookups;
mod opened;
mod room;
mod rules;
mod service;
mod settle;
mod slots;
mod strangers;
mod stripes;
mod volumes;
mod waiting;
mod whose;
mod witness;

pub use access::Principals;
pub use config::ViceConfig;
pub use effect::Effect;
pub use lookups::{Lookup, LookupHook};
pub use service::{Attached, Vice};
pub use volumes::{Errands, Fetch, Partitions, Tasks, Unanswered, Work};
pub use witness::Witness;
