//! Promises, and the breaks that end them.
//!
//! Model. A session *has* a promise of a file until the promise is broken or forgotten. A *break*
//! is one message to one session and names several files; it is *pending* until the session
//! acknowledges it. A change waits for a *ticket*, which counts the pending breaks, of any age, of
//! the files that it changed (CB-1). Sessions are entered and removed here with their attach and
//! end; a promise or a pending break is always one of an entered session.
//!
//! Each session's promises stand in the order in which they were made, so that the oldest can be
//! broken when there are too many. Entries of that order are stale once their promise has ended.

mod breaks;
mod holdings;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use smallvec::SmallVec;
use types::{
    BreakId, BreakItem, BreakReason, Fid, SessionId, Time, VolumeId, limits::HOLD_FIDS_MAX,
};

use crate::output::{BreakTicket, Output};
use breaks::{BreakTable, PendingBreak};
use holdings::Holdings;

/// Files in one break that the server begins on its own: one message must have room for them.
const ITEMS_MAX: usize = 1024;
/// No session has number 0: a break that excepts it goes to all.
const NOBODY: SessionId = SessionId(0);

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Promises {
    files: Holdings,
    sessions: HashMap<SessionId, Promisee>,
    breaks: BreakTable,
}

/// The promises of one session, and the breaks that it has to acknowledge.
#[derive(Debug, Default)]
struct Promisee {
    pending: BTreeMap<BreakId, PendingBreak>,
    /// Promises in the order in which they were made; entries whose sequence number is not the
    /// promise's are stale.
    order: VecDeque<(Fid, u64)>,
    /// Promises in force.
    count: usize,
}

/// Changes that waited for breaks of a session that ended.
#[must_use]
pub(crate) struct EndedBreaks(Vec<BreakTicket>);

impl Promises {
    /// Whether breaks of the directory name entries to the session.
    pub fn shows_names(&self, session: SessionId, dir: Fid) -> bool {
        let mut holdings = self.files.holdings(dir).iter();
        holdings.any(|holding| holding.session == session && self.files.shows_names(holding))
    }

    /// Counts the changes of rights: a check from before a change permits no names.
    pub fn rights_changes(&self) -> u64 {
        self.files.rights_changes()
    }

    /// That count, for readers without a lock.
    pub fn rights_counter(&self) -> Arc<AtomicU64> {
        self.files.rights_counter()
    }

    /// The rights of some principal changed. Breaks of earlier promises name no entry until the
    /// session has asked again and its rights were checked (AC-1).
    pub fn rights_changed(&mut self) {
        self.files.rights_changed();
    }

    /// Whether the session has a promise of the file.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.files.is_promised(fid, session)
    }

    /// Whether there is a promise or an unacknowledged break of a file of the volume.
    pub fn concern_any_in(&self, volume: VolumeId) -> bool {
        !self.files.of_volume(volume).is_empty()
    }

    /// Whether the session has a promise or an unacknowledged break of the file.
    pub fn concerns(&self, session: SessionId, fid: Fid) -> bool {
        self.files.holdings(fid).iter().any(|holding| holding.session == session)
    }

    /// Whether a session other than `session` has a promise or an unacknowledged break of the file:
    /// it may have the file open without the server's knowledge (HO-1).
    pub fn is_known_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.files.holdings(fid).iter().any(|holding| holding.session != session)
    }

    /// Sessions with a promise of the file.
    pub(crate) fn sessions(&self, fid: Fid) -> impl Iterator<Item = SessionId> + '_ {
        let promised = self.files.holdings(fid).iter().filter(|holding| holding.seq != 0);
        promised.map(|holding| holding.session)
    }

    /// Files whose promises a break of the session ends.
    pub fn items_of(&self, session: SessionId, id: BreakId) -> Vec<Fid> {
        let pending = self.sessions.get(&session).and_then(|known| known.pending.get(&id));
        pending.into_iter().flat_map(|pending| pending.items.iter().map(|item| item.fid)).collect()
    }

    /// Promises of all sessions in force.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Files with a promise or an unacknowledged break.
    pub(crate) fn files(&self) -> usize {
        self.files.files()
    }

    /// Changes that wait for acknowledgements.
    pub(crate) fn tickets(&self) -> usize {
        self.breaks.tickets()
    }

    /// Promises of a session in force.
    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |known| known.count)
    }

    /// Entries of the session's order, stale ones too.
    #[cfg(test)]
    pub(crate) fn order_len(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |known| known.order.len())
    }

    /// The latest break that the session has not acknowledged.
    pub fn last_break(&self, session: SessionId) -> Option<BreakId> {
        self.sessions.get(&session)?.pending.keys().next_back().copied()
    }

    /// Whether the session has yet to acknowledge a break up to this one.
    pub(crate) fn owes(&self, session: SessionId, last: BreakId) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(|known| known.pending.range(..=last).next().is_some())
    }

    /// Whether the session has left a break unacknowledged for longer than `patience`.
    pub(crate) fn is_overdue(&self, now: Time, session: SessionId, patience: Duration) -> bool {
        let first = self.sessions.get(&session).and_then(|known| known.pending.values().next());
        first.is_some_and(|pending| now.since(pending.sent_at) > patience)
    }

    /// Sends the pending breaks of a session again.
    pub(crate) fn send_again(&self, session: SessionId, out: &mut Vec<Output>) {
        let pending = self.sessions.get(&session).into_iter().flat_map(|known| &known.pending);
        out.extend(pending.map(|(id, pending)| Output::Break {
            to: session,
            id: *id,
            items: pending.items.clone(),
        }));
    }

    /// The session has begun.
    pub(crate) fn enter(&mut self, session: SessionId) {
        let before = self.sessions.insert(session, Promisee::default());
        assert!(before.is_none(), "EO-2: {session:?} begins a second time");
    }

    /// The session is over: it has no promise, and owes no acknowledgement any more.
    pub(crate) fn leave(&mut self, session: SessionId) -> EndedBreaks {
        let known = self.sessions.remove(&session).unwrap_or_default();
        let promised = self.files.len();
        for (fid, _) in &known.order {
            self.files.forget(*fid, session);
        }
        assert_eq!(
            promised - self.files.len(),
            known.count,
            "CB-1: {session:?} is over, and each of its promises was in its order"
        );
        let mut tickets = Vec::new();
        for pending in known.pending.into_values() {
            for item in pending.items.iter().filter(|item| item.reason != BreakReason::Recall) {
                self.files.forget(item.fid, session);
            }
            tickets.extend(pending.tickets);
        }
        EndedBreaks(tickets)
    }

    /// The changes that waited for the session go on.
    pub(crate) fn finish(&mut self, EndedBreaks(tickets): EndedBreaks, out: &mut Vec<Output>) {
        self.breaks.finish(&tickets, out);
    }

    /// Promises a file to a session. `names`: breaks of it may name entries. True: the session has
    /// one more promise, or a newer one.
    pub(crate) fn add(&mut self, session: SessionId, fid: Fid, names: bool) -> bool {
        let was = self.files.is_promised(fid, session);
        let Some(seq) = self.files.add(fid, session, names) else { return false };
        let known = self.promisee(session);
        known.order.push_back((fid, seq));
        known.count += usize::from(!was);
        true
    }

    /// Withdraws a promise that was not sent to the session.
    pub fn withdraw(&mut self, session: SessionId, fid: Fid) {
        if self.files.withdraw(fid, session) {
            self.lost_one(session);
        }
    }

    /// Ends all promises of these files except those of `except`. The ticket is done when every
    /// session that may still trust them, and `is_awaited`, has acknowledged or ended. `None`: none
    /// does.
    pub(crate) fn break_files(
        &mut self,
        now: Time,
        items: &[BreakItem],
        except: SessionId,
        is_awaited: impl Fn(SessionId) -> bool,
        out: &mut Vec<Output>,
    ) -> Option<BreakTicket> {
        let mut awaited = self.begin_breaks(now, &merged(items), except, out);
        awaited.retain(|(session, _)| is_awaited(*session));
        self.await_breaks(awaited)
    }

    /// Ends all promises of files of the volume, of all sessions.
    pub(crate) fn break_volume(
        &mut self,
        now: Time,
        volume: VolumeId,
        is_awaited: impl Fn(SessionId) -> bool,
        out: &mut Vec<Output>,
    ) -> Option<BreakTicket> {
        let fids = self.files.of_volume(volume);
        let mut awaited = BTreeSet::new();
        for fids in fids.chunks(HOLD_FIDS_MAX) {
            let item = |fid: &Fid| BreakItem { fid: *fid, reason: BreakReason::Data, name: None };
            let items: Vec<_> = fids.iter().map(item).collect();
            awaited.extend(self.begin_breaks(now, &items, NOBODY, out));
        }
        awaited.retain(|(session, _)| is_awaited(*session));
        self.await_breaks(awaited)
    }

    /// Sends the breaks of these files. Returns the sessions and breaks that are not acknowledged.
    fn begin_breaks(
        &mut self,
        now: Time,
        items: &[BreakItem],
        except: SessionId,
        out: &mut Vec<Output>,
    ) -> BTreeSet<(SessionId, BreakId)> {
        let mut batches: BTreeMap<SessionId, (BreakId, Vec<BreakItem>)> = BTreeMap::new();
        let mut unacknowledged: BTreeSet<(SessionId, BreakId)> = BTreeSet::new();
        for item in items {
            let holdings: SmallVec<[_; 8]> =
                self.files.holdings(item.fid).iter().copied().collect();
            for holding in holdings.iter().filter(|holding| holding.session != except) {
                let id = if holding.seq == 0 {
                    holding.breaking
                } else {
                    let batch = batches.entry(holding.session);
                    let batch = batch.or_insert_with(|| (self.breaks.next_break(), Vec::new()));
                    let name = item.name.clone().filter(|_| self.files.shows_names(holding));
                    batch.1.push(BreakItem { name, ..item.clone() });
                    let begun = self.files.begin_break(item.fid, holding.session, batch.0);
                    assert!(begun, "CB-1: a break names {} twice", item.fid);
                    batch.0
                };
                unacknowledged.insert((holding.session, id));
            }
        }
        for (session, (id, items)) in batches {
            self.send(now, session, id, items, out);
        }
        unacknowledged
    }

    fn await_breaks(&mut self, awaited: BTreeSet<(SessionId, BreakId)>) -> Option<BreakTicket> {
        if awaited.is_empty() {
            return None;
        }
        let ticket = self.breaks.open(awaited.len());
        for (session, id) in awaited {
            let pending = self.promisee(session).pending.get_mut(&id);
            let pending = pending.expect("CB-1: a holding names a break that is pending");
            pending.tickets.push(ticket);
        }
        Some(ticket)
    }

    /// The file is removed: it will not change again, so its promises end without a break.
    pub(crate) fn forget_file(&mut self, fid: Fid) {
        for holding in self.files.forget_all(fid) {
            if holding.seq != 0 {
                self.lost_one(holding.session);
            }
        }
    }

    /// The session has one promise less.
    fn lost_one(&mut self, session: SessionId) {
        let known = self.promisee(session);
        assert!(known.count > 0, "CB-1: a promise of {session:?} was not counted");
        known.count -= 1;
        self.compact(session);
    }

    fn promisee(&mut self, session: SessionId) -> &mut Promisee {
        self.sessions.get_mut(&session).expect("CB-1: holdings are of sessions that have not ended")
    }

    fn send(
        &mut self,
        now: Time,
        to: SessionId,
        id: BreakId,
        items: Vec<BreakItem>,
        out: &mut Vec<Output>,
    ) {
        let known = self.promisee(to);
        assert!(
            known.count >= items.len(),
            "CB-1: {to:?} gets a break of what it was not promised"
        );
        known.count -= items.len();
        known.wait_for(now, id, items.clone());
        self.compact(to);
        out.push(Output::Break { to, id, items });
    }

    /// Sends recalls of delegations: they are acknowledged as breaks are, and end no promise.
    pub(crate) fn send_recalls(
        &mut self,
        now: Time,
        to: SessionId,
        items: &[BreakItem],
        out: &mut Vec<Output>,
    ) {
        for items in items.chunks(ITEMS_MAX) {
            let id = self.breaks.next_break();
            self.promisee(to).wait_for(now, id, items.to_vec());
            out.push(Output::Break { to, id, items: items.to_vec() });
        }
    }

    /// Drops stale entries from a session's order of promises once they are the larger part.
    fn compact(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get_mut(&session) else { return };
        if known.order.len() > 2 * known.count + 64 {
            known.order.retain(|(fid, seq)| self.files.is_current(*fid, session, *seq));
            assert_eq!(
                known.order.len(),
                known.count,
                "CB-1: each promise of {session:?} is in its order once"
            );
        }
    }

    /// Breaks an eighth of a session's promises, the oldest, at once, so that this is rare. Covered
    /// files are not broken: the session alone changes them. False: all are covered.
    pub(crate) fn break_oldest(
        &mut self,
        now: Time,
        session: SessionId,
        is_covered: impl Fn(Fid) -> bool,
        out: &mut Vec<Output>,
    ) -> bool {
        let id = self.breaks.next_break();
        let Some(known) = self.sessions.get_mut(&session) else { return true };
        let wanted = (known.count / 8).clamp(1, ITEMS_MAX);
        let mut items = Vec::with_capacity(wanted);
        for _ in 0..known.order.len() {
            if items.len() == wanted {
                break;
            }
            let Some((fid, seq)) = known.order.pop_front() else { break };
            if is_covered(fid) {
                known.order.push_back((fid, seq));
            } else if self.files.is_current(fid, session, seq) {
                self.files.begin_break(fid, session, id);
                items.push(BreakItem { fid, reason: BreakReason::Pressure, name: None });
            }
        }
        let any = !items.is_empty();
        if any {
            self.send(now, session, id, items, out);
        }
        any
    }

    /// The session has dropped the files of this break. Returns them; none if it was acknowledged
    /// before.
    pub(crate) fn ack(
        &mut self,
        session: SessionId,
        id: BreakId,
        out: &mut Vec<Output>,
    ) -> Vec<Fid> {
        let known = self.sessions.get_mut(&session);
        let Some(pending) = known.and_then(|known| known.pending.remove(&id)) else {
            return Vec::new();
        };
        let items = pending.items.iter().filter(|item| item.reason != BreakReason::Recall);
        let fids: Vec<Fid> = items.map(|item| item.fid).collect();
        fids.iter().for_each(|fid| self.files.end_break(*fid, session, id));
        self.breaks.finish(&pending.tickets, out);
        fids
    }
}

impl Promisee {
    fn wait_for(&mut self, now: Time, id: BreakId, items: Vec<BreakItem>) {
        debug_assert!(
            self.pending.keys().next_back().is_none_or(|last| *last < id),
            "CB-4: the first pending break is the oldest"
        );
        self.pending.insert(id, PendingBreak { items, sent_at: now, tickets: SmallVec::new() });
    }
}

/// One item for each file. A hint survives only where all agree on it (CB-7).
pub(crate) fn merged(items: &[BreakItem]) -> Vec<BreakItem> {
    let mut merged: Vec<BreakItem> = Vec::with_capacity(items.len());
    let mut places: HashMap<Fid, usize> = HashMap::new();
    for item in items {
        let place = *places.entry(item.fid).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(first) => {
                first.reason = stronger(first.reason, item.reason);
                first.name = first.name.take().filter(|name| item.name.as_ref() == Some(name));
            }
            None => merged.push(item.clone()),
        }
    }
    merged
}

fn stronger(one: BreakReason, other: BreakReason) -> BreakReason {
    let strength = |reason| match reason {
        BreakReason::Removed => 3,
        BreakReason::Data => 2,
        BreakReason::Status => 1,
        BreakReason::Pressure | BreakReason::Recall => 0,
    };
    if strength(other) > strength(one) { other } else { one }
}
