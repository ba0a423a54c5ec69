//! New files whose bytes the kernel writes into preallocated bodies (docs/spec/passthrough.md).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use mem::map::Map;
use rustix::fs::{FallocateFlags, fallocate};

use crate::cell::{Cell, Client, eventually};
use crate::standing::Standing;

const MIB: usize = 1 << 20;

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 33) as u8)
        .collect()
}

/// A directory delegated to the client, which has preallocated bodies.
fn primed(client: &Client) -> PathBuf {
    primed_as(client, "dir")
}

fn primed_as(client: &Client, name: &str) -> PathBuf {
    let dir = client.at(name);
    prime(&dir, || client.passed());
    dir
}

/// Makes files until one is written into a preallocated body.
fn prime(dir: &PathBuf, passed: impl Fn() -> usize) {
    fs::create_dir(dir).unwrap();
    let mut made = 0;
    eventually("there are blanks", || {
        made += 1;
        // After only short files there would be none.
        fs::write(dir.join(format!("prime-{made}")), [0; 70_000]).unwrap();
        let _file = File::create(dir.join(format!("probe-{made}"))).unwrap();
        passed() == 1
    });
    eventually("the probe is released", || passed() == 0);
}

/// Makes a file and opens it for writing only.
fn new(dir: &std::path::Path, name: &str) -> (PathBuf, File) {
    let path = dir.join(name);
    let file = File::options().write(true).create_new(true).open(&path).unwrap();
    (path, file)
}

/// Checks that the server has no damage, and gave no answer that differs from the client's.
fn check(cell: &Cell, clients: &[&Client]) {
    for client in clients {
        assert_eq!(client.differences(), 0, "DE-5");
    }
    eventually("the lends are over", || cell.partition().lent().is_empty());
    cell.partition().sync_all().unwrap();
    assert_eq!(cell.scrub(), Vec::<String>::new());
}

#[test]
fn the_kernel_writes_new_files_and_everybody_reads_them() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let given = client.given();
    for (number, length) in
        [0, 1, 4096, 10_000, 16_384, 16_385, 70_000, MIB, MIB + 1, 3 * MIB].into_iter().enumerate()
    {
        // The other client's look-ups recall the delegation.
        let dir = primed_as(&client, &format!("dir-{number}"));
        let wanted = bytes(length, number as u64);
        let (path, mut file) = new(&dir, "file");
        assert_eq!(client.passed(), 1, "{length} bytes");
        for piece in wanted.chunks(10_240) {
            file.write_all(piece).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), length as u64);
        drop(file);
        let far = other.at(&format!("dir-{number}/file"));
        assert!(fs::read(&path).unwrap() == wanted, "{length} bytes, where they were written");
        assert!(fs::read(&far).unwrap() == wanted, "{length} bytes, elsewhere");
        let (here, there) = (fs::metadata(&path).unwrap(), fs::metadata(&far).unwrap());
        assert_eq!(
            (here.len(), here.mtime(), here.mtime_nsec()),
            (there.len(), there.mtime(), there.mtime_nsec())
        );
    }
    assert!(client.given() > given);
    check(&cell, &[&client, &other]);
}

#[test]
fn blanks_go_from_file_to_file_and_take_nothing_along() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    let given = client.given();
    let wanted = |number: u64| bytes(1 + (number as usize * 7919) % 200_000, number);
    for number in 0..600 {
        fs::write(dir.join(format!("file-{number}")), wanted(number)).unwrap();
        if number % 3 == 0 {
            assert!(
                fs::read(dir.join(format!("file-{number}"))).unwrap() == wanted(number),
                "at once: {number}"
            );
        }
    }
    assert!(client.given() - given > 500, "{} of 600", client.given() - given);
    for number in 0..600 {
        assert!(
            fs::read(dir.join(format!("file-{number}"))).unwrap() == wanted(number),
            "later: {number}"
        );
    }
    let other = cell.mount();
    for number in 0..600 {
        assert!(
            fs::read(other.at(&format!("dir/file-{number}"))).unwrap() == wanted(number),
            "elsewhere: {number}"
        );
    }
    check(&cell, &[&client, &other]);
}

#[test]
fn short_files_in_a_row_are_written_behind() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    let passed = |name: &str, length: usize| {
        let (_, mut file) = new(&dir, name);
        let passed = client.passed() == 1;
        file.write_all(&bytes(length, 1)).unwrap();
        drop(file);
        eventually("it is released", || client.passed() == 0);
        passed
    };
    let first =
        (0..30).find(|number| !passed(&format!("short-{number}"), 4096)).expect("they are short");
    assert!(first >= 5, "the first {first} had blanks");
    let mut made = 0;
    eventually("a long one ends it", || {
        made += 1;
        passed(&format!("long-{made}"), 100_000)
    });
    check(&cell, &[&client]);
}

#[test]
fn times_that_are_set_before_the_close_stay() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let wanted = SystemTime::UNIX_EPOCH + Duration::new(1_650_058_802, 5);
    for length in [100, 50_000, 2 * MIB] {
        let dir = primed_as(&client, &format!("dir-{length}"));
        let (path, mut file) = new(&dir, "file");
        assert_eq!(client.passed(), 1);
        file.write_all(&bytes(length, 1)).unwrap();
        file.set_modified(wanted).unwrap();
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), wanted, "{length} bytes");
        // The server checks lent bodies each second.
        std::thread::sleep(Duration::from_millis(1500));
        let far = other.at(&format!("dir-{length}/file"));
        assert_eq!(fs::metadata(far).unwrap().modified().unwrap(), wanted, "{length} bytes");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), wanted, "{length} bytes");
    }
    check(&cell, &[&client, &other]);
}

#[test]
fn a_recall_while_it_is_written_makes_the_blank_the_body() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    for length in [100, 40_000, 2 * MIB] {
        let dir = primed_as(&client, &format!("dir-{length}"));
        let mut wanted = bytes(length, 3);
        let (path, mut file) = new(&dir, "file");
        assert_eq!(client.passed(), 1);
        file.write_all(&wanted).unwrap();
        let far = other.at(&format!("dir-{length}/file"));
        assert!(fs::read(&far).unwrap() == wanted, "what was written before the recall");
        file.write_all(b"after the recall").unwrap();
        wanted.extend_from_slice(b"after the recall");
        file.sync_all().unwrap();
        assert!(fs::read(&far).unwrap() == wanted, "what was written after it");
        file.write_all(b"and at last").unwrap();
        wanted.extend_from_slice(b"and at last");
        drop(file);
        assert_eq!(fs::metadata(&far).unwrap().len(), wanted.len() as u64, "its close was told");
        assert!(fs::read(&far).unwrap() == wanted && fs::read(&path).unwrap() == wanted);
        fs::write(&far, "changed elsewhere").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"changed elsewhere");
    }
    check(&cell, &[&client, &other]);
}

#[test]
fn cuts_appends_and_reserves_of_a_new_file() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    let mut wanted = bytes(50_000, 4);
    let (path, file) = new(&dir, "cut");
    assert_eq!(client.passed(), 1);
    file.write_all_at(&wanted, 0).unwrap();
    file.set_len(20_000).unwrap();
    wanted.truncate(20_000);
    assert_eq!(file.metadata().unwrap().len(), 20_000);
    assert!(fs::read(&path).unwrap() == wanted, "a reader has the same blank");
    file.set_len(30_000).unwrap();
    wanted.resize(30_000, 0);
    file.write_all_at(b"more", 29_998).unwrap();
    wanted.truncate(29_998);
    wanted.extend_from_slice(b"more");
    assert!(fs::read(&path).unwrap() == wanted);
    fs::File::options().write(true).truncate(true).open(&path).unwrap().write_all(b"anew").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"anew");
    file.write_all_at(b"!", 4).unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"anew!");

    eventually("the handles of the first file are released", || client.passed() == 0);
    let path = dir.join("append");
    let mut file = File::options().append(true).create_new(true).open(&path).unwrap();
    assert_eq!(client.passed(), 1);
    for line in 0..500 {
        writeln!(file, "line {line}").unwrap();
        if line % 100 == 0 {
            file.sync_all().unwrap();
        }
    }
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 500);

    let (path, file) = new(&dir, "reserved");
    file.write_all_at(b"begin", 0).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 40_000).unwrap();
    file.write_all_at(b"end", 39_997).unwrap();
    drop(file);
    let found = fs::read(&path).unwrap();
    assert!(found.len() == 40_000 && found.starts_with(b"begin") && found.ends_with(b"end"));

    let (path, file) = new(&dir, "holes");
    file.write_all_at(b"far", 900_000).unwrap();
    drop(file);
    let status = fs::metadata(&path).unwrap();
    assert_eq!(status.len(), 900_003);
    assert!(status.blocks() < 100, "{} sectors: the hole is one at the server", status.blocks());
    check(&cell, &[&client]);
}

#[test]
fn names_change_while_it_is_written() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let dir = primed(&client);
    let (path, mut file) = new(&dir, "moved");
    file.write_all(b"before").unwrap();
    fs::rename(&path, dir.join("there")).unwrap();
    file.write_all(b" and after").unwrap();
    drop(file);
    assert_eq!(fs::read(dir.join("there")).unwrap(), b"before and after");

    let (path, mut file) = new(&dir, "linked");
    file.write_all(b"one").unwrap();
    fs::hard_link(&path, dir.join("name-2")).unwrap();
    file.write_all(b" two").unwrap();
    drop(file);
    assert_eq!(fs::read(dir.join("name-2")).unwrap(), b"one two");

    let (path, mut file) = new(&dir, "removed");
    file.write_all(b"gone").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b" and on").unwrap();
    assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().nlink()), (11, 0));
    file.sync_all().unwrap();
    drop(file);

    // Its directory is removed while it is open, and with that the delegation that covered it.
    fs::create_dir(dir.join("inner")).unwrap();
    let (path, mut file) = new(&dir.join("inner"), "out");
    file.write_all(b"first").unwrap();
    fs::rename(&path, dir.join("out")).unwrap();
    fs::remove_dir(dir.join("inner")).unwrap();
    file.write_all(b" second").unwrap();
    drop(file);
    assert_eq!(fs::read(other.at("dir/out")).unwrap(), b"first second");
    let far = other.at("dir/there");
    assert_eq!(fs::read(far).unwrap(), b"before and after");
    assert!(!other.at("dir/removed").exists());
    check(&cell, &[&client, &other]);
}

#[test]
fn who_reads_and_writes_gets_a_body_that_is_the_servers() {
    let Some(cell) = Cell::start() else { return };
    let (client, other) = (cell.mount(), cell.mount());
    let dir = primed(&client);
    let (path, mut file) = new(&dir, "both");
    file.write_all(&bytes(8192, 5)).unwrap();
    let both = File::options().read(true).write(true).open(&path).unwrap();
    let mut map = Map::new(&both, 8192, true).unwrap();
    drop((both, file));
    map.write(5000, b"mapped");
    let mut found = Vec::new();
    File::open(other.at("dir/both")).unwrap().read_to_end(&mut found).unwrap();
    assert_eq!(&found[5000..5006], b"mapped");
    drop(map);
    let mut wanted = bytes(8192, 5);
    wanted[5000..5006].copy_from_slice(b"mapped");
    assert!(fs::read(&path).unwrap() == wanted);
    check(&cell, &[&client, &other]);
}

#[test]
fn a_readers_map_keeps_its_blank() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    let wanted = bytes(20_000, 6);
    let (path, mut file) = new(&dir, "mapped");
    file.write_all(&wanted).unwrap();
    let map = Map::new(File::open(&path).unwrap(), 20_000, false).unwrap();
    drop(file);
    for number in 0..300 {
        fs::write(dir.join(format!("other-{number}")), bytes(100_000, number)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(2500));
    let mut found = vec![0; 20_000];
    map.read(0, &mut found);
    assert!(found == wanted, "PT-9");
    drop(map);
    assert!(fs::read(&path).unwrap() == wanted);
    check(&cell, &[&client]);
}

#[test]
fn removed_files_that_are_closed_leave_new_ones_alone() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    for number in 0..150 {
        let (victim, open) = new(&dir, "victim");
        // Longer than short files, which would end the use of preallocated bodies.
        let (path, mut file) = new(&dir, &format!("file-{number}"));
        file.write_all(&bytes(70_000, number)).unwrap();
        fs::remove_file(victim).unwrap();
        drop(open);
        std::thread::sleep(Duration::from_millis(number % 12));
        file.write_all(b"more").unwrap();
        file.sync_all().unwrap();
        fs::rename(&path, dir.join("renamed")).unwrap();
    }
    check(&cell, &[&client]);
}

#[test]
fn what_is_over_the_quota_is_told_at_the_close() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let dir = primed(&client);
    let (_, mut file) = new(&dir, "much");
    assert_eq!(client.passed(), 1);
    file.write_all(&bytes(4 * MIB, 7)).unwrap();
    cell.set_quota(2 * MIB as u64);
    let error = file.sync_all().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT, not {error}");
    drop(file);
    cell.set_quota(0);
}

#[test]
fn a_server_that_dies_under_new_files_loses_nothing() {
    let Some(mut server) = Standing::start() else { return };
    let mount = server.mount("one");
    let files = mount.at("dir");
    prime(&files, || mount.passed());
    let (path, mut file) = new(&files, "file");
    let (long_path, mut long) = new(&files, "long");
    eventually("the two are open alone", || mount.passed() == 2);
    let (mut wanted, mut long_wanted) = (bytes(30_000, 8), bytes(3 * MIB, 9));
    file.write_all(&wanted).unwrap();
    file.sync_all().unwrap();
    long.write_all(&long_wanted).unwrap();
    server.end();
    file.write_all(b"nobody serves").unwrap();
    wanted.extend_from_slice(b"nobody serves");
    server.start_again();
    let other = server.mount("two");
    file.write_all(b"and on").unwrap();
    wanted.extend_from_slice(b"and on");
    long.write_all(b"end").unwrap();
    long_wanted.extend_from_slice(b"end");
    drop((file, long));
    assert!(fs::read(other.at("dir/file")).unwrap() == wanted);
    assert!(fs::read(other.at("dir/long")).unwrap() == long_wanted);
    assert!(fs::read(&path).unwrap() == wanted && fs::read(&long_path).unwrap() == long_wanted);
    mount.end();
    other.end();
    server.end();
    server.start_again();
    let blanks = || fs::read_dir(server.partition().join("blanks")).unwrap().count();
    eventually("nobody's blanks are swept", || blanks() == 0);
}
