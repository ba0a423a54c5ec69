//! Moves and copies: the volume is at one of two servers, with all that was written, at whichever
//! step the operation is interrupted.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::{Cell, Files, PARTITION, lead, lead_as, stop_everywhere};
use celldb::CellError;
use types::{Status, VolumeCall, VolumeKind};
use vos::{JobEvent, Moved, Servers, VosError};

fn move_it(cell: &Cell, servers: &dyn Servers, to: usize) -> Result<Moved, VosError> {
    lead(servers, |job| vos::move_volume(job, cell.group("home").unwrap(), cell.ids[to], PARTITION))
}

fn written(cell: &Cell) -> Files {
    cell.files(0, "home").unwrap()
}

fn prepare(cell: &mut Cell) {
    cell.make("home", 0);
    cell.write(0, "home", "one", b"first");
    cell.write(0, "home", "two", &[7; 100_000]);
}

/// Checks that the volume is at this server alone, and takes changes.
fn is_at(cell: &Cell, at: usize, wanted: &Files, why: &str) {
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.busy, None, "{why}");
    assert_eq!(group.read_write_site().map(|site| site.server), Some(cell.ids[at]), "{why}");
    for number in 0..cell.ids.len() {
        let heads = cell
            .volumes(number)
            .into_iter()
            .filter(|one| one.kind == VolumeKind::ReadWrite)
            .count();
        assert_eq!(
            heads,
            usize::from(number == at),
            "{why}: server {number} has {:?}",
            cell.names(number)
        );
        let moving = cell.names(number).into_iter().filter(|name| name.contains("moving")).count();
        assert_eq!(moving, 0, "{why}: server {number} has {:?}", cell.names(number));
    }
    assert_eq!(cell.files(at, "home").as_ref(), Some(wanted), "{why}");
    cell.write(at, "home", "after", why.as_bytes());
    assert!(cell.files(at, "home").unwrap().contains_key("after"), "{why}");
}

#[test]
fn a_volume_goes_with_all_that_it_holds_and_back() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = written(&cell);
    let id = cell.group("home").unwrap().record.read_write;
    let head = |cell: &Cell, number: usize| {
        cell.volumes(number).iter().find(|one| one.id == id).unwrap().epoch
    };
    let written_before = head(&cell, 0);
    let moved = move_it(&cell, &cell.reach, 1).unwrap();
    assert!(moved.rounds > 0 && moved.bytes > 100_000, "{moved:?}");
    let sealed_there = written_before + u64::from(moved.rounds);
    assert!(
        head(&cell, 1) > sealed_there,
        "no epoch that was sealed before the move is written behind it"
    );
    is_at(&cell, 1, &before, "there");
    assert_eq!(cell.group("home").unwrap().record.read_write, id);
    assert_eq!(cell.names(0), [""; 0]);
    let now = cell.files(1, "home").unwrap();
    move_it(&cell, &cell.reach, 0).unwrap();
    is_at(&cell, 0, &now, "back");
    let refused = move_it(&cell, &cell.reach, 0).unwrap_err();
    assert!(matches!(refused, VosError::Unfit(_)), "{refused}");
}

#[test]
fn times_of_access_and_their_recording_go_with_a_volume() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let at = |cell: &Cell, number: usize| cell.status(number, "home", "one");
    let created = at(&cell, 0);
    let read = created.changed.later(Duration::from_nanos(1));
    cell.record_reads(0, "home", true);
    cell.note_read(0, "home", "one", read);
    let before = at(&cell, 0);
    assert_eq!(before, Status { accessed: read, read_times: true, ..created });
    move_it(&cell, &cell.reach, 1).unwrap();
    assert_eq!(at(&cell, 1), before);
    let later = read.later(Duration::from_nanos(1));
    cell.note_read(1, "home", "one", later);
    cell.crash(1);
    cell.start(1);
    assert_eq!(at(&cell, 1), Status { accessed: later, ..before });
    // Off, it is off there, too; and this server had it when it was on.
    cell.record_reads(1, "home", false);
    move_it(&cell, &cell.reach, 0).unwrap();
    let off = Status { accessed: later, read_times: false, ..before };
    assert_eq!(at(&cell, 0), off);
    cell.note_read(0, "home", "one", later.later(Duration::from_nanos(1)));
    assert_eq!(at(&cell, 0), off);
}

#[test]
fn an_interrupted_move_moves_all_or_nothing_and_is_finished() {
    let before = Mutex::new(Files::new());
    stop_everywhere(
        2,
        |cell| {
            prepare(cell);
            *before.lock().unwrap() = written(cell);
        },
        |cell, servers| move_it(cell, servers, 1).map(drop),
        |cell, why| {
            match move_it(cell, &cell.reach, 1) {
                // The interrupted move was already complete.
                Ok(_) => {}
                Err(VosError::Unfit(why)) if why == "it is there" => {}
                Err(error) => panic!("{error}: {why}"),
            }
            is_at(cell, 1, &before.lock().unwrap(), why);
        },
    );
}

#[test]
fn a_moved_release_is_the_base_of_the_next_release() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    let group = || cell.group("home").unwrap();
    lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[2], PARTITION)).unwrap();
    lead(&cell.reach, |job| vos::release(job, group())).unwrap();
    let released = cell.files(2, "home.readonly").unwrap();
    move_it(&cell, &cell.reach, 1).unwrap();
    assert_eq!(cell.files(2, "home.readonly"), Some(released));
    cell.write(1, "home", "one", b"later");
    let sent = lead(&cell.reach, |job| vos::release(job, group())).unwrap();
    assert!(sent.sites[0].1 < 50_000, "only the change is sent: {sent:?}");
    assert_eq!(cell.files(2, "home.readonly"), cell.files(1, "home"));
}

#[test]
fn a_server_that_is_away_changes_nothing() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = written(&cell);
    cell.crash(1);
    move_it(&cell, &cell.reach, 1).unwrap_err();
    is_at_alone(&cell, &before);
    cell.start(1);
    move_it(&cell, &cell.reach, 1).unwrap();
    is_at(&cell, 1, &written_at(&cell, 1), "it is back");
}

fn is_at_alone(cell: &Cell, wanted: &Files) {
    assert_eq!(cell.group("home").unwrap().record.busy, None);
    assert_eq!(&written(cell), wanted);
    cell.write(0, "home", "meanwhile", b"it takes changes");
}

fn written_at(cell: &Cell, number: usize) -> Files {
    cell.files(number, "home").unwrap()
}

#[test]
fn what_is_only_said_moves_nothing() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = written(&cell);
    lead(&cell.reach, |job| vos::backup(job, cell.group("home").unwrap())).unwrap();
    let reported = Mutex::new(String::new());
    let tell = |event: JobEvent<'_>| {
        if let JobEvent::Step(text) | JobEvent::Note(text) = event {
            reported.lock().unwrap().push_str(text);
        }
    };
    let group = cell.group("home").unwrap();
    lead_as(&cell.reach, true, true, &tell, |job| {
        vos::move_volume(job, group, cell.ids[1], PARTITION)
    })
    .unwrap();
    let reported = reported.into_inner().unwrap();
    assert!(
        reported.contains("home.backup is not moved") && reported.contains("freeze it"),
        "{reported}"
    );
    is_at_alone(&cell, &before);
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(30), "waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_leader_that_is_late_cannot_take_the_volume_away() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let seen = cell.group("home").unwrap();
    let id = seen.record.read_write;
    cell.reach.call(cell.ids[0], VolumeCall::Hold { id, millis: 100 }).unwrap();
    // When the freeze is over the server asks the database, and writes the record again.
    wait_for(|| cell.group("home").unwrap().revision > seen.revision);
    wait_for(|| cell.files(0, "home").is_some());
    cell.write(0, "home", "late", b"changed when it served again");
    let mut moved = seen.record;
    moved.sites[0].server = cell.ids[1];
    let refused = cell.reach.db().put_group(&moved, seen.revision).unwrap_err();
    assert!(matches!(refused, CellError::Conflict { .. }), "{refused}");
    assert!(written(&cell).contains_key("late"));
    move_it(&cell, &cell.reach, 1).unwrap();
    assert!(written_at(&cell, 1).contains_key("late"));
}

#[test]
fn a_volume_that_was_released_comes_back_at_once() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let group = || cell.group("home").unwrap();
    lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[1], PARTITION)).unwrap();
    lead(&cell.reach, |job| vos::release(job, group())).unwrap();
    move_it(&cell, &cell.reach, 1).unwrap();
    // The volume that was removed here is still being swept.
    move_it(&cell, &cell.reach, 0).unwrap();
    is_at(&cell, 0, &written(&cell), "back");
}

#[test]
fn backup_and_snapshots_come_along_when_that_is_asked_for() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let group = || cell.group("home").unwrap();
    let id = group().record.read_write;
    let seal = VolumeCall::Clone {
        id: None,
        of: id,
        name: crate::common::name("home.snapshot.a"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    cell.reach.call(cell.ids[0], seal).unwrap();
    let snapshot = written(&cell);
    cell.write(0, "home", "one", b"later");
    lead(&cell.reach, |job| vos::backup(job, group())).unwrap();
    let backup = written(&cell);
    cell.write(0, "home", "one", b"still later");
    let (before, names) = (written(&cell), cell.names(0));
    lead(&cell.reach, |job| vos::move_group(job, group(), cell.ids[1], PARTITION)).unwrap();
    assert_eq!((cell.names(0), cell.names(1)), (Vec::new(), names));
    assert_eq!(cell.files(1, "home.snapshot.a"), Some(snapshot));
    assert_eq!(cell.files(1, "home.backup"), Some(backup));
    assert!(group().record.backup.is_some());
    is_at(&cell, 1, &before, "with its group");
}

#[test]
fn a_read_only_site_moves_as_it_is_whoever_is_stopped() {
    let shown = Mutex::new(Files::new());
    let act = |cell: &Cell, servers: &dyn Servers| {
        let group = cell.group("home").unwrap();
        lead(servers, |job| vos::move_site(job, group, cell.ids[1], cell.ids[2], PARTITION))
    };
    stop_everywhere(
        3,
        |cell| {
            prepare(cell);
            let group = || cell.group("home").unwrap();
            lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[1], PARTITION)).unwrap();
            lead(&cell.reach, |job| vos::release(job, group())).unwrap();
            *shown.lock().unwrap() = written(cell);
            cell.write(0, "home", "one", b"not released");
        },
        act,
        |cell, why| {
            match act(cell, &cell.reach) {
                Ok(()) => {}
                // The interrupted move was already complete.
                Err(VosError::Unfit(reported)) if reported.contains("is no read-only site") => {}
                Err(error) => panic!("{error}: {why}"),
            }
            assert_eq!(
                cell.files(2, "home.readonly").as_ref(),
                Some(&*shown.lock().unwrap()),
                "{why}"
            );
            assert_eq!(
                (cell.files(1, "home.readonly"), cell.names(1)),
                (None, Vec::new()),
                "{why}"
            );
            let group = cell.group("home").unwrap();
            assert_eq!((group.record.busy.clone(), group.record.sites.len()), (None, 2), "{why}");
            // The next release finds the epoch that it starts from.
            let sent = lead(&cell.reach, |job| vos::release(job, group)).unwrap();
            assert!(sent.sites[0].1 < 50_000, "{sent:?}: {why}");
            assert_eq!(cell.files(2, "home.readonly"), cell.files(0, "home"), "{why}");
        },
    );
}
