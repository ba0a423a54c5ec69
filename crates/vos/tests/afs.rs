//! Operations with servers of AFS, stopped at every step, under a client that writes.

use types::{ServerId, VolumeId};
use vos::{JobEvent, NewVolume, Servers, VosError};

use crate::common::afs::{A, B, FakeCell, FakeVolume, VOLUME, site};
use crate::common::{Stopped, lead, lead_as, name};

fn move_to(cell: &FakeCell, servers: &dyn Servers, to: ServerId) -> Result<(), VosError> {
    lead(servers, |job| vos::move_volume(job, cell.group(), to, "/vicepa")).map(drop)
}

/// The volume is at one place, where the database says, with all that clients wrote.
fn need_whole(cell: &FakeCell, place: ServerId, when: &str) {
    assert_eq!(cell.place(), place, "{when}");
    assert_eq!(cell.group().record.busy, None, "{when}");
    let state = cell.state.lock();
    let all: Vec<_> = state.volumes.keys().collect();
    assert_eq!(all, [&(place, VOLUME)], "{when}: nothing is left over");
    let volume = &state.volumes[&(place, VOLUME)];
    assert!(volume.serves, "{when}");
    let lines: Vec<u64> = volume.lines.iter().map(|line| line.1).collect();
    assert_eq!(lines, state.acknowledged, "{when}: each line is there once");
}

#[test]
fn mx5_a_volume_moves_with_all_that_was_written() {
    let cell = FakeCell::new();
    move_to(&cell, &cell, B).unwrap();
    need_whole(&cell, B, "there");
    cell.people_write();
    move_to(&cell, &cell, A).unwrap();
    need_whole(&cell, A, "and back");
    let again = move_to(&cell, &cell, A).unwrap_err();
    assert_eq!(again, VosError::Unfit("it is there".into()));
}

#[test]
fn mx5_a_stopped_move_is_repeated_and_loses_nothing() {
    for (answer_lost, expires) in [(false, false), (true, false), (false, true), (true, true)] {
        for after in 0.. {
            let cell = FakeCell::new();
            let stopped = Stopped::new(&cell, after, answer_lost);
            let _ = move_to(&cell, &stopped, B);
            let when = format!("stopped at {after}, lost {answer_lost}, expired {expires}");
            if expires {
                cell.expire();
            }
            // The one that the database does not name is incomplete, or does not serve.
            let other = if cell.place() == A { B } else { A };
            let left = cell.state.lock().volumes.get(&(other, VOLUME)).cloned();
            let serves = |one: FakeVolume| one.serves && one.name == b"home";
            assert!(!left.is_some_and(serves), "{when}: the other one serves");
            cell.people_write();
            let was_stopped = stopped.was_stopped();
            if was_stopped && !(cell.place() == B && cell.group().record.busy.is_none()) {
                move_to(&cell, &cell, B).unwrap_or_else(|error| panic!("{when}: {error}"));
            }
            need_whole(&cell, B, &when);
            if !was_stopped {
                assert!(after > 10, "it has its steps");
                break;
            }
        }
    }
}

#[test]
fn a_refused_step_of_a_move_undoes_it() {
    let calls = [
        "CreateVolume",
        "TransCreate",
        "SetFlags",
        "Clone",
        "GetStatus",
        "Forward",
        "DeleteVolume",
        "EndTrans",
    ];
    for call in calls {
        let cell = FakeCell::new();
        cell.state.lock().refuses = Some((call, 28));
        let refused = move_to(&cell, &cell, B).unwrap_err();
        let code = matches!(refused, VosError::AfsRefused { code: 28, .. });
        assert!(code, "{call}: {refused:?}");
        need_whole(&cell, A, call);
    }
}

#[test]
fn a_move_onto_a_volume_that_serves_is_refused() {
    let cell = FakeCell::new();
    let twin = cell.state.lock().volumes[&(A, VOLUME)].clone();
    cell.state.lock().volumes.insert((B, VOLUME), twin);
    let refused = move_to(&cell, &cell, B).unwrap_err().to_string();
    assert!(refused.contains("which serves"), "{refused}");
    assert_eq!(cell.place(), A);
    assert_eq!(cell.state.lock().volumes.len(), 2, "neither was removed");
    assert_eq!(cell.group().record.busy, None);
}

#[test]
fn a_volume_that_is_held_is_not_moved() {
    let cell = FakeCell::new();
    let held = afs3::volumes::VolumesCall::TransCreate { volume: VOLUME, partition: 0, flags: 2 };
    cell.afs().unwrap().ask(A, &held).unwrap();
    let refused = move_to(&cell, &cell, B).unwrap_err().to_string();
    assert!(refused.contains("held there"), "{refused}");
    assert_eq!(cell.group().record.busy, None);
}

#[test]
fn a_dry_run_of_a_move_changes_nothing() {
    let cell = FakeCell::new();
    let steps = std::sync::Mutex::new(0);
    let tell = |event: JobEvent<'_>| {
        if let JobEvent::Step(_) = event {
            *steps.lock().unwrap() += 1;
        }
    };
    let act = |job: &vos::Job<'_>| vos::move_volume(job, cell.group(), B, "/vicepa");
    lead_as(&cell, true, true, &tell, act).unwrap();
    assert!(*steps.lock().unwrap() > 6);
    need_whole(&cell, A, "dry run");
}

fn copied() -> NewVolume {
    NewVolume {
        name: name("copied"),
        id: None,
        server: B,
        partition: "/vicepa".into(),
        quota_bytes: 0,
        owner: (0, 0),
        encrypt: None,
    }
}

#[test]
fn a_stopped_copy_is_repeated_and_leaves_nothing() {
    for answer_lost in [false, true] {
        for after in 0.. {
            let cell = FakeCell::new();
            let stopped = Stopped::new(&cell, after, answer_lost);
            let copy = |servers: &dyn Servers| {
                lead(servers, |job| vos::copy(job, &cell.group(), &copied()))
            };
            let first = copy(&stopped);
            let when = format!("stopped at {after}, lost {answer_lost}: {first:?}");
            let was_stopped = stopped.was_stopped();
            // A transaction on the source is not marked as the copy's.
            cell.expire();
            let is_done = cell
                .db()
                .group_named(&name("copied"))
                .unwrap()
                .is_some_and(|seen| seen.record.busy.is_none());
            if !is_done {
                copy(&cell).unwrap_or_else(|error| panic!("{when}: {error}"));
            }
            let made = cell.db().group_named(&name("copied")).unwrap().unwrap().record;
            assert_eq!((made.busy, made.sites), (None, vec![site(B)]), "{when}");
            let state = cell.state.lock();
            let number = made.read_write.0 as u32;
            let all: Vec<_> = state.volumes.keys().collect();
            assert_eq!(all, [&(A, VOLUME), &(B, number)], "{when}");
            assert!(state.volumes[&(B, number)].serves && state.volumes[&(A, VOLUME)].serves);
            if !was_stopped {
                break;
            }
        }
    }
}

#[test]
fn a_release_reaches_a_site_and_a_broken_one_lags() {
    let cell = FakeCell::new();
    lead(&cell, |job| vos::add_site(job, cell.group(), B, "/vicepa")).unwrap();
    let release = || lead(&cell, |job| vos::release(job, cell.group()));
    cell.state.lock().refuses = Some(("Forward", 28));
    let refused = release().unwrap_err().to_string();
    assert!(refused.contains("no site could be served"), "{refused}");
    assert_eq!(cell.group().record.busy, None);
    let released = release().unwrap();
    assert_eq!((released.epoch, released.sites.len(), released.lagging.len()), (1, 1, 0));
    let group = cell.group().record;
    let number = group.read_only.unwrap().0 as u32;
    assert_eq!(group.released_epoch, 1);
    let lines = |server, volume| cell.state.lock().volumes[&(server, volume)].lines.clone();
    let first = lines(B, number);
    assert!(!first.is_empty());
    cell.people_write();
    release().unwrap();
    let second = lines(B, number);
    assert!(second.len() > first.len() && second.starts_with(&first), "{second:?}");
    // The site beside the volume, and one that breaks off while it gets what changed.
    lead(&cell, |job| vos::add_site(job, cell.group(), A, "/vicepa")).unwrap();
    cell.state.lock().refuses = Some(("Forward", 28));
    let lags = release().unwrap();
    let lagging: Vec<_> = lags.lagging.iter().map(|(server, _)| *server).collect();
    assert_eq!((lags.sites, lagging), (vec![(A, 0)], vec![B]));
    assert!(!cell.state.lock().volumes[&(B, number)].serves, "half of it is not shown");
    assert_eq!(release().unwrap().lagging, []);
    assert!(cell.state.lock().volumes[&(B, number)].serves);
    let held = cell.state.lock().volumes.len();
    assert_eq!(held, 3, "no clone is left");
}

#[test]
fn a_dump_makes_a_volume_and_a_broken_one_none() {
    let cell = FakeCell::new();
    let volume = vos::examine(&cell, A, types::WhichVolume::Id(VolumeId(VOLUME.into())));
    let volume = volume.unwrap().unwrap().remove(0);
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut take = |piece: &[u8]| {
        pieces.push(piece.to_vec());
        Ok(())
    };
    lead(&cell, |job| vos::dump_afs(job, A, &volume, 0, &mut take)).unwrap();
    assert!(pieces.len() >= 3);
    let dump = vos::AfsDump { is_incremental: false, total_bytes: 0 };
    let mut broken = pieces.clone().into_iter();
    let mut next = || {
        broken
            .next()
            .filter(|_| broken.len() > 1)
            .map_or_else(|| Err("the file ends".to_owned()), |piece| Ok(Some(piece)))
    };
    let failed = lead(&cell, |job| vos::restore_afs(job, &copied(), &dump, &mut next));
    assert_eq!(failed.unwrap_err(), VosError::Unfit("the file ends".into()));
    assert_eq!(cell.db().group_named(&name("copied")).unwrap(), None);
    assert_eq!(cell.state.lock().volumes.len(), 1);
    let mut whole = pieces.clone().into_iter();
    let mut next = || Ok(whole.next());
    let made = lead(&cell, |job| vos::restore_afs(job, &copied(), &dump, &mut next)).unwrap();
    let number = made.unwrap().id.0 as u32;
    let lines = cell.state.lock().volumes[&(B, number)].lines.len();
    assert_eq!(lines, pieces.len());
}

#[test]
fn a_server_that_lies_about_its_volumes_is_not_believed() {
    let cell = FakeCell::new();
    let examined = |id: u32| {
        let which = types::WhichVolume::Id(VolumeId(id.into()));
        vos::examine(&cell, A, which)
    };
    // A name that no volume has, and a clone with a name of its own, which is none of the cell's.
    let mut odd = cell.state.lock().volumes[&(A, VOLUME)].clone();
    odd.name = b"../etc".to_vec();
    cell.state.lock().volumes.insert((A, 7), odd.clone());
    assert_eq!(examined(7), Err(VosError::Odd("a".into())));
    odd.name = b"\x1b[2Jhome".to_vec();
    cell.state.lock().volumes.insert((A, 7), odd.clone());
    assert_eq!(examined(7), Err(VosError::Odd("a".into())));
    (odd.name, odd.kind, odd.parent) = (b"moving.9".to_vec(), 1, VOLUME);
    cell.state.lock().volumes.insert((A, 8), odd);
    let listed = vos::list(&cell, A, types::PartitionNo(0)).unwrap();
    let kinds: Vec<_> = listed.iter().map(|one| (one.id.0, one.kind)).collect();
    let (snapshot, read_write) = (types::VolumeKind::Snapshot, types::VolumeKind::ReadWrite);
    assert_eq!(kinds, [(8, snapshot), (VOLUME.into(), read_write)]);
    assert_eq!(examined(9), Ok(None));
    let high = types::WhichVolume::Id(VolumeId(u64::from(VOLUME) + (1 << 32)));
    assert_eq!(vos::examine(&cell, A, high), Ok(None), "its low half is another volume's");
    // Partitions that there cannot be.
    cell.state.lock().partitions = vec![0, -3, 999];
    let asked = cell.call(A, types::VolumeCall::Partitions);
    assert_eq!(asked, Err(VosError::Odd("a".into())));
    let refused = cell.call(A, types::VolumeCall::Hold { id: VolumeId(7), millis: 1 });
    assert!(refused.unwrap_err().to_string().contains("a server of AFS"));
}
