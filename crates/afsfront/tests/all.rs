//! All tests of the crate, as one program.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod bos;
mod common;
mod files;
mod locations;
mod locks;
mod protection;
mod replicas;
mod restores;
mod volumes;
mod vote;
