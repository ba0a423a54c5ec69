//! System calls, context switches and FUSE requests, counted by the kernel for `perf stat`.
//!
//! Counting slows the counted work, so it has a round of its own, whose time is not used. Each
//! group of processes and the mount's connection have a `perf` each. It starts with its counters
//! off; two named pipes switch them on and off, so that only the work is counted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{Pid, Signal};

use super::cost::{Role, Watched};

/// Where the kernel shows its tracepoints.
const TRACING: &str = "/sys/kernel/tracing";
const SYSTEM_CALLS: &str = "raw_syscalls:sys_enter";
const SWITCHES: &str = "context-switches";
const REQUESTS: &str = "fuse:fuse_request_send";
/// `perf` answers within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The kinds of requests that file systems receive, by number. Forgets are left out: they need no
/// answer.
const KINDS: [(u32, &str); 27] = [
    (1, "LOOKUP"),
    (3, "GETATTR"),
    (4, "SETATTR"),
    (5, "READLINK"),
    (6, "SYMLINK"),
    (8, "MKNOD"),
    (9, "MKDIR"),
    (10, "UNLINK"),
    (11, "RMDIR"),
    (12, "RENAME"),
    (13, "LINK"),
    (14, "OPEN"),
    (15, "READ"),
    (16, "WRITE"),
    (17, "STATFS"),
    (18, "RELEASE"),
    (20, "FSYNC"),
    (22, "GETXATTR"),
    (25, "FLUSH"),
    (27, "OPENDIR"),
    (28, "READDIR"),
    (29, "RELEASEDIR"),
    (30, "FSYNCDIR"),
    (35, "CREATE"),
    (44, "READDIRPLUS"),
    (45, "RENAME2"),
    (50, "SYNCFS"),
];

/// Counts for one piece of work; `None` without processes to count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// System calls of the mounts' processes.
    pub client_calls: Option<f64>,
    /// System calls of the servers.
    pub server_calls: Option<f64>,
    /// Context switches of the mounts' processes, ended threads included.
    pub client_switches: Option<f64>,
    /// Context switches of the servers, ended threads included.
    pub server_switches: Option<f64>,
    /// Requests of the kernel to the mount, by kind.
    pub requests: Option<BTreeMap<&'static str, f64>>,
}

impl Counts {
    /// Divides by `pieces`.
    pub fn per(mut self, pieces: f64) -> Counts {
        let (client, server) = (
            [&mut self.client_calls, &mut self.client_switches],
            [&mut self.server_calls, &mut self.server_switches],
        );
        let counts = client.into_iter().chain(server).flatten();
        counts
            .chain(self.requests.iter_mut().flat_map(BTreeMap::values_mut))
            .for_each(|count| *count /= pieces);
        self
    }

    /// Requests of all kinds.
    pub fn all_requests(&self) -> Option<f64> {
        self.requests.as_ref().map(|kinds| kinds.values().sum())
    }
}

/// Whether counting works on this machine.
///
/// # Errors
/// The reason, for people.
pub fn available() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can use the kernel's tracepoints".to_owned());
    }
    if !Path::new(TRACING).join("events").exists() {
        let mounted = Command::new("mount").args(["-t", "tracefs", "tracefs", TRACING]).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return Err(format!("tracefs cannot be mounted on {TRACING}"));
        }
    }
    let mut probe = Command::new("perf");
    let probe = probe
        .args(["stat", "-x,", "-e", SYSTEM_CALLS, "--", "true"])
        .stdout(Stdio::null())
        .output();
    match probe {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("perf: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("perf cannot be run ({error}): install linux-perf")),
    }
}

/// Counters that are set up and off.
pub struct Counters {
    client: Option<Perf>,
    server: Option<Perf>,
    requests: Option<Perf>,
}

impl Counters {
    /// For `processes`, and for the mount that `root` lies on if it is a FUSE one. Uses `scratch`
    /// for pipes and results.
    ///
    /// # Errors
    /// If `perf` or a pipe cannot be set up.
    pub fn prepare(processes: &[Watched], root: &Path, scratch: &Path) -> io::Result<Counters> {
        let of = |role: Role, name: &str| {
            let pids: Vec<String> = processes
                .iter()
                .filter(|watched| watched.role == role)
                .map(|watched| watched.pid.to_string())
                .collect();
            let start = || {
                Perf::start(
                    &scratch.join(name),
                    &["-e", SYSTEM_CALLS, "-e", SWITCHES, "-p", &pids.join(",")],
                )
            };
            if pids.is_empty() { Ok(None) } else { start().map(Some) }
        };
        let (client, server) = (of(Role::Client, "client")?, of(Role::Server, "server")?);
        let requests = match connection(root)? {
            Some(connection) => {
                Some(Perf::start(&scratch.join("requests"), &request_events(connection))?)
            }
            None => None,
        };
        Ok(Counters { client, server, requests })
    }

    /// Switches the counters on.
    ///
    /// # Errors
    /// If `perf` does not acknowledge.
    pub fn enable(&mut self) -> io::Result<()> {
        self.each().try_for_each(|perf| perf.send_order("enable"))
    }

    /// Switches the counters off and returns the counts.
    ///
    /// # Errors
    /// If `perf` does not acknowledge, or its results cannot be read.
    pub fn finish(mut self) -> io::Result<Counts> {
        self.each().try_for_each(|perf| perf.send_order("disable"))?;
        let both = |perf: Option<Perf>| -> io::Result<(Option<f64>, Option<f64>)> {
            let counts = perf.map(Perf::end).transpose()?.unwrap_or_default();
            Ok((counts.first().copied(), counts.get(1).copied()))
        };
        let requests = self.requests.take().map(Perf::end).transpose()?.map(|counts| {
            let kinds = KINDS.iter().map(|(_, name)| *name);
            kinds.zip(counts).filter(|(_, count)| *count > 0.0).collect()
        });
        let (client_calls, client_switches) = both(self.client.take())?;
        let (server_calls, server_switches) = both(self.server.take())?;
        Ok(Counts { client_calls, server_calls, client_switches, server_switches, requests })
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Perf> {
        [&mut self.client, &mut self.server, &mut self.requests].into_iter().flatten()
    }
}

/// The number by which the kernel's tracepoints name the connection of the FUSE mount that `root`
/// lies on.
fn connection(root: &Path) -> io::Result<Option<u32>> {
    let kind = local::mounts::below(root)?.map(|mounted| mounted.kind).unwrap_or_default();
    if kind != "fuse" && !kind.starts_with("fuse.") {
        return Ok(None);
    }
    let device = rustix::fs::stat(root)?.st_dev;
    Ok(Some(rustix::fs::major(device) << 20 | rustix::fs::minor(device)))
}

fn request_events(connection: u32) -> Vec<String> {
    let mut arguments = vec!["-a".to_owned()];
    for (number, _) in KINDS {
        let filter = format!("connection == {connection} && opcode == {number}");
        arguments.extend(["-e".to_owned(), REQUESTS.to_owned(), "--filter".to_owned(), filter]);
    }
    arguments
}

/// One `perf stat`.
struct Perf {
    process: Child,
    orders: File,
    answers: File,
    results: PathBuf,
}

impl Perf {
    fn start<S: AsRef<std::ffi::OsStr>>(at: &Path, arguments: &[S]) -> io::Result<Perf> {
        let (orders, answers, results) = (
            at.with_extension("orders"),
            at.with_extension("answers"),
            at.with_extension("counts"),
        );
        for pipe in [&orders, &answers] {
            let _ = fs::remove_file(pipe);
            rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        // Open for both directions, so that opening does not block.
        let open = |path: &Path| {
            rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(File::from)
        };
        let (orders_end, answers_end) = (open(&orders)?, open(&answers)?);
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-D", "-1", "-o"]).arg(&results);
        perf.arg(format!("--control=fifo:{},{}", orders.display(), answers.display()))
            .args(arguments);
        let process =
            perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Perf { process, orders: orders_end, answers: answers_end, results })
    }

    /// Sends one order and waits for its acknowledgement.
    fn send_order(&mut self, order: &str) -> io::Result<()> {
        writeln!(self.orders, "{order}")?;
        let end = Instant::now() + TIMEOUT;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let nap = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            if poll(&mut [PollFd::new(&self.answers, PollFlags::IN)], Some(&nap))? > 0 {
                let mut byte = [0];
                self.answers.read_exact(&mut byte)?;
                // The acknowledgement ends with a newline, and in some versions with a NUL after
                // it.
                answer.extend(byte.into_iter().filter(|byte| *byte != 0));
            } else if self.process.try_wait()?.is_some() || Instant::now() > end {
                return Err(io::Error::other("perf does not count"));
            }
        }
        Ok(())
    }

    /// Ends it and reads its counts, in the order of its events.
    fn end(mut self) -> io::Result<Vec<f64>> {
        interrupt(&self.process)?;
        self.process.wait()?;
        Ok(parse(&fs::read_to_string(&self.results)?))
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Sends SIGINT like Ctrl-C: programs of this kind then write their results.
///
/// # Errors
/// The kernel's refusal.
pub fn interrupt(process: &Child) -> io::Result<()> {
    let pid = i32::try_from(process.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process"))?;
    Ok(rustix::process::kill_process(pid, Signal::INT)?)
}

/// The first field of every line of `perf stat -x,`; `<not counted>` is 0.
fn parse(text: &str) -> Vec<f64> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split(',').next().and_then(|count| count.parse().ok()).unwrap_or(0.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_writes_is_read_in_order() {
        let text = "# started on Sun\n\n12,,fuse:fuse_request_send,5,100.00,,\n<not \
            counted>,,x,0,100.00,,\n7,,y,1,1,,\n";
        assert_eq!(parse(text), [12.0, 0.0, 7.0]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn counts_are_shared_out_and_summed() {
        let requests = Some(BTreeMap::from([("LOOKUP", 10.0), ("READ", 30.0)]));
        let counts = Counts {
            client_calls: Some(100.0),
            client_switches: Some(5.0),
            requests,
            ..Counts::default()
        }
        .per(10.0);
        assert_eq!(
            (counts.client_calls, counts.server_calls, counts.client_switches),
            (Some(10.0), None, Some(0.5))
        );
        assert_eq!(counts.all_requests(), Some(4.0));
        assert_eq!(Counts::default().all_requests(), None);
    }

    #[test]
    fn system_calls_of_a_process_are_counted_while_it_is_asked_for() {
        if let Err(why) = available() {
            eprintln!("skipped: {why}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let watched = [Watched { role: Role::Client, pid }];
        let mut counters = Counters::prepare(&watched, dir.path(), dir.path()).unwrap();
        counters.enable().unwrap();
        (0..1000).for_each(|_| drop(fs::metadata("/")));
        let counts = counters.finish().unwrap();
        assert!(counts.client_calls.unwrap() >= 1000.0, "{counts:?}");
        assert_eq!((counts.server_calls, counts.requests), (None, None));
    }
}
