//! Which server is asked, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use afs3::errors::{VBUSY, VMOVED, VNOVOL, VOFFLINE};
use afs3::files::FilesCall;
use afs3::structs::file_type;
use client::CallError;
use types::{Answer, Call, Fault, Name, VolumeCall, VolumeKind, WhichVolume};

use crate::fake::{Act, FakeCell, PROMISE, VOLUME, ask, fetched, file, status};

/// A server that refuses so many calls with this code.
fn refusing(code: i32, times: usize) -> FakeCell {
    let left = Arc::new(AtomicUsize::new(times));
    FakeCell::new(move |asked| {
        let is_left = |left: usize| left.checked_sub(1);
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok() {
            return Act::Abort(code);
        }
        match asked.call {
            FilesCall::FetchStatus { .. } => {
                Act::Answer(fetched(status(file_type::FILE, 0), PROMISE))
            }
            _ => Act::Abort(1),
        }
    })
}

#[test]
fn a_volume_is_found_by_name_and_by_number() {
    let cell = refusing(0, 0);
    let (remote, _told) = cell.open();
    for volume in
        [WhichVolume::Name(Name::new(b"root.cell").unwrap()), WhichVolume::Id(file(1).volume)]
    {
        let found = ask(&remote, Call::Volume(VolumeCall::Examine { volume })).unwrap();
        let Answer::Volumes { volumes, .. } = found else { panic!() };
        assert_eq!(volumes[0].id.0, u64::from(VOLUME));
        assert_eq!(volumes[0].kind, VolumeKind::ReadWrite);
    }
    for absent in ["root.cell.readonly", "other"] {
        let volume = WhichVolume::Name(Name::new(absent.as_bytes()).unwrap());
        let found = ask(&remote, Call::Volume(VolumeCall::Examine { volume }));
        assert_eq!(found.err(), Some(CallError::Fault(Fault::NoVolume)), "{absent}");
    }
}

#[test]
fn a_volume_that_moved_is_looked_for_again() {
    for code in [VMOVED, VNOVOL] {
        let cell = refusing(code, 1);
        let (remote, _told) = cell.open();
        ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
        // Each time by two procedures, of which the database knows the second.
        assert_eq!(cell.located.load(Ordering::SeqCst), 4, "{code}");
    }
}

#[test]
fn a_busy_volume_is_waited_for() {
    let cell = refusing(VBUSY, 2);
    let (remote, _told) = cell.open();
    let began = Instant::now();
    ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(cell.located.load(Ordering::SeqCst), 2, "it is where it was");
}

#[test]
fn a_volume_that_is_offline_is_refused_at_once() {
    let cell = refusing(VOFFLINE, usize::MAX);
    let (remote, _told) = cell.open();
    let answer = ask(&remote, Call::GetStatus { fid: file(2) });
    assert_eq!(answer.err(), Some(CallError::Fault(Fault::Offline)));
}

#[test]
fn a_user_that_gives_up_is_not_kept() {
    gives_up(&refusing(VBUSY, usize::MAX));
}

#[test]
fn a_user_that_gives_up_at_a_server_that_hangs_is_not() {
    gives_up(&FakeCell::new(|_| {
        std::thread::sleep(Duration::from_secs(20));
        Act::Abort(VBUSY)
    }));
}

fn gives_up(cell: &FakeCell) {
    let (remote, _told) = cell.open();
    let cancel = client::Cancel::new();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let call = Call::GetStatus { fid: file(2) };
            client::Remote::call(&*remote, &types::Caller::ROOT, call, Some(&cancel))
        });
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel();
        assert_eq!(asking.join().unwrap().err(), Some(CallError::Cancelled));
    });
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
