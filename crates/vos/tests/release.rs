//! Releases: all sites show the new or the old state, at whichever step the release is interrupted,
//! and the next release finishes it.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Cell, Files, PARTITION, Stopped, lead, lead_as, stop_everywhere};
use types::{Answer, ServerId, SiteKind, VolumeCall, VolumeKind};
use vos::{Released, Servers, VosError};

fn release(cell: &Cell, servers: &dyn Servers) -> Result<Released, VosError> {
    lead(servers, |job| vos::release(job, cell.group("home").unwrap()))
}

fn files(list: &[(&str, &str)]) -> Files {
    list.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn old() -> Files {
    files(&[("kept", "as it was"), ("changed", "old")])
}

fn new() -> Files {
    files(&[("kept", "as it was"), ("changed", "new"), ("more", "new too")])
}

fn prepare(cell: &mut Cell) {
    cell.make_released("home");
    cell.write(0, "home", "kept", b"as it was");
    cell.write(0, "home", "changed", b"old");
    release(cell, &cell.reach).unwrap();
    cell.write(0, "home", "changed", b"new");
    cell.write(0, "home", "more", b"new too");
}

/// Checks that all sites show the release, and nothing else remains.
fn is_released(cell: &Cell, wanted: &Files, why: &str) {
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.busy, None, "{why}");
    assert_eq!(group.readable_sites().count(), cell.ids.len() - 1, "{why}: {group:?}");
    for number in 0..cell.ids.len() {
        assert_eq!(
            cell.files(number, "home.readonly").as_ref(),
            Some(wanted),
            "{why}: server {number}"
        );
        let mut names = cell.names(number);
        names.sort();
        let rest: &[&str] =
            if number == 0 { &["home", "home.readonly"] } else { &["home.readonly"] };
        assert_eq!(names, rest, "{why}: server {number}");
        let volumes = cell.volumes(number);
        let shown = volumes.iter().find(|one| Some(one.id) == group.read_only).unwrap();
        assert_eq!(shown.epoch, group.released_epoch, "{why}");
    }
}

#[test]
fn sites_show_what_was_released_and_not_what_came_after() {
    let cell = Cell::new(3);
    cell.make_released("home");
    cell.write(0, "home", "kept", b"as it was");
    cell.write(0, "home", "changed", b"old");
    let released = release(&cell, &cell.reach).unwrap();
    assert_eq!((released.sites.len(), released.lagging.len()), (2, 0));
    is_released(&cell, &old(), "the first release");
    cell.write(0, "home", "changed", b"new");
    cell.write(0, "home", "more", b"new too");
    is_released(&cell, &old(), "nothing was released since");
    release(&cell, &cell.reach).unwrap();
    is_released(&cell, &new(), "the second release");
}

#[test]
fn a_release_that_is_stopped_is_finished_by_the_next() {
    stop_everywhere(
        3,
        prepare,
        |cell, servers| release(cell, servers).map(drop),
        |cell, why| {
            let group = cell.group("home").unwrap().record;
            for site in group.readable_sites() {
                let number = cell.ids.iter().position(|id| *id == site.server).unwrap();
                let shown = cell.files(number, "home.readonly").unwrap();
                assert!(shown == old() || shown == new(), "{why}: {shown:?}");
            }
            release(cell, &cell.reach).unwrap_or_else(|error| panic!("{error}: {why}"));
            is_released(cell, &new(), why);
        },
    );
}

#[test]
fn a_site_that_is_away_lags_and_catches_up() {
    let mut cell = Cell::new(3);
    prepare(&mut cell);
    cell.crash(2);
    let released = release(&cell, &cell.reach).unwrap();
    let lagging: Vec<ServerId> = released.lagging.iter().map(|(server, _)| *server).collect();
    assert_eq!((released.sites.len(), lagging), (1, vec![cell.ids[2]]));
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.readable_sites().map(|site| site.server).collect::<Vec<_>>(), [cell.ids[1]]);
    cell.start(2);
    assert_eq!(cell.files(2, "home.readonly"), Some(old()), "no reader is sent there");
    cell.write(0, "home", "again", b"newer");
    release(&cell, &cell.reach).unwrap();
    let mut newest = new();
    newest.insert("again".into(), b"newer".to_vec());
    is_released(&cell, &newest, "all are back");
}

#[test]
fn what_cannot_be_released_changes_nothing() {
    let mut cell = Cell::new(2);
    cell.make("alone", 0);
    let alone = cell.group("alone").unwrap();
    let refused = lead(&cell.reach, |job| vos::release(job, alone.clone())).unwrap_err();
    assert!(refused.to_string().contains("addsite"), "{refused}");
    lead(&cell.reach, |job| {
        vos::remove(job, &vos::find(&cell.reach, &crate::common::by_name("alone"), None)?)
    })
    .unwrap();
    prepare(&mut cell);
    let before = cell.group("home").unwrap();
    let revision = cell.reach.db().revision().unwrap();
    let reported =
        lead_as(&cell.reach, true, true, &|_| {}, |job| vos::release(job, before.clone())).unwrap();
    assert_eq!((reported.epoch, cell.reach.db().revision().unwrap()), (0, revision));
    cell.crash(1);
    let refused = release(&cell, &cell.reach).unwrap_err();
    assert!(refused.to_string().contains("server1"), "{refused}");
    assert_eq!(cell.group("home").unwrap().record, before.record);
    assert_eq!(cell.files(0, "home.readonly"), Some(old()));
    cell.start(1);
    release(&cell, &cell.reach).unwrap();
    is_released(&cell, &new(), "the site is back");
}

/// Counts the sites that are ordered to fetch from the first server.
struct Counting<'c> {
    cell: &'c Cell,
    from_source: AtomicUsize,
    pulls: AtomicUsize,
}

impl Servers for Counting<'_> {
    fn db(&self) -> &dyn celldb::CellDb {
        self.cell.reach.db()
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        if let VolumeCall::Pull(pull) = &call {
            let address = self.cell.servers[0].1.tcp_listen.clone().unwrap();
            self.pulls.fetch_add(1, Ordering::Relaxed);
            let is_source = pull.from.iter().any(|from| from.to_string() == address);
            self.from_source.fetch_add(usize::from(is_source), Ordering::Relaxed);
        }
        self.cell.reach.call(server, call)
    }

    fn name(&self, server: ServerId) -> String {
        self.cell.reach.name(server)
    }
}

#[test]
fn of_many_sites_most_fetch_from_another_site() {
    let mut cell = Cell::new(9);
    prepare(&mut cell);
    let counting =
        Counting { cell: &cell, from_source: AtomicUsize::new(0), pulls: AtomicUsize::new(0) };
    release(&cell, &counting).unwrap();
    let counts =
        (counting.pulls.load(Ordering::Relaxed), counting.from_source.load(Ordering::Relaxed));
    assert_eq!(counts.0, 8);
    assert!((1..=3).contains(&counts.1), "{counts:?}");
    is_released(&cell, &new(), "relayed");
    let kinds = cell
        .group("home")
        .unwrap()
        .record
        .sites
        .iter()
        .filter(|site| site.kind == SiteKind::ReadOnly)
        .count();
    assert_eq!(kinds, 8);
}

#[test]
fn a_move_given_up_by_force_does_not_block_the_next_release() {
    let mut waited = 0;
    for after in 0.. {
        let mut cell = Cell::new(2);
        prepare(&mut cell);
        let stopped = Stopped::new(&cell.reach, after, false);
        let group = cell.group("home").unwrap();
        let moved = lead(&stopped, |job| vos::move_volume(job, group, cell.ids[1], PARTITION));
        let group = cell.group("home").unwrap();
        if moved.is_ok() || group.record.read_write_site().unwrap().server == cell.ids[1] {
            break;
        }
        lead(&cell.reach, |job| vos::unlock(job, group)).unwrap();
        let arriving = |one: &types::VolumeInfo| one.state == types::VolumeState::Arriving;
        waited += usize::from(cell.volumes(1).iter().any(arriving));
        let released = release(&cell, &cell.reach).unwrap();
        assert_eq!(released.lagging, [], "stopped at {after}");
        assert_eq!(cell.files(1, "home.readonly"), Some(new()), "stopped at {after}");
        assert!(!cell.volumes(1).iter().any(arriving), "stopped at {after}");
        assert_eq!(cell.files(0, "home"), Some(new()), "stopped at {after}");
    }
    assert!(waited > 0);
}

#[test]
fn what_a_decided_move_left_does_not_block_a_release() {
    let mut left = 0;
    for after in 0.. {
        let mut cell = Cell::new(2);
        prepare(&mut cell);
        let stopped = Stopped::new(&cell.reach, after, false);
        let group = || cell.group("home").unwrap();
        if lead(&stopped, |job| vos::move_volume(job, group(), cell.ids[1], PARTITION)).is_ok() {
            break;
        }
        let is_decided = group().record.read_write_site().unwrap().server == cell.ids[1];
        let is_written = |one: &types::VolumeInfo| one.kind == VolumeKind::ReadWrite;
        if !is_decided || !cell.volumes(0).iter().any(is_written) {
            continue;
        }
        left += 1;
        lead(&cell.reach, |job| vos::unlock(job, group())).unwrap();
        lead(&cell.reach, |job| vos::add_site(job, group(), cell.ids[0], PARTITION)).unwrap();
        let released = release(&cell, &cell.reach).unwrap();
        assert_eq!(released.lagging, [], "stopped at {after}");
        assert_eq!(cell.files(0, "home.readonly"), Some(new()), "stopped at {after}");
        assert!(!cell.volumes(0).iter().any(is_written), "stopped at {after}");
    }
    assert!(left > 0);
}
