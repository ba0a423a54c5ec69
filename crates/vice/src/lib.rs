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
mod authorization;
mod quota_charge;
mod unpoisoned;
mod principal_lookups;
mod open_rights;
mod quota_reservation;
mod fences;
mod service;
mod completion;
mod reply_cache;
mod anonymous_sessions;
mod lock_stripes;
mod volumes;
mod waiting_calls;
mod identity_cache;
mod audit_events;

pub use access::Principals;
pub use config::ViceConfig;
pub use effect::Effect;
pub use principal_lookups::{Lookup, LookupHook};
pub use service::{Attached, Vice};
pub use volumes::{TransferAgent, Fetch, Partitions, Tasks, Unanswered, Work};
pub use audit_events::AuditLog;
