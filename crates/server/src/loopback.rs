//! The service and its clients in one process, without sockets, for tests of clients.
//!
//! A [`Loopback`] is the server: it owns a [`Vice`] and a thread for its leases. Each
//! [`LoopbackSession`] is one client: calls run in the caller's thread, and one thread per session
//! processes breaks and renews the lease, as the back channel of a real session does.
//! [`LoopbackSession::fall_silent`] makes a client vanish without a message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use client::{BreakAck, CallError, Cancel, Events, Remote, Reply, clock};
use parking_lot::{Condvar, Mutex};
use types::limits::KEEP_ALIVE;
use types::{
    BreakId, BreakItem, Call, Caller, ClientId, Fault, Fid, ReplyAddress, SessionId, Timestamp,
};
use vice::{Effect, Execution, Vice};

use crate::call_slots::CallSlots;

/// A service in this process. Dropping it ends its threads; sessions then answer
/// [`CallError::Closed`].
pub struct Loopback {
    server: Arc<LoopbackServer>,
    ticker: Option<JoinHandle<()>>,
}

struct LoopbackServer {
    vice: Arc<Vice>,
    states: Mutex<HashMap<SessionId, Arc<SessionState>>>,
    closing: Mutex<bool>,
    closed: Condvar,
}

/// The server's side of one session.
struct SessionState {
    slots: CallSlots<Result<Reply, CallError>, CallError>,
    events: Mutex<Option<Arc<dyn Events>>>,
    work: Sender<Work>,
    silent: AtomicBool,
}

enum Work {
    Break(BreakId, Vec<BreakItem>),
    Ended,
    Stop,
}

/// The longest time between two checks of leases.
const TICK: Duration = Duration::from_millis(50);
/// The interval between two checks of lent bodies.
const TEND: Duration = Duration::from_secs(1);

impl Loopback {
    /// Serves `vice`.
    pub fn new(vice: Arc<Vice>) -> Self {
        let server = Arc::new(LoopbackServer {
            vice,
            states: Mutex::default(),
            closing: Mutex::new(false),
            closed: Condvar::new(),
        });
        let ticking = Arc::clone(&server);
        Loopback { server, ticker: Some(std::thread::spawn(move || ticking.tick_until_closed())) }
    }

    /// A new session of `client`.
    ///
    /// # Errors
    /// [`Vice::attach`]'s.
    pub fn attach(&self, client: ClientId, incarnation: u64) -> Result<LoopbackSession, Fault> {
        let mut effects = Vec::new();
        let attached = self.server.vice.attach(clock::now(), client, incarnation, &mut effects);
        self.server.deliver(effects);
        let attached = attached?;
        let (work, tasks) = channel();
        let state = Arc::new(SessionState {
            slots: CallSlots::new(attached.session, attached.slots),
            events: Mutex::new(None),
            work,
            silent: AtomicBool::new(false),
        });
        self.server.states.lock().insert(attached.session, Arc::clone(&state));
        let (server, working) = (Arc::downgrade(&self.server), Arc::clone(&state));
        let back = std::thread::spawn(move || work_off(&server, &working, &tasks));
        Ok(LoopbackSession { server: Arc::clone(&self.server), state, back: Some(back) })
    }

    /// The service itself.
    pub fn vice(&self) -> &Arc<Vice> {
        &self.server.vice
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        *self.server.closing.lock() = true;
        self.server.closed.notify_all();
        for state in self.server.states.lock().drain().map(|(_, state)| state) {
            state.slots.end(CallError::Closed);
        }
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
    }
}

impl LoopbackServer {
    fn tick_until_closed(&self) {
        let mut closing = self.closing.lock();
        let mut tended = Instant::now();
        while !*closing {
            let mut effects = Vec::new();
            let next = parking_lot::MutexGuard::unlocked(&mut closing, || {
                let next = self.vice.tick(clock::now(), &mut effects);
                if tended.elapsed() >= TEND {
                    tended = Instant::now();
                    self.vice.tend(clock::now(), wall(), &mut effects);
                }
                self.deliver(effects);
                next
            });
            self.closed.wait_for(
                &mut closing,
                next.since(clock::now()).min(TICK).max(Duration::from_millis(1)),
            );
        }
    }

    fn deliver(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply { origin, result, body } => {
                    if let Some(state) = self.state(origin.session) {
                        let reply = result.map(|answer| Reply { body, ..answer.into() });
                        state.slots.finish(origin, reply.map_err(CallError::Fault));
                    }
                }
                // Its calls come one by one.
                Effect::Executed { .. } => {}
                Effect::Break { to, id, items } => {
                    if let Some(state) = self.state(to) {
                        // The thread ends only together with the session.
                        let _ = state.work.send(Work::Break(id, items));
                    }
                }
                Effect::SessionEnded(session) => {
                    let state = self.states.lock().remove(&session);
                    if let Some(state) = state {
                        state.slots.end(CallError::Lost);
                        let _ = state.work.send(Work::Ended);
                    }
                }
            }
        }
    }

    fn state(&self, session: SessionId) -> Option<Arc<SessionState>> {
        self.states.lock().get(&session).cloned()
    }

    fn cancel(&self, origin: ReplyAddress) {
        let mut effects = Vec::new();
        self.vice.cancel(clock::now(), origin, &mut effects);
        self.deliver(effects);
    }

    fn renew(&self, state: &SessionState) {
        let sent_at = clock::now();
        let mut effects = Vec::new();
        let alive = self.vice.renew(sent_at, state.slots.session(), &mut effects);
        self.deliver(effects);
        if alive && let Some(events) = state.events() {
            events.on_renewed(sent_at);
        }
    }
}

impl SessionState {
    fn events(&self) -> Option<Arc<dyn Events>> {
        self.events.lock().clone()
    }
}

/// A session's own thread: processes breaks as they come, and renews the lease.
fn work_off(server: &Weak<LoopbackServer>, state: &SessionState, tasks: &Receiver<Work>) {
    // The thread may begin after its client fell silent.
    if let Some(server) = server.upgrade()
        && !state.silent.load(Ordering::SeqCst)
    {
        server.renew(state);
    }
    let mut renewed = clock::now();
    loop {
        let wait = (renewed + KEEP_ALIVE).since(clock::now());
        let task = tasks.recv_timeout(wait);
        let silent = state.silent.load(Ordering::SeqCst);
        match task {
            Ok(Work::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Work::Ended) => {
                if let Some(events) = state.events() {
                    events.on_lease_lost();
                }
                return;
            }
            Ok(Work::Break(..)) if silent => {}
            Ok(Work::Break(id, items)) => {
                let (server, session) = (Weak::clone(server), state.slots.session());
                let ack = BreakAck::new(move |held| {
                    let Some(server) = server.upgrade() else { return };
                    let mut effects = Vec::new();
                    server.vice.ack(clock::now(), session, id, &held, &mut effects);
                    server.deliver(effects);
                });
                match state.events() {
                    Some(events) => events.on_break(&items, ack),
                    None => ack.acknowledge(),
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                renewed = clock::now();
                let Some(server) = server.upgrade() else { return };
                if !silent {
                    server.renew(state);
                }
            }
        }
    }
}

/// One client of a [`Loopback`]. Dropping it detaches, unless it fell silent.
pub struct LoopbackSession {
    server: Arc<LoopbackServer>,
    state: Arc<SessionState>,
    back: Option<JoinHandle<()>>,
}

impl LoopbackSession {
    /// The session's number at the service.
    pub fn session(&self) -> SessionId {
        self.state.slots.session()
    }

    /// From now on this client neither acknowledges breaks nor renews its lease, nor detaches.
    pub fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// Renews the lease now instead of when it is due.
    pub fn renew(&self) {
        self.server.renew(&self.state);
    }

    fn perform(&self, caller: &Caller, call: Call) -> Result<ReplyAddress, CallError> {
        let origin = self.state.slots.begin().map_err(|_| CallError::Closed)?;
        let mut effects = Vec::new();
        self.server.vice.perform(
            Execution::new(clock::now(), wall(), caller, origin),
            call,
            &mut effects,
        );
        self.server.deliver(effects);
        Ok(origin)
    }
}

impl Remote for LoopbackSession {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        let origin = self.perform(caller, call)?;
        let listening = cancel.map(|cancel| {
            let server = Arc::clone(&self.server);
            cancel.on_cancel(move || server.cancel(origin))
        });
        let result = self.state.slots.wait(origin);
        drop(listening);
        match result.flatten() {
            Err(CallError::Fault(Fault::Cancelled)) => Err(CallError::Cancelled),
            other => other,
        }
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        let mut current = None;
        let mut failed = false;
        let mut results = Vec::with_capacity(calls.len());
        for mut call in calls {
            let missing = call.fids_mut().into_iter().any(|fid| match current {
                _ if *fid != Fid::CURRENT => false,
                Some(known) => {
                    *fid = known;
                    false
                }
                None => true,
            });
            let result = match () {
                () if failed => Err(CallError::Fault(Fault::ChainAborted)),
                () if missing => Err(CallError::Fault(Fault::Invalid)),
                () => self.call(caller, call, None),
            };
            match &result {
                Ok(reply) => current = reply.answer.current().or(current),
                Err(_) => failed = true,
            }
            results.push(result);
        }
        results
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        *self.state.events.lock() = Some(Arc::clone(&events));
        self.server.renew(&self.state);
    }

    fn passes_descriptors(&self) -> bool {
        true
    }
}

impl Drop for LoopbackSession {
    fn drop(&mut self) {
        let Some(back) = self.back.take() else { return };
        self.server.states.lock().remove(&self.session());
        if !self.state.silent.load(Ordering::SeqCst) {
            let mut effects = Vec::new();
            self.server.vice.detach(clock::now(), self.session(), &mut effects);
            self.server.deliver(effects);
        }
        self.state.slots.end(CallError::Closed);
        let _ = self.state.work.send(Work::Stop);
        if back.thread().id() != std::thread::current().id() {
            let _ = back.join();
        }
    }
}

/// The present time, for the status of files.
pub(crate) fn wall() -> Timestamp {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => {
            Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
        }
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp::new(-secs, 0),
                nanos => Timestamp::new(-secs - 1, 1_000_000_000 - nanos),
            }
        }
    }
}
