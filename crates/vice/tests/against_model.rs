//! The service beside the reference model: random calls, with clones in between, compared after
//! each one; then every file, and in each clone every file as it was; then all again after a
//! restart.

use std::collections::BTreeMap;

use crate::common::Ground;
use crate::random::{Op, Reads, World};
use proptest::prelude::*;

/// Calls between two clones.
const CLONED_EVERY: usize = 60;

fn run(ground: Ground, ops: &[Op]) -> BTreeMap<String, u64> {
    run_in(World::new(ground, Reads::Recorded), ops)
}

fn run_in(mut world: World, ops: &[Op]) -> BTreeMap<String, u64> {
    for (at, op) in ops.iter().enumerate() {
        if at % CLONED_EVERY == CLONED_EVERY / 2 {
            world.clone_volume();
        }
        world.step(op);
    }
    world.compare_all();
    world.compare_clones();
    world.restart();
    world.compare_all();
    world.compare_clones();
    for op in ops.iter().take(50) {
        world.step(op);
    }
    world.compare_all();
    world.compare_clones();
    world.outcomes
}

fn operations() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(any::<[u16; 8]>().prop_map(Op), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn short_histories_in_memory(ops in operations()) {
        run(Ground::memory(), &ops);
    }

    #[test]
    fn short_histories_where_lists_decide(ops in operations()) {
        run_in(World::with_lists(Ground::memory(), Reads::Recorded), &ops);
    }
}

#[test]
fn long_histories_where_lists_decide() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..7 {
        for (outcome, count) in
            run_in(World::with_lists(Ground::memory(), Reads::Recorded), &Op::sequence(seed, 5000))
        {
            *outcomes.entry(outcome).or_insert(0) += count;
        }
    }
    let wanted = [
        "GetAcl AccessDenied",
        "GetAcl Ok",
        "GetStatus AccessDenied",
        "Link CrossVolume",
        "Link Ok",
        "Lookup AccessDenied",
        "Make AccessDenied",
        "Make Ok",
        "NoteRead Ok",
        "Read AccessDenied",
        "Read AccessDenied",
        "Read Ok",
        "Remove AccessDenied",
        "Remove Ok",
        "Rename AccessDenied",
        "Rename CrossVolume",
        "Rename Ok",
        "Rights Ok",
        "SetAcl AccessDenied",
        "SetAcl Invalid",
        "SetAcl Ok",
        "SetStatus AccessDenied",
        "SetStatus NotPermitted",
        "SetStatus Ok",
        "Write AccessDenied",
        "Write AccessDenied",
        "Write Ok",
        "XattrGet AccessDenied",
        "XattrSet AccessDenied",
    ];
    for outcome in wanted {
        assert!(outcomes.contains_key(outcome), "{outcome} never came up: {outcomes:?}");
    }
}

#[test]
fn long_histories_in_memory() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..12 {
        for (outcome, count) in run(Ground::memory(), &Op::sequence(seed, 5000)) {
            *outcomes.entry(outcome).or_insert(0) += count;
        }
    }
    // A history without these outcomes proves nothing.
    let wanted = [
        "Allocate AccessDenied",
        "Allocate Ok",
        "Link Exists",
        "Link NotFound",
        "Link Ok",
        "Make AccessDenied",
        "Make Exists",
        "Make NotFound",
        "Make Ok",
        "MakeUnnamed Ok",
        "Read Ok",
        "ReadDir Ok",
        "ReadLink Ok",
        "Remove Busy",
        "Remove IsDirectory",
        "Remove NotEmpty",
        "Remove NotPermitted",
        "Remove Ok",
        "Rename Busy",
        "Rename Exists",
        "Rename Invalid",
        "Rename IsDirectory",
        "Rename NotDirectory",
        "Rename NotEmpty",
        "Rename NotPermitted",
        "Rename Ok",
        "Seek AccessDenied",
        "Seek NothingThere",
        "Seek Ok",
        "SetStatus AccessDenied",
        "SetStatus NotPermitted",
        "SetStatus Ok",
        "Write Ok",
        "XattrGet Ok",
        "XattrRemove Ok",
        "XattrSet NoXattr",
        "XattrSet Ok",
    ];
    for outcome in wanted {
        assert!(outcomes.contains_key(outcome), "{outcome} never came up");
    }
}

#[test]
fn a_history_on_the_real_engine() {
    run(Ground::disk(), &Op::sequence(99, 2000));
}
