//! Foreign hosts and their sessions.
//!
//! A step on a port may bring calls of other hosts, which take the locks here; so no lock is held
//! while anything is done with a port or a call, and none when a call is dropped.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afsfront::FileHost;
use parking_lot::Mutex;
use rx::RxConnectionId;
use rxport::ServedCall;
use types::{Answer, Fault, SessionId};

use crate::call_slots::CallSlots;

/// Calls of a host that are worked on at once.
const RUNNING_MAX: usize = 8;
/// Calls of a host that wait.
const WAITING_MAX: usize = 64;
/// Hosts that are known; more are refused.
const HOSTS_MAX: usize = 65_536;

/// The other end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HostKey {
    /// A client of the file service, which is called back there.
    Files(SocketAddr),
    /// Clients of the databases.
    Databases(IpAddr),
}

impl HostKey {
    pub fn address(self) -> IpAddr {
        match self {
            HostKey::Files(peer) => peer.ip(),
            HostKey::Databases(address) => address,
        }
    }
}

/// The session of a host.
pub(super) struct HostSession {
    pub slots: CallSlots<Result<Answer, Fault>, Fault>,
    /// See [`FileHost::takes_uae`].
    takes_uae: bool,
    /// A user has called through it.
    pub is_proved: AtomicBool,
    /// Held while that is recorded.
    pub proving: Mutex<()>,
}

impl HostSession {
    pub fn new(session: SessionId, slots: u32, takes_uae: bool) -> HostSession {
        HostSession {
            slots: CallSlots::new(session, slots),
            takes_uae,
            is_proved: AtomicBool::new(false),
            proving: Mutex::new(()),
        }
    }

    pub fn session(&self) -> SessionId {
        self.slots.session()
    }

    /// The host as the file service knows it.
    pub fn file_host(&self) -> FileHost {
        FileHost { number: self.session().0, takes_uae: self.takes_uae }
    }
}

/// This server's knowledge of the promises that a host trusts.
enum CallbackState {
    /// Nothing: the host is told to trust none before it is served.
    Unknown,
    /// The host is being told.
    Initializing,
    /// All of them: they are those of this session.
    Valid(Arc<HostSession>),
}

struct HostState {
    callbacks: CallbackState,
    running: usize,
    waiting: VecDeque<ServedCall>,
    /// The last call.
    heard: Instant,
    /// The connection for callbacks.
    connection: Option<RxConnectionId>,
}

/// See the head of the file.
pub(super) struct ForeignHost {
    pub key: HostKey,
    state: Mutex<HostState>,
}

/// The next step with a call that came.
pub(super) enum Arrival {
    /// It is to be served through this session.
    Serve(Arc<HostSession>, ServedCall),
    /// It waits, and the host is to be initialized.
    Initialize,
    /// It waits.
    Waits,
    /// The host has too many.
    Refused(ServedCall),
}

impl ForeignHost {
    fn new(key: HostKey) -> ForeignHost {
        let state = HostState {
            callbacks: CallbackState::Unknown,
            running: 0,
            waiting: VecDeque::new(),
            heard: Instant::now(),
            connection: None,
        };
        ForeignHost { key, state: Mutex::new(state) }
    }

    /// A call has come.
    pub fn arrived(&self, call: ServedCall) -> Arrival {
        let mut state = self.state.lock();
        state.heard = Instant::now();
        if let CallbackState::Valid(host_session) = &state.callbacks
            && state.running < RUNNING_MAX
        {
            let host_session = Arc::clone(host_session);
            state.running += 1;
            return Arrival::Serve(host_session, call);
        }
        if state.waiting.len() >= WAITING_MAX {
            return Arrival::Refused(call);
        }
        state.waiting.push_back(call);
        match state.callbacks {
            CallbackState::Unknown => {
                state.callbacks = CallbackState::Initializing;
                Arrival::Initialize
            }
            CallbackState::Initializing | CallbackState::Valid(_) => Arrival::Waits,
        }
    }

    /// The host trusts nothing, and has this session from now on. Returns the calls to serve.
    pub fn initialized(&self, host_session: &Arc<HostSession>) -> Vec<ServedCall> {
        let mut state = self.state.lock();
        state.callbacks = CallbackState::Valid(Arc::clone(host_session));
        let count = state.waiting.len().min(RUNNING_MAX.saturating_sub(state.running));
        state.running += count;
        state.waiting.drain(..count).collect()
    }

    /// The host did not answer, or gets no session. Returns the calls that waited.
    pub fn not_initialized(&self) -> Vec<ServedCall> {
        let mut state = self.state.lock();
        state.callbacks = CallbackState::Unknown;
        state.waiting.drain(..).collect()
    }

    /// A call was served. Returns the next one.
    pub fn served(&self) -> Option<(Arc<HostSession>, ServedCall)> {
        let mut state = self.state.lock();
        state.running -= 1;
        let CallbackState::Valid(host_session) = &state.callbacks else { return None };
        let host_session = Arc::clone(host_session);
        let next = state.waiting.pop_front()?;
        state.running += 1;
        Some((host_session, next))
    }

    /// The session is over. True: there are calls that wait, and the host is to be initialized.
    pub fn lose(&self, session: SessionId) -> bool {
        let mut state = self.state.lock();
        let CallbackState::Valid(host_session) = &state.callbacks else { return false };
        if host_session.session() != session {
            return false;
        }
        host_session.slots.end(Fault::Expired);
        let waits = !state.waiting.is_empty();
        state.callbacks = if waits { CallbackState::Initializing } else { CallbackState::Unknown };
        waits
    }

    /// Its session, if it has one.
    pub fn host_session(&self) -> Option<Arc<HostSession>> {
        match &self.state.lock().callbacks {
            CallbackState::Valid(host_session) => Some(Arc::clone(host_session)),
            CallbackState::Unknown | CallbackState::Initializing => None,
        }
    }

    /// The time since its last call.
    pub fn silence(&self) -> Duration {
        self.state.lock().heard.elapsed()
    }

    /// It has answered a call.
    pub fn answers(&self) {
        self.state.lock().heard = Instant::now();
    }

    /// The connection for callbacks.
    pub fn connection(&self) -> Option<RxConnectionId> {
        self.state.lock().connection
    }

    /// A connection for callbacks was made. Returns the one to use, and one that is superfluous.
    pub fn keep_connection(
        &self,
        made: RxConnectionId,
    ) -> (RxConnectionId, Option<RxConnectionId>) {
        let mut state = self.state.lock();
        match state.connection {
            Some(known) => (known, Some(made)),
            None => {
                state.connection = Some(made);
                (made, None)
            }
        }
    }

    /// The connection for callbacks is used no more.
    pub fn take_connection(&self) -> Option<RxConnectionId> {
        self.state.lock().connection.take()
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        matches!(state.callbacks, CallbackState::Unknown)
            && state.running == 0
            && state.waiting.is_empty()
    }
}

/// All foreign hosts.
#[derive(Default)]
pub(super) struct HostTable {
    tables: Mutex<Tables>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Tables {
    hosts: HashMap<HostKey, Arc<ForeignHost>>,
    sessions: HashMap<SessionId, Arc<ForeignHost>>,
}

impl HostTable {
    /// The host, if there is room for it.
    pub fn host(&self, key: HostKey) -> Option<Arc<ForeignHost>> {
        let mut tables = self.tables.lock();
        let is_full = tables.hosts.len() >= HOSTS_MAX || self.is_over.load(Ordering::Acquire);
        if is_full && !tables.hosts.contains_key(&key) {
            return None;
        }
        let made = tables.hosts.entry(key).or_insert_with(|| Arc::new(ForeignHost::new(key)));
        Some(Arc::clone(made))
    }

    /// A session of the host began.
    pub fn began(&self, session: SessionId, host: &Arc<ForeignHost>) {
        self.tables.lock().sessions.insert(session, Arc::clone(host));
    }

    /// Whether the session goes on.
    pub fn has(&self, session: SessionId) -> bool {
        let tables = self.tables.lock();
        tables.sessions.contains_key(&session) && !self.is_over.load(Ordering::Acquire)
    }

    pub fn of_session(&self, session: SessionId) -> Option<Arc<ForeignHost>> {
        self.tables.lock().sessions.get(&session).cloned()
    }

    /// A session is over. Returns its host if that is to be initialized.
    pub fn ended(&self, session: SessionId) -> Option<Arc<ForeignHost>> {
        let host = self.tables.lock().sessions.remove(&session)?;
        host.lose(session).then_some(host)
    }

    /// Hosts with sessions.
    pub fn known(&self) -> Vec<(Arc<ForeignHost>, Arc<HostSession>)> {
        let hosts: Vec<_> = self.tables.lock().sessions.values().cloned().collect();
        let with_session =
            |host: Arc<ForeignHost>| host.host_session().map(|host_session| (host, host_session));
        hosts.into_iter().filter_map(with_session).collect()
    }

    /// Forgets hosts of which nothing is known. Returns their connections.
    pub fn forget_idle(&self) -> Vec<RxConnectionId> {
        let mut connections = Vec::new();
        self.tables.lock().hosts.retain(|_, host| {
            // A thread may have it at this moment.
            let stays = Arc::strong_count(host) > 1 || !host.is_idle();
            if !stays {
                connections.extend(host.take_connection());
            }
            stays
        });
        connections
    }

    /// No call is served any more: those that wait for an answer are over. Returns the others.
    pub fn end(&self) -> Vec<ServedCall> {
        self.is_over.store(true, Ordering::Release);
        let hosts: Vec<_> = self.tables.lock().hosts.values().cloned().collect();
        hosts
            .iter()
            .filter_map(|host| host.host_session())
            .for_each(|host_session| host_session.slots.end(Fault::Expired));
        hosts.iter().flat_map(|host| std::mem::take(&mut host.state.lock().waiting)).collect()
    }
}
