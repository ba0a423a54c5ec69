//! A seeded simulation of a cell: real protocol code in a simulated world.
//!
//! The code under test is the code that ships: `vice` over `store` (on a machine in memory that can
//! lose its power), the `dafs` session machines with real frames, `lease` on both sides. The world
//! is simulated: a network whose connections break at any byte, clocks that run apart, processes
//! and machines that die and restart. One seed decides everything, in one thread, so that a seed
//! replays to the last byte.
//!
//! Each run has two phases. The first is *safety under faults*: [`history::History`] checks the
//! rules of `docs/spec/invariants.md`. Then all faults heal, and the cluster must finish all work
//! (*progress*). [`mutation::Mutation`] breaks rules on purpose, to prove that the checks notice.

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
pub mod takeover;
pub mod world;

pub use ground::Violation;
pub use mutation::Mutation;
pub use world::{RunOptions, RunOutcome, run};
