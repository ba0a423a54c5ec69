//! Locks of all files, the requests that wait for them, and their order.
//!
//! The model. Each file has two *tables*, one for each family, with the held locks and the waiting
//! requests, in the order of their *turns*. A waiting request is *blocked* by a lock of another
//! owner that conflicts with it, and it is *queued* behind an earlier waiting request that
//! conflicts with it, so that no request starves (LK-3). When bytes are unlocked, the requests that
//! want some of them are checked in the order of their turns, and one that is neither blocked nor
//! queued is granted.
//!
//! Queueing must not stop a request that an earlier one waits for: a reader that wants a second
//! range would queue behind a writer that waits for the reader's first. So no request is queued
//! behind one whose owner depends on its own owner, through any number of others. Each new wait and
//! each grant may make owners depend on each other. A request that is queued without being blocked
//! (*stuck*) is therefore checked again when its owner is one that the owner of the new wait or
//! grant depends on: every new dependence leads through the latter.
//!
//! A POSIX request that waits for a lock whose owner waits, through any number of others, for the
//! request's own owner, is refused with `Deadlock`, as on Linux; only blocking counts there, since
//! queueing never closes a cycle. `flock` has no such refusal, on Linux as here. Requests that do
//! not wait ignore the queue.
//!
//! A *persistent* lock has a record with its file, which the driver passes here before each request
//! ([`LockTable::set_records`]). A record whose lock is not held is *broken*: a request for its
//! bytes is refused, also one that waited while the lock was held (PL-1).
//!
//! The cost of a request grows with the locks and requests that conflict with it, not with the
//! other ones of the file.

mod graph;
mod held;
mod intervals;
mod persistent;
mod ranges;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use types::{
    ByteRange, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner, ReplyAddress, SessionId,
    VolumeId,
};

use crate::output::Output;
pub use persistent::LockRecord;
use persistent::Records;
use table::{Table, Turn, Wait};

/// A request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The file to lock.
    pub fid: Fid,
    /// The session that requests it.
    pub session: SessionId,
    /// The owner within the session.
    pub owner: LockOwner,
    /// That owner's process id, for `test`; 0: unknown.
    pub pid: u32,
    /// `Posix` and `Flock` locks do not conflict with each other.
    pub family: LockFamily,
    /// Range of a `Posix` lock; `Flock` locks always cover all bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// The broken locks that do not keep it out.
    pub passes: PassesBroken,
}

/// The broken locks that do not keep a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassesBroken {
    /// None.
    Nothing,
    /// Those of an owner with the same number, which claims its lock.
    OwnersOwn,
    /// All: the owner repairs the file.
    All,
}

impl PassesBroken {
    fn passes(self, broken: LockOwner, requester: LockOwner) -> bool {
        match self {
            PassesBroken::Nothing => false,
            PassesBroken::OwnersOwn => broken == requester,
            PassesBroken::All => true,
        }
    }
}

/// Result of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// The lock is held.
    Granted,
    /// The answer comes as [`Output::LockDone`], later or among the outputs of this very call.
    Waiting,
    /// The lock was not granted, for this reason.
    Refused(Fault),
}

/// An owner of locks, over all sessions. The same number in the other family is another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionOwner {
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
    origin: ReplyAddress,
    request: LockRequest,
    wait: bool,
}

/// Where a request waits.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the queue of a table.
    Queue(Key, Turn),
    /// For the end of grace.
    Grace(Turn),
}

/// Locks and requests of a session, so that its end costs no more than these.
#[derive(Debug, Default)]
struct Account {
    /// Number of locks in each table.
    held: BTreeMap<Key, usize>,
    waits: BTreeSet<(Key, Turn)>,
    deferred: BTreeSet<Turn>,
    /// The sum over `held`.
    locks: usize,
}

impl Account {
    fn used(&self) -> usize {
        self.locks + self.waits.len() + self.deferred.len()
    }
}

/// Maximum numbers of locks and waiting requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockLimits {
    /// Locks and waiting requests of one session.
    pub per_session: usize,
    /// Locks and waiting requests of all sessions.
    pub all: usize,
}

/// All locks of one server.
#[derive(Debug)]
pub struct LockTable {
    tables: HashMap<Key, Table>,
    /// Where each waiting request waits.
    places: HashMap<ReplyAddress, Place>,
    /// The waiting requests of each owner.
    waiting: HashMap<SessionOwner, BTreeSet<(Key, Turn)>>,
    /// Those of them that are queued without being blocked; some may have become blocked since.
    stuck: HashMap<SessionOwner, BTreeSet<(Key, Turn)>>,
    accounts: HashMap<SessionId, Account>,
    deferred: BTreeMap<Turn, Deferred>,
    records: Records,
    /// Locks held, of all sessions.
    held: usize,
    last_turn: Turn,
    limits: LockLimits,
}

impl LockTable {
    pub(crate) fn new(limits: LockLimits) -> Self {
        LockTable {
            tables: HashMap::new(),
            places: HashMap::new(),
            waiting: HashMap::new(),
            stuck: HashMap::new(),
            accounts: HashMap::new(),
            deferred: BTreeMap::new(),
            records: Records::default(),
            held: 0,
            last_turn: Turn::default(),
            limits,
        }
    }

    /// The file has these persistent locks. Called before each request for a lock of the file, and
    /// after each change of its records, under the file's stripe.
    pub fn set_records(&mut self, fid: Fid, records: Vec<LockRecord>) {
        self.records.set(fid, records);
    }

    /// Forgets the file's records if it has no lock and no request: the next one brings them.
    pub fn forget_if_unlocked(&mut self, fid: Fid) {
        if self.deferred.is_empty() && !self.tables.contains_key(&(fid, LockFamilyOrd::Posix)) {
            self.records.forget(fid);
        }
    }

    /// Whether the holder of a persistent lock holds all of its bytes exclusively.
    pub fn is_held(&self, fid: Fid, record: &LockRecord) -> bool {
        record.is_held(self.tables.get(&(fid, LockFamilyOrd::Posix)))
    }

    /// Locks held; a POSIX owner's neighbouring bytes in one mode are one lock.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Locks and waiting requests of a session, including those for the end of grace.
    pub(crate) fn used_by(&self, session: SessionId) -> usize {
        self.accounts.get(&session).map_or(0, Account::used)
    }

    /// Requests that wait, including those for the end of grace.
    pub(crate) fn waiting(&self) -> usize {
        self.places.len()
    }

    /// Requests that wait for locks of the file.
    pub(crate) fn waiting_for(&self, fid: Fid, family: LockFamily) -> usize {
        self.tables.get(&(fid, family.into())).map_or(0, Table::waits)
    }

    /// Requests a lock.
    pub(crate) fn lock(
        &mut self,
        origin: ReplyAddress,
        request: &LockRequest,
        wait: bool,
        out: &mut Vec<Output>,
    ) -> LockOutcome {
        if self.places.contains_key(&origin) {
            return LockOutcome::Waiting;
        }
        if request.range.start > request.range.end {
            return LockOutcome::Refused(Fault::Invalid);
        }
        if self.used_by(request.session) >= self.limits.per_session
            || self.held + self.waiting() >= self.limits.all
        {
            return LockOutcome::Refused(Fault::Busy);
        }
        let wanted = Wait::new(origin, request);
        let key = (request.fid, wanted.owner.family);
        if self.records.keep_out(key, &wanted, self.tables.get(&key)) {
            self.drop_if_empty(key);
            return LockOutcome::Refused(Fault::LockBroken);
        }
        let table = self.tables.entry(key).or_default();
        let blocked = table.is_blocked(&wanted);
        if !blocked && (!wait || !self.is_queued(key, &wanted)) {
            let opens = self.grant(key, &wanted);
            let mut moved = vec![wanted.owner];
            if opens {
                self.pump(key, wanted.range, &mut moved, out);
            }
            self.pump_stuck(moved, out);
            return LockOutcome::Granted;
        }
        let outcome = self.wait_or_refuse(key, wanted, wait, out);
        self.drop_if_empty(key);
        outcome
    }

    fn wait_or_refuse(
        &mut self,
        key: Key,
        wanted: Wait,
        wait: bool,
        out: &mut Vec<Output>,
    ) -> LockOutcome {
        if wait && self.is_deadlock(key, &wanted) {
            return LockOutcome::Refused(Fault::Deadlock);
        }
        // A conversion of `flock` releases the old lock first, as on Linux: two owners that upgrade
        // do not block each other.
        let converts = wanted.owner.family == LockFamilyOrd::Flock
            && self.release(key, wanted.owner, ByteRange::ALL);
        let mut moved = Vec::new();
        if wait {
            let turn = self.enqueue(key, wanted);
            moved.push(wanted.owner);
            self.try_grant(key, turn, &mut moved, out);
        }
        if converts {
            self.pump(key, ByteRange::ALL, &mut moved, out);
        }
        self.pump_stuck(moved, out);
        if wait { LockOutcome::Waiting } else { LockOutcome::Refused(Fault::Locked) }
    }

    /// Unlocks bytes, and grants them to waiting requests.
    pub fn unlock(
        &mut self,
        session: SessionId,
        fid: Fid,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
        out: &mut Vec<Output>,
    ) {
        let range = if family == LockFamily::Flock { ByteRange::ALL } else { range };
        let owner = SessionOwner { session, owner, family: family.into() };
        let key = (fid, owner.family);
        if range.start > range.end || !self.release(key, owner, range) {
            return;
        }
        self.pump_all(key, range, out);
        self.drop_if_empty(key);
    }

    /// Whether any session has a lock of a file of the volume, or waits for one.
    pub fn has_any_in(&self, volume: VolumeId) -> bool {
        self.tables.keys().any(|(fid, _)| fid.volume == volume)
    }

    /// The volume is at another server: requests that wait for locks in it are refused.
    pub fn refuse_waits_in(&mut self, volume: VolumeId, out: &mut Vec<Output>) {
        let in_volume = |place: &Place| match place {
            Place::Queue(key, turn) if key.0.volume == volume => Some((*turn, *key)),
            _ => None,
        };
        let waits: BTreeSet<(Turn, Key)> = self.places.values().filter_map(in_volume).collect();
        for (turn, key) in waits {
            let Some(wait) = self.dequeue(key, turn) else { continue };
            out.push(Output::LockDone { origin: wait.origin, result: Err(Fault::NoVolume) });
            self.drop_if_empty(key);
        }
    }

    /// The volume is at another server, and no client trusts a lock that it had here any more.
    pub fn forget_volume(&mut self, volume: VolumeId, out: &mut Vec<Output>) {
        self.refuse_waits_in(volume, out);
        for session in self.sessions_in(volume) {
            let held = self.accounts.get(&session).map(|account| account.held.keys());
            let keys: Vec<Key> = held.into_iter().flatten().copied().collect();
            for key in keys.into_iter().filter(|(fid, _)| fid.volume == volume) {
                let dropped =
                    self.tables.get_mut(&key).map_or(0, |table| table.drop_session(session));
                self.account(key, session, dropped, 0);
                self.drop_if_empty(key);
            }
        }
    }

    /// The sessions that have locks of files of the volume, or wait for some.
    pub(crate) fn sessions_in(&self, volume: VolumeId) -> BTreeSet<SessionId> {
        let is_in = |account: &Account| {
            let waits = account.waits.iter().map(|(key, _)| key);
            account.held.keys().chain(waits).any(|(fid, _)| fid.volume == volume)
        };
        let of_volume = self.accounts.iter().filter(|(_, account)| is_in(account));
        of_volume.map(|(session, _)| *session).collect()
    }

    /// The first conflicting lock, by its start.
    pub fn test(&self, request: &LockRequest) -> Option<LockConflict> {
        let nowhere = ReplyAddress { session: request.session, slot: 0, request: 0 };
        let wanted = Wait::new(nowhere, request);
        let table = self.tables.get(&(request.fid, wanted.owner.family))?;
        let held = table.blockers(&wanted).min_by_key(|held| (held.range.start, held.owner))?;
        let pid = if held.owner.session == request.session { held.pid } else { 0 };
        Some(LockConflict { range: held.range, mode: held.mode, pid })
    }

    /// Cancels a waiting request. False: it does not wait (any more).
    pub fn cancel(&mut self, origin: ReplyAddress, out: &mut Vec<Output>) -> bool {
        let found = self.cancel_deferred(origin) || self.cancel_wait(origin, out);
        if found {
            out.push(Output::LockDone { origin, result: Err(Fault::Cancelled) });
        }
        found
    }

    fn cancel_deferred(&mut self, origin: ReplyAddress) -> bool {
        let Some(Place::Grace(turn)) = self.places.get(&origin).copied() else { return false };
        self.undefer_one(turn).is_some()
    }

    fn cancel_wait(&mut self, origin: ReplyAddress, out: &mut Vec<Output>) -> bool {
        let Some(Place::Queue(key, turn)) = self.places.get(&origin).copied() else { return false };
        let Some(wait) = self.dequeue(key, turn) else { return false };
        self.pump_all(key, wait.range, out);
        self.drop_if_empty(key);
        true
    }

    fn next_turn(&mut self) -> Turn {
        self.last_turn.0 += 1;
        self.last_turn
    }

    /// Stores a request until grace is over.
    ///
    /// # Errors
    /// `Busy`: the session, or all together, reached the limit.
    pub(crate) fn defer(
        &mut self,
        origin: ReplyAddress,
        request: &LockRequest,
        wait: bool,
    ) -> Result<(), Fault> {
        if self.places.contains_key(&origin) {
            return Ok(());
        }
        if self.used_by(request.session) >= self.limits.per_session
            || self.held + self.waiting() >= self.limits.all
        {
            return Err(Fault::Busy);
        }
        let turn = self.next_turn();
        self.places.insert(origin, Place::Grace(turn));
        self.accounts.entry(request.session).or_default().deferred.insert(turn);
        self.deferred.insert(turn, Deferred { origin, request: *request, wait });
        Ok(())
    }

    fn undefer_one(&mut self, turn: Turn) -> Option<Deferred> {
        let deferred = self.deferred.remove(&turn)?;
        self.places.remove(&deferred.origin);
        self.accounts.entry(deferred.request.session).or_default().deferred.remove(&turn);
        self.drop_account_if_empty(deferred.request.session);
        Some(deferred)
    }

    /// Grace is over: answers the stored requests, in the order in which they came.
    pub(crate) fn undefer(&mut self, out: &mut Vec<Output>) {
        while let Some(turn) = self.deferred.keys().next().copied() {
            let Some(Deferred { origin, request, wait }) = self.undefer_one(turn) else { break };
            let result = match self.lock(origin, &request, wait, out) {
                LockOutcome::Granted => Ok(()),
                LockOutcome::Refused(fault) => Err(fault),
                LockOutcome::Waiting => continue,
            };
            out.push(Output::LockDone { origin, result });
        }
        let tables = &self.tables;
        self.records.retain(|fid| tables.contains_key(&(fid, LockFamilyOrd::Posix)));
    }

    /// Ends the session: answers its requests, and grants its locks to waiting requests (LK-2).
    pub(crate) fn end(&mut self, session: SessionId, out: &mut Vec<Output>) {
        let Some(account) = self.accounts.get(&session) else { return };
        let (deferred, waits) = (account.deferred.clone(), account.waits.clone());
        let mut keys: BTreeSet<Key> = account.held.keys().copied().collect();
        keys.extend(waits.iter().map(|(key, _)| *key));
        let mut ended: Vec<ReplyAddress> = deferred
            .into_iter()
            .filter_map(|turn| self.undefer_one(turn))
            .map(|deferred| deferred.origin)
            .collect();
        ended.extend(
            waits
                .into_iter()
                .filter_map(|(key, turn)| self.dequeue(key, turn))
                .map(|wait| wait.origin),
        );
        for key in &keys {
            let dropped = self.tables.get_mut(key).map_or(0, |table| table.drop_session(session));
            self.account(*key, session, dropped, 0);
        }
        assert!(
            !self.accounts.contains_key(&session),
            "LK-2: {session:?} has ended, and has locks"
        );
        debug_assert!(
            self.waiting.keys().all(|owner| owner.session != session),
            "LK-2: {session:?} has ended, and waits for locks"
        );
        out.extend(
            ended
                .into_iter()
                .map(|origin| Output::LockDone { origin, result: Err(Fault::Expired) }),
        );
        for key in &keys {
            self.pump_all(*key, ByteRange::ALL, out);
        }
        for key in keys {
            self.drop_if_empty(key);
        }
    }

    /// Grants the request. Returns whether waiting requests of the same table may go: the owner
    /// shares bytes that it had exclusively, or they are of its own process.
    fn grant(&mut self, key: Key, wanted: &Wait) -> bool {
        let table = self.tables.entry(key).or_default();
        assert!(!table.is_blocked(wanted), "LK-1: {wanted:?} conflicts with a lock of {key:?}");
        let opens = wanted.owner.family == LockFamilyOrd::Flock || table.is_downgrade(wanted);
        let (before, after) = table.set(wanted.owner, wanted.pid, wanted.range, Some(wanted.mode));
        self.account(key, wanted.owner.session, before, after);
        opens
    }

    /// Unlocks bytes. Returns whether there was a lock.
    fn release(&mut self, key: Key, owner: SessionOwner, range: ByteRange) -> bool {
        let Some(table) = self.tables.get_mut(&key) else { return false };
        let (before, after) = table.set(owner, 0, range, None);
        self.account(key, owner.session, before, after);
        before > 0
    }

    fn account(&mut self, key: Key, session: SessionId, before: usize, after: usize) {
        let account = self.accounts.entry(session).or_default();
        assert!(account.locks >= before, "LK-2: a lock of {session:?} would outlive it");
        account.locks = account.locks + after - before;
        self.held = self.held + after - before;
        let here = account.held.entry(key).or_default();
        *here = *here + after - before;
        if *here == 0 {
            account.held.remove(&key);
        }
        self.drop_account_if_empty(session);
    }

    fn drop_account_if_empty(&mut self, session: SessionId) {
        if self.accounts.get(&session).is_some_and(|account| account.used() == 0) {
            self.accounts.remove(&session);
        }
    }

    fn enqueue(&mut self, key: Key, wanted: Wait) -> Turn {
        let turn = self.next_turn();
        let place = (key, turn);
        self.accounts.entry(wanted.owner.session).or_default().waits.insert(place);
        self.places.insert(wanted.origin, Place::Queue(key, turn));
        self.waiting.entry(wanted.owner).or_default().insert(place);
        self.tables.entry(key).or_default().enqueue(Wait { turn, ..wanted });
        turn
    }

    fn dequeue(&mut self, key: Key, turn: Turn) -> Option<Wait> {
        let wait = self.tables.get_mut(&key)?.dequeue(turn)?;
        self.places.remove(&wait.origin);
        remove_from(&mut self.waiting, wait.owner, (key, turn));
        remove_from(&mut self.stuck, wait.owner, (key, turn));
        if let Some(account) = self.accounts.get_mut(&wait.owner.session) {
            account.waits.remove(&(key, turn));
        }
        self.drop_account_if_empty(wait.owner.session);
        Some(wait)
    }

    /// Bytes were unlocked, or a request for them was cancelled: grants every request that can now
    /// be granted, there and elsewhere.
    fn pump_all(&mut self, key: Key, freed: ByteRange, out: &mut Vec<Output>) {
        let mut moved = Vec::new();
        self.pump(key, freed, &mut moved, out);
        self.pump_stuck(moved, out);
    }

    /// Checks the requests that want bytes of `freed`, in the order of their turns, and grants what
    /// can be granted; adds the owners that have locks now to `moved`.
    fn pump(
        &mut self,
        key: Key,
        freed: ByteRange,
        moved: &mut Vec<SessionOwner>,
        out: &mut Vec<Output>,
    ) {
        let wanting = |locks: &LockTable, range| -> BTreeSet<Turn> {
            locks
                .tables
                .get(&key)
                .into_iter()
                .flat_map(|table| table.wanting(range))
                .map(|wait| wait.turn)
                .collect()
        };
        let mut turns = wanting(self, freed);
        while let Some(turn) = turns.pop_first() {
            // A grant blocks other requests, except those that it opens bytes to.
            if let Some(opened) = self.try_grant(key, turn, moved, out) {
                turns.extend(wanting(self, opened));
            }
        }
    }

    /// Grants the waiting request if it is neither blocked nor queued. `Some`: other requests for
    /// these bytes may go too.
    fn try_grant(
        &mut self,
        key: Key,
        turn: Turn,
        moved: &mut Vec<SessionOwner>,
        out: &mut Vec<Output>,
    ) -> Option<ByteRange> {
        let table = self.tables.get(&key)?;
        let wait = *table.wait(turn)?;
        if table.is_blocked(&wait) {
            remove_from(&mut self.stuck, wait.owner, (key, turn));
            return None;
        }
        if self.is_queued(key, &wait) {
            self.stuck.entry(wait.owner).or_default().insert((key, turn));
            return None;
        }
        self.dequeue(key, turn);
        if self.records.keep_out(key, &wait, self.tables.get(&key)) {
            out.push(Output::LockDone { origin: wait.origin, result: Err(Fault::LockBroken) });
            return Some(wait.range);
        }
        let opens = self.grant(key, &wait);
        moved.push(wait.owner);
        out.push(Output::LockDone { origin: wait.origin, result: Ok(()) });
        opens.then_some(wait.range)
    }

    /// These owners wait for more, or have more, than before: grants requests that are stuck behind
    /// others which depend on them by now.
    fn pump_stuck(&mut self, mut moved: Vec<SessionOwner>, out: &mut Vec<Output>) {
        while !self.stuck.is_empty()
            && let Some(owner) = moved.pop()
        {
            for reached in self.reached_by(owner) {
                for (key, turn) in self.stuck.get(&reached).cloned().unwrap_or_default() {
                    if let Some(opened) = self.try_grant(key, turn, &mut moved, out) {
                        self.pump(key, opened, &mut moved, out);
                    }
                }
            }
        }
    }

    fn drop_if_empty(&mut self, key: Key) {
        if self.tables.get(&key).is_none_or(Table::is_empty) {
            self.tables.remove(&key);
            self.forget_if_unlocked(key.0);
        }
    }
}

fn remove_from(
    map: &mut HashMap<SessionOwner, BTreeSet<(Key, Turn)>>,
    owner: SessionOwner,
    place: (Key, Turn),
) {
    if let Some(places) = map.get_mut(&owner) {
        places.remove(&place);
        if places.is_empty() {
            map.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests;
