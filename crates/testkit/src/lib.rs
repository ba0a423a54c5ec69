//! Code that the tests of several crates share. No product code depends on this crate.

pub mod stranger;
