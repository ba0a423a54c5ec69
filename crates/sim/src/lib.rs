//! A seeded simulation of a cell: the real machines, and everything else made up.
//!
//! What runs is the code that ships: `vice` over `store` (on a machine in memory that can lose its
//! power), the `dafs` session machines with real frames, `lease` on both sides. What is simulated
//! is the world: a network whose connections break at any byte, clocks that run apart, processes
//! and machines that die and come back. Everything is drawn from one seed, in one thread, so that a
//! seed replays to the last byte.
//!
//! Each run is first *safety under faults*, judged by [`history::History`] with the rules of
//! `docs/spec/invariants.md`; then all faults heal, and the cluster must come to an end with
//! everything done (*progress*). [`mutation::Mutation`] breaks rules on purpose, which shows that
//! the judge sees.

pub mod cache;
pub mod cell;
pub mod client;
pub mod clock;
pub mod event;
pub mod fault;
pub mod ground;
pub mod history;
pub mod inbox;
pub mod mutation;
pub mod net;
pub mod op;
pub mod server;
pub mod world;

pub use ground::Violation;
pub use mutation::Mutation;
pub use world::{RunOptions, RunOutcome, run};
