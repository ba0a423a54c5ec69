//! The server's process is killed while it executes chains of delegated changes: changes that were
//! answered to the client are on the partition, in order (DU-2, DE-4), and with the next server
//! instance the chain goes on.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Remote, Session};
use common::*;
use server::{Server, ServerConfig};
use store::{OpenOptions, Partition};
use types::{Answer, Call, Caller, CreateHow, Fid, NewKind, Timestamp, VnodeNo, VnodeSlots};

const CHILD: &str = "RIALTO_SERVER_KILL_CHILD";
const ROUNDS: u64 = 6;
/// Members of one chain: two for each file.
const CHAIN: u64 = 64;
const FILES: u64 = 4000;

fn config(dir: &Path) -> ServerConfig {
    let mut config = ServerConfig::new(dir.join("vicepa"));
    config.unix_socket = Some(dir.join("socket"));
    config
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

/// Some are long: from them on a thread of the pool executes the chain.
fn contents(number: u64) -> Vec<u8> {
    let length = if number % 40 == 17 { 70_000 } else { 500 + number as usize % 300 };
    vec![number as u8; length]
}

/// Makes files in chains; `heard` counts the ones that are answered with their bytes.
fn make_files(session: &Session, dir: Fid, heard: &AtomicU64) {
    let (at, how) = (Timestamp::new(1_000, 0), CreateHow::Guarded);
    let mut slots = VnodeSlots::default();
    let mut next = 0;
    while next < FILES {
        let mut calls = Vec::new();
        for number in next..next + CHAIN / 2 {
            if slots.count == 0 {
                let Ok(Answer::Delegation { slots: more, .. }) =
                    try_ask(session, Call::Delegate { fid: dir })
                else {
                    return;
                };
                slots = more;
            }
            let slot = slots.take().unwrap();
            let name = name(&number.to_string());
            let make = Call::Make { dir, name, kind: NewKind::File, mode: 0o644, how };
            let (fid, data) = (slots.fid(dir.volume, slot, false), contents(number).into());
            let write =
                Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false };
            calls.extend([(slot, make), (0, write)].map(|(slot, call)| Call::Delegated {
                at,
                slot,
                call: Box::new(call),
            }));
        }
        let mut whole = true;
        session.chain_each(&Caller::ROOT, calls, &mut |index, result| {
            whole &= result.is_ok();
            if whole && index % 2 == 1 {
                heard.store(next + index as u64 / 2 + 1, Ordering::SeqCst);
            }
        });
        // The delegation ends with a restart.
        if !whole {
            return;
        }
        next += CHAIN / 2;
    }
}

/// Checks the partition's copy of the directory: the first files without a gap; only the last may
/// lack its bytes.
fn check(partition: &Partition, dir: Fid, heard: u64) -> u64 {
    let volume = partition.volumes().volume(dir.volume).unwrap().unwrap();
    let entries = volume.vnode(dir.vnode).unwrap().unwrap().entries;
    assert!(entries >= heard, "{heard} files were answered, and there are {entries}");
    for number in 0..entries {
        let entry =
            volume.lookup(dir.vnode, number.to_string().as_bytes()).unwrap().expect("no gap");
        let vnode = volume.vnode(entry.target.vnode).unwrap().unwrap();
        let bytes = volume.reader_of(&vnode).unwrap().read(0, 1 << 20).unwrap();
        let is_last = number + 1 == entries && number >= heard;
        assert!(
            bytes == contents(number) || (is_last && bytes.is_empty()),
            "file {number} of {entries}, {heard} answered"
        );
    }
    entries
}

#[test]
fn du2_answered_changes_of_a_chain_survive_kill_9() {
    for round in 0..ROUNDS {
        let place = tempfile::tempdir().unwrap();
        make_partition(&place.path().join("vicepa"));
        let mut child = spawn(place.path());
        let session = connect(client::Endpoint::Unix(place.path().join("socket")));
        let dir = {
            let call = Call::Make {
                dir: root(&session),
                name: name("d"),
                kind: NewKind::Directory,
                mode: 0o755,
                how: CreateHow::Guarded,
            };
            status(&ask(&session, call)).fid
        };
        let heard = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (session, counted) = (&session, Arc::clone(&heard));
            let making = scope.spawn(move || make_files(session, dir, &counted));
            wait_for("the first files", || heard.load(Ordering::SeqCst) > 0);
            std::thread::sleep(Duration::from_millis(3 + 7 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let before = heard.load(Ordering::SeqCst);
            let partition =
                Partition::open(&place.path().join("vicepa"), OpenOptions::default()).unwrap();
            assert!(
                partition
                    .volumes()
                    .volume(dir.volume)
                    .unwrap()
                    .unwrap()
                    .vnode(VnodeNo::ROOT)
                    .unwrap()
                    .is_some()
            );
            let found = check(&partition, dir, before);
            drop(partition);
            let server = Server::start(&config(place.path())).unwrap();
            making.join().unwrap();
            let after = heard.load(Ordering::SeqCst);
            println!("round {round}: {before} answered, {found} found, {after} in the end");
            server.stop().unwrap();
            let partition =
                Partition::open(&place.path().join("vicepa"), OpenOptions::default()).unwrap();
            check(&partition, dir, after);
        });
    }
}
