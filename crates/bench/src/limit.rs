//! The time limit of one side.
//!
//! A file system that hangs blocks the thread that waits for it, which then cannot check a clock.
//! So another thread does that: when the time is over it breaks the side, which kills the processes
//! behind the mount. The kernel then fails the waiting requests, and the measuring thread continues
//! and calls [`Limit::end`]. The same happens when a signal requests the end ([`interrupts`]) and
//! the side does not return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::cost::{Role, Watched};
use super::interrupts;

/// Ends all waits for a side. Called again as long as a thread still waits: the side may have been
/// starting.
pub type Breaker = Box<dyn Fn() + Send>;

/// Ends the processes behind a mount, whose requests then fail.
pub fn kill_clients(processes: &[Watched]) {
    for client in processes.iter().filter(|process| process.role == Role::Client) {
        if let Some(pid) = rustix::process::Pid::from_raw(client.pid) {
            // The process may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Interval between checks of the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a side may take to return by itself after a signal, and the interval between two
/// breaks.
const GRACE: Duration = Duration::from_secs(5);

/// A running time limit.
pub struct Limit {
    over: Arc<AtomicBool>,
    ended: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Limit {
    /// Starts the limit; `None`: until a signal comes. Without a breaker nothing is broken.
    pub fn start(within: Option<Duration>, breaker: Option<Breaker>) -> Limit {
        let (ended, end) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&over);
        let look = move |breaker: Breaker| {
            let mut next = within.map(|within| Instant::now() + within);
            let mut asked = false;
            while end.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                if !asked && interrupts::check().is_err() {
                    asked = true;
                    next = Some(next.map_or(now + GRACE, |next| next.min(now + GRACE)));
                }
                if next.is_some_and(|next| now >= next) {
                    shared.fetch_or(!asked, Ordering::SeqCst);
                    breaker();
                    next = Some(now + GRACE);
                }
            }
        };
        let thread = breaker.map(|breaker| std::thread::spawn(move || look(breaker)));
        Limit { over, ended, thread }
    }

    /// Ends the limit. Returns true if the side was broken because its time was over.
    pub fn end(self) -> bool {
        drop(self.ended);
        if let Some(thread) = self.thread {
            // The thread panics only if the breaker does; the side was over its time then as well.
            let _ = thread.join();
        }
        self.over.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_thread_is_freed_when_the_time_is_over() {
        let (free, waiting) = channel();
        let limit = Limit::start(
            Some(Duration::from_millis(50)),
            Some(Box::new(move || free.send(()).unwrap_or(()))),
        );
        waiting.recv().unwrap();
        assert!(limit.end());
    }

    #[test]
    fn a_side_done_in_time_is_not_broken() {
        let broken = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&broken);
        let hour = Some(Duration::from_secs(3600));
        let limit = Limit::start(hour, Some(Box::new(move || seen.store(true, Ordering::SeqCst))));
        assert!(!limit.end());
        assert!(!broken.load(Ordering::SeqCst));
        assert!(
            !Limit::start(Some(Duration::ZERO), None).end(),
            "nothing to break, so no thread waited"
        );
    }
}
