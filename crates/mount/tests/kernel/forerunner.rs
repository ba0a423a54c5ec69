//! The readdir helper: after a run of look-ups the kernel knows the directory's other names too.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mount::{Mount, MountConfig};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::mount::UnmountFlags;
use venus::{VenusConfig, Volumes};

use crate::cell::{Cell, volume};
use crate::helper;

const COUNT: usize = 200;

fn fill(cell: &Cell) {
    fill_below(cell, "dir");
}

fn fill_below(cell: &Cell, dir: &str) {
    let maker = cell.mount();
    fs::create_dir(maker.at(dir)).unwrap();
    (0..COUNT)
        .for_each(|i| fs::write(maker.at(&format!("{dir}/file-{i}")), i.to_string()).unwrap());
}

/// A mount with a readdir helper.
fn mounted(cell: &Cell, at: &Path) -> Mount {
    fs::create_dir(at).unwrap();
    let volumes = Volumes::of(cell.session(), VenusConfig::default());
    let forerunner: Vec<OsString> = helper::command("forerunner", at);
    let config = MountConfig {
        transport: crate::transport(),
        flat: crate::is_flat(),
        ..MountConfig::new(at, volume(), "rialto:test")
    };
    Mount::start(MountConfig { forerunner: Some(forerunner), ..config }, &volumes).unwrap()
}

/// Whether the kernel has the name in its cache: tested after the mount has stopped answering.
fn is_known(mountpoint: &Path, name: &str) -> bool {
    let dir = File::open(mountpoint.join("dir")).unwrap();
    // Ends the connection even though the mount is in use.
    let _ = rustix::mount::unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH);
    let found = rustix::fs::statx(&dir, name, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    drop(dir);
    found.is_ok()
}

fn look_up(at: &Path, files: std::ops::Range<usize>) {
    for i in files {
        fs::metadata(at.join(format!("dir/file-{i}"))).unwrap();
    }
}

#[test]
fn after_some_look_ups_the_kernel_knows_the_rest() {
    let Some(cell) = Cell::start() else { return };
    fill(&cell);
    let last = format!("file-{}", COUNT - 1);
    let known_after = |look_ups, pause: u64| {
        let at = cell.path().join(format!("ahead-{look_ups}-{pause}"));
        let mount = mounted(&cell, &at);
        look_up(&at, 0..look_ups);
        std::thread::sleep(Duration::from_millis(pause));
        is_known(mount.mountpoint(), &last)
    };
    assert!(!known_after(2, 100), "two look-ups are no run");
    let mut pauses = (0..8).map(|round| 50 << round);
    assert!(pauses.any(|pause| known_after(10, pause)), "nobody listed the directory");
}

#[test]
fn names_of_a_volume_below_are_listed_ahead_too() {
    let Some(cell) = Cell::start() else { return };
    cell.add_volume("work");
    cell.point("root", "vol", "#work");
    fill_below(&cell, "vol/dir");
    let last = format!("file-{}", COUNT - 1);
    let known_after = |pause: u64| {
        let at = cell.path().join(format!("ahead-{pause}"));
        let _mount = mounted(&cell, &at);
        look_up(&at.join("vol"), 0..10);
        std::thread::sleep(Duration::from_millis(pause));
        is_known(&at.join("vol"), &last)
    };
    let mut pauses = (0..8).map(|round| 50 << round);
    assert!(pauses.any(known_after), "nobody listed the directory");
}

#[test]
fn what_was_listed_ahead_ends_with_a_break() {
    let Some(cell) = Cell::start() else { return };
    fill(&cell);
    let at = cell.path().join("ahead");
    let _mount = mounted(&cell, &at);
    let other = cell.mount();
    for i in 10..COUNT {
        look_up(&at, i - 10..i);
        let (from, to) = (format!("dir/file-{i}"), format!("dir/moved-{i}"));
        fs::rename(other.at(&from), other.at(&to)).unwrap();
        assert!(fs::metadata(at.join(&from)).is_err() && fs::metadata(at.join(&to)).is_ok(), "{i}");
        fs::rename(other.at(&to), other.at(&from)).unwrap();
    }
}

#[test]
fn a_forerunner_keeps_nobody_from_unmounting() {
    let Some(cell) = Cell::start() else { return };
    fill(&cell);
    let at = cell.path().join("ahead");
    let mount = mounted(&cell, &at);
    look_up(&at, 0..COUNT);
    // The mount is busy only while the helper carries out an order.
    let began = Instant::now();
    while !Command::new("umount").arg(&at).status().unwrap().success() {
        assert!(began.elapsed() < Duration::from_secs(10), "still busy");
        std::thread::sleep(Duration::from_millis(5));
    }
    mount.wait();
}
