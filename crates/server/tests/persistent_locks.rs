//! Persistent locks through sockets: programs that die, a server that is killed
//! (docs/spec/sharing.md).

use client::{CallError, Remote, Session};
use types::{
    Answer, ByteRange, Call, Caller, Fault, Fid, LockFamily, LockMode, LockOwner, PersistHow,
};

use crate::common::{Cell, Recorder, ask, connect, make, root, try_ask, wait_for, write};

const OWNER: LockOwner = LockOwner(1);
const RANGE: ByteRange = ByteRange::ALL;

fn lock(fid: Fid, wait: bool, reclaim: bool) -> Call {
    let (owner, range, family, mode) = (OWNER, RANGE, LockFamily::Posix, LockMode::Exclusive);
    Call::Lock { fid, owner, pid: 1, family, range, mode, wait, reclaim }
}

fn persist(fid: Fid, how: PersistHow) -> Call {
    Call::PersistLock { fid, owner: OWNER, pid: 1, range: RANGE, how }
}

fn finish(fid: Fid) -> Call {
    Call::FinishLock { fid, owner: OWNER, range: RANGE }
}

fn refused(session: &Session, call: Call) -> Option<Fault> {
    match try_ask(session, call) {
        Err(CallError::Fault(fault)) => Some(fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pl1_who_waits_for_a_program_that_dies_learns_of_it() {
    let cell = Cell::new();
    let [unix, tcp] = cell.both();
    let (holder, waiter) = (connect(unix), connect(tcp));
    let fid = make(&holder, root(&holder), "file");
    write(&holder, fid, 0, &b"half"[..]);
    ask(&holder, persist(fid, PersistHow::New));
    std::thread::scope(|threads| {
        let call = lock(fid, true, false);
        let waiting = threads.spawn(|| waiter.call(&Caller::ROOT, call, None));
        wait_for("the request to wait", || {
            let Answer::Report(text) = ask(&holder, Call::ServerReport) else { panic!() };
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["lock_waits"] == 1
        });
        drop(holder);
        let answer = waiting.join().unwrap();
        assert_eq!(answer.unwrap_err().fault(), Some(Fault::LockBroken));
    });
    ask(&waiter, persist(fid, PersistHow::Repairs));
    ask(&waiter, finish(fid));
    ask(&waiter, lock(fid, false, false));
}

#[test]
fn pl2_a_killed_server_knows_who_had_a_persistent_lock() {
    let mut cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.unix()));
    let (claims, theirs) = (Recorder::of(&holder), Recorder::of(&other));
    let kept = make(&holder, root(&holder), "kept");
    let lost = make(&holder, root(&holder), "lost");
    for fid in [kept, lost] {
        ask(&holder, persist(fid, PersistHow::New));
    }
    claims.claims.lock().push(lock(kept, false, true));
    cell.crash();
    cell.start();
    // Both wait for the end of grace.
    assert_eq!(refused(&other, lock(kept, false, false)), Some(Fault::Locked));
    assert_eq!(refused(&other, lock(lost, false, false)), Some(Fault::LockBroken));
    wait_for("the restart to be reported", || {
        *claims.restarts.lock() == 1 && *theirs.restarts.lock() == 1
    });
    ask(&holder, finish(kept));
    ask(&other, lock(kept, false, false));
    assert_eq!(refused(&holder, lock(lost, false, false)), Some(Fault::LockBroken));
    ask(&holder, finish(lost));
    ask(&other, lock(lost, false, false));
}
