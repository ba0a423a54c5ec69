//! A few seeds of a volume with standbys under faults in each test run (the gate runs more), that a
//! seed replays, and that broken rules are seen.

use sim::takeover::{TakeoverMutation, TakeoverOptions, run};

const PLAIN: TakeoverOptions = TakeoverOptions { mutation: None, trace: false };

#[test]
fn sb2_takeovers_neither_lose_nor_repeat_changes() {
    let (mut takeovers, mut ahead) = (0, 0);
    // The last ones found faults.
    for seed in (0..8)
        .chain([117, 161, 169, 444, 723, 883, 901, 1255, 1501, 1570, 1808, 3805, 9373, 3_008_949])
    {
        let outcome = run(seed, PLAIN);
        let replay = format!("cargo run --release -p sim -- --kind standbys --seed {seed} --trace");
        assert_eq!(outcome.violation, None, "replay: {replay}");
        assert!(outcome.tally.done > 0, "seed {seed} does nothing");
        takeovers += outcome.tally.takeovers;
        ahead += outcome.tally.ahead;
    }
    assert!(takeovers > 0, "no standby takes over");
    assert!(ahead > 0, "no standby asks while it has entries to apply");
}

#[test]
fn a_seed_with_standbys_replays() {
    let options = TakeoverOptions { trace: true, ..PLAIN };
    for seed in 0..3 {
        let [first, again] = [(); 2].map(|()| run(seed, options));
        assert!(first.history == again.history, "seed {seed}");
        assert_eq!(first.tally, again.tally, "seed {seed}");
    }
}

/// Broken rules, and seeds that see each of them.
const SEEN: [(TakeoverMutation, u64); 10] = [
    (TakeoverMutation::TrustTheWire, 1),
    (TakeoverMutation::BelieveOutOfStep, 6),
    (TakeoverMutation::NoFence, 7),
    (TakeoverMutation::NoWaitForLease, 24),
    (TakeoverMutation::ForgetReplies, 6),
    (TakeoverMutation::HideLosses, 41),
    (TakeoverMutation::IgnoreRevision, 71),
    (TakeoverMutation::DropCopy, 65),
    (TakeoverMutation::IgnoreLocks, 118),
    (TakeoverMutation::TakeLateAnswers, 3_008_949),
];

#[test]
fn broken_rules_of_standbys_are_seen() {
    for (mutation, seed) in SEEN {
        let options = TakeoverOptions { mutation: Some(mutation), trace: false };
        let seen = (seed..seed + 8).any(|seed| run(seed, options).violation.is_some());
        assert!(seen, "{mutation:?} is not seen");
    }
}
