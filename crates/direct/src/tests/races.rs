//! Grants, unlocks and closes that meet a restart, a claim or the end of the session.

use std::sync::Arc;
use std::time::Duration;

use client::CallError;
use parking_lot::Mutex;
use types::{Call, DataUse, Fault, OpenId};

use super::scripted::{FILE, program};
use crate::hold::{FileHold, fresh_owner};
use crate::{ByteRange, DirectError, LockMode};

const BOTH: (DataUse, DataUse) = (DataUse::Both, DataUse::Both);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn is_claim(call: &Call) -> bool {
    matches!(call, Call::Lock { reclaim: true, .. } | Call::Open { claims: true, .. })
}

fn close(open: u64) -> Call {
    Call::Close { fid: FILE, open: OpenId(open) }
}

/// The opens and closes among the calls, each as a short text.
fn shown(calls: &[Call]) -> Vec<String> {
    calls
        .iter()
        .filter_map(|call| match call {
            Call::Open { claims, access, .. } => {
                Some(format!("{} {access:?}", if *claims { "claim" } else { "open" }))
            }
            Call::Close { open, .. } => Some(format!("close {}", open.0)),
            Call::Downgrade { open, .. } => Some(format!("downgrade {}", open.0)),
            Call::Lock { reclaim, .. } => {
                Some(if *reclaim { "claim lock" } else { "lock" }.to_owned())
            }
            Call::Unlock { .. } => Some("unlock".to_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_lock_whose_grant_met_a_restart_is_asked_for_again() {
    let (server, cell, volume) = program();
    let hold = FileHold::new(&cell, &volume, FILE);
    let restarts = Arc::clone(&server);
    server.before(
        |call| matches!(call, Call::Lock { .. }),
        move || {
            restarts.restart();
            None
        },
    );
    let owner = fresh_owner();
    hold.lock(owner, ByteRange::ALL, LockMode::Exclusive, AT_ONCE).unwrap();
    assert_eq!(shown(&server.take_calls()), ["lock", "lock"], "nothing was there to claim");
    server.restart();
    assert_eq!(shown(&server.take_calls()), ["claim lock"]);
    hold.check().unwrap();
}

#[test]
fn an_open_whose_grant_met_a_restart_is_given_back_first() {
    let (server, cell, volume) = program();
    let restarts = Arc::clone(&server);
    server.before(
        |call| matches!(call, Call::Open { .. }),
        move || {
            restarts.restart();
            None
        },
    );
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    assert_eq!(shown(&server.take_calls()), ["open Both", "close 1", "open Both"]);
    server.restart();
    hold.close().unwrap();
    assert_eq!(shown(&server.take_calls()), ["claim Both", "close 3"]);
}

#[test]
fn an_unlock_under_way_in_a_restart_is_not_claimed() {
    let (server, cell, volume) = program();
    let hold = FileHold::new(&cell, &volume, FILE);
    let owner = fresh_owner();
    let range = ByteRange { start: 0, end: 9 };
    hold.lock(owner, range, LockMode::Exclusive, AT_ONCE).unwrap();
    let restarts = Arc::clone(&server);
    server.before(
        |call| matches!(call, Call::Unlock { .. }),
        move || {
            restarts.restart();
            None
        },
    );
    hold.unlock(owner, ByteRange { start: 5, end: 9 }).unwrap();
    let claims: Vec<Call> = server.take_calls().into_iter().filter(is_claim).collect();
    let [Call::Lock { range, .. }] = claims[..] else { panic!("{claims:?}") };
    assert_eq!(range, ByteRange { start: 0, end: 4 }, "the rest alone");
}

#[test]
fn a_file_that_is_closed_in_its_claim_leaves_no_open() {
    let (server, cell, volume) = program();
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    let place = Arc::new(Mutex::new(Some(hold)));
    server.take_calls();
    server.before(is_claim, move || {
        place.lock().take().unwrap().close().unwrap();
        None
    });
    server.restart();
    let calls = server.take_calls();
    assert_eq!(shown(&calls), ["claim Both", "close 1", "close 2"]);
    assert_eq!(calls.last(), Some(&close(2)), "the open that was claimed");
}

#[test]
fn a_claim_that_another_restart_met_is_made_again() {
    let (server, cell, volume) = program();
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    server.take_calls();
    let restarts = Arc::clone(&server);
    server.before(is_claim, move || {
        restarts.begin_restart();
        None
    });
    server.restart();
    server.report_restart();
    assert_eq!(shown(&server.take_calls()), ["claim Both", "close 2", "claim Both"]);
    hold.check().unwrap();
    hold.close().unwrap();
    assert_eq!(shown(&server.take_calls()), ["close 3"]);
}

#[test]
fn a_downgrade_under_way_in_a_restart_is_claimed_and_repeated() {
    let (server, cell, volume) = program();
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    server.take_calls();
    let restarts = Arc::clone(&server);
    server.before(
        |call| matches!(call, Call::Downgrade { .. }),
        move || {
            restarts.restart();
            Some(Err(CallError::Fault(Fault::Stale)))
        },
    );
    hold.downgrade(DataUse::Read, DataUse::Nothing).unwrap();
    let expected = ["downgrade 1", "claim Read", "downgrade 2"];
    assert_eq!(shown(&server.take_calls()), expected);
}

#[test]
fn an_operation_in_doubt_waits_for_the_event() {
    let (server, cell, volume) = program();
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    server.begin_restart();
    std::thread::scope(|threads| {
        let checking = threads.spawn(|| hold.check());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!checking.is_finished(), "the next instance knows nothing of it yet");
        server.report_restart();
        checking.join().unwrap().unwrap();
        server.begin_restart();
        let checking = threads.spawn(|| hold.check());
        server.report_loss();
        assert!(matches!(checking.join().unwrap(), Err(DirectError::LostOpen)));
    });
}

#[test]
fn an_unsent_operation_is_not_made_in_the_next_session() {
    let (server, cell, volume) = program();
    let hold = FileHold::open(&cell, &volume, FILE, BOTH, None).unwrap();
    let operation = Call::GetStatus { fid: FILE };
    let is_operation = |call: &Call| matches!(call, Call::GetStatus { .. });
    let unsent = || Some(Err(CallError::Cancelled));
    server.before(is_operation, unsent);
    hold.call(&operation).unwrap();
    assert_eq!(server.take_calls().iter().filter(|call| is_operation(call)).count(), 2);
    let ends = Arc::clone(&server);
    server.before(is_operation, move || {
        ends.begin_restart();
        ends.report_loss();
        unsent()
    });
    assert!(matches!(hold.call(&operation), Err(DirectError::LostOpen)));
    assert_eq!(server.take_calls(), [operation], "once, which the session did not send");
}

#[test]
fn a_lock_of_the_next_session_is_not_lost_with_the_last() {
    let (server, cell, volume) = program();
    let (first, second) =
        (FileHold::new(&cell, &volume, FILE), FileHold::new(&cell, &volume, FILE));
    let lock = |hold: &FileHold| {
        hold.lock(fresh_owner(), ByteRange::ALL, LockMode::Shared, AT_ONCE).unwrap();
    };
    lock(&first);
    server.begin_restart();
    lock(&second);
    server.report_loss();
    assert!(matches!(first.check(), Err(DirectError::LostLock)));
    second.check().unwrap();
    server.restart();
    second.check().unwrap();
    assert!(matches!(first.check(), Err(DirectError::LostLock)), "it is claimed no more");
}
