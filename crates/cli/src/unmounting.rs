//! Unmounts one mount in any state: for `umount`, `down`, and `up` when it replaces a stale one.

use std::io;
use std::path::Path;
use std::time::Duration;

use local::cell::MountRecords;
use local::daemon::Process;
use local::failure::{Doing, Failure};
use local::mounts;
use local::show::Progress;

/// How long a mount's process may take to send everything to the server after the kernel unmounted
/// it.
pub const UNMOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// The same while the server does not run: only to find out whether unsent changes remain.
pub const UNMOUNT_PATIENCE_ALONE: Duration = Duration::from_secs(3);

/// Result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// Unmounted, its process ended.
    Gone,
    /// There was no mount, at most a leftover pid file.
    WasNotThere,
    /// Unmounted, but its process still has changes for the server.
    StillWorking(i32),
}

/// Unmounts `at` and waits so long for its process. `lazy`: even while it is in use.
///
/// # Errors
/// If something else is mounted there, or the mount is in use: the message names the users.
pub fn unmount(
    records: &MountRecords,
    at: &Path,
    lazy: bool,
    patience: Duration,
) -> Result<UnmountOutcome, Failure> {
    let what = || format!("unmounting {}", at.display());
    let pid_file = records.pid_file(at);
    let process = Process::recorded(&pid_file).doing(what)?;
    let mounted = mounts::at(at).doing(what)?;
    if let Some(other) = mounted.as_ref().filter(|mounted| !mounted.is_rialto()) {
        return Err(Failure::new(
            what(),
            format!("what is mounted there is {}, not Rialto", other.kind),
        ));
    }
    let there = mounted.is_some() || process.is_some();
    if mounted.is_some() {
        // A mount without a process does not answer: there is nothing to wait for, and its users
        // get only errors.
        release(at, lazy || process.is_none())?;
    }
    let progress = Progress::start(format!(
        "waiting for the mount at {} to send its changes to the server",
        at.display()
    ));
    let ended = process.map_or(Ok(true), |process| process.wait_for_end(patience)).doing(what)?;
    drop(progress);
    match process {
        Some(process) if !ended => return Ok(UnmountOutcome::StillWorking(process.pid)),
        _ => [pid_file, records.facts_file(at)]
            .iter()
            .try_for_each(|file| remove_leftover(file))
            .doing(what)?,
    }
    Ok(if there { UnmountOutcome::Gone } else { UnmountOutcome::WasNotThere })
}

fn release(at: &Path, lazy: bool) -> Result<(), Failure> {
    mounts::unmount(at, lazy).map_err(|error| {
        let failure = Failure::new(format!("unmounting {}", at.display()), busy_text(&error, at));
        failure.mend(
            "end those processes and try again, or use 'rialto umount --lazy', \
             which lets its users finish",
        )
    })
}

fn busy_text(error: &io::Error, at: &Path) -> String {
    if error.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error()) {
        return error.to_string();
    }
    match mounts::users(at).as_slice() {
        [] => "it is in use".to_owned(),
        users => format!("it is in use: {}", users.join(", ")),
    }
}

fn remove_leftover(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mount_is_no_error_and_its_leftovers_go() {
        let dir = tempfile::tempdir().unwrap();
        let records = MountRecords::of(dir.path());
        records.prepare().unwrap();
        let at = dir.path().join("mnt");
        std::fs::write(records.pid_file(&at), "1\n1\n").unwrap();
        std::fs::write(records.facts_file(&at), "{}").unwrap();
        assert_eq!(
            unmount(&records, &at, false, UNMOUNT_PATIENCE).unwrap(),
            UnmountOutcome::WasNotThere
        );
        assert!(!records.pid_file(&at).exists() && !records.facts_file(&at).exists());
    }

    #[test]
    fn what_is_not_ours_stays_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let failure =
            unmount(&MountRecords::of(dir.path()), Path::new("/proc"), false, UNMOUNT_PATIENCE)
                .unwrap_err();
        assert!(failure.to_string().contains("not Rialto"), "{failure}");
    }
}
