//! The server's state machine, of components that each have their own tables: sessions, promises
//! with their breaks, delegations, holds, locks and opens.
//!
//! A question about one of them is asked there ([`Leases::promises`] and so on); the functions here
//! need several. Every event that can end a session or finish a wait takes `out`, the list of
//! effects. The driver may carry out the outputs of one call one by one, in their order.

use std::collections::HashSet;

use types::{BreakId, BreakItem, ClientId, Fault, Fid, ReplyAddress, SessionId, Time, VolumeId};

use crate::config::{LeaseConfig, Restart};
use crate::delegation::Delegations;
use crate::grace::Grace;
use crate::hold::Holds;
use crate::limits::{Limits, LimitsMet};
use crate::lock::{LockLimits, LockOutcome, LockRequest, LockTable};
use crate::opens::Opens;
use crate::output::{BreakTicket, EndReason, Output};
use crate::promises::Promises;
use crate::sessions::{AttachError, RenewalOutcome, Resumed, Sessions};

mod anonymous;
mod delegating;
mod opening;
#[cfg(test)]
mod tests;

pub use delegating::Listed;
pub use opening::SessionOpens;

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
    /// Opens of all sessions.
    pub opens: usize,
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
    holds: Holds,
    locks: LockTable,
    opens: Opens,
    delegations: Delegations,
    grace: Option<Grace>,
    limits: Limits,
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
        let (mut sessions, mut promises) = (Sessions::new(next_session), Promises::default());
        let until = now + config.give_up();
        let grace = restart.and_then(|left| {
            for known in &left.known {
                sessions.insert(known.session, known.client, known.incarnation, until, true);
                promises.enter(known.session);
            }
            for known in left.known.iter().filter(|known| known.delegated) {
                sessions.mark(known.session);
            }
            for known in left.known.iter().filter(|known| known.excluding) {
                sessions.note_excluding(known.session);
            }
            let first = left.known.iter().filter(|known| known.delegated || known.excluding);
            let first: HashSet<_> = first.map(|known| known.session).collect();
            let (lease, ids) = (config.give_up(), sessions.ids());
            let grace = Grace::new(now, lease, ids, first, left.complete);
            (!grace.is_over(now)).then_some(grace)
        });
        Leases {
            config,
            sessions,
            promises,
            holds: Holds::default(),
            locks: LockTable::new(LockLimits {
                per_session: config.locks_per_session_max,
                all: config.locks_max,
            }),
            opens: Opens::new(next_session),
            delegations: Delegations::default(),
            grace,
            limits: Limits::new(config),
        }
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The sessions, to note facts about them.
    pub fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Promises and breaks.
    pub fn promises(&self) -> &Promises {
        &self.promises
    }

    /// Promises and breaks, to note facts about them.
    pub fn promises_mut(&mut self) -> &mut Promises {
        &mut self.promises
    }

    /// Delegations and their children.
    pub fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    /// Delegations, to return them.
    pub fn delegations_mut(&mut self) -> &mut Delegations {
        &mut self.delegations
    }

    /// Holds.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Locks.
    pub fn locks_mut(&mut self) -> &mut LockTable {
        &mut self.locks
    }

    /// Opens, with what decides on new ones.
    pub fn opens(&mut self) -> SessionOpens<'_> {
        let Leases { opens, sessions, limits, grace, .. } = self;
        SessionOpens { opens, sessions, limits, in_grace: grace.is_some() }
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
        debug_assert!(
            self.sessions.older(client, incarnation).is_ok_and(|older| older.is_empty()),
            "EO-2: an earlier incarnation of {client:?} has a session"
        );
        let session = self.sessions.add(client, incarnation, now + self.config.give_up());
        self.promises.enter(session);
        Ok(session)
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
        self.promises.send_again(session, out);
        let renewed = self.renew(now, session) == RenewalOutcome::Renewed;
        Ok(Resumed { reclaim, renewed })
    }

    /// Renews the lease after a message of the session's client.
    pub fn renew(&mut self, now: Time, session: SessionId) -> RenewalOutcome {
        let patience = self.config.break_patience;
        let expires = now + self.config.give_up();
        let Some(known) = self.sessions.get_mut(session) else { return RenewalOutcome::Gone };
        if known.anonymous {
            // The session stays, and its client uses no cached answers.
            known.expires = known.expires.max(expires);
            return RenewalOutcome::Withheld;
        }
        if known.breaks_before_proof.is_some_and(|last| self.promises.owes(session, last)) {
            return RenewalOutcome::Withheld;
        }
        known.breaks_before_proof = None;
        if self.promises.is_overdue(now, session, patience)
            || self.delegations.is_overdue(now, session, patience)
        {
            return RenewalOutcome::Withheld;
        }
        known.expires = known.expires.max(expires);
        RenewalOutcome::Renewed
    }

    /// Ends expired sessions and grace. Returns when to call this again.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Output>) -> Time {
        while let Some(session) = self.sessions.expired(now) {
            self.end(now, session, EndReason::Expired, out);
        }
        self.settle(now, None, out);
        self.wake_at()
    }

    /// When [`Leases::tick`] has something to do at the latest. May be early.
    pub fn wake_at(&self) -> Time {
        let grace = self.grace.as_ref().map_or(Time::NEVER, Grace::wake_at);
        grace.min(self.sessions.wake_at())
    }

    /// Current sizes of the tables.
    pub fn counts(&self) -> TableSizes {
        TableSizes {
            sessions: self.sessions.len(),
            promises: self.promises.len(),
            promised_files: self.promises.files(),
            held_files: self.holds.files(),
            tickets: self.promises.tickets(),
            locks: self.locks.len(),
            lock_waits: self.locks.waiting(),
            opens: self.opens.len(),
            delegations: self.delegations.len(),
            delegated_children: self.delegations.children(),
            anonymous_sessions: self.sessions.anonymous_sessions(),
            holds: self.holds.len(),
            limits_met: self.limits.met(),
        }
    }

    /// Ends the session: its promises, holds, locks, opens and delegations end with it.
    pub fn end(&mut self, now: Time, id: SessionId, reason: EndReason, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.remove(id) else { return };
        let ended = self.promises.leave(id);
        let mut freed = self.holds.end(id);
        if self.grace.is_some() {
            freed.clear();
        }
        out.push(Output::SessionEnded { session: id, client: session.client, reason, freed });
        self.locks.end(id, out);
        self.opens.end(id);
        self.promises.finish(ended, out);
        let over = self.delegations.end(now, id);
        debug_assert!(self.promises.count(id) == 0, "CB-4: {id:?} is over, and has promises");
        debug_assert!(self.holds.count(id) == 0, "HO-1: {id:?} is over, and holds files");
        debug_assert!(self.opens.count(id) == 0, "SH-1: {id:?} is over, and has files open");
        debug_assert!(
            !over.iter().any(|dir| self.delegations.is_delegated(*dir)),
            "DE-2: {id:?} is over, and a call would wait for it"
        );
        if !over.is_empty() {
            out.push(Output::DelegationsOver(over));
        }
        self.settle(now, Some(id), out);
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
        self.settle(now, Some(session), out);
    }

    /// Whether the session may read now: no other session of the earlier server instance has yet to
    /// send changes of what it reads, or to claim opens that deny it.
    pub fn may_read(&self, session: SessionId) -> bool {
        self.grace.as_ref().is_none_or(|grace| grace.may_read(session))
    }

    /// Whether the session may send changes that it made under delegations of the earlier instance.
    pub fn reclaims_delegations(&self, session: SessionId) -> bool {
        self.grace.is_some()
            && self.sessions.get(session).is_some_and(|known| known.reclaiming && known.marked)
    }

    /// Ends grace if it is over. `session`: it has finished its reclaims, or is over.
    fn settle(&mut self, now: Time, session: Option<SessionId>, out: &mut Vec<Output>) {
        let Some(grace) = &mut self.grace else { return };
        if session.is_some_and(|session| grace.finish(session)) {
            out.push(Output::ReadingAgain);
        }
        let are_all_known = grace.end_unknown(now);
        if grace.is_over(now) {
            debug_assert!(
                now >= grace.wake_at() || !self.sessions.any_reclaims(),
                "CB-5: grace ends, and a session of the earlier instance is not back"
            );
            self.grace = None;
            out.push(Output::GraceOver);
            self.locks.undefer(out);
        } else if are_all_known {
            out.push(Output::ReadingAgain);
        }
    }

    // Promises.

    /// Promises `fid` to `session`. Call this *before* reading or changing the file (CB-2). A file
    /// that another session covers is recalled, not promised (DE-1). `names`: it is a directory
    /// whose names the session may see, as the caller has just checked, so breaks of it name the
    /// entry that changed.
    pub fn promise(
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
        if !self.sessions.has(session) {
            return Promised::Gone;
        }
        if self.promises.add(session, fid, names)
            && let Some(too_many) = self.limits.promised(&self.sessions, &self.promises, session)
        {
            let is_covered = |fid| self.delegations.cover(fid).is_some();
            if !self.promises.break_oldest(now, too_many, is_covered, out) {
                let all = self.delegations.of_session(too_many);
                self.recall(now, &all, out);
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

    /// Sessions that may have the file open: those with a promise or a hold of it.
    pub fn may_have_open(&self, fid: Fid) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self.promises.sessions(fid).collect();
        sessions.extend(self.holds.sessions(fid));
        sessions.sort_unstable();
        sessions.dedup();
        sessions
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
        let has_lease = |session| !self.sessions.is_anonymous(session);
        self.promises.break_files(now, items, except, has_lease, out)
    }

    /// Ends all promises of files of the volume: it is removed, is elsewhere, or shows other
    /// contents. The ticket is as that of [`Leases::break_promises`]. Sessions with locks or opens
    /// in the volume get a break of its root, too: their clients see by it that the volume
    /// may be elsewhere, where they claim these.
    pub fn break_volume(
        &mut self,
        now: Time,
        volume: VolumeId,
        out: &mut Vec<Output>,
    ) -> Option<BreakTicket> {
        let root = Fid::root(volume);
        if self.delegations.cover(root).is_none() {
            let locking = self.locks.sessions_in(volume).into_iter();
            for session in locking.chain(self.opens.sessions_in(volume)) {
                self.promises.add(session, root, false);
            }
        }
        let has_lease = |session| !self.sessions.is_anonymous(session);
        self.promises.break_volume(now, volume, has_lease, out)
    }

    /// The file is removed: it will not change again, so its promises end without a break.
    pub fn forget_file(&mut self, now: Time, fid: Fid, out: &mut Vec<Output>) {
        if self.delegations.forget(now, fid) {
            out.push(Output::DelegationsOver(vec![fid]));
        }
        self.promises.forget_file(fid);
        self.opens.forget_file(fid);
    }

    /// The session has dropped the files of this break. `held` names those of them, whatever the
    /// break's reason, that are open there: the session holds them from now on (HO-1).
    pub fn ack(&mut self, session: SessionId, id: BreakId, held: &[Fid], out: &mut Vec<Output>) {
        let held: HashSet<Fid> = held.iter().copied().collect();
        let dropped = self.promises.ack(session, id, out).into_iter();
        for fid in dropped.filter(|fid| held.contains(fid)) {
            if self.limits.allow_hold(&self.sessions, &self.holds, session) {
                self.holds.add(session, fid);
            }
        }
    }

    // Holds.

    /// Registers that the session has the file open, though its name may go.
    ///
    /// # Errors
    /// [`Fault::Expired`] without the session; [`Fault::Busy`] past the limit of holds.
    pub fn hold(&mut self, session: SessionId, fid: Fid) -> Result<(), Fault> {
        self.sessions.get(session).ok_or(Fault::Expired)?;
        if !self.limits.allow_hold(&self.sessions, &self.holds, session) {
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
        if !self.limits.allow_lock(&self.sessions, &self.locks, request, wait) {
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
}
