//! The keeper of a mount (`docs/spec/keeper.md`): starts the daemon, holds what that gives it, and
//! starts a successor when the daemon ends unasked.
//!
//! It is meant to outlive everything: it has one thread, knows nothing of files and servers, and
//! its only orders are signals. The daemon's ways to end are: with exit code 0, on purpose; with
//! another code before it serves, a failure that the keeper passes on; in any other way, unasked.
//!
//! A killed daemon may be unable to end: one of its threads waits in the kernel for a page that
//! only the answer to a read will free, and the successor gives that answer. So the keeper also
//! looks whether the daemon's first thread has ended. It then starts the successor beside the rest.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use keep::{Event, Held, HeldPlaces};
use local::daemon::{self, PidFile, Process};
use local::failure::{Doing, Failure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::logging;
use crate::supervisor;

/// A daemon that lived this long served: its successor starts at once.
const SERVED: Duration = Duration::from_millis(500);
/// The longest pause before a successor starts.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The first pause, after a daemon that ended early.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// How often the keeper looks whether the daemon has ended but for a thread in the kernel. It has
/// if two looks say so: the threads of a process end one after the other.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// How a daemon ended.
enum End {
    /// On purpose, or before it served.
    Final(ExitStatus),
    /// Unasked, while it served, or on its way there as a successor.
    Early,
    /// As `Early`, but for a thread that waits in the kernel: the process has not ended yet.
    Stuck,
}

/// Runs the daemon `rialto ARGUMENTS` until it ends on purpose.
///
/// # Errors
/// If it cannot be started, or another process serves the same place.
pub fn run(arguments: &[OsString], pid_file: &Path) -> Result<ExitCode, Failure> {
    let what = || "keeping a mount".to_owned();
    logging::start();
    // The records have requests of users, passwords among them.
    logging::protect_memory();
    daemon::raise_open_files();
    let pid_file = PidFile::hold(pid_file, "the mount")?;
    // The path, not the file: an upgrade puts another file there.
    let program = crate::own_program().doing(what)?;
    let mut signals = Signals::new().doing(what)?;
    let mut held = Held::default();
    let mut ending = Vec::new();
    let (mut serves, mut pause) = (false, Duration::ZERO);
    loop {
        let began = Instant::now();
        // A group of its own: the terminal's interrupt comes to the keeper, which passes it on, and
        // a second one would end the daemon at once.
        let started = held.start(Command::new(&program).args(arguments).process_group(0));
        let mut daemon = match started {
            // The program may be away for a moment, or the machine may lack memory.
            Err(error) if serves && !signals.is_stop() => {
                tracing::error!(%error, program = %program.display(), "no successor starts");
                std::thread::sleep(PAUSE_MAX);
                continue;
            }
            started => started.doing(what)?,
        };
        let end = watch(&mut daemon, &mut held, &mut signals, &mut serves, &mut ending);
        match end.doing(what)? {
            End::Final(status) => {
                drop(pid_file);
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
            End::Early => {}
            End::Stuck => ending.push(daemon),
        }
        pause = if began.elapsed() >= SERVED {
            Duration::ZERO
        } else {
            (pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX)
        };
        tracing::warn!(?pause, "the mount's daemon ended unasked: a successor starts");
        std::thread::sleep(pause);
    }
}

/// Holds what daemons need that something else starts, and that connect to this socket, until a
/// signal asks it to end.
///
/// # Errors
/// If it cannot listen there.
pub fn hold_for_others(socket: &Path) -> Result<(), Failure> {
    let what = || format!("keeping mounts at {}", socket.display());
    logging::start();
    logging::protect_memory();
    daemon::raise_open_files();
    if let Some(dir) = socket.parent() {
        std::fs::create_dir_all(dir).doing(what)?;
    }
    let mut places = HeldPlaces::listen(socket).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::new(what(), "a keeper listens there already"),
        _ => Failure::new(what(), error),
    })?;
    let mut signals = Signals::new().doing(what)?;
    tracing::info!(socket = %socket.display(), "listening");
    supervisor::tell_ready();
    while !signals.is_stop() {
        let until: Vec<BorrowedFd<'_>> =
            signals.sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        places.serve(&until).doing(what)?;
    }
    Ok(())
}

/// Has the daemon of a mount replaced by a successor: by the program that is now at the keeper's
/// path.
///
/// # Errors
/// If there is no keeper.
pub fn replace(pid_file: &Path) -> Result<(), Failure> {
    let what = || "replacing the mount's daemon".to_owned();
    let keeper = Process::recorded(pid_file).doing(what)?;
    let keeper = keeper.ok_or_else(|| Failure::new(what(), "no process serves this mount"))?;
    keeper.signal(Signal::USR1).doing(what)
}

/// Whether the process that `pid_file` names is a keeper: its child is the daemon.
pub fn is_keeper(pid_file: &Path) -> bool {
    let Ok(Some(process)) = Process::recorded(pid_file) else { return false };
    let children = format!("/proc/{0}/task/{0}/children", process.pid);
    let has_child = std::fs::read_to_string(children).is_ok_and(|text| !text.trim().is_empty());
    let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    has_child && line.split(|byte| *byte == 0).any(|word| word == b"--keep")
}

/// The order of [`replace`].
const REPLACE: i32 = SIGUSR1;

/// The signals that the keeper takes: each makes its socket readable.
struct Signals {
    sockets: Vec<(i32, UnixStream)>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let mut sockets = Vec::new();
        for signal in [SIGTERM, SIGINT, SIGHUP, REPLACE] {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, write)?;
            sockets.push((signal, read));
        }
        Ok(Signals { sockets })
    }

    /// A signal that came.
    fn take(&mut self) -> Option<i32> {
        let mut came = self.sockets.iter_mut().filter_map(|(signal, socket)| {
            matches!(socket.read(&mut [0; 64]), Ok(1..)).then_some(*signal)
        });
        came.next()
    }

    /// Whether a signal came that ends the mount.
    fn is_stop(&mut self) -> bool {
        let mut stops = false;
        while let Some(signal) = self.take() {
            stops |= signal != REPLACE;
        }
        stops
    }
}

/// Whether the first thread of the process has ended, and others have not.
fn first_thread_ended(daemon: &Child) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.id())).unwrap_or_default();
    // The state is behind the program's name, which may have brackets and blanks.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Serves the daemon until it ends. `ending`: its predecessors that have not ended yet.
fn watch(
    daemon: &mut Child,
    held: &mut Held,
    signals: &mut Signals,
    serves: &mut bool,
    ending: &mut Vec<Child>,
) -> std::io::Result<End> {
    let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or(std::io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    let mut stopping = false;
    // At the last look.
    let mut was_stuck = false;
    loop {
        ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let (looks, ends, says) = {
            let socket = held.socket();
            let mut polled = vec![PollFd::new(&process, PollFlags::IN)];
            let signals = signals.sockets.iter();
            polled.extend(signals.map(|(_, signal)| PollFd::new(signal, PollFlags::IN)));
            let first = polled.len();
            polled.extend(socket.as_ref().map(|socket| PollFd::new(socket, PollFlags::IN)));
            let looks = match poll(&mut polled, Some(&LOOK)) {
                Ok(ready) => ready == 0,
                Err(rustix::io::Errno::INTR) => false,
                Err(error) => return Err(error.into()),
            };
            let ready = |at: usize| polled.get(at).is_some_and(|fd| !fd.revents().is_empty());
            (looks, ready(0), ready(first))
        };
        // One that was asked to end, or does not serve, has no successor that would free it.
        if looks && *serves && !stopping {
            let is_stuck = first_thread_ended(daemon);
            if is_stuck && was_stuck {
                return Ok(End::Stuck);
            }
            was_stuck = is_stuck;
        }
        // Before its end: what it said counts.
        if says {
            match held.take_event() {
                Event::Ready => *serves = true,
                Event::Stopping => stopping = true,
                Event::Held | Event::Gone => {}
            }
            continue;
        }
        while let Some(signal) = signals.take() {
            // A daemon that was asked to end has no successor, however it ends.
            stopping |= signal != REPLACE;
            let signal = match signal {
                REPLACE if *serves => Signal::KILL,
                REPLACE => continue,
                SIGINT => Signal::INT,
                _ => Signal::TERM,
            };
            let _ = pidfd_send_signal(process.as_fd(), signal);
        }
        if ends {
            let status = daemon.wait()?;
            let is_final = status.success() || stopping || !*serves;
            return Ok(if is_final { End::Final(status) } else { End::Early });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first thread ends, and another one does not: as of a killed process one of whose threads
    /// waits in the kernel.
    const STUCK: &str = "import ctypes, platform, threading, time\n\
                         threading.Thread(target=time.sleep, args=(600,)).start()\n\
                         end = 60 if platform.machine() == 'x86_64' else 93\n\
                         ctypes.CDLL(None).syscall(end, 0)";

    #[test]
    fn a_daemon_that_cannot_end_gets_a_successor() {
        let (mut held, mut ending) = (Held::default(), Vec::new());
        let mut signals = Signals::new().unwrap();
        let mut stuck = held.start(Command::new("python3").args(["-c", STUCK])).unwrap();
        let end = watch(&mut stuck, &mut held, &mut signals, &mut true, &mut ending).unwrap();
        assert!(matches!(end, End::Stuck));
        assert!(matches!(stuck.try_wait(), Ok(None)), "a thread is left");
        stuck.kill().unwrap();

        // It is gone once it can end, while the keeper watches the successor.
        ending.push(stuck);
        let mut next = held.start(Command::new("sleep").arg("1")).unwrap();
        let end = watch(&mut next, &mut held, &mut signals, &mut true, &mut ending).unwrap();
        assert!(matches!(end, End::Final(status) if status.success()));
        assert!(ending.is_empty());
    }
}
