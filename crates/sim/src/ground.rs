//! The state that all parts of the simulation share: the time, the queue of events, the network,
//! the random numbers and the history.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::Time;

use crate::event::SimEvent;
use crate::history::History;
use crate::mutation::Mutation;
use crate::net::Net;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in `docs/spec/invariants.md`, or the name of the expectation.
    pub invariant: &'static str,
    /// The observation that breaks the rule, for messages.
    pub what: String,
    /// Time since the start of the run.
    pub at: Time,
}

/// The shared state of a run; see the head of the file.
pub struct Ground {
    /// The present time of the simulation, of no machine's clock.
    pub now: Time,
    /// The source of all random choices.
    pub rng: SmallRng,
    /// The network.
    pub net: Net,
    /// The recorded events, with the rules that they must obey.
    pub history: History,
    /// The rule that the run breaks on purpose.
    pub mutation: Option<Mutation>,
    /// Faults are over: all work must be finished now.
    pub healed: bool,
    events: BinaryHeap<Reverse<(Time, u64, SimEvent)>>,
    queued: u64,
    trace: bool,
    digest: u64,
    violation: Option<Violation>,
}

impl Ground {
    /// The state at the start of a run: no events, no connections.
    pub fn new(seed: u64, mutation: Option<Mutation>, trace: bool) -> Self {
        Ground {
            now: Time::ZERO,
            rng: SmallRng::seed_from_u64(seed),
            net: Net::default(),
            history: History::default(),
            mutation,
            healed: false,
            events: BinaryHeap::new(),
            queued: 0,
            trace,
            digest: seed,
            violation: None,
        }
    }

    /// Returns whether the run breaks this rule on purpose.
    pub fn breaks(&self, rule: Mutation) -> bool {
        self.mutation == Some(rule)
    }

    /// Queues an event for `at`; events of one moment happen in the order in which they were
    /// queued.
    pub fn at(&mut self, at: Time, event: SimEvent) {
        self.queued += 1;
        self.events.push(Reverse((at.max(self.now), self.queued, event)));
    }

    /// Queues an event for a time after now.
    pub fn after(&mut self, delay: Duration, event: SimEvent) {
        self.at(self.now + delay, event);
    }

    /// Takes the next event and sets the time to it.
    pub fn next_event(&mut self) -> Option<SimEvent> {
        let Reverse((at, number, event)) = self.events.pop()?;
        self.now = at;
        self.digest = mix(self.digest, at.since_start().as_nanos() as u64);
        self.digest = mix(self.digest, number);
        Some(event)
    }

    /// Equal for two runs with the same events at the same moments.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds an event to the digest, and prints it if the run is traced.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace {
            let text = what();
            self.digest = text.bytes().fold(self.digest, |digest, byte| mix(digest, byte.into()));
            println!("{:>13.6} {text}", self.now.since_start().as_secs_f64());
        }
    }

    /// Reports a rule that did not hold; the first report counts.
    pub fn violate(&mut self, invariant: &'static str, what: String) {
        self.note(|| format!("VIOLATION {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what, at: self.now });
    }

    /// Reports the violation in a verdict, if any.
    pub fn judge(&mut self, verdict: Result<(), (&'static str, String)>) {
        if let Err((invariant, what)) = verdict {
            self.violate(invariant, what);
        }
    }

    /// The first rule that did not hold, if any.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// A random time within bounds.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        Duration::from_nanos(
            self.rng.random_range(least.as_nanos() as u64..=most.as_nanos() as u64),
        )
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }
}

fn mix(digest: u64, value: u64) -> u64 {
    (digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}
