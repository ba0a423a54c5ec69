//! Standbys between services, without sockets or threads: a test's step is one question and its
//! answer, and its clock is the only one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use celldb::{Access, CellCopy, CellDb, CellError, Embedded};
use types::{
    Answer, Call, Caller, Changed, Fault, Fid, Name, PartitionNo, ReplyAddress, Revised, Revision,
    ServerId, ServerInfo, Site, SiteKind, StandbyInfo, TaskInfo, TaskState, VolumeCall,
    VolumeGroup, VolumeId,
};
use vice::{CellAccess, Fetch, StandbyQuestion, StandbyWork, Unanswered, ViceParts, Work};

const ROOT: Caller = Caller::ROOT;
const TREE: VolumeId = VolumeId(40);

/// A database that can be away.
struct Switched {
    db: Embedded,
    away: AtomicBool,
    /// The next change of a group is made, and its answer is lost.
    answer_is_lost: AtomicBool,
    /// The next change of a group does not come there.
    change_is_lost: AtomicBool,
    _dir: tempfile::TempDir,
}

impl Switched {
    fn here(&self) -> Result<&Embedded, CellError> {
        if self.away.load(Ordering::SeqCst) {
            Err(CellError::Away(Fault::CellAway))
        } else {
            Ok(&self.db)
        }
    }
}

impl CellDb for Switched {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.here()?.group_named(name)
    }
    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>, CellError> {
        self.here()?.group_of(number)
    }
    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>, CellError> {
        self.here()?.groups(after, max)
    }
    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision, CellError> {
        if self.change_is_lost.swap(false, Ordering::SeqCst) {
            return Err(CellError::Away(Fault::CellAway));
        }
        let put = self.here()?.put_group(group, expected);
        if self.answer_is_lost.swap(false, Ordering::SeqCst) {
            return Err(CellError::Away(Fault::CellAway));
        }
        put
    }
    fn remove_group(&self, id: VolumeId, expected: Revision) -> Result<Revision, CellError> {
        self.here()?.remove_group(id, expected)
    }
    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId, CellError> {
        self.here()?.take_numbers(above, count)
    }
    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>, CellError> {
        self.here()?.servers()
    }
    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision, CellError> {
        self.here()?.put_server(server, expected)
    }
    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision, CellError> {
        self.here()?.remove_server(id, expected)
    }
    fn revision(&self) -> Result<Revision, CellError> {
        self.here()?.revision()
    }
    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>, CellError> {
        self.here()?.changes(since, max)
    }
    fn copy(&self) -> Result<Box<dyn CellCopy>, CellError> {
        self.here()?.copy()
    }
    fn access(&self) -> &dyn Access {
        self.db.access()
    }
}

fn id(server: usize) -> ServerId {
    ServerId((server as u128 + 1) << 96)
}

fn parts(server: usize, db: &Arc<Switched>) -> Box<dyn Fn() -> ViceParts> {
    let db = Arc::clone(db);
    Box::new(move || {
        let (name, keys) = (format!("server-{server}"), Vec::new());
        let addresses = vec![([127, 0, 0, 1], 7000 + server as u16).into()];
        let me = Some(ServerInfo { id: id(server), name, addresses, keys });
        let cell = CellAccess::Database(Arc::clone(&db) as Arc<dyn CellDb>);
        ViceParts { me, cell, ..ViceParts::default() }
    })
}

/// Servers 0, 1, ... of a cell. The volume `data` is at server 0; all others stand by.
struct Cell {
    db: Arc<Switched>,
    rigs: Vec<Rig>,
    /// The question of each standby that is not answered, and whom it asked.
    asked: Vec<Option<(usize, ReplyAddress)>>,
    /// Servers that answer no other server.
    silent: Vec<bool>,
    /// Standbys ask for answers of this size; `None`: of any size.
    bytes_max: Option<u32>,
    /// Standbys apply what waits while the question is on its way, not when its answer comes.
    applies_meanwhile: bool,
    /// Questions that were asked before all that was received was applied.
    asked_ahead: usize,
    root: Fid,
}

impl Cell {
    fn new(kinds: &[SiteKind]) -> Cell {
        let dir = tempfile::tempdir().unwrap();
        let db = Embedded::open(dir.path()).unwrap();
        let db = Arc::new(Switched {
            db,
            away: false.into(),
            answer_is_lost: false.into(),
            change_is_lost: false.into(),
            _dir: dir,
        });
        let count = kinds.len() + 1;
        let mut rigs: Vec<_> = (0..count)
            .map(|server| {
                let (ground, quota) = (Ground::memory(), store::VolumeQuota::default());
                // Client 0 is the user, the next ones are the other servers.
                Rig::with(ground, 1 + count, quota, parts(server, &db))
            })
            .collect();
        for (server, rig) in rigs.iter().enumerate() {
            db.put_server(rig.vice().me(), Revision(0)).unwrap();
            assert_eq!(rig.vice().me().id, id(server));
        }
        let create = VolumeCall::Create {
            id: Some(TREE),
            partition: None,
            name: name("data"),
            quota_bytes: 0,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        rigs[0].call(0, &ROOT, Call::Volume(create)).unwrap();
        let root = rigs[0].root_of(0, "data").unwrap();
        let site = |server: usize, kind| Site {
            server: id(server),
            partition: "/vicepa".to_owned(),
            kind,
            epoch: 0,
        };
        let mut group = VolumeGroup::new(name("data"), TREE, site(0, SiteKind::ReadWrite));
        group.sites.extend(kinds.iter().zip(1..).map(|(kind, server)| site(server, *kind)));
        db.put_group(&group, Revision(0)).unwrap();
        let (asked, silent) = (vec![None; count], vec![false; count]);
        let (bytes_max, applies_meanwhile, asked_ahead) = (None, true, 0);
        let mut cell =
            Cell { db, rigs, asked, silent, bytes_max, applies_meanwhile, asked_ahead, root };
        for server in 1..count {
            cell.stand_by(server);
        }
        cell
    }

    fn stand_by(&mut self, server: usize) {
        let call = VolumeCall::StandBy { partition: PartitionNo(0), tree: TREE };
        self.rigs[server].call(0, &ROOT, Call::Volume(call)).unwrap();
    }

    fn group(&self) -> VolumeGroup {
        self.db.db.group_of(TREE).unwrap().unwrap().record
    }

    fn change_group(&self, change: impl FnOnce(&mut VolumeGroup)) {
        let mut known = self.db.db.group_of(TREE).unwrap().unwrap();
        change(&mut known.record);
        self.db.db.put_group(&known.record, known.revision).unwrap();
    }

    fn in_step(&self, server: usize) -> bool {
        self.group().sites.iter().any(|site| site.server == id(server) && site.is_in_step())
    }

    /// The server asks the database, if it needs to.
    fn settle(&mut self, server: usize) {
        let rig = &mut self.rigs[server];
        if rig.vice().has_doubts(rig.now) {
            let mut out = Vec::new();
            rig.vice().settle_doubts(rig.now, rig.clock(), &mut out);
            rig.deliver(out);
        }
    }

    /// One step of the standby at this server. False: it waits for an answer, or pauses.
    fn step(&mut self, server: usize) -> bool {
        if let Some((at, origin)) = self.asked[server] {
            let Some(answer) = self.rigs[at].reply(origin) else {
                if !self.silent[at] {
                    return false;
                }
                self.asked[server] = None;
                self.lose(server);
                return true;
            };
            self.asked[server] = None;
            let rig = &self.rigs[server];
            let answer = answer.map_err(Unanswered::Refused);
            rig.vice().followers().answered(TREE, rig.now, answer);
            return true;
        }
        let rig = &self.rigs[server];
        match rig.vice().followers().step(TREE, rig.now, rig.clock()) {
            StandbyWork::Over | StandbyWork::Pause(_) => false,
            StandbyWork::Ask(StandbyQuestion { server: of, mut call, is_ahead, .. }) => {
                if let (VolumeCall::Follow(follow), Some(bytes)) = (&mut call, self.bytes_max) {
                    follow.bytes_max = bytes;
                }
                let at = (0..self.rigs.len()).find(|server| id(*server) == of).unwrap();
                if self.silent[at] || self.silent[server] {
                    self.lose(server);
                } else {
                    let origin = self.rigs[at].start(1 + server, &ROOT, Call::Volume(call));
                    self.asked[server] = Some((at, origin));
                    self.asked_ahead += usize::from(is_ahead);
                    if is_ahead && self.applies_meanwhile {
                        let rig = &self.rigs[server];
                        rig.vice().followers().apply_waiting(TREE, rig.now);
                    }
                }
                true
            }
            StandbyWork::Pull(pull) => {
                let of = self.group().read_write_site().unwrap().server;
                let at = (0..self.rigs.len()).find(|server| id(*server) == of).unwrap();
                self.pull(at, server, pull);
                true
            }
        }
    }

    fn lose(&mut self, server: usize) {
        let rig = &self.rigs[server];
        let lost = Err(Unanswered::Lost("it is silent".to_owned()));
        rig.vice().followers().answered(TREE, rig.now, lost);
    }

    fn pull(&mut self, from: usize, to: usize, pull: types::Pull) {
        let task = TaskInfo {
            number: 1,
            tree: TREE,
            state: TaskState::Runs,
            since: 0,
            epoch: 0,
            bytes: 0,
            total_bytes: 0,
            text: String::new(),
        };
        let mut fetch = Fetch::new(pull, task);
        loop {
            if let Some(call) = fetch.question() {
                let answer = self.rigs[from].call(1 + to, &ROOT, Call::Volume(call));
                fetch.answered(answer.map_err(Unanswered::Refused));
            }
            let rig = &mut self.rigs[to];
            let mut out = Vec::new();
            match rig.vice().work(&mut fetch, rig.now, rig.clock(), &mut out) {
                Work::Over => break,
                Work::Pause(_) => assert!(rig.vice().partition().sweep(100).unwrap() > 0),
                Work::Did | Work::Waits => {}
            }
            rig.deliver(out);
        }
        let task = fetch.task().clone();
        let done = task.state == TaskState::Done;
        let result = if done { Ok(()) } else { Err(task.text) };
        self.rigs[to].vice().followers().pulled(TREE, result);
    }

    /// Steps, ticks and settlements until the standby has nothing to do.
    fn follow(&mut self, server: usize) {
        for _ in 0..200 {
            let primary = self.asked[server].map_or(0, |(at, _)| at);
            while self.rigs[server].vice().partition().sweep(100).unwrap() > 0 {}
            let went_on = self.step(server);
            self.settle(primary);
            self.settle(server);
            if !went_on && self.asked[server].is_some() {
                return;
            }
        }
    }

    /// Time passes at all servers. They do what is due, and ask nothing.
    fn wait(&mut self, millis: u64) {
        (0..self.rigs.len()).for_each(|server| self.wait_at(server, millis));
    }

    /// Time passes at this server, whose clients stay.
    fn wait_at(&mut self, server: usize, mut millis: u64) {
        let rig = &mut self.rigs[server];
        while millis > 0 {
            let step = millis.min(5000);
            rig.wait(Duration::from_millis(step));
            (0..rig.clients.len()).for_each(|who| _ = rig.renew(who));
            millis -= step;
        }
    }

    /// Time passes while the standbys of these servers follow.
    fn wait_and_follow(&mut self, servers: &[usize], millis: u64) {
        for _ in 0..millis / 250 {
            self.wait(250);
            servers.iter().for_each(|server| self.follow(*server));
        }
    }

    /// The standby follows until the database lists it as in step, and knows it.
    fn enter(&mut self, server: usize) {
        self.follow(server);
        self.wait_and_follow(&[server], 1500);
        assert!(self.in_step(server), "{:?} {:?}", self.group(), self.standbys());
    }

    fn standbys(&mut self) -> Vec<StandbyInfo> {
        match self.rigs[0].call(0, &ROOT, Call::Volume(VolumeCall::Standbys { id: TREE })) {
            Ok(Answer::Standbys(infos)) => infos,
            other => panic!("{other:?}"),
        }
    }

    /// The position behind what a standby has applied.
    fn applied(&self, server: usize) -> u64 {
        self.rigs[server].vice().partition().standbys().list().unwrap()[0].place.position
    }

    fn make(&mut self, server: usize, at: &str) -> ReplyAddress {
        let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
        let call = Call::Make { dir: self.root, name: name(at), kind, mode: 0o644, how };
        self.rigs[server].start(0, &ROOT, call)
    }

    fn answer(&mut self, server: usize, origin: ReplyAddress) -> Option<Result<Answer, Fault>> {
        self.rigs[server].reply(origin)
    }

    fn has(&mut self, server: usize, at: &str) -> Result<bool, Fault> {
        let call = Call::Lookup { dir: self.root, name: name(at) };
        match self.rigs[server].call(0, &ROOT, call)? {
            Answer::Entry { .. } => Ok(true),
            _ => Ok(false),
        }
    }
}

/// The names of all volumes at a server.
fn names(rig: &mut Rig) -> Vec<String> {
    let list = VolumeCall::List { partition: PartitionNo(0), after: VolumeId(0), max: 100 };
    match rig.call(0, &ROOT, Call::Volume(list)) {
        Ok(Answer::Volumes { volumes, .. }) => volumes
            .into_iter()
            .map(|one| String::from_utf8(one.name.as_bytes().to_vec()).unwrap())
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn restart(rig: &mut Rig) {
    rig.restart();
    (0..rig.clients.len()).for_each(|who| rig.reclaim(who));
}

fn made(answer: Option<Result<Answer, Fault>>) -> Fid {
    match answer {
        Some(Ok(Answer::Made { status, .. })) => status.fid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sb1_a_reply_waits_for_a_sync_standby() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    let first = cell.make(0, "before");
    made(cell.answer(0, first));
    cell.enter(1);
    let second = cell.make(0, "after");
    assert_eq!(cell.answer(0, second), None, "the standby does not have it");
    cell.follow(1);
    made(cell.answer(0, second));
}

#[test]
fn sb1_what_was_received_and_not_applied_does_not_count() {
    for applies_meanwhile in [true, false] {
        let mut cell = Cell::new(&[SiteKind::Standby]);
        cell.enter(1);
        (cell.bytes_max, cell.applies_meanwhile) = (Some(1), applies_meanwhile);
        let begin = cell.applied(1);
        let changes: Vec<_> = (0..6).map(|no| cell.make(0, &format!("file{no}"))).collect();
        let mut acknowledged = 0;
        while acknowledged < changes.len() {
            assert!(cell.step(1), "{acknowledged} changes are acknowledged");
            while let Some(answer) =
                changes.get(acknowledged).and_then(|change| cell.answer(0, *change))
            {
                made(Some(answer));
                acknowledged += 1;
            }
            let applied = cell.applied(1) - begin;
            assert!(acknowledged as u64 <= applied, "{acknowledged} with {applied} applied");
        }
        assert!(cell.asked_ahead > 1, "{}", cell.asked_ahead);
    }
}

#[test]
fn sb1_no_reply_waits_for_ever_for_a_standby_whose_disk_fails() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let Ground::Memory(machine) = &cell.rigs[1].ground else { panic!() };
    machine.fail_syncs(true);
    // After a sync that failed the disk takes no changes.
    let first = cell.make(0, "first");
    cell.wait_and_follow(&[1], 1500);
    made(cell.answer(0, first));
    let second = cell.make(0, "second");
    cell.wait_and_follow(&[1], 3000);
    assert!(!cell.in_step(1), "{:?}", cell.standbys());
    made(cell.answer(0, second));
}

#[test]
fn sb1_no_reply_waits_for_an_async_standby() {
    let mut cell = Cell::new(&[SiteKind::AsyncStandby]);
    cell.enter(1);
    let origin = cell.make(0, "file");
    made(cell.answer(0, origin));
    let [standby] = cell.standbys()[..] else { panic!("one standby") };
    assert!(standby.behind > 0 && standby.in_step && !standby.is_sync, "{standby:?}");
}

#[test]
fn sb1_a_stable_reply_waits_for_the_standbys_disk() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    for at in ["first", "second"] {
        let origin = cell.make(0, at);
        cell.follow(1);
        made(cell.answer(0, origin));
    }
    let origin = cell.make(0, "third");
    cell.follow(1);
    let file = made(cell.answer(0, origin));
    // The standby has applied the entry, and nothing was to be on disk yet.
    let commit = cell.rigs[0].start(0, &ROOT, Call::Commit { fid: file });
    assert_eq!(cell.answer(0, commit), None);
    cell.follow(1);
    assert!(matches!(cell.answer(0, commit), Some(Ok(Answer::Committed { .. }))));
    // All of it is there: the next one does not wait.
    let commit = cell.rigs[0].start(0, &ROOT, Call::CommitVolume { fid: file });
    assert!(matches!(cell.answer(0, commit), Some(Ok(Answer::Committed { .. }))));
}

#[test]
fn a_standby_syncs_while_the_server_does() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    for at in ["first", "second"] {
        let origin = cell.make(0, at);
        cell.follow(1);
        made(cell.answer(0, origin));
    }
    let file = cell.root;
    let commit = Call::CommitVolume { fid: file };
    let mut out = Vec::new();
    let rig = &mut cell.rigs[0];
    rig.vice().announce(rig.now, &commit, &mut out);
    rig.deliver(out);
    cell.follow(1);
    let origin = cell.rigs[0].start(0, &ROOT, commit);
    let answer = cell.answer(0, origin);
    assert!(matches!(answer, Some(Ok(Answer::Committed { .. }))), "it has it on disk: {answer:?}");
}

#[test]
fn sb1_what_was_acknowledged_before_it_entered_is_there_too() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    while cell.standbys().is_empty() {
        cell.step(1);
    }
    for step in ["the base's number comes", "the base comes", "the first question"] {
        assert!(cell.step(1), "{step}");
    }
    let early = cell.make(0, "early");
    made(cell.answer(0, early));
    assert!(cell.step(1), "the standby takes the answer, and has all that there was");
    assert!(cell.step(1), "its next question says so");
    cell.settle(0);
    assert!(!cell.in_step(1), "it does not have the file");
    let later = cell.make(0, "later");
    assert_eq!(cell.answer(0, later), None, "replies wait for it already");
    cell.follow(1);
    made(cell.answer(0, later));
    assert!(cell.in_step(1));
}

#[test]
fn sb3_a_silent_standby_fences_until_the_database_says() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let held = cell.make(0, "held");
    assert_eq!(cell.answer(0, held), None);
    cell.db.away.store(true, Ordering::SeqCst);
    cell.wait(1600);
    cell.settle(0);
    // Nothing is served, not even reads.
    let (root, call) = (cell.root, |fid| Call::GetStatus { fid });
    let read = cell.rigs[0].start(0, &ROOT, call(root));
    let change = cell.rigs[0].start_in(0, 1, &ROOT, call(root));
    cell.wait(60_000);
    cell.settle(0);
    assert_eq!((cell.answer(0, held), cell.answer(0, read)), (None, None));
    cell.db.away.store(false, Ordering::SeqCst);
    cell.wait(1000);
    cell.settle(0);
    assert!(!cell.in_step(1));
    made(cell.answer(0, held));
    assert!(matches!(cell.answer(0, read), Some(Ok(Answer::Status(_)))));
    assert!(matches!(cell.answer(0, change), Some(Ok(Answer::Status(_)))));
    // It goes on alone, and the standby comes back.
    let alone = cell.make(0, "alone");
    made(cell.answer(0, alone));
    cell.enter(1);
    assert_eq!(cell.standbys()[0].behind, 0);
}

#[test]
fn sb3_a_call_that_comes_late_is_not_served_before_the_tick() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    // The server's process was stopped for a moment: no tick came between.
    cell.rigs[0].now = cell.rigs[0].now + Duration::from_millis(1600);
    let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
    assert_eq!(cell.answer(0, read), None);
}

#[test]
fn sb3_a_standby_that_comes_back_ends_the_fence() {
    // The second time it has tried to take over meanwhile, and could not.
    for millis in [1600, 4000] {
        let mut cell = Cell::new(&[SiteKind::Standby]);
        cell.enter(1);
        cell.db.away.store(true, Ordering::SeqCst);
        cell.silent[1] = true;
        for _ in 0..millis / 200 {
            cell.wait(200);
            (0..3).for_each(|_| _ = cell.step(1));
        }
        let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
        assert_eq!(cell.answer(0, read), None);
        cell.silent[1] = false;
        for _ in 0..4 {
            cell.wait(250);
            cell.follow(1);
        }
        let answer = cell.answer(0, read);
        assert!(matches!(answer, Some(Ok(Answer::Status(_)))), "{millis}: {:?}", cell.standbys());
    }
}

/// The volume's server is silent; the standby takes over, and serves when it may.
fn take_over(cell: &mut Cell) {
    cell.silent[0] = true;
    cell.wait(500);
    cell.follow(1);
    for _ in 0..16 {
        cell.wait_at(1, 250);
        cell.follow(1);
    }
    assert_eq!(cell.group().read_write_site().unwrap().server, id(1), "{:?}", cell.group());
    assert!(cell.rigs[1].root_of(0, "data").is_err(), "clients may trust the former server");
    for _ in 0..20 {
        cell.wait_at(1, 1000);
        cell.settle(1);
    }
    cell.rigs[1].root_of(0, "data").unwrap();
}

/// The former server learns that it is superseded, and follows as a standby until it is in step.
fn come_back(cell: &mut Cell) {
    cell.wait_at(0, 1000);
    cell.settle(0);
    cell.silent[0] = false;
    for _ in 0..12 {
        cell.wait(250);
        cell.follow(0);
    }
    assert!(cell.in_step(0), "{:?}", cell.group());
}

/// The volume comes back to server 0 on an order, and serves there.
fn take_back(cell: &mut Cell) {
    let order = Call::Volume(VolumeCall::FailOver { id: TREE, force: false });
    assert_eq!(cell.rigs[0].call(0, &ROOT, order), Ok(Answer::Done));
    cell.settle(1);
    for _ in 0..20 {
        cell.wait_at(0, 1000);
        cell.settle(0);
    }
}

#[test]
fn sb6_claims_are_executed_before_anything_else() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let root = cell.root;
    let slots = match cell.rigs[0].call(0, &ROOT, Call::Delegate { fid: root }) {
        Ok(Answer::Delegation { slots, .. }) => slots,
        other => panic!("{other:?}"),
    };
    let origin = cell.make(0, "locked");
    cell.follow(1);
    let locked = made(cell.answer(0, origin));
    let delegated = |rig: &mut Rig, at: &str, slot: u64| {
        let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
        let call = Call::Make { dir: root, name: name(at), kind, mode: 0o644, how };
        let at = rig.clock();
        rig.call(0, &ROOT, Call::Delegated { at, slot, call: Box::new(call) })
    };
    let lock = |who: usize, reclaim: bool| Call::Lock {
        fid: locked,
        owner: types::LockOwner(who as u64),
        pid: 1,
        family: types::LockFamily::Flock,
        range: types::ByteRange { start: 0, end: u64::MAX },
        mode: types::LockMode::Exclusive,
        wait: false,
        reclaim,
    };
    cell.silent[0] = true;
    for _ in 0..20 {
        cell.wait_at(1, 250);
        cell.follow(1);
    }
    assert_eq!(cell.group().read_write_site().unwrap().server, id(1), "{:?}", cell.group());
    let state = |rig: &mut Rig| {
        let which = types::WhichVolume::Id(TREE);
        match rig.call(0, &ROOT, Call::Volume(VolumeCall::Examine { volume: which })) {
            Ok(Answer::Volumes { volumes, .. }) => volumes[0].state,
            other => panic!("{other:?}"),
        }
    };
    let rig = &mut cell.rigs[1];
    assert_eq!(state(rig), types::VolumeState::TakingOver);
    // Nothing but claims.
    let absent = Err(Fault::NoVolume);
    assert_eq!(rig.call(0, &ROOT, Call::GetStatus { fid: root }), absent);
    assert_eq!(rig.call(0, &ROOT, write(locked, Some(0), b"x")), absent);
    assert_eq!(rig.call(1, &ROOT, lock(1, false)), absent);
    assert_eq!(rig.call(0, &ROOT, Call::Delegate { fid: root }), absent);
    let claimed = delegated(rig, "claimed", slots.first);
    assert!(matches!(claimed, Ok(Answer::Made { .. })), "{claimed:?}");
    assert_eq!(rig.call(0, &ROOT, lock(0, true)), Ok(Answer::Done));
    assert_eq!(rig.call(1, &ROOT, lock(1, true)), Err(Fault::Locked), "it has an owner");
    assert_eq!(rig.call(0, &ROOT, Call::Hold { fids: vec![locked] }), Ok(Answer::Done));
    for _ in 0..20 {
        cell.wait_at(1, 1000);
        cell.settle(1);
    }
    assert_eq!(state(&mut cell.rigs[1]), types::VolumeState::Online);
    assert_eq!(cell.has(1, "claimed"), Ok(true));
    let rig = &mut cell.rigs[1];
    assert_eq!(delegated(rig, "late", slots.first + 1), Err(Fault::NotDelegated));
    assert_eq!(rig.call(1, &ROOT, lock(1, false)), Err(Fault::Locked), "it is locked");
}

/// The standby takes over by an order, and the former server is told that it is a standby now.
/// `knows`: it has read that in the database before, and put the volume aside.
fn order(cell: &mut Cell, knows: bool) -> ReplyAddress {
    let hold = VolumeCall::Hold { id: TREE, millis: 9000 };
    cell.rigs[0].call(1, &ROOT, Call::Volume(hold)).unwrap();
    cell.follow(1);
    let call = VolumeCall::FailOver { id: TREE, force: false };
    assert_eq!(cell.rigs[1].call(1, &ROOT, Call::Volume(call)), Ok(Answer::Done));
    for _ in 0..if knows { 10 } else { 0 } {
        cell.wait_at(0, 500);
        cell.settle(0);
        cell.step(0);
    }
    assert_eq!(knows, !names(&mut cell.rigs[0]).contains(&"data".to_owned()));
    let call = VolumeCall::StandBy { partition: PartitionNo(0), tree: TREE };
    cell.rigs[0].start(1, &ROOT, Call::Volume(call))
}

#[test]
fn an_ordered_takeover_waits_for_clients_that_trust_the_server() {
    for knows in [false, true] {
        waits_for_clients_that_trust_it(knows);
    }
}

fn waits_for_clients_that_trust_it(knows: bool) {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let root = cell.root;
    cell.rigs[0].call(0, &ROOT, Call::GetStatus { fid: root }).unwrap();
    cell.rigs[0].clients[0].prompt = false;
    let given_up = order(&mut cell, knows);
    assert_eq!(cell.answer(0, given_up), None, "a client has a promise");
    assert_eq!(cell.has(0, "any"), Err(Fault::NoVolume));
    // A freeze that ends late makes the volume serve no more.
    let hold = VolumeCall::Hold { id: TREE, millis: 0 };
    let _ = cell.rigs[0].call(1, &ROOT, Call::Volume(hold));
    assert_eq!(cell.has(0, "any"), Err(Fault::NoVolume));
    cell.rigs[0].acknowledge(0);
    assert_eq!(cell.answer(0, given_up), Some(Ok(Answer::Done)));
    let serve = VolumeCall::Serve { id: TREE };
    assert_eq!(cell.rigs[1].call(1, &ROOT, Call::Volume(serve)), Ok(Answer::Done));
    cell.rigs[1].call(0, &ROOT, Call::GetStatus { fid: root }).unwrap();
}

#[test]
fn an_order_does_not_wait_for_grace() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let rig = &mut cell.rigs[1];
    rig.restart();
    rig.resume(0).unwrap();
    let call = VolumeCall::StandBy { partition: PartitionNo(0), tree: TREE };
    assert_eq!(rig.call(0, &ROOT, Call::Volume(call)), Ok(Answer::Done));
}

#[test]
fn an_ordered_takeover_waits_for_a_lease_if_there_are_locks() {
    for knows in [false, true] {
        waits_for_a_lease_if_there_are_locks(knows);
    }
}

fn waits_for_a_lease_if_there_are_locks(knows: bool) {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "locked");
    cell.follow(1);
    let fid = made(cell.answer(0, origin));
    let lock = |who: u64, mode, wait| Call::Lock {
        fid,
        owner: types::LockOwner(who),
        pid: 1,
        family: types::LockFamily::Posix,
        range: types::ByteRange { start: 0, end: 9 },
        mode,
        wait,
        reclaim: false,
    };
    let shared = lock(1, types::LockMode::Shared, false);
    assert_eq!(cell.rigs[0].call(0, &ROOT, shared), Ok(Answer::Done));
    let waits = lock(2, types::LockMode::Exclusive, true);
    let waits = cell.rigs[0].start_in(0, 9, &ROOT, waits);
    assert_eq!(cell.answer(0, waits), None);
    let given_up = order(&mut cell, knows);
    assert_eq!(cell.answer(0, given_up), Some(Err(Fault::Busy)));
    assert_eq!(cell.answer(0, waits), Some(Err(Fault::NoVolume)), "it asks the new server");
    assert_eq!(cell.has(0, "any"), Err(Fault::NoVolume), "it serves no more all the same");
    assert_eq!(cell.has(1, "any"), Err(Fault::NoVolume), "and the other not yet");
    assert!(cell.rigs[0].vice().followers().has(TREE), "it stands by all the same");
    // A lease later no client trusts the lock, whatever the table of the former server has.
    cell.wait_at(0, 30_000);
    let call = VolumeCall::StandBy { partition: PartitionNo(0), tree: TREE };
    assert_eq!(cell.rigs[0].call(1, &ROOT, Call::Volume(call)), Ok(Answer::Done));
}

#[test]
fn sb6_delegated_changes_are_judged_by_the_callers_rights() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    cell.silent[0] = true;
    for _ in 0..20 {
        cell.wait_at(1, 250);
        cell.follow(1);
    }
    let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
    let call = Call::Make { dir: cell.root, name: name("x"), kind, mode: 0o644, how };
    let rig = &mut cell.rigs[1];
    let at = rig.clock();
    let call = Call::Delegated { at, slot: 1 << 40, call: Box::new(call) };
    // A slot that no session was given.
    assert_eq!(rig.call(0, &ROOT, call.clone()), Err(Fault::NotDelegated));
    let other = user(1000, 1000, &[]);
    assert_eq!(rig.call(0, &other, call), Err(Fault::AccessDenied));
}

#[test]
fn sb2_a_standby_takes_over_with_all_that_was_acknowledged() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "acknowledged");
    cell.follow(1);
    made(cell.answer(0, origin));
    let lost = cell.make(0, "not acknowledged");
    assert_eq!(cell.answer(0, lost), None);
    take_over(&mut cell);
    let sites = cell.group().sites;
    assert_eq!((sites[0].server, sites[0].kind), (id(1), SiteKind::ReadWrite));
    assert_eq!((sites[1].server, sites[1].kind), (id(0), SiteKind::Standby));
    assert_eq!(cell.has(1, "acknowledged"), Ok(true));
    // The former server learns of it before it serves any client.
    cell.wait_at(0, 1000);
    cell.settle(0);
    cell.wait_at(0, 1000);
    cell.settle(0);
    assert_eq!(cell.answer(0, lost), Some(Err(Fault::NoVolume)), "its client asks the new server");
    assert_eq!(cell.has(0, "acknowledged"), Err(Fault::NoVolume));
}

#[test]
fn sb2_a_takeover_whose_answer_is_lost_loses_nothing() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "acknowledged");
    cell.follow(1);
    made(cell.answer(0, origin));
    cell.silent[0] = true;
    cell.wait(500);
    cell.follow(1);
    cell.wait_at(1, 1800);
    cell.db.answer_is_lost.store(true, Ordering::SeqCst);
    for _ in 0..6 {
        cell.step(1);
        cell.wait_at(1, 100);
    }
    assert!(!cell.db.answer_is_lost.load(Ordering::SeqCst), "it has tried");
    assert_eq!(cell.group().read_write_site().unwrap().server, id(1));
    // The former server was started again meanwhile, and knows no place of an earlier feed.
    restart(&mut cell.rigs[0]);
    cell.silent[0] = false;
    for _ in 0..40 {
        cell.wait_at(1, 1000);
        cell.follow(1);
    }
    assert_eq!(cell.has(1, "acknowledged"), Ok(true));
}

#[test]
fn sb2_the_former_server_comes_back_as_a_standby() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let lost = cell.make(0, "lost");
    assert_eq!(cell.answer(0, lost), None);
    take_over(&mut cell);
    // It had the last change on disk, and did not acknowledge it. Nor does it now.
    restart(&mut cell.rigs[0]);
    cell.silent[0] = false;
    let call = Call::Lookup { dir: cell.root, name: name("lost") };
    let read = cell.rigs[0].start(0, &ROOT, call);
    assert_eq!(cell.answer(0, read), None, "it asks the database first");
    cell.rigs[0].vice().followers().find().unwrap();
    cell.settle(0);
    assert_eq!(cell.answer(0, read), Some(Err(Fault::NoVolume)));
    cell.follow(0);
    for _ in 0..8 {
        cell.wait(250);
        cell.follow(0);
    }
    assert!(cell.in_step(0), "{:?}", cell.group());
    let names = names(&mut cell.rigs[0]);
    assert!(names.iter().any(|name| name.starts_with("data.surplus-")), "{names:?}");
    assert!(!names.contains(&"data".to_owned()), "{names:?}");
    let origin = cell.make(1, "later");
    assert_eq!(cell.answer(1, origin), None, "now it waits for the former server");
    cell.follow(0);
    made(cell.answer(1, origin));
}

/// A standby began anew before the question to the database ended, and the call was forgotten.
#[test]
fn sb2_a_call_is_answered_though_the_standby_begins_first() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    take_over(&mut cell);
    restart(&mut cell.rigs[0]);
    cell.silent[0] = false;
    let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
    assert_eq!(cell.answer(0, read), None, "it asks the database first");
    // The standby looks in the record first.
    cell.stand_by(0);
    cell.follow(0);
    cell.settle(0);
    assert_eq!(cell.answer(0, read), Some(Err(Fault::NoVolume)));
    cell.wait_and_follow(&[0], 2000);
    assert!(cell.in_step(0), "{:?}", cell.group());
}

#[test]
fn sb3_a_server_that_starts_asks_until_its_change_is_there() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    // After the second start the record is as the server wants it: only its own change is missing.
    for _ in 0..2 {
        restart(&mut cell.rigs[0]);
        cell.asked[1] = None;
        cell.db.change_is_lost.store(true, Ordering::SeqCst);
        let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
        cell.settle(0);
        assert!(!cell.db.change_is_lost.load(Ordering::SeqCst), "it has tried");
        assert_eq!(cell.answer(0, read), None);
        cell.wait_at(0, 1000);
        cell.settle(0);
        assert!(matches!(cell.answer(0, read), Some(Ok(Answer::Status(_)))));
    }
}

#[test]
fn sb3_a_server_that_starts_asks_before_it_serves() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    restart(&mut cell.rigs[0]);
    cell.asked[1] = None;
    cell.db.away.store(true, Ordering::SeqCst);
    let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
    let by_name = cell.rigs[0].start_in(0, 1, &ROOT, Call::Root { volume: name("data") });
    cell.settle(0);
    cell.wait_at(0, 40_000);
    cell.settle(0);
    assert_eq!((cell.answer(0, read), cell.answer(0, by_name)), (None, None));
    cell.db.away.store(false, Ordering::SeqCst);
    cell.wait_at(0, 1000);
    cell.settle(0);
    assert!(matches!(cell.answer(0, read), Some(Ok(Answer::Status(_)))));
    assert!(matches!(cell.answer(0, by_name), Some(Ok(Answer::Status(_)))));
    assert!(!cell.in_step(1));
    // The standby knew that it was in step, which does not help it.
    cell.silent[0] = true;
    cell.lose(1);
    cell.wait_at(1, 3000);
    (0..4).for_each(|_| cell.follow(1));
    assert_eq!(cell.group().read_write_site().unwrap().server, id(0));
    cell.silent[0] = false;
    cell.enter(1);
}

#[test]
fn sb2_a_recorded_reply_waits_for_the_database_too() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
    let call = Call::Make { dir: cell.root, name: name("lost"), kind, mode: 0o644, how };
    let lost = cell.rigs[0].start_in(0, 1, &ROOT, call.clone());
    assert_eq!(cell.answer(0, lost), None);
    take_over(&mut cell);
    restart(&mut cell.rigs[0]);
    // The client repeats its request at the former server, which has the record of the reply.
    for _ in 0..2 {
        cell.rigs[0].perform(lost, &ROOT, call.clone());
        cell.settle(0);
        let answer = cell.answer(0, lost);
        assert_eq!(answer, Some(Err(Fault::NoVolume)), "the new server does not have the change");
    }
}

/// The record was of a generation that the server has put aside. It was sent once the volume had
/// come back, without the change.
#[test]
fn sb1_a_recorded_reply_is_void_when_the_volume_comes_back() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
    let call = Call::Make { dir: cell.root, name: name("lost"), kind, mode: 0o644, how };
    // The standby's question is lost, so it does not get the change.
    cell.silent[0] = true;
    cell.asked[1] = None;
    cell.lose(1);
    let lost = cell.rigs[0].start_in(0, 1, &ROOT, call.clone());
    assert_eq!(cell.answer(0, lost), None);
    take_over(&mut cell);
    restart(&mut cell.rigs[0]);
    cell.silent[0] = false;
    cell.rigs[0].vice().followers().find().unwrap();
    cell.settle(0);
    cell.wait_and_follow(&[0], 3000);
    assert!(cell.in_step(0), "{:?}", cell.group());
    take_back(&mut cell);
    assert_eq!(cell.has(0, "lost"), Err(Fault::NotFound));
    // The client got no answer before the server stopped.
    while cell.answer(0, lost).is_some() {}
    cell.rigs[0].perform(lost, &ROOT, call);
    assert_eq!(cell.answer(0, lost), Some(Err(Fault::NoVolume)), "its client asks what is there");
}

fn inherited(rig: &mut Rig, origin: ReplyAddress) -> types::Inherited {
    match rig.call_in(0, 63, &ROOT, Call::Volume(VolumeCall::Inherit { id: TREE, origin })) {
        Ok(Answer::Inherited(known)) => known,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sb5_replies_to_what_a_base_has_come_with_it() {
    let mut cell = Cell::new(&[SiteKind::Standby, SiteKind::Standby]);
    let make = |cell: &mut Cell, slot: u32, at: &str| {
        let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
        let call = Call::Make { dir: cell.root, name: name(at), kind, mode: 0o644, how };
        cell.rigs[0].start_in(0, slot, &ROOT, call)
    };
    // Answered before the first base.
    let before = make(&mut cell, 5, "before");
    made(cell.answer(0, before));
    cell.enter(1);
    // Held for the first standby when the base of the second one is sealed.
    let held = make(&mut cell, 6, "held");
    assert_eq!(cell.answer(0, held), None);
    for _ in 0..20 {
        cell.step(2);
    }
    cell.follow(1);
    made(cell.answer(0, held));
    cell.enter(1);
    cell.enter(2);
    cell.silent[0] = true;
    cell.silent[1] = true;
    for _ in 0..30 {
        cell.wait_at(2, 1000);
        cell.follow(2);
        cell.settle(2);
    }
    assert_eq!(cell.group().read_write_site().unwrap().server, id(2), "{:?}", cell.group());
    assert_eq!(cell.has(2, "held"), Ok(true));
    for origin in [before, held] {
        let known = inherited(&mut cell.rigs[2], origin);
        assert_eq!(known.origin, origin);
        assert!(!known.answer.is_empty(), "the client asks for its reply");
    }
}

#[test]
fn sb5_a_base_brings_replies_that_wait_for_breaks() {
    for is_fed in [false, true] {
        let mut cell = Cell::new(&[SiteKind::Standby, SiteKind::AsyncStandby]);
        if is_fed {
            cell.enter(2);
        }
        // A client that does not answer has a promise of the directory.
        let root = cell.root;
        cell.rigs[0].call(2, &ROOT, Call::GetStatus { fid: root }).unwrap();
        cell.rigs[0].clients[2].prompt = false;
        let (kind, how) = (types::NewKind::File, types::CreateHow::Guarded);
        let call = Call::Make { dir: cell.root, name: name("waits"), kind, mode: 0o644, how };
        let origin = cell.rigs[0].start_in(0, 5, &ROOT, call);
        assert_eq!(cell.answer(0, origin), None, "it waits for the acknowledgement");
        cell.enter(1);
        assert_eq!(cell.answer(0, origin), None, "still");
        take_over(&mut cell);
        assert_eq!(cell.has(1, "waits"), Ok(true));
        let known = inherited(&mut cell.rigs[1], origin);
        assert_eq!(known.origin, origin);
        assert!(!known.answer.is_empty(), "the client asks for its reply");
    }
}

#[test]
fn sb1_a_reply_that_waits_for_breaks_is_of_the_former_server() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    // A client that does not answer has a promise of the directory.
    let root = cell.root;
    cell.rigs[0].call(1, &ROOT, Call::GetStatus { fid: root }).unwrap();
    cell.rigs[0].clients[1].prompt = false;
    let origin = cell.make(0, "waits");
    assert_eq!(cell.answer(0, origin), None, "it waits for the acknowledgement");
    take_over(&mut cell);
    cell.wait_at(0, 1000);
    cell.settle(0);
    cell.silent[0] = false;
    for _ in 0..8 {
        cell.wait(250);
        cell.follow(0);
    }
    let names = names(&mut cell.rigs[0]);
    assert!(!names.contains(&"data".to_owned()), "it is put aside: {names:?}");
    assert_eq!(cell.answer(0, origin), None, "still");
    cell.rigs[0].acknowledge(1);
    assert_eq!(cell.answer(0, origin), Some(Err(Fault::NoVolume)), "its client asks elsewhere");
}

#[test]
fn sb5_a_change_of_an_ended_session_comes_with_its_reply() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    // The standby's question is answered, and it has not asked again.
    cell.wait(350);
    let origin = cell.make(0, "file");
    assert_eq!(cell.answer(0, origin), None);
    // The server ends the session, and its client does not hear of that.
    cell.rigs[0].detach(0);
    cell.follow(1);
    take_over(&mut cell);
    assert_eq!(cell.has(1, "file"), Ok(true));
    let known = inherited(&mut cell.rigs[1], origin);
    assert_eq!(known.origin, origin, "its client would make the change again");
    assert!(!known.answer.is_empty());
}

#[test]
fn sb5_a_client_inherits_its_own_replies_alone() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "file");
    cell.follow(1);
    made(cell.answer(0, origin));
    take_over(&mut cell);
    let call = |origin| Call::Volume(VolumeCall::Inherit { id: TREE, origin });
    let asked = ReplyAddress { request: 0, ..origin };
    let Ok(Answer::Inherited(mine)) = cell.rigs[1].call(0, &ROOT, call(asked)) else { panic!() };
    assert_eq!(mine.origin, origin);
    let answer = dafs::decode_answer_record(&mine.answer).unwrap();
    assert!(matches!(answer, Answer::Made { .. }), "{answer:?}");
    let Ok(Answer::Inherited(other)) = cell.rigs[1].call(1, &ROOT, call(asked)) else { panic!() };
    assert_eq!((other.origin.request, other.answer.len()), (0, 0));
}

#[test]
fn a_question_from_a_wrong_place_is_refused() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let feed = Call::Volume(VolumeCall::Feed { id: TREE, standby: id(5) });
    assert_eq!(cell.rigs[0].call(0, &ROOT, feed), Err(Fault::NotPermitted));
    let origin = cell.make(0, "file");
    let place = types::FeedPlace { feed: 1, position: 0 };
    let follow = types::Follow {
        id: TREE,
        standby: id(1),
        base: 1,
        applied: place,
        synced: 0,
        heard: 0,
        bytes_max: 1 << 20,
    };
    let ask = |cell: &mut Cell, follow| {
        let call = Call::Volume(VolumeCall::Follow(Box::new(follow)));
        cell.rigs[0].call(0, &ROOT, call)
    };
    assert_eq!(ask(&mut cell, follow), Err(Fault::Conflict));
    let stranger = types::Follow { standby: id(5), ..follow };
    assert_eq!(ask(&mut cell, stranger), Err(Fault::Conflict));
    let beyond = types::Follow { synced: 7, ..follow };
    assert_eq!(ask(&mut cell, beyond), Err(Fault::Invalid));
    assert_eq!(cell.answer(0, origin), None, "no such question acknowledges anything");
}

#[test]
fn a_standby_that_is_removed_is_waited_for_no_more() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "file");
    assert_eq!(cell.answer(0, origin), None);
    assert!(names(&mut cell.rigs[0]).iter().any(|name| name.starts_with("data.standby-")));
    cell.change_group(|group| group.sites.retain(|site| !site.kind.is_standby()));
    cell.settle(0);
    made(cell.answer(0, origin));
    for server in [0, 1] {
        cell.wait(500);
        cell.follow(1);
        let names = names(&mut cell.rigs[server]);
        assert!(!names.iter().any(|name| name.contains(".standby-")), "{server}: {names:?}");
    }
    assert!(!cell.rigs[1].vice().followers().has(TREE));
}

#[test]
fn sb2_the_record_decides_between_server_and_standby() {
    for standby_is_first in [false, true] {
        let mut cell = Cell::new(&[SiteKind::Standby]);
        cell.enter(1);
        let held = cell.make(0, "held");
        cell.silent[0] = true;
        cell.wait(500);
        cell.follow(1);
        if standby_is_first {
            cell.wait_at(1, 3000);
            cell.follow(1);
            cell.wait_at(0, 3000);
            cell.settle(0);
        } else {
            cell.wait_at(0, 3000);
            cell.settle(0);
            cell.wait_at(1, 3000);
            (0..3).for_each(|_| cell.follow(1));
        }
        let winner = usize::from(standby_is_first);
        assert_eq!(cell.group().read_write_site().unwrap().server, id(winner));
        let answer = cell.answer(0, held);
        if standby_is_first {
            // The client asks the standby whether it has the change.
            assert_eq!(answer, Some(Err(Fault::NoVolume)));
        } else {
            made(answer);
        }
        let read = cell.rigs[0].start(0, &ROOT, Call::GetStatus { fid: cell.root });
        let answer = cell.answer(0, read);
        let is_served = matches!(answer, Some(Ok(_)));
        assert_eq!(is_served, !standby_is_first, "{answer:?}");
    }
}

#[test]
fn sb2_an_order_to_take_over_needs_a_standby_in_step() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    let order = |force| Call::Volume(VolumeCall::FailOver { id: TREE, force });
    while cell.step(1) {}
    assert_eq!(cell.rigs[1].call(0, &ROOT, order(false)), Err(Fault::Conflict));
    cell.enter(1);
    cell.wait(250);
    cell.follow(1);
    assert_eq!(cell.rigs[1].call(0, &ROOT, order(false)), Ok(Answer::Done));
    assert_eq!(cell.group().read_write_site().unwrap().server, id(1));
    // The former server served until now, and hears of it from the database.
    let held = cell.make(0, "held");
    assert_eq!(cell.answer(0, held), None);
    cell.settle(0);
    assert_eq!(cell.answer(0, held), Some(Err(Fault::NoVolume)));
    assert_eq!(cell.has(0, "held"), Err(Fault::NoVolume));
    // One that is not in step takes over by force alone.
    let mut cell = Cell::new(&[SiteKind::AsyncStandby]);
    while cell.step(1) {}
    assert!(!cell.in_step(1));
    assert_eq!(cell.rigs[1].call(0, &ROOT, order(true)), Ok(Answer::Done));
    cell.settle(0);
    assert_eq!(cell.has(0, "any"), Err(Fault::NoVolume));
    let other = Call::Volume(VolumeCall::FailOver { id: VolumeId(77), force: true });
    assert_eq!(cell.rigs[1].call(0, &ROOT, other), Err(Fault::NoVolume));
}

#[test]
fn sb2_a_volume_comes_back_to_its_first_server() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let lost = cell.make(0, "lost");
    assert_eq!(cell.answer(0, lost), None);
    take_over(&mut cell);
    come_back(&mut cell);
    take_back(&mut cell);
    // It was superseded once, and holds no reply for that.
    let origin = cell.make(0, "again");
    made(cell.answer(0, origin));
    assert_eq!(cell.has(1, "again"), Err(Fault::NoVolume));
}

#[test]
fn sb5_replies_outlive_a_second_takeover() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    let origin = cell.make(0, "file");
    cell.follow(1);
    made(cell.answer(0, origin));
    take_over(&mut cell);
    come_back(&mut cell);
    take_back(&mut cell);
    // The client comes only now: it has asked the server in between for nothing.
    let known = inherited(&mut cell.rigs[0], origin);
    assert_eq!(known.origin, origin);
    assert!(!known.answer.is_empty(), "otherwise it makes the change again");
}

#[test]
fn sb2_a_server_that_no_client_calls_comes_back_as_a_standby() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    cell.silent[0] = true;
    cell.follow(1);
    // It starts and reads that the volume is its own. Then it is cut off for a while.
    restart(&mut cell.rigs[0]);
    cell.asked[1] = None;
    cell.rigs[0].vice().followers().find().unwrap();
    for _ in 0..20 {
        cell.wait_at(1, 250);
        cell.step(1);
    }
    assert_eq!(cell.group().read_write_site().unwrap().server, id(1), "{:?}", cell.group());
    for _ in 0..20 {
        cell.wait_at(1, 1000);
        cell.settle(1);
    }
    cell.silent[0] = false;
    for _ in 0..12 {
        cell.wait(250);
        cell.settle(0);
        cell.follow(0);
    }
    assert!(cell.in_step(0), "{:?}", cell.group());
}

#[test]
fn a_standby_that_becomes_asynchronous_is_in_step_again() {
    let mut cell = Cell::new(&[SiteKind::Standby]);
    cell.enter(1);
    cell.change_group(|group| {
        let site = group.sites.iter_mut().find(|site| site.server == id(1)).unwrap();
        (site.kind, site.epoch) = (SiteKind::AsyncStandby, 0);
    });
    // Its server is told, as by an administrator's command.
    let told = Call::Volume(VolumeCall::StandBy { partition: PartitionNo(0), tree: TREE });
    assert_eq!(cell.rigs[1].call(0, &ROOT, told), Ok(Answer::Done));
    cell.wait_and_follow(&[1], 1000);
    cell.wait_and_follow(&[1], 1000);
    assert!(cell.in_step(1), "{:?} {:?}", cell.group(), cell.standbys());
    assert!(!cell.standbys()[0].is_sync);
    // No reply waits for it.
    let made_now = cell.make(0, "now");
    made(cell.answer(0, made_now));
}
