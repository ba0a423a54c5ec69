//! Locks between clients, and the events that end them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use mem::lock::{RangeLock, set_file_range, set_range, test_range};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::cell::{Cell, Client, eventually};
use crate::helper::Helper;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn pair(cell: &Cell) -> (Client, Client) {
    let (here, there) = (cell.mount(), cell.mount());
    fs::write(here.at("file"), "x").unwrap();
    (here, there)
}

fn exclusive(file: &File, start: i64, length: i64) -> Result<(), Errno> {
    set_range(file.as_fd(), RangeLock::Exclusive, start, length, false)
}

#[test]
fn ranges_exclude_each_other_between_clients() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let (first, second) = (open(&here.at("file")), open(&there.at("file")));
    exclusive(&first, 10, 10).unwrap();
    assert_eq!(exclusive(&second, 19, 5), Err(Errno::AGAIN));
    exclusive(&second, 20, 5).unwrap();
    let conflict = test_range(second.as_fd(), RangeLock::Shared, 0, 0).unwrap().unwrap();
    assert_eq!((conflict.start, conflict.length, conflict.exclusive), (10, 10, true));
    assert_eq!(test_range(second.as_fd(), RangeLock::Shared, 30, 5), Ok(None));
    set_range(first.as_fd(), RangeLock::Unlock, 0, 0, false).unwrap();
    exclusive(&second, 0, 0).unwrap();
    assert_eq!(set_range(first.as_fd(), RangeLock::Shared, 1 << 40, 1, false), Err(Errno::AGAIN));
}

#[test]
fn whole_file_locks_exclude_each_other_but_not_ranges() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let (first, second) = (open(&here.at("file")), open(&there.at("file")));
    flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(flock(&second, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    exclusive(&second, 0, 0).unwrap();
    let same_client = open(&here.at("file"));
    assert_eq!(flock(&same_client, FlockOperation::NonBlockingLockShared), Err(Errno::AGAIN));
    flock(&first, FlockOperation::NonBlockingLockShared).unwrap();
    flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
    drop(first);
    eventually("the closed file's lock is gone", || {
        flock(&second, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
}

/// The kernel does not wait until a mount has got a close, so the next request may come first.
#[test]
fn who_closed_a_file_has_let_go_of_its_lock() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "x").unwrap();
    let whole = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
    let range = |file: &File| set_file_range(file.as_fd(), RangeLock::Exclusive, 0, 0, false);
    for round in 0..200 {
        for (kind, file) in [("reading", File::open(&path).unwrap()), ("writing", open(&path))] {
            let other = open(&path);
            whole(&file).unwrap();
            drop(file);
            assert_eq!(whole(&other), Ok(()), "whole, {kind}, round {round}");
        }
        let (file, other) = (open(&path), open(&path));
        range(&file).unwrap();
        drop(file);
        assert_eq!(range(&other), Ok(()), "range, round {round}");
    }
}

#[test]
fn closing_any_descriptor_ends_the_processes_ranges() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let (first, second) = (open(&here.at("file")), open(&there.at("file")));
    exclusive(&first, 0, 1).unwrap();
    assert_eq!(exclusive(&second, 0, 1), Err(Errno::AGAIN));
    drop(File::open(here.at("file")).unwrap());
    exclusive(&second, 0, 1).unwrap();
}

#[test]
fn a_read_only_descriptors_range_ends_with_it() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let (first, second) = (File::open(here.at("file")).unwrap(), open(&there.at("file")));
    set_range(first.as_fd(), RangeLock::Shared, 0, 0, false).unwrap();
    assert_eq!(exclusive(&second, 0, 1), Err(Errno::AGAIN));
    drop(first);
    eventually("the closed file's range is gone", || exclusive(&second, 0, 1).is_ok());
}

#[test]
fn a_copys_close_ends_read_locks_of_a_file_locked_before() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    exclusive(&open(&here.at("file")), 0, 1).unwrap();
    let (first, second) = (File::open(here.at("file")).unwrap(), open(&there.at("file")));
    set_range(first.as_fd(), RangeLock::Shared, 0, 0, false).unwrap();
    assert_eq!(exclusive(&second, 0, 1), Err(Errno::AGAIN));
    drop(first.try_clone().unwrap());
    exclusive(&second, 0, 1).unwrap();
    drop(first);
}

#[test]
fn an_open_files_range_ends_with_the_file_only() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let (first, second) = (open(&here.at("file")), open(&there.at("file")));
    set_file_range(first.as_fd(), RangeLock::Exclusive, 0, 1, false).unwrap();
    drop(open(&here.at("file")));
    assert_eq!(
        exclusive(&second, 0, 1),
        Err(Errno::AGAIN),
        "another descriptor of the process was closed"
    );
    drop(first);
    eventually("the closed file's range is gone", || exclusive(&second, 0, 1).is_ok());
}

/// A release of a part concerns that part only: a request that meets another part is refused, and
/// waits for no release.
#[test]
fn the_rest_of_a_range_is_held_when_its_middle_is_released() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::write(client.at("file"), "x").unwrap();
    let (holder, other) = (open(&client.at("file")), open(&client.at("file")));
    let of_file =
        |file: &File, kind, start, length| set_file_range(file.as_fd(), kind, start, length, false);
    of_file(&holder, RangeLock::Exclusive, 0, 30).unwrap();
    of_file(&holder, RangeLock::Unlock, 10, 10).unwrap();
    for (start, expected) in [(0, Err(Errno::AGAIN)), (10, Ok(())), (20, Err(Errno::AGAIN))] {
        assert_eq!(of_file(&other, RangeLock::Exclusive, start, 5), expected, "at {start}");
    }
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_free() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let first = open(&here.at("file"));
    exclusive(&first, 0, 0).unwrap();
    let mut helper = Helper::start("lock", &there.at("file"));
    assert_eq!(helper.says(), "asks");
    std::thread::sleep(Duration::from_millis(100));
    set_range(first.as_fd(), RangeLock::Unlock, 0, 0, false).unwrap();
    assert_eq!(helper.says(), "has it");
    assert_eq!(exclusive(&first, 0, 0), Err(Errno::AGAIN));
    helper.end();
    eventually("the lock ended with its process", || exclusive(&first, 0, 0).is_ok());
}

#[test]
fn a_signal_with_a_handler_does_not_lose_the_wait() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let first = open(&here.at("file"));
    exclusive(&first, 0, 0).unwrap();
    let mut helper = Helper::start("lock through a signal", &there.at("file"));
    assert_eq!(helper.says(), "asks");
    std::thread::sleep(Duration::from_millis(200));
    kill_process(Pid::from_child(&helper.child), Signal::USR1).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(first);
    assert_eq!(helper.says(), "has it after the signal");
    helper.end();
}

#[test]
fn a_killed_waiter_dies_at_once_and_leaves_no_lock() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let first = open(&here.at("file"));
    for signal in [Signal::TERM, Signal::KILL] {
        exclusive(&first, 0, 0).unwrap();
        let mut helper = Helper::start("lock", &there.at("file"));
        assert_eq!(helper.says(), "asks");
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        kill_process(Pid::from_child(&helper.child), signal).unwrap();
        assert!(!helper.child.wait().unwrap().success());
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "took {:?} to die of {signal:?}",
            began.elapsed()
        );
        set_range(first.as_fd(), RangeLock::Unlock, 0, 0, false).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(exclusive(&first, 0, 0), Ok(()), "the dead waiter was given the lock");
    }
}

#[test]
fn more_waiters_than_workers_do_not_stop_the_mount() {
    let Some(cell) = Cell::start() else { return };
    let (here, there) = pair(&cell);
    let first = open(&here.at("file"));
    flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    let path = there.at("file");
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || flock(open(&path), FlockOperation::LockShared))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    fs::write(there.at("other"), "the mount works").unwrap();
    assert_eq!(fs::read_to_string(there.at("other")).unwrap(), "the mount works");
    assert!(began.elapsed() < Duration::from_secs(2));
    drop(first);
    for waiter in waiters {
        waiter.join().unwrap().unwrap();
    }
}

/// `close` of the last descriptor of an open file ends its ranges, before another process asks.
#[test]
fn an_open_files_range_has_ended_when_close_returns() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    fs::write(client.at("file"), "x").unwrap();
    let lock = |file: &File, kind| set_file_range(file.as_fd(), kind, 0, 1, false);
    for _ in 0..500 {
        let [first, second, third] = [(); 3].map(|()| open(&client.at("file")));
        lock(&first, RangeLock::Exclusive).unwrap();
        drop(first);
        assert_eq!(test_range(second.as_fd(), RangeLock::Exclusive, 0, 1), Ok(None));
        lock(&second, RangeLock::Shared).unwrap();
        drop(second);
        lock(&third, RangeLock::Exclusive).unwrap();
    }
}
