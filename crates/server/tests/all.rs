//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod afs_clients;
mod callers_without_rights_tls;
mod calls_through_sockets;
mod cell_database;
mod common;
mod copies;
mod delegations;
mod direct_reads;
mod fences;
mod lane_attacks;
mod local_users;
mod opens;
mod packed_bodies;
mod peer_versions;
mod persistent_locks;
mod principals;
mod proxy;
mod pulls;
mod read_times;
mod server_joins;
mod server_keys;
mod shown_secrets;
mod silent_cell_database;
mod standbys;
mod tls;
mod tokens;
