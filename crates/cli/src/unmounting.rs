//! Unmounts one mount in any state: for `umount`, `down`, and `up` when it replaces a stale one.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use local::cell::MountRecords;
use local::daemon::Process;
use local::failure::{Doing, Failure};
use local::mounts::{self, OtherSpace};
use rustix::process::Signal;
use serde_json::Value;

use crate::control;

/// How long a mount's process may take to send everything to the server after the kernel unmounted
/// it.
pub const UNMOUNT_PATIENCE: Duration = Duration::from_secs(30);
/// The same while the server does not run: only to find out whether unsent changes remain.
pub const UNMOUNT_PATIENCE_ALONE: Duration = Duration::from_secs(3);

/// How often a waiting `umount` looks at what it waits for.
const TELLING: Duration = Duration::from_secs(1);
/// How long a process may take to end that has nothing to send.
const MOMENT: Duration = Duration::from_millis(700);
/// How long one may take that gives its changes up.
const GIVING_UP: Duration = Duration::from_secs(10);

/// Result of an unmount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// Unmounted, its process ended.
    Gone,
    /// There was no mount, at most a leftover pid file.
    WasNotThere,
    /// Unmounted, but its process still has changes for the server.
    StillWorking(i32),
    /// Unmounted here, with nothing unsaved; another mount name space has the file system too, and
    /// its process serves that.
    MountedElsewhere(OtherSpace),
}

/// The end of a wait for a mount's process.
enum Waited {
    Ended,
    NotEnded,
    MountedElsewhere(OtherSpace),
}

/// How a mount is unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Only if nothing uses it.
    Unused,
    /// Even while it is in use: it ends with its last user.
    Lazy,
    /// At once: its users get errors, and what its servers do not have yet is lost.
    Force,
}

/// The message that what is unmounted here is mounted elsewhere.
pub fn elsewhere(at: &Path, by: &OtherSpace) -> String {
    format!(
        "{} is unmounted here; process {} ({}) has it in another mount name space, and its process \
         serves it there",
        at.display(),
        by.pid,
        by.command
    )
}

/// Unmounts `at` and waits so long for its process; `None`: until it has ended.
///
/// # Errors
/// If something else is mounted there, or the mount is in use: the message names the users. If
/// changes were given up: the message names them.
pub fn unmount(
    records: &MountRecords,
    at: &Path,
    way: Way,
    patience: Option<Duration>,
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
    let devices = devices_below(at).doing(what)?;
    if mounted.is_some() {
        // A mount without a process does not answer: there is nothing to wait for, and its users
        // get only errors.
        release(at, if process.is_none() && way == Way::Unused { Way::Lazy } else { way })?;
    }
    let mut lost = Vec::new();
    if let Some(process) = process {
        let dir = pid_file.parent().unwrap_or(Path::new("/"));
        if way == Way::Force {
            lost = give_up(dir, &process).doing(what)?;
        } else {
            match wait(dir, &process, at, &devices, patience).doing(what)? {
                Waited::Ended => {}
                Waited::NotEnded => return Ok(UnmountOutcome::StillWorking(process.pid)),
                Waited::MountedElsewhere(by) => return Ok(UnmountOutcome::MountedElsewhere(by)),
            }
        }
    }
    [pid_file, records.facts_file(at)]
        .iter()
        .try_for_each(|file| remove_leftover(file))
        .doing(what)?;
    if !lost.is_empty() {
        let why = format!(
            "changes that no server has confirmed are given up:\n    {}",
            lost.join("\n    ")
        );
        return Err(Failure::new(what(), why));
    }
    Ok(if there { UnmountOutcome::Gone } else { UnmountOutcome::WasNotThere })
}

/// The file systems of the tree at `at`: its own, and those of the volumes below.
fn devices_below(at: &Path) -> io::Result<Vec<String>> {
    let below = mounts::all()?.into_iter();
    let below = below.filter(|mounted| mounted.is_rialto() && mounted.at.starts_with(at));
    Ok(below.map(|mounted| mounted.device).collect())
}

/// Waits for the end of the process, and tells now and then what it waits for.
fn wait(
    dir: &Path,
    process: &Process,
    at: &Path,
    devices: &[String],
    patience: Option<Duration>,
) -> std::io::Result<Waited> {
    let until = patience.map(|patience| Instant::now() + patience);
    let mut told = String::new();
    loop {
        let left = until.map_or(TELLING, |until| until.saturating_duration_since(Instant::now()));
        if process.wait_for_end(left.min(TELLING))? {
            return Ok(Waited::Ended);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(Waited::NotEnded);
        }
        let answer = control::ask(dir, process.pid, "unsaved", Some(TELLING)).unwrap_or_default();
        let waits = summary(&answer);
        if !waits.is_empty() && waits != told {
            eprintln!("unmounting {}: waiting for {waits}", at.display());
            told = waits;
        } else if waits.is_empty()
            && answer.is_array()
            && let Some(by) = mounts::mounted_elsewhere(devices)
        {
            return Ok(Waited::MountedElsewhere(by));
        }
    }
}

/// Has the process end without its changes; returns what is lost. One that does not listen, or does
/// not end, is killed.
fn give_up(dir: &Path, process: &Process) -> std::io::Result<Vec<String>> {
    // It may be ending anyway.
    if process.wait_for_end(MOMENT)? {
        return Ok(Vec::new());
    }
    let lost = control::ask(dir, process.pid, "give-up", Some(GIVING_UP)).unwrap_or_default();
    if !process.wait_for_end(GIVING_UP)? {
        process.signal(Signal::KILL)?;
        process.wait_for_end(GIVING_UP)?;
    }
    Ok(list(&lost))
}

/// The volumes that wait, each with its server and the amount.
fn summary(unsaved: &Value) -> String {
    let one = |volume: &Value| {
        let count = |name: &str| volume[name].as_u64().unwrap_or_default();
        let files = volume["files"].as_array().map_or(0, Vec::len);
        format!(
            "{}: volume {}, {files} files with {} bytes, {} changes of names and status",
            volume["server"].as_str().unwrap_or("a server"),
            volume["volume"].as_str().unwrap_or_default(),
            count("bytes"),
            count("changes")
        )
    };
    unsaved.as_array().into_iter().flatten().map(one).collect::<Vec<_>>().join("; ")
}

/// A line for each file, and one for the other changes of a volume.
fn list(unsaved: &Value) -> Vec<String> {
    let lines = |volume: &Value| {
        let name = volume["volume"].as_str().unwrap_or_default().to_owned();
        let files = volume["files"].as_array().cloned().unwrap_or_default();
        let mut lines: Vec<String> = files
            .iter()
            .map(|file| {
                let fid = file["fid"].as_str().unwrap_or_default();
                format!("volume {name}: file {fid}, {} bytes", file["bytes"])
            })
            .collect();
        if volume["changes"].as_u64().unwrap_or_default() > 0 {
            let changes = &volume["changes"];
            lines.push(format!("volume {name}: {changes} changes of names and status"));
        }
        lines
    };
    unsaved.as_array().into_iter().flatten().flat_map(lines).collect()
}

fn release(at: &Path, way: Way) -> Result<(), Failure> {
    let done = match way {
        Way::Force => mounts::unmount_forced(at),
        way => mounts::unmount(at, way == Way::Lazy),
    };
    done.map_err(|error| {
        let is_busy = error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error());
        let failure =
            Failure::new(format!("unmounting {}", at.display()), busy_text(&error, is_busy, at))
                .mend(
                    "end those processes and try again, or use 'rialto umount --lazy', which lets \
                     its users finish",
                );
        if is_busy { failure.busy() } else { failure }
    })
}

fn busy_text(error: &io::Error, is_busy: bool, at: &Path) -> String {
    let users = if is_busy { mounts::users(at) } else { return error.to_string() };
    match &users[..] {
        [] => "it is in use, or something else is mounted in it".to_owned(),
        users => users.iter().fold("it is in use by".to_owned(), |mut text, user| {
            text.push_str(&format!("\n    {user}"));
            text
        }),
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
            unmount(&records, &at, Way::Unused, Some(UNMOUNT_PATIENCE)).unwrap(),
            UnmountOutcome::WasNotThere
        );
        assert!(!records.pid_file(&at).exists() && !records.facts_file(&at).exists());
    }

    #[test]
    fn what_waits_is_told_and_what_is_lost_is_listed() {
        let unsaved = serde_json::json!([{"volume": "home", "server": "tcp:a:1", "bytes": 12,
            "changes": 2, "files": [{"fid": "1.2.3", "bytes": 12}]}]);
        let told = summary(&unsaved);
        assert!(told.starts_with("tcp:a:1: volume home, 1 files with 12 bytes, 2"), "{told}");
        assert_eq!(
            list(&unsaved),
            ["volume home: file 1.2.3, 12 bytes", "volume home: 2 changes of names and status"]
        );
        assert_eq!(summary(&Value::Null), "");
    }

    #[test]
    fn what_is_not_ours_stays_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let failure = unmount(&MountRecords::of(dir.path()), Path::new("/proc"), Way::Unused, None)
            .unwrap_err();
        assert!(failure.to_string().contains("not Rialto"), "{failure}");
    }
}
