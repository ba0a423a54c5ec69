//! Two clients of one server: no reader sees the past once a change elsewhere is acknowledged
//! (CB-1), and a break that races an answer is never lost (CB-3).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{APPEND, Client, Notified, RO, RW, TestServer, me, name};
use bytes::Bytes;
use client::{Cancel, Remote};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, ByteRange, Call, Caller, DataUse, Fault, LockFamily, LockMode, LockOwner, NewKind,
    RenameMode, StatusChange,
};
use venus::{Error, OpenHandle, RequestContext};

const MINE: LockOwner = LockOwner(11);

fn lock(client: &Client, handle: OpenHandle, wait: bool) -> Result<(), Error> {
    client.venus.locks().setlk(
        &me(),
        handle,
        MINE,
        1,
        LockFamily::Posix,
        ByteRange::ALL,
        LockMode::Exclusive,
        wait,
    )
}

fn unlock(client: &Client, handle: OpenHandle) {
    client.venus.locks().unlock(&me(), handle, MINE, LockFamily::Posix, ByteRange::ALL).unwrap();
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn cb1_a_closed_file_is_seen_after_the_kernel_was_notified() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (fid, handle) = a.create("f");
    a.write(handle, 0, b"one");
    a.close(handle);
    assert_eq!(&b.content("f")[..], b"one");
    b.kernel.0.lock().clear();
    let handle = a.open("f", RW);
    a.write(handle, 0, b"twooo");
    a.close(handle);
    assert!(
        b.kernel.0.lock().contains(&Notified::Data(fid)),
        "the kernel is notified before the writer's call returns"
    );
    let seen = b.venus.getattr(&me(), fid).unwrap();
    assert_eq!(seen.status.size, 5);
    assert_eq!(&b.content("f")[..], b"twooo");
}

#[test]
fn cb1_a_new_name_ends_the_cached_absence() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    assert!(b.find("f").is_none());
    b.list(b.root, true);
    assert!(b.find("f").is_none());
    let (fid, handle) = a.create("f");
    assert!(b.kernel.0.lock().contains(&Notified::Directory(b.root)));
    assert_eq!(b.find("f").unwrap().status.fid, fid);
    a.close(handle);
    a.venus
        .changes()
        .rename(&me(), (a.root, &name("f")), (a.root, &name("g")), RenameMode::Replace)
        .unwrap();
    assert!(b.find("f").is_none());
    assert_eq!(b.find("g").unwrap().status.fid, fid);
}

#[test]
fn a_break_between_the_answer_and_its_arrival_is_not_lost() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), Arc::new(server.client(2)));
    let (fid, handle) = a.create("f");
    a.close(handle);
    let b_stat = b.find("f").unwrap();
    // A change of a overtakes every answer to b from now on.
    let a = Arc::new(a);
    let (changer, armed) = (a.clone(), Arc::new(AtomicBool::new(true)));
    let first = armed.clone();
    b.wire.set_after(move |call, _| {
        if matches!(call, Call::GetStatus { .. }) && first.swap(false, Ordering::SeqCst) {
            let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
            changer.venus.setattr(&me(), fid, change).unwrap();
        }
    });
    let change = StatusChange { mode: Some(0o640), ..StatusChange::default() };
    a.venus.setattr(&me(), fid, change).unwrap();
    let seen = b.venus.getattr(&me(), b_stat.status.fid).unwrap();
    assert!(!armed.load(Ordering::SeqCst));
    assert!(!seen.cacheable, "an overtaken answer must not be cached");
    assert_eq!(b.venus.getattr(&me(), fid).unwrap().status.mode, 0o600);
    b.wire.clear();
}

#[test]
fn a_stamp_is_stale_after_a_break() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (fid, handle) = a.create("f");
    b.find("f").unwrap();
    let before = b.venus.getattr(&me(), fid).unwrap();
    assert!(b.venus.answering(before.stamp, |fresh| fresh));
    a.write(handle, 0, b"x");
    a.close(handle);
    assert!(before.cacheable && !b.venus.answering(before.stamp, |fresh| fresh));
}

#[test]
fn under_locks_the_other_sees_every_write() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (_, first) = a.create("counter");
    a.write(first, 0, b"0");
    a.venus.flush(&me(), first, None).unwrap();
    let second = b.open("counter", RW);
    const ROUNDS: u64 = 100;
    let count = |client: &Client, handle| {
        for _ in 0..ROUNDS {
            lock(client, handle, true).unwrap();
            let text = String::from_utf8(client.read(handle, 0, 100).to_vec()).unwrap();
            let next = text.trim().parse::<u64>().unwrap() + 1;
            client.write(handle, 0, format!("{next}").as_bytes());
            unlock(client, handle);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| count(&a, first));
        scope.spawn(|| count(&b, second));
    });
    assert_eq!(&a.read(first, 0, 100)[..], format!("{}", 2 * ROUNDS).as_bytes());
}

#[test]
fn appends_of_both_are_all_there() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (_, handle) = a.create("log");
    a.close(handle);
    let append = |client: &Client, letter: u8| {
        let handle = client.open("log", APPEND);
        for _ in 0..100 {
            client.write(handle, 0, &[letter; 7]);
        }
        client.close(handle);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| append(&a, b'a'));
        scope.spawn(|| append(&b, b'b'));
    });
    let whole = a.content("log");
    assert_eq!(whole.len(), 1400);
    assert!(
        whole.chunks(7).all(|record| record.iter().all(|byte| *byte == record[0])),
        "no record is torn"
    );
    assert_eq!(whole.iter().filter(|byte| **byte == b'a').count(), 700);
    assert_eq!(whole, b.content("log"));
}

#[test]
fn ho1_a_removed_file_stays_while_open_on_another_machine() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (fid, handle) = a.create("f");
    a.write(handle, 0, b"still here");
    a.close(handle);
    let open = b.open("f", RW);
    a.venus.changes().unlink(&me(), a.root, &name("f")).unwrap();
    assert!(b.find("f").is_none());
    assert_eq!(&b.read(open, 0, 100)[..], b"still here");
    b.write(open, 0, b"STILL");
    b.venus.fsync(&me(), open).unwrap();
    assert_eq!(b.venus.getattr(&me(), fid).unwrap().status.links, 0);
    assert_eq!(&b.read(open, 0, 100)[..], b"STILL here");
    b.close(open);
    eventually("the file is let go", || {
        b.venus.getattr(&me(), fid).is_err_and(|error| error.fault() == Some(Fault::Stale))
            || b.wire.count("Unhold") > 0
    });
    eventually("the server forgets the file", || {
        a.venus.open(&me(), fid, RO).is_err_and(|error| error.fault() == Some(Fault::Stale))
    });
}

#[test]
fn ho1_an_open_file_without_promise_outlives_its_name() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (_, handle) = a.create("f");
    a.write(handle, 0, b"first");
    a.close(handle);
    let handle = a.open("f", RO);
    // This break, not the removal, is the server's last message to `a` about the file.
    let theirs = b.open("f", RW);
    b.write(theirs, 0, b"other");
    b.close(theirs);
    b.venus.changes().unlink(&me(), b.root, &name("f")).unwrap();
    assert_eq!(&a.read(handle, 0, 16)[..], b"other");
    a.close(handle);
}

#[test]
fn a_file_that_is_open_here_survives_our_own_unlink_and_rename() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    for replace in [false, true] {
        let (fid, handle) = client.create("f");
        client.write(handle, 0, b"kept");
        if replace {
            let (_, other) = client.create("other");
            client.close(other);
            let (from, to) = (name("other"), name("f"));
            client
                .venus
                .changes()
                .rename(&me(), (client.root, &from), (client.root, &to), RenameMode::Replace)
                .unwrap();
        } else {
            client.venus.changes().unlink(&me(), client.root, &name("f")).unwrap();
        }
        assert_eq!(&client.read(handle, 0, 10)[..], b"kept");
        client.venus.flush(&me(), handle, None).unwrap();
        assert_eq!(&client.read(handle, 0, 10)[..], b"kept");
        assert_eq!(client.venus.getattr(&me(), fid).unwrap().status.links, 0);
        client.close(handle);
        eventually("the hold is given back", || client.wire.count("Unhold") > usize::from(replace));
    }
}

#[test]
fn an_unnamed_file_is_held_until_it_is_closed() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (entry, opened) = client.venus.make_unnamed(&me(), client.root, 0o600, RW).unwrap();
    client.write(opened.handle, 0, b"tmp");
    client.venus.flush(&me(), opened.handle, None).unwrap();
    client.venus.changes().link(&me(), entry.status.fid, client.root, &name("named")).unwrap();
    client.close(opened.handle);
    eventually("let go", || client.wire.count("Unhold") == 1);
    assert_eq!(&client.content("named")[..], b"tmp");
}

/// A program that uses the server without a mount keeps the mount's applications out
/// (docs/spec/sharing.md).
#[test]
fn sh2_an_open_elsewhere_fails_reads_and_writes_here() {
    let (server, cache) = (TestServer::in_memory(), tempfile::tempdir().unwrap());
    let cache_dir = Some(cache.path().to_owned());
    let config = venus::VenusConfig { cache_dir, ..venus::VenusConfig::default() };
    let (a, program) = (server.client_with(1, false, config), server.wire(2, false));
    let (fid, handle) = a.create("f");
    a.write(handle, 0, &[7; 300_000]);
    a.close(handle);
    let handle = a.open("f", RW);
    // From now on the client answers from its disk.
    eventually("the cache has the file", || {
        a.wire.take();
        a.read(handle, 0, 300_000);
        a.wire.count("Read") + a.wire.count("ReadAhead") == 0
    });
    a.kernel.0.lock().clear();
    let (access, deny) = (DataUse::Both, DataUse::Both);
    let call = Call::Open { fid, access, deny, key: None, claims: false };
    let reply = program.call(&Caller::ROOT, call, None).unwrap();
    let Answer::Opened { open, .. } = reply.answer else { panic!("{reply:?}") };
    assert!(a.kernel.0.lock().contains(&Notified::Data(fid)), "before the open was answered");
    let conflict = Error::Fault(Fault::ShareConflict);
    for _ in 0..2 {
        assert_eq!(a.venus.read(&me(), handle, 0, 10), Err(conflict.clone()), "its copy is old");
        // The status is no data. It is promised, and the copy is old all the same.
        assert_eq!(a.venus.getattr(&me(), fid).unwrap().status.size, 300_000);
    }
    let written = a.venus.write(&me(), handle, 0, Bytes::from_static(b"TEXT"), false);
    let flushed = a.venus.flush(&me(), handle, None);
    assert_eq!(written.map(drop).and(flushed), Err(conflict), "at the latest at the close");
    let call = Call::Close { fid, open };
    program.call(&Caller::ROOT, call, None).unwrap();
    assert_eq!(&a.read(handle, 0, 4)[..], [7; 4], "the refused write left nothing");
    a.write(handle, 0, b"TEXT");
    a.close(handle);
    assert_eq!(&a.content("f")[..4], b"TEXT");
}

#[test]
fn a_lock_waits_is_cancelled_and_goes_with_its_client() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (_, first) = a.create("f");
    let second = b.open("f", RW);
    lock(&a, first, false).unwrap();
    assert_eq!(lock(&b, second, false), Err(Error::Fault(Fault::Locked)));
    let test = b
        .venus
        .locks()
        .getlk(&me(), second, MINE, LockFamily::Posix, ByteRange::ALL, LockMode::Shared)
        .unwrap();
    assert_eq!(test.unwrap().mode, LockMode::Exclusive);
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = RequestContext { cancel: Some(&cancel), ..me() };
            b.venus.locks().setlk(
                &request,
                second,
                MINE,
                1,
                LockFamily::Posix,
                ByteRange::ALL,
                LockMode::Exclusive,
                true,
            )
        });
        std::thread::sleep(Duration::from_millis(50));
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), Err(Error::Interrupted));
    });
    a.venus.flush(&me(), first, Some(MINE)).unwrap();
    lock(&b, second, false).unwrap();
    b.venus.flush(&me(), second, Some(LockOwner(99))).unwrap();
    assert_eq!(
        lock(&a, first, false),
        Err(Error::Fault(Fault::Locked)),
        "another owner's close gives nothing back"
    );
    drop(b);
    eventually("the session's end frees its locks", || lock(&a, first, false).is_ok());
}

#[test]
fn data_is_sent_after_a_second_without_being_asked() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let (fid, handle) = a.create("f");
    b.find("f").unwrap();
    a.write(handle, 0, b"later");
    eventually("the other sees it", || b.venus.getattr(&me(), fid).unwrap().status.size == 5);
    assert_eq!(a.wire.count("Write"), 1);
}

#[test]
fn getattr_of_a_written_file_shows_final_times() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, handle) = client.create("f");
    client.write(handle, 0, b"abc");
    assert_eq!(client.find("f").unwrap().status.size, 3);
    assert!(!client.find("f").unwrap().cacheable, "its times are not known yet");
    let before = client.venus.getattr(&me(), fid).unwrap();
    client.close(handle);
    assert_eq!(client.venus.getattr(&me(), fid).unwrap().status, before.status);
    assert!(before.cacheable && before.status.size == 3);
}

#[test]
fn two_writers_short_of_room_do_not_block_each_other() {
    let server = TestServer::in_memory();
    let config =
        venus::VenusConfig { file_dirty_bytes_max: 1 << 20, ..venus::VenusConfig::default() };
    let (a, b) = (server.client_with(1, true, config.clone()), server.client_with(2, true, config));
    let (_, handle) = a.create("f");
    a.close(handle);
    let start = Instant::now();
    let write = |client: &Client, letter: u8| {
        let handle = client.open("f", RW);
        for i in 0..40u64 {
            client.write(handle, (i % 8) << 19, &vec![letter; 1 << 19]);
        }
        client.close(handle);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&a, b'a'));
        scope.spawn(|| write(&b, b'b'));
    });
    assert!(start.elapsed() < Duration::from_secs(10), "no thread waited for a lease to end");
    let whole = a.content("f");
    assert_eq!(whole.len(), 4 << 20);
    assert_eq!(whole, b.content("f"));
}

/// Both clients change a few files, one operation at a time; compares each file's bytes with a
/// model.
#[test]
fn cb1_random_operations_of_two_clients_match_a_model() {
    for (seed, descriptors) in (0..12u64).flat_map(|seed| [(seed, true), (seed, false)]) {
        let server = TestServer::in_memory();
        let clients: Vec<Client> = (0..2)
            .map(|n| server.client_with(n, descriptors, venus::VenusConfig::default()))
            .collect();
        let mut random = SmallRng::seed_from_u64(seed);
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for step in 0..250 {
            let client = &clients[random.random_range(0..2)];
            let path = format!("f{}", random.random_range(0..5));
            let what = format!("seed {seed} step {step} {path}");
            match random.random_range(0..9) {
                0 | 1 => {
                    let made =
                        client.venus.create(&me(), client.root, &name(&path), 0o644, true, RW);
                    match files.entry(path) {
                        Slot::Occupied(_) => {
                            assert_eq!(made.unwrap_err(), Error::Fault(Fault::Exists), "{what}");
                        }
                        Slot::Vacant(slot) => {
                            client.close(made.unwrap().1.handle);
                            slot.insert(Vec::new());
                        }
                    }
                }
                2 => {
                    let gone = client.venus.changes().unlink(&me(), client.root, &name(&path));
                    assert_eq!(gone.is_ok(), files.remove(&path).is_some(), "{what}");
                }
                3 => {
                    let to = format!("f{}", random.random_range(0..5));
                    let (from_name, to_name) = (name(&path), name(&to));
                    let moved = client.venus.changes().rename(
                        &me(),
                        (client.root, &from_name),
                        (client.root, &to_name),
                        RenameMode::Replace,
                    );
                    assert_eq!(moved.is_ok(), files.contains_key(&path), "{what}");
                    if let Some(content) = files.remove(&path) {
                        files.insert(to, content);
                    }
                }
                4 => {
                    let Some(content) = files.get_mut(&path) else { continue };
                    let size = random.random_range(0..200_000u64);
                    let fid = client.find(&path).unwrap().status.fid;
                    let change = StatusChange { size: Some(size), ..StatusChange::default() };
                    client.venus.setattr(&me(), fid, change).unwrap();
                    content.resize(size as usize, 0);
                }
                5 | 6 => {
                    let Some(content) = files.get_mut(&path) else { continue };
                    let handle = client.open(&path, RW);
                    for _ in 0..random.random_range(1..6) {
                        let offset = random.random_range(0..150_000usize);
                        let data = vec![random.random::<u8>(); random.random_range(1..80_000)];
                        client.write(handle, offset as u64, &data);
                        if content.len() < offset + data.len() {
                            content.resize(offset + data.len(), 0);
                        }
                        content[offset..offset + data.len()].copy_from_slice(&data);
                        let from = random.random_range(0..200_000usize).min(content.len());
                        let read = client.read(handle, from as u64, 50_000);
                        assert_eq!(read, content[from..content.len().min(from + 50_000)], "{what}");
                    }
                    client.close(handle);
                }
                _ => {
                    for client in &clients {
                        let found = client.find(&path);
                        assert_eq!(found.is_some(), files.contains_key(&path), "{what}");
                        let Some(content) = files.get(&path) else { continue };
                        assert_eq!(found.unwrap().status.size, content.len() as u64, "{what}");
                        assert!(client.content(&path) == content[..], "{what}");
                    }
                }
            }
        }
        let mut listed: Vec<Vec<u8>> = clients[0]
            .list(server.root, true)
            .iter()
            .map(|entry| entry.name.as_bytes().to_vec())
            .collect();
        listed.sort();
        assert_eq!(listed, files.keys().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>());
    }
}

#[test]
fn directories_on_both_sides_stay_in_step() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client(1), server.client(2));
    let dir = a
        .venus
        .changes()
        .make(&me(), a.root, &name("d"), NewKind::Directory, 0o755)
        .unwrap()
        .status
        .fid;
    for i in 0..50u32 {
        let (maker, looker) = if i % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let file = name(&format!("f{i}"));
        let (entry, opened) = maker.venus.create(&me(), dir, &file, 0o644, true, RW).unwrap();
        maker.close(opened.handle);
        match looker.venus.lookup(&me(), dir, &file).unwrap() {
            venus::LookupReply::Entry(found) => assert_eq!(found.status.fid, entry.status.fid),
            venus::LookupReply::Absent { .. } => panic!("f{i} is there"),
        }
        assert_eq!(looker.list(dir, i % 3 == 0).len() as u32, i + 1);
        assert_eq!(
            looker.venus.getattr(&me(), dir).unwrap().status.data_version,
            a.venus.getattr(&me(), dir).unwrap().status.data_version
        );
    }
}
