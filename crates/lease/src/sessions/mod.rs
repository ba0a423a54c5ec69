//! Sessions: the clients that they belong to, and when they end.
//!
//! Events: *attach* makes one and ends those of the client's earlier incarnations (EO-2); *resume*
//! continues one after a lost connection; *renew* postpones its end; *expire* finds those whose end
//! is past. The queue of ends is lazy: renewing does not change it, and an entry that comes up too
//! early is put back with the present end. So a renewal costs one hash look-up.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

use smallvec::SmallVec;
use types::{BreakId, ClientId, Host, SessionId, Time};

/// Clients without sessions whose incarnation is remembered. A forgotten client may come back with
/// any incarnation, which does no harm: all its sessions are over.
const IDLE_CLIENTS_MAX: usize = 1 << 16;

/// See [`Sessions::is_host_full`]. A host with a thousand sessions costs sixteen look-ups a
/// promise.
const STEP: usize = 64;

/// Why an attach or resume was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// A later incarnation of this client has been seen (EO-2).
    #[error("client {client:?} has a newer incarnation, {newest}")]
    OldIncarnation {
        /// The client that attached.
        client: ClientId,
        /// Its newest incarnation that the server has seen.
        newest: u64,
    },
    /// The session is over, or belonged to another client.
    #[error("session {0:?} is over")]
    Gone(SessionId),
}

/// State of a session that resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The server has restarted since: promises are void; reclaim locks and holds, then send
    /// [`types::Call::ReclaimDone`].
    pub reclaim: bool,
    /// As in [`RenewalOutcome`].
    pub renewed: bool,
}

/// Result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalOutcome {
    /// The lease begins again.
    Renewed,
    /// The lease is not renewed: a break is overdue, and must be acknowledged first.
    Withheld,
    /// The session is over.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub client: ClientId,
    pub incarnation: u64,
    pub expires: Time,
    /// Of the earlier server instance, and its reclaims are not done.
    pub reclaiming: bool,
    /// Its durable record says that it may have delegations.
    pub marked: bool,
    /// Its durable record says that it may have opens that exclude others.
    pub excluding: bool,
    /// No authenticated user has called through it yet (`leases/anonymous.rs`).
    pub anonymous: bool,
    /// Where its client is, for the limits of hosts; `None`: no limits apply.
    pub host: Option<Host>,
    /// Authenticated while breaks were not acknowledged: the last of these breaks.
    pub breaks_before_proof: Option<BreakId>,
}

#[derive(Debug)]
struct Client {
    incarnation: u64,
    sessions: SmallVec<[SessionId; 1]>,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Sessions {
    table: HashMap<SessionId, Session>,
    clients: HashMap<ClientId, Client>,
    hosts: HashMap<Host, BTreeSet<SessionId>>,
    idle: VecDeque<ClientId>,
    ends: BinaryHeap<Reverse<(Time, SessionId)>>,
    next: u64,
}

impl Sessions {
    pub(crate) fn new(next: SessionId) -> Self {
        Sessions {
            table: HashMap::new(),
            clients: HashMap::new(),
            hosts: HashMap::new(),
            idle: VecDeque::new(),
            ends: BinaryHeap::new(),
            next: next.0,
        }
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.table.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.table.keys().copied()
    }

    /// Whether the session has not ended.
    pub fn has(&self, id: SessionId) -> bool {
        self.table.contains_key(&id)
    }

    /// The client and incarnation of the session. `None`: it is over.
    pub fn owner(&self, id: SessionId) -> Option<(ClientId, u64)> {
        self.get(id).map(|known| (known.client, known.incarnation))
    }

    /// Whether the session is anonymous.
    pub fn is_anonymous(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|known| known.anonymous)
    }

    /// Whether a session of the earlier server instance has not finished its reclaims.
    pub(crate) fn any_reclaims(&self) -> bool {
        self.table.values().any(|known| known.reclaiming)
    }

    /// Whether the session's durable record says that it may have delegations.
    pub fn is_marked(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|known| known.marked)
    }

    /// Notes that the session's durable record now has the delegation mark.
    pub fn mark(&mut self, id: SessionId) {
        if let Some(known) = self.get_mut(id) {
            known.marked = true;
        }
    }

    /// Whether the session's durable record says that it may have opens that exclude others.
    pub fn may_exclude(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(|known| known.excluding)
    }

    /// Notes that the session's durable record now has the mark of such opens.
    pub fn note_excluding(&mut self, id: SessionId) {
        if let Some(known) = self.get_mut(id) {
            known.excluding = true;
        }
    }

    /// The authenticated session that has most of something, by `count`.
    pub(crate) fn richest(&self, count: impl Fn(SessionId) -> usize) -> Option<SessionId> {
        let users = self.table.iter().filter(|(_, session)| !session.anonymous);
        users.map(|(id, _)| *id).max_by_key(|id| (count(*id), *id))
    }

    /// Sets the host of the session's client. `None`: the server's own user, or another server; no
    /// limits of hosts apply to them.
    pub fn set_host(&mut self, id: SessionId, host: Option<Host>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut session.host, host)
            && let Some(sessions) = self.hosts.get_mut(&before)
        {
            sessions.remove(&id);
            if sessions.is_empty() {
                self.hosts.remove(&before);
            }
        }
        if let Some(host) = host {
            self.hosts.entry(host).or_default().insert(id);
        }
    }

    /// Authenticated sessions on the host of this session; none where no limits apply.
    fn of_its_host(&self, id: SessionId) -> impl Iterator<Item = SessionId> {
        let host = self.table.get(&id).and_then(|session| session.host);
        let all = host.and_then(|host| self.hosts.get(&host)).into_iter().flatten().copied();
        all.filter(|id| !self.is_anonymous(*id))
    }

    /// Whether the sessions on this session's host have `max` together, by `count`: a host has a
    /// part of each table at most, so that it shuts no others out.
    ///
    /// The sums are not stored but computed when one may have become too large: at every [`STEP`]th
    /// of a session. So a host may exceed its share by [`STEP`] for each of its sessions.
    pub(crate) fn is_host_full(
        &self,
        id: SessionId,
        max: usize,
        count: impl Fn(SessionId) -> usize,
    ) -> bool {
        count(id).is_multiple_of(STEP) && self.of_its_host(id).map(count).sum::<usize>() >= max
    }

    /// Checks an attach. Returns the sessions that it ends.
    ///
    /// # Errors
    /// [`AttachError::OldIncarnation`] if a later incarnation of the client has been seen.
    pub(crate) fn older(
        &self,
        client: ClientId,
        incarnation: u64,
    ) -> Result<Vec<SessionId>, AttachError> {
        let Some(known) = self.clients.get(&client) else { return Ok(Vec::new()) };
        if incarnation < known.incarnation {
            return Err(AttachError::OldIncarnation { client, newest: known.incarnation });
        }
        let older = |id: &&SessionId| {
            self.table.get(id).is_some_and(|session| session.incarnation < incarnation)
        };
        Ok(known.sessions.iter().filter(older).copied().collect())
    }

    /// Adds a session under the next number.
    pub(crate) fn add(&mut self, client: ClientId, incarnation: u64, expires: Time) -> SessionId {
        let id = SessionId(self.next);
        self.insert(id, client, incarnation, expires, false);
        id
    }

    /// Adds an anonymous session. It proves nothing about its client's incarnation.
    pub(crate) fn add_anonymous(
        &mut self,
        client: ClientId,
        incarnation: u64,
        expires: Time,
    ) -> SessionId {
        let newest = self.clients.get(&client).map_or(0, |known| known.incarnation);
        let id = self.add(client, incarnation, expires);
        self.clients.get_mut(&client).expect("just added").incarnation = newest;
        self.table.get_mut(&id).expect("just added").anonymous = true;
        id
    }

    /// Makes the session authenticated, and records the incarnation of its client. `last_break`:
    /// the latest break that it has not acknowledged.
    pub(crate) fn authenticate(&mut self, id: SessionId, last_break: Option<BreakId>) {
        let Some(session) = self.table.get_mut(&id) else { return };
        session.anonymous = false;
        session.breaks_before_proof = last_break;
        let (client, incarnation) = (session.client, session.incarnation);
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.incarnation = owner.incarnation.max(incarnation);
        }
    }

    /// Whether the client has a session.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|known| !known.sessions.is_empty())
    }

    /// Number of anonymous sessions.
    pub(crate) fn anonymous_sessions(&self) -> usize {
        self.table.values().filter(|session| session.anonymous).count()
    }

    /// Adds a session under a given number.
    pub(crate) fn insert(
        &mut self,
        id: SessionId,
        client: ClientId,
        incarnation: u64,
        expires: Time,
        reclaiming: bool,
    ) {
        self.next = self.next.max(id.0 + 1);
        let session = Session {
            client,
            incarnation,
            expires,
            reclaiming,
            marked: false,
            excluding: false,
            anonymous: false,
            host: None,
            breaks_before_proof: None,
        };
        assert!(
            self.table.insert(id, session).is_none(),
            "EO-2: session number {id:?} was used twice"
        );
        self.ends.push(Reverse((expires, id)));
        let owner =
            self.clients.entry(client).or_insert(Client { incarnation, sessions: SmallVec::new() });
        owner.incarnation = owner.incarnation.max(incarnation);
        owner.sessions.push(id);
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.set_host(id, None);
        let session = self.table.remove(&id)?;
        if let Some(owner) = self.clients.get_mut(&session.client) {
            owner.sessions.retain(|other| *other != id);
            if owner.sessions.is_empty() {
                self.idle.push_back(session.client);
                self.forget_idle();
            }
        }
        Some(session)
    }

    fn forget_idle(&mut self) {
        while self.idle.len() > IDLE_CLIENTS_MAX {
            let Some(client) = self.idle.pop_front() else { return };
            if self.clients.get(&client).is_some_and(|known| known.sessions.is_empty()) {
                self.clients.remove(&client);
            }
        }
    }

    /// A session whose end is not after `now`.
    pub(crate) fn expired(&mut self, now: Time) -> Option<SessionId> {
        while let Some(Reverse((at, id))) = self.ends.peek().copied() {
            if at > now {
                return None;
            }
            self.ends.pop();
            match self.table.get(&id) {
                Some(session) if session.expires > now => {
                    self.ends.push(Reverse((session.expires, id)));
                }
                Some(_) => return Some(id),
                None => {}
            }
        }
        None
    }

    /// When a session may expire next.
    pub(crate) fn wake_at(&self) -> Time {
        self.ends.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }
}
