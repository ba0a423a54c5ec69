//! `rialto doctor`: faults of this machine or cell, and their remedies.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::cell::{CellDir, Where};
use local::daemon::Process;
use local::failure::{Doing, FAILED, Failure};
use local::show;

use crate::doctor::{Finding, Severity, examine, network};
use crate::reach::token_files::TokenDir;
use crate::reach::{Reach, ReachOptions};
use crate::scrubbing::scrub;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto doctor
    rialto doctor --scrub          read and check every record and block: takes a while
    rialto doctor --scrub --only scrub           for a timer: fails for damage alone
    rialto doctor --via fs1.example.org:7620     a cell in the network, as far as it shows
    rialto doctor --json | jq -r 'select(.level != \"ok\") | .mend'

It checks /dev/fuse and fusermount3, the kernel, the clock, limits, the disks below
partitions, the cell's directory and the caches of mounts, the cell's port and server,
and its mounts. It changes nothing. Damage that
--scrub finds is not repaired, but damaged data is never served as good.

EXIT CODES
    0  nothing must be mended (there may be warnings)
    1  something must be mended";

/// Shows what is wrong with this machine or cell, and how to mend it.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    #[command(flatten)]
    reach: ReachOptions,
    /// Has no effect: connections of this command are always encrypted.
    #[arg(long, hide = true)]
    clear: bool,
    /// One JSON object a line: check, level (ok, warn, fail), found, mend.
    #[arg(long)]
    json: bool,
    /// Check every checksum of the partition too; the cell may be in use meanwhile.
    #[arg(long)]
    scrub: bool,
    /// Show only what this check found; may be given several times.
    #[arg(long, value_name = "CHECK")]
    only: Vec<String>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let way = match self.reach.dir {
            // A directory without a cell is examined too.
            Some(_) => None,
            None => Reach::find(&self.reach).ok(),
        };
        let (cell, way) = match way {
            Some(Reach::Socket(cell)) => (Some(*cell), None),
            Some(way @ Reach::Network(_)) => (None, Some(way)),
            None => (CellDir::find(&self.directory()?)?, None),
        };
        let dir = match &cell {
            Some(cell) => cell.dir().to_owned(),
            // Over the network no directory is needed.
            None => self.directory().or_else(|failure| match way {
                Some(_) => Ok(TokenDir::place()),
                None => Err(failure),
            })?,
        };
        let mut findings = examine(&dir, cell.as_ref());
        let is_network = way.is_some();
        findings.extend(way.into_iter().flat_map(network::examine));
        if self.scrub {
            findings.extend(scrub_findings(cell.as_ref())?);
        }
        if !self.only.is_empty() {
            findings = chosen(findings, &self.only)?;
        }
        if self.json {
            findings.iter().for_each(show::json);
        } else {
            print(&findings);
            if cell.is_none() && !is_network {
                println!("\nThere is no cell in {} yet: 'rialto up' makes one.", dir.display());
            }
        }
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Severity::Ok);
        Ok(if worst == Severity::Fail { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }

    fn directory(&self) -> Result<PathBuf, Failure> {
        Where { dir: self.reach.dir.clone(), clear: false }.path()
    }
}

/// The findings of these checks.
fn chosen(findings: Vec<Finding>, only: &[String]) -> Result<Vec<Finding>, Failure> {
    if let Some(none) =
        only.iter().find(|only| findings.iter().all(|one| one.check != only.as_str()))
    {
        let mut all: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
        all.dedup();
        return Err(Failure::new(format!("showing the check '{none}'"), "it was not made here")
            .mend(format!("those that were made: {}", all.join(", "))));
    }
    Ok(findings.into_iter().filter(|one| only.iter().any(|only| one.check == only)).collect())
}

fn scrub_findings(cell: Option<&CellDir>) -> Result<Vec<Finding>, Failure> {
    const CHECK: &str = "scrub";
    const MEND: &str = "restore that file from a copy; everything else stays usable";
    let Some(cell) = cell.filter(|cell| cell.partitions().iter().any(|path| path.exists())) else {
        return Ok(Vec::new());
    };
    let pid_file = cell.server_pid_file();
    let server =
        Process::recorded(&pid_file).doing(|| format!("reading {}", pid_file.display()))?;
    let scrubbed = scrub(cell, server.is_some())?;
    if scrubbed.findings.is_empty() {
        return Ok(vec![Finding::ok(CHECK, format!("{}: nothing is damaged", scrubbed.checked))]);
    }
    Ok(scrubbed.findings.into_iter().map(|found| Finding::fail(CHECK, found, MEND)).collect())
}

fn print(findings: &[Finding]) {
    for finding in findings {
        let level = match finding.level {
            Severity::Ok => "ok  ",
            Severity::Warn => "WARN",
            Severity::Fail => "FAIL",
        };
        println!("{level}  {:<16} {}", finding.check, finding.found);
        if let Some(mend) = &finding.mend {
            println!("      {:<16} -> {mend}", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{OpenOptions, Partition, PartitionConfig};

    use super::*;

    #[test]
    fn only_the_chosen_checks_are_shown() {
        let findings = || vec![Finding::ok("clock", "right"), Finding::ok("scrub", "whole")];
        let shown = chosen(findings(), &["scrub".to_owned()]).unwrap();
        assert_eq!(shown, findings()[1..]);
        let failure = chosen(findings(), &["scrubs".to_owned()]).unwrap_err().to_string();
        assert!(failure.contains("clock, scrub"), "{failure}");
    }

    #[test]
    fn a_whole_partition_without_a_server_is_scrubbed_by_ourselves() {
        let dir = tempfile::tempdir().unwrap();
        let cell =
            CellDir::create(&dir.path().join("cell"), "test", local::cell::NewCell::default())
                .unwrap();
        assert_eq!(scrub_findings(Some(&cell)).unwrap(), []);
        let config = PartitionConfig { server: "test".into() };
        drop(Partition::create(&cell.partitions()[0], &config, OpenOptions::default()).unwrap());
        let findings = scrub_findings(Some(&cell)).unwrap();
        assert!(findings.len() == 1 && findings[0].level == Severity::Ok, "{findings:?}");
        // A partition that a silent server has open stays with that server.
        let _open = Partition::open(&cell.partitions()[0], OpenOptions::default()).unwrap();
        assert!(scrub_findings(Some(&cell)).unwrap_err().to_string().contains("in use"));
    }
}
