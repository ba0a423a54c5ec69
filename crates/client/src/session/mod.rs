//! A session over sockets. The head of `reply_reader` describes how answers reach their threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dafs::limits::CHAIN_MAX;
use dafs::{CallId, ClientConfig, ClientInput, ClientSession};
use observe::names::CLIENT_CALL;
use observe::{Wait, request_span};
use types::{Call, Caller, Fault, Fid, ServerId};

use crate::core::{ClientCore, ReclaimGate, SessionPhase};
use crate::pending::PendingCall;
use crate::shared::{On, Shared};
use crate::unpack::Wanted;
use crate::{CallError, Cancel, Events, Remote, Reply, SessionConfig, clock, threads};

/// Calls that may wait for a credit. Far fewer threads call.
const QUEUE_MAX: usize = 16 << 10;
/// How long closing waits until the detach is sent.
const DETACH_WITHIN: Duration = Duration::from_millis(500);

/// A client's session with one server. Dropping it detaches: locks and holds end.
pub struct Session {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Session {
    /// Attaches to the server.
    ///
    /// # Errors
    /// [`CallError::Refused`] with the reason: the server refuses this client, or no Rialto server
    /// was reached within [`SessionConfig::attach_within`].
    pub fn connect(config: SessionConfig) -> Result<Session, CallError> {
        let machine_config = ClientConfig {
            client: config.identity.client,
            incarnation: config.identity.incarnation,
            display: config.display.clone(),
            pid: std::process::id(),
            queue_max: QUEUE_MAX,
            back_channel: true,
            wallet: config.options.wallet.clone(),
        };
        let until = config.attach_within.map(|within| Instant::now() + within);
        let mut outputs = Vec::new();
        let machine = ClientSession::new(clock::now(), machine_config, &mut outputs);
        let mut core = ClientCore::new(machine);
        let after = core.begin(outputs);
        let shared = Arc::new(Shared::new(config, core));
        shared.follow_up(after, On::Own);
        let mut session = Session { shared: Arc::clone(&shared), threads: Vec::new() };
        session.start("dafs-back", threads::receive_breaks)?;
        session.start("dafs-keeper", threads::keep)?;
        session.start("dafs-connect", threads::connect)?;
        session.wait_attached(until)?;
        Ok(session)
    }

    fn start(&mut self, name: &str, run: fn(&Arc<Shared>)) -> Result<(), CallError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&shared));
        self.threads.push(
            thread.map_err(|error| {
                CallError::Refused(format!("no thread for the session: {error}"))
            })?,
        );
        Ok(())
    }

    fn wait_attached(&self, until: Option<Instant>) -> Result<(), CallError> {
        let mut core = self.shared.core.lock();
        loop {
            match &core.phase {
                SessionPhase::Attached => return Ok(()),
                SessionPhase::Refused(why) => return Err(CallError::Refused(why.clone())),
                SessionPhase::Closed => return Err(CallError::Closed),
                SessionPhase::Apart => {}
            }
            let timed_out = match until {
                None => {
                    self.shared.changed.wait(&mut core);
                    false
                }
                Some(until) => self.shared.changed.wait_until(&mut core, until).timed_out(),
            };
            if timed_out {
                let endpoint = &self.shared.config.endpoint;
                let why = core.last_error.clone().unwrap_or_else(|| "no answer".to_owned());
                return Err(CallError::Refused(format!("{endpoint} cannot be reached: {why}")));
            }
        }
    }

    /// Does the server support parts of volumes with packed bodies?
    pub fn takes_packed(&self) -> bool {
        self.shared.features.lock().has(dafs::Features::PACKED)
    }

    /// Detaches, even if others refer to the session: the server knows at once, so that no other
    /// client waits for the rest of the lease. Every call fails from now on. Repeating it does
    /// nothing.
    pub fn detach(&self) {
        self.shared.step(ClientInput::Detach, On::Own);
        let until = Instant::now() + DETACH_WITHIN;
        let mut core = self.shared.core.lock();
        while core.phase == SessionPhase::Attached
            && !self.shared.changed.wait_until(&mut core, until).timed_out()
        {}
        drop(core);
        self.shared.close_all(&CallError::Closed);
    }

    /// Ends without a message, as a killed process does: the server must detect it.
    pub fn vanish(mut self) {
        self.shared.close_all(&CallError::Closed);
        self.join();
    }

    /// Cuts the connections, as a network does. The session goes on over new ones.
    pub fn cut_connections(&self) {
        for channel in &self.shared.core.lock().channels {
            channel.connection.shut_down();
        }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the session panicked");
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.detach();
        self.join();
    }
}

impl Remote for Session {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        if matches!(call, Call::Auth { .. }) && self.shared.is_clear_text() {
            return Err(CallError::Fault(Fault::Unsupported));
        }
        self.shared.pass_gate(cancel)?;
        self.shared.call(caller, call, cancel)
    }

    fn call_urgently(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.shared.pass_gate(cancel)?;
        self.shared.ask(caller, call, cancel, true)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        // Delegated changes are a part of the reclaim after a restart.
        let claims = matches!(calls.first(), Some(Call::Delegated { .. }));
        match if claims { Ok(()) } else { self.shared.pass_gate(None) } {
            Ok(()) => self.shared.chain(caller, calls),
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn chain_each(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        let fits = match self.shared.pass_gate(None) {
            Ok(()) => calls.len() <= self.shared.chain_max(),
            Err(error) => return (0..calls.len()).for_each(|at| take(at, Err(error.clone()))),
        };
        if fits {
            self.shared.chain_once(caller, calls, None, take);
        } else {
            self.shared
                .chain(caller, calls)
                .into_iter()
                .enumerate()
                .for_each(|(at, result)| take(at, result));
        }
    }

    fn chain_each_until(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: &Cancel,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        match self.shared.pass_gate(Some(cancel)) {
            Ok(()) => self.shared.chain_pieces(caller, calls, Some(cancel), take),
            Err(error) => (0..calls.len()).for_each(|at| take(at, Err(error.clone()))),
        }
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.shared.set_events(&events);
    }

    fn passes_descriptors(&self) -> bool {
        self.shared.passes_descriptors()
    }

    fn stands(&self) -> bool {
        self.shared.core.lock().phase == SessionPhase::Attached
    }

    fn found_at(&self, server: ServerId, addresses: &[SocketAddr]) {
        self.shared.places.lock().learn(server, addresses);
    }

    fn detach(&self) {
        Session::detach(self);
    }
}

impl Shared {
    /// Waits while locks are reclaimed after a restart of the server.
    fn pass_gate(self: &Arc<Self>, cancel: Option<&Cancel>) -> Result<(), CallError> {
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
        let mut core = self.core.lock();
        while core.gate != ReclaimGate::Open {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            self.changed.wait(&mut core);
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
        self.ask(caller, call, cancel, false)
    }

    fn ask(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        urgent: bool,
    ) -> Result<Reply, CallError> {
        // One deadline for all attempts: a server that ends every session must not block the caller
        // for ever.
        let until = self.deadline();
        if !call.leaves_nothing() {
            return self.call_once(caller, call, cancel, urgent, until);
        }
        loop {
            match self.call_once(caller, call.clone(), cancel, urgent, until) {
                Err(CallError::Lost) if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(CallError::TimedOut);
                }
                Err(CallError::Lost) if !cancel.is_some_and(Cancel::is_cancelled) => {}
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

    /// The deadline of a call that begins now.
    fn deadline(&self) -> Option<Instant> {
        self.config.call_within.map(|within| Instant::now() + within)
    }

    fn call_once(
        self: &Arc<Self>,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        urgent: bool,
        until: Option<Instant>,
    ) -> Result<Reply, CallError> {
        let pending = Arc::new(PendingCall::default());
        let (harmless, wanted) = (call.leaves_nothing(), Wanted::of(&call));
        let (name, fid) = (call.traits().name, call.files()[0].copied());
        let (id, after) = {
            let mut core = self.core.lock();
            check_open(&core)?;
            let id = enlist(&mut core, &pending);
            let input =
                ClientInput::Submit { id, caller: caller.clone(), call, region: None, urgent };
            (id, core.step(clock::now(), input, None, None))
        };
        let _watched = self.watch(name, fid, id);
        self.follow_up(after, On::Caller);
        let Some(cancel) = cancel else {
            return wanted.unpack(self.wait(&pending, id, harmless, until, &|| false));
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
        let give_up = || {
            cancel.is_cancelled() && (harmless || self.core.lock().phase != SessionPhase::Attached)
        };
        wanted.unpack(self.wait(&pending, id, harmless, until, &give_up))
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
        let mut core = self.core.lock();
        core.calls.remove(&id);
        drop(core);
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
        self.chain_pieces(caller, calls, None, &mut |_, result| results.push(result));
        results
    }

    fn chain_pieces(
        self: &Arc<Self>,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: Option<&Cancel>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        let mut calls = calls.into_iter().peekable();
        let (mut link, mut at) = (ChainLink::default(), 0);
        while calls.peek().is_some() {
            let mut piece: Vec<Call> = calls.by_ref().take(self.chain_max()).collect();
            let next = at + piece.len();
            if link.failed {
                (at..next)
                    .for_each(|at| take(at, Err(CallError::Fault(types::Fault::ChainAborted))));
            } else {
                // Only the first calls of a piece can mean a file of the piece before.
                link.put_in(&mut piece);
                self.chain_once(caller, piece, cancel, &mut |within, answer| {
                    link.follow(&answer);
                    take(at + within, answer);
                });
            }
            at = next;
        }
    }

    /// The most calls of one request.
    fn chain_max(&self) -> usize {
        match self.core.lock().machine.chain_max() {
            0 => CHAIN_MAX, // there are no credits yet: they are seen when it goes out
            some => some,
        }
    }

    /// Sends calls in one request. Passes on each result as soon as it arrives.
    fn chain_once(
        self: &Arc<Self>,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: Option<&Cancel>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        let pending: Vec<Arc<PendingCall>> = calls.iter().map(|_| Arc::default()).collect();
        let first = calls.first().map(|call| (call.traits().name, call.files()[0].copied()));
        let wanted: Vec<Wanted>;
        let (ids, after) = {
            let mut core = self.core.lock();
            if let Err(error) = check_open(&core) {
                return (0..calls.len()).for_each(|at| take(at, Err(error.clone())));
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
            take(
                at,
                wanted.unpack(self.wait(pending, id, cancel.is_some(), self.deadline(), &give_up)),
            );
        }
    }

    /// Can others read the connection? Then no password may go over it.
    fn is_clear_text(&self) -> bool {
        matches!(self.config.endpoint, fabric::Endpoint::Tcp(_))
            && self.config.options.connection.tls.is_none()
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

/// The state that one piece of a chain passes to the next.
#[derive(Default)]
pub(crate) struct ChainLink {
    current: Option<Fid>,
    failed: bool,
}

impl ChainLink {
    pub fn follow(&mut self, answer: &Result<Reply, CallError>) {
        match answer {
            Ok(reply) => self.current = reply.answer.current().or(self.current),
            Err(_) => self.failed = true,
        }
    }

    /// Inserts the current file, up to the first call whose answer names another one.
    pub fn put_in(&self, piece: &mut [Call]) {
        let Some(current) = self.current else { return };
        for call in piece {
            for fid in call.fids_mut().into_iter().filter(|fid| **fid == Fid::CURRENT) {
                *fid = current;
            }
            if call.traits().answer.has_current() {
                return;
            }
        }
    }
}

fn check_open(core: &ClientCore) -> Result<(), CallError> {
    match &core.phase {
        SessionPhase::Apart | SessionPhase::Attached => Ok(()),
        SessionPhase::Refused(why) => Err(CallError::Refused(why.clone())),
        SessionPhase::Closed => Err(CallError::Closed),
    }
}

fn enlist(core: &mut ClientCore, pending: &Arc<PendingCall>) -> CallId {
    let id = CallId(core.next_call);
    core.next_call += 1;
    core.calls.insert(id, Arc::clone(pending));
    id
}
