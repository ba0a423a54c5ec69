//! `rialto doctor`: what is wrong with this machine or cell, and how to mend it.

use std::process::ExitCode;

use clap::Args;

use crate::cell::{CellDir, Where};
use crate::doctor::{Finding, Level, examine};
use crate::failure::{FAILED, Failure};
use crate::show;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto doctor
    rialto doctor --json | jq -r 'select(.level != \"ok\") | .mend'

It looks at /dev/fuse and fusermount3, the kernel, the clock, limits, the cell's directory and disk, its port and
server, and its mounts. It changes nothing.

EXIT CODES
    0  nothing must be mended (there may be warnings)    1  something must be mended";

/// Says what is wrong with this machine or cell, and how to mend it.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    #[command(flatten)]
    place: Where,
    /// One JSON object a line: check, level (ok, warn, fail), found, mend.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let dir = self.place.path()?;
        let cell = CellDir::find(&dir)?;
        let findings = examine(cell.as_ref());
        if self.json {
            findings.iter().for_each(show::json);
        } else {
            print(&findings);
            if cell.is_none() {
                println!("\nThere is no cell in {} yet: 'rialto up' makes one.", dir.display());
            }
        }
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Ok(if worst == Level::Fail { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
    }
}

fn print(findings: &[Finding]) {
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok  ",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        };
        println!("{level}  {:<16} {}", finding.check, finding.found);
        if let Some(mend) = &finding.mend {
            println!("      {:<16} -> {mend}", "");
        }
    }
}
