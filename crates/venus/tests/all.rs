//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod access_list_calls;
mod appends;
mod calls_per_operation;
mod coherence;
mod common;
mod concurrent_contents;
mod concurrent_names;
mod delegation;
mod directory_prefetch;
mod failures;
mod large_files;
mod listings_across_moves;
mod lost_unstable_metadata;
mod lost_unstable_writes;
mod passthrough_cache_bodies;
mod removed_files;
mod server_restart;
