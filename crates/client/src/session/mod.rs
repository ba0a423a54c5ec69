//! A session over sockets.
//!
//! Model, from below: [`core`] has the protocol's machine with its tables under one lock, and does
//! no I/O. `channel` is one connection, `channel_lane` the shared memory beside it. `shared` is
//! common to all threads, and does the actions that a step of the machine requires. `lane_reader`
//! receives from shared memory, `reply_reader` says which thread receives; `calls` sends calls and
//! waits for their answers. `reclaim` and `threads` are the session's own threads. A module imports
//! only those before it.

mod calls;
mod channel;
mod channel_lane;
mod core;
mod lane_reader;
mod orphans;
mod pending;
mod placed;
mod reader_role;
mod reclaim;
mod regions;
mod reply_reader;
mod server_addresses;
mod shared;
mod threads;
mod unpack;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dafs::{ClientConfig, ClientInput, ClientOutput, ClientSession, Region};
use fabric::tls::RefusedKeys;
use mem::arena::{Arena, Buffer};
use types::{Call, Caller, Fault, ReplyAddress, ServerId, ServerRoles, VolumeId};

use self::core::{ClientCore, SessionPhase};
use self::pending::{NamedChange, PendingCall};
use self::shared::{On, Shared};
use crate::Submitted;
use crate::kept::{Legacy, Place};
use crate::{
    Association, CallError, Cancel, CompletionGroup, ConnectionReport, DoneChange, Events, Remote,
    Reply, SessionConfig, clock,
};

/// Calls that may wait for a credit. Far fewer threads call.
const QUEUE_MAX: usize = 16 << 10;
/// How long closing waits until the detach is sent.
const DETACH_WITHIN: Duration = Duration::from_millis(500);

/// A client's session with one server. Dropping it detaches: locks and holds end.
pub struct Session {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// It was a predecessor's.
    resumed: bool,
}

impl Session {
    /// Attaches to the server. With a keep ([`crate::ClientOptions::keep`]) that has a session of
    /// the same incarnation with the server, it resumes that session, and sends the predecessor's
    /// requests again that were not answered. Then:
    ///
    /// - It succeeds also if the server is away. The session's calls wait for it.
    /// - All events wait until [`Remote::restored`].
    /// - Changes of repeated requests get the predecessor's answers ([`crate::Cancel`]) until
    ///   [`Remote::forget_orphans`].
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
            keeps: config.options.keep.is_some(),
            wallet: config.options.wallet.clone(),
        };
        let until = config.attach_within.map(|within| Instant::now() + within);
        let (place, legacy) = open_place(&config).unzip();
        let mut legacy: Legacy = legacy.unwrap_or_default();
        let mut outputs = Vec::new();
        let machine = succeed(&machine_config, &mut legacy, &mut outputs);
        let mut core = ClientCore::new(machine);
        core.place = place;
        core.inherit(legacy);
        let (resumes, waits) = (core.is_restoring, core.orphans.any_waits());
        let after = core.begin(outputs);
        let shared = Arc::new(Shared::new(config, core, reclaim::begin));
        shared.follow_up(after, On::Own);
        let mut session =
            Session { shared: Arc::clone(&shared), threads: Vec::new(), resumed: resumes };
        session.start("dafs-back", threads::receive_breaks)?;
        session.start("dafs-keeper", threads::keep)?;
        session.start("dafs-connect", threads::connect)?;
        if waits {
            session.start("dafs-orphans", threads::receive_orphans)?;
        }
        match session.wait_attached(until) {
            Err(CallError::TimedOut) if resumes => {
                tracing::warn!(
                    endpoint = %shared.config.endpoint,
                    why = shared.why_apart(),
                    "the server of a session to be resumed is away; its calls wait"
                );
            }
            Err(CallError::TimedOut) => {
                let (endpoint, why) = (&shared.config.endpoint, shared.why_apart());
                return Err(CallError::Refused(format!("{endpoint} cannot be reached: {why}")));
            }
            attached => attached?,
        }
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
                return Err(CallError::TimedOut);
            }
        }
    }

    /// Does the server support parts of volumes with packed bodies?
    pub fn takes_packed(&self) -> bool {
        self.shared.features.lock().has(dafs::Features::PACKED)
    }

    /// Makes memory known that direct operations may name; its handle. The server maps it as soon
    /// as a connection allows that; until then the bytes go over the socket.
    pub fn add_region(&self, arena: &Arc<Arena>) -> u32 {
        let (handle, is_new) = self.shared.regions.handle(arena);
        if !is_new {
            return handle;
        }
        self.shared.regions.take_given_up().into_iter().for_each(|over| self.end_region(over));
        let (operations, session) = {
            let core = self.shared.core.lock();
            (core.operations(), core.machine.id())
        };
        if let (Some(channel), Some(session)) = (operations, session)
            && let Some(lane) = &channel.lane
        {
            match lane.add_region(session, (handle, arena.memory().file())) {
                Ok(Some(frame)) => {
                    channel.push_with(frame);
                    channel.flush();
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "a region's bytes go over the socket"),
            }
        }
        handle
    }

    /// No operation names the memory any more.
    pub fn end_region(&self, handle: u32) {
        self.shared.regions.remove(handle);
        let (operations, session) = {
            let core = self.shared.core.lock();
            (core.operations(), core.machine.id())
        };
        if let (Some(channel), Some(session)) = (operations, session)
            && let Some(frame) =
                channel.lane.as_ref().and_then(|lane| lane.end_region(session, handle))
        {
            channel.push_with((frame, None));
            channel.flush();
        }
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
        self.leave();
        self.join();
    }

    /// Ends without a message, even if others refer to the session: every call fails from now on,
    /// and a successor can resume the session.
    pub fn leave(&self) {
        self.shared.core.lock().orphans.leave();
        self.shared.close_all(&CallError::Closed);
    }

    /// Cuts the connections, as a network does. The session goes on over new ones.
    pub fn cut_connections(&self) {
        for channel in &self.shared.core.lock().channels {
            channel.connection.shut_down();
        }
    }

    fn submit_as(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
        of_session: bool,
    ) -> Result<Submitted, CallError> {
        self.shared.pass_gate(None)?;
        let region = memory.map(|memory| Region {
            handle: self.add_region(memory.arena()),
            offset: memory.offset() as u64,
        });
        let change = NamedChange::of(&call, None);
        let pending = PendingCall::in_group(into, memory, change).of_session(of_session);
        let pending = Arc::new(pending);
        let submitted = {
            let mut core = self.shared.core.lock();
            calls::submit_direct(&mut core, &pending, caller, call, (region, false))
        };
        let (id, after) = submitted?;
        self.shared.follow_up(after, On::Caller);
        Ok(Submitted(Some(id)))
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the session panicked");
            }
        }
    }
}

/// The session's place in the keep, with what a predecessor left there.
fn open_place(config: &SessionConfig) -> Option<(Place, Legacy)> {
    let keep = config.options.keep.as_ref()?;
    let client = (config.identity.client, config.identity.incarnation);
    Place::open(keep, client, config.server, &config.endpoint)
        .inspect_err(|error| {
            tracing::warn!(
                %error,
                consequence = "the session ends with this process",
                "no room for what a successor of this process needs"
            );
        })
        .ok()
}

/// The machine of a predecessor's session, or a new one.
fn succeed(
    config: &ClientConfig,
    legacy: &mut Legacy,
    outputs: &mut Vec<ClientOutput>,
) -> ClientSession {
    if let Some(kept) = &legacy.session {
        match kept.succeed(clock::now(), config.clone(), outputs) {
            Ok(machine) => return machine,
            Err(error) => tracing::warn!(
                %error,
                consequence = "a new session begins; locks and unanswered changes of the process \
                    before are lost",
                "a session of the process before cannot be resumed"
            ),
        }
    }
    legacy.lost.extend(legacy.session.take().into_iter().flat_map(|kept| kept.requests));
    ClientSession::new(clock::now(), config.clone(), outputs)
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        // The next process needs what this one found, if that could not go on with it.
        if self.shared.core.lock().has_legacy() {
            self.leave();
        } else {
            self.detach();
        }
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
        self.call_at(caller, call, cancel, &mut None)
    }

    fn call_urgently(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.shared.pass_gate(cancel)?;
        self.shared.ask(caller, call, cancel, true, &mut None)
    }

    fn call_at(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        at: &mut Option<ReplyAddress>,
    ) -> Result<Reply, CallError> {
        if matches!(call, Call::Auth { .. }) && self.shared.is_clear_text() {
            return Err(CallError::Fault(Fault::Unsupported));
        }
        self.shared.pass_gate(cancel)?;
        self.shared.ask(caller, call, cancel, false, at)
    }

    fn submit(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        self.submit_as(caller, call, memory, into, false)
    }

    fn submit_in_session(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        self.submit_as(caller, call, memory, into, true)
    }

    fn cancel_submitted(&self, submitted: Submitted) {
        if let Submitted(Some(id)) = submitted {
            self.shared.step(ClientInput::Cancel(id), On::Caller);
        }
    }

    fn wait_for(&self, group: &Arc<CompletionGroup>, least: usize, until: Option<Instant>) {
        self.shared.take_part_in(group, least, until);
    }

    fn look_into_lane(&self) {
        reply_reader::look_into_lane(&self.shared);
    }

    fn has_lane(&self) -> bool {
        let operations = self.shared.core.lock().operations();
        operations.is_some_and(|channel| channel.lane.as_ref().is_some_and(|lane| lane.is_open()))
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
            self.shared.chain_once(caller, calls, None, &mut |at, result, _| take(at, result));
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
        self.chain_each_at(caller, calls, cancel, &mut |at, result, _| take(at, result));
    }

    fn chain_each_at(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: &Cancel,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>, Option<ReplyAddress>),
    ) {
        // Delegated changes are part of the reclaim, so they do not wait for its end.
        let claims = matches!(calls.first(), Some(Call::Delegated { .. }));
        let passed = if claims { Ok(()) } else { self.shared.pass_gate(Some(cancel)) };
        match passed {
            Ok(()) => self.shared.chain_pieces(caller, calls, Some(cancel), take),
            Err(error) => (0..calls.len()).for_each(|at| take(at, Err(error.clone()), None)),
        }
    }

    fn withdraw_changes(&self, volume: VolumeId) {
        self.shared.core.lock().withdraw_changes(volume);
    }

    fn take_changes(&self, volume: VolumeId) -> Vec<DoneChange> {
        self.shared.core.lock().take_changes(volume)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.shared.set_events(&events);
    }

    fn passes_descriptors(&self) -> bool {
        self.shared.passes_descriptors()
    }

    fn refuse_keys(&self, refused: &RefusedKeys) {
        // Their readers notice, and the next connections are refused in their handshakes.
        let refused = |channel: &Arc<channel::FrameChannel>| {
            channel.server_key.is_some_and(|key| refused.has(&key))
        };
        let channels = {
            let core = self.shared.core.lock();
            [core.operations(), core.back()]
        };
        let ended = channels.into_iter().flatten().filter(refused);
        ended.for_each(|channel| channel.connection.shut_down());
    }

    fn server_roles(&self) -> ServerRoles {
        let operations = self.shared.core.lock().operations();
        operations.map_or(ServerRoles::NONE, |channel| channel.server_roles)
    }

    fn connection(&self) -> ConnectionReport {
        self.shared.connection()
    }

    fn stands(&self) -> bool {
        self.shared.core.lock().phase == SessionPhase::Attached
    }

    fn association(&self) -> Association {
        Association { places: 0, sessions: self.shared.core.lock().association }
    }

    fn found_at(&self, server: ServerId, addresses: &[SocketAddr]) {
        self.shared.places.lock().learn(server, addresses);
        if let Some(place) = &self.shared.core.lock().place {
            place.found_at(server, addresses);
        }
    }

    fn is_resumed(&self) -> bool {
        self.resumed
    }

    fn restored(&self) {
        let after = self.shared.core.lock().restored();
        self.shared.follow_up(after, On::Caller);
    }

    fn take_orphan(&self, caller: &Caller, call: &Call) -> Option<Result<Reply, CallError>> {
        self.shared.take_orphan(caller, call)
    }

    fn forget_orphans(&self) {
        self.shared.forget_orphans();
    }

    fn address(&self) -> String {
        self.shared.config.endpoint.to_string()
    }

    fn detach(&self) {
        Session::detach(self);
    }
}
