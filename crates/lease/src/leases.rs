//! The server's state machine: one table of sessions with their promises, locks and delegations.
//!
//! Every event that can end a session or finish a wait takes `out`, the list of effects. The driver
//! may carry out the outputs of one call one by one, in their order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use smallvec::SmallVec;
use types::{
    BreakId, BreakItem, BreakReason, ByteRange, ClientId, Fault, Fid, LockConflict, LockFamily,
    LockOwner, ReplyAddress, SessionId, Time, VolumeId, limits::HOLD_FIDS_MAX,
};

use crate::breaks::{BreakTable, PendingBreak};
use crate::config::{LeaseConfig, Restart};
use crate::delegation::Delegations;
use crate::grace::Grace;
use crate::hold::Holds;
use crate::lock::{LockLimits, LockOutcome, LockRequest, LockTable, SessionOwner};
use crate::output::{BreakTicket, EndReason, Output};
use crate::promise::Promises;
use crate::session::{AttachError, RenewalOutcome, Resumed, Sessions};

/// Sizes of the tables, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSizes {
    /// Sessions that have not ended.
    pub sessions: usize,
    /// Promises in force.
    pub promises: usize,
    /// Files with a promise or an unacknowledged break.
    pub promised_files: usize,
    /// Files that at least one session holds.
    pub held_files: usize,
    /// Changes that wait for acknowledgements.
    pub tickets: usize,
    /// Locks of all sessions, without waiting requests.
    pub locks: usize,
    /// Lock requests that wait, also for the end of grace.
    pub lock_waits: usize,
    /// Directories that are delegated.
    pub delegations: usize,
    /// Children of delegated directories.
    pub delegated_children: usize,
    /// Anonymous sessions.
    pub anonymous_sessions: usize,
    /// Holds of all sessions.
    pub holds: usize,
    /// How often a limit was reached since the start.
    pub limits_met: LimitsMet,
}

/// How often a limit was reached since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsMet {
    /// A session reached its limit of promises, and its oldest were broken.
    pub sessions: u64,
    /// A host's sessions reached their limit, and the oldest promises of the one that asked were
    /// broken.
    pub hosts: u64,
    /// All sessions together reached the limit of promises.
    pub all: u64,
    /// A lock was refused at a limit.
    pub locks: u64,
    /// A hold was refused at a limit.
    pub holds: u64,
}

/// Result of a request for a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// The file is promised.
    Yes,
    /// Not promised: the file belongs to this directory, which is delegated to another session and
    /// is now recalled. Ask again when [`Output::DelegationsOver`] names the directory.
    Covered(Fid),
    /// Not promised: there is no such session.
    Gone,
}

/// Promises, breaks, holds, locks and leases of one server.
#[derive(Debug)]
pub struct Leases {
    config: LeaseConfig,
    sessions: Sessions,
    promises: Promises,
    breaks: BreakTable,
    holds: Holds,
    locks: LockTable,
    delegations: Delegations,
    grace: Option<Grace>,
    limits_met: LimitsMet,
}

impl Leases {
    /// Creates the state machine. `next_session` must be above every session number that was ever
    /// used; `restart` is the earlier instance's state (`None`: there was none). With a restart,
    /// grace begins, unless there were no sessions.
    pub fn new(
        config: LeaseConfig,
        restart: Option<&Restart>,
        next_session: SessionId,
        now: Time,
    ) -> Self {
        let mut sessions = Sessions::new(next_session);
        let until = now + config.give_up();
        let grace = restart.and_then(|left| {
            for known in &left.known {
                sessions.insert(known.session, known.client, known.incarnation, until, true);
            }
            let marked: HashSet<_> = left
                .known
                .iter()
                .filter(|known| known.delegated)
                .map(|known| known.session)
                .collect();
            for session in &marked {
                sessions.get_mut(*session).expect("just inserted").marked = true;
            }
            let grace = Grace::new(until, sessions.ids(), marked, left.complete);
            (!grace.is_over(now)).then_some(grace)
        });
        Leases {
            config,
            sessions,
            promises: Promises::default(),
            breaks: BreakTable::default(),
            holds: Holds::default(),
            locks: LockTable::new(LockLimits {
                per_session: config.locks_per_session_max,
                all: config.locks_max,
            }),
            delegations: Delegations::default(),
            grace,
            limits_met: LimitsMet::default(),
        }
    }

    // Sessions.

    /// Creates a session. Sessions of earlier incarnations of the client end now (EO-2).
    ///
    /// # Errors
    /// [`AttachError::OldIncarnation`] if a later incarnation of the client has been seen.
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

    /// Moves the session to its client's new connection. Breaks that it has not acknowledged are
    /// sent again.
    ///
    /// # Errors
    /// [`AttachError`]; the session is unchanged then.
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
        out.extend(again.map(|(id, pending)| Output::Break {
            to: session,
            id: *id,
            items: pending.items.clone(),
        }));
        let renewed = self.renew(now, session) == RenewalOutcome::Renewed;
        Ok(Resumed { reclaim, renewed })
    }

    /// Renews the lease after a message of the session's client.
    pub fn renew(&mut self, now: Time, session: SessionId) -> RenewalOutcome {
        let patience = self.config.break_patience;
        let expires = now + self.config.give_up();
        let Some(known) = self.sessions.get_mut(session) else { return RenewalOutcome::Gone };
        if known.is_without_lease() {
            if known.anonymous {
                // The session stays, and its client uses no cached answers.
                known.expires = known.expires.max(expires);
            }
            return RenewalOutcome::Withheld;
        }
        let overdue = |pending: &PendingBreak| now.since(pending.sent_at) > patience;
        if known.pending.values().next().is_some_and(overdue)
            || self.delegations.is_overdue(now, session, patience)
        {
            return RenewalOutcome::Withheld;
        }
        known.expires = known.expires.max(expires);
        RenewalOutcome::Renewed
    }

    /// Ends the session on its client's request.
    pub fn detach(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        self.end(now, session, EndReason::Detached, out);
    }

    /// Ends the session of a client that is known to have died.
    pub fn peer_died(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        self.end(now, session, EndReason::PeerDied, out);
    }

    /// Whether the session has not ended.
    pub fn is_session(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some()
    }

    /// Ends expired sessions and grace. Returns when to call this again.
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

    /// Current sizes of the tables.
    pub fn counts(&self) -> TableSizes {
        TableSizes {
            sessions: self.sessions.len(),
            promises: self.promises.len(),
            promised_files: self.promises.files(),
            held_files: self.holds.files(),
            tickets: self.breaks.tickets(),
            locks: self.locks.len(),
            lock_waits: self.locks.waiting(),
            delegations: self.delegations.len(),
            delegated_children: self.delegations.children(),
            anonymous_sessions: self.sessions.anonymous_sessions(),
            holds: self.holds.len(),
            limits_met: self.limits_met,
        }
    }

    fn end(&mut self, now: Time, id: SessionId, reason: EndReason, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.remove(id) else { return };
        for (fid, _) in &session.order {
            self.promises.forget(*fid, id);
        }
        for pending in session.pending.values() {
            for item in pending.items.iter().filter(|item| item.reason != BreakReason::Recall) {
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
            self.breaks.finish(&pending.tickets, out);
        }
        let over = self.delegations.end(now, id);
        if !over.is_empty() {
            out.push(Output::DelegationsOver(over));
        }
        self.settle_session(id, out);
        self.settle_grace(now, out);
    }

    // Grace.

    /// Whether changes may be made: not before grace is over (CB-5).
    pub fn may_change(&self) -> bool {
        self.grace.is_none()
    }

    /// The session has reclaimed all that it had before the restart.
    pub fn reclaim_done(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.reclaiming = false;
        }
        self.settle_session(session, out);
        self.settle_grace(now, out);
    }

    fn settle_session(&mut self, session: SessionId, out: &mut Vec<Output>) {
        if self.grace.as_mut().is_some_and(|grace| grace.finish(session)) {
            out.push(Output::ReadingAgain);
        }
    }

    /// Whether what the session reads now is current: no other session of the earlier server
    /// instance has yet to send changes of it.
    pub fn may_read(&self, session: SessionId) -> bool {
        self.grace.as_ref().is_none_or(|grace| grace.may_read(session))
    }

    /// Whether the session may send changes that it made under delegations of the earlier instance.
    pub fn reclaims_delegations(&self, session: SessionId) -> bool {
        self.grace.is_some()
            && self.sessions.get(session).is_some_and(|known| known.reclaiming && known.marked)
    }

    fn settle_grace(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.grace.as_ref().is_some_and(|grace| grace.is_over(now)) {
            self.grace = None;
            out.push(Output::GraceOver);
            self.locks.undefer(out);
        }
    }

    // Promises.

    /// Promises `fid` to `session`. Call this *before* reading or changing the file (CB-2). A file
    /// that another session covers is recalled, not promised (DE-1).
    pub fn promise(
        &mut self,
        now: Time,
        session: SessionId,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Promised {
        self.register(now, session, fid, false, out)
    }

    /// As [`Leases::promise`], for a directory whose names the session may see, as the caller has
    /// just checked: breaks of it name the entry that changed.
    pub fn promise_names(
        &mut self,
        now: Time,
        session: SessionId,
        dir: Fid,
        out: &mut Vec<Output>,
    ) -> Promised {
        self.register(now, session, dir, true, out)
    }

    fn register(
        &mut self,
        now: Time,
        session: SessionId,
        fid: Fid,
        names: bool,
        out: &mut Vec<Output>,
    ) -> Promised {
        if let Some(dir) = self.recall_cover(now, session, fid, out) {
            return Promised::Covered(dir);
        }
        let Some(known) = self.sessions.get_mut(session) else { return Promised::Gone };
        let was = self.promises.is_promised(fid, session);
        if let Some(seq) = self.promises.add(fid, session, names) {
            known.order.push_back((fid, seq));
            known.promises += usize::from(!was);
            let (anonymous, promises) = (known.anonymous, known.promises);
            let of_all = if anonymous {
                self.config.stranger.promises_max
            } else {
                self.config.promises_per_session_max
            };
            if promises > of_all {
                self.limits_met.sessions += 1;
                self.break_oldest(now, session, out);
            } else if !anonymous
                && self.is_host_full(
                    session,
                    self.config.promises_per_host_max,
                    Leases::promises_of,
                )
            {
                self.limits_met.hosts += 1;
                self.break_oldest(now, session, out);
            } else if self.promises.len() > self.config.promises_max
                && let Some(richest) = self.sessions.richest()
            {
                self.limits_met.all += 1;
                self.break_oldest(now, richest, out);
            }
        }
        Promised::Yes
    }

    /// Recalls the directory that covers `fid` for another session, and returns it. Promises
    /// nothing: the caller may have no right to the file, which is not known before the directory
    /// is back (DE-1).
    pub fn recall_cover(
        &mut self,
        now: Time,
        session: SessionId,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Option<Fid> {
        let (_, dir) = self.delegations.cover(fid).filter(|(other, _)| *other != session)?;
        self.recall(now, &[dir], out);
        Some(dir)
    }

    /// Whether breaks of the directory name entries to the session.
    pub fn shows_names(&self, session: SessionId, dir: Fid) -> bool {
        let holdings = self.promises.holdings(dir);
        holdings
            .iter()
            .any(|holding| holding.session == session && self.promises.shows_names(holding))
    }

    /// Withdraws a promise that was not sent to the session.
    pub fn withdraw(&mut self, session: SessionId, fid: Fid) {
        if self.promises.withdraw(fid, session)
            && let Some(known) = self.sessions.get_mut(session)
        {
            known.promises -= 1;
            self.compact(session);
        }
    }

    /// The rights of some principal changed. Breaks of earlier promises name no entry until the
    /// session has asked again and its rights were checked (AC-1).
    pub fn rights_changed(&mut self) {
        self.promises.rights_changed();
    }

    /// Counts the changes of rights: a check from before a change permits no names.
    pub fn rights_changes(&self) -> u64 {
        self.promises.rights_changes()
    }

    /// Sessions that may have the file open: those with a promise or a hold of it.
    pub fn may_have_open(&self, fid: Fid) -> Vec<SessionId> {
        let promised = self.promises.holdings(fid).iter().filter(|holding| holding.seq != 0);
        let mut sessions: Vec<_> = promised.map(|holding| holding.session).collect();
        sessions.extend(self.holds.sessions(fid));
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Files whose promises a break of the session ends.
    pub fn items_of(&self, session: SessionId, id: BreakId) -> Vec<Fid> {
        let pending = self.sessions.get(session).and_then(|known| known.pending.get(&id));
        pending.into_iter().flat_map(|pending| pending.items.iter().map(|item| item.fid)).collect()
    }

    /// Whether the session holds the file.
    pub fn holds(&self, session: SessionId, fid: Fid) -> bool {
        self.holds.has(session, fid)
    }

    /// Whether the session has a promise of the file.
    pub fn is_promised(&self, session: SessionId, fid: Fid) -> bool {
        self.promises.is_promised(fid, session)
    }

    /// Whether a session other than `session` has a promise or an unacknowledged break of the file:
    /// it may have the file open without the server's knowledge (HO-1).
    pub fn is_promised_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.promises.holdings(fid).iter().any(|holding| holding.session != session)
    }

    /// Ends all promises of these files except those of `except`, which made the change. The ticket
    /// is done when every session that may still trust them has acknowledged or ended. `None`: no
    /// session does.
    pub fn break_promises(
        &mut self,
        now: Time,
        items: &[BreakItem],
        except: SessionId,
        out: &mut Vec<Output>,
    ) -> Option<BreakTicket> {
        let awaited = self.begin_breaks(now, &merged(items), except, out);
        self.await_breaks(awaited)
    }

    /// Ends all promises of files of the volume: it is removed, or shows other contents. The ticket
    /// is as that of [`Leases::break_promises`].
    pub fn break_volume(
        &mut self,
        now: Time,
        volume: VolumeId,
        out: &mut Vec<Output>,
    ) -> Option<BreakTicket> {
        let fids = self.promises.of_volume(volume);
        let mut awaited = BTreeSet::new();
        for fids in fids.chunks(HOLD_FIDS_MAX) {
            let item = |fid: &Fid| BreakItem { fid: *fid, reason: BreakReason::Data, name: None };
            let items: Vec<_> = fids.iter().map(item).collect();
            // No session has number 0.
            awaited.extend(self.begin_breaks(now, &items, SessionId(0), out));
        }
        self.await_breaks(awaited)
    }

    /// Sends the breaks of these files. Returns the sessions and breaks that must be acknowledged.
    fn begin_breaks(
        &mut self,
        now: Time,
        items: &[BreakItem],
        except: SessionId,
        out: &mut Vec<Output>,
    ) -> BTreeSet<(SessionId, BreakId)> {
        let mut batches: BTreeMap<SessionId, (BreakId, Vec<BreakItem>)> = BTreeMap::new();
        let mut awaited: BTreeSet<(SessionId, BreakId)> = BTreeSet::new();
        for item in items {
            let holdings: SmallVec<[_; 8]> =
                self.promises.holdings(item.fid).iter().copied().collect();
            for holding in holdings.iter().filter(|holding| holding.session != except) {
                let id = if holding.seq == 0 {
                    holding.breaking
                } else {
                    let batch = batches.entry(holding.session);
                    let batch = batch.or_insert_with(|| (self.breaks.next_break(), Vec::new()));
                    let name = item.name.clone().filter(|_| self.promises.shows_names(holding));
                    batch.1.push(BreakItem { name, ..item.clone() });
                    self.promises.begin_break(item.fid, holding.session, batch.0);
                    batch.0
                };
                if !self.is_anonymous(holding.session) {
                    awaited.insert((holding.session, id));
                }
            }
        }
        for (session, (id, items)) in batches {
            self.send(now, session, id, items, out);
        }
        awaited
    }

    fn await_breaks(&mut self, awaited: BTreeSet<(SessionId, BreakId)>) -> Option<BreakTicket> {
        if awaited.is_empty() {
            return None;
        }
        let ticket = self.breaks.open(awaited.len());
        for (session, id) in awaited {
            self.pending_mut(session, id).tickets.push(ticket);
        }
        Some(ticket)
    }

    /// The file is removed: it will not change again, so its promises end without a break.
    pub fn forget_file(&mut self, now: Time, fid: Fid, out: &mut Vec<Output>) {
        if self.delegations.forget(now, fid) {
            out.push(Output::DelegationsOver(vec![fid]));
        }
        for holding in self.promises.forget_all(fid) {
            let known = self.sessions.get_mut(holding.session).filter(|_| holding.seq != 0);
            if let Some(known) = known {
                known.promises -= 1;
                self.compact(holding.session);
            }
        }
    }

    fn pending_mut(&mut self, session: SessionId, id: BreakId) -> &mut PendingBreak {
        let known = self
            .sessions
            .get_mut(session)
            .expect("CB-1: holdings are of sessions that have not ended");
        known.pending.get_mut(&id).expect("CB-1: a holding names a break that is pending")
    }

    fn send(
        &mut self,
        now: Time,
        to: SessionId,
        id: BreakId,
        items: Vec<BreakItem>,
        out: &mut Vec<Output>,
    ) {
        let known =
            self.sessions.get_mut(to).expect("CB-1: holdings are of sessions that have not ended");
        known.promises -= items.len();
        let pending = PendingBreak { items: items.clone(), sent_at: now, tickets: SmallVec::new() };
        known.pending.insert(id, pending);
        self.compact(to);
        out.push(Output::Break { to, id, items });
    }

    /// Drops stale entries from a session's order of promises once they are the larger part.
    fn compact(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.order.len() > 2 * known.promises + 64 {
            known.order.retain(|(fid, seq)| self.promises.is_current(*fid, session, *seq));
            assert_eq!(
                known.order.len(),
                known.promises,
                "CB-1: each promise of {session:?} is in its order once"
            );
        }
    }

    /// Breaks an eighth of a session's promises, the oldest, at once, so that this is rare.
    fn break_oldest(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        let id = self.breaks.next_break();
        let Some(known) = self.sessions.get_mut(session) else { return };
        let wanted = (known.promises / 8).clamp(1, ITEMS_MAX);
        let mut items = Vec::with_capacity(wanted);
        for _ in 0..known.order.len() {
            if items.len() == wanted {
                break;
            }
            let Some((fid, seq)) = known.order.pop_front() else { break };
            if self.delegations.cover(fid).is_some() {
                // Covered files are not broken: the session alone changes them.
                known.order.push_back((fid, seq));
            } else if self.promises.is_current(fid, session, seq) {
                self.promises.begin_break(fid, session, id);
                items.push(BreakItem { fid, reason: BreakReason::Pressure, name: None });
            }
        }
        if items.is_empty() {
            let all = self.delegations.of_session(session);
            self.recall(now, &all, out);
        } else {
            self.send(now, session, id, items, out);
        }
    }

    /// The session has dropped the files of this break. `held` names those of them, whatever the
    /// break's reason, that are open there: the session holds them from now on (HO-1).
    pub fn ack(
        &mut self,
        _now: Time,
        session: SessionId,
        id: BreakId,
        held: &[Fid],
        out: &mut Vec<Output>,
    ) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(pending) = known.pending.remove(&id) else { return };
        let held: HashSet<Fid> = held.iter().copied().collect();
        for item in pending.items.iter().filter(|item| item.reason != BreakReason::Recall) {
            self.promises.end_break(item.fid, session, id);
            if held.contains(&item.fid) && self.has_room_to_hold(session) {
                self.holds.add(session, item.fid);
            }
        }
        self.breaks.finish(&pending.tickets, out);
    }

    // Holds.

    /// Registers that the session has the file open, though its name may go.
    ///
    /// # Errors
    /// [`Fault::Expired`] without the session; [`Fault::Busy`] past the limit of holds.
    pub fn hold(&mut self, session: SessionId, fid: Fid) -> Result<(), Fault> {
        self.sessions.get(session).ok_or(Fault::Expired)?;
        if !self.has_room_to_hold(session) {
            return Err(Fault::Busy);
        }
        self.holds.add(session, fid);
        Ok(())
    }

    /// The session closed the file. True: no session holds it, and without a name it can go. Never
    /// true during grace, when other sessions may yet reclaim it.
    pub fn unhold(&mut self, session: SessionId, fid: Fid) -> bool {
        self.holds.remove(session, fid) && self.grace.is_none()
    }

    /// Whether any session holds the file.
    pub fn is_held(&self, fid: Fid) -> bool {
        self.holds.is_held(fid)
    }

    // Locks.

    /// Requests a lock. With `wait` the answer may come later; during grace it comes later in any
    /// case, unless the session reclaims (`reclaim`) a lock from before the restart. A reclaim at
    /// any other time is refused with [`Fault::Expired`]: another session may have had the lock
    /// meanwhile. A request that waits already continues to wait.
    pub fn lock(
        &mut self,
        origin: ReplyAddress,
        request: &LockRequest,
        wait: bool,
        reclaim: bool,
        out: &mut Vec<Output>,
    ) -> LockOutcome {
        let Some(known) = self.sessions.get(request.session) else {
            return LockOutcome::Refused(Fault::Expired);
        };
        let reclaims = known.reclaiming;
        if !self.has_room_to_lock(request, wait) {
            self.limits_met.locks += 1;
            return LockOutcome::Refused(Fault::Busy);
        }
        match (&self.grace, reclaim) {
            (Some(_), true) if reclaims => self.locks.lock(origin, request, false, out),
            (_, true) => LockOutcome::Refused(Fault::Expired),
            (Some(_), false) => match self.locks.defer(origin, request, wait) {
                Ok(()) => LockOutcome::Waiting,
                Err(fault) => LockOutcome::Refused(fault),
            },
            (None, false) => self.locks.lock(origin, request, wait, out),
        }
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
        self.locks.unlock(fid, SessionOwner { session, owner, family: family.into() }, range, out);
    }

    /// Unlocks all locks of an owner on a file, in both families, as closing does.
    pub fn unlock_owner(
        &mut self,
        session: SessionId,
        fid: Fid,
        owner: LockOwner,
        out: &mut Vec<Output>,
    ) {
        for family in [LockFamily::Posix, LockFamily::Flock] {
            self.unlock(session, fid, owner, family, ByteRange::ALL, out);
        }
    }

    /// The lock that conflicts with this one, if any.
    pub fn test_lock(&self, request: &LockRequest) -> Option<LockConflict> {
        self.locks.test(request)
    }

    /// Cancels a waiting lock request. False: it does not wait (any more).
    pub fn cancel(&mut self, origin: ReplyAddress, out: &mut Vec<Output>) -> bool {
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
        BreakReason::Pressure | BreakReason::Recall => 0,
    };
    if strength(other) > strength(one) { other } else { one }
}

/// Files in one break that the server begins on its own: one message must have room for them.
const ITEMS_MAX: usize = 1024;

mod anonymous;
mod delegating;
mod shares;
#[cfg(test)]
mod tests;

pub use delegating::Listed;
