//! Which requests are under way, so that an interrupt finds its own.
//!
//! The kernel queues an interrupt once the request is on its way to us, and any worker may read it: even before the one
//! that read the request itself has noted it here. Such an early interrupt is remembered and fires as soon as its
//! request is noted. One that comes late (its request is answered) is remembered too, in vain: request numbers never
//! come again, so it is harmless, and only the newest few are kept.

use std::collections::{HashMap, VecDeque};

use client::Cancel;
use parking_lot::Mutex;

/// More requests than this are never between their reading and their noting.
const EARLY_MAX: usize = 1024;

#[derive(Default)]
struct State {
    running: HashMap<u64, Cancel>,
    early: VecDeque<u64>,
}

/// The requests under way.
#[derive(Default)]
pub struct Interrupts(Mutex<State>);

impl Interrupts {
    /// Notes request `unique`. The guard ends that.
    pub fn running(&self, unique: u64) -> RunningGuard<'_> {
        let cancel = Cancel::new();
        let mut state = self.0.lock();
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            cancel.cancel();
        }
        state.running.insert(unique, cancel.clone());
        RunningGuard { of: self, unique, cancel }
    }

    /// The kernel wants `unique` back.
    pub fn interrupt(&self, unique: u64) {
        let mut state = self.0.lock();
        if let Some(cancel) = state.running.get(&unique).cloned() {
            drop(state);
            return cancel.cancel();
        }
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
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
        let first = interrupts.running(2);
        let second = interrupts.running(4);
        interrupts.interrupt(2);
        assert!(first.cancel.is_cancelled() && !second.cancel.is_cancelled());
        drop(second);
        interrupts.interrupt(6);
        assert!(interrupts.running(6).cancel.is_cancelled(), "came before its request was noted");
        assert!(!interrupts.running(8).cancel.is_cancelled());
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
