//! Small files that are read one after the other come ahead of their reader, and are never old.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::{Client, House, RO, RW, me, name};
use parking_lot::{Condvar, Mutex};
use types::{Fid, StatusChange};
use venus::{Invalidate, OpenMode};

const WO: OpenMode = OpenMode { read: false, write: true, append: false, truncate: false };

const COUNT: usize = 300;

fn content(i: usize) -> Vec<u8> {
    format!("content of {i} ").repeat(1 + i % 7 * 300).into_bytes()
}

/// A directory full of small files, and a client that knows nothing of it.
fn full_house(descriptors: bool) -> (House, Client, Client) {
    let house = House::in_memory();
    let maker = house.client(1);
    for i in 0..COUNT {
        let (_, handle) = maker.create(&format!("file-{i}"));
        maker.write(handle, 0, &content(i));
        maker.close(handle);
    }
    let reader = house.client_with(2, descriptors, venus::VenusConfig::default());
    (house, maker, reader)
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
        let (_house, _maker, client) = full_house(descriptors);
        if listed {
            client.list(client.root, true);
        }
        client.wire.take();
        for i in 0..COUNT {
            assert!(read(&client, i) == content(i), "{i}");
        }
        let calls = client.wire.take();
        let (ahead, alone) = (calls.get("ReadAhead").copied().unwrap_or(0), calls.get("Read").copied().unwrap_or(0));
        assert_eq!(ahead + alone, COUNT, "each once: {calls:?}");
        assert!(alone <= if listed { 2 } else { 16 }, "{calls:?}");
    }
}

#[test]
fn a_walk_through_directories_finds_the_first_files_too() {
    let house = House::in_memory();
    let maker = house.client(1);
    let path = |d: usize, i: usize| (name(&format!("dir-{d}")), name(&format!("file-{i}")));
    for d in 0..4 {
        let (dir, _) = path(d, 0);
        let made = maker.venus.make(&me(), maker.root, &dir, types::NewKind::Directory, 0o755).unwrap();
        for i in 0..20 {
            let file = path(d, i).1;
            let (_, opened) = maker.venus.create(&me(), made.status.fid, &file, 0o644, false, RW).unwrap();
            maker.write(opened.handle, 0, &content(i));
            maker.close(opened.handle);
        }
    }
    let client = house.client(2);
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
fn what_came_ahead_is_not_read_after_a_change() {
    let (_house, maker, client) = full_house(true);
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
fn nothing_that_came_ahead_outlives_the_lease() {
    let (_house, maker, client) = full_house(true);
    client.list(client.root, true);
    (0..10).for_each(|i| drop(read(&client, i)));
    client.wire.events.lock().clone().unwrap().on_lease_lost();
    client.wire.take();
    let handle = maker.open("file-10", RW);
    maker.write(handle, 0, b"changed!");
    maker.close(handle);
    assert_eq!(&read(&client, 10)[..8], b"changed!");
}

/// A kernel that takes what it is given, and is as slow as it is told.
#[derive(Default)]
struct Pages {
    here: Mutex<HashMap<Fid, Vec<u8>>>,
    filled: Mutex<usize>,
    /// The next fill begins, says so, and waits.
    hold: Mutex<Option<mpsc::Sender<Fid>>>,
    held: Mutex<bool>,
    go: Condvar,
}

impl Invalidate for Pages {
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
fn the_kernel_is_given_what_came_ahead_and_never_what_is_old() {
    let (_house, maker, client) = full_house(true);
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

/// Opens a file whose bytes came ahead, and does `change` to it while the kernel takes them: that must not be over before.
fn change_while_the_kernel_takes_it(change: impl FnOnce(&Client, &Client, &str) + Send) -> (Vec<u8>, Vec<u8>) {
    let (_house, maker, client) = full_house(true);
    let pages = Pages::of(&client);
    client.list(client.root, true);
    (0..40).for_each(|i| drop(read_through(&client, &pages, i)));
    let (tell, told) = mpsc::channel();
    *pages.hold.lock() = Some(tell);
    let over = AtomicBool::new(false);
    let (maker, client, over, pages) = (&maker, &client, &over, &*pages);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (40..COUNT).for_each(|i| drop(read_through(client, pages, i))));
        let fid = told.recv_timeout(Duration::from_secs(10)).unwrap();
        let name = (40..COUNT).map(|i| format!("file-{i}")).find(|name| maker.find(name).unwrap().status.fid == fid);
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
fn a_change_elsewhere_takes_back_what_the_kernel_was_just_given() {
    let (found, expected) = change_while_the_kernel_takes_it(|maker, _, name| {
        let handle = maker.open(name, RW);
        maker.write(handle, 0, b"changed!");
        maker.close(handle);
    });
    assert!(found == expected && found.starts_with(b"changed!"));
}

#[test]
fn a_truncation_here_comes_after_what_the_kernel_was_just_given() {
    change_while_the_kernel_takes_it(|_, client, name| {
        let fid = client.find(name).unwrap().status.fid;
        let change = StatusChange { size: Some(3), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, change).unwrap();
    });
}

#[test]
fn a_writer_here_opens_after_what_the_kernel_was_just_given() {
    change_while_the_kernel_takes_it(|_, client, name| {
        let handle = client.open(name, RW);
        client.close(handle);
    });
}

/// Many in a row, in a directory that is delegated: what was written to each handle is at the server on return.
fn write_in_a_row(client: &Client, mode: OpenMode, files: std::ops::Range<usize>) {
    for i in files {
        let made = client.venus.create(&me(), client.root, &name(&format!("file-{i}")), 0o644, true, mode);
        let opened = made.unwrap().1;
        client.write(opened.handle, 0, &content(i));
        client.close(opened.handle);
    }
    client.venus.syncfs(&me(), client.root).unwrap();
}

#[test]
fn short_files_written_past_the_kernels_pages_are_not_asked_for() {
    let house = House::in_memory();
    let (client, other) = (house.client(1), house.client(2));
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
