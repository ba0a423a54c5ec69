//! Another file system, set up on this machine by a script of `bench/peers/`.
//!
//! The scripts take a verb and a directory for all of their files: `start` (prepare, serve and
//! mount; prints the mount point), `umount`, `mount`, `stop` (the data stays), `pids` (lines
//! `client PID` and `server PID`), `purge` (removes files elsewhere). `bench/peers/README.md` has
//! the details.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use local::failure::{Doing, Failure};

use super::cost::{Role, Watched};
use super::limit::{Breaker, kill_clients};
use super::side::{Side, any_directory_takes, drop_caches};
use super::{MeasuredFrom, Scenario, State, interrupts};

/// How long a script may take: the slowest servers need two minutes to find their quorum.
const VERB_MAX: Duration = Duration::from_secs(300);
/// Interval between checks whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A peer file system.
pub struct Peer {
    name: String,
    script: PathBuf,
    dir: PathBuf,
    root: PathBuf,
}

impl Peer {
    /// Sets up `name` with its script in `scripts`, below `dir`.
    ///
    /// # Errors
    /// If there is no such script, or it fails or takes too long.
    pub fn new(name: &str, scripts: &Path, dir: &Path) -> Result<Self, Failure> {
        let script = scripts.join(format!("{name}.sh"));
        if !script.is_file() {
            let why = format!("{} is not there", script.display());
            return Err(Failure::new(format!("setting up {name}"), why)
                .mend(format!("there are {}; --peers names their directory", known(scripts))));
        }
        let dir = dir.join(format!("peer-{name}"));
        fs::create_dir(&dir).doing(|| format!("making {}", dir.display()))?;
        let mut peer = Peer { name: name.to_owned(), script, dir, root: PathBuf::new() };
        peer.start()?;
        Ok(peer)
    }

    fn start(&mut self) -> Result<(), Failure> {
        let said = self.verb("start")?;
        let mount = said.lines().last().map(str::trim).filter(|line| line.starts_with('/'));
        let mount = mount.ok_or_else(|| {
            Failure::new(format!("starting {}", self.name), "it does not print the mount point")
        })?;
        self.root = Path::new(mount).join("bench");
        fs::create_dir_all(&self.root).doing(|| format!("making {}", self.root.display()))
    }

    fn verb(&self, verb: &str) -> Result<String, Failure> {
        run_verb(&self.script, verb, &self.dir)
    }
}

/// Runs the script, which ends in time or is killed. After Ctrl-C only the removing verbs run.
fn run_verb(script: &Path, verb: &str, dir: &Path) -> Result<String, Failure> {
    let what = || format!("running '{} {verb}'", script.display());
    // Into files: a server that the script left running may have a pipe open for ever.
    let (said, complained) = (dir.join("said"), dir.join("complained"));
    let output = |path: &Path| fs::File::create(path).doing(what);
    let mut command = Command::new(script);
    command
        .arg(verb)
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(output(&said)?)
        .stderr(output(&complained)?);
    let mut child = command.process_group(0).spawn().doing(what)?;
    let takes_away = matches!(verb, "stop" | "purge" | "pids");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().doing(what)? {
            break status;
        }
        let interrupted = interrupts::check().is_err() && !takes_away;
        if interrupted || start.elapsed() > VERB_MAX {
            if let Some(group) =
                i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
            return Err(Failure::new(
                what(),
                if interrupted { "interrupted" } else { "it takes too long" },
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let text = |path: &Path| {
        fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned()).doing(what)
    };
    if status.success() {
        return text(&said);
    }
    let complained = text(&complained)?;
    let last = complained
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("it says nothing");
    Err(Failure::new(what(), last)
        .mend(format!("'{} install' installs what it needs", script.display())))
}

/// The peers that have a script in `scripts`, for a message.
fn known(scripts: &Path) -> String {
    let entries = fs::read_dir(scripts).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(Path::new(&entry.file_name()).file_stem()?.to_str()?.to_owned()))
        .filter(|name| name != "README" && name != "lib")
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Parses lines of a role and a process id.
fn processes(text: &str) -> Vec<Watched> {
    let watched = |line: &str| {
        let (role, pid) = line.trim().split_once(' ')?;
        let role = match role {
            "client" => Role::Client,
            "server" => Role::Server,
            _ => return None,
        };
        Some(Watched { role, pid: pid.trim().parse().ok()? })
    };
    text.lines().filter_map(watched).collect()
}

impl Side for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        &self.root
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        any_directory_takes(scenario)
    }

    fn may_fail(&self) -> bool {
        true
    }

    fn forget(&mut self, state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        match state {
            State::Cold => self.verb("stop")?,
            _ => self.verb("umount")?,
        };
        drop_caches(state)?;
        match state {
            State::Cold => self.start(),
            _ => self.verb("mount").map(drop),
        }
    }

    fn processes(&self) -> Vec<Watched> {
        self.verb("pids").map(|text| processes(&text)).unwrap_or_default()
    }

    fn breaker(&self) -> Option<Breaker> {
        // The file written by the verb `pids`; that verb itself may be running in the waiting
        // thread.
        let pids = self.dir.join("pids");
        Some(Box::new(move || {
            kill_clients(&processes(&fs::read_to_string(&pids).unwrap_or_default()));
        }))
    }

    fn revive(&mut self) -> Result<(), Failure> {
        self.verb("stop")?;
        self.start()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for verb in ["stop", "purge"] {
            if let Err(failure) = self.verb(verb) {
                eprintln!("rialto bench: {failure}");
            }
        }
    }
}

/// The default directory of the scripts: `bench/peers` in this directory or above it.
pub fn scripts() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let places = here.ancestors().map(|dir| dir.join(OsStr::new("bench/peers")));
    places.into_iter().find(|dir| dir.is_dir()).unwrap_or_else(|| PathBuf::from("bench/peers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, text: &str) {
        let drafts = tempfile::tempdir().unwrap();
        let (draft, path) = (drafts.path().join("draft"), dir.join("mine.sh"));
        fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
        // Another process makes it: a file that a child of this one, started by another test at
        // this moment, still has open for writing cannot be executed.
        let made = Command::new("install").args(["-m", "755"]).args([draft, path]).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn a_peer_is_what_its_script_makes() {
        let dir = tempfile::tempdir().unwrap();
        script(
            dir.path(),
            "case $1 in start) mkdir -p $2/m; echo words; echo $2/m;; pids) echo client 12; echo \
                x; esac",
        );
        let peer = Peer::new("mine", dir.path(), dir.path()).unwrap();
        assert_eq!(peer.root(MeasuredFrom::Local), dir.path().join("peer-mine/m/bench"));
        assert_eq!(peer.processes(), [Watched { role: Role::Client, pid: 12 }]);
    }

    #[test]
    fn a_peer_that_cannot_start_says_why() {
        let dir = tempfile::tempdir().unwrap();
        script(dir.path(), "[ $1 != start ] || { echo 'mine: no such program' >&2; exit 1; }");
        let message = Peer::new("mine", dir.path(), dir.path()).err().unwrap().to_string();
        assert!(
            message.contains("mine: no such program") && message.contains("install"),
            "{message}"
        );
        let message = Peer::new("other", dir.path(), dir.path()).err().unwrap().to_string();
        assert!(message.contains("there are mine"), "{message}");
    }

    #[test]
    fn lines_that_name_no_process_are_passed_over() {
        let text = "client 1\nserver 22\nserver x\nother 3\n\n";
        let expected =
            [Watched { role: Role::Client, pid: 1 }, Watched { role: Role::Server, pid: 22 }];
        assert_eq!(processes(text), expected);
    }
}
