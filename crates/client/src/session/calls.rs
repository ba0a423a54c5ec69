//! Sends calls, waits for their answers, and gives calls up that were cancelled or are too late.
//!
//! An interrupted question is given up at once: a server that hangs must not block killed
//! processes. An interrupted change is waited for as long as the server is reachable, because its
//! outcome matters: the server ends it, or answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dafs::limits::CHAIN_MAX;
use dafs::{CallId, ClientInput, Region};
use observe::names::CLIENT_CALL;
use observe::{Wait, request_span};
use types::{Call, Caller, Fid, ReplyAddress};

use super::core::{After, ClientCore, ReclaimGate, SessionPhase};
use super::pending::{NamedChange, PendingCall};
use super::shared::{On, Shared};
use super::unpack::Wanted;
use crate::chain_link::ChainLink;
use crate::{CallError, Cancel, ConnectionReport, Reply, clock};

/// Gets the results of a chain's members, and the places of those that have errors.
pub(crate) type TakeMember<'t> =
    dyn FnMut(usize, Result<Reply, CallError>, Option<ReplyAddress>) + 't;

impl Shared {
    /// Waits while locks are reclaimed after a restart of the server.
    ///
    /// # Errors
    /// `Cancelled`; `TimedOut` after the time that a call may take.
    pub fn pass_gate(self: &Arc<Self>, cancel: Option<&Cancel>) -> Result<(), CallError> {
        if self.core.lock().gate == ReclaimGate::Open {
            return Ok(());
        }
        let waker = Arc::clone(self);
        let _listening = cancel.map(|cancel| {
            cancel.on_cancel(move || {
                drop(waker.core.lock());
                waker.changed.notify_all();
            })
        });
        let until = self.deadline(cancel);
        let mut core = self.core.lock();
        while core.gate != ReclaimGate::Open {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            match until {
                None => self.changed.wait(&mut core),
                Some(until) if self.changed.wait_until(&mut core, until).timed_out() => {
                    return Err(CallError::TimedOut);
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// One call. A question that the end of a session interrupted is asked again in the next one.
    ///
    /// # Errors
    /// As [`Remote::call`].
    pub fn call(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.ask(caller, call, cancel, false, &mut None)
    }

    pub(crate) fn ask(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        urgent: bool,
        at: &mut Option<ReplyAddress>,
    ) -> Result<Reply, CallError> {
        // One deadline for all attempts: a server that ends every session must not block the caller
        // for ever.
        let until = self.deadline(cancel);
        if !call.leaves_nothing() {
            return self.call_once(caller, call, cancel, urgent, until, at);
        }
        loop {
            match self.call_once(caller, call.clone(), cancel, urgent, until, at) {
                Err(CallError::Lost) if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(CallError::TimedOut);
                }
                // It leaves nothing behind, so its outcome is not unknown.
                Err(CallError::Lost)
                    if cancel.is_some_and(|one| one.is_cancelled() || one.is_of_session()) =>
                {
                    return Err(CallError::Cancelled);
                }
                Err(CallError::Lost) => {}
                result => return result,
            }
        }
    }

    /// Covers a call, or a chain that begins with it, with a span, and counts its time at the end.
    fn watch(&self, name: &str, fid: Option<Fid>, id: CallId) -> WatchedCall {
        let session = || self.core.lock().machine.id().map(|session| session.0);
        WatchedCall {
            _span: request_span!(CLIENT_CALL, name, fid, session(), id.0).entered(),
            began: Instant::now(),
        }
    }

    /// Ends the reclaim after the restart with this number. Another restart begins another reclaim,
    /// which this must not end (LK-4): then nothing is sent.
    ///
    /// # Errors
    /// As [`crate::Remote::call`].
    pub fn end_reclaim(self: &Arc<Self>, restart: u64) -> Result<(), CallError> {
        let until = self.deadline(None);
        let pending = Arc::new(PendingCall::default());
        let (id, after) = {
            let mut core = self.core.lock();
            if core.gate != ReclaimGate::Reclaiming(restart) {
                return Ok(());
            }
            debug_assert!(core.reclaiming, "LK-4: the thread that reclaims ends the reclaim");
            submit(&mut core, &pending, &Caller::ROOT, Call::ReclaimDone, false)?
        };
        self.follow_up(after, On::Caller);
        self.wait(&pending, id, false, until, &|| false).map(drop)
    }

    /// The deadline of a call that begins now: the session's, or the earlier one of `cancel`.
    fn deadline(&self, cancel: Option<&Cancel>) -> Option<Instant> {
        let session = self.config.call_within.map(|within| Instant::now() + within);
        [session, cancel.and_then(Cancel::deadline)].into_iter().flatten().min()
    }

    fn call_once(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        urgent: bool,
        until: Option<Instant>,
        at: &mut Option<ReplyAddress>,
    ) -> Result<Reply, CallError> {
        let (harmless, wanted) = (call.leaves_nothing(), Wanted::of(&call));
        let (name, fid) = (call.traits().name, call.files()[0].copied());
        let (id, pending, after) = {
            let mut core = self.core.lock();
            let repeated = cancel.is_some_and(|cancel| !harmless && cancel.is_repeated());
            let orphan = if repeated { core.orphans.take(caller, &call) } else { None };
            if let Some((id, pending)) = orphan {
                (id, pending, After::default())
            } else {
                let keeps = cancel.is_some_and(|cancel| !harmless && cancel.is_of_request());
                let change = NamedChange::of(&call, None);
                let of_session = cancel.is_some_and(Cancel::is_of_session);
                let pending = PendingCall::of(keeps, change).of_session(of_session);
                let pending = Arc::new(pending);
                let (id, after) = submit(&mut core, &pending, caller, call, urgent)?;
                (id, pending, after)
            }
        };
        let _watched = self.watch(name, fid, id);
        self.follow_up(after, On::Caller);
        let Some(cancel) = cancel else {
            let result = self.wait(&pending, id, harmless, until, &|| false);
            *at = pending.origin();
            return wanted.unpack(result);
        };
        let (canceller, nudged) = (Arc::clone(self), Arc::clone(&pending));
        let sent = AtomicU64::new(0);
        let _listening = cancel.on_cancel(move || {
            if sent.fetch_add(1, Ordering::SeqCst) == 0 {
                canceller.step(ClientInput::Cancel(id), On::Caller);
                nudged.nudge();
            }
        });
        // With a reachable server, the server ends a cancelled change or lock. Without one the
        // caller does not wait for its return, and it never waits for the answer to a question: a
        // server that hangs must not block killed processes.
        let may_end = || {
            harmless || cancel.is_abandoned() || self.core.lock().phase != SessionPhase::Attached
        };
        let give_up = || cancel.is_cancelled() && may_end();
        let result = self.wait(&pending, id, harmless, until, &give_up);
        *at = pending.origin();
        if pending.has_receipt_or_waits() {
            cancel.hold(pending);
        }
        wanted.unpack(result)
    }

    /// The answer to a predecessor's change that equals this call, if there is one. Waits for it.
    pub fn take_orphan(
        self: &Arc<Self>,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<Reply, CallError>> {
        let (id, pending) = self.core.lock().orphans.take(caller, call)?;
        Some(self.wait(&pending, id, false, self.deadline(None), &|| false))
    }

    /// No request takes a predecessor's change any more.
    pub fn forget_orphans(self: &Arc<Self>) {
        let forgotten = {
            let mut core = self.core.lock();
            let forgotten = core.orphans.forget();
            forgotten.iter().for_each(|(id, _)| drop(core.calls.remove(id)));
            forgotten
        };
        for (id, _) in forgotten.into_iter().filter(|(_, waits)| *waits) {
            self.step(ClientInput::Cancel(id), On::Caller);
        }
    }

    fn wait(
        self: &Arc<Self>,
        pending: &Arc<PendingCall>,
        id: CallId,
        harmless: bool,
        until: Option<Instant>,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Reply, CallError> {
        self.take_part(pending, until, give_up);
        if let Some(result) = pending.take() {
            return result;
        }
        // No thread waits for the answer any more; the machine completes the call alone.
        {
            let mut core = self.core.lock();
            pending.sent_at(dafs::client::place_of(&core.machine, id));
            if !pending.keeps_answer {
                core.calls.remove(&id);
            }
        }
        if let Some(result) = pending.take() {
            return result;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            self.step(ClientInput::Cancel(id), On::Caller);
            return Err(CallError::TimedOut);
        }
        Err(if harmless { CallError::Cancelled } else { CallError::Lost })
    }

    /// Sends calls in one request, or in several if there are too many.
    pub fn chain(
        self: &Arc<Self>,
        caller: &Caller,
        calls: Vec<Call>,
    ) -> Vec<Result<Reply, CallError>> {
        let mut results = Vec::with_capacity(calls.len());
        self.chain_pieces(caller, calls, None, &mut |_, result, _| results.push(result));
        results
    }

    pub fn chain_pieces(
        self: &Arc<Self>,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: Option<&Cancel>,
        take: &mut TakeMember<'_>,
    ) {
        let mut calls = calls.into_iter().peekable();
        let (mut link, mut at) = (ChainLink::default(), 0);
        while calls.peek().is_some() {
            let mut piece: Vec<Call> = calls.by_ref().take(self.chain_max()).collect();
            let next = at + piece.len();
            if link.failed {
                (at..next).for_each(|at| {
                    take(at, Err(CallError::Fault(types::Fault::ChainAborted)), None);
                });
            } else {
                // Only the first calls of a piece can mean a file of the piece before.
                link.put_in(&mut piece);
                self.chain_once(caller, piece, cancel, &mut |within, answer, origin| {
                    link.follow(&answer);
                    take(at + within, answer, origin);
                });
            }
            at = next;
        }
    }

    /// The most calls of one request.
    pub fn chain_max(&self) -> usize {
        match self.core.lock().machine.chain_max() {
            0 => CHAIN_MAX, // there are no credits yet: they are seen when it goes out
            some => some,
        }
    }

    /// Sends calls in one request. Passes on each result as soon as it arrives.
    pub fn chain_once(
        self: &Arc<Self>,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: Option<&Cancel>,
        take: &mut TakeMember<'_>,
    ) {
        let named = |call: &Call| call.files()[0].copied().filter(|fid| *fid != Fid::CURRENT);
        let first_named = calls.iter().find_map(named);
        // The answer of a change is kept until `take` has returned.
        let pend = |call: &Call| {
            PendingCall::of(!call.leaves_nothing(), NamedChange::of(call, first_named))
        };
        let pending: Vec<Arc<PendingCall>> =
            calls.iter().map(|call| Arc::new(pend(call))).collect();
        let first = calls.first().map(|call| (call.traits().name, call.files()[0].copied()));
        let wanted: Vec<Wanted>;
        let (ids, after) = {
            let mut core = self.core.lock();
            if let Err(error) = check_open(&core) {
                return (0..calls.len()).for_each(|at| take(at, Err(error.clone()), None));
            }
            wanted = calls.iter().map(Wanted::of).collect();
            let ids: Vec<CallId> =
                pending.iter().map(|pending| enlist(&mut core, pending)).collect();
            let members = ids.iter().copied().zip(calls).collect();
            let input = ClientInput::SubmitChain { caller: caller.clone(), members };
            (ids, core.step(clock::now(), input, None, None))
        };
        let _watched = first.zip(ids.first()).map(|((name, fid), id)| self.watch(name, fid, *id));
        self.follow_up(after, On::Caller);
        let _listening = cancel.map(|cancel| {
            let nudged = pending.clone();
            cancel.on_cancel(move || nudged.iter().for_each(|pending| pending.nudge()))
        });
        let give_up = || cancel.is_some_and(Cancel::is_cancelled);
        for (at, ((pending, id), wanted)) in pending.iter().zip(ids).zip(wanted).enumerate() {
            let until = self.deadline(cancel);
            let result = self.wait(pending, id, cancel.is_some(), until, &give_up);
            take(at, wanted.unpack(result), pending.origin());
            drop(pending.take_receipt());
        }
    }

    /// Can others read the connection? Then no password may go over it.
    pub fn is_clear_text(&self) -> bool {
        matches!(self.config.endpoint, fabric::Endpoint::Tcp(_))
            && self.config.options.connection.tls.is_none()
    }

    pub fn connection(&self) -> ConnectionReport {
        let tls = self.config.options.connection.tls.as_ref();
        let authorities = tls.map_or_else(Vec::new, |tls| tls.accepted());
        ConnectionReport {
            client: Some(self.config.identity.client),
            is_clear_text: self.is_clear_text(),
            authorities: authorities.iter().map(ToString::to_string).collect(),
        }
    }

    pub fn passes_descriptors(&self) -> bool {
        matches!(self.config.endpoint, fabric::Endpoint::Unix(_))
    }
}

/// The span and the begin of a call; its time is counted when this is dropped.
struct WatchedCall {
    _span: observe::EnteredSpan,
    began: Instant,
}

impl Drop for WatchedCall {
    fn drop(&mut self) {
        observe::record(Wait::ClientCall, self.began.elapsed());
    }
}

fn check_open(core: &ClientCore) -> Result<(), CallError> {
    match &core.phase {
        SessionPhase::Apart | SessionPhase::Attached => Ok(()),
        SessionPhase::Refused(why) => Err(CallError::Refused(why.clone())),
        SessionPhase::Closed => Err(CallError::Closed),
    }
}

/// Gives the machine a call. The rest must be done without the lock.
fn submit(
    core: &mut ClientCore,
    pending: &Arc<PendingCall>,
    caller: &Caller,
    call: Call,
    urgent: bool,
) -> Result<(CallId, After), CallError> {
    submit_direct(core, pending, caller, call, (None, urgent))
}

/// As `submit`, with the region that the call's data is in, or is placed in.
pub(super) fn submit_direct(
    core: &mut ClientCore,
    pending: &Arc<PendingCall>,
    caller: &Caller,
    call: Call,
    (region, urgent): (Option<Region>, bool),
) -> Result<(CallId, After), CallError> {
    check_open(core)?;
    if pending.is_of_session && core.phase != SessionPhase::Attached {
        return Err(CallError::Cancelled);
    }
    let id = enlist(core, pending);
    let input = ClientInput::Submit { id, caller: caller.clone(), call, region, urgent };
    Ok((id, core.step(clock::now(), input, None, None)))
}

fn enlist(core: &mut ClientCore, pending: &Arc<PendingCall>) -> CallId {
    let id = CallId(core.next_call);
    core.next_call += 1;
    let before = core.calls.insert(id, Arc::clone(pending));
    assert!(before.is_none(), "DA-4: the answer of {id:?} would end another call");
    id
}
