//! The process that served a place before: a new mount of the place waits for its end.

use std::path::Path;
use std::time::{Duration, Instant};

use local::cell::MountRecords;
use local::daemon::Process;
use local::failure::{Doing, Failure};
use local::mounts;
use local::show::Progress;

/// How long a mount waits for the process that served the same place before.
const PREDECESSOR_PATIENCE: Duration = Duration::from_secs(60);
/// How often the end of the predecessor is looked for.
const PREDECESSOR_POLL: Duration = Duration::from_millis(10);

/// Waits for the process that served this place before: after `umount` it still hands its changes
/// over, and has the pid file, the cache and the identity until it ends. A process that serves the
/// place now is an error.
///
/// # Errors
/// If the place is served, or the predecessor does not end.
pub fn wait_for_predecessor(records: &MountRecords, at: &Path) -> Result<(), Failure> {
    let what = || format!("mounting on {}", at.display());
    let pid_file = records.pid_file(at);
    let until = Instant::now() + PREDECESSOR_PATIENCE;
    let mut progress = None;
    loop {
        refuse_second(at)?;
        let Some(process) = Process::recorded(&pid_file).doing(what)? else { return Ok(()) };
        if Instant::now() >= until {
            let why = format!(
                "process {}, which served this place before, has not ended: it has changes for its \
                 server, or users",
                process.pid
            );
            return Err(Failure::new(what(), why).mend(format!(
                "'rialto umount --force {}' ends it, and names what is lost",
                at.display()
            )));
        }
        progress.get_or_insert_with(|| {
            Progress::start(format!("waiting for process {}, which ends", process.pid))
        });
        process.wait_for_end(PREDECESSOR_POLL).doing(what)?;
    }
}

fn refuse_second(at: &Path) -> Result<(), Failure> {
    let what = || format!("mounting on {}", at.display());
    match mounts::at(at).doing(what)? {
        Some(mounted) if mounted.is_rialto() => {
            let why = format!("{} is mounted there already", mounted.source);
            Err(Failure::new(what(), why)
                .mend(format!("run 'rialto umount {}' first", at.display())))
        }
        _ => Ok(()),
    }
}
