use std::time::Duration;

use bytes::Bytes;
use types::{
    Answer, BootVerifier, BreakId, BreakItem, BreakReason, Call, Caller, DataVersion, Fault, Fid,
    Kind, ReplyAddress, SessionId, Status, StatusVersion, Time, Timestamp,
};

use super::*;
use crate::limits::{BREAKS_MAX, CHAIN_MAX, CREDENTIALS_MAX};
use crate::message::Message;
use crate::{
    Features, Flags, FrameHeader, FrameKind, PeerError, WireError, decode_answer, encode_call,
};

const SESSION: SessionId = SessionId(7);
const KEY: u128 = 99;
const FID: Fid =
    Fid { volume: types::VolumeId(1), vnode: types::VnodeNo(2), unique: types::Uniquifier(3) };

fn setup(recorded: Option<Vec<(u32, u64)>>) -> SessionSetup {
    SessionSetup {
        session: SESSION,
        server: 1,
        boot_verifier: BootVerifier(1),
        lease: Duration::from_secs(15),
        slots: 128,
        bind_key: KEY,
        recorded,
    }
}

/// A machine with an operations connection and a credential, and its outputs.
struct Rig {
    machine: ServerSession,
    channel: ChannelId,
    terms: Terms,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(setup(None), Features::CHECKSUMS)
    }

    fn with(setup: SessionSetup, features: Features) -> Rig {
        let machine = ServerSession::new(setup);
        let mut rig = Rig { machine, channel: ChannelId(0), terms: Terms::full(features) };
        rig.attach();
        rig
    }

    /// Attaches a new operations connection.
    fn attach(&mut self) -> Vec<ServerOutput> {
        self.channel = ChannelId(self.channel.0 + 1);
        let out = self.step(ServerInput::Attached {
            channel: self.channel,
            terms: self.terms,
            resumed: true,
            renewed: true,
            door: std::sync::Arc::new(crate::credentials::Trusting),
        });
        self.send(Message::Credential { handle: 1, caller: Caller::ROOT });
        out.unwrap()
    }

    fn step(&mut self, input: ServerInput) -> Result<Vec<ServerOutput>, PeerError> {
        let mut out = Vec::new();
        self.machine.step(Time::ZERO, input, &mut out).map(|()| out)
    }

    fn try_send(&mut self, message: &Message) -> Result<Vec<ServerOutput>, PeerError> {
        let frame = message.to_frame(SESSION).unwrap().sealed(self.terms.features);
        self.step(ServerInput::Arrived { channel: self.channel, frame })
    }

    #[allow(clippy::needless_pass_by_value)] // shorter at its many callers
    fn send(&mut self, message: Message) -> Vec<ServerOutput> {
        self.try_send(&message).unwrap()
    }

    fn frame(&self, slot: u32, request: u64, flags: Flags, call: &Call) -> Frame {
        let encoded = encode_call(call).unwrap();
        let header = FrameHeader {
            slot,
            request,
            flags,
            procedure: encoded.procedure,
            credential: 1,
            ..FrameHeader::new(FrameKind::Request, SESSION)
        };
        Frame::new(header, encoded.message, encoded.payload).sealed(self.terms.features)
    }

    fn try_ask(
        &mut self,
        slot: u32,
        request: u64,
        flags: Flags,
        call: &Call,
    ) -> Result<Vec<ServerOutput>, PeerError> {
        let frame = self.frame(slot, request, flags, call);
        self.step(ServerInput::Arrived { channel: self.channel, frame })
    }

    fn ask(&mut self, slot: u32, request: u64, flags: Flags, call: &Call) -> Vec<ServerOutput> {
        self.try_ask(slot, request, flags, call).unwrap()
    }

    fn answer(
        &mut self,
        slot: u32,
        request: u64,
        result: Result<Answer, Fault>,
    ) -> Vec<ServerOutput> {
        self.step(ServerInput::Answered {
            origin: origin(slot, request),
            result,
            descriptor: false,
        })
        .unwrap()
    }
}

fn origin(slot: u32, request: u64) -> ReplyAddress {
    ReplyAddress { session: SESSION, slot, request }
}

fn get(fid: Fid) -> Call {
    Call::GetStatus { fid }
}

fn commit(fid: Fid) -> Call {
    Call::Commit { fid }
}

fn append() -> Call {
    let data = Bytes::from_static(b"data");
    Call::Write { fid: FID, offset: None, data, stable: true, kill_privileges: false }
}

fn status_of(fid: Fid) -> Answer {
    let time = Timestamp::default();
    Answer::Status(Status {
        fid,
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
    })
}

/// The calls that went to the service: slot, number, call, and repeat flag.
fn executed(out: &[ServerOutput]) -> Vec<(u32, u64, Call, bool)> {
    let execute = |output: &ServerOutput| match output {
        ServerOutput::Execute { origin, call, repeated, .. } => {
            Some((origin.slot, origin.request, call.clone(), *repeated))
        }
        _ => None,
    };
    out.iter().filter_map(execute).collect()
}

/// The replies that were sent: connection, slot, number, result.
fn replies(out: &[ServerOutput]) -> Vec<(u64, u32, u64, Result<Answer, Fault>)> {
    let reply = |output: &ServerOutput| match output {
        ServerOutput::Send { channel, frame } if frame.header.kind == FrameKind::Reply => {
            let header = frame.header;
            let result = match header.fault {
                Some(code) => Err(code.fault()),
                None => {
                    Ok(decode_answer(header.procedure, &frame.message, frame.payload.clone())
                        .unwrap())
                }
            };
            Some((channel.0, header.slot, header.request, result))
        }
        _ => None,
    };
    out.iter().filter_map(reply).collect()
}

/// The session messages that were sent, and their connections.
fn messages(out: &[ServerOutput]) -> Vec<(u64, Message)> {
    let message = |output: &ServerOutput| match output {
        ServerOutput::Send { channel, frame } => {
            Message::of_frame(frame).unwrap().map(|message| (channel.0, message))
        }
        _ => None,
    };
    out.iter().filter_map(message).collect()
}

// Numbers and slots.

#[test]
fn a_request_goes_up_with_its_caller_and_its_reply_comes_back() {
    let mut rig = Rig::new();
    let caller =
        Caller { uid: 5, gid: 6, groups: Some(vec![7].into()), who: types::RequestIdentity::NAMED };
    rig.send(Message::Credential { handle: 1, caller: caller.clone() });
    let out = rig.ask(3, 1, Flags::NONE, &get(FID));
    let (repeated, chained) = (false, false);
    let execute =
        ServerOutput::Execute { origin: origin(3, 1), caller, call: get(FID), repeated, chained };
    assert_eq!(out, [execute]);
    let out = rig.answer(3, 1, Ok(status_of(FID)));
    assert_eq!(replies(&out), [(1, 3, 1, Ok(status_of(FID)))]);
}

#[test]
fn a_repeat_after_the_reply_goes_up_again_with_the_same_origin() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::NONE, &append());
    rig.answer(0, 1, Err(Fault::NoSpace));
    rig.attach();
    assert_eq!(executed(&rig.ask(0, 1, Flags::NONE, &append())), [(0, 1, append(), true)]);
}

#[test]
fn da2_a_request_in_progress_runs_once_and_is_answered_anew() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::NONE, &append());
    rig.step(ServerInput::Lost { channel: ChannelId(1) }).unwrap();
    rig.attach();
    assert_eq!(rig.ask(0, 1, Flags::NONE, &append()), []);
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    assert_eq!(replies(&out), [(2, 0, 1, Ok(status_of(FID)))]);
}

#[test]
fn a_reply_without_a_connection_is_dropped_and_asked_for_again() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::NONE, &append());
    rig.step(ServerInput::Lost { channel: ChannelId(1) }).unwrap();
    assert_eq!(rig.answer(0, 1, Ok(status_of(FID))), []);
    rig.attach();
    assert_eq!(executed(&rig.ask(0, 1, Flags::NONE, &append())), [(0, 1, append(), true)]);
}

#[test]
fn a_reply_does_not_overtake_the_request_on_a_new_connection() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::NONE, &append());
    rig.attach();
    // The client has yet to repeat the request here: a reply now would make two.
    assert_eq!(rig.answer(0, 1, Ok(status_of(FID))), []);
    assert_eq!(executed(&rig.ask(0, 1, Flags::NONE, &append())), [(0, 1, append(), true)]);
    assert_eq!(replies(&rig.answer(0, 1, Ok(status_of(FID)))).len(), 1);
}

#[test]
fn wrong_numbers_and_slots_end_the_connection_and_nothing_else() {
    type Wrong = fn(&PeerError) -> bool;
    let number: Wrong = |error| matches!(error, PeerError::WrongNumber { .. });
    let busy: Wrong = |error| matches!(error, PeerError::SlotBusy(0));
    let credit: Wrong = |error| matches!(error, PeerError::NoCredit { .. });
    let cases = [
        (0, 3, busy),
        (0, 2, busy),
        (1, 0, number),
        (1, 2, number),
        (128, 1, credit),
        (u32::MAX, 1, credit),
    ];
    for (slot, request, expected) in cases {
        let mut rig = Rig::new();
        rig.ask(0, 1, Flags::NONE, &append());
        rig.answer(0, 1, Ok(status_of(FID)));
        rig.ask(0, 2, Flags::NONE, &append());
        let error = rig.try_ask(slot, request, Flags::NONE, &append()).unwrap_err();
        assert!(expected(&error), "{slot} {request}: {error}");
        let again = rig.try_ask(5, 1, Flags::NONE, &append());
        assert_eq!(again, Err(PeerError::UnknownChannel), "the machine has removed the connection");
        rig.attach();
        assert_eq!(rig.ask(0, 2, Flags::NONE, &append()), [], "still in progress");
        assert_eq!(replies(&rig.answer(0, 2, Ok(status_of(FID)))).len(), 1);
    }
}

#[test]
fn requests_repeat_with_their_numbers_after_a_server_restart() {
    let mut rig = Rig::with(setup(Some(vec![(0, 41), (1, 5), (9999, 1)])), Features::NONE);
    assert_eq!(executed(&rig.ask(0, 41, Flags::NONE, &append())), [(0, 41, append(), true)]);
    assert_eq!(executed(&rig.ask(1, 8, Flags::NONE, &append())), [(1, 8, append(), false)]);
    assert_eq!(executed(&rig.ask(2, 77, Flags::NONE, &append())), [(2, 77, append(), false)]);
    assert!(matches!(
        rig.try_ask(3, 0, Flags::NONE, &append()),
        Err(PeerError::WrongNumber { .. })
    ));
    rig.attach();
    rig.answer(1, 8, Ok(status_of(FID)));
    assert!(matches!(
        rig.try_ask(1, 5, Flags::NONE, &append()),
        Err(PeerError::WrongNumber { .. })
    ));
}

#[test]
fn a_placeholder_outside_a_chain_ends_the_connection() {
    for (flags, call) in [
        (Flags::NONE, get(Fid::CURRENT)),
        (Flags::CHAIN_START, get(Fid::CURRENT)),
        (Flags::NONE, Call::Hold { fids: vec![FID, Fid::CURRENT] }),
        (Flags::CHAIN_START, Call::Unhold { fids: vec![Fid::CURRENT] }),
    ] {
        assert_eq!(Rig::new().try_ask(0, 1, flags, &call), Err(PeerError::NoCurrent), "{call:?}");
    }
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &get(FID));
    let listed = rig.try_ask(1, 1, Flags::CHAIN_END, &Call::Hold { fids: vec![Fid::CURRENT] });
    assert_eq!(listed, Err(PeerError::NoCurrent));
}

#[test]
fn a_request_without_a_known_credential_is_refused_every_time() {
    let mut rig = Rig::new();
    rig.channel = ChannelId(50);
    rig.step(ServerInput::Attached {
        channel: ChannelId(50),
        terms: rig.terms,
        resumed: true,
        renewed: true,
        door: std::sync::Arc::new(crate::credentials::Trusting),
    })
    .unwrap();
    for _ in 0..2 {
        let out = rig.ask(0, 1, Flags::NONE, &append());
        assert_eq!(executed(&out), []);
        assert_eq!(replies(&out), [(50, 0, 1, Err(Fault::NoCredential))]);
    }
    for handle in [0, CREDENTIALS_MAX as u32 + 1] {
        let mut rig = Rig::new();
        let wrong = rig.try_send(&Message::Credential { handle, caller: Caller::ROOT });
        assert_eq!(wrong, Err(PeerError::TooManyCredentials));
    }
}

#[test]
fn a_descriptor_is_only_promised_where_it_can_pass() {
    let body = |rig: &mut Rig| rig.ask(0, 1, Flags::NONE, &Call::OpenBody { fid: FID });
    let mut rig = Rig::new();
    assert_eq!(replies(&body(&mut rig)), [(1, 0, 1, Err(Fault::Unsupported))]);
    let mut rig = Rig::with(setup(None), Features::DESCRIPTORS);
    assert_eq!(executed(&body(&mut rig)).len(), 1);
    let Answer::Status(status) = status_of(FID) else { unreachable!() };
    let result = Ok(Answer::Body { status });
    let out =
        rig.step(ServerInput::Answered { origin: origin(0, 1), result, descriptor: true }).unwrap();
    assert!(matches!(
        &out[..],
        [ServerOutput::Send { frame, .. }] if frame.header.flags.has(Flags::DESCRIPTOR)
    ));
}

#[test]
fn delegated_calls_need_the_agreed_feature() {
    let write = Call::Write {
        fid: FID,
        offset: None,
        data: "x".into(),
        stable: false,
        kill_privileges: false,
    };
    let calls = [
        Call::Delegate { fid: FID },
        Call::Delegated { at: types::Timestamp::new(1, 0), slot: 0, call: Box::new(write) },
        Call::Return { fids: vec![FID] },
    ];
    for call in calls {
        let mut rig = Rig::new();
        assert_eq!(
            replies(&rig.ask(0, 1, Flags::NONE, &call)),
            [(1, 0, 1, Err(Fault::Unsupported))],
            "{call:?}"
        );
        let mut rig = Rig::with(setup(None), Features::DELEGATIONS);
        assert_eq!(executed(&rig.ask(0, 1, Flags::NONE, &call)).len(), 1, "{call:?}");
    }
}

#[test]
fn a_reply_names_the_region_that_its_payload_belongs_into() {
    let mut rig = Rig::with(setup(None), Features::DIRECT.with(Features::CHECKSUMS));
    let mut frame = rig.frame(0, 1, Flags::NONE, &Call::Read { fid: FID, offset: 0, length: 100 });
    frame.header.flags = frame.header.flags.with(Flags::DIRECT);
    frame.header.region = crate::Region { handle: 4, offset: 4096 };
    let frame = frame.sealed(rig.terms.features);
    rig.step(ServerInput::Arrived { channel: rig.channel, frame }).unwrap();
    let Answer::Status(status) = status_of(FID) else { unreachable!() };
    let out =
        rig.answer(0, 1, Ok(Answer::Data { data: Bytes::from_static(b"x"), end: true, status }));
    let Some(ServerOutput::Send { frame, .. }) = out.last() else { panic!("{out:?}") };
    assert!(frame.header.flags.has(Flags::DIRECT));
    assert_eq!(frame.header.region, crate::Region { handle: 4, offset: 4096 });
}

#[test]
fn an_answer_that_cannot_be_carried_becomes_a_fault() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::NONE, &Call::XattrList { fid: FID });
    let names = vec![Bytes::from(vec![b'a'; 255]); 2000];
    assert_eq!(
        replies(&rig.answer(0, 1, Ok(Answer::XattrNames(names)))),
        [(1, 0, 1, Err(Fault::XattrTooBig))]
    );
}

#[test]
fn damaged_oversized_and_foreign_frames_end_the_connection() {
    let mut rig = Rig::new();
    let mut frame = rig.frame(0, 1, Flags::NONE, &append());
    frame.header.slot = 1;
    let damaged = rig.step(ServerInput::Arrived { channel: rig.channel, frame });
    assert_eq!(damaged, Err(PeerError::Wire(WireError::BadChecksum)));

    let mut rig = Rig::new();
    rig.terms.payload_bytes_max = 4096;
    rig.attach();
    let long = Call::Write {
        fid: FID,
        offset: Some(0),
        data: vec![0; 4097].into(),
        stable: false,
        kill_privileges: false,
    };
    let read = Call::Read { fid: FID, offset: 0, length: 4097 };
    for call in [long, read] {
        let refused = rig.try_ask(0, 1, Flags::NONE, &call);
        assert!(matches!(refused, Err(PeerError::Wire(WireError::TooMuch { .. }))));
        rig.attach();
    }

    let frame = Message::Renew(1).to_frame(SessionId(8)).unwrap().sealed(rig.terms.features);
    let foreign = rig.step(ServerInput::Arrived { channel: rig.channel, frame });
    assert_eq!(foreign, Err(PeerError::WrongSession));
}

/// Requests of a newer client, in sound frames: unknown procedures, choices, fields, and one that
/// lacks a field.
fn newer(rig: &Rig, slot: u32, request: u64, flags: Flags) -> Vec<Frame> {
    let frame = rig.frame(
        slot,
        request,
        flags,
        &Call::Seek { fid: FID, offset: 0, what: types::SeekWhat::Hole },
    );
    let with = |procedure: u16, message: Vec<u8>| {
        let header = FrameHeader { procedure, message_bytes: 0, checksum: 0, ..frame.header };
        Frame::new(header, message, Bytes::new()).sealed(rig.terms.features)
    };
    let (procedure, message) = (frame.header.procedure, frame.message.to_vec());
    let choice = [&message[..message.len() - 1], &[9]].concat();
    vec![
        with(999, vec![]),
        with(crate::Procedure::DELEGATED | 999, message.clone()),
        with(procedure, choice),
        with(procedure, [&message[..], &[0; 8]].concat()),
        with(procedure, message[..message.len() - 1].to_vec()),
    ]
}

#[test]
fn m14_unknown_requests_are_refused_in_their_slots() {
    let refused = |channel, slot, request| (channel, slot, request, Err(Fault::Unsupported));
    for index in 0..5 {
        let mut rig = Rig::new();
        let ask = |rig: &mut Rig, request| {
            let frame = newer(rig, 0, request, Flags::NONE).remove(index);
            rig.step(ServerInput::Arrived { channel: rig.channel, frame }).unwrap()
        };
        let out = ask(&mut rig, 1);
        assert_eq!((replies(&out), executed(&out)), (vec![refused(1, 0, 1)], vec![]), "{index}");
        // The same again, here and over the next connection; then the slot accepts the next
        // request.
        assert_eq!(replies(&ask(&mut rig, 1)), [refused(1, 0, 1)]);
        rig.attach();
        assert_eq!(replies(&ask(&mut rig, 1)), [refused(2, 0, 1)]);
        assert_eq!(executed(&rig.ask(0, 2, Flags::NONE, &append())), [(0, 2, append(), false)]);
    }
}

#[test]
fn m14_an_unknown_member_aborts_its_chain() {
    let mut rig = Rig::new();
    assert_eq!(executed(&rig.ask(0, 1, Flags::CHAIN_START, &get(FID))).len(), 1);
    let frame = newer(&rig, 1, 1, Flags::CHAIN_MIDDLE).remove(0);
    assert_eq!(
        replies(&rig.step(ServerInput::Arrived { channel: rig.channel, frame }).unwrap()),
        []
    );
    assert_eq!(replies(&rig.ask(2, 1, Flags::CHAIN_END, &commit(Fid::CURRENT))), []);
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    let results: Vec<_> =
        replies(&out).into_iter().map(|(_, slot, _, result)| (slot, result)).collect();
    let refused = [(1, Err(Fault::Unsupported)), (2, Err(Fault::ChainAborted))];
    assert_eq!(results, [vec![(0, Ok(status_of(FID)))], refused.to_vec()].concat());
    assert_eq!(executed(&out), []);
}

/// The server was newer when it executed the request, and it has the reply's record.
#[test]
fn m14_a_recorded_unknown_request_is_not_called_refused() {
    let mut rig = Rig::with(setup(Some(vec![(0, 7)])), Features::CHECKSUMS);
    let frame = newer(&rig, 0, 7, Flags::NONE).remove(0);
    let out = rig.step(ServerInput::Arrived { channel: rig.channel, frame }).unwrap();
    let up: Vec<_> = executed(&out)
        .into_iter()
        .map(|(slot, request, _, repeated)| (slot, request, repeated))
        .collect();
    assert_eq!((up, replies(&out)), (vec![(0, 7, true)], vec![]));
    assert_eq!(replies(&rig.answer(0, 7, Ok(Answer::Done))), [(1, 0, 7, Ok(Answer::Done))]);
    // A request without a record was never applied.
    let frame = newer(&rig, 1, 9, Flags::NONE).remove(0);
    let out = rig.step(ServerInput::Arrived { channel: rig.channel, frame }).unwrap();
    assert_eq!((replies(&out), executed(&out)), (vec![(1, 1, 9, Err(Fault::Unsupported))], vec![]));
}

#[test]
fn m14_unknown_requests_are_bound_as_others_are() {
    let mut rig = Rig::new();
    let mut damaged = newer(&rig, 0, 1, Flags::NONE).remove(0);
    damaged.header.slot = 1;
    let refused = rig.step(ServerInput::Arrived { channel: rig.channel, frame: damaged });
    assert_eq!(refused, Err(PeerError::Wire(WireError::BadChecksum)));
    rig.attach();
    for (slot, request) in [(0, 9), (500, 1)] {
        let frame = newer(&rig, slot, request, Flags::NONE).remove(0);
        let refused = rig.step(ServerInput::Arrived { channel: rig.channel, frame });
        assert!(
            matches!(refused, Err(PeerError::WrongNumber { .. } | PeerError::NoCredit { .. })),
            "{refused:?}"
        );
        rig.attach();
    }
}

#[test]
fn frames_that_only_a_server_sends_end_the_connection() {
    let from_server = [
        Message::Bound,
        Message::Probed(1),
        Message::Credits { credits: 5, grant: 1 },
        Message::Renewed { number: 1, renewed: true },
        Message::Goodbye { fault: None, reason: String::new() },
    ];
    for message in from_server {
        let kind = message.kind();
        assert_eq!(Rig::new().try_send(&message), Err(PeerError::Unexpected(kind)));
    }
}

// Chains.

#[test]
fn members_of_a_chain_run_in_order_and_pass_their_file_on() {
    let mut rig = Rig::new();
    let made = Fid::new(1, 44, 1);
    assert_eq!(executed(&rig.ask(4, 1, Flags::CHAIN_START, &append())), [(4, 1, append(), false)]);
    assert_eq!(rig.ask(2, 1, Flags::CHAIN_MIDDLE, &commit(Fid::CURRENT)), []);
    assert_eq!(rig.ask(9, 1, Flags::CHAIN_END, &get(Fid::CURRENT)), []);
    let out = rig.answer(4, 1, Ok(status_of(made)));
    assert_eq!(replies(&out).len(), 1);
    assert_eq!(executed(&out), [(2, 1, commit(made), false)]);
    // The answer to a commit names no file: the earlier file stays current.
    let out = rig.answer(2, 1, Ok(Answer::Committed { verifier: BootVerifier(1) }));
    assert_eq!(executed(&out), [(9, 1, get(made), false)]);
    assert_eq!(replies(&rig.answer(9, 1, Ok(status_of(made)))), [(1, 9, 1, Ok(status_of(made)))]);
    assert_eq!(executed(&rig.ask(4, 2, Flags::NONE, &append())).len(), 1, "the chain is over");
}

#[test]
fn a_chain_goes_on_behind_a_member_that_is_answered_later() {
    let mut rig = Rig::new();
    let made = Fid::new(1, 44, 1);
    let origin = |slot| ReplyAddress { session: SESSION, slot, request: 1 };
    rig.ask(4, 1, Flags::CHAIN_START, &append());
    rig.ask(2, 1, Flags::CHAIN_MIDDLE, &commit(Fid::CURRENT));
    rig.ask(9, 1, Flags::CHAIN_END, &get(Fid::CURRENT));
    let executing = |slot, current| ServerInput::Executed { origin: origin(slot), current };
    let out = rig.step(executing(4, Some(made))).unwrap();
    assert_eq!((replies(&out), executed(&out)), (vec![], vec![(2, 1, commit(made), false)]));
    // Said twice, or of a member that does not run: nothing follows.
    assert_eq!(rig.step(executing(4, None)).unwrap(), []);
    assert_eq!(rig.step(executing(9, None)).unwrap(), []);
    let out = rig.step(executing(2, None)).unwrap();
    assert_eq!(executed(&out), [(9, 1, get(made), false)]);
    // Their answers come in any order, once each.
    let committed = || Ok(Answer::Committed { verifier: BootVerifier(1) });
    assert_eq!(replies(&rig.answer(2, 1, committed())), [(1, 2, 1, committed())]);
    assert_eq!(replies(&rig.answer(9, 1, Ok(status_of(made)))).len(), 1);
    assert_eq!(replies(&rig.answer(4, 1, Ok(status_of(made)))).len(), 1);
    assert_eq!(rig.answer(4, 1, Ok(status_of(made))), []);
    assert_eq!(executed(&rig.ask(4, 2, Flags::NONE, &append())).len(), 1, "the chain is over");
}

#[test]
fn a_chain_that_comes_again_waits_for_what_was_executed() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &append());
    rig.ask(1, 1, Flags::CHAIN_END, &get(Fid::CURRENT));
    let origin = ReplyAddress { session: SESSION, slot: 0, request: 1 };
    let out = rig.step(ServerInput::Executed { origin, current: Some(FID) }).unwrap();
    assert_eq!(executed(&out), [(1, 1, get(FID), false)]);
    rig.step(ServerInput::Lost { channel: rig.channel }).unwrap();
    rig.attach();
    assert_eq!(rig.ask(0, 1, Flags::CHAIN_START, &append()), []);
    assert_eq!(rig.ask(1, 1, Flags::CHAIN_END, &get(Fid::CURRENT)), []);
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    assert_eq!((replies(&out).len(), executed(&out)), (1, vec![]));
    assert_eq!(replies(&rig.answer(1, 1, Ok(status_of(FID)))), [(2, 1, 1, Ok(status_of(FID)))]);
}

#[test]
fn behind_a_failed_member_the_rest_is_aborted_and_stays_so() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &get(FID));
    rig.ask(1, 1, Flags::CHAIN_MIDDLE, &append());
    let out = rig.answer(0, 1, Err(Fault::Stale));
    assert_eq!(replies(&out), [(1, 0, 1, Err(Fault::Stale)), (1, 1, 1, Err(Fault::ChainAborted))]);
    let out = rig.ask(2, 1, Flags::CHAIN_END, &append());
    assert_eq!(replies(&out), [(1, 2, 1, Err(Fault::ChainAborted))]);
    assert_eq!(executed(&out), []);
    // The replies were lost; the client repeats a member, even alone, and gets the same reply.
    rig.attach();
    assert_eq!(
        replies(&rig.ask(1, 1, Flags::NONE, &append())),
        [(2, 1, 1, Err(Fault::ChainAborted))]
    );
}

#[test]
fn a_member_that_names_a_file_where_there_is_none_is_refused() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &Call::ReclaimDone);
    rig.ask(1, 1, Flags::CHAIN_END, &get(Fid::CURRENT));
    let out = rig.answer(0, 1, Ok(Answer::Done));
    assert_eq!(replies(&out)[1], (1, 1, 1, Err(Fault::Invalid)));
}

#[test]
fn requests_inside_and_members_outside_a_chain_are_refused() {
    for (first, second) in [
        (Flags::CHAIN_START, Flags::NONE),
        (Flags::CHAIN_START, Flags::CHAIN_START),
        (Flags::CHAIN_MIDDLE, Flags::NONE),
        (Flags::CHAIN_END, Flags::NONE),
    ] {
        let mut rig = Rig::new();
        let first = rig.try_ask(0, 1, first, &append());
        let second = rig.try_ask(1, 1, second, &append());
        assert!([first, second].contains(&Err(PeerError::BrokenChain)));
    }
}

#[test]
fn an_endless_chain_ends_the_connection_and_frees_its_slots() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &append());
    for slot in 1..CHAIN_MAX as u32 {
        rig.ask(slot, 1, Flags::CHAIN_MIDDLE, &append());
    }
    let last = CHAIN_MAX as u32;
    assert_eq!(rig.try_ask(last, 1, Flags::CHAIN_MIDDLE, &append()), Err(PeerError::LongChain));
    rig.attach();
    for slot in 1..=last {
        assert_eq!(
            executed(&rig.ask(slot, 1, Flags::NONE, &append())),
            [(slot, 1, append(), false)]
        );
    }
}

#[test]
fn a_chain_cut_in_the_middle_goes_on_where_it_was() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &append());
    rig.ask(1, 1, Flags::CHAIN_MIDDLE, &append());
    rig.step(ServerInput::Lost { channel: rig.channel }).unwrap();
    // The first runs, the second waited and was dropped, the third never came. All come again.
    rig.attach();
    assert_eq!(rig.ask(0, 1, Flags::CHAIN_START, &append()), []);
    assert_eq!(rig.ask(1, 1, Flags::CHAIN_MIDDLE, &append()), []);
    assert_eq!(rig.ask(2, 1, Flags::CHAIN_END, &get(Fid::CURRENT)), []);
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    assert_eq!(executed(&out), [(1, 1, append(), false)]);
    let out = rig.answer(1, 1, Ok(status_of(FID)));
    assert_eq!(executed(&out), [(2, 1, get(FID), false)]);
}

#[test]
fn an_executed_member_repeats_even_if_an_earlier_one_now_fails() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &get(FID));
    rig.ask(
        1,
        1,
        Flags::CHAIN_MIDDLE,
        &Call::SetStatus { fid: Fid::CURRENT, change: Default::default() },
    );
    rig.ask(2, 1, Flags::CHAIN_END, &append());
    rig.answer(0, 1, Ok(status_of(FID)));
    rig.answer(1, 1, Ok(status_of(FID)));
    // All replies are lost, and the third member is not answered yet.
    rig.step(ServerInput::Lost { channel: rig.channel }).unwrap();
    rig.attach();
    let out = rig.ask(0, 1, Flags::CHAIN_START, &get(FID));
    assert_eq!(executed(&out), [(0, 1, get(FID), true)]);
    rig.ask(
        1,
        1,
        Flags::CHAIN_MIDDLE,
        &Call::SetStatus { fid: Fid::CURRENT, change: Default::default() },
    );
    rig.ask(2, 1, Flags::CHAIN_END, &append());
    // It is answered before its turn, so it will be repeated; the replies stay in the chain's
    // order.
    assert_eq!(rig.answer(2, 1, Ok(status_of(FID))), []);
    let out = rig.answer(0, 1, Err(Fault::Stale));
    let again = Call::SetStatus { fid: FID, change: Default::default() };
    assert_eq!(executed(&out), [(1, 1, again, true)], "with the file that it ran with");
    let out = rig.answer(1, 1, Ok(status_of(FID)));
    assert_eq!(executed(&out), [(2, 1, append(), true)]);
    assert_eq!(replies(&rig.answer(2, 1, Ok(status_of(FID)))), [(2, 2, 1, Ok(status_of(FID)))]);
}

#[test]
fn a_recorded_member_repeats_after_a_restart_and_a_failure() {
    let mut rig = Rig::with(setup(Some(vec![(1, 6)])), Features::NONE);
    rig.ask(0, 9, Flags::CHAIN_START, &get(FID));
    rig.ask(1, 6, Flags::CHAIN_MIDDLE, &get(Fid::CURRENT));
    rig.ask(2, 3, Flags::CHAIN_END, &append());
    let out = rig.answer(0, 9, Err(Fault::Stale));
    assert_eq!(executed(&out), [(1, 6, get(Fid::default()), true)]);
    let out = rig.answer(1, 6, Ok(status_of(FID)));
    assert_eq!(replies(&out)[1], (1, 2, 3, Err(Fault::ChainAborted)), "never executed");
}

#[test]
fn a_request_repeated_as_another_names_no_file_of_the_chain() {
    let mut rig = Rig::new();
    rig.ask(1, 1, Flags::NONE, &get(FID));
    rig.answer(1, 1, Ok(status_of(FID)));
    rig.ask(0, 1, Flags::CHAIN_START, &get(FID));
    rig.ask(1, 1, Flags::CHAIN_END, &get(Fid::CURRENT));
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    assert_eq!(executed(&out), [(1, 1, get(Fid::default()), true)]);
}

#[test]
fn a_member_flagged_as_aborted_is_not_executed() {
    let mut rig = Rig::new();
    let out = rig.ask(0, 1, Flags::ABORTED, &append());
    assert_eq!(replies(&out), [(1, 0, 1, Err(Fault::ChainAborted))]);
    assert_eq!(executed(&rig.ask(0, 2, Flags::NONE, &append())).len(), 1, "its number is used up");
}

// Cancel.

#[test]
fn the_service_cancels_a_running_request_the_session_a_waiting() {
    let mut rig = Rig::new();
    rig.ask(0, 1, Flags::CHAIN_START, &append());
    rig.ask(1, 1, Flags::CHAIN_MIDDLE, &append());
    rig.ask(2, 1, Flags::CHAIN_END, &append());
    let cancel = |slot, request| Message::Cancel { slot, request };
    assert_eq!(rig.send(cancel(0, 1)), [ServerOutput::Cancel(origin(0, 1))]);
    assert_eq!(rig.send(cancel(1, 1)), []);
    let out = rig.answer(0, 1, Ok(status_of(FID)));
    let expected = [Ok(status_of(FID)), Err(Fault::Cancelled), Err(Fault::ChainAborted)];
    assert_eq!(replies(&out).into_iter().map(|reply| reply.3).collect::<Vec<_>>(), expected);
    assert_eq!(rig.send(cancel(0, 1)), [], "too late");
    assert!(matches!(rig.try_send(&cancel(0, 2)), Err(PeerError::WrongNumber { .. })));
    rig.attach();
    assert!(matches!(rig.try_send(&cancel(128, 1)), Err(PeerError::NoCredit { .. })));
}

// Connections.

#[test]
fn a_newer_connection_replaces_and_closes_the_older_one() {
    let mut rig = Rig::new();
    let out = rig.attach();
    assert!(matches!(
        &messages(&out)[..],
        [(1, Message::Goodbye { fault: None, .. }), (2, Message::Attached(_))]
    ));
    assert!(out.contains(&ServerOutput::Close { channel: ChannelId(1) }));
    rig.channel = ChannelId(1);
    assert_eq!(rig.try_send(&Message::Renew(1)), Err(PeerError::UnknownChannel));
}

#[test]
fn a_back_connection_needs_the_key_and_carries_no_requests() {
    let mut rig = Rig::new();
    let bind = |channel, key| ServerInput::Bind {
        channel: ChannelId(channel),
        terms: Terms::full(Features::CHECKSUMS),
        key,
    };
    assert_eq!(rig.step(bind(70, KEY + 1)), Err(PeerError::WrongKey));
    let out = rig.step(bind(71, KEY)).unwrap();
    assert_eq!(messages(&out), [(71, Message::Bound)]);
    let operations = std::mem::replace(&mut rig.channel, ChannelId(71));
    assert_eq!(
        rig.try_ask(0, 1, Flags::NONE, &append()),
        Err(PeerError::Unexpected(FrameKind::Request))
    );
    rig.channel = operations;
    assert_eq!(
        executed(&rig.ask(0, 1, Flags::NONE, &append())).len(),
        1,
        "operations are not touched"
    );
}

#[test]
fn renewals_are_confirmed_when_the_lease_has_them() {
    let mut rig = Rig::new();
    let out = rig.send(Message::Renew(5));
    assert_eq!(out, [ServerOutput::Renew { channel: rig.channel, number: 5 }]);
    for renewed in [true, false] {
        let out =
            rig.step(ServerInput::Renewed { channel: rig.channel, number: 5, renewed }).unwrap();
        assert_eq!(messages(&out), [(1, Message::Renewed { number: 5, renewed })]);
    }
    let gone = ServerInput::Renewed { channel: ChannelId(4), number: 5, renewed: true };
    assert_eq!(rig.step(gone).unwrap(), []);
    assert_eq!(messages(&rig.send(Message::Probe(8))), [(1, Message::Probed(8))]);
}

#[test]
fn a_renewal_over_operations_drops_the_back_connection() {
    let mut rig = Rig::new();
    rig.step(ServerInput::Bind { channel: ChannelId(70), terms: rig.terms, key: KEY }).unwrap();
    let item = BreakItem { fid: FID, reason: BreakReason::Data, name: None };
    let out = rig.step(ServerInput::Break { id: BreakId(3), items: vec![item.clone()] }).unwrap();
    let message = Message::Break { id: BreakId(3), items: vec![item] };
    assert_eq!(messages(&out), [(70, message.clone())]);
    let out = rig.send(Message::Renew(1));
    assert!(messages(&out).contains(&(1, message)));
    assert!(out.contains(&ServerOutput::Close { channel: ChannelId(70) }));
}

#[test]
fn the_end_of_a_session_is_the_last_frame_of_all_connections() {
    let mut rig = Rig::new();
    rig.step(ServerInput::Bind { channel: ChannelId(70), terms: rig.terms, key: KEY }).unwrap();
    rig.ask(0, 1, Flags::NONE, &append());
    let out = rig.step(ServerInput::End(Fault::Expired)).unwrap();
    let expired =
        |message: &Message| matches!(message, Message::Goodbye { fault: Some(Fault::Expired), .. });
    let sent: Vec<u64> = messages(&out)
        .iter()
        .filter(|(_, message)| expired(message))
        .map(|(channel, _)| *channel)
        .collect();
    assert_eq!(sent, [70, 1]);
    assert!(rig.machine.is_over());
    assert_eq!(rig.answer(0, 1, Ok(status_of(FID))), []);
    assert_eq!(rig.try_send(&Message::Renew(1)), Err(PeerError::UnknownChannel));
}

#[test]
fn a_client_that_leaves_is_let_go() {
    let mut rig = Rig::new();
    let out = rig.send(Message::Detach);
    assert_eq!(out.last(), Some(&ServerOutput::Detached));
    assert!(rig.machine.is_over());
}

// Breaks.

#[test]
fn a_break_repeats_over_new_connections_until_acknowledged() {
    let mut rig = Rig::new();
    let item = BreakItem { fid: FID, reason: BreakReason::Removed, name: None };
    let message = Message::Break { id: BreakId(3), items: vec![item.clone()] };
    let broken = || ServerInput::Break { id: BreakId(3), items: vec![item.clone()] };
    assert_eq!(messages(&rig.step(broken()).unwrap()), [(1, message.clone())]);
    assert_eq!(
        rig.step(broken()).unwrap(),
        [],
        "the service may repeat it when the client resumes"
    );
    assert!(messages(&rig.attach()).contains(&(2, message)));
    let ack = || Message::BreakAck { id: BreakId(3), held: vec![FID] };
    assert_eq!(rig.send(ack()), [ServerOutput::Acknowledged { id: BreakId(3), held: vec![FID] }]);
    assert_eq!(rig.send(ack()), [], "sent twice, so perhaps acknowledged twice");
    assert_eq!(
        messages(&rig.attach()).len(),
        2,
        "the old one gets a goodbye, the new one an attached, no break"
    );
    assert_eq!(
        rig.try_send(&Message::BreakAck { id: BreakId(4), held: Vec::new() }),
        Err(PeerError::Unasked)
    );
}

#[test]
fn unacknowledged_breaks_are_bounded() {
    let mut rig = Rig::new();
    let items = || vec![BreakItem { fid: FID, reason: BreakReason::Data, name: None }];
    for id in 0..BREAKS_MAX as u64 {
        assert!(
            !rig.step(ServerInput::Break { id: BreakId(id), items: items() })
                .unwrap()
                .contains(&ServerOutput::Overrun)
        );
    }
    let out =
        rig.step(ServerInput::Break { id: BreakId(BREAKS_MAX as u64), items: items() }).unwrap();
    assert_eq!(out, [ServerOutput::Overrun]);
}

// Credits.

#[test]
fn lowered_credits_are_enforced_when_the_client_has_taken_them() {
    let mut rig = Rig::new();
    let out = rig.step(ServerInput::Grant(8)).unwrap();
    assert_eq!(messages(&out), [(1, Message::Credits { credits: 8, grant: 1 })]);
    assert_eq!(
        executed(&rig.ask(100, 1, Flags::NONE, &append())).len(),
        1,
        "in transit when the grant arrived"
    );
    rig.answer(100, 1, Ok(status_of(FID)));
    rig.send(Message::CreditsTaken(1));
    assert!(matches!(
        rig.try_ask(8, 1, Flags::NONE, &append()),
        Err(PeerError::NoCredit { slot: 8, credits: 8 })
    ));
    rig.attach();
    rig.step(ServerInput::Grant(16)).unwrap();
    assert_eq!(
        executed(&rig.ask(15, 1, Flags::NONE, &append())).len(),
        1,
        "more credits are usable at once"
    );
    rig.attach();
    assert_eq!(rig.try_send(&Message::CreditsTaken(3)), Err(PeerError::Unasked));
}

#[test]
fn confirming_an_earlier_grant_of_equal_size_removes_no_credits() {
    let mut rig = Rig::new();
    for credits in [8, 16, 8] {
        rig.step(ServerInput::Grant(credits)).unwrap();
    }
    // The client confirmed this before it received the 16 credits, which it then uses before it
    // receives the second 8.
    rig.send(Message::CreditsTaken(1));
    assert_eq!(executed(&rig.ask(15, 1, Flags::NONE, &append())).len(), 1);
    rig.send(Message::CreditsTaken(3));
    assert!(matches!(rig.try_ask(14, 1, Flags::NONE, &append()), Err(PeerError::NoCredit { .. })));
}

#[test]
fn a_grant_stays_within_the_sessions_bounds() {
    let mut rig = Rig::new();
    assert_eq!(
        messages(&rig.step(ServerInput::Grant(0)).unwrap()),
        [(1, Message::Credits { credits: 4, grant: 1 })]
    );
    assert_eq!(
        messages(&rig.step(ServerInput::Grant(u32::MAX)).unwrap()),
        [(1, Message::Credits { credits: 128, grant: 2 })]
    );
    assert_eq!(rig.step(ServerInput::Grant(128)).unwrap(), []);
}

/// Knows one token, and accepts no caller by its name.
#[derive(Debug)]
struct Strict;

impl crate::credentials::CredentialVerifier for Strict {
    fn challenge(&self) -> [u8; 32] {
        [8; 32]
    }

    fn named(&self, caller: Caller) -> Caller {
        Caller { who: types::RequestIdentity::NOBODY, ..caller }
    }

    fn shown(&self, shown: &crate::credentials::TokenProof) -> Result<Caller, Fault> {
        match &shown.token[..] {
            b"good" => {
                Ok(Caller { uid: 42, gid: 42, groups: None, who: types::RequestIdentity::NAMED })
            }
            _ => Err(Fault::TokenExpired),
        }
    }
}

#[test]
fn the_verifier_decides_the_caller_of_a_request() {
    let mut rig = Rig::new();
    let door = std::sync::Arc::new(Strict);
    let (channel, terms) = (ChannelId(60), rig.terms);
    rig.channel = channel;
    let out = rig
        .step(ServerInput::Attached { channel, terms, resumed: true, renewed: true, door })
        .unwrap();
    let Some(ServerOutput::Send { frame, .. }) = out.last() else { panic!("{out:?}") };
    let Ok(Some(Message::Attached(attached))) = Message::of_frame(frame) else {
        panic!("{frame:?}")
    };
    assert_eq!(attached.challenge, [8; 32]);
    let asks = |rig: &mut Rig, request| match &rig.ask(0, request, Flags::NONE, &get(FID))[..] {
        [ServerOutput::Execute { caller, .. }] => {
            let caller = caller.clone();
            rig.answer(0, request, Err(Fault::NotFound));
            Ok((caller.uid, caller.who.level))
        }
        [ServerOutput::Send { frame, .. }] => Err(frame.header.fault.unwrap().fault()),
        other => panic!("{other:?}"),
    };
    assert_eq!(asks(&mut rig, 1), Err(Fault::NoCredential));
    rig.send(Message::Credential { handle: 1, caller: Caller::ROOT });
    assert_eq!(asks(&mut rig, 2), Ok((0, types::AuthLevel::Nobody)));
    let shown = |token: &'static [u8]| crate::credentials::TokenProof {
        token: Bytes::from_static(token),
        proof: [0; 64],
    };
    rig.send(Message::Token { handle: 1, shown: shown(b"good") });
    assert_eq!(asks(&mut rig, 3), Ok((42, types::AuthLevel::Named)));
    rig.send(Message::Token { handle: 1, shown: shown(b"old") });
    assert_eq!(asks(&mut rig, 4), Err(Fault::TokenExpired));
    let refused =
        rig.try_send(&Message::Token { handle: CREDENTIALS_MAX as u32 + 1, shown: shown(b"good") });
    assert_eq!(refused.unwrap_err(), PeerError::TooManyCredentials);
}
