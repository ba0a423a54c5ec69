//! The role of the thread that receives answers: one thread has it, the others sleep.
//!
//! Roles change under one lock: a thread either finds the role free and takes it, or is in the list
//! of sleepers before another thread can give the role up without seeing it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::pending::PendingCall;
use crate::CompletionGroup;

/// A thread that sleeps until its call, or enough of its calls, are over.
pub(crate) trait Sleeper: Send + Sync {
    /// It will wake up, or has: the role is of no use to it.
    fn is_done(&self) -> bool;
    /// Wakes it, so that it checks again.
    fn nudge(&self);
}

impl Sleeper for PendingCall {
    fn is_done(&self) -> bool {
        PendingCall::is_done(self)
    }

    fn nudge(&self) {
        PendingCall::nudge(self);
    }
}

impl Sleeper for CompletionGroup {
    fn is_done(&self) -> bool {
        self.is_satisfied()
    }

    fn nudge(&self) {
        CompletionGroup::nudge(self);
    }
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ReaderRole(Mutex<State>);

#[derive(Default)]
struct State {
    taken: bool,
    sleepers: VecDeque<Arc<dyn Sleeper>>,
}

impl ReaderRole {
    /// Takes the role if it is free.
    pub fn try_take(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().taken, true)
    }

    /// Takes the role if it is free and there is a channel to lead. `None`: `sleeper` is now among
    /// the sleepers.
    pub fn take_or_sleep<C>(
        &self,
        sleeper: &Arc<dyn Sleeper>,
        channel: impl FnOnce() -> Option<C>,
    ) -> Option<C> {
        let mut state = self.0.lock();
        if !state.taken
            && let Some(channel) = channel()
        {
            state.taken = true;
            return Some(channel);
        }
        state.sleepers.push_back(Arc::clone(sleeper));
        None
    }

    /// A thread sleeps no more.
    pub fn leave_sleepers(&self, sleeper: &Arc<dyn Sleeper>) {
        self.0.lock().sleepers.retain(|other| !Arc::ptr_eq(other, sleeper));
    }

    /// Gives the role up, and wakes one sleeper for it.
    pub fn resign(&self) {
        let mut state = self.0.lock();
        assert!(state.taken, "the reader's role is given up by the thread that has it");
        state.taken = false;
        let next = state.sleepers.iter().find(|sleeper| !sleeper.is_done()).cloned();
        drop(state);
        if let Some(next) = next {
            next.nudge();
        }
    }

    /// Does a thread have the role?
    pub fn is_taken(&self) -> bool {
        self.0.lock().taken
    }

    /// Wakes all sleepers, so that they check again.
    pub fn nudge_sleepers(&self) {
        let sleepers: Vec<_> = self.0.lock().sleepers.iter().cloned().collect();
        sleepers.iter().for_each(|sleeper| sleeper.nudge());
    }
}
