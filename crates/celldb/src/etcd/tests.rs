//! The rules that only a database in etcd needs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;

use guard::{Cps, PtsAsker};
use types::{
    AuthLevel, KeyPrint, NewPrincipal, PrincipalId, PrincipalKind, PtsCall, Site, SiteKind,
    WhichPrincipal,
};

use super::process::EtcdProcess;
use super::*;
use crate::engine::Batch;
use crate::format::{State, state_text};
use crate::{Embedded, key, record};

fn group(number: u64, name: &str) -> VolumeGroup {
    let site = Site {
        server: ServerId(1),
        partition: "vicepa".into(),
        kind: SiteKind::ReadWrite,
        epoch: 0,
    };
    VolumeGroup::new(Name::new(name.as_bytes()).unwrap(), VolumeId(number), site)
}

fn opened(etcd: &EtcdProcess, cell: &str) -> Etcd {
    Etcd::new(&etcd.config, cell, Arc::default()).unwrap()
}

/// Several writers with a handle each: no change is lost, and none is made twice.
#[test]
fn ac12_writers_of_one_etcd_come_one_after_another() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 25;
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let before = opened(&etcd, "cell").revision().unwrap().0;
    let given: Vec<(u64, Vec<u64>)> = std::thread::scope(|scope| {
        let writer = |writer: u64| {
            let db = opened(&etcd, "cell");
            let mut revisions = Vec::new();
            for n in 0..EACH {
                let number = db.take_numbers(VolumeId(0), 1).unwrap();
                let group = group(number.0, &format!("volume-{writer}-{n}"));
                let first = db.put_group(&group, Revision(0)).unwrap();
                revisions.push(first.0);
                revisions.push(db.put_group(&group, first).unwrap().0);
                // Another writer has this name.
                let taken = VolumeGroup { read_write: VolumeId(number.0 + 1_000_000), ..group };
                assert!(matches!(db.put_group(&taken, Revision(0)), Err(CellError::Taken { .. })));
            }
            (writer, revisions)
        };
        let all: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || writer(n))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let db = opened(&etcd, "cell");
    let revisions: BTreeSet<u64> = given.iter().flat_map(|(_, all)| all.iter().copied()).collect();
    let count = WRITERS * EACH * 2;
    assert_eq!(revisions.len() as u64, count, "each change has a revision of its own");
    assert_eq!(db.revision().unwrap().0, before + count);
    let groups = db.groups(VolumeId(0), 1000).unwrap();
    assert_eq!(groups.len() as u64, WRITERS * EACH);
    for seen in groups {
        assert_eq!(db.group_named(&seen.record.name).unwrap().unwrap(), seen);
    }
    let changes = db.changes(Revision(before), 10_000).unwrap();
    assert!(changes.iter().map(|(at, _)| at.0).eq(before + 1..=before + count));
}

#[test]
fn a_batch_of_thousands_of_records_is_one_change() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let store = etcd.store("cell");
    for count in [100, 130, 5000] {
        let view = store.view();
        let before = (&view as &dyn View).counters().unwrap();
        let mut batch = crate::engine::Batch::default();
        for n in 0..count {
            let key = key::number(VolumeId(n));
            batch.put(&key[..], record::encode_pointer(&key, VolumeId(count)));
        }
        batch.put(key::COUNTERS, record::encode_counters(key::COUNTERS, before));
        let done = store.commit(&view, &batch, Revision(before.revision)).unwrap();
        assert_eq!(done, crate::engine::Commit::Done, "{count}");
        assert_eq!(
            store.commit(&view, &batch, Revision(before.revision)).unwrap(),
            crate::engine::Commit::Overtaken
        );
        let view = store.view();
        let seen = (&view as &dyn View).pointer(&key::number(VolumeId(count - 1))).unwrap();
        assert_eq!(seen, Some(VolumeId(count)));
    }
}

/// The state decides, in the same transaction.
#[test]
fn a_database_that_has_moved_refuses_changes_for_ever() {
    let etcd = EtcdProcess::start();
    let db = opened(&etcd, "cell");
    let nothing = db.put_group(&group(1, "a"), Revision(0)).unwrap_err();
    assert!(nothing.to_string().contains("cell migrate"), "{nothing}");
    etcd.make("cell");
    let first = db.put_group(&group(1, "a"), Revision(0)).unwrap();
    let store = etcd.store("cell");
    let moving = State::Moving("there".to_owned());
    assert!(store.set_state(Some(&State::InUse), Some(&moving)).unwrap());
    assert!(!store.set_state(Some(&State::InUse), Some(&State::Moved("x".into()))).unwrap());
    let refused = |db: &Etcd| db.put_group(&group(1, "a"), first).unwrap_err();
    assert!(matches!(refused(&db), CellError::Moved { to, .. } if to == "there"));
    let moved = State::Moved("there".to_owned());
    assert!(store.set_state(Some(&moving), Some(&moved)).unwrap());
    assert!(matches!(refused(&opened(&etcd, "cell")), CellError::Moved { .. }));
    assert!(matches!(db.check(), Err(CellError::Moved { .. })));
}

#[test]
fn a_newer_layout_and_damage_are_named() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let db = opened(&etcd, "cell");
    db.put_group(&group(1, "a"), Revision(0)).unwrap();
    let store = etcd.store("cell");
    let put = |key: String, value: &[u8]| {
        store.call("/v3/kv/put", &json!({"key": encoded(key), "value": encoded(value)})).unwrap();
    };
    let whole = key::group(VolumeId(1));
    let record = [b"/rialto/cell/1/", &whole[..]].concat();
    store
        .call("/v3/kv/put", &json!({"key": encoded(&record), "value": encoded("{}damaged")}))
        .unwrap();
    let damaged = db.group_of(VolumeId(1)).unwrap_err();
    assert!(matches!(damaged, CellError::Damaged(_)), "{damaged}");
    put(store.beside("format"), b"rialto cell database\nversion 3\nsummed in another way\n");
    let newer = db.put_group(&group(2, "b"), Revision(0)).unwrap_err();
    assert!(matches!(newer, CellError::Version { found: 3, .. }), "{newer}");
    put(store.beside("format"), &state_text(&State::InUse).as_bytes()[1..]);
    assert!(matches!(db.check(), Err(CellError::Damaged(_))));
}

#[test]
fn cells_with_similar_names_are_apart() {
    let etcd = EtcdProcess::start();
    let names = ["a", "a.b", "ab", "a/b", "a/1", "A", "a0", "%2F", "/"];
    for (at, name) in names.iter().enumerate() {
        assert!(etcd.store(name).is_empty().unwrap(), "{name}");
        etcd.make(name);
        let number = at as u64 + 1;
        let group = group(number, &format!("volume-{number}"));
        opened(&etcd, name).put_group(&group, Revision(0)).unwrap();
    }
    for (at, name) in names.iter().enumerate() {
        let groups = opened(&etcd, name).groups(VolumeId(0), 100).unwrap();
        let numbers: Vec<u64> = groups.iter().map(|seen| seen.record.read_write.0).collect();
        assert_eq!(numbers, [at as u64 + 1], "{name}");
        let copied = crate::copy_records(&opened(&etcd, name), &mut |_, key, value| {
            record::check(key, value).map(drop)
        });
        assert!(copied.is_ok(), "{name}: {copied:?}");
    }
    etcd.store("a").clear().unwrap();
    assert_eq!(opened(&etcd, "a.b").groups(VolumeId(0), 9).unwrap().len(), 1);
    assert_eq!(opened(&etcd, "ab").groups(VolumeId(0), 9).unwrap().len(), 1);
}

/// A change of rules waits for the servers that live, and for no others.
#[test]
fn ac2_a_change_waits_for_each_server_with_a_lease() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let (one, two) = (opened(&etcd, "cell"), opened(&etcd, "cell"));
    let (first, second) = (ServerId(1), ServerId(2));
    two.heard.acknowledge(second, Revision(0)).unwrap();
    let at = one.put_group(&group(1, "a"), Revision(0)).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| one.heard.missing(at, &[first, second], Some(first)));
        assert!(!waits.is_finished());
        two.heard.acknowledge(second, at).unwrap();
        assert_eq!(waits.join().unwrap(), []);
    });
    // One that never had a lease, or whose lease has ended, is named and not waited for.
    two.heard.leave();
    assert_eq!(one.heard.missing(at, &[first, second], Some(first)), [second]);
    // A server that the other one speaks for.
    let third = ServerId(3);
    two.access().watch(third, Revision(0), 10).unwrap();
    assert!(!two.heard.has(third, at) && two.heard.has(third, Revision(0)));
    two.access().watch(third, at, 10).unwrap();
    assert_eq!(one.heard.missing(at, &[third], None), []);
}

/// A server that was spoken for by another one reaches etcd itself.
#[test]
fn ac2_the_key_of_a_server_is_removed_by_its_writer_only() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let (one, two) = (opened(&etcd, "cell"), opened(&etcd, "cell"));
    let (first, second, third) = (ServerId(1), ServerId(2), ServerId(3));
    let at = one.put_group(&group(1, "a"), Revision(0)).unwrap();
    for who in [second, third] {
        one.heard.acknowledge(who, at).unwrap();
    }
    two.heard.acknowledge(second, at).unwrap();
    one.heard.forget_silent(first, Instant::now() + Duration::from_secs(6)).unwrap();
    assert_eq!(one.heard.missing(at, &[first, second, third], Some(first)), [third]);
}

#[test]
fn what_no_server_can_use_is_refused() {
    let here = |endpoint: &str| EtcdConfig {
        endpoints: vec![endpoint.to_owned()],
        ..EtcdConfig::default()
    };
    for good in ["127.0.0.1:2379", "localhost:2379", "[::1]:2379"] {
        assert_eq!(here(good).check(), Ok(()), "{good}");
    }
    for bad in ["https://127.0.0.1:2379", "127.0.0.1", "10.0.0.1:2379", ":1", "localhost:x"] {
        assert!(here(bad).check().is_err(), "{bad}");
    }
    let good = here("127.0.0.1:2379");
    let file = Some(PathBuf::from("f"));
    for bad in [
        EtcdConfig::default(),
        EtcdConfig { cert: file.clone(), ..good.clone() },
        EtcdConfig { cert: file.clone(), key: file.clone(), ..good.clone() },
        EtcdConfig { password_file: file, ..good },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

/// Passes calls on to etcd. The answer of the next transaction is lost, after `between` was called.
struct Loser {
    address: String,
    loses: Arc<AtomicBool>,
}

impl Loser {
    fn of(etcd: &EtcdProcess, between: impl Fn() + Send + 'static) -> Loser {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let loses = Arc::new(AtomicBool::new(false));
        let (to, order) = (etcd.config.endpoints[0].clone(), Arc::clone(&loses));
        std::thread::spawn(move || {
            for from in listener.incoming() {
                let mut from = BufReader::new(from.unwrap());
                // A call on each connection.
                let (mut head, mut length, mut is_change) = (String::new(), 0, false);
                while from.read_line(&mut head).unwrap() > 2 {
                    let line = head.lines().last().unwrap();
                    is_change |= line.contains("/v3/kv/txn");
                    if let Some(bytes) = line.strip_prefix("Content-Length: ") {
                        length = bytes.parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                from.read_exact(&mut body).unwrap();
                let head = head.replacen("Host:", "Connection: close\r\nHost:", 1);
                let mut etcd = TcpStream::connect(&to).unwrap();
                etcd.write_all(&[head.as_bytes(), &body].concat()).unwrap();
                let mut answer = Vec::new();
                etcd.read_to_end(&mut answer).unwrap();
                if is_change && order.swap(false, Ordering::AcqRel) {
                    between();
                } else {
                    from.get_mut().write_all(&answer).unwrap();
                }
            }
        });
        Loser { address, loses }
    }

    fn open(&self) -> Etcd {
        let endpoints = vec![self.address.clone()];
        let config = EtcdConfig { endpoints, ..EtcdConfig::default() };
        Etcd::new(&config, "cell", Arc::default()).unwrap()
    }
}

/// The change was executed and its answer lost; it is not executed again, also if another one was
/// made before its sender asks.
#[test]
fn ac16_a_change_whose_answer_is_lost_is_made_once() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let other = Arc::new(opened(&etcd, "cell"));
    for made_between in 0..3_u64 {
        let writer = Arc::clone(&other);
        let loser = Loser::of(&etcd, move || {
            for n in 0..made_between {
                let at = 100 * made_between + n + 1;
                writer.put_group(&group(at, &format!("between-{at}")), Revision(0)).unwrap();
            }
        });
        let db = loser.open();
        let before = db.revision().unwrap();
        let number = 1000 + made_between;
        loser.loses.store(true, Ordering::Release);
        let made = db.put_group(&group(number, &format!("lost-{number}")), Revision(0)).unwrap();
        assert!(!loser.loses.load(Ordering::Acquire), "the answer was lost");
        assert_eq!(made.0, before.0 + 1, "{made_between}");
        assert_eq!(other.revision().unwrap().0, before.0 + 1 + made_between);
        assert_eq!(other.group_of(VolumeId(number)).unwrap().unwrap().revision, made);
    }
}

/// A member that accepts connections and says nothing is left alone after the first call.
#[test]
fn a_silent_member_costs_one_wait() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoints = vec![
        gone.to_string(),
        silent.local_addr().unwrap().to_string(),
        etcd.config.endpoints[0].clone(),
    ];
    let config = EtcdConfig { endpoints, ..EtcdConfig::default() };
    let db = Etcd::new(&config, "cell", Arc::default()).unwrap();
    for number in 1..5 {
        db.put_group(&group(number, &format!("volume-{number}")), Revision(0)).unwrap();
    }
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok());
    assert!(silent.accept().is_err(), "it was asked once");
}

/// With a name and a password, and a role for one cell.
#[test]
fn a_role_for_one_cell_is_enough() {
    let etcd = EtcdProcess::start();
    for cell in ["cell", "other"] {
        etcd.make(cell);
    }
    let admin = etcd.store("cell");
    let call = |path: &str, body: serde_json::Value| admin.call(path, &body).unwrap();
    for user in ["root", "rialto"] {
        call("/v3/auth/user/add", json!({"name": user, "password": "open sesame"}));
        call("/v3/auth/role/add", json!({"name": user}));
        call("/v3/auth/user/grant", json!({"user": user, "role": user}));
    }
    let (key, range_end) = (encoded("/rialto/cell/"), encoded("/rialto/cell0"));
    let perm = json!({"permType": "READWRITE", "key": key, "range_end": range_end});
    call("/v3/auth/role/grant", json!({"name": "rialto", "perm": perm}));
    call("/v3/auth/enable", json!({}));
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "open sesame\n").unwrap();
    let config = EtcdConfig {
        user: Some("rialto".to_owned()),
        password_file: Some(password.clone()),
        ..etcd.config.clone()
    };
    let open = |cell| Etcd::new(&config, cell, Arc::default()).unwrap();
    let db = open("cell");
    db.check().unwrap();
    let first = db.put_group(&group(1, "a"), Revision(0)).unwrap();
    db.heard.acknowledge(ServerId(1), first).unwrap();
    assert_eq!(db.heard.missing(first, &[ServerId(1)], None), []);
    let mut told = 0;
    let body = json!({"create_request": {"key": encoded(db.operations.engine.counters_key())}});
    let watch = db.operations.engine.client.stream("/v3/watch", &body, WATCH_SILENCE, &mut || {
        told += 1;
        if told == 1 {
            db.put_group(&group(1, "b"), first).unwrap();
        }
        told < 2
    });
    assert!(watch.is_ok() && told == 2, "{watch:?}");
    assert!(open("other").check().is_err(), "another cell");
    assert!(opened(&etcd, "cell").check().is_err(), "without a name");
    std::fs::write(&password, "wrong").unwrap();
    assert!(open("cell").check().is_err(), "a wrong password");
}

#[test]
fn a_change_that_etcd_does_not_take_is_named() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let store = etcd.store("cell");
    let view = store.view();
    let before = (&view as &dyn View).counters().unwrap();
    for bytes in [8 << 17, 13 << 17, 2 << 20] {
        let mut batch = crate::engine::Batch::default();
        batch.put(&b"Glarge"[..], vec![7; bytes]);
        let refused = store.commit(&view, &batch, Revision(before.revision));
        if bytes < 12 << 17 {
            assert_eq!(refused, Ok(crate::engine::Commit::Done));
            store.clear().unwrap();
            continue;
        }
        assert!(matches!(refused, Err(CellError::Misuse(_))), "{refused:?}");
    }
    assert_eq!(store.view().get(b"Glarge"), Ok(None));
}

/// Once nothing answered a call, later ones do not wait; the thread that listens finds it again.
#[test]
fn without_etcd_calls_fail_at_once_until_it_answers() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (listener, is_away) = (TcpListener::bind("127.0.0.1:0").unwrap(), AtomicBool::new(false));
    let (address, is_away) = (listener.local_addr().unwrap().to_string(), Arc::new(is_away));
    let (to, away) = (etcd.config.endpoints[0].clone(), Arc::clone(&is_away));
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let mut from = from.unwrap();
            count.fetch_add(1, Ordering::AcqRel);
            if away.load(Ordering::Acquire) {
                continue;
            }
            let etcd = TcpStream::connect(&to).unwrap();
            let (mut back, mut answers) = (from.try_clone().unwrap(), etcd.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            // A call on each connection: it ends when the member is away.
            let (mut etcd, away) = (etcd, Arc::clone(&away));
            let mut some = [0; 4096];
            std::thread::spawn(move || {
                while let Ok(length @ 1..) = from.read(&mut some) {
                    if away.load(Ordering::Acquire) {
                        break;
                    }
                    etcd.write_all(&some[..length]).unwrap();
                }
                let _ = from.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let config = EtcdConfig { endpoints: vec![address], ..EtcdConfig::default() };
    let db = Etcd::new(&config, "cell", Arc::default()).unwrap();
    let me = ServerId(1);
    db.listen(me);
    let first = db.put_group(&group(1, "a"), Revision(0)).unwrap();
    is_away.store(true, Ordering::Release);
    assert!(matches!(db.group_of(VolumeId(1)), Err(CellError::NoQuorum(_))));
    let before = asked.load(Ordering::Acquire);
    for _ in 0..100 {
        assert!(matches!(db.group_of(VolumeId(1)), Err(CellError::NoQuorum(_))));
        assert!(matches!(db.put_group(&group(1, "b"), first), Err(CellError::NoQuorum(_))));
    }
    assert_eq!(asked.load(Ordering::Acquire), before, "no member is asked meanwhile");
    is_away.store(false, Ordering::Release);
    db.shared.stir();
    db.listen(me);
    db.put_group(&group(1, "b"), first).unwrap();
}

/// A change that a writer of the random test made, with everything that it named.
#[derive(Clone, Debug)]
enum Made {
    Put(VolumeGroup, Revision),
    Remove(VolumeId, Revision),
    Server(ServerInfo, Revision),
    Pts(PtsCall),
}

/// Makes it; the revision, if it was allowed.
fn make<E: Engine>(db: &Operations<E>, made: &Made) -> Option<Revision> {
    let held = db.hold();
    match made {
        Made::Put(group, expected) => db.put_group(&held, group, *expected).ok(),
        Made::Remove(number, expected) => db.remove_group(&held, *number, *expected).ok(),
        Made::Server(server, expected) => {
            db.put_server(&held, server, *expected).ok().map(|(revision, _)| revision)
        }
        Made::Pts(call) => {
            let all = [PrincipalId::ADMINISTRATORS];
            let cps = Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Named, all);
            let root = PtsAsker { principal: PrincipalId::ANONYMOUS, cps };
            db.change_principals(&held, &root, call).ok().and_then(|(_, revision)| revision)
        }
    }
}

fn random(db: &Etcd, seed: &mut u64) -> Made {
    let mut next = |below: u64| {
        // xorshift
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed % below
    };
    let (kind, number, name) = (next(8), next(5) + 1, next(6));
    // Now and then it is not the present one.
    let stale = u64::from(next(8) == 0);
    let user = || format!("user-{name}");
    match kind {
        0..=2 => {
            let seen = db.read(|view| view.group(VolumeId(number))).unwrap();
            let expected = seen.map_or(0, |seen| seen.revision.0) + stale;
            Made::Put(group(number, &format!("volume-{name}")), Revision(expected))
        }
        3 => {
            let seen = db.read(|view| view.group(VolumeId(number))).unwrap();
            Made::Remove(VolumeId(number), Revision(seen.map_or(0, |seen| seen.revision.0) + stale))
        }
        4 => {
            let id = ServerId(number.into());
            let seen = db.read(|view| view.server(id)).unwrap();
            let keys = vec![KeyPrint([name as u8; 32])];
            let server = ServerInfo { id, name: user(), addresses: Vec::new(), keys };
            Made::Server(server, Revision(seen.map_or(0, |seen| seen.revision.0) + stale))
        }
        5 | 6 => {
            let kind = if kind == 5 { PrincipalKind::User } else { PrincipalKind::Group };
            let (id, owner, uid, gid) = (None, None, None, None);
            let new = NewPrincipal { kind, name: user(), id, owner, uid, gid };
            Made::Pts(PtsCall::Create { new: Box::new(new) })
        }
        _ => {
            let found = db.access().principal(&WhichPrincipal::Name(user())).unwrap();
            Made::Pts(PtsCall::Delete { id: found.map_or(PrincipalId(9999), |found| found.id) })
        }
    }
}

/// Random changes of writers that overtake each other: made one after another by the embedded
/// engine, in the order of their revisions, they have the same revisions and leave the same
/// records.
#[test]
fn ac16_random_writers_are_as_one_after_another() {
    const WRITERS: u64 = 3;
    const EACH: usize = 60;
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let writer = |writer: u64| {
        let db = opened(&etcd, "cell");
        let mut seed = 0x9e37_79b9_7f4a_7c15 ^ writer;
        let one = |_| {
            let made = random(&db, &mut seed);
            make(&db.operations, &made).map(|revision| (revision, made))
        };
        (0..EACH).filter_map(one).collect::<Vec<_>>()
    };
    let mut all: Vec<(Revision, Made)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=WRITERS).map(|n| scope.spawn(move || writer(n))).collect();
        writers.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_by_key(|(revision, _)| *revision);
    let dir = tempfile::tempdir().unwrap();
    let reference = Embedded::open(dir.path()).unwrap();
    for (revision, made) in &all {
        let again = reference.make(|operations| make(operations, made));
        assert_eq!(again, Some(*revision), "{made:?}");
    }
    assert!(all.len() > EACH, "{} changes", all.len());
    let records = |db: &dyn CellDb| {
        let mut all = Vec::new();
        crate::copy_records(db, &mut |_, key, value| {
            all.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        all
    };
    assert!(records(&reference) == records(&opened(&etcd, "cell")), "the same records");
}

#[test]
fn ac15_a_backup_goes_into_etcd_and_replaces_nothing_unasked() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let db = opened(&etcd, "cell");
    let first = db.put_group(&group(7, "a"), Revision(0)).unwrap();
    let restore = |replaces, ends: bool| {
        let begun = crate::Restoring::begin_in_etcd(&etcd.config, "cell", replaces, first, 9);
        let mut restoring = begun?;
        crate::copy_records(&db, &mut |_, key, value| restoring.put(key, value))?;
        if ends { restoring.end().map(Some) } else { Ok(None) }
    };
    assert!(matches!(restore(false, true), Err(CellError::Misuse(_))));
    // A backup that cannot be read to its end changes nothing.
    restore(true, false).unwrap();
    assert_eq!(db.revision().unwrap(), first);
    let restored = restore(true, true).unwrap().unwrap();
    assert!(restored.revision.0 > 1 << 32);
    db.check().unwrap();
    assert_eq!(db.revision().unwrap(), restored.revision);
    assert_eq!(db.group_of(VolumeId(7)).unwrap().unwrap().record, group(7, "a"));
    assert!(db.take_numbers(VolumeId(0), 1).unwrap().0 >= restored.next_volume, "VO-2");
    assert!(matches!(db.changes(first, 9), Err(CellError::Forgotten { .. })));
    // The place of another cell is empty.
    let other = crate::Restoring::begin_in_etcd(&etcd.config, "other", false, first, 9);
    assert!(other.is_ok());
}

/// While the members choose a leader they say so; a call waits for that.
#[test]
fn a_call_waits_for_a_new_leader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, from) in listener.incoming().enumerate() {
            let mut from = BufReader::new(from.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while from.read_line(&mut head).unwrap() > 2 {
                let bytes = head.lines().last().unwrap().strip_prefix("Content-Length: ");
                length = bytes.map_or(length, |bytes| bytes.parse().unwrap());
            }
            from.read_exact(&mut vec![0; length]).unwrap();
            let (status, body) = if number < 6 {
                ("503 Service Unavailable", r#"{"error":"etcdserver: no leader","code":14}"#)
            } else {
                ("200 OK", r#"{"header":{"revision":"1"}}"#)
            };
            let bytes = body.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n\r\n{body}");
            from.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let config = EtcdConfig { endpoints: vec![address], ..EtcdConfig::default() };
    assert!(Etcd::store(&config, "cell").unwrap().is_empty().unwrap());
}

/// Servers that share one etcd: of several keys at once an invitation lets one in.
#[test]
fn sj1_of_keys_at_several_servers_one_is_let_in() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let code = crate::tests::code();
    let invite = crate::tests::invite(&code, "", 1);
    opened(&etcd, "cell").access().invitations(PrincipalId::NONE, 1000, &invite).unwrap();
    let let_in: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6_u8)
            .map(|n| {
                let (db, code) = (opened(&etcd, "cell"), &code);
                scope.spawn(move || {
                    let call = crate::tests::redeem(code, n, &format!("s{n}"));
                    let answer = db.access().invitations(PrincipalId::NONE, 1001, &call);
                    usize::from(answer.is_ok())
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(let_in, 1);
}

/// A server that runs while the level rises refuses, and serves again with a level that it knows.
#[test]
fn ve2_a_level_in_etcd_that_is_not_known_is_refused() {
    let etcd = EtcdProcess::start();
    etcd.make("cell");
    let db = opened(&etcd, "cell");
    let set = |level: u32| {
        let value = record::encode_level(key::LEVEL, level);
        let mut batch = Batch::default();
        batch.put(key::LEVEL, value);
        etcd.store("cell").fill(&batch).unwrap();
    };
    let listen = || {
        db.shared.stir();
        db.listen(ServerId(1));
    };
    listen();
    assert_eq!(db.check(), Ok(()), "no record: the first level");
    assert_eq!(db.group_of(VolumeId(1)), Ok(None));
    for strange in [crate::CELL_LEVEL_KNOWN + 1, 0] {
        set(strange);
        listen();
        let refused = CellError::Level { found: strange, known: crate::CELL_LEVEL_KNOWN };
        assert_eq!(db.check(), Err(refused.clone()));
        assert_eq!(db.group_of(VolumeId(1)), Err(refused.clone()));
        assert_eq!(db.put_group(&group(1, "a"), Revision(0)), Err(refused));
        set(crate::CELL_LEVEL_KNOWN);
        listen();
        assert_eq!(db.group_of(VolumeId(1)), Ok(None));
    }
}
