//! Changes by one client are visible to the other at once, although kernels cache everything
//! without time limit.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;

use crate::cell::Cell;

#[test]
fn names_that_appear_change_and_vanish_are_seen_at_once() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::create_dir(here.at("dir")).unwrap();
    for round in 0..200 {
        let text = format!("round {round}");
        assert_eq!(fs::metadata(there.at("dir/name")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(here.at("dir/name"), &text).unwrap();
        assert_eq!(fs::read_to_string(there.at("dir/name")).unwrap(), text);
        fs::rename(here.at("dir/name"), here.at("dir/other")).unwrap();
        assert!(!there.at("dir/name").exists(), "round {round}: the old name is still there");
        assert_eq!(fs::read_to_string(there.at("dir/other")).unwrap(), text);
        fs::remove_file(here.at("dir/other")).unwrap();
        assert!(!there.at("dir/other").exists(), "round {round}: a removed name is still there");
    }
}

#[test]
fn statuses_are_seen_at_once() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("file"), "x").unwrap();
    for round in 0..200u32 {
        let mode = 0o400 + round % 0o100;
        fs::set_permissions(here.at("file"), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(there.at("file")).unwrap().mode() & 0o7777, mode);
    }
}

#[test]
fn data_is_seen_at_the_latest_when_the_writer_closes() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("file"), [0; 8192]).unwrap();
    let reader = File::open(there.at("file")).unwrap();
    for round in 1..=200u8 {
        let writer = File::options().write(true).open(here.at("file")).unwrap();
        writer.write_all_at(&[round; 8192], 0).unwrap();
        drop(writer);
        let mut bytes = [0; 8192];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == [round; 8192], "round {round}: {} and {}", bytes[0], bytes[8191]);
    }
}

#[test]
fn two_clients_changing_one_directory_do_not_block() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::create_dir(here.at("dir")).unwrap();
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for (client, mark) in [(&here, 'a'), (&there, 'b'), (&here, 'c'), (&there, 'd')] {
            scope.spawn(move || {
                for round in 0..100 {
                    let name = client.at(&format!("dir/{mark}{round}"));
                    fs::write(&name, "x").unwrap();
                    fs::rename(&name, client.at(&format!("dir/moved-{mark}{round}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(here.at("dir")).unwrap().count(), 400);
    assert_eq!(fs::read_dir(there.at("dir")).unwrap().count(), 400);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "took {:?}: breaks waited for leases",
        began.elapsed()
    );
}

#[test]
fn a_name_that_both_make_is_one_file_and_opened_by_both() {
    use std::io::Write;
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    for round in 0..100 {
        let name = format!("made-{round}");
        let meet = std::sync::Barrier::new(2);
        let make = |client: &crate::cell::Client| {
            meet.wait();
            let mut file =
                File::options().append(true).create(true).open(client.at(&name)).unwrap();
            file.write_all(b"x").unwrap();
            file.metadata().unwrap().ino()
        };
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| make(&there));
            (make(&here), other.join().unwrap())
        });
        assert_eq!(first, second, "round {round}");
        assert_eq!(fs::read(here.at(&name)).unwrap(), b"xx", "round {round}");
    }
}

/// The kernel learns the new size while it has a page with the former end of the file. A reader
/// that does not run between its look at the page and its look at the size may see zeros once.
#[test]
fn zeros_do_not_stay_behind_the_former_end_of_a_log() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("log");
    let mut log = File::options().append(true).create(true).open(&path).unwrap();
    let ended = AtomicBool::new(false);
    let follow = || {
        let reading = File::open(&path).unwrap();
        let (mut at, mut bytes) = (0, vec![0; 64 << 10]);
        let mut zeros = |at| {
            let count = reading.read_at(&mut bytes, at).unwrap();
            (count as u64, bytes[..count].contains(&0))
        };
        while !ended.load(Ordering::Relaxed) {
            let (mut count, first_look) = zeros(at);
            if first_look {
                let (seen, second_look) = zeros(at);
                assert!(!second_look, "zeros behind {at}");
                count = seen;
            }
            at += count;
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(follow), scope.spawn(follow)];
        for number in 0..8_000 {
            writeln!(log, "line {number:08}").unwrap();
            std::thread::sleep(Duration::from_micros(number % 3));
            if readers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn appends_of_two_clients_all_land() {
    use std::io::Write;
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("log"), "").unwrap();
    std::thread::scope(|scope| {
        for (client, mark) in [(&here, "a"), (&there, "b")] {
            scope.spawn(move || {
                let mut log = File::options().append(true).open(client.at("log")).unwrap();
                for _ in 0..100 {
                    log.write_all(format!("{}\n", mark.repeat(49)).as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(here.at("log")).unwrap();
    assert_eq!(text.len(), 200 * 50);
    assert!(
        text.lines()
            .all(|line| line.len() == 49 && (line == "a".repeat(49) || line == "b".repeat(49)))
    );
    assert_eq!(fs::read_to_string(there.at("log")).unwrap(), text);
}

#[test]
fn a_busy_mount_is_taken_away_lazily_and_serves_its_last_user() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::write(client.at("file"), "still served").unwrap();
    let file = File::open(client.at("file")).unwrap();
    let at = client.at("");
    drop_in_background(client);
    crate::cell::eventually("the place is free", || !at.join("file").exists());
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still served");
}

/// Unmounts, which ends only after the test's own file is closed.
fn drop_in_background(client: crate::cell::Client) {
    std::thread::spawn(move || drop(client));
}

#[test]
fn small_files_read_one_after_the_other_are_never_old() {
    const COUNT: usize = 300;
    let Some(cell) = Cell::start() else { return };
    let (here, there) = (cell.mount(), cell.mount());
    let path = |i: usize| format!("dir/{i:04}");
    let content =
        |i: usize, round: usize| format!("{i} {round} ").repeat(1 + i * 7 % 1500).into_bytes();
    fs::create_dir(there.at("dir")).unwrap();
    (0..COUNT).for_each(|i| fs::write(there.at(&path(i)), content(i, 0)).unwrap());
    let mut expected: Vec<Vec<u8>> = (0..COUNT).map(|i| content(i, 0)).collect();
    assert_eq!(fs::read_dir(here.at("dir")).unwrap().count(), COUNT);
    for i in 0..COUNT {
        let next = (i + 2).min(COUNT - 1);
        match i % 12 {
            3 => {
                expected[next] = content(next, 1);
                fs::write(there.at(&path(next)), &expected[next]).unwrap();
            }
            6 => {
                expected[next] = content(next + 1, 2);
                fs::write(here.at(&path(next)), &expected[next]).unwrap();
            }
            9 => {
                expected[next].truncate(5);
                File::options().write(true).open(here.at(&path(next))).unwrap().set_len(5).unwrap();
            }
            _ => {}
        }
        assert!(fs::read(here.at(&path(i))).unwrap() == expected[i], "file {i}");
    }
    assert!((0..COUNT).all(|i| fs::read(there.at(&path(i))).unwrap() == expected[i]));
}
