//! Delegations: nobody else sees or changes what a session has to itself, and nothing that it answered is lost or seen late (DE-1, DE-2, DE-4, DE-5).

#![allow(clippy::unwrap_used)] // tests

mod common;
mod random;

use std::collections::BTreeMap;

use common::Ground;
use random::delegating::Delegating;
use random::{Op, World};

fn run(ground: Ground, ops: &[Op]) -> BTreeMap<&'static str, u64> {
    let mut all = Delegating::new(World::new(ground));
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

#[test]
fn random_histories_with_delegations_are_those_of_the_model() {
    let mut counts = BTreeMap::new();
    for seed in 0..12 {
        for (what, count) in run(Ground::memory(), &Op::sequence(seed, 3000)) {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    // A history in which nothing is delegated proves nothing.
    for (what, least) in [
        ("answered by the client", 1000),
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
fn a_history_with_delegations_on_the_real_engine() {
    run(Ground::disk(), &Op::sequence(77, 1500));
}
