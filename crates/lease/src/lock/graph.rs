//! Who waits for whom.

use std::collections::HashSet;

use super::table::Wait;
use super::{Key, LockFamilyOrd, Locks, Owner};

impl Locks {
    /// Whether `wanted` would wait for itself, over owners that are blocked by each other's locks.
    pub(super) fn is_deadlock(&self, key: Key, wanted: &Wait) -> bool {
        wanted.owner.family == LockFamilyOrd::Posix
            && self.tables.get(&key).is_some_and(|table| {
                let first = table.blockers(wanted).map(|held| held.owner).collect();
                self.reaches(first, wanted.owner, false)
            })
    }

    /// Whether `wanted`, at place `at` of the queue or behind its end, has to let an earlier request go first.
    pub(super) fn is_queued(&self, key: Key, wanted: &Wait, at: Option<usize>) -> bool {
        let Some(table) = self.tables.get(&key) else { return false };
        let at = at.unwrap_or(table.waits.len());
        // One process with the file open twice has two `flock` owners, and must not wait for itself.
        let flock = wanted.owner.family == LockFamilyOrd::Flock;
        if flock && table.of_session(wanted.owner.session).any(|held| wanted.is_same_process(held)) {
            return false;
        }
        table.ahead(wanted, at).any(|earlier| !self.reaches(vec![earlier.owner], wanted.owner, true))
    }

    /// Whether one of `from` is `target` or waits for it, through any number of others; `queues`: being queued counts as waiting.
    fn reaches(&self, mut from: Vec<Owner>, target: Owner, queues: bool) -> bool {
        let mut seen: HashSet<Owner> = from.iter().copied().collect();
        while let Some(owner) = from.pop() {
            if owner == target {
                return true;
            }
            for next in self.waits_for(owner, queues) {
                if seen.insert(next) {
                    from.push(next);
                }
            }
        }
        false
    }

    fn waits_for(&self, owner: Owner, queues: bool) -> Vec<Owner> {
        let mut owners = Vec::new();
        for origin in self.waiting.get(&owner).into_iter().flatten() {
            let Some(table) = self.waits.get(origin).and_then(|key| self.tables.get(key)) else { continue };
            let Some(at) = table.waits.iter().position(|wait| wait.origin == *origin) else { continue };
            let wait = &table.waits[at];
            owners.extend(table.blockers(wait).map(|held| held.owner));
            if queues {
                owners.extend(table.ahead(wait, at).map(|earlier| earlier.owner));
            }
        }
        owners
    }
}
