//! The thread behind `Call::Scrub`: checks the partitions, one after the other, beside normal work,
//! and reports its progress.
//!
//! The report is JSON: `state` (`never`, `running`, `done`, `stopped` or `failed`), `records`,
//! `bodies` and `bytes` checked so far, the number of `findings`, their text in `found`, and
//! `error` if it failed. At most one scrub runs; a start while one runs returns the report of that
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde::Serialize;
use store::{ScrubProgress, ScrubReport, StoreError};
use vice::Partitions;

/// The most findings with text, so that a report fits into one message; all are counted.
const NAMED_MAX: usize = 500;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Never,
    Running,
    Done,
    Stopped,
    Failed,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Report {
    state: State,
    records: u64,
    bodies: u64,
    bytes: u64,
    findings: usize,
    found: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Report {
    /// The progress in this partition, added to that of the partitions `before` it.
    fn advance(&mut self, before: ScrubProgress, progress: ScrubProgress) {
        self.records = before.records + progress.records;
        self.bodies = before.bodies + progress.bodies;
        self.bytes = before.bytes + progress.bytes;
    }

    /// This partition is done. Returns whether to go on with the next.
    fn end(&mut self, before: ScrubProgress, result: Result<ScrubReport, StoreError>) -> bool {
        match result {
            Ok(report) => {
                self.advance(before, report.checked);
                self.findings += report.findings.len();
                let room = NAMED_MAX.saturating_sub(self.found.len());
                self.found.extend(report.findings.iter().take(room).map(ToString::to_string));
                self.state = if report.cancelled { State::Stopped } else { State::Running };
            }
            Err(error) => {
                self.error = Some(error.to_string());
                self.state = State::Failed;
            }
        }
        self.state == State::Running
    }

    fn checked(&self) -> ScrubProgress {
        ScrubProgress { records: self.records, bodies: self.bodies, bytes: self.bytes }
    }
}

/// The scrub of a server's partitions, running or not.
pub(crate) struct Scrubber {
    partitions: Partitions,
    report: Arc<Mutex<Report>>,
    cancel: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Scrubber {
    pub fn new(partitions: impl Into<Partitions>) -> Self {
        let (report, cancel) = (Arc::default(), Arc::default());
        Scrubber { partitions: partitions.into(), report, cancel, thread: Mutex::new(None) }
    }

    /// Starts one if asked to and none runs; then returns the report.
    pub fn answer(&self, start: bool) -> String {
        if start {
            self.start();
        }
        serde_json::to_string(&*self.report.lock()).expect("the report has only string keys")
    }

    fn start(&self) {
        let mut thread = self.thread.lock();
        if self.report.lock().state == State::Running || self.cancel.load(Ordering::Relaxed) {
            return;
        }
        *self.report.lock() = Report { state: State::Running, ..Report::default() };
        let (partitions, report, cancel) =
            (self.partitions.clone(), Arc::clone(&self.report), Arc::clone(&self.cancel));
        let run = move || {
            for partition in partitions.iter() {
                let before = report.lock().checked();
                let result = partition
                    .scrub(&mut |progress| report.lock().advance(before, progress), &cancel);
                if !report.lock().end(before, result) {
                    return;
                }
            }
            report.lock().state = State::Done;
        };
        match std::thread::Builder::new().name("scrub".into()).spawn(run) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                let mut report = self.report.lock();
                report.error = Some(error.to_string());
                report.state = State::Failed;
            }
        }
    }

    /// Ends a running scrub, and lets none start.
    pub fn stop(&self) {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the scrub panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
    use types::{Name, Timestamp};

    use super::*;

    #[test]
    fn a_scrub_of_a_whole_partition_ends_without_findings() {
        let dir = tempfile::tempdir().unwrap();
        let config = PartitionConfig { server: "test".into() };
        let partition =
            Partition::create(&dir.path().join("p"), &config, OpenOptions::default()).unwrap();
        let root = NewRoot {
            mode: 0o755,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1_700_000_000, 0),
            quota: VolumeQuota::default(),
        };
        partition.volumes().create_volume(&Name::new(b"v").unwrap(), &root).unwrap();
        let scrubber = Scrubber::new(partition);
        assert!(scrubber.answer(false).contains(r#""state":"never""#));
        scrubber.answer(true);
        let end = Instant::now() + Duration::from_secs(30);
        while scrubber.answer(false).contains("running") {
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let report: serde_json::Value = serde_json::from_str(&scrubber.answer(false)).unwrap();
        assert_eq!((&report["state"], &report["findings"]), (&"done".into(), &0.into()));
        assert!(report["records"].as_u64().unwrap() > 0);

        scrubber.stop();
        scrubber.answer(true);
        assert!(scrubber.answer(false).contains("done"), "none starts after the stop");
    }
}
