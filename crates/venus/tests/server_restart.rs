//! Delegations over a real server that crashes and restarts: no answered change is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::history::{Machine, draw};
use crate::common::{Far, me, name};
use client::{ClientIdentity, Endpoint, Session, SessionConfig};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{NewKind, Timestamp};
use venus::{Error, Venus, VenusConfig};

fn connect(socket: &Path) -> Session {
    Session::connect(SessionConfig::new(
        Endpoint::Unix(socket.to_owned()),
        ClientIdentity::fleeting(),
    ))
    .unwrap()
}

fn venus(socket: &Path, delegations: bool) -> Venus {
    let session = connect(socket);
    let config = VenusConfig {
        delegations,
        recall_pause: Duration::from_millis(1),
        ..VenusConfig::default()
    };
    Venus::new(Arc::new(session), config).unwrap()
}

/// A partition with a volume, and its server's socket.
fn prepare(dir: &Path) -> (ServerConfig, PathBuf) {
    let path = dir.join("vicepa");
    let partition = Partition::create(
        &path,
        &PartitionConfig { server: "test".into() },
        OpenOptions::default(),
    )
    .unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    partition.volumes().create_volume(&name("root"), &root).unwrap();
    partition.sync().unwrap();
    let socket = dir.join("socket");
    let mut config = ServerConfig::new(&path);
    config.unix_socket = Some(socket.clone());
    (config, socket)
}

#[test]
fn du5_lost_names_are_reported_and_a_crash_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = prepare(dir.path());
    let server = Server::start(&config).unwrap();
    let venus = Venus::new(Arc::new(Far(connect(&socket))), VenusConfig::default()).unwrap();
    let root = venus.root(&me(), &name("root")).unwrap().status.fid;
    let make = |text| {
        venus
            .changes()
            .make(&me(), root, &name(text), NewKind::Directory, 0o755)
            .unwrap()
            .status
            .fid
    };
    let top = make("top");
    drop(server);
    let server = Server::start(&config).unwrap();
    assert_eq!(venus.dirs().fsyncdir(&me(), root), Ok(()), "the process");
    venus.changes().make(&me(), top, &name("later"), NewKind::Directory, 0o755).unwrap();
    venus.send_written(&me()).unwrap();
    drop(server);
    // As after another boot of the machine: the store cannot know what reached the disk.
    fs::write(dir.path().join("vicepa/sync-failed"), "").unwrap();
    let _server = Server::start(&config).unwrap();
    assert_eq!(venus.dirs().fsyncdir(&me(), top), Err(Error::Lost), "the machine");
    assert_eq!(venus.dirs().fsyncdir(&me(), top), Ok(()));
    make("after");
    assert_eq!(venus.dirs().fsyncdir(&me(), root), Ok(()));
    venus.shutdown().unwrap_err();
}

#[test]
fn a_server_that_comes_back_learns_all_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (config, socket) = prepare(dir.path());
    let mut server = Some(Server::start(&config).unwrap());
    let (with, without) = (venus(&socket, true), venus(&socket, false));
    let root = with.root(&me(), &name("root")).unwrap().status.fid;
    let tops = ["with", "without"].map(|text| {
        with.changes().make(&me(), root, &name(text), NewKind::Directory, 0o755).unwrap().status.fid
    });
    let done = AtomicBool::new(false);
    // The same history with and without delegations; at each step the server may be down.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = SmallRng::seed_from_u64(3);
            let (mut these, mut those) =
                (Machine::new(&with, tops[0]), Machine::new(&without, tops[1]));
            for step in 0..3000 {
                let op = draw(&mut random);
                assert_eq!(these.run(&op), those.run(&op), "step {step}: {op:?}");
            }
            these.close_all();
            those.close_all();
            done.store(true, Ordering::SeqCst);
        });
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(100 + round * 20));
            if done.load(Ordering::SeqCst) {
                break;
            }
            drop(server.take());
            server = Some(Server::start(&config).unwrap());
        }
    });
    assert!(done.load(Ordering::SeqCst));
    with.shutdown().unwrap();
    assert_eq!(with.differences(), 0);
    let expected = Machine::new(&without, tops[1]).tree();
    assert!(!expected.is_empty());
    assert_eq!(Machine::new(&without, tops[0]).tree(), expected);
    without.shutdown().unwrap();
}
