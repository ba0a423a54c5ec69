//! What the server acknowledged and lost before a commit, while the commit is under way: nothing old is sent over anything newer.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use client::Reply;
use common::{Client, House, RO, me};
use parking_lot::Mutex;
use types::{Answer, BootVerifier, Call, Fid, StatusChange};

/// A call that is held back, the first of its kind.
struct Held {
    asked: Receiver<()>,
    go: Sender<()>,
}

struct Door {
    asked: Sender<()>,
    go: Mutex<Receiver<()>>,
    passed: AtomicBool,
}

impl Door {
    fn new() -> (Door, Held) {
        let ((asked, is_asked), (go, wait)) = (channel(), channel());
        (Door { asked, go: Mutex::new(wait), passed: AtomicBool::new(false) }, Held { asked: is_asked, go })
    }

    fn hold(&self) {
        if !self.passed.swap(true, Ordering::SeqCst) {
            let _ = self.asked.send(());
            // Who drops the other end lets it through.
            let _ = self.go.lock().recv_timeout(Duration::from_secs(20));
        }
    }
}

/// A server that loses what is not committed when its life is counted up, as far as its answers say; the first commit of the volume, the first
/// of a file and the first write of its second life are held back.
struct Fragile {
    life: Arc<AtomicU64>,
    all: Held,
    one: Held,
    again: Held,
}

fn fragile(client: &Client) -> Fragile {
    let life = Arc::new(AtomicU64::new(1));
    let ((all, all_held), (one, one_held), (again, again_held)) = (Door::new(), Door::new(), Door::new());
    let now = Arc::clone(&life);
    client.wire.set_before(move |call| {
        match call {
            Call::CommitVolume { .. } => all.hold(),
            Call::Commit { .. } => one.hold(),
            Call::Write { .. } if now.load(Ordering::SeqCst) > 1 => again.hold(),
            _ => {}
        }
        None
    });
    let now = Arc::clone(&life);
    client.wire.set_after(move |_, result| {
        let now = BootVerifier(now.load(Ordering::SeqCst));
        if let Ok(Reply { answer: Answer::Written { verifier, .. } | Answer::Committed { verifier }, .. }) = result {
            *verifier = now;
        }
    });
    Fragile { life, all: all_held, one: one_held, again: again_held }
}

/// What the server has, as somebody else reads it.
fn content(house: &House, fid: Fid) -> Vec<u8> {
    let other = house.client(2);
    let handle = other.venus.open(&me(), fid, RO).unwrap().handle;
    other.read(handle, 0, 100).to_vec()
}

#[test]
fn two_commits_at_once_keep_the_newer_bytes() {
    let house = House::in_memory();
    let client = house.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one, again } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        client.write(handle, 2, b"bb");
        client.venus.flush(&me(), handle, None).unwrap();
        let fsync = scope.spawn(|| client.venus.fsync(&me(), handle));
        // Unless it waits for the other.
        let _ = one.asked.recv_timeout(Duration::from_millis(200));
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        again.asked.recv().unwrap();
        drop(one.go);
        std::thread::sleep(Duration::from_millis(50));
        drop(again.go);
        syncfs.join().unwrap().unwrap();
        fsync.join().unwrap().unwrap();
    });
    assert_eq!(content(&house, fid), b"aabb");
}

#[test]
fn what_is_cut_off_during_a_commit_stays_cut_off() {
    let house = House::in_memory();
    let client = house.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one: _, again: _ } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        let change = StatusChange { size: Some(1), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, change).unwrap();
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        syncfs.join().unwrap().unwrap();
    });
    assert_eq!(content(&house, fid), b"a");
}

#[test]
fn what_moves_during_a_commit_is_stable_and_not_sent_again() {
    let house = House::in_memory();
    let client = house.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one: _, again: _ } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        let events = client.wire.events.lock().clone().unwrap();
        events.on_moved(&*client.wire);
        let other = house.client(3);
        let theirs = other.venus.open(&me(), fid, common::RW).unwrap().handle;
        other.write(theirs, 0, b"bbbb");
        other.venus.fsync(&me(), theirs).unwrap();
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        syncfs.join().unwrap().unwrap();
    });
    assert_eq!(content(&house, fid), b"bbbb");
}
