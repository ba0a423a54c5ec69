//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod delegation;
mod locks;
mod opens;
mod persistent;
mod promises;
mod strangers;
