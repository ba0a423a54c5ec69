//! Reports of reads over sockets, by clients that lie: a report moves an access time forward, at
//! most to the server's present time, of a file that the caller may read, in a volume that records
//! reads. And nothing else changes, and no other client waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::*;
use client::{CallError, ClientIdentity, Remote, Session, SessionConfig};
use types::{
    Answer, Call, Caller, Fault, Fid, NewKind, SetTime, Status, StatusChange, Timestamp,
    Uniquifier, VolumeCall, VolumeChange, VolumeId, VolumeKind,
};

/// Later than any server's time.
const FUTURE: Timestamp = Timestamp::new(i64::MAX, 999_999_999);

fn record(session: &Session, volume: VolumeId, on: bool) {
    let change = VolumeChange { read_times: Some(on), ..VolumeChange::default() };
    ask(session, Call::Volume(VolumeCall::SetFields { id: volume, change }));
}

fn status_of(session: &Session, fid: Fid) -> Status {
    status(&ask(session, Call::GetStatus { fid }))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}

fn note(fid: Fid, was: Timestamp, at: Timestamp) -> Call {
    Call::NoteRead { fid, was, at }
}

/// As a caller without rights.
fn report(session: &Session, call: Call) -> Result<Answer, CallError> {
    session.call(&Caller::ROOT, call, None).map(|reply| reply.answer)
}

fn refusal(session: &Session, call: Call) -> Fault {
    match report(session, call).unwrap_err() {
        CallError::Fault(fault) => fault,
        other => panic!("{other}"),
    }
}

fn set(session: &Session, fid: Fid, change: StatusChange) {
    ask(session, Call::SetStatus { fid, change });
}

/// A cell that takes machines of the network for strangers', with a volume that records reads.
fn cell() -> (Cell, Session, Fid) {
    let cell = Cell::among_strangers(|_| {});
    let own = connect(cell.unix());
    let dir = root(&own);
    record(&own, dir.volume, true);
    (cell, own, dir)
}

#[test]
fn ac4_a_liar_moves_a_time_forward_and_not_past_now() {
    let (cell, own, dir) = cell();
    let liar = connect(cell.tcp());
    let file = make(&own, dir, "open");
    let old = Timestamp::new(1000, 0);
    set(&own, file, StatusChange { accessed: Some(SetTime::To(old)), ..StatusChange::default() });
    let before = status_of(&own, file);
    assert!(before.read_times && before.accessed == old);
    let events = Recorder::of(&own);
    // Back, or what a set time outlives: nothing changes.
    for (was, at) in [
        (old, Timestamp::new(i64::MIN, 0)),
        (old, Timestamp::new(-1, 0)),
        (old, old),
        (Timestamp::new(i64::MIN, 5), Timestamp::new(2000, 0)),
        (FUTURE, Timestamp::new(2000, 0)),
    ] {
        assert_eq!(report(&liar, note(file, was, at)), Ok(Answer::Done));
        assert_eq!(status_of(&own, file), before, "{was:?} {at:?}");
    }
    // Forward: at most the present time, and nothing but the access time.
    let earliest = now();
    assert_eq!(report(&liar, note(file, FUTURE, FUTURE)), Ok(Answer::Done));
    let after = status_of(&own, file);
    assert!((earliest..=now()).contains(&after.accessed), "{after:?}");
    assert_eq!(after, Status { accessed: after.accessed, ..before });
    assert!(!events.broken(file), "no promise is broken for a read");
}

#[test]
fn ac4_a_liar_reports_only_what_it_may_read() {
    let (cell, own, dir) = cell();
    let liar = connect(cell.tcp());
    let (open, closed) = (make(&own, dir, "open"), make(&own, dir, "closed"));
    set(&own, closed, StatusChange { mode: Some(0o600), ..StatusChange::default() });
    let kind = NewKind::Directory;
    let how = types::CreateHow::Guarded;
    let unlisted = Call::Make { dir, name: name("unlisted"), kind, mode: 0o711, how };
    let unlisted = status(&ask(&own, unlisted)).fid;
    let was = Timestamp::default();
    for fid in [closed, unlisted] {
        let before = status_of(&own, fid);
        assert_eq!(refusal(&liar, note(fid, before.accessed, FUTURE)), Fault::AccessDenied);
        assert_eq!(status_of(&own, fid), before);
    }
    // Files that there are not, and volumes.
    let guessed = Fid { unique: Uniquifier(open.unique.0 ^ 1), ..open };
    let foreign = Fid { volume: VolumeId(999_999), ..open };
    assert_eq!(refusal(&liar, note(guessed, was, FUTURE)), Fault::Stale);
    assert_eq!(refusal(&liar, note(foreign, was, FUTURE)), Fault::NoVolume);
    assert_eq!(refusal(&liar, note(Fid::default(), was, FUTURE)), Fault::NoVolume);
    // One that it may read, in the same way.
    assert_eq!(report(&liar, note(open, was, FUTURE)), Ok(Answer::Done));
    // A chain ends at the first refusal.
    let before = status_of(&own, open);
    let chain = [closed, open, open].map(|fid| note(fid, was, FUTURE));
    let results = liar.chain(&Caller::ROOT, chain.into());
    let faults: Vec<Fault> =
        results.into_iter().map(|one| one.unwrap_err().fault().unwrap()).collect();
    assert_eq!(faults, [Fault::AccessDenied, Fault::ChainAborted, Fault::ChainAborted]);
    assert_eq!(status_of(&own, open), before);
}

#[test]
fn ac4_what_records_no_reads_takes_no_report() {
    let (cell, own, dir) = cell();
    let liar = connect(cell.tcp());
    let file = make(&own, dir, "open");
    let clone = VolumeCall::Clone {
        id: None,
        of: dir.volume,
        name: name("sealed"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    let Answer::Volumes { volumes, .. } = ask(&own, Call::Volume(clone)) else { panic!() };
    let sealed = Fid { volume: volumes[0].id, ..file };
    let before = status_of(&own, sealed);
    assert!(!before.read_times, "nothing is recorded in a snapshot");
    for session in [&liar, &own] {
        assert_eq!(refusal(session, note(sealed, before.accessed, FUTURE)), Fault::ReadOnly);
    }
    assert_eq!(status_of(&own, sealed), before);
    record(&own, dir.volume, false);
    let before = status_of(&own, file);
    assert!(!before.read_times);
    assert_eq!(report(&liar, note(file, before.accessed, FUTURE)), Ok(Answer::Done));
    assert_eq!(status_of(&own, file), before);
    // The option is no attribute that clients see or set.
    for option in ["rialto.read-times", "user.rialto.read-times"] {
        let get = Call::XattrGet { fid: dir, name: option.into() };
        assert!(report(&own, get).is_err(), "{option}");
    }
    let Answer::XattrNames(names) = ask(&own, Call::XattrList { fid: dir }) else { panic!() };
    assert_eq!(names.len(), 0, "{names:?}");
}

#[test]
fn a_flood_of_reports_stops_no_other_client() {
    const REPORTS: u64 = 20_000;
    const LIARS: u64 = 4;
    let (cell, own, dir) = cell();
    let files: Vec<Fid> = (0..LIARS).map(|liar| make(&own, dir, &format!("read-{liar}"))).collect();
    // A call that waits for ever fails.
    let connect_within = |endpoint, secs| {
        let call_within = Some(Duration::from_secs(secs));
        let identity = ClientIdentity::fleeting();
        let config = SessionConfig { call_within, ..SessionConfig::new(endpoint, identity) };
        Session::connect(config).unwrap()
    };
    let user = connect_within(cell.unix(), 60);
    let (reported, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let worked = std::thread::scope(|scope| {
        let report_on = |fid| {
            let (session, reported) = (connect_within(cell.tcp(), 300), &reported);
            scope.spawn(move || {
                let was = Timestamp::default();
                let mut left = REPORTS / LIARS;
                while left > 0 {
                    // Each of them is recorded: the server's time goes on.
                    let calls = vec![note(fid, was, FUTURE); left.min(1000) as usize];
                    left -= calls.len() as u64;
                    for result in session.chain(&Caller::ROOT, calls) {
                        assert_eq!(result.unwrap().answer, Answer::Done);
                        reported.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let reporting: Vec<_> = files.iter().map(|fid| report_on(*fid)).collect();
        let working = scope.spawn(|| {
            let mut worked = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let fid = make(&user, dir, &format!("work-{}", worked.len()));
                append(&user, fid, "text").unwrap();
                // The files that others report on, too.
                for fid in files.iter().chain([&fid]) {
                    status_of(&user, *fid);
                }
                assert_eq!(read(&user, fid, 0, 10), "text");
                worked.push(reported.load(Ordering::Relaxed));
            }
            worked
        });
        // Also where one of them failed: the other client works until it hears that they are over.
        let ends: Vec<_> = reporting.into_iter().map(|one| one.join()).collect();
        over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        working.join().unwrap()
    });
    assert_eq!(reported.load(Ordering::Relaxed), REPORTS);
    // It worked while they came, and not only before and after.
    let amid = worked.iter().filter(|at| (1..REPORTS).contains(*at)).count();
    assert!(amid >= 10, "{amid} of {}", worked.len());
    let now = now();
    for fid in &files {
        let status = status_of(&own, *fid);
        assert!(status.accessed > status.changed && status.accessed <= now, "{status:?}");
    }
    let Answer::Report(report) = ask(&own, Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["server"]["panics"].as_u64(), Some(0));
}
