//! Packed bodies go to clients packed: their bytes are counted on the wire, the reader gets the
//! whole text, and damaged ones are refused.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Cell, ask, connect, make, name, root, status, try_ask, wait_for, write};
use client::{Endpoint, Remote, Session};
use types::{Answer, Call, Caller, Fault, Fid, VolumeCall, VolumeKind, WhichVolume};

const BYTES: usize = 700_000;

/// Forwards bytes, and counts those that go to the client.
struct Counter {
    address: String,
    bytes: Arc<AtomicU64>,
}

impl Counter {
    fn start(target: &Endpoint) -> Counter {
        let Endpoint::Tcp(target) = target.clone() else { panic!("{target}") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bytes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&bytes);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&target) else { return };
                let back =
                    (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&count));
                std::thread::spawn(move || carry(client, server, &AtomicU64::new(0)));
                std::thread::spawn(move || carry(back.0, back.1, &back.2));
            }
        });
        Counter { address, bytes }
    }

    fn connect(&self) -> Session {
        connect(Endpoint::Tcp(self.address.clone()))
    }

    /// The bytes that came to the client during `work`.
    fn during(&self, work: impl FnOnce()) -> u64 {
        let before = self.bytes.load(Ordering::SeqCst);
        work();
        self.bytes.load(Ordering::SeqCst) - before
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        count.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Compresses about five times: as source text does, and never to so little that all of it is read
/// ahead.
fn text(seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::new();
    while bytes.len() < BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(
            format!("    let value_{} = self.volume(fid.volume)?;\n", state >> 12).as_bytes(),
        );
    }
    bytes.truncate(BYTES);
    bytes
}

fn read(remote: &dyn Remote, fid: Fid, offset: usize, length: usize) -> Vec<u8> {
    match ask(remote, Call::Read { fid, offset: offset as u64, length: length as u32 }) {
        Answer::Data { data, end, status } => {
            assert_eq!(
                end,
                offset + data.len() >= status.size as usize,
                "from {offset} on, {length} bytes"
            );
            data.to_vec()
        }
        other => panic!("{other:?}"),
    }
}

/// Body files: the packed ones, and the others.
fn body_files(dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let (mut packed, mut plain): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| path.extension().is_some_and(|end| end == "z"));
    for (more_packed, more_plain) in dirs.iter().map(|dir| body_files(dir)) {
        packed.extend(more_packed);
        plain.extend(more_plain);
    }
    (packed, plain)
}

/// A volume `kept` that only a sealed epoch shows, with a packed file in it, and a file that is not
/// packed.
fn cell() -> (Cell, Fid, Fid) {
    let cell = Cell::with(|config| config.store.compress = true);
    let session = connect(cell.unix());
    let dir = root(&session);
    let file = make(&session, dir, "file");
    write(&session, file, 0, text(1));
    let Answer::Volumes { volumes, .. } = ask(
        &session,
        Call::Volume(VolumeCall::Examine { volume: WhichVolume::Name(name("root")) }),
    ) else {
        panic!("no root")
    };
    let clone = |called: &str| VolumeCall::Clone {
        id: None,
        of: volumes[0].id,
        name: name(called),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    ask(&session, Call::Volume(clone("kept")));
    // The head has its own body from now on: the old one is the snapshot's alone.
    write(&session, file, 0, text(2));
    let bodies = cell.config.partitions[0].1.join("bodies");
    // The plain one is removed when the packed one is complete.
    wait_for("the packer", || {
        let (packed, plain) = body_files(&bodies);
        (packed.len(), plain.len()) == (1, 1)
    });
    let kept = status(&ask(&session, Call::Root { volume: name("kept") })).fid;
    let found = status(&ask(&session, Call::Lookup { dir: kept, name: name("file") })).fid;
    (cell, found, file)
}

#[test]
fn a_client_reads_packed_bodies_packed_and_others_plain() {
    let (cell, packed, plain) = cell();
    let counter = Counter::start(&cell.tcp());
    let session = counter.connect();
    let (old, new) = (text(1), text(2));
    let came = counter.during(|| assert!(read(&session, packed, 0, 1 << 20) == old));
    assert!(came * 3 < BYTES as u64, "{came} bytes came for {BYTES}");
    let came = counter.during(|| assert!(read(&session, plain, 0, 1 << 20) == new));
    assert!(came > BYTES as u64, "{came} bytes came for {BYTES}");
    // No part needs to be aligned, and none is longer than requested.
    let mut state = 7_u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for _ in 0..200 {
        let (offset, length) = (next(BYTES + 1000), next(200_000));
        let expected = &old[offset.min(BYTES)..(offset + length).min(BYTES)];
        let came = counter.during(|| assert!(read(&session, packed, offset, length) == expected));
        assert!(came < length as u64 + 1000, "{came} bytes came for {length}");
    }
    // In chains, as for files that are prefetched.
    let part = |at: u64| Call::Read { fid: packed, offset: at * 100_000, length: 100_000 };
    let answers = session.chain(&Caller::ROOT, (0..7).map(part).collect());
    for (expected, answer) in old.chunks(100_000).zip(answers) {
        assert!(matches!(answer.unwrap().answer, Answer::Data { data, .. } if data == expected));
    }
    // And on the server's machine.
    assert!(read(&connect(cell.unix()), packed, 0, 1 << 20) == old);
}

#[test]
fn a_damaged_chunk_is_reported_and_the_others_are_read() {
    let (cell, packed, _) = cell();
    let (packed_files, _) = body_files(&cell.config.partitions[0].1.join("bodies"));
    let [file] = &packed_files[..] else { panic!("one is packed") };
    let mut bytes = std::fs::read(file).unwrap();
    // Within the first chunk's frame.
    bytes[5000] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let session = connect(cell.tcp());
    let refused = try_ask(&session, Call::Read { fid: packed, offset: 10, length: 200_000 });
    assert_eq!(refused.unwrap_err().fault(), Some(Fault::Damaged));
    assert!(read(&session, packed, 64 << 10, 1 << 20) == text(1)[64 << 10..]);
}
