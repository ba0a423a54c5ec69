//! A few seeds of volumes under faults in each test run (the gate runs more), and that a seed
//! replays.

use sim::cell::run;

#[test]
fn volumes_are_neither_lost_nor_doubled_nor_half_new() {
    for seed in 0..25 {
        let outcome = run(seed, false);
        let replay = format!("cargo run --release -p sim -- --kind volumes --seed {seed} --trace");
        assert_eq!(outcome.violation, None, "replay: {replay}");
        assert!(outcome.tally.ordered > 0, "seed {seed} does nothing");
    }
}

#[test]
fn a_seed_replays() {
    for seed in 0..5 {
        let [first, again] = [(); 2].map(|()| run(seed, true));
        assert!(first.history == again.history, "seed {seed}");
        assert_eq!(first.tally, again.tally, "seed {seed}");
    }
}
