//! A copy takes over from a volume whose server is lost, at whichever step the operation is
//! interrupted; the lost server comes back and serves it no more.

use std::sync::Mutex;
use std::time::Duration;

use crate::common::{Cell, Files, PARTITION, Stopped, lead, stop_everywhere};
use celldb::CellDb;
use types::{Answer, ServerId, VolumeCall, VolumeState, WhichVolume};
use vos::{Servers, VosError, examine};

/// The lost server, and the one that takes over. The first one has the database, and a copy.
const LOST: usize = 1;
const NEXT: usize = 2;

/// Servers whose volumes serve when a leader has waited for them: the test knows that the lost
/// server is dead, and that no client has a lease. So it waits for no answer of it either.
struct Impatient<'s> {
    cell: &'s Cell,
    inner: &'s dyn Servers,
    asked: Mutex<Option<(ServerId, types::VolumeId)>>,
}

impl Servers for Impatient<'_> {
    fn db(&self) -> &dyn CellDb {
        self.inner.db()
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        let number = self.cell.ids.iter().position(|id| *id == server).unwrap();
        if self.cell.servers[number].2.is_none() {
            return Err(VosError::Away { server: self.name(server), why: "it is dead".into() });
        }
        if let VolumeCall::Examine { volume: WhichVolume::Id(id) } = &call {
            *self.asked.lock().unwrap() = Some((server, *id));
        }
        self.inner.call(server, call)
    }

    fn name(&self, server: ServerId) -> String {
        self.inner.name(server)
    }

    fn pause(&self, _: Duration) {
        std::thread::sleep(Duration::from_millis(2));
        let asked = *self.asked.lock().unwrap();
        if let Some((server, id)) = asked {
            // Another leader's pause may come before the volume is there.
            let _ = self.cell.reach.call(server, VolumeCall::Serve { id });
        }
    }
}

fn take_over(
    cell: &Cell,
    servers: &dyn Servers,
    number: usize,
    accepts_older: bool,
) -> Result<(), VosError> {
    let servers = Impatient { cell, inner: servers, asked: Mutex::default() };
    let (group, to) = (cell.group("home").unwrap(), cell.ids[number]);
    lead(&servers, |job| vos::take_over(job, group, to, accepts_older)).map(drop)
}

/// Returns how many sites lag.
fn release(cell: &Cell) -> usize {
    let servers = Impatient { cell, inner: &cell.reach, asked: Mutex::default() };
    let group = cell.group("home").unwrap();
    lead(&servers, |job| vos::release(job, group)).unwrap().lagging.len()
}

fn prepare(cell: &mut Cell) {
    cell.make("home", LOST);
    for number in (0..cell.ids.len()).filter(|number| *number != LOST) {
        let group = cell.group("home").unwrap();
        lead(&cell.reach, |job| vos::add_site(job, group, cell.ids[number], PARTITION)).unwrap();
    }
    cell.write(LOST, "home", "one", b"released");
    assert_eq!(release(cell), 0);
    cell.write(LOST, "home", "one", b"lost");
    cell.write(LOST, "home", "two", b"lost");
    cell.crash(LOST);
}

fn released() -> Files {
    Files::from([("one".to_owned(), b"released".to_vec())])
}

fn state(cell: &Cell, number: usize) -> VolumeState {
    let id = cell.group("home").unwrap().record.read_write;
    let found = examine(&cell.reach, cell.ids[number], WhichVolume::Id(id)).unwrap();
    found.unwrap()[0].state
}

fn refusal(result: Result<(), VosError>) -> String {
    match result {
        Err(VosError::Unfit(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_volume_goes_on_at_a_copy_and_stays_lost_elsewhere() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    take_over(&cell, &cell.reach, NEXT, false).unwrap();
    assert_eq!(cell.files(NEXT, "home"), Some(released()));
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.read_write_site().map(|site| site.server), Some(cell.ids[NEXT]));
    assert_eq!((group.busy, group.sites.len()), (None, 3), "its copy is a site still");
    let again = refusal(take_over(&cell, &cell.reach, NEXT, false));
    assert!(again.contains("has the read-write volume"), "{again}");
    // It is a volume like any other: the other copy follows it.
    cell.write(NEXT, "home", "three", b"new");
    assert_eq!(release(&cell), 0);
    assert_eq!(cell.files(0, "home.readonly"), cell.files(NEXT, "home"));

    cell.start(LOST);
    assert_eq!(cell.files(LOST, "home"), None);
    assert_eq!(state(&cell, LOST), VolumeState::Superseded);
    // It stays there until an administrator removes it.
    let back = || {
        let group = cell.group("home").unwrap();
        lead(&cell.reach, |job| vos::move_volume(job, group, cell.ids[LOST], PARTITION))
    };
    assert!(back().is_err());
    assert_eq!(cell.group("home").unwrap().record.busy, None);
    let id = group.read_write;
    cell.reach.call(cell.ids[LOST], VolumeCall::Remove { id }).unwrap();
    back().unwrap();
    assert_eq!(cell.files(LOST, "home").unwrap()["three"], b"new");
}

#[test]
fn a_takeover_that_is_stopped_is_finished_by_the_next() {
    let act = |cell: &Cell, servers: &dyn Servers| take_over(cell, servers, 0, false);
    stop_everywhere(2, prepare, act, |cell, why| {
        match take_over(cell, &cell.reach, 0, false) {
            Ok(()) => {}
            Err(VosError::Unfit(done)) if done.contains("has the read-write volume") => {}
            Err(error) => panic!("{error}: {why}"),
        }
        assert_eq!(cell.files(0, "home"), Some(released()), "{why}");
        let group = cell.group("home").unwrap().record;
        assert_eq!(group.busy, None, "{why}");
        let mut names = cell.names(0);
        names.sort();
        assert_eq!(names, ["home", "home.readonly"], "{why}");
        // The lost server comes back.
        cell.start(LOST);
        assert_eq!(cell.files(LOST, "home"), None, "{why}");
    });
}

#[test]
fn who_comes_back_before_the_switch_has_the_volume_still() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    // The copy is a volume; the database was not told.
    let stopped = Stopped::new(&cell.reach, 2, false);
    assert!(take_over(&cell, &stopped, NEXT, false).is_err());
    assert_eq!(state(&cell, NEXT), VolumeState::Arriving);
    cell.start(LOST);
    assert_eq!(cell.files(LOST, "home").unwrap()["two"], b"lost");
    let why = refusal(take_over(&cell, &cell.reach, NEXT, false));
    assert!(why.contains("'vos move'"), "{why}");
    assert_eq!(cell.files(NEXT, "home"), None);
}

#[test]
fn what_is_not_lost_or_too_old_is_refused() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    cell.start(LOST);
    let alive = refusal(take_over(&cell, &cell.reach, NEXT, true));
    assert!(alive.contains("'vos move'"), "{alive}");
    let itself = refusal(take_over(&cell, &cell.reach, LOST, true));
    assert!(itself.contains("no read-only site"), "{itself}");
    // A site that misses the next release.
    cell.crash(NEXT);
    assert_eq!(release(&cell), 1);
    cell.start(NEXT);
    cell.crash(LOST);
    let old = refusal(take_over(&cell, &cell.reach, NEXT, false));
    assert!(old.contains("-force"), "{old}");
    assert_eq!(cell.group("home").unwrap().record.busy, None);
    take_over(&cell, &cell.reach, NEXT, true).unwrap();
    assert_eq!(cell.files(NEXT, "home"), Some(released()));
    // It never takes an older release for a newer one.
    assert_eq!(release(&cell), 0);
    assert_eq!(cell.files(0, "home.readonly"), Some(released()));
    assert_eq!(cell.files(NEXT, "home.readonly"), Some(released()));
}
