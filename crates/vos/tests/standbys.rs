//! Standbys are entered, removed and made the read-write volume, at whichever step an operation is
//! interrupted; other operations leave no standby that could take over wrongly. The servers' part
//! is a fake: it does with the record what servers do.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Cell, PARTITION, Stopped, lead, lead_as};
use celldb::CellDb;
use types::{
    Answer, Fault, ServerId, Site, SiteKind, StandbyInfo, VolumeCall, VolumeGroup, VolumeInfo,
    VolumeState, WhichVolume,
};
use vos::{JobEvent, Servers, StandbyAdded, VosError};

/// The servers with the read-write volume, and with standbys.
const HOME: usize = 0;
const NEXT: usize = 1;
const LAST: usize = 2;

/// Servers that follow as the record says, one question after it was changed.
struct Fake<'c> {
    cell: &'c Cell,
    copies: Mutex<BTreeSet<ServerId>>,
    away: Mutex<BTreeSet<ServerId>>,
    /// Standbys get into step by themselves.
    follow: AtomicBool,
    behind: AtomicU64,
    /// The volume that took over, and the questions until it serves.
    moved: Mutex<Option<(ServerId, VolumeInfo, u32)>>,
    holds: Mutex<Vec<(ServerId, u32)>>,
}

impl<'c> Fake<'c> {
    fn new(cell: &'c Cell) -> Fake<'c> {
        let (copies, away, moved, holds, behind) = Default::default();
        Fake { cell, copies, away, follow: AtomicBool::new(true), behind, moved, holds }
    }

    fn record(&self) -> VolumeGroup {
        self.cell.group("home").unwrap().record
    }

    fn change(&self, change: impl Fn(&mut VolumeGroup)) {
        let seen = self.cell.group("home").unwrap();
        let mut record = seen.record;
        change(&mut record);
        self.cell.reach.db().put_group(&record, seen.revision).unwrap();
    }

    fn site(&self, server: ServerId) -> Option<Site> {
        self.cell.group("home")?.record.standbys().find(|site| site.server == server).cloned()
    }

    fn set_step(&self, server: ServerId, step: u64) {
        self.change(|group| {
            let all = group.sites.iter_mut().filter(|site| site.kind.is_standby());
            all.filter(|site| site.server == server).for_each(|site| site.epoch = step);
        });
    }

    fn refuse(&self, server: ServerId, fault: Fault) -> VosError {
        VosError::Refused { server: self.name(server), fault }
    }

    /// The change that a standby's server makes.
    fn take_over(&self, server: ServerId, force: bool) -> Result<Answer, VosError> {
        let Some(site) = self.site(server) else {
            return Err(self.refuse(server, Fault::NoVolume));
        };
        if !site.is_in_step() && !force {
            return Err(self.refuse(server, Fault::Conflict));
        }
        let from = self.record().read_write_site().unwrap().server;
        let number = self.cell.ids.iter().position(|id| *id == from).unwrap();
        let (id, volumes) = (self.record().read_write, self.cell.volumes(number));
        let info = volumes.into_iter().find(|one| one.id == id).unwrap();
        self.change(|group| {
            for one in &mut group.sites {
                one.epoch = if one.kind == SiteKind::ReadOnly { one.epoch } else { 0 };
                one.kind = match one.server {
                    at if at == server => SiteKind::ReadWrite,
                    at if at == from => site.kind,
                    _ => one.kind,
                };
            }
        });
        *self.moved.lock().unwrap() = Some((server, info, 3));
        Ok(Answer::Done)
    }
}

impl Servers for Fake<'_> {
    fn db(&self) -> &dyn CellDb {
        self.cell.reach.db()
    }

    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError> {
        if self.away.lock().unwrap().contains(&server) {
            return Err(VosError::Away { server: self.name(server), why: "dead".into() });
        }
        match call {
            VolumeCall::StandBy { .. } => {
                match self.site(server) {
                    Some(_) => self.copies.lock().unwrap().insert(server),
                    None => self.copies.lock().unwrap().remove(&server),
                };
                Ok(Answer::Done)
            }
            VolumeCall::Standbys { .. } => {
                let behind = self.behind.load(Ordering::Relaxed);
                self.behind.store(behind.saturating_sub(1), Ordering::Relaxed);
                let info = |site: &Site| StandbyInfo {
                    server: site.server,
                    is_sync: site.kind == SiteKind::Standby,
                    in_step: site.is_in_step(),
                    behind,
                    behind_bytes: behind.saturating_mul(10),
                    lag_millis: behind,
                    heard_millis: 1,
                };
                Ok(Answer::Standbys(self.record().standbys().map(info).collect()))
            }
            VolumeCall::FailOver { force, .. } => self.take_over(server, force),
            VolumeCall::Hold { id, millis } => {
                self.holds.lock().unwrap().push((server, millis));
                let is_here = self.record().read_write_site().unwrap().server == server;
                assert!(is_here || millis == 0, "a former server is not frozen");
                if is_here {
                    self.cell.reach.call(server, VolumeCall::Hold { id, millis })
                } else {
                    Ok(Answer::Done)
                }
            }
            VolumeCall::Examine { volume: WhichVolume::Id(id) }
                if self.moved.lock().unwrap().as_ref().is_some_and(|(at, ..)| *at == server) =>
            {
                let mut moved = self.moved.lock().unwrap();
                let (_, info, left) = moved.as_mut().unwrap();
                assert_eq!(info.id, id);
                *left = left.saturating_sub(1);
                info.state = if *left == 0 { VolumeState::Online } else { VolumeState::Arriving };
                Ok(Answer::Volumes { volumes: vec![info.clone()], end: true })
            }
            call => self.cell.reach.call(server, call),
        }
    }

    fn name(&self, server: ServerId) -> String {
        self.cell.reach.name(server)
    }

    fn pause(&self, pause: Duration) {
        std::thread::sleep(pause.min(Duration::from_millis(5)));
        if self.follow.load(Ordering::Relaxed) {
            let copies = self.copies.lock().unwrap().clone();
            let Some(group) = self.cell.group("home") else { return };
            for site in group.record.standbys() {
                if !site.is_in_step() && copies.contains(&site.server) {
                    self.set_step(site.server, 1);
                }
            }
        }
    }
}

fn add(
    cell: &Cell,
    servers: &dyn Servers,
    number: usize,
    kind: SiteKind,
) -> Result<StandbyAdded, VosError> {
    let group = cell.group("home").unwrap();
    let id = group.record.read_write;
    lead(servers, |job| {
        let added = vos::add_standby(job, group, cell.ids[number], PARTITION, kind)?;
        vos::wait_in_step(job, id, cell.ids[number])?;
        Ok(added)
    })
}

fn remove(cell: &Cell, servers: &dyn Servers, number: usize) -> Result<bool, VosError> {
    let group = cell.group("home").unwrap();
    lead(servers, |job| vos::remove_standby(job, group, cell.ids[number], None))
}

fn fail_over(
    cell: &Cell,
    servers: &dyn Servers,
    to: Option<usize>,
    force: bool,
) -> Result<vos::FailedOver, VosError> {
    let group = cell.group("home").unwrap();
    lead(servers, |job| vos::fail_over(job, group, to.map(|number| cell.ids[number]), force))
}

fn refusal<T: std::fmt::Debug>(result: Result<T, VosError>) -> String {
    match result {
        Err(VosError::Unfit(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Runs an operation on a new cell for every change at which it can be stopped, both ways.
fn stop_everywhere(
    prepare: impl Fn(&Cell, &Fake<'_>),
    act: impl Fn(&Cell, &dyn Servers) -> Result<(), VosError>,
    then: impl Fn(&Cell, &Fake<'_>, &str),
) {
    for answer_lost in [false, true] {
        for after in 0.. {
            let cell = Cell::new(3);
            cell.make("home", HOME);
            let fake = Fake::new(&cell);
            prepare(&cell, &fake);
            let stopped = Stopped::new(&fake, after, answer_lost);
            let result = act(&cell, &stopped);
            let was_stopped = stopped.was_stopped();
            then(&cell, &fake, &format!("at {after}, answer lost: {answer_lost}, {result:?}"));
            if !was_stopped {
                assert!(after > 0 && result.is_ok(), "{result:?}");
                break;
            }
        }
    }
}

fn server_of(fake: &Fake<'_>) -> ServerId {
    fake.record().read_write_site().unwrap().server
}

#[test]
fn a_standby_that_is_stopped_on_its_way_is_finished() {
    let act =
        |cell: &Cell, servers: &dyn Servers| add(cell, servers, NEXT, SiteKind::Standby).map(drop);
    stop_everywhere(
        |_, _| {},
        act,
        |cell, fake, why| {
            add(cell, fake, NEXT, SiteKind::Standby).unwrap();
            let record = fake.record();
            let sites: Vec<_> = record.standbys().map(|site| (site.server, site.epoch)).collect();
            assert_eq!(sites, [(cell.ids[NEXT], 1)], "{why}");
            assert_eq!(record.busy, None, "{why}");
            assert!(fake.copies.lock().unwrap().contains(&cell.ids[NEXT]), "{why}");
        },
    );
}

#[test]
fn a_removal_that_is_stopped_is_finished_by_the_next() {
    let prepare = |cell: &Cell, fake: &Fake<'_>| {
        add(cell, fake, NEXT, SiteKind::Standby).unwrap();
        add(cell, fake, LAST, SiteKind::AsyncStandby).unwrap();
    };
    let act = |cell: &Cell, servers: &dyn Servers| remove(cell, servers, NEXT).map(drop);
    stop_everywhere(prepare, act, |cell, fake, why| {
        remove(cell, fake, NEXT).unwrap();
        let sites: Vec<_> = fake.record().standbys().map(|site| site.server).collect();
        assert_eq!(sites, [cell.ids[LAST]], "{why}");
        assert!(!fake.copies.lock().unwrap().contains(&cell.ids[NEXT]), "{why}");
    });
}

#[test]
fn a_failover_that_is_stopped_is_finished_by_the_next() {
    let prepare = |cell: &Cell, fake: &Fake<'_>| {
        add(cell, fake, NEXT, SiteKind::Standby).unwrap();
        fake.behind.store(5, Ordering::Relaxed);
    };
    let act = |cell: &Cell, servers: &dyn Servers| {
        let done = fail_over(cell, servers, Some(NEXT), false)?;
        assert!(done.was_alive);
        Ok(())
    };
    stop_everywhere(prepare, act, |cell, fake, why| {
        fail_over(cell, fake, Some(NEXT), false).unwrap();
        assert_eq!(server_of(fake), cell.ids[NEXT], "{why}");
        assert_eq!(fake.moved.lock().unwrap().as_ref().unwrap().2, 0, "it serves: {why}");
        let site = fake.site(cell.ids[HOME]).unwrap();
        assert_eq!(site.kind, SiteKind::Standby, "{why}");
    });
}

#[test]
fn a_planned_failover_waits_for_all_and_ends_the_freeze() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    add(&cell, &fake, NEXT, SiteKind::Standby).unwrap();
    fake.behind.store(5, Ordering::Relaxed);
    fail_over(&cell, &fake, None, false).unwrap();
    assert_eq!(fake.behind.load(Ordering::Relaxed), 0, "it had everything");
    let holds = fake.holds.lock().unwrap().clone();
    assert_eq!(holds, [(cell.ids[HOME], 10_000)]);
    assert!(fake.copies.lock().unwrap().contains(&cell.ids[HOME]), "it is told to give it up");
    // One that does not catch up leaves all as it was, and the volume serves at once.
    fake.set_step(cell.ids[HOME], 1);
    *fake.moved.lock().unwrap() = None;
    fake.change(|group| {
        for site in &mut group.sites {
            site.kind = match site.kind {
                SiteKind::ReadWrite => SiteKind::Standby,
                _ => SiteKind::ReadWrite,
            };
            site.epoch = u64::from(site.kind.is_standby());
        }
    });
    fake.holds.lock().unwrap().clear();
    fake.behind.store(u64::MAX, Ordering::Relaxed);
    let why = refusal(fail_over(&cell, &fake, None, false));
    assert!(why.contains("did not catch up"), "{why}");
    assert_eq!(server_of(&fake), cell.ids[HOME]);
    assert_eq!(fake.holds.lock().unwrap().last(), Some(&(cell.ids[HOME], 0)));
}

#[test]
fn sb2_a_standby_out_of_step_takes_over_by_force_alone() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    assert!(refusal(fail_over(&cell, &fake, None, true)).contains("'vos addstandby'"));
    assert!(refusal(fail_over(&cell, &fake, Some(LAST), true)).contains("is no standby"));
    add(&cell, &fake, NEXT, SiteKind::Standby).unwrap();
    fake.follow.store(false, Ordering::Relaxed);
    fake.set_step(cell.ids[NEXT], 0);
    fake.behind.store(7, Ordering::Relaxed);
    let alive = refusal(fail_over(&cell, &fake, None, false));
    assert!(alive.contains("lacks 7 changes (70 bytes)") && alive.contains("-force"), "{alive}");
    assert!(fake.holds.lock().unwrap().is_empty(), "nothing waited");
    fake.away.lock().unwrap().insert(cell.ids[HOME]);
    let dead = refusal(fail_over(&cell, &fake, None, false));
    assert!(dead.contains("does not answer") && dead.contains("-force"), "{dead}");
    assert_eq!(server_of(&fake), cell.ids[HOME]);
    let done = fail_over(&cell, &fake, None, true).unwrap();
    assert_eq!((done.to, done.was_alive), (cell.ids[NEXT], false));
}

#[test]
fn a_dead_servers_standby_in_step_is_taken_first() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    add(&cell, &fake, NEXT, SiteKind::AsyncStandby).unwrap();
    add(&cell, &fake, LAST, SiteKind::Standby).unwrap();
    fake.away.lock().unwrap().insert(cell.ids[HOME]);
    let done = fail_over(&cell, &fake, None, false).unwrap();
    assert_eq!(done.to, cell.ids[LAST], "it lost nothing");
    assert!(fake.holds.lock().unwrap().is_empty(), "the dead server is not asked");
}

#[test]
fn a_standby_is_on_a_server_of_its_own() {
    let cell = Cell::with_partitions(3, 2);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    let refused = |number: usize, kind| refusal(add(&cell, &fake, number, kind));
    assert!(refused(HOME, SiteKind::Standby).contains("has the read-write volume"));
    let group = cell.group("home").unwrap();
    lead(&fake, |job| vos::add_site(job, group, cell.ids[LAST], PARTITION)).unwrap();
    assert!(refused(LAST, SiteKind::Standby).contains("is a read-only site"));
    assert_eq!(add(&cell, &fake, NEXT, SiteKind::Standby).unwrap(), StandbyAdded::New);
    assert_eq!(add(&cell, &fake, NEXT, SiteKind::Standby).unwrap(), StandbyAdded::Nothing);
    let group = || cell.group("home").unwrap();
    let other = |partition: &str| {
        lead(&fake, |job| {
            vos::add_standby(job, group(), cell.ids[NEXT], partition, SiteKind::Standby)
        })
    };
    assert!(refusal(other("/vicepb")).contains("on one partition"));
    assert!(refusal(other("/vicepz")).contains("no partition"));
    let site = lead(&fake, |job| vos::add_site(job, group(), cell.ids[NEXT], PARTITION));
    assert!(refusal(site).contains("'vos remstandby'"));
    let moved = lead(&fake, |job| vos::move_volume(job, group(), cell.ids[NEXT], PARTITION));
    assert!(refusal(moved).contains("'vos failover"));
    assert_eq!(group().record.busy, None);
}

#[test]
fn sb1_a_standby_of_another_kind_is_out_of_step_first() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    add(&cell, &fake, NEXT, SiteKind::AsyncStandby).unwrap();
    fake.follow.store(false, Ordering::Relaxed);
    let group = cell.group("home").unwrap();
    let added = lead(&fake, |job| {
        vos::add_standby(job, group, cell.ids[NEXT], PARTITION, SiteKind::Standby)
    });
    assert_eq!(added, Ok(StandbyAdded::OtherKind));
    let site = fake.site(cell.ids[NEXT]).unwrap();
    assert_eq!((site.kind, site.epoch), (SiteKind::Standby, 0));
}

#[test]
fn sb2_a_move_leaves_no_standby_in_step() {
    let cell = Cell::with_partitions(3, 2);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    add(&cell, &fake, NEXT, SiteKind::Standby).unwrap();
    fake.follow.store(false, Ordering::Relaxed);
    let group = || cell.group("home").unwrap();
    lead(&fake, |job| vos::move_volume(job, group(), cell.ids[LAST], PARTITION)).unwrap();
    assert_eq!(fake.site(cell.ids[NEXT]).unwrap().epoch, 0);
    fake.set_step(cell.ids[NEXT], 1);
    lead(&fake, |job| vos::move_volume(job, group(), cell.ids[LAST], "/vicepb")).unwrap();
    assert_eq!(fake.site(cell.ids[NEXT]).unwrap().epoch, 0, "to another partition, too");
}

#[test]
fn sb2_a_removed_volume_has_no_standby_that_takes_over() {
    let act = |cell: &Cell, servers: &dyn Servers| {
        let found = vos::find(servers, &crate::common::by_name("home"), None)?;
        lead(servers, |job| vos::remove(job, &found))?;
        assert!(cell.group("home").is_none());
        Ok(())
    };
    let prepare = |cell: &Cell, fake: &Fake<'_>| {
        add(cell, fake, NEXT, SiteKind::Standby).unwrap();
        fake.follow.store(false, Ordering::Relaxed);
    };
    stop_everywhere(prepare, act, |cell, fake, why| {
        let is_gone = !cell.names(HOME).contains(&"home".to_owned());
        if is_gone {
            assert_eq!(fake.site(cell.ids[NEXT]), None, "{why}");
        }
        let Some(group) = cell.group("home") else {
            let copies = fake.copies.lock().unwrap().clone();
            assert!(copies.is_empty() || !why.ends_with("Ok(())"), "{why}");
            return;
        };
        let id = WhichVolume::Id(group.record.read_write);
        match vos::find(fake, &id, None) {
            Ok(found) => lead(fake, |job| vos::remove(job, &found)).unwrap(),
            Err(_) => assert!(lead(fake, |job| vos::finish_removal(job, &id)).unwrap(), "{why}"),
        }
        assert!(cell.group("home").is_none(), "{why}");
    });
}

#[test]
fn an_operation_bears_a_standby_that_gets_into_step() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    let group = cell.group("home").unwrap();
    lead(&fake, |job| vos::add_site(job, group, cell.ids[LAST], PARTITION)).unwrap();
    add(&cell, &fake, NEXT, SiteKind::Standby).unwrap();
    fake.follow.store(false, Ordering::Relaxed);
    let step = AtomicU64::new(0);
    // A server writes the record at each step of the release.
    let tell = |event: JobEvent<'_>| {
        if matches!(event, JobEvent::Step(_)) {
            fake.set_step(cell.ids[NEXT], step.fetch_xor(1, Ordering::Relaxed));
        }
    };
    let group = cell.group("home").unwrap();
    let released = lead_as(&fake, true, false, &tell, |job| vos::release(job, group)).unwrap();
    assert!(released.lagging.is_empty());
    let record = fake.record();
    assert_eq!(record.busy, None);
    assert_eq!(record.readable_sites().count(), 1);
    let last = 1 - step.load(Ordering::Relaxed);
    assert_eq!(fake.site(cell.ids[NEXT]).unwrap().epoch, last, "as its server wrote");
}

#[test]
fn a_server_that_is_away_drops_its_copy_later() {
    let cell = Cell::new(3);
    cell.make("home", HOME);
    let fake = Fake::new(&cell);
    add(&cell, &fake, NEXT, SiteKind::Standby).unwrap();
    fake.away.lock().unwrap().insert(cell.ids[NEXT]);
    let notes = Mutex::new(String::new());
    let tell = |event: JobEvent<'_>| {
        if let JobEvent::Note(note) = event {
            notes.lock().unwrap().push_str(note);
        }
    };
    let group = cell.group("home").unwrap();
    let removed = lead_as(&fake, true, false, &tell, |job| {
        vos::remove_standby(job, group, cell.ids[NEXT], None)
    });
    assert_eq!(removed, Ok(true));
    assert_eq!(fake.site(cell.ids[NEXT]), None);
    assert!(notes.lock().unwrap().contains("when it is back"));
    // A dry run changes nothing.
    fake.away.lock().unwrap().clear();
    let group = cell.group("home").unwrap();
    lead_as(&fake, true, true, &|_| {}, |job| {
        vos::add_standby(job, group, cell.ids[NEXT], PARTITION, SiteKind::Standby)
    })
    .unwrap();
    assert_eq!(fake.site(cell.ids[NEXT]), None);
}
