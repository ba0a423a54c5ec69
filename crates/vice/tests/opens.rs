//! Opens against users that want the data all the same: other sessions, other users, anonymous
//! ones, sessions that end, restarts, kernels with the body (docs/spec/sharing.md).

use std::time::{Duration, Instant};

use types::{
    AllocateMode, Answer, AuthLevel, BreakReason, ByteRange, Call, Caller, ClientId, DataUse,
    Fault, Fid, Lending, LockFamily, LockMode, LockOwner, NewKind, OpenId, PrincipalId,
    RequestIdentity, SeekWhat, ShareKey, Status, StatusChange,
};

use crate::common::{Ground, Rig, name, remove, user, write};

const ROOT: Caller = Caller::ROOT;
const NOTHING: DataUse = DataUse::Nothing;
const READ: DataUse = DataUse::Read;
const WRITE: DataUse = DataUse::Write;
const BOTH: DataUse = DataUse::Both;
/// As long as a session lives without a message.
const LIFE: Duration = Duration::from_secs(16);

fn open(fid: Fid, access: DataUse, deny: DataUse) -> Call {
    Call::Open { fid, access, deny, key: None, claims: false }
}

fn keyed(fid: Fid, key: Option<u8>) -> Call {
    let key = key.map(|byte| ShareKey([byte; 16]));
    Call::Open { fid, access: BOTH, deny: NOTHING, key, claims: false }
}

fn claim(call: &Call) -> Call {
    let Call::Open { fid, access, deny, key, .. } = *call else { panic!("{call:?}") };
    Call::Open { fid, access, deny, key, claims: true }
}

fn opened(answer: Result<Answer, Fault>) -> Result<(OpenId, Status), Fault> {
    match answer? {
        Answer::Opened { open, status } => Ok((open, status)),
        other => panic!("{other:?}"),
    }
}

/// Opens as the superuser; answered at once.
fn opens(rig: &mut Rig, who: usize, call: Call) -> Result<(OpenId, Status), Fault> {
    opened(rig.call(who, &ROOT, call))
}

fn close(rig: &mut Rig, who: usize, fid: Fid, open: OpenId) -> Result<Answer, Fault> {
    rig.call(who, &ROOT, Call::Close { fid, open })
}

fn read(fid: Fid) -> Call {
    Call::Read { fid, offset: 0, length: 100 }
}

/// A file of 1,000 bytes that all may read and write, and the clients.
fn file_on(ground: Ground, clients: usize) -> (Rig, Fid) {
    let mut rig = Rig::new(ground, clients);
    let root = rig.root();
    let file = rig.make(0, &ROOT, root, "file", NewKind::File, 0o666);
    rig.call(0, &ROOT, write(file, Some(0), &[7; 1000])).unwrap();
    (rig, file)
}

fn file(clients: usize) -> (Rig, Fid) {
    file_on(Ground::memory(), clients)
}

/// Every call that reads data, and every one that writes data.
fn data_calls(fid: Fid) -> [Vec<Call>; 2] {
    let set = |through_handle| Call::SetStatus {
        fid,
        change: StatusChange { size: Some(9), through_handle, ..StatusChange::default() },
    };
    let allocate = |mode| Call::Allocate { fid, offset: 0, length: 10, mode };
    let lend = |how| Call::LendBody { fid, how };
    let reads = vec![
        read(fid),
        Call::ReadPacked { fid, offset: 0, length: 10 },
        Call::ReadSums { fid, first: 0, count: 1 },
        Call::Seek { fid, offset: 0, what: SeekWhat::Data },
        Call::Seek { fid, offset: 0, what: SeekWhat::Hole },
        Call::OpenBody { fid },
        lend(Lending::Read),
    ];
    let writes = vec![
        write(fid, Some(0), b"x"),
        write(fid, None, b"x"),
        write(fid, Some(0), b""),
        allocate(AllocateMode::Extend),
        allocate(AllocateMode::PunchHole),
        set(false),
        set(true),
        lend(Lending::Write),
        lend(Lending::Join),
        Call::AdoptBody { fid, blank: 1 },
    ];
    [reads, writes]
}

/// Calls that use no data.
fn other_calls(rig: &mut Rig, fid: Fid) -> Vec<Call> {
    let dir = rig.root();
    let (owner, range) = (LockOwner(1), ByteRange::ALL);
    let change = StatusChange { mode: Some(0o666), ..StatusChange::default() };
    vec![
        Call::GetStatus { fid },
        Call::Lookup { dir, name: name("file") },
        Call::SetStatus { fid, change },
        Call::XattrList { fid },
        Call::Lock {
            fid,
            owner,
            pid: 1,
            family: LockFamily::Posix,
            range,
            mode: LockMode::Exclusive,
            wait: false,
            reclaim: false,
        },
        Call::Commit { fid },
    ]
}

#[test]
fn sh2_each_call_on_data_asks_what_other_opens_deny() {
    for deny in DataUse::ALL {
        let (mut rig, fid) = file_on(Ground::disk(), 3);
        let (id, _) = opens(&mut rig, 1, open(fid, BOTH, deny)).unwrap();
        let denied = |call: &Call, of: DataUse| {
            let reads_too = matches!(call, Call::LendBody { .. } | Call::AdoptBody { .. });
            deny.meets(of) || of == WRITE && reads_too && deny.reads()
        };
        for (calls, of) in data_calls(fid).into_iter().zip([READ, WRITE]) {
            for call in calls {
                let found = rig.call(2, &ROOT, call.clone());
                let refused = found == Err(Fault::ShareConflict);
                assert_eq!(refused, denied(&call, of), "{deny:?}: {call:?}: {found:?}");
                let _ = rig.call(2, &ROOT, Call::SettleBody { fid, back: true });
            }
        }
        for call in other_calls(&mut rig, fid) {
            assert!(rig.call(2, &ROOT, call.clone()).is_ok(), "{deny:?}: {call:?}");
        }
        // The session itself is not kept out, and nor are others when it closes the file.
        assert!(rig.call(1, &ROOT, read(fid)).is_ok());
        assert!(rig.call(1, &ROOT, write(fid, None, b"x")).is_ok());
        assert_eq!(close(&mut rig, 1, fid, id), Ok(Answer::Done));
        assert!(rig.call(2, &ROOT, read(fid)).is_ok());
        assert!(rig.call(2, &ROOT, write(fid, None, b"x")).is_ok());
    }
}

#[test]
fn sh2_no_user_and_no_right_goes_around_a_denial() {
    let (mut rig, fid) = file(3);
    opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    let who = RequestIdentity { level: AuthLevel::Nobody, ..RequestIdentity::NOBODY };
    let nobody = Caller { who, ..user(65534, 65534, &[]) };
    rig.detach(2);
    let mut out = Vec::new();
    let attached = rig.vice().attach_stranger(rig.now, ClientId(99), 1, &mut out).unwrap();
    rig.deliver(out);
    (rig.clients[2].session, rig.clients[2].requests) = (attached.session, 0);
    for (session, caller) in [(0, &ROOT), (0, &user(4711, 1, &[])), (2, &nobody)] {
        for call in [read(fid), write(fid, None, b"x")] {
            assert_eq!(rig.call(session, caller, call), Err(Fault::ShareConflict));
        }
    }
    // The anonymous session has no opens of its own.
    let other = {
        let root = rig.root();
        rig.make(0, &ROOT, root, "g", NewKind::File, 0o666)
    };
    let refused = rig.call(2, &nobody, open(other, READ, NOTHING));
    assert_eq!(refused, Err(Fault::AccessDenied));
}

#[test]
fn an_open_needs_its_accesss_rights_and_a_denial_that_to_write() {
    let (mut rig, _) = file(2);
    let root = rig.root();
    let fid = rig.make(0, &ROOT, root, "read", NewKind::File, 0o644);
    let secret = rig.make(0, &ROOT, root, "secret", NewKind::File, 0o600);
    let who = RequestIdentity {
        level: AuthLevel::Password,
        principal: PrincipalId(4711),
        ..RequestIdentity::NOBODY
    };
    let reader = Caller { who, ..user(4711, 1, &[]) };
    for refused in [
        open(fid, WRITE, NOTHING),
        open(fid, BOTH, NOTHING),
        open(fid, READ, WRITE),
        open(fid, READ, READ),
        Call::Open {
            fid,
            access: READ,
            deny: NOTHING,
            key: Some(ShareKey([1; 16])),
            claims: false,
        },
        open(secret, READ, NOTHING),
    ] {
        assert_eq!(rig.call(1, &reader, refused.clone()), Err(Fault::AccessDenied), "{refused:?}");
    }
    opened(rig.call(1, &reader, open(fid, READ, NOTHING))).unwrap();
    // A caller without the right learns of no open.
    opens(&mut rig, 0, open(secret, BOTH, BOTH)).unwrap();
    assert_eq!(rig.call(1, &reader, read(secret)), Err(Fault::AccessDenied), "AC-1");
    assert_eq!(rig.call(1, &reader, open(secret, READ, NOTHING)), Err(Fault::AccessDenied));
    assert_eq!(rig.call(1, &ROOT, open(fid, NOTHING, WRITE)), Err(Fault::Invalid));
    assert_eq!(rig.call(1, &ROOT, open(root, READ, NOTHING)), Err(Fault::IsDirectory));
    let link = NewKind::Symlink("x".into());
    let link = rig.make(0, &ROOT, root, "link", link, 0o777);
    assert_eq!(rig.call(1, &ROOT, open(link, READ, NOTHING)), Err(Fault::Invalid));
}

#[test]
fn sh3_a_denial_is_answered_when_no_cache_is_trusted() {
    for (deny, key) in [(READ, None), (WRITE, None), (BOTH, None), (NOTHING, Some(3))] {
        let (mut rig, fid) = file(4);
        let Ok(Answer::Data { status: cached, .. }) = rig.call(2, &ROOT, read(fid)) else {
            panic!()
        };
        rig.clients[2].prompt = false;
        let key = key.map(|byte| ShareKey([byte; 16]));
        let call = Call::Open { fid, access: BOTH, deny, key, claims: false };
        let opening = rig.start_in(1, 1, &ROOT, call);
        assert_eq!(rig.reply(opening), None, "client 2 trusts what it has");
        let broken = &rig.clients[2].broken;
        assert_eq!(broken.iter().map(|item| item.reason).collect::<Vec<_>>(), [BreakReason::Data]);
        // Nothing is cached anew meanwhile.
        let refused = if key.is_some() { Fault::KeyConflict } else { Fault::ShareConflict };
        for who in [2, 3] {
            let reads_end = deny.reads() || key.is_some();
            let found = rig.call(who, &ROOT, read(fid));
            assert_eq!(found.err(), reads_end.then_some(refused), "{deny:?}");
            let writes_end = deny.writes() || key.is_some();
            let found = rig.call(who, &ROOT, open(fid, WRITE, NOTHING));
            assert_eq!(found.err(), writes_end.then_some(refused), "{deny:?}");
        }
        rig.acknowledge(2);
        let (_, status) = opened(rig.reply(opening).unwrap()).unwrap();
        let is_old = cached.data_version < status.data_version;
        assert_eq!(is_old, deny.reads() || key.is_some(), "{deny:?}: a copy counts as old");
        assert_eq!((status.modified, status.changed), (cached.modified, cached.changed));
        // The status shows the client that its copy is old.
        assert_eq!(rig.status(2, fid).unwrap().data_version, status.data_version);
        let Ok(Answer::Data { data, .. }) = rig.call(1, &ROOT, read(fid)) else { panic!() };
        assert_eq!(data, vec![7; 100], "the data is as it was");
    }
}

#[test]
fn sh3_a_refused_read_is_no_promise() {
    let (mut rig, fid) = file(3);
    opens(&mut rig, 1, open(fid, BOTH, READ)).unwrap();
    assert_eq!(rig.call(2, &ROOT, read(fid)), Err(Fault::ShareConflict));
    rig.clients[2].prompt = false;
    assert!(rig.call(1, &ROOT, write(fid, Some(0), b"x")).is_ok(), "at once");
    assert!(rig.clients[2].broken.is_empty());
}

#[test]
fn sh3_a_plain_open_breaks_nothing_and_waits_for_nobody() {
    let (mut rig, fid) = file(3);
    rig.call(2, &ROOT, read(fid)).unwrap();
    rig.clients[2].prompt = false;
    let before = rig.status(2, fid).unwrap();
    let (_, status) = opens(&mut rig, 1, open(fid, BOTH, NOTHING)).unwrap();
    assert_eq!(status.data_version, before.data_version);
    assert!(rig.clients[2].broken.is_empty());
}

#[test]
fn sh3_a_silent_cache_delays_a_denial_until_its_lease_ends() {
    let (mut rig, fid) = file(3);
    rig.call(2, &ROOT, read(fid)).unwrap();
    rig.clients[2].prompt = false;
    let opening = rig.start(1, &ROOT, open(fid, READ, BOTH));
    rig.wait(LIFE - Duration::from_secs(2));
    assert!(rig.renew(1) && rig.reply(opening).is_none());
    rig.wait(Duration::from_secs(3));
    assert!(rig.clients[2].ended && opened(rig.reply(opening).unwrap()).is_ok());
}

#[test]
fn sh3_a_body_on_loan_keeps_denials_out_until_it_is_back() {
    let (mut rig, fid) = file_on(Ground::disk(), 3);
    let lend = Call::LendBody { fid, how: Lending::Write };
    assert!(matches!(rig.call(2, &ROOT, lend.clone()), Ok(Answer::Body { .. })));
    for refused in [open(fid, READ, WRITE), open(fid, READ, READ), keyed(fid, Some(1))] {
        assert_eq!(rig.call(1, &ROOT, refused.clone()), Err(Fault::Busy), "{refused:?}");
    }
    let (plain, _) = opens(&mut rig, 1, open(fid, BOTH, NOTHING)).unwrap();
    assert!(rig.call(0, &ROOT, read(fid)).is_ok(), "a refused open denies nothing");
    assert!(rig.call(2, &ROOT, Call::SettleBody { fid, back: true }).is_ok());
    opens(&mut rig, 1, open(fid, READ, NOTHING)).unwrap();
    assert!(close(&mut rig, 1, fid, plain).is_ok());
    opens(&mut rig, 1, open(fid, READ, WRITE)).unwrap();
    assert_eq!(rig.call(2, &ROOT, lend), Err(Fault::ShareConflict));
}

#[test]
fn sh3_a_delegated_directory_comes_back_before_an_open() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let dir = rig.directory(root, "d");
    rig.call(1, &ROOT, Call::Delegate { fid: dir }).unwrap_err();
    rig.wait(Duration::from_secs(2));
    assert!(rig.call(1, &ROOT, Call::Delegate { fid: dir }).is_ok());
    let fid = rig.make(1, &ROOT, dir, "f", NewKind::File, 0o666);
    rig.clients[1].prompt = false;
    let opening = rig.start(0, &ROOT, open(fid, READ, WRITE));
    assert_eq!(rig.reply(opening), None, "client 1 has the file alone");
    rig.acknowledge(1);
    let late = Call::Delegated {
        at: rig.clock(),
        slot: 0,
        call: Box::new(write(fid, Some(0), b"journal")),
    };
    assert!(rig.call_in(1, 1, &ROOT, late).is_ok(), "its journal comes before the open");
    rig.call_in(1, 1, &ROOT, Call::Return { fids: vec![dir] }).unwrap();
    rig.acknowledge(1);
    let (_, status) = opened(rig.reply(opening).unwrap()).unwrap();
    assert_eq!(status.size, 7);
    assert_eq!(rig.call_in(1, 1, &ROOT, write(fid, None, b"x")), Err(Fault::ShareConflict));
}

#[test]
fn sh4_every_pair_of_keys_through_the_service() {
    let keys = [None, Some(1), Some(2)];
    for first in keys {
        for second in keys {
            let (mut rig, fid) = file(4);
            opens(&mut rig, 1, keyed(fid, first)).unwrap();
            let found = opens(&mut rig, 2, keyed(fid, second)).err();
            assert_eq!(found, (first != second).then_some(Fault::KeyConflict));
            // Without an open.
            for call in [read(fid), write(fid, None, b"x")] {
                let found = rig.call(3, &ROOT, call).err();
                assert_eq!(found, first.is_some().then_some(Fault::KeyConflict));
            }
        }
    }
}

#[test]
fn sh1_two_opens_of_one_session_bear_each_other_or_not() {
    let (mut rig, fid) = file(2);
    let (first, _) = opens(&mut rig, 1, open(fid, READ, WRITE)).unwrap();
    assert_eq!(opens(&mut rig, 1, open(fid, BOTH, NOTHING)).err(), Some(Fault::ShareConflict));
    let (second, _) = opens(&mut rig, 1, open(fid, READ, WRITE)).unwrap();
    assert_ne!(first, second);
    assert!(close(&mut rig, 1, fid, first).is_ok());
    let refused = rig.call(0, &ROOT, write(fid, None, b"x"));
    assert_eq!(refused, Err(Fault::ShareConflict), "the second one denies it still");
    assert!(close(&mut rig, 1, fid, second).is_ok());
    assert!(rig.call(0, &ROOT, write(fid, None, b"x")).is_ok());
}

#[test]
fn a_downgrade_lets_others_in_and_cannot_be_undone() {
    let (mut rig, fid) = file(3);
    let (id, _) = opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    assert_eq!(opens(&mut rig, 2, open(fid, READ, NOTHING)).err(), Some(Fault::ShareConflict));
    let less = Call::Downgrade { fid, open: id, access: READ, deny: WRITE };
    assert_eq!(rig.call(2, &ROOT, less.clone()), Err(Fault::Stale), "it is another's");
    assert_eq!(rig.call(1, &ROOT, less.clone()), Ok(Answer::Done));
    assert_eq!(rig.call(1, &ROOT, less), Ok(Answer::Done), "a repeat changes nothing");
    opens(&mut rig, 2, open(fid, READ, WRITE)).unwrap();
    assert_eq!(opens(&mut rig, 2, open(fid, WRITE, NOTHING)).err(), Some(Fault::ShareConflict));
    for (access, deny) in [(BOTH, WRITE), (READ, BOTH), (NOTHING, WRITE)] {
        let more = Call::Downgrade { fid, open: id, access, deny };
        assert_eq!(rig.call(1, &ROOT, more), Err(Fault::Invalid));
    }
    assert!(rig.call(2, &ROOT, read(fid)).is_ok());
}

#[test]
fn sh6_an_open_is_closed_by_its_session_and_once() {
    let (mut rig, fid) = file(3);
    let (id, _) = opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    assert_eq!(close(&mut rig, 2, fid, id), Err(Fault::Stale));
    assert_eq!(close(&mut rig, 1, Fid { vnode: types::VnodeNo(1), ..fid }, id), Err(Fault::Stale));
    assert_eq!(rig.call(2, &ROOT, read(fid)), Err(Fault::ShareConflict));
    assert_eq!(close(&mut rig, 1, fid, id), Ok(Answer::Done));
    assert_eq!(close(&mut rig, 1, fid, id), Err(Fault::Stale));
    assert!(rig.call(2, &ROOT, read(fid)).is_ok());
}

#[test]
fn eo1_a_repeated_open_is_one_open_and_a_repeated_close_is_done() {
    let (mut rig, fid) = file(3);
    rig.call(2, &ROOT, read(fid)).unwrap();
    rig.clients[2].prompt = false;
    let opening = rig.start(1, &ROOT, open(fid, READ, WRITE));
    rig.perform(opening, &ROOT, open(fid, READ, WRITE));
    assert_eq!(rig.reply(opening), None, "it waits once");
    rig.acknowledge(2);
    let first = opened(rig.reply(opening).unwrap()).unwrap();
    assert_eq!(rig.reply(opening), None);
    rig.perform(opening, &ROOT, open(fid, READ, WRITE));
    assert_eq!(opened(rig.reply(opening).unwrap()).unwrap(), first);
    let closing = rig.start(1, &ROOT, Call::Close { fid, open: first.0 });
    assert_eq!(rig.reply(closing), Some(Ok(Answer::Done)));
    rig.perform(closing, &ROOT, Call::Close { fid, open: first.0 });
    assert_eq!(rig.reply(closing), Some(Ok(Answer::Done)), "the first time");
    assert!(rig.call(0, &ROOT, write(fid, None, b"x")).is_ok(), "no second open is left");
}

#[test]
fn opens_end_with_a_session_that_leaves_or_falls_silent() {
    for leaves in [true, false] {
        let (mut rig, fid) = file(3);
        opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
        if leaves {
            rig.detach(1);
        } else {
            rig.wait(LIFE - Duration::from_secs(1));
            assert!(rig.renew(0) && rig.renew(2));
            assert_eq!(rig.call(2, &ROOT, read(fid)), Err(Fault::ShareConflict), "its lease runs");
            rig.wait(Duration::from_secs(2));
        }
        assert!(rig.clients[1].ended);
        assert!(rig.call(2, &ROOT, read(fid)).is_ok());
        opens(&mut rig, 2, open(fid, BOTH, BOTH)).unwrap();
    }
}

#[test]
fn sh5_a_claimed_open_holds_over_a_restart() {
    let (mut rig, fid) = file(3);
    let (before, was) = opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    rig.restart();
    for who in [0, 2] {
        assert!(rig.resume(who).unwrap().reclaim);
        rig.call(who, &ROOT, Call::ReclaimDone).unwrap();
    }
    // Client 1 is not back yet: no data, no body and no open for the others.
    let reading = rig.start_in(2, 1, &ROOT, read(fid));
    let writing = rig.start_in(2, 2, &ROOT, write(fid, None, b"x"));
    let opening = rig.start_in(2, 3, &ROOT, open(fid, READ, NOTHING));
    let waiting = [reading, writing, opening];
    assert!(waiting.iter().all(|origin| rig.reply(*origin).is_none()));
    assert!(rig.resume(1).unwrap().reclaim);
    let (after, is) = opens(&mut rig, 1, claim(&open(fid, BOTH, BOTH))).unwrap();
    assert_ne!(before, after, "no number comes again");
    assert_eq!(was.data_version, is.data_version, "nothing was cached meanwhile");
    assert_eq!(close(&mut rig, 1, fid, before), Err(Fault::Stale));
    rig.call(1, &ROOT, Call::ReclaimDone).unwrap();
    for origin in waiting {
        assert_eq!(rig.reply(origin), Some(Err(Fault::ShareConflict)));
    }
    assert!(close(&mut rig, 1, fid, after).is_ok());
    assert!(rig.call(2, &ROOT, read(fid)).is_ok());
}

#[test]
fn sh5_no_body_is_lent_before_the_claims_are_made() {
    let (mut rig, fid) = file_on(Ground::disk(), 3);
    opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    rig.restart();
    assert!(rig.resume(2).unwrap().reclaim);
    for how in [Lending::Read, Lending::Write, Lending::Join] {
        assert_eq!(rig.call(2, &ROOT, Call::LendBody { fid, how }), Err(Fault::Busy));
    }
}

#[test]
fn sh5_a_body_on_loan_is_borrowed_anew_before_claims_of_others() {
    let (mut rig, fid) = file_on(Ground::disk(), 3);
    let root = rig.root();
    let other = rig.make(0, &ROOT, root, "other", NewKind::File, 0o666);
    let lend = |how| Call::LendBody { fid, how };
    rig.call(2, &ROOT, lend(Lending::Write)).unwrap();
    opens(&mut rig, 1, open(other, READ, WRITE)).unwrap();
    rig.restart();
    assert!(rig.resume(2).unwrap().reclaim);
    assert!(matches!(rig.call(2, &ROOT, lend(Lending::Join)), Ok(Answer::Body { .. })));
}

#[test]
fn sh5_what_is_not_claimed_ends_with_the_restart() {
    for is_back in [true, false] {
        let (mut rig, fid) = file(3);
        opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
        rig.restart();
        for who in [0, 2] {
            rig.reclaim(who);
        }
        let reading = rig.start_in(2, 1, &ROOT, read(fid));
        assert_eq!(rig.reply(reading), None);
        if is_back {
            rig.reclaim(1);
        } else {
            rig.wait(LIFE - Duration::from_secs(1));
            assert!(rig.renew(0) && rig.renew(2) && rig.reply(reading).is_none());
            rig.wait(Duration::from_secs(2));
            assert!(rig.clients[1].ended);
        }
        assert!(matches!(rig.reply(reading), Some(Ok(Answer::Data { .. }))));
        opens(&mut rig, 2, open(fid, BOTH, BOTH)).unwrap();
    }
}

#[test]
fn sh5_a_claim_of_what_never_was_is_refused_after_grace() {
    let (mut rig, fid) = file(3);
    let claims = claim(&open(fid, BOTH, BOTH));
    assert_eq!(opens(&mut rig, 1, claims.clone()).err(), Some(Fault::Expired), "no restart");
    rig.restart();
    (0..3).for_each(|who| rig.reclaim(who));
    assert_eq!(opens(&mut rig, 1, claims.clone()).err(), Some(Fault::Expired));
    let late = rig.attach();
    assert_eq!(opens(&mut rig, late, claims).err(), Some(Fault::Expired));
    assert!(rig.call(2, &ROOT, write(fid, None, b"x")).is_ok(), "it denies nothing");
}

#[test]
fn sh5_reads_wait_after_a_restart_only_for_opens_that_exclude() {
    let (mut rig, fid) = file(3);
    opens(&mut rig, 1, open(fid, BOTH, NOTHING)).unwrap();
    rig.restart();
    assert!(rig.resume(2).unwrap().reclaim);
    assert!(rig.call(2, &ROOT, read(fid)).is_ok(), "client 1 may claim nothing that denies it");
}

#[test]
fn a_session_with_both_marks_has_both_after_a_restart() {
    let (mut rig, fid) = file(2);
    let root = rig.root();
    let dir = rig.directory(root, "d");
    opens(&mut rig, 1, open(fid, READ, WRITE)).unwrap();
    rig.call(1, &ROOT, Call::Delegate { fid: dir }).unwrap_err();
    rig.wait(Duration::from_secs(2));
    assert!(rig.call(1, &ROOT, Call::Delegate { fid: dir }).is_ok());
    rig.restart();
    assert!(rig.resume(1).unwrap().reclaim);
    let call = Box::new(crate::common::write(fid, None, b"x"));
    let late = Call::Delegated { at: rig.clock(), slot: 0, call };
    assert!(rig.call(1, &ROOT, late).is_ok(), "changes under the delegation are accepted");
    opens(&mut rig, 1, claim(&open(fid, READ, WRITE))).unwrap();
}

#[test]
fn ten_thousand_opens_are_bounded_and_end_with_their_sessions() {
    let (mut rig, fid) = file(4);
    let since = Instant::now();
    let mut made = 0;
    for who in 1..4 {
        for _ in 0..4096 {
            opens(&mut rig, who, open(fid, READ, NOTHING)).unwrap();
            made += 1;
        }
        let refused = opens(&mut rig, who, open(fid, READ, NOTHING)).err();
        assert_eq!(refused, Some(Fault::Busy), "the limit of a session");
    }
    assert!(made > 10_000);
    assert_eq!(opens(&mut rig, 0, open(fid, READ, READ)).err(), Some(Fault::ShareConflict));
    for _ in 0..1000 {
        rig.call(0, &ROOT, read(fid)).unwrap();
    }
    (1..4).for_each(|who| rig.detach(who));
    opens(&mut rig, 0, open(fid, BOTH, BOTH)).unwrap();
    assert!(since.elapsed() < Duration::from_secs(60), "no call searches all opens");
}

#[test]
fn a_removed_file_has_no_opens_any_more() {
    let (mut rig, fid) = file(2);
    let root = rig.root();
    let (id, _) = opens(&mut rig, 1, open(fid, BOTH, BOTH)).unwrap();
    assert!(rig.call(0, &ROOT, remove(root, "file")).is_ok(), "its name is no data");
    assert_eq!(rig.call(1, &ROOT, read(fid)), Err(Fault::Stale));
    assert_eq!(close(&mut rig, 1, fid, id), Err(Fault::Stale));
}

#[test]
fn no_delegation_covers_a_file_that_another_has_open() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let dir = rig.directory(root, "d");
    let fid = rig.make(0, &ROOT, dir, "f", NewKind::File, 0o666);
    opens(&mut rig, 0, open(fid, READ, WRITE)).unwrap();
    // Client 1 changes the status, so that client 0 has no promise of the file any more.
    let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
    rig.call(1, &ROOT, Call::SetStatus { fid, change }).unwrap();
    let _ = rig.call(1, &ROOT, Call::Delegate { fid: dir });
    rig.wait(Duration::from_secs(2));
    assert!(rig.call(1, &ROOT, Call::Delegate { fid: dir }).is_ok());
    let found = rig.call(1, &ROOT, Call::Lookup { dir, name: name("f") });
    assert!(matches!(found, Ok(Answer::Entry { sole: false, .. })), "{found:?}");
    let call = Box::new(write(fid, None, b"x"));
    let late = Call::Delegated { at: rig.clock(), slot: 0, call };
    assert_eq!(rig.call(1, &ROOT, late), Err(Fault::NotDelegated));
}
