//! What everybody in the simulation stands on: the moment, the queue of events, the network, the
//! dice and the referee.

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
    /// Its number in `docs/spec/invariants.md`, or what was expected.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
    /// When, since the start.
    pub at: Time,
}

/// See the head of the file.
pub struct Ground {
    /// The moment, on no machine's clock.
    pub now: Time,
    /// Where every random choice comes from.
    pub rng: SmallRng,
    /// The wires.
    pub net: Net,
    /// What happened, and the rules that it must keep.
    pub history: History,
    /// The rule that is broken on purpose.
    pub mutation: Option<Mutation>,
    /// Faults are over: everything must come to an end now.
    pub healed: bool,
    events: BinaryHeap<Reverse<(Time, u64, SimEvent)>>,
    queued: u64,
    trace: bool,
    digest: u64,
    violation: Option<Violation>,
}

impl Ground {
    /// An empty world.
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

    /// Whether this rule is broken on purpose.
    pub fn breaks(&self, rule: Mutation) -> bool {
        self.mutation == Some(rule)
    }

    /// Something will happen at `at`; events of one moment happen in the order in which they were
    /// queued.
    pub fn at(&mut self, at: Time, event: SimEvent) {
        self.queued += 1;
        self.events.push(Reverse((at.max(self.now), self.queued, event)));
    }

    /// Something will happen in a while.
    pub fn after(&mut self, delay: Duration, event: SimEvent) {
        self.at(self.now + delay, event);
    }

    /// The next event; the moment becomes its.
    pub fn next_event(&mut self) -> Option<SimEvent> {
        let Reverse((at, number, event)) = self.events.pop()?;
        self.now = at;
        self.digest = mix(self.digest, at.since_start().as_nanos() as u64);
        self.digest = mix(self.digest, number);
        Some(event)
    }

    /// A number that is the same for two runs in which the same things happened at the same
    /// moments.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Notes something that happened, for the digest and, if wanted, for people.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace {
            let text = what();
            self.digest = text.bytes().fold(self.digest, |digest, byte| mix(digest, byte.into()));
            println!("{:>13.6} {text}", self.now.since_start().as_secs_f64());
        }
    }

    /// The first rule that did not hold is what counts.
    pub fn violate(&mut self, invariant: &'static str, what: String) {
        self.note(|| format!("VIOLATION {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what, at: self.now });
    }

    /// Passes a checker's verdict on.
    pub fn judge(&mut self, verdict: Result<(), (&'static str, String)>) {
        if let Err((invariant, what)) = verdict {
            self.violate(invariant, what);
        }
    }

    /// The rule that did not hold, if any.
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
