//! Other processes: this test program once more, with its task in the environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mem::lock::{RangeLock, set_range};
use mem::map::Map;

const TASK: &str = "RIALTO_TEST_HELPER";
const FILE: &str = "RIALTO_TEST_FILE";
const MARK: &str = "helper: ";

/// A process that performs a task on a file, and reports its progress.
pub struct Helper {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Helper {
    /// Starts `task` on `file`.
    pub fn start(task: &str, file: &Path) -> Helper {
        let mut child = Command::new(std::env::current_exe().unwrap())
            // One thread, so that signals reach the working one.
            .args(["helper::helper_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Helper { child, stdin, lines }
    }

    /// Waits for its next report.
    pub fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "helper ended without a word");
            // The test harness writes its own text before ours, on the same line.
            if let Some((_, said)) = line.split_once(MARK) {
                return said.trim().to_owned();
            }
        }
    }

    /// Lets it continue.
    pub fn go_on(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits for its end.
    pub fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// A command that runs `task` on `file` without further orders.
pub fn command(task: &str, file: &Path) -> Vec<OsString> {
    let set = |name: &str, value: &std::ffi::OsStr| {
        let mut both = OsString::from(format!("{name}="));
        both.push(value);
        both
    };
    let program = std::env::current_exe().unwrap();
    let run = ["helper::helper_process", "--exact", "--nocapture"].map(OsString::from);
    [OsString::from("env"), set(TASK, task.as_ref()), set(FILE, file.as_ref()), program.into()]
        .into_iter()
        .chain(run)
        .collect()
}

fn say(what: &str) {
    println!("{MARK}{what}");
}

fn wait_to_go_on() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Not a test: the main function of the other processes.
#[test]
fn helper_process() {
    let (Ok(task), Some(file)) = (std::env::var(TASK), std::env::var_os(FILE)) else { return };
    let open = || File::options().read(true).write(true).open(&file).unwrap();
    match task.as_str() {
        "forerunner" => mount::readdir_helper::run(Path::new(&file)).unwrap(),
        "lock" => {
            let file = open();
            say("asks");
            set_range(file.as_fd(), RangeLock::Exclusive, 0, 0, true).unwrap();
            say("has it");
            wait_to_go_on();
        }
        // A signal with a handler, while waiting: the wait continues afterwards.
        "lock through a signal" => {
            let seen = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&seen)).unwrap();
            let file = open();
            say("asks");
            set_range(file.as_fd(), RangeLock::Exclusive, 0, 0, true).unwrap();
            say(if seen.load(Ordering::SeqCst) {
                "has it after the signal"
            } else {
                "has it without a signal"
            });
            wait_to_go_on();
        }
        "work through signals" => work_through_signals(Path::new(&file)),
        "map" => map(&open()),
        other => panic!("no task {other}"),
    }
}

/// Signals that must come before the work is done.
const SIGNALS: usize = 200;

/// Opens files that are not cached here, and panics with any error; reports rounds with signals.
fn work_through_signals(at: &Path) {
    let seen = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&seen)).unwrap();
    let (mut signals, mut round) = (0, 0);
    say("works");
    // On a busy machine they come slowly: an open sends the mount a request each time.
    while round < 2000 || signals < SIGNALS && round < 200_000 {
        // Every seventh, so that no read-ahead predicts the next.
        let file = at.join((round * 7 % 2000).to_string());
        rustix::fs::stat(&file).unwrap_or_else(|error| panic!("stat {round}: {error}"));
        File::open(&file).unwrap_or_else(|error| panic!("open {round}: {error}"));
        signals += usize::from(seen.swap(false, Ordering::Relaxed));
        round += 1;
    }
    say(&signals.to_string());
}

/// Writes through a mapping, and reports its content on request.
fn map(file: &File) {
    let mut map = Map::new(file, 8192, true).unwrap();
    map.write(4096, b"through the map");
    map.flush().unwrap();
    say("wrote");
    wait_to_go_on();
    let mut bytes = [0; 5];
    map.read(0, &mut bytes);
    say(std::str::from_utf8(&bytes).unwrap());
}
