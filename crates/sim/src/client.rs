//! A client: the real session machine and the real [`Holder`], a small cache, and a few applications.
//!
//! What is here beside the machines is what a driver and a cache manager must do: make connections, feed frames, work
//! breaks off before they are acknowledged, claim locks and open files after the server has restarted, and never
//! answer from the cache without trust.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dafs::{
    CallFailure, CallId, ChannelId, ClientConfig, ClientInput, ClientOutput, ClientSession, Features, Hello,
    HelloAnswer, PeerError, Role,
};
use lease::{Holder, Snapshot};
use rand::Rng;
use types::limits::LEASE;
use types::{
    Answer, BootVerifier, BreakId, BreakItem, ByteRange, Call, Caller, ClientId, Fault, Fid, LockFamily, LockOwner,
    Time,
};

use crate::cache::{Cache, OwnMark};
use crate::clock::Clock;
use crate::event::Event;
use crate::ground::Ground;
use crate::history::{Belief, Done, Floors, OpNo};
use crate::inbox::{Inbox, to_bytes};
use crate::mutation::Mutation;
use crate::net::{Arrival, ConnId, Side};
use crate::op::{self, Op};
use crate::server::{Tree, brief};

/// Applications of one client that work. One more only looks at what is cached, which goes on when nothing is reached.
pub const THREADS: usize = 2;
/// How long an attach may take.
const ATTACH_WITHIN: Duration = Duration::from_secs(10);

/// See the head of the file.
pub struct Client {
    /// Its place among the clients.
    pub index: usize,
    /// Its steady clock.
    pub clock: Clock,
    /// How often it has started; its incarnation.
    pub life: u64,
    /// Operations that each application has yet to do.
    left: [u32; THREADS],
    up: Option<Life>,
    /// Stands still: what happens to it waits here.
    stalled: Option<Vec<Event>>,
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
    locks: BTreeMap<usize, HeldLock>,
    open: BTreeMap<Fid, usize>,
    /// Files that the server was told of as open.
    held: BTreeSet<Fid>,
    threads: [Thread; THREADS],
    wake_at: Time,
    outputs: VecDeque<ClientOutput>,
    following: bool,
}

struct Conn {
    role: Role,
    inbox: Inbox,
    greeted: bool,
}

/// What an application is in the middle of.
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
    /// The lease ran out since it was had. It is there as long as the session is, but is not claimed from a new life of
    /// the server: the old one may have given it to another (LK-4).
    doubtful: bool,
}

/// What a call is for.
#[derive(Debug)]
enum Doing {
    App(Box<Running>),
    ClaimLock(usize, HeldLock),
    Claim,
    Unlock(usize),
    Aside,
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
    snapshot: Snapshot,
    mark: OwnMark,
    /// The directory of names.
    dir: Fid,
    /// The file that it changes.
    changes: Option<Fid>,
    verifier: BootVerifier,
    shared: Vec<(types::Name, usize)>,
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

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Whether its applications have done all that they wanted.
    pub fn is_done(&self) -> bool {
        let idle = |life: &Life| life.threads.iter().all(|thread| *thread == Thread::Idle) && life.calls.is_empty();
        self.left.iter().all(|left| *left == 0) && self.up.as_ref().is_some_and(idle)
    }

    /// What is not done, for people.
    pub fn unfinished(&self) -> String {
        let Some(life) = &self.up else { return format!("client {} is down", self.index) };
        format!("client {}: left {:?}, threads {:?}, calls {:?}", self.index, self.left, life.threads, life.calls)
    }

    fn now(&self, ground: &Ground) -> Time {
        self.clock.read(ground.now)
    }

    // Life and death.

    /// Starts, as a new incarnation.
    pub fn start(&mut self, ground: &mut Ground) {
        if self.up.is_some() {
            return;
        }
        self.life += 1;
        let config = ClientConfig {
            client: self.id(),
            incarnation: self.life,
            display: format!("client {}", self.index),
            pid: 1,
            queue_max: 64,
            back_channel: ground.one_in(2),
        };
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
            locks: BTreeMap::new(),
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            threads: [Thread::Idle; THREADS],
            wake_at: Time::NEVER,
            outputs: VecDeque::new(),
            following: false,
        });
        self.follow(ground, outputs);
        for thread in 0..THREADS {
            self.think(ground, thread);
        }
        self.look_later(ground);
    }

    fn look_later(&self, ground: &mut Ground) {
        if !ground.healed {
            let delay = ground.between(Duration::from_millis(20), Duration::from_millis(400));
            ground.after(delay, Event::Step { client: self.index, life: self.life, thread: THREADS });
        }
    }

    fn look(&mut self, ground: &mut Ground, tree: &Tree) {
        let op = op::draw_look(ground, tree);
        self.watch_lease(ground);
        ground.history.tally.cached += u64::from(self.answer_from_cache(ground, tree, &op));
        self.look_later(ground);
    }

    /// Dies. Its machine closes its connections, or vanishes with it.
    pub fn die(&mut self, ground: &mut Ground, vanish: bool) {
        let Some(life) = self.up.take() else { return };
        self.stalled = None;
        for (thread, left) in self.left.iter_mut().enumerate() {
            // What was under way will never be known.
            let busy = life.threads[thread] != Thread::Idle;
            *left = left.saturating_sub(u32::from(busy));
        }
        ground.history.tally.unknown += life.calls.len() as u64;
        ground.history.locks_gone(self.index);
        for conn in ground.net.of_client(self.index) {
            if vanish {
                ground.vanish(conn, Side::Client);
            } else {
                ground.break_up(conn);
                ground.vanish(conn, Side::Client);
            }
        }
    }

    /// Stands still.
    pub fn stall(&mut self) {
        if self.up.is_some() {
            self.stalled.get_or_insert_default();
        }
    }

    /// Keeps an event for later if the client stands still. Gives it back otherwise.
    pub fn defer(&mut self, event: Event) -> Option<Event> {
        match &mut self.stalled {
            Some(stalled) => {
                stalled.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// Goes on.
    pub fn go_on(&mut self, ground: &mut Ground) {
        for event in self.stalled.take().unwrap_or_default() {
            ground.at(ground.now, event);
        }
    }

    // Connections.

    /// Tries to connect.
    pub fn dial(&mut self, ground: &mut Ground, life: u64, role: Role, server_up: bool) {
        let (client, current) = (self.index, self.life);
        let Some(up) = self.up.as_mut().filter(|_| life == current) else { return };
        if !server_up || ground.net.is_cut(client) {
            let delay = if server_up { Duration::from_secs(3) } else { Duration::from_millis(2) };
            return ground.after(delay, Event::DialFailed { client, life, role });
        }
        let conn = ground.net.connect(client);
        up.conns.insert(ChannelId(conn.0), Conn { role, inbox: Inbox::default(), greeted: false });
        ground.send(conn, Side::Client, &hello().to_bytes());
        ground.after(ATTACH_WITHIN, Event::AttachTimeout { client, life, conn });
    }

    /// Could not connect.
    pub fn dial_failed(&mut self, ground: &mut Ground, life: u64, role: Role) {
        if life == self.life {
            self.feed(ground, ClientInput::ConnectFailed { role });
        }
    }

    /// A connection that is not greeted by now is given up.
    pub fn attach_timeout(&mut self, ground: &mut Ground, life: u64, conn: ConnId) {
        let channel = ChannelId(conn.0);
        let late = |up: &Life| up.conns.get(&channel).is_some_and(|conn| !conn.greeted);
        if life == self.life && self.up.as_ref().is_some_and(late) {
            self.lost(ground, conn);
        }
    }

    /// Something came over a connection.
    pub fn on_arrival(&mut self, ground: &mut Ground, conn: ConnId, arrival: Arrival) {
        let channel = ChannelId(conn.0);
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.get_mut(&channel)) else { return };
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
        ground.close(conn, Side::Client);
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.remove(&channel)) else { return };
        let input = match found.greeted {
            true => ClientInput::Lost { channel },
            false => ClientInput::ConnectFailed { role: found.role },
        };
        self.feed(ground, input);
    }

    /// Takes one thing out of a connection's inbox. Whether there was one.
    fn take_in(&mut self, ground: &mut Ground, channel: ChannelId) -> bool {
        let Some(found) = self.up.as_mut().and_then(|up| up.conns.get_mut(&channel)) else { return false };
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
            self.feed(ground, ClientInput::Connected { role, channel, terms });
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

    /// The machine asked for it.
    pub fn tick(&mut self, ground: &mut Ground, life: u64) {
        let now = self.now(ground);
        let due = |up: &Life| up.wake_at <= now;
        if life == self.life && self.up.as_ref().is_some_and(due) {
            self.feed(ground, ClientInput::Tick);
        }
    }

    /// Gives the machine an input, and follows what comes of it.
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
                ground.violate("DA-5", format!("client {}: the server misbehaved: {error}", self.index));
            }
            if let Some(channel) = channel {
                ground.close(ConnId(channel.0), Side::Client);
                self.up.as_mut().and_then(|up| up.conns.remove(&channel));
            }
        }
    }

    /// Finds the end of the lease.
    fn watch_lease(&mut self, ground: &mut Ground) {
        let now = self.now(ground);
        let Some(up) = self.up.as_mut() else { return };
        if up.holder.expire(now) {
            ground.note(|| format!("client {}: lease over", self.index));
            up.cache.clear();
            up.locks.values_mut().for_each(|lock| lock.doubtful = true);
            up.open.clear();
        }
    }

    /// Carries outputs out in the order in which the machine put them out: those of a step that follows from one of them come
    /// behind the rest.
    fn follow(&mut self, ground: &mut Ground, outputs: Vec<ClientOutput>) {
        let Some(up) = self.up.as_mut() else { return };
        up.outputs.extend(outputs);
        if std::mem::replace(&mut up.following, true) {
            return;
        }
        while let Some(output) = self.up.as_mut().and_then(|up| up.outputs.pop_front()) {
            self.carry_out(ground, output);
        }
        if let Some(up) = self.up.as_mut() {
            up.following = false;
        }
    }

    fn carry_out(&mut self, ground: &mut Ground, output: ClientOutput) {
        let (client, life) = (self.index, self.life);
        let Some(up) = self.up.as_mut() else { return };
        match output {
            ClientOutput::Connect { role, at } => {
                ground.at(self.clock.when(at), Event::Dial { client, life, role });
            }
            ClientOutput::Send { channel, frame } => {
                ground.send(ConnId(channel.0), Side::Client, &to_bytes(&frame));
            }
            ClientOutput::Close { channel } => {
                up.conns.remove(&channel);
                ground.close(ConnId(channel.0), Side::Client);
            }
            ClientOutput::Done { id, result, .. } => self.done(ground, id, result),
            ClientOutput::Break { id, items } => self.on_break(ground, id, &items),
            ClientOutput::Renewed { sent_at, .. } => self.on_renewed(ground, sent_at),
            ClientOutput::Established { resumed, restarted, boot_verifier, session } => {
                ground.note(|| {
                    format!("client {client}: attached to {session:?}, resumed {resumed}, restarted {restarted}")
                });
                if std::mem::replace(&mut up.verifier, boot_verifier) != boot_verifier {
                    // What was opened may have been made by what is lost.
                    up.open.clear();
                }
                if resumed && restarted {
                    self.claim(ground);
                } else if resumed {
                    up.locks.values_mut().for_each(|lock| lock.doubtful = false);
                }
            }
            ClientOutput::SessionLost => self.on_session_lost(ground),
            ClientOutput::Refused(fault) => {
                ground.violate("EO-2", format!("client {client} of life {life} is refused: {fault}"));
            }
            ClientOutput::Closed => {}
            ClientOutput::WakeAt(at) => {
                up.wake_at = at;
                if at < Time::NEVER {
                    ground.at(self.clock.when(at), Event::ClientTick { client, life });
                }
            }
        }
    }

    // The lease and the promises.

    fn on_break(&mut self, ground: &mut Ground, id: BreakId, items: &[BreakItem]) {
        let Some(up) = self.up.as_mut() else { return };
        ground.note(|| format!("client {}: break {id:?} {items:?}", self.index));
        if !ground.breaks(Mutation::IgnoreBreaks) {
            up.holder.on_break(items);
            up.cache.on_break(items);
        }
        let held: Vec<Fid> = items.iter().map(|item| item.fid).filter(|fid| up.open.contains_key(fid)).collect();
        up.held.extend(held.iter().copied());
        self.feed(ground, ClientInput::BreakHandled { id, held });
    }

    fn on_renewed(&mut self, ground: &mut Ground, sent_at: Time) {
        let Some(up) = self.up.as_mut() else { return };
        up.holder.on_renewed(sent_at);
        let until = self.clock.when(up.holder.trusted_until());
        let verdict = ground.history.trusts(self.index, until, ground.now);
        ground.judge(verdict);
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
        ground.history.locks_gone(self.index);
        let until = self.clock.when(up.holder.trusted_until());
        let verdict = ground.history.trusts(self.index, until, ground.now);
        ground.judge(verdict);
    }

    /// The server has restarted: promises are void, locks and open files are claimed.
    fn claim(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        up.holder.on_server_restarted();
        up.cache.clear();
        let gone: Vec<usize> = up.locks.iter().filter(|(_, lock)| lock.doubtful).map(|(thread, _)| *thread).collect();
        for thread in gone {
            up.locks.remove(&thread);
            ground.history.unlocked(self.index, thread);
        }
        up.held = up.open.keys().copied().collect();
        let mut calls = Vec::new();
        for (thread, held) in up.locks.iter().filter(|_| !ground.breaks(Mutation::KeepLocksSilently)) {
            let call = op::lock(held.fid, owner_of(*thread), held.exclusive, held.family, true);
            calls.push((Doing::ClaimLock(*thread, *held), call));
        }
        if !up.held.is_empty() {
            calls.push((Doing::Claim, Call::Hold { fids: up.held.iter().copied().collect() }));
        }
        let claims = calls.len();
        up.claims = claims;
        if claims == 0 {
            return self.submit(ground, Doing::Aside, Call::ReclaimDone);
        }
        for (doing, call) in calls {
            self.submit(ground, doing, call);
        }
    }

    /// A claim that was sent again after yet another restart may bring a lock back that was given up since: it is unlocked.
    fn give_back(&mut self, ground: &mut Ground, thread: usize, claimed: HeldLock) {
        let wanted = |up: &Life| up.locks.contains_key(&thread) || up.threads[thread] == Thread::Calling;
        if self.up.as_ref().is_some_and(|up| !wanted(up)) {
            let HeldLock { fid, family, .. } = claimed;
            let owner = owner_of(thread);
            self.submit(ground, Doing::Aside, Call::Unlock { fid, owner, family, range: ByteRange::ALL });
        }
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
        self.feed(ground, ClientInput::Submit { id, caller: Caller::ROOT, call, region: None });
    }

    // Applications.

    fn think(&mut self, ground: &mut Ground, thread: usize) {
        let (client, life) = (self.index, self.life);
        let delay = match (ground.healed, ground.rng.random_range(0..10)) {
            (true, _) | (false, 0..5) => ground.between(Duration::from_micros(50), Duration::from_millis(20)),
            (false, 5..8) => ground.between(Duration::from_millis(20), Duration::from_millis(1500)),
            _ => ground.between(Duration::from_secs(1), Duration::from_secs(8)),
        };
        ground.after(delay, Event::Step { client, life, thread });
    }

    /// An application goes on.
    pub fn step(&mut self, ground: &mut Ground, tree: &Tree, life: u64, thread: usize) {
        if life != self.life || self.up.is_none() {
            return;
        }
        if thread == THREADS {
            return self.look(ground, tree);
        }
        self.watch_lease(ground);
        let Some(up) = self.up.as_mut() else { return };
        if up.claims > 0 {
            return self.think(ground, thread);
        }
        match up.threads[thread] {
            Thread::Calling => {}
            Thread::Locked => self.unlock(ground, thread),
            Thread::Opened(fid) => self.begin(ground, tree, thread, Op::ReadOpen(fid)),
            Thread::Idle if self.left[thread] > 0 => {
                self.left[thread] -= 1;
                let number = ground.history.begin();
                let op = op::draw(ground, tree, self.index, number);
                self.begin_numbered(ground, tree, thread, op, number);
            }
            Thread::Idle => {}
        }
    }

    fn begin(&mut self, ground: &mut Ground, tree: &Tree, thread: usize, op: Op) {
        let number = ground.history.begin();
        self.begin_numbered(ground, tree, thread, op, number);
    }

    fn begin_numbered(&mut self, ground: &mut Ground, tree: &Tree, thread: usize, op: Op, number: OpNo) {
        if self.answer_from_cache(ground, tree, &op) {
            ground.history.tally.cached += 1;
            ground.history.tally.done += 1;
            return self.think(ground, thread);
        }
        let owner = owner_of(thread);
        let Some(up) = self.up.as_mut() else { return };
        up.threads[thread] = Thread::Calling;
        let call = op.call(tree, number, owner);
        match &op {
            Op::Write { .. } => ground.history.may_write(number),
            Op::Append { .. } => ground.history.append_begins(number),
            Op::MakeOwn(name) => ground.history.own_name(name),
            Op::RemoveOwn(name) => ground.history.own_removing(name),
            _ => {}
        }
        let began = ground.now;
        let shared = op.shared_names().into_iter().map(|(name, makes)| {
            let at = ground.history.shared_begins(&name, makes, began);
            (name, at)
        });
        let shared = shared.collect();
        let mark = up.cache.mark(tree.dir);
        let changes = op.changes(tree);
        if let Some(fid) = changes {
            up.cache.own_begins(fid);
        }
        let running = Running {
            thread,
            number,
            op,
            began,
            timeline: ground.history.timeline(),
            floors: ground.history.floors(),
            snapshot: up.holder.begin(),
            mark,
            dir: tree.dir,
            changes,
            verifier: up.verifier,
            shared,
        };
        self.submit(ground, Doing::App(Box::new(running)), call);
    }

    /// Answers from the cache if it can, as it may, most of the time.
    fn answer_from_cache(&mut self, ground: &mut Ground, tree: &Tree, op: &Op) -> bool {
        let now = self.now(ground);
        let Some(up) = self.up.as_ref() else { return false };
        if !up.holder.trusted(now) || ground.one_in(5) {
            return false;
        }
        let floors = ground.history.floors();
        let verdict = match op {
            Op::Read(fid) => {
                let Some((version, data)) = up.cache.data(*fid) else { return false };
                ground.note(|| format!("client {}: {fid} version {version} from the cache", self.index));
                let fresh = ground.history.check_data_version(&floors, *fid, version, true);
                fresh.and_then(|()| ground.history.check_value(*fid, version, data))
            }
            Op::Stat(fid) => {
                let Some(status) = up.cache.status(*fid) else { return false };
                ground.note(|| format!("client {}: {fid} status {} from the cache", self.index, status.status_version));
                ground.history.check_status(&floors, &status, true)
            }
            Op::Lookup(name) => {
                let Some((version, found)) = up.cache.name(tree.dir, name) else { return false };
                ground.note(|| format!("client {}: {name:?} {found:?} at {version} from the cache", self.index));
                let timeline = ground.history.timeline();
                match found {
                    Some(_) => ground.history.check_data_version(&floors, tree.dir, version, true),
                    None => ground.history.check_absent(name, timeline, ground.now, ground.now, true),
                }
            }
            _ => return false,
        };
        ground.judge(verdict);
        true
    }

    fn unlock(&mut self, ground: &mut Ground, thread: usize) {
        let owner = owner_of(thread);
        let Some(up) = self.up.as_mut() else { return };
        let held = up.locks.remove(&thread);
        ground.history.unlocked(self.index, thread);
        match held {
            // The application waits: a server may execute two calls that are under way together in any order.
            Some(HeldLock { fid, family, .. }) => {
                up.threads[thread] = Thread::Calling;
                self.submit(ground, Doing::Unlock(thread), Call::Unlock { fid, owner, family, range: ByteRange::ALL });
            }
            None => {
                up.threads[thread] = Thread::Idle;
                self.think(ground, thread);
            }
        }
    }

    fn done(&mut self, ground: &mut Ground, id: CallId, result: Result<Answer, CallFailure>) {
        let Some(doing) = self.up.as_mut().and_then(|up| up.calls.remove(&id)) else {
            return ground
                .violate("DA-4", format!("client {}: {id:?} is answered twice or was never asked", self.index));
        };
        ground.note(|| format!("client {}: done {id:?} {result:?}", self.index));
        match doing {
            Doing::Aside => {}
            Doing::Unlock(thread) => {
                if let Some(up) = self.up.as_mut() {
                    up.threads[thread] = Thread::Idle;
                }
                self.think(ground, thread);
            }
            Doing::Claim => self.claimed(ground),
            Doing::ClaimLock(thread, held) => {
                let refused = result.is_err();
                let now = self.now(ground);
                let Some(up) = self.up.as_mut() else { return };
                if refused && up.locks.remove(&thread).is_some() {
                    ground.history.unlocked(self.index, thread);
                    if up.holder.trusted(now) {
                        let what = format!("client {}: {held:?} is claimed, and not given back", self.index);
                        ground.violate("LK-4", what);
                    }
                }
                self.give_back(ground, thread, held);
                self.claimed(ground);
            }
            Doing::App(running) => self.finish(ground, &running, result),
        }
    }

    fn finish(&mut self, ground: &mut Ground, running: &Running, result: Result<Answer, CallFailure>) {
        let thread = running.thread;
        if let Some(up) = self.up.as_mut() {
            up.threads[thread] = Thread::Idle;
            if let Some(fid) = running.changes {
                up.cache.own_ends(fid);
            }
        }
        match result {
            Ok(answer) => {
                ground.history.tally.done += 1;
                self.answered(ground, running, answer);
            }
            Err(CallFailure::Fault(fault)) if fault != Fault::Expired => {
                ground.history.tally.done += 1;
                self.refused(ground, running, fault);
            }
            Err(CallFailure::Fault(_) | CallFailure::SessionLost) => {
                ground.history.tally.unknown += 1;
                if let Op::ReadOpen(fid) = running.op {
                    self.close(ground, fid);
                }
            }
            Err(failure) => ground.violate("progress", format!("client {}: {failure}: {running:?}", self.index)),
        }
        self.think(ground, thread);
    }

    fn answered(&mut self, ground: &mut Ground, running: &Running, answer: Answer) {
        let Some(up) = self.up.as_mut() else { return };
        let (now, number) = (ground.now, running.number);
        let done = Done { timeline: running.timeline, verifier: running.verifier, now };
        let promised = |up: &Life, fid| {
            up.holder.promised(fid, running.snapshot) || ground.mutation == Some(Mutation::IgnoreSnapshots)
        };
        let floors = &running.floors;
        let history = &mut ground.history;
        let mut removed = None;
        let verdict = match (&running.op, answer) {
            (Op::Read(_), Answer::Data { data, status, .. }) => {
                if promised(up, status.fid) {
                    up.cache.put(&status, Some(&data));
                }
                let fresh = history.check_status(floors, &status, false);
                fresh.and_then(|()| history.check_value(status.fid, status.data_version, &data))
            }
            (Op::ReadOpen(fid), Answer::Data { .. }) => {
                let fid = *fid;
                return self.close(ground, fid);
            }
            (Op::Stat(_), Answer::Status(status)) => {
                if promised(up, status.fid) {
                    up.cache.put(&status, None);
                }
                history.check_status(floors, &status, false)
            }
            (Op::Write { stable, .. }, Answer::Written { status, verifier: written, .. }) => {
                up.cache.saw(&status);
                let verdict = history.wrote(number, Done { verifier: written, ..done }, &status);
                if *stable && done.timeline == history.timeline() {
                    history.stable_up_to(status.fid, status.data_version);
                }
                verdict
            }
            (Op::Append { stable, .. }, Answer::Written { status, offset, verifier: written, .. }) => {
                up.cache.saw(&status);
                history.appended(number, offset, *stable, done.timeline);
                history.changed(Done { verifier: written, ..done }, &status);
                if *stable && done.timeline == history.timeline() {
                    history.stable_up_to(status.fid, status.data_version);
                }
                Ok(())
            }
            (Op::Commit(fid), Answer::Committed { verifier }) => {
                history.committed(*fid, running.began, verifier);
                Ok(())
            }
            (Op::Chmod(..), Answer::Status(status)) => {
                up.cache.saw(&status);
                history.changed(done, &status);
                Ok(())
            }
            (Op::MakeOwn(name), Answer::Made { status, dir, existed: false }) => {
                history.own_made(name, status.fid, dir.data_version, done.timeline);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::RemoveOwn(name), Answer::Removed { dir, status }) => {
                removed = Some(status);
                history.own_removed(name, dir.data_version, done.timeline);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::MakeShared { guarded, .. }, Answer::Made { dir, existed, .. }) if !(existed && *guarded) => {
                running.shared_done(history, !existed, now);
                up.cache.saw(&dir);
                if !existed {
                    history.changed(done, &dir);
                }
                Ok(())
            }
            (Op::RemoveShared(_), Answer::Removed { dir, status }) => {
                removed = Some(status);
                running.shared_done(history, true, now);
                up.cache.saw(&dir);
                history.changed(done, &dir);
                Ok(())
            }
            (Op::RenameShared(from, to), Answer::Renamed { to_dir, other, .. }) => {
                removed = other;
                running.shared_done(history, from != to, now);
                up.cache.saw(&to_dir);
                if from != to {
                    history.changed(done, &to_dir);
                }
                Ok(())
            }
            (Op::Lookup(name) | Op::Open(name), Answer::Entry { status, dir_version }) => {
                let dir = running.dir;
                if promised(up, dir) {
                    up.cache.put_name(dir, dir_version, name, status.fid);
                }
                let known = promised(up, status.fid);
                if known {
                    up.cache.put(&status, None);
                }
                let verdict = history.check_data_version(floors, dir, dir_version, false);
                let trusted = up.holder.trusted(self.clock.read(now));
                // A removal of our own, of which we hear no break, may have come between.
                let quiet = up.cache.is_quiet_since(dir, running.mark);
                if known && trusted && quiet && matches!(running.op, Op::Open(_)) {
                    *up.open.entry(status.fid).or_default() += 1;
                    up.threads[running.thread] = Thread::Opened(status.fid);
                }
                verdict
            }
            (Op::Lock { fid, exclusive, family }, Answer::Done) => {
                let (fid, exclusive, family) = (*fid, *exclusive, *family);
                up.locks.insert(running.thread, HeldLock { fid, exclusive, family, doubtful: false });
                up.threads[running.thread] = Thread::Locked;
                history.locked(Belief { client: self.index, thread: running.thread, fid, exclusive }, now)
            }
            (op, answer) => Err(("answer", format!("{op:?} is answered with {answer:?}"))),
        };
        ground.judge(verdict);
        if let Some(status) = removed.filter(|status| status.links == 0) {
            self.keep_or_let_go(ground, status.fid);
        }
    }

    /// A file lost its last name through us, and the server holds it for us, as we asked.
    fn keep_or_let_go(&mut self, ground: &mut Ground, fid: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        if up.open.contains_key(&fid) {
            up.held.insert(fid);
        } else {
            self.submit(ground, Doing::Aside, Call::Unhold { fids: vec![fid] });
        }
    }

    fn refused(&mut self, ground: &mut Ground, running: &Running, fault: Fault) {
        let Some(up) = self.up.as_mut() else { return };
        let (now, began) = (ground.now, running.began);
        let verdict = match (&running.op, fault) {
            (Op::Lookup(name) | Op::Open(name), Fault::NotFound) => {
                let may = up.holder.promised(running.dir, running.snapshot) || ground.breaks(Mutation::IgnoreSnapshots);
                if may {
                    up.cache.put_absent(running.dir, name, running.mark);
                }
                ground.history.check_absent(name, running.timeline, began, now, false)
            }
            (Op::MakeShared { .. }, Fault::Exists) | (Op::RemoveShared(_) | Op::RenameShared(..), Fault::NotFound) => {
                running.shared_done(&mut ground.history, false, now);
                Ok(())
            }
            (Op::RemoveOwn(name), Fault::NotFound) => ground.history.own_missing(name),
            (Op::MakeOwn(name), Fault::Exists) => Err(("EO-1", format!("{name:?} is made once, and exists already"))),
            (Op::ReadOpen(fid), _) => {
                let fid = *fid;
                let lost = running.timeline != ground.history.timeline() || !up.open.contains_key(&fid);
                self.close(ground, fid);
                match lost {
                    true => Ok(()),
                    false => Err(("HO-1", format!("client {}: {fid} is open, and refused: {fault}", self.index))),
                }
            }
            (op, fault) => Err(("answer", format!("{op:?} is refused with {fault:?}"))),
        };
        ground.judge(verdict);
    }

    fn close(&mut self, ground: &mut Ground, fid: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        let Some(count) = up.open.get_mut(&fid) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        up.open.remove(&fid);
        if up.held.remove(&fid) {
            self.submit(ground, Doing::Aside, Call::Unhold { fids: vec![fid] });
        }
    }
}

impl Running {
    fn shared_done(&self, history: &mut crate::history::History, happened: bool, now: Time) {
        for (name, at) in &self.shared {
            history.shared_done(name, *at, self.timeline, happened, now);
        }
    }
}

fn owner_of(thread: usize) -> LockOwner {
    LockOwner(1 + thread as u64)
}

fn hello() -> Hello {
    Hello::full(Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS))
}
