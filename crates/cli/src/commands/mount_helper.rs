//! `mount.rialto` and `mount.fuse.rialto`: what mount(8) runs for `mount -t rialto`, and for the
//! remount of a mount that is there. The arguments are those of mount(8), *External helpers*.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::ask::endpoint;
use local::daemon::Process;
use local::failure::{Doing, Failure};
use local::mounts;

use super::mount::MountCommand;
use crate::mount_words::MountWords;
use crate::{control, registry};

/// Mounts a tree for mount(8).
#[derive(Args, Debug)]
pub struct MountHelper {
    /// A cell, HOST:PORT or unix:PATH; 'none' for the cell of this machine.
    source: String,
    /// An existing directory.
    mount_point: PathBuf,
    /// Options between commas.
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Only checks the arguments.
    #[arg(short)]
    fake: bool,
    #[arg(short)]
    sloppy: bool,
    #[arg(short)]
    no_table: bool,
    #[arg(short)]
    verbose: bool,
    /// The type by which it was called.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl MountHelper {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let words = MountWords::parse(&self.options)?;
        if self.fake {
            return Ok(ExitCode::SUCCESS);
        }
        if words.remount {
            remount(&self.mount_point, &self.options)?;
            return Ok(ExitCode::SUCCESS);
        }
        // mount -a compares the roots of mounts too, and does not recognize a mount that begins
        // below that of its file system.
        if is_there(&self.source, &self.mount_point) {
            let at = self.mount_point.display();
            eprintln!("mount.rialto: {} is mounted on {at} already", self.source);
            return Ok(ExitCode::SUCCESS);
        }
        let server = match &*self.source {
            "none" | "rialto" => None,
            source => endpoint(source).ok(),
        };
        let is_cell = server.is_none() && !matches!(&*self.source, "none" | "rialto");
        let cell = is_cell.then(|| self.source.clone());
        MountCommand::for_helper(self.source, server, cell, self.mount_point, self.options).run()
    }
}

fn is_there(source: &str, at: &Path) -> bool {
    let Ok(at) = std::path::absolute(at).map(registry::real_path) else { return false };
    let there = mounts::at(&at).ok().flatten();
    there.is_some_and(|mounted| mounted.is_rialto() && mounted.source == source)
}

/// Gives the process of the mount the new options; returns when they hold and, for a mount that
/// becomes read-only, pending changes are at the server.
fn remount(at: &Path, options: &[String]) -> Result<(), Failure> {
    let what = || format!("changing the mount on {}", at.display());
    let at = registry::real_path(std::path::absolute(at).doing(what)?);
    let records = registry::records(&at, None)?;
    let pid_file = records.pid_file(&at);
    let Some(process) = Process::recorded(&pid_file).doing(what)? else {
        return Err(Failure::new(what(), "no process of this machine serves it").nothing_there());
    };
    let dir = pid_file.parent().unwrap_or(Path::new("/"));
    let order = format!("remount {}", options.join(","));
    control::ask(dir, process.pid, &order, None).doing(what).map(drop)
}
