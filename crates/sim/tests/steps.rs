//! The judge of volumes sees every step that is done wrongly, within a few seeds.

use sim::cell::{Mutation, run_broken};

/// How many seeds a broken step may go unseen.
const SEEDS_MAX: u64 = 60;

#[test]
fn every_broken_step_is_seen() {
    for mutation in Mutation::ALL {
        let seen = (0..SEEDS_MAX).find_map(|seed| Some((seed, run_broken(seed, false, Some(mutation)).violation?)));
        let (seed, what) = seen.unwrap_or_else(|| panic!("{mutation:?} goes unseen in {SEEDS_MAX} seeds"));
        println!("{mutation:?}: seed {seed}: {what}");
    }
}
