//! All tests of the crate that need no program of their own, in one: linking each would take longer
//! than running it.

#![allow(missing_docs, clippy::unwrap_used)] // All of it is tests.

mod attacks;
mod calls;
mod floods;
mod loss;
mod network;
mod rxkad;
mod timers;
mod transport;
mod wire;
