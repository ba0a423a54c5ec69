//! Volumes: the partitions that they are on, which of them are in use, and what administrators do with them (`docs/volumes.md`).

mod admin;
mod beside;
mod cell;
mod fetch;
mod hold;
mod known;
mod partitions;
mod tasks;
mod transfer;
mod volume;

pub use fetch::{Fetch, Unanswered, Work};
pub(crate) use hold::Moves;
pub(crate) use known::Known;
pub use partitions::Partitions;
pub use tasks::Tasks;
pub use transfer::Errands;
pub(crate) use volume::{QuotaReservation, ViceVolume};
