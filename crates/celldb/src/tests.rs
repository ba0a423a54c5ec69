//! Both engines against a model that has everything in maps; the database is reopened now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use guard::{JoinCode, JoinRequest};
use proptest::prelude::*;
use types::limits::SERVERS_MAX;
use types::{
    Answer, Busy, CellCall, Fault, GuardCall, KeyPrint, PrincipalId, ServerKind, ServerRoles, Site,
    SiteKind,
};

use super::*;
use crate::etcd::process::{EtcdDb, EtcdProcess};

mod levels;

/// An engine that the tests open again and again.
trait Bench {
    fn open(&mut self, kept: u64) -> Box<dyn TestDb>;
}

/// An open database.
trait TestDb {
    fn db(&self) -> &dyn CellDb;
}

impl TestDb for Embedded {
    fn db(&self) -> &dyn CellDb {
        self
    }
}

impl TestDb for EtcdDb {
    fn db(&self) -> &dyn CellDb {
        self.database()
    }
}

struct Files(tempfile::TempDir);

impl Bench for Files {
    fn open(&mut self, kept: u64) -> Box<dyn TestDb> {
        Box::new(Embedded::open_with(self.0.path(), kept, CELL_LEVEL_KNOWN).unwrap())
    }
}

/// The process, and the name of the cell.
struct InEtcd(EtcdProcess, String);

impl Bench for InEtcd {
    fn open(&mut self, kept: u64) -> Box<dyn TestDb> {
        Box::new(self.0.open(&self.1, kept))
    }
}

/// Both engines, without any records.
fn engines() -> [Box<dyn Bench>; 2] {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    [Box::new(Files(tempfile::tempdir().unwrap())), Box::new(InEtcd(etcd, "cell".to_owned()))]
}

fn revision_of<T>(seen: Option<&Revised<T>>) -> Revision {
    seen.map_or(Revision::default(), |seen| seen.revision)
}

const KEPT: u64 = 8;
const KEPT_ALL: u64 = 1000;

fn name(n: u8) -> Name {
    // One of them is not UTF-8.
    let last = if n == 0 { 0xff } else { b'a' + n };
    Name::new(&[&b"volume-"[..], &[last]].concat()).unwrap()
}

fn site(n: u8, kind: SiteKind) -> Site {
    Site {
        server: ServerId(u128::from(n)),
        partition: "vicepa".to_owned(),
        kind,
        epoch: u64::from(n),
    }
}

fn group(number: u64, named: u8) -> VolumeGroup {
    VolumeGroup::new(name(named), VolumeId(number), site(named, SiteKind::ReadWrite))
}

#[derive(Clone, Debug)]
enum Op {
    Put {
        number: u64,
        named: u8,
        read_only: Option<u64>,
        backup: Option<u64>,
        stale: bool,
    },
    Remove {
        number: u64,
        stale: bool,
    },
    Take {
        above: u64,
        count: u32,
    },
    /// `keys`: a bit for each of four.
    PutServer {
        id: u8,
        keys: u8,
        stale: bool,
    },
    RemoveServer {
        id: u8,
        stale: bool,
    },
    Withdraw {
        id: u8,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let number = || 1..9_u64;
    let stale = || prop::bool::weighted(0.2);
    prop_oneof![
        6 => (number(), 0..5_u8, prop::option::of(number()), prop::option::of(number()), stale())
            .prop_map(|(number, named, read_only, backup, stale)| {
                Op::Put { number, named, read_only, backup, stale }
            }),
        2 => (number(), stale()).prop_map(|(number, stale)| Op::Remove { number, stale }),
        1 => (0..40_u64, 1..5_u32).prop_map(|(above, count)| Op::Take { above, count }),
        4 => (0..3_u8, 0..16_u8, stale())
            .prop_map(|(id, keys, stale)| Op::PutServer { id, keys, stale }),
        1 => (0..3_u8, stale()).prop_map(|(id, stale)| Op::RemoveServer { id, stale }),
        1 => (0..3_u8).prop_map(|id| Op::Withdraw { id }),
        1 => Just(Op::Reopen),
    ]
}

/// The model.
#[derive(Default)]
struct Model {
    groups: BTreeMap<u64, Revised<VolumeGroup>>,
    servers: BTreeMap<u128, Revised<ServerInfo>>,
    /// Keys that were withdrawn, and those that a server has replaced.
    withdrawn: BTreeSet<KeyPrint>,
    replaced: BTreeSet<KeyPrint>,
    changes: Vec<Changed>,
    highest: u64,
}

impl Model {
    fn next(&mut self, changed: Changed) -> Revision {
        self.changes.push(changed);
        Revision(self.changes.len() as u64)
    }

    /// Has another group its name or one of its numbers? Only then may `Taken` be the answer.
    fn is_taken(&self, group: &VolumeGroup) -> bool {
        let others =
            self.groups.values().filter(|other| other.record.read_write != group.read_write);
        let mut clash = others.map(|other| &other.record);
        clash.any(|other| {
            other.name == group.name
                || other.numbers().any(|of| group.numbers().any(|mine| mine == of))
        })
    }
}

fn seen(stale: bool, revision: Revision) -> Revision {
    if stale { Revision(revision.0 + 1) } else { revision }
}

fn step(db: &dyn CellDb, model: &mut Model, op: &Op) {
    match *op {
        Op::Put { number, named, read_only, backup, stale } => {
            let mut new = group(number, named);
            new.read_only = read_only.map(VolumeId);
            new.backup = backup.map(VolumeId);
            new.busy = stale.then(|| Busy {
                operation: "move".to_owned(),
                by: "me".to_owned(),
                since_secs: 7,
            });
            let found = revision_of(model.groups.get(&number));
            let numbers: Vec<_> = new.numbers().collect();
            let sound = (0..numbers.len()).all(|at| !numbers[..at].contains(&numbers[at]));
            match db.put_group(&new, seen(stale, found)) {
                Ok(revision) => {
                    assert!(sound && !stale && !model.is_taken(&new));
                    assert_eq!(revision, model.next(Changed::Group(new.read_write)));
                    model.highest =
                        model.highest.max(numbers.iter().map(|number| number.0).max().unwrap());
                    model.groups.insert(number, Revised { record: new, revision });
                }
                Err(CellError::Misuse(_)) => assert!(!sound),
                Err(CellError::Conflict { .. }) => assert!(stale),
                Err(CellError::Taken { .. }) => assert!(model.is_taken(&new)),
                Err(other) => panic!("{other}"),
            }
        }
        Op::Remove { number, stale } => {
            let found = revision_of(model.groups.get(&number));
            // Removing an absent group at revision 0 succeeds, and only uses up a revision.
            let expected = seen(stale, found);
            match db.remove_group(VolumeId(number), expected) {
                Ok(revision) => {
                    assert!(!stale);
                    assert_eq!(revision, model.next(Changed::Group(VolumeId(number))));
                    model.groups.remove(&number);
                }
                Err(error) => {
                    assert_eq!((stale, error), (true, CellError::Conflict { expected, found }));
                }
            }
        }
        Op::Take { above, count } => {
            let first = db.take_numbers(VolumeId(above), count).unwrap();
            assert!(first.0 > model.highest.max(above), "{first:?} was taken before");
            model.highest = first.0 + u64::from(count) - 1;
        }
        Op::PutServer { id, keys, stale } => {
            let server = ServerInfo {
                id: ServerId(u128::from(id)),
                name: format!("server-{id}"),
                addresses: vec![([127, 0, 0, 1], 7100 + u16::from(id)).into()],
                keys: (0..4)
                    .filter(|bit| keys >> bit & 1 == 1)
                    .map(|bit| KeyPrint([bit; 32]))
                    .collect(),
            };
            let had = model
                .servers
                .get(&server.id.0)
                .map(|seen| seen.record.keys.clone())
                .unwrap_or_default();
            let is_withdrawn = server.keys.iter().any(|key| model.withdrawn.contains(key));
            let found = revision_of(model.servers.get(&server.id.0));
            match db.put_server(&server, seen(stale, found)) {
                Ok(revision) => {
                    assert!(!stale && !is_withdrawn);
                    assert_eq!(revision, model.next(Changed::Server(server.id)));
                    model.replaced.extend(had.into_iter().filter(|key| !server.keys.contains(key)));
                    model.servers.insert(server.id.0, Revised { record: server, revision });
                }
                Err(CellError::Withdrawn { .. }) => assert!(is_withdrawn && !stale),
                Err(error) => assert!(stale, "{error}"),
            }
        }
        Op::RemoveServer { id, stale } => {
            let id = ServerId(u128::from(id));
            let found = revision_of(model.servers.get(&id.0));
            match db.remove_server(id, seen(stale, found)) {
                Ok(revision) => {
                    assert!(!stale);
                    assert_eq!(revision, model.next(Changed::Server(id)));
                    let gone = model.servers.remove(&id.0);
                    model.withdrawn.extend(gone.into_iter().flat_map(|gone| gone.record.keys));
                }
                Err(error) => assert!(stale, "{error}"),
            }
        }
        Op::Withdraw { id } => {
            let id = ServerId(u128::from(id));
            // All have all changes, so no change waits for them.
            for other in 0..3 {
                db.access().watch(ServerId(other), Revision(u64::MAX), 0).unwrap();
            }
            let withdrawn = db.access().guard(
                ServerId(9),
                PrincipalId::NONE,
                5,
                &GuardCall::WithdrawKeys { server: id },
            );
            let Some(known) = model.servers.remove(&id.0) else {
                return assert_eq!(withdrawn, Err(Fault::NotFound));
            };
            let number = known.record.keys.len() as u64;
            assert_eq!(withdrawn, Ok(Answer::Enforced { number, missing: vec![] }));
            let revision = model.next(Changed::Server(id));
            model.withdrawn.extend(known.record.keys);
            let record = ServerInfo { keys: Vec::new(), ..known.record };
            model.servers.insert(id.0, Revised { record, revision });
        }
        Op::Reopen => {}
    }
}

fn check(db: &dyn CellDb, model: &Model) {
    let groups: Vec<_> = model.groups.values().cloned().collect();
    assert_eq!(db.groups(VolumeId(0), 100).unwrap(), groups);
    let mut servers = model.servers.values().cloned().collect::<Vec<_>>();
    for seen in &mut servers {
        seen.record.keys.retain(|key| !model.withdrawn.contains(key));
    }
    assert_eq!(db.servers().unwrap(), servers);
    let listed = &db.access().rules().record.servers;
    for key in (0..5).map(|bit| KeyPrint([bit; 32])) {
        let is_listed = servers.iter().any(|seen| seen.record.keys.contains(&key));
        assert_eq!(listed.server(&key).is_some(), is_listed, "{key}");
        let was = model.withdrawn.contains(&key) || model.replaced.contains(&key);
        assert_eq!(db.access().was_listed(&key).unwrap(), was, "{key}");
    }
    for named in 0..5 {
        let wanted = groups.iter().find(|seen| seen.record.name == name(named)).cloned();
        assert_eq!(db.group_named(&name(named)).unwrap(), wanted);
    }
    for number in 1..9 {
        let wanted =
            groups.iter().find(|seen| seen.record.numbers().any(|of| of.0 == number)).cloned();
        assert_eq!(db.group_of(VolumeId(number)).unwrap(), wanted);
    }
    let all = model.changes.len() as u64;
    assert_eq!(db.revision().unwrap(), Revision(all));
    let known = all.saturating_sub(KEPT);
    let wanted: Vec<_> =
        (known..all).map(|at| (Revision(at + 1), model.changes[at as usize])).collect();
    assert_eq!(db.changes(Revision(known), 100).unwrap(), wanted);
    if known > 0 {
        assert_eq!(
            db.changes(Revision(known - 1), 1),
            Err(CellError::Forgotten { oldest: Revision(known) })
        );
    }
    assert_eq!(db.changes(Revision(all), 100).unwrap(), vec![]);
}

fn behaves_as_maps_do(bench: &mut dyn Bench, ops: &[Op]) {
    let mut open = bench.open(KEPT);
    let mut model = Model::default();
    for op in ops {
        step(open.db(), &mut model, op);
        if matches!(op, Op::Reopen) {
            drop(open);
            open = bench.open(KEPT);
        }
        check(open.db(), &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.min(48),
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_behaves_as_maps_do(ops in prop::collection::vec(op(), 1..60)) {
        behaves_as_maps_do(&mut Files(tempfile::tempdir().unwrap()), &ops);
    }
}

#[test]
fn in_etcd_it_behaves_as_maps_do() {
    let etcd = EtcdProcess::start();
    let cases = AtomicUsize::new(0);
    let config =
        ProptestConfig { cases: ProptestConfig::default().cases.min(12), ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let etcd = std::cell::RefCell::new(Some(etcd));
    runner
        .run(&prop::collection::vec(op(), 1..40), |ops| {
            let cell = format!("cell-{}", cases.fetch_add(1, Relaxed));
            let process = etcd.take().unwrap();
            process.make(&cell);
            let mut bench = InEtcd(process, cell);
            behaves_as_maps_do(&mut bench, &ops);
            etcd.replace(Some(bench.0));
            Ok(())
        })
        .unwrap();
}

#[test]
fn groups_come_in_pages() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        for number in [3, 5, 8] {
            db.put_group(&group(number, number as u8), Revision(0)).unwrap();
        }
        let numbers = |after, max| -> Vec<u64> {
            db.groups(VolumeId(after), max)
                .unwrap()
                .iter()
                .map(|seen| seen.record.read_write.0)
                .collect()
        };
        assert_eq!(numbers(0, 2), [3, 5]);
        assert_eq!(numbers(5, 2), [8]);
        assert_eq!(numbers(8, 2), [0; 0]);
        assert_eq!(numbers(u64::MAX, 2), [0; 0]);
    }
}

#[test]
fn inconsistent_records_are_refused() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        let mut two_writers = group(1, 1);
        two_writers.sites.push(site(2, SiteKind::ReadWrite));
        let mut one_site_twice = group(1, 1);
        one_site_twice.sites.extend([site(3, SiteKind::ReadOnly), site(3, SiteKind::ReadOnly)]);
        let mut beside_writer = group(1, 1);
        beside_writer.sites.push(site(1, SiteKind::Standby));
        let mut twice_standby = group(1, 1);
        let both = [site(3, SiteKind::Standby), site(3, SiteKind::AsyncStandby)];
        twice_standby.sites.extend(both);
        for bad in [two_writers, one_site_twice, beside_writer, twice_standby, group(0, 1)] {
            assert!(
                matches!(db.put_group(&bad, Revision(0)), Err(CellError::Misuse(_))),
                "{bad:?}"
            );
        }
        assert_eq!(db.revision().unwrap(), Revision(0));
    }
}

#[test]
fn only_one_process_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    let _db = Embedded::open(dir.path()).unwrap();
    assert!(matches!(Embedded::open(dir.path()), Err(CellError::Medium(_))));
}

#[test]
fn a_damaged_record_is_an_error() {
    let key = key::group(VolumeId(7));
    let whole = record::encode_group(&key, Revision(9), &group(7, 1));
    assert_eq!(
        record::decode_group(&key, &whole).unwrap(),
        Revised { record: group(7, 1), revision: Revision(9) }
    );
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x20;
        assert!(
            matches!(record::decode_group(&key, &bad), Err(CellError::Damaged(_))),
            "byte {at}"
        );
        assert!(record::decode_group(&key, &whole[..at]).is_err());
    }
    assert!(record::decode_group(&key::group(VolumeId(8)), &whole).is_err(), "under another key");
}

/// The database answers as the book in memory does, also after it was reopened.
#[test]
fn principals_are_kept_as_in_memory() {
    use guard::{Cps, MemBook, PtsAsker, perform};
    use types::{AuthLevel, NewPrincipal, PrincipalId, PrincipalKind, PtsCall};

    for mut bench in engines() {
        let mut open = bench.open(KEPT_ALL);
        let mut book = MemBook::new();
        let root = PtsAsker {
            principal: PrincipalId::ANONYMOUS,
            cps: Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, [PrincipalId::ADMINISTRATORS]),
        };
        let create = |kind, name: &str| PtsCall::Create {
            new: Box::new(NewPrincipal {
                kind,
                name: name.into(),
                id: None,
                owner: None,
                uid: None,
                gid: None,
            }),
        };
        let (user, group) = (PrincipalKind::User, PrincipalKind::Group);
        let (joe, staff, inner) = (PrincipalId(1), PrincipalId(-205), PrincipalId(-206));
        let everything = PtsCall::Entries { after: guard::FIRST, max: 100 };
        for call in [
            create(user, "joe"),
            create(user, "joe"),
            create(group, "staff"),
            create(group, "staff:inner"),
            create(PrincipalKind::Hosts, "10.0.0.0/8"),
            PtsCall::Join { group: staff, member: inner },
            PtsCall::Join { group: inner, member: joe },
            PtsCall::Join { group: inner, member: joe },
            PtsCall::Join { group: inner, member: PrincipalId(-207) },
            PtsCall::ChangeOwner { id: inner, owner: staff },
            PtsCall::Rename { id: staff, name: "crew".into() },
            everything.clone(),
            PtsCall::Owned { owner: staff, after: guard::FIRST, max: 10 },
            PtsCall::Membership { id: inner, groups: false, after: guard::FIRST, max: 10 },
            PtsCall::Numbers { names: vec!["crew".into(), "staff".into(), "crew:inner".into()] },
            PtsCall::Leave { group: inner, member: joe },
            PtsCall::Delete { id: staff },
            PtsCall::Max,
            everything,
        ] {
            let wanted = perform(&book, &root, &call).map(|(answer, edit)| {
                edit.iter().for_each(|edit| book.apply(&edit.writes));
                answer
            });
            assert_eq!(open.db().access().pts(&root, &call), wanted, "{call:?}");
            for who in [joe, staff, inner] {
                let host = Some([10, 1, 2, 3].into());
                assert_eq!(
                    open.db().access().subdomain(who, host).unwrap().1,
                    guard::subdomain(&book, who, host).unwrap(),
                    "{call:?}"
                );
            }
            drop(open);
            open = bench.open(KEPT_ALL);
        }
        let all = open.db().access().subdomain(joe, Some([10, 1, 2, 3].into())).unwrap().1;
        assert_eq!(all, [PrincipalId(-207), inner, PrincipalId::PROVED]);
    }
}

fn keyed(id: u128, keys: &[u8]) -> ServerInfo {
    let keys = keys.iter().map(|byte| KeyPrint([*byte; 32])).collect();
    ServerInfo { id: ServerId(id), name: format!("server-{id}"), addresses: Vec::new(), keys }
}

/// The listed ones of the first keys, with their servers.
fn listed(db: &dyn CellDb) -> Vec<(u8, u128)> {
    let rules = db.access().rules();
    let of = |byte: u8| rules.record.servers.server(&KeyPrint([byte; 32])).map(|id| (byte, id.0));
    (0..9).filter_map(of).collect()
}

#[test]
fn mx1_a_server_of_afs_is_known_by_its_port() {
    let at = |id: u128, addresses: &[&str], keys: &[u8]| ServerInfo {
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..keyed(id, keys)
    };
    assert_eq!(at(1, &["192.0.2.1:7000", "192.0.2.2:7000"], &[]).kind(), ServerKind::Afs);
    assert_eq!(at(1, &[], &[]).kind(), ServerKind::Rialto);
    assert_eq!(at(1, &["192.0.2.1:7620"], &[]).kind(), ServerKind::Rialto);
    for bench in engines() {
        let mut bench = bench;
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        db.put_server(&at(1, &["192.0.2.1:7000"], &[]), Revision(0)).unwrap();
        // A server of Rialto is not at that port, also not beside others.
        for (addresses, keys) in [
            (&["192.0.2.3:7000"][..], &[1][..]),
            (&["192.0.2.3:7000", "192.0.2.3:7620"], &[]),
            (&["[fd00::3]:7000"], &[]),
        ] {
            let refused = db.put_server(&at(2, addresses, keys), Revision(0));
            assert!(matches!(refused, Err(CellError::Misuse(_))), "{addresses:?}: {refused:?}");
        }
    }
}

#[test]
fn mx2_no_server_of_afs_is_waited_for() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        db.put_server(&keyed(1, &[1]), Revision(0)).unwrap();
        db.put_server(&keyed(2, &[2]), Revision(0)).unwrap();
        let afs = ServerInfo::of_afs(ServerId(3), "afs".to_owned(), &[[192, 0, 2, 5].into()]);
        db.put_server(&afs, Revision(0)).unwrap();
        db.access().watch(ServerId(2), Revision(u64::MAX), 0).unwrap();
        let call = GuardCall::WithdrawKeys { server: ServerId(2) };
        let withdrawn = db.access().guard(ServerId(1), PrincipalId::NONE, 5, &call);
        assert_eq!(withdrawn, Ok(Answer::Enforced { number: 1, missing: vec![] }));
    }
}

#[test]
fn m1_withdrawn_keys_are_never_listed_again() {
    for mut bench in engines() {
        let mut open = bench.open(KEPT_ALL);
        let db = open.db();
        let me = ServerId(1);
        let first = db.put_server(&keyed(1, &[1]), Revision(0)).unwrap();
        let two = db.put_server(&keyed(2, &[2, 3]), Revision(0)).unwrap();
        assert_eq!(db.access().rules_at(), two, "servers fetch keys like rules");
        db.put_server(&keyed(3, &[4, 2]), Revision(0)).unwrap();
        assert_eq!(listed(db).len(), 4);
        let withdraw = |db: &dyn CellDb, id| {
            let call = GuardCall::WithdrawKeys { server: ServerId(id) };
            // The entered servers have all changes.
            for other in [2, 3] {
                db.access().watch(ServerId(other), Revision(u64::MAX), 0).unwrap();
            }
            db.access().guard(me, PrincipalId::NONE, 5, &call)
        };
        assert_eq!(withdraw(db, 2), Ok(Answer::Enforced { number: 2, missing: vec![] }));
        assert_eq!(withdraw(db, 9), Err(Fault::NotFound));
        for reopened in [false, true] {
            if reopened {
                drop(open);
                open = bench.open(KEPT_ALL);
            }
            let db = open.db();
            // Also where another record lists one of them.
            assert_eq!(listed(db), [(1, 1), (4, 3)], "reopened: {reopened}");
            let seen = db
                .servers()
                .unwrap()
                .into_iter()
                .find(|seen| seen.record.id == ServerId(2))
                .unwrap();
            assert_eq!(seen.record, keyed(2, &[]));
            let three = db
                .servers()
                .unwrap()
                .into_iter()
                .find(|seen| seen.record.id == ServerId(3))
                .unwrap();
            assert_eq!(three.record, keyed(3, &[4]), "as in the answers to other servers");
            for keys in [&[2][..], &[3], &[5, 3]] {
                let refused = db.put_server(&keyed(2, keys), seen.revision);
                assert!(matches!(refused, Err(CellError::Withdrawn { .. })), "{refused:?}");
                assert!(
                    db.put_server(&keyed(7, keys), Revision(0)).is_err(),
                    "nor of another server"
                );
            }
        }
        let db = open.db();
        // A key that was replaced may be listed again, by a caller who may change the record
        // anyway.
        let first = db.put_server(&keyed(1, &[7]), first).unwrap();
        let was = |byte: u8| db.access().was_listed(&KeyPrint([byte; 32])).unwrap();
        assert_eq!([1, 2, 7, 8].map(was), [true, true, false, false]);
        let first = db.put_server(&keyed(1, &[1]), first).unwrap();
        // Removing a server withdraws its keys.
        db.remove_server(me, first).unwrap();
        assert!(matches!(
            db.put_server(&keyed(1, &[1]), Revision(0)),
            Err(CellError::Withdrawn { .. })
        ));
        db.put_server(&keyed(1, &[6]), Revision(0)).unwrap();
        assert_eq!(listed(db), [(4, 3), (6, 1)]);
    }
}

#[test]
fn m1_a_server_lists_few_keys_and_a_cell_few_servers() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        for keys in [&[1, 1][..], &[1, 2, 3, 4, 5]] {
            assert!(
                matches!(db.put_server(&keyed(1, keys), Revision(0)), Err(CellError::Misuse(_))),
                "{keys:?}"
            );
        }
        let mut last = Revision(0);
        for id in 1..=SERVERS_MAX {
            last = db.put_server(&keyed(id as u128, &[]), Revision(0)).unwrap();
        }
        assert_eq!(
            db.put_server(&keyed(0, &[]), Revision(0)),
            Err(CellError::Away(Fault::NoSpace))
        );
        db.put_server(&keyed(SERVERS_MAX as u128, &[1]), last).unwrap();
    }
}

pub(crate) fn code() -> JoinCode {
    JoinCode::random("cell", vec!["192.0.2.1:7620".into()], [7; 32])
}

pub(crate) fn invite(code: &JoinCode, name: &str, uses: u32) -> CellCall {
    CellCall::Invite {
        public: code.signer().public(),
        seconds: 100,
        uses,
        roles: ServerRoles::FILE.bits(),
        by: PrincipalId::NONE,
        name: name.into(),
    }
}

pub(crate) fn redeem(code: &JoinCode, key: u8, name: &str) -> CellCall {
    let request = JoinRequest {
        cell: code.cell.clone(),
        authority: code.authority,
        invitation: code.signer().public(),
        key: KeyPrint([key; 32]),
        name: name.into(),
        hosts: Vec::new(),
        signing_request: String::new(),
    };
    CellCall::Redeem { request: request.sign(&code.signer()) }
}

#[test]
fn sj1_an_invitation_lets_in_each_key_once() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        let at = |now: i64, call: &CellCall| db.access().invitations(PrincipalId(5), now, call);
        let all = || match at(0, &CellCall::Invitations { after: 0, max: 9 }) {
            Ok(Answer::Invitations { invitations, end: true }) => invitations,
            other => panic!("{other:?}"),
        };
        let (first, second) = (code(), code());
        assert_eq!(at(1000, &redeem(&first, 1, "one")), Err(Fault::AccessDenied), "no invitation");
        at(1000, &invite(&first, "", 2)).unwrap();
        assert_eq!(at(1000, &invite(&first, "", 2)), Err(Fault::Exists), "one for each key");
        at(1000, &invite(&second, "six", 1)).unwrap();
        assert_eq!(at(1000, &invite(&code(), "", 0)), Err(Fault::Invalid));
        assert_eq!(at(1000, &invite(&code(), "x", 2)), Err(Fault::Invalid), "two with one name");
        // A clock that is behind or ahead of the one that made it: only its end counts.
        assert!(at(10, &redeem(&first, 1, "one")).is_ok());
        assert!(at(5000, &redeem(&first, 1, "one")).is_ok(), "again, after its end");
        assert_eq!(at(1001, &redeem(&first, 1, "two")), Err(Fault::Conflict), "another name");
        assert_eq!(at(1001, &redeem(&first, 2, "one")), Err(Fault::Conflict), "a name twice");
        assert_eq!(at(1100, &redeem(&first, 2, "two")), Err(Fault::TokenExpired));
        assert!(at(1099, &redeem(&first, 2, "two")).is_ok());
        assert_eq!(at(1001, &redeem(&first, 3, "three")), Err(Fault::Exists));
        assert_eq!(at(1001, &redeem(&second, 4, "five")), Err(Fault::Conflict), "not its name");
        // A key that is another server's, or was.
        let seen = db.put_server(&keyed(1, &[4, 5]), Revision(0)).unwrap();
        db.put_server(&keyed(1, &[4]), seen).unwrap();
        for key in [4, 5] {
            assert_eq!(at(1001, &redeem(&second, key, "")), Err(Fault::NotPermitted), "{key}");
        }
        assert!(at(1001, &redeem(&second, 6, "")).is_ok(), "the name is given");
        let found = all();
        let used = |at: usize| -> Vec<(u8, &str)> {
            found[at].used.iter().map(|used| (used.key.0[0], used.name.as_str())).collect()
        };
        assert_eq!((used(0), used(1)), (vec![(1, "one"), (2, "two")], vec![(6, "six")]));
        assert_eq!((found[0].by, found[0].since, found[0].until), (PrincipalId(5), 1000, 1100));
        assert_eq!(db.access().invited(&KeyPrint([6; 32])), Ok(Some("six".to_owned())));
        assert_eq!(db.access().invited(&KeyPrint([3; 32])), Ok(None));
        // A server that is gone does not come back by its code.
        let six = db.put_server(&keyed(6, &[6]), Revision(0)).unwrap();
        db.remove_server(ServerId(6), six).unwrap();
        assert_eq!(at(1001, &redeem(&second, 6, "six")), Err(Fault::NotPermitted));
        assert_eq!(at(1001, &CellCall::Uninvite { number: 77 }), Err(Fault::NotFound));
        let third = code();
        let Ok(Answer::Number(unused)) = at(1001, &invite(&third, "", 1)) else { panic!() };
        assert_eq!(at(1001, &CellCall::Uninvite { number: unused.0 }), Ok(Answer::Done));
        assert_eq!(at(1001, &redeem(&third, 9, "nine")), Err(Fault::AccessDenied));
        let fourth = code();
        let Ok(Answer::Number(half)) = at(1001, &invite(&fourth, "", 2)) else { panic!() };
        at(1001, &redeem(&fourth, 9, "nine")).unwrap();
        assert_eq!(at(1001, &CellCall::Uninvite { number: half.0 }), Ok(Answer::Done));
        assert_eq!(at(1001, &redeem(&fourth, 10, "ten")), Err(Fault::Exists));
        assert!(at(1001, &redeem(&fourth, 9, "nine")).is_ok(), "its name is still known");
        assert_eq!(all().len(), 3);
        // An old one leaves with the next that is made.
        at(1101 + 901 * 86_400, &invite(&code(), "", 1)).unwrap();
        assert_eq!(all().len(), 1);
        let withdrawn = db.access().withdrawn().unwrap();
        assert_eq!(withdrawn, [KeyPrint([6; 32])], "and no key that was replaced");
    }
}

#[test]
fn sj1_a_cell_has_a_bounded_number_of_invitations() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let make = || open.db().access().invitations(PrincipalId::NONE, 1, &invite(&code(), "", 1));
        for _ in 0..types::limits::INVITATIONS_MAX {
            make().unwrap();
        }
        assert_eq!(make(), Err(Fault::NoSpace));
    }
}

#[test]
fn sj7_a_server_has_the_roles_of_its_invitation_and_no_more() {
    for mut bench in engines() {
        let open = bench.open(KEPT_ALL);
        let db = open.db();
        let at = |call: &CellCall| db.access().invitations(PrincipalId::NONE, 1000, call).unwrap();
        let (first, second) = (code(), code());
        at(&invite(&first, "", 1));
        at(&redeem(&first, 1, &keyed(1, &[]).name));
        let more = |call| match call {
            CellCall::Invite { public, seconds, uses, by, name, .. } => {
                let roles = ServerRoles::ALL.bits();
                CellCall::Invite { public, seconds, uses, roles, by, name }
            }
            other => other,
        };
        at(&more(invite(&second, "", 1)));
        at(&redeem(&second, 2, "two"));
        let seen = db.put_server(&keyed(1, &[1]), Revision(0)).unwrap();
        let limited = || db.access().limited_servers().unwrap();
        assert_eq!(limited(), [(ServerId(1), ServerRoles::FILE)]);
        assert_eq!(db.access().rules().record.servers.roles(ServerId(3)), ServerRoles::ALL);
        // It lists the key that was let in for another one, and renames itself.
        let seen = db.put_server(&keyed(1, &[1, 2]), seen).unwrap();
        assert_eq!(limited(), [(ServerId(1), ServerRoles::FILE)]);
        let renamed = ServerInfo { name: "two".into(), ..keyed(1, &[1]) };
        assert!(matches!(db.put_server(&renamed, seen), Err(CellError::Misuse(_))));
        // A new key, and none for a while, change nothing.
        let seen = db.put_server(&keyed(1, &[3]), seen).unwrap();
        let seen = db.put_server(&keyed(1, &[]), seen).unwrap();
        db.put_server(&keyed(1, &[4]), seen).unwrap();
        assert_eq!(limited(), [(ServerId(1), ServerRoles::FILE)]);
        db.put_server(&keyed(5, &[5]), Revision(0)).unwrap();
        assert_eq!(limited().len(), 1, "one that was not invited may do everything");
    }
}
