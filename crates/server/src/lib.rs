//! Combines store, `vice`, `dafs` and `fabric` into a server.
//!
//! A [`Server`] has an acceptor, a few workers (`worker`) that each serve their own connections
//! with one epoll, a pool for calls that may wait for the disk, a thread that expires leases, and
//! one that makes changes stable in the background. `context` connects their steps. [`Loopback`]
//! runs the same service with clients in the same process, without sockets.
//!
//! Layers, from top to bottom:
//!
//! - `server`: starts and ends all of it
//! - `worker`, `worker_connection`: threads that serve connections
//! - `afs`: the ports for AFS's own clients
//! - `standbys`: volumes of other servers that this one stands by for
//! - `attach`, `pull`: the begin of a session; transfers from other servers
//! - `context`, `cell`: one call through the service; the server's place in the cell
//! - `config`, `connection_verifier`, `foreign_sessions`, `report`, `session_handle`: what these
//!   share
//! - `audit`, `link`, `principal_snapshot`, `usage`: logs, connections, bounds
//! - `connection_lane`, `direct_reads`, `verified_blocks`: requests in shared memory, and reads
//!   that the server's own memory answers
//! - `call_slots`, `limits`, `logins`, `loopback`, `own_keys`, `poll`, `pool`, `process`, `scrub`,
//!   `security`, `socket_watch`: tools

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod afs;
mod attach;
pub mod audit;
mod call_slots;
mod cell;
mod config;
mod connection_lane;
mod connection_verifier;
mod context;
mod direct_reads;
mod foreign_sessions;
mod limits;
mod link;
mod logins;
mod loopback;
mod own_keys;
mod poll;
mod pool;
mod principal_snapshot;
mod process;
mod pull;
mod report;
mod scrub;
mod security;
mod server;
mod session_handle;
mod socket_watch;
mod standbys;
mod usage;
mod verified_blocks;
mod worker;
mod worker_connection;

pub use afs::AfsOpenError;
pub use audit::{ForwardState, ForwardTo};
pub use config::{AfsConfig, CellPlace, ServerConfig, WORKERS_MAX};
pub use limits::ServerLimits;
pub use loopback::{Loopback, LoopbackSession};
pub use own_keys::OwnKeys;
pub use server::{Server, StartError};
