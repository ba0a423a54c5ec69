//! Lost connections and sessions: a change is executed at most once (EO-1), and every call ends
//! exactly once (DA-4).

use std::sync::Arc;
use std::time::Duration;

use crate::common::events::{Event, Recorder};
use crate::common::{
    DIR, FID, ScriptedServer, call, get_status, is_write, make, status, write, written,
};
use bytes::Bytes;
use client::{CallError, Remote, Session, SessionConfig};
use types::{Answer, Call, Caller, DataVersion, Fault, Fid};

#[test]
fn an_answer_and_a_fault_reach_their_caller() {
    let server = ScriptedServer::start();
    let session = server.session();
    let asked = call(&session, get_status());
    let received = server.next();
    assert_eq!((received.call.clone(), received.caller.uid), (get_status(), 0));
    server.answer(&received, Answer::Status(status(FID, 5)));
    let reply = asked.result().unwrap();
    assert_eq!(reply.answer, Answer::Status(status(FID, 5)));
    assert_eq!(reply.verifier, Some(server.verifier()));
    for fault in [Fault::NotFound, Fault::Busy, Fault::Stale, Fault::NoSpace, Fault::Locked] {
        let refused = call(&session, write("x"));
        server.answer(&server.next(), fault);
        assert_eq!(refused.error(), CallError::Fault(fault));
    }
    assert_eq!(server.look(|state| state.count(is_write)), 5, "no fault is tried again");
}

#[test]
fn eo1_a_change_whose_answer_is_lost_is_not_repeated() {
    let server = ScriptedServer::start();
    let session = server.session();
    let changing = call(&session, write("once"));
    server.answer_and_lose(&server.next(), written("once", 2));
    assert_eq!(changing.answer(), written("once", 2));
    assert_eq!(server.look(|state| (state.count(is_write), state.from_record)), (1, 1));
    assert_eq!(server.look(|state| state.attached.len()), 2);
    assert!(server.look(|state| state.attached[1].resume.is_some()), "the session is resumed");
}

#[test]
fn eo1_an_answer_that_ends_in_its_middle_is_asked_for_again() {
    let server = ScriptedServer::start();
    let session = server.session();
    let changing = call(&session, write("once"));
    server.answer_by_half(&server.next(), written("once", 2));
    assert_eq!(changing.answer(), written("once", 2));
    assert_eq!(server.look(|state| (state.count(is_write), state.from_record)), (1, 1));
    // Data in the payload, too.
    let data = Bytes::from(vec![7; 100_000]);
    let answer = Answer::Data { data, end: true, status: status(FID, 2) };
    let reading = call(&session, Call::Read { fid: FID, offset: 0, length: 100_000 });
    server.answer_by_half(&server.next(), answer.clone());
    assert_eq!(reading.answer(), answer);
}

#[test]
fn da2_a_call_in_progress_is_answered_over_the_next_connection() {
    let server = ScriptedServer::start();
    let session = server.session();
    let changing = call(&session, write("once"));
    let received = server.next();
    for round in 1..=3 {
        server.cut();
        server.wait("the client is back", |state| state.attached.len() == 1 + round);
    }
    server.answer(&received, written("once", 2));
    assert_eq!(changing.answer(), written("once", 2));
    assert_eq!(server.look(|state| state.count(is_write)), 1);
}

#[test]
fn calls_wait_for_a_server_that_is_away() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    server.go_down();
    recorder.wait(1, |event| *event == Event::Parted);
    assert!(!session.stands());
    let calls: Vec<_> = (0..8).map(|_| call(&session, write("x"))).collect();
    server.wait("the client tries to connect", |state| state.connections >= 4);
    assert_eq!(server.waiting(), 0);
    server.come_up();
    for _ in 0..8 {
        server.answer(&server.next(), written("x", 2));
    }
    calls.into_iter().for_each(|one| assert_eq!(one.answer(), written("x", 2)));
    assert!(session.stands());
}

#[test]
fn many_callers_get_their_own_answers_across_lost_connections() {
    let server = ScriptedServer::start();
    let session = server.session();
    server.always(|call| match call {
        Call::GetStatus { fid } => Some(Ok(Answer::Status(status(*fid, fid.vnode.0)))),
        Call::Write { fid, data, .. } => Some(Ok(Answer::Written {
            count: data.len() as u32,
            offset: 0,
            status: status(*fid, 2),
            previous_version: DataVersion::FIRST,
            verifier: types::BootVerifier(1),
        })),
        _ => None,
    });
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let session = &session;
            scope.spawn(move || {
                for round in 0..40 {
                    let fid = Fid::new(7, 2 * (1 + thread * 100 + round), 1);
                    let asked = session.call(&Caller::ROOT, Call::GetStatus { fid }, None);
                    assert_eq!(asked.unwrap().answer, Answer::Status(status(fid, fid.vnode.0)));
                    let data = Bytes::from(vec![1; round as usize]);
                    let changed = Call::Write {
                        fid,
                        offset: Some(0),
                        data,
                        stable: true,
                        kill_privileges: false,
                    };
                    let reply = session.call(&Caller::ROOT, changed, None).unwrap();
                    let Answer::Written { count, status, .. } = reply.answer else { panic!() };
                    assert_eq!((count, status.fid), (round as u32, fid));
                }
            });
        }
        for round in 1..=10 {
            server.cut();
            server.wait("the client is back", |state| state.attached.len() > round);
        }
    });
    assert_eq!(server.look(|state| state.count(is_write)), 8 * 40, "each exactly once");
}

#[test]
fn da4_a_lost_session_leaves_changes_unknown_and_asks_again() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    let changing = call(&session, write("once"));
    server.next_of(is_write);
    let asking = call(&session, get_status());
    server.next_of(|call| !is_write(call));
    server.end_sessions();
    assert_eq!(changing.error(), CallError::Lost);
    recorder.wait(1, |event| *event == Event::LeaseLost);
    let again = server.next();
    assert_eq!(again.call, get_status());
    server.answer(&again, Answer::Status(status(FID, 3)));
    assert_eq!(asking.answer(), Answer::Status(status(FID, 3)));
    assert_eq!(server.look(|state| state.count(is_write)), 1);
    assert!(server.look(|state| state.attached.len()) >= 2);
}

#[test]
fn a_call_ends_at_its_deadline_and_is_cancelled_at_the_server() {
    let server = ScriptedServer::start();
    let call_within = Some(Duration::from_millis(50));
    let config = SessionConfig { call_within, ..server.config() };
    let session = Arc::new(Session::connect(config).unwrap());
    assert_eq!(call(&session, write("late")).error(), CallError::TimedOut);
    let received = server.next();
    server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
    server.answer(&received, Fault::Cancelled);
    // Nothing of it is left: the slot takes the next call.
    let next = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert_eq!(next.answer(), Answer::Status(status(FID, 1)));
}

#[test]
fn a_question_in_sessions_that_all_end_has_one_deadline() {
    let server = ScriptedServer::start();
    let call_within = Some(Duration::from_secs(1));
    let config = SessionConfig { call_within, ..server.config() };
    let session = Arc::new(Session::connect(config).unwrap());
    let asking = call(&session, get_status());
    let mut ended = 0;
    while !asking.is_over() {
        // The question, or its end.
        if server.waiting() > 0 {
            server.end_sessions();
            ended += 1;
        }
        std::thread::yield_now();
    }
    assert_eq!(asking.error(), CallError::TimedOut);
    assert!(ended > 0);
}

#[test]
fn a_server_that_refuses_this_client_ends_all_calls() {
    let server = ScriptedServer::start();
    let session = server.session();
    let changing = call(&session, write("x"));
    server.next();
    server.refuse(Some(Fault::Expired));
    server.cut();
    let CallError::Refused(why) = changing.error() else { panic!("not refused") };
    assert!(why.contains("later incarnation"), "{why}");
    assert!(matches!(call(&session, get_status()).error(), CallError::Refused(_)));
    server.refuse(Some(Fault::Busy));
    let within = Some(Duration::from_millis(200));
    let tried = Session::connect(SessionConfig { attach_within: within, ..server.config() });
    assert!(matches!(tried.map(drop), Err(CallError::Refused(_))));
}

#[test]
fn a_full_server_is_tried_again() {
    let server = ScriptedServer::start();
    server.refuse(Some(Fault::Busy));
    let config = server.config();
    let connecting = std::thread::spawn(move || Session::connect(config));
    server.wait("some attempts", |state| state.attached.len() >= 3);
    server.refuse(None);
    let session = Arc::new(connecting.join().unwrap().unwrap());
    let asking = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(asking.result().is_ok());
}

#[test]
fn a_session_that_was_refused_for_good_stays_so() {
    let server = ScriptedServer::start();
    let session = server.session();
    server.refuse(Some(Fault::Expired));
    server.cut();
    let refused = call(&session, get_status()).error();
    assert!(matches!(refused, CallError::Refused(_)), "{refused}");
    server.refuse(None);
    let attempts = server.look(|state| state.attached.len());
    assert!(matches!(call(&session, write("x")).error(), CallError::Refused(_)));
    session.detach();
    assert_eq!(server.look(|state| state.attached.len()), attempts, "it tries no more");
}

#[test]
fn a_closed_session_ends_its_calls_and_detaches_once() {
    let server = ScriptedServer::start();
    let session = server.session();
    let asking = call(&session, get_status());
    server.next();
    session.detach();
    assert!(matches!(asking.error(), CallError::Closed | CallError::Lost));
    server.wait("the detach", |state| state.detached == 1);
    assert_eq!(call(&session, get_status()).error(), CallError::Closed);
    session.detach();
    drop(session);
    assert_eq!(server.look(|state| state.detached), 1);
}

#[test]
fn a_vanished_client_sends_no_farewell() {
    let server = ScriptedServer::start();
    let session = Session::connect(server.config()).unwrap();
    session.vanish();
    server.wait("the connections' end", |state| state.attached.len() == 1);
    assert_eq!(server.look(|state| state.detached), 0);
}

#[test]
fn the_rest_of_a_chain_goes_on_after_a_lost_connection() {
    let server = ScriptedServer::start();
    let session = server.session();
    let file = Fid::new(7, 40, 9);
    let calls = vec![
        make("new"),
        Call::GetStatus { fid: Fid::CURRENT },
        Call::Commit { fid: Fid::CURRENT },
    ];
    let chaining = {
        let session = Arc::clone(&session);
        std::thread::spawn(move || session.chain(&Caller::ROOT, calls))
    };
    let made = server.next();
    assert!(made.chained && matches!(made.call, Call::Make { .. }));
    let answer = Answer::Made { status: status(file, 1), dir: status(DIR, 2), existed: false };
    server.answer(&made, answer);
    let asked = server.next();
    assert_eq!(asked.call, Call::GetStatus { fid: file }, "the file that was made");
    server.answer_and_lose(&asked, Answer::Status(status(file, 1)));
    let last = server.next_of(|call| matches!(call, Call::Commit { .. }));
    assert_eq!(last.call, Call::Commit { fid: file }, "also over another connection");
    server.answer(&last, Answer::Committed { verifier: server.verifier() });
    let results = chaining.join().unwrap();
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(server.look(|state| state.count(|call| matches!(call, Call::Make { .. }))), 1);
}

#[test]
fn a_chain_stops_at_its_first_fault() {
    let server = ScriptedServer::start();
    let session = server.session();
    server.always(|call| match call {
        Call::GetStatus { .. } => Some(Err(Fault::NotFound)),
        Call::Commit { .. } => Some(Ok(Answer::Committed { verifier: Default::default() })),
        _ => None,
    });
    // More than go into one request.
    let mut calls = vec![Call::Commit { fid: FID }, get_status()];
    calls.extend((0..300).map(|_| Call::Commit { fid: FID }));
    let results = session.chain(&Caller::ROOT, calls);
    assert_eq!(results.len(), 302);
    assert!(results[0].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err(), &CallError::Fault(Fault::NotFound));
    for rest in &results[2..] {
        assert_eq!(rest.as_ref().unwrap_err(), &CallError::Fault(Fault::ChainAborted));
    }
    assert_eq!(server.look(|state| state.count(|call| matches!(call, Call::Commit { .. }))), 1);
}

#[test]
fn a_long_chain_takes_its_current_file_from_piece_to_piece() {
    let server = ScriptedServer::start();
    let session = server.session();
    let file = Fid::new(7, 40, 9);
    server.always(move |call| match call {
        Call::GetStatus { fid } => Some(Ok(Answer::Status(status(*fid, 1)))),
        Call::Seek { .. } => Some(Ok(Answer::Offset(0))),
        _ => None,
    });
    let seek = || Call::Seek { fid: Fid::CURRENT, offset: 0, what: types::SeekWhat::Data };
    let mut calls = vec![Call::GetStatus { fid: file }];
    calls.extend((0..300).map(|_| seek()));
    let mut places = Vec::new();
    session.chain_each(&Caller::ROOT, calls, &mut |at, result| {
        assert!(result.is_ok(), "{at}: {result:?}");
        places.push(at);
    });
    assert_eq!(places, (0..=300).collect::<Vec<_>>());
    let others = |call: &Call| matches!(call, Call::Seek { fid, .. } if *fid != file);
    assert_eq!(server.look(|state| state.count(others)), 0);
}
