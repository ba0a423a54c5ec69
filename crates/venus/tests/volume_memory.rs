//! Memory of volumes that were only looked at, and of volumes that left. A test program of its own,
//! since it counts all allocations.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::me;
use common::volumes::ManyVolumes;
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use types::{Cookie, Fid};
use venus::{Venus, VenusConfig};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test at a time counts.
static TURN: Mutex<()> = Mutex::new(());

const VOLUMES: usize = 200;

/// Bytes that are allocated now.
fn allocated() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// The questions of a `find` in a volume that it enters: the status of its root, and what is in it.
fn look_at(root: Fid, venus: &Venus) {
    venus.getattr(&me(), root).unwrap();
    venus.remember(root);
    let listing = venus.dirs().opendir(&me(), root).unwrap();
    let listed = venus.dirs().readdir(&me(), listing, Cookie::START, 32 << 10, true).unwrap();
    assert_eq!(listed.entries.len(), 1, "its file");
    venus.dirs().releasedir(listing);
}

/// Opens these volumes once more, looks at them, and closes them; returns the bytes that they took
/// meanwhile.
fn visit(all: &ManyVolumes, numbers: std::ops::Range<usize>) -> usize {
    let before = allocated();
    let (mut open, mut ids) = (Vec::new(), Vec::new());
    for (root, name) in &all.closed[numbers] {
        let volume = all.volumes.find(&me(), name).unwrap();
        let venus = all.volumes.open(&volume).unwrap();
        look_at(*root, &venus);
        open.push(venus);
        ids.push(root.volume);
    }
    let taken = allocated().saturating_sub(before);
    ids.iter().for_each(|volume| all.volumes.close(*volume));
    drop::<Vec<Arc<Venus>>>(open);
    all.wait_until_closed(&ids);
    taken
}

fn filled() -> ManyVolumes {
    let mut all = ManyVolumes::new(2 * VOLUMES, VenusConfig::default());
    for number in 0..2 * VOLUMES {
        let (_, handle) = all.write(number);
        all.all[number].1.release(&me(), handle, None).unwrap();
    }
    all.close_all();
    // The server has loaded each, and the client's tables have their sizes.
    visit(&all, 0..2 * VOLUMES);
    all
}

#[test]
fn a_volume_that_was_only_entered_takes_little_memory() {
    let _turn = TURN.lock();
    let all = filled();
    let each = visit(&all, 0..VOLUMES) / VOLUMES;
    println!("{each} bytes for each volume");
    assert!(each <= 20 << 10, "{each} bytes");
}

#[test]
fn volumes_that_left_leave_nothing_in_memory() {
    let _turn = TURN.lock();
    let all = filled();
    visit(&all, 0..VOLUMES);
    let before = allocated();
    for _ in 0..5 {
        visit(&all, VOLUMES..2 * VOLUMES);
        visit(&all, 0..VOLUMES);
    }
    // The last volume of a thread goes when that thread runs.
    let began = Instant::now();
    let grown = loop {
        let grown = allocated().saturating_sub(before);
        if grown <= 10 * VOLUMES * 16 || began.elapsed() > Duration::from_secs(10) {
            break grown;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    println!("{grown} bytes of {} volumes", 10 * VOLUMES);
    assert!(grown <= 10 * VOLUMES * 16, "{grown} bytes");
}
