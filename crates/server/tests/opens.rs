//! Opens through sockets: conflicts between sessions, claims after a restart, programs that die
//! (docs/spec/sharing.md).

use client::{CallError, Remote, Session};
use types::{Answer, Call, Caller, DataUse, Fault, Fid, OpenId, ShareKey};

use crate::common::{Cell, Recorder, ask, connect, make, read, root, try_ask, wait_for, write};

fn open(fid: Fid, access: DataUse, deny: DataUse) -> Call {
    Call::Open { fid, access, deny, key: None, claims: false }
}

fn opened(answer: Answer) -> OpenId {
    match answer {
        Answer::Opened { open, .. } => open,
        other => panic!("{other:?}"),
    }
}

fn refused(session: &Session, call: Call) -> Option<Fault> {
    match try_ask(session, call) {
        Err(CallError::Fault(fault)) => Some(fault),
        other => panic!("{other:?}"),
    }
}

fn read_call(fid: Fid) -> Call {
    Call::Read { fid, offset: 0, length: 10 }
}

fn write_call(fid: Fid) -> Call {
    let data = bytes::Bytes::from_static(b"x");
    Call::Write { fid, offset: None, data, stable: false, kill_privileges: false }
}

fn file(session: &Session) -> Fid {
    let fid = make(session, root(session), "file");
    write(session, fid, 0, &b"0123456789"[..]);
    fid
}

#[test]
fn opens_exclude_sessions_on_every_kind_of_connection() {
    let cell = Cell::new();
    let [unix, tcp] = cell.both();
    let (near, far) = (connect(unix), connect(tcp));
    let (events, fid) = (Recorder::of(&far), file(&near));
    read(&far, fid, 0, 10);
    let id = opened(ask(&near, open(fid, DataUse::Both, DataUse::Both)));
    assert!(events.broken(fid), "SH-3: the copy of the other was ended before the answer");
    for call in [read_call(fid), write_call(fid), open(fid, DataUse::Read, DataUse::Nothing)] {
        assert_eq!(refused(&far, call), Some(Fault::ShareConflict));
    }
    assert_eq!(refused(&far, Call::Close { fid, open: id }), Some(Fault::Stale));
    let access = DataUse::Read;
    ask(&near, Call::Downgrade { fid, open: id, access, deny: DataUse::Write });
    opened(ask(&far, open(fid, DataUse::Read, DataUse::Write)));
    assert_eq!(refused(&far, write_call(fid)), Some(Fault::ShareConflict));
    ask(&near, Call::Close { fid, open: id });
    ask(&far, write_call(fid));
    let key = Some(ShareKey([7; 16]));
    let (access, deny) = (DataUse::Both, DataUse::Nothing);
    let keyed = Call::Open { fid, access, deny, key, claims: false };
    assert_eq!(refused(&near, keyed), Some(Fault::KeyConflict), "it is open without a key");
}

#[test]
fn opens_end_when_a_program_dies_or_leaves() {
    let cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.unix()));
    let fid = file(&other);
    opened(ask(&holder, open(fid, DataUse::Both, DataUse::Both)));
    assert_eq!(refused(&other, read_call(fid)), Some(Fault::ShareConflict));
    drop(holder);
    wait_for("the end of the session", || try_ask(&other, read_call(fid)).is_ok());
}

#[test]
fn sh5_a_restart_keeps_what_is_claimed_and_nothing_else() {
    let mut cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.unix()));
    let (claims, theirs) = (Recorder::of(&holder), Recorder::of(&other));
    let kept = file(&holder);
    let lost = make(&holder, root(&holder), "lost");
    for fid in [kept, lost] {
        opened(ask(&holder, open(fid, DataUse::Both, DataUse::Both)));
    }
    let (access, deny) = (DataUse::Both, DataUse::Both);
    claims.claims.lock().push(Call::Open { fid: kept, access, deny, key: None, claims: true });
    cell.crash();
    cell.start();
    // The read waits for the claim, though the server is there.
    assert_eq!(refused(&other, read_call(kept)), Some(Fault::ShareConflict));
    wait_for("the restart to be reported", || {
        *claims.restarts.lock() == 1 && *theirs.restarts.lock() == 1
    });
    let claimed = claims.claimed.lock().pop().unwrap().unwrap();
    ask(&other, read_call(lost));
    ask(&other, write_call(lost));
    let late = Call::Open { fid: lost, access, deny, key: None, claims: true };
    assert_eq!(refused(&holder, late), Some(Fault::Expired), "grace is over");
    ask(&holder, Call::Close { fid: kept, open: opened(claimed) });
    ask(&other, read_call(kept));
}

#[test]
fn many_opens_of_many_threads_leave_nothing_behind() {
    let cell = Cell::new();
    let sessions: Vec<Session> = (0..4).map(|_| connect(cell.unix())).collect();
    let fid = file(&sessions[0]);
    let (mut granted, mut denied) = (0, 0);
    std::thread::scope(|threads| {
        let work = |session: &Session| {
            let mut counts = (0_u32, 0_u32);
            for _ in 0..200 {
                let call = open(fid, DataUse::Both, DataUse::Both);
                match session.call(&Caller::ROOT, call, None) {
                    Ok(reply) => {
                        counts.0 += 1;
                        ask(session, write_call(fid));
                        ask(session, Call::Close { fid, open: opened(reply.answer) });
                    }
                    Err(error) => {
                        assert_eq!(error.fault(), Some(Fault::ShareConflict));
                        counts.1 += 1;
                    }
                }
            }
            counts
        };
        let all: Vec<_> = sessions.iter().map(|one| threads.spawn(move || work(one))).collect();
        for (some, others) in all.into_iter().map(|thread| thread.join().unwrap()) {
            (granted, denied) = (granted + some, denied + others);
        }
    });
    assert_eq!(granted + denied, 800);
    let Answer::Status(status) = ask(&sessions[0], Call::GetStatus { fid }) else { panic!() };
    assert_eq!(status.size, 10 + u64::from(granted), "one append for each open, and no other");
    let Answer::Report(report) = ask(&sessions[0], Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["opens"].as_u64(), Some(0));
}
