//! Which requests are under way, so that an interrupt finds its own.
//!
//! The kernel queues an interrupt once the request is on its way to us, and any worker may read it: even before the one
//! that read the request itself has noted it here. Such an early interrupt is remembered and fires as soon as its
//! request is noted. One that comes late (its request is answered) is remembered too, in vain: request numbers never
//! come again, so it is harmless, and only the newest few are kept.
//!
//! When the connection ends (a forced unmount), nobody interrupts any more, and nobody is left who would let go of a lock:
//! whatever waits for other applications is interrupted then.

use std::collections::{HashMap, VecDeque};

use client::Cancel;
use parking_lot::Mutex;

/// More requests than this are never between their reading and their noting.
const EARLY_MAX: usize = 1024;

#[derive(Default)]
struct State {
    running: HashMap<u64, Running>,
    early: VecDeque<u64>,
    ended: bool,
}

struct Running {
    cancel: Cancel,
    /// For other applications.
    waits: bool,
}

/// The requests under way.
#[derive(Default)]
pub struct Interrupts(Mutex<State>);

impl Interrupts {
    /// Notes request `unique`, which may wait for other applications if it `waits`. The guard ends that.
    pub fn running(&self, unique: u64, waits: bool) -> RunningGuard<'_> {
        let cancel = Cancel::new();
        let mut state = self.0.lock();
        if waits && state.ended {
            cancel.cancel();
        }
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            cancel.cancel();
        }
        state.running.insert(unique, Running { cancel: cancel.clone(), waits });
        RunningGuard { of: self, unique, cancel }
    }

    /// The kernel wants `unique` back.
    pub fn interrupt(&self, unique: u64) {
        let mut state = self.0.lock();
        if let Some(cancel) = state.running.get(&unique).map(|running| running.cancel.clone()) {
            drop(state);
            return cancel.cancel();
        }
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }

    /// No interrupt comes any more.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        let waiting: Vec<_> =
            state.running.values().filter(|running| running.waits).map(|running| running.cancel.clone()).collect();
        drop(state);
        waiting.iter().for_each(Cancel::cancel);
    }
}

/// A request under way, until it is dropped.
pub struct RunningGuard<'a> {
    of: &'a Interrupts,
    unique: u64,
    /// Fires when the kernel wants the request back.
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

    #[test]
    fn an_interrupt_finds_its_request_before_and_after_it_is_noted() {
        let interrupts = Interrupts::default();
        let first = interrupts.running(2, false);
        let second = interrupts.running(4, false);
        interrupts.interrupt(2);
        assert!(first.cancel.is_cancelled() && !second.cancel.is_cancelled());
        drop(second);
        interrupts.interrupt(6);
        assert!(interrupts.running(6, false).cancel.is_cancelled(), "came before its request was noted");
        assert!(!interrupts.running(8, false).cancel.is_cancelled());
    }

    #[test]
    fn the_end_interrupts_what_waits_for_others_and_nothing_else() {
        let interrupts = Interrupts::default();
        let (lock, write) = (interrupts.running(2, true), interrupts.running(4, false));
        interrupts.end();
        assert!(lock.cancel.is_cancelled() && !write.cancel.is_cancelled());
        assert!(interrupts.running(6, true).cancel.is_cancelled(), "came when it was over");
    }

    #[test]
    fn late_interrupts_do_not_pile_up() {
        let interrupts = Interrupts::default();
        for unique in 0..10_000 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.0.lock().early.len(), EARLY_MAX);
    }
}
