//! Locks of all files, who waits for them, and in which order.
//!
//! The model. Each file has two *tables*, one for each family, with the locks that are held and the requests that wait, oldest first. A
//! waiting request is *blocked* by a lock of another owner that conflicts with it, and it is *queued* behind an earlier waiting
//! request that conflicts with it, so that nobody starves (LK-3). When anything is given free, the queue is
//! gone through from the front, and who is neither blocked nor queued has the lock.
//!
//! Queueing must not stop a request that an earlier one waits for: a reader that wants a second range would stand behind a writer
//! that waits for the reader's first. So nobody is queued behind a request that depends on him, through any number of others.
//! Dependence changes with each new wait and each grant; tables in which somebody is queued without being blocked (*stuck*)
//! are therefore gone through again after each of them.
//!
//! A POSIX request that waits for a lock whose owner waits, through any number of others, for the one who asks, is refused with
//! `Deadlock`, as Linux does; only blocking counts there, since queueing never closes a cycle. `flock` has no such
//! refusal, there as here. Requests that do not wait ignore the queue.

mod graph;
mod intervals;
mod ranges;
mod table;

use std::collections::{BTreeSet, HashMap};

use types::{ByteRange, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner, Origin, SessionId};

use crate::output::Output;
use table::{Table, Wait};

/// A lock that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Of which file.
    pub fid: Fid,
    /// Who asks.
    pub session: SessionId,
    /// For whom within the session.
    pub owner: LockOwner,
    /// That owner's process id, for `test`; 0: unknown.
    pub pid: u32,
    /// Which family.
    pub family: LockFamily,
    /// Which bytes, of a `Posix` lock; `Flock` locks always cover all.
    pub range: ByteRange,
    /// How.
    pub mode: LockMode,
}

/// What became of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// Locked.
    Granted,
    /// The answer is an [`Output::LockDone`] to come, or among the outputs of this very call.
    Waiting,
    /// Refused.
    Refused(Fault),
}

/// An owner of locks, over all sessions. The same number in the other family is another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub session: SessionId,
    pub owner: LockOwner,
    pub family: LockFamilyOrd,
}

/// [`LockFamily`] with an order, for deterministic outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LockFamilyOrd {
    Posix,
    Flock,
}

impl From<LockFamily> for LockFamilyOrd {
    fn from(family: LockFamily) -> Self {
        match family {
            LockFamily::Posix => LockFamilyOrd::Posix,
            LockFamily::Flock => LockFamilyOrd::Flock,
        }
    }
}

type Key = (Fid, LockFamilyOrd);

/// A request that came in grace and waits for its end.
#[derive(Debug)]
struct Deferred {
    origin: Origin,
    request: LockRequest,
    wait: bool,
}

/// What a session has, so that its end costs no more than that.
#[derive(Debug, Default)]
struct Account {
    keys: BTreeSet<Key>,
    held: usize,
    waits: usize,
}

/// All locks of one server.
#[derive(Debug)]
pub(crate) struct Locks {
    tables: HashMap<Key, Table>,
    /// Where each waiting request waits.
    waits: HashMap<Origin, Key>,
    /// The waiting requests of each owner.
    waiting: HashMap<Owner, Vec<Origin>>,
    accounts: HashMap<SessionId, Account>,
    deferred: Vec<Deferred>,
    stuck: BTreeSet<Key>,
    /// Locks held, of all sessions.
    held: usize,
    per_session_max: usize,
    max: usize,
}

impl Locks {
    pub fn new(per_session_max: usize, max: usize) -> Self {
        Locks {
            tables: HashMap::new(),
            waits: HashMap::new(),
            waiting: HashMap::new(),
            accounts: HashMap::new(),
            deferred: Vec::new(),
            stuck: BTreeSet::new(),
            held: 0,
            per_session_max,
            max,
        }
    }

    /// Locks held; a POSIX owner's neighbouring bytes in one mode are one lock.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Locks and waiting requests of a session, those for the end of grace too.
    pub fn used_by(&self, session: SessionId) -> usize {
        let kept = self.deferred.iter().filter(|deferred| deferred.request.session == session).count();
        self.accounts.get(&session).map_or(0, |account| account.held + account.waits) + kept
    }

    /// Requests that wait, those for the end of grace too.
    pub fn waiting(&self) -> usize {
        self.waits.len() + self.deferred.len()
    }

    /// Asks for a lock.
    pub fn lock(&mut self, origin: Origin, request: &LockRequest, wait: bool, out: &mut Vec<Output>) -> LockOutcome {
        if self.waits.contains_key(&origin) {
            return LockOutcome::Waiting;
        }
        if request.range.start > request.range.end {
            return LockOutcome::Refused(Fault::Invalid);
        }
        let used = self.accounts.get(&request.session).map_or(0, |account| account.held + account.waits);
        if used >= self.per_session_max || self.held + self.waits.len() >= self.max {
            return LockOutcome::Refused(Fault::Busy);
        }
        let wanted = Wait::new(origin, request);
        let key = (request.fid, wanted.owner.family);
        let table = self.tables.entry(key).or_default();
        if !table.is_blocked(&wanted) && (!wait || !self.is_queued(key, &wanted, None)) {
            self.grant(key, &wanted);
            self.pump(key, out);
            self.pump_stuck(out);
            return LockOutcome::Granted;
        }
        let outcome = self.wait_or_refuse(key, wanted, wait, out);
        self.drop_if_empty(key);
        outcome
    }

    fn wait_or_refuse(&mut self, key: Key, wanted: Wait, wait: bool, out: &mut Vec<Output>) -> LockOutcome {
        if wait && self.is_deadlock(key, &wanted) {
            return LockOutcome::Refused(Fault::Deadlock);
        }
        // A conversion of `flock` gives the old lock up first, as on Linux: two that upgrade do not block each other.
        let converts = wanted.owner.family == LockFamilyOrd::Flock && self.release(key, wanted.owner, ByteRange::ALL);
        if !wait && !converts {
            return LockOutcome::Refused(Fault::Locked);
        }
        if wait {
            self.enqueue(key, wanted);
        }
        self.pump(key, out);
        self.pump_stuck(out);
        if wait { LockOutcome::Waiting } else { LockOutcome::Refused(Fault::Locked) }
    }

    /// Gives bytes free.
    pub fn unlock(&mut self, fid: Fid, owner: Owner, range: ByteRange, out: &mut Vec<Output>) {
        let key = (fid, owner.family);
        if range.start > range.end || !self.release(key, owner, range) {
            return;
        }
        self.pump(key, out);
        self.pump_stuck(out);
        self.drop_if_empty(key);
    }

    /// The first lock, by its start, that stands in the way.
    pub fn test(&self, request: &LockRequest) -> Option<LockConflict> {
        let nowhere = Origin { session: request.session, slot: 0, request: 0 };
        let wanted = Wait::new(nowhere, request);
        let table = self.tables.get(&(request.fid, wanted.owner.family))?;
        let held = table.blockers(&wanted).min_by_key(|held| (held.range.start, held.owner))?;
        let pid = if held.owner.session == request.session { held.pid } else { 0 };
        Some(LockConflict { range: held.range, mode: held.mode, pid })
    }

    /// Takes a waiting request back.
    pub fn cancel(&mut self, origin: Origin, out: &mut Vec<Output>) -> bool {
        let found = self.cancel_deferred(origin) || self.cancel_wait(origin, out);
        if found {
            out.push(Output::LockDone { origin, result: Err(Fault::Cancelled) });
        }
        found
    }

    fn cancel_deferred(&mut self, origin: Origin) -> bool {
        let Some(at) = self.deferred.iter().position(|deferred| deferred.origin == origin) else { return false };
        self.deferred.remove(at);
        true
    }

    fn cancel_wait(&mut self, origin: Origin, out: &mut Vec<Output>) -> bool {
        let Some(key) = self.waits.get(&origin).copied() else { return false };
        self.dequeue(key, origin);
        self.pump(key, out);
        self.pump_stuck(out);
        self.drop_if_empty(key);
        true
    }

    /// Keeps a request until grace is over.
    pub fn defer(&mut self, origin: Origin, request: &LockRequest, wait: bool) {
        if self.deferred.iter().all(|deferred| deferred.origin != origin) {
            self.deferred.push(Deferred { origin, request: *request, wait });
        }
    }

    /// Grace is over: answers what was kept, in the order in which it came.
    pub fn undefer(&mut self, out: &mut Vec<Output>) {
        for Deferred { origin, request, wait } in std::mem::take(&mut self.deferred) {
            let result = match self.lock(origin, &request, wait, out) {
                LockOutcome::Granted => Ok(()),
                LockOutcome::Refused(fault) => Err(fault),
                LockOutcome::Waiting => continue,
            };
            out.push(Output::LockDone { origin, result });
        }
    }

    /// The session is over: its requests are answered, its locks go to those who wait (LK-2).
    pub fn end(&mut self, session: SessionId, out: &mut Vec<Output>) {
        let (gone, kept) = std::mem::take(&mut self.deferred).into_iter().partition(|d| d.request.session == session);
        self.deferred = kept;
        let gone: Vec<Deferred> = gone;
        let mut ended: Vec<Origin> = gone.into_iter().map(|deferred| deferred.origin).collect();
        let keys = self.accounts.get(&session).map(|account| account.keys.clone()).unwrap_or_default();
        for key in &keys {
            ended.extend(self.leave(*key, session));
        }
        assert!(!self.accounts.contains_key(&session), "LK-2: {session:?} has ended, and has locks");
        out.extend(ended.into_iter().map(|origin| Output::LockDone { origin, result: Err(Fault::Expired) }));
        for key in &keys {
            self.pump(*key, out);
        }
        self.pump_stuck(out);
        for key in keys {
            self.drop_if_empty(key);
        }
    }

    /// Takes all of a session out of one table.
    fn leave(&mut self, key: Key, session: SessionId) -> Vec<Origin> {
        let Some(table) = self.tables.get_mut(&key) else { return Vec::new() };
        let waits = table.waits.iter().filter(|wait| wait.owner.session == session);
        let waits: Vec<Origin> = waits.map(|wait| wait.origin).collect();
        let dropped = table.drop_session(session);
        self.account(key, session, dropped, 0);
        for origin in &waits {
            self.dequeue(key, *origin);
        }
        waits
    }

    fn grant(&mut self, key: Key, wanted: &Wait) {
        let table = self.tables.entry(key).or_default();
        assert!(!table.is_blocked(wanted), "LK-1: {wanted:?} conflicts with a lock of {key:?}");
        let (before, after) = table.set(wanted.owner, wanted.pid, wanted.range, Some(wanted.mode));
        self.account(key, wanted.owner.session, before, after);
    }

    /// Whether there was anything to give free.
    fn release(&mut self, key: Key, owner: Owner, range: ByteRange) -> bool {
        let Some(table) = self.tables.get_mut(&key) else { return false };
        let (before, after) = table.set(owner, 0, range, None);
        self.account(key, owner.session, before, after);
        before > 0
    }

    fn account(&mut self, key: Key, session: SessionId, before: usize, after: usize) {
        let account = self.accounts.entry(session).or_default();
        account.held = account.held + after - before;
        self.held = self.held + after - before;
        account.keys.insert(key);
        self.settle_account(key, session);
    }

    /// Forgets that a session has something in a table once it has not.
    fn settle_account(&mut self, key: Key, session: SessionId) {
        if self.tables.get(&key).is_some_and(|table| table.has(session)) {
            return;
        }
        if let Some(account) = self.accounts.get_mut(&session) {
            account.keys.remove(&key);
            if account.keys.is_empty() {
                assert_eq!((account.held, account.waits), (0, 0), "LK-2: {session:?} has locks in no table");
                self.accounts.remove(&session);
            }
        }
    }

    fn enqueue(&mut self, key: Key, wanted: Wait) {
        let account = self.accounts.entry(wanted.owner.session).or_default();
        account.waits += 1;
        account.keys.insert(key);
        self.waits.insert(wanted.origin, key);
        self.waiting.entry(wanted.owner).or_default().push(wanted.origin);
        self.tables.entry(key).or_default().waits.push_back(wanted);
    }

    fn dequeue(&mut self, key: Key, origin: Origin) -> Option<Wait> {
        let table = self.tables.get_mut(&key)?;
        let at = table.waits.iter().position(|wait| wait.origin == origin)?;
        let wait = table.waits.remove(at)?;
        self.waits.remove(&origin);
        if let Some(origins) = self.waiting.get_mut(&wait.owner) {
            origins.retain(|other| *other != origin);
            if origins.is_empty() {
                self.waiting.remove(&wait.owner);
            }
        }
        if let Some(account) = self.accounts.get_mut(&wait.owner.session) {
            account.waits -= 1;
        }
        self.settle_account(key, wait.owner.session);
        Some(wait)
    }

    /// Goes through a queue from the front and grants what can be granted. A grant stops others more, not less, unless it
    /// makes an exclusive lock of its owner shared; then those in front may go too.
    fn pump(&mut self, key: Key, out: &mut Vec<Output>) {
        let mut at = 0;
        let mut stuck = false;
        while let Some(wait) = self.tables.get(&key).and_then(|table| table.waits.get(at)).copied() {
            let blocked = self.tables.get(&key).is_some_and(|table| table.is_blocked(&wait));
            if blocked || self.is_queued(key, &wait, Some(at)) {
                stuck |= !blocked;
                at += 1;
                continue;
            }
            self.dequeue(key, wait.origin);
            if self.tables.get(&key).is_some_and(|table| table.is_downgrade(&wait)) {
                (at, stuck) = (0, false);
            }
            self.grant(key, &wait);
            out.push(Output::LockDone { origin: wait.origin, result: Ok(()) });
        }
        if stuck {
            self.stuck.insert(key);
        } else {
            self.stuck.remove(&key);
        }
    }

    /// Looks again whether those who are only queued depend on each other by now.
    fn pump_stuck(&mut self, out: &mut Vec<Output>) {
        loop {
            let before = out.len();
            for key in self.stuck.clone() {
                self.pump(key, out);
            }
            if out.len() == before {
                return;
            }
        }
    }

    fn drop_if_empty(&mut self, key: Key) {
        let Some(table) = self.tables.get(&key) else { return };
        if table.is_free() && table.waits.is_empty() {
            self.tables.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_locks_of_others_are_not_looked_at() {
        let (mut locks, mut out) = (Locks::new(1 << 20, 1 << 20), Vec::new());
        let fid = Fid::new(1, 2, 1);
        let lock = |locks: &mut Locks, session: u64, owner: u64, start: u64, out: &mut Vec<Output>| {
            let session = SessionId(session);
            let (range, mode) = (ByteRange { start, end: start }, LockMode::Exclusive);
            let (owner, family) = (LockOwner(owner), LockFamily::Posix);
            let request = LockRequest { fid, session, owner, pid: 1, family, range, mode };
            let origin = Origin { session, slot: 0, request: start };
            locks.lock(origin, &request, true, out)
        };
        // Each other byte, of as many owners.
        for number in 0..65_536 {
            assert_eq!(lock(&mut locks, 1, number, 2 * number, &mut out), LockOutcome::Granted);
        }
        let looked = |locks: &Locks| locks.tables[&(fid, LockFamilyOrd::Posix)].looked();
        let before = looked(&locks);
        for number in 0..100 {
            assert_eq!(lock(&mut locks, 2, 1, 600 * number + 1, &mut out), LockOutcome::Granted);
        }
        assert_eq!(lock(&mut locks, 2, 1, 0, &mut out), LockOutcome::Waiting);
        let owner = Owner { session: SessionId(2), owner: LockOwner(1), family: LockFamilyOrd::Posix };
        locks.unlock(fid, owner, ByteRange::ALL, &mut out);
        let steps = looked(&locks) - before;
        assert!(steps < 100 * 200, "{steps} entries were looked at for a hundred locks");
    }
}
