//! The wait graph: which owners wait for which others.

use std::collections::BTreeSet;

use super::table::Wait;
use super::{Key, LockFamilyOrd, LockTable, SessionOwner};

impl LockTable {
    /// Whether `wanted` would wait for itself, through owners that block each other.
    pub(super) fn is_deadlock(&self, key: Key, wanted: &Wait) -> bool {
        wanted.owner.family == LockFamilyOrd::Posix
            && self.tables.get(&key).is_some_and(|table| {
                let first = table.blockers(wanted).map(|held| held.owner).collect();
                self.reaches(first, wanted.owner, false).unwrap_or(false)
            })
    }

    /// Whether `wanted` must wait behind an earlier request.
    pub(super) fn is_queued(&self, key: Key, wanted: &Wait) -> bool {
        let Some(table) = self.tables.get(&key) else { return false };
        // One process with the file open twice has two `flock` owners, and must not wait for
        // itself.
        let flock = wanted.owner.family == LockFamilyOrd::Flock;
        if flock && table.of_session(wanted.owner.session).any(|held| wanted.is_same_process(held))
        {
            return false;
        }
        table
            .ahead(wanted)
            .any(|earlier| !self.reaches(vec![earlier.owner], wanted.owner, true).unwrap_or(true))
    }

    /// Whether one of `from` is `target` or waits for it, through any number of others; `queues`:
    /// being queued counts as waiting. `None`: unknown after [`STEPS_MAX`] steps.
    fn reaches(&self, from: Vec<SessionOwner>, target: SessionOwner, queues: bool) -> Option<bool> {
        if from.contains(&target) {
            return Some(true);
        }
        let mut search = Search::from(from);
        while let Some(owner) = search.next() {
            let next = self.waits_for(owner, queues);
            if next.contains(&target) {
                return Some(true);
            }
            search.add(next)?;
        }
        Some(false)
    }

    /// The owner, and all that it waits for or is queued behind, through any number of others; of
    /// very many the first.
    pub(super) fn reached_by(&self, owner: SessionOwner) -> Vec<SessionOwner> {
        let mut search = Search::from(vec![owner]);
        while let Some(owner) = search.next() {
            if search.add(self.waits_for(owner, true)).is_none() {
                break;
            }
        }
        search.seen.into_iter().collect()
    }

    fn waits_for(&self, owner: SessionOwner, queues: bool) -> Vec<SessionOwner> {
        let mut owners = Vec::new();
        for (key, turn) in self.waiting.get(&owner).into_iter().flatten() {
            let Some(table) = self.tables.get(key) else { continue };
            let Some(wait) = table.wait(*turn) else { continue };
            owners.extend(table.blockers(wait).map(|held| held.owner));
            if queues {
                owners.extend(table.ahead(wait).map(|earlier| earlier.owner));
            }
        }
        owners
    }
}

/// Maximum steps of a search from one owner to another. No real application makes owners depend on
/// each other so much, and requests of others may not stop for them: beyond this a deadlock is not
/// found (Linux searches ten steps), and a request is not queued.
const STEPS_MAX: usize = 1 << 14;

struct Search {
    seen: BTreeSet<SessionOwner>,
    next: Vec<SessionOwner>,
    steps: usize,
}

impl Search {
    fn from(first: Vec<SessionOwner>) -> Search {
        Search { seen: first.iter().copied().collect(), next: first, steps: 0 }
    }

    fn next(&mut self) -> Option<SessionOwner> {
        self.next.pop()
    }

    /// Adds the owners. `None`: these are too many.
    fn add(&mut self, owners: Vec<SessionOwner>) -> Option<()> {
        self.steps += owners.len();
        self.next.extend(owners.into_iter().filter(|owner| self.seen.insert(*owner)));
        (self.steps <= STEPS_MAX).then_some(())
    }
}
