//! Two partitions of one server: a volume is on one of them, with all that was written, at
//! whichever step an operation is interrupted.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::{Cell, Files, PARTITION, lead, name, stop_everywhere_in};
use types::{Beside, Fault, PartitionNo, SiteKind, VolumeCall, VolumeId, VolumeKind, VolumeState};
use vos::{Moved, Servers, VosError};

const OTHER: &str = "/vicepb";

fn move_it(cell: &Cell, servers: &dyn Servers, partition: &str) -> Result<Moved, VosError> {
    lead(servers, |job| vos::move_volume(job, cell.group("home").unwrap(), cell.ids[0], partition))
}

fn cell() -> Cell {
    Cell::with_partitions(1, 2)
}

fn prepare(cell: &mut Cell) {
    cell.make("home", 0);
    cell.write(0, "home", "one", b"first");
    cell.write(0, "home", "two", &[7; 100_000]);
}

fn written(cell: &Cell) -> Files {
    cell.files(0, "home").unwrap()
}

fn number(cell: &Cell) -> VolumeId {
    cell.group("home").unwrap().record.read_write
}

/// Checks that the volume is on this partition alone, and takes changes.
fn is_on(cell: &Cell, on: u32, wanted: &Files, why: &str) {
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.busy, None, "{why}");
    let site = group.read_write_site().unwrap();
    assert_eq!(
        (site.server, &*site.partition),
        (cell.ids[0], [PARTITION, OTHER][on as usize]),
        "{why}"
    );
    assert_eq!(cell.names_on(0, 1 - on), [""; 0], "{why}");
    let here = cell.volumes_on(0, on);
    let heads: Vec<_> = here.iter().filter(|one| one.kind == VolumeKind::ReadWrite).collect();
    assert_eq!(
        (heads.len(), heads[0].id, heads[0].state),
        (1, group.read_write, VolumeState::Online),
        "{why}"
    );
    assert!(
        here.iter().all(|one| !crate::common::text(&one.name).contains("moving")),
        "{why}: {:?}",
        cell.names_on(0, on)
    );
    assert_eq!(cell.files(0, "home").as_ref(), Some(wanted), "{why}");
    cell.write(0, "home", "after", why.as_bytes());
    assert!(written(cell).contains_key("after"), "{why}");
}

#[test]
fn a_volume_goes_to_another_partition_and_back() {
    let mut cell = cell();
    prepare(&mut cell);
    let (before, id) = (written(&cell), number(&cell));
    let moved = move_it(&cell, &cell.reach, OTHER).unwrap();
    assert!(moved.rounds > 0 && moved.bytes > 100_000, "{moved:?}");
    is_on(&cell, 1, &before, "there");
    assert_eq!(number(&cell), id);
    let now = written(&cell);
    move_it(&cell, &cell.reach, PARTITION).unwrap();
    is_on(&cell, 0, &now, "back");
    let refused = move_it(&cell, &cell.reach, PARTITION).unwrap_err();
    assert_eq!(refused, VosError::Unfit("it is there".into()));
}

#[test]
fn a_move_that_is_stopped_is_finished_by_the_next() {
    let before = Mutex::new(Files::new());
    stop_everywhere_in(
        &cell,
        |cell| {
            prepare(cell);
            *before.lock().unwrap() = written(cell);
        },
        |cell, servers| move_it(cell, servers, OTHER).map(drop),
        |cell, why| {
            match move_it(cell, &cell.reach, OTHER) {
                Ok(_) => {}
                // The interrupted move was already complete.
                Err(VosError::Unfit(reported)) if reported == "it is there" => {}
                Err(error) => panic!("{error}: {why}"),
            }
            is_on(cell, 1, &before.lock().unwrap(), why);
        },
    );
}

fn wait_for(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "waited too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_crashes_in_a_move_serves_the_recorded_volume() {
    // Crashes before the switch, after it, and after the source was removed.
    std::thread::scope(|scope| {
        for (stopped_at, on, heads) in [(6, 0, 2), (7, 1, 2), (8, 1, 1)] {
            scope.spawn(move || dies_on_the_way(stopped_at, on, heads));
        }
    });
}

fn dies_on_the_way(stopped_at: i64, on: u32, heads: usize) {
    let mut cell = cell();
    prepare(&mut cell);
    let before = written(&cell);
    let stopped = crate::common::Stopped::new(&cell.reach, stopped_at, false);
    move_it(&cell, &stopped, OTHER).unwrap_err();
    let site = cell.group("home").unwrap().record.read_write_site().unwrap().clone();
    assert_eq!(site.partition, [PARTITION, OTHER][on as usize], "stopped at {stopped_at}");
    assert_eq!(
        cell.volumes(0).iter().filter(|one| one.kind == VolumeKind::ReadWrite).count(),
        heads
    );
    cell.crash(0);
    cell.start(0);
    wait_for(|| cell.files(0, "home").is_some());
    assert_eq!(written(&cell), before);
    let heads = |cell: &Cell, on: u32| {
        cell.volumes_on(0, on).iter().any(|one| one.state == VolumeState::Online)
    };
    assert!(heads(&cell, on), "the one that the database names");
    cell.write(0, "home", "one", b"changed");
    let now = written(&cell);
    move_it(&cell, &cell.reach, OTHER).unwrap();
    is_on(&cell, 1, &now, "finished");
}

#[test]
fn what_was_released_and_its_sites_come_along() {
    let mut cell = Cell::with_partitions(2, 2);
    prepare(&mut cell);
    let group = || cell.group("home").unwrap();
    for at in [0, 1] {
        lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[at], PARTITION)).unwrap();
    }
    lead(&cell.reach, |job| vos::release(job, group())).unwrap();
    let released = cell.files(0, "home.readonly").unwrap();
    cell.write(0, "home", "one", b"later");
    lead(&cell.reach, |job| vos::backup(job, group())).unwrap();
    move_it(&cell, &cell.reach, OTHER).unwrap();
    assert_eq!(
        (cell.names_on(0, 0), cell.names_on(0, 1)),
        (vec![], vec!["home".into(), "home.readonly".into()])
    );
    assert_eq!(cell.files(0, "home.readonly").as_ref(), Some(&released));
    assert_eq!(group().record.backup, None, "it stayed behind");
    let on = |at: usize| {
        group()
            .record
            .sites
            .iter()
            .filter(|site| site.server == cell.ids[at])
            .map(|site| site.partition.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (on(0), on(1)),
        (vec![OTHER.to_owned(), OTHER.to_owned()], vec![PARTITION.to_owned()])
    );
    let sent = lead(&cell.reach, |job| vos::release(job, group())).unwrap();
    assert!(
        sent.sites.iter().all(|(_, bytes)| *bytes < 50_000),
        "only the change is sent: {sent:?}"
    );
    assert_eq!(cell.files(0, "home.readonly"), cell.files(1, "home.readonly"));
    // The move takes the group along.
    lead(&cell.reach, |job| vos::backup(job, group())).unwrap();
    let names = cell.names_on(0, 1);
    lead(&cell.reach, |job| vos::move_group(job, group(), cell.ids[0], PARTITION)).unwrap();
    assert_eq!((cell.names_on(0, 0), cell.names_on(0, 1)), (names, vec![]));
    assert!(group().record.backup.is_some());
}

#[test]
fn an_interrupted_site_move_to_a_partition_is_finished() {
    let act = |cell: &Cell, servers: &dyn Servers| {
        let group = cell.group("home").unwrap();
        lead(servers, |job| vos::move_site(job, group, cell.ids[1], cell.ids[1], OTHER))
    };
    stop_everywhere_in(
        &|| Cell::with_partitions(2, 2),
        |cell| {
            prepare(cell);
            cell.write(0, "home", "one", b"released");
            let group = || cell.group("home").unwrap();
            lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[1], PARTITION)).unwrap();
            lead(&cell.reach, |job| vos::release(job, group())).unwrap();
        },
        act,
        |cell, why| {
            act(cell, &cell.reach).unwrap();
            assert_eq!(
                (cell.names_on(1, 0), cell.names_on(1, 1)),
                (vec![], vec!["home.readonly".into()]),
                "{why}"
            );
            assert_eq!(cell.files(1, "home.readonly"), cell.files(0, "home"), "{why}");
            let group = cell.group("home").unwrap();
            let site =
                group.record.sites.iter().find(|site| site.kind == SiteKind::ReadOnly).unwrap();
            assert_eq!(
                (site.partition.as_str(), group.record.busy.clone()),
                (OTHER, None),
                "{why}"
            );
            cell.write(0, "home", "one", b"later");
            let sent = lead(&cell.reach, |job| vos::release(job, group)).unwrap();
            assert!(sent.lagging.is_empty() && sent.sites[0].1 < 50_000, "{sent:?}: {why}");
        },
    );
}

#[test]
fn what_the_database_names_does_not_leave() {
    let mut cell = cell();
    prepare(&mut cell);
    let (id, before) = (number(&cell), written(&cell));
    let leave = |no: u32| {
        let call = VolumeCall::Beside { id, partition: PartitionNo(no), what: Beside::Leave };
        cell.reach.call(cell.ids[0], call)
    };
    assert_eq!(leave(0).unwrap_err().fault(), Some(Fault::Conflict));
    leave(1).unwrap();
    let stopped = crate::common::Stopped::new(&cell.reach, 8, false);
    move_it(&cell, &stopped, OTHER).unwrap_err();
    assert_eq!(
        leave(1).unwrap_err().fault(),
        Some(Fault::Conflict),
        "the database says that it is there"
    );
    move_it(&cell, &cell.reach, OTHER).unwrap();
    is_on(&cell, 1, &before, "finished");
}

#[test]
fn copies_and_clones_are_independent_on_every_partition() {
    let mut cell = cell();
    prepare(&mut cell);
    let before = written(&cell);
    let new = |called: &str, partition: &str| vos::NewVolume {
        partition: partition.into(),
        ..cell.new_volume(called, 0)
    };
    lead(&cell.reach, |job| vos::copy(job, &cell.group("home").unwrap(), &new("copy", OTHER)))
        .unwrap();
    assert_eq!(
        (cell.names_on(0, 0), cell.names_on(0, 1)),
        (vec!["home".into()], vec!["copy".into()])
    );
    assert_eq!(cell.files(0, "copy").as_ref(), Some(&before));
    // A clone stays on its partition when its origin is removed.
    let of = vos::find(&cell.reach, &crate::common::by_name("home"), None).unwrap();
    lead(&cell.reach, |job| vos::clone_writable(job, &of, &name("clone"))).unwrap();
    move_it(&cell, &cell.reach, OTHER).unwrap();
    assert_eq!(cell.names_on(0, 0), ["clone"]);
    move_it(&cell, &cell.reach, PARTITION).unwrap();
    assert_eq!(
        (cell.files(0, "clone"), cell.files(0, "home")),
        (Some(before.clone()), Some(before))
    );
}

#[test]
fn what_clones_need_of_a_tree_bars_no_site_beside_it() {
    let mut cell = Cell::with_partitions(2, 2);
    prepare(&mut cell);
    let before = written(&cell);
    let of = vos::find(&cell.reach, &crate::common::by_name("home"), None).unwrap();
    lead(&cell.reach, |job| vos::clone_writable(job, &of, &name("clone"))).unwrap();
    let group = || cell.group("home").unwrap();
    let move_to = |at: usize, partition| {
        lead(&cell.reach, |job| vos::move_volume(job, group(), cell.ids[at], partition)).unwrap();
    };
    move_to(1, PARTITION);
    assert_eq!((cell.names_on(0, 0), cell.names_on(0, 1).len()), (vec!["clone".into()], 0));
    lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[0], OTHER)).unwrap();
    for round in 0..2 {
        cell.write(1, "home", "one", &[round]);
        lead(&cell.reach, |job| vos::release(job, group())).unwrap();
        assert_eq!(cell.names_on(0, 1), ["home.readonly"]);
        assert_eq!(cell.files(0, "home.readonly"), cell.files(1, "home"));
    }
    move_to(0, OTHER);
    assert_eq!(cell.names_on(0, 1), ["home", "home.readonly"]);
    assert_eq!(cell.files(0, "clone"), Some(before));
}

#[test]
fn a_former_site_bars_no_site_on_another_partition() {
    let mut cell = Cell::with_partitions(2, 2);
    prepare(&mut cell);
    let group = || cell.group("home").unwrap();
    let add = |partition| {
        lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[1], partition)).unwrap();
    };
    let release = || {
        let released = lead(&cell.reach, |job| vos::release(job, group())).unwrap();
        assert_eq!(released.lagging, []);
    };
    add(PARTITION);
    release();
    // Its volume stays.
    lead(&cell.reach, |job| vos::remove_site(job, group(), cell.ids[1])).unwrap();
    assert_eq!(cell.names_on(1, 0), ["home.readonly"]);
    cell.write(0, "home", "one", b"later");
    add(OTHER);
    release();
    assert_eq!((cell.names_on(1, 0).len(), cell.names_on(1, 1)), (0, vec!["home.readonly".into()]));
    assert_eq!(cell.files(1, "home.readonly"), cell.files(0, "home"));
}

#[test]
fn vo6_a_release_removes_no_volume_that_serves_beside_a_site() {
    let cell = Cell::with_partitions(2, 2);
    let id = cell.make("home", 1).id;
    // As if the database had an old record.
    let create = VolumeCall::Create {
        id: Some(id),
        partition: Some(PartitionNo(0)),
        name: name("known"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    cell.reach.call(cell.ids[0], create).unwrap();
    let group = || cell.group("home").unwrap();
    lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[0], OTHER)).unwrap();
    let refused = lead(&cell.reach, |job| vos::release(job, group())).unwrap_err();
    assert!(refused.to_string().contains("the entry exists"), "{refused}");
    assert_eq!(cell.names_on(0, 0), ["known"]);
}
