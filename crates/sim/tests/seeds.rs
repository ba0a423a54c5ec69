//! A few seeds in each test run (the gate runs ten thousand), that a seed replays, and that the
//! checks notice every broken rule.

use sim::{Mutation, RunOptions, run};

#[test]
fn no_rule_is_broken() {
    for seed in 0..200 {
        let outcome = run(seed, RunOptions::default());
        assert_eq!(
            outcome.violation, None,
            "replay: cargo run --release -p sim -- --seed {seed} --trace"
        );
        assert!(outcome.tally.done > 0, "seed {seed} does nothing");
    }
}

#[test]
fn a_seed_replays() {
    for seed in 0..25 {
        let [first, again] = [(); 2].map(|()| run(seed, RunOptions::default()));
        assert_eq!(first.digest, again.digest, "seed {seed}");
        assert_eq!(first.tally, again.tally, "seed {seed}");
    }
}

#[test]
fn seeds_differ() {
    assert_ne!(run(1, RunOptions::default()).digest, run(2, RunOptions::default()).digest);
}

/// Seeds within which the checks must notice a broken rule.
const SEEDS_MAX: u64 = 500;

#[test]
fn every_broken_rule_is_seen() {
    for mutation in Mutation::ALL {
        let options = RunOptions { mutation: Some(mutation), ..RunOptions::default() };
        let seen = (0..SEEDS_MAX).find_map(|seed| run(seed, options).violation);
        let seen = seen.unwrap_or_else(|| panic!("{mutation:?} goes unseen in {SEEDS_MAX} seeds"));
        println!("{mutation:?}: {} {}", seen.invariant, seen.what);
    }
}
