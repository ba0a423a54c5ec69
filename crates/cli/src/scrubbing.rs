//! Checks every record and every block of a cell's partitions: through its server, or in this
//! process while that is down.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use client::Endpoint;
use local::ask::Asking;
use local::cell::CellDir;
use local::failure::{Doing, Failure};
use local::show::{self, Progress};
use store::{OpenOptions, Partition, ScrubProgress};

/// Interval between progress queries of a running server.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Result of a scrub.
pub struct Scrubbed {
    /// The amount checked, for people.
    pub checked: String,
    /// The damage found, one text each.
    pub findings: Vec<String>,
}

/// Scrubs `cell`'s partitions; `running`: through its running server.
///
/// # Errors
/// If the server does not answer, or a partition cannot be opened or read.
pub fn scrub(cell: &CellDir, running: bool) -> Result<Scrubbed, Failure> {
    let progress = Progress::start("checking every record and every block");
    if running { by_server(cell, &progress) } else { by_ourselves(cell, &progress) }
}

fn by_server(cell: &CellDir, progress: &Progress) -> Result<Scrubbed, Failure> {
    let asking = Asking::connect(Endpoint::Unix(cell.socket()))?;
    let mut report = asking.scrub(true)?;
    while report["state"] == "running" {
        let count = |name: &str| report[name].as_u64().unwrap_or(0);
        let so_far = ScrubProgress {
            records: count("records"),
            bodies: count("bodies"),
            bytes: count("bytes"),
        };
        progress.now(format!("checking: {}", amount(so_far)));
        std::thread::sleep(ASK_EVERY);
        report = asking.scrub(false)?;
    }
    if report["state"] != "done" {
        let why = report["error"].as_str().unwrap_or("the server stopped it").to_owned();
        return Err(
            Failure::new("checking the partition", why).mend("repair the server and try again")
        );
    }
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let checked =
        ScrubProgress { records: count("records"), bodies: count("bodies"), bytes: count("bytes") };
    let found = report["found"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |finding: &serde_json::Value| {
        finding.as_str().map_or_else(|| finding.to_string(), str::to_owned)
    };
    let mut findings: Vec<String> = found.iter().map(text).collect();
    // A report names a limited number of findings.
    let unnamed = count("findings").saturating_sub(findings.len() as u64);
    if unnamed > 0 {
        findings.push(format!("{unnamed} more; the server's log names all"));
    }
    Ok(Scrubbed { checked: amount(checked), findings })
}

fn by_ourselves(cell: &CellDir, progress: &Progress) -> Result<Scrubbed, Failure> {
    let mut total = ScrubProgress::default();
    let mut findings = Vec::new();
    for path in cell.partitions().iter().filter(|path| path.exists()) {
        let what = || format!("checking {}", path.display());
        let partition = Partition::open(path, OpenOptions::default()).doing(what)?;
        let mut show = |so_far: ScrubProgress| {
            progress.now(format!("checking: {}", amount(sum(total, so_far))));
        };
        let report = partition.scrub(&mut show, &AtomicBool::new(false)).doing(what)?;
        total = sum(total, report.checked);
        findings.extend(report.findings.iter().map(ToString::to_string));
    }
    Ok(Scrubbed { checked: amount(total), findings })
}

fn sum(one: ScrubProgress, other: ScrubProgress) -> ScrubProgress {
    ScrubProgress {
        records: one.records + other.records,
        bodies: one.bodies + other.bodies,
        bytes: one.bytes + other.bytes,
    }
}

fn amount(progress: ScrubProgress) -> String {
    format!(
        "{} records, {} bodies, {}",
        progress.records,
        progress.bodies,
        show::bytes(progress.bytes)
    )
}
