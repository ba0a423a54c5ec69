//! Waits for a worker's sockets while the worker looks into lanes.
//!
//! The model. A worker with requests in its lanes makes no system call, so it cannot ask epoll
//! whether something came at its sockets or its bell. A thread of its own waits for that instead,
//! for one event at a time: the worker *arms* it, it waits at the epoll's descriptor until
//! something is ready, says so in a word that the worker reads, and rests until it is armed again.
//! Between events neither of them makes a call. It starts with the worker's first lane.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{JoinHandle, Thread};

use rustix::event::{PollFd, PollFlags, poll};

/// The thread rests.
const RESTS: u8 = 0;
/// It waits for something at the sockets.
const ARMED: u8 = 1;
/// Something came; it rests until it is armed again.
const READY: u8 = 2;
/// It must end.
const OVER: u8 = 3;

/// See the head of the file.
pub(crate) struct SocketWatch {
    state: Arc<AtomicU8>,
    thread: Thread,
    joins: Option<JoinHandle<()>>,
}

impl SocketWatch {
    /// Watches what this epoll has. `epoll` is a descriptor of its own.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(epoll: OwnedFd) -> io::Result<SocketWatch> {
        let state = Arc::new(AtomicU8::new(RESTS));
        let of_thread = Arc::clone(&state);
        let joins = std::thread::Builder::new()
            .name("sockets".into())
            .spawn(move || watch(&of_thread, &epoll))?;
        Ok(SocketWatch { state, thread: joins.thread().clone(), joins: Some(joins) })
    }

    /// Whether nothing came since it was armed.
    pub fn is_quiet(&self) -> bool {
        self.state.load(Ordering::Acquire) == ARMED
    }

    /// Watches from now on. Sources that are ready already count, too.
    pub fn arm(&self) {
        if self.state.swap(ARMED, Ordering::AcqRel) != ARMED {
            self.thread.unpark();
        }
    }

    /// Ends the thread. The worker's epoll has something that is ready meanwhile.
    pub fn end(mut self) {
        self.state.store(OVER, Ordering::Release);
        self.thread.unpark();
        if let Some(joins) = self.joins.take() {
            // A panic of it was reported by itself.
            let _ = joins.join();
        }
    }
}

fn watch(state: &AtomicU8, epoll: &OwnedFd) {
    loop {
        match state.load(Ordering::Acquire) {
            OVER => return,
            ARMED => {}
            _ => {
                std::thread::park();
                continue;
            }
        }
        let mut sources = [PollFd::new(epoll, PollFlags::IN)];
        // An interrupted wait, or one for which there is no memory, has the worker ask in vain.
        let _ = poll(&mut sources, None);
        // Not over a state that came meanwhile.
        let _ = state.compare_exchange(ARMED, READY, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn each_event_is_reported_and_nothing_else() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        epoll::add(&epoll, &bell, EventData::new_u64(1), EventFlags::IN).unwrap();
        let watch = SocketWatch::start(epoll.try_clone().unwrap()).unwrap();
        assert!(!watch.is_quiet(), "it was not armed");
        for _ in 0..100 {
            watch.arm();
            for _ in 0..50 {
                assert!(watch.is_quiet(), "nothing came");
            }
            rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
            let since = Instant::now();
            while watch.is_quiet() {
                assert!(since.elapsed() < Duration::from_secs(30), "the event was missed");
                std::thread::yield_now();
            }
            rustix::io::read(&bell, &mut [0; 8]).unwrap();
        }
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
        watch.arm();
        let since = Instant::now();
        while watch.is_quiet() {
            assert!(since.elapsed() < Duration::from_secs(30), "what was ready before was missed");
            std::thread::yield_now();
        }
        watch.end();
    }
}
