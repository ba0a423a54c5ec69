//! Restores: a dump makes a volume, or brings one into its state, at whichever step the restore is
//! interrupted.

use std::time::Duration;

use crate::common::{Cell, Files, by_name, lead, name, stop_everywhere};
use bytes::Bytes;
use store::StreamPart;
use types::{Status, StreamCursor, VolumeCall, VolumeInfo, VolumeKind};
use vos::{Dumped, Part, Servers, Sink, VosError};

/// A dump in memory.
struct Dump {
    what: Dumped,
    parts: Vec<Part>,
}

impl Sink for Dump {
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), VosError> {
        self.what.epoch = volume.epoch;
        Ok(())
    }

    fn part(&mut self, part: Bytes) -> Result<StreamCursor, VosError> {
        let opened = StreamPart::open(&part).unwrap();
        let (from, to) = (opened.from, opened.to);
        self.parts.push(Part { from, to, bytes: part });
        Ok(to)
    }
}

fn dump(cell: &Cell, volume: &str, since: u64) -> Dump {
    let found = vos::find(&cell.reach, &by_name(volume), None).unwrap();
    let what = Dumped {
        tree: found.volume().tree,
        epoch: 0,
        since,
        since_name: "the one before".into(),
        quota_files: 0,
        created: None,
        updated: None,
        total_bytes: 0,
    };
    let mut dump = Dump { what, parts: Vec::new() };
    lead(&cell.reach, |job| vos::dump(job, found.server, found.volume(), since, &mut dump))
        .unwrap();
    dump
}

fn snapshot(cell: &Cell, called: &str) -> u64 {
    let of = cell.group("home").unwrap().record.read_write;
    let clone = VolumeCall::Clone {
        id: None,
        of,
        name: name(called),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    let types::Answer::Volumes { volumes, .. } = cell.reach.call(cell.ids[0], clone).unwrap()
    else {
        panic!()
    };
    volumes[0].epoch
}

/// Dumps of three states, each since the one before; the first is restored as `twin`.
fn prepare(cell: &mut Cell) -> (Vec<Dump>, Vec<Files>) {
    cell.make("home", 0);
    let (mut dumps, mut files, mut since) = (Vec::new(), Vec::new(), 0);
    for number in 1..4_u8 {
        cell.write(0, "home", "one", &[number; 100]);
        cell.write(0, "home", &format!("new{number}"), &vec![number; 300_000]);
        let called = format!("s{number}");
        let epoch = snapshot(cell, &called);
        dumps.push(dump(cell, &called, since));
        files.push(cell.files(0, &called).unwrap());
        since = epoch;
    }
    let mut parts = dumps[0].parts.clone().into_iter();
    let new = cell.new_volume("twin", 1);
    lead(&cell.reach, |job| vos::restore(job, &new, &dumps[0].what, &mut || Ok(parts.next())))
        .unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[0]));
    (dumps, files)
}

fn over(cell: &Cell, servers: &dyn Servers, dump: &Dump) -> Result<(), VosError> {
    let mut parts = dump.parts.clone().into_iter();
    let group = cell.group("twin").unwrap();
    lead(servers, |job| vos::restore_over(job, group, &dump.what, &mut || Ok(parts.next())))
        .map(drop)
}

#[test]
fn options_and_times_of_access_are_in_dumps() {
    let cell = Cell::new(2);
    cell.make("home", 0);
    cell.write(0, "home", "one", b"text");
    let mut of_home = Vec::new();
    let (mut dumps, mut since) = (Vec::new(), 0);
    for (number, on) in [(1, false), (2, true), (3, true), (4, false)] {
        cell.record_reads(0, "home", on);
        cell.decide_by_lists(0, "home", on);
        let changed = cell.status(0, "home", "one").changed;
        cell.note_read(0, "home", "one", changed.later(Duration::from_nanos(number)));
        let status = cell.status(0, "home", "one");
        assert_eq!((status.read_times, status.by_list), (on, on));
        of_home.push(status);
        let called = format!("s{number}");
        let epoch = snapshot(&cell, &called);
        dumps.push(dump(&cell, &called, since));
        since = epoch;
    }
    assert!(of_home[0].accessed < of_home[1].accessed, "reads are recorded from the second on");
    assert!(of_home[1].accessed < of_home[2].accessed);
    assert_eq!(of_home[2].accessed, of_home[3].accessed);
    let mut parts = dumps[0].parts.clone().into_iter();
    let new = cell.new_volume("twin", 1);
    lead(&cell.reach, |job| vos::restore(job, &new, &dumps[0].what, &mut || Ok(parts.next())))
        .unwrap();
    let restored = |number: usize| {
        let restored = cell.status(1, "twin", "one");
        // Versions only rise, also for an older state.
        let Status { fid, data_version, status_version, .. } = restored;
        let wanted = Status { fid, data_version, status_version, ..of_home[number] };
        assert_eq!(restored, wanted, "{number}");
    };
    restored(0);
    for (number, dump) in dumps.iter().enumerate().skip(1) {
        over(&cell, &cell.reach, dump).unwrap();
        restored(number);
    }
    over(&cell, &cell.reach, &dumps[0]).unwrap();
    restored(0);
    over(&cell, &cell.reach, &dumps[1]).unwrap();
    cell.note_read(1, "twin", "one", of_home[2].accessed);
    assert_eq!(cell.status(1, "twin", "one").accessed, of_home[2].accessed, "it records reads");
}

#[test]
fn increments_are_applied_in_their_order_or_refused() {
    let mut cell = Cell::new(2);
    let (dumps, files) = prepare(&mut cell);
    let refused = |dump: &Dump, says: &str| {
        let error = over(&cell, &cell.reach, dump).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(cell.group("twin").unwrap().record.busy, None);
    };
    refused(&dumps[2], "is missing between them");
    over(&cell, &cell.reach, &dumps[1]).unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[1]));
    refused(&dumps[1], "has what the dump brings");
    over(&cell, &cell.reach, &dumps[2]).unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[2]));
    // A full dump replaces any state; then increments continue from it.
    cell.write(1, "twin", "mine", b"mine");
    refused(&dumps[1], "was changed since");
    over(&cell, &cell.reach, &dumps[0]).unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[0]));
    over(&cell, &cell.reach, &dumps[1]).unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[1]));
    // Of another volume: a full dump replaces one whose epochs no other volume shows.
    cell.make("other", 1);
    let over_other = |cell: &Cell, dump: &Dump| {
        let (mut parts, group) = (dump.parts.clone().into_iter(), cell.group("other").unwrap());
        lead(&cell.reach, |job| vos::restore_over(job, group, &dump.what, &mut || Ok(parts.next())))
            .map(drop)
    };
    let of = cell.group("other").unwrap().record.read_write;
    let kept = VolumeCall::Clone {
        id: None,
        of,
        name: name("kept"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    let types::Answer::Volumes { volumes, .. } = cell.reach.call(cell.ids[1], kept).unwrap() else {
        panic!()
    };
    let before = cell.files(1, "other");
    let refused = over_other(&cell, &dumps[0]).unwrap_err();
    assert!(refused.to_string().contains("another volume"), "{refused}");
    assert_eq!((cell.files(1, "other"), cell.group("other").unwrap().record.busy), (before, None));
    cell.reach.call(cell.ids[1], VolumeCall::Remove { id: volumes[0].id }).unwrap();
    over_other(&cell, &dumps[0]).unwrap();
    assert_eq!(cell.files(1, "other").as_ref(), Some(&files[0]));
    over_other(&cell, &dumps[1]).unwrap();
    assert_eq!(cell.files(1, "other").as_ref(), Some(&files[1]));
    cell.write(1, "other", "still", b"mine");
}

#[test]
fn an_interrupted_restore_over_a_volume_is_finished() {
    for (which, becomes) in [(1, 1), (0, 0)] {
        let prepared = std::cell::RefCell::new(None);
        stop_everywhere(
            2,
            |cell| {
                let made = prepare(cell);
                if which == 0 {
                    cell.write(1, "twin", "one", b"changed");
                }
                *prepared.borrow_mut() = Some(made);
            },
            |cell, servers| over(cell, servers, &prepared.borrow().as_ref().unwrap().0[which]),
            |cell, why| {
                let prepared = prepared.borrow();
                let (dumps, files) = prepared.as_ref().unwrap();
                let shows = cell.files(1, "twin").unwrap();
                let mut before = files[0].clone();
                if which == 0 {
                    before.get_mut("one").unwrap()[..7].copy_from_slice(b"changed");
                }
                assert!(shows == before || shows == files[becomes], "{why}");
                match over(cell, &cell.reach, &dumps[which]) {
                    Ok(()) => {}
                    // The interrupted restore was already complete.
                    Err(VosError::Unfit(reported))
                        if reported.contains("has what the dump brings") => {}
                    Err(error) => panic!("{error}: {why}"),
                }
                assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[becomes]), "{why}");
                assert_eq!(cell.group("twin").unwrap().record.busy, None, "{why}");
                cell.write(1, "twin", "goes on", b"x");
            },
        );
    }
}

/// An unfinished restore is listed, and given up: nothing of it remains, and the volume under it is
/// usable.
#[test]
fn what_is_unfinished_is_told_and_given_up() {
    let mut cell = Cell::new(2);
    let (dumps, files) = prepare(&mut cell);
    let incoming = || vos::incoming(&cell.reach, cell.ids[1]).unwrap();
    assert_eq!(incoming(), []);
    // Over a volume: stopped after the first part.
    over(&cell, &crate::common::Stopped::new(&cell.reach, 2, false), &dumps[1]).unwrap_err();
    let tree = cell.group("twin").unwrap().record.read_write;
    let [one] = incoming()[..] else { panic!("{:?}", incoming()) };
    assert_eq!((one.tree, one.over, one.since), (tree, true, dumps[1].what.since));
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[0]));
    let abandon = |tree| lead(&cell.reach, |job| vos::abandon(job, cell.ids[1], tree));
    let living = crate::common::lead_as(&cell.reach, false, false, &|_| {}, |job| {
        vos::abandon(job, cell.ids[1], tree)
    });
    assert!(matches!(living, Err(VosError::Busy { .. })), "who leads it lives");
    abandon(tree).unwrap();
    assert_eq!((incoming(), cell.group("twin").unwrap().record.busy), (Vec::new(), None));
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[0]));
    assert!(matches!(abandon(tree), Err(VosError::NoVolume)));
    // A restore as a new volume.
    let (mut parts, new) = (dumps[0].parts.clone().into_iter(), cell.new_volume("new", 1));
    let stopped = crate::common::Stopped::new(&cell.reach, 3, false);
    lead(&stopped, |job| vos::restore(job, &new, &dumps[0].what, &mut || Ok(parts.next())))
        .unwrap_err();
    let tree = cell.group("new").unwrap().record.read_write;
    assert_eq!(
        incoming().iter().map(|one| (one.tree, one.over)).collect::<Vec<_>>(),
        [(tree, false)]
    );
    abandon(tree).unwrap();
    assert_eq!((incoming(), cell.group("new")), (Vec::new(), None));
    // Both may be begun again.
    over(&cell, &cell.reach, &dumps[1]).unwrap();
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[1]));
}

#[test]
fn a_dump_becomes_a_read_only_volume_and_newer_replace_it() {
    let mut cell = Cell::new(2);
    let (dumps, files) = prepare(&mut cell);
    let new = cell.new_volume("kept", 1);
    let restore = |cell: &Cell, over: bool, dump: &Dump| {
        let mut parts = dump.parts.clone().into_iter();
        let made = |job: &vos::Job<'_>| {
            vos::restore_read_only(job, &new, over, &dump.what, &mut || Ok(parts.next()))
        };
        lead(&cell.reach, made).map(drop)
    };
    let refused = |made: Result<(), VosError>, says: &str| {
        let error = made.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(restore(&cell, false, &dumps[1]), "there is no volume of that name");
    restore(&cell, false, &dumps[0]).unwrap();
    assert_eq!(cell.files(1, "kept.readonly").as_ref(), Some(&files[0]));
    let group = cell.group("kept").unwrap().record;
    assert!(
        group.read_write_site().is_none()
            && group.busy.is_none()
            && group.released_epoch == dumps[0].what.epoch
    );
    refused(restore(&cell, false, &dumps[0]), "there is a read-only volume of that name");
    refused(restore(&cell, true, &dumps[2]), "starts from something else");
    assert_eq!(cell.files(1, "kept.readonly").as_ref(), Some(&files[0]));
    let number =
        |cell: &Cell| vos::find(&cell.reach, &by_name("kept.readonly"), None).unwrap().volume().id;
    let before = number(&cell);
    restore(&cell, true, &dumps[1]).unwrap();
    assert_eq!((cell.files(1, "kept.readonly").as_ref(), number(&cell)), (Some(&files[1]), before));
    // A group with a read-write volume gets its read-only volume only by a release.
    let (twin, mut parts) = (cell.new_volume("twin", 1), dumps[0].parts.clone().into_iter());
    let made = |job: &vos::Job<'_>| {
        vos::restore_read_only(job, &twin, true, &dumps[0].what, &mut || Ok(parts.next()))
    };
    refused(lead(&cell.reach, made).map(drop), "vos release");
}

#[test]
fn a_read_only_restore_that_is_stopped_is_finished_by_the_next() {
    let prepared = std::cell::RefCell::new(None);
    let restore = |cell: &Cell, servers: &dyn Servers, dump: &Dump| {
        let (new, mut parts) = (cell.new_volume("kept", 1), dump.parts.clone().into_iter());
        let made = |job: &vos::Job<'_>| {
            vos::restore_read_only(job, &new, true, &dump.what, &mut || Ok(parts.next()))
        };
        lead(servers, made).map(drop)
    };
    stop_everywhere(
        2,
        |cell| *prepared.borrow_mut() = Some(prepare(cell)),
        |cell, servers| restore(cell, servers, &prepared.borrow().as_ref().unwrap().0[0]),
        |cell, why| {
            let prepared = prepared.borrow();
            let (dumps, files) = prepared.as_ref().unwrap();
            let shows = cell.files(1, "kept.readonly");
            assert!(shows.is_none() || shows.as_ref() == Some(&files[0]), "{why}");
            restore(cell, &cell.reach, &dumps[0]).unwrap_or_else(|error| panic!("{error}: {why}"));
            assert_eq!(cell.files(1, "kept.readonly").as_ref(), Some(&files[0]), "{why}");
            assert_eq!(cell.group("kept").unwrap().record.busy, None, "{why}");
        },
    );
}

/// A dump that is overtaken by something as soon as it has its snapshot.
struct Overtaken<'c>(&'c dyn Fn(&VolumeInfo), Dump);

impl Sink for Overtaken<'_> {
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), VosError> {
        self.0(volume);
        self.1.begin(volume)
    }

    fn part(&mut self, part: Bytes) -> Result<StreamCursor, VosError> {
        self.1.part(part)
    }
}

#[test]
fn a_dump_whose_snapshot_another_one_took_is_none() {
    let mut cell = Cell::new(2);
    let (dumps, _) = prepare(&mut cell);
    let what = Dumped { epoch: 0, since: 0, ..dumps[0].what.clone() };
    let another = |volume: &VolumeInfo| {
        cell.write(0, "home", "one", b"what the first dump is not to bring");
        let (of, kind) = (volume.tree, VolumeKind::Snapshot);
        let clone =
            VolumeCall::Clone { id: None, of, name: name("home.dumping"), kind, replace: true };
        cell.reach.call(cell.ids[0], clone).unwrap();
    };
    let mut first = Overtaken(&another, Dump { what, parts: Vec::new() });
    let found = vos::find(&cell.reach, &by_name("home"), None).unwrap();
    let (at, volume) = (found.server, found.volume());
    let refused = lead(&cell.reach, |job| vos::dump(job, at, volume, 0, &mut first)).unwrap_err();
    assert!(refused.to_string().contains("another dump"), "{refused}");
    // The other one reads on, and the next leaves nothing.
    assert!(cell.names(0).contains(&"home.dumping".to_owned()));
    let next = dump(&cell, "home", 0);
    let epoch = |part: &Part| StreamPart::open(&part.bytes).unwrap().head.epoch;
    assert!(next.parts.iter().all(|part| epoch(part) == next.what.epoch));
    assert!(!cell.names(0).contains(&"home.dumping".to_owned()));
}

#[test]
fn vo3_a_dump_goes_on_and_leaves_nothing_after_a_rename() {
    let mut cell = Cell::new(2);
    let (dumps, _) = prepare(&mut cell);
    let rename = |from: &str, to: &str| {
        lead(&cell.reach, |job| vos::rename(job, &name(from), &name(to))).unwrap();
    };
    let is_left = || cell.names(0).iter().any(|one| one.ends_with(".dumping"));
    // A dump was stopped.
    snapshot(&cell, "home.dumping");
    rename("home", "work");
    assert!(cell.names(0).contains(&"work.dumping".to_owned()), "{:?}", cell.names(0));
    dump(&cell, "work", 0);
    assert!(!is_left());
    // A dump is under way.
    let what = dumps[0].what.clone();
    let mut under_way = Overtaken(&|_| rename("work", "new"), Dump { what, parts: Vec::new() });
    let found = vos::find(&cell.reach, &by_name("work"), None).unwrap();
    let (at, volume) = (found.server, found.volume());
    lead(&cell.reach, |job| vos::dump(job, at, volume, 0, &mut under_way)).unwrap();
    assert!(!is_left());
}

#[test]
fn a_dump_of_another_volume_is_not_mistaken() {
    let mut cell = Cell::new(2);
    let (dumps, files) = prepare(&mut cell);
    cell.make("other", 0);
    cell.write(0, "other", "theirs", b"of another volume");
    let other = dump(&cell, "other", 0);
    assert_eq!(other.what.epoch, dumps[0].what.epoch, "the case that is meant");
    // With a snapshot the volume takes no other's dump.
    let of = cell.group("twin").unwrap().record.read_write;
    let (called, kind) = (name("twin.snapshot.kept"), VolumeKind::Snapshot);
    let clone = VolumeCall::Clone { id: None, of, name: called, kind, replace: false };
    cell.reach.call(cell.ids[1], clone).unwrap();
    let refused = over(&cell, &cell.reach, &other).unwrap_err();
    assert!(
        matches!(&refused, VosError::Unfit(why) if why.contains("another volume")),
        "{refused}"
    );
    assert_eq!(cell.files(1, "twin").as_ref(), Some(&files[0]));
    assert_eq!(cell.group("twin").unwrap().record.busy, None);
    // Nor is it, if the claim of the dump that is there was left.
    let group = cell.group("twin").unwrap();
    let busy = types::Busy {
        operation: format!("restore over 0 1 of {}", dumps[0].what.tree.0),
        by: "x".into(),
        since_secs: 7,
    };
    let claimed = types::VolumeGroup { busy: Some(busy), ..group.record };
    cell.reach.db().put_group(&claimed, group.revision).unwrap();
    let refused = over(&cell, &cell.reach, &other).unwrap_err();
    assert!(matches!(refused, VosError::Busy { .. }), "{refused}");
}
