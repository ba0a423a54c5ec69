//! Programs without a mount whose volume moves: their opens and locks go with it.

use std::time::{Duration, Instant};

use client::Endpoint;
use rialto_client::{
    ByteRange, DataUse, DirectCell, DirectError, DirectFile, DirectOptions, FileReader, LockMode,
    MakeFile, OpenHow,
};
use types::Fault;

use crate::common::{Cell, PARTITION, lead};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn program(cell: &Cell) -> DirectCell {
    let socket = cell.servers[0].1.unix_socket.clone().unwrap();
    let options = DirectOptions::new(Endpoint::Unix(socket));
    DirectCell::connect(DirectOptions { root: "home".into(), ..options }).unwrap()
}

fn content(cell: &DirectCell, file: &DirectFile) -> Result<Vec<u8>, DirectError> {
    Ok(FileReader::new(cell, file.clone())?.chunk()?.to_vec())
}

fn fault<T>(result: Result<T, DirectError>) -> Option<Fault> {
    match result {
        Err(DirectError::Refused(fault)) => Some(fault),
        Err(other) => panic!("{other:?}"),
        Ok(_) => None,
    }
}

#[test]
fn opens_and_locks_of_programs_go_with_their_volume() {
    let cell = Cell::with_partitions(2, 2);
    cell.make("home", 0);
    cell.write(0, "home", "opened", b"mine");
    cell.write(0, "home", "locked", b"mine");
    let (mine, theirs) = (program(&cell), program(&cell));
    let alone = OpenHow {
        deny: DataUse::Both,
        make: MakeFile::IfMissing(0o644),
        ..OpenHow::new(DataUse::Both)
    };
    let opened = DirectFile::open_with(&mine, "opened", &alone).unwrap();
    let locked = DirectFile::open(&mine, "locked").unwrap();
    let range = ByteRange { start: 3, end: 5 };
    let lock = locked.lock(range, LockMode::Exclusive, AT_ONCE).unwrap();
    let other = DirectFile::open(&theirs, "locked").unwrap();
    for (server, partition) in [(1, PARTITION), (1, "/vicepb")] {
        let group = cell.group("home").unwrap();
        let to = cell.ids[server];
        lead(&cell.reach, |job| vos::move_volume(job, group, to, partition)).unwrap();
        assert_eq!(content(&mine, &opened).unwrap(), b"mine", "{server}{partition}");
        assert_eq!(content(&mine, &locked).unwrap(), b"mine", "{server}{partition}");
        let theirs = DirectFile::open_with(&theirs, "opened", &alone).map(drop);
        assert_eq!(fault(theirs), Some(Fault::ShareConflict), "{server}{partition}");
        let shared = other.lock(range, LockMode::Shared, AT_ONCE).map(drop);
        assert_eq!(fault(shared), Some(Fault::Locked), "{server}{partition}");
    }
    lock.unlock().unwrap();
    opened.close().unwrap();
    drop(other.lock(range, LockMode::Exclusive, AT_ONCE).unwrap());
    DirectFile::open_with(&theirs, "opened", &alone).unwrap().close().unwrap();
}

#[test]
fn a_program_that_makes_no_calls_claims_at_the_next_place() {
    let cell = Cell::new(2);
    cell.make("home", 0);
    cell.write(0, "home", "locked", b"mine");
    let (mine, theirs) = (program(&cell), program(&cell));
    let locked = DirectFile::open(&mine, "locked").unwrap();
    let lock = locked.lock(ByteRange::ALL, LockMode::Exclusive, AT_ONCE).unwrap();
    let other = DirectFile::open(&theirs, "locked").unwrap();
    let group = cell.group("home").unwrap();
    lead(&cell.reach, |job| vos::move_volume(job, group, cell.ids[1], PARTITION)).unwrap();
    // The claim comes by itself, within moments.
    let until = Instant::now() + Duration::from_secs(10);
    let taken = || other.test_lock(rialto_client::LockOwner(1), ByteRange::ALL, LockMode::Shared);
    while taken().unwrap().is_none() {
        assert!(Instant::now() < until, "no claim");
        std::thread::sleep(Duration::from_millis(10));
    }
    lock.unlock().unwrap();
    drop(other.lock(ByteRange::ALL, LockMode::Exclusive, AT_ONCE).unwrap());
}
