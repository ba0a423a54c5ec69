//! Sessions and what the server keeps in memory for them, each table with its own lock.
//!
//! - [`Coherence`]: leases, promises, delegations and locks (crate `lease`), and the changes and
//!   lock requests that wait for other sessions.
//! - [`Requests`]: the last request of each slot with its reply, and the calls that wait.
//! - [`Registry`]: attaching and resuming, with the durable records of sessions.
//! - [`Loans`], [`Blanks`], [`GivenSlots`], [`OpenRights`]: bodies, numbers and rights that
//!   sessions have.
//!
//! Order of locks: `Loans`, then `Coherence`, then the table of moving volumes
//! (`volumes/moves.rs`), then the others. None of them is held over I/O. Imports `base`, `call` and
//! `volumes`.

mod blanks;
mod coherence;
mod given_slots;
mod loans;
mod open_rights;
mod registry;
mod reply_cache;
mod requests;
mod waiting_calls;

pub(crate) use blanks::Blanks;
pub(crate) use coherence::Coherence;
pub(crate) use given_slots::GivenSlots;
pub(crate) use loans::Loans;
pub(crate) use open_rights::{ModeRights, OpenRights};
pub use registry::Attached;
pub(crate) use registry::Registry;
pub(crate) use reply_cache::Begin;
pub(crate) use requests::Requests;
pub(crate) use waiting_calls::{Parked, Waiting, Waits};
