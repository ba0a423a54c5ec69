//! The file service without sockets, clocks or threads: all rules of access and of POSIX are here.
//!
//! A driver passes requests to [`Vice::perform`] and gets [`Effect`]s back: replies, breaks of
//! promises, ended sessions.
//!
//! Layers, the lower ones first; each imports only lower ones: `base`; `cell` (the database,
//! identities of callers, rules); `volumes`; `access` (rights on files); `sessions` (leases,
//! requests, records); `files` (locks of vnodes, changes, quotas); `gate`, `enforcement`, `audit`
//! (which calls a caller may make, and their reports); `calls`, `admin` (the calls); `dispatch`,
//! `runner`, `service`.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod admin;
mod audit;
mod base;
mod call;
mod calls;
mod cell;
mod config;
mod dispatch;
mod effect;
mod enforcement;
mod files;
mod gate;
mod parts;
mod report;
mod runner;
mod service;
mod sessions;
mod volumes;

pub use admin::{Fetch, Tasks, TransferAgent, Unanswered, Work};
pub use audit::AuditLog;
pub use cell::{CellAccess, CellOpening, Identities, Lookup, LookupHook, Principals};
pub use config::ViceConfig;
pub use effect::Effect;
pub use parts::{ScrubHook, ViceParts};
pub use service::Vice;
pub use sessions::Attached;
pub use volumes::Partitions;
