//! A server that follows the script of a test: it has the protocol's machines of crate `dafs`, and
//! no service behind them.
//!
//! Model: a call that comes in is answered at once if one of the *habits* answers it
//! ([`ScriptedServer::always`]); otherwise it waits for the test, which takes it with
//! [`ScriptedServer::next`] and answers it, loses the answer, or lets it wait. The server records
//! every answer, as a reply cache does, and answers a repeated call from the record. Everything
//! waits for conditions, with one limit ([`LIMIT`]) for what never comes.
#![allow(dead_code)] // each test program uses a part of it
#![allow(clippy::unwrap_used)] // as in tests

mod calls;
pub mod events;

pub use calls::*;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{ClientIdentity, ClientOptions, Endpoint, Session, SessionConfig, clock};
use dafs::credentials::{CredentialVerifier, Trusting};
use dafs::message::{Attach, Message};
use dafs::{
    ChannelId, Features, Frame, FrameHeader, Greeting, GreetingInput, GreetingOutput, ServerInput,
    ServerOutput, ServerSession, SessionSetup, Terms,
};
use fabric::{
    Connection, ConnectionOptions, Extent, Filled, FrameLimits, Inbox, Listener, OutFrame, Outbox,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use types::{
    Answer, BootVerifier, BreakId, BreakItem, Call, Caller, Fault, Fid, ReplyAddress, SessionId,
};

/// How long a test waits for what must come.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A call that waits for the test.
#[derive(Clone, Debug)]
pub struct Received {
    pub origin: ReplyAddress,
    pub caller: Caller,
    pub call: Call,
    pub repeated: bool,
    pub chained: bool,
}

type Outcome = Result<Answer, Fault>;
type Habit = Box<dyn Fn(&Call) -> Option<Outcome> + Send>;

/// The fate of the next frames of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// They are sent.
    Sent,
    /// They are lost.
    Lost,
    /// Half of the next one is sent, and then the connection ends.
    Half,
}

struct Link {
    connection: Connection,
    outbox: Mutex<Outbox>,
    fate: Mutex<Fate>,
}

impl Link {
    fn push(&self, frame: Frame, descriptor: Option<OwnedFd>) {
        let Frame { header, message, payload } = frame;
        let fate = *self.fate.lock();
        match fate {
            Fate::Sent => {
                self.put(OutFrame::new(header.to_bytes(), message, payload, descriptor));
            }
            Fate::Lost => {}
            Fate::Half => {
                let whole = [&header.to_bytes()[..], &message, &payload].concat();
                let half = whole.len() / 2;
                self.put(OutFrame::raw(Bytes::from(whole).slice(..half)));
                *self.fate.lock() = Fate::Lost;
                self.connection.shut_down();
            }
        }
    }

    fn put(&self, frame: OutFrame) {
        let mut outbox = self.outbox.lock();
        outbox.push(frame);
        // The client reads: a socket's buffer holds all frames of these tests.
        while let Ok(false) = outbox.flush(&self.connection) {
            let _ = self.connection.wait(fabric::WaitFor::Send, None);
        }
    }
}

/// A session as the server has it.
struct Served {
    machine: ServerSession,
    /// By slot: the last answered request and its answer.
    record: HashMap<u32, (u64, Outcome)>,
}

/// The state of the server, which tests may look at.
#[derive(Default)]
pub struct ServerState {
    instance: u64,
    slots: u32,
    credits: Option<u32>,
    down: bool,
    stopping: bool,
    refusal: Option<Fault>,
    door: Option<Arc<dyn CredentialVerifier>>,
    sessions: HashMap<SessionId, Served>,
    /// Of the instance before: what sessions that come back have recorded.
    former: HashMap<SessionId, HashMap<u32, (u64, Outcome)>>,
    links: HashMap<ChannelId, Arc<Link>>,
    channels: u64,
    breaks: u64,
    habits: Vec<Habit>,
    waiting: VecDeque<Received>,
    in_progress: usize,
    /// Executions, also those that a habit answered; repeats that the record answered are none.
    pub executed: Vec<Call>,
    /// The most calls that were in progress together.
    pub in_progress_max: usize,
    pub cancelled: Vec<ReplyAddress>,
    pub acknowledged: Vec<(BreakId, Vec<Fid>)>,
    /// Connections that were accepted, attaches and binds.
    pub connections: usize,
    pub attached: Vec<Attach>,
    pub bound: usize,
    pub detached: usize,
    /// Repeats that were answered from the record.
    pub from_record: usize,
}

impl ServerState {
    /// How often a call of this kind was executed.
    pub fn count(&self, is: impl Fn(&Call) -> bool) -> usize {
        self.executed.iter().filter(|call| is(call)).count()
    }

    /// How many connections there are.
    pub fn links_now(&self) -> usize {
        self.links.len()
    }

    fn verifier(&self) -> BootVerifier {
        BootVerifier(1000 + self.instance)
    }
}

struct Core {
    state: Mutex<ServerState>,
    changed: Condvar,
    stop: OwnedFd,
}

/// See the head of the file. Dropping it ends its connections.
pub struct ScriptedServer {
    core: Arc<Core>,
    endpoint: Endpoint,
    acceptor: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl ScriptedServer {
    /// A server at a socket of its own.
    pub fn start() -> ScriptedServer {
        ScriptedServer::with_slots(64, None)
    }

    /// With this many slots, and fewer credits at first.
    pub fn with_slots(slots: u32, credits: Option<u32>) -> ScriptedServer {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Unix(dir.path().join("socket"));
        let listener = Listener::bind(&endpoint, ConnectionOptions::default()).unwrap();
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let state = ServerState { instance: 1, slots, credits, ..ServerState::default() };
        let core = Arc::new(Core { state: Mutex::new(state), changed: Condvar::new(), stop });
        let accepting = Arc::clone(&core);
        let acceptor = std::thread::spawn(move || accepting.accept(&listener));
        ScriptedServer { core, endpoint, acceptor: Some(acceptor), _dir: dir }
    }

    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// The settings of a session with it.
    pub fn config(&self) -> SessionConfig {
        SessionConfig {
            options: ClientOptions::default(),
            attach_within: Some(LIMIT),
            ..SessionConfig::new(self.endpoint(), ClientIdentity::fleeting())
        }
    }

    /// A session with it.
    pub fn session(&self) -> Arc<Session> {
        Arc::new(Session::connect(self.config()).unwrap())
    }

    /// Calls that `habit` answers do not wait for the test. The newest habit is asked first.
    pub fn always(&self, habit: impl Fn(&Call) -> Option<Outcome> + Send + 'static) {
        self.core.state.lock().habits.insert(0, Box::new(habit));
    }

    /// Verifies credentials from the next attach on.
    pub fn verify_by(&self, door: Arc<dyn CredentialVerifier>) {
        self.core.state.lock().door = Some(door);
    }

    /// Refuses attaches with this fault, or accepts them again.
    pub fn refuse(&self, fault: Option<Fault>) {
        self.core.state.lock().refusal = fault;
    }

    /// Waits until `is` holds.
    pub fn wait(&self, what: &str, is: impl Fn(&ServerState) -> bool) {
        self.core.wait(what, |state| is(state).then_some(()));
    }

    /// Looks at the state.
    pub fn look<R>(&self, at: impl FnOnce(&ServerState) -> R) -> R {
        at(&self.core.state.lock())
    }

    /// The next call that no habit answers.
    pub fn next(&self) -> Received {
        self.core.wait("a call", |state| state.waiting.pop_front())
    }

    /// The next call that `is` chooses, whatever waits before it.
    pub fn next_of(&self, is: impl Fn(&Call) -> bool) -> Received {
        self.core.wait("a call of this kind", |state| {
            let at = state.waiting.iter().position(|one| is(&one.call))?;
            state.waiting.remove(at)
        })
    }

    /// How many calls wait for the test.
    pub fn waiting(&self) -> usize {
        self.core.state.lock().waiting.len()
    }

    /// Answers a call.
    pub fn answer(&self, to: &Received, outcome: impl Into<GivenOutcome>) {
        self.core.answer(to, outcome.into().0, None);
    }

    /// Answers a call with a descriptor beside the answer.
    pub fn answer_with_body(&self, to: &Received, answer: Answer, body: OwnedFd) {
        self.core.answer(to, Ok(answer), Some(body));
    }

    /// Answers a call, but the connections end before the answer is out.
    pub fn answer_and_lose(&self, to: &Received, outcome: impl Into<GivenOutcome>) {
        self.core.set_fate(Fate::Lost);
        self.core.answer(to, outcome.into().0, None);
        self.cut();
    }

    /// Answers a call, but the connection ends in the middle of the answer.
    pub fn answer_by_half(&self, to: &Received, outcome: impl Into<GivenOutcome>) {
        self.core.set_fate(Fate::Half);
        self.core.answer(to, outcome.into().0, None);
    }

    /// Ends all connections, as a network does.
    pub fn cut(&self) {
        self.core.cut(&self.core.state.lock());
    }

    /// Ends all connections, and serves no other one until [`Self::come_up`].
    pub fn go_down(&self) {
        let mut state = self.core.state.lock();
        state.down = true;
        self.core.cut(&state);
        drop(state);
        self.wait("the connections' end", |state| state.links.is_empty());
    }

    pub fn come_up(&self) {
        self.core.state.lock().down = false;
    }

    /// A new server instance with another boot verifier. It knows the sessions and their recorded
    /// answers, unless it `forgets` them. Calls in progress are lost.
    pub fn restart(&self, forgets: bool) {
        let mut state = self.core.state.lock();
        state.instance += 1;
        let sessions = std::mem::take(&mut state.sessions);
        state.former = match forgets {
            true => HashMap::new(),
            false => sessions.into_iter().map(|(id, served)| (id, served.record)).collect(),
        };
        state.waiting.clear();
        state.in_progress = 0;
        self.core.cut(&state);
        state.links.clear();
    }

    /// Ends all sessions, as if their leases had ended.
    pub fn end_sessions(&self) {
        let mut state = self.core.state.lock();
        let sessions: Vec<SessionId> = state.sessions.keys().copied().collect();
        for session in sessions {
            self.core.step(&mut state, session, ServerInput::End(Fault::Expired), None);
            state.sessions.remove(&session);
        }
        state.waiting.clear();
        state.in_progress = 0;
    }

    /// Breaks promises of all sessions.
    pub fn break_promises(&self, items: &[BreakItem]) -> BreakId {
        let mut state = self.core.state.lock();
        state.breaks += 1;
        let id = BreakId(state.breaks);
        let sessions: Vec<SessionId> = state.sessions.keys().copied().collect();
        for session in sessions {
            let input = ServerInput::Break { id, items: items.to_vec() };
            self.core.step(&mut state, session, input, None);
        }
        id
    }

    /// Sets the number of credits.
    pub fn grant(&self, credits: u32) {
        let mut state = self.core.state.lock();
        let sessions: Vec<SessionId> = state.sessions.keys().copied().collect();
        for session in sessions {
            self.core.step(&mut state, session, ServerInput::Grant(credits), None);
        }
    }

    /// The boot verifier of the present instance.
    pub fn verifier(&self) -> BootVerifier {
        self.core.state.lock().verifier()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        (state.stopping, state.down) = (true, true);
        self.core.cut(&state);
        drop(state);
        let _ = rustix::io::write(&self.core.stop, &1_u64.to_ne_bytes());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// An answer or a fault, as tests write it.
pub struct GivenOutcome(Outcome);

impl From<Answer> for GivenOutcome {
    fn from(answer: Answer) -> Self {
        GivenOutcome(Ok(answer))
    }
}

impl From<Fault> for GivenOutcome {
    fn from(fault: Fault) -> Self {
        GivenOutcome(Err(fault))
    }
}

impl Core {
    fn wait<R>(&self, what: &str, is: impl Fn(&mut ServerState) -> Option<R>) -> R {
        let until = Instant::now() + LIMIT;
        let mut state = self.state.lock();
        loop {
            if let Some(found) = is(&mut state) {
                return found;
            }
            let over = self.changed.wait_until(&mut state, until).timed_out();
            assert!(!over, "{what} did not come; executed: {:?}", state.executed);
        }
    }

    fn cut(&self, state: &ServerState) {
        state.links.values().for_each(|link| link.connection.shut_down());
    }

    fn set_fate(&self, fate: Fate) {
        self.state.lock().links.values().for_each(|link| *link.fate.lock() = fate);
    }

    fn answer(&self, to: &Received, outcome: Outcome, body: Option<OwnedFd>) {
        let mut state = self.state.lock();
        state.in_progress = state.in_progress.saturating_sub(1);
        if let Some(served) = state.sessions.get_mut(&to.origin.session) {
            served.record.insert(to.origin.slot, (to.origin.request, outcome.clone()));
        }
        let descriptor = body.is_some();
        let input = ServerInput::Answered { origin: to.origin, result: outcome, descriptor };
        self.step(&mut state, to.origin.session, input, body);
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            let mut fds =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            let mut state = self.state.lock();
            if state.stopping {
                return;
            }
            let Ok(Some(connection)) = listener.accept() else { continue };
            state.connections += 1;
            self.changed.notify_all();
            if state.down {
                continue;
            }
            state.channels += 1;
            let id = ChannelId(state.channels);
            let (outbox, fate) = (Mutex::new(Outbox::new()), Mutex::new(Fate::Sent));
            let link = Arc::new(Link { connection, outbox, fate });
            state.links.insert(id, Arc::clone(&link));
            let core = Arc::clone(self);
            std::thread::spawn(move || core.serve(id, &link));
        }
    }

    /// Reads a connection to its end.
    fn serve(&self, id: ChannelId, link: &Link) {
        let limits = FrameLimits { message: MESSAGE_BYTES_MAX, payload: PAYLOAD_BYTES_MAX };
        let mut inbox = Inbox::new(measure, limits, false);
        let session = self.greet(id, link, &mut inbox);
        if let Some(session) = session {
            while let Some(frame) = receive(link, &mut inbox) {
                let mut state = self.state.lock();
                let input = ServerInput::Arrived { channel: id, frame };
                self.step(&mut state, session, input, None);
            }
        }
        let mut state = self.state.lock();
        // A restart has taken the links of the instance before.
        if state.links.remove(&id).is_some()
            && let Some(session) = session
        {
            self.step(&mut state, session, ServerInput::Lost { channel: id }, None);
        }
        link.connection.shut_down();
        self.changed.notify_all();
    }

    /// The hello, and the attach or bind; returns the session.
    fn greet(&self, id: ChannelId, link: &Link, inbox: &mut Inbox) -> Option<SessionId> {
        let features = Features::DELEGATIONS.with(Features::DESCRIPTORS);
        let mut out = Vec::new();
        let mut greeting = Greeting::new(clock::now(), Greeting::offer(features), &mut out);
        let mut terms = None;
        loop {
            out.clear();
            let wanted = greeting.bytes_wanted();
            if wanted > 0 {
                let bytes = inbox.take_raw(wanted).ok()?.to_vec();
                if bytes.is_empty() {
                    match inbox.fill(&link.connection, true) {
                        Ok(Filled::Some | Filled::Nothing) => continue,
                        Ok(Filled::End) | Err(_) => return None,
                    }
                }
                greeting.step(clock::now(), GreetingInput::Bytes(&bytes), &mut out).ok()?;
            } else {
                let frame = receive(link, inbox)?;
                greeting.step(clock::now(), GreetingInput::Arrived(frame), &mut out).ok()?;
            }
            for output in out.drain(..) {
                match output {
                    GreetingOutput::Send(bytes) => link.put(OutFrame::raw(bytes)),
                    GreetingOutput::Agreed(agreed) => terms = Some(agreed),
                    GreetingOutput::Attach(attach) => {
                        return self.attach(id, link, terms?, attach);
                    }
                    GreetingOutput::Bind(bind) => {
                        let mut state = self.state.lock();
                        state.bound += 1;
                        let (terms, key) = (terms?, bind.key);
                        let input = ServerInput::Bind { channel: id, terms, key };
                        self.step(&mut state, bind.session, input, None);
                        return Some(bind.session);
                    }
                    GreetingOutput::WakeAt(_) => {}
                }
            }
        }
    }

    fn attach(
        &self,
        id: ChannelId,
        link: &Link,
        terms: Terms,
        attach: Attach,
    ) -> Option<SessionId> {
        let mut state = self.state.lock();
        let resume = attach.resume;
        state.attached.push(attach);
        if let Some(fault) = state.refusal {
            link.push(Message::goodbye(&terms, SessionId(0), Some(fault), "refused"), None);
            return None;
        }
        let former = resume.and_then(|session| state.former.remove(&session));
        let resumed =
            former.is_some() || resume.is_some_and(|old| state.sessions.contains_key(&old));
        let session = match resume.filter(|_| resumed) {
            Some(session) => session,
            None => SessionId(state.instance << 32 | id.0),
        };
        if !state.sessions.contains_key(&session) {
            let record = former.unwrap_or_default();
            let recorded = record.iter().map(|(slot, (request, _))| (*slot, *request)).collect();
            let machine = ServerSession::new(SessionSetup {
                session,
                server: state.instance,
                boot_verifier: state.verifier(),
                lease: types::limits::LEASE,
                slots: state.slots,
                bind_key: u128::from(id.0) + 77,
                recorded: resumed.then_some(recorded),
            });
            let machine = match state.credits {
                Some(credits) => machine.with_credits(credits),
                None => machine,
            };
            state.sessions.insert(session, Served { machine, record });
        }
        let door = state.door.clone().unwrap_or_else(|| Arc::new(Trusting));
        let input = ServerInput::Attached { channel: id, terms, resumed, renewed: true, door };
        self.step(&mut state, session, input, None);
        Some(session)
    }

    /// Gives a session's machine an input, and does what follows.
    fn step(
        &self,
        state: &mut MutexGuard<'_, ServerState>,
        session: SessionId,
        input: ServerInput,
        descriptor: Option<OwnedFd>,
    ) {
        let mut inputs = VecDeque::from([(input, descriptor)]);
        while let Some((input, mut descriptor)) = inputs.pop_front() {
            let Some(served) = state.sessions.get_mut(&session) else { break };
            let mut out = Vec::new();
            let stepped = served.machine.step(clock::now(), input, &mut out);
            assert!(stepped.is_ok(), "the client breaks the protocol: {stepped:?}");
            for output in out {
                match output {
                    ServerOutput::Send { channel, frame } => {
                        if let Some(link) = state.links.get(&channel) {
                            link.push(frame, descriptor.take());
                        }
                    }
                    ServerOutput::Close { channel } => {
                        if let Some(link) = state.links.get(&channel) {
                            link.connection.shut_down();
                        }
                    }
                    ServerOutput::Execute { origin, caller, call, repeated, chained } => {
                        let received = Received { origin, caller, call, repeated, chained };
                        inputs.extend(execute(state, received).map(|input| (input, None)));
                    }
                    ServerOutput::Cancel(origin) => state.cancelled.push(origin),
                    ServerOutput::Acknowledged { id, held } => {
                        state.acknowledged.push((id, held));
                    }
                    ServerOutput::Renew { channel, number } => {
                        let input = ServerInput::Renewed { channel, number, renewed: true };
                        inputs.push_back((input, None));
                    }
                    ServerOutput::Detached => {
                        state.detached += 1;
                        state.sessions.remove(&session);
                    }
                    ServerOutput::Overrun => panic!("breaks are not acknowledged"),
                }
            }
        }
        self.changed.notify_all();
    }
}

/// Answers from the record, or by habit; otherwise the call waits for the test.
fn execute(state: &mut ServerState, received: Received) -> Option<ServerInput> {
    let origin = received.origin;
    if received.repeated
        && let Some((request, outcome)) =
            state.sessions.get(&origin.session).and_then(|served| served.record.get(&origin.slot))
        && *request == origin.request
        && !matches!(outcome, Ok(Answer::Body { .. } | Answer::Blank(_)))
    {
        let result = outcome.clone();
        state.from_record += 1;
        return Some(ServerInput::Answered { origin, result, descriptor: false });
    }
    state.executed.push(received.call.clone());
    let by_habit = state.habits.iter().find_map(|habit| habit(&received.call));
    let Some(outcome) = by_habit else {
        state.in_progress += 1;
        state.in_progress_max = state.in_progress_max.max(state.in_progress);
        state.waiting.push_back(received);
        return None;
    };
    if let Some(served) = state.sessions.get_mut(&origin.session) {
        served.record.insert(origin.slot, (origin.request, outcome.clone()));
    }
    Some(ServerInput::Answered { origin, result: outcome, descriptor: false })
}

/// The next frame; `None` at the end of the connection.
fn receive(link: &Link, inbox: &mut Inbox) -> Option<Frame> {
    loop {
        if let Some(frame) = inbox.next_frame().ok()? {
            let header = FrameHeader::parse(frame.header).ok()?;
            let message = Bytes::copy_from_slice(frame.message);
            return Some(Frame { header, message, payload: frame.payload });
        }
        match inbox.fill(&link.connection, true) {
            Ok(Filled::Some | Filled::Nothing) => {}
            Ok(Filled::End) | Err(_) => return None,
        }
    }
}

fn measure(header: &[u8; FrameHeader::BYTES]) -> Result<Extent, &'static str> {
    let header = FrameHeader::parse(header).map_err(|_| "no header")?;
    Ok(Extent { message: header.message_bytes as usize, payload: header.payload_bytes as usize })
}
