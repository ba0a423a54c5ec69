//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod afs;
mod beside;
mod common;
mod copying;
mod moving;
mod operations;
mod programs;
mod release;
mod restoring;
mod shadows;
mod standbys;
mod taking_over;
mod together;
