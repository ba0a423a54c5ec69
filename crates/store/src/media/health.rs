//! The health of the disk below a partition (`docs/spec/health.md`).
//!
//! Model. A partition is *well*, *slow* or *failing* (PH-1). An error of the disk makes it failing
//! until it is opened again; many slow ones among the last flushes of the log make it slow, until
//! none was slow for a while. It is a judgement for placement only: no read and no change is
//! refused for it. `watched.rs` observes the disk.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use types::limits::DISK_ERROR_BYTES_MAX;
use types::{DiskHealth, Timestamp};

/// A flush that takes longer is slow. A disk answers in milliseconds; one with a long queue in
/// tenths of a second.
const SLOW_FLUSH: Duration = Duration::from_secs(1);
/// So many slow ones among the last 64 flushes make a partition slow: a third of the time that its
/// callers wait is lost.
const SLOW_FLUSHES: u32 = 20;
/// A slow partition without slow flushes for so long is well.
const RECOVERED: Duration = Duration::from_secs(30 * 60);

/// The health of a partition's disk at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// The state.
    pub state: DiskHealth,
    /// Since when.
    pub since: Timestamp,
    /// Errors of the disk since the opening.
    pub errors: u64,
    /// Slow ones among the last flushes.
    pub slow_flushes: u32,
    /// The last error; empty: there was none.
    pub last_error: String,
}

/// The observations of a disk. Thread-safe.
pub(crate) struct Health(Mutex<Observed>);

struct Observed {
    state: DiskHealth,
    since: Timestamp,
    /// The last 64 flushes, the newest in the lowest bit; set: slow.
    flushes: u64,
    last_slow: Option<Instant>,
    errors: u64,
    last_error: String,
}

impl Default for Health {
    fn default() -> Self {
        Health(Mutex::new(Observed::at(wall())))
    }
}

impl Health {
    pub(crate) fn report(&self) -> HealthReport {
        self.0.lock().report(Instant::now(), wall())
    }

    /// A flush of the log ended.
    pub(crate) fn flushed(&self, took: Duration) {
        self.0.lock().flushed(took, Instant::now(), wall());
    }

    /// The disk reported an error.
    pub(crate) fn failed(&self, why: &str) {
        self.0.lock().failed(why, wall());
    }
}

fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(secs, since_epoch.subsec_nanos())
}

impl Observed {
    /// A disk of which nothing bad is known.
    fn at(since: Timestamp) -> Observed {
        Observed {
            state: DiskHealth::Well,
            since,
            flushes: 0,
            last_slow: None,
            errors: 0,
            last_error: String::new(),
        }
    }

    fn turn(&mut self, state: DiskHealth, since: Timestamp) {
        (self.state, self.since) = (state, since);
    }

    fn report(&mut self, now: Instant, wall: Timestamp) -> HealthReport {
        self.recover(now, wall);
        HealthReport {
            state: self.state,
            since: self.since,
            errors: self.errors,
            slow_flushes: self.flushes.count_ones(),
            last_error: self.last_error.clone(),
        }
    }

    fn recover(&mut self, now: Instant, wall: Timestamp) {
        let rested = self.last_slow.is_none_or(|last| now.duration_since(last) >= RECOVERED);
        if self.state == DiskHealth::Slow && rested {
            self.flushes = 0;
            self.turn(DiskHealth::Well, wall);
            tracing::info!("PH-1: no flush was slow for half an hour: the partition is well");
        }
    }

    fn flushed(&mut self, took: Duration, now: Instant, wall: Timestamp) {
        self.recover(now, wall);
        let is_slow = took > SLOW_FLUSH;
        self.flushes = self.flushes << 1 | u64::from(is_slow);
        if is_slow {
            self.last_slow = Some(now);
        }
        if self.state == DiskHealth::Well && self.flushes.count_ones() >= SLOW_FLUSHES {
            self.turn(DiskHealth::Slow, wall);
            tracing::error!(
                slow = self.flushes.count_ones(),
                "PH-1: the disk flushes slowly: the partition gets no new volumes; 'rialto vos \
                 evacuate' moves its volumes"
            );
        }
    }

    fn failed(&mut self, why: &str, wall: Timestamp) {
        self.errors = self.errors.saturating_add(1);
        let most = why.len().min(DISK_ERROR_BYTES_MAX);
        let end = (0..=most).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        why[..end].clone_into(&mut self.last_error);
        if self.state != DiskHealth::Failing {
            self.turn(DiskHealth::Failing, wall);
            tracing::error!(
                %why,
                "PH-1: the disk reports errors: the partition gets no new volumes; 'rialto vos \
                 evacuate' moves its volumes"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(999);
    const LONG: Duration = Duration::from_millis(1001);

    fn wall(secs: i64) -> Timestamp {
        Timestamp::new(secs, 0)
    }

    #[test]
    fn ph1_twenty_slow_flushes_of_64_make_it_slow() {
        let (mut seen, now) = (Observed::at(wall(1)), Instant::now());
        for _ in 0..4 {
            // 19 of any 64.
            (0..19).for_each(|_| seen.flushed(LONG, now, wall(2)));
            (0..45).for_each(|_| seen.flushed(QUICK, now, wall(2)));
        }
        assert_eq!(seen.report(now, wall(3)).state, DiskHealth::Well);
        (0..19).for_each(|_| seen.flushed(LONG, now, wall(4)));
        assert_eq!(seen.report(now, wall(4)).state, DiskHealth::Well, "the 20th has left");
        (0..64).for_each(|_| seen.flushed(QUICK, now, wall(5)));
        (0..20).for_each(|at| seen.flushed(LONG, now, wall(10 + at)));
        let report = seen.report(now, wall(50));
        assert_eq!((report.state, report.since), (DiskHealth::Slow, wall(29)));
        assert_eq!((report.slow_flushes, report.errors), (20, 0));
    }

    #[test]
    fn ph1_a_slow_one_is_well_half_an_hour_after_the_last() {
        let (mut seen, began) = (Observed::at(wall(1)), Instant::now());
        (0..20).for_each(|_| seen.flushed(LONG, began, wall(2)));
        (0..64).for_each(|_| seen.flushed(QUICK, began, wall(2)));
        let later = began + RECOVERED - Duration::from_secs(1);
        assert_eq!(seen.report(later, wall(3)).state, DiskHealth::Slow, "not by quick ones alone");
        seen.flushed(LONG, later, wall(3));
        let end = later + RECOVERED - Duration::from_nanos(1);
        assert_eq!(seen.report(end, wall(4)).state, DiskHealth::Slow);
        let end = later + RECOVERED;
        let report = seen.report(end, wall(5));
        assert_eq!((report.state, report.since), (DiskHealth::Well, wall(5)));
        seen.flushed(LONG, end, wall(6));
        assert_eq!(seen.report(end, wall(6)).state, DiskHealth::Well, "it counts anew");
    }

    #[test]
    fn ph1_an_error_makes_it_failing_while_it_is_open() {
        let health = Health::default();
        (0..20).for_each(|_| health.flushed(LONG));
        assert_eq!(health.report().state, DiskHealth::Slow);
        health.failed("read: EIO");
        health.failed(&"ä".repeat(200));
        (0..200).for_each(|_| health.flushed(QUICK));
        let report = health.report();
        assert_eq!((report.state, report.errors), (DiskHealth::Failing, 2));
        assert_eq!(report.last_error, "ä".repeat(127), "a line at most");
        let later = Instant::now() + 2 * RECOVERED;
        let report = health.0.lock().report(later, wall(9));
        assert_eq!(report.state, DiskHealth::Failing, "time alone does not make it well");
    }
}
