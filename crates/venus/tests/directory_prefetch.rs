//! Directory prefetch: small files that are read one after the other arrive ahead of their reader,
//! and are never stale.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{Client, RO, RW, TestServer, me, name};
use parking_lot::{Condvar, Mutex};
use types::{Cookie, Fid, StatusChange};
use venus::{KernelPort, OpenMode};

const WO: OpenMode = OpenMode { read: false, write: true, append: false, truncate: false };

const COUNT: usize = 300;

fn content(i: usize) -> Vec<u8> {
    format!("content of {i} ").repeat(1 + i % 7 * 300).into_bytes()
}

/// A directory full of small files, and a client with an empty cache.
fn server_of_small_files(descriptors: bool) -> (TestServer, Client, Client) {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    for i in 0..COUNT {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.write(handle, 0, &content(i));
        maker.close(handle);
    }
    let reader = server.client_with(2, descriptors, venus::VenusConfig::default());
    (server, maker, reader)
}

fn read(client: &Client, i: usize) -> Vec<u8> {
    let handle = client.open(&format!("file-{i}"), RO);
    let bytes = client.read(handle, 0, 128 << 10);
    client.close(handle);
    bytes.to_vec()
}

#[test]
fn files_that_are_read_in_their_order_are_fetched_in_chains() {
    for (descriptors, listed) in [(true, true), (true, false), (false, true)] {
        let (_server, _maker, client) = server_of_small_files(descriptors);
        if listed {
            client.list(client.root, true);
        }
        client.wire.take();
        for i in 0..COUNT {
            assert!(read(&client, i) == content(i), "{i}");
        }
        let calls = client.wire.take();
        let (ahead, alone) =
            (calls.get("ReadAhead").copied().unwrap_or(0), calls.get("Read").copied().unwrap_or(0));
        // While the listing comes, the file that is just being opened may be fetched beside its
        // reader.
        let twice = usize::from(!listed);
        assert!((COUNT..=COUNT + twice).contains(&(ahead + alone)), "each once: {calls:?}");
        // Two steps show the reader's order. Names are listed in an order of their own, another one
        // in each volume: the first two files may lie side by side there as well, and then the next
        // one decides.
        assert!(alone <= if listed { 4 } else { 16 }, "{calls:?}");
    }
}

#[test]
fn a_walk_through_directories_finds_the_first_files_too() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let path = |d: usize, i: usize| (name(&format!("dir-{d}")), name(&format!("file-{i}")));
    for d in 0..4 {
        let (dir, _) = path(d, 0);
        let made = maker
            .venus
            .changes()
            .make(&me(), maker.root, &dir, types::NewKind::Directory, 0o755)
            .unwrap();
        for i in 0..20 {
            let file = path(d, i).1;
            let (_, opened) =
                maker.venus.create(&me(), made.status.fid, &file, 0o644, false, RW).unwrap();
            maker.write(opened.handle, 0, &content(i));
            maker.close(opened.handle);
        }
    }
    let client = server.client(2);
    for d in 0..4 {
        let dir = client.find(&format!("dir-{d}")).unwrap().status.fid;
        for entry in client.list(dir, true) {
            let handle = client.venus.open(&me(), entry.fid, RO).unwrap().handle;
            assert!(!client.read(handle, 0, 128 << 10).is_empty());
            client.close(handle);
        }
        let alone = client.wire.take().get("Read").copied().unwrap_or(0);
        assert_eq!(alone, if d == 0 { 2 } else { 0 }, "directory {d}");
    }
}

#[test]
fn cb1_prefetched_bytes_are_not_read_after_a_change() {
    let (_server, maker, client) = server_of_small_files(true);
    client.list(client.root, true);
    for i in 0..COUNT {
        // Of the next ones some are here by now.
        let target = (i + 3).min(COUNT - 1);
        match i % 3 {
            0 => {
                let handle = maker.open(&format!("file-{target}"), RW);
                maker.write(handle, 0, b"changed!");
                maker.close(handle);
            }
            1 => {
                let handle = client.open(&format!("file-{target}"), RW);
                client.write(handle, 2, b"own");
                client.close(handle);
            }
            _ => {}
        }
        let expected = maker.content(&format!("file-{i}"));
        assert!(read(&client, i) == expected, "file {i}");
    }
}

#[test]
fn cb4_no_prefetched_bytes_outlive_the_lease() {
    let (_server, maker, client) = server_of_small_files(true);
    client.list(client.root, true);
    (0..10).for_each(|i| drop(read(&client, i)));
    client.wire.events.lock().clone().unwrap().on_lease_lost();
    client.wire.take();
    let handle = maker.open("file-10", RW);
    maker.write(handle, 0, b"changed!");
    maker.close(handle);
    assert_eq!(&read(&client, 10)[..8], b"changed!");
}

/// A kernel that takes the bytes given to it, as slowly as `hold` says.
#[derive(Default)]
struct Pages {
    here: Mutex<HashMap<Fid, Vec<u8>>>,
    filled: Mutex<usize>,
    /// The next fill sends the fid, and waits.
    hold: Mutex<Option<mpsc::Sender<Fid>>>,
    held: Mutex<bool>,
    go: Condvar,
}

impl KernelPort for Pages {
    fn inode_data(&self, fid: Fid) {
        self.here.lock().remove(&fid);
    }
    fn directory(&self, _: Fid) {}
    fn all(&self) {
        self.here.lock().clear();
    }
    fn fill(&self, fid: Fid, data: &[u8]) -> bool {
        if let Some(began) = self.hold.lock().take() {
            let mut held = self.held.lock();
            *held = true;
            began.send(fid).unwrap();
            while *held {
                self.go.wait(&mut held);
            }
        }
        *self.filled.lock() += 1;
        self.here.lock().insert(fid, data.to_vec());
        true
    }
}

impl Pages {
    fn of(client: &Client) -> Arc<Pages> {
        let pages = Arc::new(Pages::default());
        client.venus.set_invalidate(pages.clone());
        pages
    }

    fn release(&self) {
        *self.held.lock() = false;
        self.go.notify_all();
    }
}

/// As a kernel reads: from its pages if they are there.
fn read_through(client: &Client, pages: &Pages, i: usize) -> Vec<u8> {
    let fid = client.find(&format!("file-{i}")).unwrap().status.fid;
    let handle = client.venus.open(&me(), fid, RO).unwrap().handle;
    let here = pages.here.lock().get(&fid).cloned();
    let bytes = here.unwrap_or_else(|| client.read(handle, 0, 128 << 10).to_vec());
    client.close(handle);
    bytes
}

#[test]
fn the_kernel_receives_prefetched_and_never_stale_bytes() {
    let (_server, maker, client) = server_of_small_files(true);
    let pages = Pages::of(&client);
    client.list(client.root, true);
    for i in 0..COUNT {
        let target = (i + 3).min(COUNT - 1);
        match i % 30 {
            0 => {
                let handle = maker.open(&format!("file-{target}"), RW);
                maker.write(handle, 0, b"changed!");
                maker.close(handle);
            }
            10 => {
                let handle = client.open(&format!("file-{target}"), RW);
                client.write(handle, 2, b"own");
                client.close(handle);
            }
            20 => {
                let fid = client.find(&format!("file-{target}")).unwrap().status.fid;
                let change = StatusChange { size: Some(5), ..StatusChange::default() };
                client.venus.setattr(&me(), fid, change).unwrap();
            }
            _ => {}
        }
        let expected = maker.content(&format!("file-{i}"));
        assert!(read_through(&client, &pages, i) == expected, "file {i}");
    }
    let filled = *pages.filled.lock();
    assert!(filled > COUNT / 2, "{filled} of {COUNT} came without a read");
}

/// Opens a file whose bytes were prefetched, and runs `change` on it while the kernel takes them:
/// the change must not end before.
fn change_while_the_kernel_takes_it(
    change: impl FnOnce(&Client, &Client, &str) + Send,
) -> (Vec<u8>, Vec<u8>) {
    let (_server, maker, client) = server_of_small_files(true);
    let pages = Pages::of(&client);
    client.list(client.root, true);
    (0..40).for_each(|i| drop(read_through(&client, &pages, i)));
    let (send, began) = mpsc::channel();
    *pages.hold.lock() = Some(send);
    let over = AtomicBool::new(false);
    let (maker, client, over, pages) = (&maker, &client, &over, &*pages);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (40..COUNT).for_each(|i| drop(read_through(client, pages, i))));
        let fid = began.recv_timeout(Duration::from_secs(10)).unwrap();
        let name = (40..COUNT)
            .map(|i| format!("file-{i}"))
            .find(|name| maker.find(name).unwrap().status.fid == fid);
        let name = name.unwrap();
        let its_name = name.clone();
        let changer = scope.spawn(move || {
            change(maker, client, &its_name);
            over.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        let early = over.load(Ordering::SeqCst);
        pages.release();
        assert!(!early, "the change is over before the kernel has what was before it");
        changer.join().unwrap();
        reader.join().unwrap();
        let i = name["file-".len()..].parse().unwrap();
        (read_through(client, pages, i), maker.content(&name).to_vec())
    })
}

#[test]
fn a_change_elsewhere_invalidates_bytes_just_given() {
    let (found, expected) = change_while_the_kernel_takes_it(|maker, _, name| {
        let handle = maker.open(name, RW);
        maker.write(handle, 0, b"changed!");
        maker.close(handle);
    });
    assert!(found == expected && found.starts_with(b"changed!"));
}

#[test]
fn an_own_truncation_comes_after_bytes_just_given() {
    change_while_the_kernel_takes_it(|_, client, name| {
        let fid = client.find(name).unwrap().status.fid;
        let change = StatusChange { size: Some(3), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, change).unwrap();
    });
}

#[test]
fn an_own_writer_opens_after_bytes_just_given() {
    change_while_the_kernel_takes_it(|_, client, name| {
        let handle = client.open(name, RW);
        client.close(handle);
    });
}

/// Writes many files in a row, in a delegated directory: the bytes written to each handle are at
/// the server on return.
fn write_in_a_row(client: &Client, mode: OpenMode, files: std::ops::Range<usize>) {
    for i in files {
        let made =
            client.venus.create(&me(), client.root, &name(&format!("file-{i}")), 0o644, true, mode);
        let opened = made.unwrap().1;
        client.write(opened.handle, 0, &content(i));
        client.close(opened.handle);
    }
    client.venus.syncfs(&me(), client.root).unwrap();
}

#[test]
fn short_files_written_past_the_kernels_pages_are_not_asked_for() {
    let server = TestServer::in_memory();
    let (client, other) = (server.client(1), server.client(2));
    write_in_a_row(&client, WO, 0..40);
    client.wire.take();
    for i in 20..40 {
        assert!(read(&client, i) == content(i), "{i}");
    }
    assert_eq!(client.wire.take().get("Read"), None, "they are here");
    write_in_a_row(&client, RW, 40..60);
    client.wire.take();
    for i in 40..60 {
        assert!(read(&client, i) == content(i), "{i}");
    }
    assert_ne!(client.wire.take().get("Read"), None, "the kernel had pages of these");

    write_in_a_row(&client, WO, 60..80);
    for i in 60..80 {
        let by = if i % 2 == 0 { &other } else { &client };
        let handle = by.open(&format!("file-{i}"), RW);
        by.write(handle, 0, b"changed!");
        by.close(handle);
        assert_eq!(&read(&client, i)[..8], b"changed!", "{i}");
        assert_eq!(&read(&other, i)[..8], b"changed!", "{i}");
    }
}

/// Files of 70 to 250 KB, on a disk.
fn server_of_longer_files(count: usize) -> (TestServer, Client) {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    for i in 0..count {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.write(handle, 0, &longer_content(i));
        maker.close(handle);
    }
    (server, maker)
}

fn longer_content(i: usize) -> Vec<u8> {
    let length = 70_000 + i * 7919 % 180_000;
    (0..length).map(|at| (at * (i + 3) / 7) as u8).collect()
}

fn read_longer(client: &Client, i: usize) -> Result<Vec<u8>, venus::Error> {
    let handle = client.open(&format!("file-{i}"), RO);
    let mut whole = Vec::new();
    let result = loop {
        match client.venus.read(&me(), handle, whole.len() as u64, 128 << 10) {
            Ok(part) if part.is_empty() => break Ok(whole),
            Ok(part) => whole.extend_from_slice(&part),
            Err(error) => break Err(error),
        }
    };
    client.close(handle);
    result
}

#[test]
fn longer_files_come_ahead_through_their_descriptors() {
    const COUNT: usize = 60;
    let (server, _maker) = server_of_longer_files(COUNT);
    let client = server.client(2);
    client.list(client.root, true);
    client.wire.take();
    for i in 0..COUNT {
        assert!(read_longer(&client, i).unwrap() == longer_content(i), "{i}");
    }
    let calls = client.wire.take();
    let bytes_in_answers: usize =
        ["Read", "ReadAhead"].iter().filter_map(|kind| calls.get(kind)).sum();
    assert!(bytes_in_answers <= 4, "{calls:?}");
    assert!(calls["OpenBody"] <= COUNT && calls["ReadSums"] <= COUNT, "each once: {calls:?}");
}

#[test]
fn st3_prefetched_bodies_are_compared_with_their_sums() {
    const COUNT: usize = 12;
    let (server, maker) = server_of_longer_files(COUNT);
    let damaged = maker.find("file-8").unwrap().status;
    // As if the answer had brought another file's body: of the same length, with other bytes.
    let other = maker.find("file-9").unwrap().status;
    maker
        .venus
        .setattr(
            &me(),
            other.fid,
            StatusChange { size: Some(damaged.size), ..StatusChange::default() },
        )
        .unwrap();
    let bodies = server.path().join("vicepa/bodies");
    let (from, to) = (body_file(&bodies, other.fid), body_file(&bodies, damaged.fid));
    let good = std::fs::read(&to).unwrap();
    let bad = std::fs::read(&from).unwrap();
    assert_ne!(good, bad);
    let client = server.client(2);
    client.list(client.root, true);
    std::fs::write(&to, &bad).unwrap();
    for i in (0..COUNT).filter(|i| *i != 9) {
        match read_longer(&client, i) {
            Ok(bytes) => assert!(i != 8 && bytes == longer_content(i), "{i}"),
            Err(_) => assert_eq!(i, 8, "the server finds the damage too"),
        }
    }
}

fn body_file(bodies: &std::path::Path, fid: Fid) -> std::path::PathBuf {
    let start = format!("{:x}.", fid.vnode.0);
    let mut dirs = vec![bodies.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let named = path.file_name().is_some_and(|name| {
                name.to_string_lossy().trim_start_matches('0').starts_with(&start)
            });
            match path.is_dir() {
                true => dirs.push(path),
                false if named => return path,
                false => {}
            }
        }
    }
    panic!("{fid} has no body file");
}

/// Directories with `files` files each, two levels of them: 4 with 3 below each.
fn server_of_a_tree(files: usize) -> (TestServer, Client) {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let directory = |above: Fid, number: usize| {
        let name = name(&format!("dir-{number}"));
        maker
            .venus
            .changes()
            .make(&me(), above, &name, types::NewKind::Directory, 0o755)
            .unwrap()
            .status
            .fid
    };
    for d in 0..4 {
        let above = directory(maker.root, d);
        for s in 0..3 {
            let dir = directory(above, s);
            for i in 0..files {
                let (_, opened) = maker
                    .venus
                    .create(&me(), dir, &name(&format!("file-{i}")), 0o644, false, RW)
                    .unwrap();
                maker.write(opened.handle, 0, &content(i));
                maker.close(opened.handle);
            }
        }
    }
    (server, maker)
}

/// Walks a tree as `grep -r` does, or only lists it, except entries named `new...`. Calls `before`
/// for each directory that is about to be listed.
fn walk(client: &Client, dir: Fid, reads: bool, before: &mut impl FnMut(Fid)) {
    before(dir);
    for entry in client
        .list(dir, true)
        .into_iter()
        .filter(|entry| !entry.name.as_bytes().starts_with(b"new"))
    {
        if entry.kind == types::Kind::Directory {
            walk(client, entry.fid, reads, before);
        } else if reads {
            let handle = client.venus.open(&me(), entry.fid, RO).unwrap().handle;
            assert!(!client.read(handle, 0, 128 << 10).is_empty());
            client.close(handle);
        }
    }
}

#[test]
fn a_walk_finds_the_next_directories_listed() {
    let (server, _maker) = server_of_a_tree(10);
    let client = server.client(2);
    let mut directories = 0;
    walk(&client, client.root, true, &mut |_| directories += 1);
    assert_eq!(directories, 1 + 4 + 12);
    let calls = client.wire.take();
    assert_eq!(calls["ReadDir"], directories, "each once: {calls:?}");
    assert_eq!(calls["ReadAhead"] + calls.get("Read").copied().unwrap_or(0), 12 * 10, "{calls:?}");
    assert!(calls.get("Read").copied().unwrap_or(0) <= 4, "{calls:?}");

    // Again, with a check of what was there before a directory was listed.
    let client = server.client(3);
    let mut listed_ahead = 0;
    let (mut seen, wire) = (0, client.wire.clone());
    walk(&client, client.root, true, &mut |_| {
        std::thread::sleep(Duration::from_millis(20));
        listed_ahead += usize::from(wire.count("ReadDir") > seen);
        seen += 1;
    });
    assert!(listed_ahead >= 12, "{listed_ahead} of {directories}");
}

#[test]
fn a_walk_without_reads_prefetches_nothing() {
    let (server, _maker) = server_of_a_tree(10);
    let client = server.client(2);
    let wire = client.wire.clone();
    let mut directories = 0;
    walk(&client, client.root, false, &mut |_| {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(wire.count("ReadDir"), directories, "nothing before it is asked for");
        directories += 1;
    });
    let calls = client.wire.take();
    assert_eq!(calls.keys().copied().collect::<Vec<_>>(), ["ReadDir"], "{calls:?}");
}

#[test]
fn a_directory_that_was_listed_ahead_is_shown_as_it_is() {
    let (server, maker) = server_of_a_tree(10);
    let client = server.client(2);
    let mut number = 0;
    walk(&client, client.root, true, &mut |dir| {
        std::thread::sleep(Duration::from_millis(5));
        number += 1;
        let name = name(&format!("new-{number}"));
        maker.venus.changes().make(&me(), dir, &name, types::NewKind::Directory, 0o755).unwrap();
        let listed = client.list(dir, true);
        assert!(listed.iter().any(|entry| entry.name == name), "{number}");
    });
    assert_eq!(number, 17);
}

#[test]
fn a_page_listed_ahead_is_not_shown_to_another_caller() {
    let (server, maker) = server_of_a_tree(10);
    let client = server.client(2);
    // Only the owner of each directory may read its names.
    let mut directories = Vec::new();
    walk(&maker, maker.root, false, &mut |dir| directories.push(dir));
    for dir in directories {
        let change = StatusChange { mode: Some(0o711), ..StatusChange::default() };
        maker.venus.setattr(&me(), dir, change).unwrap();
    }
    let other = types::Caller { uid: 4711, gid: 4711, ..types::Caller::ROOT };
    let other = venus::RequestContext::of(&other);
    walk(&client, client.root, true, &mut |dir| {
        std::thread::sleep(Duration::from_millis(5));
        let handle = client.venus.dirs().opendir(&other, dir).unwrap();
        let refused = client.venus.dirs().readdir(&other, handle, Cookie::START, 4096, true);
        assert!(refused.is_err(), "{refused:?}");
        client.venus.dirs().releasedir(handle);
    });
}
