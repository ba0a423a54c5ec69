//! Profiles of the processes behind a side while a scenario runs: `perf record`, one file a
//! scenario.
//!
//! `bench/profile.sh` makes pictures of the files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use local::failure::{Doing, Failure};

use super::Scenario;
use super::cost::Watched;
use super::counters::interrupt;

/// Samples a second: not a divisor of the frequencies of common timers.
const FREQUENCY: &str = "997";
/// How long `perf` may take to attach.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The directory of the profiles.
pub struct Profile(PathBuf);

impl Profile {
    /// Makes `dir` for the profiles.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(dir).doing(|| format!("making {}", dir.display()))?;
        Ok(Profile(dir.to_owned()))
    }

    /// Starts to record `processes`.
    ///
    /// # Errors
    /// If `perf` cannot be started, or does not attach in time.
    pub fn record(&self, scenario: Scenario, processes: &[Watched]) -> Result<Recording, Failure> {
        let what = || "recording with perf".to_owned();
        let pids: Vec<String> = processes.iter().map(|watched| watched.pid.to_string()).collect();
        let data = self.0.join(format!("{}.data", scenario.name()));
        let _ = fs::remove_file(&data);
        let mut perf = Command::new("perf");
        perf.args([
            "record",
            "-q",
            "-F",
            FREQUENCY,
            "--call-graph",
            "fp",
            "-p",
            &pids.join(","),
            "-o",
        ])
        .arg(&data);
        let process =
            perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut process =
            process.map_err(|error| Failure::new(what(), error).mend("install linux-perf"))?;
        let end = Instant::now() + TIMEOUT;
        // The file has its header once `perf` is attached.
        while !fs::metadata(&data).is_ok_and(|meta| meta.len() > 0) {
            if process.try_wait().doing(what)?.is_some() || Instant::now() > end {
                let _ = process.kill();
                let message = process.wait_with_output().doing(what)?.stderr;
                return Err(
                    Failure::new(what(), String::from_utf8_lossy(&message).trim()).mend("be root")
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Recording(process))
    }
}

/// A recording in progress.
pub struct Recording(Child);

impl Recording {
    /// Ends the recording; the file is complete then.
    ///
    /// # Errors
    /// If `perf` does not end.
    pub fn end(mut self) -> Result<(), Failure> {
        let what = || "recording with perf".to_owned();
        interrupt(&self.0).doing(what)?;
        self.0.wait().map(drop).doing(what)
    }
}
