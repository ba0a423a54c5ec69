//! Credits: a client has no more calls in progress than the server allows (DA-1), and those that
//! others may wait for are not behind those that wait.

use std::sync::Arc;

use crate::common::{
    Calling, FID, ScriptedServer, call, call_with, get_status, is_write, status, write, written,
};
use client::{CallError, Cancel, Remote};
use types::{Answer, ByteRange, Call, Caller, Fault, LockFamily, LockMode, LockOwner, SessionId};

fn lock(owner: u64) -> Call {
    Call::Lock {
        fid: FID,
        owner: LockOwner(owner),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait: true,
        reclaim: false,
    }
}

fn unlock(owner: u64) -> Call {
    let (owner, family, range) = (LockOwner(owner), LockFamily::Posix, ByteRange::ALL);
    Call::Unlock { fid: FID, owner, family, range }
}

#[test]
fn da1_no_more_calls_are_in_progress_than_there_are_credits() {
    let credits = 6;
    let server = ScriptedServer::with_slots(64, Some(credits));
    let session = server.session();
    let calls: Vec<Calling> = (0..40).map(|_| call(&session, write("x"))).collect();
    for _ in 0..40 {
        let received = server.next();
        assert!(received.origin.slot < credits, "slot {}", received.origin.slot);
        server.answer(&received, written("x", 2));
    }
    calls.into_iter().for_each(|one| assert!(one.result().is_ok()));
    let most = server.look(|state| state.in_progress_max);
    assert!(most <= credits as usize, "{most} at a time");
}

#[test]
fn more_credits_are_used_and_fewer_respected() {
    let server = ScriptedServer::with_slots(64, Some(4));
    let session = server.session();
    let calls: Vec<Calling> = (0..30).map(|_| call(&session, write("x"))).collect();
    let first = server.next();
    server.grant(16);
    server.wait("more calls at a time", |state| state.in_progress_max > 4);
    server.grant(5);
    server.answer(&first, written("x", 2));
    for _ in 1..30 {
        server.answer(&server.next(), written("x", 2));
    }
    calls.into_iter().for_each(|one| assert!(one.result().is_ok()));
    assert!(server.look(|state| state.in_progress_max) <= 16);
    // All that was in progress under the higher number is over: now the lower one counts.
    let calls: Vec<Calling> = (0..20).map(|_| call(&session, write("x"))).collect();
    for _ in 0..20 {
        let received = server.next();
        assert!(received.origin.slot < 5, "slot {}", received.origin.slot);
        server.answer(&received, written("x", 2));
    }
    calls.into_iter().for_each(|one| assert!(one.result().is_ok()));
}

#[test]
fn locks_that_wait_leave_room_for_others_and_for_unlocks() {
    let server = ScriptedServer::with_slots(8, Some(4));
    let session = server.session();
    let waiting: Vec<Calling> = (0..12).map(|owner| call(&session, lock(owner))).collect();
    let granted = server.next_of(|call| matches!(call, Call::Lock { .. }));
    // None of them is answered, and still a write and an unlock go through.
    let writing = call(&session, write("x"));
    server.answer(&server.next_of(is_write), written("x", 2));
    assert!(writing.result().is_ok());
    let unlocking = call(&session, unlock(99));
    let received = server.next_of(|call| matches!(call, Call::Unlock { .. }));
    server.answer(&received, Answer::Done);
    assert_eq!(unlocking.answer(), Answer::Done);
    server.answer(&granted, Answer::Done);
    for _ in 1..12 {
        let next = server.next_of(|call| matches!(call, Call::Lock { .. }));
        server.answer(&next, Answer::Done);
    }
    waiting.into_iter().for_each(|one| assert_eq!(one.answer(), Answer::Done));
}

#[test]
fn an_urgent_question_is_not_behind_writes() {
    let server = ScriptedServer::with_slots(4, None);
    let session = server.session();
    let writing: Vec<Calling> = (0..20).map(|_| call(&session, write("x"))).collect();
    let held = server.next();
    let urgent = {
        let session = Arc::clone(&session);
        std::thread::spawn(move || session.call_urgently(&Caller::ROOT, get_status(), None))
    };
    // The writes in progress are not answered.
    let asked = server.next_of(|call| *call == get_status());
    server.answer(&asked, Answer::Status(status(FID, 1)));
    assert!(urgent.join().unwrap().is_ok());
    server.answer(&held, written("x", 2));
    for _ in 1..20 {
        server.answer(&server.next(), written("x", 2));
    }
    writing.into_iter().for_each(|one| assert!(one.result().is_ok()));
}

#[test]
fn credits_survive_lost_connections() {
    let server = ScriptedServer::with_slots(32, Some(5));
    let session = server.session();
    let calls: Vec<Calling> = (0..30).map(|_| call(&session, write("x"))).collect();
    for round in 0..30 {
        let received = server.next();
        if round % 7 == 3 {
            server.answer_and_lose(&received, written("x", 2));
        } else {
            server.answer(&received, written("x", 2));
        }
    }
    calls.into_iter().for_each(|one| assert!(one.result().is_ok()));
    assert_eq!(server.look(|state| state.count(is_write)), 30, "each exactly once");
    assert!(server.look(|state| state.in_progress_max) <= 5);
}

#[test]
fn a_faulty_call_gives_its_credit_back() {
    let server = ScriptedServer::with_slots(4, None);
    let session = server.session();
    server.always(|call| is_write(call).then_some(Err(Fault::NoSpace)));
    for _ in 0..20 {
        assert!(session.call(&Caller::ROOT, write("x"), None).is_err());
    }
    // More than the protocol carries is refused here, and takes none either.
    let data = vec![0; types::limits::PAYLOAD_BYTES_MAX + 1].into();
    let huge = Call::Write { fid: FID, offset: None, data, stable: false, kill_privileges: false };
    for _ in 0..8 {
        let refused = session.call(&Caller::ROOT, huge.clone(), None);
        assert_eq!(refused.unwrap_err().fault(), Some(Fault::Invalid));
    }
    assert_eq!(server.look(|state| state.count(is_write)), 20);
    let asking = call(&session, get_status());
    let received = server.next();
    assert_ne!(received.origin.session, SessionId(0));
    server.answer(&received, Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok());
}

#[test]
fn a_call_of_the_session_is_not_sent_after_its_connection() {
    let server = ScriptedServer::with_slots(64, Some(4));
    let session = server.session();
    // One of the credits is for calls that end waiting.
    let sent: Vec<Calling> = (0..3).map(|_| call(&session, write("before"))).collect();
    let received: Vec<_> = (0..3).map(|_| server.next()).collect();
    let cancel = Cancel::of_session();
    let bound = call_with(&session, write("bound"), Some(&cancel));
    let free = call(&session, write("free"));
    std::thread::sleep(std::time::Duration::from_millis(50));
    server.go_down();
    assert_eq!(bound.error(), CallError::Cancelled, "it waited for a credit");
    let away = session.call(&Caller::ROOT, write("bound"), Some(&cancel));
    assert_eq!(away.unwrap_err(), CallError::Cancelled, "the server is away");
    server.always(|call| is_write(call).then(|| Ok(written("x", 2))));
    server.come_up();
    server.wait("the client is back", |state| state.attached.len() == 2);
    received.iter().for_each(|one| server.answer(one, written("x", 2)));
    assert!(free.result().is_ok(), "others wait for the server");
    sent.into_iter().for_each(|one| assert!(one.result().is_ok()));
    assert!(session.call(&Caller::ROOT, write("bound"), Some(&cancel)).is_ok());
    let is_bound = |call: &Call| matches!(call, Call::Write { data, .. } if &data[..] == b"bound");
    assert_eq!(server.look(|state| state.count(is_bound)), 1);
}
