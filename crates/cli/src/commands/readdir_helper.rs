//! `rialto forerunner`: what a mount starts beside itself, and nobody else.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, Failure};

/// List directories of a mount as its standard input says.
#[derive(Args, Debug)]
pub struct ReaddirCommand {
    /// Where the mount is
    mount_point: PathBuf,
}

impl ReaddirCommand {
    pub fn run(self) -> Result<ExitCode, Failure> {
        mount::readdir_helper::run(&self.mount_point)
            .doing(|| format!("finding {}", self.mount_point.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
