//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod access_doc;
mod access_lists;
mod against_model;
mod anonymous_sessions;
mod call_table;
mod callers_without_rights;
mod common;
mod concurrent_calls;
mod contradictory_records;
mod delegation_histories;
mod delegation_rules;
mod delegation_threads;
mod exactly_once;
mod file_call_table;
mod file_calls;
mod large_directory;
mod opens;
mod partial_administrators;
mod persistent_locks;
mod posix_rules;
mod promises;
mod pulls;
mod quota;
mod random;
mod read_times;
mod standbys;
mod volume_administration;
mod volume_moves;
