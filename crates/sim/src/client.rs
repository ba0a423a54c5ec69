//! A client: the real session machine and the real [`Holder`], a small cache, and a few
//! applications.
//!
//! The code here does the work of a driver and a cache manager: it connects, feeds frames, applies
//! breaks before it acknowledges them, reclaims locks and open files after the server has
//! restarted, and never answers from the cache without trust.

mod apps;
mod nest;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dafs::client::KeptRequest;
use dafs::{
    CallFailure, CallId, ChannelId, ClientConfig, ClientInput, ClientOutput, ClientSession,
    ConnectionRole, Features, Hello, HelloAnswer, KeptState, PeerError,
};
use lease::{CallStart, Holder};
use rand::Rng;
use types::limits::LEASE;
use types::{
    BootVerifier, BreakId, BreakItem, BreakReason, ByteRange, Call, Caller, ClientId, Fid,
    LockFamily, LockOwner, Time,
};

use crate::cache::{Cache, OwnMark};
use crate::clock::Clock;
use crate::event::SimEvent;
use crate::ground::Ground;
use crate::history::{Floors, OpNo};
use crate::inbox::{ArrivedBytes, to_bytes};
use crate::mutation::Mutation;
use crate::net::{Arrival, ConnId, ConnectionEnd};
use crate::op::{self, Op};
use crate::server::{SharedTree, brief};
use nest::Nest;

/// Applications of one client that work. One more only reads the cache, also when the server cannot
/// be reached.
pub const THREADS: usize = 2;
/// How long an attach may take.
const ATTACH_WITHIN: Duration = Duration::from_secs(10);

/// The simulated client; see the head of the file.
pub struct Client {
    /// Its index among the clients.
    pub index: usize,
    /// Its steady clock.
    pub clock: Clock,
    /// How often it has started; its incarnation.
    pub life: u64,
    /// Operations that each application has yet to do.
    left: [u32; THREADS],
    up: Option<Life>,
    /// While the client is stalled: the events that wait for it.
    stalled: Option<Vec<SimEvent>>,
}

struct Life {
    machine: ClientSession,
    holder: Holder,
    cache: Cache,
    conns: BTreeMap<ChannelId, Conn>,
    calls: BTreeMap<CallId, Doing>,
    last_call: u64,
    verifier: BootVerifier,
    /// Claims that are not answered: applications wait.
    claims: usize,
    /// Reclaims that were begun.
    reclaims: u32,
    locks: BTreeMap<usize, HeldLock>,
    open: BTreeMap<Fid, usize>,
    /// Open files for which the server has a hold.
    held: BTreeSet<Fid>,
    threads: [Thread; THREADS],
    wake_at: Time,
    outputs: VecDeque<ClientOutput>,
    following: bool,
    /// The state that a successor of this process has of the session.
    kept: KeptState,
    /// Calls that a successor makes again if they were not sent: single ones and chains.
    submitted: Vec<Vec<(CallId, Call)>>,
    /// The process is killed after so many more outputs.
    killed_after: Option<u32>,
    nest: Nest,
}

struct Conn {
    role: ConnectionRole,
    inbox: ArrivedBytes,
    greeted: bool,
}

/// The state of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Idle,
    Calling,
    Locked,
    Opened(Fid),
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    fid: Fid,
    exclusive: bool,
    family: LockFamily,
    /// The lease ran out since the application got the lock. The lock exists as long as the
    /// session, but the client does not reclaim it after a restart of the server: the earlier
    /// server instance may have given it to another client (LK-4).
    doubtful: bool,
}

/// The purpose of a call.
#[derive(Debug)]
enum Doing {
    App(Box<Running>),
    /// In the reclaim of this number.
    ClaimLock(usize, HeldLock, u32),
    Claim(u32),
    Unlock(usize),
    Aside,
    NestAsked(usize, CallStart),
    NestSent,
    NestReturned,
}

/// An operation that waits for its answer.
#[derive(Debug)]
struct Running {
    thread: usize,
    number: OpNo,
    op: Op,
    began: Time,
    timeline: u32,
    floors: Floors,
    snapshot: CallStart,
    mark: OwnMark,
    /// The directory of names.
    dir: Fid,
    /// The file that it changes.
    changes: Option<Fid>,
    verifier: BootVerifier,
    shared: Vec<(types::Name, usize)>,
    /// Its index in the history of the nest, if it changes the nest.
    nest: Option<usize>,
}

impl Client {
    /// A client that is not up yet.
    pub fn new(ground: &mut Ground, index: usize, ops: u32) -> Self {
        let clock = Clock::random(&mut ground.rng);
        Client { index, clock, life: 0, left: [ops; THREADS], up: None, stalled: None }
    }

    /// Its number for servers.
    pub fn id(&self) -> ClientId {
        ClientId(1 + self.index as u128)
    }

    /// Returns whether the client runs.
    pub fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Returns whether its applications have done all their operations.
    pub fn is_done(&self) -> bool {
        let idle = |life: &Life| {
            let idle = life.threads.iter().all(|thread| *thread == Thread::Idle);
            idle && life.calls.is_empty() && life.nest.is_sent()
        };
        self.left.iter().all(|left| *left == 0) && self.up.as_ref().is_some_and(idle)
    }

    /// The unfinished work, for messages.
    pub fn unfinished(&self) -> String {
        let Some(life) = &self.up else { return format!("client {} is down", self.index) };
        format!(
            "client {}: left {:?}, threads {:?}, calls {:?}",
            self.index, self.left, life.threads, life.calls
        )
    }

    fn now(&self, ground: &Ground) -> Time {
        self.clock.read(ground.now)
    }

    // Start, death and stalls.

    /// Starts, as a new incarnation.
    pub fn start(&mut self, ground: &mut Ground) {
        if self.up.is_some() {
            return;
        }
        self.life += 1;
        let config = self.config(ground);
        let mut outputs = Vec::new();
        let machine = ClientSession::new(self.now(ground), config, &mut outputs);
        let lease = if ground.breaks(Mutation::TrustTooLong) { 4 * LEASE } else { LEASE };
        self.up = Some(Life {
            machine,
            holder: Holder::new(lease),
            cache: Cache::default(),
            conns: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_call: 0,
            verifier: BootVerifier::default(),
            claims: 0,
            reclaims: 0,
            locks: BTreeMap::new(),
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            threads: [Thread::Idle; THREADS],
            wake_at: Time::NEVER,
            outputs: VecDeque::new(),
            following: false,
            kept: KeptState::default(),
            submitted: Vec::new(),
            killed_after: None,
            nest: Nest::new(),
        });
        self.follow(ground, outputs);
        for thread in 0..THREADS {
            self.think(ground, thread);
        }
        self.look_later(ground);
    }

    fn config(&self, ground: &mut Ground) -> ClientConfig {
        ClientConfig {
            client: self.id(),
            incarnation: self.life,
            display: format!("client {}", self.index),
            pid: 1,
            queue_max: 64,
            back_channel: ground.one_in(2),
            keeps: true,
            wallet: None,
        }
    }

    fn look_later(&self, ground: &mut Ground) {
        if !ground.healed {
            let delay = ground.between(Duration::from_millis(20), Duration::from_millis(400));
            ground.after(
                delay,
                SimEvent::Step { client: self.index, life: self.life, thread: THREADS },
            );
        }
    }

    fn look(&mut self, ground: &mut Ground, tree: &SharedTree) {
        let op = op::draw_look(ground, tree);
        self.watch_lease(ground);
        ground.history.tally.cached += u64::from(self.answer_from_cache(ground, tree, &op));
        self.look_later(ground);
    }

    /// Dies. The machine closes the connections, or vanishes too (`vanish`).
    pub fn die(&mut self, ground: &mut Ground, vanish: bool) {
        let Some(life) = self.up.take() else { return };
        self.stalled = None;
        ground.history.nest.stalls(self.index, false);
        for (thread, left) in self.left.iter_mut().enumerate() {
            // The outcome of a call under way will stay unknown.
            let busy = life.threads[thread] != Thread::Idle;
            *left = left.saturating_sub(u32::from(busy));
        }
        ground.history.tally.unknown += life.calls.len() as u64;
        ground.history.locks_gone(self.index);
        ground.history.nest.client_lost(self.index);
        for conn in ground.net.of_client(self.index) {
            if vanish {
                ground.vanish(conn, ConnectionEnd::Client);
            } else {
                ground.break_up(conn);
                ground.vanish(conn, ConnectionEnd::Client);
            }
        }
    }

    /// The process is killed now, or in the middle of a later step.
    pub fn kill(&mut self, ground: &mut Ground) {
        match ground.rng.random_range(0..4) {
            0 => self.succeed(ground),
            outputs => {
                if let Some(up) = &mut self.up {
                    up.killed_after = Some(outputs);
                }
            }
        }
    }

    /// The process is gone, and another one has what it kept.
    fn succeed(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        up.killed_after = None;
        up.outputs.clear();
        up.conns.clear();
        for conn in ground.net.of_client(self.index) {
            ground.break_up(conn);
            ground.vanish(conn, ConnectionEnd::Client);
        }
        ground.note(|| format!("client {}: killed, with {:?}", self.index, self.unfinished()));
        let (now, config) = (self.now(ground), self.config(ground));
        let Some(up) = self.up.as_mut() else { return };
        if ground.breaks(Mutation::ForgetRequests) {
            up.kept.lost.clear();
            if let Some(kept) = &mut up.kept.session {
                kept.requests.clear();
                kept.chains.clear();
            }
        }
        // The callers of lost requests hear of it from this process.
        let mut outputs = up.kept.lost.iter().map(lost).collect();
        let machine = match &up.kept.session {
            Some(kept) => kept.succeed(now, config, &mut outputs),
            None => Ok(ClientSession::new(now, config, &mut outputs)),
        };
        match machine {
            Ok(machine) => up.machine = machine,
            Err(error) => return ground.violate("EO-1", format!("not kept whole: {error}")),
        }
        let KeptState { session, lost } = &up.kept;
        let requests = session.iter().flat_map(|kept| &kept.requests).chain(lost);
        let sent: Vec<CallId> = requests.map(|request| request.id).collect();
        let waits = |(id, _): &(CallId, Call)| up.calls.contains_key(id) && !sent.contains(id);
        up.submitted.retain(|calls| calls.iter().any(|(id, _)| up.calls.contains_key(id)));
        let unsent: Vec<_> =
            up.submitted.iter().filter(|calls| calls.iter().all(waits)).cloned().collect();
        up.wake_at = Time::NEVER;
        self.follow(ground, outputs);
        for calls in unsent {
            self.put_in(ground, calls);
        }
    }

    /// Gives a call, or a chain of calls, to the machine.
    fn put_in(&mut self, ground: &mut Ground, calls: Vec<(CallId, Call)>) {
        let caller = Caller::ROOT;
        let input = match <[_; 1]>::try_from(calls) {
            Ok([(id, call)]) => {
                ClientInput::Submit { id, caller, call, region: None, urgent: false }
            }
            Err(members) => ClientInput::SubmitChain { caller, members },
        };
        self.feed(ground, input);
    }

    fn submit_all(&mut self, ground: &mut Ground, calls: Vec<(CallId, Call)>) {
        if let Some(up) = self.up.as_mut() {
            let Life { submitted, calls: waiting, .. } = up;
            submitted.retain(|calls| calls.iter().any(|(id, _)| waiting.contains_key(id)));
            submitted.push(calls.clone());
        }
        self.put_in(ground, calls);
    }

    /// Stalls.
    pub fn stall(&mut self, ground: &mut Ground) {
        if self.up.is_some() {
            self.stalled.get_or_insert_default();
            ground.history.nest.stalls(self.index, true);
        }
    }

    /// Stores an event for later if the client is stalled; otherwise returns it.
    pub fn defer(&mut self, event: SimEvent) -> Option<SimEvent> {
        match &mut self.stalled {
            Some(stalled) => {
                stalled.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// Resumes after a stall.
    pub fn go_on(&mut self, ground: &mut Ground) {
        ground.history.nest.stalls(self.index, false);
        for event in self.stalled.take().unwrap_or_default() {
            ground.at(ground.now, event);
        }
    }

    // Connections.

    /// Tries to connect.
    pub fn dial(&mut self, ground: &mut Ground, life: u64, role: ConnectionRole, server_up: bool) {
        let (client, current) = (self.index, self.life);
        let Some(up) = self.up.as_mut().filter(|_| life == current) else { return };
        if !server_up || ground.net.is_cut(client) {
            let delay = if server_up { Duration::from_secs(3) } else { Duration::from_millis(2) };
            return ground.after(delay, SimEvent::DialFailed { client, life, role });
        }
        let conn = ground.net.connect(client);
        up.conns.insert(
            ChannelId(conn.0),
            Conn { role, inbox: ArrivedBytes::default(), greeted: false },
        );
        ground.send(conn, ConnectionEnd::Client, &hello().to_bytes());
        ground.after(ATTACH_WITHIN, SimEvent::AttachTimeout { client, life, conn });
    }

    /// The connection attempt failed.
    pub fn dial_failed(&mut self, ground: &mut Ground, life: u64, role: ConnectionRole) {
        if life == self.life {
            self.feed(ground, ClientInput::ConnectFailed { role });
        }
    }

    /// Closes a connection whose attach was not answered in time.
    pub fn attach_timeout(&mut self, ground: &mut Ground, life: u64, conn: ConnId) {
        let channel = ChannelId(conn.0);
        let late = |up: &Life| up.conns.get(&channel).is_some_and(|conn| !conn.greeted);
        if life == self.life && self.up.as_ref().is_some_and(late) {
            self.lost(ground, conn);
        }
    }

    /// Bytes or the end arrived on a connection.
    pub fn on_arrival(&mut self, ground: &mut Ground, conn: ConnId, arrival: Arrival) {
        let channel = ChannelId(conn.0);
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.get_mut(&channel)) else {
            return;
        };
        match arrival {
            Arrival::End => self.lost(ground, conn),
            Arrival::Bytes(bytes) => {
                found.inbox.push(&bytes);
                while self.take_in(ground, channel) {}
            }
        }
    }

    fn lost(&mut self, ground: &mut Ground, conn: ConnId) {
        let channel = ChannelId(conn.0);
        ground.close(conn, ConnectionEnd::Client);
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.remove(&channel)) else { return };
        let input = match found.greeted {
            true => ClientInput::Lost { channel },
            false => ClientInput::ConnectFailed { role: found.role },
        };
        self.feed(ground, input);
    }

    /// Takes one item out of a connection's inbox; returns whether there was one.
    fn take_in(&mut self, ground: &mut Ground, channel: ChannelId) -> bool {
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.get_mut(&channel)) else {
            return false;
        };
        if !found.greeted {
            if found.inbox.len() < HelloAnswer::BYTES {
                return false;
            }
            let bytes = found.inbox.take(HelloAnswer::BYTES);
            let answer = bytes[..].try_into().map(|bytes| HelloAnswer::parse(bytes, &hello()));
            let Ok(Ok(HelloAnswer::Welcome(terms))) = answer else {
                self.lost(ground, ConnId(channel.0));
                return false;
            };
            found.greeted = true;
            let role = found.role;
            self.feed(ground, ClientInput::Connected { role, channel, terms, certificate: None });
            return true;
        }
        match found.inbox.frame() {
            Ok(None) => false,
            Ok(Some(frame)) => {
                self.feed(ground, ClientInput::Arrived { channel, frame });
                true
            }
            Err(_) => {
                self.lost(ground, ConnId(channel.0));
                false
            }
        }
    }

    /// The timer of the session machine fires, or a lease may be over.
    pub fn tick(&mut self, ground: &mut Ground, life: u64) {
        if life != self.life {
            return;
        }
        self.watch_lease(ground);
        let now = self.now(ground);
        let due = |up: &Life| up.wake_at <= now;
        if self.up.as_ref().is_some_and(due) {
            self.feed(ground, ClientInput::Tick);
        }
    }

    /// Passes an input to the machine, and carries out its outputs.
    fn feed(&mut self, ground: &mut Ground, input: ClientInput) {
        let now = self.now(ground);
        self.watch_lease(ground);
        let channel = match &input {
            ClientInput::Arrived { channel, .. } => Some(*channel),
            _ => None,
        };
        let Some(up) = self.up.as_mut() else { return };
        let mut outputs = Vec::new();
        let result = up.machine.step(now, input, &mut outputs);
        self.follow(ground, outputs);
        if let Err(error) = result {
            if !matches!(error, PeerError::Goodbye { .. }) {
                ground.violate(
                    "DA-5",
                    format!("client {}: the server misbehaved: {error}", self.index),
                );
            }
            if let Some(channel) = channel {
                ground.close(ConnId(channel.0), ConnectionEnd::Client);
                self.up.as_mut().and_then(|up| up.conns.remove(&channel));
            }
        }
    }

    /// Notices the end of the lease.
    fn watch_lease(&mut self, ground: &mut Ground) {
        let now = self.now(ground);
        let Some(up) = self.up.as_mut() else { return };
        if up.holder.expire(now) {
            ground.note(|| format!("client {}: lease over", self.index));
            up.cache.clear();
            up.locks.values_mut().for_each(|lock| lock.doubtful = true);
            up.open.clear();
            self.lose_nest(ground);
        }
    }

    /// Carries outputs out in the machine's order: the outputs of a step that follows from one of
    /// them come after the rest.
    fn follow(&mut self, ground: &mut Ground, outputs: Vec<ClientOutput>) {
        let Some(up) = self.up.as_mut() else { return };
        up.outputs.extend(outputs);
        if std::mem::replace(&mut up.following, true) {
            return;
        }
        while let Some(output) = self.up.as_mut().and_then(|up| up.outputs.pop_front()) {
            if self.is_killed_before(&output) {
                self.succeed(ground);
                continue;
            }
            if let Some(up) = self.up.as_mut() {
                up.kept.note(&output);
            }
            self.carry_out(ground, output);
        }
        if let Some(up) = self.up.as_mut() {
            up.following = false;
        }
    }

    /// Is this the moment at which the process is killed? The members of a chain are kept together,
    /// since nothing here goes on with a part of one.
    fn is_killed_before(&mut self, output: &ClientOutput) -> bool {
        let Some(up) = self.up.as_mut() else { return false };
        if matches!(output, ClientOutput::Keep(_)) {
            return false;
        }
        match &mut up.killed_after {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn carry_out(&mut self, ground: &mut Ground, output: ClientOutput) {
        let (client, life) = (self.index, self.life);
        let Some(up) = self.up.as_mut() else { return };
        match output {
            ClientOutput::Connect { role, at } => {
                ground.at(self.clock.when(at), SimEvent::Dial { client, life, role });
            }
            ClientOutput::Send { channel, frame } => {
                ground.send(ConnId(channel.0), ConnectionEnd::Client, &to_bytes(&frame));
            }
            ClientOutput::Close { channel } => {
                up.conns.remove(&channel);
                ground.close(ConnId(channel.0), ConnectionEnd::Client);
            }
            ClientOutput::Done { id, result, .. } => self.done(ground, id, result),
            ClientOutput::Break { id, items } => self.on_break(ground, id, &items),
            ClientOutput::Renewed { sent_at, .. } => self.on_renewed(ground, sent_at),
            ClientOutput::Established { resumed, restarted, boot_verifier, session } => {
                ground.note(|| {
                    format!(
                        "client {client}: attached to {session:?}, resumed {resumed}, \
                        restarted {restarted}"
                    )
                });
                if std::mem::replace(&mut up.verifier, boot_verifier) != boot_verifier {
                    // Lost changes may have made the files that were opened.
                    up.open.clear();
                }
                if resumed && restarted {
                    self.claim(ground);
                } else if resumed {
                    // But one that the server has not given back since its restart is not in the
                    // session yet, and the grace period may be over.
                    let is_claimed = |thread: &usize| {
                        let mut waiting = up.calls.values();
                        waiting
                            .any(|doing| matches!(doing, Doing::ClaimLock(of, ..) if of == thread))
                    };
                    for (thread, lock) in &mut up.locks {
                        lock.doubtful &= is_claimed(thread);
                    }
                }
            }
            ClientOutput::SessionLost => self.on_session_lost(ground),
            ClientOutput::Refused(fault) => {
                ground
                    .violate("EO-2", format!("client {client} of life {life} is refused: {fault}"));
            }
            ClientOutput::Keep(_) | ClientOutput::Closed => {}
            ClientOutput::WakeAt(at) => {
                up.wake_at = at;
                if at < Time::NEVER {
                    ground.at(self.clock.when(at), SimEvent::ClientTick { client, life });
                }
            }
        }
    }

    // The lease and the promises.

    fn on_break(&mut self, ground: &mut Ground, id: BreakId, items: &[BreakItem]) {
        let Some(up) = self.up.as_mut() else { return };
        ground.note(|| format!("client {}: break {id:?} {items:?}", self.index));
        let (recalls, items): (Vec<BreakItem>, Vec<BreakItem>) =
            items.iter().cloned().partition(|item| item.reason == BreakReason::Recall);
        if !ground.breaks(Mutation::IgnoreBreaks) {
            up.holder.on_break(&items);
            up.cache.on_break(&items);
        }
        let held: Vec<Fid> =
            items.iter().map(|item| item.fid).filter(|fid| up.open.contains_key(fid)).collect();
        up.held.extend(held.iter().copied());
        self.feed(ground, ClientInput::BreakHandled { id, held });
        for item in recalls {
            self.nest_recalled(ground, item.fid);
        }
    }

    fn on_renewed(&mut self, ground: &mut Ground, sent_at: Time) {
        let Some(up) = self.up.as_mut() else { return };
        up.holder.on_renewed(sent_at);
        let until = self.clock.when(up.holder.trusted_until());
        let verdict = ground.history.trusts(self.index, until, ground.now);
        ground.judge(verdict);
        // It notices the end by itself, also while nothing else happens to it.
        let (client, life) = (self.index, self.life);
        ground.at(until, SimEvent::ClientTick { client, life });
    }

    fn on_session_lost(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        ground.note(|| format!("client {}: session lost", self.index));
        ground.history.tally.sessions_lost += 1;
        up.holder.on_lease_lost();
        up.cache.clear();
        up.locks.clear();
        up.open.clear();
        up.held.clear();
        up.claims = 0;
        up.nest.claiming = false;
        ground.history.locks_gone(self.index);
        let until = self.clock.when(up.holder.trusted_until());
        let verdict = ground.history.trusts(self.index, until, ground.now);
        ground.judge(verdict);
        self.lose_nest(ground);
    }

    /// The server has restarted: drops all promises and reclaims locks and open files.
    fn claim(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        up.holder.on_server_restarted();
        up.cache.clear();
        let gone: Vec<usize> =
            up.locks.iter().filter(|(_, lock)| lock.doubtful).map(|(thread, _)| *thread).collect();
        for thread in gone {
            up.locks.remove(&thread);
            ground.history.unlocked(self.index, thread);
        }
        up.held = up.open.keys().copied().collect();
        up.reclaims += 1;
        let reclaim = up.reclaims;
        let mut calls = Vec::new();
        for (thread, held) in
            up.locks.iter().filter(|_| !ground.breaks(Mutation::KeepLocksSilently))
        {
            let call = op::lock(held.fid, owner_of(*thread), held.exclusive, held.family, true);
            calls.push((Doing::ClaimLock(*thread, *held, reclaim), call));
        }
        if !up.held.is_empty() {
            calls.push((
                Doing::Claim(reclaim),
                Call::Hold { fids: up.held.iter().copied().collect() },
            ));
        }
        let claims = calls.len() + self.claim_nest();
        let Some(up) = self.up.as_mut() else { return };
        up.claims = claims;
        if claims == 0 {
            return self.submit(ground, Doing::Aside, Call::ReclaimDone);
        }
        for (doing, call) in calls {
            self.submit(ground, doing, call);
        }
        if self.up.as_ref().is_some_and(|up| up.nest.claiming) {
            self.send_nest_on(ground);
        }
    }

    /// A claim that was sent again after another restart may bring back a lock that was given up
    /// since: unlocks it.
    fn give_back(&mut self, ground: &mut Ground, thread: usize, claimed: HeldLock) {
        let wanted =
            |up: &Life| up.locks.contains_key(&thread) || up.threads[thread] == Thread::Calling;
        if self.up.as_ref().is_some_and(|up| !wanted(up)) {
            let HeldLock { fid, family, .. } = claimed;
            let owner = owner_of(thread);
            self.submit(
                ground,
                Doing::Aside,
                Call::Unlock { fid, owner, family, range: ByteRange::ALL },
            );
        }
    }

    /// Whether this reclaim is the last one.
    fn is_present(&self, reclaim: u32) -> bool {
        self.up.as_ref().is_some_and(|up| up.reclaims == reclaim)
    }

    fn claimed(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut().filter(|up| up.claims > 0) else { return };
        up.claims -= 1;
        if up.claims == 0 {
            self.submit(ground, Doing::Aside, Call::ReclaimDone);
        }
    }

    fn submit(&mut self, ground: &mut Ground, doing: Doing, call: Call) {
        let Some(up) = self.up.as_mut() else { return };
        up.last_call += 1;
        let id = CallId(up.last_call);
        up.calls.insert(id, doing);
        ground.note(|| format!("client {}: call {id:?} {}", self.index, brief(&call)));
        self.submit_all(ground, vec![(id, call)]);
    }
}

fn lost(request: &KeptRequest) -> ClientOutput {
    let result = Err(CallFailure::SessionLost);
    ClientOutput::Done { id: request.id, result, descriptor: false, landing: None }
}

fn owner_of(thread: usize) -> LockOwner {
    LockOwner(1 + thread as u64)
}

fn hello() -> Hello {
    let sums = Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS);
    Hello::full(sums.with(Features::DELEGATIONS))
}
