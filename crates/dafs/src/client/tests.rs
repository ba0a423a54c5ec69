use std::time::Duration;

use bytes::Bytes;
use types::limits::{KEEP_ALIVE, LEASE};
use types::{
    Answer, BootVerifier, BreakId, BreakItem, BreakReason, ByteRange, Call, Caller, ClientId,
    DataVersion, Fault, Fid, Kind, LockFamily, LockMode, LockOwner, SessionId, Status,
    StatusVersion, Time, Timestamp,
};

use super::*;
use crate::limits::{RECONNECT_FIRST, RECONNECT_LAST, RENEWAL_TIME};
use crate::message::{Attach, AttachAnswer, Bind, Message};
use crate::{
    Features, Flags, FrameHeader, FrameKind, PeerError, WireError, decode_call, encode_answer,
};

const SESSION: SessionId = SessionId(7);
const FID: Fid =
    Fid { volume: types::VolumeId(1), vnode: types::VnodeNo(2), unique: types::Uniquifier(3) };

/// A machine and the state of its simulated server.
struct Rig {
    machine: ClientSession,
    now: Time,
    channel: ChannelId,
    terms: Terms,
    attached: AttachAnswer,
    /// The latest time at which the machine ordered a tick.
    wake_at: Time,
}

impl Rig {
    fn new(back_channel: bool) -> (Rig, Vec<ClientOutput>) {
        let config = ClientConfig {
            client: ClientId(5),
            incarnation: 2,
            display: "test".into(),
            pid: 9,
            queue_max: 1000,
            back_channel,
            keeps: false,
            wallet: None,
        };
        let mut out = Vec::new();
        let machine = ClientSession::new(Time::ZERO, config, &mut out);
        let attached = AttachAnswer {
            session: SESSION,
            resumed: false,
            renewed: true,
            server: 1,
            boot_verifier: BootVerifier(1),
            lease: LEASE,
            credits: 16,
            grant: 0,
            bind_key: 99,
            challenge: [3; 32],
        };
        let terms = Terms::full(Features::CHECKSUMS);
        (
            Rig {
                machine,
                now: Time::ZERO,
                channel: ChannelId(0),
                terms,
                attached,
                wake_at: Time::NEVER,
            },
            out,
        )
    }

    /// An attached rig without a back connection.
    fn attached() -> Rig {
        let (mut rig, _) = Rig::new(false);
        rig.connect();
        rig.attach();
        rig
    }

    fn step(&mut self, input: ClientInput) -> Result<Vec<ClientOutput>, PeerError> {
        let mut out = Vec::new();
        let result = self.machine.step(self.now, input, &mut out);
        for output in &out {
            if let ClientOutput::WakeAt(time) = output {
                self.wake_at = *time;
            }
        }
        result.map(|()| out)
    }

    /// Opens a new operations connection.
    fn connect(&mut self) -> Vec<ClientOutput> {
        self.channel = ChannelId(self.channel.0 + 1);
        let (channel, terms) = (self.channel, self.terms);
        self.step(ClientInput::Connected {
            role: ConnectionRole::Operations,
            channel,
            terms,
            certificate: None,
        })
        .unwrap()
    }

    fn receive_on(
        &mut self,
        channel: ChannelId,
        message: &Message,
    ) -> Result<Vec<ClientOutput>, PeerError> {
        let frame = message.to_frame(SESSION).unwrap().sealed(self.terms.features);
        self.step(ClientInput::Arrived { channel, frame })
    }

    fn receive(&mut self, message: &Message) -> Vec<ClientOutput> {
        self.receive_on(self.channel, message).unwrap()
    }

    fn attach(&mut self) -> Vec<ClientOutput> {
        let out = self.receive(&Message::Attached(self.attached));
        self.attached.resumed = true;
        out
    }

    /// The operations connection breaks, and another one is attached.
    fn reconnect(&mut self) -> Vec<ClientOutput> {
        self.step(ClientInput::Lost { channel: self.channel }).unwrap();
        self.connect();
        self.attach()
    }

    fn submit(&mut self, id: u64, call: Call) -> Vec<ClientOutput> {
        let caller = Caller { uid: 5, gid: 5, groups: None, who: types::RequestIdentity::NAMED };
        self.step(ClientInput::Submit { id: CallId(id), caller, call, region: None, urgent: false })
            .unwrap()
    }

    fn submit_chain(&mut self, first: u64, calls: Vec<Call>) -> Vec<ClientOutput> {
        let members = (first..).map(CallId).zip(calls).collect();
        self.step(ClientInput::SubmitChain { caller: Caller::ROOT, members }).unwrap()
    }

    fn try_reply(
        &mut self,
        slot: u32,
        request: u64,
        result: Result<Answer, Fault>,
    ) -> Result<Vec<ClientOutput>, PeerError> {
        let header = FrameHeader { slot, request, ..FrameHeader::new(FrameKind::Reply, SESSION) };
        let frame = match result {
            Err(fault) => {
                Frame::plain(FrameHeader { fault: Some(fault.into()), ..header }, Bytes::new())
            }
            Ok(answer) => {
                let encoded = encode_answer(&answer).unwrap();
                Frame::new(
                    FrameHeader { procedure: encoded.procedure, ..header },
                    encoded.message,
                    encoded.payload,
                )
            }
        };
        let frame = frame.sealed(self.terms.features);
        self.step(ClientInput::Arrived { channel: self.channel, frame })
    }

    fn reply(
        &mut self,
        slot: u32,
        request: u64,
        result: Result<Answer, Fault>,
    ) -> Vec<ClientOutput> {
        self.try_reply(slot, request, result).unwrap()
    }
}

fn append() -> Call {
    let data = Bytes::from_static(b"data");
    Call::Write { fid: FID, offset: None, data, stable: true, kill_privileges: false }
}

fn get(fid: Fid) -> Call {
    Call::GetStatus { fid }
}

fn lock(wait: bool) -> Call {
    Call::Lock {
        fid: FID,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait,
        reclaim: false,
    }
}

fn unlock() -> Call {
    Call::Unlock { fid: FID, owner: LockOwner(1), family: LockFamily::Posix, range: ByteRange::ALL }
}

fn status(fid: Fid) -> Status {
    let time = Timestamp::default();
    Status {
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
    }
}

fn written(count: u32) -> Answer {
    Answer::Written {
        count,
        offset: 0,
        status: status(FID),
        previous_version: DataVersion(1),
        verifier: BootVerifier(1),
    }
}

/// The requests that were sent: connection, slot, number, chain flags, call.
fn asked(out: &[ClientOutput]) -> Vec<(u64, u32, u64, Flags, Call)> {
    let request = |output: &ClientOutput| match output {
        ClientOutput::Send { channel, frame } if frame.header.kind == FrameKind::Request => {
            let header = frame.header;
            let call =
                decode_call(header.procedure, &frame.message, frame.payload.clone()).unwrap();
            Some((
                channel.0,
                header.slot,
                header.request,
                header.flags.without(Flags::CHECKSUM),
                call,
            ))
        }
        _ => None,
    };
    out.iter().filter_map(request).collect()
}

fn messages(out: &[ClientOutput]) -> Vec<(u64, Message)> {
    let message = |output: &ClientOutput| match output {
        ClientOutput::Send { channel, frame } => {
            Message::of_frame(frame).unwrap().map(|message| (channel.0, message))
        }
        _ => None,
    };
    out.iter().filter_map(message).collect()
}

fn done(out: &[ClientOutput]) -> Vec<(u64, Result<Answer, CallFailure>)> {
    let done = |output: &ClientOutput| match output {
        ClientOutput::Done { id, result, .. } => Some((id.0, result.clone())),
        _ => None,
    };
    out.iter().filter_map(done).collect()
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

// Calls.

#[test]
fn calls_wait_for_the_attach_and_register_their_credential_once() {
    let (mut rig, out) = Rig::new(false);
    assert_eq!(out, [ClientOutput::Connect { role: ConnectionRole::Operations, at: Time::ZERO }]);
    assert_eq!(rig.submit(1, append()), []);
    rig.submit(2, get(FID));
    let out = rig.connect();
    let attach = Attach {
        client: ClientId(5),
        incarnation: 2,
        resume: None,
        display: "test".into(),
        pid: 9,
    };
    assert_eq!(messages(&out), [(1, Message::Attach(attach))]);
    let out = rig.attach();
    assert!(matches!(
        out[0],
        ClientOutput::Established { session: SESSION, resumed: false, restarted: false, .. }
    ));
    assert_eq!(messages(&out).len(), 1, "one credential");
    let expected = [(1, 0, 1, Flags::NONE, append()), (1, 1, 1, Flags::NONE, get(FID))];
    assert_eq!(asked(&out), expected);
    assert_eq!(
        done(&rig.reply(1, 1, Ok(Answer::Status(status(FID))))),
        [(2, Ok(Answer::Status(status(FID))))]
    );
    assert_eq!(
        asked(&rig.submit(3, append()))[0],
        (1, 1, 2, Flags::NONE, append()),
        "the next number of the slot"
    );
    assert_eq!(rig.machine.calls_waiting(), 2);
}

#[test]
fn calls_above_the_credits_wait_and_above_the_queue_are_refused() {
    let mut rig = Rig::attached();
    let sent: usize = (0..20).map(|id| asked(&rig.submit(id, append())).len()).sum();
    assert_eq!(sent, 15, "16 credits, one of which is for calls that end waiting");
    assert_eq!(asked(&rig.submit(100, unlock())).len(), 1);
    assert_eq!(asked(&rig.reply(15, 1, Ok(Answer::Done))), []);
    let out = rig.reply(0, 1, Ok(written(4)));
    assert_eq!(asked(&out), [(1, 0, 2, Flags::NONE, append())]);
    for id in 200..1196 {
        assert_eq!(rig.submit(id, append()), []);
    }
    assert_eq!(done(&rig.submit(2000, append())), [(2000, Err(CallFailure::QueueFull))]);
}

#[test]
fn locks_that_wait_leave_room_for_everything_else() {
    let mut rig = Rig::attached();
    let sent: usize = (0..40).map(|id| asked(&rig.submit(id, lock(true))).len()).sum();
    assert_eq!(sent, 4, "a quarter of the credits");
    assert_eq!(asked(&rig.submit(100, append())).len(), 1);
    assert_eq!(asked(&rig.submit(101, lock(false))).len(), 1);
    assert_eq!(asked(&rig.submit(102, unlock())).len(), 1);
    assert_eq!(asked(&rig.reply(0, 1, Ok(Answer::Done))).len(), 1, "the next lock");
}

fn delegated(slot: u64) -> Call {
    Call::Delegated { at: types::Timestamp::new(1, 0), slot, call: Box::new(append()) }
}

#[test]
fn a_delegated_chain_without_room_is_sent_member_by_member() {
    for refused in [false, true] {
        let mut rig = Rig::attached();
        let sent: usize = (0..20).map(|id| asked(&rig.submit(id, append())).len()).sum();
        assert_eq!(sent, 15);
        let out = rig.submit_chain(100, (1..=4).map(delegated).collect());
        assert_eq!(
            asked(&out),
            [(1, 15, 1, Flags::NONE, delegated(1))],
            "others who wait for it have the rest"
        );
        if refused {
            let out = rig.reply(15, 1, Err(Fault::NotDelegated));
            let aborted = Err(CallFailure::Fault(Fault::ChainAborted));
            let wanted: Vec<_> = [(100, Err(CallFailure::Fault(Fault::NotDelegated)))]
                .into_iter()
                .chain((101..104).map(|id| (id, aborted.clone())))
                .collect();
            assert_eq!(done(&out), wanted);
            continue;
        }
        let out = rig.reply(15, 1, Ok(written(4)));
        assert_eq!(
            asked(&out),
            [(1, 15, 2, Flags::NONE, delegated(2))],
            "before what came earlier and is not urgent"
        );
        let others: usize =
            (0..9).map(|slot| asked(&rig.reply(slot, 1, Ok(written(4)))).len()).sum();
        assert_eq!(others, 5, "all that waited");
        let out = rig.reply(15, 2, Ok(written(4)));
        let sent: Vec<_> =
            asked(&out).into_iter().map(|(_, _, _, flags, call)| (flags, call)).collect();
        assert_eq!(
            sent,
            [(Flags::CHAIN_START, delegated(3)), (Flags::CHAIN_END, delegated(4))],
            "where there is room"
        );
    }
}

#[test]
fn calls_behind_a_lost_member_are_lost_with_it() {
    let mut rig = Rig::attached();
    (0..20).for_each(|id| drop(rig.submit(id, append())));
    rig.submit_chain(100, (1..=3).map(delegated).collect());
    rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    rig.connect();
    rig.attached.resumed = false;
    rig.attached.session = SessionId(SESSION.0 + 1);
    let gone: Vec<u64> = done(&rig.attach()).into_iter().map(|(id, _)| id).collect();
    assert!([100, 101, 102].iter().all(|id| gone.contains(id)), "{gone:?}");
}

#[test]
fn an_unsendable_call_is_refused_at_once() {
    let mut rig = Rig::attached();
    let too_long = Call::Read { fid: FID, offset: 0, length: u32::MAX };
    for call in [get(Fid::CURRENT), Call::Hold { fids: vec![Fid::CURRENT] }, too_long] {
        assert!(matches!(done(&rig.submit(1, call))[..], [(1, Err(CallFailure::Unsendable(_)))]));
    }
    rig.terms.payload_bytes_max = 4096;
    rig.reconnect();
    let out = rig.submit(2, Call::Read { fid: FID, offset: 0, length: 4097 });
    assert!(matches!(
        done(&out)[..],
        [(2, Err(CallFailure::Unsendable(WireError::TooMuch { .. })))]
    ));
    let out = rig.submit_chain(10, vec![append(); 9]);
    assert_eq!(done(&out).len(), 9, "more than half of 16 credits");
    assert!(done(&out).iter().all(|(_, result)| *result == Err(CallFailure::BadChain)));
}

#[test]
fn a_region_is_named_where_the_connection_can_place_data() {
    for (features, direct) in [(Features::DIRECT, true), (Features::NONE, false)] {
        let (mut rig, _) = Rig::new(false);
        rig.terms = Terms::full(features);
        rig.connect();
        rig.attach();
        let region = Region { handle: 3, offset: 64 };
        let call = Call::Read { fid: FID, offset: 0, length: 10 };
        let input = ClientInput::Submit {
            id: CallId(1),
            caller: Caller::ROOT,
            call,
            region: Some(region),
            urgent: false,
        };
        let out = rig.step(input).unwrap();
        let sent = out.iter().find_map(|output| match output {
            ClientOutput::Send { frame, .. } if frame.header.kind == FrameKind::Request => {
                Some(frame.header)
            }
            _ => None,
        });
        let header = sent.unwrap();
        assert_eq!(header.flags.has(Flags::DIRECT), direct);
        assert_eq!(header.region == region, direct);
    }
}

// Reconnect.

#[test]
fn a_reconnect_resends_unanswered_calls_with_their_numbers() {
    let mut rig = Rig::attached();
    for id in 0..3 {
        rig.submit(id, append());
    }
    rig.reply(1, 1, Ok(written(4)));
    rig.step(ClientInput::Cancel(CallId(2))).unwrap();
    rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    rig.submit(3, get(FID));
    assert!(matches!(
        &messages(&rig.connect())[..],
        [(2, Message::Attach(attach))] if attach.resume == Some(SESSION)
    ));
    let out = rig.attach();
    let expected = [
        (2, 0, 1, Flags::NONE, append()),
        (2, 2, 1, Flags::NONE, append()),
        (2, 1, 2, Flags::NONE, get(FID)),
    ];
    assert_eq!(asked(&out), expected);
    let cancel = Message::Cancel { slot: 2, request: 1 };
    assert!(messages(&out).contains(&(2, cancel)), "a sent cancel is repeated");
    assert!(
        messages(&out).iter().any(|(_, message)| matches!(message, Message::Credential { .. }))
    );
}

#[test]
fn a_reconnect_resends_the_rest_of_a_chain_with_its_file() {
    let made = Fid::new(1, 44, 1);
    let mut rig = Rig::attached();
    let members =
        vec![append(), Call::Commit { fid: Fid::CURRENT }, get(Fid::CURRENT), get(Fid::CURRENT)];
    let out = rig.submit_chain(1, members);
    let flags: Vec<Flags> = asked(&out).iter().map(|request| request.3).collect();
    assert_eq!(
        flags,
        [Flags::CHAIN_START, Flags::CHAIN_MIDDLE, Flags::CHAIN_MIDDLE, Flags::CHAIN_END]
    );
    let answer = Answer::Written {
        count: 4,
        offset: 0,
        status: status(made),
        previous_version: DataVersion(1),
        verifier: BootVerifier(1),
    };
    rig.reply(0, 1, Ok(answer));
    let expected = [
        (2, 1, 1, Flags::CHAIN_START, Call::Commit { fid: made }),
        // The answer to the commit names no file; the answer to the status call after it does.
        (2, 2, 1, Flags::CHAIN_MIDDLE, get(made)),
        (2, 3, 1, Flags::CHAIN_END, get(Fid::CURRENT)),
    ];
    assert_eq!(asked(&rig.reconnect()), expected);
    rig.reply(1, 1, Ok(Answer::Committed { verifier: BootVerifier(1) }));
    rig.reply(2, 1, Ok(Answer::Status(status(FID))));
    assert_eq!(asked(&rig.reconnect()), [(3, 3, 1, Flags::NONE, get(FID))]);
}

#[test]
fn behind_a_failed_member_the_rest_goes_out_again_flagged() {
    let mut rig = Rig::attached();
    rig.submit_chain(1, vec![append(), get(Fid::CURRENT), append()]);
    assert_eq!(done(&rig.reply(0, 1, Err(Fault::NoSpace))), [(1, Err(Fault::NoSpace.into()))]);
    let sent = asked(&rig.reconnect());
    let flags: Vec<Flags> = sent.iter().map(|request| request.3).collect();
    assert_eq!(
        flags,
        [Flags::CHAIN_START.with(Flags::ABORTED), Flags::CHAIN_END.with(Flags::ABORTED)]
    );
    rig.reply(1, 1, Err(Fault::ChainAborted));
    assert_eq!(asked(&rig.reconnect())[0].3, Flags::ABORTED);
    assert_eq!(
        done(&rig.reply(2, 1, Err(Fault::ChainAborted))),
        [(3, Err(Fault::ChainAborted.into()))]
    );
}

#[test]
fn a_new_session_leaves_the_outcome_of_sent_calls_unknown() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    rig.submit(2, append());
    rig.connect();
    rig.attached =
        AttachAnswer { session: SessionId(8), resumed: false, server: 2, ..rig.attached };
    let frame =
        Message::Attached(rig.attached).to_frame(SESSION).unwrap().sealed(rig.terms.features);
    let out = rig.step(ClientInput::Arrived { channel: rig.channel, frame }).unwrap();
    let order: Vec<usize> = [
        out.iter().position(|output| *output == ClientOutput::SessionLost),
        out.iter().position(|output| matches!(output, ClientOutput::Done { id: CallId(1), .. })),
        out.iter().position(|output| {
            matches!(output, ClientOutput::Established { resumed: false, restarted: true, .. })
        }),
    ]
    .into_iter()
    .map(Option::unwrap)
    .collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(done(&out), [(1, Err(CallFailure::SessionLost))]);
    assert_eq!(
        asked(&out),
        [(2, 0, 1, Flags::NONE, append())],
        "unsent calls go to the new session"
    );
}

#[test]
fn the_end_of_a_reclaim_is_not_resent_to_a_new_server_instance() {
    let mut rig = Rig::attached();
    rig.submit(1, Call::ReclaimDone);
    rig.submit(2, Call::GetStatus { fid: FID });
    let again = rig.reconnect();
    assert_eq!(asked(&again).len(), 2, "the same server instance may not have received it");
    rig.attached.server = 2;
    let out = rig.reconnect();
    assert_eq!(asked(&out).len(), 1, "claims come first");
    let done = ClientOutput::Done {
        id: CallId(1),
        result: Ok(Answer::Done),
        descriptor: false,
        landing: None,
    };
    let established =
        out.iter().position(|output| matches!(output, ClientOutput::Established { .. }));
    assert!(
        established < out.iter().position(|output| *output == done),
        "callers that wait for it learn of the restart first"
    );
}

#[test]
fn lk4_an_unsent_end_of_a_reclaim_ends_no_later_one() {
    let mut rig = Rig::attached();
    rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    rig.submit(1, Call::ReclaimDone);
    rig.submit(2, Call::GetStatus { fid: FID });
    rig.attached.server = 2;
    rig.connect();
    let out = rig.attach();
    assert_eq!(asked(&out).len(), 1, "claims come first: {out:?}");
    let done = ClientOutput::Done {
        id: CallId(1),
        result: Ok(Answer::Done),
        descriptor: false,
        landing: None,
    };
    assert!(out.contains(&done));
    // To the instance that it was meant for it is sent.
    rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    rig.submit(3, Call::ReclaimDone);
    rig.connect();
    let out = rig.attach();
    assert!(asked(&out).iter().any(|(.., call)| *call == Call::ReclaimDone), "{out:?}");
}

#[test]
fn a_restart_with_the_same_session_is_recognised() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    rig.attached.server = 2;
    let out = rig.reconnect();
    assert!(matches!(out[0], ClientOutput::Established { resumed: true, restarted: true, .. }));
    assert_eq!(asked(&out), [(2, 0, 1, Flags::NONE, append())]);
}

#[test]
fn pauses_between_attempts_to_connect_grow_until_one_succeeds() {
    let (mut rig, _) = Rig::new(false);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let out =
            rig.step(ClientInput::ConnectFailed { role: ConnectionRole::Operations }).unwrap();
        let [ClientOutput::Connect { at, .. }] = out[..] else { panic!("{out:?}") };
        pauses.push(at.since(rig.now));
    }
    assert_eq!(pauses[..3], [RECONNECT_FIRST, RECONNECT_FIRST * 2, RECONNECT_FIRST * 4]);
    assert_eq!(pauses[8], RECONNECT_LAST);
    rig.connect();
    rig.attach();
    rig.submit(1, append());
    rig.reply(0, 1, Ok(written(4)));
    let out = rig.step(ClientInput::Lost { channel: rig.channel }).unwrap();
    assert!(out.contains(&ClientOutput::Connect {
        role: ConnectionRole::Operations,
        at: rig.now + RECONNECT_FIRST
    }));
}

#[test]
fn a_client_that_was_replaced_stops_for_good() {
    let (mut rig, _) = Rig::new(false);
    rig.submit(1, append());
    rig.connect();
    let mut out = Vec::new();
    let goodbye = Message::Goodbye { fault: Some(Fault::Expired), reason: "replaced".into() };
    let frame = goodbye.to_frame(SessionId(0)).unwrap().sealed(rig.terms.features);
    let input = ClientInput::Arrived { channel: rig.channel, frame };
    assert!(matches!(rig.machine.step(rig.now, input, &mut out), Err(PeerError::Goodbye { .. })));
    assert_eq!(out[0], ClientOutput::Refused(Fault::Expired));
    assert_eq!(done(&out), [(1, Err(CallFailure::Closed))]);
    assert_eq!(out.last(), Some(&ClientOutput::Closed));
    assert_eq!(done(&rig.submit(2, append())), [(2, Err(CallFailure::Closed))]);
}

#[test]
fn an_expired_session_is_lost_at_once_and_a_new_one_requested() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    let goodbye = Message::Goodbye { fault: Some(Fault::Expired), reason: "lease over".into() };
    let frame = goodbye.to_frame(SESSION).unwrap().sealed(rig.terms.features);
    let mut out = Vec::new();
    let input = ClientInput::Arrived { channel: rig.channel, frame };
    assert!(rig.machine.step(rig.now, input, &mut out).is_err());
    assert_eq!(out[0], ClientOutput::SessionLost);
    assert_eq!(done(&out), [(1, Err(CallFailure::SessionLost))]);
    assert!(matches!(
        &messages(&rig.connect())[..],
        [(2, Message::Attach(attach))] if attach.resume.is_none()
    ));
    rig.attached.resumed = false;
    let out = rig.attach();
    assert!(!out.contains(&ClientOutput::SessionLost), "reported once");
}

#[test]
fn a_detach_is_sent_and_ends_every_call() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    let out = rig.step(ClientInput::Detach).unwrap();
    assert_eq!(messages(&out), [(1, Message::Detach)]);
    assert_eq!(done(&out), [(1, Err(CallFailure::SessionLost))]);
    assert!(out.contains(&ClientOutput::Close { channel: ChannelId(1) }));
    assert_eq!(out.last(), Some(&ClientOutput::Closed));
}

// Cancel.

#[test]
fn a_waiting_call_is_cancelled_locally_a_sent_one_at_the_server() {
    let mut rig = Rig::attached();
    for id in 0..16 {
        rig.submit(id, append());
    }
    let cancel = |id| ClientInput::Cancel(CallId(id));
    assert_eq!(done(&rig.step(cancel(15)).unwrap()), [(15, Err(Fault::Cancelled.into()))]);
    assert_eq!(
        messages(&rig.step(cancel(4)).unwrap()),
        [(1, Message::Cancel { slot: 4, request: 1 })]
    );
    assert_eq!(done(&rig.reply(4, 1, Err(Fault::Cancelled))), [(4, Err(Fault::Cancelled.into()))]);
    assert_eq!(rig.step(cancel(4)).unwrap(), []);
    rig.submit_chain(20, vec![append(); 8]);
    let gone: Vec<u64> = done(&rig.step(cancel(25)).unwrap()).iter().map(|(id, _)| *id).collect();
    assert_eq!(gone, (20..28).collect::<Vec<_>>(), "an unsent chain is cancelled as a whole");
}

// Hostile servers.

#[test]
fn replies_without_a_request_end_the_connection() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    for (slot, request) in [(0, 2), (0, 0), (1, 1), (127, 1), (128, 1), (u32::MAX, 1)] {
        assert_eq!(
            rig.try_reply(slot, request, Ok(written(4))),
            Err(PeerError::Unasked),
            "{slot} {request}"
        );
        rig.connect();
        rig.attach();
    }
    assert_eq!(done(&rig.reply(0, 1, Ok(written(4)))).len(), 1);
    assert_eq!(rig.try_reply(0, 1, Ok(written(4))), Err(PeerError::Unasked), "answered already");
}

/// A newer server would repeat the answer after each reconnect.
#[test]
fn m14_an_unreadable_answer_ends_the_call_alone() {
    let mut rig = Rig::attached();
    (1..=4).for_each(|id| drop(rig.submit(id, get(FID))));
    let encoded = encode_answer(&Answer::Status(status(FID))).unwrap();
    let longer = [&encoded.message[..], &[0; 8]].concat();
    let (mut kind, shorter) = (encoded.message.clone(), encoded.message[..100].to_vec());
    kind.fill(0xff);
    let unknown = crate::FaultCode::Unknown(60_000);
    for (slot, (fault, message)) in
        [(None, longer), (None, shorter), (None, kind), (Some(unknown), vec![])]
            .into_iter()
            .enumerate()
    {
        let slot = slot as u32;
        let procedure = if fault.is_some() { 0 } else { encoded.procedure };
        let header = FrameHeader {
            slot,
            request: 1,
            procedure,
            fault,
            ..FrameHeader::new(FrameKind::Reply, SESSION)
        };
        let frame = Frame::plain(header, message).sealed(rig.terms.features);
        let out = rig.step(ClientInput::Arrived { channel: rig.channel, frame }).unwrap();
        match &done(&out)[..] {
            [(_, Err(CallFailure::Unreadable(_)))] if fault.is_none() => {}
            [(_, Err(CallFailure::Fault(Fault::Unsupported)))] if fault.is_some() => {}
            other => panic!("slot {slot}: {other:?}"),
        }
    }
    // The connection stays up, and the slots accept further calls.
    assert_eq!(asked(&rig.submit(9, get(FID))).len(), 1);
    assert_eq!(done(&rig.reply(0, 2, Ok(Answer::Status(status(FID))))).len(), 1);
}

#[test]
fn answers_that_do_not_fit_the_call_end_the_connection() {
    let mut rig = Rig::attached();
    rig.submit(1, append());
    rig.submit(2, Call::Read { fid: FID, offset: 0, length: 3 });
    let data = |count| Answer::Data { data: vec![0; count].into(), end: true, status: status(FID) };
    for (slot, answer) in [(0, Answer::Done), (0, written(5)), (1, data(4)), (1, written(0))] {
        assert_eq!(rig.try_reply(slot, 1, Ok(answer)), Err(PeerError::WrongAnswer));
        rig.connect();
        rig.attach();
    }
    assert_eq!(done(&rig.reply(1, 1, Ok(data(3)))).len(), 1);
    rig.submit(3, Call::ReadPacked { fid: FID, offset: 0, length: 3 });
    assert_eq!(rig.try_reply(1, 2, Ok(data(4))), Err(PeerError::WrongAnswer));
    rig.connect();
    rig.attach();
    assert_eq!(
        done(&rig.reply(1, 2, Ok(data(3)))).len(),
        1,
        "a packed read may be answered with plain data"
    );
}

#[test]
fn members_of_a_chain_are_answered_in_order() {
    let mut rig = Rig::attached();
    rig.submit_chain(1, vec![append(), append()]);
    assert_eq!(rig.try_reply(1, 1, Ok(written(4))), Err(PeerError::Unasked));
}

#[test]
fn frames_out_of_place_end_the_connection() {
    let renewed = Message::Renewed { number: 1, renewed: true };
    for (message, error) in [
        (Message::Bound, PeerError::Unexpected(FrameKind::Bound)),
        (Message::Renew(1), PeerError::Unexpected(FrameKind::Renew)),
        (Message::Detach, PeerError::Unexpected(FrameKind::Detach)),
        (renewed, PeerError::Unasked),
        (Message::Probed(1), PeerError::Unasked),
        (
            Message::Credits { credits: 3, grant: 3 },
            WireError::BadValue { what: "credits", value: 3 }.into(),
        ),
        (
            Message::Credits { credits: 129, grant: 129 },
            WireError::BadValue { what: "credits", value: 129 }.into(),
        ),
    ] {
        let mut rig = Rig::attached();
        assert_eq!(rig.receive_on(rig.channel, &message), Err(error));
        assert!(!rig.machine.is_connected());
    }
    let mut rig = Rig::attached();
    let again = Message::Attached(rig.attached);
    assert_eq!(
        rig.receive_on(rig.channel, &again),
        Err(PeerError::Unexpected(FrameKind::Attached))
    );
    let mut rig = Rig::attached();
    let frame = Message::Credits { credits: 8, grant: 8 }
        .to_frame(SessionId(8))
        .unwrap()
        .sealed(rig.terms.features);
    let foreign = rig.step(ClientInput::Arrived { channel: rig.channel, frame });
    assert_eq!(foreign, Err(PeerError::WrongSession));
}

// Credits.

#[test]
fn lowered_credits_are_confirmed_when_the_slots_above_are_empty() {
    let mut rig = Rig::attached();
    for id in 0..6 {
        rig.submit(id, append());
    }
    assert_eq!(messages(&rig.receive(&Message::Credits { credits: 4, grant: 4 })), []);
    rig.attached.credits = 4;
    assert_eq!(asked(&rig.submit(6, append())), []);
    rig.reply(5, 1, Ok(written(4)));
    let out = rig.reply(4, 1, Ok(written(4)));
    assert_eq!(messages(&out), [(1, Message::CreditsTaken(4))]);
    assert_eq!(asked(&out), [], "slots 0 to 3 are all in use");
    rig.reply(0, 1, Ok(written(4)));
    let out = rig.reply(1, 1, Ok(written(4)));
    assert_eq!(asked(&out).len(), 1, "one of two free slots is for calls that end waiting");
    let out = rig.receive(&Message::Credits { credits: 8, grant: 8 });
    assert_eq!(messages(&out), [], "more credits need no confirmation");
}

// Breaks.

#[test]
fn a_break_is_passed_on_once_and_acknowledged_when_handled() {
    let mut rig = Rig::attached();
    let item = BreakItem { fid: FID, reason: BreakReason::Removed, name: None };
    let message = Message::Break { id: BreakId(3), items: vec![item.clone()] };
    assert_eq!(rig.receive(&message), [ClientOutput::Break { id: BreakId(3), items: vec![item] }]);
    assert_eq!(rig.receive(&message), [], "being handled");
    let handled = || ClientInput::BreakHandled { id: BreakId(3), held: vec![FID] };
    let ack = Message::BreakAck { id: BreakId(3), held: vec![FID] };
    assert_eq!(messages(&rig.step(handled()).unwrap()), [(1, ack)]);
    assert_eq!(rig.step(handled()).unwrap(), []);
    assert_eq!(rig.receive(&message).len(), 1, "the acknowledgement may have been lost");
    // The server restarts: its earlier break is void.
    rig.attached.server = 2;
    rig.reconnect();
    assert_eq!(messages(&rig.step(handled()).unwrap()), []);
}

// Keep-alive.

fn with_back() -> (Rig, ChannelId) {
    let (mut rig, _) = Rig::new(true);
    rig.connect();
    let out = rig.attach();
    assert!(out.contains(&ClientOutput::Connect { role: ConnectionRole::Back, at: Time::ZERO }));
    let back = ChannelId(1000);
    let out = rig
        .step(ClientInput::Connected {
            role: ConnectionRole::Back,
            channel: back,
            terms: rig.terms,
            certificate: None,
        })
        .unwrap();
    assert_eq!(messages(&out), [(1000, Message::Bind(Bind { session: SESSION, key: 99 }))]);
    rig.receive_on(back, &Message::Bound).unwrap();
    (rig, back)
}

#[test]
fn a_break_is_acknowledged_over_the_connection_that_sent_it() {
    let (mut rig, back) = with_back();
    let break_of = |id| Message::Break { id: BreakId(id), items: Vec::new() };
    let ack_of = |id| Message::BreakAck { id: BreakId(id), held: Vec::new() };
    let handled = |id| ClientInput::BreakHandled { id: BreakId(id), held: Vec::new() };
    rig.receive(&break_of(1));
    let out = rig.step(handled(1)).unwrap();
    assert_eq!(messages(&out), [(1, ack_of(1))], "the server may have closed the back connection");
    rig.receive_on(back, &break_of(2)).unwrap();
    rig.step(ClientInput::Lost { channel: back }).unwrap();
    assert_eq!(
        messages(&rig.step(handled(2)).unwrap()),
        [],
        "the server sends it again over operations"
    );
    rig.receive(&break_of(2));
    assert_eq!(messages(&rig.step(handled(2)).unwrap()), [(1, ack_of(2))]);
}

#[test]
fn a_session_that_is_over_accepts_no_message() {
    let (mut rig, back) = with_back();
    let goodbye = Message::Goodbye { fault: Some(Fault::Expired), reason: "lease over".into() };
    let frame = goodbye.to_frame(SESSION).unwrap().sealed(rig.terms.features);
    let mut out = Vec::new();
    assert!(
        rig.machine
            .step(rig.now, ClientInput::Arrived { channel: rig.channel, frame }, &mut out)
            .is_err()
    );
    assert!(
        out.contains(&ClientOutput::Close { channel: back }),
        "a break in transit names another session"
    );
    rig.connect();
    rig.attached.resumed = false;
    assert!(
        rig.attach().iter().any(|output| matches!(
            output,
            ClientOutput::Connect { role: ConnectionRole::Back, .. }
        ))
    );
}

#[test]
fn the_lease_runs_from_when_an_attach_or_a_renewal_was_sent() {
    let (mut rig, _) = Rig::new(false);
    rig.now = Time::ZERO + ms(10);
    let sent_at = rig.now;
    rig.connect();
    rig.now = rig.now + ms(700);
    let out = rig.attach();
    assert!(out.contains(&ClientOutput::Renewed { sent_at, lease: LEASE }));
    assert_eq!(rig.wake_at, sent_at + KEEP_ALIVE);
    rig.now = sent_at + KEEP_ALIVE;
    assert_eq!(messages(&rig.step(ClientInput::Tick).unwrap()), [(1, Message::Renew(1))]);
    let asked_at = rig.now;
    rig.now = rig.now + ms(300);
    let out = rig.receive(&Message::Renewed { number: 1, renewed: true });
    assert!(out.contains(&ClientOutput::Renewed { sent_at: asked_at, lease: LEASE }));
    assert_eq!(rig.wake_at, asked_at + KEEP_ALIVE);
}

#[test]
fn a_withheld_renewal_extends_nothing_and_is_soon_repeated() {
    let mut rig = Rig::attached();
    rig.attached.renewed = false;
    let out = rig.reconnect();
    assert!(!out.iter().any(|output| matches!(output, ClientOutput::Renewed { .. })));
    rig.now = rig.wake_at;
    assert!(rig.now < Time::ZERO + ms(1000));
    assert_eq!(messages(&rig.step(ClientInput::Tick).unwrap()), [(2, Message::Renew(1))]);
    let out = rig.receive(&Message::Renewed { number: 1, renewed: false });
    assert!(!out.iter().any(|output| matches!(output, ClientOutput::Renewed { .. })));
    assert!(rig.wake_at <= rig.now + ms(1000));
}

#[test]
fn renewals_use_the_back_connection_and_operations_are_probed() {
    let (mut rig, _) = with_back();
    rig.now = Time::ZERO + KEEP_ALIVE;
    let out = rig.step(ClientInput::Tick).unwrap();
    assert_eq!(messages(&out), [(1000, Message::Renew(1)), (1, Message::Probe(1))]);
    rig.receive(&Message::Probed(1));
    let out =
        rig.receive_on(ChannelId(1000), &Message::Renewed { number: 1, renewed: true }).unwrap();
    assert!(matches!(out[0], ClientOutput::Renewed { .. }));
    assert_eq!(rig.wake_at, rig.now + KEEP_ALIVE);
}

#[test]
fn a_silent_back_connection_is_closed_and_operations_renew() {
    let (mut rig, back) = with_back();
    rig.now = Time::ZERO + KEEP_ALIVE;
    rig.step(ClientInput::Tick).unwrap();
    rig.receive(&Message::Probed(1));
    rig.now = rig.now + RENEWAL_TIME;
    let out = rig.step(ClientInput::Tick).unwrap();
    assert_eq!(out[0], ClientOutput::Close { channel: back });
    assert!(
        out.iter().any(|output| matches!(
            output,
            ClientOutput::Connect { role: ConnectionRole::Back, .. }
        ))
    );
    assert_eq!(messages(&out), [(1, Message::Renew(2))], "at once, since the lease runs");
    assert!(rig.now.since_start() < LEASE);
}

#[test]
fn a_silent_operations_connection_is_replaced_and_calls_go_on() {
    let (mut rig, _) = with_back();
    rig.submit(1, append());
    rig.now = Time::ZERO + KEEP_ALIVE;
    rig.step(ClientInput::Tick).unwrap();
    rig.receive_on(ChannelId(1000), &Message::Renewed { number: 1, renewed: true }).unwrap();
    rig.now = rig.now + RENEWAL_TIME;
    let out = rig.step(ClientInput::Tick).unwrap();
    assert!(out.contains(&ClientOutput::Close { channel: ChannelId(1) }));
    assert_eq!(
        messages(&out),
        [(1000, Message::Renew(2))],
        "the back connection keeps the lease meanwhile"
    );
    rig.connect();
    assert_eq!(asked(&rig.attach()), [(2, 0, 1, Flags::NONE, append())]);
}

#[test]
fn a_server_that_does_not_answer_an_attach_is_tried_again() {
    let (mut rig, _) = Rig::new(false);
    rig.connect();
    assert_eq!(rig.wake_at, Time::ZERO + RENEWAL_TIME);
    rig.now = Time::ZERO + RENEWAL_TIME;
    let out = rig.step(ClientInput::Tick).unwrap();
    assert_eq!(out[0], ClientOutput::Close { channel: ChannelId(1) });
    assert!(matches!(out[1], ClientOutput::Connect { role: ConnectionRole::Operations, .. }));
}

#[test]
fn a_short_lease_is_renewed_three_times_as_often_as_needed() {
    let (mut rig, _) = Rig::new(false);
    rig.attached.lease = ms(900);
    rig.connect();
    rig.attach();
    assert_eq!(rig.wake_at, Time::ZERO + ms(300));
}

#[test]
fn unrequested_connections_are_closed() {
    let mut rig = Rig::attached();
    for role in [ConnectionRole::Operations, ConnectionRole::Back] {
        let out = rig
            .step(ClientInput::Connected {
                role,
                channel: ChannelId(50),
                terms: rig.terms,
                certificate: None,
            })
            .unwrap();
        assert_eq!(out, [ClientOutput::Close { channel: ChannelId(50) }]);
    }
}

/// Has a token for one uid, which may change.
#[derive(Debug, Default)]
struct Purse {
    changes: std::sync::atomic::AtomicU64,
}

impl crate::credentials::Wallet for Purse {
    fn changes(&self) -> u64 {
        self.changes.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn show(
        &self,
        caller: &Caller,
        line: &crate::credentials::ProofContext,
    ) -> Option<crate::credentials::TokenProof> {
        let token = Bytes::from(format!("{} {}", caller.uid, self.changes()));
        let mut proof = [0; 64];
        proof[..32].copy_from_slice(&line.challenge);
        (caller.uid == 5 && self.changes() > 0)
            .then_some(crate::credentials::TokenProof { token, proof })
    }
}

#[test]
fn a_token_is_shown_for_each_connection_and_when_it_changes() {
    let (mut rig, _) = Rig::new(false);
    let purse = std::sync::Arc::new(Purse::default());
    let config = ClientConfig {
        client: ClientId(5),
        incarnation: 2,
        display: "test".into(),
        pid: 9,
        queue_max: 1000,
        back_channel: false,
        keeps: false,
        wallet: Some(std::sync::Arc::clone(&purse) as _),
    };
    rig.machine = ClientSession::new(Time::ZERO, config, &mut Vec::new());
    rig.connect();
    rig.attach();
    let sent = |out: &[ClientOutput]| -> Vec<Message> {
        let frames = out.iter().filter_map(|output| match output {
            ClientOutput::Send { frame, .. } => Message::of_frame(frame).unwrap(),
            _ => None,
        });
        frames
            .filter(|message| matches!(message, Message::Credential { .. } | Message::Token { .. }))
            .collect()
    };
    let get = || Call::GetStatus { fid: Fid::new(1, 2, 3) };
    let named = sent(&rig.submit(1, get()));
    assert!(matches!(&named[..], [Message::Credential { handle: 1, .. }]), "{named:?}");
    assert_eq!(sent(&rig.submit(2, get())), []);
    purse.changes.store(1, std::sync::atomic::Ordering::Relaxed);
    let shown = sent(&rig.submit(3, get()));
    let [Message::Token { handle: 1, shown: one }] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!((&one.token[..], &one.proof[..32]), (&b"5 1"[..], &[3; 32][..]));
    assert_eq!(sent(&rig.submit(4, get())), []);
    rig.attached.challenge = [4; 32];
    let again = sent(&rig.reconnect());
    let [Message::Token { handle: 1, shown: other }] = &again[..] else { panic!("{again:?}") };
    assert_eq!(&other.proof[..32], &[4; 32]);
}

// Succession.

/// A machine that keeps, with what a successor of it has.
struct KeepingRig {
    rig: Rig,
    kept: KeptState,
}

fn keeping_config() -> ClientConfig {
    ClientConfig {
        client: ClientId(5),
        incarnation: 2,
        display: "test".into(),
        pid: 9,
        queue_max: 1000,
        back_channel: false,
        keeps: true,
        wallet: None,
    }
}

impl KeepingRig {
    fn attached() -> KeepingRig {
        let (mut rig, _) = Rig::new(false);
        rig.machine = ClientSession::new(Time::ZERO, keeping_config(), &mut Vec::new());
        rig.connect();
        let mut keeping = KeepingRig { rig, kept: KeptState::default() };
        let out = keeping.rig.attach();
        keeping.note(&out);
        keeping
    }

    fn note(&mut self, out: &[ClientOutput]) {
        out.iter().for_each(|output| self.kept.note(output));
    }

    fn submit(&mut self, id: u64, call: Call) {
        let out = self.rig.submit(id, call);
        let at = |is: fn(&ClientOutput) -> bool| out.iter().position(is);
        let kept = at(|output| matches!(output, ClientOutput::Keep(_)));
        assert!(kept < at(|output| matches!(output, ClientOutput::Send { .. })) && kept.is_some());
        self.note(&out);
    }

    /// The process is killed, and another one attaches; returns the outputs of that.
    fn succeed(&mut self) -> Vec<ClientOutput> {
        let kept = self.kept.session.as_ref().expect("a session was kept");
        self.rig.machine = kept.succeed(Time::ZERO, keeping_config(), &mut Vec::new()).unwrap();
        let attach = messages(&self.rig.connect());
        assert!(
            matches!(&attach[..], [(_, Message::Attach(attach))] if attach.resume == Some(SESSION))
        );
        let out = self.rig.attach();
        self.note(&out);
        out
    }
}

fn restarted(out: &[ClientOutput]) -> bool {
    let [restarted] = out
        .iter()
        .filter_map(|output| match output {
            ClientOutput::Established { restarted, resumed: true, .. } => Some(*restarted),
            _ => None,
        })
        .collect::<Vec<_>>()[..]
    else {
        panic!("not resumed: {out:?}")
    };
    restarted
}

#[test]
fn eo1_a_successor_repeats_changes_and_cancels_questions() {
    let mut keeping = KeepingRig::attached();
    keeping.submit(1, append());
    keeping.submit(2, get(FID));
    keeping.submit(3, append());
    let out = keeping.rig.reply(0, 1, Ok(written(4)));
    keeping.note(&out);
    let out = keeping.succeed();
    let channel = keeping.rig.channel.0;
    let expected = [(channel, 1, 1, Flags::NONE, get(FID)), (channel, 2, 1, Flags::NONE, append())];
    assert_eq!(asked(&out), expected);
    let cancel = Message::Cancel { slot: 1, request: 1 };
    assert!(messages(&out).contains(&(channel, cancel)), "no caller waits for a question");
    // The answered slot goes on with its next number.
    let out = keeping.rig.submit(9, append());
    assert_eq!(asked(&out), [(channel, 0, 2, Flags::NONE, append())]);
    assert_eq!(done(&keeping.rig.reply(2, 1, Ok(written(4)))), [(3, Ok(written(4)))]);
}

#[test]
fn eo1_a_successor_sends_the_rest_of_a_chain_with_its_file() {
    let mut keeping = KeepingRig::attached();
    let other = Fid::new(1, 8, 8);
    let mut out = keeping
        .rig
        .submit_chain(1, vec![get(other), get(Fid::CURRENT), get(other), get(Fid::CURRENT)]);
    out.extend(keeping.rig.reply(0, 1, Ok(Answer::Status(status(FID)))));
    keeping.note(&out);
    let out = keeping.succeed();
    let channel = keeping.rig.channel.0;
    let expected = [
        (channel, 1, 1, Flags::CHAIN_START, get(FID)),
        (channel, 2, 1, Flags::CHAIN_MIDDLE, get(other)),
        (channel, 3, 1, Flags::CHAIN_END, get(Fid::CURRENT)),
    ];
    assert_eq!(asked(&out), expected);
    // Once more, after a failure.
    let out = keeping.rig.reply(1, 1, Err(Fault::Stale));
    keeping.note(&out);
    let out = keeping.succeed();
    assert!(asked(&out).iter().all(|(.., flags, _)| flags.has(Flags::ABORTED)), "{out:?}");
    for (slot, id) in [(2, 3), (3, 4)] {
        let out = keeping.rig.reply(slot, 1, Err(Fault::ChainAborted));
        keeping.note(&out);
        assert_eq!(done(&out)[0].0, id);
    }
    let kept = keeping.kept.session.unwrap();
    assert!(kept.requests.is_empty() && kept.chains.is_empty());
}

#[test]
fn lk4_a_successor_ends_the_reclaim_or_makes_it_again() {
    let mut keeping = KeepingRig::attached();
    keeping.rig.attached.server = 2;
    let out = keeping.rig.reconnect();
    keeping.note(&out);
    // Killed before the end of the reclaim was sent: the claims are made again.
    assert!(restarted(&keeping.succeed()));
    keeping.submit(1, Call::ReclaimDone);
    // Killed after it was sent: the server executes it or did, and nothing is claimed any more.
    let out = keeping.succeed();
    assert!(!restarted(&out));
    assert_eq!(asked(&out).len(), 1);
    // ... unless the server restarts again.
    let kept = keeping.kept.clone();
    keeping.rig.attached.server = 3;
    let out = keeping.succeed();
    assert!(restarted(&out) && asked(&out).is_empty());
    keeping.kept = kept;
    keeping.rig.attached.server = 2;
    keeping.succeed();
    let out = keeping.rig.reply(0, 1, Ok(Answer::Done));
    keeping.note(&out);
    assert!(!restarted(&keeping.succeed()));
}

#[test]
fn eo1_a_lost_session_leaves_what_its_callers_do_not_know() {
    let mut keeping = KeepingRig::attached();
    keeping.submit(1, append());
    keeping.rig.attached.resumed = false;
    keeping.rig.attached.session = SessionId(8);
    let kept = keeping.kept.session.as_ref().unwrap();
    let mut out = Vec::new();
    keeping.rig.machine = kept.succeed(Time::ZERO, keeping_config(), &mut out).unwrap();
    keeping.rig.connect();
    let out = keeping.rig.receive(&Message::Attached(keeping.rig.attached));
    let mut left = Vec::new();
    for output in &out {
        keeping.note(std::slice::from_ref(output));
        left.push((keeping.kept.session.is_some(), keeping.kept.lost.len()));
    }
    assert!(out.contains(&ClientOutput::SessionLost));
    assert_eq!(done(&out), [(1, Err(CallFailure::SessionLost))]);
    // A successor knows that the change was sent until its caller knows that it is lost.
    left.dedup();
    assert_eq!(left, [(false, 1), (false, 0), (true, 0)]);
    let kept = keeping.kept.session.clone().unwrap();
    assert_eq!(kept, KeptSession::new(kept.terms));
    assert_eq!(kept.terms.session, SessionId(8));
    let out = keeping.rig.step(ClientInput::Detach).unwrap();
    keeping.note(&out);
    assert_eq!(keeping.kept, KeptState::default());
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let mut keeping = KeepingRig::attached();
    keeping.submit(1, append());
    let out = keeping.rig.submit_chain(2, vec![append(), append()]);
    keeping.note(&out);
    let kept = keeping.kept.session.unwrap();
    let refused = |change: &dyn Fn(&mut KeptSession)| {
        let mut changed = kept.clone();
        change(&mut changed);
        let machine = changed.succeed(Time::ZERO, keeping_config(), &mut Vec::new());
        machine.is_err()
    };
    assert!(!refused(&|_| {}));
    let single = |kept: &KeptSession| kept.requests[0].clone();
    let chained = |kept: &KeptSession| kept.requests[2].clone();
    let changes: [&dyn Fn(&mut KeptSession); 10] = [
        &|kept| kept.requests.push(single(kept)),
        &|kept| kept.requests[0].number = 2,
        &|kept| kept.requests[0].slot = 128,
        &|kept| kept.requests[0].session = SessionId(9),
        &|kept| kept.requests[0].procedure = 9999,
        &|kept| kept.requests[0].message = Bytes::new(),
        &|kept| kept.landed[0] = u64::MAX,
        &|kept| kept.landed.truncate(9),
        &|kept| _ = kept.requests.remove(1),
        &|kept| kept.requests.push(KeptRequest { slot: 9, ..chained(kept) }),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert!(refused(change), "change {index}");
    }
}
