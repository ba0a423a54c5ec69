//! A few seeds of volumes under faults in each test run (the gate runs more), and that a seed
//! replays.

use sim::cell::run;

/// Seeds that found a fault once. The code changes their events: a fault also has a test of its own
/// where one can be written.
const FOUND: [u64; 23] = [
    50_000_002_610,
    60_000_000_515,
    200_000_000_199,
    300_000_001_112,
    400_000_001_892,
    600_000_001_536,
    700_000_001_173,
    800_000_002_402,
    910_000_003_602,
    920_000_000_848,
    920_000_001_374,
    94_980_369_940_732,
    50_000_002_189,
    60_000_001_826,
    990_000_000_012,
    60_000_000_635,
    61_000_002_882,
    61_000_003_129,
    61_000_004_989,
    63_000_005_604,
    63_000_003_001,
    63_000_003_150,
    63_000_006_304,
];

#[test]
fn volumes_are_neither_lost_nor_doubled_nor_half_new() {
    for seed in (0..25).chain(FOUND) {
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
