//! Loads that each transport must bear: many requests at once, large ones, blocked ones, and the
//! end during a load.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mount::WorkersConfig;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::cell::{Cell, eventually};
use crate::gated::Gated;

#[test]
fn blocked_requests_are_all_seen_through_by_few_threads() {
    let Some(cell) = Cell::start() else { return };
    let session = cell.session();
    let gate = Gated::new(session, |_| true);
    let few =
        WorkersConfig { receiving: 2, threads_max: 3, backlog_max: 4, waiters_max: 2, kept: false };
    let client = cell.mount_with(Arc::clone(&gate) as _, few);
    gate.shut();
    thread::scope(|scope| {
        let makers: Vec<_> = (0..40)
            .map(|number| client.at(&format!("dir-{number}")))
            .map(|dir| scope.spawn(|| fs::create_dir(dir)))
            .collect();
        eventually("some wait for the server", || gate.has_waiting());
        gate.open();
        for maker in makers {
            maker.join().unwrap().unwrap();
        }
    });
    assert_eq!(fs::read_dir(client.at("")).unwrap().count(), 40);
}

#[test]
fn a_crowd_that_waits_for_one_lock_keeps_nobody_else_waiting() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "x").unwrap();
    let first = File::open(&path).unwrap();
    flock(&first, FlockOperation::LockExclusive).unwrap();
    let (asking, got) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..80 {
            scope.spawn(|| {
                let file = File::open(&path).unwrap();
                asking.fetch_add(1, Ordering::SeqCst);
                flock(&file, FlockOperation::LockExclusive).unwrap();
                got.fetch_add(1, Ordering::SeqCst);
            });
        }
        eventually("all ask", || asking.load(Ordering::SeqCst) == 80);
        for number in 0..50 {
            fs::write(client.at(&format!("other-{number}")), "y").unwrap();
        }
        assert_eq!(got.load(Ordering::SeqCst), 0);
        flock(&first, FlockOperation::Unlock).unwrap();
    });
    assert_eq!(got.load(Ordering::SeqCst), 80);
    fs::write(client.at("afterwards"), "z").unwrap();
}

#[test]
fn whole_megabytes_past_the_page_cache() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    const BYTES: usize = 1 << 20;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
    let file =
        File::from(rustix::fs::open(client.at("file"), flags, Mode::from_raw_mode(0o644)).unwrap());
    let mut memory = vec![0u8; 2 * BYTES];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + BYTES];
    for seed in 0..8u64 {
        buffer
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at as u64 * 31 / 7 + seed) as u8);
        file.write_all_at(buffer, seed * BYTES as u64).unwrap();
    }
    file.sync_all().unwrap();
    for seed in 0..8u64 {
        file.read_exact_at(buffer, seed * BYTES as u64).unwrap();
        assert!(
            buffer.iter().enumerate().all(|(at, byte)| *byte == (at as u64 * 31 / 7 + seed) as u8),
            "{seed}"
        );
    }
}

#[test]
fn a_storm_of_forgets_beside_other_work() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    thread::scope(|scope| {
        for thread in 0..4 {
            let dir = client.at(&format!("dir-{thread}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for round in 0..2 {
                    for number in 0..300 {
                        fs::write(dir.join(format!("{number}")), "x").unwrap();
                    }
                    assert_eq!(fs::read_dir(&dir).unwrap().count(), 300, "round {round}");
                    // The kernel forgets nodes without a name.
                    fs::remove_dir_all(&dir).unwrap();
                    fs::create_dir(&dir).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(client.at("")).unwrap().count(), 4);
}

#[test]
fn a_forced_unmount_ends_what_is_under_way() {
    let Some(cell) = Cell::start() else { return };
    let client = cell.mount();
    let path = client.at("file");
    fs::write(&path, "x").unwrap();
    let first = File::open(&path).unwrap();
    flock(&first, FlockOperation::LockExclusive).unwrap();
    let asking = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let file = File::open(&path).unwrap();
                    asking.fetch_add(1, Ordering::SeqCst);
                    flock(&file, FlockOperation::LockExclusive)
                })
            })
            .collect();
        eventually("all ask", || asking.load(Ordering::SeqCst) == 3);
        thread::sleep(std::time::Duration::from_millis(50));
        let unmounted =
            rustix::mount::unmount(client.at(""), UnmountFlags::FORCE | UnmountFlags::DETACH);
        unmounted.unwrap();
        for waiter in waiters {
            let ended = waiter.join().unwrap();
            assert!(
                matches!(ended, Err(Errno::CONNABORTED | Errno::NOTCONN | Errno::INTR)),
                "{ended:?}"
            );
        }
    });
    drop(first);
    // No thread may wait for requests that cannot come any more.
    client.wait();
}
