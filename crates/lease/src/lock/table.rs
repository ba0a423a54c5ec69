//! The locks of one family of one file, and who waits for them.

use std::collections::VecDeque;

use types::{ByteRange, LockFamily, LockMode, Origin, SessionId};

use super::ranges;
use super::{LockRequest, Owner};

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub owner: Owner,
    pub pid: u32,
    pub range: ByteRange,
    pub mode: LockMode,
}

/// A request that waits, or is about to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub origin: Origin,
    pub owner: Owner,
    pub pid: u32,
    pub range: ByteRange,
    pub mode: LockMode,
}

impl Wait {
    pub fn new(origin: Origin, request: &LockRequest) -> Self {
        let owner = Owner { session: request.session, owner: request.owner, family: request.family.into() };
        let range = match request.family {
            LockFamily::Posix => request.range,
            LockFamily::Flock => ByteRange::ALL,
        };
        Wait { origin, owner, pid: request.pid, range, mode: request.mode }
    }

    /// Whether the two cannot both be held.
    pub fn conflicts(&self, owner: Owner, range: ByteRange, mode: LockMode) -> bool {
        let shared = self.mode == LockMode::Shared && mode == LockMode::Shared;
        self.owner != owner && !shared && self.range.overlaps(range)
    }

    /// Whether both are of one process, as far as one can tell.
    pub fn is_same_process(&self, held: &Held) -> bool {
        self.pid != 0 && self.pid == held.pid && self.owner.session == held.owner.session
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub held: Vec<Held>,
    /// Oldest first.
    pub waits: VecDeque<Wait>,
}

impl Table {
    /// The locks in the way.
    pub fn blockers<'a>(&'a self, wanted: &'a Wait) -> impl Iterator<Item = &'a Held> + 'a {
        self.held.iter().filter(|held| wanted.conflicts(held.owner, held.range, held.mode))
    }

    pub fn is_blocked(&self, wanted: &Wait) -> bool {
        self.blockers(wanted).next().is_some()
    }

    /// The requests before place `at` that conflict with `wanted`.
    pub fn ahead<'a>(&'a self, wanted: &'a Wait, at: usize) -> impl Iterator<Item = &'a Wait> + 'a {
        self.waits.iter().take(at).filter(|wait| wanted.conflicts(wait.owner, wait.range, wait.mode))
    }

    /// Whether granting `wanted` makes bytes shared that its owner has exclusively.
    pub fn is_downgrade(&self, wanted: &Wait) -> bool {
        let exclusive = |held: &&Held| held.owner == wanted.owner && held.mode == LockMode::Exclusive;
        wanted.mode == LockMode::Shared
            && self.held.iter().filter(exclusive).any(|held| held.range.overlaps(wanted.range))
    }

    /// Whether a session holds or wants anything here.
    pub fn has(&self, session: SessionId) -> bool {
        self.held.iter().any(|held| held.owner.session == session)
            || self.waits.iter().any(|wait| wait.owner.session == session)
    }

    /// Gives an owner's bytes a mode, or none. How many locks the owner had, and has.
    pub fn set(&mut self, owner: Owner, pid: u32, range: ByteRange, mode: Option<LockMode>) -> (usize, usize) {
        let (mine, others): (Vec<Held>, Vec<Held>) = self.held.iter().partition(|held| held.owner == owner);
        let before = mine.len();
        let mine = ranges::set(mine, Held { owner, pid, range, mode: LockMode::Shared }, mode);
        let after = mine.len();
        self.held = others;
        self.held.extend(mine);
        (before, after)
    }
}
