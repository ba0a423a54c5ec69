//! Operations on volumes that more than one server, or a server and the cell's database, take part
//! in.
//!
//! Model. An operation is a list of *steps*, each one call that a server or the database carries
//! out whole or not at all. It reads what there is, and does the steps that are missing; so whoever
//! is stopped between two of them, or does not know whether the last one happened, asks for the
//! same operation again. Before the first step that others could see half done, the group is
//! *claimed* in the database ([`types::Busy`]), in words that say what is done; with the last step
//! the claim goes. Others are refused meanwhile. Who finds a claim of his own operation whose owner
//! is gone goes on with it; any other is looked at by an administrator, who may take it off
//! (`vos unlock`) and let `sync` mend what was left.
//!
//! The order of steps is such that the database never sends anybody where a volume is not, for
//! longer than the operation takes, and that a volume that is there is never forgotten: what is
//! made is announced first, what is removed is forgotten last.
//!
//! The library knows no sockets: what it asks goes through the trait [`Servers`];
//! [`ServerConnections`] is that over sessions.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod abandon;
mod away;
mod backup;
mod beside;
mod claim;
mod clone;
mod copy;
mod create;
mod dump;
mod dump_read_only;
mod error;
mod find;
mod job;
mod lock;
mod moving;
mod pulling;
mod reach;
mod release;
mod remove;
mod rename;
mod servers;
mod sites;
mod sync;

pub use abandon::{abandon, incoming, is_fetched};
pub use away::move_site;
pub use backup::backup;
pub use clone::clone_writable;
pub use copy::copy;
pub use create::{NewVolume, create};
pub use dump::{Dumped, Next, Part, Sink, dump, restore, restore_over};
pub use dump_read_only::restore_read_only;
pub use error::VosError;
pub use find::{FoundVolume, base_name, find};
pub use job::{Job, JobEvent, JobLeader};
pub use lock::{lock, unlock};
pub use moving::{Moved, move_group, move_volume};
pub use reach::ServerConnections;
pub use release::{Released, release};
pub use remove::{finish_removal, remove};
pub use rename::rename;
pub use servers::{Servers, examine, list, partition_no};
pub use sites::{add_site, remove_site};
pub use sync::{Mended, sync_database, sync_servers};
