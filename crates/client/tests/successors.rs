//! A client process that is gone is succeeded by another one, which goes on with its sessions. (The
//! first one ends here with `Session::vanish`, which sends nothing and leaves the keep as it is.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::events::{Event, Recorder};
use crate::common::{
    DIR, FID, ScriptedServer, call, call_with, get_status, is_write, make, status, write, written,
};
use client::{CallError, Cancel, ClientIdentity, ClientOptions, Remote, Session, SessionConfig};
use keep::{Keep, kind};
use types::limits::SLOTS_MAX;
use types::{
    Answer, BreakItem, BreakReason, ByteRange, Call, Caller, ClientId, Fault, Fid, LockFamily,
    LockMode, LockOwner,
};

const CLIENT: ClientId = ClientId(77);

/// A server, and what its client's processes leave to each other.
struct Rig {
    server: ScriptedServer,
    keep: Arc<Keep>,
}

impl Rig {
    fn new() -> Rig {
        Rig { server: ScriptedServer::start(), keep: Keep::create().unwrap() }
    }

    fn config(&self) -> SessionConfig {
        SessionConfig {
            identity: ClientIdentity::with(CLIENT, 3),
            options: ClientOptions {
                keep: Some(Arc::clone(&self.keep)),
                ..ClientOptions::default()
            },
            ..self.server.config()
        }
    }

    /// A process of the client, and whether it goes on with a session.
    fn process(&self) -> (Arc<Session>, bool) {
        let session = Arc::new(Session::connect(self.config()).unwrap());
        let resumed = session.is_resumed();
        (session, resumed)
    }

    /// The process is killed, with the calls that it waits for; another one resumes its session.
    /// The keep is opened anew, as from its descriptor.
    fn succeed(&mut self, session: Arc<Session>) -> Arc<Session> {
        self.kill(session);
        self.succeed_now()
    }

    /// A process that resumes the session of one that has ended.
    fn succeed_now(&self) -> Arc<Session> {
        let (session, resumed) = self.process();
        assert!(resumed);
        session
    }

    fn kill(&mut self, session: Arc<Session>) {
        session.leave();
        drop(session);
        self.keep = Keep::open(self.keep.file().try_clone().unwrap()).unwrap();
    }

    fn records(&self) -> usize {
        (1..7).map(|kind| self.keep.keys(kind).len()).sum()
    }

    /// The thread that received an answer lets go of it a moment after its caller has it.
    fn wait_until_gone(&self, records: impl Fn(&Rig) -> usize) {
        let until = Instant::now() + Duration::from_secs(30);
        while records(self) > 0 {
            assert!(Instant::now() < until, "{} records are left", records(self));
            std::thread::yield_now();
        }
    }
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

fn made(fid: Fid) -> Answer {
    Answer::Made { status: status(fid, 1), dir: status(DIR, 2), existed: false }
}

#[test]
fn eo1_a_repeated_change_gets_the_answer_of_the_first() {
    let mut rig = Rig::new();
    let (session, resumed) = rig.process();
    assert!(!resumed);
    let lost = call(&session, make("new"));
    let received = rig.server.next();
    let session = rig.succeed(session);
    assert!(lost.result().is_err());
    // Executed, and not answered.
    let (again, other) = (Cancel::of_repeated(), Cancel::of_request());
    let repeated = call_with(&session, make("new"), Some(&again));
    // Another request of the same kind is made for itself.
    let own = call_with(&session, make("new"), Some(&other));
    let second = rig.server.next();
    rig.server.answer(&second, Fault::Exists);
    assert_eq!(own.error(), CallError::Fault(Fault::Exists));
    rig.server.answer(&received, made(FID));
    assert_eq!(repeated.answer(), made(FID));
    // It is taken once.
    let third = call_with(&session, make("new"), Some(&again));
    rig.server.answer(&rig.server.next(), Fault::Exists);
    assert_eq!(third.error(), CallError::Fault(Fault::Exists));
    assert_eq!(rig.server.look(|state| state.count(|call| *call == make("new"))), 3);
    assert_eq!(rig.server.look(|state| state.attached[1].incarnation), 3);
}

#[test]
fn eo1_an_answer_stays_until_its_request_is_over() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let request = Cancel::of_request();
    let making = call_with(&session, make("new"), Some(&request));
    rig.server.answer(&rig.server.next(), made(FID));
    assert_eq!(making.answer(), made(FID));
    // Answers of other calls come and go in the same slot.
    for _ in 0..3 {
        let writing = call(&session, write("x"));
        rig.server.answer(&rig.server.next(), written("x", 2));
        writing.answer();
    }
    // Killed before the kernel got its reply.
    std::mem::forget(request);
    let session = rig.succeed(session);
    let request = Cancel::of_repeated();
    let again = call_with(&session, make("new"), Some(&request));
    assert_eq!(again.answer(), made(FID));
    // The successor is killed as well.
    std::mem::forget(request);
    let session = rig.succeed(session);
    let request = Cancel::of_repeated();
    let again = call_with(&session, make("new"), Some(&request));
    assert_eq!(again.answer(), made(FID));
    request.request_over();
    let session = rig.succeed(session);
    let again = call_with(&session, make("new"), Some(&Cancel::of_repeated()));
    rig.server.answer(&rig.server.next(), Fault::Exists);
    assert_eq!(again.error(), CallError::Fault(Fault::Exists));
    assert_eq!(rig.server.look(|state| state.count(|call| *call == make("new"))), 2);
}

#[test]
fn eo1_a_change_without_a_request_is_made_once_and_forgotten() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = [call(&session, write("one")), call(&session, get_status())];
    let received = [rig.server.next(), rig.server.next()];
    let session = rig.succeed(session);
    lost.into_iter().for_each(|lost| assert!(lost.result().is_err()));
    rig.server.wait("the question's end", |state| state.cancelled.len() == 1);
    for received in &received {
        let answer = match received.call {
            Call::GetStatus { .. } => Answer::Status(status(FID, 1)),
            _ => written("one", 2),
        };
        rig.server.answer(received, answer);
    }
    session.forget_orphans();
    for text in ["two", "one"] {
        let writing = call_with(&session, write(text), Some(&Cancel::of_repeated()));
        rig.server.answer(&rig.server.next(), written(text, 3));
        assert_eq!(writing.answer(), written(text, 3));
    }
    assert_eq!(rig.server.look(|state| state.count(is_write)), 3);
    rig.wait_until_gone(|rig| {
        rig.keep.keys(kind::REQUEST).len() + rig.keep.keys(kind::ANSWER).len()
    });
}

#[test]
fn eo1_the_members_of_a_chain_are_asked_for_by_their_calls() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let file = Fid::new(7, 40, 9);
    let current = Call::Write {
        fid: Fid::CURRENT,
        offset: Some(0),
        data: "data".into(),
        stable: false,
        kill_privileges: false,
    };
    let calls = vec![make("new"), current.clone(), make("next")];
    let chaining = {
        let session = Arc::clone(&session);
        std::thread::spawn(move || {
            session.chain_each(&Caller::ROOT, calls, &mut |at, result| {
                // Killed before the second answer is used.
                if at == 1 && result.is_ok() {
                    session.leave();
                    std::thread::park();
                }
            });
        })
    };
    rig.server.answer(&rig.server.next(), made(file));
    let writing = rig.server.next();
    assert!(matches!(writing.call, Call::Write { fid, .. } if fid == file));
    rig.server.answer(&writing, written("data", 2));
    let last = rig.server.next();
    rig.server.wait("the process's end", |state| state.links_now() == 0);
    let session = rig.succeed(session);
    rig.server.answer(&last, made(FID));
    let take =
        |call: &Call| session.take_orphan(&Caller::ROOT, call).map(|got| got.unwrap().answer);
    assert_eq!(take(&make("new")), None, "its answer was used");
    assert_eq!(take(&current), Some(written("data", 2)));
    assert_eq!(take(&make("next")), Some(made(FID)));
    assert_eq!(take(&make("next")), None);
    assert_eq!(rig.server.look(|state| state.executed.len()), 3);
    chaining.thread().unpark();
    chaining.join().unwrap();
}

#[test]
fn lk2_a_lock_that_waits_is_taken_over_or_given_up() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = call(&session, lock(true));
    let received = rig.server.next();
    let session = rig.succeed(session);
    assert!(lost.result().is_err());
    let again = call_with(&session, lock(true), Some(&Cancel::of_repeated()));
    rig.server.answer(&received, Answer::Done);
    assert_eq!(again.answer(), Answer::Done);
    let lost = call(&session, lock(true));
    let received = rig.server.next();
    let session = rig.succeed(session);
    assert!(lost.result().is_err());
    session.forget_orphans();
    rig.server.wait("the cancellation", |state| state.cancelled.contains(&received.origin));
    rig.server.answer(&received, Fault::Cancelled);
    assert_eq!(rig.server.look(|state| state.executed.len()), 2);
}

#[test]
fn cb1_breaks_wait_until_the_successor_is_restored() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let recorder = Recorder::of(&*session);
    *recorder.keeps.lock() = true;
    rig.server.wait("the back connection", |state| state.bound == 1);
    let items = [BreakItem { fid: FID, reason: BreakReason::Data, name: None }];
    let first = rig.server.break_promises(&items);
    recorder.wait_breaks(1);
    // Killed before it acknowledged.
    let dead = session;
    rig.kill(dead);
    let (session, _) = rig.process();
    let second = rig.server.break_promises(&items);
    let recorder_of_dead = recorder;
    let recorder = Recorder::of(&*session);
    rig.server.wait("the back connection", |state| state.bound == 2);
    std::thread::sleep(Duration::from_millis(100));
    assert!(recorder.log().is_empty(), "{:?}", recorder.log());
    assert!(rig.server.look(|state| state.acknowledged.is_empty()));
    session.restored();
    recorder.wait_breaks(2);
    rig.server.wait("both acknowledgements", |state| {
        [first, second].iter().all(|id| state.acknowledged.iter().any(|(ack, _)| ack == id))
    });
    recorder_of_dead.acknowledge();
}

#[test]
fn lk4_locks_are_claimed_once_the_successor_is_restored() {
    let mut rig = Rig::new();
    rig.server.always(|call| match call {
        Call::Lock { reclaim: true, .. } | Call::ReclaimDone => Some(Ok(Answer::Done)),
        _ => None,
    });
    let (session, _) = rig.process();
    let lost = call(&session, write("lost"));
    rig.server.next();
    rig.kill(session);
    assert!(lost.result().is_err());
    rig.server.restart(false);
    let (session, resumed) = rig.process();
    assert!(resumed);
    let claim = Call::Lock {
        fid: FID,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait: false,
        reclaim: true,
    };
    // Restoring may ask questions.
    let asking = call(&session, get_status());
    let asked = rig.server.next_of(|call| *call == get_status());
    rig.server.answer(&asked, Answer::Status(status(FID, 1)));
    asking.answer();
    let recorder = Recorder::of(&*session);
    recorder.claims.lock().push(claim.clone());
    assert_eq!(rig.server.look(|state| state.count(|call| *call == Call::ReclaimDone)), 0);
    session.restored();
    recorder.wait_restarts(1);
    rig.server.wait("the reclaim's end", |state| {
        state.executed.ends_with(&[claim.clone(), Call::ReclaimDone])
    });
    // The new server had no record of the write: it executes it.
    let writing = rig.server.next_of(is_write);
    rig.server.answer(&writing, written("lost", 2));
    let again = call_with(&session, write("lost"), Some(&Cancel::of_repeated()));
    assert_eq!(again.answer(), written("lost", 2));
    // The next successor has nothing to claim.
    let session = rig.succeed(session);
    session.restored();
    let asking = call(&session, get_status());
    rig.server.answer(&rig.server.next(), Answer::Status(status(FID, 1)));
    asking.answer();
    assert_eq!(rig.server.look(|state| state.count(|call| *call == Call::ReclaimDone)), 1);
}

#[test]
fn a_lost_session_leaves_orphans_unknown() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = call(&session, write("lost"));
    rig.server.next();
    rig.kill(session);
    assert!(lost.result().is_err());
    rig.server.restart(true);
    let (session, resumed) = rig.process();
    assert!(resumed, "it learns of the loss from the server");
    let recorder = Recorder::of(&*session);
    session.restored();
    recorder.wait(1, |event| *event == Event::LeaseLost);
    let again = call_with(&session, write("lost"), Some(&Cancel::of_repeated()));
    assert_eq!(again.error(), CallError::Lost);
    // The new session is kept.
    let lost = call(&session, write("next"));
    let received = rig.server.next();
    assert_eq!(received.call, write("next"));
    let session = rig.succeed(session);
    assert!(lost.result().is_err());
    rig.server.answer(&received, written("next", 3));
    let again = call_with(&session, write("next"), Some(&Cancel::of_repeated()));
    assert_eq!(again.answer(), written("next", 3));
}

#[test]
fn eo1_a_lost_change_stays_unknown_until_its_request_is_over() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let request = Cancel::of_request();
    let making = call_with(&session, make("new"), Some(&request));
    rig.server.next();
    // Executed, perhaps: no server instance knows.
    rig.server.restart(true);
    assert_eq!(making.error(), CallError::Lost);
    rig.server.always(|call| (*call == make("new")).then_some(Err(Fault::Exists)));
    // Killed before the kernel got its reply, and so is the successor.
    std::mem::forget(request);
    rig.kill(session);
    let (session, _) = rig.process();
    rig.kill(session);
    let (session, _) = rig.process();
    let request = Cancel::of_repeated();
    let again = call_with(&session, make("new"), Some(&request));
    assert_eq!(again.error(), CallError::Lost);
    assert_eq!(rig.server.look(|state| state.count(|call| *call == make("new"))), 1);
    request.request_over();
    assert_eq!(rig.keep.keys(kind::REQUEST), []);
    let again = call_with(&session, make("new"), Some(&Cancel::of_repeated()));
    assert_eq!(again.error(), CallError::Fault(Fault::Exists), "it is taken once");
}

#[test]
fn eo1_a_change_is_lost_before_its_caller_hears_of_it() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = [call(&session, make("new")), call(&session, get_status())];
    let received = [rig.server.next(), rig.server.next()];
    assert!(received.iter().any(|received| received.call == make("new")));
    rig.kill(session);
    lost.into_iter().for_each(|lost| assert!(lost.result().is_err()));
    // The first thing that a process does that learns of the loss; then it is killed.
    let slots = rig.keep.keys(kind::SLOTS)[0];
    rig.keep.words(slots, 1 + SLOTS_MAX as usize).unwrap().set(0, 0);
    rig.server.always(|call| (*call == make("new")).then_some(Err(Fault::Exists)));
    let (session, resumed) = rig.process();
    assert!(!resumed, "there is no session any more");
    assert_eq!(rig.keep.keys(kind::REQUEST).len(), 1, "no caller waits for a question");
    let again = call_with(&session, make("new"), Some(&Cancel::of_repeated()));
    assert_eq!(again.error(), CallError::Lost);
    // One that no request takes is forgotten.
    let lost = call(&session, write("x"));
    rig.server.next();
    rig.kill(session);
    assert!(lost.result().is_err());
    rig.keep.words(slots, 1 + SLOTS_MAX as usize).unwrap().set(0, 0);
    let (session, _) = rig.process();
    assert_eq!(rig.keep.keys(kind::REQUEST).len(), 1);
    session.forget_orphans();
    assert_eq!(rig.keep.keys(kind::REQUEST), []);
}

#[test]
fn eo1_a_change_that_was_given_up_stays_unknown_too() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let request = Cancel::of_request();
    let making = call_with(&session, make("new"), Some(&request));
    rig.server.next();
    rig.server.go_down();
    request.abandon();
    assert_eq!(making.error(), CallError::Lost);
    // The session is lost after its caller went away, and before the kernel got the reply.
    rig.server.restart(true);
    rig.server.come_up();
    rig.server.wait("the client is back", |state| state.attached.len() == 2);
    rig.server.always(|call| match call {
        Call::Make { .. } => Some(Err(Fault::Exists)),
        Call::GetStatus { .. } => Some(Ok(Answer::Status(status(FID, 1)))),
        _ => None,
    });
    call(&session, get_status()).answer();
    std::mem::forget(request);
    rig.kill(session);
    let (session, _) = rig.process();
    let again = call_with(&session, make("new"), Some(&Cancel::of_repeated()));
    assert_eq!(again.error(), CallError::Lost);
}

#[test]
fn a_takeover_that_fails_leaves_all_to_the_next_one() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = call(&session, make("new"));
    let received = rig.server.next();
    rig.kill(session);
    assert!(lost.result().is_err());
    for _ in 0..2 {
        // It ends in order, before it knew what it has in the session.
        let (session, resumed) = rig.process();
        assert!(resumed);
        drop(session);
    }
    let session = rig.succeed_now();
    session.restored();
    let again = call_with(&session, make("new"), Some(&Cancel::of_repeated()));
    rig.server.answer(&received, made(FID));
    assert_eq!(again.answer(), made(FID));
    assert_eq!(rig.server.look(|state| state.detached), 0);
    // From now on it ends with its process.
    drop(session);
    rig.server.wait("the farewell", |state| state.detached == 1);
    let (_session, resumed) = rig.process();
    assert!(!resumed);
}

#[test]
fn a_successor_begins_while_the_server_is_away() {
    let mut rig = Rig::new();
    let (session, _) = rig.process();
    let lost = call(&session, write("lost"));
    let received = rig.server.next();
    rig.server.go_down();
    rig.kill(session);
    assert!(lost.result().is_err());
    let attach_within = Some(Duration::from_millis(100));
    let config = SessionConfig { attach_within, ..rig.config() };
    let session = Arc::new(Session::connect(config).unwrap());
    assert!(session.is_resumed() && !session.stands());
    let again = call_with(&session, write("lost"), Some(&Cancel::of_repeated()));
    // This one dies, too, before the server is back.
    let session = rig.succeed_apart(session);
    assert!(again.result().is_err());
    let again = call_with(&session, write("lost"), Some(&Cancel::of_repeated()));
    rig.server.come_up();
    rig.server.wait("the client is back", |state| state.attached.len() == 2);
    rig.server.answer(&received, written("lost", 2));
    assert_eq!(again.answer(), written("lost", 2));
    assert_eq!(rig.server.look(|state| state.count(is_write)), 1);
    // Without a session to resume the attempt fails, as ever.
    rig.server.go_down();
    let config =
        SessionConfig { attach_within, identity: ClientIdentity::fleeting(), ..rig.config() };
    assert!(matches!(Session::connect(config).map(drop), Err(CallError::Refused(_))));
}

impl Rig {
    fn succeed_apart(&mut self, session: Arc<Session>) -> Arc<Session> {
        self.kill(session);
        let attach_within = Some(Duration::from_millis(50));
        let config = SessionConfig { attach_within, ..self.config() };
        Arc::new(Session::connect(config).unwrap())
    }
}

#[test]
fn a_detached_session_leaves_nothing() {
    let rig = Rig::new();
    let (session, _) = rig.process();
    let request = Cancel::of_request();
    let writing = call_with(&session, write("x"), Some(&request));
    rig.server.answer(&rig.server.next(), written("x", 2));
    writing.answer();
    assert!(rig.records() > 3);
    session.detach();
    drop(request);
    rig.wait_until_gone(Rig::records);
    let (_session, resumed) = rig.process();
    assert!(!resumed);
}

#[test]
fn two_sessions_of_a_process_have_their_own_places() {
    let mut rig = Rig::new();
    let (one, _) = rig.process();
    let (other, resumed) = rig.process();
    assert!(!resumed, "the first one's session is in use");
    let lost = [call(&one, write("one")), call(&other, write("other"))];
    let received = [rig.server.next(), rig.server.next()];
    one.leave();
    rig.kill(other);
    lost.into_iter().for_each(|lost| assert!(lost.result().is_err()));
    let sessions = [rig.process(), rig.process()];
    assert!(sessions.iter().all(|(_, resumed)| *resumed));
    assert_eq!(rig.server.look(|state| state.attached.len()), 4);
    assert_ne!(received[0].origin.session, received[1].origin.session);
    let resumed = rig.server.look(|state| state.attached[2].resume != state.attached[3].resume);
    assert!(resumed);
}

#[test]
fn da4_damaged_records_are_refused() {
    for kind in [kind::SESSION, kind::REQUEST, kind::SERVER, kind::SLOTS] {
        let mut rig = Rig::new();
        let (session, _) = rig.process();
        let lost = call(&session, write("lost"));
        rig.server.next();
        rig.kill(session);
        assert!(lost.result().is_err());
        let (key, mut bytes) = rig.keep.all(kind).remove(0);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes.truncate(bytes.len() - usize::from(kind == kind::SLOTS));
        rig.keep.put(key, &[&bytes]).unwrap();
        let (session, resumed) = rig.process();
        assert!(!resumed, "kind {kind}");
        // It works, and is kept.
        let lost = call(&session, write("next"));
        rig.server.next();
        rig.succeed(session);
        assert!(lost.result().is_err());
    }
}

#[test]
fn eo2_the_incarnation_goes_on_only_with_a_session() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("identity");
    let load = |rig: &Rig| ClientIdentity::continue_within(&path, Duration::ZERO, &rig.keep);
    let first = load(&rig).unwrap();
    let (client, incarnation) = (first.client, first.incarnation);
    let config = |rig: &Rig, identity| SessionConfig { identity, ..rig.config() };
    let session = Arc::new(Session::connect(config(&rig, first)).unwrap());
    assert!(load(&rig).is_err(), "the predecessor lives");
    rig.kill(session);
    // Its threads may take a moment.
    let patient = |rig: &Rig| {
        ClientIdentity::continue_within(&path, Duration::from_secs(10), &rig.keep).unwrap()
    };
    let second = patient(&rig);
    assert_eq!((second.client, second.incarnation), (client, incarnation));
    let session = Session::connect(config(&rig, second)).unwrap();
    assert!(session.is_resumed());
    session.restored();
    drop(session);
    let third = patient(&rig);
    assert_eq!(third.incarnation, incarnation + 1, "it detached");
    let session = Arc::new(Session::connect(config(&rig, third)).unwrap());
    rig.kill(session);
    let (key, mut bytes) = rig.keep.all(kind::SESSION).remove(0);
    bytes[9] ^= 1;
    rig.keep.put(key, &[&bytes]).unwrap();
    let fourth = patient(&rig);
    assert_eq!(fourth.incarnation, incarnation + 2, "the record is damaged");
}
