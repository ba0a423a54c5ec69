//! Volumes: the partitions that they are on, which of them are in use, and what administrators do
//! with them (`docs/spec/volumes.md`).

mod admin;
mod beside;
mod cell;
mod fetch;
mod freeze;
mod partitions;
mod tasks;
mod transfer;
mod volume;
mod volumes_in_use;

pub use fetch::{Fetch, Unanswered, Work};
pub(crate) use freeze::Moves;
pub use partitions::Partitions;
pub use tasks::Tasks;
pub use transfer::TransferAgent;
pub(crate) use volume::{QuotaReservation, ViceVolume};
pub(crate) use volumes_in_use::VolumesInUse;
