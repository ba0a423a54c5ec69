//! `rialto down`: unmounts a cell's trees on this machine and stops its server. The data stays.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use local::cell::{CellDir, Where};
use local::daemon::Process;
use local::failure::{Doing, FAILED, Failure};
use local::show::Progress;
use rustix::process::Signal;

use crate::unmounting::{
    UNMOUNT_PATIENCE, UNMOUNT_PATIENCE_ALONE, UnmountOutcome, Way, elsewhere, unmount,
};

/// How long the server may take to write everything to disk.
const SERVER_STOP_PATIENCE: Duration = Duration::from_secs(60);

const SERVER_STAYS: &str = "the server still runs, because a mount needs it";
const SERVER_AWAY: &str = "the server does not run: 'rialto up' starts it and sends it those \
                           changes, and then 'rialto down' ends all; killing that process would \
                           lose them";

const AFTER_HELP: &str = "\
EXAMPLES
    rialto down
    rialto down --dir ~/cells/test
    rialto down --lazy                 even while processes use the tree

Everything written is on disk when it returns. 'rialto up' continues where this ends.
Clients on other machines wait until the server is back.

EXIT CODES
    0  all stopped
    1  not all stopped: the message names the rest
    3  no cell there";

/// Unmounts and stops a cell; its data stays.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Down {
    #[command(flatten)]
    place: Where,
    /// Unmount trees even while they are in use.
    #[arg(long)]
    lazy: bool,
}

impl Down {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let cell = self.place.cell()?;
        let records = cell.mounts();
        let points = records.recorded().doing(|| "reading the list of mounts".to_owned())?;
        let serves = is_served(&cell)?;
        let mut left = 0;
        for at in with_default(points, &cell) {
            left += usize::from(!self.unmount_one(
                &cell,
                &at,
                if serves { UNMOUNT_PATIENCE } else { UNMOUNT_PATIENCE_ALONE },
            ));
        }
        if left > 0 {
            eprintln!("rialto down: {}", if serves { SERVER_STAYS } else { SERVER_AWAY });
            return Ok(ExitCode::from(FAILED));
        }
        let (name, place) = (&cell.config.name, cell.dir().display());
        if stop_server(&cell)? {
            println!("stopped the server of {name}; its data stays in {place}");
        } else {
            println!("the server of {name} does not run");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns true if the mount has ended.
    fn unmount_one(&self, cell: &CellDir, at: &Path, patience: Duration) -> bool {
        let way = if self.lazy { Way::Lazy } else { Way::Unused };
        match unmount(&cell.mounts(), at, way, Some(patience)) {
            Ok(UnmountOutcome::Gone) => println!("unmounted {}", at.display()),
            Ok(UnmountOutcome::WasNotThere) => {}
            Ok(UnmountOutcome::MountedElsewhere(by)) => {
                eprintln!("rialto down: {}", elsewhere(at, &by));
            }
            Ok(UnmountOutcome::StillWorking(pid)) => {
                eprintln!(
                    "rialto down: {} is unmounted, but process {pid} still has changes for the \
                        server",
                    at.display()
                );
                return false;
            }
            Err(failure) => {
                eprintln!("rialto down: {failure}");
                return false;
            }
        }
        true
    }
}

/// Adds the default mount point: its pid file may be lost.
fn with_default(mut points: Vec<PathBuf>, cell: &CellDir) -> Vec<PathBuf> {
    let usual = cell.mount_point();
    let ours = local::mounts::at(&usual).ok().flatten().is_some_and(|mounted| mounted.is_rialto());
    if ours && !points.contains(&usual) {
        points.push(usual);
    }
    points
}

fn is_served(cell: &CellDir) -> Result<bool, Failure> {
    Ok(Process::recorded(&cell.server_pid_file())
        .doing(|| "looking for the server".to_owned())?
        .is_some())
}

/// Returns false if it did not run.
pub(super) fn stop_server(cell: &CellDir) -> Result<bool, Failure> {
    let what = || "stopping the server".to_owned();
    let Some(server) = Process::recorded(&cell.server_pid_file()).doing(what)? else {
        return Ok(false);
    };
    let progress = Progress::start("waiting for the server to write everything to disk");
    server.signal(Signal::TERM).doing(what)?;
    let ended = server.wait_for_end(SERVER_STOP_PATIENCE).doing(what)?;
    drop(progress);
    if ended {
        return Ok(true);
    }
    let why = format!(
        "process {} has not ended within {} seconds",
        server.pid,
        SERVER_STOP_PATIENCE.as_secs()
    );
    let log = cell.server_log();
    Err(Failure::new(what(), why).mend(format!(
        "its log is {}; 'kill -9 {}' loses nothing that was synced",
        log.display(),
        server.pid
    )))
}
