//! Operations that no thread waits for one by one: they complete into a group.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::{CallError, Reply};

/// The end of one operation.
#[derive(Debug)]
pub struct Completed {
    /// The number that its submitter gave it.
    pub tag: u64,
    /// Its outcome. Of a direct operation the data is in the memory that it named: the answer's
    /// own has the right length, and no content.
    pub result: Result<Reply, CallError>,
}

/// Where operations complete. Threads wait for it with [`crate::Session::wait_for`].
#[derive(Debug, Default)]
pub struct CompletionGroup {
    state: Mutex<GroupState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GroupState {
    done: VecDeque<Completed>,
    /// How many operations each waiting thread waits for.
    waits: Vec<usize>,
    /// The waiting thread must check again: the reader's role may be free.
    nudged: bool,
}

impl CompletionGroup {
    /// Adds an operation that is over.
    pub(crate) fn complete(&self, completed: Completed) {
        self.state.lock().done.push_back(completed);
        self.changed.notify_all();
    }

    /// How many operations are complete and not taken.
    pub fn len(&self) -> usize {
        self.state.lock().done.len()
    }

    /// Is none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all that are complete, the earliest first.
    pub fn take(&self) -> VecDeque<Completed> {
        std::mem::take(&mut self.state.lock().done)
    }

    /// A thread begins to wait for so many.
    pub(crate) fn begin_wait(&self, least: usize) {
        self.state.lock().waits.push(least);
    }

    /// It waits no more.
    pub(crate) fn end_wait(&self, least: usize) {
        let mut state = self.state.lock();
        let place = state.waits.iter().position(|other| *other == least);
        state.waits.swap_remove(place.expect("each wait ends once"));
    }

    /// Have all waiting threads what they wait for?
    pub(crate) fn is_satisfied(&self) -> bool {
        let state = self.state.lock();
        state.waits.iter().all(|least| state.done.len() >= *least)
    }

    /// Waits until `least` are complete, at most until `until`. Other threads receive them.
    pub(crate) fn wait(&self, least: usize, until: Option<Instant>) {
        while self.len() < least && until.is_none_or(|until| Instant::now() < until) {
            self.sleep(least, until);
        }
    }

    /// Sleeps until there are `least`, or a nudge, at most until `until`.
    pub(crate) fn sleep(&self, least: usize, until: Option<Instant>) {
        let mut state = self.state.lock();
        while state.done.len() < least && !std::mem::take(&mut state.nudged) {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn nudge(&self) {
        self.state.lock().nudged = true;
        self.changed.notify_all();
    }
}
