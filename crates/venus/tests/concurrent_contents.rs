//! Contents that another client changes, under reads of many threads with read-ahead: later reads
//! see the written bytes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Over, RO, RW, TestServer, me};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Cookie, Fid, StatusChange};
use venus::VenusConfig;

/// Small files are fetched in their order in the directory, large ones ahead of their reader.
const SMALL: usize = 60;
const LARGE: usize = 2;
const SMALL_BYTES: usize = 3000;
const LARGE_BYTES: usize = 3 << 20;

struct One {
    fid: Fid,
    /// The bytes written last.
    bytes: Vec<u8>,
}

fn fill(maker: &Client) -> Vec<One> {
    let sizes =
        std::iter::repeat_n(SMALL_BYTES, SMALL).chain(std::iter::repeat_n(LARGE_BYTES, LARGE));
    let made = sizes.enumerate().map(|(number, size)| {
        let (fid, handle) = maker.create(&format!("file-{number}"));
        let bytes = vec![number as u8; size];
        for (at, part) in bytes.chunks(1 << 20).enumerate() {
            maker.write(handle, (at << 20) as u64, part);
        }
        maker.close(handle);
        One { fid, bytes }
    });
    made.collect()
}

/// Opens, reads a range and closes.
fn read(client: &Client, fid: Fid, at: usize, length: usize) -> Bytes {
    let handle = client.venus.open(&me(), fid, RO).unwrap().handle;
    let bytes = client.read(handle, at as u64, length as u32);
    client.venus.release(&me(), handle, None).unwrap();
    bytes
}

/// Reads all files from front to back, again and again.
fn go_through(client: &Client, root: Fid, fids: &[Fid], over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        let listing = client.venus.dirs().opendir(&me(), root).unwrap();
        client.venus.dirs().readdir(&me(), listing, Cookie::START, 64 << 10, true).unwrap();
        client.venus.dirs().releasedir(listing);
        for fid in fids {
            let handle = client.venus.open(&me(), *fid, RO).unwrap().handle;
            let mut at = 0;
            while !over.load(Ordering::SeqCst) {
                let bytes = client.read(handle, at, 128 << 10);
                at += bytes.len() as u64;
                if bytes.len() < 128 << 10 {
                    break;
                }
            }
            client.venus.release(&me(), handle, None).unwrap();
        }
    }
}

fn change_and_look(seed: u64, client: &Client, other: &Client, files: &mut [One]) {
    let mut random = SmallRng::seed_from_u64(seed);
    for step in 0..300 {
        let number = random.random_range(0..files.len());
        let one = &mut files[number];
        let at = random.random_range(0..one.bytes.len());
        let length = random.random_range(1..=(one.bytes.len() - at).min(200 << 10));
        if random.random_bool(0.1) {
            one.bytes.truncate(at);
            let change = StatusChange { size: Some(at as u64), ..StatusChange::default() };
            other.venus.setattr(&me(), one.fid, change).unwrap();
        }
        let handle = other.venus.open(&me(), one.fid, RW).unwrap().handle;
        let data = vec![random.random::<u8>(); length];
        one.bytes.resize(one.bytes.len().max(at + length), 0);
        one.bytes[at..at + length].copy_from_slice(&data);
        other.write(handle, at as u64, &data);
        other.close(handle);
        for (at, length) in
            [(at, length), (0, one.bytes.len().min(1 << 20)), (at.saturating_sub(70_000), 150_000)]
        {
            let expected = &one.bytes[at..(at + length).min(one.bytes.len())];
            let found = read(client, one.fid, at, length);
            assert!(
                found == expected,
                "seed {seed}, step {step}: file {number} from {at} on, {length} bytes"
            );
        }
    }
}

#[test]
fn others_writes_are_seen_despite_read_ahead() {
    for seed in 0..6 {
        // A client on the server's machine; on another; there with a disk cache.
        let (descriptors, caches) = (seed % 3 == 0, seed % 3 == 2);
        let server = if descriptors { TestServer::on_disk() } else { TestServer::in_memory() };
        let cache = caches.then(|| tempfile::tempdir().unwrap());
        let cache_dir = cache.as_ref().map(|dir| dir.path().to_owned());
        let client =
            server.client_with(1, descriptors, VenusConfig { cache_dir, ..VenusConfig::default() });
        let other = server.remote_client(2);
        let mut files = fill(&other);
        let fids: Vec<Fid> = files.iter().map(|one| one.fid).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| go_through(&client, server.root, &fids, &over));
            }
            let _over = Over(&over);
            change_and_look(seed, &client, &other, &mut files);
        });
    }
}
