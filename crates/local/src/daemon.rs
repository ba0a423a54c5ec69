//! Processes that outlive the command that started them: their pid files, start and end.
//!
//! A pid file has two lines: the process id, and the start time of that process in the kernel's
//! ticks (field 22 of `/proc/PID/stat`). Both together name one process for ever, so another
//! process that got the same pid later is never taken for the daemon and never killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use crate::failure::{Doing, Failure};

/// The longest wait for the end of a process that was killed.
const ENDING_MAX: Duration = Duration::from_secs(30);

/// The flag of a thread in `/proc/PID/stat` that says that it ends (`PF_EXITING`).
const EXITING: u64 = 4;

/// The stage of a process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Runs,
    /// It was killed or exits. Until its last thread has ended its locks are held, and its sockets
    /// accept connections that nothing will answer.
    Ends,
    /// It has ended, though its parent may not have asked for its status.
    Over,
}

/// One process, named by its pid and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    start_ticks: u64,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// If `/proc` does not show this process.
    pub fn this() -> io::Result<Process> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start_ticks =
            start_ticks(pid).ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Process { pid, start_ticks })
    }

    /// The running process that `pid_file` names; `None` if there is no such file, or its process
    /// has ended. The end of one that was killed and still has locks and sockets is waited for.
    ///
    /// # Errors
    /// If the pid file cannot be read.
    pub fn recorded(pid_file: &Path) -> io::Result<Option<Process>> {
        let text = match fs::read_to_string(pid_file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(process) = parse(&text) else { return Ok(None) };
        if process.life() == Life::Ends {
            process.wait_for_end(ENDING_MAX)?;
        }
        Ok(Some(process).filter(Process::is_alive))
    }

    /// Names the process for ever on this machine, in one word.
    pub fn label(&self) -> String {
        format!("{}/{}", self.pid, self.start_ticks)
    }

    /// The process that [`Process::label`] named.
    pub fn labelled(text: &str) -> Option<Process> {
        parse(&text.replace('/', "\n"))
    }

    /// Writes the pid file, whole or not at all.
    ///
    /// # Errors
    /// If the pid file cannot be written.
    pub fn record(&self, pid_file: &Path) -> io::Result<()> {
        let draft = pid_file.with_extension(format!("{}.new", self.pid));
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(format!("{}\n{}\n", self.pid, self.start_ticks).as_bytes())?;
        fs::rename(draft, pid_file)
    }

    /// Whether any thread of the process is left. A zombie has none.
    pub fn is_alive(&self) -> bool {
        self.life() != Life::Over
    }

    fn life(&self) -> Life {
        match Stat::of(self.pid) {
            Some(stat) if stat.start_ticks == self.start_ticks => stat.life(self.pid),
            _ => Life::Over,
        }
    }

    /// Sends `signal`; an ended process is no error.
    ///
    /// # Errors
    /// The kernel's refusal, such as `EPERM`.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.handle()? {
            Some(handle) => ignore_gone(rustix::process::pidfd_send_signal(handle, signal)),
            None => Ok(()),
        }
    }

    /// Waits at most `patience` for the end of the process; returns true if it ended.
    ///
    /// # Errors
    /// If the kernel cannot report the end.
    pub fn wait_for_end(&self, patience: Duration) -> io::Result<bool> {
        let Some(handle) = self.handle()? else { return Ok(true) };
        let end = Instant::now() + patience;
        while self.is_alive() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // A zombie without a reaper has ended, but a handle may report only the real end: check
            // twice a second.
            let nap = Timespec::try_from(left.min(Duration::from_millis(500)))
                .map_err(io::Error::other)?;
            let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&nap));
        }
        Ok(true)
    }

    /// A handle that names this process and no later one with the same number.
    fn handle(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(self.is_alive().then_some(handle))
    }
}

fn ignore_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &str) -> Option<Process> {
    let mut lines = text.lines();
    let process =
        Process { pid: lines.next()?.parse().ok()?, start_ticks: lines.next()?.parse().ok()? };
    (process.pid > 0).then_some(process)
}

/// The start time of `pid`; `None` if it does not run.
fn start_ticks(pid: i32) -> Option<u64> {
    Stat::of(pid).filter(|stat| stat.life(pid) != Life::Over).map(|stat| stat.start_ticks)
}

/// The fields of `/proc/PID/stat` about the process and its first thread.
struct Stat {
    /// Whether the first thread has ended; others may be left.
    is_zombie: bool,
    flags: u64,
    threads: u64,
    start_ticks: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name is in parentheses and may contain anything: the fields after the last
        // one are regular. The state is field 3.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse().ok();
        Some(Stat {
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            flags: number(9)?,
            threads: number(20)?,
            start_ticks: number(22)?,
        })
    }

    fn life(&self, pid: i32) -> Life {
        match (self.is_zombie, self.threads) {
            (true, 0 | 1) => Life::Over,
            (true, _) => Life::Ends,
            (false, _) if self.flags & EXITING != 0 || is_killed(pid) => Life::Ends,
            (false, _) => Life::Runs,
        }
    }
}

/// Whether a `SIGKILL` of the process waits to be seen by its threads.
fn is_killed(pid: i32) -> bool {
    let kill = 1_u64 << (Signal::KILL.as_raw() - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & kill != 0)
}

/// The pid file of a running daemon: written at the start, removed when dropped.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Records this process in `path`.
    ///
    /// # Errors
    /// If another running process is recorded there.
    pub fn hold(path: &Path, what: &str) -> Result<Self, Failure> {
        if let Some(other) =
            Process::recorded(path).doing(|| format!("reading {}", path.display()))?
        {
            let why = format!("it runs already as process {}", other.pid);
            return Err(Failure::new(format!("starting {what}"), why)
                .mend("stop it first with 'rialto down'"));
        }
        Process::this()
            .and_then(|this| this.record(path))
            .doing(|| format!("writing {}", path.display()))?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Starts this binary again with `arguments` as a daemon that writes to `log`. The daemon itself
/// detaches from the terminal (see [`leave_terminal`]) and writes its pid file.
///
/// # Errors
/// If the log cannot be opened or the process cannot be started.
pub fn spawn(arguments: &[&std::ffi::OsStr], log: &Path) -> io::Result<Child> {
    let log = open_log(log)?;
    Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir("/")
        .spawn()
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Gives a starting daemon a kernel session of its own, so that a closed terminal or an interrupt
/// does not end it.
///
/// # Errors
/// The kernel's refusal.
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid().map(|_| ()).map_err(io::Error::from)
}

/// Raises this process's limit of open files to the hard limit: servers and mounts have many open.
pub fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Waits until `ready` returns true; fails when the daemon ends or `patience` is over.
///
/// # Errors
/// If the daemon ends or does not answer in time; the message has the last line of its log.
pub fn wait_until(
    child: &mut Child,
    patience: Duration,
    log: &Path,
    what: &str,
    mut ready: impl FnMut() -> bool,
) -> Result<(), Failure> {
    let end = Instant::now() + patience;
    loop {
        if ready() {
            return Ok(());
        }
        if let Some(status) = child.try_wait().doing(|| format!("waiting for {what}"))? {
            return Err(Failure::new(
                format!("starting {what}"),
                last_words(log, &status.to_string()),
            )
            .mend(format!("its log is {}", log.display())));
        }
        if Instant::now() >= end {
            let why = format!("it did not answer within {} seconds", patience.as_secs());
            return Err(Failure::new(format!("starting {what}"), why)
                .mend(format!("read its log {}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last line of a log, in which a failed daemon gives the reason.
fn last_words(log: &Path, otherwise: &str) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(otherwise);
    line.strip_prefix("rialto ")
        .and_then(|line| line.split_once(": "))
        .map_or(line, |(_, rest)| rest)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start() {
        let this = Process::this().unwrap();
        assert!(this.is_alive());
        let stranger = Process { start_ticks: this.start_ticks + 1, ..this };
        assert!(!stranger.is_alive(), "the pid was used again: not ours");
        assert!(stranger.wait_for_end(Duration::from_secs(5)).unwrap());
        stranger.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn a_pid_file_is_found_while_its_process_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.pid");
        assert_eq!(Process::recorded(&path).unwrap(), None);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process { pid, start_ticks: start_ticks(pid).unwrap() };
        process.record(&path).unwrap();
        assert_eq!(Process::recorded(&path).unwrap(), Some(process));
        assert!(PidFile::hold(&path, "the server").is_err());

        assert!(!process.wait_for_end(Duration::from_millis(50)).unwrap());
        process.signal(Signal::TERM).unwrap();
        assert!(process.wait_for_end(Duration::from_secs(5)).unwrap());
        assert_eq!(Process::recorded(&path).unwrap(), None, "a zombie does not run");
        child.wait().unwrap();

        drop(PidFile::hold(&path, "the server").unwrap());
        assert!(!path.exists());
    }

    /// A killed process ends thread by thread. Here the first has ended, and another still runs.
    #[test]
    fn the_end_of_an_ending_process_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.pid");
        let script = "import ctypes, os, threading, time\n\
             last = lambda: (time.sleep(0.7), os._exit(0))\n\
             threading.Thread(target=last).start()\n\
             ctypes.CDLL(None).syscall(ctypes.c_long(60), 0)";
        let mut child = Command::new("python3").args(["-c", script]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Process { pid, start_ticks: start_ticks(pid).unwrap() };
        process.record(&path).unwrap();
        while process.life() == Life::Runs {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(process.is_alive(), "its other thread has its locks");
        assert_eq!(Process::recorded(&path).unwrap(), None);
        assert_eq!(process.life(), Life::Over);
        child.wait().unwrap();
    }

    #[test]
    fn a_damaged_pid_file_names_no_process() {
        for text in ["", "12", "x\ny\n", "0\n0\n", "-1\n5\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn last_words_are_the_last_line_without_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "INFO a\nrialto server: opening the partition: in use\n\n").unwrap();
        assert_eq!(last_words(&log, "x"), "opening the partition: in use");
        assert_eq!(last_words(&dir.path().join("none"), "exit 1"), "exit 1");
    }
}
