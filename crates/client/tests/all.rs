//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod breaks;
mod common;
mod credits;
mod interrupted_calls;
mod reclaim;
mod replicas_and_moves;
mod retries;
mod standbys;
mod successors;
mod tokens;
