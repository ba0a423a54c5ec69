//! Fences at two servers: when the call returns, no call of the fenced principal is executed at
//! either; callers who are not fenced go on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use client::{CallError, Remote, Session};
use server::CellPlace;
use types::{
    Answer, Call, Caller, CellCall, Fault, Fid, GuardCall, LockFamily, LockMode, LockOwner,
    NewPrincipal, PrincipalId, PrincipalKind, PtsCall, RequestIdentity, StatusChange, Whom,
};

fn two() -> (Cell, Cell) {
    let first = Cell::with(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
    });
    let at = first.unix();
    let second = Cell::with(|config| config.cell = Some(CellPlace::At(at.clone())));
    wait_for("the second server in the cell", || servers(&first) == 2);
    (first, second)
}

/// How many servers the cell has.
fn servers(cell: &Cell) -> usize {
    match ask(&connect(cell.unix()), Call::Cell(CellCall::Servers)) {
        Answer::Servers(servers) => servers.len(),
        other => panic!("{other:?}"),
    }
}

fn uid(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED }
}

fn user(session: &Session, name: &str, uid: u32) -> PrincipalId {
    let kind = PrincipalKind::User;
    let new =
        NewPrincipal { kind, name: name.into(), id: None, owner: None, uid: Some(uid), gid: None };
    match ask(
        session,
        Call::Pts { on_behalf: None, call: Box::new(PtsCall::Create { new: Box::new(new) }) },
    ) {
        Answer::Principals { principals, .. } => principals[0].0.id,
        other => panic!("{other:?}"),
    }
}

fn rule(session: &Session, call: GuardCall) -> Result<(u64, usize), Fault> {
    match try_ask(session, Call::Guard { behalf: None, call: Box::new(call) }) {
        Ok(Answer::Enforced { number, missing }) => Ok((number, missing.len())),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.fault().unwrap()),
    }
}

fn fence(session: &Session, whom: Whom) -> (u64, usize) {
    rule(session, GuardCall::AddFence { whom, seconds: 0, why: "test".into() }).unwrap()
}

fn unfence(session: &Session, number: u64) {
    assert_eq!(rule(session, GuardCall::RemoveFence { number }), Ok((number, 0)));
}

/// A file that every user may write.
fn open_file(session: &Session, file: &str) -> Fid {
    let fid = make(session, root(session), file);
    let change = StatusChange { mode: Some(0o666), ..StatusChange::default() };
    ask(session, Call::SetStatus { fid, change });
    fid
}

fn write_as(session: &Session, caller: &Caller, fid: Fid, byte: u8) -> Result<Answer, CallError> {
    let data = Bytes::copy_from_slice(&[byte]);
    let call = Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false };
    session.call(caller, call, None).map(|reply| reply.answer)
}

/// The numbers of all sessions.
fn sessions(session: &Session) -> Vec<u64> {
    let Answer::Report(text) = ask(session, Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    report["who"].as_array().unwrap().iter().map(|one| one["session"].as_u64().unwrap()).collect()
}

fn fault(result: Result<Answer, CallError>) -> Option<Fault> {
    result.err().map(|error| error.fault().unwrap())
}

#[test]
fn a_fenced_user_alone_is_refused_at_both_servers() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let joe = user(&there, "joe", 4711);
    user(&there, "jim", 4712);
    let files = [open_file(&here, "f"), open_file(&there, "f")];
    for round in 0..3 {
        for by in [&here, &there] {
            let (number, missing) = fence(by, Whom::User(joe));
            assert_eq!(missing, 0, "round {round}");
            for (session, file) in [(&here, files[0]), (&there, files[1])] {
                assert_eq!(
                    fault(write_as(session, &uid(4711), file, 1)),
                    Some(Fault::Fenced),
                    "round {round}"
                );
                assert_eq!(fault(write_as(session, &uid(4712), file, 1)), None);
                assert_eq!(fault(write_as(session, &Caller::ROOT, file, 1)), None);
            }
            unfence(by, number);
            for (session, file) in [(&here, files[0]), (&there, files[1])] {
                assert_eq!(fault(write_as(session, &uid(4711), file, 1)), None);
            }
        }
    }
}

#[test]
fn no_call_of_a_fenced_user_is_executed_after_the_fence_returns() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let joe = user(&here, "joe", 4711);
    let files = [open_file(&here, "f"), open_file(&there, "f")];
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (endpoint, file) in [(first.unix(), files[0]), (second.unix(), files[1])] {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                let session = connect(endpoint);
                while !stop.load(Ordering::SeqCst) {
                    if write_as(&session, &uid(4711), file, 7).is_ok() {
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for _ in 0..5 {
            let before = written.load(Ordering::SeqCst);
            wait_for("writes", || written.load(Ordering::SeqCst) > before);
            let (number, _) = fence(&here, Whom::User(joe));
            // Another user overwrites what the fenced user wrote until then; no late write of the
            // fenced user may come after it.
            for (session, file) in [(&here, files[0]), (&there, files[1])] {
                write_as(session, &Caller::ROOT, file, 0).unwrap();
            }
            std::thread::sleep(Duration::from_millis(30));
            for (session, file) in [(&here, files[0]), (&there, files[1])] {
                let read = ask(session, Call::Read { fid: file, offset: 0, length: 1 });
                assert!(matches!(&read, Answer::Data { data, .. } if data[..] == [0]), "{read:?}");
            }
            unfence(&here, number);
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_fenced_session_loses_its_locks_and_its_client_stays_out() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let file = open_file(&there, "f");
    let known = sessions(&there);
    let culprit = connect(second.unix());
    let number = *sessions(&there).iter().find(|session| !known.contains(session)).unwrap();
    let lock = |wait| Call::Lock {
        fid: file,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Flock,
        mode: LockMode::Exclusive,
        range: types::ByteRange::ALL,
        wait,
        reclaim: false,
    };
    culprit.call(&uid(4711), lock(false), None).unwrap();
    assert_eq!(fault(try_ask(&there, lock(false))), Some(Fault::Locked));
    assert_eq!(rule(&here, GuardCall::RemoveFence { number: 12345 }), Err(Fault::NotFound));
    // The server that has the session gets the call.
    let (fenced, missing) = fence(&there, Whom::Session(types::SessionId(number)));
    assert_eq!(missing, 0);
    ask(&there, lock(false));
    assert!(culprit.call(&uid(4711), Call::GetStatus { fid: file }, None).is_err());
    unfence(&there, fenced);
}

#[test]
fn a_fence_ends_the_users_lock_waits_and_no_others() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    let joe = user(&here, "joe", 4711);
    user(&here, "jim", 4712);
    let file = open_file(&there, "f");
    let lock = |owner, wait| Call::Lock {
        fid: file,
        owner: LockOwner(owner),
        pid: 1,
        family: LockFamily::Flock,
        mode: LockMode::Exclusive,
        range: types::ByteRange::ALL,
        wait,
        reclaim: false,
    };
    let family = LockFamily::Flock;
    let unlock = |owner| Call::Unlock {
        fid: file,
        owner: LockOwner(owner),
        family,
        range: types::ByteRange::ALL,
    };
    ask(&there, lock(1, false));
    let shared = connect(second.unix());
    let waiting = || {
        let Answer::Report(text) = ask(&there, Call::ServerReport) else { panic!() };
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["lock_waits"].as_u64().unwrap()
    };
    std::thread::scope(|scope| {
        let wait_as = |who: u32| {
            let (shared, owner) = (&shared, u64::from(who));
            scope.spawn(move || {
                let came = fault(
                    shared.call(&uid(who), lock(owner, true), None).map(|reply| reply.answer),
                );
                shared.call(&Caller::ROOT, unlock(owner), None).unwrap();
                came
            })
        };
        let waits: Vec<_> = [4711, 4712].map(wait_as).into();
        wait_for("two who wait", || waiting() == 2);
        let (number, missing) = fence(&here, Whom::User(joe));
        let left = waiting();
        ask(&there, unlock(1));
        let came: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
        assert_eq!((missing, left), (0, 1), "one of them alone, when the call returns");
        assert_eq!(came, [Some(Fault::Fenced), None]);
        unfence(&here, number);
    });
}

#[test]
fn a_server_that_does_not_confirm_is_named_and_the_fence_stands() {
    let (first, mut second) = two();
    let here = connect(first.unix());
    let joe = user(&here, "joe", 4711);
    let file = open_file(&here, "f");
    let there = connect(second.unix());
    let elsewhere = open_file(&there, "f");
    drop(there);
    second.crash();
    let (number, missing) = fence(&here, Whom::User(joe));
    assert_eq!(missing, 1);
    assert_eq!(fault(write_as(&here, &uid(4711), file, 1)), Some(Fault::Fenced));
    second.start();
    let there = connect(second.unix());
    // A session that only the fenced user had used would end by the fence.
    root(&there);
    wait_for("the fence at the server that came back", || {
        fault(write_as(&there, &uid(4711), elsewhere, 1)) == Some(Fault::Fenced)
    });
    unfence(&here, number);
    assert_eq!(fault(write_as(&there, &uid(4711), elsewhere, 1)), None);
}

#[test]
fn fences_end_by_themselves_and_outlive_the_server() {
    let mut first = two().0;
    let here = connect(first.unix());
    let joe = user(&here, "joe", 4711);
    let file = open_file(&here, "f");
    rule(&here, GuardCall::AddFence { whom: Whom::User(joe), seconds: 3600, why: String::new() })
        .unwrap();
    drop(here);
    first.crash();
    first.start();
    let here = connect(first.unix());
    assert_eq!(fault(write_as(&here, &uid(4711), file, 1)), Some(Fault::Fenced));
    rule(&here, GuardCall::AddFence { whom: Whom::User(joe), seconds: 1, why: String::new() })
        .unwrap();
    wait_for("the end of the fence", || fault(write_as(&here, &uid(4711), file, 1)).is_none());
}

#[test]
fn only_administrators_fence_and_the_sockets_root_is_not_fenced() {
    let (first, second) = two();
    let (here, there) = (connect(first.unix()), connect(second.unix()));
    user(&here, "joe", 4711);
    for session in [&here, &there] {
        for call in [
            GuardCall::Fences { after: 0, max: 1 },
            GuardCall::AddFence { whom: Whom::Token(5), seconds: 0, why: String::new() },
            GuardCall::AddMandate {
                principal: PrincipalId(1),
                realm: types::Realm::Volumes("*".into()),
            },
        ] {
            for behalf in [None, Some(PrincipalId::NONE)] {
                let call = Call::Guard { behalf, call: Box::new(call.clone()) };
                let asked = session.call(&uid(4711), call, None).map(|reply| reply.answer);
                assert_eq!(fault(asked), Some(Fault::NotPermitted));
            }
        }
    }
    // Its session ends, like any other, and yet it may make all calls.
    let numbers: Vec<u64> = sessions(&here)
        .into_iter()
        .map(|mine| fence(&connect(first.unix()), Whom::Session(types::SessionId(mine))).0)
        .collect();
    let again = connect(first.unix());
    numbers.into_iter().for_each(|number| unfence(&again, number));
}

#[test]
fn a_new_server_in_the_cell_has_the_fences() {
    let first = Cell::with(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
    });
    wait_for("the first server in the cell", || servers(&first) == 1);
    let here = connect(first.unix());
    let made = fence(&here, Whom::Hosts { address: [127, 0, 0, 1].into(), prefix: 32 });
    assert_eq!(made.1, 0);
    for known in 2..8 {
        let new = Cell::with(|config| config.cell = Some(CellPlace::At(first.unix())));
        wait_for("the new server in the cell", || servers(&first) == known);
        let call = Call::Root { volume: name("root") };
        assert_eq!(
            fault(connect(new.tcp()).call(&uid(4711), call, None).map(|reply| reply.answer)),
            Some(Fault::Fenced)
        );
    }
}

#[test]
fn a_fence_holds_at_a_server_started_without_the_database() {
    let (mut first, mut second) = two();
    second.crash();
    second.config.rules = Some(second.path("rules"));
    second.start();
    let file = open_file(&connect(second.unix()), "f");
    let (number, missing) =
        fence(&connect(first.unix()), Whom::Hosts { address: [127, 0, 0, 1].into(), prefix: 32 });
    assert_eq!(missing, 0);
    let writes = |second: &Cell| fault(write_as(&connect(second.tcp()), &uid(4711), file, 1));
    assert_eq!(writes(&second), Some(Fault::Fenced));
    second.crash();
    first.crash();
    second.start();
    assert_eq!(writes(&second), Some(Fault::Fenced));
    // Without the file the fence would not hold.
    let kept = second.config.rules.take();
    second.crash();
    second.start();
    assert_eq!(writes(&second), None);
    second.crash();
    second.config.rules = kept;
    second.start();
    first.start();
    unfence(&connect(first.unix()), number);
    wait_for("the end of the fence", || writes(&second).is_none());
    second.crash();
    first.crash();
    second.start();
    assert_eq!(writes(&second), None, "the end is stored too");
}
