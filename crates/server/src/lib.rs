//! Puts store, `vice`, `dafs` and `fabric` together.

mod loopback;

pub use loopback::{Loopback, LoopbackSession};
