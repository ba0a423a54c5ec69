//! Releases to many sites: the bytes that leave each server, the depth of the tree, and sites that
//! are down or die. (The gate runs 240 sites.)
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use sim::cell::release::run;

#[test]
fn whoever_is_down_or_dies_lags_and_the_rest_is_served() {
    for seed in 0..12 {
        let report = run(seed, 24).unwrap_or_else(|why| {
            panic!(
                "{why}; replay: cargo run --release -p sim -- --kind release --sites 24 --seed \
                {seed}"
            )
        });
        assert!(report.faulty.lagging > 0, "seed {seed}: no site was down");
        assert_eq!((report.quiet.lagging, report.again.lagging, report.stopped.lagging), (0, 0, 0));
    }
}

/// In the simulation's time, which is equal in each run.
#[test]
fn the_time_of_a_release_grows_like_a_tree() {
    let [few, more, many] = [5, 20, 80].map(|sites| run(3, sites).unwrap().quiet);
    assert!(few.depth <= 2 && more.depth <= 3 && many.depth <= 4, "{few:?} {more:?} {many:?}");
    let step = Duration::from_millis(80);
    assert!(more.took < few.took + step && many.took < more.took + step, "{few}; {more}; {many}");
    assert!(many.source_out < 4.5, "{many}");
}

#[test]
fn a_seed_of_a_release_replays() {
    let [first, again] = [(); 2].map(|()| format!("{:?}", run(5, 12).unwrap()));
    assert_eq!(first, again);
}
