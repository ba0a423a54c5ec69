//! The file service without sockets, clocks or threads: all rules of access and of POSIX are here.
//!
//! A driver passes requests to [`Vice::perform`] and gets [`Effect`]s back: replies, breaks of
//! promises, ended sessions.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod anonymous_sessions;
mod audit_events;
mod authorization;
mod calls;
mod change;
mod completion;
mod config;
mod effect;
mod fences;
mod identity_cache;
mod lock_stripes;
mod open_rights;
mod principal_lookups;
mod quota_charge;
mod quota_reservation;
mod reply_cache;
mod service;
mod unpoisoned;
mod volumes;
mod waiting_calls;

pub use access::Principals;
pub use audit_events::AuditLog;
pub use config::ViceConfig;
pub use effect::Effect;
pub use principal_lookups::{Lookup, LookupHook};
pub use service::{Attached, Vice};
pub use volumes::{Fetch, Partitions, Tasks, TransferAgent, Unanswered, Work};
