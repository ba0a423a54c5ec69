//! Locks of whole files.

use afs3::files::FilesCall;
use afs3::structs::lock_type;
use afsfront::Refusal;

use crate::common::{JOE, Rig};

#[test]
fn locks_are_those_of_hosts() {
    let rig = Rig::new();
    let (one, two) = (rig.user(JOE), rig.user(JOE));
    let fid = rig.create(&one, "file");
    let lock = |user, kind| rig.call(user, FilesCall::SetLock { fid, kind }).map(drop);
    let release = |user| rig.call(user, FilesCall::ReleaseLock { fid }).map(drop);
    assert_eq!(lock(&one, lock_type::READ), Ok(()));
    assert_eq!(lock(&one, lock_type::READ), Ok(()), "they are counted");
    assert_eq!(lock(&two, lock_type::READ), Ok(()));
    assert_eq!(lock(&two, lock_type::WRITE), Err(Refusal::LOCKED));
    assert_eq!(release(&two), Ok(()));
    assert_eq!(release(&one), Ok(()));
    assert_eq!(lock(&two, lock_type::WRITE), Err(Refusal::LOCKED), "one has one more");
    assert_eq!(release(&one), Ok(()));
    assert_eq!(lock(&two, lock_type::WRITE), Ok(()));
    assert_eq!(lock(&one, lock_type::READ), Err(Refusal::LOCKED));
    assert_eq!(lock(&two, lock_type::READ), Err(Refusal::LOCKED), "the host's own lock");
    assert!(rig.call(&two, FilesCall::ExtendLock { fid }).is_ok());
    assert_eq!(rig.call(&one, FilesCall::ExtendLock { fid }), Err(Refusal::INVALID));
    assert_eq!(release(&one), Ok(()), "there is none: as stock servers have it");
    assert_eq!(lock(&one, lock_type::READ), Err(Refusal::LOCKED), "the other's stays");
    assert_eq!(release(&two), Ok(()));
    assert_eq!(lock(&one, 7), Err(Refusal::INVALID));
}

#[test]
fn locks_end_that_are_not_extended() {
    let rig = Rig::new();
    let (one, two) = (rig.user(JOE), rig.user(JOE));
    let fid = rig.create(&one, "file");
    let lock = |user| rig.call(user, FilesCall::SetLock { fid, kind: lock_type::WRITE }).map(drop);
    assert_eq!(lock(&one), Ok(()));
    rig.pass(200);
    rig.call(&one, FilesCall::ExtendLock { fid }).unwrap();
    rig.pass(200);
    rig.service.end_late_locks(&one, one.seat as u64);
    assert_eq!(lock(&two), Err(Refusal::LOCKED), "it was extended");
    rig.pass(150);
    rig.service.end_late_locks(&two, two.seat as u64);
    assert_eq!(lock(&two), Err(Refusal::LOCKED), "another host's");
    rig.service.end_late_locks(&one, one.seat as u64);
    assert_eq!(lock(&two), Ok(()));
}
