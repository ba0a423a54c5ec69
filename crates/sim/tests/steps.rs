//! The checks of volumes notice every step that is done wrongly, within a few seeds.

use std::sync::atomic::{AtomicUsize, Ordering};

use sim::cell::{StepMutation, run_broken};

/// Seeds within which the checks must notice a broken step.
const SEEDS_MAX: u64 = 150;

fn is_seen(mutation: StepMutation) {
    let seen = (0..SEEDS_MAX)
        .find_map(|seed| Some((seed, run_broken(seed, false, Some(mutation)).violation?)));
    let (seed, what) =
        seen.unwrap_or_else(|| panic!("{mutation:?} goes unseen in {SEEDS_MAX} seeds"));
    println!("{mutation:?}: seed {seed}: {what}");
}

/// On all processors: some mutations take a minute.
#[test]
fn every_broken_step_is_seen() {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(mutation) = StepMutation::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            is_seen(*mutation);
        }
    };
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(work))));
}
