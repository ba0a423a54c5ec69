//! Operations on volumes that more than one server, or a server and the cell's database, take part
//! in.
//!
//! Model. An operation is a list of *steps*, each one call that a server or the database carries
//! out whole or not at all. It reads the state, and does the steps that are missing; so a caller
//! that is interrupted between two steps, or does not know whether the last one was done, repeats
//! the operation. Before the first step that others could see half done, the group is *claimed* in
//! the database ([`types::Busy`]) with a text that names the operation; the last step removes the
//! claim. Other operations are refused meanwhile. The same operation takes over a claim whose
//! leader ended; an administrator examines any other claim, and may remove it (`vos unlock`) and
//! repair the rest with `sync`.
//!
//! The order of steps ensures that the database names a place without the volume for at most the
//! time of the operation, and that an existing volume always has a record: a new volume is
//! announced first, a removed one is forgotten last.
//!
//! Servers of AFS are asked by AFS's volume server protocol, and so are Rialto's where an operation
//! is between the two kinds (`afs`).
//!
//! The library has no sockets: calls go through the trait [`Servers`]; [`ServerConnections`]
//! implements it over sessions.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod abandon;
mod afs;
mod afs_calls;
mod away;
mod backup;
mod balance;
mod beside;
mod claim;
mod clone;
mod copy;
mod create;
mod dump;
mod dump_read_only;
mod ending;
mod error;
mod failover;
mod find;
mod forget;
mod job;
mod lock;
mod moving;
mod own_volumes;
mod pulling;
mod reach;
mod release;
mod remove;
mod rename;
mod servers;
mod shadow;
mod sites;
mod standby;
mod sync;
mod take_over;

pub use abandon::{abandon, incoming, is_fetched};
pub use afs::{AfsDump, call_afs, dump_afs, restore_afs, restore_afs_over};
pub use afs_calls::{AfsVolumeServers, NextPiece, TakePiece};
pub use away::move_site;
pub use backup::backup;
pub use balance::{BalanceBy, FilledPartition, MovableVolume, PlannedMove, balance, unevenness};
pub use clone::clone_writable;
pub use copy::copy;
pub use create::{NewVolume, create};
pub use dump::{Dumped, Next, Part, Sink, dump, restore, restore_over};
pub use dump_read_only::restore_read_only;
pub use ending::end_task;
pub use error::VosError;
pub use failover::{FailedOver, fail_over};
pub use find::{FoundVolume, base_name, find};
pub use forget::forget;
pub use job::{Job, JobEvent, JobLeader};
pub use lock::{lock, unlock};
pub use moving::{Moved, move_group, move_volume};
pub use reach::ServerConnections;
pub use release::{Released, release};
pub use remove::{finish_removal, remove};
pub use rename::rename;
pub use servers::{Servers, examine, list, partition_no};
pub use shadow::{NewShadow, shadow};
pub use sites::{NewSite, add_site, add_site_as, change_location, remove_site};
pub use standby::{StandbyAdded, add_standby, remove_standby, standbys, wait_in_step};
pub use sync::{Mended, sync_database, sync_servers, sync_volume};
pub use take_over::{TakenOver, take_over};
