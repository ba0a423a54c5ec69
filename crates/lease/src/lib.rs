//! Promises, breaks, holds, locks, opens, leases and grace: [`Leases`] is the server's state
//! machine, [`Holder`] the client's.
//!
//! Neither does I/O, reads a clock or starts a thread: times are arguments, and effects are put
//! into a list of [`Output`]s. `docs/spec/invariants.md` numbers the rules; the assertions here use
//! the numbers.
//!
//! Everything else rests on the lease. A client that sends messages keeps its state; a client that
//! was silent for [`types::limits::LEASE`] stops trusting its cache by itself, and a little later
//! ([`types::limits::LEASE_GRACE`], which covers clocks that run apart) the server ends its
//! session. Nothing but the lease ever ends a promise without the client's knowledge, so a promise
//! needs no time of its own.
//!
//! Layers, from top to bottom:
//!
//! - `leases`: events that concern several of the tables
//! - `limits`: of promises, locks, holds and opens
//! - `sessions`, `promises`, `delegation`, `hold`, `lock`, `opens`, `grace`: the server's tables
//! - `holder`: the client's half
//! - `config`, `output`: settings, and effects of an event

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod config;
mod delegation;
mod grace;
mod hold;
mod holder;
mod leases;
mod limits;
mod lock;
mod opens;
mod output;
mod promises;
mod sessions;

pub use config::{AnonymousConfig, KnownSession, LeaseConfig, Restart};
pub use delegation::Delegations;
pub use hold::Holds;
pub use holder::{CallStart, Holder};
pub use leases::{Leases, Listed, Promised, SessionOpens, TableSizes};
pub use limits::LimitsMet;
pub use lock::{LockOutcome, LockRecord, LockRequest, LockTable, PassesBroken};
pub use opens::{OpenRequest, Opens};
pub use output::{BreakTicket, EndReason, Output};
pub use promises::Promises;
pub use sessions::{AttachError, RenewalOutcome, Resumed, Sessions};
