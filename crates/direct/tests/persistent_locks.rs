//! Persistent locks of programs: work that was finished, work that was not, restarts of the server
//! (docs/spec/sharing.md).

use std::time::Duration;

use rialto_client::{
    ByteRange, DataUse, DirectError, DirectFile, LockMode, MakeFile, OpenHow, PersistentLock,
};
use types::Fault;

use crate::Served;

const ALL: ByteRange = ByteRange::ALL;
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_secs(10));

fn how() -> OpenHow {
    OpenHow { make: MakeFile::IfMissing(0o644), ..OpenHow::new(DataUse::Both) }
}

fn fault<T>(result: Result<T, DirectError>) -> Option<Fault> {
    match result {
        Err(DirectError::Refused(fault)) => Some(fault),
        Err(other) => panic!("{other:?}"),
        Ok(_) => None,
    }
}

fn lock(file: &DirectFile) -> Option<Fault> {
    fault(file.lock(ALL, LockMode::Exclusive, AT_ONCE))
}

#[test]
fn pl1_who_does_not_finish_is_reported_until_a_repair() {
    let served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let mine = DirectFile::open_with(&a, "file", &how()).unwrap();
    let theirs = DirectFile::open_with(&b, "file", &how()).unwrap();

    let work = mine.lock_persistently(ALL, AT_ONCE).unwrap();
    assert_eq!(lock(&theirs), Some(Fault::Locked));
    assert_eq!(fault(theirs.lock_to_repair(ALL)), Some(Fault::Locked));
    work.finish().unwrap();
    assert_eq!(lock(&theirs), None, "its work was done");

    drop(mine.lock_persistently(ALL, AT_ONCE).unwrap());
    assert_eq!(lock(&theirs), Some(Fault::LockBroken));
    assert_eq!(fault(theirs.lock_persistently(ALL, AT_ONCE)), Some(Fault::LockBroken));
    assert_eq!(lock(&mine), Some(Fault::LockBroken), "its own next one, too");
    let repair = theirs.lock_to_repair(ALL).unwrap();
    assert_eq!(repair.range(), ALL);
    assert_eq!(lock(&mine), Some(Fault::Locked));
    repair.finish().unwrap();
    assert_eq!(lock(&mine), None);
}

#[test]
fn pl1_who_waits_for_a_program_that_dies_learns_of_it() {
    let served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let mine = DirectFile::open_with(&a, "file", &how()).unwrap();
    let theirs = DirectFile::open_with(&b, "file", &how()).unwrap();
    let work: PersistentLock = mine.lock_persistently(ALL, AT_ONCE).unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| fault(theirs.lock(ALL, LockMode::Shared, SOON)));
        std::thread::sleep(Duration::from_millis(100));
        // The file and all that it has end together, as with a program.
        mine.close().unwrap();
        assert_eq!(waiting.join().unwrap(), Some(Fault::LockBroken));
    });
    assert!(matches!(work.finish(), Err(DirectError::Closed)));
}

#[test]
fn pl2_a_persistent_lock_holds_over_restarts_of_the_server() {
    let mut served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let mine = DirectFile::open_with(&a, "file", &how()).unwrap();
    let theirs = DirectFile::open_with(&b, "file", &how()).unwrap();
    let work = mine.lock_persistently(ALL, AT_ONCE).unwrap();
    for _ in 0..2 {
        served.crash();
        served.start();
        assert_eq!(lock(&theirs), Some(Fault::Locked), "it was claimed");
    }
    work.finish().unwrap();
    assert_eq!(lock(&theirs), None);
    let repair = theirs.lock_to_repair(ALL).unwrap();
    served.crash();
    served.start();
    assert_eq!(lock(&mine), Some(Fault::Locked));
    repair.finish().unwrap();
    assert_eq!(lock(&mine), None);
}
