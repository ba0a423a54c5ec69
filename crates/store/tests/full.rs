//! Another program fills the file system below to the last byte: changes are refused with "no
//! space" and no other error, acknowledged changes stay, and with room again work continues without
//! a restart.
//!
//! Needs root, for a small file system in memory; prints a notice where none can be mounted.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};
use store::{
    NewRoot, OpenError, OpenOptions, Partition, PartitionConfig, StoreError, Update, Vnode, Volume,
    VolumeQuota,
};
use types::{Fid, Kind, Name, Timestamp, VnodeNo};

/// Bytes of an inline body: a change of one takes this much of the log.
const BODY: usize = 16 << 10;
const FILES: usize = 64;

/// A small file system of its own, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: &Path, bytes: u64) -> Option<SmallDisk> {
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        match rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), &*options) {
            Ok(()) => Some(SmallDisk(at.to_owned())),
            Err(error) => {
                let test = std::thread::current().name().unwrap_or("full").to_owned();
                // Not through the captured output: scripts/check.sh counts the line.
                let _ = writeln!(
                    std::io::stderr(),
                    "\nSKIP unit: {test}: no small file system can be mounted here: {error}"
                );
                None
            }
        }
    }

    /// Takes all remaining room.
    fn fill(&self) {
        let mut filler =
            fs::OpenOptions::new().create(true).append(true).open(self.0.join("filler")).unwrap();
        for piece in [1 << 20, 4096] {
            while filler.write_all(&vec![1; piece]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() }
}

fn make(volume: &Volume, number: usize) -> Result<Vnode, StoreError> {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT)?.unwrap();
    let (no, unique) = volume.slots()?.allocate(false)?;
    let fid = Fid { volume: volume.id(), vnode: no, unique };
    let mut vnode = Vnode::new(fid, Kind::File, 0o644, 0, 0, VnodeNo::ROOT, Timestamp::default());
    let name = Name::new(number.to_string().as_bytes()).unwrap();
    volume.edit(&mut dir, &mut update).put_entry(&name, vnode.target())?;
    update.create_vnode(&vnode);
    update.put_vnode(&dir);
    volume.body(&mut vnode, &mut update)?.write(0, &body(number, 0))?;
    update.put_vnode(&vnode);
    volume.commit(update)?;
    Ok(vnode)
}

fn remove(volume: &Volume, number: usize) -> Result<(), StoreError> {
    let name = number.to_string();
    let Some(entry) = volume.lookup(VnodeNo::ROOT, name.as_bytes())? else { return Ok(()) };
    let vnode = volume.vnode(entry.target.vnode)?.unwrap();
    let mut dir = volume.vnode(VnodeNo::ROOT)?.unwrap();
    let mut update = Update::new();
    volume.edit(&mut dir, &mut update).remove_entry(name.as_bytes())?.unwrap();
    volume.drop_vnode(&vnode, &mut update)?;
    update.put_vnode(&dir);
    volume.commit(update)
}

fn new_partition(path: &Path) -> (Partition, Arc<Volume>) {
    let partition = Partition::create(path, &PartitionConfig::default(), options()).unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::default(),
        quota: VolumeQuota::default(),
    };
    let volume = partition.volumes().create_volume(&Name::new(b"root").unwrap(), &root).unwrap();
    (partition, volume)
}

/// Does not compress, so that tables take room too.
fn body(number: usize, round: usize) -> Vec<u8> {
    let mut state = (number as u64) << 32 | round as u64 | 1 << 63;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..BODY).map(|_| step()).collect()
}

/// Writes the next round of a file over the last one: only the log grows.
fn overwrite(
    volume: &Volume,
    vnode: &mut Vnode,
    number: usize,
    round: usize,
) -> Result<(), StoreError> {
    let mut update = Update::new();
    volume.body(vnode, &mut update)?.write(0, &body(number, round))?;
    update.put_vnode(vnode);
    volume.commit(update)
}

/// Every file is as after its last acknowledged round; `None`: removed.
fn check(partition: &Partition, rounds: &[Option<usize>]) {
    let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
    for (number, round) in rounds.iter().enumerate() {
        let entry = volume.lookup(VnodeNo::ROOT, number.to_string().as_bytes()).unwrap();
        assert_eq!(entry.is_some(), round.is_some(), "file {number}");
        if let (Some(entry), Some(round)) = (entry, round) {
            let vnode = volume.vnode(entry.target.vnode).unwrap().unwrap();
            assert!(
                volume.reader_of(&vnode).unwrap().read(0, 1 << 20).unwrap() == body(number, *round),
                "file {number}, round {round}"
            );
        }
    }
    let report = partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.findings, []);
}

/// Tries until it works again; meanwhile only "no space" is permitted.
fn until_room(partition: &Partition, mut attempt: impl FnMut() -> Result<(), StoreError>) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Ok(()) => return,
            Err(StoreError::NoSpace) if Instant::now() < end => {
                // As the server's background thread does.
                partition.sweep(100).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("there is room again: {error}"),
        }
    }
}

#[test]
fn a_disk_filled_to_the_last_byte_refuses_changes_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(dir.path(), 192 << 20) else { return };
    let path = dir.path().join("p");
    let (partition, volume) = new_partition(&path);
    let mut vnodes: Vec<Vnode> = (0..FILES).map(|number| make(&volume, number).unwrap()).collect();
    let mut rounds = vec![Some(0); FILES];
    partition.sync_all().unwrap();
    let verifier = partition.boot_verifier();

    for time in 0..3 {
        disk.fill();
        let mut refused = 0;
        for at in 0.. {
            let number = at % FILES;
            let Some(round) = rounds[number] else { continue };
            match overwrite(&volume, &mut vnodes[number], number, round + 1) {
                Ok(()) => rounds[number] = Some(round + 1),
                Err(StoreError::NoSpace) => refused += 1,
                Err(error) => panic!("a full disk is no broken one: {error}"),
            }
            if refused == 10 {
                break;
            }
            assert!(at < 100_000, "the disk is never full");
        }
        check(&partition, &rounds);
        println!("time {time}: refused after {:?} rounds", rounds.iter().flatten().max());
        disk.make_room();
        let number = time;
        until_room(&partition, || {
            overwrite(&volume, &mut vnodes[FILES - 1], FILES - 1, rounds[FILES - 1].unwrap() + 1)
        });
        rounds[FILES - 1] = rounds[FILES - 1].map(|round| round + 1);
        until_room(&partition, || remove(&volume, number));
        rounds[number] = None;
        partition.sync_all().unwrap();
        check(&partition, &rounds);
    }
    assert_eq!(partition.boot_verifier(), verifier, "nothing was lost");
    drop((volume, partition));
    check(&Partition::open(&path, options()).unwrap(), &rounds);
}

#[test]
fn small_files_fill_the_disk_and_their_removal_makes_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::new(dir.path(), 64 << 20) else { return };
    let path = dir.path().join("p");
    let (mut partition, mut volume) = new_partition(&path);
    let mut most = 0;
    for time in 0..3 {
        let mut made = 0;
        let mut refused = 0;
        while refused < 3 {
            match make(&volume, made) {
                Ok(_) => made += 1,
                Err(StoreError::NoSpace) => refused += 1,
                Err(error) => panic!("a full disk is no broken one: {error}"),
            }
            if refused > 0 {
                partition.sweep(100).unwrap();
            }
        }
        println!("time {time}: {made} files of {BODY} bytes");
        assert!(made * 2 > most, "room of removed files comes back: {made} files after {most}");
        most = most.max(made);
        partition.sync_all().unwrap();
        check(&partition, &vec![Some(0); made]);
        drop((volume, partition));
        partition = Partition::open(&path, options()).unwrap();
        volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
        for number in 0..made {
            until_room(&partition, || remove(&volume, number));
        }
        partition.sync_all().unwrap();
        until_room(&partition, || make(&volume, 0).map(drop));
        until_room(&partition, || remove(&volume, 0));
        check(&partition, &[]);
    }
}

#[test]
fn a_full_disk_refuses_to_open_and_damages_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(dir.path(), 64 << 20) else { return };
    let path = dir.path().join("p");
    let (partition, volume) = new_partition(&path);
    for number in 0..FILES {
        make(&volume, number).unwrap();
    }
    drop((volume, partition));
    for _ in 0..3 {
        disk.fill();
        match Partition::open(&path, options()) {
            Ok(partition) => check(&partition, &vec![Some(0); FILES]),
            Err(OpenError::Medium { why, .. }) => println!("refused: {why}"),
            Err(error) => panic!("a full disk is no damaged one: {error}"),
        }
        disk.make_room();
        check(&Partition::open(&path, options()).unwrap(), &vec![Some(0); FILES]);
    }
}
