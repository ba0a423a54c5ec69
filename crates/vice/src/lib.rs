//! The file service without sockets, clocks or threads: all rules of access and of POSIX are here.
//!
//! A driver passes requests to [`Vice::perform`] and gets [`Effect`]s back: replies, breaks of
//! promises, ended sessions.
//!
//! Layers, from top to bottom:
//!
//! - `service`: the interface of the driver
//! - `runner`: executes a call to its end, also one that waits
//! - `dispatch`: from a call to its function
//! - `report`, `parts`: the report of the server; the parts that the driver provides
//! - `standby`: volumes that are fed to standbys, and volumes elsewhere that are followed
//! - `admin`: administrators' calls on volumes, moves and transfers
//! - `calls`: the other calls
//! - `gate`, `enforcement`, `audit`: which calls a caller may make, and their reports
//! - `files`: locks of vnodes, promises and changes, quotas
//! - `access`: rights on files
//! - `sessions`: leases, requests and records of sessions, and their bodies, slots and rights
//! - `call`: one execution of a call
//! - `cell`, `volumes`: the database, callers' identities and rules; partitions and volumes
//! - `base`, `config`, `effect`: tools, settings, orders to the driver

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
mod standby;
mod volumes;

pub use admin::{Fetch, Tasks, TransferAgent, Unanswered, Work};
pub use audit::AuditLog;
pub use call::Execution;
pub use cell::{CellAccess, CellOpening, Identities, Lookup, LookupHook, Principals};
pub use config::ViceConfig;
pub use effect::Effect;
pub use parts::{ScrubHook, ViceParts};
pub use service::{Vice, assemble, may_block, refuses_afs};
pub use sessions::Attached;
pub use standby::{Followers, StandbyAgent, StandbyQuestion, StandbyWork};
pub use volumes::{Partitions, VolumeAssembly};
