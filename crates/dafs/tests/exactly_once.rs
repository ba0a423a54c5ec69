//! Both machines against each other over connections that break at any frame, with a server that
//! may restart: each change is applied exactly once, each call is answered, and a chain's members
//! run in order. The client may be killed between any two of its outputs too, and is succeeded by a
//! machine that knows what was kept.
//!
//! The simulated service is a counter for each call; its reply records are those that a store would
//! save. Faults come from a seed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use dafs::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::*;

const SESSION: SessionId = SessionId(7);

/// A connection: frames in transit in both directions, which are lost with it.
#[derive(Default)]
struct Wire {
    to_server: VecDeque<Frame>,
    to_client: VecDeque<Frame>,
}

/// State that survives a restart of the server: applied changes, and the last recorded reply of
/// each slot.
#[derive(Default)]
struct Store {
    applied: HashMap<u64, u32>,
    order: Vec<u64>,
    records: BTreeMap<u32, (u64, Vec<u8>)>,
}

/// Calls that were submitted together.
#[derive(Clone)]
struct Submitted {
    caller: Caller,
    first: u64,
    calls: Vec<Call>,
    chained: bool,
}

struct World {
    random: SmallRng,
    back_channel: bool,
    /// The state that a successor of the client has.
    kept: KeptState,
    /// The client is killed after so many more outputs.
    killed_after: Option<u32>,
    kills: u32,
    /// Connections of killed clients, and their frames that the server has yet to see.
    orphaned: Vec<(ChannelId, VecDeque<Frame>)>,
    submitted: Vec<Submitted>,
    /// The client is killed now and then.
    kept_kills: bool,
    now: Time,
    client: ClientSession,
    server: ServerSession,
    instance: u64,
    terms: Terms,
    wires: BTreeMap<ChannelId, (ConnectionRole, Wire)>,
    channels: u64,
    wanted: Vec<(ConnectionRole, Time)>,
    store: Store,
    /// Requests that the service has not answered yet.
    working: Vec<(ReplyAddress, Call)>,
    done: HashMap<u64, Result<Answer, CallFailure>>,
    breaks: Vec<BreakId>,
    acknowledged: Vec<BreakId>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut out = Vec::new();
        let back_channel = seed.is_multiple_of(2);
        let client = ClientSession::new(Time::ZERO, config(back_channel), &mut out);
        let mut world = World {
            random: SmallRng::seed_from_u64(seed),
            back_channel,
            kept: KeptState::default(),
            killed_after: None,
            kills: 0,
            orphaned: Vec::new(),
            submitted: Vec::new(),
            kept_kills: seed % 4 < 3,
            now: Time::ZERO,
            client,
            server: ServerSession::new(setup(1, None)),
            instance: 1,
            terms: Terms::full(Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS)),
            wires: BTreeMap::new(),
            channels: 0,
            wanted: Vec::new(),
            store: Store::default(),
            working: Vec::new(),
            done: HashMap::new(),
            breaks: Vec::new(),
            acknowledged: Vec::new(),
        };
        world.on_client(out);
        world
    }

    fn step_client(&mut self, input: ClientInput) {
        let source = match &input {
            ClientInput::Arrived { channel, .. } => Some(*channel),
            _ => None,
        };
        let mut out = Vec::new();
        let result = self.client.step(self.now, input, &mut out);
        let kills = self.kills;
        self.on_client(out);
        if self.kills != kills {
            return;
        }
        if let (Err(error), Some(channel)) = (result, source) {
            assert!(matches!(error, PeerError::Goodbye { .. }), "{error}");
            self.cut(channel, true);
        }
    }

    fn on_client(&mut self, out: Vec<ClientOutput>) {
        for output in out {
            if let Some(left) = &mut self.killed_after {
                if *left == 0 {
                    self.killed_after = None;
                    return self.succeed();
                }
                *left -= 1;
            }
            let kills = self.kills;
            self.kept.note(&output);
            match output {
                ClientOutput::Connect { role, at } => self.wanted.push((role, at)),
                ClientOutput::Send { channel, frame } => {
                    self.wires
                        .get_mut(&channel)
                        .expect("the machine sends only over an open connection")
                        .1
                        .to_server
                        .push_back(frame);
                }
                ClientOutput::Close { channel } => self.cut(channel, true),
                ClientOutput::Done { id, result, .. } => {
                    assert!(self.done.insert(id.0, result).is_none(), "{id:?} is done twice");
                }
                ClientOutput::Break { id, .. } => {
                    self.step_client(ClientInput::BreakHandled { id, held: Vec::new() });
                }
                ClientOutput::SessionLost | ClientOutput::Refused(_) => {
                    panic!("the session survives every event")
                }
                ClientOutput::Renewed { .. }
                | ClientOutput::Established { .. }
                | ClientOutput::WakeAt(_) => {}
                ClientOutput::Keep(_) | ClientOutput::Closed => {}
            }
            if self.kills != kills {
                return;
            }
        }
    }

    fn submit(&mut self, submitted: Submitted) {
        let Submitted { caller, first, calls, chained } = submitted;
        let mut members = (first..).map(CallId).zip(calls);
        if chained {
            let members = members.collect();
            return self.step_client(ClientInput::SubmitChain { caller, members });
        }
        let (id, call) = members.next().expect("one call");
        self.step_client(ClientInput::Submit { id, caller, call, region: None, urgent: false });
    }

    /// The client is killed. Its successor goes on, and its user makes again the calls that it had
    /// not sent.
    fn succeed(&mut self) {
        self.kills += 1;
        for (channel, (_, wire)) in std::mem::take(&mut self.wires) {
            self.orphaned.push((channel, wire.to_server));
        }
        self.wanted.clear();
        let mut out = Vec::new();
        self.client = match &self.kept.session {
            None => ClientSession::new(self.now, config(self.back_channel), &mut out),
            Some(kept) => kept
                .succeed(self.now, config(self.back_channel), &mut out)
                .expect("what was kept is whole"),
        };
        self.on_client(out);
        let sent: Vec<u64> = self
            .kept
            .session
            .iter()
            .flat_map(|kept| kept.requests.iter().map(|request| request.id.0))
            .collect();
        for submitted in self.submitted.clone() {
            let numbers = submitted.first..submitted.first + submitted.calls.len() as u64;
            let lost: Vec<u64> = numbers
                .filter(|number| !self.done.contains_key(number) && !sent.contains(number))
                .collect();
            if lost.len() == submitted.calls.len() {
                self.submit(submitted);
            } else {
                // The end of a chain that was kept in part: a journal goes on from there.
                for number in lost {
                    self.done.insert(number, Err(CallFailure::Closed));
                }
            }
        }
    }

    /// The server sees a frame of a client that was killed, or the end of its connection.
    fn see_orphaned(&mut self) {
        if self.orphaned.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.orphaned.len());
        let (channel, frames) = &mut self.orphaned[at];
        let channel = *channel;
        match frames.pop_front() {
            Some(frame) => self.deliver_to_server(channel, frame),
            None => {
                self.orphaned.swap_remove(at);
                self.step_server(ServerInput::Lost { channel });
            }
        }
    }

    fn step_server(&mut self, input: ServerInput) {
        let source = match &input {
            ServerInput::Arrived { channel, .. } | ServerInput::Bind { channel, .. } => {
                Some(*channel)
            }
            _ => None,
        };
        let mut out = Vec::new();
        let result = self.server.step(self.now, input, &mut out);
        if let (Err(error), Some(_)) = (&result, source) {
            panic!("both sides follow the protocol: {error}");
        }
        for output in out {
            self.on_server(output);
        }
    }

    fn on_server(&mut self, output: ServerOutput) {
        match output {
            ServerOutput::Send { channel, frame } => {
                if let Some((_, wire)) = self.wires.get_mut(&channel) {
                    wire.to_client.push_back(frame);
                }
            }
            ServerOutput::Close { channel } => {
                self.orphaned.retain(|(orphaned, _)| *orphaned != channel);
                // An attach of a killed client replaced it; otherwise the client knows already.
                self.cut(channel, false);
            }
            ServerOutput::Execute { origin, call, .. } => self.working.push((origin, call)),
            ServerOutput::Cancel(_) | ServerOutput::Detached | ServerOutput::Overrun => {}
            ServerOutput::Acknowledged { id, .. } => self.acknowledged.push(id),
            ServerOutput::Renew { channel, number } => {
                self.step_server(ServerInput::Renewed { channel, number, renewed: true });
            }
        }
    }

    /// A connection breaks; a side that has not noticed yet notices now.
    fn cut(&mut self, channel: ChannelId, client_knows: bool) {
        if self.wires.remove(&channel).is_none() {
            return;
        }
        self.step_server(ServerInput::Lost { channel });
        if !client_knows {
            self.step_client(ClientInput::Lost { channel });
        }
    }

    fn connect(&mut self, role: ConnectionRole) {
        self.channels += 1;
        let channel = ChannelId(self.channels);
        self.wires.insert(channel, (role, Wire::default()));
        self.step_client(ClientInput::Connected {
            role,
            channel,
            terms: self.terms,
            certificate: None,
        });
    }

    fn deliver_to_server(&mut self, channel: ChannelId, frame: Frame) {
        match frame.header.kind {
            FrameKind::Attach => {
                self.step_server(ServerInput::Attached {
                    channel,
                    terms: self.terms,
                    resumed: true,
                    renewed: true,
                    door: std::sync::Arc::new(dafs::credentials::Trusting),
                });
            }
            FrameKind::Bind => {
                let Ok(Some(message::Message::Bind(bind))) = message::Message::of_frame(&frame)
                else {
                    panic!()
                };
                self.step_server(ServerInput::Bind { channel, terms: self.terms, key: bind.key });
            }
            _ => self.step_server(ServerInput::Arrived { channel, frame }),
        }
    }

    /// The service behaves as `vice` does: it answers a repeat of a recorded change from its
    /// record, and reads again.
    fn execute(&mut self, origin: ReplyAddress, call: &Call) {
        let result = match *call {
            Call::Write { offset, .. } => {
                let number = offset.expect("each write has its number as offset");
                match self.store.records.get(&origin.slot) {
                    Some((request, record)) if *request == origin.request => {
                        Ok(decode_answer_record(record).expect("the store's records are valid"))
                    }
                    _ => Ok(self.apply(origin, number)),
                }
            }
            // A read that works only before the change after it: it would fail, and abort the
            // chain, if it were judged again.
            Call::Seek { offset, .. } if self.store.applied.contains_key(&offset) => {
                Err(Fault::NothingThere)
            }
            Call::Seek { offset, .. } => Ok(Answer::Offset(offset)),
            _ => panic!("these tests send no other call"),
        };
        self.step_server(ServerInput::Answered { origin, result, descriptor: false });
    }

    fn apply(&mut self, origin: ReplyAddress, number: u64) -> Answer {
        *self.store.applied.entry(number).or_default() += 1;
        self.store.order.push(number);
        let answer = Answer::Written {
            count: 1,
            offset: number,
            status: status(),
            previous_version: DataVersion(number),
            verifier: BootVerifier(1),
        };
        self.store.records.insert(origin.slot, (origin.request, encode_answer_record(&answer)));
        answer
    }

    /// The server crashes and restarts with the state of its store.
    fn restart(&mut self) {
        self.instance += 1;
        self.working.clear();
        let recorded =
            self.store.records.iter().map(|(slot, (request, _))| (*slot, *request)).collect();
        self.server = ServerSession::new(setup(self.instance, Some(recorded)));
        self.orphaned.clear();
        // The new server knows none of them, nor does a successor of a client that is killed now.
        for channel in std::mem::take(&mut self.wires).into_keys() {
            self.step_client(ClientInput::Lost { channel });
        }
    }

    /// One random event. Without `faults`, only events that make progress.
    fn event(&mut self, faults: bool) {
        let wires: Vec<ChannelId> = self.wires.keys().copied().collect();
        let pick = (!wires.is_empty()).then(|| wires[self.random.random_range(0..wires.len())]);
        if faults && self.kept_kills && self.random.random_bool(0.01) {
            self.killed_after = Some(self.random.random_range(0..6));
        }
        if !self.orphaned.is_empty() && self.random.random_bool(0.2) {
            return self.see_orphaned();
        }
        match self.random.random_range(0..100) {
            0..3 if faults => {
                if let Some(channel) = pick {
                    self.cut(channel, false);
                }
            }
            3 if faults && self.random.random_bool(0.3) => self.restart(),
            4..6 if faults => {
                let id = BreakId(self.breaks.len() as u64 + 1);
                self.breaks.push(id);
                let items = vec![BreakItem {
                    fid: Fid::new(1, 2, 3),
                    reason: BreakReason::Data,
                    name: None,
                }];
                self.step_server(ServerInput::Break { id, items });
            }
            6..8 if faults => {
                let credits = self.random.random_range(4..20);
                self.step_server(ServerInput::Grant(credits));
            }
            8..35 => {
                let Some(channel) = pick else { return };
                let (_, wire) =
                    self.wires.get_mut(&channel).expect("the channel was picked from the wires");
                if let Some(frame) = wire.to_server.pop_front() {
                    self.deliver_to_server(channel, frame);
                }
            }
            35..60 => {
                let Some(channel) = pick else { return };
                let (_, wire) =
                    self.wires.get_mut(&channel).expect("the channel was picked from the wires");
                if let Some(frame) = wire.to_client.pop_front() {
                    self.step_client(ClientInput::Arrived { channel, frame });
                }
            }
            60..80 if !self.working.is_empty() => {
                let at = self.random.random_range(0..self.working.len());
                let (origin, call) = self.working.swap_remove(at);
                self.execute(origin, &call);
            }
            80..90 => {
                self.now = self.now + Duration::from_millis(20);
                self.step_client(ClientInput::Tick);
            }
            _ => {
                let due = self.wanted.iter().position(|(_, at)| *at <= self.now);
                if let Some(at) = due {
                    let (role, _) = self.wanted.swap_remove(at);
                    self.connect(role);
                }
            }
        }
    }

    fn settle(&mut self, calls: u64) {
        for _ in 0..200_000 {
            if self.done.len() as u64 == calls && self.acknowledged_all() {
                return;
            }
            self.event(false);
        }
        panic!(
            "{} of {calls} calls are done, {:?} wait",
            self.done.len(),
            self.client.calls_waiting()
        );
    }

    /// Checks the breaks of the present server instance; a restart drops the others.
    fn acknowledged_all(&self) -> bool {
        self.instance > 1 || self.breaks.iter().all(|id| self.acknowledged.contains(id))
    }
}

fn config(back_channel: bool) -> ClientConfig {
    ClientConfig {
        client: ClientId(1),
        incarnation: 1,
        display: "test".into(),
        pid: 1,
        queue_max: 10_000,
        back_channel,
        keeps: true,
        wallet: None,
    }
}

fn setup(server: u64, recorded: Option<Vec<(u32, u64)>>) -> SessionSetup {
    SessionSetup {
        session: SESSION,
        server,
        boot_verifier: BootVerifier(1),
        lease: Duration::from_secs(15),
        slots: 16,
        bind_key: 5,
        recorded,
    }
}

fn status() -> Status {
    let time = Timestamp::default();
    Status {
        fid: Fid::new(1, 2, 3),
        kind: Kind::File,
        mode: 0o644,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        used: 0,
        device: 0,
        accessed: time,
        modified: time,
        changed: time,
        created: time,
        data_version: DataVersion(1),
        status_version: StatusVersion(1),
    }
}

/// A change that its offset identifies.
fn write(number: u64) -> Call {
    let data = Bytes::from_static(b"x");
    Call::Write {
        fid: Fid::new(1, 2, 3),
        offset: Some(number),
        data,
        stable: true,
        kill_privileges: false,
    }
}

/// A read that is refused once the change with this number is applied.
fn ask_before(number: u64) -> Call {
    Call::Seek { fid: Fid::new(1, 2, 3), offset: number, what: SeekWhat::Data }
}

fn caller(random: &mut SmallRng) -> Caller {
    Caller {
        uid: random.random_range(0..100),
        gid: 0,
        groups: None,
        who: types::RequestIdentity::NAMED,
    }
}

/// Number of seeds; for more: `SEEDS=5000 cargo test ...`.
fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(150, |seeds| seeds.parse().expect("SEEDS is a number"))
}

#[test]
fn each_change_is_applied_exactly_once_whatever_breaks() {
    let mut kills = 0;
    for seed in 0..seeds() {
        let mut world = World::new(seed);
        const CALLS: u64 = 120;
        for number in 0..CALLS {
            let caller = caller(&mut world.random);
            let calls = vec![write(number)];
            let submitted = Submitted { caller, first: number, calls, chained: false };
            world.submitted.push(submitted.clone());
            world.submit(submitted);
            for _ in 0..15 {
                world.event(true);
            }
        }
        world.settle(CALLS);
        kills += world.kills;
        for number in 0..CALLS {
            assert_eq!(world.store.applied.get(&number), Some(&1), "seed {seed}: change {number}");
            let offset = |answer: &Answer| match answer {
                Answer::Written { offset, .. } => Some(*offset),
                _ => None,
            };
            assert!(
                world.done[&number].as_ref().is_ok_and(|answer| offset(answer) == Some(number)),
                "seed {seed}: {number} has another's answer"
            );
        }
    }
    assert!(kills > 0);
}

#[test]
fn chains_run_in_order_and_no_applied_change_reports_aborted() {
    let mut kills = 0;
    for seed in 0..seeds() {
        let mut world = World::new(seed);
        const CHAINS: u64 = 25;
        for chain in 0..CHAINS {
            let first = chain * 4;
            // The second member is refused if it runs after the third: without the records, the
            // rest of the chain would be aborted.
            let calls =
                vec![write(first), ask_before(first + 2), write(first + 2), write(first + 3)];
            let caller = caller(&mut world.random);
            let submitted = Submitted { caller, first, calls, chained: true };
            world.submitted.push(submitted.clone());
            world.submit(submitted);
            for _ in 0..60 {
                world.event(true);
            }
        }
        world.settle(CHAINS * 4);
        kills += world.kills;
        for chain in 0..CHAINS {
            let made = |number: u64| world.store.applied.get(&number).copied().unwrap_or(0);
            let result = |number: u64| &world.done[&number];
            for number in [chain * 4, chain * 4 + 2, chain * 4 + 3] {
                let reported = u32::from(result(number).is_ok());
                assert_eq!(
                    made(number),
                    reported,
                    "seed {seed}: change {number}, {:?}",
                    result(number)
                );
            }
            let at = |number: u64| world.store.order.iter().position(|made| *made == number);
            let order: Vec<_> =
                [0, 2, 3].iter().filter_map(|member| at(chain * 4 + member)).collect();
            assert!(order.is_sorted(), "seed {seed}: chain {chain} ran out of order");
        }
    }
    assert!(kills > 0);
}
