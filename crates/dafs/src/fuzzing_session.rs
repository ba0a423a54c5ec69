//! Session machines under arbitrary events: a run of bytes is a script of inputs, and the
//! invariants are checked after each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use types::{
    Answer, BootVerifier, BreakId, BreakItem, BreakReason, ByteRange, Call, Caller, ClientId,
    DataVersion, Fault, Fid, LockFamily, LockMode, LockOwner, Name, ReplyAddress, SessionId,
    StatusVersion, Time,
};

use crate::codec::uses_current;
use crate::credentials::TokenProof;
use crate::limits::LIVE_OUTPUTS_MAX;
use crate::message::{AttachAnswer, Message};
use crate::*;

const SESSION: SessionId = SessionId(7);
const KEY: u128 = 0x1234;

/// Takes choices off a run of bytes; an empty run chooses 0.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn call(&mut self) -> Call {
        let fid = match self.below(4) {
            0 => Fid::CURRENT,
            number => Fid::new(1, number.into(), 1),
        };
        let name = Name::new(b"n").expect("a name");
        match self.below(9) {
            0 => Call::GetStatus { fid },
            1 => Call::Lookup { dir: fid, name },
            2 => Call::Read { fid, offset: 0, length: 4096 * u32::from(self.below(3)) },
            3 => Call::Write {
                fid,
                offset: None,
                data: Bytes::from_static(b"data"),
                stable: true,
                kill_privileges: false,
            },
            4 => Call::Hold { fids: vec![fid; self.below(3).into()] },
            5 => Call::OpenBody { fid },
            6 => Call::ReclaimDone,
            7 => Call::Commit { fid },
            _ => Call::Lock {
                fid,
                owner: LockOwner(1),
                pid: 1,
                family: LockFamily::Posix,
                range: ByteRange::ALL,
                mode: LockMode::Shared,
                wait: self.below(2) == 1,
                reclaim: false,
            },
        }
    }

    fn answer(&mut self) -> Result<Answer, Fault> {
        match self.below(5) {
            0 => Err(Fault::NotFound),
            1 => Ok(Answer::Done),
            2 => Ok(Answer::Committed { verifier: BootVerifier(1) }),
            3 => {
                Ok(Answer::Data { data: Bytes::from_static(b"data"), end: true, status: status() })
            }
            _ => Ok(Answer::Status(status())),
        }
    }

    fn message(&mut self) -> Message {
        let number = u64::from(self.byte());
        match self.below(14) {
            12 => Message::Token {
                handle: u32::from(self.below(70)),
                shown: TokenProof { token: Bytes::from_static(b"token"), proof: [self.byte(); 64] },
            },
            0 => Message::Credential { handle: u32::from(self.below(70)), caller: Caller::ROOT },
            1 => Message::Cancel { slot: self.below(10).into(), request: number },
            2 => Message::BreakAck { id: BreakId(number), held: vec![Fid::new(1, 2, 3)] },
            3 => Message::Renew(number),
            4 => Message::CreditsTaken(self.below(3).into()),
            5 => Message::Detach,
            6 => Message::Probe(number),
            7 => Message::Bound,
            8 => Message::Break { id: BreakId(number), items: vec![item()] },
            9 => Message::Renewed { number, renewed: self.below(2) == 1 },
            10 => Message::Credits { credits: self.below(140).into(), grant: number },
            11 => Message::Goodbye {
                fault: [None, Some(Fault::Expired), Some(Fault::Medium)]
                    [usize::from(self.below(3))],
                reason: "because".into(),
            },
            _ => Message::Probed(number),
        }
    }

    fn raw_frame(&mut self) -> Option<Frame> {
        let bytes: [u8; FrameHeader::BYTES] = self.bytes(FrameHeader::BYTES).try_into().ok()?;
        let header = FrameHeader::parse(&bytes).ok()?;
        let message = self.bytes(usize::min(header.message_bytes as usize, 100));
        Some(Frame { header, message: message.into(), payload: Bytes::new() })
    }
}

fn item() -> BreakItem {
    BreakItem { fid: Fid::new(1, 2, 3), reason: BreakReason::Data, name: None }
}

fn status() -> types::Status {
    let time = types::Timestamp::default();
    types::Status {
        fid: Fid::new(1, 2, 3),
        kind: types::Kind::File,
        mode: 0o644,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 0,
        gid: 0,
        links: 1,
        size: 4,
        used: 4,
        device: 0,
        accessed: time,
        modified: time,
        changed: time,
        created: time,
        data_version: DataVersion(1),
        status_version: StatusVersion(1),
    }
}

fn terms(choice: u8) -> Terms {
    let features = match choice % 3 {
        0 => Features::NONE,
        1 => Features::DIRECT.with(Features::DESCRIPTORS),
        _ => Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS).with(Features::DELEGATIONS),
    };
    Terms::full(features)
}

/// The server's machine accepts any frames and events without a panic; it never passes a number to
/// the service twice as new, has at most one request of a slot in progress, passes no placeholder,
/// and sends only over connections that exist.
pub fn server_session(script: &[u8]) {
    let mut script = Script(script);
    let recorded = match script.below(3) {
        0 => Some(vec![(0, 3), (200, 1)]),
        1 => Some(Vec::new()),
        _ => None,
    };
    let mut world = ServerWorld {
        machine: ServerSession::new(SessionSetup {
            session: SESSION,
            server: 1,
            boot_verifier: BootVerifier(1),
            lease: Duration::from_secs(15),
            slots: 8,
            bind_key: KEY,
            recorded,
        }),
        lines: BTreeMap::new(),
        channels: 0,
        running: HashMap::new(),
        executed: HashSet::new(),
        held: 0,
    };
    while !script.0.is_empty() {
        world.event(&mut script);
    }
}

struct ServerWorld {
    machine: ServerSession,
    lines: BTreeMap<ChannelId, Terms>,
    channels: u64,
    running: HashMap<u32, u64>,
    executed: HashSet<(u32, u64)>,
    held: usize,
}

impl ServerWorld {
    fn event(&mut self, script: &mut Script<'_>) {
        let input = match script.below(16) {
            0 => {
                self.channels += 1;
                let terms = terms(script.byte());
                self.lines.insert(ChannelId(self.channels), terms);
                let channel = ChannelId(self.channels);
                ServerInput::Attached {
                    channel,
                    terms,
                    resumed: true,
                    renewed: true,
                    door: std::sync::Arc::new(crate::credentials::Trusting),
                }
            }
            1 => {
                self.channels += 1;
                let terms = terms(script.byte());
                self.lines.insert(ChannelId(self.channels), terms);
                let key = if script.below(4) == 0 { 0 } else { KEY };
                ServerInput::Bind { channel: ChannelId(self.channels), terms, key }
            }
            2..=8 => {
                let Some((channel, terms)) = self.pick(script) else { return };
                ServerInput::Arrived { channel, frame: request(script, &terms) }
            }
            9 => {
                let Some((channel, terms)) = self.pick(script) else { return };
                let frame = script
                    .message()
                    .to_frame(SESSION)
                    .expect("within limits")
                    .sealed(terms.features);
                ServerInput::Arrived { channel, frame }
            }
            10 => {
                let Some((channel, _)) = self.pick(script) else { return };
                let Some(frame) = script.raw_frame() else { return };
                ServerInput::Arrived { channel, frame }
            }
            11 => ServerInput::Lost { channel: ChannelId(script.below(8).into()) },
            12..=13 => {
                let slot = u32::from(script.below(8));
                let request = self.running.get(&slot).copied().unwrap_or(1);
                let origin = ReplyAddress { session: SESSION, slot, request };
                ServerInput::Answered {
                    origin,
                    result: script.answer(),
                    descriptor: script.below(2) == 1,
                }
            }
            14 => ServerInput::Break { id: BreakId(script.byte().into()), items: vec![item()] },
            _ => match script.below(6) {
                0 => ServerInput::Grant(script.byte().into()),
                1 => ServerInput::Renewed {
                    channel: ChannelId(script.below(8).into()),
                    number: 1,
                    renewed: true,
                },
                2 => ServerInput::End(Fault::Expired),
                3..=4 => {
                    let slot = u32::from(script.below(8));
                    let request = self.running.get(&slot).copied().unwrap_or(1);
                    let origin = ReplyAddress { session: SESSION, slot, request };
                    let current = (script.below(2) == 1).then(|| item().fid);
                    ServerInput::Executed { origin, current }
                }
                _ => ServerInput::Grant(4),
            },
        };
        self.step(input);
    }

    fn pick(&self, script: &mut Script<'_>) -> Option<(ChannelId, Terms)> {
        let back = usize::from(script.below(3));
        self.lines.iter().nth_back(back).map(|(channel, terms)| (*channel, *terms))
    }

    fn step(&mut self, input: ServerInput) {
        let source = match &input {
            ServerInput::Arrived { channel, .. } | ServerInput::Bind { channel, .. } => {
                Some(*channel)
            }
            ServerInput::Lost { channel } => {
                self.lines.remove(channel);
                None
            }
            ServerInput::Answered { origin, .. } => {
                self.running.remove(&origin.slot);
                None
            }
            _ => None,
        };
        let mut out = Vec::new();
        let result = self.machine.step(Time::ZERO, input, &mut out);
        assert!(out.len() <= LIVE_OUTPUTS_MAX, "{} outputs", out.len());
        for output in out {
            self.check(output);
        }
        if let (Err(_), Some(channel)) = (result, source) {
            self.lines.remove(&channel);
        }
    }

    fn check(&mut self, output: ServerOutput) {
        match output {
            ServerOutput::Send { channel, frame } => {
                let terms =
                    self.lines.get(&channel).unwrap_or_else(|| panic!("{channel:?} is closed"));
                assert_eq!(frame.verify(terms), Ok(()));
                assert_eq!(FrameHeader::parse(&frame.header.to_bytes()), Ok(frame.header));
            }
            ServerOutput::Close { channel } => drop(self.lines.remove(&channel)),
            ServerOutput::Execute { origin, mut call, repeated, .. } => {
                assert!(!uses_current(&mut call), "{call:?}");
                assert_eq!(
                    self.running.insert(origin.slot, origin.request),
                    None,
                    "two in progress in {}",
                    origin.slot
                );
                let new = self.executed.insert((origin.slot, origin.request));
                assert!(new || repeated, "EO-1: {origin:?} is passed up twice as new");
            }
            ServerOutput::Cancel(origin) => {
                assert_eq!(self.running.get(&origin.slot), Some(&origin.request));
            }
            ServerOutput::Acknowledged { .. } => self.held += 1,
            ServerOutput::Renew { .. } | ServerOutput::Detached | ServerOutput::Overrun => {}
        }
    }
}

fn request(script: &mut Script<'_>, terms: &Terms) -> Frame {
    let encoded = encode_call(&script.call()).expect("within limits");
    let chain = [
        Flags::NONE,
        Flags::NONE,
        Flags::CHAIN_START,
        Flags::CHAIN_MIDDLE,
        Flags::CHAIN_END,
        Flags::CHAIN_END.with(Flags::ABORTED),
        Flags::ABORTED,
    ];
    let flags = chain[usize::from(script.below(7))];
    let header = FrameHeader {
        procedure: if script.below(20) == 0 { 99 } else { encoded.procedure },
        flags,
        slot: script.below(9).into(),
        request: script.below(6).into(),
        credential: script.below(2).into(),
        ..FrameHeader::new(FrameKind::Request, SESSION)
    };
    Frame::new(header, encoded.message, encoded.payload).sealed(terms.features)
}

/// The client's machine accepts any frames and events without a panic; each call ends at most once
/// and waits otherwise, and frames use only connections that exist.
pub fn client_session(script: &[u8]) {
    let mut script = Script(script);
    let config = ClientConfig {
        client: ClientId(5),
        incarnation: 1,
        display: "fuzz".into(),
        pid: 1,
        queue_max: 20,
        back_channel: script.below(2) == 1,
        keeps: false,
        wallet: None,
    };
    let mut out = Vec::new();
    let machine = ClientSession::new(Time::ZERO, config, &mut out);
    let mut world = ClientWorld {
        machine,
        now: Time::ZERO,
        lines: BTreeMap::new(),
        channels: 0,
        sent: Vec::new(),
        waiting: BTreeSet::new(),
        calls: 0,
        closed: false,
    };
    world.check(out);
    while !script.0.is_empty() {
        world.event(&mut script);
    }
}

struct ClientWorld {
    machine: ClientSession,
    now: Time,
    lines: BTreeMap<ChannelId, Terms>,
    channels: u64,
    sent: Vec<FrameHeader>,
    waiting: BTreeSet<CallId>,
    calls: u64,
    closed: bool,
}

impl ClientWorld {
    fn event(&mut self, script: &mut Script<'_>) {
        let input = match script.below(16) {
            0..=1 => {
                self.channels += 1;
                let terms = terms(script.byte());
                self.lines.insert(ChannelId(self.channels), terms);
                let role = if script.below(2) == 0 {
                    ConnectionRole::Operations
                } else {
                    ConnectionRole::Back
                };
                ClientInput::Connected {
                    role,
                    channel: ChannelId(self.channels),
                    terms,
                    certificate: None,
                }
            }
            2 => ClientInput::ConnectFailed { role: ConnectionRole::Operations },
            3 => ClientInput::Lost { channel: ChannelId(script.below(8).into()) },
            4..=5 => {
                let call = script.call();
                ClientInput::Submit {
                    id: self.call_id(),
                    caller: Caller::ROOT,
                    call,
                    region: None,
                    urgent: false,
                }
            }
            6 => {
                let count = script.below(6);
                let members = (0..count).map(|_| (self.call_id(), script.call())).collect();
                ClientInput::SubmitChain { caller: Caller::ROOT, members }
            }
            7 => ClientInput::Cancel(CallId(script.byte().into())),
            8 => ClientInput::BreakHandled { id: BreakId(script.byte().into()), held: Vec::new() },
            9 => {
                self.now = self.now + Duration::from_millis(100 * u64::from(script.byte()));
                ClientInput::Tick
            }
            10..=11 => {
                let Some((channel, terms)) = self.pick(script) else { return };
                let Some(frame) = self.reply(script) else { return };
                ClientInput::Arrived { channel, frame: frame.sealed(terms.features) }
            }
            12 => {
                let Some((channel, terms)) = self.pick(script) else { return };
                let frame = script
                    .message()
                    .to_frame(SESSION)
                    .expect("within limits")
                    .sealed(terms.features);
                ClientInput::Arrived { channel, frame }
            }
            13 => {
                let Some((channel, terms)) = self.pick(script) else { return };
                let attached =
                    Message::Attached(attached(script)).to_frame(SESSION).expect("within limits");
                ClientInput::Arrived { channel, frame: attached.sealed(terms.features) }
            }
            14 => {
                let Some((channel, _)) = self.pick(script) else { return };
                let Some(frame) = script.raw_frame() else { return };
                ClientInput::Arrived { channel, frame }
            }
            _ if script.below(8) == 0 => ClientInput::Detach,
            _ => ClientInput::ConnectFailed { role: ConnectionRole::Back },
        };
        self.step(input);
    }

    fn call_id(&mut self) -> CallId {
        self.calls += 1;
        self.waiting.insert(CallId(self.calls));
        CallId(self.calls)
    }

    fn pick(&self, script: &mut Script<'_>) -> Option<(ChannelId, Terms)> {
        let back = usize::from(script.below(3));
        self.lines.iter().nth_back(back).map(|(channel, terms)| (*channel, *terms))
    }

    /// A reply to a recently sent request, right or nearly so.
    fn reply(&self, script: &mut Script<'_>) -> Option<Frame> {
        let back = usize::from(script.below(4));
        let asked = self.sent.iter().rev().nth(back)?;
        let header = FrameHeader {
            slot: asked.slot,
            request: asked.request + u64::from(script.below(8) / 7),
            ..FrameHeader::new(FrameKind::Reply, SESSION)
        };
        let kind = codec::Procedure::from_wire(asked.procedure)?.traits().answer;
        let answer = match kind {
            codec::AnswerKind::Done => Ok(Answer::Done),
            codec::AnswerKind::Committed => Ok(Answer::Committed { verifier: BootVerifier(1) }),
            codec::AnswerKind::Status => Ok(Answer::Status(status())),
            _ => script.answer(),
        };
        match answer {
            Err(fault) => {
                Some(Frame::plain(FrameHeader { fault: Some(fault.into()), ..header }, Vec::new()))
            }
            Ok(answer) => {
                let encoded = encode_answer(&answer).expect("within limits");
                let header = FrameHeader { procedure: encoded.procedure, ..header };
                Some(Frame::new(header, encoded.message, encoded.payload))
            }
        }
    }

    fn step(&mut self, input: ClientInput) {
        let source = match &input {
            ClientInput::Arrived { channel, .. } => Some(*channel),
            ClientInput::Lost { channel } => {
                self.lines.remove(channel);
                None
            }
            _ => None,
        };
        let mut out = Vec::new();
        let result = self.machine.step(self.now, input, &mut out);
        assert!(out.len() <= LIVE_OUTPUTS_MAX, "{} outputs", out.len());
        self.check(out);
        if let (Err(_), Some(channel)) = (result, source) {
            self.lines.remove(&channel);
        }
        assert_eq!(
            self.machine.calls_waiting(),
            self.waiting.len(),
            "a call is neither done nor waiting"
        );
    }

    fn check(&mut self, out: Vec<ClientOutput>) {
        for output in out {
            assert!(
                !self.closed
                    || matches!(output, ClientOutput::Done { .. } | ClientOutput::Close { .. })
            );
            match output {
                ClientOutput::Send { channel, frame } => {
                    let terms =
                        self.lines.get(&channel).unwrap_or_else(|| panic!("{channel:?} is closed"));
                    assert_eq!(frame.verify(terms), Ok(()));
                    assert_eq!(FrameHeader::parse(&frame.header.to_bytes()), Ok(frame.header));
                    if frame.header.kind == FrameKind::Request {
                        self.sent.push(frame.header);
                    }
                }
                ClientOutput::Close { channel } => drop(self.lines.remove(&channel)),
                ClientOutput::Done { id, .. } => {
                    assert!(self.waiting.remove(&id), "{id:?} is done twice");
                }
                ClientOutput::Closed => self.closed = true,
                ClientOutput::Keep(_) => panic!("nothing is kept"),
                ClientOutput::Connect { .. }
                | ClientOutput::Break { .. }
                | ClientOutput::Renewed { .. }
                | ClientOutput::Established { .. }
                | ClientOutput::SessionLost
                | ClientOutput::Refused(_)
                | ClientOutput::WakeAt(_) => {}
            }
        }
    }
}

fn attached(script: &mut Script<'_>) -> AttachAnswer {
    AttachAnswer {
        session: if script.below(6) == 0 { SessionId(8) } else { SESSION },
        resumed: script.below(4) != 0,
        renewed: script.below(2) == 0,
        server: script.below(3).into(),
        boot_verifier: BootVerifier(1),
        lease: Duration::from_secs(script.below(16).into()),
        credits: [0, 4, 5, 128, 129][usize::from(script.below(5))],
        grant: script.below(3).into(),
        bind_key: KEY,
        challenge: [4; 32],
    }
}
