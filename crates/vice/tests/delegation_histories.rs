//! Delegations: no other session sees or changes what a session covers, and no change that it
//! answered is lost or seen late (DE-1, DE-2, DE-4, DE-5).

use std::collections::BTreeMap;

use crate::common::Ground;
use crate::random::delegating::Delegating;
use crate::random::{Op, Reads, World};

fn run(ground: Ground, ops: &[Op]) -> BTreeMap<&'static str, u64> {
    run_in(World::new(ground, Reads::NotRecorded), ops)
}

fn run_in(world: World, ops: &[Op]) -> BTreeMap<&'static str, u64> {
    let mut all = Delegating::new(world);
    for op in ops {
        all.step(op);
    }
    all.compare_all();
    all.restart();
    for op in ops.iter().take(50) {
        all.step(op);
    }
    all.compare_all();
    all.counts
}

fn run_all(world: impl Fn() -> World, answered_least: u64) {
    let mut counts = BTreeMap::new();
    for seed in 0..12 {
        for (what, count) in run_in(world(), &Op::sequence(seed, 3000)) {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    // A history without delegations proves nothing.
    for (what, least) in [
        ("answered by the client", answered_least),
        ("waited for a delegation", 100),
        ("delegated", 100),
        ("not delegated", 100),
        ("gave back", 100),
        ("restarted", 12),
    ] {
        assert!(counts.get(what).is_some_and(|count| *count >= least), "{what}: {counts:?}");
    }
    println!("{counts:?}");
}

#[test]
fn random_histories_with_delegations_are_those_of_the_model() {
    run_all(|| World::new(Ground::memory(), Reads::NotRecorded), 1000);
}

#[test]
fn random_histories_with_delegations_and_lists_equal_the_model() {
    run_all(|| World::with_lists(Ground::memory(), Reads::NotRecorded), 400);
}

#[test]
fn a_history_with_delegations_on_the_real_engine() {
    run(Ground::disk(), &Op::sequence(77, 1500));
}
