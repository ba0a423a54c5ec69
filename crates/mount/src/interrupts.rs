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
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::Cancel;
use parking_lot::Mutex;
use types::Fid;
use venus::Venus;

use crate::abi;
use crate::signals::{self, SignalEffect};

/// More requests than this are never between their reading and their noting.
const EARLY_MAX: usize = 1024;

/// How often requests are looked at that may have waited too long.
const PATIENCE_POLL: Duration = Duration::from_millis(50);

/// How long that goes on without requests.
const PATIENCE_IDLE: Duration = Duration::from_secs(10);

/// A server that is there answers a question within this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The maximum delay before a request of a killed process is cancelled.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    running: HashMap<u64, Running>,
    early: VecDeque<u64>,
    ended: bool,
    /// A thread checks those that continued.
    watched: bool,
    /// A thread looks for those that wait for a server that is away.
    patience_watched: bool,
}

struct Running {
    cancel: Cancel,
    /// It waits for other applications.
    waits: bool,
    /// The requesting thread.
    thread: u32,
    /// When the kernel asked to cancel it.
    wanted: Option<Instant>,
    /// In a mount with limited patience: when it began, and the server that it may wait for.
    asks: Option<(Instant, Weak<Venus>, Fid)>,
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
pub struct Interrupts {
    state: Mutex<State>,
    /// How long a request waits for a server that is away; `None`: for ever.
    patience: Option<Duration>,
}

impl Interrupts {
    /// For a mount whose requests wait so long for a server that is away.
    pub fn with_patience(patience: Option<Duration>) -> Arc<Self> {
        Arc::new(Interrupts { patience, ..Interrupts::default() })
    }

    /// Request `unique` asks the server of this volume.
    pub fn asks(self: &Arc<Self>, unique: u64, venus: &Arc<Venus>, root: Fid) {
        if self.patience.is_none() {
            return;
        }
        let mut state = self.state.lock();
        let Some(running) = state.running.get_mut(&unique).filter(|running| !running.waits) else {
            return;
        };
        running.asks = Some((Instant::now(), Arc::downgrade(venus), root));
        if !std::mem::replace(&mut state.patience_watched, true) {
            let this = Arc::clone(self);
            let watch = std::thread::Builder::new()
                .name("mount-patience".into())
                .spawn(move || this.watch_patience());
            state.patience_watched = watch.is_ok();
        }
    }

    /// Gives up requests that waited too long for a server that does not answer. Ends when there
    /// was no request for a while.
    fn watch_patience(&self) {
        let patience = self.patience.unwrap_or_default();
        let mut busy = Instant::now();
        loop {
            std::thread::sleep((patience / 8).clamp(PATIENCE_POLL, PATIENCE_POLL * 10));
            let late: Vec<_> = {
                let mut state = self.state.lock();
                if !state.running.is_empty() {
                    busy = Instant::now();
                } else if busy.elapsed() > PATIENCE_IDLE {
                    state.patience_watched = false;
                    return;
                }
                let is_late = |running: &&Running| {
                    running.asks.as_ref().is_some_and(|(since, ..)| since.elapsed() >= patience)
                };
                let late = state.running.values().filter(is_late);
                late.filter(|running| !running.cancel.is_cancelled())
                    .filter_map(|running| {
                        let (_, venus, root) = running.asks.clone()?;
                        Some((running.cancel.clone(), venus.upgrade()?, root))
                    })
                    .collect()
            };
            let mut silent: Vec<Fid> = Vec::new();
            let mut answers: Vec<Fid> = Vec::new();
            for (cancel, venus, root) in late {
                if !silent.contains(&root) && !answers.contains(&root) {
                    let list = if venus.control().answers(root, ANSWER_WITHIN) {
                        &mut answers
                    } else {
                        tracing::warn!(
                            volume = root.volume.0,
                            "the server does not answer: \
                            requests that wait for it fail (soft)"
                        );
                        &mut silent
                    };
                    list.push(root);
                }
                if silent.contains(&root) {
                    cancel.abandon();
                }
            }
        }
    }

    /// Notes request `unique` of `thread`, which may wait for other applications if it `waits`.
    /// Dropping the guard ends that.
    pub fn running(self: &Arc<Self>, unique: u64, thread: u32, waits: bool) -> RunningGuard<'_> {
        let cancel = if unique & abi::UNIQUE_RESEND != 0 {
            Cancel::of_repeated()
        } else {
            Cancel::of_request()
        };
        let mut state = self.state.lock();
        if waits && state.ended {
            cancel.cancel();
        }
        let early = state.early.iter().position(|early| *early == unique);
        let wanted = early.map(|at| {
            state.early.remove(at);
            Instant::now()
        });
        state
            .running
            .insert(unique, Running { cancel: cancel.clone(), waits, thread, wanted, asks: None });
        if wanted.is_some() {
            self.look(&mut state, unique);
        }
        RunningGuard { of: self, unique, cancel }
    }

    /// The kernel asks to cancel `unique`.
    pub fn interrupt(self: &Arc<Self>, unique: u64) {
        let mut state = self.state.lock();
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
            let mut state = self.state.lock();
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
        let mut state = self.state.lock();
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
        self.of.state.lock().running.remove(&self.unique);
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
        assert!(interrupts.state.lock().watched);
        drop(status);
        while interrupts.state.lock().watched {
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
        assert_eq!(interrupts.state.lock().early.len(), EARLY_MAX);
    }
}
