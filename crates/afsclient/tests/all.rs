//! All tests of the crate, as one program.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod bounds;
mod coherence;
mod fake;
mod own_server;
mod places;
