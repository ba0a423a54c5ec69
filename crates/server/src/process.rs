//! The process at the other end of a Unix connection: is it still the same one, and when does it
//! end?
//!
//! A number names a process only as long as it lives; number and start time together name it for
//! ever.

use std::io;
use std::os::fd::OwnedFd;

use fabric::PeerProcess;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process, now or in the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerLifetime {
    pid: u32,
    /// In ticks since the machine started.
    started: u64,
}

/// The present state of a process.
pub(crate) enum ProcessState {
    Over,
    /// It exists, or is dying; the descriptor becomes readable at its end.
    There(OwnedFd),
    /// The system does not report it.
    Unknown,
}

impl PeerLifetime {
    /// The process that connected, if it is visible.
    pub fn of(peer: PeerProcess) -> Option<PeerLifetime> {
        let started = start_time(peer.pid).ok()??;
        Some(PeerLifetime { pid: peer.pid, started })
    }

    /// Does it live?
    pub fn state(&self) -> ProcessState {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return ProcessState::Unknown;
        };
        // Opened first, checked second: if the start time is right then, the descriptor is of this
        // process.
        match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => ProcessState::Over,
            Err(_) => ProcessState::Unknown,
            Ok(descriptor) => match start_time(self.pid) {
                Ok(Some(started)) if started == self.started => ProcessState::There(descriptor),
                Ok(_) => ProcessState::Over,
                Err(_) => ProcessState::Unknown,
            },
        }
    }
}

/// In ticks since the machine started; `None`: there is no such process.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let text = match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The second field is the name in parentheses and may hold any bytes; of the fields behind it,
    // the 20th is the start time.
    let behind = text.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    let fields = String::from_utf8_lossy(&text[behind..]).into_owned();
    let field = fields.split_ascii_whitespace().nth(20).and_then(|field| field.parse().ok());
    field.map(Some).ok_or_else(|| io::Error::other("/proc/<pid>/stat is not as expected"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn of(pid: u32) -> Option<PeerLifetime> {
        PeerLifetime::of(PeerProcess { pid, uid: 0, gid: 0 })
    }

    #[test]
    fn a_process_that_ended_is_over_and_its_end_is_seen() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = of(child.id()).unwrap();
        let ProcessState::There(end) = process.state() else { panic!("it lives") };
        child.kill().unwrap();
        let mut fds = [rustix::event::PollFd::new(&end, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
        child.wait().unwrap();
        assert!(matches!(process.state(), ProcessState::Over));
        assert!(of(child.id()).is_none());
    }

    #[test]
    fn a_number_that_was_used_again_is_another_process() {
        let mine = of(std::process::id()).unwrap();
        assert!(matches!(mine.state(), ProcessState::There(_)));
        let before = PeerLifetime { started: mine.started - 1, ..mine };
        assert!(matches!(before.state(), ProcessState::Over));
    }
}
