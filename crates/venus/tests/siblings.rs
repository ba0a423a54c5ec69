//! Small files that are read one after the other come ahead of their reader, and are never old.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{Client, House, RO, RW, me, name};

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
