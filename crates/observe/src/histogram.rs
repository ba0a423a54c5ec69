//! Durations by size: four buckets for each power of two of microseconds, so that a percentile is
//! at most a quarter too high.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::names::Wait;

/// Buckets for each power of two.
const STEPS: u64 = 4;
/// Durations of 2^26 µs (67 s) and more are in the last bucket.
const BUCKETS: usize = 26 * STEPS as usize;

/// Counts of durations. Relaxed: a figure may lag behind by the calls that are being counted.
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    total_micros: AtomicU64,
}

/// The figures of a histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitFigures {
    /// The name of the wait.
    pub name: &'static str,
    /// How often it occurred.
    pub count: u64,
    /// Its mean, in microseconds.
    pub mean_micros: u64,
    /// Half of them took at most so long, in microseconds; at most a quarter too high, as below.
    pub p50_micros: u64,
    /// 99 of 100 took at most so long.
    pub p99_micros: u64,
    /// All of them took at most so long.
    pub max_micros: u64,
}

impl Histogram {
    const fn new() -> Self {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            total_micros: AtomicU64::new(0),
        }
    }

    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.total_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The figures under a name.
    pub fn figures(&self, name: &'static str) -> WaitFigures {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let count: u64 = counts.iter().sum();
        let below = |share: u64| {
            let wanted = (count * share).div_ceil(100).max(1);
            let mut seen = 0;
            let at = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            at.map_or(0, end)
        };
        WaitFigures {
            name,
            count,
            mean_micros: self.total_micros.load(Ordering::Relaxed) / count.max(1),
            p50_micros: below(50),
            p99_micros: below(99),
            max_micros: below(100),
        }
    }
}

/// The bucket of a duration.
fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return usize::try_from(micros).unwrap_or(0);
    }
    let power = u64::from(micros.ilog2());
    let step = (micros >> (power - 2)) % STEPS;
    usize::try_from((power - 1) * STEPS + step).map_or(BUCKETS - 1, |at| at.min(BUCKETS - 1))
}

/// The longest duration of a bucket, in microseconds.
fn end(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { ((STEPS + step + 1) << (power - 1)) - 1 }
}

static HISTOGRAMS: [Histogram; Wait::ALL.len()] = [const { Histogram::new() }; Wait::ALL.len()];

pub(crate) fn of(wait: Wait) -> &'static Histogram {
    &HISTOGRAMS[wait as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_after_it() {
        let mut values: Vec<u64> = (0..5000).collect();
        values.extend((0..26).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]));
        for micros in values {
            let at = bucket(micros);
            assert!(micros <= end(at), "{micros} in {at}");
            assert!(at == 0 || micros > end(at - 1), "{micros} in {at}");
            assert!(end(at) <= micros + micros / STEPS, "{micros}: {} is too far", end(at));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_at_most_a_quarter_too_high() {
        let all = Histogram::new();
        (1..=1000).for_each(|micros| all.record(Duration::from_micros(micros)));
        let figures = all.figures("x");
        assert_eq!((figures.count, figures.mean_micros), (1000, 500));
        assert!((500..=625).contains(&figures.p50_micros), "{figures:?}");
        assert!((990..=1238).contains(&figures.p99_micros), "{figures:?}");
        assert!((1000..=1250).contains(&figures.max_micros), "{figures:?}");
        assert_eq!(Histogram::new().figures("x").max_micros, 0);
    }
}
