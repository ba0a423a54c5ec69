//! Large files: through the body's descriptor on one machine, read ahead and on the local disk from
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Client, Kernel, Notified, RO, RW, TestServer, me};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use types::{Fid, StatusChange};
use venus::{KernelPort, VenusConfig};

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

#[test]
fn on_the_servers_machine_no_bytes_pass_through_the_session() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let bytes = random_bytes((3 << 20) + 777, 1);
    make(&maker, "big", &bytes);
    let client = server.client(2);
    assert!(client.content("big") == bytes[..]);
    let calls = client.wire.take();
    assert_eq!(
        (calls.get("Read"), calls.get("OpenBody"), calls.get("ReadSums")),
        (None, Some(&1), Some(&1)),
        "{calls:?}"
    );
    // Another client's write ends the known sums; later reads bring the new bytes.
    let handle = client.open("big", RO);
    client.read(handle, 0, 10);
    let writer = maker.open("big", RW);
    maker.write(writer, 1 << 20, b"changed");
    maker.close(writer);
    assert_eq!(&client.read(handle, 1 << 20, 7)[..], b"changed");
    assert_eq!(client.read(handle, (3 << 20) + 700, 4096), bytes[(3 << 20) + 700..]);
    client.close(handle);
}

#[test]
fn our_own_writes_keep_the_descriptor() {
    let server = TestServer::on_disk();
    let client = server.client(1);
    let mut bytes = random_bytes(4 << 20, 2);
    make(&client, "big", &bytes);
    let handle = client.open("big", RW);
    client.read(handle, 0, 1);
    client.wire.take();
    let mut random = SmallRng::seed_from_u64(3);
    for _ in 0..50 {
        let (offset, length) =
            (random.random_range(0..3 << 20), random.random_range(1..100_000usize));
        let data = random_bytes(length, random.random());
        client.write(handle, offset, &data);
        bytes[offset as usize..offset as usize + length].copy_from_slice(&data);
        if random.random_bool(0.5) {
            client.venus.flush(&me(), handle, None).unwrap();
        }
        let (offset, length) =
            (random.random_range(0..4 << 20), random.random_range(1..200_000u32));
        let end = (offset as usize + length as usize).min(bytes.len());
        assert!(client.read(handle, offset, length) == bytes[offset as usize..end]);
    }
    assert_eq!(client.wire.count("OpenBody"), 0, "opened once");
    client.close(handle);
}

#[test]
fn st3_a_bad_block_comes_from_the_server_or_not_at_all() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    let bytes = random_bytes(1 << 20, 4);
    make(&maker, "big", &bytes);
    let client = server.client(2);
    let handle = client.open("big", RO);
    // As if the descriptor's bytes differed from the summed ones.
    client.wire.set_after(|_, _| {});
    client.read(handle, 0, 1);
    damage_bodies(&server);
    let damaged = client.venus.read(&me(), handle, 512 << 10, 4096);
    assert!(damaged.is_err(), "the server finds the damage too");
    assert_eq!(client.wire.count("Read"), 1);
    assert_eq!(client.read(handle, 0, 4096), bytes[..4096]);
}

fn damage_bodies(server: &TestServer) {
    let mut dirs = vec![server.path().join("vicepa/bodies")];
    let mut damaged = 0;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, b"damage", (512 << 10) + 10)
                    .unwrap();
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, 1);
}

#[test]
fn a_hole_is_read_through_the_descriptor() {
    let server = TestServer::on_disk();
    let client = server.client(1);
    let (fid, handle) = client.create("sparse");
    client.write(handle, 5 << 20, b"end");
    client.venus.flush(&me(), handle, None).unwrap();
    client.wire.take();
    assert!(client.read(handle, 1 << 20, 1 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(&client.read(handle, (5 << 20) - 1, 100)[..], b"\0end");
    assert_eq!(client.wire.count("Read"), 0);
    let change = StatusChange { size: Some(3 << 20), ..StatusChange::default() };
    client.venus.setattr(&me(), fid, change).unwrap();
    assert_eq!(client.read(handle, (3 << 20) - 5, 100).len(), 5);
    client.close(handle);
}

#[test]
fn a_stream_is_read_ahead() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let bytes = random_bytes((12 << 20) + 999, 5);
    make(&maker, "big", &bytes);
    let client = server.remote_client(2);
    let handle = client.open("big", RO);
    client.wire.take();
    let mut whole = Vec::new();
    while whole.len() < bytes.len() {
        let part = client.read(handle, whole.len() as u64, 128 << 10);
        assert!(!part.is_empty());
        whole.extend_from_slice(&part);
    }
    assert!(whole == bytes);
    let reads = client.wire.count("Read");
    assert!(reads <= 30, "{reads} reads for 97 small ones");
    client.wire.take();
    for offset in [7 << 20, 2 << 20, 9 << 20, 1 << 20, 5 << 20] {
        assert_eq!(
            client.read(handle, offset, 4096),
            bytes[offset as usize..offset as usize + 4096]
        );
    }
    assert_eq!(client.wire.count("Read"), 5, "random reads are exact");
    client.close(handle);
}

#[test]
fn the_disk_cache_serves_only_valid_data_after_a_restart() {
    let server = TestServer::in_memory();
    let maker = server.client(1);
    let mut bytes = random_bytes(2 << 20, 6);
    make(&maker, "big", &bytes);
    let dir = tempfile::tempdir().unwrap();
    let config = VenusConfig { cache_dir: Some(dir.path().into()), ..VenusConfig::default() };
    let client = server.client_with(2, false, config.clone());
    assert!(client.content("big") == bytes[..]);
    client.venus.shutdown().unwrap();
    drop(client);

    let again = server.client_with(3, false, config.clone());
    assert!(again.content("big") == bytes[..]);
    let calls = again.wire.take();
    assert!(calls.get("Read").is_none_or(|reads| *reads <= 2), "from the disk: {calls:?}");
    again.venus.shutdown().unwrap();
    drop(again);

    let writer = maker.open("big", RW);
    maker.write(writer, 70_000, b"new");
    maker.close(writer);
    bytes[70_000..70_003].copy_from_slice(b"new");
    let last = server.client_with(4, false, config);
    assert!(last.content("big") == bytes[..], "an older version is never served");
    let handle = last.open("big", RW);
    last.write(handle, 200_000, b"mine");
    bytes[200_000..200_004].copy_from_slice(b"mine");
    last.venus.flush(&me(), handle, None).unwrap();
    assert!(last.content("big") == bytes[..]);
    last.close(handle);
}

#[test]
fn readers_beside_a_remote_writer_see_no_mixed_blocks() {
    let server = TestServer::on_disk();
    let maker = Arc::new(server.client(1));
    make(&maker, "big", &vec![0; 1 << 20]);
    let readers = [server.client(2), server.remote_client(3)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let handle = maker.open("big", RW);
            for round in 1..=30u8 {
                maker.write(handle, 0, &vec![round; 1 << 20]);
                maker.venus.flush(&me(), handle, None).unwrap();
            }
            maker.close(handle);
            done.store(true, Ordering::SeqCst);
        });
        for client in &readers {
            let done = &done;
            scope.spawn(move || {
                let handle = client.open("big", RO);
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let data = client.read(handle, 300_000, 16384);
                    let byte = data[0];
                    assert!(byte >= last, "{byte} after {last}");
                    last = byte;
                }
                assert_eq!(client.read(handle, 300_000, 1)[0], 30);
                client.close(handle);
            });
        }
    });
}

/// A kernel that supports passthrough but takes no body.
struct Passing(Arc<Kernel>);

impl KernelPort for Passing {
    fn inode_data(&self, fid: Fid) {
        self.0.inode_data(fid);
    }
    fn directory(&self, fid: Fid) {
        self.0.directory(fid);
    }
    fn all(&self) {
        self.0.all();
    }
    fn passes(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

#[test]
fn pages_of_a_body_that_is_passed_from_now_on_are_dropped_once() {
    let server = TestServer::on_disk();
    let maker = server.client(1);
    make(&maker, "big", &random_bytes(3 << 20, 7));
    make(&maker, "small", &random_bytes(300_000, 8));
    let client = server.client(2);
    client.venus.set_invalidate(Arc::new(Passing(Arc::clone(&client.kernel))));
    let fid = client.find("big").unwrap().status.fid;
    for _ in 0..3 {
        client.content("big");
        client.content("small");
    }
    // Ends the threads after their queued jobs.
    client.venus.shutdown().unwrap();
    assert_eq!(*client.kernel.0.lock(), [Notified::Data(fid)]);
}
