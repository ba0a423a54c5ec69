//! How much each volume is used: the calls on its files, and the bytes that they move.
//!
//! Model. Time is divided into spans of three hours. A counter has one sum for each of the last
//! eight spans, so what it says is about the last day at most, and about the time since the server
//! started. Counts are for administrators who balance servers: two threads that begin a span at the
//! same moment may lose some.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use types::{Call, Time, VolumeId};

/// The seconds of a span.
const SPAN_SECS: u64 = 3 * 60 * 60;
/// Spans that are remembered, the present one too.
const SPANS: u64 = 8;

/// The uses of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Calls on its files.
    pub calls: u64,
    /// Bytes that these moved, or asked for.
    pub bytes: u64,
}

/// The uses of all volumes. Thread-safe.
#[derive(Default)]
pub(crate) struct Loads {
    counters: RwLock<HashMap<VolumeId, Counter>>,
    /// The first span in which something was counted, with one added; 0: nothing was.
    first: AtomicU64,
}

/// Spans in a ring: a span has the place of its number modulo [`SPANS`].
#[derive(Default)]
struct Counter([Span; SPANS as usize]);

#[derive(Default)]
struct Span {
    number: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
}

fn span_at(now: Time) -> u64 {
    now.since_start().as_secs() / SPAN_SECS
}

/// The oldest span that counts.
fn oldest(now: Time) -> u64 {
    span_at(now).saturating_sub(SPANS - 1)
}

impl Counter {
    fn count(&self, bytes: u64, now: Time) {
        let number = span_at(now);
        let span = &self.0[(number % SPANS) as usize];
        let known = span.number.load(Ordering::Relaxed);
        if known != number {
            let begun =
                span.number.compare_exchange(known, number, Ordering::Relaxed, Ordering::Relaxed);
            if begun.is_ok() {
                span.calls.store(0, Ordering::Relaxed);
                span.bytes.store(0, Ordering::Relaxed);
            }
        }
        span.calls.fetch_add(1, Ordering::Relaxed);
        span.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn load(&self, now: Time) -> Load {
        let oldest = oldest(now);
        let recent = self.0.iter().filter(|span| span.number.load(Ordering::Relaxed) >= oldest);
        recent.fold(Load::default(), |sum, span| Load {
            calls: sum.calls + span.calls.load(Ordering::Relaxed),
            bytes: sum.bytes + span.bytes.load(Ordering::Relaxed),
        })
    }
}

impl Loads {
    /// Counts a call on a file; others are not counted.
    pub fn note(&self, call: &Call, now: Time) {
        let Some(fid) = call.files().into_iter().flatten().next() else { return };
        let data = call.data();
        let bytes = (data.brings + data.wants) as u64;
        if let Some(counter) = self.counters.read().get(&fid.volume) {
            counter.count(bytes, now);
            return;
        }
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(span_at(now) + 1, Ordering::Relaxed);
        }
        let mut counters = self.counters.write();
        // Volumes that were not used for a day make room.
        if counters.len().is_power_of_two() {
            counters.retain(|_, counter| counter.load(now) != Load::default());
        }
        counters.entry(fid.volume).or_default().count(bytes, now);
    }

    /// The volumes with higher numbers that were used in the time of [`Loads::spans`], in the order
    /// of their numbers.
    pub fn used(&self, after: VolumeId, now: Time) -> Vec<(VolumeId, Load)> {
        let counters = self.counters.read();
        let loads = counters.iter().map(|(id, counter)| (*id, counter.load(now)));
        let mut used: Vec<_> =
            loads.filter(|(id, load)| *id > after && *load != Load::default()).collect();
        used.sort_unstable_by_key(|(id, _)| *id);
        used
    }

    /// The time that the counts are about.
    pub fn spans(&self, now: Time) -> Duration {
        let first = self.first.load(Ordering::Relaxed).saturating_sub(1).max(oldest(now));
        now.since_start().saturating_sub(Duration::from_secs(first * SPAN_SECS))
    }
}

#[cfg(test)]
mod tests {
    use types::Fid;

    use super::*;

    fn at(hours: u64) -> Time {
        Time::from_start(Duration::from_secs(hours * 3600))
    }

    #[test]
    fn a_day_is_counted_and_what_is_older_is_forgotten() {
        let loads = Loads::default();
        let (one, two) = (Fid::root(VolumeId(1)), Fid::root(VolumeId(2)));
        let read = |fid| Call::Read { fid, offset: 0, length: 1000 };
        loads.note(&Call::GetStatus { fid: one }, at(100));
        loads.note(&read(one), at(101));
        loads.note(&read(two), at(110));
        loads.note(&Call::ReclaimDone, at(110));
        let of = |fid: Fid, hours| {
            let used = loads.used(VolumeId(0), at(hours));
            let found = used.iter().find(|(id, _)| *id == fid.volume);
            found.map_or((0, 0), |(_, load)| (load.calls, load.bytes))
        };
        assert_eq!((of(one, 110), of(two, 110)), ((2, 1000), (1, 1000)));
        assert_eq!(loads.spans(at(110)), Duration::from_secs(11 * 3600), "since hour 99");
        assert_eq!((of(one, 122), of(two, 122)), ((2, 1000), (1, 1000)), "its span is the eighth");
        assert_eq!((of(one, 123), of(two, 123)), ((0, 0), (1, 1000)));
        assert_eq!(loads.spans(at(123)), Duration::from_secs(21 * 3600));

        // The same place in the ring.
        loads.note(&read(one), at(124));
        assert_eq!(of(one, 124), (1, 1000));
        loads.note(&read(Fid::root(VolumeId(3))), at(140));
        assert_eq!(loads.counters.read().len(), 2, "the second made room");
    }
}
