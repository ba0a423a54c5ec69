//! Body loans (docs/spec/passthrough.md): giving bodies to kernels, and updating the records to
//! what kernels wrote.
//!
//! A loan is over when no session has the body and no process has it open for writing (PT-2). Until
//! then the server updates its record each second ([`Vice::tend`]), without a request of a session,
//! so that others see what was written (docs/spec/semantics.md). The next update that answers a
//! call waits for the breaks that this sends: an answer means that all clients have acknowledged
//! (CB-1).

use std::collections::HashMap;

use lease::{BreakTicket, Output};
use smallvec::SmallVec;
use store::{BodyLocation, Update, Vnode};
use types::posix::touch_data;
use types::{Answer, BreakItem, BreakReason, Fault, Fid, Lending, SessionId, Time, Timestamp};

use super::CallOutcome;
use super::data::need_file;
use crate::access::Right;
use crate::change::Change;
use crate::service::CallContext;
use crate::volumes::ViceVolume;
use crate::{Effect, Vice};

/// Free bytes that the volume and the partition must have before a body is lent for writing: the
/// kernel knows no quota.
const LOAN_HEADROOM_BYTES: u64 = 1 << 30;
/// No session has number 0.
const NOBODY: SessionId = SessionId(0);

/// Sessions with loaned bodies.
#[derive(Default)]
pub(crate) struct Loans {
    sessions: HashMap<Fid, SmallVec<[SessionId; 2]>>,
    /// The latest breaks that no call waits for yet.
    breaking: HashMap<Fid, BreakTicket>,
}

impl Loans {
    /// Whether the session has the body.
    pub fn has(&self, fid: Fid, session: SessionId) -> bool {
        self.sessions.get(&fid).is_some_and(|sessions| sessions.contains(&session))
    }

    pub fn add(&mut self, fid: Fid, session: SessionId) {
        let sessions = self.sessions.entry(fid).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    fn remove(&mut self, fid: Fid, session: SessionId) {
        if let Some(sessions) = self.sessions.get_mut(&fid) {
            sessions.retain(|one| *one != session);
            if sessions.is_empty() {
                self.sessions.remove(&fid);
            }
        }
    }

    /// Ends all loans of a session.
    pub fn remove_session(&mut self, session: SessionId) {
        self.sessions.retain(|_, sessions| {
            sessions.retain(|one| *one != session);
            !sessions.is_empty()
        });
    }

    /// All sessions have acknowledged the breaks of this ticket.
    pub fn ticket_done(&mut self, ticket: BreakTicket) {
        self.breaking.retain(|_, one| *one != ticket);
    }
}

impl Vice {
    pub(super) fn lend_body(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        how: Lending,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        // A sealed body may share a file with the head's, which kernels write into.
        if !volume.hands_out_bodies() || volume.need_writable().is_err() {
            return Err(Fault::Unsupported);
        }
        let _held = self.stripes.write(&[fid]);
        self.need_back(ask, &volume, &[fid])?;
        let vnode = volume.vnode(fid)?;
        need_file(&vnode)?;
        let right = if how == Lending::Read { Right::ReadData } else { Right::WriteData };
        self.need_data(ask, &volume, &vnode, right)?;
        self.promise(ask, &volume, &[fid])?;
        match how {
            Lending::Read if !matches!(vnode.place, BodyLocation::File { .. }) => {
                return Err(Fault::Unsupported);
            }
            Lending::Write | Lending::Join if volume.need_delegations_allowed(ask.now).is_err() => {
                return Err(Fault::Busy);
            }
            Lending::Write if !self.has_ample_room(&volume)? => return Err(Fault::Busy),
            Lending::Read | Lending::Write | Lending::Join => {}
        }
        if how != Lending::Read {
            self.core.lock().loans.add(fid, ask.origin.session);
        }
        if let Err(fault) = Self::hand_out(&volume, vnode, how != Lending::Read) {
            self.core.lock().loans.remove(fid, ask.origin.session);
            // A hold may have come between: a body without sessions must not prevent a move of the
            // volume.
            if let Err(also) = self.end_loan(&volume, fid) {
                tracing::warn!(%fid, %also, "a body loan without sessions cannot be ended yet");
            }
            return Err(fault);
        }
        let reader = volume.store.reader(fid.vnode)?.ok_or(Fault::Stale)?;
        let body = reader.open_body()?.ok_or(Fault::Unsupported)?;
        Ok(CallOutcome::Body(Answer::Body { status: volume.status_of(reader.vnode()) }, body))
    }

    /// Records that a kernel has the body, and whether it writes.
    fn hand_out(volume: &ViceVolume, mut vnode: Vnode, writes: bool) -> Result<(), Fault> {
        let mut update = Update::new();
        let known = vnode.clone();
        vnode.handed = true;
        if writes {
            volume.store.body(&mut vnode, &mut update)?.lend()?;
        }
        if writes || vnode != known {
            update.put_vnode(&vnode);
            volume.store.commit(update)?;
        }
        Ok(())
    }

    pub(super) fn has_ample_room(&self, volume: &ViceVolume) -> Result<bool, Fault> {
        let (quota, usage) = (volume.store.quota().bytes, volume.store.usage().bytes);
        let allowed = quota == 0 || quota.saturating_sub(usage) >= LOAN_HEADROOM_BYTES;
        Ok(allowed && volume.partition.space()?.free_bytes >= LOAN_HEADROOM_BYTES)
    }

    pub(super) fn settle_body(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        back: bool,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        volume.need_writable()?;
        let held = self.stripes.write(&[fid]);
        self.need_back(ask, &volume, &[fid])?;
        let mut vnode = volume.vnode(fid)?;
        need_file(&vnode)?;
        if !self.core.lock().loans.has(fid, ask.origin.session) {
            // The session does not have the body: then the caller must have the right to write.
            self.need_data(ask, &volume, &vnode, Right::WriteData)?;
        }
        self.promise(ask, &volume, &[fid])?;
        let mut change = Change::new(&volume);
        let changed = volume.store.loans().settle(&mut vnode, &mut change.update)?;
        let outcome = if changed || self.core.lock().loans.breaking.contains_key(&fid) {
            if changed {
                touch_data(&mut vnode.status, ask.wall);
            }
            change.put_data(&vnode);
            self.commit(ask, change, Answer::Status(vnode.status))?
        } else {
            drop(change);
            CallOutcome::Answer(Answer::Status(vnode.status))
        };
        if back {
            self.core.lock().loans.remove(fid, ask.origin.session);
            self.end_loan(&volume, fid)?;
        }
        drop(held);
        Ok(outcome)
    }

    /// Updates the records of all loaned bodies, and ends the loans that are over; whether any
    /// ended. Call it each second.
    pub fn tend(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) -> bool {
        // Puts new fence rules into force here if a running call prevented it before.
        let mut events = Vec::new();
        self.enforce(now, wall, &mut events);
        self.carry_out(now, events, out);
        if !self.core.lock().leases.may_change() {
            // Sessions of the earlier server instance may reclaim their loans.
            return false;
        }
        let mut ended = false;
        for (volume, no) in self.partitions.iter().flat_map(|partition| partition.lent()) {
            let mut events = Vec::new();
            let tended = self.any_volume(volume).and_then(|volume| {
                let Some(vnode) = volume.store.vnode(no)? else { return Ok(false) };
                self.tend_one(now, wall, &volume, vnode.status.fid, &mut events)
            });
            match tended {
                Ok(over) => ended |= over,
                Err(fault) => {
                    tracing::warn!(
                        vnode = no.0,
                        %fault,
                        "the record of a loaned body cannot be updated; it is tried each second"
                    );
                }
            }
            self.carry_out(now, events, out);
        }
        ended
    }

    /// Ends the loans of the volume that no session has any more.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn end_idle_loans(&self, volume: &ViceVolume) -> Result<(), Fault> {
        let id = volume.store.id();
        for (_, no) in volume.partition.lent().into_iter().filter(|(of, _)| *of == id) {
            if let Some(vnode) = volume.store.vnode(no)? {
                let fid = vnode.status.fid;
                let _held = self.stripes.write(&[fid]);
                self.end_loan(volume, fid)?;
            }
        }
        Ok(())
    }

    fn tend_one(
        &self,
        now: Time,
        wall: Timestamp,
        volume: &ViceVolume,
        fid: Fid,
        events: &mut Vec<Output>,
    ) -> Result<bool, Fault> {
        volume.need_writable()?;
        let _held = self.stripes.write(&[fid]);
        let mut vnode = volume.vnode(fid)?;
        let mut update = Update::new();
        if volume.store.loans().settle(&mut vnode, &mut update)? {
            touch_data(&mut vnode.status, wall);
            update.put_vnode(&vnode);
            volume.store.commit(update)?;
            let item = BreakItem { fid, reason: BreakReason::Data, name: None };
            let mut core = self.core.lock();
            if let Some(ticket) = core.leases.break_promises(now, &[item], NOBODY, events) {
                core.loans.breaking.insert(fid, ticket);
            }
            return Ok(false);
        }
        drop(update);
        self.end_loan(volume, fid)
    }

    /// Ends the loan if no session has the body; whether it is over.
    fn end_loan(&self, volume: &ViceVolume, fid: Fid) -> Result<bool, Fault> {
        let core = self.core.lock();
        let free = !core.loans.sessions.contains_key(&fid) && core.leases.may_change();
        drop(core);
        Ok(free && volume.store.loans().end(fid.vnode)?)
    }
}
