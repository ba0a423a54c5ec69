//! Bytes of files.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom as Place, fallocate, seek};
use rustix::io::Errno;

use crate::cell::{Cell, Counted};
use crate::helper::Helper;
use crate::permits::User;

/// Bytes without a repeated pattern.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 33) as u8)
        .collect()
}

#[test]
fn what_is_written_is_read_again_in_every_size() {
    let Some(cell) = Cell::start() else { return };
    let (writer, reader) = (cell.mount(), cell.mount());
    for length in [0, 1, 4095, 4096, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20, (5 << 20) + 3] {
        let bytes = pattern(length, length as u64);
        fs::write(writer.at("file"), &bytes).unwrap();
        assert!(fs::read(writer.at("file")).unwrap() == bytes, "{length} bytes at the writer");
        assert!(fs::read(reader.at("file")).unwrap() == bytes, "{length} bytes at the other");
        assert_eq!(fs::metadata(reader.at("file")).unwrap().len(), length as u64);
    }
}

#[test]
fn appends_and_cuts() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "one").unwrap();
    let mut end = File::options().append(true).open(&path).unwrap();
    end.write_all(b" two").unwrap();
    end.write_all(b" three").unwrap();
    drop(end);
    assert_eq!(fs::read_to_string(&path).unwrap(), "one two three");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_len(3).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    file.set_len(6).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one\0\0\0");
    File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn sparse_files_reach_past_a_tebibyte() {
    const FAR: u64 = (1 << 40) + 12_345;
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let file =
        File::options().read(true).write(true).create_new(true).open(client.at("sparse")).unwrap();
    file.write_all_at(b"near", 100_000).unwrap();
    file.write_all_at(b"far away", FAR).unwrap();
    file.sync_all().unwrap();
    let status = file.metadata().unwrap();
    assert_eq!(status.len(), FAR + 8);
    assert!(status.blocks() * 512 < 1 << 20, "{} blocks", status.blocks());
    let mut bytes = [1; 12];
    file.read_exact_at(&mut bytes, FAR - 4).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0far away");
    let data = seek(&file, Place::Data(1 << 30)).unwrap();
    assert!(data > 1 << 30 && data <= FAR, "data at {data}");
    let hole = seek(&file, Place::Hole(100_000)).unwrap();
    assert!(hole > 100_000 && hole < FAR, "hole at {hole}");
    assert_eq!(seek(&file, Place::Data(FAR + 8)), Err(Errno::NXIO));
}

#[test]
fn holes_are_punched_and_room_is_reserved() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let file =
        File::options().read(true).write(true).create_new(true).open(client.at("file")).unwrap();
    file.write_all_at(&pattern(256 << 10, 7), 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 64 << 10, 64 << 10)
        .unwrap();
    let bytes = fs::read(client.at("file")).unwrap();
    let mut expected = pattern(256 << 10, 7);
    expected[64 << 10..128 << 10].fill(0);
    assert!(bytes == expected);
    fallocate(&file, FallocateFlags::empty(), 0, 300 << 10).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 300 << 10);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 400 << 10).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 300 << 10);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 10).unwrap();
    assert_eq!(fs::read(client.at("file")).unwrap()[..10], [0; 10]);
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
}

#[test]
fn a_write_that_must_be_stable_is_committed_before_it_returns() {
    use rustix::fs::{Mode, OFlags, open};
    use std::sync::atomic::Ordering;
    let Some(cell) = Cell::start() else { return };
    let session = Counted::new(cell.session());
    let client = cell.mount_through(Arc::clone(&session) as _);
    let among = client.at("among-short-ones");
    fs::create_dir(&among).unwrap();
    (0..12).for_each(|number| fs::write(among.join(number.to_string()), "short").unwrap());
    let append = OFlags::DSYNC | OFlags::APPEND;
    for (name, flags) in
        [("among-short-ones/write", OFlags::SYNC), ("write", OFlags::SYNC), ("append", append)]
    {
        let flags = flags | OFlags::WRONLY | OFlags::CREATE;
        let mut file =
            File::from(open(client.at(name), flags, Mode::from_raw_mode(0o644)).unwrap());
        for round in 1..=3 {
            let before = session.commits.load(Ordering::SeqCst);
            file.write_all(b"stable").unwrap();
            assert!(session.commits.load(Ordering::SeqCst) > before, "{name} {round}");
        }
    }
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("file"), "still here").unwrap();
    let mut open_here = File::options().read(true).write(true).open(here.at("file")).unwrap();
    let mut open_there = File::open(there.at("file")).unwrap();
    fs::remove_file(there.at("file")).unwrap();
    assert!(!here.at("file").exists() && !there.at("file").exists());

    let mut text = String::new();
    open_there.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    open_here.seek(SeekFrom::End(0)).unwrap();
    open_here.write_all(b", and growing").unwrap();
    open_here.sync_all().unwrap();
    open_there.rewind().unwrap();
    text.clear();
    open_there.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here, and growing");
    assert_eq!(open_here.metadata().unwrap().nlink(), 0);
}

#[test]
fn a_mapping_reads_and_writes_the_file() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("file"), pattern(8192, 3)).unwrap();
    let mut helper = Helper::start("map", &here.at("file"));
    assert_eq!(helper.says(), "wrote");
    let file = File::options().read(true).write(true).open(there.at("file")).unwrap();
    let mut bytes = [0; 15];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"through the map");
    // In the other direction: a write elsewhere shows in the mapping.
    file.write_all_at(b"hello", 0).unwrap();
    file.sync_all().unwrap();
    helper.go_on();
    assert_eq!(helper.says(), "hello");
    helper.end();
}

#[test]
fn an_unprivileged_write_takes_the_set_user_bit_away() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    for above in client.at("").ancestors().take(3) {
        fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = client.at("program");
    let run = |script: &str| {
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let ran = std::process::Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .arg(&path)
            .status();
        assert!(ran.expect("setpriv (util-linux) is installed").success());
        fs::metadata(&path).unwrap().mode() & 0o7777
    };
    assert_eq!(run("echo y >> \"$1\""), 0o777);
    assert_eq!(run("echo y > \"$1\""), 0o777);
    assert_eq!(run("truncate -s 100 \"$1\""), 0o777);
    assert_eq!(run("cat \"$1\""), 0o6777);
}

#[test]
fn a_running_program_cannot_be_emptied() {
    use rustix::fs::{Mode, OFlags, open};
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("sleep");
    fs::copy("/bin/sleep", &path).unwrap();
    for _ in 0..20 {
        let mut running = std::process::Command::new(&path).arg("10").spawn().unwrap();
        for flags in [OFlags::WRONLY, OFlags::RDWR, OFlags::RDONLY | OFlags::TRUNC] {
            assert_eq!(open(&path, flags, Mode::empty()).err(), Some(Errno::TXTBSY), "{flags:?}");
        }
        assert_eq!(running.try_wait().unwrap(), None, "still runs");
        running.kill().unwrap();
        running.wait().unwrap();
    }
    assert!(fs::metadata(&path).unwrap().len() > 0);
}

/// The kernel drops set-id bits itself when a file is cut, and leaves that to us otherwise.
#[test]
fn a_users_write_or_reservation_drops_set_ids_for_all_to_see() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(cell) = Cell::start() else { return };
    fs::set_permissions(cell.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, vec![1; 200 << 10]).unwrap();
    let user = User::of(1000);
    let (block, none) = (4096, FallocateFlags::empty());
    type Change = fn(&File, FallocateFlags, usize);
    let changes: [(&str, Change); 4] = [
        ("write", |file, _, _| file.write_all_at(b"x", 3).unwrap()),
        ("direct", |file, _, block| file.write_all_at(&Aligned([2; 4096]).0[..block], 0).unwrap()),
        ("fallocate", |file, none, block| fallocate(file, none, 0, block as u64).unwrap()),
        ("punch", |file, _, block| {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, how, 0, block as u64).unwrap();
        }),
    ];
    for (what, change) in changes {
        let direct = if what == "direct" { libc::O_DIRECT } else { 0 };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
        let its = path.clone();
        user.does(move || {
            let file =
                File::options().read(true).write(true).custom_flags(direct).open(its).unwrap();
            change(&file, none, block);
        });
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{what}");
        // The superuser's change drops nothing.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let file = File::options().read(true).write(true).custom_flags(direct).open(&path).unwrap();
        change(&file, none, block);
        drop(file);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777, "{what} by root");
    }
}

/// The kernel writes the pages back through the file that appends, at their place.
#[test]
fn a_map_of_a_file_open_for_appends_is_written_where_it_is() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let (path, its) = (client.at("mapped"), client.at("mapped"));
    fs::write(&path, [1; 20_000]).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    // A thread of its own: nothing can interrupt it if the pages are never written.
    std::thread::spawn(move || {
        let file = File::options().read(true).append(true).open(&its).unwrap();
        let mut map = mem::map::Map::new(&file, 20_000, true).unwrap();
        map.write(5_000, b"mapped");
        map.flush().unwrap();
        file.sync_all().unwrap();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the pages are written");
    let mut wanted = vec![1; 20_000];
    wanted[5_000..5_006].copy_from_slice(b"mapped");
    assert!(fs::read(&path).unwrap() == wanted, "{} bytes", fs::metadata(&path).unwrap().len());
    let other = cell.mount();
    assert!(fs::read(other.at("mapped")).unwrap() == wanted, "at another client");
}

/// Memory for direct writes.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// The kernel holds a page that it has not read locked until a cached write of a part of it is
/// replied, and tells the flags that the descriptor has by then.
#[test]
fn a_descriptor_that_turns_direct_while_it_writes_stops_nothing() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, vec![1; 64 << 10]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for with in [OFlags::DIRECT, OFlags::empty()] {
                    rustix::fs::fcntl_setfl(&file, flags | with).unwrap();
                }
            }
        });
        for round in 0..3000_u32 {
            assert_eq!(file.write_at(&round.to_le_bytes(), 100).unwrap(), 4);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    rustix::fs::fcntl_setfl(&file, flags).unwrap();
    file.write_all_at(b"end", 100).unwrap();
    assert_eq!(&fs::read(&path).unwrap()[100..103], b"end");
}
