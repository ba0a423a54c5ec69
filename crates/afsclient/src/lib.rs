//! Servers of AFS as a cache manager of Rialto sees them.
//!
//! Model: [`AfsRemote`] is the session with a cell of AFS, one for all of its servers, or with one
//! server of AFS in a cell of Rialto. It makes AFS-3's calls of Rialto's, so cache manager, disk
//! cache and mount know nothing of AFS. It is the mirror of crate `afsfront`.
//! `docs/spec/abroad-afs.md` says which call becomes which, `docs/spec/mixed-cells.md` what is
//! different in a cell of Rialto.
//!
//! The servers are trusted with their own cell's volumes and no more: whatever they answer, a call
//! ends, memory has bounds, and no answer reaches another cell's files.
//!
//! Layers, from top to bottom:
//!
//! - `remote`: the session, its threads and its port
//! - `dispatch`: which call becomes which
//! - `chores`: work of now and then
//! - `questions`, `changes`, `data`, `lists`, `locks`: the calls
//! - `context`: a call of a caller, and what is promised of its answer
//! - `callbacks`: the service that file servers call
//! - `servers`, `locating`: calls to file servers, and which of them are asked
//! - `databases`, `own_server`: where volumes are, users and groups: of a foreign cell, or as the
//!   cell of Rialto says
//! - `lock_table`: locks of applications here
//! - `users`: tokens of this machine's users
//! - `coherence`, `promises`: breaks, and what is promised
//! - `directories`, `statuses`, `faults`: AFS's forms in Rialto's

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod callbacks;
mod changes;
mod chores;
mod coherence;
mod context;
mod data;
mod databases;
mod directories;
mod dispatch;
mod faults;
mod lists;
mod locating;
mod lock_table;
mod locks;
mod own_server;
mod promises;
mod questions;
mod remote;
mod servers;
mod statuses;
mod users;

pub use remote::AfsRemote;
pub use users::AfsLogin;
