//! The server process is killed again and again during its work: every applied change is found
//! (DU-2), and the boot verifier stays, since no unstable change was lost.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use store::{NewRoot, OpenOptions, Partition, PartitionConfig, Update, Vnode, Volume, VolumeQuota};
use types::{Fid, Kind, Name, Timestamp, VnodeNo};

const CHILD: &str = "RIALTO_STORE_KILL_CHILD";

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() }
}

/// The content of file `number` when its write is acknowledged.
fn contents(number: u64) -> Vec<u8> {
    let length = [10, 5_000, 40_000, 300_000][number as usize % 4] + number as usize % 1000;
    (0..length).map(|at| (at as u64 * 31 + number) as u8).collect()
}

fn make(volume: &Volume, number: u64) {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let (no, unique) = volume.slots().unwrap().allocate(false).unwrap();
    let fid = Fid { volume: volume.id(), vnode: no, unique };
    let mut vnode = Vnode::new(fid, Kind::File, 0o644, 0, 0, VnodeNo::ROOT, Timestamp::default());
    let name = Name::new(format!("{number}").as_bytes()).unwrap();
    volume.edit(&mut dir, &mut update).put_entry(&name, vnode.target()).unwrap();
    update.create_vnode(&vnode);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    // In pieces, as a client would write.
    for (at, piece) in contents(number).chunks(70_000).enumerate() {
        let mut update = Update::new();
        volume.body(&mut vnode, &mut update).unwrap().write(at as u64 * 70_000, piece).unwrap();
        update.put_vnode(&vnode);
        volume.commit(update).unwrap();
    }
}

/// The process that is killed: creates files and reports each.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let partition = Partition::open(Path::new(&path), options()).unwrap();
    let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
    for number in volume.vnode(VnodeNo::ROOT).unwrap().unwrap().entries.. {
        make(&volume, number);
        println!("made {number}");
        if number % 7 == 0 {
            partition.sync_all().unwrap();
        }
    }
}

fn spawn(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child", "--exact", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition = Partition::create(&path, &PartitionConfig::default(), options()).unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::default(),
        quota: VolumeQuota::default(),
    };
    partition.volumes().create_volume(&Name::new(b"root").unwrap(), &root).unwrap();
    let verifier = partition.boot_verifier();
    drop(partition);
    for round in 0..8 {
        let mut child = spawn(&path);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.starts_with("made "))
            .expect("child works");
        std::thread::sleep(Duration::from_millis(20 + round * 15));
        child.kill().unwrap();
        child.wait().unwrap();
        // The reports before its death; the last line may be cut.
        let last = lines
            .map_while(Result::ok)
            .filter(|line| line.starts_with("made "))
            .last()
            .unwrap_or(first);
        let acknowledged: u64 = last["made ".len()..].trim().parse().unwrap();
        let partition = Partition::open(&path, options()).unwrap();
        assert_eq!(partition.boot_verifier(), verifier);
        let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
        for number in 0..=acknowledged {
            let entry =
                volume.lookup(VnodeNo::ROOT, number.to_string().as_bytes()).unwrap().unwrap();
            let vnode = volume.vnode(entry.target.vnode).unwrap().unwrap();
            assert!(
                volume.reader_of(&vnode).unwrap().read(0, 1 << 20).unwrap() == contents(number),
                "file {number} in round {round}"
            );
        }
        let scrub = || partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap().findings;
        assert_eq!(scrub(), []);
        partition.sync_all().unwrap();
        assert_eq!(scrub(), []);
        // Removes the unfinished file, so that the next round continues behind it.
        for number in acknowledged + 1.. {
            let name = number.to_string();
            let Some(entry) = volume.lookup(VnodeNo::ROOT, name.as_bytes()).unwrap() else { break };
            let vnode = volume.vnode(entry.target.vnode).unwrap().unwrap();
            let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
            let mut update = Update::new();
            volume.edit(&mut dir, &mut update).remove_entry(name.as_bytes()).unwrap().unwrap();
            volume.drop_vnode(&vnode, &mut update).unwrap();
            update.put_vnode(&dir);
            volume.commit(update).unwrap();
        }
        partition.sweep(100).unwrap();
    }
}
