//! The server: the real store on a machine in memory, the real service and session machines, and a
//! driver that connects them to the simulated network in place of the real server's threads.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use dafs::{
    ChannelId, Features, Greeting, GreetingInput, GreetingOutput, PeerError, ServerInput,
    ServerOutput, ServerSession, SessionSetup, Terms,
};
use lease::LeaseConfig;
use rand::Rng;
use store::{MemMachine, NewRoot, OpenOptions, Partition, SessionRecord, VolumeQuota};
use types::limits::LEASE;
use types::{
    Answer, BreakReason, Call, Caller, ClientId, Cookie, CreateHow, Fault, Fid, Name, NewKind,
    ReplyAddress, SessionId, Status, Time, Timestamp,
};
use vice::{Effect, Execution, Vice, ViceConfig};

use crate::clock::Clock;
use crate::event::SimEvent;
use crate::ground::Ground;
use crate::history::DiskContent;
use crate::inbox::{ArrivedBytes, to_bytes};
use crate::mutation::Mutation;
use crate::net::{Arrival, ConnId, ConnectionEnd};

/// Slots of a session: few, so that they are reused often.
const SLOTS: u32 = 8;
/// Interval of the background syncs of the log.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// First of the slots for second executions of repeated requests ([`Mutation::ForgetReplies`]).
const SECOND_SLOTS: u32 = 64;

/// The files that applications work on.
#[derive(Clone, Debug)]
pub struct SharedTree {
    /// Files that are read and written whole, with their lengths in bytes.
    pub files: Vec<(Fid, usize)>,
    /// A file that is only appended to.
    pub log: Fid,
    /// The directory of own and shared names.
    pub dir: Fid,
    /// Files that are locked and never written.
    pub locks: Vec<Fid>,
    /// The directory on which clients ask for a delegation; others change it too.
    pub nest: Fid,
}

/// The simulated server with its disk; see the head of the file.
pub struct SimServer {
    /// Its steady clock.
    pub clock: Clock,
    /// How often it has started.
    pub life: u64,
    machine: MemMachine,
    up: Option<Life>,
}

struct Life {
    vice: Vice,
    sessions: BTreeMap<SessionId, ServerSession>,
    conns: BTreeMap<ConnId, Inbound>,
    /// With [`Mutation::ForgetReplies`]: the original slot of each second execution.
    second: HashMap<ReplyAddress, ReplyAddress>,
    seconds: u64,
}

/// A connection from the server's side.
struct Inbound {
    inbox: ArrivedBytes,
    greeting: Greeting,
    terms: Option<Terms>,
    session: Option<SessionId>,
}

/// One step between service, sessions and network.
#[allow(clippy::large_enum_variant)] // A few at a time, and gone at once.
enum Work {
    Effect(Effect),
    Output(SessionId, ServerOutput),
}

fn encode(answer: &Answer) -> Vec<u8> {
    dafs::encode_answer_record(answer)
}

fn decode(bytes: &[u8]) -> Option<Answer> {
    dafs::decode_answer_record(bytes).ok()
}

fn config(ground: &Ground) -> ViceConfig {
    let mut config = ViceConfig::new(encode, decode);
    if ground.breaks(Mutation::GiveUpEarly) {
        config.lease = LeaseConfig { lease: LEASE / 4, grace: Duration::ZERO, ..config.lease };
    }
    config.slots_max = SECOND_SLOTS + SLOTS;
    config
}

fn options(ground: &mut Ground) -> OpenOptions {
    OpenOptions { seed: Some(ground.rng.random()), ..OpenOptions::default() }
}

impl SimServer {
    /// A server in its first life, with a tree that is stable.
    pub fn new(ground: &mut Ground) -> (SimServer, SharedTree) {
        let machine = MemMachine::new();
        let clock = Clock::random(&mut ground.rng);
        let partition =
            Partition::open_memory(&machine, options(ground)).expect("an empty machine opens");
        let (name, now) = (Name::new(b"root").expect("a name"), wall(ground.now));
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now, quota: VolumeQuota::default() };
        let volume =
            partition.volumes().create_volume(&name, &root).expect("the first volume is made");
        let vice = Vice::open(partition, config(ground), clock.read(ground.now))
            .expect("an empty partition is served");
        let life = Life {
            vice,
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            second: HashMap::new(),
            seconds: 0,
        };
        let mut server = SimServer { clock, life: 1, machine, up: Some(life) };
        let tree = server.plant(ground, Fid::root(volume.id()));
        ground.after(SYNC_EVERY, SimEvent::ServerSync { life: 1 });
        (server, tree)
    }

    fn plant(&mut self, ground: &mut Ground, root: Fid) -> SharedTree {
        let now = self.clock.read(ground.now);
        let life = self.up.as_mut().expect("the first life is up");
        let mut out = Vec::new();
        let session =
            life.vice.attach(now, ClientId(u128::MAX), 1, &mut out).expect("attach").session;
        let mut request = 0;
        let mut make = |name: &str, kind: NewKind| {
            request += 1;
            let name = Name::new(name.as_bytes()).expect("a name");
            let call = Call::Make { dir: root, name, kind, mode: 0o644, how: CreateHow::Guarded };
            let mut out = Vec::new();
            let origin = ReplyAddress { session, slot: 0, request };
            life.vice.perform(
                Execution::new(now, wall(ground.now), &Caller::ROOT, origin),
                call,
                &mut out,
            );
            match out.pop() {
                Some(Effect::Reply { result: Ok(Answer::Made { status, .. }), .. }) => status,
                other => panic!("the tree cannot be planted: {other:?}"),
            }
        };
        let small = make("small", NewKind::File);
        let large = make("large", NewKind::File);
        let log = make("log", NewKind::File);
        let dir = make("dir", NewKind::Directory);
        let nest = make("nest", NewKind::Directory);
        let locks = [make("lock-0", NewKind::File), make("lock-1", NewKind::File)];
        life.vice.detach(now, session, &mut out);
        life.vice.partition().sync().expect("the tree is stable");
        let verifier = life.vice.partition().boot_verifier();
        for status in [&small, &large, &log, &dir, &locks[0], &locks[1]] {
            ground.history.initial(status, verifier);
        }
        let files = vec![(small.fid, 16), (large.fid, 40_000)];
        SharedTree {
            files,
            log: log.fid,
            dir: dir.fid,
            locks: locks.map(|status| status.fid).to_vec(),
            nest: nest.fid,
        }
    }

    /// Returns whether the server runs.
    pub fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// The process dies; with `power` the machine may also lose all that it had not synced.
    pub fn die(&mut self, ground: &mut Ground, power: bool) {
        if self.up.take().is_none() {
            return;
        }
        for conn in ground.net.all() {
            ground.break_up(conn);
            ground.vanish(conn, ConnectionEnd::Server);
        }
        if power {
            self.machine = self.machine.power_loss(ground.rng.random());
        }
    }

    /// The process starts again.
    pub fn start(&mut self, ground: &mut Ground, tree: &SharedTree, power_lost: bool) {
        if self.up.is_some() {
            return;
        }
        self.life += 1;
        let partition = Partition::open_memory(&self.machine, options(ground))
            .expect("a crashed machine opens");
        if ground.breaks(Mutation::NoGrace) {
            for record in partition.sessions().list().unwrap_or_default() {
                let _ = partition.sessions().remove_session(record.session);
            }
        }
        if ground.breaks(Mutation::NoReadGrace) {
            for record in partition.sessions().list().unwrap_or_default() {
                let _ = partition
                    .sessions()
                    .put_session(&SessionRecord { extra: bytes::Bytes::new(), ..record });
            }
        }
        let found = found(&partition, tree);
        let verdict = ground.history.restarted(&found, tree.log, power_lost, ground.now);
        ground.judge(verdict);
        let now = self.clock.read(ground.now);
        let vice =
            Vice::open(partition, config(ground), now).expect("a crashed partition is served");
        self.up = Some(Life {
            vice,
            sessions: BTreeMap::new(),
            conns: BTreeMap::new(),
            second: HashMap::new(),
            seconds: 0,
        });
        ground.after(SYNC_EVERY, SimEvent::ServerSync { life: self.life });
        self.tick(ground, self.life);
    }

    /// The timer of the leases fires.
    pub fn tick(&mut self, ground: &mut Ground, life: u64) {
        let now = self.clock.read(ground.now);
        let Some(up) = self.up.as_mut().filter(|_| life == self.life) else { return };
        let mut effects = Vec::new();
        let next = up.vice.tick(now, &mut effects);
        let next = self.clock.when(next);
        if next < Time::NEVER {
            ground
                .at(next.max(ground.now + Duration::from_millis(1)), SimEvent::ServerTick { life });
        }
        self.work_off(ground, effects);
    }

    /// Syncs the log.
    pub fn sync(&mut self, ground: &mut Ground, life: u64) {
        let Some(up) = self.up.as_mut().filter(|_| life == self.life) else { return };
        up.vice.partition().sync().expect("a sync in memory succeeds");
        ground.after(SYNC_EVERY, SimEvent::ServerSync { life });
    }

    /// The contents of the disk, for [`crate::history::History`].
    pub fn found(&self, tree: &SharedTree) -> Option<DiskContent> {
        self.up.as_ref().map(|up| found(up.vice.partition(), tree))
    }

    /// The client's host reports that the client process died.
    pub fn peer_died(&mut self, ground: &mut Ground, client: ClientId) {
        let now = self.clock.read(ground.now);
        let Some(up) = self.up.as_mut() else { return };
        let records = up.vice.partition().sessions().list().unwrap_or_default();
        let mut effects = Vec::new();
        for record in records.iter().filter(|record| record.client == client) {
            up.vice.peer_died(now, record.session, &mut effects);
        }
        self.work_off(ground, effects);
    }

    /// Bytes or the end arrived on a connection.
    pub fn on_arrival(&mut self, ground: &mut Ground, conn: ConnId, arrival: Arrival) {
        let Some(up) = self.up.as_mut() else { return };
        match arrival {
            Arrival::End => self.lost(ground, conn),
            Arrival::Bytes(bytes) => {
                let now = self.clock.read(ground.now);
                let inbound = up.conns.entry(conn).or_insert_with(|| {
                    let sums = Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS);
                    let offer = Greeting::offer(sums.with(Features::DELEGATIONS));
                    let greeting = Greeting::new(now, offer, &mut Vec::new());
                    Inbound { inbox: ArrivedBytes::default(), greeting, terms: None, session: None }
                });
                inbound.inbox.push(&bytes);
                while self.take_in(ground, conn) {}
            }
        }
    }

    fn lost(&mut self, ground: &mut Ground, conn: ConnId) {
        let now = self.clock.read(ground.now);
        let Some(up) = self.up.as_mut() else { return };
        ground.close(conn, ConnectionEnd::Server);
        let Some(session) = up.conns.remove(&conn).and_then(|inbound| inbound.session) else {
            return;
        };
        self.feed(ground, now, session, ServerInput::Lost { channel: ChannelId(conn.0) });
    }

    /// Takes one item out of a connection's inbox; returns whether there was one.
    fn take_in(&mut self, ground: &mut Ground, conn: ConnId) -> bool {
        let now = self.clock.read(ground.now);
        let Some(inbound) = self.up.as_mut().and_then(|up| up.conns.get_mut(&conn)) else {
            return false;
        };
        let wanted = inbound.greeting.bytes_wanted();
        if wanted > 0 && inbound.terms.is_none() {
            let bytes = inbound.inbox.take(wanted);
            return !bytes.is_empty()
                && self.greet(ground, conn, now, GreetingInput::Bytes(&bytes));
        }
        match (inbound.inbox.frame(), inbound.session) {
            (Ok(None), _) => false,
            (Ok(Some(frame)), None) => self.greet(ground, conn, now, GreetingInput::Arrived(frame)),
            (Ok(Some(frame)), Some(session)) => {
                self.feed(
                    ground,
                    now,
                    session,
                    ServerInput::Arrived { channel: ChannelId(conn.0), frame },
                );
                true
            }
            (Err(_), _) => {
                self.lost(ground, conn);
                false
            }
        }
    }

    /// Handles the greeting; returns whether the connection stays open.
    fn greet(
        &mut self,
        ground: &mut Ground,
        conn: ConnId,
        now: Time,
        input: GreetingInput<'_>,
    ) -> bool {
        let Some(inbound) = self.up.as_mut().and_then(|up| up.conns.get_mut(&conn)) else {
            return false;
        };
        let mut outputs = Vec::new();
        let result = inbound.greeting.step(now, input, &mut outputs);
        for output in outputs {
            match output {
                GreetingOutput::Send(bytes) => ground.send(conn, ConnectionEnd::Server, &bytes),
                GreetingOutput::Agreed(terms) => inbound.terms = Some(terms),
                GreetingOutput::Attach(attach) => {
                    self.attach(ground, conn, now, &attach);
                    return true;
                }
                GreetingOutput::Bind(bind) => {
                    self.bind(ground, conn, now, bind);
                    return true;
                }
                GreetingOutput::WakeAt(_) => {}
            }
        }
        if result.is_err() {
            self.lost(ground, conn);
        }
        result.is_ok()
    }

    fn attach(
        &mut self,
        ground: &mut Ground,
        conn: ConnId,
        now: Time,
        attach: &dafs::message::Attach,
    ) {
        let bind_key = ground.rng.random();
        let server = self.life;
        let Some(up) = self.up.as_mut() else { return };
        let Some(terms) = up.conns.get(&conn).and_then(|inbound| inbound.terms) else { return };
        let (client, incarnation) = (attach.client, attach.incarnation);
        let mut effects = Vec::new();
        let resumed = attach.resume.and_then(|session| {
            up.vice.resume(now, session, client, incarnation, &mut effects).ok()
        });
        let is_resumed = resumed.is_some();
        let attached =
            resumed.map_or_else(|| up.vice.attach(now, client, incarnation, &mut effects), Ok);
        ground.note(|| format!("server: attach of {client:?}.{incarnation}: {attached:?}"));
        let attached = match attached {
            Ok(attached) => attached,
            Err(fault) => {
                let frame = dafs::message::Message::goodbye(
                    &terms,
                    SessionId(0),
                    Some(fault),
                    "not welcome",
                );
                ground.send(conn, ConnectionEnd::Server, &to_bytes(&frame));
                self.work_off(ground, effects);
                return self.lost(ground, conn);
            }
        };
        let session = attached.session;
        ground.history.nest.attached(session, client);
        let renewed = !is_resumed || up.vice.renew(now, session, &mut effects);
        up.sessions.entry(session).or_insert_with(|| {
            ServerSession::new(SessionSetup {
                session,
                server,
                boot_verifier: attached.verifier,
                lease: LEASE,
                slots: SLOTS,
                bind_key,
                recorded: is_resumed.then_some(attached.recorded),
            })
        });
        if let Some(inbound) = up.conns.get_mut(&conn) {
            inbound.session = Some(session);
        }
        let input = ServerInput::Attached {
            channel: ChannelId(conn.0),
            terms,
            resumed: is_resumed,
            renewed,
            door: std::sync::Arc::new(dafs::credentials::Trusting),
        };
        self.feed(ground, now, session, input);
        self.work_off(ground, effects);
        self.tick(ground, self.life);
    }

    fn bind(&mut self, ground: &mut Ground, conn: ConnId, now: Time, bind: dafs::message::Bind) {
        let Some(up) = self.up.as_mut() else { return };
        let Some(inbound) = up.conns.get_mut(&conn) else { return };
        let Some(terms) = inbound.terms else { return };
        if !up.sessions.contains_key(&bind.session) {
            return self.lost(ground, conn);
        }
        inbound.session = Some(bind.session);
        let input = ServerInput::Bind { channel: ChannelId(conn.0), terms, key: bind.key };
        self.feed(ground, now, bind.session, input);
    }

    /// Passes an input to a session's machine, and carries out its outputs.
    fn feed(&mut self, ground: &mut Ground, now: Time, session: SessionId, input: ServerInput) {
        let channel = match &input {
            ServerInput::Arrived { channel, .. } | ServerInput::Bind { channel, .. } => {
                Some(*channel)
            }
            _ => None,
        };
        let mut work = VecDeque::new();
        let result = self.step(now, session, input, &mut work);
        self.run(ground, work);
        if let (Err(error), Some(channel)) = (result, channel) {
            ground.note(|| format!("server: {session:?} over {channel:?}: {error}"));
            self.lost(ground, ConnId(channel.0));
        }
    }

    /// Returns an error if the peer broke the protocol.
    fn step(
        &mut self,
        now: Time,
        session: SessionId,
        input: ServerInput,
        work: &mut VecDeque<Work>,
    ) -> Result<(), PeerError> {
        let Some(machine) = self.up.as_mut().and_then(|up| up.sessions.get_mut(&session)) else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        let result = machine.step(now, input, &mut outputs);
        work.extend(outputs.into_iter().map(|output| Work::Output(session, output)));
        result
    }

    fn work_off(&mut self, ground: &mut Ground, effects: Vec<Effect>) {
        self.run(ground, effects.into_iter().map(Work::Effect).collect());
    }

    fn run(&mut self, ground: &mut Ground, mut work: VecDeque<Work>) {
        while let Some(next) = work.pop_front() {
            match next {
                Work::Effect(effect) => self.carry_out(ground, effect, &mut work),
                Work::Output(session, output) => self.follow(ground, session, output, &mut work),
            }
        }
    }

    fn carry_out(&mut self, ground: &mut Ground, effect: Effect, work: &mut VecDeque<Work>) {
        let now = self.clock.read(ground.now);
        let Some(up) = self.up.as_mut() else { return };
        match effect {
            Effect::Reply { origin, result, .. } => {
                let origin = up.second.remove(&origin).unwrap_or(origin);
                ground.note(|| format!("server: reply {origin:?} {result:?}"));
                let input = ServerInput::Answered { origin, result, descriptor: false };
                let _ = self.step(now, origin.session, input, work);
            }
            Effect::Executed { origin, current } => {
                let origin = up.second.get(&origin).copied().unwrap_or(origin);
                let input = ServerInput::Executed { origin, current };
                let _ = self.step(now, origin.session, input, work);
            }
            Effect::Break { to, id, items } => {
                ground.note(|| format!("server: break {id:?} to {to:?}: {items:?}"));
                if ground.breaks(Mutation::AckAtOnce) {
                    let mut effects = Vec::new();
                    up.vice.ack(now, to, id, &[], &mut effects);
                    work.extend(effects.into_iter().map(Work::Effect));
                }
                if ground.breaks(Mutation::SkipRecall) {
                    let recalled = items.iter().filter(|item| item.reason == BreakReason::Recall);
                    let fids: Vec<Fid> = recalled.map(|item| item.fid).collect();
                    up.seconds += 1;
                    let origin = ReplyAddress {
                        session: to,
                        slot: SECOND_SLOTS,
                        request: (1 << 41) + up.seconds,
                    };
                    let mut effects = Vec::new();
                    up.vice.perform(
                        Execution::new(now, wall(ground.now), &Caller::ROOT, origin),
                        Call::Return { fids },
                        &mut effects,
                    );
                    effects.retain(|effect| !replies_to(effect, origin));
                    work.extend(effects.into_iter().map(Work::Effect));
                }
                let _ = self.step(now, to, ServerInput::Break { id, items }, work);
            }
            Effect::SessionEnded(session) => {
                ground.note(|| format!("server: {session:?} ended"));
                ground.history.nest.session_ended(session);
                let _ = self.step(now, session, ServerInput::End(Fault::Expired), work);
                // `work` carries out the closing; the machine is not needed for that.
                if let Some(up) = self.up.as_mut() {
                    up.sessions.remove(&session);
                }
            }
        }
    }

    fn follow(
        &mut self,
        ground: &mut Ground,
        session: SessionId,
        output: ServerOutput,
        work: &mut VecDeque<Work>,
    ) {
        let now = self.clock.read(ground.now);
        let life = self.life;
        let Some(up) = self.up.as_mut() else { return };
        let mut effects = Vec::new();
        match output {
            ServerOutput::Send { channel, frame } => {
                ground.send(ConnId(channel.0), ConnectionEnd::Server, &to_bytes(&frame));
            }
            ServerOutput::Close { channel } => {
                up.conns.remove(&ConnId(channel.0));
                ground.close(ConnId(channel.0), ConnectionEnd::Server);
            }
            ServerOutput::Execute { origin, caller, call, repeated, .. } => {
                // Some requests wait for a worker, so that others overtake them.
                let delay = match ground.rng.random_range(0..8) {
                    0 => ground.between(Duration::from_micros(10), Duration::from_millis(20)),
                    _ => Duration::ZERO,
                };
                ground.after(
                    delay,
                    SimEvent::Execute { life, origin, caller, call: Box::new(call), repeated },
                );
            }
            ServerOutput::Cancel(origin) => up.vice.cancel(now, origin, &mut effects),
            ServerOutput::Acknowledged { id, held } => {
                ground.note(|| format!("server: {session:?} acknowledges {id:?}, holds {held:?}"));
                let held = if ground.breaks(Mutation::ForgetHolds) { Vec::new() } else { held };
                up.vice.ack(now, session, id, &held, &mut effects);
            }
            ServerOutput::Renew { channel, number } => {
                let renewed = up.vice.renew(now, session, &mut effects);
                let _ = self.step(
                    now,
                    session,
                    ServerInput::Renewed { channel, number, renewed },
                    work,
                );
            }
            ServerOutput::Detached => {
                up.vice.detach(now, session, &mut effects);
                up.sessions.remove(&session);
            }
            ServerOutput::Overrun => up.vice.detach(now, session, &mut effects),
        }
        work.extend(effects.into_iter().map(Work::Effect));
    }

    /// A worker executes a request.
    pub fn execute(
        &mut self,
        ground: &mut Ground,
        life: u64,
        origin: ReplyAddress,
        caller: &Caller,
        call: Call,
        repeated: bool,
    ) {
        let now = self.clock.read(ground.now);
        let Some(up) = self.up.as_mut().filter(|_| life == self.life) else { return };
        ground.note(|| format!("server: execute {origin:?} repeated {repeated} {}", brief(&call)));
        let mut origin = origin;
        if repeated && ground.breaks(Mutation::ForgetReplies) {
            up.seconds += 1;
            let second = ReplyAddress {
                slot: SECOND_SLOTS + origin.slot,
                request: (1 << 40) + up.seconds,
                ..origin
            };
            up.second.insert(second, origin);
            origin = second;
        }
        let mut call = call;
        let mut effects = Vec::new();
        if ground.breaks(Mutation::PretendStable) {
            if let Call::Write { stable, .. } = &mut call {
                *stable = false;
            }
            if matches!(call, Call::Commit { .. }) {
                let verifier = up.vice.partition().boot_verifier();
                let result = Ok(Answer::Committed { verifier });
                return self.work_off(ground, vec![Effect::Reply { origin, result, body: None }]);
            }
        }
        if ground.breaks(Mutation::ForgetHolds) && matches!(call, Call::Hold { .. }) {
            return self.work_off(
                ground,
                vec![Effect::Reply { origin, result: Ok(Answer::Done), body: None }],
            );
        }
        up.vice.perform(Execution::new(now, wall(ground.now), caller, origin), call, &mut effects);
        self.work_off(ground, effects);
    }
}

/// The wall clock, which is right on all machines.
pub fn wall(at: Time) -> Timestamp {
    let since = at.since_start();
    Timestamp::new(1_800_000_000 + since.as_secs() as i64, since.subsec_nanos())
}

fn found(partition: &Partition, tree: &SharedTree) -> DiskContent {
    let mut found = DiskContent::default();
    let Ok(Some(volume)) = partition.volumes().volume(tree.dir.volume) else { return found };
    let plain = tree.files.iter().map(|(fid, _)| *fid).chain([tree.log, tree.dir]);
    for fid in plain.chain(tree.locks.iter().copied()) {
        if let Ok(Some(vnode)) = volume.vnode(fid.vnode) {
            let status: Status = vnode.status;
            let length = if fid.vnode.is_directory() { 0 } else { status.size as usize };
            let data = volume
                .reader_of(&vnode)
                .and_then(|reader| reader.read(0, length))
                .map(|data| data.to_vec())
                .unwrap_or_default();
            found.files.insert(fid, (status, data));
        }
    }
    if let Ok((entries, _)) = volume.read_dir(tree.dir.vnode, Cookie::START, usize::MAX) {
        for entry in entries {
            let fid = Fid {
                volume: tree.dir.volume,
                vnode: entry.target.vnode,
                unique: entry.target.unique,
            };
            found.names.insert(entry.name, fid);
        }
    }
    if let Ok((entries, _)) = volume.read_dir(tree.nest.vnode, Cookie::START, usize::MAX) {
        found.nest = entries.into_iter().map(|entry| entry.name).collect();
    }
    found
}

/// The call for traces, without its data.
pub fn brief(call: &Call) -> String {
    match call {
        Call::Write { fid, offset, data, stable, .. } => {
            format!("Write {fid} at {offset:?}, {} bytes, stable {stable}", data.len())
        }
        other => format!("{other:?}"),
    }
}

/// Whether the effect is the reply to this request.
fn replies_to(effect: &Effect, origin: ReplyAddress) -> bool {
    matches!(effect, Effect::Reply { origin: of, .. } if *of == origin)
}
