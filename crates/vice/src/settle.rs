//! What follows from acknowledgements, ended sessions, granted locks and the end of grace; and the end of every call.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use lease::{Output, Ticket};
use store::Update;
use types::{Answer, Call, Caller, Fault, Fid, Origin, SessionId, Time, Timestamp};

use crate::calls::Outcome;
use crate::service::Ask;
use crate::waiting::Waiting;
use crate::{Effect, Vice};

impl Vice {
    /// Executes a call that may go on, and finishes it unless it waits.
    #[allow(clippy::too_many_arguments)] // perform's, and where events go
    pub(crate) fn run(
        &self,
        now: Time,
        wall: Timestamp,
        caller: &Caller,
        origin: Origin,
        call: &Call,
        events: &mut Vec<Output>,
        out: &mut Vec<Effect>,
    ) {
        let mut ask = Ask { now, wall, caller, origin, events: Vec::new() };
        let (result, body) = match self.execute(&mut ask, call) {
            Ok(Outcome::Answer(answer)) => (Some(Ok(answer)), None),
            Ok(Outcome::Body(answer, body)) => (Some(Ok(answer)), Some(body)),
            Ok(Outcome::Waits) => (None, None),
            Err(fault) => (Some(Err(fault)), None),
        };
        if let Some(Err(fault @ (Fault::Medium | Fault::Damaged))) = &result {
            tracing::error!(%fault, ?call, "refused");
        }
        if let Some(result) = result {
            self.finish(origin, call.changes(), result, body, out);
        }
        events.append(&mut ask.events);
    }

    /// Remembers the reply of a change and puts it out, unless the session is over.
    pub(crate) fn finish(
        &self,
        origin: Origin,
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

    /// Works off what the leases put out. No lock is held here.
    pub(crate) fn settle(&self, now: Time, events: Vec<Output>, out: &mut Vec<Effect>) {
        let mut events = VecDeque::from(events);
        while let Some(event) = events.pop_front() {
            match event {
                Output::Break { to, id, items } => out.push(Effect::Break { to, id, items }),
                Output::TicketDone(ticket) => self.ticket_done(ticket, out),
                Output::LockDone { origin, result } => {
                    self.finish(origin, false, result.map(|()| Answer::Done), None, out);
                }
                Output::SessionEnded { session, freed, .. } => self.session_ended(session, &freed, out),
                Output::GraceOver => events.extend(self.grace_over(now, out)),
            }
        }
    }

    fn ticket_done(&self, ticket: Ticket, out: &mut Vec<Effect>) {
        let mut core = self.core.lock();
        let Some(pending) = core.pending.remove(&ticket) else { return };
        if let Some(fid) = pending.removed {
            let count = core.removing.entry(fid).or_insert(1);
            *count -= 1;
            if *count == 0 {
                core.removing.remove(&fid);
            }
        }
        drop(core);
        if let Some(fid) = pending.removed {
            self.drop_if_free(fid);
        }
        self.finish(pending.origin, true, Ok(pending.answer), None, out);
    }

    fn session_ended(&self, session: SessionId, freed: &[Fid], out: &mut Vec<Effect>) {
        let mut core = self.core.lock();
        core.slots.remove_session(session);
        core.queue.remove_session(session);
        drop(core);
        if let Err(error) = self.partition.remove_session(session) {
            // The record outlives the session and costs a later start some grace.
            tracing::warn!(?session, %error, "session record stays");
        }
        out.push(Effect::SessionEnded(session));
        freed.iter().for_each(|fid| self.drop_if_free(*fid));
    }

    /// Files that nobody claimed go, and what waited is executed.
    fn grace_over(&self, now: Time, out: &mut Vec<Effect>) -> Vec<Output> {
        self.drop_orphans();
        let mut events = Vec::new();
        let waiting = self.core.lock().queue.take_all();
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

    /// Drops every file without names that nobody holds.
    pub(crate) fn drop_orphans(&self) {
        for volume in self.partition.volumes() {
            let orphans = volume.orphans().unwrap_or_else(|error| {
                tracing::error!(volume = volume.id().0, %error, "files without names cannot be listed");
                Vec::new()
            });
            for no in orphans {
                match volume.vnode(no) {
                    Ok(Some(vnode)) => self.drop_if_free(vnode.status.fid),
                    Ok(None) => {}
                    Err(error) => tracing::error!(vnode = no.0, %error, "file without names cannot be read"),
                }
            }
        }
    }

    /// Drops the file if it has no name, nobody holds it, and everybody who may hold it has answered. (During grace, when
    /// others may yet claim it, the leases say of no file that it is free.)
    pub(crate) fn drop_if_free(&self, fid: Fid) {
        if let Err(fault) = self.try_drop(fid) {
            // Its orphan record stays: the next start tries again.
            tracing::warn!(%fid, %fault, "file without names stays");
        }
    }

    fn try_drop(&self, fid: Fid) -> Result<(), Fault> {
        let volume = self.volume(fid.volume)?;
        let _held = self.stripes.write(&[fid]);
        let vnode = match volume.vnode(fid) {
            Ok(vnode) if vnode.status.links == 0 => vnode,
            Ok(_) | Err(Fault::Stale) => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let core = self.core.lock();
        if core.leases.is_held(fid) || core.removing.contains_key(&fid) {
            return Ok(());
        }
        drop(core);
        let mut update = Update::new();
        volume.store.drop_vnode(&vnode, &mut update)?;
        volume.store.commit(update)?;
        self.core.lock().leases.forget_file(fid);
        Ok(())
    }
}
