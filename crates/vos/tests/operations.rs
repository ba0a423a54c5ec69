//! Every operation on one or two servers: its effect, and that repeating it finishes an attempt
//! that was interrupted at any step.

use std::sync::Mutex;

use crate::common::{Cell, PARTITION, by_name, lead, lead_as, name, stop_everywhere, text};
use celldb::CellError;
use types::{Fault, SiteKind, VolumeCall, VolumeId, VolumeKind};
use vos::{JobEvent, Servers, VosError};

/// Checks that the group is recorded, free, and exists once, under the recorded number.
fn is_whole(cell: &Cell, called: &str, at: usize, why: &str) {
    let group = cell.group(called).unwrap_or_else(|| panic!("{called} is not known: {why}")).record;
    assert_eq!(group.busy, None, "{why}");
    let site = group.read_write_site().unwrap();
    assert_eq!((site.server, site.partition.as_str()), (cell.ids[at], PARTITION), "{why}");
    for number in 0..cell.ids.len() {
        let heads: Vec<_> =
            cell.volumes(number).into_iter().filter(|one| text(&one.name) == called).collect();
        assert_eq!(heads.len(), usize::from(number == at), "{why}");
        assert!(
            heads.iter().all(|one| one.id == group.read_write && one.kind == VolumeKind::ReadWrite),
            "{why}"
        );
    }
}

#[test]
fn create_that_is_stopped_is_finished_by_the_next() {
    let create = |cell: &Cell, servers: &dyn Servers| {
        lead(servers, |job| vos::create(job, &cell.new_volume("home", 1))).map(drop)
    };
    stop_everywhere(
        2,
        |_| {},
        create,
        |cell, why| {
            match create(cell, &cell.reach) {
                // The interrupted operation was already complete.
                Err(VosError::Unfit(_)) | Ok(()) => {}
                other => panic!("{other:?}: {why}"),
            }
            is_whole(cell, "home", 1, why);
        },
    );
}

/// The session repeats a call to a server that ended before it answered; the next server instance
/// carries the call out once more.
struct Twice<'c>(&'c vos::ServerConnections);

impl Servers for Twice<'_> {
    fn db(&self) -> &dyn celldb::CellDb {
        self.0.db()
    }

    fn call(&self, server: types::ServerId, call: VolumeCall) -> Result<types::Answer, VosError> {
        if matches!(call, VolumeCall::Create { .. }) {
            self.0.call(server, call.clone())?;
        }
        self.0.call(server, call)
    }

    fn name(&self, server: types::ServerId) -> String {
        self.0.name(server)
    }
}

#[test]
fn a_server_that_is_asked_again_has_made_the_volume_already() {
    let cell = Cell::new(2);
    let made = lead(&Twice(&cell.reach), |job| vos::create(job, &cell.new_volume("home", 1)))
        .unwrap()
        .unwrap();
    assert_eq!(made.id, cell.group("home").unwrap().record.read_write);
    is_whole(&cell, "home", 1, "asked twice");
}

#[test]
fn create_that_is_refused_leaves_nothing() {
    let cell = Cell::new(2);
    // A volume that the database does not have.
    let call = VolumeCall::Create {
        id: None,
        partition: None,
        name: name("hidden"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    cell.reach.call(cell.ids[1], call).unwrap();
    let refused =
        lead(&cell.reach, |job| vos::create(job, &cell.new_volume("hidden", 1))).unwrap_err();
    assert_eq!(refused.fault(), Some(Fault::Exists));
    assert_eq!(cell.group("hidden"), None);
    cell.make("home", 0);
    let refused =
        lead(&cell.reach, |job| vos::create(job, &cell.new_volume("home", 1))).unwrap_err();
    assert!(matches!(refused, VosError::Unfit(_)), "{refused}");
    let mut nowhere = cell.new_volume("other", 1);
    nowhere.partition = "/vicepz".into();
    let refused = lead(&cell.reach, |job| vos::create(job, &nowhere)).unwrap_err();
    assert!(refused.to_string().contains("/vicepz"), "{refused}");
    assert_eq!((cell.names(0), cell.names(1)), (vec!["home".into()], vec!["hidden".into()]));
}

fn snapshot(cell: &Cell, servers: &dyn Servers, called: &str) {
    let of = cell.group("home").unwrap().record.read_write;
    let kind = VolumeKind::Snapshot;
    let clone = VolumeCall::Clone { id: None, of, name: name(called), kind, replace: true };
    servers.call(cell.ids[1], clone).unwrap();
}

/// Servers at which a dump makes its snapshot just before the volume goes.
struct Dumped<'c>(&'c Cell);

impl Servers for Dumped<'_> {
    fn db(&self) -> &dyn celldb::CellDb {
        self.0.reach.db()
    }

    fn call(&self, server: types::ServerId, call: VolumeCall) -> Result<types::Answer, VosError> {
        let home = self.0.group("home").unwrap().record.read_write;
        if matches!(&call, VolumeCall::Remove { id } if *id == home) {
            snapshot(self.0, &self.0.reach, "home.dumping");
        }
        self.0.reach.call(server, call)
    }

    fn name(&self, server: types::ServerId) -> String {
        self.0.reach.name(server)
    }
}

#[test]
fn what_operations_left_for_themselves_goes_with_the_volume() {
    let cell = Cell::new(2);
    cell.make("home", 1);
    for called in
        ["home.moving", "home.moving2", "home.releasing", "home.dumping", "home.snapshot.kept"]
    {
        snapshot(&cell, &cell.reach, called);
    }
    let found = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    lead(&Dumped(&cell), |job| vos::remove(job, &found)).unwrap();
    assert_eq!(cell.group("home"), None);
    assert_eq!(cell.names(1), ["home.snapshot.kept"]);
}

#[test]
fn remove_that_is_stopped_is_finished_by_the_next() {
    let remove = |_: &Cell, servers: &dyn Servers| match vos::find(servers, &by_name("home"), None)
    {
        Err(VosError::NoVolume) => {
            match lead(servers, |job| vos::finish_removal(job, &by_name("home")))? {
                true => Ok(()),
                false => Err(VosError::NoVolume),
            }
        }
        found => lead(servers, |job| vos::remove(job, &found?)),
    };
    stop_everywhere(
        2,
        |cell| {
            cell.make("home", 1);
            cell.make("other", 0);
            lead(&cell.reach, |job| vos::backup(job, cell.group("home").unwrap())).unwrap();
            snapshot(cell, &cell.reach, "home.dumping");
        },
        remove,
        |cell, why| {
            assert!(matches!(remove(cell, &cell.reach), Ok(()) | Err(VosError::NoVolume)), "{why}");
            assert_eq!(cell.group("home"), None, "{why}");
            assert_eq!(cell.names(1), [""; 0], "{why}");
            is_whole(cell, "other", 0, why);
        },
    );
}

#[test]
fn rename_that_is_stopped_is_finished_by_the_next() {
    let rename = |_: &Cell, servers: &dyn Servers| {
        lead(servers, |job| vos::rename(job, &name("home"), &name("work")))
    };
    stop_everywhere(
        2,
        |cell| {
            cell.make("home", 1);
            lead(&cell.reach, |job| vos::backup(job, cell.group("home").unwrap())).unwrap();
        },
        rename,
        |cell, why| {
            match rename(cell, &cell.reach) {
                Ok(()) | Err(VosError::NoVolume) => {}
                other => panic!("{other:?}: {why}"),
            }
            assert_eq!(cell.group("home"), None, "{why}");
            is_whole(cell, "work", 1, why);
            assert_eq!(cell.names(1), ["work", "work.backup"], "{why}");
        },
    );
}

#[test]
fn a_name_that_is_taken_changes_nothing() {
    let cell = Cell::new(2);
    cell.make("home", 0);
    cell.make("work", 1);
    let refused =
        lead(&cell.reach, |job| vos::rename(job, &name("home"), &name("work"))).unwrap_err();
    assert!(matches!(refused, VosError::Cell(CellError::Taken { .. })), "{refused}");
    is_whole(&cell, "home", 0, "refused");
    // A volume of the new name that only its server has.
    let call = VolumeCall::Create {
        id: None,
        partition: None,
        name: name("hidden"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    cell.reach.call(cell.ids[0], call).unwrap();
    let refused =
        lead(&cell.reach, |job| vos::rename(job, &name("home"), &name("hidden"))).unwrap_err();
    assert_eq!(refused.fault(), Some(Fault::Exists));
    is_whole(&cell, "home", 0, "refused by the server");
    assert_eq!(cell.group("hidden"), None);
}

#[test]
fn an_interrupted_backup_is_finished_under_its_number() {
    let backup = |cell: &Cell, servers: &dyn Servers| {
        lead(servers, |job| vos::backup(job, cell.group("home").unwrap())).map(drop)
    };
    stop_everywhere(
        1,
        |cell| {
            cell.make("home", 0);
        },
        backup,
        |cell, why| {
            backup(cell, &cell.reach).unwrap();
            let group = cell.group("home").unwrap().record;
            let made = vos::find(&cell.reach, &by_name("home.backup"), None).unwrap();
            assert_eq!((group.backup, group.busy), (Some(made.volume().id), None), "{why}");
            let number = made.volume().id;
            backup(cell, &cell.reach).unwrap();
            assert_eq!(
                vos::find(&cell.reach, &by_name("home.backup"), None).unwrap().volume().id,
                number,
                "{why}"
            );
            assert_eq!(cell.names(0), ["home", "home.backup"], "{why}");
        },
    );
}

#[test]
fn sites_come_and_go_in_the_database() {
    let cell = Cell::new(3);
    cell.make("home", 0);
    let add = |at: usize| {
        lead(&cell.reach, |job| {
            vos::add_site(job, cell.group("home").unwrap(), cell.ids[at], PARTITION)
        })
    };
    assert_eq!((add(1), add(2), add(2)), (Ok(true), Ok(true), Ok(false)));
    let group = cell.group("home").unwrap().record;
    let at: Vec<_> = group.sites.iter().map(|site| (site.server, site.kind)).collect();
    let kinds = [SiteKind::ReadWrite, SiteKind::ReadOnly, SiteKind::ReadOnly];
    assert_eq!(at, cell.ids.iter().copied().zip(kinds).collect::<Vec<_>>());
    assert!(group.read_only.is_some_and(|number| number != group.read_write));
    assert_eq!(group.readable_sites().count(), 0, "nothing was released");
    let remove = |at: usize| {
        lead(&cell.reach, |job| vos::remove_site(job, cell.group("home").unwrap(), cell.ids[at]))
    };
    assert_eq!((remove(1), remove(1)), (Ok(true), Ok(false)));
    assert_eq!(cell.group("home").unwrap().record.sites.len(), 2);
}

/// Makes a site that fetched the release, and did not receive the call to show it.
fn make_lagging(cell: &Cell, at: usize) {
    cell.make_released("home");
    lead(&cell.reach, |job| vos::release(job, cell.group("home").unwrap())).unwrap();
    let of =
        vos::find(&cell.reach, &by_name("home.readonly"), Some(cell.ids[at])).unwrap().volume().id;
    let (name, kind) = (name("home.releasing"), VolumeKind::Snapshot);
    cell.reach
        .call(cell.ids[at], VolumeCall::Clone { id: None, of, name, kind, replace: false })
        .unwrap();
    assert_eq!(cell.names(at), ["home.readonly", "home.releasing"]);
}

#[test]
fn a_removed_lagging_site_has_nothing_of_the_release() {
    let mut cell = Cell::new(2);
    make_lagging(&cell, 1);
    let remove = |cell: &Cell| {
        lead(&cell.reach, |job| vos::remove_site(job, cell.group("home").unwrap(), cell.ids[1]))
    };
    assert_eq!(remove(&cell), Ok(true));
    assert_eq!(cell.names(1), ["home.readonly"]);
    // A site that does not answer is removed all the same.
    lead(&cell.reach, |job| {
        vos::add_site(job, cell.group("home").unwrap(), cell.ids[1], PARTITION)
    })
    .unwrap();
    cell.crash(1);
    assert_eq!(remove(&cell), Ok(true));
    assert_eq!(cell.group("home").unwrap().record.busy, None);
}

#[test]
fn what_a_site_that_lags_has_of_a_release_goes_with_the_volume() {
    let cell = Cell::new(2);
    make_lagging(&cell, 1);
    let found = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    lead(&cell.reach, |job| vos::remove(job, &found)).unwrap();
    assert_eq!(cell.names(1), ["home.readonly"]);
}

#[test]
fn what_a_site_that_lags_has_of_a_release_is_renamed_too() {
    let cell = Cell::new(2);
    make_lagging(&cell, 1);
    lead(&cell.reach, |job| vos::rename(job, &name("home"), &name("work"))).unwrap();
    assert_eq!(cell.names(1), ["work.readonly", "work.releasing"]);
}

#[test]
fn of_two_administrators_one_waits() {
    let cell = Cell::new(1);
    cell.make("home", 0);
    lead(&cell.reach, |job| vos::lock(job, cell.group("home").unwrap())).unwrap();
    let group = || cell.group("home").unwrap();
    let refused = lead(&cell.reach, |job| vos::backup(job, group())).unwrap_err();
    assert!(
        matches!(&refused, VosError::Busy { busy, .. } if busy.operation == "lock"),
        "{refused}"
    );
    let refused = lead(&cell.reach, |job| vos::lock(job, group())).unwrap_err();
    assert!(matches!(refused, VosError::Busy { .. }));
    assert_eq!(lead(&cell.reach, |job| vos::unlock(job, group())), Ok(true));
    assert_eq!(lead(&cell.reach, |job| vos::unlock(job, group())), Ok(false));
    // The same operation, whose leader still runs.
    let stopped = crate::common::Stopped::new(&cell.reach, 2, false);
    lead(&stopped, |job| vos::backup(job, group())).unwrap_err();
    let refused =
        lead_as(&cell.reach, false, false, &|_| {}, |job| vos::backup(job, group())).unwrap_err();
    assert!(
        matches!(&refused, VosError::Busy { busy, .. } if busy.operation == "backup"),
        "{refused}"
    );
    lead(&cell.reach, |job| vos::backup(job, group())).unwrap();
}

#[test]
fn what_is_only_said_changes_nothing() {
    let cell = Cell::new(2);
    cell.make("home", 0);
    let revision = cell.reach.db().revision().unwrap();
    let reported = Mutex::new(Vec::new());
    let tell = |event: JobEvent<'_>| {
        if let JobEvent::Step(step) = event {
            reported.lock().unwrap().push(step.to_owned());
        }
    };
    let group = || cell.group("home").unwrap();
    let found = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    let dry = |act: &dyn Fn(&vos::Job<'_>) -> Result<(), VosError>| {
        lead_as(&cell.reach, true, true, &tell, act).unwrap();
        let steps = std::mem::take(&mut *reported.lock().unwrap());
        assert!(steps.iter().any(|step| step.starts_with("database: ")), "{steps:?}");
    };
    dry(&|job| vos::create(job, &cell.new_volume("new", 1)).map(drop));
    dry(&|job| vos::rename(job, &name("home"), &name("work")));
    dry(&|job| vos::backup(job, group()).map(drop));
    dry(&|job| vos::add_site(job, group(), cell.ids[1], PARTITION).map(drop));
    dry(&|job| vos::lock(job, group()));
    dry(&|job| vos::remove(job, &found));
    assert_eq!(cell.reach.db().revision().unwrap(), revision);
    assert_eq!((cell.names(0), cell.names(1)), (vec!["home".into()], vec![]));
}

#[test]
fn sync_enters_existing_volumes_and_forgets_missing_ones() {
    let cell = Cell::new(2);
    let made = cell.make("home", 1);
    lead(&cell.reach, |job| vos::backup(job, cell.group("home").unwrap())).unwrap();
    let before = cell.group("home").unwrap();
    // The database loses the group.
    cell.reach.db().remove_group(made.id, before.revision).unwrap();
    let mended = lead(&cell.reach, |job| vos::sync_database(job, cell.ids[1], None)).unwrap();
    assert_eq!((mended.looked_at, mended.changed, mended.left), (2, 2, 0));
    assert_eq!(cell.group("home").unwrap().record, before.record);
    let mended = lead(&cell.reach, |job| vos::sync_database(job, cell.ids[1], None)).unwrap();
    assert_eq!(mended.changed, 0, "it agrees");
    // The database records a server that does not have the volume.
    let mut wrong = cell.group("home").unwrap();
    wrong.record.sites[0].server = cell.ids[0];
    cell.reach.db().put_group(&wrong.record, wrong.revision).unwrap();
    lead(&cell.reach, |job| vos::sync_database(job, cell.ids[1], Some(PARTITION))).unwrap();
    assert_eq!(cell.group("home").unwrap().record, before.record);
    // The server loses the volume.
    cell.reach.call(cell.ids[1], VolumeCall::Remove { id: made.id }).unwrap();
    let mended = lead(&cell.reach, |job| vos::sync_servers(job, None, None)).unwrap();
    assert_eq!((mended.looked_at, mended.changed), (1, 1));
    assert_eq!(cell.group("home"), None);
}

#[test]
fn a_server_that_is_silent_keeps_what_is_said_of_it() {
    let mut cell = Cell::new(2);
    cell.make("home", 1);
    cell.crash(1);
    let notes = Mutex::new(0);
    let tell = |event: JobEvent<'_>| {
        if matches!(event, JobEvent::Note(_)) {
            *notes.lock().unwrap() += 1;
        }
    };
    let mended =
        lead_as(&cell.reach, true, false, &tell, |job| vos::sync_servers(job, None, None)).unwrap();
    assert_eq!((mended.changed, *notes.lock().unwrap()), (0, 1));
    assert!(cell.group("home").is_some());
    let refused =
        lead(&cell.reach, |job| vos::create(job, &cell.new_volume("new", 1))).unwrap_err();
    assert!(matches!(refused, VosError::Away { .. }), "{refused}");
    assert_eq!(cell.group("new"), None, "it was asked before anything was announced");
    cell.start(1);
    is_whole(&cell, "home", 1, "the server is back");
    let id = cell.group("home").unwrap().record.read_write;
    assert!(id > VolumeId(0));
}

#[test]
fn a_volume_in_a_rename_is_not_removed_by_its_old_name() {
    let cell = Cell::new(1);
    cell.make("home", 0);
    let mut seen = cell.group("home").unwrap();
    // The database has the new name already, the server has not.
    seen.record.name = name("house");
    let operation = "rename from home".to_owned();
    seen.record.busy = Some(types::Busy { operation, by: "somebody".to_owned(), since_secs: 1 });
    cell.reach.db().put_group(&seen.record, seen.revision).unwrap();
    let found = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    let refused = lead(&cell.reach, |job| vos::remove(job, &found)).unwrap_err();
    assert!(matches!(refused, VosError::Busy { .. }), "{refused}");
    assert!(cell.files(0, "home").is_some());
}

#[test]
fn a_forgotten_group_keeps_its_volumes_and_is_entered_again() {
    let cell = Cell::new(1);
    let made = cell.make("home", 0);
    let forget = |cell: &Cell| {
        lead(&cell.reach, |job| vos::forget(job, &cell.group("home").expect("a record")))
    };
    lead(&cell.reach, |job| vos::lock(job, cell.group("home").unwrap())).unwrap();
    let refused = forget(&cell).unwrap_err();
    assert!(matches!(refused, VosError::Busy { .. }), "{refused}");
    assert!(cell.group("home").is_some(), "its record is what finishes an operation");
    lead(&cell.reach, |job| vos::unlock(job, cell.group("home").unwrap())).unwrap();
    let before = cell.group("home").unwrap();
    forget(&cell).unwrap();
    assert!(cell.group("home").is_none());
    assert_eq!(cell.names(0), ["home"]);
    // A record that another one wrote meanwhile is not removed by an old reading of it.
    lead(&cell.reach, |job| vos::sync_database(job, cell.ids[0], None)).unwrap();
    assert_eq!(cell.group("home").map(|seen| seen.record.read_write), Some(made.id));
    assert!(lead(&cell.reach, |job| vos::forget(job, &before)).is_err());
    assert!(cell.group("home").is_some());
}

#[test]
fn a_site_has_a_given_number_and_shows_what_is_there() {
    let cell = Cell::new(3);
    let made = cell.make("home", 0);
    let add = |at: usize, new: vos::NewSite| {
        let group = cell.group("home").unwrap();
        lead(&cell.reach, |job| vos::add_site_as(job, group, (cell.ids[at], PARTITION), new))
    };
    let unfit = |added: Result<bool, VosError>| matches!(added, Err(VosError::Unfit(_)));
    let numbered = |number: u64| vos::NewSite { number: Some(VolumeId(number)), is_there: false };
    assert!(unfit(add(1, numbered(made.id.0))), "the read-write volume has that number");
    let number = made.id.0 + 1000;
    assert_eq!(add(1, numbered(number)), Ok(true));
    assert!(unfit(add(2, numbered(number + 1))), "a group has one number of its copies");
    lead(&cell.reach, |job| vos::release(job, cell.group("home").unwrap())).unwrap();
    let released = cell.group("home").unwrap().record;
    assert_eq!(released.read_only, Some(VolumeId(number)));
    let valid = vos::NewSite { number: None, is_there: true };
    assert!(unfit(add(2, valid)), "it has no copy there");
    // The record is lost, and the copy is not: the site is valid without a release.
    lead(&cell.reach, |job| vos::remove_site(job, cell.group("home").unwrap(), cell.ids[1]))
        .unwrap();
    assert_eq!(add(1, valid), Ok(true));
    let again = cell.group("home").unwrap().record;
    assert_eq!((&again.sites, again.busy), (&released.sites, None));
}

#[test]
fn a_place_is_recorded_only_where_the_volume_is() {
    let mut cell = Cell::new(3);
    let made = cell.make("home", 0);
    let change = |cell: &Cell, at: usize| {
        let group = cell.group("home").unwrap();
        lead(&cell.reach, |job| vos::change_location(job, group, cell.ids[at], PARTITION))
    };
    assert_eq!(change(&cell, 0), Ok(false), "it is recorded there already");
    assert!(matches!(change(&cell, 1), Err(VosError::Unfit(_))));
    // The database names another server.
    let mut wrong = cell.group("home").unwrap();
    let before = wrong.record.clone();
    wrong.record.sites[0].server = cell.ids[2];
    cell.reach.db().put_group(&wrong.record, wrong.revision).unwrap();
    assert_eq!(change(&cell, 0), Ok(true));
    assert_eq!(cell.group("home").unwrap().record, before);
    // A server that is away can be prepared for.
    cell.crash(1);
    assert_eq!(change(&cell, 1), Ok(true));
    let group = cell.group("home").unwrap().record;
    assert_eq!(group.read_write_site().map(|site| site.server), Some(cell.ids[1]));
    assert_eq!((group.read_write, group.busy), (made.id, None));
}

#[test]
fn sync_of_one_volume_leaves_the_others() {
    let cell = Cell::new(1);
    for called in ["home", "work"] {
        let made = cell.make(called, 0);
        let seen = cell.group(called).unwrap();
        cell.reach.db().remove_group(made.id, seen.revision).unwrap();
    }
    let sync = |wanted: &types::WhichVolume| {
        lead(&cell.reach, |job| vos::sync_volume(job, cell.ids[0], None, wanted)).unwrap()
    };
    let mended = sync(&by_name("home"));
    assert_eq!((mended.looked_at, mended.changed), (1, 1));
    assert!(cell.group("home").is_some() && cell.group("work").is_none());
    let number = cell.group("home").unwrap().record.read_write;
    assert_eq!(sync(&types::WhichVolume::Id(number)).looked_at, 1);
    assert_eq!(sync(&by_name("nothere")).looked_at, 0);
}
