//! Volumes over the wire, on two partitions; and a server that is killed while they are made,
//! cloned and removed.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use client::{Remote, Session};
use common::*;
use server::{Server, ServerConfig};
use store::{OpenOptions, Partition, PartitionConfig};
use types::{
    Answer, Call, CreateHow, Fault, Fid, Name, NewKind, PartitionNo, VolumeCall, VolumeId,
    VolumeInfo, VolumeKind, WhichVolume,
};

const CHILD: &str = "RIALTO_SERVER_VOLUMES_CHILD";
const ROUNDS: u64 = 5;

fn config(dir: &Path) -> ServerConfig {
    let mut config = ServerConfig::new(dir.join("vicepa"));
    config.partitions.push(("/vicepb".into(), dir.join("vicepb")));
    config.unix_socket = Some(dir.join("socket"));
    config
}

fn make_partitions(dir: &Path) {
    make_partition(&dir.join("vicepa"));
    let config = PartitionConfig { server: "test".into() };
    drop(Partition::create(&dir.join("vicepb"), &config, OpenOptions::default()).unwrap());
}

/// The process that is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    serve_as_child(&config(Path::new(&dir)));
}

fn spawn(dir: &Path) -> Child {
    spawn_child(CHILD, dir)
}

fn administer(session: &Session, call: VolumeCall) -> Result<Answer, Fault> {
    match session.call(&types::Caller::ROOT, Call::Volume(call), None) {
        Ok(reply) => Ok(reply.answer),
        Err(error) => Err(error.fault().unwrap_or_else(|| panic!("{error}"))),
    }
}

fn one(answer: Answer) -> VolumeInfo {
    match answer {
        Answer::Volumes { mut volumes, .. } => volumes.remove(0),
        other => panic!("{other:?}"),
    }
}

fn create(partition: u32, called: &str) -> VolumeCall {
    let partition = Some(PartitionNo(partition));
    VolumeCall::Create {
        id: None,
        partition,
        name: name(called),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    }
}

fn root_of(session: &Session, volume: Name) -> Fid {
    status(&ask(session, Call::Root { volume })).fid
}

fn make(session: &Session, dir: Fid, called: &str, bytes: Vec<u8>) -> Fid {
    let how = CreateHow::Guarded;
    let call = Call::Make { dir, name: name(called), kind: NewKind::File, mode: 0o644, how };
    let fid = status(&ask(session, call)).fid;
    ask(session, write(fid, bytes));
    fid
}

fn write(fid: Fid, bytes: Vec<u8>) -> Call {
    Call::Write { fid, offset: Some(0), data: bytes.into(), stable: false, kill_privileges: false }
}

fn read(session: &Session, fid: Fid) -> Vec<u8> {
    match ask(session, Call::Read { fid, offset: 0, length: 1 << 20 }) {
        Answer::Data { data, .. } => data.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Every volume of the server by name.
fn all(session: &Session) -> BTreeMap<Name, VolumeInfo> {
    let mut all = BTreeMap::new();
    for partition in [PartitionNo(0), PartitionNo(1)] {
        let call = VolumeCall::List { partition, after: VolumeId(0), max: 1000 };
        let Ok(Answer::Volumes { volumes, end: true }) = administer(session, call) else {
            panic!("not listed")
        };
        for volume in volumes {
            assert_eq!(volume.partition, partition);
            let twice = all.insert(volume.name.clone(), volume);
            assert!(twice.is_none(), "VO-2: {twice:?}");
        }
    }
    all
}

#[test]
fn partitions_are_one_server_and_keep_what_they_have() {
    let place = tempfile::tempdir().unwrap();
    make_partitions(place.path());
    let server = Server::start(&config(place.path())).unwrap();
    let session = connect(client::Endpoint::Unix(place.path().join("socket")));
    let Ok(Answer::Partitions(partitions)) = administer(&session, VolumeCall::Partitions) else {
        panic!()
    };
    let names: Vec<_> = partitions.iter().map(|partition| partition.name.as_str()).collect();
    assert_eq!(names, ["/vicepa", "/vicepb"]);
    let volumes = [0, 1].map(|partition| {
        one(administer(&session, create(partition, &format!("v{partition}"))).unwrap())
    });
    let files = volumes.each_ref().map(|volume| {
        let root = root_of(&session, volume.name.clone());
        make(&session, root, "f", vec![volume.partition.0 as u8; 100_000])
    });
    for fid in files {
        ask(&session, Call::Commit { fid });
    }
    assert_ne!(volumes[0].id, volumes[1].id, "VO-2");
    server.stop().unwrap();
    let server = Server::start(&config(place.path())).unwrap();
    for (file, partition) in files.into_iter().zip([0, 1]) {
        assert_eq!(read(&session, file), vec![partition; 100_000], "the session goes on");
    }
    // A server that has lost one partition serves the other.
    server.stop().unwrap();
    let mut config = config(place.path());
    config.partitions.truncate(1);
    let server = Server::start(&config).unwrap();
    assert_eq!(read(&session, files[0]), vec![0; 100_000]);
    let gone = try_ask(&session, Call::GetStatus { fid: files[1] });
    assert_eq!(gone.unwrap_err().fault(), Some(Fault::NoVolume));
    server.stop().unwrap();
}

/// One turn of an administrator's work with a volume; the state that a kill left of the turn before
/// is handled.
fn turn(session: &Session, number: u64) {
    let partition = (number % 2) as u32;
    let called = format!("v{}", number % 3);
    let volume = match administer(session, create(partition, &called)) {
        Ok(answer) => one(answer),
        Err(Fault::Exists) => one(administer(
            session,
            VolumeCall::Examine { volume: WhichVolume::Name(name(&called)) },
        )
        .unwrap()),
        Err(fault) => panic!("{fault}"),
    };
    let root = root_of(session, volume.name.clone());
    make(session, root, &format!("f{number}"), number.to_le_bytes().repeat(5000));
    let kept = format!("{called}.kept{number}");
    let clone = VolumeCall::Clone {
        id: None,
        of: volume.id,
        name: name(&kept),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    assert!(matches!(administer(session, clone), Ok(_) | Err(Fault::Exists)));
    let file =
        status(&ask(session, Call::Lookup { dir: root, name: name(&format!("f{number}")) })).fid;
    ask(session, write(file, vec![0xff; 40_000]));
    if number % 3 == 2 {
        assert!(matches!(
            administer(session, VolumeCall::Remove { id: volume.id }),
            Ok(_) | Err(Fault::NoVolume)
        ));
    }
}

/// Every listed volume is whole: each clone shows its file as of its creation.
fn check(session: &Session) -> usize {
    let volumes = all(session);
    let mut clones = 0;
    for volume in volumes.values() {
        let called = String::from_utf8(volume.name.as_bytes().to_vec()).unwrap();
        let root = root_of(session, volume.name.clone());
        let Some((_, number)) = called.split_once(".kept") else { continue };
        let number: u64 = number.parse().unwrap();
        let file =
            status(&ask(session, Call::Lookup { dir: root, name: name(&format!("f{number}")) }))
                .fid;
        assert_eq!(file.volume, volume.id);
        assert_eq!(read(session, file), number.to_le_bytes().repeat(5000), "VO-1: {called}");
        clones += 1;
    }
    clones
}

#[test]
fn volumes_are_whole_or_not_there_after_kill_9() {
    let place = tempfile::tempdir().unwrap();
    make_partitions(place.path());
    let mut child = spawn(place.path());
    let session = connect(client::Endpoint::Unix(place.path().join("socket")));
    let turns = std::sync::atomic::AtomicU64::new(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            while !done.load(order) {
                let number = turns.load(order);
                turn(&session, number);
                turns.store(number + 1, order);
            }
        });
        for round in 0..ROUNDS {
            let before = turns.load(order);
            wait_for("a turn", || turns.load(order) > before || working.is_finished());
            std::thread::sleep(Duration::from_millis(2 + 9 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            child = spawn(place.path());
        }
        done.store(true, order);
        working.join().unwrap();
    });
    let clones = check(&session);
    assert_eq!(clones as u64, turns.load(order), "every turn has left its clone");
    drop(child.stdin.take());
    child.wait().unwrap();
    for partition in ["vicepa", "vicepb"] {
        let partition =
            Partition::open(&place.path().join(partition), OpenOptions::default()).unwrap();
        while partition.sweep(1000).unwrap() > 0 {}
        let report = partition.scrub(&mut |_| {}, &false.into()).unwrap();
        assert_eq!(report.findings.len(), 0, "{:?}", report.findings);
    }
    println!("{clones} clones over {ROUNDS} kills");
}
