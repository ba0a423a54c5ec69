//! Volumes on several servers: replicas of which one fails, volumes that move, and what is refused
//! meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::common::events::{Event, Recorder};
use crate::common::{ScriptedServer, call, call_with, is_write, name, status, written};
use client::{CallError, Cancel, Cell, Remote, RemoteVolume};
use parking_lot::Mutex;
use types::{
    Answer, BreakItem, BreakReason, Busy, Call, CellCall, Changed, Fault, Fid, PartitionNo,
    Revised, Revision, ServerId, ServerInfo, Site, SiteKind, Timestamp, VolumeCall, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, VolumeState,
};

const A: ServerId = ServerId(0xa);
const B: ServerId = ServerId(0xb);
const READ_WRITE: VolumeId = VolumeId(7);
const READ_ONLY: VolumeId = VolumeId(8);
const FILE: Fid = Fid::new(7, 2, 1);
const COPY: Fid = Fid::new(8, 2, 1);

/// The content of the cell database, and the volumes of each server.
struct Truth {
    group: VolumeGroup,
    has: HashMap<ServerId, Vec<VolumeInfo>>,
    revision: u64,
}

impl Truth {
    fn moved_to(&mut self, server: ServerId) {
        self.group.sites.retain(|site| site.kind == SiteKind::ReadOnly);
        self.group.sites.push(site(server, SiteKind::ReadWrite, 0));
    }

    fn volume(&mut self, server: ServerId, id: VolumeId) -> &mut VolumeInfo {
        let all = self.has.get_mut(&server).unwrap();
        all.iter_mut().find(|volume| volume.id == id).unwrap()
    }

    fn answer(&self, me: ServerId, call: &Call) -> Option<Result<Answer, Fault>> {
        let revised = |record| Revised { record, revision: Revision(1) };
        Some(Ok(match call {
            Call::Cell(CellCall::Me) => Answer::Servers(vec![revised(server_info(me))]),
            Call::Cell(CellCall::Servers) => {
                Answer::Servers([A, B].map(server_info).map(revised).to_vec())
            }
            Call::Cell(CellCall::Group { .. }) => {
                let record = self.group.clone();
                let groups = vec![Revised { record, revision: Revision(self.revision) }];
                Answer::Groups { groups, end: true }
            }
            Call::Cell(CellCall::Changes { since, .. }) => {
                let at = Revision(self.revision);
                let changed = (at, Changed::Group(self.group.read_write));
                let changes = if *since < at { vec![changed] } else { Vec::new() };
                Answer::Changes { at, changes: Some(changes) }
            }
            Call::Volume(VolumeCall::Examine { volume }) => {
                let is = |info: &&VolumeInfo| match volume {
                    types::WhichVolume::Id(id) => info.id == *id,
                    types::WhichVolume::Name(name) => info.name == *name,
                };
                match self.has.get(&me).and_then(|all| all.iter().find(is)) {
                    Some(info) => Answer::Volumes { volumes: vec![info.clone()], end: true },
                    None => return Some(Err(Fault::NoVolume)),
                }
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

fn info(id: VolumeId, kind: VolumeKind, epoch: u64) -> VolumeInfo {
    VolumeInfo {
        id,
        tree: READ_WRITE,
        kind,
        state: VolumeState::Online,
        partition: PartitionNo(0),
        epoch,
        origin: None,
        name: name(if id == READ_ONLY { "docs.readonly" } else { "docs" }),
        created: Timestamp::default(),
        updated: Timestamp::default(),
        quota_bytes: 0,
        quota_files: 0,
        used_bytes: 0,
        used_files: 0,
        encrypted: None,
    }
}

/// A cell of two servers. Both have the released volume, the first has the read-write one.
struct Fleet {
    a: ScriptedServer,
    b: Arc<ScriptedServer>,
    truth: Arc<Mutex<Truth>>,
    cell: Arc<Cell>,
}

impl Fleet {
    fn start() -> Fleet {
        let (a, b) = (ScriptedServer::start(), Arc::new(ScriptedServer::start()));
        let sites = vec![
            site(A, SiteKind::ReadWrite, 0),
            site(A, SiteKind::ReadOnly, 5),
            site(B, SiteKind::ReadOnly, 5),
        ];
        let group = VolumeGroup {
            read_only: Some(READ_ONLY),
            sites,
            released_epoch: 5,
            ..VolumeGroup::new(name("docs"), READ_WRITE, site(A, SiteKind::ReadWrite, 0))
        };
        let copy = || info(READ_ONLY, VolumeKind::ReadOnly, 5);
        let has = HashMap::from([
            (A, vec![info(READ_WRITE, VolumeKind::ReadWrite, 6), copy()]),
            (B, vec![copy()]),
        ]);
        let truth = Arc::new(Mutex::new(Truth { group, has, revision: 1 }));
        for (server, id) in [(&a, A), (&*b, B)] {
            let truth = Arc::clone(&truth);
            server.always(move |call| truth.lock().answer(id, call));
        }
        let dialled = Arc::clone(&b);
        let dial = Box::new(move |_: &Weak<Cell>, info: &ServerInfo| {
            assert_eq!(info.id, B, "the home is not dialled");
            client::Session::connect(dialled.config()).map(|session| Arc::new(session) as _)
        });
        let cell = Cell::of_servers(a.session(), dial);
        cell.set_rank(A, 1);
        cell.set_rank(B, 2);
        Fleet { a, b, truth, cell }
    }

    fn find(&self, text: &str) -> (Arc<RemoteVolume>, Arc<Recorder>) {
        let volume = self.cell.find(&name(text), None).unwrap();
        let recorder = Recorder::of(&*volume);
        (volume, recorder)
    }
}

fn read() -> Call {
    Call::GetStatus { fid: COPY }
}

fn write() -> Call {
    crate::common::write("x")
}

fn is_read(call: &Call) -> bool {
    *call == read()
}

fn wait_server(volume: &RemoteVolume, server: ServerId) {
    let until = std::time::Instant::now() + crate::common::LIMIT;
    while volume.server() != Some(server) {
        assert!(std::time::Instant::now() < until, "calls do not go there");
        std::thread::yield_now();
    }
}

#[test]
fn volumes_are_found_where_the_database_says() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    assert_eq!((docs.id(), docs.server(), docs.is_read_only()), (READ_WRITE, Some(A), false));
    let (copy, _) = fleet.find("docs.readonly");
    assert_eq!((copy.id(), copy.server(), copy.is_read_only()), (READ_ONLY, Some(A), true));
    fleet.cell.set_rank(B, 0);
    let (copy, _) = fleet.find("docs.readonly");
    assert_eq!(copy.server(), Some(B), "of lower rank");
    let places = fleet.cell.places_of(READ_ONLY, None).unwrap();
    assert_eq!(places.iter().map(|(server, _)| server.id).collect::<Vec<_>>(), [A, B]);
    let places = fleet.cell.places_of(READ_WRITE, None).unwrap();
    assert_eq!(places.iter().map(|(server, _)| server.id).collect::<Vec<_>>(), [A]);
    let missing = fleet.cell.find(&name("others"), None).map(drop);
    assert_eq!(missing.unwrap_err(), CallError::Fault(Fault::NoVolume));
    let known = fleet.cell.known_servers(None);
    assert_eq!(known.iter().map(|server| server.info.id).collect::<Vec<_>>(), [B, A]);
    assert!(fleet.cell.check_servers(None).iter().all(|server| server.up == Some(true)));
}

#[test]
fn a_lagging_site_is_not_chosen() {
    let fleet = Fleet::start();
    fleet.truth.lock().group.sites[1].epoch = 4;
    assert_eq!(fleet.find("docs.readonly").0.server(), Some(B), "the database says that A lags");
    fleet.truth.lock().group.sites[1].epoch = 5;
    fleet.truth.lock().volume(A, READ_ONLY).epoch = 4;
    assert_eq!(fleet.find("docs.readonly").0.server(), Some(B), "A itself says that it lags");
}

#[test]
fn questions_go_to_another_replica_when_a_server_is_gone() {
    let fleet = Fleet::start();
    let (copy, recorder) = fleet.find("docs.readonly");
    let asking = call(&copy, read());
    fleet.a.next_of(is_read);
    fleet.a.go_down();
    let received = fleet.b.next_of(is_read);
    fleet.b.answer(&received, Answer::Status(status(COPY, 3)));
    assert_eq!(asking.answer(), Answer::Status(status(COPY, 3)));
    assert_eq!(copy.server(), Some(B));
    recorder.wait(1, |event| *event == Event::Moved);
    // The next one goes there at once.
    let asking = call(&copy, read());
    fleet.b.answer(&fleet.b.next_of(is_read), Answer::Status(status(COPY, 3)));
    assert!(asking.result().is_ok());
}

#[test]
fn a_chain_of_questions_goes_on_at_another_replica() {
    let fleet = Fleet::start();
    let (copy, _) = fleet.find("docs.readonly");
    let chaining = {
        let copy = Arc::clone(&copy);
        std::thread::spawn(move || copy.chain(&types::Caller::ROOT, vec![read(), read(), read()]))
    };
    fleet.a.answer(&fleet.a.next_of(is_read), Answer::Status(status(COPY, 3)));
    fleet.a.next_of(is_read);
    fleet.a.go_down();
    for _ in 0..2 {
        fleet.b.answer(&fleet.b.next_of(is_read), Answer::Status(status(COPY, 3)));
    }
    let results = chaining.join().unwrap();
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(fleet.b.look(|state| state.count(is_read)), 2, "only what had no answer");
}

#[test]
fn vo5_no_replica_with_an_older_epoch_is_read() {
    let fleet = Fleet::start();
    let (copy, _) = fleet.find("docs.readonly");
    // A release: A has it, B lags.
    {
        let mut truth = fleet.truth.lock();
        truth.volume(A, READ_ONLY).epoch = 9;
        (truth.group.released_epoch, truth.group.sites[1].epoch, truth.revision) = (9, 9, 2);
    }
    let broken = BreakItem { fid: Fid::new(8, 1, 1), reason: BreakReason::Data, name: None };
    let id = fleet.a.break_promises(&[broken]);
    fleet.a.wait("the acknowledgement", |state| {
        state.acknowledged.iter().any(|(known, _)| *known == id)
    });
    let asking = call(&copy, read());
    fleet.a.answer(&fleet.a.next_of(is_read), Answer::Status(status(COPY, 9)));
    assert!(asking.result().is_ok(), "it has seen the new epoch");
    let cancel = Cancel::new();
    let asking = call_with(&copy, read(), Some(&cancel));
    fleet.a.next_of(is_read);
    fleet.a.go_down();
    // B catches up, and only then is asked.
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    let before = fleet.b.look(|state| state.count(examined));
    {
        let mut truth = fleet.truth.lock();
        truth.group.sites[2].epoch = 9;
    }
    fleet.b.wait("the client looks at B", |state| state.count(examined) > before);
    assert_eq!(fleet.b.look(|state| state.count(is_read)), 0, "it shows an older epoch");
    fleet.truth.lock().volume(B, READ_ONLY).epoch = 9;
    fleet.b.answer(&fleet.b.next_of(is_read), Answer::Status(status(COPY, 9)));
    assert_eq!(asking.answer(), Answer::Status(status(COPY, 9)));
}

#[test]
fn a_replica_that_cannot_read_is_left_and_the_only_one_is_not() {
    let fleet = Fleet::start();
    let (copy, _) = fleet.find("docs.readonly");
    for fault in [Fault::Damaged, Fault::Medium] {
        let (from, to) = match copy.server() {
            Some(A) => (&fleet.a, &*fleet.b),
            _ => (&*fleet.b, &fleet.a),
        };
        let asking = call(&copy, read());
        from.answer(&from.next_of(is_read), fault);
        to.answer(&to.next_of(is_read), Answer::Status(status(COPY, 3)));
        assert!(asking.result().is_ok());
    }
    // Of the read-write volume there is one: the fault stands.
    let (docs, _) = fleet.find("docs");
    let asking = call(&docs, Call::GetStatus { fid: FILE });
    fleet.a.answer(&fleet.a.next(), Fault::Damaged);
    assert_eq!(asking.error(), CallError::Fault(Fault::Damaged));
}

#[test]
fn when_all_replicas_are_damaged_the_fault_stands() {
    let fleet = Fleet::start();
    let (copy, _) = fleet.find("docs.readonly");
    let asking = call(&copy, read());
    let mut asked = 0;
    while !asking.is_over() {
        for server in [&fleet.a, &*fleet.b] {
            if server.waiting() > 0 {
                server.answer(&server.next(), Fault::Damaged);
                asked += 1;
            }
        }
        std::thread::yield_now();
    }
    assert_eq!(asking.error(), CallError::Fault(Fault::Damaged));
    assert!((2..=10).contains(&asked), "asked {asked} times");
}

#[test]
fn a_refused_change_is_repeated_where_the_volume_is_now() {
    let fleet = Fleet::start();
    let (docs, recorder) = fleet.find("docs");
    let changing = call(&docs, write());
    let refused = fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let moved = truth.has.get_mut(&A).unwrap().remove(0);
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    fleet.a.answer(&refused, Fault::NoVolume);
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 2));
    assert_eq!(changing.answer(), written("x", 2));
    recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(recorder.count(|event| *event == Event::Moved), 1);
    assert_eq!(docs.server(), Some(B));
}

#[test]
fn a_call_waits_for_the_end_of_a_move() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    let changing = call(&docs, write());
    let refused = fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let (operation, by) = ("move".to_owned(), "test".to_owned());
        truth.group.busy = Some(Busy { operation, by, since_secs: 1 });
        let mut moved = truth.has.get_mut(&A).unwrap().remove(0);
        moved.state = VolumeState::Arriving;
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    fleet.a.answer(&refused, Fault::NoVolume);
    fleet.b.wait("the client looks at B", |state| state.count(examined) >= 3);
    assert!(!changing.is_over());
    assert_eq!(fleet.b.look(|state| state.count(is_write)), 0, "it still arrives");
    fleet.truth.lock().volume(B, READ_WRITE).state = VolumeState::Online;
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 2));
    assert_eq!(changing.answer(), written("x", 2));
}

#[test]
fn a_call_waits_for_a_volume_that_a_move_took_offline() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    let changing = call(&docs, write());
    let refused = fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        let (operation, by) = ("move".to_owned(), "test".to_owned());
        truth.group.busy = Some(Busy { operation, by, since_secs: 1 });
        truth.volume(A, READ_WRITE).state = VolumeState::Offline;
    }
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    let before = fleet.a.look(|state| state.count(examined));
    fleet.a.answer(&refused, Fault::Offline);
    fleet.a.wait("the client looks again", |state| state.count(examined) >= before + 3);
    assert!(!changing.is_over());
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let mut moved = truth.has.get_mut(&A).unwrap().remove(0);
        moved.state = VolumeState::Online;
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 2));
    assert_eq!(changing.answer(), written("x", 2));
}

#[test]
fn a_change_of_unknown_outcome_is_not_repeated_elsewhere() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    let changing = call(&docs, write());
    fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let moved = truth.has.get_mut(&A).unwrap().remove(0);
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    fleet.a.end_sessions();
    assert_eq!(changing.error(), CallError::Lost);
    assert_eq!(fleet.b.look(|state| state.count(is_write)), 0);
}

#[test]
fn busy_and_offline_volumes_say_so() {
    let fleet = Fleet::start();
    let (docs, recorder) = fleet.find("docs");
    let changing = call(&docs, write());
    fleet.a.answer(&fleet.a.next_of(is_write), Fault::Busy);
    assert_eq!(changing.error(), CallError::Fault(Fault::Busy), "it is not tried again here");
    fleet.truth.lock().volume(A, READ_WRITE).state = VolumeState::Offline;
    let changing = call(&docs, write());
    fleet.a.answer(&fleet.a.next_of(is_write), Fault::Offline);
    assert_eq!(changing.error(), CallError::Fault(Fault::Offline));
    // It comes online again meanwhile: the call is repeated at the same place.
    fleet.truth.lock().volume(A, READ_WRITE).state = VolumeState::Online;
    let changing = call(&docs, write());
    fleet.a.answer(&fleet.a.next_of(is_write), Fault::Offline);
    fleet.a.answer(&fleet.a.next_of(is_write), written("x", 2));
    assert_eq!(changing.answer(), written("x", 2));
    assert_eq!(recorder.count(|event| *event == Event::Moved), 0);
}

#[test]
fn a_refusal_without_a_move_is_not_repeated_for_ever() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    let asking = call(&docs, Call::Root { volume: name("former") });
    let mut asked = 0;
    while !asking.is_over() {
        if fleet.a.waiting() > 0 {
            fleet.a.answer(&fleet.a.next(), Fault::NoVolume);
            asked += 1;
        }
        std::thread::yield_now();
    }
    assert_eq!(asking.error(), CallError::Fault(Fault::NoVolume));
    assert_eq!(asked, 5, "once, and AGAIN_MAX times more");
}

#[test]
fn a_move_to_another_partition_keeps_the_session() {
    let fleet = Fleet::start();
    let (docs, recorder) = fleet.find("docs");
    let changing = call(&docs, write());
    let refused = fleet.a.next_of(is_write);
    fleet.truth.lock().volume(A, READ_WRITE).partition = PartitionNo(1);
    fleet.a.answer(&refused, Fault::NoVolume);
    fleet.a.answer(&fleet.a.next_of(is_write), written("x", 2));
    assert!(changing.result().is_ok());
    recorder.wait(1, |event| *event == Event::Moved);
    assert_eq!(fleet.a.look(|state| state.attached.len()), 1);
    assert_eq!(fleet.b.look(|state| state.attached.len()), 0);
}

#[test]
fn an_idle_client_learns_from_a_break_that_its_volume_moved() {
    let fleet = Fleet::start();
    let (docs, recorder) = fleet.find("docs");
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let moved = truth.has.get_mut(&A).unwrap().remove(0);
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    let root = Fid::new(7, 1, 1);
    fleet.a.break_promises(&[BreakItem { fid: root, reason: BreakReason::Data, name: None }]);
    recorder.wait_breaks(1);
    recorder.wait(1, |event| *event == Event::Moved);
    wait_server(&docs, B);
    // Breaks of the new place arrive, and those of the old one do not.
    let item = BreakItem { fid: FILE, reason: BreakReason::Data, name: None };
    fleet.b.break_promises(&[item]);
    recorder.wait_breaks(2);
}

#[test]
fn cb1_a_break_during_the_reclaim_after_a_move_arrives() {
    let fleet = Fleet::start();
    let (docs, recorder) = fleet.find("docs");
    let (ask, hold) = (Call::GetStatus { fid: FILE }, Call::Hold { fids: vec![FILE] });
    recorder.claims.lock().extend([ask.clone(), hold.clone()]);
    let changing = call(&docs, write());
    let refused = fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        truth.moved_to(B);
        let moved = truth.has.get_mut(&A).unwrap().remove(0);
        truth.has.get_mut(&B).unwrap().push(moved);
    }
    fleet.a.answer(&refused, Fault::NoVolume);
    // The answer is under a promise of the new server, which ends before the reclaim does.
    fleet.b.answer(&fleet.b.next_of(|call| *call == ask), Answer::Status(status(FILE, 3)));
    let held = fleet.b.next_of(|call| *call == hold);
    let item = BreakItem { fid: FILE, reason: BreakReason::Data, name: None };
    let id = fleet.b.break_promises(std::slice::from_ref(&item));
    fleet.b.wait("the acknowledgement", |state| {
        state.acknowledged.iter().any(|(known, _)| *known == id)
    });
    assert!(recorder.log().contains(&Event::Break(vec![item])), "{:?}", recorder.log());
    fleet.b.answer(&held, Answer::Done);
    fleet.b.answer(&fleet.b.next_of(is_write), written("x", 4));
    assert!(changing.result().is_ok());
}

#[test]
fn an_interrupted_call_does_not_wait_for_a_move() {
    let fleet = Fleet::start();
    let (docs, _) = fleet.find("docs");
    let cancel = Cancel::new();
    let changing = call_with(&docs, write(), Some(&cancel));
    let refused = fleet.a.next_of(is_write);
    {
        let mut truth = fleet.truth.lock();
        let (operation, by) = ("move".to_owned(), "test".to_owned());
        truth.group.busy = Some(Busy { operation, by, since_secs: 1 });
        truth.volume(A, READ_WRITE).state = VolumeState::Held;
    }
    fleet.a.answer(&refused, Fault::NoVolume);
    let examined = |call: &Call| matches!(call, Call::Volume(VolumeCall::Examine { .. }));
    let before = fleet.a.look(|state| state.count(examined));
    fleet.a.wait("the client looks for the volume", |state| state.count(examined) > before);
    cancel.cancel();
    assert_eq!(changing.error(), CallError::Cancelled);
    fleet.truth.lock().volume(A, READ_WRITE).state = VolumeState::Online;
    let changing = call(&docs, write());
    fleet.a.answer(&fleet.a.next_of(is_write), written("x", 2));
    assert!(changing.result().is_ok());
}

#[test]
fn a_missed_release_is_noticed_and_the_site_left() {
    let fleet = Fleet::start();
    let (copy, _) = fleet.find("docs.readonly");
    fleet.cell.look_around();
    assert_eq!(copy.server(), Some(A));
    {
        let mut truth = fleet.truth.lock();
        truth.volume(B, READ_ONLY).epoch = 9;
        (truth.group.released_epoch, truth.group.sites[2].epoch, truth.revision) = (9, 9, 2);
    }
    fleet.cell.look_around();
    wait_server(&copy, B);
    let asking = call(&copy, read());
    fleet.b.answer(&fleet.b.next_of(is_read), Answer::Status(status(COPY, 9)));
    assert!(asking.result().is_ok());
}
