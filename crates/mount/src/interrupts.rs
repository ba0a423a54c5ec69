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
//! When the connection ends (an unmount), no more interrupts come, and no application is left to
//! unlock or to get an answer: then every wait for other applications is cancelled, and every
//! question. The kernel reads ahead without a program that could be killed, and such a read would
//! have the end of the mount wait for a server that is away.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::Cancel;
use parking_lot::Mutex;
use types::Fid;
use venus::Venus;

use crate::abi::{self, opcode};
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

/// The use that a request is of to the application that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestUse {
    /// It waits for other applications: any signal cancels it.
    Wait,
    /// It asks, and changes nothing.
    Question,
    /// It may change something.
    Change,
}

impl RequestUse {
    /// By the request's code. Those that are not questions for certain may change something.
    pub fn of(code: u32) -> Self {
        match code {
            opcode::SETLKW => RequestUse::Wait,
            opcode::READ
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::READLINK
            | opcode::LOOKUP
            | opcode::GETATTR
            | opcode::STATX
            | opcode::STATFS
            | opcode::GETXATTR
            | opcode::LISTXATTR => RequestUse::Question,
            _ => RequestUse::Change,
        }
    }
}

struct Running {
    cancel: Cancel,
    of: RequestUse,
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
        let given_up = self.of == RequestUse::Wait
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

    /// Request `unique` asks the server of this volume, from now on.
    pub fn asks(self: &Arc<Self>, unique: u64, venus: &Arc<Venus>, root: Fid) {
        if self.patience.is_none() {
            return;
        }
        let mut state = self.state.lock();
        let running = state.running.get_mut(&unique);
        let Some(running) = running.filter(|running| running.of != RequestUse::Wait) else {
            return;
        };
        let since = running.asks.as_ref().map_or_else(Instant::now, |(since, ..)| *since);
        running.asks = Some((since, Arc::downgrade(venus), root));
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

    /// Notes request `unique` of `thread`. Dropping the guard ends that.
    pub fn running(self: &Arc<Self>, unique: u64, thread: u32, of: RequestUse) -> RunningGuard<'_> {
        let cancel = if unique & abi::UNIQUE_RESEND != 0 {
            Cancel::of_repeated()
        } else {
            Cancel::of_request()
        };
        let mut state = self.state.lock();
        if of != RequestUse::Change && state.ended {
            cancel.cancel();
        }
        let early = state.early.iter().position(|early| *early == unique);
        let wanted = early.map(|at| {
            state.early.remove(at);
            Instant::now()
        });
        state
            .running
            .insert(unique, Running { cancel: cancel.clone(), of, thread, wanted, asks: None });
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
            .filter(|running| running.of != RequestUse::Change)
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
        let (status, lock) = (
            interrupts.running(2, here, RequestUse::Change),
            interrupts.running(4, here, RequestUse::Wait),
        );
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
        let first = interrupts.running(2, GONE, RequestUse::Change);
        let second = interrupts.running(4, GONE, RequestUse::Change);
        interrupts.interrupt(2);
        assert!(first.cancel.is_cancelled() && !second.cancel.is_cancelled());
        drop(second);
        interrupts.interrupt(6);
        assert!(
            interrupts.running(6, GONE, RequestUse::Change).cancel.is_cancelled(),
            "came before its request was noted"
        );
        assert!(!interrupts.running(8, GONE, RequestUse::Change).cancel.is_cancelled());
    }

    #[test]
    fn the_end_cancels_waits_and_questions_and_no_change() {
        let interrupts = Arc::new(Interrupts::default());
        let codes = [opcode::SETLKW, opcode::READ, opcode::WRITE, opcode::RELEASE, opcode::OPEN];
        let run = |unique, code| interrupts.running(unique, GONE, RequestUse::of(code));
        let running: Vec<_> = (1..).zip(codes).map(|(at, code)| run(2 * at, code)).collect();
        interrupts.end();
        let over: Vec<bool> = running.iter().map(|one| one.cancel.is_cancelled()).collect();
        assert_eq!(over, [true, true, false, false, false]);
        assert!(run(20, opcode::SETLKW).cancel.is_cancelled(), "came when it was over");
        assert!(!run(22, opcode::WRITE).cancel.is_cancelled());
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
