//! Copies: a volume of its own with all that the other held, whoever is stopped and wherever.
#![allow(clippy::unwrap_used)]

use common::{Cell, lead, stop_everywhere};
use vos::{Error, Servers};

mod common;

fn prepare(cell: &mut Cell) {
    cell.make("home", 0);
    cell.write(0, "home", "one", b"first");
    cell.write(0, "home", "two", &[7; 100_000]);
}

fn copy(cell: &Cell, servers: &dyn Servers) -> Result<(), Error> {
    lead(servers, |job| vos::copy(job, &cell.group("home").unwrap(), &cell.new_volume("twin", 1))).map(drop)
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
            // It was through.
            Err(Error::Unfit(why)) if why.contains("of that name") => {}
            Err(error) => panic!("{error}: {why}"),
        }
        assert_eq!(cell.files(1, "twin"), cell.files(0, "home"), "{why}");
        assert_eq!(cell.group("twin").unwrap().record.busy, None, "{why}");
        assert_eq!((cell.names(0), cell.names(1)), (vec!["home".into()], vec!["twin".into()]), "{why}");
    });
}
