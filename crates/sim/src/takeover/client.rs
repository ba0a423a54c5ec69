//! A client: its sessions at the servers, and how it follows the volume
//! (`client/cell/volume.rs` is what ships; this keeps to its rules).
//!
//! A client is at *home* at one server. If that refuses a call with `NoVolume`, or is silent, or
//! breaks the promise of the root, the client *looks* in the database where the volume is. It
//! *examines* the volume there, asks which acknowledged changes are there (*heritage*), *claims*
//! its locks, *waits* until the volume serves, and is at home there. Calls without an answer are
//! then settled: the reply is inherited, or the call is made again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use celldb::CellDb;
use lease::{CallStart, Holder};
use types::{
    Answer, Call, Fault, ReplyAddress, SessionId, Time, VolumeCall, VolumeState, WhichVolume,
};

use super::apps::{App, AppState, LOGS, LogCopy};
use super::database::DatabaseLine;
use super::house::number;
use super::judge::TokenFate;
use super::mutation::TakeoverMutation;
use super::wire::{Asker, Content, SimMessage, Wire};
use super::world::{Occurrence, StandbyWorld, TREE};
use crate::clock::Clock;

/// Applications of a client.
pub(super) const THREADS: usize = 2;
/// How often a client looks what is due, at most.
const MIND: Duration = Duration::from_millis(250);
/// It asks for a renewal so often, and gives a silent connection up after the longer time.
const PING: Duration = Duration::from_millis(1500);
const SILENT: Duration = Duration::from_secs(4);
/// After so much silence a client with waiting calls looks in the database.
const AWAY: Duration = Duration::from_millis(1200);
/// A step of following that is not answered is given up after this time.
const STEP_WITHIN: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_millis(600);

/// A session at a server.
pub(super) struct TakeoverSeat {
    phase: SeatPhase,
    session: Option<SessionId>,
    connection: u64,
    pub holder: Holder,
    /// A break said that the volume may have left, or the server was started again: until then, on
    /// the client's clock, it is sure of its locks there, unless a call is executed there that it
    /// makes later. Renewals from then on prolong that no more: they come from a server that may
    /// have given the volume up, and by which nothing can be done under a lock.
    sure_until: Option<Time>,
    /// When something was heard from the server, and when a renewal was asked for.
    heard: Time,
    pinged: Time,
    /// The last request of each slot.
    requests: BTreeMap<u32, u64>,
    pending: BTreeMap<u32, PendingRequest>,
    /// Acknowledged changes, with their tokens.
    pub changes: Vec<(ReplyAddress, u64)>,
    claims: VecDeque<Call>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeatPhase {
    /// No connection; the next attempt comes then.
    Away(Time),
    /// Asked for its session since then.
    Joining(Time),
    /// The server was started again: locks are claimed.
    Claiming,
    Up,
}

struct PendingRequest {
    origin: ReplyAddress,
    call: Call,
    why: Purpose,
    start: CallStart,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The operation of an application.
    App(usize),
    /// The reply to an application's operation at the former home.
    Inherit(usize),
    /// Steps of following, of the attempt with this number.
    Follow(u64),
    /// Is the volume still at home?
    Check,
    /// A claim after a restart of the server.
    Claim,
    /// Its caller is gone.
    Nothing,
}

/// How far the client has followed the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Following {
    AtHome,
    /// It looks in the database then.
    Look(Time),
    Step {
        to: usize,
        since: Time,
        step: FollowStep,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FollowStep {
    Connect,
    /// Asked for the volume's state.
    Examine,
    Heritage {
        generation: u64,
        left: Vec<ReplyAddress>,
        known: BTreeMap<(SessionId, u32), u64>,
    },
    Claim {
        generation: u64,
        left: Vec<usize>,
    },
    /// Asks until the volume serves; asked at this time.
    Await {
        generation: u64,
        again: Option<Time>,
    },
}

/// See the head of the file.
pub(super) struct TakeoverClient {
    pub index: usize,
    pub clock: Clock,
    line: DatabaseLine,
    pub seats: Vec<TakeoverSeat>,
    pub home: usize,
    /// That of the volume at home.
    pub generation: u64,
    following: Following,
    attempt: u64,
    /// A break says that the volume may have left.
    suspects: bool,
    pub apps: Vec<App>,
    /// The logs that are locked: at which server, and by which application.
    pub locks: BTreeMap<usize, (usize, usize)>,
    pub cache: BTreeMap<usize, LogCopy>,
    /// Own changes of each log that began, and that ended.
    pub own: BTreeMap<usize, (u64, u64)>,
    mind_at: Time,
}

fn examine() -> Call {
    Call::Volume(VolumeCall::Examine { volume: WhichVolume::Id(TREE) })
}

impl TakeoverClient {
    pub fn new(world: &mut StandbyWorld, index: usize, line: DatabaseLine) -> TakeoverClient {
        let seat = |_| TakeoverSeat {
            phase: SeatPhase::Away(Time::ZERO),
            session: None,
            connection: 0,
            holder: Holder::default(),
            sure_until: None,
            heard: Time::ZERO,
            pinged: Time::ZERO,
            requests: BTreeMap::new(),
            pending: BTreeMap::new(),
            changes: Vec::new(),
            claims: VecDeque::new(),
        };
        for thread in 0..THREADS {
            let delay = world.upto(Duration::from_secs(1));
            world.after(delay, Occurrence::Act(index, thread));
        }
        TakeoverClient {
            index,
            clock: Clock::random(&mut world.rng),
            line,
            seats: (0..world.houses.len()).map(seat).collect(),
            home: 0,
            generation: 0,
            following: Following::AtHome,
            attempt: 0,
            suspects: false,
            apps: (0..THREADS).map(|_| App::default()).collect(),
            locks: BTreeMap::new(),
            cache: BTreeMap::new(),
            own: BTreeMap::new(),
            mind_at: Time::ZERO,
        }
    }

    fn wire(&self, server: usize) -> Wire {
        Wire { asker: Asker::Client(self.index), server }
    }

    /// Whether it trusts what this server promised.
    pub fn trusts(&self, server: usize, now: Time) -> bool {
        self.seats[server].holder.trusted(self.clock.read(now))
    }

    /// Whether it is sure to have the lock of this log.
    pub fn holds(&self, log: usize, now: Time) -> bool {
        self.locks.get(&log).is_some_and(|(server, _)| {
            let sure_until = self.seats[*server].sure_until;
            self.trusts(*server, now) && sure_until.is_none_or(|at| self.clock.read(now) < at)
        })
    }

    pub fn is_at_home(&self) -> bool {
        self.following == Following::AtHome && self.seats[self.home].phase == SeatPhase::Up
    }

    /// It is on no way to the volume, as far as it knows.
    pub fn is_still(&self) -> bool {
        self.following == Following::AtHome
    }

    /// The unfinished work, for messages.
    pub fn unfinished(&self) -> String {
        let pending = self.seats.iter().map(|seat| seat.pending.len()).collect::<Vec<_>>();
        let phases = self.seats.iter().map(|seat| seat.phase).collect::<Vec<_>>();
        let apps = self.apps.iter().map(|app| &app.state).collect::<Vec<_>>();
        format!(
            "client {} at {}: {:?}, seats {phases:?}, pending {pending:?}, apps {apps:?}",
            self.index, self.home, self.following
        )
    }

    // Things that are due.

    /// Looks what is due.
    pub fn mind(&mut self, world: &mut StandbyWorld) {
        self.expire(world);
        for server in 0..self.seats.len() {
            self.mind_seat(world, server);
        }
        if self.suspects && self.is_at_home() {
            self.suspects = false;
            self.request(world, self.home, examine(), Purpose::Check);
        }
        let waits = self.apps.iter().any(|app| app.state.waits());
        let is_silent = world.now.since(self.seats[self.home].heard) >= AWAY;
        if self.following == Following::AtHome && waits && is_silent {
            self.look(world, Duration::ZERO);
        }
        self.follow_on(world);
        if world.now >= self.mind_at {
            let delay = MIND / 2 + world.upto(MIND / 2);
            self.mind_at = world.now + delay;
            world.after(delay, Occurrence::Mind(self.index));
        }
    }

    /// Leases that are over.
    pub fn expire(&mut self, world: &mut StandbyWorld) {
        let now = self.clock.read(world.now);
        for server in 0..self.seats.len() {
            if self.seats[server].holder.expire(now) {
                world.note(|| format!("client {}: its lease at {server} is over", self.index));
                self.void(server);
                self.locks.retain(|_, (at, _)| *at != server);
            }
        }
    }

    /// All promises of this server are over.
    fn void(&mut self, server: usize) {
        if server == self.home {
            self.cache.clear();
        }
    }

    fn needs(&self, server: usize) -> bool {
        let goes = matches!(&self.following, Following::Step { to, .. } if *to == server);
        server == self.home || goes
    }

    fn mind_seat(&mut self, world: &mut StandbyWorld, server: usize) {
        let (now, local) = (world.now, self.clock.read(world.now));
        let is_wanted = self.needs(server) || self.seats[server].session.is_some();
        let seat = &mut self.seats[server];
        match seat.phase {
            SeatPhase::Away(at) if at <= now && is_wanted => self.connect(world, server),
            SeatPhase::Joining(since) if now.since(since) > SILENT => self.lose(world, server),
            SeatPhase::Up | SeatPhase::Claiming if now.since(seat.heard) > SILENT => {
                self.lose(world, server);
            }
            SeatPhase::Up | SeatPhase::Claiming if now.since(seat.pinged) > PING => {
                seat.pinged = now;
                let session = seat.session.expect("it is attached");
                self.tell(world, server, Content::Ping(session, local));
            }
            _ => {}
        }
    }

    fn tell(&mut self, world: &mut StandbyWorld, server: usize, content: Content) {
        let (wire, connection) = (self.wire(server), self.seats[server].connection);
        world.send(SimMessage { wire, connection, to_server: true, content });
    }

    fn connect(&mut self, world: &mut StandbyWorld, server: usize) {
        let seat = &mut self.seats[server];
        seat.connection += 1;
        seat.phase = SeatPhase::Joining(world.now);
        let content = seat.session.map_or(Content::Attach, Content::Resume);
        self.tell(world, server, content);
    }

    /// The connection is lost.
    fn lose(&mut self, world: &mut StandbyWorld, server: usize) {
        let seat = &mut self.seats[server];
        world.network.break_off(Wire { asker: Asker::Client(self.index), server }, seat.connection);
        seat.connection += 1;
        seat.phase = SeatPhase::Away(world.now + CONNECT_AGAIN);
    }

    /// The session is over: the outcome of its calls is unknown, unless the volume is elsewhere.
    fn session_over(&mut self, world: &mut StandbyWorld, server: usize) {
        world.note(|| format!("client {}: its session at {server} is over", self.index));
        self.void(server);
        self.locks.retain(|_, (at, _)| *at != server);
        let seat = &mut self.seats[server];
        seat.holder.on_lease_lost();
        (seat.session, seat.phase) = (None, SeatPhase::Away(world.now));
        seat.requests.clear();
        seat.claims.clear();
        for request in std::mem::take(&mut seat.pending).into_values() {
            match request.why {
                Purpose::App(thread) => {
                    self.apps[thread].refused(Some((request.origin, self.generation)), true);
                    self.look(world, Duration::ZERO);
                }
                Purpose::Inherit(thread) => {
                    let made = self.apps[thread].made;
                    self.apps[thread].refused(made, true);
                    self.look(world, Duration::from_millis(200));
                }
                Purpose::Follow(_) => {
                    self.look(world, Duration::from_millis(200));
                }
                Purpose::Check => self.suspects = true,
                Purpose::Claim | Purpose::Nothing => {}
            }
        }
    }

    // Requests.

    /// Makes a request. False: there is no session now.
    pub fn request(
        &mut self,
        world: &mut StandbyWorld,
        server: usize,
        call: Call,
        why: Purpose,
    ) -> bool {
        let seat = &mut self.seats[server];
        let is_claim = why == Purpose::Claim && seat.phase == SeatPhase::Claiming;
        let Some(session) = seat.session.filter(|_| seat.phase == SeatPhase::Up || is_claim) else {
            return false;
        };
        let slot = (0..).find(|slot| !seat.pending.contains_key(slot)).expect("there are many");
        let last = seat.requests.entry(slot).or_insert(0);
        *last += 1;
        let origin = ReplyAddress { session, slot, request: *last };
        let start = seat.holder.begin();
        seat.pending.insert(slot, PendingRequest { origin, call: call.clone(), why, start });
        if !matches!(why, Purpose::App(_)) {
            let index = self.index;
            world.note(|| format!("client {index} asks {server}: {why:?} in {slot}"));
        }
        if let Purpose::App(thread) = why {
            self.apps[thread].made = Some((origin, self.generation));
        }
        self.tell(world, server, Content::Request(origin, Box::new(call)));
        true
    }

    /// A message for this client.
    pub fn receives(&mut self, world: &mut StandbyWorld, message: SimMessage) {
        let SimMessage { wire, connection, content, .. } = message;
        let server = wire.server;
        if connection != self.seats[server].connection {
            return;
        }
        self.expire(world);
        if !matches!(content, Content::Unreachable) {
            self.seats[server].heard = world.now;
        }
        match content {
            Content::Attached(attached) => self.attached(world, server, &attached),
            Content::NoSession => self.session_over(world, server),
            Content::Ended(session) if self.seats[server].session == Some(session) => {
                self.session_over(world, server);
            }
            Content::Unreachable => self.lose(world, server),
            Content::Pong(sent_at) => self.seats[server].holder.on_renewed(sent_at),
            Content::Break(session, id, items) => {
                self.seats[server].holder.on_break(&items);
                for log in 0..LOGS {
                    if items.iter().any(|item| Some(&item.fid) == world.logs.get(log)) {
                        self.cache.remove(&log);
                    }
                }
                if items.iter().any(|item| item.fid == world.root && item.name.is_none()) {
                    self.suspects |= server == self.home;
                    let seat = &mut self.seats[server];
                    let trusted = seat.holder.trusted_until();
                    seat.sure_until = seat.sure_until.or(Some(trusted));
                }
                self.tell(world, server, Content::Acknowledge(session, id));
            }
            Content::Reply(origin, result) => self.replied(world, server, origin, *result),
            _ => {}
        }
        self.mind(world);
    }

    fn attached(&mut self, world: &mut StandbyWorld, server: usize, attached: &vice::Attached) {
        let seat = &mut self.seats[server];
        seat.session = Some(attached.session);
        seat.pinged = Time::ZERO;
        if attached.reclaim {
            world.note(|| format!("client {}: {server} was started again", self.index));
            seat.sure_until = seat.sure_until.or(Some(seat.holder.trusted_until()));
            seat.holder.on_server_restarted();
            self.void(server);
            let locks = self.locks.iter().filter(|(_, (at, _))| *at == server);
            let calls =
                locks.filter_map(|(log, (_, thread))| self.lock(world, *log, *thread, true));
            let claims: VecDeque<_> = calls.chain([Call::ReclaimDone]).collect();
            let seat = &mut self.seats[server];
            (seat.claims, seat.phase) = (claims, SeatPhase::Claiming);
            // A claim whose answer was lost is made again.
            seat.pending.retain(|_, request| request.why != Purpose::Claim);
            self.claim_next(world, server);
        } else {
            seat.phase = SeatPhase::Up;
            self.send_again(world, server);
        }
    }

    fn claim_next(&mut self, world: &mut StandbyWorld, server: usize) {
        match self.seats[server].claims.pop_front() {
            Some(call) => _ = self.request(world, server, call, Purpose::Claim),
            None => {
                self.seats[server].phase = SeatPhase::Up;
                self.send_again(world, server);
            }
        }
    }

    fn send_again(&mut self, world: &mut StandbyWorld, server: usize) {
        let waits = |request: &&PendingRequest| request.why != Purpose::Nothing;
        let pending = self.seats[server].pending.values().filter(waits);
        let again: Vec<_> = pending.map(|request| (request.origin, request.call.clone())).collect();
        for (origin, call) in again {
            self.tell(world, server, Content::Request(origin, Box::new(call)));
        }
    }

    fn replied(
        &mut self,
        world: &mut StandbyWorld,
        server: usize,
        origin: ReplyAddress,
        result: Result<Answer, Fault>,
    ) {
        let seat = &mut self.seats[server];
        if seat.pending.get(&origin.slot).is_none_or(|request| request.origin != origin) {
            return;
        }
        let Some(request) = seat.pending.remove(&origin.slot) else { return };
        let is_in_volume = !matches!(request.call, Call::Volume(_) | Call::ReclaimDone);
        if is_in_volume && result.is_ok() && seat.holder.promised(world.root, request.start) {
            seat.sure_until = None;
        }
        match request.why {
            Purpose::App(thread) => {
                let at = (server, origin, request.start);
                self.app_hears(world, thread, &request.call, at, result);
            }
            Purpose::Inherit(thread) => self.inherited(world, thread, result),
            Purpose::Follow(attempt) if attempt == self.attempt => {
                self.step_answered(world, &request.call, result);
            }
            Purpose::Check => {
                let has_left = match result {
                    Ok(Answer::Volumes { volumes, .. }) => {
                        volumes[0].state == VolumeState::Superseded
                    }
                    Err(fault) => fault == Fault::NoVolume,
                    Ok(_) => false,
                };
                if has_left && self.following == Following::AtHome {
                    self.look(world, Duration::ZERO);
                }
            }
            Purpose::Claim => {
                if let (Call::Lock { fid, .. }, Err(_)) = (&request.call, &result) {
                    let log = world.logs.iter().position(|known| known == fid);
                    log.and_then(|log| self.locks.remove(&log));
                }
                self.claim_next(world, server);
            }
            Purpose::Follow(_) | Purpose::Nothing => {}
        }
    }

    // Following.

    /// Looks in the database after this time.
    pub fn look(&mut self, world: &mut StandbyWorld, delay: Duration) {
        self.attempt += 1;
        self.following = Following::Look(world.now + delay);
        let delay = delay + Duration::from_micros(10);
        world.after(delay, Occurrence::Mind(self.index));
    }

    fn follow_on(&mut self, world: &mut StandbyWorld) {
        match self.following.clone() {
            Following::AtHome => {}
            Following::Look(at) if at > world.now => {}
            Following::Look(_) => self.look_now(world),
            Following::Step { since, .. } if world.now.since(since) > STEP_WITHIN => {
                self.look(world, Duration::ZERO);
            }
            Following::Step { to, step: FollowStep::Connect, .. } => {
                if self.seats[to].phase == SeatPhase::Up {
                    self.go_on(world, to, FollowStep::Examine, examine());
                }
            }
            Following::Step { to, step: FollowStep::Await { generation, again }, .. } => {
                if again.is_some_and(|again| again <= world.now) {
                    let step = FollowStep::Await { generation, again: None };
                    self.go_on(world, to, step, examine());
                }
            }
            Following::Step { .. } => {}
        }
    }

    fn go_on(&mut self, world: &mut StandbyWorld, to: usize, step: FollowStep, call: Call) {
        self.following = Following::Step { to, since: world.now, step };
        let why = Purpose::Follow(self.attempt);
        if !self.request(world, to, call, why) {
            self.look(world, Duration::from_millis(200));
        }
    }

    fn look_now(&mut self, world: &mut StandbyWorld) {
        let Ok(Some(seen)) = self.line.group_of(TREE) else {
            return self.look(world, Duration::from_millis(400));
        };
        let Some(site) = seen.record.read_write_site() else { return };
        let to = number(site.server);
        let waits = self.apps.iter().any(|app| app.state.waits());
        if to == self.home && !waits && self.seats[to].phase != SeatPhase::Up {
            self.following = Following::AtHome;
            return;
        }
        self.following = Following::Step { to, since: world.now, step: FollowStep::Connect };
        let again = |seat: &mut TakeoverSeat| {
            if let SeatPhase::Away(_) = seat.phase {
                seat.phase = SeatPhase::Away(Time::ZERO);
            }
        };
        again(&mut self.seats[to]);
        self.mind_seat(world, to);
        self.follow_on(world);
    }

    fn step_answered(
        &mut self,
        world: &mut StandbyWorld,
        call: &Call,
        result: Result<Answer, Fault>,
    ) {
        let Following::Step { to, step, .. } = self.following.clone() else { return };
        let pause = Duration::from_millis(200);
        match (step, result) {
            (FollowStep::Examine, Ok(Answer::Volumes { volumes, .. })) => {
                let generation = volumes[0].epoch / types::EPOCHS_IN_GENERATION;
                let serves = matches!(
                    volumes[0].state,
                    VolumeState::Online | VolumeState::TakingOver | VolumeState::Held
                );
                if serves && generation > self.generation {
                    self.ask_heritage(world, to, generation);
                } else if serves && to == self.home {
                    self.be_at_home(world);
                } else {
                    self.look(world, pause);
                }
            }
            (
                FollowStep::Heritage { generation, mut left, mut known },
                Ok(Answer::Inherited(inherited)),
            ) => {
                let Call::Volume(VolumeCall::Inherit { origin, .. }) = call else { return };
                known.insert((origin.session, origin.slot), inherited.origin.request);
                let next = left.pop();
                let step = FollowStep::Heritage { generation, left, known };
                match next {
                    Some(origin) => self.go_on(world, to, step, inherit(origin)),
                    None => {
                        let FollowStep::Heritage { known, .. } = step else { return };
                        self.compare(world, to, &known);
                        // They are judged, once for all.
                        self.seats[self.home].changes.clear();
                        self.claim_locks(world, to, generation);
                    }
                }
            }
            (FollowStep::Claim { generation, left }, answer) => {
                if let Call::Lock { fid, .. } = call {
                    let log = world.logs.iter().position(|known| known == fid);
                    if let Some(log) = log.filter(|log| self.locks.contains_key(log)) {
                        let index = self.index;
                        world.note(|| format!("client {index} claims log {log}: {answer:?}"));
                        if answer == Ok(Answer::Done) {
                            self.locks.entry(log).and_modify(|(at, _)| *at = to);
                        } else {
                            self.locks.remove(&log);
                        }
                    }
                }
                self.claim_on(world, to, generation, left);
            }
            (FollowStep::Await { generation, .. }, Ok(Answer::Volumes { volumes, .. })) => {
                match volumes[0].state {
                    VolumeState::TakingOver => {
                        let again = Some(world.now + pause);
                        let step = FollowStep::Await { generation, again };
                        self.following = Following::Step { to, since: world.now, step };
                    }
                    VolumeState::Online | VolumeState::Held => self.arrive(world, to, generation),
                    _ => self.look(world, pause),
                }
            }
            _ => self.look(world, pause),
        }
    }

    /// Which acknowledged changes are there? One question for each slot.
    fn ask_heritage(&mut self, world: &mut StandbyWorld, to: usize, generation: u64) {
        // An answer that comes during the comparison would be in none. A volume that came back to
        // its server answers for itself.
        if to != self.home && !world.breaks(TakeoverMutation::TakeLateAnswers) {
            self.withdraw(self.home);
        }
        let mut last: BTreeMap<(SessionId, u32), ReplyAddress> = BTreeMap::new();
        let seat = &mut self.seats[self.home];
        // No server remembers the replies of a session that ended: what an asynchronous standby
        // lacks of them is not named (`docs/spec/standby.md`, *Limits*).
        let is_known = |(origin, _): &(ReplyAddress, u64)| Some(origin.session) == seat.session;
        let is_async = world.judge.is_async;
        for (_, token) in seat.changes.iter().filter(|change| is_async && !is_known(change)) {
            if matches!(world.judge.get(*token).fate, TokenFate::Done(_)) {
                world.judge.set(*token, TokenFate::MayBeLost);
            }
        }
        seat.changes.retain(is_known);
        for (origin, _) in &seat.changes {
            last.insert((origin.session, origin.slot), *origin);
        }
        let mut left: Vec<_> = last.into_values().collect();
        match left.pop() {
            Some(origin) => {
                let step = FollowStep::Heritage { generation, left, known: BTreeMap::new() };
                self.go_on(world, to, step, inherit(origin));
            }
            None => self.claim_locks(world, to, generation),
        }
    }

    /// Changes of which the new server knows nothing are lost, and the user is told.
    fn compare(
        &mut self,
        world: &mut StandbyWorld,
        to: usize,
        known: &BTreeMap<(SessionId, u32), u64>,
    ) {
        if world.breaks(TakeoverMutation::HideLosses) {
            return;
        }
        for (origin, token) in &self.seats[self.home].changes {
            let seen = known.get(&(origin.session, origin.slot));
            let is_lost = seen.is_some_and(|request| *request < origin.request);
            if is_lost && matches!(world.judge.get(*token).fate, TokenFate::Done(_)) {
                let index = self.index;
                world.note(|| format!("client {index}: {to} lacks its change {token}"));
                if !world.judge.is_async {
                    world.violate(format!(
                        "SB-1: client {index} is told that its change {token} is lost"
                    ));
                }
                world.tally.named += 1;
                world.judge.set(*token, TokenFate::Named);
            }
        }
    }

    fn claim_locks(&mut self, world: &mut StandbyWorld, to: usize, generation: u64) {
        self.expire(world);
        let left: Vec<usize> = self.locks.keys().copied().collect();
        self.claim_on(world, to, generation, left);
    }

    fn claim_on(
        &mut self,
        world: &mut StandbyWorld,
        to: usize,
        generation: u64,
        mut left: Vec<usize>,
    ) {
        while let Some(log) = left.pop() {
            // The lock may have been given back meanwhile.
            if let Some((_, thread)) = self.locks.get(&log).copied()
                && let Some(call) = self.lock(world, log, thread, true)
            {
                let step = FollowStep::Claim { generation, left };
                return self.go_on(world, to, step, call);
            }
        }
        self.go_on(world, to, FollowStep::Await { generation, again: None }, examine());
    }

    /// The volume serves there.
    fn arrive(&mut self, world: &mut StandbyWorld, to: usize, generation: u64) {
        let (index, from) = (self.index, self.home);
        world.note(|| format!("client {index} follows the volume from {from} to {to}"));
        world.tally.followed += 1;
        if to != from {
            self.withdraw(from);
        }
        (self.home, self.generation) = (to, generation);
        self.cache.clear();
        // Locks that were not claimed there are lost.
        self.locks.retain(|_, (at, _)| *at == to);
        self.be_at_home(world);
    }

    /// Gives calls at the former home up: their answers do not count any more.
    fn withdraw(&mut self, from: usize) {
        for request in self.seats[from].pending.values_mut() {
            if let Purpose::App(thread) = request.why {
                request.why = Purpose::Nothing;
                self.apps[thread].refused(Some((request.origin, self.generation)), false);
            }
        }
    }

    fn be_at_home(&mut self, world: &mut StandbyWorld) {
        self.following = Following::AtHome;
        for thread in 0..THREADS {
            if let AppState::Refused { .. } = self.apps[thread].state {
                world.after(Duration::from_millis(20), Occurrence::Act(self.index, thread));
            }
        }
    }
}

/// Asks for the last reply of a slot.
pub(super) fn inherit(origin: ReplyAddress) -> Call {
    Call::Volume(VolumeCall::Inherit { id: TREE, origin })
}
