//! Two clocks: [`Timestamp`] is wall-clock time as files have it, [`Time`] is a machine's steady
//! clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Wall-clock time of a file: seconds and nanoseconds since 1970; negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// The rest, always below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// A time from its parts; nanoseconds past a second are cut to the last one of that second.
    pub const fn new(secs: i64, nanos: u32) -> Self {
        let nanos = if nanos > 999_999_999 { 999_999_999 } else { nanos };
        Timestamp { secs, nanos }
    }

    /// The time `by` later.
    pub const fn later(self, by: std::time::Duration) -> Self {
        let nanos = self.nanos + by.subsec_nanos();
        let secs = self
            .secs
            .saturating_add_unsigned(by.as_secs())
            .saturating_add((nanos / 1_000_000_000) as i64);
        Timestamp { secs, nanos: nanos % 1_000_000_000 }
    }
}

/// Steady time since some start that only the clock's owner knows. State machines get it as an
/// argument and read no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(Duration);

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(Duration::ZERO);
    /// Later than everything: for "no deadline".
    pub const NEVER: Time = Time(Duration::MAX);

    /// The time `since` the start.
    pub const fn from_start(since: Duration) -> Self {
        Time(since)
    }

    /// Time since the start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(by))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(by))
    }
}
