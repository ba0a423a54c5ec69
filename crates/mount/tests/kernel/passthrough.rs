//! Files whose bytes the kernel reads and writes itself (docs/spec/passthrough.md).

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use mem::map::Map;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom as Place, fallocate, seek};

use crate::cell::{Cell, Client, eventually};
use crate::standing::Standing;

const MIB: usize = 1 << 20;

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 33) as u8)
        .collect()
}

/// Makes a file of these bytes through one mount and closes it.
fn made(client: &Client, name: &str, bytes: &[u8]) -> PathBuf {
    let path = client.at(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The same, and its maker's handle is released: the kernel does not wait for that when a file is
/// closed, and until then the file has the mode of its maker.
fn released(client: &Client, name: &str, bytes: &[u8]) -> PathBuf {
    let path = made(client, name, bytes);
    release(&path, || client.passed());
    path
}

fn release(path: &PathBuf, passed: impl Fn() -> usize) {
    eventually("the maker's handle is released", || {
        let _probe = File::open(path).unwrap();
        passed() == 1
    });
    eventually("the probe is released", || passed() == 0);
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

fn at(map: &Map, offset: usize) -> u8 {
    let mut byte = [0];
    map.read(offset, &mut byte);
    byte[0]
}

/// The only body file of the partition.
fn body(cell: &Cell) -> PathBuf {
    let mut dirs = vec![cell.bodies()];
    let mut found = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_known_body_is_read_by_the_kernel_and_a_writer_joins() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let mut bytes = pattern(2 * MIB + 77, 1);
    let path = released(&client, "file", &bytes);
    let reader = File::open(&path).unwrap();
    assert_eq!(client.passed(), 1, "what this client wrote it knows");
    assert!(whole(&reader) == bytes);
    let writer = writable(&path);
    writer.write_all_at(b"joined", 1_000_000).unwrap();
    bytes[1_000_000..1_000_006].copy_from_slice(b"joined");
    assert!(whole(&reader) == bytes && whole(&writer) == bytes);
    drop(writer);
    drop(reader);
    eventually("the body is taken back", || client.passed() == 0);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn short_files_and_strange_ones_stay_in_the_kernels_own_pages() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    // Also for reading: a preallocated body, which the kernel has, lacks sums for a while.
    let make = |name: &str, bytes: &[u8]| {
        let path = client.at(name);
        let both = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        both.unwrap().write_all(bytes).unwrap();
        path
    };
    make("long", &pattern(4 * MIB, 3));
    for length in [0, 10_000, 100_000] {
        let path = make("short", &pattern(length, 2));
        let reader = File::open(&path).unwrap();
        assert_eq!(client.passed(), 0, "{length} bytes");
        drop(reader);
    }
    let strange = File::open(other.at("long")).unwrap();
    assert_eq!(other.passed(), 0, "nobody compared it with its sums");
    assert!(whole(&strange) == pattern(4 * MIB, 3));
    drop(strange);
    let known = || {
        let again = File::open(other.at("long")).unwrap();
        let passed = other.passed() == 1;
        assert!(whole(&again) == pattern(4 * MIB, 3));
        passed
    };
    eventually("what was read whole is known", known);
}

#[test]
fn who_writes_first_is_passed_too_and_the_status_is_right() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let mut bytes = pattern(2 * MIB, 4);
    let path = released(&client, "file", &bytes);
    let before = fs::metadata(&path).unwrap();
    let mut writer = File::options().append(true).open(&path).unwrap();
    assert_eq!(client.passed(), 1);
    writer.write_all(b"appended").unwrap();
    bytes.extend_from_slice(b"appended");
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), bytes.len() as u64);
    assert!(after.mtime_nsec() != before.mtime_nsec() || after.mtime() != before.mtime());
    drop(writer);
    assert_eq!(fs::metadata(other.at("file")).unwrap().len(), bytes.len() as u64);
    assert!(fs::read(other.at("file")).unwrap() == bytes);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn an_open_handle_sees_what_other_mounts_write_cut_and_append() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let mut bytes = pattern(MIB, 5);
    let path = released(&client, "file", &bytes);
    let reader = File::open(&path).unwrap();
    assert_eq!(client.passed(), 1);
    let map = Map::new(&reader, MIB, false).unwrap();
    // Small writes come through the server.
    let far = File::options().write(true).open(other.at("file")).unwrap();
    far.write_all_at(b"from afar", 500_000).unwrap();
    drop(far);
    bytes[500_000..500_009].copy_from_slice(b"from afar");
    assert!(whole(&reader) == bytes);
    assert_eq!(at(&map, 500_000), b'f');
    // Rewritten: the body stays in its file.
    fs::write(other.at("file"), "short").unwrap();
    assert_eq!(whole(&reader), b"short");
    assert_eq!(reader.metadata().unwrap().len(), 5);
    let long = pattern(3 * MIB, 6);
    fs::write(other.at("file"), &long).unwrap();
    assert!(whole(&reader) == long);
    assert_eq!(at(&map, 77), long[77], "a map too");
    File::options().write(true).open(other.at("file")).unwrap().set_len(2_000_000).unwrap();
    assert!(whole(&reader) == long[..2_000_000]);
}

#[test]
fn two_mounts_write_one_body_and_nothing_is_lost() {
    let Some(cell) = Cell::start() else { return };
    let (one, two) = (cell.mount(), cell.mount());
    let path = made(&one, "file", &pattern(2 * MIB, 7));
    let reader = File::open(&path).unwrap();
    fs::read(two.at("file")).unwrap();
    let mut first = File::options().append(true).open(&path).unwrap();
    let mut second = File::options().append(true).open(two.at("file")).unwrap();
    for _ in 0..200 {
        first.write_all(b"one one one\n").unwrap();
        second.write_all(b"two two two\n").unwrap();
    }
    drop((first, second));
    let tail = whole(&reader).split_off(2 * MIB);
    assert_eq!(tail.len(), 400 * 12);
    let lines: Vec<&[u8]> = tail.chunks(12).collect();
    assert_eq!(lines.iter().filter(|line| **line == b"one one one\n").count(), 200);
    assert_eq!(lines.iter().filter(|line| **line == b"two two two\n").count(), 200);
    assert_eq!(fs::metadata(two.at("file")).unwrap().len(), (2 * MIB + 4800) as u64);
}

#[test]
fn pt2_a_map_that_outlives_its_descriptor_does_no_damage() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let path = released(&client, "file", &pattern(2 * MIB, 8));
    let writer = writable(&path);
    assert_eq!(client.passed(), 1);
    let mut map = Map::new(&writer, 2 * MIB, true).unwrap();
    drop(writer);
    eventually("the handle is gone", || client.passed() == 0);
    // Longer than two of the server's checks of lent bodies.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    cell.partition().sync_all().unwrap();
    map.write(1_500_000, b"!");
    let mut byte = [0];
    File::open(other.at("file")).unwrap().read_at(&mut byte, 1_500_000).unwrap();
    assert_eq!(&byte, b"!", "not EIO, and new");
    drop(map);
    eventually("the lend is over", || cell.partition().lent().is_empty());
    cell.partition().sync_all().unwrap();
    assert_eq!(fs::read(other.at("file")).unwrap()[1_500_000], b'!');
    assert_eq!(fs::read(&path).unwrap()[1_500_000], b'!');
}

#[test]
fn each_store_into_a_dirty_page_of_a_map_is_seen_elsewhere() {
    let Some(cell) = Cell::start() else { return };
    let (client, far) = (cell.mount(), cell.mount_far());
    let path = released(&client, "file", &pattern(2 * MIB, 8));
    // The second client gets a body whose maker could not map it.
    let made = client.at("made");
    let blank = File::create(&made).unwrap();
    blank.write_all_at(&pattern(2 * MIB, 9), 0).unwrap();
    for path in [&path, &made] {
        let name = path.file_name().unwrap();
        let writer = writable(path);
        let mut map = Map::new(&writer, 2 * MIB, true).unwrap();
        for byte in 1..=5 {
            map.write(1_500_000, &[byte]);
            eventually("it is seen", || {
                let mut found = [0];
                File::open(far.at(name.to_str().unwrap()))
                    .unwrap()
                    .read_exact_at(&mut found, 1_500_000)
                    .unwrap();
                found[0] == byte
            });
        }
        map.write(1_500_000, &[99]);
        drop(writer);
        drop(map);
    }
    drop(blank);
    for name in ["file", "made"] {
        eventually("the last one too", || fs::read(far.at(name)).unwrap()[1_500_000] == 99);
    }
    eventually("the lends are over", || cell.partition().lent().is_empty());
}

/// A short file is read through the kernel's own pages, but not while such a map has its body.
#[test]
fn a_map_of_a_file_that_became_short_shares_its_bytes() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = released(&client, "file", &pattern(2 * MIB, 11));
    let writer = writable(&path);
    assert_eq!(client.passed(), 1);
    let mut map = Map::new(&writer, 2 * MIB, true).unwrap();
    writer.set_len(8192).unwrap();
    drop(writer);
    eventually("the handle is released", || client.passed() == 0);
    for round in 0..3 {
        let reader = File::open(&path).unwrap();
        whole(&reader);
        map.write(100, &[200 + round]);
        let mut byte = [0];
        reader.read_exact_at(&mut byte, 100).unwrap();
        assert_eq!(byte, [200 + round], "a store, read through a descriptor");
        let writer = writable(&path);
        writer.write_all_at(&[100 + round], 200).unwrap();
        assert_eq!(at(&map, 200), 100 + round, "a write, read through the map");
    }
    drop(map);
    eventually("the loan is over, and the file is short again", || {
        let reader = File::open(&path).unwrap();
        let passed = client.passed();
        drop(reader);
        passed == 0
    });
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), bytes[100], bytes[200]), (8192, 202, 102));
}

#[test]
fn cuts_holes_and_reserves_through_a_passed_handle() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let mut bytes = pattern(2 * MIB, 9);
    let path = released(&client, "file", &bytes);
    let file = writable(&path);
    assert_eq!(client.passed(), 1);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 65_536, 131_072).unwrap();
    bytes[65_536..65_536 + 131_072].fill(0);
    assert!(whole(&file) == bytes);
    file.write_all_at(b"far", (4 * MIB) as u64).unwrap();
    bytes.resize(4 * MIB, 0);
    bytes.extend_from_slice(b"far");
    assert!(whole(&file) == bytes);
    assert_eq!(seek(&file, Place::Hole(0)).unwrap(), 65_536);
    assert_eq!(seek(&file, Place::Data(65_536)).unwrap(), 65_536 + 131_072);
    assert_eq!(seek(&file, Place::End(0)).unwrap(), bytes.len() as u64);
    assert_eq!(file.metadata().unwrap().blocks() * 512, (2 * MIB - 131_072 + 16_384) as u64);
    file.set_len(3 * MIB as u64).unwrap();
    bytes.truncate(3 * MIB);
    fallocate(&file, FallocateFlags::empty(), 0, 3 * MIB as u64 + 5).unwrap();
    bytes.resize(3 * MIB + 5, 0);
    assert!(whole(&file) == bytes);
    file.set_len(0).unwrap();
    assert_eq!((whole(&file), file.metadata().unwrap().len()), (Vec::new(), 0));
    file.write_all_at(b"anew", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"anew");
}

#[test]
fn past_the_page_cache_and_removed_while_open() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let mut bytes = pattern(2 * MIB, 10);
    let path = released(&client, "file", &bytes);
    let direct = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path);
    let plain = writable(&path);
    assert_eq!(client.passed(), 1);
    fs::remove_file(other.at("file")).unwrap();
    plain.write_all_at(b"still here", 4_096).unwrap();
    bytes[4_096..4_106].copy_from_slice(b"still here");
    plain.sync_all().unwrap();
    assert!(whole(&plain) == bytes);
    assert_eq!(plain.metadata().unwrap().nlink(), 0);
    drop(direct.unwrap());
    drop(plain);
    eventually("the body goes with its last handle", || {
        cell.partition().sweep(10).unwrap();
        !fs::read_dir(cell.bodies()).unwrap().any(|volume| {
            let dirs = fs::read_dir(volume.unwrap().path()).unwrap();
            dirs.map(|dir| dir.unwrap().path())
                .any(|dir| fs::read_dir(dir).unwrap().next().is_some())
        })
    });
}

#[test]
fn a_damaged_body_is_not_passed_and_says_so() {
    let Some(cell) = Cell::start() else { return };
    let bytes = pattern(MIB, 11);
    {
        let client = cell.mount();
        made(&client, "file", &bytes);
        cell.partition().sync_all().unwrap();
    }
    let rotten = body(&cell);
    File::options().write(true).open(&rotten).unwrap().write_all_at(b"rot", 600_000).unwrap();
    let client = cell.mount();
    let reader = File::open(client.at("file")).unwrap();
    assert_eq!(client.passed(), 0, "its blocks were compared");
    let mut block = vec![0; 4096];
    assert!(reader.read_at(&mut block, 600_000).is_err());
    drop(reader);
    drop(client);
    let client = cell.mount();
    let writer = writable(&client.at("file"));
    assert_eq!(client.passed(), 0, "nor is damage written over as if it were good");
    drop(writer);
}

#[test]
fn what_the_kernel_wrote_has_sums_again_and_rot_in_it_is_found() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = released(&client, "file", &pattern(2 * MIB, 12));
    let writer = writable(&path);
    assert_eq!(client.passed(), 1);
    writer.write_all_at(&pattern(100_000, 13), 1_000_000).unwrap();
    drop(writer);
    eventually("the lend is over", || cell.partition().lent().is_empty());
    cell.partition().sync_all().unwrap();
    File::options().write(true).open(body(&cell)).unwrap().write_all_at(b"rot", 1_050_000).unwrap();
    let other = cell.mount();
    let reader = File::open(other.at("file")).unwrap();
    let mut block = vec![0; 4096];
    assert!(reader.read_at(&mut block, 1_050_000).is_err());
    assert!(reader.read_at(&mut block, 1_500_000).is_ok());
}

#[test]
fn modes_do_not_meet_whatever_opens_and_closes() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = made(&client, "file", &pattern(MIB + 5, 14));
    std::thread::scope(|scope| {
        let path = &path;
        for write in [false, true, false, true] {
            scope.spawn(move || {
                for _ in 0..300 {
                    let file = File::options()
                        .read(true)
                        .write(write)
                        .open(path)
                        .expect("no mode conflict");
                    let mut byte = [0; 100];
                    assert_eq!(file.read_at(&mut byte, 500).expect("read"), 100);
                    if write {
                        file.write_all_at(&byte, 500).expect("write");
                    }
                    fs::metadata(path).expect("status");
                }
            });
        }
    });
    assert!(fs::read(&path).unwrap() == pattern(MIB + 5, 14));
}

#[test]
fn the_server_dies_while_the_kernel_writes_and_loses_nothing() {
    let Some(mut server) = Standing::start() else { return };
    let mount = server.mount("one");
    let path = mount.at("file");
    let mut bytes = pattern(2 * MIB, 15);
    fs::write(&path, &bytes).unwrap();
    release(&path, || mount.passed());
    let mut writer = File::options().append(true).open(&path).unwrap();
    let reader = File::open(&path).unwrap();
    assert_eq!(mount.passed(), 1);
    for round in 0..3_u8 {
        writer.write_all(&[round; 5000]).unwrap();
        bytes.extend_from_slice(&[round; 5000]);
    }
    server.end();
    writer.write_all(b"nobody serves").unwrap();
    bytes.extend_from_slice(b"nobody serves");
    assert!(whole(&reader) == bytes, "the kernel needs nobody");
    server.start_again();
    writer.write_all(b"and on").unwrap();
    bytes.extend_from_slice(b"and on");
    writer.sync_all().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    let other = server.mount("two");
    assert!(fs::read(other.at("file")).unwrap() == bytes);
    // A writer that opens now must borrow from the new server instance.
    writable(&path).write_all_at(b"new", 7).unwrap();
    bytes[7..10].copy_from_slice(b"new");
    drop((writer, reader));
    eventually("the handles are gone", || mount.passed() == 0);
    assert!(fs::read(other.at("file")).unwrap() == bytes);
    assert!(fs::read(&path).unwrap() == bytes);
    mount.end();
    other.end();
}
