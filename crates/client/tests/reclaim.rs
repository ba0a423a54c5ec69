//! Restarts of the server: other calls wait while locks and holds are claimed, and what the earlier
//! instance executed is not executed again.

use std::sync::Arc;
use std::time::Duration;

use crate::common::events::{Event, Recorder};
use crate::common::{
    Calling, FID, ScriptedServer, call, call_with, get_status, is_write, status, write, written,
};
use client::{CallError, Cancel, Remote, Session, SessionConfig};
use types::{Answer, ByteRange, Call, Fault, LockFamily, LockMode, LockOwner};

fn claim() -> Call {
    Call::Lock {
        fid: FID,
        owner: LockOwner(5),
        pid: 9,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait: false,
        reclaim: true,
    }
}

fn is_done(call: &Call) -> bool {
    matches!(call, Call::ReclaimDone)
}

fn is_claim(call: &Call) -> bool {
    matches!(call, Call::Lock { reclaim: true, .. })
}

#[test]
fn cb5_calls_wait_while_locks_are_claimed() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().extend([claim(), Call::Hold { fids: vec![FID] }]);
    let before = server.verifier();
    server.restart(false);
    let claimed = server.next();
    assert_eq!(claimed.call, claim());
    let waits = call(&session, write("later"));
    let chained = {
        let session = Arc::clone(&session);
        std::thread::spawn(move || session.chain(&types::Caller::ROOT, vec![get_status()]))
    };
    server.answer(&claimed, Answer::Done);
    let held = server.next();
    assert_eq!(held.call, Call::Hold { fids: vec![FID] });
    server.answer(&held, Answer::Done);
    recorder.wait_restarts(1);
    let done = server.next();
    assert_eq!(done.call, Call::ReclaimDone, "nothing else before the end of the reclaim");
    assert!(!waits.is_over() && !chained.is_finished());
    server.answer(&done, Answer::Done);
    let later = server.next_of(is_write);
    server.answer(&later, written("later", 2));
    server.answer(&server.next(), Answer::Status(status(FID, 2)));
    let reply = waits.result().unwrap();
    assert_eq!(reply.verifier, Some(server.verifier()));
    assert_ne!(server.verifier(), before, "the answer names the new instance");
    assert!(chained.join().unwrap()[0].is_ok());
    let outcomes = Event::Restarted(vec![Ok(Answer::Done), Ok(Answer::Done)]);
    assert!(recorder.log().contains(&outcomes), "{:?}", recorder.log());
    assert!(!recorder.log().contains(&Event::LeaseLost));
}

#[test]
fn eo1_what_the_earlier_instance_executed_is_not_repeated() {
    let server = ScriptedServer::start();
    let session = server.session();
    server.always(|call| is_done(call).then_some(Ok(Answer::Done)));
    let changing = call(&session, write("once"));
    let received = server.next();
    // It executes, dies before the answer is out, and has recorded it.
    server.answer_and_lose(&received, written("once", 2));
    server.restart(false);
    assert_eq!(changing.answer(), written("once", 2));
    assert_eq!(server.look(|state| state.count(is_write)), 1);
}

#[test]
fn a_call_that_the_earlier_instance_did_not_execute_is_executed() {
    let server = ScriptedServer::start();
    let session = server.session();
    server.always(|call| is_done(call).then_some(Ok(Answer::Done)));
    let changing = call(&session, write("once"));
    let lost = server.next();
    server.restart(false);
    let again = server.next();
    assert_eq!((again.call.clone(), again.origin), (lost.call, lost.origin), "in the same slot");
    server.answer(&again, written("once", 2));
    assert_eq!(changing.answer(), written("once", 2));
}

#[test]
fn a_restart_during_a_reclaim_begins_it_anew() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    server.next_of(is_claim);
    server.restart(false);
    let waits = call(&session, get_status());
    // The first reclaim's claim is sent again, then it ends; the second one claims again.
    let mut claims = 0;
    let asked = loop {
        let received = server.next();
        match &received.call {
            Call::Lock { .. } => claims += 1,
            Call::ReclaimDone => assert!(claims > 0, "it ends after its claims"),
            _ => break received,
        }
        server.answer(&received, Answer::Done);
    };
    recorder.wait_restarts(2);
    assert!(claims >= 2, "the second instance has the claims too");
    server.answer(&asked, Answer::Status(status(FID, 2)));
    assert_eq!(waits.answer(), Answer::Status(status(FID, 2)));
}

#[test]
fn lk4_a_lost_end_of_a_reclaim_does_not_end_the_next_one() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    server.answer(&server.next_of(is_claim), Answer::Done);
    server.next_of(is_done);
    // The instance dies before it answers the end.
    server.restart(false);
    let first = server.next();
    assert_eq!(first.call, claim(), "the next instance gets claims before any end");
    server.answer(&first, Answer::Done);
    server.answer(&server.next_of(is_done), Answer::Done);
    recorder.wait_restarts(2);
    let asked = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asked.result().is_ok());
}

#[test]
fn lk4_a_reclaim_that_a_restart_overtook_ends_no_other() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    let hold = Call::Hold { fids: vec![FID] };
    recorder.claims.lock().extend([hold.clone(), claim()]);
    server.restart(false);
    let held = server.next();
    assert_eq!(held.call, hold);
    server.answer(&held, Answer::Done);
    server.next_of(is_claim);
    // The next instance knows nothing of the hold that the last one was told.
    server.restart(false);
    let mut told = Vec::new();
    loop {
        let received = server.next();
        server.answer(&received, Answer::Done);
        if is_done(&received.call) {
            break;
        }
        told.push(received.call);
    }
    assert!(told.contains(&hold) && told.contains(&claim()), "{told:?} and then the end");
    recorder.wait_restarts(2);
    assert!(call_ends(&server, &session));
}

/// Whether calls go through.
fn call_ends(server: &ScriptedServer, session: &Arc<client::Session>) -> bool {
    let asked = call(session, get_status());
    server.answer(&server.next_of(|call| *call == get_status()), Answer::Status(status(FID, 1)));
    asked.result().is_ok()
}

#[test]
fn a_deadline_counts_during_a_reclaim_too() {
    let server = ScriptedServer::start();
    let call_within = Some(Duration::from_millis(200));
    let config = SessionConfig { call_within, ..server.config() };
    let session = Arc::new(Session::connect(config).unwrap());
    let recorder = Recorder::of(&*session);
    // Each claim takes as long as one call may.
    recorder.claims.lock().extend((0..10).map(|_| claim()));
    server.restart(false);
    server.next_of(is_claim);
    let asked = call(&session, get_status());
    assert_eq!(asked.error(), CallError::TimedOut);
    assert_eq!(recorder.count(|event| matches!(event, Event::Restarted(_))), 0, "in time");
}

#[test]
fn a_server_that_forgot_the_session_gets_no_claims() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    let changing = call(&session, write("once"));
    server.next();
    let asking = call(&session, get_status());
    server.next();
    server.restart(true);
    assert_eq!(changing.error(), CallError::Lost);
    recorder.wait(1, |event| *event == Event::LeaseLost);
    let again = server.next();
    assert_eq!(again.call, get_status(), "a question is asked again, and nothing is claimed");
    server.answer(&again, Answer::Status(status(FID, 2)));
    assert_eq!(asking.result().unwrap().verifier, Some(server.verifier()));
    assert_eq!(server.look(|state| (state.count(is_claim), state.count(is_done))), (0, 0));
    assert_eq!(recorder.count(|event| matches!(event, Event::Restarted(_))), 0);
}

#[test]
fn a_call_that_waits_for_a_reclaim_can_be_cancelled() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    let claimed = server.next();
    let cancels: Vec<Cancel> = (0..3).map(|_| Cancel::new()).collect();
    let calls = [write("x"), get_status(), claim()];
    let waiting: Vec<Calling> = calls
        .into_iter()
        .zip(&cancels)
        .map(|(one, cancel)| call_with(&session, one, Some(cancel)))
        .collect();
    cancels.iter().for_each(Cancel::cancel);
    for one in waiting {
        assert_eq!(one.error(), CallError::Cancelled);
    }
    server.answer(&claimed, Answer::Done);
    server.answer(&server.next_of(is_done), Answer::Done);
    assert_eq!(server.look(|state| state.count(is_write)), 0, "it was never sent");
}

#[test]
fn a_refused_end_of_a_reclaim_holds_up_no_call() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    server.answer(&server.next_of(is_claim), Fault::Locked);
    server.answer(&server.next_of(is_done), Fault::Invalid);
    recorder.wait_restarts(1);
    let refused = Event::Restarted(vec![Err(CallError::Fault(Fault::Locked))]);
    assert!(recorder.log().contains(&refused));
    let asked = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asked.result().is_ok());
}

#[test]
fn a_session_can_be_closed_during_a_reclaim() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    server.next_of(is_claim);
    let waits = call(&session, get_status());
    session.detach();
    assert!(matches!(waits.error(), CallError::Closed | CallError::Lost));
    recorder.wait_restarts(1);
}

#[test]
fn delegated_changes_pass_while_others_wait() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim());
    server.restart(false);
    let claimed = server.next();
    let delegated =
        Call::Delegated { at: types::Timestamp::default(), slot: 0, call: Box::new(write("d")) };
    let chaining = {
        let (session, calls) = (Arc::clone(&session), vec![delegated]);
        std::thread::spawn(move || session.chain(&types::Caller::ROOT, calls))
    };
    let received = server.next_of(|call| matches!(call, Call::Delegated { .. }));
    server.answer(&received, written("d", 2));
    assert!(chaining.join().unwrap()[0].is_ok());
    server.answer(&claimed, Answer::Done);
    server.answer(&server.next_of(is_done), Answer::Done);
}
