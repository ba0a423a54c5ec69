//! Files in the disk cache of a client on another machine, that the kernel reads itself
//! (docs/spec/passthrough.md).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mem::map::Map;
use rustix::fs::{FallocateFlags, fallocate};

use crate::cell::{Cell, Client, eventually};

const MIB: usize = 1 << 20;

/// Pseudo-random numbers, the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let seed = self.below(1 << 30) as u64;
        (0..length as u64)
            .map(|at| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
            .collect()
    }
}

/// Opens for reading until the kernel has the body.
fn open_passed(client: &Client, path: &PathBuf) -> File {
    let mut file = None;
    eventually("the body is in the cache, and passed", || {
        let mut opened = File::open(path).unwrap();
        if client.passed() == 0 {
            std::io::copy(&mut opened, &mut std::io::sink()).unwrap();
            return false;
        }
        file = Some(opened);
        true
    });
    file.unwrap()
}

fn writable(path: &PathBuf) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn whole(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 16 * MIB];
    let mut at = 0;
    while let count @ 1.. = file.read_at(&mut bytes[at..], at as u64).unwrap() {
        at += count;
    }
    bytes.truncate(at);
    bytes
}

#[test]
fn pt6_a_completed_write_elsewhere_is_seen_by_reads_and_maps() {
    let Some(cell) = Cell::start() else { return };
    let (near, far) = (cell.mount(), cell.mount_far());
    let mut chance = Chance(1);
    let mut bytes = chance.bytes(2 * MIB);
    fs::write(near.at("file"), &bytes).unwrap();
    let reader = open_passed(&far, &far.at("file"));
    let map = Map::new(&reader, 4 * MIB, false).unwrap();
    for round in 0..150 {
        let writer = File::options().write(true).open(near.at("file")).unwrap();
        if round % 10 == 9 {
            bytes.resize(MIB + chance.below(3 * MIB), 0);
            writer.set_len(bytes.len() as u64).unwrap();
        } else {
            let length = 1 + chance.below([100, 5_000, 300_000][round % 3]);
            let (offset, data) = (chance.below(bytes.len()), chance.bytes(length));
            writer.write_all_at(&data, offset as u64).unwrap();
            bytes.resize(bytes.len().max(offset + length), 0);
            bytes[offset..offset + length].copy_from_slice(&data);
        }
        drop(writer);
        assert_eq!(reader.metadata().unwrap().len(), bytes.len() as u64, "round {round}");
        assert!(whole(&reader) == bytes, "round {round}");
        let mut mapped = vec![0; bytes.len()];
        map.read(0, &mut mapped);
        assert!(mapped == bytes, "map in round {round}");
    }
    assert_eq!(far.passed(), 1);
    drop(map);
    drop(reader);
    eventually("it goes back", || far.passed() == 0);
    assert!(fs::read(far.at("file")).unwrap() == bytes);
}

#[test]
fn a_writer_joins_readers_on_another_machine() {
    let Some(cell) = Cell::start() else { return };
    let (near, far) = (cell.mount(), cell.mount_far());
    let mut bytes = Chance(2).bytes(MIB + 77);
    fs::write(near.at("file"), &bytes).unwrap();
    let path = far.at("file");
    let reader = open_passed(&far, &path);
    let map = Map::new(&reader, MIB, false).unwrap();
    let writer = writable(&path);
    writer.write_all_at(b"joined", 500_000).unwrap();
    bytes[500_000..500_006].copy_from_slice(b"joined");
    assert!(whole(&reader) == bytes && whole(&writer) == bytes);
    let mut seen = [0; 6];
    map.read(500_000, &mut seen);
    assert_eq!(&seen, b"joined");
    writer.sync_all().unwrap();
    assert!(fs::read(near.at("file")).unwrap() == bytes);
    // Appended, punched, cut, extended, rewritten.
    std::io::Write::write_all(&mut File::options().append(true).open(&path).unwrap(), b"behind")
        .unwrap();
    bytes.extend_from_slice(b"behind");
    assert!(whole(&reader) == bytes && fs::read(near.at("file")).unwrap() == bytes);
    fallocate(&writer, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 65_536, 131_072)
        .unwrap();
    bytes[65_536..65_536 + 131_072].fill(0);
    assert!(whole(&reader) == bytes);
    for size in [600_001, 700_001] {
        writer.set_len(size as u64).unwrap();
        bytes.resize(size, 0);
        assert!(whole(&reader) == bytes && whole(&writer) == bytes);
        assert_eq!(reader.metadata().unwrap().len(), size as u64);
    }
    // Bypasses the page cache's own path: a copy inside the kernel.
    let copy = far.at("copy");
    let copied = Command::new("cp").arg(&path).arg(&copy).status().unwrap();
    assert!(copied.success() && fs::read(&copy).unwrap() == bytes);
    fs::write(&path, b"anew").unwrap();
    assert_eq!(whole(&reader), b"anew");
    drop((writer, map, reader));
    eventually("it goes back", || far.passed() == 0);
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(near.at("file")).unwrap()),
        (b"anew".into(), b"anew".into())
    );
}

#[test]
fn stores_to_a_shared_map_reach_other_mounts() {
    let Some(cell) = Cell::start() else { return };
    let (near, far) = (cell.mount(), cell.mount_far());
    let mut bytes = Chance(3).bytes(2 * MIB);
    fs::write(near.at("file"), &bytes).unwrap();
    let path = far.at("file");
    let reader = open_passed(&far, &path);
    let writer = writable(&path);
    let mut map = Map::new(&writer, 2 * MIB, true).unwrap();
    let mut chance = Chance(4);
    for round in 0..30 {
        let (offset, length) = (chance.below(2 * MIB - 9000), 1 + chance.below(9000));
        let data = chance.bytes(length);
        map.write(offset, &data);
        bytes[offset..offset + length].copy_from_slice(&data);
        assert!(whole(&reader) == bytes && whole(&writer) == bytes, "round {round}");
        writer.sync_all().unwrap();
        assert!(fs::read(near.at("file")).unwrap() == bytes, "round {round}");
        // A page other than those that are stored to at the time.
        let at = chance.below(2 * MIB - 10);
        let other = File::options().write(true).open(near.at("file")).unwrap();
        other.write_all_at(b"elsewhere", at as u64).unwrap();
        drop(other);
        bytes[at..at + 9].copy_from_slice(b"elsewhere");
        assert!(whole(&reader) == bytes, "round {round}");
    }
    drop((reader, writer));
    map.write(1_234_567, b"the map outlives its descriptors");
    bytes[1_234_567..][..32].copy_from_slice(b"the map outlives its descriptors");
    eventually("it is sent", || fs::read(near.at("file")).unwrap() == bytes);
    drop(map);
    eventually("it goes back", || far.passed() == 0);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_removed_file_and_a_running_program() {
    let Some(cell) = Cell::start() else { return };
    let (near, far) = (cell.mount(), cell.mount_far());
    let program = fs::read("/bin/bash").unwrap();
    fs::write(near.at("program"), &program).unwrap();
    fs::set_permissions(near.at("program"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let path = far.at("program");
    let reader = open_passed(&far, &path);
    let mut program_at = Command::new(&path);
    program_at.args(["-c", "read x; echo $((6 * 7))"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = program_at.spawn().unwrap();
    fs::remove_file(near.at("program")).unwrap();
    assert!(whole(&reader) == program);
    assert_eq!(reader.metadata().unwrap().nlink(), 0);
    drop(running.stdin.take());
    assert_eq!(running.wait_with_output().unwrap().stdout, b"42\n");
    drop(reader);
    eventually("it is let go", || far.passed() == 0);
}

#[test]
fn modes_do_not_meet_on_another_machine() {
    let Some(cell) = Cell::start() else { return };
    let (near, far) = (cell.mount(), cell.mount_far());
    fs::write(near.at("file"), Chance(5).bytes(MIB)).unwrap();
    let path = far.at("file");
    drop(open_passed(&far, &path));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut chance = Chance(seed);
                for _ in 0..300 {
                    let write = chance.below(3) == 0;
                    let file =
                        File::options().read(true).write(write).open(path).expect("never EIO");
                    let at = chance.below(MIB - 100) as u64;
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    if write {
                        file.write_all_at(&byte, at).unwrap();
                    }
                }
            });
        }
    });
    eventually("all is closed", || far.passed() == 0);
    assert!(fs::read(&path).unwrap() == fs::read(near.at("file")).unwrap());
}
