//! Effects of acknowledgements, ended sessions, granted locks and ended grace; ends of calls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lease::{BreakTicket, Output};
use store::Update;
use types::{
    Answer, Call, CallEffect, Caller, Fault, Fid, ReplyAddress, SessionId, Time, Timestamp,
};

use crate::access::Principals;
use crate::calls::CallOutcome;
use crate::principal_lookups::MemoryOnly;
use crate::service::{CallContext, ServiceTables, may_run};
use crate::waiting_calls::{Parked, Waiting};
use crate::{Effect, Vice};

impl Vice {
    /// Executes a call that may go on, and finishes it unless it waits.
    #[allow(clippy::too_many_arguments)] // perform's, and where events go
    pub(crate) fn run(
        &self,
        now: Time,
        wall: Timestamp,
        caller: &Caller,
        origin: ReplyAddress,
        call: &Call,
        events_out: &mut Vec<Output>,
        out: &mut Vec<Effect>,
    ) {
        let (asked_by, memory) = (caller, self.begin_memory_only(call));
        let missed = |fault: &Fault| {
            *fault == Fault::CellAway && memory.as_ref().is_some_and(MemoryOnly::missed)
        };
        let effective = match self.effective(caller) {
            Ok(effective) => effective,
            Err(fault) => {
                if missed(&fault) && self.look_up_later((now, wall), asked_by, origin, call) {
                    return;
                }
                self.audit(wall, caller, origin, call, Some(fault));
                return self.finish(origin, call.changes(), Err(fault), None, out);
            }
        };
        let caller = &*effective;
        let (result, body) = loop {
            let (events, waits) = (Vec::new(), Vec::new());
            let principals =
                self.principals.get().map_or(self as &dyn Principals, |known| &**known);
            let mut ask = CallContext {
                now,
                wall,
                caller,
                principals,
                origin,
                events,
                delegated: None,
                waits,
                models: 0,
                rights_changes: 0,
                again: false,
            };
            let (forgotten, ended) =
                (self.volumes.forgotten(), self.freezes_ended.load(Ordering::SeqCst));
            let flight = self.begin_request(call);
            let outcome = self.need_row(wall, caller, origin.session, call);
            let outcome = outcome.and_then(|()| self.execute(&mut ask, call));
            drop(flight);
            if std::mem::take(&mut ask.again) {
                events_out.append(&mut ask.events);
                continue;
            }
            if outcome.as_ref().err() == Some(&Fault::Busy) && ask.waits.is_empty() {
                ask.waits.extend(self.frozen_by(call));
                // (Calls that begin and end freezes handle this themselves.)
                if !matches!(call, Call::Volume(_))
                    && self.freezes_ended.load(Ordering::SeqCst) != ended
                {
                    // A volume was frozen during the attempt: it is repeated.
                    continue;
                }
            }
            events_out.append(&mut ask.events);
            if outcome.as_ref().is_err_and(missed)
                && self.look_up_later((now, wall), asked_by, origin, call)
            {
                return;
            }
            if !ask.waits.is_empty() {
                match self.park(&ask, call) {
                    Ok(true) => return,
                    Ok(false) => continue,
                    Err(fault) => break (Some(Err(fault)), None),
                }
            }
            if call.traits().effect == CallEffect::Look && self.volumes.forgotten() != forgotten {
                continue;
            }
            break match outcome {
                Ok(CallOutcome::Answer(answer)) => (Some(Ok(answer)), None),
                Ok(CallOutcome::Body(answer, body)) => (Some(Ok(answer)), Some(body)),
                Ok(CallOutcome::Waits) => (None, None),
                Err(fault) => (Some(Err(fault)), None),
            };
        };
        self.audit(
            wall,
            caller,
            origin,
            call,
            result.as_ref().and_then(|result| result.as_ref().err().copied()),
        );
        if let Some(Err(fault @ (Fault::Medium | Fault::Damaged))) = &result {
            tracing::error!(%fault, ?call, "a call failed with an error of the store");
        }
        if let Some(result) = result {
            self.finish(origin, call.changes(), result, body, out);
        }
    }

    /// Queues a call until what it waits for is back. False: that is back already.
    fn park(&self, ask: &CallContext<'_>, call: &Call) -> Result<bool, Fault> {
        let mut core = self.core.lock();
        // Checked under the lock that the end of a freeze takes before it searches for this call.
        let moves = self.moves.lock();
        let gone = |dir: &Fid| {
            let held = *dir == Fid::root(dir.volume) && moves.is_frozen(dir.volume);
            let free = !core.leases.is_delegated_at_all(*dir)
                || core.leases.is_delegated(ask.origin.session, *dir);
            !held && free
        };
        if ask.waits.iter().any(gone) {
            return Ok(false);
        }
        let (came, caller, waits) = ((ask.now, ask.wall), ask.caller.clone(), ask.waits.clone());
        let parked = Parked { came, caller, origin: ask.origin, call: call.clone(), waits };
        let of_nobody = core.leases.is_anonymous(ask.origin.session);
        core.parked.push(parked, of_nobody).map(|()| true)
    }

    /// Executes again the calls that waited for these directories.
    fn unpark(&self, now: Time, back: &[Fid], out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = Vec::new();
        let go = self.core.lock().parked.take_if(|parked| parked.waits_for(back));
        for Parked { came, caller, origin, call, .. } in go {
            let wall = came.1.later(now.since(came.0));
            self.run(now, wall, &caller, origin, &call, &mut events, out);
        }
        events
    }

    /// Stores the reply of a change and sends it, unless the session is over.
    pub(crate) fn finish(
        &self,
        origin: ReplyAddress,
        changes: bool,
        result: Result<Answer, Fault>,
        body: Option<OwnedFd>,
        out: &mut Vec<Effect>,
    ) {
        let remember = changes.then(|| result.clone());
        if self.core.lock().slots.finish(origin, remember) {
            out.push(Effect::Reply { origin, result, body });
        }
    }

    /// Handles the outputs of the leases. No lock is held here.
    pub(crate) fn carry_out(&self, now: Time, events: Vec<Output>, out: &mut Vec<Effect>) {
        let mut events = VecDeque::from(events);
        while let Some(event) = events.pop_front() {
            match event {
                Output::Break { to, id, items } => out.push(Effect::Break { to, id, items }),
                Output::TicketDone(ticket) => events.extend(self.ticket_done(now, ticket, out)),
                Output::LockDone { origin, result } => {
                    let fenced = self
                        .core
                        .lock()
                        .lock_waits
                        .remove(&origin)
                        .is_some_and(|(_, fenced)| fenced);
                    let result = if fenced { Err(Fault::Fenced) } else { result };
                    self.finish(origin, false, result.map(|()| Answer::Done), None, out);
                }
                Output::SessionEnded { session, freed, .. } => {
                    events.extend(self.session_ended(now, session, &freed, out));
                }
                Output::DelegationsOver(dirs) => events.extend(self.unpark(now, &dirs, out)),
                Output::ReadingAgain => events.extend(self.read_again(now, out)),
                Output::GraceOver => events.extend(self.grace_over(now, out)),
            }
        }
    }

    fn ticket_done(&self, now: Time, ticket: BreakTicket, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = Vec::new();
        let mut core = self.core.lock();
        core.loans.ticket_done(ticket);
        if core.rights_ticket == Some(ticket) {
            core.rights_ticket = None;
        }
        let Some(pending) = core.pending.remove(&ticket) else { return events };
        if let Some(fid) = pending.removed {
            let count = core.removing.entry(fid).or_insert(1);
            *count -= 1;
            if *count == 0 {
                core.removing.remove(&fid);
            }
        }
        drop(core);
        if let Some(fid) = pending.removed {
            self.drop_if_free(now, fid, &mut events);
        }
        self.finish(pending.origin, true, Ok(pending.answer), None, out);
        events
    }

    fn session_ended(
        &self,
        now: Time,
        session: SessionId,
        freed: &[Fid],
        out: &mut Vec<Effect>,
    ) -> Vec<Output> {
        let mut core = self.core.lock();
        core.slots.remove_session(session);
        core.queue.remove_session(session);
        core.parked.remove_session(session);
        core.given.retain(|(owner, _), _| *owner != session);
        core.loans.remove_session(session);
        core.opened.remove_session(session);
        core.lock_waits.retain(|origin, _| origin.session != session);
        let blanks = core.blanks.remove_session(session);
        drop(core);
        blanks.into_iter().for_each(|(on, blank)| self.drop_blank(on, blank));
        if let Err(error) = self.partitions.remove_session(session) {
            // The record remains, so a later start waits for the session in grace.
            tracing::warn!(?session, %error, "the record of an ended session cannot be removed");
        }
        out.push(Effect::SessionEnded(session));
        let mut events = Vec::new();
        freed.iter().for_each(|fid| self.drop_if_free(now, *fid, &mut events));
        events
    }

    /// Executes calls that may read again.
    fn read_again(&self, now: Time, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut core = self.core.lock();
        let ServiceTables { queue, leases, .. } = &mut *core;
        let ready = queue.take_if(|waiting| match waiting {
            Waiting::Execute { origin, call, .. } => may_run(leases, *origin, call),
            Waiting::Reply { .. } => false,
        });
        drop(core);
        self.run_all(now, ready, out)
    }

    /// Removes files that no session reclaimed, and executes the calls that waited.
    fn grace_over(&self, now: Time, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = self.drop_orphans(now);
        let waiting = self.core.lock().queue.take_all();
        events.extend(self.run_all(now, waiting, out));
        events
    }

    fn run_all(&self, now: Time, waiting: Vec<Waiting>, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = Vec::new();
        for waiting in waiting {
            match waiting {
                Waiting::Execute { wall, caller, origin, call } => {
                    self.run(now, wall, &caller, origin, &call, &mut events, out);
                }
                Waiting::Reply { origin, answer } => {
                    out.push(Effect::Reply { origin, result: Ok(*answer), body: None });
                }
            }
        }
        events
    }

    /// As [`Vice::drop_orphans`], of one volume.
    pub(crate) fn drop_orphans_of(&self, now: Time, volume: types::VolumeId) -> Vec<Output> {
        let mut events = Vec::new();
        let Ok(of) = self.any_volume(volume) else { return events };
        let orphans = of.partition.volumes().orphans().unwrap_or_default();
        for (_, no) in orphans.into_iter().filter(|(tree, _)| *tree == volume) {
            if let Ok(Some(vnode)) = of.store.vnode(no) {
                self.drop_if_free(now, vnode.status.fid, &mut events);
            }
        }
        events
    }

    /// Removes every file without names that no session holds.
    pub(crate) fn drop_orphans(&self, now: Time) -> Vec<Output> {
        let mut events = Vec::new();
        for partition in self.partitions.iter() {
            let orphans = partition.volumes().orphans().unwrap_or_else(|error| {
                tracing::error!(%error, "files without names cannot be listed; they stay on disk");
                Vec::new()
            });
            for (volume, no) in orphans {
                let read = |volume: Option<Arc<store::Volume>>| {
                    volume.map_or(Ok(None), |volume| volume.vnode(no))
                };
                match partition.volumes().volume(volume).and_then(read) {
                    Ok(Some(vnode)) => self.drop_if_free(now, vnode.status.fid, &mut events),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(volume = volume.0, vnode = no.0, %error, "file without \
                            names cannot be read");
                    }
                }
            }
        }
        events
    }

    /// Removes the file if it has no name, no session holds it, and every session that may hold it
    /// has acknowledged. (During grace, when others may yet reclaim it, the leases report no file
    /// as free.)
    pub(crate) fn drop_if_free(&self, now: Time, fid: Fid, events: &mut Vec<Output>) {
        if let Err(fault) = self.try_drop(now, fid, events) {
            // Its orphan record remains: the next start tries again.
            tracing::warn!(%fid, %fault, "a file without names cannot be removed");
        }
    }

    fn try_drop(&self, now: Time, fid: Fid, events: &mut Vec<Output>) -> Result<(), Fault> {
        let volume = match self.any_volume(fid.volume) {
            // The file was removed with its volume.
            Err(Fault::NoVolume) => return Ok(()),
            volume => volume?,
        };
        if volume.need_writable().is_err() {
            return Ok(());
        }
        let _held = self.stripes.write(&[fid]);
        let vnode = match volume.vnode(fid) {
            Ok(vnode) if vnode.status.links == 0 => vnode,
            Ok(_) | Err(Fault::Stale) => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let core = self.core.lock();
        if core.leases.is_held(fid)
            || core.removing.contains_key(&fid)
            || self.moves.lock().takes_claims(fid.volume)
        {
            return Ok(());
        }
        drop(core);
        let mut update = Update::new();
        volume.store.drop_vnode(&vnode, &mut update)?;
        update.remove_orphan(vnode.no());
        volume.store.commit(update)?;
        self.core.lock().leases.forget_file(now, fid, events);
        Ok(())
    }
}
