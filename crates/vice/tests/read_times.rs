//! Reads that clients report become access times, if the volume records reads: only forward, not
//! into the future, and only from a caller that may read the file.

use crate::common::{Ground, Rig, user, write};
use types::{
    Answer, BreakReason, Call, Caller, Fault, Fid, NewKind, SetTime, Status, StatusChange,
    Timestamp, VolumeCall, VolumeChange,
};

/// So much later are calls than the file; each call takes a second of the wall clock.
const LONG: std::time::Duration = std::time::Duration::from_secs(40);

fn record(rig: &mut Rig, on: bool) {
    let change = VolumeChange { read_times: Some(on), ..VolumeChange::default() };
    let fields = VolumeCall::SetFields { id: rig.root().volume, change };
    assert_eq!(rig.call(0, &Caller::ROOT, Call::Volume(fields)), Ok(Answer::Done));
}

fn note(rig: &mut Rig, who: usize, caller: &Caller, was: Timestamp, at: Timestamp, fid: Fid) {
    assert_eq!(rig.call(who, caller, Call::NoteRead { fid, was, at }), Ok(Answer::Done));
}

/// A volume that records reads, with a file that all may read; the time is later.
fn world() -> (Rig, Fid, Status) {
    let mut rig = Rig::new(Ground::memory(), 2);
    record(&mut rig, true);
    let root = rig.root();
    let file = rig.file(root, "f");
    let status = rig.status(0, file).unwrap();
    assert!(status.read_times);
    for _ in 0..LONG.as_secs() {
        let _ = rig.status(0, file);
    }
    (rig, file, status)
}

#[test]
fn a_read_moves_the_access_time_and_nothing_else() {
    let (mut rig, file, before) = world();
    assert_eq!(rig.status(1, file), Ok(before));
    rig.clients[1].broken.clear();
    let at = before.accessed.later(LONG / 2);
    note(&mut rig, 0, &Caller::ROOT, before.accessed, at, file);
    assert_eq!(rig.status(0, file), Ok(Status { accessed: at, ..before }));
    assert!(rig.clients[1].broken.is_empty(), "no promise is broken for a read");
    rig.restart();
    (0..2).for_each(|who| rig.reclaim(who));
    assert_eq!(rig.status(0, file).unwrap().accessed, at);
}

#[test]
fn reads_move_the_access_time_forward_only() {
    let (mut rig, file, before) = world();
    let at = before.accessed.later(LONG / 2);
    note(&mut rig, 0, &Caller::ROOT, before.accessed, at, file);
    for earlier in [before.accessed, Timestamp::new(5, 0), Timestamp::new(-1, 0)] {
        note(&mut rig, 0, &Caller::ROOT, at, earlier, file);
        assert_eq!(rig.status(0, file).unwrap().accessed, at);
    }
    let future = Timestamp::new(i64::MAX, 999_999_999);
    note(&mut rig, 0, &Caller::ROOT, at, future, file);
    let recorded = rig.status(0, file).unwrap().accessed;
    assert!(recorded > at && recorded <= rig.clock(), "at most the server's time: {recorded:?}");
}

#[test]
fn an_access_time_that_was_set_outlives_an_earlier_read() {
    let (mut rig, file, before) = world();
    let old = Timestamp::new(1000, 0);
    let change = StatusChange { accessed: Some(SetTime::To(old)), ..StatusChange::default() };
    let set = rig.call(1, &Caller::ROOT, Call::SetStatus { fid: file, change }).unwrap();
    let Answer::Status(set) = set else { panic!("a status") };
    let at = before.accessed.later(LONG / 2);
    assert!(at < set.changed, "the read was before");
    note(&mut rig, 0, &Caller::ROOT, before.accessed, at, file);
    assert_eq!(rig.status(0, file).unwrap().accessed, old);
    let now = rig.clock();
    note(&mut rig, 0, &Caller::ROOT, before.accessed, now, file);
    assert_eq!(rig.status(0, file).unwrap().accessed, now, "a later read is recorded");
}

#[test]
fn ac4_only_a_reader_of_the_file_records_reads() {
    let (mut rig, file, before) = world();
    let stranger = user(77, 77, &[]);
    let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
    rig.call(0, &Caller::ROOT, Call::SetStatus { fid: file, change }).unwrap();
    let at = before.accessed.later(LONG / 2);
    let (unproved, was) =
        (Caller { who: types::RequestIdentity::NOBODY, ..stranger }, before.accessed);
    let refused = rig.call(0, &unproved, Call::NoteRead { fid: file, was, at });
    assert_eq!(refused, Err(Fault::AccessDenied));
    let root = rig.root();
    let closed = rig.make(0, &Caller::ROOT, root, "closed", NewKind::Directory, 0o711);
    let refused = rig.call(0, &user(77, 77, &[]), Call::NoteRead { fid: closed, was, at });
    assert_eq!(refused, Err(Fault::AccessDenied));
    assert_eq!(rig.status(0, file).unwrap().accessed, before.accessed);
}

#[test]
fn a_volume_without_the_option_records_nothing() {
    let (mut rig, file, before) = world();
    rig.clients[1].broken.clear();
    rig.status(1, file).unwrap();
    record(&mut rig, false);
    let status = rig.status(0, file).unwrap();
    assert!(!status.read_times, "clients learn of it");
    let broken = &rig.clients[1].broken;
    assert!(broken.iter().any(|item| item.fid == file && item.reason != BreakReason::Recall));
    let at = before.accessed.later(LONG / 2);
    note(&mut rig, 0, &Caller::ROOT, before.accessed, at, file);
    assert_eq!(rig.status(0, file).unwrap().accessed, before.accessed);
}

#[test]
fn de1_a_read_recalls_no_delegation() {
    let (mut rig, _, _) = world();
    let root = rig.root();
    let dir = rig.make(1, &Caller::ROOT, root, "d", NewKind::Directory, 0o755);
    let made = rig.make(1, &Caller::ROOT, dir, "f", NewKind::File, 0o644);
    let before = rig.status(1, made).unwrap();
    let delegated = rig.call(1, &Caller::ROOT, Call::Delegate { fid: dir });
    assert!(matches!(delegated, Ok(Answer::Delegation { .. })), "{delegated:?}");
    rig.clients[1].broken.clear();
    let at = rig.clock();
    for fid in [dir, made] {
        let was = before.accessed;
        assert_eq!(rig.call(0, &Caller::ROOT, Call::NoteRead { fid, was, at }), Ok(Answer::Done));
    }
    assert!(rig.clients[1].broken.is_empty(), "{:?}", rig.clients[1].broken);
}

#[test]
fn eo1_the_option_survives_a_restart_and_bytes_stay() {
    let (mut rig, file, before) = world();
    rig.call(0, &Caller::ROOT, write(file, Some(0), b"text")).unwrap();
    rig.restart();
    (0..2).for_each(|who| rig.reclaim(who));
    let status = rig.status(0, file).unwrap();
    assert!(status.read_times && status.size == 4 && status.accessed == before.accessed);
}
