//! `rialto forerunner`: a helper process that only a mount starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, Failure};

/// Lists directories of a mount as its standard input orders.
#[derive(Args, Debug)]
pub struct ReaddirCommand {
    /// The mount point
    mount_point: PathBuf,
}

impl ReaddirCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        mount::readdir_helper::run(&self.mount_point)
            .doing(|| format!("finding {}", self.mount_point.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
