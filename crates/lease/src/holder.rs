//! The client's half: which answers the client may cache, and use from its cache.
//!
//! The model. `epoch` counts losses: of the lease, or of the server's memory. `counter` counts
//! breaks. A [`CallStart`] is taken *before* a call is sent. If, when the answer is there, the
//! epoch is still the same and no break of the file was counted since, then the server's promise
//! for what it answered is still good (CB-3): either no break was sent, or it was sent before the
//! answer was read on the server, and then the answer is newer than the break.
//!
//! The holder remembers breaks per file, the latest [`RECENT_MAX`] of them. `floor` is the count of
//! the latest forgotten one: a snapshot from before it is too old to judge, and its answer is not
//! cached.
//!
//! The lease is counted from when the renewal was *sent* (CB-4): the server counts from its
//! arrival, which is later.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use types::{BreakItem, Fid, SessionEpoch, Time, limits};

/// Breaks that are remembered: far more than arrive during one call.
pub const RECENT_MAX: usize = 4096;

/// State of the holder before a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStart {
    epoch: SessionEpoch,
    counter: u64,
}

/// The promises and the lease of a client.
#[derive(Debug)]
pub struct Holder {
    lease: Duration,
    epoch: SessionEpoch,
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
    /// Creates a holder that trusts nothing before its first renewal.
    pub fn new(lease: Duration) -> Self {
        Holder {
            lease,
            epoch: SessionEpoch::default(),
            counter: 0,
            floor: 0,
            recent: HashMap::new(),
            order: VecDeque::new(),
            trusted_until: Time::ZERO,
        }
    }

    /// Takes the state before a call is sent.
    pub fn begin(&self) -> CallStart {
        CallStart { epoch: self.epoch, counter: self.counter }
    }

    /// Whether an answer about `fid` may be cached; `snapshot` is from before its call was sent.
    pub fn promised(&self, fid: Fid, snapshot: CallStart) -> bool {
        debug_assert!(
            snapshot.epoch <= self.epoch && snapshot.counter <= self.counter,
            "CB-3: {snapshot:?} is from before the call, and counts later breaks"
        );
        snapshot.epoch == self.epoch
            && snapshot.counter >= self.floor
            && self.recent.get(&fid).is_none_or(|broken| *broken <= snapshot.counter)
    }

    /// Whether cached answers may be used at `now`: only within the lease.
    pub fn trusted(&self, now: Time) -> bool {
        now < self.trusted_until
    }

    /// When trust ends without another renewal.
    pub fn trusted_until(&self) -> Time {
        self.trusted_until
    }

    /// Whether data cached with `snapshot` is void: the lease or the server was lost since.
    pub fn is_void(&self, snapshot: CallStart) -> bool {
        snapshot.epoch != self.epoch
    }

    /// Handles a break from the server. Call it before the cache is changed and before the break is
    /// acknowledged.
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

    /// Checks for the end of the lease. True once for each loss: cache and locks are void.
    pub fn expire(&mut self, now: Time) -> bool {
        let lost = self.trusted_until > Time::ZERO && !self.trusted(now);
        if lost {
            self.on_lease_lost();
        }
        lost
    }

    /// The lease or the session is over: no earlier promise is in force.
    pub fn on_lease_lost(&mut self) {
        self.trusted_until = Time::ZERO;
        self.void();
    }

    /// The server restarted and has lost its promises. The lease itself continues.
    pub fn on_server_restarted(&mut self) {
        self.void();
    }

    fn void(&mut self) {
        self.epoch = self.epoch.next();
        self.floor = self.counter;
        self.recent.clear();
        self.order.clear();
    }

    fn check(&self) {
        assert!(
            self.recent.len() <= self.order.len(),
            "CB-3: each remembered break is in the order"
        );
        assert!(self.floor <= self.counter, "CB-3: floor {} is past {}", self.floor, self.counter);
    }
}

#[cfg(test)]
mod tests {
    use types::BreakReason;

    use super::*;

    const FILE: Fid = Fid::new(1, 2, 1);
    const OTHER: Fid = Fid::new(1, 4, 1);

    fn at(secs: u64) -> Time {
        Time::from_start(Duration::from_secs(secs))
    }

    fn broken(fid: Fid) -> [BreakItem; 1] {
        [BreakItem { fid, reason: BreakReason::Data, name: None }]
    }

    #[test]
    fn cb3_a_break_during_the_call_makes_only_its_file_uncacheable() {
        let mut holder = Holder::default();
        let before = holder.begin();
        holder.on_break(&broken(FILE));
        assert!(!holder.promised(FILE, before), "CB-3");
        assert!(holder.promised(OTHER, before));
        assert!(holder.promised(FILE, holder.begin()), "a call after the break is good");
    }

    #[test]
    fn cb3_a_snapshot_older_than_the_known_breaks_permits_nothing() {
        let mut holder = Holder::default();
        let before = holder.begin();
        for vnode in 0..=RECENT_MAX as u64 {
            holder.on_break(&broken(Fid::new(9, vnode, 1)));
        }
        assert!(!holder.promised(FILE, before), "CB-3: the break of FILE may be the forgotten one");
        assert!(holder.promised(FILE, holder.begin()));
        assert!(holder.recent.len() <= RECENT_MAX);
    }

    #[test]
    fn repeated_breaks_of_a_file_are_known_in_bounded_memory() {
        let mut holder = Holder::default();
        for _ in 0..3 * RECENT_MAX {
            let before = holder.begin();
            holder.on_break(&broken(FILE));
            assert!(!holder.promised(FILE, before));
        }
        assert_eq!((holder.recent.len(), holder.order.len()), (1, RECENT_MAX));
    }

    #[test]
    fn trust_runs_from_when_the_renewal_was_sent() {
        let mut holder = Holder::default();
        assert!(!holder.trusted(at(0)), "nothing was renewed yet");
        holder.on_renewed(at(10));
        assert!(holder.trusted(at(24)));
        assert!(!holder.trusted(at(25)), "CB-4");
        holder.on_renewed(at(5));
        assert_eq!(holder.trusted_until(), at(25), "an older renewal takes nothing away");
    }

    #[test]
    fn the_end_of_the_lease_is_found_once_and_voids_everything() {
        let mut holder = Holder::default();
        assert!(!holder.expire(at(100)), "there was no lease");
        holder.on_renewed(at(0));
        let before = holder.begin();
        assert!(!holder.expire(at(14)));
        assert!(holder.expire(at(15)));
        assert!(!holder.expire(at(16)));
        assert!(!holder.promised(FILE, before) && holder.is_void(before));
        holder.on_renewed(at(16));
        assert!(
            holder.trusted(at(17)) && !holder.promised(FILE, before),
            "a new lease does not bring old promises back"
        );
    }

    #[test]
    fn a_restart_of_the_server_voids_promises_but_not_the_lease() {
        let mut holder = Holder::default();
        holder.on_renewed(at(0));
        let before = holder.begin();
        holder.on_server_restarted();
        assert!(!holder.promised(FILE, before));
        assert!(holder.trusted(at(1)) && holder.promised(FILE, holder.begin()));
    }
}
