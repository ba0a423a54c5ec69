//! Delegations through sockets: chains, recalls over the back connection, and a server that dies in
//! between.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use client::{CallError, Remote, Session};
use types::{
    Answer, BreakReason, Call, Caller, CreateHow, Fault, Fid, NewKind, Status, Timestamp,
    VnodeSlots,
};

const FILES: u64 = 32;

fn delegate(session: &Session, dir: Fid) -> (Status, VnodeSlots) {
    match ask(session, Call::Delegate { fid: dir }) {
        Answer::Delegation { status, slots } => (status, slots),
        other => panic!("{other:?}"),
    }
}

fn new_directory(session: &Session, called: &str) -> Fid {
    let how = CreateHow::Guarded;
    let make = Call::Make {
        dir: root(session),
        name: name(called),
        kind: NewKind::Directory,
        mode: 0o755,
        how,
    };
    status(&ask(session, make)).fid
}

/// The client's time of all its changes: about now, since the server accepts no other as the
/// client's.
fn moment() -> Timestamp {
    static MOMENT: std::sync::OnceLock<Timestamp> = std::sync::OnceLock::new();
    *MOMENT.get_or_init(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp::new(i64::try_from(since.as_secs()).unwrap(), 0)
    })
}

/// New files with some bytes, each in the slot of its number.
fn files(dir: Fid, slots: VnodeSlots, numbers: std::ops::Range<u64>) -> Vec<Call> {
    let at = moment();
    let file = |number: u64| {
        let slot = slots.first + number;
        let (kind, how) = (NewKind::File, CreateHow::Guarded);
        let make = Call::Make { dir, name: name(&format!("f{number}")), kind, mode: 0o644, how };
        let (fid, data) = (slots.fid(dir.volume, slot, false), format!("bytes of {number}").into());
        let write =
            Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false };
        [(slot, make), (0, write)].map(|(slot, call)| Call::Delegated {
            at,
            slot,
            call: Box::new(call),
        })
    };
    numbers.flat_map(file).collect()
}

fn recalled(recorder: &Recorder, dir: Fid) -> bool {
    recorder.breaks.lock().iter().any(|item| item.fid == dir && item.reason == BreakReason::Recall)
}

#[test]
fn de2_a_caller_waits_for_the_rest_of_the_holders_chain() {
    let cell = Cell::new();
    for (index, endpoint) in cell.both().into_iter().enumerate() {
        let (holder, other) = (connect(endpoint.clone()), connect(endpoint));
        let recorder = Recorder::of(&holder);
        let dir = new_directory(&holder, &format!("d{index}"));
        let (before, slots) = delegate(&holder, dir);
        for answer in holder.chain(&Caller::ROOT, files(dir, slots, 0..FILES)) {
            assert_eq!(status(&answer.unwrap().answer).changed, moment());
        }
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let root = Call::GetStatus { fid: root(&other) };
                other.chain(&Caller::ROOT, vec![root.clone(), Call::GetStatus { fid: dir }, root])
            });
            wait_for("a recall", || recalled(&recorder, dir));
            assert!(!asking.is_finished(), "DE-2");
            for answer in holder.chain(&Caller::ROOT, files(dir, slots, FILES..2 * FILES)) {
                answer.unwrap();
            }
            assert_eq!(ask(&holder, Call::Return { fids: vec![dir] }), Answer::Done);
            let seen = asking.join().unwrap();
            let seen: Vec<Status> =
                seen.into_iter().map(|reply| status(&reply.unwrap().answer)).collect();
            assert_eq!(seen[1].data_version, before.data_version.raised(2 * FILES), "DE-2");
        });
        let file = slots.fid(dir.volume, slots.first + 40, false);
        assert_eq!(read(&other, file, 0, 100), "bytes of 40");
        let mut late = holder
            .chain(&Caller::ROOT, files(dir, slots, 90..92))
            .into_iter()
            .map(|reply| reply.unwrap_err());
        assert_eq!(late.next(), Some(CallError::Fault(Fault::NotDelegated)));
        assert!(late.all(|fault| fault == CallError::Fault(Fault::ChainAborted)));
    }
}

#[test]
fn de1_after_a_crash_others_wait_for_changes_not_yet_sent() {
    let mut cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.unix()));
    let (recorder, theirs) = (Recorder::of(&holder), Recorder::of(&other));
    let dir = new_directory(&holder, "d");
    let (before, slots) = delegate(&holder, dir);
    for answer in holder.chain(&Caller::ROOT, files(dir, slots, 0..4)) {
        answer.unwrap();
    }
    // Answered by the client, and not sent before the server crashes.
    recorder.claims.lock().extend(files(dir, slots, 4..8));
    cell.crash();
    cell.start();
    let seen = status(&ask(&other, Call::GetStatus { fid: dir }));
    assert_eq!(
        seen.data_version,
        before.data_version.raised(8),
        "DE-1: reads wait for the changes"
    );
    assert!(recorder.claimed.lock().iter().all(Result::is_ok), "{:?}", recorder.claimed.lock());
    wait_for("both restarts to be reported", || {
        *recorder.restarts.lock() == 1 && *theirs.restarts.lock() == 1
    });
    assert_eq!(ask(&holder, Call::GetStatus { fid: dir }), Answer::Status(seen));
    let late = holder.chain(&Caller::ROOT, files(dir, slots, 8..9)).into_iter().next().unwrap();
    assert_eq!(late.unwrap_err(), CallError::Fault(Fault::NotDelegated), "none outlives a restart");
}

#[test]
fn a_dead_holder_blocks_others_no_longer_than_its_connection() {
    let cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.unix()));
    let recorder: Arc<Recorder> = Recorder::of(&holder);
    let dir = new_directory(&holder, "d");
    delegate(&holder, dir);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| try_ask(&other, Call::GetStatus { fid: dir }));
        wait_for("a recall", || recalled(&recorder, dir));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!asking.is_finished());
        drop(holder);
        assert!(asking.join().unwrap().is_ok());
    });
}
