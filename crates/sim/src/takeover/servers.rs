//! Servers: they start and die, do what is due, answer, and stand by for each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use rand::Rng;
use types::{
    Answer, Call, Caller, ClientId, CreateHow, FeedPlace, Follow, NewKind, ReplyAddress, TaskInfo,
    TaskState, Time, VolumeCall,
};
use vice::{Effect, Execution, Fetch, StandbyQuestion, StandbyWork, Unanswered, Vice, Work};

use super::apps::LOGS;
use super::house::number;
use super::mutation::TakeoverMutation;
use super::wire::{Asker, Content, SimMessage, Wire};
use super::world::{Occurrence, StandbyWorld, TREE};
use crate::server::wall;

/// Interval of a server's periodic work, and how late it may be.
const TICK: Duration = Duration::from_millis(100);
const JITTER: Duration = Duration::from_millis(10);
/// One tick in so many brings all data to the disk.
const SYNC_ONE_IN: u32 = 12;
/// The driver gives a question up after this time, and one for a base after the longer time.
const ANSWER_WITHIN: Duration = Duration::from_millis(2500);
const BASE_WITHIN: Duration = Duration::from_secs(61);
/// How often a driver looks whether its server stands by.
const LOOK: Duration = Duration::from_millis(100);
/// With `no-fence`: the clock of a server stops so long after the last question of a standby.
const STOPS_AFTER: Duration = Duration::from_millis(900);

/// The number of a client for servers.
pub(super) fn client_id(asker: Asker) -> ClientId {
    match asker {
        Asker::Client(index) => ClientId(1 << 64 | index as u128),
        Asker::Server(no) => ClientId(2 << 64 | no as u128),
        Asker::Leader => ClientId(3 << 64),
    }
}

impl StandbyWorld {
    /// The service of a server that is up, and the time on its clock.
    pub fn service(&self, no: usize) -> Option<(Arc<Vice>, Time)> {
        let house = &self.houses[no];
        let mut now = house.clock.read(self.now);
        if let Some(asked_at) = house.asked_at.filter(|_| self.breaks(TakeoverMutation::NoFence)) {
            now = now.min(asked_at + STOPS_AFTER);
        }
        house.up.as_ref().map(|life| (Arc::clone(&life.vice), now))
    }

    pub fn start(&mut self, no: usize) {
        if self.houses[no].up.is_some() {
            return;
        }
        self.note(|| format!("server {no} comes up"));
        let StandbyWorld { houses, rng, now, .. } = self;
        houses[no].start(*now, rng);
        let life = self.houses[no].life;
        for other in 0..self.houses.len() {
            self.network.connect_anew(Wire { asker: Asker::Server(no), server: other });
            // The machine is there again, and knows nothing of that connection.
            let up = self.houses[other].up.as_ref();
            if up.and_then(|up| up.asked).is_some_and(|(server, ..)| server == no) {
                let wire = Wire { asker: Asker::Server(other), server: no };
                let (connection, to_server) = (0, false);
                let content = Content::Unreachable;
                let refusal = SimMessage { wire, connection, to_server, content };
                self.after(TICK, Occurrence::Arrive(Box::new(refusal)));
            }
        }
        self.after(TICK / 10, Occurrence::Tick(no, life));
        self.plan_step(no, Duration::ZERO);
    }

    /// A server dies.
    pub fn die(&mut self, no: usize, power: bool) {
        if self.houses[no].up.is_none() {
            return;
        }
        self.note(|| format!("server {no} dies{}", if power { " without power" } else { "" }));
        self.tally.deaths += 1;
        self.houses[no].up = None;
        self.houses[no].stalled_until = Time::ZERO;
        self.network.break_all(no);
        if power {
            if self.home() == no {
                self.judge.power_lost(no);
            }
            let StandbyWorld { houses, rng, .. } = self;
            houses[no].machine = houses[no].machine.power_loss(rng.random());
        }
    }

    /// Makes the volume at server 0, with its logs.
    pub fn create(&mut self) {
        let create = VolumeCall::Create {
            id: Some(TREE),
            partition: None,
            name: super::name("data"),
            quota_bytes: 0,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        self.call_now(0, Call::Volume(create)).expect("a new volume");
        match self.call_now(0, Call::Root { volume: super::name("data") }) {
            Ok(Answer::Status(status)) => self.root = status.fid,
            other => panic!("{other:?}"),
        }
        for log in 0..LOGS {
            let (kind, how) = (NewKind::File, CreateHow::Guarded);
            let (dir, name) = (self.root, super::name(&format!("log-{log}")));
            match self.call_now(0, Call::Make { dir, name, kind, mode: 0o644, how }) {
                Ok(Answer::Made { status, .. }) => self.logs.push(status.fid),
                other => panic!("{other:?}"),
            }
        }
        let _ = self.call_now(0, Call::CommitVolume { fid: self.root });
    }

    /// A call of an observer, which is answered at once or not at all.
    ///
    /// # Errors
    /// The refusal; `Busy` if there is no answer yet.
    pub fn call_now(&mut self, no: usize, call: Call) -> Result<Answer, types::Fault> {
        let (vice, now) = self.service(no).ok_or(types::Fault::Expired)?;
        let (mut effects, client) = (Vec::new(), ClientId(4 << 64));
        let attached = vice.attach(now, client, 1, &mut effects)?;
        let origin = ReplyAddress { session: attached.session, slot: 0, request: 1 };
        let execution = Execution::new(now, wall(self.now), &Caller::ROOT, origin);
        vice.perform(execution, call, &mut effects);
        let at = effects
            .iter()
            .position(|effect| matches!(effect, Effect::Reply { origin: of, .. } if *of == origin));
        let answer = at.map(|at| effects.remove(at));
        vice.detach(now, attached.session, &mut effects);
        self.deliver(no, effects);
        match answer {
            Some(Effect::Reply { result, .. }) => result,
            _ => Err(types::Fault::Busy),
        }
    }

    // Periodic work.

    pub fn tick(&mut self, no: usize, life: u64) {
        if self.houses[no].life != life {
            return;
        }
        let Some((vice, now)) = self.service(no) else { return };
        self.houses[no].line.hear();
        let mut effects = Vec::new();
        let due = vice.tick(now, &mut effects);
        self.deliver(no, effects);
        if vice.has_doubts(now) {
            let mut effects = Vec::new();
            vice.settle_doubts(now, wall(self.now), &mut effects);
            self.deliver(no, effects);
        }
        if let Some(up) = self.houses[no].up.as_mut().filter(|up| !up.has_searched) {
            up.has_searched = vice.followers().find().is_ok();
        }
        let partition = vice.partition();
        let syncs = self.one_in(SYNC_ONE_IN);
        let swept = partition.sweep(100).map(drop);
        let synced = if syncs { partition.sync_all().map(drop) } else { Ok(()) };
        if let Err(error) = swept.and(synced) {
            self.violate(format!("server {no}: {error}"));
        }
        self.plan_late_changes(no);
        let local =
            if due == Time::NEVER { self.now + TICK } else { self.houses[no].clock.when(due) };
        let jitter = self.upto(JITTER);
        let next = local.clamp(self.now + Duration::from_millis(1), self.now + TICK);
        self.at(next + jitter, Occurrence::Tick(no, life));
    }

    // The server's side of messages.

    pub fn server_receives(&mut self, message: SimMessage) {
        let SimMessage { wire, connection, content, .. } = message;
        let no = wire.server;
        let Some((vice, now)) = self.service(no) else { return };
        let (client, mut effects) = (client_id(wire.asker), Vec::new());
        let answer = |content| SimMessage { wire, connection, to_server: false, content };
        let own = |world: &mut StandbyWorld, session| {
            let up = world.houses[no].up.as_mut().expect("it has received this");
            // The messages of several connections may wait for a server that was stopped.
            let (_, newest) = up.peers.entry(session).or_insert((wire.asker, connection));
            *newest = connection.max(*newest);
        };
        match content {
            Content::Attach => match vice.attach(now, client, 1, &mut effects) {
                Ok(attached) => {
                    own(self, attached.session);
                    self.send(answer(Content::Attached(attached)));
                }
                Err(_) => self.send(answer(Content::NoSession)),
            },
            Content::Resume(session) => match vice.resume(now, session, client, 1, &mut effects) {
                Ok(attached) => {
                    own(self, session);
                    self.send(answer(Content::Attached(attached)));
                }
                Err(_) => self.send(answer(Content::NoSession)),
            },
            Content::Request(origin, call) => {
                self.tally.calls += 1;
                self.note(|| format!("server {no} is asked {}", crate::server::brief(&call)));
                vice.renew(now, origin.session, &mut effects);
                let execution = Execution::new(now, wall(self.now), &Caller::ROOT, origin);
                vice.perform(execution, *call, &mut effects);
            }
            Content::Acknowledge(session, id) => vice.ack(now, session, id, &[], &mut effects),
            Content::Ping(session, sent_at) => {
                let is_renewed = vice.renew(now, session, &mut effects);
                is_renewed.then(|| self.send(answer(Content::Pong(sent_at))));
            }
            Content::Question { incarnation, number, call } => {
                self.take_question(wire, connection, (incarnation, number), *call, &mut effects);
            }
            _ => {}
        }
        self.deliver(no, effects);
        self.plan_late_changes(no);
    }

    /// The question of a server or a command.
    fn take_question(
        &mut self,
        wire: Wire,
        connection: u64,
        (incarnation, number): (u64, u64),
        call: Call,
        effects: &mut Vec<Effect>,
    ) {
        let no = wire.server;
        let Some((vice, now)) = self.service(no) else { return };
        if matches!(call, Call::Volume(VolumeCall::Follow(_))) {
            self.houses[no].asked_at = Some(self.houses[no].clock.read(self.now));
        }
        let clock = now;
        let up = self.houses[no].up.as_mut().expect("its service is there");
        let known = up.sessions.get(&wire.asker).copied();
        let (session, request) = match known.filter(|(known, ..)| *known == incarnation) {
            Some((_, session, request)) => (session, request + 1),
            None if known.is_some_and(|(known, ..)| known > incarnation) => return,
            None => {
                if let Some((_, older, _)) = known {
                    vice.detach(clock, older, effects);
                }
                let Ok(attached) = vice.attach(clock, client_id(wire.asker), 1, effects) else {
                    return;
                };
                (attached.session, 1)
            }
        };
        up.sessions.insert(wire.asker, (incarnation, session, request));
        up.peers.insert(session, (wire.asker, connection));
        let origin = ReplyAddress { session, slot: 0, request };
        let follow = match &call {
            Call::Volume(VolumeCall::Follow(follow)) => Some(**follow),
            _ => None,
        };
        up.questions.insert(origin, (number, follow));
        vice.renew(clock, session, effects);
        let execution = Execution::new(clock, wall(self.now), &Caller::ROOT, origin);
        vice.perform(execution, call, effects);
    }

    /// Carries out a service's effects.
    pub fn deliver(&mut self, no: usize, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let Some((vice, now)) = self.service(no) else { return };
            let Some(up) = self.houses[no].up.as_mut() else { return };
            match effect {
                Effect::Reply { origin, result, .. } => {
                    let Some(&(asker, connection)) = up.peers.get(&origin.session) else {
                        continue;
                    };
                    let wire = Wire { asker, server: no };
                    let result = Box::new(result);
                    let content = match up.questions.remove(&origin) {
                        Some((number, follow)) => {
                            if let (Some(follow), Ok(Answer::Part(part))) = (follow, &*result) {
                                self.trust_the_wire(no, follow, part);
                            }
                            Content::Answered(number, result)
                        }
                        None => {
                            let refusal = result.as_ref().as_ref().err().map(ToString::to_string);
                            self.note(|| format!("server {no} answers {origin:?}: {refusal:?}"));
                            if matches!(
                                *result,
                                Ok(Answer::Data { .. }
                                    | Answer::Written { .. }
                                    | Answer::Committed { .. })
                            ) {
                                self.judge.serves(no);
                            }
                            Content::Reply(origin, result)
                        }
                    };
                    self.send(SimMessage { wire, connection, to_server: false, content });
                }
                Effect::Executed { .. } => {}
                Effect::Break { to, id, items } => match up.peers.get(&to).copied() {
                    Some((asker @ Asker::Client(_), connection)) => {
                        let content = Content::Break(to, id, items);
                        let wire = Wire { asker, server: no };
                        self.send(SimMessage { wire, connection, to_server: false, content });
                    }
                    Some(_) => {
                        let mut more = Vec::new();
                        vice.ack(now, to, id, &[], &mut more);
                        more.into_iter().rev().for_each(|effect| effects.push_front(effect));
                    }
                    None => {}
                },
                Effect::SessionEnded(session) => {
                    up.sessions.retain(|_, (_, known, _)| *known != session);
                    if let Some((asker, connection)) = up.peers.remove(&session) {
                        let content = Content::Ended(session);
                        let wire = Wire { asker, server: no };
                        self.send(SimMessage { wire, connection, to_server: false, content });
                    }
                }
            }
        }
    }

    /// Mutation: the server hears at once that the standby has applied this answer.
    fn trust_the_wire(&mut self, no: usize, follow: Follow, part: &[u8]) {
        // As `vice/standby/envelope.rs` writes it: a version, the serial, the feed, its end.
        let at = |from: usize| part.get(from..from + 8)?.try_into().ok().map(u64::from_be_bytes);
        let (Some(heard), Some(feed), Some(position)) = (at(1), at(9), at(17)) else { return };
        if self.breaks(TakeoverMutation::TrustTheWire) {
            let applied = FeedPlace { feed, position };
            let forged = Follow { applied, heard, ..follow };
            let _ = self.call_now(no, Call::Volume(VolumeCall::Follow(Box::new(forged))));
        }
    }

    // The standby's driver.

    fn plan_step(&mut self, no: usize, delay: Duration) {
        let Some(up) = self.houses[no].up.as_mut() else { return };
        up.next_step += 1;
        let step = up.next_step;
        let life = self.houses[no].life;
        self.after(delay, Occurrence::Step(no, life, step));
    }

    /// The next step of the standby at this server.
    pub fn step(&mut self, no: usize, life: u64, step: u64) {
        let is_this = |up: &super::house::StandbyLife| up.next_step == step;
        if self.houses[no].life != life || !self.houses[no].up.as_ref().is_some_and(is_this) {
            return;
        }
        let Some((vice, now)) = self.service(no) else { return };
        let followers = vice.followers();
        let asked = self.houses[no].up.as_ref().and_then(|up| up.asked);
        if let Some((_, _, until)) = asked {
            if self.now < until {
                return self.plan_step(no, until.since(self.now));
            }
            self.give_question_up(no);
        }
        if !followers.has(TREE) {
            return self.plan_step(no, LOOK);
        }
        let before = self.home();
        let work = followers.step(TREE, now, wall(self.now));
        self.note_lost_answer(no, before);
        self.plan_late_changes(no);
        if before != no && self.home() == no && self.breaks(TakeoverMutation::NoWaitForLease) {
            let _ = self.call_now(no, Call::Volume(VolumeCall::Serve { id: TREE }));
        }
        match work {
            StandbyWork::Over => self.plan_step(no, LOOK),
            StandbyWork::Pause(pause) => {
                self.note(|| format!("standby {no} pauses for {pause:?}"));
                self.plan_step(no, pause.max(Duration::from_millis(1)));
            }
            StandbyWork::Pull(pull) => {
                let result = self.pull(no, pull);
                self.note(|| format!("standby {no} pulls: {result:?}"));
                followers.pulled(TREE, result);
                self.plan_step(no, Duration::from_millis(1));
            }
            StandbyWork::Ask(StandbyQuestion { server: of, mut call, is_ahead, .. }) => {
                // So that an answer has not all there is.
                if let VolumeCall::Follow(follow) = &mut call
                    && self.has_small_answers
                    && self.rng.random_bool(0.5)
                {
                    follow.bytes_max = self.rng.random_range(0..2048);
                }
                if is_ahead {
                    self.tally.ahead += 1;
                    let delay = Duration::from_millis(self.rng.random_range(0..20));
                    self.after(delay, Occurrence::Apply(no, self.houses[no].life));
                }
                let is_base = matches!(call, VolumeCall::Feed { .. });
                let within = if is_base { BASE_WITHIN } else { ANSWER_WITHIN };
                self.questions += 1;
                let (question, until) = (self.questions, self.now + within);
                let server = number(of);
                self.note(|| format!("standby {no} asks {server}: {call:?}"));
                let up = self.houses[no].up.as_mut().expect("it works");
                up.asked = Some((server, question, until));
                self.ask(Wire { asker: Asker::Server(no), server }, question, call);
                self.plan_step(no, within);
            }
        }
    }

    /// The standby at this server applies what waits, if it was not done since.
    pub fn apply_waiting(&mut self, no: usize, life: u64) {
        if self.houses[no].life == life
            && let Some((vice, now)) = self.service(no)
        {
            vice.followers().apply_waiting(TREE, now);
        }
    }

    /// Mutation: the only copy is dropped.
    fn note_lost_answer(&mut self, no: usize, before: usize) {
        let is_lost = self.houses[no].line.take_lost_answers();
        if is_lost && before != no && self.home() == no && self.breaks(TakeoverMutation::DropCopy) {
            let (vice, _) = self.service(no).expect("it works");
            let _ = vice.partition().standbys().drop_applied(TREE);
        }
    }

    /// Sends a question of a server or a command; the connection's number is its session's.
    pub fn ask(&mut self, wire: Wire, number: u64, call: VolumeCall) {
        let mut connection = self.network.connection(wire);
        if self.network.is_broken(wire, connection) {
            connection = self.network.connect_anew(wire);
        }
        let call = Box::new(Call::Volume(call));
        let content = Content::Question { incarnation: connection, number, call };
        self.send(SimMessage { wire, connection, to_server: true, content });
    }

    /// The standby's question stays without an answer.
    fn give_question_up(&mut self, no: usize) {
        let Some((vice, now)) = self.service(no) else { return };
        let up = self.houses[no].up.as_mut().expect("its service is there");
        let Some((server, ..)) = up.asked.take() else { return };
        self.network.connect_anew(Wire { asker: Asker::Server(no), server });
        let lost = Err(Unanswered::Lost("no answer comes".to_owned()));
        vice.followers().answered(TREE, now, lost);
    }

    /// An answer for the standby at this server.
    pub fn standby_receives(&mut self, no: usize, message: SimMessage) {
        let Some((vice, now)) = self.service(no) else { return };
        let asked = self.houses[no].up.as_ref().and_then(|up| up.asked);
        let Some((server, question, _)) = asked else { return };
        match message.content {
            Content::Answered(number, answer) if number == question => {
                if let Err(fault) = &*answer {
                    self.note(|| format!("standby {no} is refused: {fault}"));
                }
                self.houses[no].up.as_mut().expect("it works").asked = None;
                vice.followers().answered(TREE, now, answer.map_err(Unanswered::Refused));
            }
            Content::Unreachable | Content::Ended(_)
                if message.wire.server == server
                    && [0, self.network.connection(message.wire)].contains(&message.connection) =>
            {
                self.give_question_up(no);
            }
            _ => return,
        }
        self.plan_step(no, Duration::ZERO);
    }

    /// Runs a pull to its end, in a moment.
    fn pull(&mut self, no: usize, pull: types::Pull) -> Result<(), String> {
        let is_source = |house: &super::house::StandbyHouse| {
            pull.from.iter().any(|at| house.info.addresses.contains(at))
        };
        let source = self.houses.iter().position(is_source).ok_or("no source")?;
        let wire = Wire { asker: Asker::Server(no), server: source };
        let stalls = self.houses[source].stalled_until > self.now;
        if self.network.is_cut(wire) || self.houses[source].up.is_none() || stalls {
            return Err("the source cannot be reached".to_owned());
        }
        let task = TaskInfo {
            number: 1,
            tree: TREE,
            state: TaskState::Runs,
            since: 0,
            epoch: 0,
            bytes: 0,
            total_bytes: 0,
            text: String::new(),
        };
        let mut fetch = Fetch::new(pull, task);
        loop {
            if let Some(call) = fetch.question() {
                let answer = self.call_now(source, Call::Volume(call));
                fetch.answered(answer.map_err(Unanswered::Refused));
            }
            let (vice, now) = self.service(no).ok_or("it is down")?;
            let mut effects = Vec::new();
            let work = vice.work(&mut fetch, now, wall(self.now), &mut effects);
            self.deliver(no, effects);
            match work {
                Work::Over => break,
                Work::Pause(_) if vice.partition().sweep(100).is_ok_and(|swept| swept > 0) => {}
                Work::Pause(_) => return Err("it must wait".to_owned()),
                Work::Did | Work::Waits => {}
            }
        }
        let task = fetch.task();
        if task.state == TaskState::Done { Ok(()) } else { Err(task.text.clone()) }
    }

    /// The state of the volume at a server, for the end of a run.
    pub fn serves_now(&mut self, no: usize) -> bool {
        let root = self.root;
        matches!(self.call_now(no, Call::GetStatus { fid: root }), Ok(Answer::Status(_)))
    }

    /// Whether all standbys of the record are in step.
    pub fn all_in_step(&self) -> bool {
        let seen = self.database.group_of(TREE).expect("it is in memory").expect("it is there");
        seen.record.standbys().all(types::Site::is_in_step)
    }
}
