//! A standby takes over: changes that the dead server executed are not made again (SB-5), others
//! are made once, and what the standby lacks is reported.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::common::events::{Event, Recorder};
use crate::common::{DIR, FID, ScriptedServer, call, is_write, make, name, status, write, written};
use client::{Cell, RemoteVolume};
use parking_lot::Mutex;
use types::{
    Answer, BreakItem, BreakReason, Call, Caller, CellCall, Changed, EPOCHS_IN_GENERATION, Fault,
    Fid, Inherited, PartitionNo, ReplyAddress, Revised, Revision, ServerId, ServerInfo, SessionId,
    Site, SiteKind, Timestamp, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind,
    VolumeState,
};

const A: ServerId = ServerId(0xa);
const B: ServerId = ServerId(0xb);
const VOLUME: VolumeId = VolumeId(7);

/// The last request of each slot that the standby knows, with its answer.
type Replies = HashMap<u32, (ReplyAddress, Answer)>;

/// The content of the cell database, and what the servers have.
struct Truth {
    group: VolumeGroup,
    /// The server with the volume, and its epoch and state there.
    at: (ServerId, u64, VolumeState),
    /// `None`: the server is older than standbys.
    replies: Option<Replies>,
    /// So many questions for replies come while the volume is away.
    away: usize,
    /// So many questions for replies are left to the test.
    asked: usize,
    /// The former server still has what it had.
    has_surplus: bool,
    /// The last request of each slot when the standby began.
    numbers: HashMap<u32, ReplyAddress>,
}

impl Truth {
    fn answer(&mut self, me: ServerId, call: &Call) -> Option<Result<Answer, Fault>> {
        let revised = |record| Revised { record, revision: Revision(1) };
        Some(Ok(match call {
            Call::Cell(CellCall::Me) => Answer::Servers(vec![revised(server_info(me))]),
            Call::Cell(CellCall::Servers) => {
                Answer::Servers([A, B].map(server_info).map(revised).to_vec())
            }
            Call::Cell(CellCall::Group { .. }) => {
                let groups = vec![Revised { record: self.group.clone(), revision: Revision(1) }];
                Answer::Groups { groups, end: true }
            }
            Call::Cell(CellCall::Changes { .. }) => {
                let changes = vec![(Revision(1), Changed::Group(VOLUME))];
                Answer::Changes { at: Revision(1), changes: Some(changes) }
            }
            Call::Volume(VolumeCall::Examine { .. }) if self.at.0 == me => {
                Answer::Volumes { volumes: vec![info(self.at.1, self.at.2)], end: true }
            }
            Call::Volume(VolumeCall::Examine { .. }) if self.has_surplus => {
                Answer::Volumes { volumes: vec![info(6, VolumeState::Superseded)], end: true }
            }
            Call::Volume(VolumeCall::Examine { .. }) => return Some(Err(Fault::NoVolume)),
            Call::Volume(VolumeCall::Inherit { .. }) if self.away > 0 => {
                self.away -= 1;
                return Some(Err(Fault::NoVolume));
            }
            Call::Volume(VolumeCall::Inherit { .. }) if self.asked > 0 => {
                self.asked -= 1;
                return None;
            }
            Call::Volume(VolumeCall::Inherit { origin, .. }) => {
                let Some(replies) = self.replies.as_ref().filter(|_| self.at.0 == me) else {
                    return Some(Err(Fault::Unsupported));
                };
                let none = ReplyAddress { request: 0, ..*origin };
                let number = self.numbers.get(&origin.slot).copied().unwrap_or(none);
                Answer::Inherited(match replies.get(&origin.slot) {
                    Some((origin, answer)) => {
                        let answer = dafs::codec::encode_answer_record(answer).into();
                        Inherited { origin: *origin, answer }
                    }
                    None => Inherited { origin: number, answer: Default::default() },
                })
            }
            Call::ReclaimDone => Answer::Done,
            _ => return None,
        }))
    }
}

fn server_info(id: ServerId) -> ServerInfo {
    let port = 7000 + u16::try_from(id.0).unwrap();
    let addresses = vec![format!("127.0.0.1:{port}").parse().unwrap()];
    ServerInfo { id, name: format!("server-{id}"), addresses, keys: Vec::new() }
}

fn site(server: ServerId, kind: SiteKind, epoch: u64) -> Site {
    Site { server, partition: "/vicepa".to_owned(), kind, epoch }
}

fn info(epoch: u64, state: VolumeState) -> VolumeInfo {
    VolumeInfo {
        id: VOLUME,
        tree: VOLUME,
        kind: VolumeKind::ReadWrite,
        state,
        partition: PartitionNo(0),
        epoch,
        origin: None,
        name: name("docs"),
        created: Timestamp::default(),
        updated: Timestamp::default(),
        quota_bytes: 0,
        quota_files: 0,
        used_bytes: 0,
        used_files: 0,
        encrypted: None,
    }
}

/// A volume at A, with a standby at B.
struct Fleet {
    a: ScriptedServer,
    session_at_a: Arc<client::Session>,
    b: Arc<ScriptedServer>,
    truth: Arc<Mutex<Truth>>,
    docs: Arc<RemoteVolume>,
    recorder: Arc<Recorder>,
    _cell: Arc<Cell>,
}

impl Fleet {
    fn start() -> Fleet {
        Fleet::start_with(SiteKind::Standby)
    }

    /// B has a site of this kind.
    fn start_with(kind: SiteKind) -> Fleet {
        let (a, b) = (ScriptedServer::start(), Arc::new(ScriptedServer::start()));
        let mut group = VolumeGroup::new(name("docs"), VOLUME, site(A, SiteKind::ReadWrite, 0));
        group.sites.push(site(B, kind, 1));
        let at = (A, 6, VolumeState::Online);
        let truth = Arc::new(Mutex::new(Truth {
            group,
            at,
            replies: Some(Replies::new()),
            away: 0,
            asked: 0,
            has_surplus: false,
            numbers: HashMap::new(),
        }));
        for (server, id) in [(&a, A), (&*b, B)] {
            let truth = Arc::clone(&truth);
            server.always(move |call| truth.lock().answer(id, call));
        }
        let dialled = Arc::clone(&b);
        let dial = Box::new(move |_: &Weak<Cell>, _: &ServerInfo| {
            client::Session::connect(dialled.config()).map(|session| Arc::new(session) as _)
        });
        let session_at_a = a.session();
        let cell = Cell::of_servers(Arc::clone(&session_at_a) as _, dial);
        let docs = cell.find(&name("docs"), None).unwrap();
        let recorder = Recorder::of(&*docs);
        Fleet { a, session_at_a, b, truth, docs, recorder, _cell: cell }
    }

    /// B is the read-write site, and knows these replies.
    fn take_over(&self, kind: SiteKind, replies: Option<Replies>) {
        let mut truth = self.truth.lock();
        truth.group.sites = vec![site(B, SiteKind::ReadWrite, 0)];
        if kind.is_standby() {
            truth.group.sites.push(site(A, kind, 0));
        }
        truth.at = (B, EPOCHS_IN_GENERATION + 1, VolumeState::Online);
        truth.replies = replies;
    }

    /// B took over, and A has the volume again and knows these replies, while this client heard
    /// nothing.
    fn come_back(&self, replies: Replies) {
        let mut truth = self.truth.lock();
        truth.group.sites = vec![site(A, SiteKind::ReadWrite, 0), site(B, SiteKind::Standby, 0)];
        truth.at = (A, 2 * EPOCHS_IN_GENERATION + 1, VolumeState::Online);
        truth.replies = Some(replies);
        drop(truth);
        self.leave_a();
    }

    /// A says that the volume may have left.
    fn leave_a(&self) {
        let item = BreakItem { fid: Fid::root(VOLUME), reason: BreakReason::Data, name: None };
        self.a.break_promises(&[item]);
    }

    /// A change that A acknowledges; where it was.
    fn acknowledged(&self, text: &str) -> ReplyAddress {
        let changing = call(&self.docs, write(text));
        let received = self.a.next_of(is_write);
        self.a.answer(&received, written(text, 2));
        changing.answer();
        received.origin
    }

    fn writes_at_b(&self) -> usize {
        self.b.look(|state| state.count(is_write))
    }
}

fn known(origin: ReplyAddress, answer: Answer) -> Option<Replies> {
    Some(HashMap::from([(origin.slot, (origin, answer))]))
}

#[test]
fn sb5_a_change_that_the_dead_server_made_is_not_repeated() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::Standby, known(received.origin, written("x", 9)));
    fleet.a.go_down();
    assert_eq!(changing.answer(), written("x", 9));
    assert_eq!(fleet.writes_at_b(), 0);
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 0);
}

#[test]
fn sb5_a_refused_change_that_was_made_is_not_repeated() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::Standby, known(received.origin, written("x", 9)));
    // A has lost its record, and is a standby now.
    fleet.a.answer(&received, Fault::NoVolume);
    assert_eq!(changing.answer(), written("x", 9));
    assert_eq!(fleet.writes_at_b(), 0);
}

#[test]
fn sb5_a_change_waits_for_its_reply_while_the_volume_is_away() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::Standby, known(received.origin, written("x", 9)));
    fleet.truth.lock().away = 2;
    fleet.a.answer(&received, Fault::NoVolume);
    assert_eq!(changing.answer(), written("x", 9));
    assert_eq!((fleet.writes_at_b(), fleet.truth.lock().away), (0, 0));
}

#[test]
fn sb5_a_change_that_the_dead_server_did_not_make_is_made() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    // Of the slot's request before.
    let origin = ReplyAddress { request: received.origin.request - 1, ..received.origin };
    fleet.take_over(SiteKind::Standby, known(origin, written("old", 8)));
    fleet.a.go_down();
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
    assert_eq!(changing.answer(), written("x", 3));
    assert_eq!(fleet.writes_at_b(), 1);
}

#[test]
fn sb5_the_reply_of_another_session_is_not_taken() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    let session = SessionId(received.origin.session.0 + 1);
    let origin = ReplyAddress { session, ..received.origin };
    fleet.take_over(SiteKind::Standby, known(origin, written("other", 8)));
    fleet.a.go_down();
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
    assert_eq!(changing.answer(), written("x", 3));
}

#[test]
fn sb5_a_chain_goes_on_behind_what_was_made() {
    let fleet = Fleet::start();
    let file = Fid::new(7, 40, 9);
    let made = |fid| Answer::Made { status: status(fid, 1), dir: status(DIR, 2), existed: false };
    let mut current = write("data");
    *current.fids_mut()[0] = Fid::CURRENT;
    let calls = vec![make("one"), current.clone(), make("two"), current];
    let chaining = {
        let docs = Arc::clone(&fleet.docs);
        std::thread::spawn(move || client::Remote::chain(&*docs, &Caller::ROOT, calls))
    };
    let first = fleet.a.next().origin;
    // The next slot has had no request before.
    let second = ReplyAddress { slot: first.slot + 1, request: 1, ..first };
    let replies = [(first, made(file)), (second, written("data", 2))];
    let replies = replies.into_iter().map(|(at, answer)| (at.slot, (at, answer))).collect();
    fleet.take_over(SiteKind::Standby, Some(replies));
    fleet.a.go_down();
    let other = Fid::new(7, 44, 9);
    let third = fleet.b.next();
    assert_eq!(third.call, make("two"), "only what was not made");
    fleet.b.answer(&third, made(other));
    let last = fleet.b.next();
    assert!(matches!(last.call, Call::Write { fid, .. } if fid == other), "{:?}", last.call);
    fleet.b.answer(&last, written("data", 5));
    let results = chaining.join().unwrap();
    let answers: Vec<Answer> = results.into_iter().map(|one| one.unwrap().answer).collect();
    let wanted = [made(file), written("data", 2), made(other), written("data", 5)];
    assert_eq!(answers, wanted);
}

#[test]
fn an_acknowledged_change_that_is_missing_is_reported() {
    let fleet = Fleet::start();
    let first = fleet.acknowledged("one");
    let last = fleet.acknowledged("two");
    assert_eq!((first.slot, first.request + 1), (last.slot, last.request));
    let changing = call(&fleet.docs, make("new"));
    fleet.a.next();
    fleet.take_over(SiteKind::AsyncStandby, known(first, written("one", 2)));
    fleet.a.go_down();
    let received = fleet.b.next();
    fleet.b.answer(&received, Fault::Exists);
    assert!(changing.result().is_err());
    fleet.recorder.wait(1, |event| *event == Event::ChangesLost(vec![FID]));
    assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 1);
    assert_eq!(fleet.recorder.count(|event| *event == Event::Moved), 0);
}

/// No comparison would name the change: it was not acknowledged when this one began.
#[test]
fn sb5_an_answer_after_the_comparison_began_is_not_taken() {
    let fleet = Fleet::start();
    let first = fleet.acknowledged("one");
    let changing = call(&fleet.docs, write("late"));
    let late = fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::AsyncStandby, known(first, written("one", 2)));
    fleet.truth.lock().asked = 1;
    fleet.leave_a();
    let inherits = |call: &Call| matches!(call, Call::Volume(VolumeCall::Inherit { .. }));
    let question = fleet.b.next_of(inherits);
    fleet.a.answer(&late, written("late", 3));
    // The answer to this comes behind the late one.
    let me = Call::Cell(CellCall::Me);
    client::Remote::call(&*fleet.session_at_a, &Caller::ROOT, me, None).unwrap();
    let known = Inherited { origin: first, answer: Default::default() };
    fleet.b.answer(&question, Answer::Inherited(known));
    fleet.b.answer(&fleet.b.next_of(is_write), written("late", 9));
    assert_eq!(changing.answer(), written("late", 9));
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 0);
}

#[test]
fn nothing_is_reported_where_all_that_was_acknowledged_is() {
    let fleet = Fleet::start();
    fleet.acknowledged("one");
    let last = fleet.acknowledged("two");
    let changing = call(&fleet.docs, make("new"));
    fleet.a.next();
    fleet.take_over(SiteKind::AsyncStandby, known(last, written("two", 2)));
    fleet.a.go_down();
    fleet.b.answer(&fleet.b.next(), Fault::Exists);
    assert!(changing.result().is_err());
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 0);
}

#[test]
fn changes_before_the_standbys_base_are_not_reported() {
    // Of a slot that changed nothing since, and of one whose last request was a question.
    for later in [0, 1] {
        let fleet = Fleet::start();
        let done = fleet.acknowledged("one");
        let changing = call(&fleet.docs, write("x"));
        fleet.a.next_of(is_write);
        let origin = ReplyAddress { request: done.request + later, ..done };
        fleet.take_over(SiteKind::AsyncStandby, Some(Replies::new()));
        fleet.truth.lock().numbers.insert(origin.slot, origin);
        fleet.a.go_down();
        fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
        assert_eq!(changing.answer(), written("x", 3));
        fleet.recorder.wait(1, |event| *event == Event::Moved);
        assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 0);
    }
}

#[test]
fn changes_of_a_session_that_ended_are_not_reported() {
    let fleet = Fleet::start();
    let before = fleet.acknowledged("one");
    fleet.a.end_sessions();
    fleet.recorder.wait(1, |event| *event == Event::LeaseLost);
    fleet.a.wait("another session", |state| state.attached.len() == 2);
    let last = fleet.acknowledged("two");
    assert_ne!(before.session, last.session);
    let changing = call(&fleet.docs, write("three"));
    fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::AsyncStandby, known(last, written("two", 2)));
    fleet.a.go_down();
    fleet.b.answer(&fleet.b.next_of(is_write), written("three", 3));
    assert_eq!(changing.answer(), written("three", 3));
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.recorder.count(|event| matches!(event, Event::ChangesLost(_))), 0);
}

#[test]
fn changes_of_which_the_standby_knows_nothing_are_reported() {
    let fleet = Fleet::start();
    fleet.acknowledged("one");
    let changing = call(&fleet.docs, make("new"));
    fleet.a.next();
    fleet.take_over(SiteKind::AsyncStandby, Some(Replies::new()));
    fleet.a.go_down();
    fleet.b.answer(&fleet.b.next(), Fault::Exists);
    assert!(changing.result().is_err());
    fleet.recorder.wait(1, |event| *event == Event::ChangesLost(vec![FID]));
}

#[test]
fn a_copy_or_an_older_server_is_a_takeover_with_loss() {
    for (kind, replies) in [(SiteKind::ReadOnly, Some(Replies::new())), (SiteKind::Standby, None)] {
        let fleet = Fleet::start_with(kind);
        let changing = call(&fleet.docs, write("x"));
        fleet.a.next_of(is_write);
        fleet.take_over(kind, replies);
        fleet.a.go_down();
        fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
        assert_eq!(changing.answer(), written("x", 3));
        fleet.recorder.wait(1, |event| *event == Event::TakenOver);
        assert_eq!(fleet.recorder.count(|event| *event == Event::Moved), 0);
    }
}

#[test]
fn a_client_goes_on_as_soon_as_the_volume_serves() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::Standby, Some(Replies::new()));
    fleet.truth.lock().at.2 = VolumeState::Arriving;
    fleet.a.go_down();
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    let asked = |call: &Call| matches!(call, Call::Cell(CellCall::Group { .. }));
    fleet.b.wait("the client looks", |state| state.count(examined) >= 1);
    let before = fleet.b.look(|state| state.count(asked));
    fleet.b.wait("it looks again", |state| state.count(examined) >= 8);
    let questions = fleet.b.look(|state| state.count(asked)) - before;
    assert!(questions <= 4, "the database has {questions} questions more");
    assert_eq!(fleet.writes_at_b(), 0, "it does not serve yet");
    fleet.truth.lock().at.2 = VolumeState::Online;
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
    assert_eq!(changing.answer(), written("x", 3));
}

#[test]
fn a_client_without_calls_hears_that_the_volume_left() {
    let fleet = Fleet::start();
    fleet.take_over(SiteKind::Standby, Some(Replies::new()));
    fleet.truth.lock().has_surplus = true;
    fleet.leave_a();
    fleet.recorder.wait(1, |event| *event == Event::Moved);
}

#[test]
fn a_volume_that_came_back_to_its_server_is_reclaimed_there() {
    let fleet = Fleet::start();
    let origin = fleet.acknowledged("kept");
    fleet.come_back(HashMap::from([(origin.slot, (origin, written("kept", 2)))]));
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.recorder.count(|event| *event == Event::TakenOver), 0);
}

#[test]
fn sb5_a_server_answers_itself_for_what_came_back() {
    let fleet = Fleet::start();
    let origin = fleet.acknowledged("kept");
    let changing = call(&fleet.docs, write("x"));
    let received = fleet.a.next_of(is_write);
    fleet.come_back(HashMap::from([(origin.slot, (origin, written("kept", 2)))]));
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    fleet.a.answer(&received, written("x", 3));
    assert_eq!(changing.answer(), written("x", 3));
    assert_eq!(fleet.a.look(|state| state.count(is_write)), 2, "it is not sent again");
}

#[test]
fn what_a_volume_that_came_back_lacks_is_reported() {
    let fleet = Fleet::start();
    let origin = fleet.acknowledged("lost");
    let before = ReplyAddress { request: origin.request - 1, ..origin };
    fleet.come_back(HashMap::from([(origin.slot, (before, written("old", 1)))]));
    fleet.recorder.wait(1, |event| *event == Event::ChangesLost(vec![FID]));
}

#[test]
fn sb6_claims_go_to_a_volume_that_takes_over_and_calls_wait() {
    let fleet = Fleet::start();
    let changing = call(&fleet.docs, write("x"));
    fleet.a.next_of(is_write);
    fleet.take_over(SiteKind::Standby, Some(Replies::new()));
    fleet.truth.lock().at.2 = VolumeState::TakingOver;
    fleet.a.go_down();
    fleet.recorder.wait(1, |event| *event == Event::Moved);
    let delegated =
        |call| Call::Delegated { at: Timestamp::default(), slot: 0, call: Box::new(call) };
    let chaining = {
        let docs = Arc::clone(&fleet.docs);
        let calls = vec![delegated(make("claimed"))];
        std::thread::spawn(move || client::Remote::chain(&*docs, &Caller::ROOT, calls))
    };
    fleet.b.answer(&fleet.b.next(), Fault::Exists);
    assert!(chaining.join().unwrap()[0].is_err(), "the claim has its answer");
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    let before = fleet.b.look(|state| state.count(examined));
    fleet.b.wait("it asks again", |state| state.count(examined) >= before + 2);
    assert_eq!(fleet.writes_at_b(), 0, "it does not serve yet");
    fleet.truth.lock().at.2 = VolumeState::Online;
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 3));
    assert_eq!(changing.answer(), written("x", 3));
}

#[test]
fn sb5_a_delegated_change_goes_on_at_the_standby() {
    for was_made in [true, false] {
        let fleet = Fleet::start();
        let delegated =
            |call| Call::Delegated { at: Timestamp::default(), slot: 0, call: Box::new(call) };
        let chaining = {
            let docs = Arc::clone(&fleet.docs);
            let calls = vec![delegated(write("x"))];
            std::thread::spawn(move || client::Remote::chain(&*docs, &Caller::ROOT, calls))
        };
        let received = fleet.a.next();
        let replies = known(received.origin, written("x", 9)).filter(|_| was_made);
        fleet.take_over(SiteKind::Standby, replies.or(Some(Replies::new())));
        fleet.a.go_down();
        if !was_made {
            fleet.b.answer(&fleet.b.next(), written("x", 9));
        }
        let results = chaining.join().unwrap();
        assert_eq!(results[0].as_ref().unwrap().answer, written("x", 9));
    }
}
