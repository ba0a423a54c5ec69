//! Interrupted calls. A call that leaves nothing behind is given up at once; any other is waited
//! for as long as the server is reachable, because its outcome matters.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::common::events::{Event, Recorder};
use crate::common::{
    DIR, FID, LIMIT, ScriptedServer, call, call_with, get_status, name, status, write, written,
};
use client::{CallError, Cancel, Remote};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use types::{
    Answer, ByteRange, Call, Caller, Cookie, CreateHow, Fault, Lending, LockFamily, LockMode,
    LockOwner, NewKind, SeekWhat,
};

fn lend(how: Lending) -> Call {
    Call::LendBody { fid: FID, how }
}

fn lock() -> Call {
    Call::Lock {
        fid: FID,
        owner: LockOwner(5),
        pid: 9,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait: true,
        reclaim: false,
    }
}

/// Calls that leave nothing behind.
fn questions() -> Vec<Call> {
    vec![
        get_status(),
        Call::Lookup { dir: DIR, name: name("x") },
        Call::ReadDir { dir: DIR, cookie: Cookie::START, bytes_max: 4096, plus: true },
        Call::ReadLink { fid: FID },
        Call::Read { fid: FID, offset: 0, length: 4096 },
        Call::Seek { fid: FID, offset: 0, what: SeekWhat::Hole },
        Call::ReadSums { fid: FID, first: 0, count: 4 },
        Call::VolumeStatus { fid: FID },
        lend(Lending::Read),
        Call::OpenBody { fid: FID },
        Call::Commit { fid: FID },
        Call::ServerReport,
    ]
}

/// Calls that leave something at the server: a change, or a state of the session.
fn changes() -> Vec<Call> {
    vec![
        write("x"),
        Call::Make {
            dir: DIR,
            name: name("x"),
            kind: NewKind::File,
            mode: 0o600,
            how: CreateHow::Guarded,
        },
        Call::SetStatus { fid: FID, change: Default::default() },
        lock(),
        lend(Lending::Write),
        lend(Lending::Join),
        Call::LendBlank { fid: FID },
        Call::SettleBody { fid: FID, back: true },
        Call::AdoptBody { fid: FID, blank: 3 },
        Call::Delegate { fid: DIR },
        Call::Hold { fids: vec![FID] },
    ]
}

/// A descriptor, and its other end.
fn pair() -> (OwnedFd, OwnedFd) {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.into(), other.into())
}

/// Waits until no process has the other end of a pair any more.
fn wait_closed(end: &OwnedFd) {
    let until = Instant::now() + LIMIT;
    loop {
        let mut fds = [PollFd::new(end, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        if fds[0].revents().contains(PollFlags::HUP) {
            return;
        }
        assert!(Instant::now() < until, "the descriptor stays open");
    }
}

#[test]
fn a_question_is_given_up_at_once_though_the_server_hangs() {
    let server = ScriptedServer::start();
    let session = server.session();
    for question in questions() {
        let cancel = Cancel::new();
        let asking = call_with(&session, question.clone(), Some(&cancel));
        let received = server.next();
        assert_eq!(received.call, question);
        cancel.cancel();
        assert_eq!(asking.error(), CallError::Cancelled, "{question:?}");
        server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
    }
}

#[test]
fn a_change_is_waited_for_and_its_answer_counts() {
    let server = ScriptedServer::start();
    let session = server.session();
    for change in changes() {
        let cancel = Cancel::new();
        let changing = call_with(&session, change.clone(), Some(&cancel));
        let received = server.next();
        cancel.cancel();
        server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
        // Another call goes through meanwhile; the interrupted one waits.
        let asking = call(&session, get_status());
        server.answer(&server.next(), Answer::Status(status(FID, 1)));
        assert!(asking.result().is_ok());
        assert!(!changing.is_over(), "{change:?}");
        server.answer(&received, Fault::NoSpace);
        assert_eq!(changing.error(), CallError::Fault(Fault::NoSpace), "{change:?}");
    }
}

#[test]
fn a_change_that_the_server_ended_is_cancelled() {
    let server = ScriptedServer::start();
    let session = server.session();
    for change in changes() {
        let cancel = Cancel::new();
        let changing = call_with(&session, change.clone(), Some(&cancel));
        let received = server.next();
        cancel.cancel();
        server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
        server.answer(&received, Fault::Cancelled);
        assert_eq!(changing.error(), CallError::Cancelled, "{change:?}");
    }
}

#[test]
fn a_change_that_came_too_late_to_be_cancelled_succeeds() {
    let server = ScriptedServer::start();
    let session = server.session();
    let cancel = Cancel::new();
    let changing = call_with(&session, write("x"), Some(&cancel));
    let received = server.next();
    cancel.cancel();
    server.answer(&received, written("x", 2));
    assert_eq!(changing.answer(), written("x", 2));
}

#[test]
fn without_a_server_an_interrupted_change_is_of_unknown_outcome() {
    for change in changes() {
        let server = ScriptedServer::start();
        let session = server.session();
        let recorder = Recorder::of(&*session);
        let cancel = Cancel::new();
        let changing = call_with(&session, change.clone(), Some(&cancel));
        let received = server.next();
        server.go_down();
        recorder.wait(1, |event| *event == Event::Parted);
        assert!(!changing.is_over(), "it waits as long as it is not interrupted");
        cancel.cancel();
        assert_eq!(changing.error(), CallError::Lost, "{change:?}");
        // The client goes on with the session, and tells the server.
        server.come_up();
        server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
        server.answer(&received, Fault::Cancelled);
        let asking = call(&session, get_status());
        server.answer(&server.next(), Answer::Status(status(FID, 1)));
        assert!(asking.result().is_ok());
    }
}

#[test]
fn a_call_that_was_never_sent_is_cancelled_whatever_it_is() {
    let server = ScriptedServer::start();
    let session = server.session();
    let recorder = Recorder::of(&*session);
    server.go_down();
    recorder.wait(1, |event| *event == Event::Parted);
    let connections = server.look(|state| state.connections);
    for one in [write("x"), lend(Lending::Write), get_status()] {
        let cancel = Cancel::new();
        let calling = call_with(&session, one.clone(), Some(&cancel));
        cancel.cancel();
        let error = calling.error();
        assert!(matches!(error, CallError::Cancelled), "{one:?}: {error}");
    }
    server.come_up();
    server.wait("the client is back", |state| state.connections > connections);
    let asking = call(&session, Call::ReadLink { fid: FID });
    let received = server.next();
    assert_eq!(received.call, Call::ReadLink { fid: FID }, "the others were never sent");
    server.answer(&received, Fault::Invalid);
    assert!(asking.result().is_err());
}

#[test]
fn an_interrupt_before_the_call_counts_too() {
    let server = ScriptedServer::start();
    let session = server.session();
    let cancel = Cancel::new();
    cancel.cancel();
    let asked = session.call(&Caller::ROOT, get_status(), Some(&cancel));
    assert_eq!(asked.unwrap_err(), CallError::Cancelled);
}

#[test]
fn questions_in_a_chain_are_given_up_together() {
    let server = ScriptedServer::start();
    let session = server.session();
    let cancel = Cancel::new();
    let (take, taken) = std::sync::mpsc::channel();
    let chaining = {
        let (session, cancel) = (session.clone(), cancel.clone());
        std::thread::spawn(move || {
            let calls = vec![get_status(), get_status(), get_status()];
            session.chain_each_until(&Caller::ROOT, calls, &cancel, &mut |_, result| {
                take.send(result).unwrap();
            });
        })
    };
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    assert!(taken.recv_timeout(LIMIT).unwrap().is_ok());
    server.next();
    cancel.cancel();
    chaining.join().unwrap();
    let rest: Vec<_> = taken.iter().collect();
    assert_eq!(rest.len(), 2, "each call has its result");
    for result in rest {
        assert_eq!(result.unwrap_err(), CallError::Cancelled);
    }
}

#[test]
fn a_loan_reaches_its_caller_with_its_descriptor() {
    let server = ScriptedServer::start();
    let session = server.session();
    let lending = call(&session, lend(Lending::Write));
    let (ours, theirs) = pair();
    server.answer_with_body(&server.next(), Answer::Body { status: status(FID, 3) }, theirs);
    let reply = lending.result().unwrap();
    assert_eq!(reply.answer, Answer::Body { status: status(FID, 3) });
    let body = reply.body.expect("the descriptor came beside the answer");
    rustix::io::write(&body, b"through").unwrap();
    let mut bytes = [0; 16];
    assert_eq!(rustix::io::read(&ours, &mut bytes).unwrap(), 7);
    drop(body);
    wait_closed(&ours);
}

#[test]
fn a_loan_whose_answer_was_lost_comes_over_the_next_connection() {
    let server = ScriptedServer::start();
    let session = server.session();
    let lending = call(&session, lend(Lending::Write));
    let first = server.next();
    server.answer_and_lose(&first, Answer::Body { status: status(FID, 3) });
    // A loan is lent again to the session that has it, in the slot of the lost answer.
    let again = server.next();
    assert!(again.repeated);
    assert_eq!((again.call.clone(), again.origin), (first.call, first.origin));
    let (ours, theirs) = pair();
    server.answer_with_body(&again, Answer::Body { status: status(FID, 3) }, theirs);
    let reply = lending.result().unwrap();
    assert!(reply.body.is_some());
    drop(reply);
    wait_closed(&ours);
}

#[test]
fn an_executed_loan_that_is_interrupted_is_of_unknown_outcome() {
    for how in [Lending::Write, Lending::Join] {
        let server = ScriptedServer::start();
        let session = server.session();
        let recorder = Recorder::of(&*session);
        let cancel = Cancel::new();
        let lending = call_with(&session, lend(how), Some(&cancel));
        let received = server.next();
        server.answer_and_lose(&received, Answer::Body { status: status(FID, 3) });
        server.go_down();
        recorder.wait(1, |event| *event == Event::Parted);
        cancel.cancel();
        // Not `Cancelled`: the server has lent the body, and the caller must give it back.
        assert_eq!(lending.error(), CallError::Lost);
        server.come_up();
        // The machine asks for the answer; no caller takes it, and its descriptor is closed.
        let again = server.next();
        let (ours, theirs) = pair();
        server.answer_with_body(&again, Answer::Body { status: status(FID, 3) }, theirs);
        wait_closed(&ours);
        let settling = call(&session, Call::SettleBody { fid: FID, back: true });
        let settled = server.next();
        assert_eq!(settled.call, Call::SettleBody { fid: FID, back: true });
        server.answer(&settled, Answer::Status(status(FID, 3)));
        assert!(settling.result().is_ok());
    }
}

#[test]
fn a_loan_in_a_session_that_ends_is_not_asked_for_again() {
    let server = ScriptedServer::start();
    let session = server.session();
    let lending = call(&session, lend(Lending::Write));
    let blank = call(&session, Call::LendBlank { fid: FID });
    server.next();
    server.next();
    server.end_sessions();
    assert_eq!(lending.error(), CallError::Lost);
    assert_eq!(blank.error(), CallError::Lost);
    let asked = call(&session, get_status());
    let next = server.next();
    assert_eq!(next.call, get_status());
    server.answer(&next, Answer::Status(status(FID, 1)));
    assert!(asked.result().is_ok());
}

#[test]
fn an_interrupted_question_is_cancelled_though_its_session_ends() {
    let server = Arc::new(ScriptedServer::start());
    let session = server.session();
    let cancel = Cancel::new();
    // Fires before the call registers: the session ends while the interrupt is under way.
    let (ending, over) = (Arc::clone(&server), Arc::new(AtomicBool::new(false)));
    let ended = Arc::clone(&over);
    let _ends_sessions = cancel.on_cancel(move || {
        ending.end_sessions();
        while !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let asking = call_with(&session, get_status(), Some(&cancel));
    server.next();
    let interrupting = std::thread::spawn(move || cancel.cancel());
    let error = asking.error();
    over.store(true, Ordering::SeqCst);
    interrupting.join().unwrap();
    assert_eq!(error, CallError::Cancelled, "a question has no unknown outcome");
}

#[test]
fn a_descriptor_for_a_caller_that_gave_up_is_closed() {
    let server = ScriptedServer::start();
    let session = server.session();
    let cancel = Cancel::new();
    let opening = call_with(&session, Call::OpenBody { fid: FID }, Some(&cancel));
    let received = server.next();
    cancel.cancel();
    assert_eq!(opening.error(), CallError::Cancelled);
    let (ours, theirs) = pair();
    server.answer_with_body(&received, Answer::Body { status: status(FID, 3) }, theirs);
    // A later call receives what came before.
    let asking = call(&session, get_status());
    server.answer(&server.next(), Answer::Status(status(FID, 1)));
    let reply = asking.result().unwrap();
    assert!(reply.body.is_none(), "a descriptor belongs to one answer");
    wait_closed(&ours);
    assert!(ours.as_fd().try_clone_to_owned().is_ok());
}
