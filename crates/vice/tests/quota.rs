//! Quota: refused exactly at the limit, at the call, and freed again.

use crate::common::{Ground, Rig, name, remove, user, write};
use store::VolumeQuota;
use types::{AllocateMode, Answer, Call, Caller, CreateHow, Fault, Fid, NewKind, StatusChange};

const ROOT: Caller = Caller::ROOT;
const BLOCK: u64 = 16 << 10;
/// The root directory is charged.
const EMPTY: u64 = 4096;

fn rig(bytes: u64, files: u64) -> (Rig, Fid) {
    let mut rig = Rig::with_quota(Ground::memory(), 1, VolumeQuota { bytes, files });
    let root = rig.root();
    (rig, root)
}

fn make(dir: Fid, at: &str, kind: NewKind) -> Call {
    Call::Make { dir, name: name(at), kind, mode: 0o755, how: CreateHow::Guarded }
}

fn resize(fid: Fid, size: u64) -> Call {
    Call::SetStatus { fid, change: StatusChange { size: Some(size), ..Default::default() } }
}

#[test]
fn files_are_counted() {
    let (mut rig, root) = rig(0, 3);
    rig.file(root, "a");
    rig.directory(root, "b");
    assert_eq!(rig.call(0, &ROOT, make(root, "c", NewKind::Fifo)), Err(Fault::QuotaExceeded));
    assert_eq!(
        rig.call(0, &ROOT, Call::MakeUnnamed { dir: root, mode: 0 }),
        Err(Fault::QuotaExceeded)
    );
    let fid = rig.look(0, root, "a").unwrap();
    assert!(
        rig.call(0, &ROOT, Call::Link { fid, dir: root, name: name("l") }).is_ok(),
        "a name is no file"
    );
    rig.call(0, &ROOT, remove(root, "l")).unwrap();
    rig.call(0, &ROOT, remove(root, "a")).unwrap();
    assert!(rig.call(0, &ROOT, make(root, "c", NewKind::Fifo)).is_ok());
    assert_eq!(rig.usage().used_files, 3);
}

#[test]
fn the_last_byte_fits_and_the_next_does_not() {
    let (mut rig, root) = rig(EMPTY + 2 * BLOCK + 512, 0);
    let (large, small) = (rig.file(root, "large"), rig.file(root, "small"));
    rig.call(0, &ROOT, write(large, Some(0), &[1; 2 * BLOCK as usize])).unwrap();
    assert_eq!(rig.call(0, &ROOT, write(large, None, b"x")), Err(Fault::QuotaExceeded));
    assert!(
        rig.call(0, &ROOT, write(large, Some(5), &[2; 20_000])).is_ok(),
        "what is there may be overwritten"
    );
    assert!(rig.call(0, &ROOT, write(small, Some(0), &[3; 512])).is_ok());
    assert_eq!(rig.usage().used_bytes, rig.usage().quota_bytes);
    assert_eq!(rig.call(0, &ROOT, write(small, None, b"x")), Err(Fault::QuotaExceeded));
    assert_eq!(rig.call(0, &ROOT, make(root, "d", NewKind::Directory)), Err(Fault::QuotaExceeded));
    assert_eq!(
        rig.call(0, &ROOT, make(root, "l", NewKind::Symlink("x".into()))),
        Err(Fault::QuotaExceeded)
    );
    assert!(
        rig.call(0, &ROOT, make(root, "empty", NewKind::File)).is_ok(),
        "an empty file takes no bytes"
    );
    let read = Call::Read { fid: large, offset: 0, length: 40_000 };
    let Ok(Answer::Data { data, .. }) = rig.call(0, &ROOT, read) else { panic!() };
    assert_eq!(
        (data.len(), data[4], data[5], data[20_005]),
        (32_768, 1, 2, 1),
        "a refused write left nothing"
    );
    rig.call(0, &ROOT, resize(large, BLOCK)).unwrap();
    assert!(rig.call(0, &ROOT, make(root, "d", NewKind::Directory)).is_ok());
}

#[test]
fn holes_are_free_until_they_are_filled() {
    let (mut rig, root) = rig(EMPTY + 2 * BLOCK, 0);
    let file = rig.file(root, "sparse");
    rig.call(0, &ROOT, resize(file, 1 << 40)).unwrap();
    assert_eq!(rig.usage().used_bytes, EMPTY);
    rig.call(0, &ROOT, write(file, Some(1 << 39), b"x")).unwrap();
    rig.call(0, &ROOT, write(file, Some((1 << 39) + 100), b"in the same block")).unwrap();
    rig.call(0, &ROOT, write(file, Some(0), b"x")).unwrap();
    assert_eq!(rig.call(0, &ROOT, write(file, Some(1 << 20), b"x")), Err(Fault::QuotaExceeded));
    // Two blocks, one of which exists: one too much.
    assert_eq!(rig.call(0, &ROOT, write(file, Some(BLOCK - 1), b"xy")), Err(Fault::QuotaExceeded));
    let punch =
        Call::Allocate { fid: file, offset: 0, length: 1 << 20, mode: AllocateMode::PunchHole };
    rig.call(0, &ROOT, punch).unwrap();
    assert_eq!(rig.usage().used_bytes, EMPTY + BLOCK);
    assert!(rig.call(0, &ROOT, write(file, Some(1 << 20), b"x")).is_ok());
}

#[test]
fn what_was_reserved_can_be_written() {
    let (mut rig, root) = rig(EMPTY + 4 * BLOCK, 0);
    let file = rig.file(root, "f");
    let reserve =
        |length| Call::Allocate { fid: file, offset: 0, length, mode: AllocateMode::KeepSize };
    assert_eq!(rig.call(0, &ROOT, reserve(4 * BLOCK + 1)), Err(Fault::QuotaExceeded));
    rig.call(0, &ROOT, reserve(4 * BLOCK)).unwrap();
    assert_eq!(rig.usage().used_bytes, EMPTY + 4 * BLOCK);
    for block in 0..4 {
        rig.call(0, &ROOT, write(file, Some(block * BLOCK), &[1; BLOCK as usize])).unwrap();
    }
    assert_eq!(rig.call(0, &ROOT, write(file, None, b"x")), Err(Fault::QuotaExceeded));
}

#[test]
fn reserving_room_that_a_small_file_has_anyway_is_free() {
    let (mut rig, root) = rig(EMPTY + 100, 0);
    let file = rig.file(root, "f");
    rig.call(0, &ROOT, write(file, Some(0), &[1; 100])).unwrap();
    let reserve = |mode| Call::Allocate { fid: file, offset: 0, length: 5000, mode };
    assert!(rig.call(0, &ROOT, reserve(AllocateMode::KeepSize)).is_ok());
    assert!(rig.call(0, &ROOT, reserve(AllocateMode::ZeroKeepSize)).is_ok());
    assert_eq!(rig.call(0, &ROOT, reserve(AllocateMode::Extend)), Err(Fault::QuotaExceeded));
    assert_eq!(rig.usage().used_bytes, EMPTY + 100);
}

#[test]
fn a_small_file_that_grows_large_is_charged_anew() {
    // 300 bytes are charged as such; past 16 KiB the file takes blocks: the first for its old
    // content.
    let (mut rig, root) = rig(EMPTY + 2 * BLOCK, 0);
    let file = rig.file(root, "f");
    rig.call(0, &ROOT, write(file, Some(0), &[1; 300])).unwrap();
    assert_eq!(rig.usage().used_bytes, EMPTY + 300);
    assert_eq!(
        rig.call(0, &ROOT, write(file, Some(BLOCK * 5), &[1; BLOCK as usize + 1])),
        Err(Fault::QuotaExceeded)
    );
    rig.call(0, &ROOT, write(file, Some(BLOCK * 5), &[1; BLOCK as usize])).unwrap();
    assert_eq!(rig.usage().used_bytes, EMPTY + 2 * BLOCK);
}

#[test]
fn only_the_superuser_sets_a_quota_and_a_lower_one_stops_growth() {
    let (mut rig, root) = rig(0, 0);
    let file = rig.file(root, "f");
    rig.call(0, &ROOT, write(file, Some(0), &[1; 1000])).unwrap();
    let quota = |bytes, files| Call::SetQuota { fid: root, bytes, files };
    assert_eq!(rig.call(0, &user(10, 10, &[]), quota(1, 1)), Err(Fault::NotPermitted));
    let Ok(Answer::Volume(status)) = rig.call(0, &ROOT, quota(1, 1)) else { panic!() };
    assert_eq!((status.quota_bytes, status.quota_files), (1, 1));
    assert_eq!(rig.call(0, &ROOT, write(file, Some(0), &[1; 2000])), Err(Fault::QuotaExceeded));
    assert!(rig.call(0, &ROOT, write(file, Some(0), &[1; 1000])).is_ok());
    assert!(rig.call(0, &ROOT, resize(file, 10)).is_ok());
    assert!(rig.call(0, &ROOT, remove(root, "f")).is_ok());
    rig.restart();
    rig.reclaim(0);
    assert_eq!(rig.usage().quota_bytes, 1);
}

#[test]
fn a_full_partition_says_so_at_the_call() {
    let (mut rig, root) = rig(0, 0);
    let file = rig.file(root, "f");
    let Ground::Memory(machine) = &rig.ground else { panic!() };
    machine.set_capacity(1 << 20);
    let mut written = 0;
    let refused = loop {
        match rig.call(0, &ROOT, write(file, None, &[1; 64 << 10])) {
            Ok(_) => written += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(refused, Fault::NoSpace);
    assert!(written <= 16);
    assert!(rig.call(0, &ROOT, remove(root, "f")).is_ok(), "removal makes room");
}
