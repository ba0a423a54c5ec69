//! The server's machine: one table of sessions, and what each of them has.
//!
//! Every event that can end a session or finish a wait takes `out`, the list of what has to happen outside. Outputs of one
//! call are in an order that may be carried out one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use smallvec::SmallVec;
use types::{
    BreakId, BreakItem, BreakReason, ByteRange, ClientId, Fault, Fid, LockConflict, LockFamily, LockOwner, Origin,
    SessionId, Time,
};

use crate::breaks::{Breaks, PendingBreak};
use crate::config::{LeaseConfig, Restart};
use crate::grace::Grace;
use crate::hold::Holds;
use crate::lock::{LockOutcome, LockRequest, Locks, Owner};
use crate::output::{EndReason, Output, Ticket};
use crate::promise::Promises;
use crate::session::{AttachError, Renewal, Resumed, Sessions};

/// Sizes of the tables, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that have not ended.
    pub sessions: usize,
    /// Promises in force.
    pub promises: usize,
    /// Files that somebody is promised, or has yet to acknowledge a break of.
    pub promised_files: usize,
    /// Files that somebody holds.
    pub held_files: usize,
    /// Changes that wait for acknowledgements.
    pub tickets: usize,
    /// Locks.
    pub locks: usize,
    /// Lock requests that wait.
    pub lock_waits: usize,
}

/// Promises, breaks, holds, locks and leases of one server.
#[derive(Debug)]
pub struct Leases {
    config: LeaseConfig,
    sessions: Sessions,
    promises: Promises,
    breaks: Breaks,
    holds: Holds,
    locks: Locks,
    grace: Option<Grace>,
}

impl Leases {
    /// A new machine. `next_session` must be above every session number that was ever used; `restart` is what an earlier
    /// life left (`None`: there was none). With a restart, grace begins, unless nobody was there.
    pub fn new(config: LeaseConfig, restart: Option<&Restart>, next_session: SessionId, now: Time) -> Self {
        let mut sessions = Sessions::new(next_session);
        let until = now + config.give_up();
        let grace = restart.and_then(|left| {
            for known in &left.known {
                sessions.insert(known.session, known.client, known.incarnation, until, true);
            }
            let grace = Grace::new(until, sessions.ids(), left.complete);
            (!grace.is_over(now)).then_some(grace)
        });
        Leases {
            config,
            sessions,
            promises: Promises::default(),
            breaks: Breaks::default(),
            holds: Holds::default(),
            locks: Locks::new(config.locks_per_session_max),
            grace,
        }
    }

    // Sessions.

    /// A new session. Sessions of earlier incarnations of the client end now (EO-2).
    ///
    /// # Errors
    /// [`AttachError::OldIncarnation`] if a later life of the client has been seen.
    pub fn attach(
        &mut self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Output>,
    ) -> Result<SessionId, AttachError> {
        for older in self.sessions.older(client, incarnation)? {
            self.end(now, older, EndReason::Replaced, out);
        }
        Ok(self.sessions.add(client, incarnation, now + self.config.give_up()))
    }

    /// The session's client is back on a new connection. Breaks that it has not acknowledged are said again.
    ///
    /// # Errors
    /// [`AttachError`]; the session is not touched then.
    pub fn resume(
        &mut self,
        now: Time,
        session: SessionId,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Output>,
    ) -> Result<Resumed, AttachError> {
        let known = self.sessions.get(session).ok_or(AttachError::Gone(session))?;
        if known.client != client {
            return Err(AttachError::Gone(session));
        }
        if known.incarnation != incarnation {
            return Err(AttachError::OldIncarnation { client, newest: known.incarnation });
        }
        let reclaim = known.reclaiming;
        let again = known.pending.iter();
        out.extend(again.map(|(id, pending)| Output::Break { to: session, id: *id, items: pending.items.clone() }));
        let renewed = self.renew(now, session) == Renewal::Renewed;
        Ok(Resumed { reclaim, renewed })
    }

    /// The session's client was heard from.
    pub fn renew(&mut self, now: Time, session: SessionId) -> Renewal {
        let patience = self.config.break_patience;
        let expires = now + self.config.give_up();
        let Some(known) = self.sessions.get_mut(session) else { return Renewal::Gone };
        let overdue = |pending: &PendingBreak| now.since(pending.sent_at) > patience;
        if known.pending.values().next().is_some_and(overdue) {
            return Renewal::Withheld;
        }
        known.expires = known.expires.max(expires);
        Renewal::Renewed
    }

    /// The session is over: its client says so.
    pub fn detach(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        self.end(now, session, EndReason::Detached, out);
    }

    /// The session is over: its client is known to have died.
    pub fn peer_died(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        self.end(now, session, EndReason::PeerDied, out);
    }

    /// Whether the session has not ended.
    pub fn is_session(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some()
    }

    /// Ends sessions and grace whose time is over. Returns when to be called next.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Output>) -> Time {
        while let Some(session) = self.sessions.expired(now) {
            self.end(now, session, EndReason::Expired, out);
        }
        self.settle_grace(now, out);
        self.wake_at()
    }

    /// When [`Leases::tick`] has something to do at the latest. May be early.
    pub fn wake_at(&self) -> Time {
        let grace = self.grace.as_ref().map_or(Time::NEVER, Grace::until);
        grace.min(self.sessions.wake_at())
    }

    /// Sizes of the tables.
    pub fn counts(&self) -> Counts {
        Counts {
            sessions: self.sessions.len(),
            promises: self.promises.len(),
            promised_files: self.promises.files(),
            held_files: self.holds.files(),
            tickets: self.breaks.tickets(),
            locks: self.locks.len(),
            lock_waits: self.locks.waiting(),
        }
    }

    fn end(&mut self, now: Time, id: SessionId, reason: EndReason, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.remove(id) else { return };
        for (fid, _) in &session.order {
            self.promises.forget(*fid, id);
        }
        for pending in session.pending.values() {
            for item in &pending.items {
                self.promises.forget(item.fid, id);
            }
        }
        let mut freed = self.holds.end(id);
        if self.grace.is_some() {
            freed.clear();
        }
        out.push(Output::SessionEnded { session: id, client: session.client, reason, freed });
        self.locks.end(id, out);
        for pending in session.pending.values() {
            self.breaks.settle(&pending.tickets, out);
        }
        if let Some(grace) = &mut self.grace {
            grace.settle(id);
        }
        self.settle_grace(now, out);
    }

    // Grace.

    /// Whether changes may be made: not before the earlier life is settled (CB-5).
    pub fn may_change(&self) -> bool {
        self.grace.is_none()
    }

    /// The session has claimed all that it had before the restart.
    pub fn reclaim_done(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.reclaiming = false;
        }
        if let Some(grace) = &mut self.grace {
            grace.settle(session);
        }
        self.settle_grace(now, out);
    }

    fn settle_grace(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.grace.as_ref().is_some_and(|grace| grace.is_over(now)) {
            self.grace = None;
            out.push(Output::GraceOver);
            self.locks.undefer(out);
        }
    }

    // Promises.

    /// Promises `fid` to `session`. Do this *before* reading what is promised (CB-2). False: no such session, and nothing
    /// is promised.
    pub fn promise(&mut self, now: Time, session: SessionId, fid: Fid, out: &mut Vec<Output>) -> bool {
        let Some(known) = self.sessions.get_mut(session) else { return false };
        if let Some(seq) = self.promises.add(fid, session) {
            known.order.push_back((fid, seq));
            known.promises += 1;
            if self.promises.len() > self.config.promises_max {
                self.relieve(now, out);
            }
        }
        true
    }

    /// Whether `session` is promised `fid`.
    pub fn is_promised(&self, session: SessionId, fid: Fid) -> bool {
        self.promises.is_promised(fid, session)
    }

    /// Ends all promises of these files but those of `except`, which made the change. The ticket is done when everybody who
    /// may still trust them has acknowledged or is over. `None`: nobody does.
    pub fn break_promises(
        &mut self,
        now: Time,
        items: &[BreakItem],
        except: SessionId,
        out: &mut Vec<Output>,
    ) -> Option<Ticket> {
        let mut batches: BTreeMap<SessionId, (BreakId, Vec<BreakItem>)> = BTreeMap::new();
        let mut awaited: BTreeSet<(SessionId, BreakId)> = BTreeSet::new();
        for item in &merged(items) {
            let holdings: SmallVec<[_; 8]> = self.promises.holdings(item.fid).iter().copied().collect();
            for holding in holdings.iter().filter(|holding| holding.session != except) {
                let id = if holding.seq == 0 {
                    holding.breaking
                } else {
                    let batch = batches.entry(holding.session);
                    let batch = batch.or_insert_with(|| (self.breaks.next_break(), Vec::new()));
                    batch.1.push(item.clone());
                    self.promises.begin_break(item.fid, holding.session, batch.0);
                    batch.0
                };
                awaited.insert((holding.session, id));
            }
        }
        for (session, (id, items)) in batches {
            self.send(now, session, id, items, out);
        }
        if awaited.is_empty() {
            return None;
        }
        let ticket = self.breaks.open(awaited.len());
        for (session, id) in awaited {
            self.pending_mut(session, id).tickets.push(ticket);
        }
        Some(ticket)
    }

    fn pending_mut(&mut self, session: SessionId, id: BreakId) -> &mut PendingBreak {
        let known = self.sessions.get_mut(session).expect("CB-1: holdings are of sessions that have not ended");
        known.pending.get_mut(&id).expect("CB-1: a holding names a break that is pending")
    }

    fn send(&mut self, now: Time, to: SessionId, id: BreakId, items: Vec<BreakItem>, out: &mut Vec<Output>) {
        let known = self.sessions.get_mut(to).expect("CB-1: holdings are of sessions that have not ended");
        known.promises -= items.len();
        let pending = PendingBreak { items: items.clone(), sent_at: now, tickets: SmallVec::new() };
        known.pending.insert(id, pending);
        self.compact(to);
        out.push(Output::Break { to, id, items });
    }

    /// Drops leftovers from a session's order of promises once they are the larger part.
    fn compact(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.order.len() > 2 * known.promises + 64 {
            known.order.retain(|(fid, seq)| self.promises.is_current(*fid, session, *seq));
            assert_eq!(known.order.len(), known.promises, "CB-1: each promise of {session:?} is in its order once");
        }
    }

    /// Ends the oldest promises of the session that has the most: an eighth of them at once, so that finding that
    /// session is rare.
    fn relieve(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.richest() else { return };
        let id = self.breaks.next_break();
        let Some(known) = self.sessions.get_mut(session) else { return };
        let wanted = (known.promises / 8).clamp(1, PRESSURE_ITEMS_MAX);
        let mut items = Vec::with_capacity(wanted);
        while items.len() < wanted {
            let Some((fid, seq)) = known.order.pop_front() else { break };
            if self.promises.is_current(fid, session, seq) {
                self.promises.begin_break(fid, session, id);
                items.push(BreakItem { fid, reason: BreakReason::Pressure, name: None });
            }
        }
        self.send(now, session, id, items, out);
    }

    /// The session has dropped what this break ended. `held` names those files of the break, whatever its reason, that are open
    /// there: the session holds them from now on (HO-1).
    pub fn ack(&mut self, _now: Time, session: SessionId, id: BreakId, held: &[Fid], out: &mut Vec<Output>) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(pending) = known.pending.remove(&id) else { return };
        let held: HashSet<Fid> = held.iter().copied().collect();
        for item in &pending.items {
            self.promises.end_break(item.fid, session, id);
            if held.contains(&item.fid) {
                self.holds.add(session, item.fid);
            }
        }
        self.breaks.settle(&pending.tickets, out);
    }

    // Holds.

    /// The session has the file open, though its name may go.
    ///
    /// # Errors
    /// [`Fault::Expired`] without the session; [`Fault::Busy`] past the limit of holds.
    pub fn hold(&mut self, session: SessionId, fid: Fid) -> Result<(), Fault> {
        self.sessions.get(session).ok_or(Fault::Expired)?;
        if self.holds.count(session) >= self.config.holds_per_session_max {
            return Err(Fault::Busy);
        }
        self.holds.add(session, fid);
        Ok(())
    }

    /// The session closed the file. True: nobody holds it any more, and without a name it can go. Never true during grace,
    /// when others may yet claim it.
    pub fn unhold(&mut self, session: SessionId, fid: Fid) -> bool {
        self.holds.remove(session, fid) && self.grace.is_none()
    }

    /// Whether anybody holds the file.
    pub fn is_held(&self, fid: Fid) -> bool {
        self.holds.is_held(fid)
    }

    // Locks.

    /// Asks for a lock. With `wait` the answer may come later; during grace it comes later in any case, unless the session claims
    /// (`reclaim`) what it had before the restart. A claim at any other time is refused with [`Fault::Expired`]: the lock may
    /// have been another's meanwhile. A request that waits already goes on waiting.
    pub fn lock(
        &mut self,
        origin: Origin,
        request: &LockRequest,
        wait: bool,
        reclaim: bool,
        out: &mut Vec<Output>,
    ) -> LockOutcome {
        let Some(known) = self.sessions.get(request.session) else { return LockOutcome::Refused(Fault::Expired) };
        match (&self.grace, reclaim) {
            (Some(_), true) if known.reclaiming => self.locks.lock(origin, request, false, out),
            (_, true) => LockOutcome::Refused(Fault::Expired),
            (Some(_), false) => {
                self.locks.defer(origin, request, wait);
                LockOutcome::Waiting
            }
            (None, false) => self.locks.lock(origin, request, wait, out),
        }
    }

    /// Gives bytes free; who waited for them gets them.
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
        self.locks.unlock(fid, Owner { session, owner, family: family.into() }, range, out);
    }

    /// Gives free all that an owner has of a file, in both families, as closing does.
    pub fn unlock_owner(&mut self, session: SessionId, fid: Fid, owner: LockOwner, out: &mut Vec<Output>) {
        for family in [LockFamily::Posix, LockFamily::Flock] {
            self.unlock(session, fid, owner, family, ByteRange::ALL, out);
        }
    }

    /// The lock that stands in the way of this one, if any.
    pub fn test_lock(&self, request: &LockRequest) -> Option<LockConflict> {
        self.locks.test(request)
    }

    /// Takes a waiting lock request back. False: it does not wait (any more).
    pub fn cancel(&mut self, origin: Origin, out: &mut Vec<Output>) -> bool {
        self.locks.cancel(origin, out)
    }
}

/// One item for each file. A hint survives only where all agree on it.
fn merged(items: &[BreakItem]) -> Vec<BreakItem> {
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
        BreakReason::Pressure => 0,
    };
    if strength(other) > strength(one) { other } else { one }
}

/// Promises that one `Pressure` break ends at most: one message must hold them.
const PRESSURE_ITEMS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::{BreakReason, LockMode, Name};

    use super::*;
    use crate::config::KnownSession;

    const A: ClientId = ClientId(0xa);
    const B: ClientId = ClientId(0xb);
    const C: ClientId = ClientId(0xc);
    const FILE: Fid = Fid::new(1, 2, 1);
    const OTHER: Fid = Fid::new(1, 4, 1);
    const NOBODY: SessionId = SessionId(0);

    fn at(secs: u64) -> Time {
        Time::from_start(Duration::from_secs(secs))
    }

    fn fresh() -> Leases {
        Leases::new(LeaseConfig::default(), None, SessionId(1), at(0))
    }

    fn restarted(sessions: &[(u64, ClientId)], complete: bool) -> Leases {
        let known = |(session, client): &(u64, ClientId)| KnownSession {
            session: SessionId(*session),
            client: *client,
            incarnation: 1,
        };
        let restart = Restart { known: sessions.iter().map(known).collect(), complete };
        Leases::new(LeaseConfig::default(), Some(&restart), SessionId(10), at(0))
    }

    fn attach(leases: &mut Leases, client: ClientId) -> SessionId {
        let mut out = Vec::new();
        let session = leases.attach(at(0), client, 1, &mut out).expect("attach");
        assert_eq!(out, []);
        session
    }

    fn data(fid: Fid) -> BreakItem {
        BreakItem { fid, reason: BreakReason::Data, name: None }
    }

    fn origin(session: SessionId) -> Origin {
        Origin { session, slot: 0, request: 1 }
    }

    fn exclusive(session: SessionId) -> LockRequest {
        let (family, mode) = (LockFamily::Posix, LockMode::Exclusive);
        LockRequest { fid: FILE, session, owner: LockOwner(1), pid: 7, family, range: ByteRange::ALL, mode }
    }

    /// Breaks `fid` for all but `except`; the ticket, and who was told under which number.
    fn change(leases: &mut Leases, fid: Fid, except: SessionId) -> (Option<Ticket>, Vec<(SessionId, BreakId)>) {
        let mut out = Vec::new();
        let ticket = leases.break_promises(at(1), &[data(fid)], except, &mut out);
        let told = out.iter().map(|output| match output {
            Output::Break { to, id, .. } => (*to, *id),
            other => panic!("{other:?}"),
        });
        (ticket, told.collect())
    }

    fn acked(leases: &mut Leases, session: SessionId, id: BreakId, held: &[Fid]) -> Vec<Output> {
        let mut out = Vec::new();
        leases.ack(at(1), session, id, held, &mut out);
        out
    }

    #[test]
    fn a_change_waits_for_every_other_holder_and_nobody_else() {
        let mut leases = fresh();
        let (a, b, c) = (attach(&mut leases, A), attach(&mut leases, B), attach(&mut leases, C));
        for session in [a, b] {
            assert!(leases.promise(at(0), session, FILE, &mut Vec::new()));
        }
        assert!(leases.promise(at(0), c, OTHER, &mut Vec::new()));
        let (ticket, told) = change(&mut leases, FILE, a);
        assert_eq!(told.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [b]);
        assert!(leases.is_promised(a, FILE) && !leases.is_promised(b, FILE) && leases.is_promised(c, OTHER));
        assert_eq!(acked(&mut leases, b, told[0].1, &[]), [Output::TicketDone(ticket.expect("b was told"))]);
        assert_eq!(change(&mut leases, FILE, a), (None, vec![]));
    }

    #[test]
    fn a_later_change_waits_for_a_break_that_is_still_on_its_way() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        let (first, told) = change(&mut leases, FILE, a);
        let (second, again) = change(&mut leases, FILE, a);
        assert_eq!(again, [], "there is no promise to end");
        let done = acked(&mut leases, b, told[0].1, &[]);
        assert_eq!(done, [Output::TicketDone(first.expect("first")), Output::TicketDone(second.expect("second"))]);
    }

    #[test]
    fn a_promise_made_after_a_break_is_broken_anew_and_the_old_acknowledgement_is_not_enough() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        let (first, told) = change(&mut leases, FILE, a);
        leases.promise(at(1), b, FILE, &mut Vec::new());
        let (second, again) = change(&mut leases, FILE, a);
        assert_eq!(acked(&mut leases, b, told[0].1, &[]), [Output::TicketDone(first.expect("first"))]);
        assert_eq!(acked(&mut leases, b, again[0].1, &[]), [Output::TicketDone(second.expect("second"))]);
        assert_eq!(leases.counts().promised_files, 0);
    }

    #[test]
    fn a_silent_holder_is_waited_for_until_the_server_gives_up_on_its_lease() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        let (ticket, _) = change(&mut leases, FILE, a);
        let mut out = Vec::new();
        assert_eq!(leases.renew(at(10), a), Renewal::Renewed);
        leases.tick(at(15), &mut out);
        assert_eq!(out, [], "CB-4: the client may still trust what it has");
        assert_eq!(leases.tick(at(16), &mut out), at(26));
        let ended = Output::SessionEnded { session: b, client: B, reason: EndReason::Expired, freed: vec![] };
        assert_eq!(out, [ended, Output::TicketDone(ticket.expect("b was told"))]);
        assert_eq!(leases.renew(at(16), b), Renewal::Gone);
    }

    #[test]
    fn a_session_that_never_acknowledges_is_not_renewed_for_ever() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        let (_, told) = change(&mut leases, FILE, a);
        assert_eq!(leases.renew(at(16), b), Renewal::Renewed);
        assert_eq!(leases.renew(at(17), b), Renewal::Withheld);
        acked(&mut leases, b, told[0].1, &[]);
        assert_eq!(leases.renew(at(17), b), Renewal::Renewed);
    }

    #[test]
    fn a_session_that_resumes_hears_its_breaks_again_and_keeps_its_promises() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        leases.promise(at(0), b, OTHER, &mut Vec::new());
        let (ticket, told) = change(&mut leases, FILE, a);
        let mut out = Vec::new();
        let resumed = leases.resume(at(9), b, B, 1, &mut out).expect("resume");
        assert_eq!(resumed, Resumed { reclaim: false, renewed: true });
        assert_eq!(out, [Output::Break { to: b, id: told[0].1, items: vec![data(FILE)] }]);
        assert!(leases.is_promised(b, OTHER));
        assert_eq!(acked(&mut leases, b, told[0].1, &[]), [Output::TicketDone(ticket.expect("b was told"))]);
        assert_eq!(acked(&mut leases, b, told[0].1, &[]), [], "said twice, counted once");
    }

    #[test]
    fn only_its_own_client_and_incarnation_resumes_a_session() {
        let mut leases = fresh();
        let a = attach(&mut leases, A);
        let mut out = Vec::new();
        assert_eq!(leases.resume(at(1), a, B, 1, &mut out), Err(AttachError::Gone(a)));
        assert_eq!(leases.resume(at(1), SessionId(99), A, 1, &mut out), Err(AttachError::Gone(SessionId(99))));
        let old = AttachError::OldIncarnation { client: A, newest: 1 };
        assert_eq!(leases.resume(at(1), a, A, 0, &mut out), Err(old));
    }

    #[test]
    fn a_new_life_of_a_client_ends_the_old_one_and_what_it_had() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), a, FILE, &mut Vec::new());
        leases.hold(a, OTHER).expect("hold");
        let mut out = Vec::new();
        assert_eq!(leases.lock(origin(a), &exclusive(a), false, false, &mut out), LockOutcome::Granted);
        assert_eq!(leases.lock(origin(b), &exclusive(b), true, false, &mut out), LockOutcome::Waiting);
        let (ticket, _) = change(&mut leases, FILE, b);
        let newer = leases.attach(at(2), A, 2, &mut out).expect("attach");
        let ended = Output::SessionEnded { session: a, client: A, reason: EndReason::Replaced, freed: vec![OTHER] };
        let granted = Output::LockDone { origin: origin(b), result: Ok(()) };
        assert_eq!(out, [ended, granted, Output::TicketDone(ticket.expect("a was told"))]);
        assert!(leases.is_session(newer) && !leases.is_session(a));
        let old = AttachError::OldIncarnation { client: A, newest: 2 };
        assert_eq!(leases.attach(at(3), A, 1, &mut out), Err(old), "EO-2");
        leases.detach(at(4), newer, &mut out);
        assert_eq!(leases.attach(at(5), A, 1, &mut out), Err(old), "EO-2, when no session is left too");
    }

    #[test]
    fn an_acknowledgement_that_names_open_files_holds_them() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.promise(at(0), b, FILE, &mut Vec::new());
        let (_, told) = change(&mut leases, FILE, a);
        acked(&mut leases, b, told[0].1, &[FILE, OTHER]);
        assert!(leases.is_held(FILE), "HO-1");
        assert!(!leases.is_held(OTHER), "the break did not name it");
        assert!(!leases.unhold(a, FILE), "a never held it");
        assert!(leases.unhold(b, FILE));
        assert!(!leases.is_held(FILE));
    }

    #[test]
    fn a_held_file_is_free_when_its_last_holder_goes() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        leases.hold(a, FILE).expect("hold");
        leases.hold(b, FILE).expect("hold");
        leases.hold(b, FILE).expect("hold again");
        let mut out = Vec::new();
        leases.peer_died(at(1), b, &mut out);
        let ended = Output::SessionEnded { session: b, client: B, reason: EndReason::PeerDied, freed: vec![] };
        assert_eq!(std::mem::take(&mut out), [ended]);
        leases.detach(at(1), a, &mut out);
        let ended = Output::SessionEnded { session: a, client: A, reason: EndReason::Detached, freed: vec![FILE] };
        assert_eq!(out, [ended]);
        assert_eq!(leases.hold(a, FILE), Err(Fault::Expired));
    }

    #[test]
    fn a_full_table_ends_the_oldest_promises_of_the_richest_session() {
        let config = LeaseConfig { promises_max: 17, ..LeaseConfig::default() };
        let mut leases = Leases::new(config, None, SessionId(1), at(0));
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        let mut out = Vec::new();
        leases.promise(at(0), b, FILE, &mut out);
        for vnode in 1..=16 {
            leases.promise(at(0), a, Fid::new(1, 100 + vnode, 1), &mut out);
        }
        assert_eq!(out, []);
        leases.promise(at(0), b, OTHER, &mut out);
        let pressed = |vnode| BreakItem { fid: Fid::new(1, vnode, 1), reason: BreakReason::Pressure, name: None };
        let told = Output::Break { to: a, id: BreakId(1), items: vec![pressed(101), pressed(102)] };
        assert_eq!(out, [told]);
        let (ticket, _) = change(&mut leases, Fid::new(1, 101, 1), b);
        let done = acked(&mut leases, a, BreakId(1), &[]);
        assert_eq!(done, [Output::TicketDone(ticket.expect("CB-1: a had yet to drop it"))]);
    }

    #[test]
    fn items_of_one_file_become_one_and_keep_only_a_hint_that_all_share() {
        let name = |text: &str| Name::new(text.as_bytes()).ok();
        let item = |reason, name| BreakItem { fid: FILE, reason, name };
        let both = [item(BreakReason::Data, name("x")), item(BreakReason::Removed, name("y"))];
        assert_eq!(merged(&both), [item(BreakReason::Removed, None)]);
        let same = [item(BreakReason::Data, name("x")), item(BreakReason::Status, name("x")), data(OTHER)];
        assert_eq!(merged(&same), [item(BreakReason::Data, name("x")), data(OTHER)]);
    }

    #[test]
    fn leftovers_of_ended_promises_do_not_pile_up() {
        let mut leases = fresh();
        let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
        for round in 0..1000 {
            leases.promise(at(0), b, FILE, &mut Vec::new());
            let (_, told) = change(&mut leases, FILE, a);
            assert_eq!(told.len(), 1, "round {round}");
            acked(&mut leases, b, told[0].1, &[]);
        }
        assert!(leases.sessions.get(b).expect("b").order.len() < 200);
    }

    #[test]
    fn no_change_before_all_known_sessions_have_claimed_what_they_had() {
        let mut leases = restarted(&[(1, A), (2, B)], true);
        let mut out = Vec::new();
        assert!(!leases.may_change());
        assert_eq!(leases.resume(at(1), SessionId(1), A, 1, &mut out).map(|resumed| resumed.reclaim), Ok(true));
        leases.reclaim_done(at(2), SessionId(1), &mut out);
        leases.resume(at(3), SessionId(2), B, 1, &mut out).expect("resume");
        assert!(!leases.may_change(), "CB-5: b was told, and may not have heard");
        assert_eq!(out, []);
        leases.reclaim_done(at(4), SessionId(2), &mut out);
        assert!(leases.may_change());
        assert_eq!(out, [Output::GraceOver]);
        assert_eq!(leases.resume(at(5), SessionId(2), B, 1, &mut out).map(|resumed| resumed.reclaim), Ok(false));
    }

    #[test]
    fn grace_ends_with_the_lease_of_those_who_do_not_return() {
        let mut leases = restarted(&[(1, A), (2, B)], true);
        let mut out = Vec::new();
        leases.resume(at(1), SessionId(1), A, 1, &mut out).expect("resume");
        leases.reclaim_done(at(1), SessionId(1), &mut out);
        leases.tick(at(15), &mut out);
        assert_eq!(out, []);
        leases.tick(at(16), &mut out);
        let ended =
            Output::SessionEnded { session: SessionId(2), client: B, reason: EndReason::Expired, freed: vec![] };
        assert_eq!(out, [ended, Output::GraceOver]);
    }

    #[test]
    fn a_restart_that_may_have_lost_sessions_waits_for_a_whole_lease() {
        let mut leases = restarted(&[], false);
        let mut out = Vec::new();
        assert_eq!(leases.tick(at(15), &mut out), at(16));
        assert!(!leases.may_change(), "CB-5");
        leases.tick(at(16), &mut out);
        assert_eq!(out, [Output::GraceOver]);
        assert!(restarted(&[], true).may_change(), "nobody was there");
    }

    #[test]
    fn in_grace_locks_are_for_their_former_holders() {
        let mut leases = restarted(&[(1, A), (2, B)], true);
        let (a, b) = (SessionId(1), SessionId(2));
        let mut out = Vec::new();
        leases.resume(at(1), b, B, 1, &mut out).expect("resume");
        leases.reclaim_done(at(1), b, &mut out);
        assert_eq!(leases.lock(origin(b), &exclusive(b), false, false, &mut out), LockOutcome::Waiting);
        let refused = LockOutcome::Refused(Fault::Expired);
        assert_eq!(leases.lock(origin(b), &exclusive(b), false, true, &mut out), refused, "b said that it was done");
        leases.resume(at(2), a, A, 1, &mut out).expect("resume");
        assert_eq!(leases.lock(origin(a), &exclusive(a), false, true, &mut out), LockOutcome::Granted);
        assert_eq!(leases.lock(origin(a), &exclusive(a), false, true, &mut out), LockOutcome::Granted, "said again");
        assert_eq!(out, []);
        leases.reclaim_done(at(3), a, &mut out);
        let locked = Output::LockDone { origin: origin(b), result: Err(Fault::Locked) };
        assert_eq!(out, [Output::GraceOver, locked]);
        assert_eq!(leases.lock(origin(a), &exclusive(a), false, true, &mut out), refused, "grace is over");
    }

    #[test]
    fn nothing_is_called_free_in_grace() {
        let mut leases = restarted(&[(1, A), (2, B)], true);
        let mut out = Vec::new();
        leases.resume(at(1), SessionId(1), A, 1, &mut out).expect("resume");
        leases.hold(SessionId(1), FILE).expect("hold");
        assert!(!leases.unhold(SessionId(1), FILE), "b may yet claim it");
        leases.hold(SessionId(1), FILE).expect("hold");
        leases.detach(at(2), SessionId(1), &mut out);
        let ended =
            Output::SessionEnded { session: SessionId(1), client: A, reason: EndReason::Detached, freed: vec![] };
        assert_eq!(out, [ended]);
        assert_eq!(change(&mut leases, FILE, NOBODY), (None, vec![]));
    }
}
