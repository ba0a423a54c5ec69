//! Tests of the internals. Names hash into few buckets here, so collisions are common.

mod careless;
mod catalog;
mod cipher;
mod clones;
mod crash;
mod damage;
mod epochs;
mod forks;
pub(crate) mod golden;
mod history;
mod lent;
mod over;
mod pack;
mod power;
mod standby;
mod strays;
pub(crate) mod stream;
mod taken_over;
mod world;
