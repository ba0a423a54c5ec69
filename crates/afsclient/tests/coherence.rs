//! Promises and breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use afs3::callbacks::CallbacksCall;
use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{
    AfsFid, AfsFids, AfsUuid, CallBack, CallBacks, FetchStatus, VolSync, file_type,
};
use parking_lot::Mutex;
use types::{Answer, Call, Fid, VolumeId};

use crate::fake::{Act, FakeCell, PROMISE, VOLUME, ask, fetched, file, status};

fn callback(vnode: u32, unique: u32) -> CallbacksCall {
    let fid = AfsFid { volume: VOLUME, vnode, unique };
    let fids = AfsFids::new(vec![fid]).unwrap();
    CallbacksCall::CallBack { fids, callbacks: CallBacks::default() }
}

fn promising(promise: CallBack) -> FakeCell {
    FakeCell::new(move |asked| match asked.call {
        FilesCall::FetchStatus { fid } => {
            let kind = if fid.vnode % 2 == 1 { file_type::DIRECTORY } else { file_type::FILE };
            Act::Answer(fetched(status(kind, 0), promise))
        }
        _ => Act::Abort(1),
    })
}

#[test]
fn ab1_a_callback_is_answered_after_the_break() {
    let cell = promising(PROMISE);
    let (remote, told) = cell.open();
    ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
    ask(&remote, Call::GetStatus { fid: file(4) }).unwrap();
    assert!(!told.has_now(file(2)));
    cell.call_back(&callback(2, 1));
    assert!(told.has_now(file(2)) && !told.has_now(file(4)));
    cell.call_back(&callback(0, 0));
    assert!(told.has_now(file(4)), "all files of the volume");
}

#[test]
fn ab1_a_directorys_callback_ends_rights_too() {
    let cell = promising(PROMISE);
    let (remote, told) = cell.open();
    let answer = ask(&remote, Call::Rights { fid: file(1) }).unwrap();
    assert_eq!(answer, Answer::Rights { of: file(1), rights: 127 });
    cell.call_back(&callback(1, 1));
    assert!(told.has_now(Fid::rights(VolumeId(VOLUME.into()))));
}

#[test]
fn ab1_an_answer_without_promise_has_a_break_behind_it() {
    for none in [CallBack::default(), CallBack { kind: 3, ..PROMISE }] {
        let cell = promising(none);
        let (remote, told) = cell.open();
        ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
        assert!(told.has(file(2)), "{none:?}");
    }
}

#[test]
fn ab1_a_callback_that_overtakes_the_answer_counts() {
    let cell = FakeCell::new(|asked| {
        asked.call_back(&callback(2, 1));
        Act::Answer(fetched(status(file_type::FILE, 0), PROMISE))
    });
    let (remote, told) = cell.open();
    ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
    assert!(told.has(file(2)));
}

#[test]
fn ab3_a_server_that_began_anew_has_no_promises() {
    let cell = promising(PROMISE);
    let (remote, told) = cell.open();
    ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
    cell.call_back(&CallbacksCall::InitCallBackState3 { server: AfsUuid::default() });
    assert!(told.has_now(file(2)));
}

#[test]
fn own_changes_leave_the_promise_and_no_break() {
    let cell = FakeCell::new(|asked| match asked.call {
        FilesCall::FetchStatus { .. } => Act::Answer(fetched(status(file_type::FILE, 0), PROMISE)),
        FilesCall::StoreData64 { file_length, .. } => Act::Answer(FilesAnswer::StoreData64 {
            status: status(file_type::FILE, file_length),
            sync: VolSync::default(),
        }),
        _ => Act::Abort(1),
    });
    let (remote, told) = cell.open();
    ask(&remote, Call::GetStatus { fid: file(2) }).unwrap();
    let write = |offset| Call::Write {
        fid: file(2),
        offset,
        data: vec![1; 10].into(),
        stable: false,
        kill_privileges: false,
    };
    let Answer::Written { status, .. } = ask(&remote, write(Some(5))).unwrap() else { panic!() };
    assert_eq!(status.size, 15);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!told.has_now(file(2)));
}

#[test]
fn an_answer_that_an_own_change_overtook_is_older() {
    let (asked, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, released) = (Arc::clone(&asked), Arc::clone(&go));
    let until = |flag: &AtomicUsize| {
        while flag.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let cell = FakeCell::new(move |call| match call.call {
        FilesCall::FetchStatus { .. } => {
            let old = fetched(status(file_type::FILE, 10), PROMISE);
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                until(&released);
            }
            Act::Answer(old)
        }
        FilesCall::StoreData64 { file_length, .. } => Act::Answer(FilesAnswer::StoreData64 {
            status: status(file_type::FILE, file_length),
            sync: VolSync::default(),
        }),
        _ => Act::Abort(1),
    });
    let (remote, told) = cell.open();
    let (old, new) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&remote, Call::GetStatus { fid: file(2) }).unwrap());
        until(&asked);
        // As long as that, so that the server, which does not know this address, may answer both.
        let (offset, data) = (None, vec![1; 1000].into());
        let (stable, kill_privileges) = (false, false);
        let write = Call::Write { fid: file(2), offset, data, stable, kill_privileges };
        let new = ask(&remote, write).unwrap();
        go.store(1, Ordering::SeqCst);
        (asking.join().unwrap(), new)
    });
    let (Answer::Status(old), Answer::Written { status: new, .. }) = (old, new) else { panic!() };
    assert_eq!((old.size, new.size), (10, 1010));
    assert!(old.status_version < new.status_version, "the cache manager keeps the newer one");
    assert!(told.has(file(2)), "and trusts neither");
}

#[test]
fn appends_of_two_threads_do_not_cut_each_other_off() {
    const EACH: usize = 20;
    let length = Arc::new(Mutex::new(0_u64));
    let stored = Arc::new(AtomicUsize::new(0));
    let (ours, count) = (Arc::clone(&length), Arc::clone(&stored));
    let cell = FakeCell::new(move |asked| {
        let now: FetchStatus = match asked.call {
            FilesCall::FetchStatus { .. } => {
                return Act::Answer(fetched(status(file_type::FILE, *ours.lock()), PROMISE));
            }
            FilesCall::StoreData64 { position, length, file_length, .. } => {
                let mut now = ours.lock();
                assert_eq!((asked.data.len() as u64, position), (length, *now), "at the end");
                assert!(file_length >= *now, "a store cut off what another one wrote");
                *now = file_length;
                count.fetch_add(1, Ordering::SeqCst);
                status(file_type::FILE, *now)
            }
            _ => return Act::Abort(1),
        };
        Act::Answer(FilesAnswer::StoreData64 { status: now, sync: VolSync::default() })
    });
    let (remote, _told) = cell.open();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (offset, data) = (None, vec![1; 7].into());
                    let (stable, kill_privileges) = (false, false);
                    let call = Call::Write { fid: file(2), offset, data, stable, kill_privileges };
                    ask(&remote, call).unwrap();
                }
            });
        }
    });
    assert_eq!((stored.load(Ordering::SeqCst), *length.lock()), (2 * EACH, 14 * EACH as u64));
}
