//! The requests in progress, so that an interrupt finds its own.
//!
//! The kernel queues an interrupt once the request is on its way to us, and any worker may read it:
//! even before the one that read the request itself has noted it here. Such an early interrupt is
//! stored and applies as soon as its request is noted. One that comes late (its request is
//! answered) is stored too, in vain: request numbers are never reused, so it is harmless, and only
//! the newest few are stored.
//!
//! A wait for other applications (a lock) is cancelled for any signal. Other requests are only if
//! [`crate::signals`] says so; as the kernel reports only a thread's first signal, a thread of ours
//! checks those that continued again, as long as there are any.
//!
//! When the connection ends (a forced unmount), no more interrupts come, and no application is left
//! to unlock: then every wait for other applications is cancelled.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Cancel;
use parking_lot::Mutex;

use crate::signals::{self, SignalEffect};

/// More requests than this are never between their reading and their noting.
const EARLY_MAX: usize = 1024;

/// The maximum delay before a request of a killed process is cancelled.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    running: HashMap<u64, Running>,
    early: VecDeque<u64>,
    ended: bool,
    /// A thread checks those that continued.
    watched: bool,
}

struct Running {
    cancel: Cancel,
    /// It waits for other applications.
    waits: bool,
    /// The requesting thread.
    thread: u32,
    /// When the kernel asked to cancel it.
    wanted: Option<Instant>,
}

impl Running {
    /// Cancels it, if its thread's pending signals require that.
    fn cancel_if_due(&self) {
        let since = self.wanted.map(|at| at.elapsed()).unwrap_or_default();
        let given_up = self.waits
            || match signals::of_thread(self.thread) {
                SignalEffect::Die => true,
                SignalEffect::End => since >= signals::TIMEOUT,
                SignalEffect::GoOn => false,
            };
        if given_up {
            self.cancel.cancel();
        }
    }

    fn continues(&self) -> bool {
        self.wanted.is_some() && !self.cancel.is_cancelled()
    }
}

/// The requests under way.
#[derive(Default)]
pub struct Interrupts(Mutex<State>);

impl Interrupts {
    /// Notes request `unique` of `thread`, which may wait for other applications if it `waits`.
    /// Dropping the guard ends that.
    pub fn running(self: &Arc<Self>, unique: u64, thread: u32, waits: bool) -> RunningGuard<'_> {
        let cancel = Cancel::new();
        let mut state = self.0.lock();
        if waits && state.ended {
            cancel.cancel();
        }
        let early = state.early.iter().position(|early| *early == unique);
        let wanted = early.map(|at| {
            state.early.remove(at);
            Instant::now()
        });
        state.running.insert(unique, Running { cancel: cancel.clone(), waits, thread, wanted });
        if wanted.is_some() {
            self.look(&mut state, unique);
        }
        RunningGuard { of: self, unique, cancel }
    }

    /// The kernel asks to cancel `unique`.
    pub fn interrupt(self: &Arc<Self>, unique: u64) {
        let mut state = self.0.lock();
        if let Some(running) = state.running.get_mut(&unique) {
            running.wanted = Some(Instant::now());
            return self.look(&mut state, unique);
        }
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    fn look(self: &Arc<Self>, state: &mut State, unique: u64) {
        let running = &state.running[&unique];
        running.cancel_if_due();
        if running.continues() && !state.watched {
            let this = Arc::clone(self);
            let watch = std::thread::Builder::new()
                .name("mount-signals".into())
                .spawn(move || this.watch());
            state.watched = watch.is_ok();
            if !state.watched {
                // No thread would check again: it is better to cancel too much.
                running.cancel.cancel();
            }
        }
    }

    /// Checks those that continued, until there are none.
    fn watch(&self) {
        loop {
            std::thread::sleep(RECHECK_INTERVAL);
            let mut state = self.0.lock();
            state
                .running
                .values()
                .filter(|running| running.continues())
                .for_each(Running::cancel_if_due);
            state.watched = state.running.values().any(Running::continues);
            if !state.watched {
                return;
            }
        }
    }

    /// No interrupt comes any more.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        let waiting: Vec<_> = state
            .running
            .values()
            .filter(|running| running.waits)
            .map(|running| running.cancel.clone())
            .collect();
        drop(state);
        waiting.iter().for_each(Cancel::cancel);
    }
}

/// A request in progress, until it is dropped.
pub struct RunningGuard<'a> {
    of: &'a Interrupts,
    unique: u64,
    /// Set when the request must be cancelled.
    pub cancel: Cancel,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.of.0.lock().running.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread has this number.
    const GONE: u32 = u32::MAX;

    #[test]
    fn a_thread_with_only_a_handler_to_run_continues() {
        let interrupts = Arc::new(Interrupts::default());
        let here = std::process::id();
        let (status, lock) =
            (interrupts.running(2, here, false), interrupts.running(4, here, true));
        interrupts.interrupt(2);
        interrupts.interrupt(4);
        assert!(!status.cancel.is_cancelled() && lock.cancel.is_cancelled());
        assert!(interrupts.0.lock().watched);
        drop(status);
        while interrupts.0.lock().watched {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_interrupt_finds_its_request_before_and_after_it_is_noted() {
        let interrupts = Arc::new(Interrupts::default());
        let first = interrupts.running(2, GONE, false);
        let second = interrupts.running(4, GONE, false);
        interrupts.interrupt(2);
        assert!(first.cancel.is_cancelled() && !second.cancel.is_cancelled());
        drop(second);
        interrupts.interrupt(6);
        assert!(
            interrupts.running(6, GONE, false).cancel.is_cancelled(),
            "came before its request was noted"
        );
        assert!(!interrupts.running(8, GONE, false).cancel.is_cancelled());
    }

    #[test]
    fn the_end_cancels_only_waits_for_other_applications() {
        let interrupts = Arc::new(Interrupts::default());
        let (lock, write) = (interrupts.running(2, GONE, true), interrupts.running(4, GONE, false));
        interrupts.end();
        assert!(lock.cancel.is_cancelled() && !write.cancel.is_cancelled());
        assert!(interrupts.running(6, GONE, true).cancel.is_cancelled(), "came when it was over");
    }

    #[test]
    fn late_interrupts_do_not_pile_up() {
        let interrupts = Arc::new(Interrupts::default());
        for unique in 0..10_000 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.0.lock().early.len(), EARLY_MAX);
    }
}
