//! The header against the crate, and the functions against a server.

#![allow(clippy::unwrap_used)]

mod calls;
mod header;
