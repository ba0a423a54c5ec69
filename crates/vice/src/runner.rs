//! Executes calls to their ends: what a call waits for, and the effects of acknowledgements, ended
//! sessions, granted locks and ended grace.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use lease::{BreakTicket, Leases, Output};
use observe::Wait;
use types::{
    Answer, Call, CallEffect, Fault, Fid, ReplyAddress, SessionId, Time, VolumeCall, VolumeId,
    generation,
};

use crate::Effect;
use crate::audit::Audit;
use crate::call::{CallContext, CallOutcome, Execution, Fed};
use crate::cell::{Identities, LookingUp, Lookup, LookupThreads, MemoryOnly, Rules};
use crate::dispatch::Dispatch;
use crate::gate::Gate;
use crate::sessions::{Coherence, Parked, Requests, Waiting};
use crate::standby::{Feeds, HeldReply, Ripe};
use crate::volumes::Volumes;

/// See the head of the file.
pub(crate) struct Runner {
    pub dispatch: Dispatch,
    pub coherence: Arc<Coherence>,
    pub requests: Arc<Requests>,
    pub volumes: Arc<Volumes>,
    pub identities: Arc<Identities>,
    pub rules: Arc<Rules>,
    pub gate: Arc<Gate>,
    pub audit: Arc<Audit>,
    pub lookups: LookupThreads,
    pub feeds: Arc<Feeds>,
}

impl Runner {
    /// Executes a call that may go on, and finishes it unless it waits.
    pub fn run(
        &self,
        execution: Execution<'_>,
        call: &Call,
        events_out: &mut Vec<Output>,
        out: &mut Vec<Effect>,
    ) {
        let Execution { now, wall, caller, origin, .. } = execution;
        debug_assert!(
            !call.changes()
                || matches!(call, Call::Delegated { .. } | Call::AdoptBody { .. })
                || is_order(call)
                || self.coherence.leases().may_change(),
            "CB-5: a change is executed during grace: {call:?}"
        );
        self.check_fences(now, events_out, out);
        let memory = self.lookups.begin_memory_only(call);
        let look_up_later =
            || self.lookups.look_up_later((now, wall), execution.caller, origin, call);
        let missed = |fault: &Fault| {
            *fault == Fault::CellAway && memory.as_ref().is_some_and(MemoryOnly::missed)
        };
        let effective = match self.identities.effective(caller) {
            Ok(effective) => effective,
            Err(fault) => {
                if missed(&fault) && look_up_later() {
                    return;
                }
                self.audit.saw(wall, caller, origin, call, Some(fault));
                return self.finish(origin, call.is_remembered(), Err(fault), None, None, out);
            }
        };
        let caller = &*effective;
        let (result, body, fed) = loop {
            let principals = self.identities.principals();
            let mut ask = CallContext::new(Execution { caller, ..execution }, principals);
            let (forgotten, ended) =
                (self.volumes.forgotten(), self.volumes.moves().freezes_ended());
            let flight = self.rules.begin_request(call);
            let outcome = self.gate.need_row(wall, caller, origin.session, call);
            let outcome = outcome.and_then(|()| self.dispatch.execute(&mut ask, call));
            drop(flight);
            if outcome.is_ok() {
                self.volumes.loads().note(call, now);
            }
            debug_assert!(
                ask.waits.is_empty() && !ask.again || outcome.is_err(),
                "DE-2: a call that is executed again has left an effect: {call:?}"
            );
            if std::mem::take(&mut ask.again) {
                events_out.append(&mut ask.events);
                continue;
            }
            if outcome.as_ref().err() == Some(&Fault::Busy) && ask.waits.is_empty() {
                ask.waits.extend(self.volumes.frozen_by(call));
                // (Calls that begin and end freezes handle this themselves.)
                if !matches!(call, Call::Volume(_)) && self.volumes.moves().freezes_ended() != ended
                {
                    // A volume was frozen during the attempt: it is repeated.
                    continue;
                }
            }
            events_out.append(&mut ask.events);
            if outcome.as_ref().is_err_and(missed) && look_up_later() {
                return;
            }
            if !ask.waits.is_empty() {
                match self.park(&ask, call) {
                    Ok(true) => return,
                    Ok(false) => continue,
                    Err(fault) => break (Some(Err(fault)), None, None),
                }
            }
            if call.traits().effect == CallEffect::Look && self.volumes.forgotten() != forgotten {
                continue;
            }
            break match outcome {
                Ok(CallOutcome::Answer(answer)) => (Some(Ok(answer)), None, ask.fed),
                Ok(CallOutcome::Body(answer, body)) => (Some(Ok(answer)), Some(body), ask.fed),
                Ok(CallOutcome::Waits) => (None, None, ask.fed),
                Err(fault) => (Some(Err(fault)), None, ask.fed),
            };
        };
        self.audit.saw(
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
            self.finish(origin, call.is_remembered(), result, body, fed, out);
        }
        let asked = match call {
            Call::Volume(VolumeCall::Follow(follow)) => Some(follow.id),
            Call::Volume(VolumeCall::Feed { id, .. }) => Some(*id),
            _ => None,
        };
        if let Some(id) = asked.or(fed.map(|fed| fed.volume)) {
            let mut ripe = Ripe::default();
            self.feeds.ripen(now, id, events_out, &mut ripe);
            self.send_ripe(ripe, out);
        }
    }

    /// Fences volumes whose standbys are silent (SB-3).
    pub fn check_fences(&self, now: Time, events: &mut Vec<Output>, out: &mut Vec<Effect>) {
        let mut ripe = Ripe::default();
        self.feeds.check_fences(now, events, &mut ripe);
        self.send_ripe(ripe, out);
    }

    /// See [`crate::Vice::announce`].
    pub fn announce(&self, now: Time, volume: VolumeId, out: &mut Vec<Effect>) {
        self.with_ripe(now, out, |events, ripe| self.feeds.announce(now, volume, events, ripe));
    }

    /// Does something that concerns standbys, and carries out what follows.
    pub fn with_ripe<T>(
        &self,
        now: Time,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Vec<Output>, &mut Ripe) -> T,
    ) -> T {
        let (mut events, mut ripe) = (Vec::new(), Ripe::default());
        let result = act(&mut events, &mut ripe);
        self.carry_out(now, events, out);
        self.send_ripe(ripe, out);
        result
    }

    /// Sends what waited for standbys, or was an answer to them.
    pub fn send_ripe(&self, ripe: Ripe, out: &mut Vec<Effect>) {
        for (origin, result) in ripe.answers {
            self.send(origin, false, result, None, out);
        }
        for held in ripe.replies {
            let HeldReply { origin, remembered, recorded, result, body, .. } = held;
            if recorded {
                out.push(Effect::Reply { origin, result, body });
            } else {
                self.send(origin, remembered, result, body, out);
            }
        }
    }

    /// Queues a call until what it waits for is back. False: that is back already.
    fn park(&self, ask: &CallContext<'_>, call: &Call) -> Result<bool, Fault> {
        let leases = self.coherence.leases();
        // Checked under the locks that the end of a delegation and that of a freeze take before
        // they search for this call.
        self.volumes.moves().while_unchanged(|is_frozen| {
            let is_back = |dir: &Fid| {
                let held = *dir == Fid::root(dir.volume) && is_frozen(dir.volume);
                let free = !leases.delegations().is_delegated(*dir)
                    || leases.delegations().has(ask.origin.session, *dir);
                !held && free
            };
            if ask.waits.iter().any(is_back) {
                return Ok(false);
            }
            let (came, caller, waits) =
                ((ask.now, ask.wall), ask.caller.clone(), ask.waits.clone());
            let parked = Parked { came, caller, origin: ask.origin, call: call.clone(), waits };
            let of_nobody = leases.sessions().is_anonymous(ask.origin.session);
            self.requests.park(parked, of_nobody).map(|()| true)
        })
    }

    /// Executes again the calls that waited for these directories.
    fn unpark(&self, now: Time, back: &[Fid], out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = Vec::new();
        let go = self.requests.unpark(back);
        for Parked { came, caller, origin, call, .. } in go {
            let wall = came.1.later(now.since(came.0));
            self.run(Execution::new(now, wall, &caller, origin), &call, &mut events, out);
        }
        events
    }

    /// Stores the reply if it is remembered and sends it, unless the session is over; or holds it
    /// until the standbys have what it says (SB-1).
    pub fn finish(
        &self,
        origin: ReplyAddress,
        remembered: bool,
        result: Result<Answer, Fault>,
        body: Option<OwnedFd>,
        fed: Option<Fed>,
        out: &mut Vec<Effect>,
    ) {
        let Some(fed) = fed.filter(|_| result.is_ok()) else {
            return self.send(origin, remembered, result, body, out);
        };
        let Fed { place, stable, .. } = fed;
        let recorded = false;
        let current = result.as_ref().ok().and_then(Answer::current);
        let reply = HeldReply { place, stable, origin, remembered, recorded, result, body };
        match self.feeds.hold(fed, reply) {
            Some(reply) => self.send(origin, remembered, reply.result, reply.body, out),
            None => out.push(Effect::Executed { origin, current }),
        }
    }

    /// Sends the reply that an earlier instance of this server recorded, unless a standby may have
    /// taken over without that change.
    pub fn send_recorded(
        &self,
        origin: ReplyAddress,
        answer: Answer,
        changed: Option<VolumeId>,
        out: &mut Vec<Effect>,
    ) {
        let reply = HeldReply::recorded(origin, answer);
        if let Some(reply) = self.feeds.hold_recorded(changed, reply) {
            out.push(Effect::Reply { origin, result: reply.result, body: reply.body });
        }
    }

    fn send(
        &self,
        origin: ReplyAddress,
        remembered: bool,
        result: Result<Answer, Fault>,
        body: Option<OwnedFd>,
        out: &mut Vec<Effect>,
    ) {
        let remember = remembered.then(|| result.clone());
        if self.requests.finish(origin, remember) {
            out.push(Effect::Reply { origin, result, body });
        }
    }

    /// Handles the outputs of the leases. No lock is held here.
    pub fn carry_out(&self, now: Time, events: Vec<Output>, out: &mut Vec<Effect>) {
        let mut events = VecDeque::from(events);
        while let Some(event) = events.pop_front() {
            match event {
                Output::Break { to, id, items } => out.push(Effect::Break { to, id, items }),
                Output::TicketDone(ticket) => events.extend(self.ticket_done(now, ticket, out)),
                Output::LockDone { origin, result } => {
                    let fenced = self.coherence.lock_done(origin);
                    let result = if fenced { Err(Fault::Fenced) } else { result };
                    self.finish(origin, false, result.map(|()| Answer::Done), None, None, out);
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
        self.dispatch.loans.ticket_done(ticket);
        let Some(pending) = self.coherence.ticket_done(now, ticket, &mut events) else {
            return events;
        };
        observe::record(Wait::BreakAcknowledged, now.since(pending.since));
        if let Some(fid) = pending.removed {
            self.dispatch.files.drop_if_free(now, fid, &mut events);
        }
        self.finish(pending.origin, true, Ok(pending.answer), None, pending.fed, out);
        events
    }

    fn session_ended(
        &self,
        now: Time,
        session: SessionId,
        freed: &[Fid],
        out: &mut Vec<Effect>,
    ) -> Vec<Output> {
        self.dispatch.remove_session(session);
        out.push(Effect::SessionEnded(session));
        let mut events = Vec::new();
        freed.iter().for_each(|fid| self.dispatch.files.drop_if_free(now, *fid, &mut events));
        events
    }

    /// Executes calls that may read again.
    fn read_again(&self, now: Time, out: &mut Vec<Effect>) -> Vec<Output> {
        let leases = self.coherence.leases();
        let ready = self.requests.take_permitted(|waiting| match waiting {
            Waiting::Execute { origin, call, .. } => may_run(&leases, *origin, call),
            Waiting::Reply { .. } => false,
        });
        drop(leases);
        self.run_all(now, ready, out)
    }

    /// Removes files that no session reclaimed, and executes the calls that waited.
    fn grace_over(&self, now: Time, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = self.dispatch.files.drop_orphans(now);
        let waiting = self.requests.take_permitted(|_| true);
        events.extend(self.run_all(now, waiting, out));
        events
    }

    /// The generation of the volume that a call changes, if it is here.
    pub fn generation_of(&self, call: &Call) -> Option<u64> {
        let volume = self.volumes.any_volume(call.changed_volume()?).ok()?;
        Some(generation(volume.store.epoch()))
    }

    fn run_all(&self, now: Time, waiting: Vec<Waiting>, out: &mut Vec<Effect>) -> Vec<Output> {
        let mut events = Vec::new();
        for waiting in waiting {
            match waiting {
                Waiting::Execute { origin, call, generation, .. }
                    if generation != self.generation_of(&call) =>
                {
                    // The volume was elsewhere meanwhile, where its client has made the change.
                    self.finish(origin, false, Err(Fault::NoVolume), None, None, out);
                }
                Waiting::Execute { wall, caller, origin, call, .. } => {
                    self.run(Execution::new(now, wall, &caller, origin), &call, &mut events, out);
                }
                Waiting::Reply { origin, answer, changed } => {
                    self.send_recorded(origin, *answer, changed, out);
                }
            }
        }
        events
    }

    /// Executes a call that was passed to a thread that may wait.
    pub fn look_up(&self, now: Time, lookup: Lookup, out: &mut Vec<Effect>) {
        let Lookup { now: came, wall, caller, origin, call } = lookup;
        let wall = wall.later(now.since(came));
        let mut events = Vec::new();
        let looking = LookingUp::begin();
        self.run(Execution::new(now, wall, &caller, origin), &call, &mut events, out);
        drop(looking);
        self.carry_out(now, events, out);
    }
}

/// Whether the call orders a takeover. Grace may be longer than the freeze elsewhere, and clients
/// have nothing in these volumes that they reclaim from an earlier instance of this server.
fn is_order(call: &Call) -> bool {
    matches!(
        call,
        Call::Volume(
            VolumeCall::FailOver { .. } | VolumeCall::StandBy { .. } | VolumeCall::Serve { .. }
        )
    )
}

/// Whether grace permits this call: changes wait until grace is over (CB-5), reads for sessions
/// that may have changed files under delegations, and those may send their changes at any time.
pub(crate) fn may_run(leases: &Leases, origin: ReplyAddress, call: &Call) -> bool {
    match call {
        Call::Delegated { .. } | Call::AdoptBody { .. }
            if leases.reclaims_delegations(origin.session) =>
        {
            true
        }
        call if is_order(call) => true,
        // Claims are judged by the leases; other opens wait for them (SH-5).
        Call::Open { claims: false, .. } => leases.may_change(),
        call if call.changes() => leases.may_change(),
        call if call.traits().effect == CallEffect::Look => leases.may_read(origin.session),
        _ => true,
    }
}
