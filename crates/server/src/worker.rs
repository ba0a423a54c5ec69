//! A worker: one thread, one epoll, its own connections.
//!
//! A connection goes through these stages; only its worker reads it, in any of them:
//! ```text
//! Greeting --attach or bind--> Joining --session found--> InSession
//!    |                            |                         |
//!    +-- malformed, silent -------+-- refused --------------+-- end of stream, error -->  gone
//! ```
//! In the network the first byte shows whether a greeting begins with a TLS handshake; its time
//! limit covers both. Small requests run here, one after the other, and their replies leave
//! together after the last one that had arrived; calls that may wait for the disk go to the pool. A
//! connection whose replies pile up is not read from until they are sent.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use client::clock;
use dafs::{ChannelId, Features, Greeting, ServerInput};
use fabric::{Connection, Filled, Inbox};
use parking_lot::Mutex;
use rustix::event::epoll::Event;
use types::Host;

use crate::context::{Agenda, ServerContext};
use crate::link::Link;
use crate::poll::{NobodyBreak, Orders, PROCESS, Poll, ReadySource};
use crate::pool::{be_nice, serve_users};
use crate::process::{PeerLifetime, ProcessState};
use crate::security::{Door, Security};
use crate::session_handle::SessionHandle;
use crate::socket_watch::SocketWatch;
use crate::usage::{self, Arrived};
use crate::worker_connection::{
    Arrival, Entry, Goes, JoinedQueue, LIMITS, LaneState, LaneTurn, Stage, UNJOINED_LIMITS,
    WorkerConnection, measure,
};

/// Bytes of a refused connection that are read and discarded.
const DISCARD_MAX: usize = 256 << 10;
/// Receives in a row from one connection before others have their turn.
const TURN: usize = 16;
/// A lane without requests is looked at for so long before it sleeps: a client that was told of a
/// reply asks again sooner.
const LANE_PATIENCE: Duration = Duration::from_micros(30);
/// How often deadlines are checked, while there are any.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A worker as other threads see it: its poll, and what they hand over to it.
pub(crate) struct WorkerDoor {
    poll: Arc<Poll>,
    joined: Arc<JoinedQueue>,
    /// Connections of the worker for *nobody* that now belong to users.
    adopted: Mutex<Vec<WorkerConnection>>,
}

impl WorkerDoor {
    /// # Errors
    ///
    /// As [`Poll::new`].
    pub fn new() -> io::Result<Arc<WorkerDoor>> {
        let poll = Arc::new(Poll::new()?);
        let joined = JoinedQueue::new(Arc::clone(&poll));
        Ok(Arc::new(WorkerDoor { poll, joined, adopted: Mutex::default() }))
    }

    /// Gives the worker an order and wakes it.
    pub fn order(&self, give: impl FnOnce(&mut Orders)) {
        self.poll.order(give);
    }
}

pub(crate) struct Worker {
    context: Arc<ServerContext>,
    door: Arc<WorkerDoor>,
    connections: HashMap<u64, WorkerConnection>,
    /// Connections that had no session when they were added, oldest first.
    unjoined: VecDeque<u64>,
    unjoined_count: usize,
    unbound_max: usize,
    slow_reader: Duration,
    /// Sessions that lost their last connection while their process may be dying.
    watched: HashMap<u64, (rustix::fd::OwnedFd, Arc<SessionHandle>)>,
    checked_at: Instant,
    /// Connections whose lanes are looked at without a bell, and when each had something last.
    awake: Vec<(u64, Instant)>,
    /// Waits for the sockets meanwhile.
    watch: Option<SocketWatch>,
    /// Set in the worker that has the connections of unknown callers and of *nobody*; it hands over
    /// those of users.
    nobody: Option<NobodyState>,
}

/// The additional state of the worker for *nobody*.
struct NobodyState {
    /// The workers for users, in turn.
    users: Vec<Arc<WorkerDoor>>,
    next: usize,
    /// Memory of partially received requests.
    half_received: usize,
}

impl Worker {
    pub fn new(
        context: Arc<ServerContext>,
        door: Arc<WorkerDoor>,
        unbound_max: usize,
        slow_reader: Duration,
    ) -> Self {
        Worker {
            context,
            door,
            connections: HashMap::new(),
            unjoined: VecDeque::new(),
            unjoined_count: 0,
            unbound_max,
            slow_reader,
            watched: HashMap::new(),
            checked_at: Instant::now(),
            awake: Vec::new(),
            watch: None,
            nobody: None,
        }
    }

    /// The worker for *nobody*; connections that turn out to be users' go to one of `users`.
    pub fn for_nobody(self, users: Vec<Arc<WorkerDoor>>) -> Self {
        Worker { nobody: Some(NobodyState { users, next: 0, half_received: 0 }), ..self }
    }

    /// Serves until ordered to stop.
    pub fn run(mut self) {
        match self.nobody {
            Some(_) => be_nice(),
            None => serve_users(),
        }
        let mut events: Vec<Event> = Vec::new();
        let mut ready = Vec::new();
        loop {
            self.serve_lanes();
            let timeout = match self.awake.is_empty() {
                true => self.has_deadlines().then_some(POLL_INTERVAL),
                false if !self.must_ask_sockets() => continue,
                false => Some(Duration::ZERO),
            };
            let orders = self.door.poll.wait(&mut events, timeout, &mut ready);
            let began = Instant::now();
            let went = catch_unwind(AssertUnwindSafe(|| self.turn(orders, &mut ready)));
            if let Some(watch) = self.watch.as_ref().filter(|_| !self.awake.is_empty()) {
                watch.arm();
            }
            if self.nobody.is_some() {
                self.context.rest_after(began);
            }
            match went {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    ready.clear();
                    self.context.panicked(
                        "a worker",
                        "its current work is lost; connections may hang",
                        "their clients connect again",
                    );
                }
            }
        }
        for entry in self.connections.values() {
            entry.link.flush();
            entry.link.cut();
        }
        self.door.poll.close();
        self.door.adopted.lock().clear();
        if let Some(watch) = self.watch {
            self.door.poll.ring();
            watch.end();
        }
    }

    /// Whether sockets may have something, while the worker looks into lanes.
    fn must_ask_sockets(&mut self) -> bool {
        if self.watch.is_none() {
            let watch = self.door.poll.epoll().and_then(SocketWatch::start);
            // Without a thread it asks each time.
            self.watch = watch.inspect_err(|error| tracing::warn!(%error, "no watch")).ok();
        }
        let has_deadline = self.has_deadlines() && self.checked_at.elapsed() >= POLL_INTERVAL;
        has_deadline || self.watch.as_ref().is_none_or(|watch| !watch.is_quiet())
    }

    /// One round. `false`: the last.
    fn turn(&mut self, orders: io::Result<Option<Orders>>, ready: &mut Vec<ReadySource>) -> bool {
        for found in ready.drain(..) {
            self.on_ready(found);
        }
        match orders {
            Ok(Some(orders)) if orders.stop => return false,
            Ok(Some(orders)) => self.on_orders(orders),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "epoll failed");
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        if self.has_deadlines() && self.checked_at.elapsed() >= POLL_INTERVAL {
            self.check_deadlines();
        }
        true
    }

    fn has_deadlines(&self) -> bool {
        // Connections with a session are checked too, as long as there are any: one may be blocked.
        !self.connections.is_empty() || !self.watched.is_empty()
    }

    fn on_orders(&mut self, orders: Orders) {
        for (id, connection, door) in orders.new {
            self.accept_connection(id, connection, door);
        }
        for (id, handle) in self.door.joined.take() {
            self.on_joined(id, handle);
        }
        let adopted = std::mem::take(&mut *self.door.adopted.lock());
        for entry in adopted {
            self.adopt(entry);
        }
        for id in orders.resumed {
            self.on_resumed(id);
        }
        self.send_breaks(orders.breaks);
    }

    /// Others changed files that were promised to these sessions of *nobody*.
    fn send_breaks(&self, breaks: Vec<NobodyBreak>) {
        let mut agenda = Agenda::default();
        for NobodyBreak { session, id, items } in breaks {
            let Some(handle) = self.context.handle(session) else { continue };
            let outcome = handle.step(clock::now(), ServerInput::Break { id, items }, None);
            agenda.take(&handle, outcome);
        }
        self.context.deliver_and_send(&mut agenda);
    }

    fn accept_connection(&mut self, id: ChannelId, connection: Connection, door: Door) {
        let process = connection.peer().and_then(PeerLifetime::of);
        let security = Security::of(door, connection.peer());
        let host = match security {
            Some(security) => security.local_user(),
            None => connection.host().map(Host::of),
        };
        let arrived = self.context.bounds.connect(host);
        if arrived != Arrived::Fits
            && let Some(before) = self.context.bounds.may_log("connections", host)
        {
            tracing::warn!(
                ?host,
                before,
                "refused, since its host has the most connections allowed; its client tries again"
            );
        }
        if arrived == Arrived::Over {
            self.context.tally.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let crowded = arrived == Arrived::Crowded;
        let is_far = security.is_none();
        let entry = if is_far && self.context.tls.is_some() { Entry::Knocking } else { Entry::In };
        let packed = Features::PACKED.with(Features::PACKED_READS);
        let always = Features::CHECKSUMS
            .with(Features::PAYLOAD_CHECKSUMS)
            .with(Features::DELEGATIONS)
            .with(Features::SUCCESSORS)
            .with(Features::READ_TIMES)
            .with(Features::SHORT_SLOTS)
            .with(packed);
        let descriptors = always.with(Features::DESCRIPTORS).with(Features::DIRECT);
        let features = match security {
            None => always,
            // Such a user's sessions are of *nobody*, which have no lane.
            Some(Security::User(_)) if !security.is_some_and(Security::is_of_known_user) => {
                descriptors
            }
            Some(_) => descriptors.with(Features::LANES),
        };
        if let Err(error) = self.door.poll.add(&connection, id.0) {
            tracing::warn!(%error, "no room for a connection");
            self.context.tally.connections.fetch_sub(1, Ordering::Relaxed);
            self.context.bounds.part(host);
            return;
        }
        let mut out = Vec::new();
        let mut greeting = Greeting::new(clock::now(), Greeting::offer(features), &mut out);
        greeting.answers_for(self.context.vice.me().id);
        let entry = WorkerConnection {
            link: Arc::new(Link::new(
                id,
                (connection, door),
                Arc::clone(&self.door.poll),
                self.context.vice.partitions().clone(),
                self.nobody.is_some().then(|| Arc::clone(&self.context.unread)),
            )),
            host,
            crowded,
            half_received: 0,
            inbox: Inbox::new(measure, UNJOINED_LIMITS, false),
            lane: LaneState::None,
            is_rung: false,
            process,
            terms: None,
            stage: Stage::Greeting(Box::new(Arrival { greeting, terms: None, entry })),
        };
        self.connections.insert(id.0, entry);
        self.unjoined.push_back(id.0);
        self.unjoined_count += 1;
        self.turn_away_the_oldest();
    }

    fn turn_away_the_oldest(&mut self) {
        while self.unjoined_count > self.unbound_max {
            let Some(oldest) = self.unjoined.pop_front() else { return };
            if self
                .connections
                .get(&oldest)
                .is_some_and(|entry| !matches!(entry.stage, Stage::InSession(_)))
            {
                self.context.tally.turned_away.fetch_add(1, Ordering::Relaxed);
                self.remove_unjoined(oldest);
            }
        }
    }

    fn on_ready(&mut self, found: ReadySource) {
        if found.number & PROCESS != 0 {
            self.on_process_end(found.number);
            return;
        }
        let Some(entry) = self.connections.get_mut(&found.number) else { return };
        if found.send {
            entry.link.flush();
        }
        if entry.link.is_paused() {
            // Nothing is read, so no read would report that the other end is gone.
            if found.over {
                self.remove_unjoined(found.number);
            }
        } else if found.receive || found.over {
            self.receive_or_end(found.number);
        }
    }

    /// A panic over one client's input ends that client's connection, and nothing else.
    fn receive_or_end(&mut self, number: u64) {
        if catch_unwind(AssertUnwindSafe(|| self.receive(number))).is_err() {
            tracing::error!(
                link = number,
                "input of this connection caused a panic; the connection is closed"
            );
            self.context.tally.panics.fetch_add(1, Ordering::Relaxed);
            self.remove_unjoined(number);
        }
    }

    fn receive(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let mut agenda = Agenda::default();
        let mut goes = Goes::On;
        let mut refused = false;
        for _ in 0..TURN {
            let more = match entry.inbox.fill(&entry.link.connection, false) {
                Ok(Filled::Some) => !entry.inbox.has_room(),
                Ok(Filled::Nothing) => false,
                Ok(Filled::End) | Err(_) => {
                    goes = Goes::Ends;
                    false
                }
            };
            if goes == Goes::On {
                goes = entry.take_in(&self.context, &self.door.joined, &mut agenda);
                refused = goes == Goes::Ends;
            }
            if goes == Goes::Ends || !more || entry.link.is_paused() {
                break;
            }
        }
        agenda.flush();
        if refused {
            // Closing with bytes unread would make TCP discard the reason that was just sent.
            entry.link.connection.discard(DISCARD_MAX);
        }
        if goes == Goes::Ends {
            self.remove_unjoined(number);
        } else if self.nobody.is_some() {
            self.hand_over(number);
            self.count_half_received(number);
        }
        self.wake_lane(number);
    }

    /// Takes requests out of the lanes that are awake. A lane that had nothing for a while sleeps
    /// until its client rings.
    fn serve_lanes(&mut self) {
        let mut awake = std::mem::take(&mut self.awake);
        awake.retain_mut(|(number, had_some)| match self.serve_lane(*number) {
            LaneTurn::Some => {
                *had_some = Instant::now();
                true
            }
            LaneTurn::Nothing if had_some.elapsed() < LANE_PATIENCE => true,
            LaneTurn::Nothing => self
                .connections
                .get(number)
                .and_then(|entry| entry.lane.open())
                .is_some_and(|lane| !lane.sleep()),
            LaneTurn::Paused | LaneTurn::Over => false,
        });
        // Lanes that were opened or rung meanwhile.
        awake.append(&mut self.awake);
        self.awake = awake;
    }

    /// As [`Worker::receive_or_end`], for a lane.
    fn serve_lane(&mut self, number: u64) -> LaneTurn {
        let Some(entry) = self.connections.get_mut(&number) else { return LaneTurn::Over };
        let mut agenda = Agenda::default();
        let context = &self.context;
        let turn = catch_unwind(AssertUnwindSafe(|| entry.take_from_lane(context, &mut agenda)));
        agenda.flush();
        match turn {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                self.remove_unjoined(number);
                LaneTurn::Over
            }
            Err(_) => {
                tracing::error!(
                    link = number,
                    "a request in this connection's lane caused a panic; it is closed"
                );
                self.context.tally.panics.fetch_add(1, Ordering::Relaxed);
                self.remove_unjoined(number);
                LaneTurn::Over
            }
        }
    }

    /// A lane that sleeps is looked at from now on, if its client rang.
    fn wake_lane(&mut self, number: u64) {
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let is_rung = std::mem::take(&mut entry.is_rung);
        let Some(lane) = entry.lane.open().filter(|_| is_rung) else { return };
        if self.awake.iter().all(|(other, _)| *other != number) {
            lane.wake();
            self.awake.push((number, Instant::now()));
        }
    }

    /// Hands a connection of a user over to one of the workers for users.
    fn hand_over(&mut self, number: u64) {
        let Some(nobody) = &mut self.nobody else { return };
        let is_users = |entry: &WorkerConnection| match &entry.stage {
            Stage::InSession(handle) => !handle.is_of_nobody(),
            _ => false,
        };
        if !self.connections.get(&number).is_some_and(is_users) {
            return;
        }
        let Some(mut entry) = self.connections.remove(&number) else { return };
        nobody.half_received -= std::mem::take(&mut entry.half_received);
        nobody.next += 1;
        let to = Arc::clone(&nobody.users[nobody.next % nobody.users.len()]);
        self.door.poll.remove(&entry.link.connection);
        entry.link.become_users(Arc::clone(&to.poll));
        to.adopted.lock().push(entry);
        to.order(|_| ());
    }

    /// Takes a connection from the worker for *nobody*.
    fn adopt(&mut self, entry: WorkerConnection) {
        let (id, link) = (entry.link.id, Arc::clone(&entry.link));
        let added = self.door.poll.add(&link.connection, id.0);
        self.connections.insert(id.0, entry);
        if let Err(error) = added {
            tracing::warn!(%error, "no room for a connection");
            self.remove_unjoined(id.0);
            return;
        }
        link.set_paused(false);
        link.refresh_interest();
        self.on_resumed(id);
        // Frames that other threads queued while no epoll had it.
        link.flush();
    }

    /// Limits the memory of partially received requests of *nobody*; beyond it the connection with
    /// the largest is closed.
    fn count_half_received(&mut self, number: u64) {
        let Some(nobody) = &mut self.nobody else { return };
        let Some(entry) = self.connections.get_mut(&number) else { return };
        let now = entry.inbox.bytes();
        nobody.half_received =
            nobody.half_received + now - std::mem::replace(&mut entry.half_received, now);
        if nobody.half_received <= self.context.bounds.limits.nobody_memory_mib << 20 {
            return;
        }
        let most = self
            .connections
            .iter()
            .max_by_key(|(_, entry)| entry.half_received)
            .map(|(number, _)| *number);
        usage::count(&self.context.bounds.met.nobody_memory);
        most.into_iter().for_each(|number| self.remove_unjoined(number));
    }

    /// A connection whose requests waited may be read again.
    fn on_resumed(&mut self, id: ChannelId) {
        self.hand_over(id.0);
        let Some(entry) = self.connections.get_mut(&id.0) else { return };
        let mut agenda = Agenda::default();
        let goes = entry.take_in(&self.context, &self.door.joined, &mut agenda);
        agenda.flush();
        if !entry.link.is_paused() {
            entry.link.refresh_interest();
        }
        // Requests in its lane waited, too.
        entry.is_rung = true;
        if goes == Goes::Ends {
            self.remove_unjoined(id.0);
        }
        self.wake_lane(id.0);
    }

    /// The pool found a session for the connection, or refused it.
    fn on_joined(&mut self, id: ChannelId, handle: Option<Arc<SessionHandle>>) {
        let Some(entry) = self.connections.get_mut(&id.0) else {
            // The connection has left meanwhile.
            if let Some(handle) = handle {
                self.leave(id, &handle);
            }
            return;
        };
        self.unjoined_count -= 1;
        let Some(handle) = handle else {
            // A goodbye is queued; the connection is removed when it has been sent.
            entry.stage = Stage::Joining;
            self.remove_connection(id.0);
            return;
        };
        entry.inbox.set_limits(LIMITS);
        if entry.terms.is_some_and(|terms| terms.features.has(Features::LANES)) {
            entry.inbox.take_descriptors();
        }
        entry.stage = Stage::InSession(handle);
        entry.link.set_paused(false);
        entry.link.refresh_interest();
        self.on_resumed(id);
    }

    /// A connection is over.
    fn remove_unjoined(&mut self, number: u64) {
        if self
            .connections
            .get(&number)
            .is_some_and(|entry| !matches!(entry.stage, Stage::InSession(_)))
        {
            self.unjoined_count -= 1;
        }
        self.remove_connection(number);
    }

    fn remove_connection(&mut self, number: u64) {
        let Some(entry) = self.connections.remove(&number) else { return };
        self.context.tally.connections.fetch_sub(1, Ordering::Relaxed);
        self.context.bounds.part(entry.host);
        if let Some(nobody) = &mut self.nobody {
            nobody.half_received -= entry.half_received;
        }
        self.door.poll.remove(&entry.link.connection);
        entry.link.flush();
        entry.link.cut();
        if let Stage::InSession(handle) = &entry.stage {
            self.leave(entry.link.id, handle);
        }
    }

    fn leave(&mut self, id: ChannelId, handle: &Arc<SessionHandle>) {
        let (was_of_it, outcome) = handle.lost(clock::now(), id);
        let mut agenda = Agenda::default();
        agenda.take(handle, outcome);
        self.context.deliver_and_send(&mut agenda);
        if was_of_it && !handle.is_connected() {
            self.watch(handle);
        }
    }

    /// The last connection of a session is gone: if its process is too, no other client needs to
    /// wait for the lease.
    fn watch(&mut self, handle: &Arc<SessionHandle>) {
        let Some(process) = handle.process() else { return };
        match process.state() {
            ProcessState::Over => self.process_died(handle),
            ProcessState::There(descriptor) => {
                let number = PROCESS | handle.id.0;
                if self.watched.contains_key(&number)
                    || self.door.poll.add(&descriptor, number).is_err()
                {
                    return;
                }
                self.watched.insert(number, (descriptor, Arc::clone(handle)));
            }
            ProcessState::Unknown => {}
        }
    }

    fn on_process_end(&mut self, number: u64) {
        let Some((descriptor, handle)) = self.watched.remove(&number) else { return };
        self.door.poll.remove(&descriptor);
        // Another process may have reconnected the session meanwhile.
        if !handle.is_connected() {
            self.process_died(&handle);
        }
    }

    fn process_died(&self, handle: &SessionHandle) {
        tracing::info!(session = handle.id.0, "the client's process is gone");
        let mut agenda = Agenda::default();
        self.context.vice.peer_died(clock::now(), handle.id, &mut agenda.effects);
        self.context.deliver_and_send(&mut agenda);
    }

    fn check_deadlines(&mut self) {
        self.checked_at = Instant::now();
        let mut over = Vec::new();
        while let Some(first) = self.unjoined.front() {
            // The oldest are in front: if one is in time, the rest is.
            match self.connections.get_mut(first).map(|entry| (entry.is_in_time(), &entry.stage)) {
                Some((true, _)) => break,
                Some((false, Stage::InSession(_))) | None => {}
                Some((false, Stage::Greeting(_) | Stage::Joining)) => over.push(*first),
            }
            self.unjoined.pop_front();
        }
        self.context.tally.turned_away.fetch_add(over.len() as u64, Ordering::Relaxed);
        over.into_iter().for_each(|number| self.remove_unjoined(number));
        let patience = if self.nobody.is_some() { self.slow_reader / 5 } else { self.slow_reader };
        for entry in self.connections.values() {
            if entry.link.blocked_since().is_some_and(|since| since.elapsed() > patience) {
                let host = entry.host;
                if let Some(before) = self.context.bounds.may_log("slow", host) {
                    tracing::warn!(
                        link = entry.link.id.0,
                        ?host,
                        before,
                        "the client reads nothing; cut off"
                    );
                }
                self.context.tally.slow_readers.fetch_add(1, Ordering::Relaxed);
                entry.link.cut();
            }
            // It may wait for bytes that other clients of *nobody* have not read.
            entry.link.go_on();
        }
        let needless = |handle: &SessionHandle| {
            handle.is_connected() || self.context.handle(handle.id).is_none()
        };
        let back: Vec<u64> = self
            .watched
            .iter()
            .filter(|(_, (_, handle))| needless(handle))
            .map(|(number, _)| *number)
            .collect();
        for number in back {
            if let Some((descriptor, _)) = self.watched.remove(&number) {
                self.door.poll.remove(&descriptor);
            }
        }
    }
}
