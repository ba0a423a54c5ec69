//! Bodies of the disk cache that the kernel has (docs/spec/passthrough.md).

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::common::{APPEND, Client, RO, RW, TestServer, me};
use mem::map::Map;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use types::{AllocateMode, Call, Fid, StatusChange};
use venus::{Backing, KernelPort, OpenHandle, OpenMode, OpenReply, VenusConfig};

/// A kernel that takes backing files.
#[derive(Default)]
struct Kernel {
    bodies: Mutex<HashMap<i32, OwnedFd>>,
    next: AtomicI32,
    /// Files whose pages were dropped.
    dropped: Mutex<Vec<Fid>>,
}

impl KernelPort for Kernel {
    fn inode_data(&self, fid: Fid) {
        self.dropped.lock().push(fid);
    }
    fn directory(&self, _: Fid) {}
    fn all(&self) {}
    fn passes(&self) -> Result<(), &'static str> {
        Ok(())
    }
    fn pass(&self, body: BorrowedFd<'_>) -> Option<Backing> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.bodies.lock().insert(number, body.try_clone_to_owned().unwrap());
        Some(Backing(number))
    }
    fn unpass(&self, backing: Backing) {
        self.bodies.lock().remove(&backing.0).unwrap();
    }
}

/// A client on another machine with a disk cache and such a kernel.
struct Machine {
    client: Client,
    kernel: Arc<Kernel>,
    dir: tempfile::TempDir,
}

fn config(dir: &tempfile::TempDir) -> VenusConfig {
    VenusConfig { cache_dir: Some(dir.path().into()), ..VenusConfig::default() }
}

impl Machine {
    fn new(server: &TestServer, number: u128) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        Self::over(server, number, config(&dir), dir)
    }

    fn over(
        server: &TestServer,
        number: u128,
        config: VenusConfig,
        dir: tempfile::TempDir,
    ) -> Machine {
        let client = server.client_with(number, false, config);
        let kernel = Arc::new(Kernel::default());
        client.venus.set_invalidate(kernel.clone());
        Machine { client, kernel, dir }
    }

    fn try_open(&self, path: &str, mode: OpenMode) -> OpenReply {
        let fid = self.client.find(path).unwrap().status.fid;
        self.client.venus.open(&me(), fid, mode).unwrap()
    }

    /// Opens the file with passthrough, after as many readings as that takes; returns the kernel's
    /// backing file too.
    fn open_passed(&self, path: &str) -> (OpenHandle, File) {
        let began = Instant::now();
        loop {
            let opened = self.try_open(path, RO);
            if let Some(backing) = opened.backing {
                return (opened.handle, self.backing(backing, false));
            }
            self.client.close(opened.handle);
            assert!(began.elapsed() < Duration::from_secs(10), "never passed");
            self.client.content(path);
        }
    }

    fn backing(&self, backing: Backing, writable: bool) -> File {
        let bodies = self.kernel.bodies.lock();
        let number = std::os::fd::AsRawFd::as_raw_fd(&bodies[&backing.0]);
        File::options().read(true).write(writable).open(format!("/proc/self/fd/{number}")).unwrap()
    }

    fn passed(&self) -> usize {
        self.client.venus.passthrough().open
    }
}

fn random_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn make(client: &Client, path: &str, bytes: &[u8]) {
    let (_, handle) = client.create(path);
    for (i, chunk) in bytes.chunks(1 << 20).enumerate() {
        client.write(handle, (i as u64) << 20, chunk);
    }
    client.close(handle);
}

fn change(client: &Client, path: &str, offset: u64, bytes: &[u8]) {
    let handle = client.open(path, RW);
    client.write(handle, offset, bytes);
    client.close(handle);
}

fn cut(client: &Client, path: &str, size: u64) {
    let fid = client.find(path).unwrap().status.fid;
    let change = StatusChange { size: Some(size), ..StatusChange::default() };
    client.venus.setattr(&me(), fid, change).unwrap();
}

fn whole(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 20];
    let mut at = 0;
    while let count @ 1.. = file.read_at(&mut bytes[at..], at as u64).unwrap() {
        at += count;
    }
    bytes.truncate(at);
    bytes
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_change_elsewhere_is_in_the_body_before_it_returns() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes((2 << 20) + 777, 1);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let (handle, kernel) = machine.open_passed("big");
    assert!(whole(&kernel) == bytes);
    let mut random = SmallRng::seed_from_u64(5);
    for round in 0..60u64 {
        if round % 10 == 9 {
            bytes.resize(random.random_range(1..3 << 20), 0);
            cut(&maker, "big", bytes.len() as u64);
        } else {
            let length = [1, 100, 20_000, 300_000][random.random_range(0..4)];
            let offset = random.random_range(0..bytes.len() + 1000);
            let data = random_bytes(length, round);
            change(&maker, "big", offset as u64, &data);
            bytes.resize(bytes.len().max(offset + length), 0);
            bytes[offset..offset + length].copy_from_slice(&data);
        }
        assert!(whole(&kernel) == bytes, "round {round}");
        assert!(machine.client.read(handle, 0, 4096)[..] == bytes[..bytes.len().min(4096)]);
        let seen = machine.client.find("big").unwrap().status;
        assert_eq!(seen.size, bytes.len() as u64);
    }
    let reads = machine.client.wire.take();
    machine.client.close(handle);
    drop(kernel);
    eventually("it goes back into the cache", || machine.passed() == 0);
    assert!(machine.client.content("big") == bytes);
    assert!(machine.client.wire.count("Read") <= 2, "from the cache: {reads:?}");
    let (again, kernel) = machine.open_passed("big");
    assert!(whole(&kernel) == bytes);
    machine.client.close(again);
}

#[test]
fn blocks_left_out_of_a_fast_stream_come_at_the_next_open() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let bytes = random_bytes((24 << 20) + 5, 3);
    make(&maker, "big", &bytes);
    let dir = tempfile::tempdir().unwrap();
    let fast = VenusConfig { keep_bytes: 2 << 20, keep_rate_max: 1, ..config(&dir) };
    let machine = Machine::over(&server, 2, fast, dir);
    assert!(machine.client.content("big") == bytes);
    let passes = || {
        let opened = machine.try_open("big", RO);
        machine.client.close(opened.handle);
        opened.backing.is_some()
    };
    let fid = machine.client.find("big").unwrap().status.fid;
    let dropped = || machine.kernel.dropped.lock().contains(&fid);
    assert!(!dropped() && !passes(), "much was left out");
    eventually("the rest came without a reader, and the kernel's pages went", dropped);
    assert!(passes(), "the third open finds all of it here");
    let (handle, kernel) = machine.open_passed("big");
    assert!(whole(&kernel) == bytes);
    machine.client.close(handle);
}

#[test]
fn pt3_only_whole_long_files_are_passed_to_a_first_reader() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    make(&maker, "short", &random_bytes(100_000, 1));
    make(&maker, "long", &random_bytes(1 << 20, 2));
    let machine = Machine::new(&server, 2);
    for path in ["short", "long"] {
        let opened = machine.try_open(path, RO);
        assert_eq!(opened.backing, None, "nothing is here yet");
        machine.client.close(opened.handle);
    }
    machine.client.content("short");
    let fid = |path| machine.client.find(path).unwrap().status.fid;
    machine.client.content("long");
    eventually("pages of what is wholly here go", || {
        machine.kernel.dropped.lock().contains(&fid("long"))
    });
    assert!(!machine.kernel.dropped.lock().contains(&fid("short")), "that is never passed");
    let short = machine.try_open("short", RO);
    assert_eq!(short.backing, None);
    let (handle, _) = machine.open_passed("long");
    machine.client.close(handle);
    eventually("it goes back", || machine.passed() == 0);
    let writer = machine.try_open("long", RW);
    assert_eq!(writer.backing, None);
    let reader = machine.try_open("long", RO);
    assert_eq!(reader.backing, None, "one mode at a time");
    machine.client.close(writer.handle);
    machine.client.close(reader.handle);
    let off = VenusConfig { passthrough: false, ..config(&machine.dir) };
    machine.client.venus.shutdown().unwrap();
    let Machine { client, dir, .. } = machine;
    drop(client);
    let machine = Machine::over(&server, 3, off, dir);
    machine.client.content("long");
    assert_eq!(machine.try_open("long", RO).backing, None, "switched off");
    assert!(machine.client.venus.passthrough().why_not.is_some());
}

#[test]
fn at_the_end_bodies_go_back_without_a_word_to_the_kernel() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    make(&maker, "big", &random_bytes(1 << 20, 2));
    let machine = Machine::new(&server, 2);
    let (_, kernel) = machine.open_passed("big");
    drop(kernel);
    machine.kernel.dropped.lock().clear();
    // The mount is gone by then: notifications to a kernel that does not know the file are repeated
    // for seconds.
    machine.client.venus.shutdown().unwrap();
    assert!(machine.kernel.dropped.lock().is_empty());
    assert!(machine.kernel.bodies.lock().is_empty(), "but its registrations end");
}

#[test]
fn the_longest_read_needs_no_whole_pieces() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let bytes = random_bytes(3 << 20, 12);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let handle = machine.try_open("big", RO).handle;
    assert!(machine.client.read(handle, 0, 5000)[..] == bytes[..5000]);
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lengths);
    machine.client.wire.set_before(move |call| {
        if let Call::Read { length, .. } = call {
            seen.lock().push(*length);
        }
        None
    });
    assert!(machine.client.read(handle, 5000, 1 << 20)[..] == bytes[5000..5000 + (1 << 20)]);
    assert!(lengths.lock().iter().all(|length| *length <= 1 << 20), "{lengths:?}");
    machine.client.close(handle);
}

#[test]
fn a_joined_writer_is_seen_by_every_handle_and_the_server() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes((1 << 20) + 99, 3);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let (reader, kernel) = machine.open_passed("big");
    let writer = machine.try_open("big", RW);
    assert!(writer.backing.is_some() && writer.direct);
    machine.client.write(writer.handle, 5000, b"mine");
    bytes[5000..5004].copy_from_slice(b"mine");
    assert!(whole(&kernel) == bytes, "at once");
    assert_eq!(&machine.client.read(writer.handle, 5000, 4)[..], b"mine");
    // Another client changes another place, while our write has not been sent.
    machine.client.write(writer.handle, 70_000, b"unsent");
    change(&maker, "big", 80_000, b"theirs");
    bytes[70_000..70_006].copy_from_slice(b"unsent");
    bytes[80_000..80_006].copy_from_slice(b"theirs");
    assert!(whole(&kernel) == bytes);
    machine.client.venus.flush(&me(), writer.handle, None).unwrap();
    assert!(maker.content("big") == bytes);
    let appender = machine.try_open("big", APPEND);
    let at = machine
        .client
        .venus
        .write(&me(), appender.handle, 0, bytes::Bytes::from_static(b"end"), false)
        .unwrap();
    assert_eq!(at.offset, bytes.len() as u64);
    bytes.extend_from_slice(b"end");
    assert!(whole(&kernel) == bytes);
    machine
        .client
        .venus
        .fallocate(&me(), writer.handle, 4096, 40_000, AllocateMode::PunchHole)
        .unwrap();
    bytes[4096..44_096].fill(0);
    assert!(whole(&kernel) == bytes);
    for size in [300_000, 400_000] {
        cut(&machine.client, "big", size);
        bytes.resize(size as usize, 0);
        assert!(whole(&kernel) == bytes);
    }
    [appender.handle, writer.handle, reader]
        .into_iter()
        .for_each(|handle| machine.client.close(handle));
    drop(kernel);
    eventually("it goes back", || machine.passed() == 0);
    machine.client.wire.take();
    assert!(machine.client.content("big") == bytes && maker.content("big") == bytes);
}

#[test]
fn stores_to_a_map_reach_the_server_and_revert_no_other_change() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes(1 << 20, 4);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let (reader, _) = machine.open_passed("big");
    let writer = machine.try_open("big", RW);
    let mut map =
        Map::new(machine.backing(writer.backing.unwrap(), true), bytes.len(), true).unwrap();
    map.write(100, b"stored");
    bytes[100..106].copy_from_slice(b"stored");
    // In another page, before the client finds the store.
    change(&maker, "big", 8000, b"theirs");
    bytes[8000..8006].copy_from_slice(b"theirs");
    let mut seen = [0; 6];
    map.read(8000, &mut seen);
    assert_eq!(&seen, b"theirs");
    machine.client.venus.fsync(&me(), writer.handle).unwrap();
    assert!(maker.content("big") == bytes);
    map.write(500_000, b"later");
    bytes[500_000..500_005].copy_from_slice(b"later");
    eventually("within a second or so", || maker.content("big") == bytes);
    machine.client.close(writer.handle);
    machine.client.close(reader);
    // The map outlives both.
    map.write(600_000, b"latest");
    bytes[600_000..600_006].copy_from_slice(b"latest");
    change(&maker, "big", 700_000, b"theirs");
    bytes[700_000..700_006].copy_from_slice(b"theirs");
    map.read(700_000, &mut seen);
    assert_eq!(&seen, b"theirs", "a map shows what others write");
    eventually("it is tended", || maker.content("big") == bytes);
    assert_eq!(machine.passed(), 1, "it is still mapped");
    drop(map);
    eventually("it goes back", || machine.passed() == 0);
    assert!(machine.client.content("big") == bytes);
}

#[test]
fn a_body_that_the_kernel_has_is_not_evicted() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let bytes = random_bytes(2 << 20, 5);
    for path in ["a", "b", "c"] {
        make(&maker, path, &bytes);
    }
    let dir = tempfile::tempdir().unwrap();
    let config = VenusConfig { cache_bytes_max: 4 << 20, ..config(&dir) };
    let machine = Machine::over(&server, 2, config, dir);
    let (handle, kernel) = machine.open_passed("a");
    for path in ["b", "c", "b"] {
        assert!(machine.client.content(path) == bytes);
    }
    change(&maker, "a", 10, b"still followed");
    assert_eq!(whole(&kernel)[10..24], *b"still followed");
    drop(kernel);
    machine.client.close(handle);
    eventually("it goes back", || machine.passed() == 0);
    machine.client.wire.take();
    machine.client.content("a");
    assert!(machine.client.wire.count("Read") <= 1, "it was here all the time");
}

#[test]
fn a_removed_file_keeps_its_body_as_long_as_it_is_open() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes(1 << 20, 6);
    make(&maker, "gone", &bytes);
    let machine = Machine::new(&server, 2);
    let (handle, kernel) = machine.open_passed("gone");
    let other = maker.open("gone", RW);
    maker.venus.changes().unlink(&me(), server.root, &crate::common::name("gone")).unwrap();
    assert!(whole(&kernel) == bytes);
    maker.write(other, 77, b"after its end");
    bytes[77..90].copy_from_slice(b"after its end");
    maker.close(other);
    assert!(whole(&kernel) == bytes);
    machine.client.close(handle);
    drop(kernel);
    eventually("it is let go", || machine.passed() == 0);
    let left = || {
        let shelves = std::fs::read_dir(machine.dir.path().join("data")).unwrap();
        shelves
            .map(|shelf| std::fs::read_dir(shelf.unwrap().path()).unwrap().count())
            .sum::<usize>()
    };
    eventually("nothing of it is left on the disk", || left() == 0);
}

#[test]
fn other_breaks_do_not_wait_for_a_body_that_follows_slowly() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    make(&maker, "big", &random_bytes(1 << 20, 7));
    make(&maker, "other", b"old");
    let machine = Machine::new(&server, 2);
    let (_handle, kernel) = machine.open_passed("big");
    assert_eq!(machine.client.content("other"), b"old"[..]);
    let stuck = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&stuck);
    machine.client.wire.set_before(move |call| {
        while matches!(call, Call::ReadSums { .. }) && held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            change(&maker, "big", 0, b"slow");
            done.store(true, Ordering::SeqCst);
        });
        let second = server.client(9);
        change(&second, "other", 0, b"new");
        assert_eq!(machine.client.content("other"), b"new"[..]);
        assert!(!done.load(Ordering::SeqCst), "acknowledged before the body had it");
        stuck.store(false, Ordering::SeqCst);
    });
    assert_eq!(whole(&kernel)[..4], *b"slow");
}

#[test]
fn after_a_lost_lease_open_handles_show_old_then_new_bytes() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes(1 << 20, 8);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let (handle, kernel) = machine.open_passed("big");
    // As when the lease ran out and a new session begins.
    let events = machine.client.wire.events.lock().clone().unwrap();
    let away = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&away);
    machine.client.wire.set_before(move |_| {
        while held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    });
    events.on_lease_lost();
    assert!(whole(&kernel) == bytes, "what was cached is still read");
    let late = std::thread::scope(|scope| {
        let opening = scope.spawn(|| machine.try_open("big", RO));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!opening.is_finished(), "a new open waits for the server");
        away.store(false, Ordering::SeqCst);
        machine.client.wire.session.renew();
        opening.join().unwrap()
    });
    assert!(late.backing.is_some(), "in the mode of those who have it open");
    change(&maker, "big", 3, b"there is");
    bytes[3..11].copy_from_slice(b"there is");
    assert!(whole(&kernel) == bytes);
    [handle, late.handle].into_iter().for_each(|handle| machine.client.close(handle));
}

#[test]
fn pt7_a_changed_body_is_not_served_after_a_crash() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let mut bytes = random_bytes(1 << 20, 9);
    make(&maker, "big", &bytes);
    let machine = Machine::new(&server, 2);
    let (_, kernel) = machine.open_passed("big");
    machine.client.venus.syncfs(&me(), server.root).unwrap();
    change(&maker, "big", 1000, b"in place");
    bytes[1000..1008].copy_from_slice(b"in place");
    assert!(whole(&kernel) == bytes);
    // The state that a killed client leaves: the directory as it is now.
    let copy = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(machine.dir.path())
        .arg(copy.path())
        .status()
        .unwrap();
    assert!(copied.success());
    let dir = copy.path().join(machine.dir.path().file_name().unwrap());
    change(&maker, "big", 1000, b"elsewher");
    bytes[1000..1008].copy_from_slice(b"elsewher");
    let config = VenusConfig { cache_dir: Some(dir), ..VenusConfig::default() };
    let next = Machine::over(&server, 3, config, copy);
    assert!(next.client.content("big") == bytes);
}

#[test]
fn readers_and_writers_on_two_machines_converge() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let size = 1 << 20;
    make(&maker, "big", &vec![0; size]);
    let machines = [Machine::new(&server, 2), Machine::new(&server, 3)];
    let opened: Vec<_> = machines
        .iter()
        .map(|machine| {
            let (reader, kernel) = machine.open_passed("big");
            (reader, kernel, machine.try_open("big", RW).handle)
        })
        .collect();
    std::thread::scope(|scope| {
        for (seed, (machine, (_, _, writer))) in machines.iter().zip(&opened).enumerate() {
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed as u64);
                for round in 0..200u64 {
                    let length = random.random_range(1..30_000usize);
                    let offset = random.random_range(0..size - length);
                    machine.client.write(*writer, offset as u64, &random_bytes(length, round));
                    if round % 7 == 0 {
                        machine.client.venus.flush(&me(), *writer, None).unwrap();
                    }
                }
                machine.client.venus.flush(&me(), *writer, None).unwrap();
            });
        }
    });
    let server = server.client(9);
    eventually("both show what the server has", || {
        let truth = server.content("big");
        opened.iter().all(|(_, kernel, _)| whole(kernel) == truth)
    });
}
