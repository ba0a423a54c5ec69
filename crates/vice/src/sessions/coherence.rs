//! The leases of all sessions, and what waits for them: changes for acknowledgements of breaks,
//! calls for locks.
//!
//! One lock guards it all: DE-1 needs it for promises and delegations, and a change or a call that
//! waits is entered before its ticket or its lock can be done.

use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lease::{BreakTicket, Leases, LockOutcome, LockRecord, LockRequest, Output};
use types::{
    Answer, BreakItem, BreakReason, Caller, Fault, Fid, ReplyAddress, SessionId, Time, VolumeId,
};

use crate::base::{Guarded, Locked};
use crate::call::{CallContext, CallOutcome, Fed};

/// No session has number 0: a break that excepts it goes to all.
const NOBODY: SessionId = SessionId(0);

/// See the head of the file.
pub(crate) struct Coherence {
    tables: Guarded<Tables>,
    /// As [`lease::Promises::rights_changes`].
    rights_changes: Arc<AtomicU64>,
}

struct Tables {
    leases: Leases,
    /// Changes that are done but not acknowledged.
    pending: HashMap<BreakTicket, PendingChange>,
    /// How many of them removed the last name of a file.
    removing: HashMap<Fid, u32>,
    /// Volumes in which some session knows rights.
    rights_shown: HashSet<VolumeId>,
    /// Ticket of the break of these rights, after principals changed elsewhere.
    rights_ticket: Option<BreakTicket>,
    /// Callers that wait for locks, and whether a fence came between.
    lock_waits: HashMap<ReplyAddress, (Caller, bool)>,
}

/// A change that waits for acknowledgements.
pub(crate) struct PendingChange {
    /// When its breaks were sent.
    pub since: Time,
    pub origin: ReplyAddress,
    pub answer: Answer,
    /// The file that lost its last name.
    pub removed: Option<Fid>,
    /// The part of a feed that standbys must have too before it is answered.
    pub fed: Option<Fed>,
    /// The volume that goes offline: no promise of it may be left.
    ending: Option<VolumeId>,
}

/// The leases, while they are locked.
pub(crate) struct LockedLeases<'a>(Locked<'a, Tables>);

impl Deref for LockedLeases<'_> {
    type Target = Leases;

    fn deref(&self) -> &Leases {
        &self.0.leases
    }
}

impl DerefMut for LockedLeases<'_> {
    fn deref_mut(&mut self) -> &mut Leases {
        &mut self.0.leases
    }
}

impl Tables {
    /// The answer of a change that has to wait for this ticket, or none.
    fn wait_for(
        &mut self,
        ticket: Option<BreakTicket>,
        ask: &CallContext<'_>,
        answer: Answer,
        removed: Option<Fid>,
    ) -> CallOutcome {
        let Some(ticket) = ticket else { return CallOutcome::Answer(answer) };
        if let Some(fid) = removed {
            *self.removing.entry(fid).or_insert(0) += 1;
        }
        let (since, origin, fed) = (ask.now, ask.origin, ask.fed);
        let pending = PendingChange { since, origin, answer, removed, fed, ending: None };
        let before = self.pending.insert(ticket, pending);
        assert!(before.is_none(), "CB-1: two changes wait for {ticket:?}");
        CallOutcome::Waits
    }

    /// Breaks all promises of a volume; see [`PendingChange::ending`].
    fn break_volume(
        &mut self,
        ask: &mut CallContext<'_>,
        volume: VolumeId,
        answer: Answer,
        ending: Option<VolumeId>,
    ) -> CallOutcome {
        let ticket = self.leases.break_volume(ask.now, volume, &mut ask.events);
        let outcome = self.wait_for(ticket, ask, answer, None);
        if let Some(pending) = ticket.and_then(|ticket| self.pending.get_mut(&ticket)) {
            pending.ending = ending;
        }
        outcome
    }

    /// Breaks the promises of rights, in all volumes.
    fn break_rights(&mut self, now: Time, events: &mut Vec<Output>) -> Option<BreakTicket> {
        self.leases.promises_mut().rights_changed();
        let item = |volume: VolumeId| BreakItem {
            fid: Fid::rights(volume),
            reason: BreakReason::Status,
            name: None,
        };
        let items: Vec<BreakItem> = self.rights_shown.drain().map(item).collect();
        self.leases.break_promises(now, &items, NOBODY, events)
    }
}

impl Coherence {
    pub fn new(leases: Leases) -> Coherence {
        Coherence {
            rights_changes: leases.promises().rights_counter(),
            tables: Guarded::new(Tables {
                leases,
                pending: HashMap::new(),
                removing: HashMap::new(),
                rights_shown: HashSet::new(),
                rights_ticket: None,
                lock_waits: HashMap::new(),
            }),
        }
    }

    /// Counts the changes of rights, of any principal in any volume.
    pub fn rights_changes(&self) -> u64 {
        self.rights_changes.load(Ordering::Acquire)
    }

    /// Locks the leases.
    pub fn leases(&self) -> LockedLeases<'_> {
        LockedLeases(self.tables.lock())
    }

    /// Whether a panic left the tables half changed.
    pub fn is_broken(&self) -> bool {
        self.tables.is_broken()
    }

    /// Breaks promises after a change: it is answered now, or when all sessions but `except` have
    /// acknowledged (CB-1). `removed`: the file that lost its last name.
    pub fn break_promises(
        &self,
        ask: &mut CallContext<'_>,
        breaks: &[BreakItem],
        except: SessionId,
        removed: Option<Fid>,
        answer: Answer,
    ) -> CallOutcome {
        let mut tables = self.tables.lock();
        let ticket = tables.leases.break_promises(ask.now, breaks, except, &mut ask.events);
        tables.wait_for(ticket, ask, answer, removed)
    }

    /// The members of groups changed, so rights changed wherever lists decide (AC-2). The answer
    /// comes when all sessions that know rights have acknowledged.
    pub fn break_rights(&self, ask: &mut CallContext<'_>, answer: Answer) -> CallOutcome {
        let mut tables = self.tables.lock();
        let ticket = tables.break_rights(ask.now, &mut ask.events);
        tables.wait_for(ticket, ask, answer, None)
    }

    /// Breaks all promises of the volume: the answer comes when they are acknowledged.
    pub fn break_volume(
        &self,
        ask: &mut CallContext<'_>,
        volume: VolumeId,
        answer: Answer,
    ) -> CallOutcome {
        self.tables.lock().break_volume(ask, volume, answer, None)
    }

    /// Breaks all promises of a volume that has gone offline, also those that reads get which it
    /// answers since: the answer comes when none is left.
    pub fn end_volume(
        &self,
        ask: &mut CallContext<'_>,
        volume: VolumeId,
        answer: Answer,
    ) -> CallOutcome {
        self.tables.lock().break_volume(ask, volume, answer, Some(volume))
    }

    /// Some session gets to know rights in the volume.
    pub fn show_rights(&self, volume: VolumeId) {
        self.tables.lock().rights_shown.insert(volume);
    }

    /// Principals changed elsewhere: breaks all rights that sessions know.
    pub fn break_rights_at_news(&self, now: Time, events: &mut Vec<Output>) {
        let mut tables = self.tables.lock();
        tables.rights_ticket = tables.break_rights(now, events);
    }

    /// Whether all sessions have acknowledged the break of rights after the last such change.
    pub fn is_news_in_force(&self) -> bool {
        self.tables.lock().rights_ticket.is_none()
    }

    /// All sessions have acknowledged: returns the change that waited for it, if one did. Its file
    /// without names may go now if no session holds it.
    pub fn ticket_done(
        &self,
        now: Time,
        ticket: BreakTicket,
        events: &mut Vec<Output>,
    ) -> Option<PendingChange> {
        let mut tables = self.tables.lock();
        if tables.rights_ticket == Some(ticket) {
            tables.rights_ticket = None;
        }
        let pending = tables.pending.remove(&ticket)?;
        if let Some(volume) = pending.ending
            && tables.leases.promises().concern_any_in(volume)
            && let Some(rest) = tables.leases.break_volume(now, volume, events)
        {
            tables.pending.insert(rest, pending);
            return None;
        }
        if let Some(fid) = pending.removed {
            let left = tables.removing.get_mut(&fid);
            let left =
                left.expect("HO-1: the removal of a file is counted until its ticket is done");
            *left -= 1;
            if *left == 0 {
                tables.removing.remove(&fid);
            }
        }
        Some(pending)
    }

    /// Whether a session holds the file without names, or has yet to acknowledge the break of its
    /// removal and may then hold it (HO-1).
    pub fn may_be_held(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        tables.leases.holds().is_held(fid) || tables.removing.contains_key(&fid)
    }

    /// Changes that wait for acknowledgements.
    pub fn pending_changes(&self) -> usize {
        self.tables.lock().pending.len()
    }

    /// The replies of changes of a volume that wait for acknowledgements; and those of volumes
    /// without a feed, one of which may be this one.
    pub fn pending_of(
        &self,
        volume: VolumeId,
        encode: fn(&Answer) -> Vec<u8>,
    ) -> Vec<(ReplyAddress, Bytes)> {
        let tables = self.tables.lock();
        let is_of = |change: &&PendingChange| change.fed.is_none_or(|fed| fed.volume == volume);
        let all = tables.pending.values().filter(is_of);
        let all = all.filter(|change| !change.answer.is_only_here());
        all.map(|change| (change.origin, Bytes::from(encode(&change.answer)))).collect()
    }

    /// Requests a lock for the caller. `records`: the file's persistent locks, read under its
    /// stripe, which the caller holds.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub fn lock(
        &self,
        ask: &mut CallContext<'_>,
        request: &LockRequest,
        records: Vec<LockRecord>,
        wait: bool,
        reclaim: bool,
    ) -> Result<CallOutcome, Fault> {
        let mut tables = self.tables.lock();
        tables.leases.locks_mut().set_records(request.fid, records);
        match tables.leases.lock(ask.origin, request, wait, reclaim, &mut ask.events) {
            LockOutcome::Granted => Ok(CallOutcome::Answer(Answer::Done)),
            LockOutcome::Waiting => {
                tables.lock_waits.insert(ask.origin, (ask.caller.clone(), false));
                Ok(CallOutcome::Waits)
            }
            LockOutcome::Refused(fault) => {
                tables.leases.locks_mut().forget_if_unlocked(request.fid);
                Err(fault)
            }
        }
    }

    /// A lock request that waited has its result. Returns whether a fence came between.
    pub fn lock_done(&self, origin: ReplyAddress) -> bool {
        self.tables.lock().lock_waits.remove(&origin).is_some_and(|(_, fenced)| fenced)
    }

    /// The callers of the session that wait for locks.
    pub fn lock_waits(&self, session: SessionId) -> Vec<(ReplyAddress, Caller)> {
        let tables = self.tables.lock();
        let of_session = tables.lock_waits.iter().filter(|(origin, _)| origin.session == session);
        of_session.map(|(origin, (caller, _))| (*origin, caller.clone())).collect()
    }

    /// A fence stops some callers of the session, which others use too: these lock requests are
    /// cancelled, and what answers or cached rights may serve the fenced callers comes back.
    pub fn part_with_fenced(
        &self,
        now: Time,
        session: SessionId,
        waits: &[ReplyAddress],
        events: &mut Vec<Output>,
    ) {
        let mut tables = self.tables.lock();
        let Tables { leases, lock_waits, .. } = &mut *tables;
        for origin in waits {
            // A lock that was granted a moment ago counts as granted before.
            if leases.locks_mut().cancel(*origin, events) {
                lock_waits.entry(*origin).and_modify(|(_, fenced)| *fenced = true);
            }
        }
        // A delegated answer for one of the others serves the fenced caller too.
        let all = leases.delegations().of_session(session);
        leases.recall(now, &all, events);
        let ticket = tables.break_rights(now, events);
        tables.rights_ticket = ticket.or(tables.rights_ticket);
    }

    /// The session is over.
    pub fn remove_session(&self, session: SessionId) {
        let mut tables = self.tables.lock();
        assert!(!tables.leases.sessions().has(session), "CB-4: {session:?} is not over");
        tables.lock_waits.retain(|origin, _| origin.session != session);
    }
}
