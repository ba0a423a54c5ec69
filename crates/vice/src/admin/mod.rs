//! Calls of administrators on volumes: made, changed and removed, frozen for a move, transferred.
//!
//! [`VolumeAdmin`] receives the calls; [`Freezing`] has the freezes and arrivals of moving volumes,
//! [`Transfers`] the streams between servers and partitions, and [`Fetch`] one pull of such a
//! stream. Imports `files`, `gate` and what these import; of `calls` only the end of body loans.

mod beside;
mod fetch;
mod freeze;
mod tasks;
mod transfer;
mod volume_info;
mod volumes;

pub use fetch::{Fetch, Unanswered, Work};
pub(crate) use freeze::Freezing;
pub use tasks::Tasks;
pub use transfer::TransferAgent;
pub(crate) use transfer::Transfers;
pub(crate) use volumes::VolumeAdmin;
