//! The client's half: what may be answered from the cache, and what may be put into it.
//!
//! The model. `epoch` counts losses: of the lease, or of the server's memory. `counter` counts breaks. A [`Snapshot`] is taken *before* a
//! call is sent. If, when the answer is there, the epoch is still the same and no break of the file was counted since, then
//! the server's promise for what it answered is still good (CB-3): either no break was sent, or it was sent before
//! the answer was read on the server, and then the answer is newer than the break.
//!
//! Breaks are remembered per file, the latest [`RECENT_MAX`] of them. `floor` is the count of the latest one that was forgotten: a
//! snapshot from before it is too old to judge, and its answer is not cached.
//!
//! The lease is counted from when the renewal was *sent* (CB-4): the server counts from when it came, which is later.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use types::{BreakItem, Fid, Time, limits};

/// Breaks that are remembered: far more than arrive during one call.
pub const RECENT_MAX: usize = 4096;

/// The moment before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    epoch: u64,
    counter: u64,
}

/// A client's knowledge of what it was promised.
#[derive(Debug)]
pub struct Holder {
    lease: Duration,
    epoch: u64,
    counter: u64,
    floor: u64,
    recent: HashMap<Fid, u64>,
    order: VecDeque<(u64, Fid)>,
    trusted_until: Time,
}

impl Default for Holder {
    fn default() -> Self {
        Holder::new(limits::LEASE)
    }
}

impl Holder {
    /// A holder that trusts nothing before its first renewal.
    pub fn new(lease: Duration) -> Self {
        Holder {
            lease,
            epoch: 0,
            counter: 0,
            floor: 0,
            recent: HashMap::new(),
            order: VecDeque::new(),
            trusted_until: Time::ZERO,
        }
    }

    /// Take this before a call is sent.
    pub fn begin(&self) -> Snapshot {
        Snapshot { epoch: self.epoch, counter: self.counter }
    }

    /// Whether what a call answered about `fid` may be cached, when `snapshot` was taken before the call was sent.
    pub fn promised(&self, fid: Fid, snapshot: Snapshot) -> bool {
        snapshot.epoch == self.epoch
            && snapshot.counter >= self.floor
            && self.recent.get(&fid).is_none_or(|broken| *broken <= snapshot.counter)
    }

    /// Whether cached answers may be used at `now`. Before the first renewal and from the end of the lease on: no.
    pub fn trusted(&self, now: Time) -> bool {
        now < self.trusted_until
    }

    /// When trust ends if nothing is heard.
    pub fn trusted_until(&self) -> Time {
        self.trusted_until
    }

    /// How many losses there were. What was cached in another epoch is void.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether what was cached with `snapshot` is void because the lease or the server was lost since.
    pub fn is_void(&self, snapshot: Snapshot) -> bool {
        snapshot.epoch != self.epoch
    }

    /// The server ended these promises. Call it before the cache is changed and before the break is acknowledged.
    pub fn on_break(&mut self, items: &[BreakItem]) {
        self.counter += 1;
        for item in items {
            self.recent.insert(item.fid, self.counter);
            self.order.push_back((self.counter, item.fid));
        }
        while self.order.len() > RECENT_MAX {
            self.forget_oldest();
        }
        self.check();
    }

    fn forget_oldest(&mut self) {
        let Some((count, fid)) = self.order.pop_front() else { return };
        self.floor = self.floor.max(count);
        if self.recent.get(&fid) == Some(&count) {
            self.recent.remove(&fid);
        }
    }

    /// The server renewed the lease in answer to a message that was sent at `sent_at`.
    pub fn on_renewed(&mut self, sent_at: Time) {
        self.trusted_until = self.trusted_until.max(sent_at + self.lease);
    }

    /// Finds the end of the lease. True once for each loss: the cache is void, and locks are gone.
    pub fn expire(&mut self, now: Time) -> bool {
        let lost = self.trusted_until > Time::ZERO && !self.trusted(now);
        if lost {
            self.on_lease_lost();
        }
        lost
    }

    /// The lease or the session is over: nothing that was promised before holds.
    pub fn on_lease_lost(&mut self) {
        self.trusted_until = Time::ZERO;
        self.void();
    }

    /// The server came up again and has forgotten its promises. The lease itself goes on.
    pub fn on_server_restarted(&mut self) {
        self.void();
    }

    fn void(&mut self) {
        self.epoch += 1;
        self.floor = self.counter;
        self.recent.clear();
        self.order.clear();
    }

    fn check(&self) {
        assert!(self.recent.len() <= self.order.len(), "CB-3: each remembered break is in the order");
        assert!(self.floor <= self.counter, "CB-3: floor {} is past {}", self.floor, self.counter);
    }
}
