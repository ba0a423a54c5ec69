//! The locks of one family of one file, and the requests that wait for them.

use std::collections::BTreeMap;

use types::{ByteRange, LockFamily, LockMode, LockOwner, ReplyAddress, SessionId};

use super::held::HeldLock;
use super::intervals::{Intervals, Ranged};
use super::ranges;
use super::{LockFamilyOrd, LockRequest, PassesBroken, SessionOwner};

/// The place of a waiting request: a lower one came earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Turn(pub u64);

/// A request that waits, or is being decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub origin: ReplyAddress,
    /// Set when it begins to wait.
    pub turn: Turn,
    pub owner: SessionOwner,
    pub pid: u32,
    pub range: ByteRange,
    pub mode: LockMode,
    pub passes: PassesBroken,
}

impl Wait {
    pub fn new(origin: ReplyAddress, request: &LockRequest) -> Self {
        let owner = SessionOwner {
            session: request.session,
            owner: request.owner,
            family: request.family.into(),
        };
        let range = match request.family {
            LockFamily::Posix => request.range,
            LockFamily::Flock => ByteRange::ALL,
        };
        let LockRequest { pid, mode, passes, .. } = *request;
        Wait { origin, turn: Turn(u64::MAX), owner, pid, range, mode, passes }
    }

    /// Whether the request and a lock of the arguments cannot both be held.
    pub fn conflicts(&self, owner: SessionOwner, range: ByteRange, mode: LockMode) -> bool {
        let shared = self.mode == LockMode::Shared && mode == LockMode::Shared;
        self.owner != owner && !shared && self.range.overlaps(range)
    }

    /// Whether both are of one process, as far as their numbers show.
    pub fn is_same_process(&self, held: &HeldLock) -> bool {
        self.pid != 0 && self.pid == held.pid && self.owner.session == held.owner.session
    }
}

impl Ranged for Wait {
    type Key = Turn;
    const FIRST: Turn = Turn(0);
    const LAST: Turn = Turn(u64::MAX);

    fn key(&self) -> Turn {
        self.turn
    }

    fn range(&self) -> ByteRange {
        self.range
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// The locks of each owner: disjoint, in order, and neighbours have different modes.
    owners: BTreeMap<SessionOwner, Vec<HeldLock>>,
    exclusive: Intervals<HeldLock>,
    shared: Intervals<HeldLock>,
    waits: BTreeMap<Turn, Wait>,
    waiting: Intervals<Wait>,
}

impl Table {
    /// The conflicting locks. Does not visit those that do not overlap.
    pub fn blockers<'a>(&'a self, wanted: &'a Wait) -> impl Iterator<Item = &'a HeldLock> + 'a {
        let excludes =
            (wanted.mode == LockMode::Exclusive).then(|| self.shared.overlapping(wanted.range));
        let all = self.exclusive.overlapping(wanted.range).chain(excludes.into_iter().flatten());
        all.filter(|held| wanted.conflicts(held.owner, held.range, held.mode))
    }

    pub fn is_blocked(&self, wanted: &Wait) -> bool {
        self.blockers(wanted).next().is_some()
    }

    /// Whether the table has no lock and no request.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.waits.is_empty()
    }

    /// Adds a request that begins to wait.
    pub fn enqueue(&mut self, wait: Wait) {
        self.waits.insert(wait.turn, wait);
        self.waiting.insert(wait);
    }

    /// Removes a request that waits no more.
    pub fn dequeue(&mut self, turn: Turn) -> Option<Wait> {
        let wait = self.waits.remove(&turn)?;
        self.waiting.remove(&wait);
        Some(wait)
    }

    /// The request with this turn.
    pub fn wait(&self, turn: Turn) -> Option<&Wait> {
        self.waits.get(&turn)
    }

    /// How many requests wait.
    pub fn waits(&self) -> usize {
        self.waits.len()
    }

    /// Waiting requests for a byte of `range`.
    pub fn wanting(&self, range: ByteRange) -> impl Iterator<Item = &Wait> {
        self.waiting.overlapping(range)
    }

    /// Earlier waiting requests that conflict with `wanted`.
    pub fn ahead<'a>(&'a self, wanted: &'a Wait) -> impl Iterator<Item = &'a Wait> + 'a {
        let earlier = self.waiting.overlapping(wanted.range).filter(|wait| wait.turn < wanted.turn);
        earlier.filter(|wait| wanted.conflicts(wait.owner, wait.range, wait.mode))
    }

    /// Whether granting `wanted` makes bytes shared that its owner has exclusively.
    pub fn is_downgrade(&self, wanted: &Wait) -> bool {
        let mine = self.owners.get(&wanted.owner).into_iter().flatten();
        wanted.mode == LockMode::Shared
            && mine
                .filter(|held| held.mode == LockMode::Exclusive)
                .any(|held| held.range.overlaps(wanted.range))
    }

    /// Whether an owner with this number has all of the bytes exclusively.
    pub fn has_exclusively(&self, owner: LockOwner, range: ByteRange) -> bool {
        let mut held = self.exclusive.overlapping(range);
        held.any(|held| held.owner.owner == owner && held.range.contains(range))
    }

    /// Locks of a session in this table.
    pub fn of_session(&self, session: SessionId) -> impl Iterator<Item = &HeldLock> {
        let (first, last) = (LockOwner(0), LockOwner(u64::MAX));
        let (posix, flock) = (LockFamilyOrd::Posix, LockFamilyOrd::Flock);
        let from = SessionOwner { session, owner: first, family: posix };
        let owners = self.owners.range(from..=SessionOwner { session, owner: last, family: flock });
        owners.flat_map(|(_, held)| held)
    }

    /// Removes all locks of a session here. Returns their number.
    pub fn drop_session(&mut self, session: SessionId) -> usize {
        let held: Vec<HeldLock> = self.of_session(session).copied().collect();
        for held in &held {
            self.of_mode(held.mode).remove(held);
            self.owners.remove(&held.owner);
        }
        held.len()
    }

    /// Sets the mode of an owner's bytes, or unlocks them. Returns the owner's number of locks
    /// before and after.
    pub fn set(
        &mut self,
        owner: SessionOwner,
        pid: u32,
        range: ByteRange,
        mode: Option<LockMode>,
    ) -> (usize, usize) {
        let before = self.owners.remove(&owner).unwrap_or_default();
        let count = before.len();
        let after = ranges::set(
            before.clone(),
            HeldLock { owner, pid, range, mode: LockMode::Shared },
            mode,
        );
        // Most locks do not change.
        let unchanged = |one: &HeldLock, all: &[HeldLock]| {
            all.binary_search_by_key(&one.range.start, |held| held.range.start)
                .is_ok_and(|at| all[at] == *one)
        };
        for held in before.iter().filter(|held| !unchanged(held, &after)) {
            self.of_mode(held.mode).remove(held);
        }
        for held in after.iter().filter(|held| !unchanged(held, &before)) {
            self.of_mode(held.mode).insert(*held);
        }
        let has = after.len();
        if has > 0 {
            self.owners.insert(owner, after);
        }
        (count, has)
    }

    fn of_mode(&mut self, mode: LockMode) -> &mut Intervals<HeldLock> {
        match mode {
            LockMode::Exclusive => &mut self.exclusive,
            LockMode::Shared => &mut self.shared,
        }
    }

    /// Entries that were visited so far.
    #[cfg(test)]
    pub fn visited(&self) -> usize {
        self.exclusive.visited() + self.shared.visited() + self.waiting.visited()
    }
}
