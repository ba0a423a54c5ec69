//! The health of the disk below a partition (`docs/spec/health.md`).
//!
//! Model. A partition is *well*, *slow* or *failing* (PH-1). An error of the disk makes it failing
//! until an administrator trusts it again (PH-5); many slow ones among the last flushes of the log
//! make it slow, until none was slow for a while. `health_file.rs` remembers that over an opening.
//! It is a judgement for placement only: no read and no change is refused for it. `watched.rs`
//! observes the disk.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use types::limits::DISK_ERROR_BYTES_MAX;
use types::{DiskHealth, Timestamp};

use super::health_file::{HealthFile, RememberedHealth};

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
    /// Errors of the disk.
    pub errors: u64,
    /// Slow ones among the last flushes.
    pub slow_flushes: u32,
    /// The last error; empty: there was none.
    pub last_error: String,
}

/// The observations of a disk. Thread-safe.
#[derive(Default)]
pub(crate) struct Health(Arc<Shared>);

#[derive(Default)]
struct Shared {
    observed: Mutex<Observed>,
    /// `None`: nothing is remembered.
    file: Option<HealthFile>,
    /// Held while the file is written, so that the last writer wrote the last state.
    saving: Mutex<()>,
}

struct Observed {
    state: DiskHealth,
    since: Timestamp,
    /// The last 64 flushes, the newest in the lowest bit; set: slow.
    flushes: u64,
    last_slow: Option<Instant>,
    errors: u64,
    last_error: String,
}

impl Default for Observed {
    fn default() -> Self {
        Observed::at(wall())
    }
}

impl Health {
    /// As the file remembers it.
    pub(crate) fn remembered_by(file: HealthFile) -> Health {
        let mut observed = Observed::default();
        if let Some(found) = file.load() {
            observed.resume(found, Instant::now());
        }
        let observed = Mutex::new(observed);
        Health(Arc::new(Shared { observed, file: Some(file), saving: Mutex::default() }))
    }

    pub(crate) fn report(&self) -> HealthReport {
        self.observe(|seen| seen.report(Instant::now(), wall()))
    }

    /// A flush of the log ended.
    pub(crate) fn flushed(&self, took: Duration) {
        self.observe(|seen| seen.flushed(took, Instant::now(), wall()));
    }

    /// The disk reported an error.
    pub(crate) fn failed(&self, why: &str) {
        self.observe(|seen| seen.failed(why, wall()));
    }

    /// It counts as well from now on (PH-5).
    ///
    /// # Errors
    /// If the file cannot be changed: at the next opening it counts as before.
    pub(crate) fn trust(&self) -> io::Result<()> {
        let before = std::mem::take(&mut *self.0.observed.lock()).state;
        if before != DiskHealth::Well {
            tracing::info!(was = before.word(), "PH-5: an administrator trusts the partition");
        }
        self.0.save()
    }

    fn observe<T>(&self, act: impl FnOnce(&mut Observed) -> T) -> T {
        let mut seen = self.0.observed.lock();
        let before = seen.state;
        let result = act(&mut seen);
        if seen.state != before && self.0.file.is_some() {
            // The caller is in the middle of an operation on a disk that may answer late.
            let shared = Arc::clone(&self.0);
            std::thread::spawn(move || {
                if let Err(error) = shared.save() {
                    tracing::error!(
                        %error,
                        "PH-1: the partition's health is not remembered after a restart"
                    );
                }
            });
        }
        result
    }
}

impl Shared {
    fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let _saving = self.saving.lock();
        let now = self.observed.lock().remembered();
        file.save(&now)
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

    /// Goes on as before the partition was closed. A slow one is observed for half an hour again.
    fn resume(&mut self, found: RememberedHealth, now: Instant) {
        let RememberedHealth { state, since, errors, last_error } = found;
        *self = Observed { state, errors, last_error, ..Observed::at(since) };
        self.last_slow = (state == DiskHealth::Slow).then_some(now);
        tracing::warn!(state = state.word(), "PH-1: the partition is not well since before");
    }

    fn remembered(&self) -> RememberedHealth {
        RememberedHealth {
            state: self.state,
            since: self.since,
            errors: self.errors,
            last_error: self.last_error.clone(),
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
        let report = health.0.observed.lock().report(later, wall(9));
        assert_eq!(report.state, DiskHealth::Failing, "time alone does not make it well");
        health.trust().unwrap();
        let report = health.report();
        assert_eq!((report.state, report.errors, &*report.last_error), (DiskHealth::Well, 0, ""));
    }

    #[test]
    fn ph1_a_partition_is_not_well_over_its_opening() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Health::remembered_by(HealthFile::new(dir.path(), 7));
        let saved = |state: DiskHealth| {
            let found = || open().report().state;
            let until = Instant::now() + Duration::from_secs(60);
            while found() != state {
                assert!(Instant::now() < until, "it is saved by a thread");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let health = open();
        (0..20).for_each(|_| health.flushed(LONG));
        saved(DiskHealth::Slow);
        let again = open();
        let end = Instant::now() + RECOVERED;
        let mut seen = again.0.observed.lock();
        assert_eq!(seen.report(end - Duration::from_secs(60), wall(8)).state, DiskHealth::Slow);
        assert_eq!(seen.report(end, wall(9)).state, DiskHealth::Well, "none was slow since");
        drop(seen);

        health.failed("read: EIO");
        saved(DiskHealth::Failing);
        let again = open();
        let report = again.report();
        assert_eq!((report.errors, &*report.last_error), (1, "read: EIO"));
        assert_eq!(report.since.secs, health.report().since.secs);
        again.trust().unwrap();
        saved(DiskHealth::Well);
    }
}
