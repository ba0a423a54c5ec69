//! Shadows: copies that the record does not name, at whichever step the operation is interrupted.

use crate::common::{Cell, PARTITION, by_name, lead, name, stop_everywhere};
use types::{VolumeId, VolumeInfo, VolumeKind, VolumeState};
use vos::{NewShadow, Servers, VosError};

fn prepare(cell: &mut Cell) {
    cell.make("home", 0);
    cell.write(0, "home", "one", b"first");
    cell.write(0, "home", "two", &[7; 100_000]);
}

fn new(cell: &Cell, number: usize) -> NewShadow {
    NewShadow {
        name: None,
        number: None,
        server: cell.ids[number],
        partition: PARTITION.into(),
        is_offline: false,
    }
}

fn make(
    cell: &Cell,
    servers: &dyn Servers,
    new: &NewShadow,
) -> Result<Option<VolumeInfo>, VosError> {
    lead(servers, |job| vos::shadow(job, cell.group("home").unwrap(), new))
}

fn shadow(cell: &Cell, servers: &dyn Servers) -> Result<(), VosError> {
    make(cell, servers, &new(cell, 1)).map(drop)
}

#[test]
fn a_shadow_is_in_no_record_and_outlives_the_volume() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = cell.files(0, "home").unwrap();
    let record = cell.group("home").unwrap().record;
    let made = make(&cell, &cell.reach, &new(&cell, 1)).unwrap().unwrap();
    assert_eq!((made.kind, made.tree), (VolumeKind::Snapshot, record.read_write));
    assert_eq!(cell.files(1, "home.shadow"), Some(before.clone()));
    assert_eq!(cell.group("home").unwrap().record, record);
    // A record that is made from the servers does not have it.
    lead(&cell.reach, |job| vos::sync_database(job, cell.ids[1], None)).unwrap();
    assert_eq!(cell.group("home").unwrap().record, record);
    let home = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    lead(&cell.reach, |job| vos::remove(job, &home)).unwrap();
    let found = vos::find(&cell.reach, &by_name("home.shadow"), None).unwrap();
    assert_eq!(found.server, cell.ids[1]);
    lead(&cell.reach, |job| vos::clone_writable(job, &found, &name("home"))).unwrap();
    assert_eq!(cell.files(1, "home"), Some(before));
    cell.write(1, "home", "one", b"again");
}

#[test]
fn a_shadow_gets_what_changed_and_keeps_its_number() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let first = make(&cell, &cell.reach, &new(&cell, 1)).unwrap().unwrap();
    for round in 0..3_u8 {
        cell.write(0, "home", "one", &[round; 10]);
        let offline = NewShadow { is_offline: round == 2, ..new(&cell, 1) };
        let next = make(&cell, &cell.reach, &offline).unwrap().unwrap();
        assert_eq!((next.id, next.partition), (first.id, first.partition));
        assert_eq!(next.state == VolumeState::Offline, round == 2);
        if round < 2 {
            assert_eq!(cell.files(1, "home.shadow"), cell.files(0, "home"));
        }
        let bases = cell.names(0).into_iter().filter(|one| one.starts_with("home.shadow.base"));
        assert_eq!(bases.count(), 1, "{:?}", cell.names(0));
        let tasks = cell.tasks(1);
        let last = tasks.last().unwrap();
        assert!(last.since == first.epoch + u64::from(round) && last.bytes < 5000, "{last:?}");
    }
}

#[test]
fn a_shadow_takes_no_place_name_or_number_of_others() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    let other = cell.make("other", 1);
    let refused = |new: NewShadow| match make(&cell, &cell.reach, &new) {
        Err(VosError::Unfit(why)) => why,
        done => panic!("{new:?}: {done:?}"),
    };
    let named = |text: &str| NewShadow { name: Some(name(text)), ..new(&cell, 1) };
    assert!(refused(new(&cell, 0)).contains("has the volume itself"));
    for text in ["home", "home.readonly", "home.releasing", "x.snapshot.y", "x.base", "12"] {
        assert!(refused(named(text)).contains("cannot be a shadow's name"), "{text}");
    }
    assert!(refused(named("other")).contains("has another volume of the name other"));
    let numbered = |id| NewShadow { number: Some(id), ..new(&cell, 2) };
    assert!(refused(numbered(other.id)).contains("a volume has the number"));
    let made = make(&cell, &cell.reach, &numbered(VolumeId(9000))).unwrap().unwrap();
    assert_eq!(made.id, VolumeId(9000));
    assert!(refused(new(&cell, 1)).contains("has a volume of the name home.shadow"));
    assert!(cell.make("later", 0).id > VolumeId(9000));
    assert_eq!(cell.group("home").unwrap().record.busy, None);
}

#[test]
fn a_shadow_that_is_stopped_is_finished_by_the_next() {
    let act = |cell: &Cell, servers: &dyn Servers| shadow(cell, servers);
    let then = |cell: &mut Cell, why: &str| {
        shadow(cell, &cell.reach).unwrap_or_else(|error| panic!("{error}: {why}"));
        assert_eq!(cell.files(1, "home.shadow"), cell.files(0, "home"), "{why}");
        assert_eq!(cell.group("home").unwrap().record.busy, None, "{why}");
        assert_eq!(cell.names(1), ["home.shadow"], "{why}");
        assert_eq!(cell.names(0).len(), 2, "{why}: {:?}", cell.names(0));
    };
    stop_everywhere(2, prepare, act, then);
    let changed = |cell: &mut Cell| {
        prepare(cell);
        shadow(cell, &cell.reach).unwrap();
        cell.write(0, "home", "one", b"second");
    };
    stop_everywhere(2, changed, act, then);
}
