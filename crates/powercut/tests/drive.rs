//! The drive below a real ext4 loses only what a program did not sync.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use powercut::{Drive, DriveImage, DrivenMachine, Flushes, isolated};

const DRIVE_BYTES: u64 = 64 << 20;
const SEEDS: u64 = 12;
const FILES: u64 = 4;

fn contents(number: u64) -> Vec<u8> {
    let length = [100, 5_000, 70_000, 1_300_000][number as usize % 4];
    (0..length).map(|at: u64| (at * 31 + number * 7 + at / 512) as u8).collect()
}

/// How a program replaces a file.
#[derive(Clone, Copy, PartialEq)]
enum Care {
    Full,
    /// The program does not sync the file before it renames it.
    SyncsNoFile,
    /// The program syncs nothing.
    SyncsNothing,
}

/// Replaces the file `number`, as an application that saves a document does.
fn save(root: &Path, number: u64, care: Care) -> io::Result<()> {
    let (new, name) = (root.join(format!("{number}.new")), root.join(number.to_string()));
    let mut file = File::create(&new)?;
    file.write_all(&contents(number))?;
    if care == Care::Full {
        file.sync_all()?;
    }
    fs::rename(&new, &name)?;
    if care != Care::SyncsNothing {
        File::open(root)?.sync_all()?;
    }
    Ok(())
}

/// Saves some files, loses power, and returns the drive.
fn history(at: &Path, care: Care, flushes: Flushes) -> Arc<Drive> {
    let machine =
        DrivenMachine::boot(at, DriveImage::ext4(DRIVE_BYTES, at).unwrap(), flushes).unwrap();
    let drive = Arc::clone(machine.drive());
    for number in 0..FILES {
        save(machine.root(), number, care).unwrap();
    }
    // These writes are not synced, and partly under way.
    fs::write(machine.root().join("unsynced"), vec![1; 3 << 20]).unwrap();
    drop(machine.lose_power(0).unwrap());
    drive
}

/// The files that differ from their saved contents, on a machine that boots with this image.
fn spoiled(at: &Path, image: DriveImage) -> Vec<u64> {
    let machine = DrivenMachine::boot(at, image, Flushes::Obeyed).unwrap();
    let is_spoiled = |number: &u64| {
        let found = fs::read(machine.root().join(number.to_string()));
        !found.is_ok_and(|found| found == contents(*number))
    };
    let spoiled = (0..FILES).filter(is_spoiled).collect();
    let image = machine.stop().unwrap();
    let file = at.join("image");
    image.save(&file).unwrap();
    let checked = Command::new("e2fsck").args(["-f", "-n"]).arg(&file).output().unwrap();
    assert!(
        checked.status.success(),
        "ext4 itself is damaged: {}",
        String::from_utf8_lossy(&checked.stdout)
    );
    spoiled
}

/// The number of seeds whose images have a spoiled file.
fn losses(care: Care) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let drive = history(dir.path(), care, Flushes::Obeyed);
    (0..SEEDS).filter(|seed| !spoiled(dir.path(), drive.after_loss(*seed)).is_empty()).count()
}

#[test]
fn du1_an_fsync_of_ext4_is_a_flush_of_the_drive() {
    isolated(|| {
        let dir = tempfile::tempdir().unwrap();
        let image = DriveImage::ext4(DRIVE_BYTES, dir.path()).unwrap();
        let machine = DrivenMachine::boot(dir.path(), image, Flushes::Obeyed).unwrap();
        let mut file = File::create(machine.root().join("f")).unwrap();
        for round in 1..=5_u8 {
            file.write_all(&vec![round; 100_000]).unwrap();
            let before = (machine.drive().commands(), machine.drive().flushes());
            file.sync_data().unwrap();
            let after = (machine.drive().commands(), machine.drive().flushes());
            assert!(
                after.1 > before.1 && after.0 > before.0 + 1,
                "round {round}: {before:?} {after:?}"
            );
        }
        drop(file);
        let image = machine.stop().unwrap();
        let machine = DrivenMachine::boot(dir.path(), image, Flushes::Obeyed).unwrap();
        let found = fs::read(machine.root().join("f")).unwrap();
        assert!(found.len() == 500_000 && found[0] == 1 && found[499_999] == 5);
    });
}

#[test]
fn du1_synced_files_are_there_after_every_cut() {
    isolated(|| assert_eq!(losses(Care::Full), 0));
}

#[test]
fn du1_a_rename_without_fsync_of_the_file_is_caught() {
    isolated(|| assert!(losses(Care::SyncsNoFile) > 0, "no seed showed it"));
}

#[test]
fn du1_files_that_were_not_synced_are_lost() {
    isolated(|| assert!(losses(Care::SyncsNothing) > 0, "no seed showed it"));
}

#[test]
fn du1_a_drive_that_ignores_flushes_is_caught() {
    isolated(|| {
        let dir = tempfile::tempdir().unwrap();
        let drive = history(dir.path(), Care::Full, Flushes::Ignored);
        // The image of such a drive may be no file system any more.
        let is_lost = |seed: u64| {
            DrivenMachine::boot(dir.path(), drive.after_loss(seed), Flushes::Obeyed).map_or(
                true,
                |machine| {
                    (0..FILES).any(|number| {
                        let found = fs::read(machine.root().join(number.to_string()));
                        !found.is_ok_and(|found| found == contents(number))
                    })
                },
            )
        };
        assert!((0..SEEDS).any(is_lost), "no seed showed it");
    });
}

#[test]
fn the_boot_id_is_another_with_each_boot() {
    isolated(|| {
        let dir = tempfile::tempdir().unwrap();
        let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let mut image = DriveImage::ext4(DRIVE_BYTES, dir.path()).unwrap();
        let mut seen = vec![read()];
        for _ in 0..3 {
            let machine = DrivenMachine::boot(dir.path(), image, Flushes::Obeyed).unwrap();
            assert!(!seen.contains(&read()), "{seen:?}");
            seen.push(read());
            assert_eq!(fs::read_dir("/dev/shm").unwrap().count(), 0);
            image = machine.stop().unwrap();
        }
        assert_eq!(read(), seen[0], "outside of the machine it is that of this system");
    });
}
