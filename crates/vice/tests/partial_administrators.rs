//! An administrator of a part of the cell may make there the calls of the table, and none
//! elsewhere: volumes by name, a partition, a server.

use std::sync::Arc;
use std::time::Duration;

use celldb::{CellDb, Embedded};
use guard::{Cps, PtsAsker};
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{
    Answer, AuthLevel, Call, Caller, CellCall, ClientId, Fault, Fid, GuardCall, Name, NewPrincipal,
    PartitionNo, PrincipalId, PrincipalKind, PtsCall, Pull, Realm, ReplyAddress, RequestIdentity,
    Revision, ServerId, Site, SiteKind, Time, Timestamp, VolumeCall, VolumeChange, VolumeGroup,
    VolumeId, VolumeKind,
};
use vice::{CellAccess, Effect, Execution, Vice, ViceConfig, ViceParts};

struct Cell {
    vice: Vice,
    db: Arc<Embedded>,
    clients: u128,
    home: VolumeId,
    other: VolumeId,
    /// Volume at another server.
    elsewhere: VolumeId,
    partition: String,
    _dir: tempfile::TempDir,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn proved(principal: PrincipalId) -> Caller {
    let who = RequestIdentity { principal, level: AuthLevel::Password, ..RequestIdentity::NOBODY };
    Caller { uid: 4711, gid: 4711, groups: None, who }
}

impl Cell {
    fn new() -> Cell {
        let options = OpenOptions { cache_bytes: 8 << 20, seed: Some(7), ..OpenOptions::default() };
        let partition = Partition::open_memory(&MemMachine::new(), options).unwrap();
        let root = NewRoot {
            mode: 0o777,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1, 0),
            quota: VolumeQuota::default(),
        };
        let home = partition.volumes().create_volume(&name("home.joe"), &root).unwrap().id();
        let other = partition.volumes().create_volume(&name("secret"), &root).unwrap().id();
        let config = ViceConfig::new(dafs::encode_answer_record, |record| {
            dafs::decode_answer_record(record).ok()
        });
        let dir = tempfile::tempdir().unwrap();
        let db = Arc::new(Embedded::open(dir.path()).unwrap());
        let cell = CellAccess::Database(Arc::clone(&db) as Arc<dyn CellDb>);
        let parts = ViceParts { cell, ..ViceParts::default() };
        let vice = Vice::open_with(partition, config, parts, Time::ZERO).unwrap();
        let mut cell = Cell {
            vice,
            db,
            clients: 0,
            home,
            other,
            elsewhere: VolumeId(60),
            partition: String::new(),
            _dir: dir,
        };
        let Ok(Answer::Partitions(partitions)) =
            cell.call(&Caller::ROOT, Call::Volume(VolumeCall::Partitions))
        else {
            panic!()
        };
        cell.partition = partitions[0].name.clone();
        for (text, id) in [("home.joe", home), ("secret", other)] {
            let site = Site {
                server: cell.me(),
                partition: cell.partition.clone(),
                kind: SiteKind::ReadWrite,
                epoch: 0,
            };
            cell.db.put_group(&VolumeGroup::new(name(text), id, site), Revision(0)).unwrap();
        }
        let site = Site {
            server: ServerId(6),
            partition: "/vicepz".into(),
            kind: SiteKind::ReadWrite,
            epoch: 0,
        };
        cell.db
            .put_group(&VolumeGroup::new(name("far"), cell.elsewhere, site), Revision(0))
            .unwrap();
        cell
    }

    fn me(&self) -> ServerId {
        self.vice.me().id
    }

    fn user(&self, name: &str) -> PrincipalId {
        let superuser = PtsAsker {
            principal: PrincipalId::ANONYMOUS,
            cps: Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]),
        };
        let kind =
            if name.starts_with("group") { PrincipalKind::Group } else { PrincipalKind::User };
        let new =
            NewPrincipal { kind, name: name.into(), id: None, owner: None, uid: None, gid: None };
        match self.db.access().pts(&superuser, &PtsCall::Create { new: Box::new(new) }).unwrap() {
            Answer::Principals { principals, .. } => principals[0].0.id,
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, caller: &Caller, call: Call) -> Result<Answer, Fault> {
        self.clients += 1;
        let now = Time::from_start(Duration::from_secs(100));
        let mut out = Vec::new();
        let session = self.vice.attach(now, ClientId(self.clients), 1, &mut out).unwrap().session;
        let origin = ReplyAddress { session, slot: 0, request: 1 };
        self.vice.perform(
            Execution::new(now, Timestamp::new(1000, 0), caller, origin),
            call,
            &mut out,
        );
        let result = out.into_iter().find_map(|effect| match effect {
            Effect::Reply { origin: of, result, .. } if of == origin => Some(result),
            _ => None,
        });
        self.vice.detach(now, session, &mut Vec::new());
        result.unwrap()
    }

    fn refused(&mut self, caller: &Caller, call: Call) -> bool {
        self.call(caller, call) == Err(Fault::NotPermitted)
    }

    fn appoint(&mut self, principal: PrincipalId, realm: Realm) -> u64 {
        let call = Box::new(GuardCall::AddMandate { principal, realm });
        match self.call(&Caller::ROOT, Call::Guard { behalf: None, call }) {
            Ok(Answer::Enforced { number, missing }) if missing.is_empty() => number,
            other => panic!("{other:?}"),
        }
    }

    fn group(&self, text: &str, id: VolumeId) -> VolumeGroup {
        let site = Site {
            server: self.me(),
            partition: self.partition.clone(),
            kind: SiteKind::ReadWrite,
            epoch: 0,
        };
        VolumeGroup::new(name(text), id, site)
    }

    /// Calls, each with its requirements: all of these.
    fn calls(&self) -> Vec<(Call, &'static [&'static str])> {
        let volume = Call::Volume;
        let numbered = |id, text: &str, partition| VolumeCall::Create {
            id,
            partition,
            name: name(text),
            quota_bytes: 0,
            quota_files: 0,
            owner: (0, 0),
            encrypt: None,
        };
        let create = |text: &str, partition| numbered(None, text, partition);
        let fields = |id| {
            volume(VolumeCall::SetFields {
                id,
                change: VolumeChange { quota_files: Some(9), ..VolumeChange::default() },
            })
        };
        let clone = |of, text: &str| {
            volume(VolumeCall::Clone {
                id: None,
                of,
                name: name(text),
                kind: VolumeKind::Snapshot,
                replace: true,
            })
        };
        let no = Some(PartitionNo(0));
        let pull = |tree| {
            let finish = types::Finish::Nothing;
            volume(VolumeCall::Pull(Box::new(Pull {
                from: Vec::new(),
                id: VolumeId(99),
                partition: no,
                tree,
                finish,
            })))
        };
        let put = |group: VolumeGroup| {
            Call::Cell(CellCall::PutGroup { group: Box::new(group), expected: Revision(0) })
        };
        let guard = |call| Call::Guard { behalf: None, call: Box::new(call) };
        vec![
            (fields(self.home), &["home or room"]),
            (fields(self.other), &["room"]),
            (Call::SetQuota { fid: Fid::root(self.home), bytes: 0, files: 9 }, &["home or room"]),
            (Call::SetQuota { fid: Fid::root(self.other), bytes: 0, files: 9 }, &["room"]),
            (clone(self.home, "home.joe.releasing"), &["home or room"]),
            (clone(self.home, "thief"), &["chief"]),
            (clone(self.other, "home.joe.stolen"), &["home", "room"]),
            (volume(create("home.new", no)), &["home", "room"]),
            (volume(create("home.newer", None)), &["home", "server"]),
            (volume(create("elsewhere", no)), &["chief"]),
            (volume(numbered(Some(VolumeId(77)), "home.numbered", no)), &["home", "room"]),
            // The number of a volume outside of the realms, but where its room is.
            (volume(numbered(Some(self.elsewhere), "home.thief", no)), &["chief"]),
            (
                volume(VolumeCall::Rename { id: self.other, name: name("home.mine") }),
                &["home", "room"],
            ),
            (volume(VolumeCall::Tasks), &["server"]),
            (volume(VolumeCall::EndTask { number: 1 }), &["server"]),
            (Call::Scrub { start: true }, &["server"]),
            (pull(self.home), &["server"]),
            (put(self.group("home.put", VolumeId(70))), &["home"]),
            (put(self.group("foreign", VolumeId(71))), &["chief"]),
            (put(self.group("secret", self.other)), &["room"]),
            (
                Call::Cell(CellCall::RemoveServer { id: ServerId(5), expected: Revision(3) }),
                &["chief"],
            ),
            (Call::Cell(CellCall::TakeNumbers { above: VolumeId(0), count: 1 }), &["anything"]),
            (
                guard(GuardCall::AddMandate {
                    principal: PrincipalId(1),
                    realm: Realm::Volumes("*".into()),
                }),
                &["chief"],
            ),
            (
                guard(GuardCall::AddFence {
                    whom: types::Whom::Token(4),
                    seconds: 0,
                    why: String::new(),
                }),
                &["chief"],
            ),
            (guard(GuardCall::Mandates { after: 0, max: 9 }), &["chief"]),
        ]
    }
}

/// Whether the rights `has` meet the test's word `need`.
fn meets(need: &str, has: &[&str]) -> bool {
    let room = has.contains(&"partition") || has.contains(&"server");
    match need {
        "home" => has.contains(&"home"),
        "room" => room,
        "home or room" => has.contains(&"home") || room,
        "server" => has.contains(&"server"),
        "anything" => !has.is_empty(),
        _ => false,
    }
}

#[test]
fn a_delegate_may_what_his_realms_have_and_nothing_else() {
    for bits in 0_u8..16 {
        let mut cell = Cell::new();
        let (joe, staff) = (cell.user("joe"), cell.user("groupies"));
        let superuser = PtsAsker {
            principal: PrincipalId::ANONYMOUS,
            cps: Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]),
        };
        cell.db.access().pts(&superuser, &PtsCall::Join { group: staff, member: joe }).unwrap();
        let mut has = Vec::new();
        let mut numbers = Vec::new();
        // Through a group as well as directly.
        let whom = if bits & 8 == 0 { joe } else { staff };
        let realms = [
            ("home", Realm::Volumes("home.*".into())),
            ("partition", Realm::Partition(cell.me(), cell.partition.clone())),
            ("server", Realm::Server(cell.me())),
        ];
        for (at, (word, realm)) in realms.into_iter().enumerate() {
            // A realm of another server has no effect here.
            cell.appoint(whom, Realm::Server(ServerId(5)));
            if bits & 1 << at != 0 {
                has.push(word);
                numbers.push(cell.appoint(whom, realm));
            }
        }
        let elsewhere: &[&str] = if has.is_empty() { &["nothing here"] } else { &has };
        for (call, needs) in cell.calls() {
            let may = needs.iter().all(|need| meets(need, elsewhere));
            assert_eq!(cell.refused(&proved(joe), call.clone()), !may, "{has:?}: {call:?}");
        }
        for number in numbers {
            let call = Box::new(GuardCall::RemoveMandate { number });
            cell.call(&Caller::ROOT, Call::Guard { behalf: None, call }).unwrap();
        }
        for (call, needs) in cell.calls() {
            let may = needs.iter().all(|need| meets(need, &["nothing here"]));
            assert_eq!(cell.refused(&proved(joe), call.clone()), !may, "taken away: {call:?}");
        }
    }
}
