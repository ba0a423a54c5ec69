//! Copies and writable clones: a volume of its own with all content of the source, at whichever
//! step the operation is interrupted.

use crate::common::{Cell, PARTITION, Stopped, lead, name, stop_everywhere};
use types::WhichVolume;
use vos::{Servers, VosError};

fn prepare(cell: &mut Cell) {
    cell.make("home", 0);
    cell.write(0, "home", "one", b"first");
    cell.write(0, "home", "two", &[7; 100_000]);
}

fn copy(cell: &Cell, servers: &dyn Servers) -> Result<(), VosError> {
    lead(servers, |job| vos::copy(job, &cell.group("home").unwrap(), &cell.new_volume("twin", 1)))
        .map(drop)
}

#[test]
fn a_copy_is_another_volume() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = cell.files(0, "home").unwrap();
    copy(&cell, &cell.reach).unwrap();
    assert_eq!(cell.files(1, "twin"), Some(before.clone()));
    cell.write(1, "twin", "one", b"its own");
    assert_eq!(cell.files(0, "home"), Some(before));
    let (home, twin) = (cell.group("home").unwrap().record, cell.group("twin").unwrap().record);
    assert!(home.read_write != twin.read_write && twin.busy.is_none());
    assert_eq!((cell.names(0), cell.names(1)), (vec!["home".into()], vec!["twin".into()]));
}

#[test]
fn a_copy_that_is_stopped_is_finished_by_the_next() {
    stop_everywhere(2, prepare, copy, |cell, why| {
        match copy(cell, &cell.reach) {
            Ok(()) => {}
            // The interrupted copy was already complete.
            Err(VosError::Unfit(why)) if why.contains("of that name") => {}
            Err(error) => panic!("{error}: {why}"),
        }
        assert_eq!(cell.files(1, "twin"), cell.files(0, "home"), "{why}");
        assert_eq!(cell.group("twin").unwrap().record.busy, None, "{why}");
        assert_eq!(
            (cell.names(0), cell.names(1)),
            (vec!["home".into()], vec!["twin".into()]),
            "{why}"
        );
    });
}

fn clone(servers: &dyn Servers, of: &str) -> Result<(), VosError> {
    let found = vos::find(servers, &WhichVolume::Name(name(of)), None)?;
    lead(servers, |job| vos::clone_writable(job, &found, &name("twin"))).map(drop)
}

#[test]
fn a_writable_clone_goes_its_own_way_and_outlives_the_other() {
    let mut cell = Cell::new(2);
    prepare(&mut cell);
    let before = cell.files(0, "home").unwrap();
    clone(&cell.reach, "home").unwrap();
    assert_eq!(cell.files(0, "twin"), Some(before.clone()));
    cell.write(0, "twin", "one", b"its own");
    cell.write(0, "home", "two", b"also");
    let twin = cell.files(0, "twin").unwrap();
    assert_eq!((&twin["one"][..], &twin["two"]), (&b"its own"[..], &before["two"]));
    let again = clone(&cell.reach, "home");
    assert!(
        matches!(&again, Err(VosError::Unfit(why)) if why.contains("of that name")),
        "{again:?}"
    );
    let home = vos::find(&cell.reach, &WhichVolume::Name(name("home")), None).unwrap();
    lead(&cell.reach, |job| vos::remove(job, &home)).unwrap();
    // A copy to another server sends the whole volume.
    let group = cell.group("twin").unwrap();
    lead(&cell.reach, |job| vos::move_volume(job, group, cell.ids[1], PARTITION)).unwrap();
    assert_eq!((cell.files(1, "twin"), cell.names(0)), (Some(twin), Vec::new()));
}

#[test]
fn a_writable_clone_that_is_stopped_is_finished_by_the_next() {
    stop_everywhere(
        1,
        prepare,
        |_, servers| clone(servers, "home"),
        |cell, why| {
            match clone(&cell.reach, "home") {
                Ok(()) => {}
                // The interrupted clone was already complete.
                Err(VosError::Unfit(why)) if why.contains("of that name") => {}
                Err(error) => panic!("{error}: {why}"),
            }
            assert_eq!(cell.files(0, "twin"), cell.files(0, "home"), "{why}");
            assert_eq!(cell.group("twin").unwrap().record.busy, None, "{why}");
            assert_eq!(cell.names(0), vec!["home".to_owned(), "twin".to_owned()], "{why}");
        },
    );
}

#[test]
fn an_announced_clone_is_made_where_its_source_moved() {
    let find =
        |cell: &Cell| vos::find(&cell.reach, &WhichVolume::Name(name("home")), None).unwrap();
    let (mut moved_first, mut was_made) = (0, 0);
    for after in 0.. {
        let mut cell = Cell::new(2);
        prepare(&mut cell);
        let before = cell.files(0, "home");
        let stopped = Stopped::new(&cell.reach, after, false);
        let found = find(&cell);
        let cloned = lead(&stopped, |job| vos::clone_writable(job, &found, &name("twin")));
        if cloned.is_ok() {
            break;
        }
        let group = cell.group("home").unwrap();
        lead(&cell.reach, |job| vos::move_volume(job, group, cell.ids[1], PARTITION)).unwrap();
        clone(&cell.reach, "home").unwrap();
        let twin = cell.group("twin").unwrap().record;
        let at =
            cell.ids.iter().position(|id| *id == twin.read_write_site().unwrap().server).unwrap();
        assert_eq!((cell.files(at, "twin"), twin.busy), (before, None), "stopped at {after}");
        assert_eq!(cell.files(1 - at, "twin"), None, "stopped at {after}");
        moved_first += at;
        was_made += 1 - at;
    }
    assert!(moved_first > 0 && was_made > 0);
}
