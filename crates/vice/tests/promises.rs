//! Promises between two and three clients: which are broken, which calls wait, and what becomes of
//! files without names.

use std::time::Duration;

use crate::common::{Ground, Rig, name, remove, write};
use types::{
    Answer, BreakReason, ByteRange, Call, Caller, Cookie, CreateHow, Fault, Fid, LockFamily,
    LockMode, LockOwner, NewKind, RemoveWhat, RenameMode, StatusChange,
};

const ROOT: Caller = Caller::ROOT;

/// Breaks that a client received since the last call: file, reason, and the hint.
fn received(rig: &mut Rig, who: usize) -> Vec<(Fid, BreakReason, Option<String>)> {
    let broken = std::mem::take(&mut rig.clients[who].broken);
    let text = |name: types::Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
    broken.into_iter().map(|item| (item.fid, item.reason, item.name.map(text))).collect()
}

/// Client 1 knows the root, a directory, and a file in it; no break was sent yet.
fn known() -> (Rig, Fid, Fid) {
    let mut rig = Rig::new(Ground::memory(), 3);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    let file = rig.file(dir, "file");
    rig.look(1, root, "dir").unwrap();
    rig.look(1, dir, "file").unwrap();
    (rig, dir, file)
}

#[test]
fn each_change_breaks_what_it_changes_and_nothing_else() {
    use BreakReason::{Data, Removed, Status};
    type Row = (
        &'static str,
        fn(Fid, Fid) -> Call,
        fn(Fid, Fid) -> Vec<(Fid, BreakReason, Option<&'static str>)>,
    );
    let rows: Vec<Row> = vec![
        ("write", |_, f| write(f, Some(0), b"x"), |_, f| vec![(f, Data, None)]),
        ("truncate", |_, f| set(f, |c| c.size = Some(9)), |_, f| vec![(f, Data, None)]),
        ("chmod", |_, f| set(f, |c| c.mode = Some(0)), |_, f| vec![(f, Status, None)]),
        ("nothing", |_, f| set(f, |_| ()), |_, _| vec![]),
        ("create", |d, _| make(d, "new"), |d, _| vec![(d, Data, Some("new"))]),
        ("refused create", |d, _| make(d, "file"), |_, _| vec![]),
        (
            "remove",
            |d, _| remove(d, "file"),
            |d, f| vec![(f, Removed, None), (d, Data, Some("file"))],
        ),
        (
            "link",
            |d, f| Call::Link { fid: f, dir: d, name: name("l") },
            |d, f| vec![(f, Status, None), (d, Data, Some("l"))],
        ),
        (
            "rename",
            |d, _| rename_in(d, "file", "n"),
            |d, f| vec![(f, Status, None), (d, Data, None)],
        ),
        ("read", |_, f| Call::Read { fid: f, offset: 0, length: 1 }, |_, _| vec![]),
        ("lookup", |d, _| Call::Lookup { dir: d, name: name("file") }, |_, _| vec![]),
    ];
    for (title, call, wanted) in rows {
        let (mut rig, dir, file) = known();
        received(&mut rig, 1);
        let _ = rig.call(0, &ROOT, call(dir, file));
        let wanted: Vec<_> = wanted(dir, file)
            .into_iter()
            .map(|(f, why, at)| (f, why, at.map(str::to_owned)))
            .collect();
        assert_eq!(received(&mut rig, 1), wanted, "{title}");
        assert_eq!(received(&mut rig, 0), vec![], "{title}: the caller gets no break");
        assert_eq!(
            received(&mut rig, 2),
            vec![],
            "{title}: a client without a promise gets no break"
        );
        // A promise that ended is not broken again.
        let _ = rig.call(0, &ROOT, call(dir, file));
        assert_eq!(received(&mut rig, 1), vec![], "{title}, again");
    }
}

fn set(fid: Fid, change: fn(&mut StatusChange)) -> Call {
    let mut wanted = StatusChange::default();
    change(&mut wanted);
    Call::SetStatus { fid, change: wanted }
}

fn make(dir: Fid, at: &str) -> Call {
    Call::Make { dir, name: name(at), kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded }
}

fn rename_in(dir: Fid, from: &str, to: &str) -> Call {
    Call::Rename {
        from_dir: dir,
        from: name(from),
        to_dir: dir,
        to: name(to),
        mode: RenameMode::Replace,
        hold: false,
    }
}

#[test]
fn what_is_answered_is_promised() {
    type Row = (&'static str, fn(Fid, Fid) -> Call, bool, bool);
    // Client 2 makes a call; then client 0 changes directory and file: does client 2 get a break of
    // each?
    let rows: Vec<Row> = vec![
        ("lookup", |d, _| Call::Lookup { dir: d, name: name("file") }, true, true),
        ("lookup of nothing", |d, _| Call::Lookup { dir: d, name: name("nothing") }, true, false),
        (
            "list",
            |d, _| Call::ReadDir { dir: d, cookie: Cookie::START, bytes_max: 9999, plus: false },
            true,
            false,
        ),
        (
            "list with status",
            |d, _| Call::ReadDir { dir: d, cookie: Cookie::START, bytes_max: 9999, plus: true },
            true,
            true,
        ),
        ("status", |_, f| Call::GetStatus { fid: f }, false, true),
        ("by number", |_, f| Call::ByVnode { fid: f.masked(), parent: false }, false, true),
        ("parent", |d, _| Call::ByVnode { fid: d.masked(), parent: true }, false, false),
        ("read", |_, f| Call::Read { fid: f, offset: 0, length: 1 }, false, true),
        ("write", |_, f| write(f, None, b"x"), false, true),
        ("write of nothing", |_, f| write(f, None, b""), false, true),
        ("create", |d, _| make(d, "of 2"), true, false),
        (
            "unchecked create",
            |d, _| Call::Make {
                dir: d,
                name: name("file"),
                kind: NewKind::File,
                mode: 0,
                how: CreateHow::Unchecked,
            },
            true,
            true,
        ),
        ("link", |d, f| Call::Link { fid: f, dir: d, name: name("l") }, true, true),
        ("chmod", |_, f| set(f, |c| c.mode = Some(0o600)), false, true),
        ("nothing asked", |_, f| set(f, |_| ()), false, true),
        ("attributes", |_, f| Call::XattrList { fid: f }, false, true),
    ];
    for (title, call, of_dir, of_file) in rows {
        let (mut rig, dir, file) = known();
        rig.call(2, &ROOT, call(dir, file))
            .map(drop)
            .or_else(|fault| (fault == Fault::NotFound).then_some(()).ok_or(fault))
            .unwrap();
        received(&mut rig, 2);
        rig.call(0, &ROOT, make(dir, "new")).unwrap();
        assert_eq!(!received(&mut rig, 2).is_empty(), of_dir, "{title}: the directory");
        rig.call(0, &ROOT, write(file, None, b"y")).unwrap();
        assert_eq!(!received(&mut rig, 2).is_empty(), of_file, "{title}: the file");
    }
}

#[test]
fn a_new_file_is_promised_to_its_maker() {
    let (mut rig, dir, _) = known();
    rig.call(2, &ROOT, make(dir, "new")).unwrap();
    let new = rig.look(0, dir, "new").unwrap();
    received(&mut rig, 2);
    rig.call(0, &ROOT, write(new, None, b"y")).unwrap();
    assert_eq!(received(&mut rig, 2), vec![(new, BreakReason::Data, None)]);
}

#[test]
fn a_change_is_answered_when_everybody_has_acknowledged() {
    let (mut rig, dir, file) = known();
    rig.look(2, dir, "file").unwrap();
    rig.clients[1].prompt = false;
    rig.clients[2].prompt = false;
    let origin = rig.start(0, &ROOT, write(file, Some(0), b"new"));
    assert_eq!(rig.reply(origin), None);
    rig.acknowledge(1);
    assert_eq!(rig.reply(origin), None, "client 2 may still answer from its cache");
    // A client that asks meanwhile gets the new state.
    assert_eq!(rig.status(1, file).unwrap().size, 3);
    // A repetition does not execute the call again, nor is it answered early.
    rig.perform(origin, &ROOT, write(file, Some(0), b"new"));
    assert_eq!(rig.reply(origin), None);
    rig.acknowledge(2);
    assert!(matches!(rig.reply(origin), Some(Ok(Answer::Written { count: 3, .. }))));
    assert!(rig.replies.is_empty(), "one reply");
}

#[test]
fn a_change_waits_for_a_silent_client_until_its_lease_ends() {
    let (mut rig, _, file) = known();
    rig.clients[1].prompt = false;
    let origin = rig.start(0, &ROOT, write(file, Some(0), b"new"));
    let lease = rig.config.lease.give_up();
    for _ in 0..3 {
        rig.wait(lease / 4);
        assert!(rig.renew(0));
        assert_eq!(rig.reply(origin), None);
    }
    rig.wait(lease / 2);
    assert!(rig.clients[1].ended && !rig.clients[0].ended);
    assert!(matches!(rig.reply(origin), Some(Ok(_))));
    assert_eq!(rig.call(1, &ROOT, Call::GetStatus { fid: file }), Err(Fault::Expired));
}

#[test]
fn a_later_change_waits_for_the_earlier_break_too() {
    let (mut rig, _, file) = known();
    rig.clients[1].prompt = false;
    let first = rig.start(0, &ROOT, write(file, Some(0), b"1"));
    let second = rig.start(2, &ROOT, write(file, Some(0), b"2"));
    assert_eq!((rig.reply(first), rig.reply(second)), (None, None));
    rig.acknowledge(1);
    assert!(rig.reply(first).is_some());
    // Client 0 received the second break, and acknowledged at once.
    assert!(rig.reply(second).is_some());
}

#[test]
fn a_removed_file_stays_while_someone_has_it_open() {
    let (mut rig, dir, file) = known();
    rig.call(0, &ROOT, write(file, Some(0), b"still here")).unwrap();
    rig.look(1, dir, "file").unwrap();
    rig.clients[1].open.insert(file);
    let files = rig.usage().used_files;
    let Ok(Answer::Removed { status, .. }) = rig.call(0, &ROOT, remove(dir, "file")) else {
        panic!()
    };
    assert_eq!(status.links, 0);
    assert_eq!(rig.usage().used_files, files, "it is still charged");
    assert_eq!(rig.look(0, dir, "file"), Err(Fault::NotFound));
    assert_eq!(rig.status(1, file).unwrap().links, 0);
    rig.call(1, &ROOT, write(file, None, b"!")).unwrap();
    let Ok(Answer::Data { data, .. }) =
        rig.call(1, &ROOT, Call::Read { fid: file, offset: 0, length: 99 })
    else {
        panic!()
    };
    assert_eq!(&data[..], b"still here!");
    assert_eq!(rig.call(1, &ROOT, Call::Unhold { fids: vec![file] }), Ok(Answer::Done));
    assert_eq!(rig.status(1, file), Err(Fault::Stale));
    assert_eq!(rig.usage().used_files, files - 1, "and then it is not");
}

#[test]
fn whoever_removes_may_hold_and_the_end_of_a_session_lets_go() {
    let (mut rig, dir, file) = known();
    rig.call(
        2,
        &ROOT,
        Call::Remove { dir, name: name("file"), what: RemoveWhat::File, hold: true },
    )
    .unwrap();
    assert!(rig.status(2, file).is_ok());
    rig.detach(2);
    assert_eq!(rig.status(0, file), Err(Fault::Stale));
}

#[test]
fn a_file_open_with_a_broken_promise_is_held_too() {
    let (mut rig, dir, file) = known();
    rig.clients[1].open.insert(file);
    // Its promise ends, and it asks for no new one.
    rig.call(0, &ROOT, write(file, Some(0), b"x")).unwrap();
    rig.call(0, &ROOT, remove(dir, "file")).unwrap();
    assert!(rig.status(1, file).is_ok(), "the acknowledgement of the write said that it is open");
}

#[test]
fn a_removed_file_stays_until_the_last_acknowledgement() {
    let (mut rig, dir, file) = known();
    rig.look(2, dir, "file").unwrap();
    rig.clients[1].open.insert(file);
    rig.clients[2].open.insert(file);
    rig.clients[2].prompt = false;
    let origin = rig.start(0, &ROOT, remove(dir, "file"));
    // Client 1 acknowledged with the file open, and closes it; client 2 has not acknowledged.
    assert_eq!(rig.call(1, &ROOT, Call::Unhold { fids: vec![file] }), Ok(Answer::Done));
    assert!(rig.status(1, file).is_ok());
    assert_eq!(rig.reply(origin), None);
    rig.acknowledge(2);
    assert!(matches!(rig.reply(origin), Some(Ok(Answer::Removed { .. }))));
    assert!(rig.status(2, file).is_ok());
    rig.call(2, &ROOT, Call::Unhold { fids: vec![file] }).unwrap();
    assert_eq!(rig.status(2, file), Err(Fault::Stale));
}

#[test]
fn a_replaced_file_is_held_like_a_removed_one() {
    let (mut rig, dir, file) = known();
    rig.clients[1].open.insert(file);
    let other = rig.file(dir, "other");
    let Ok(Answer::Renamed { status, other: lost, .. }) =
        rig.call(0, &ROOT, rename_in(dir, "other", "file"))
    else {
        panic!()
    };
    assert_eq!((status.fid, lost.map(|lost| (lost.fid, lost.links))), (other, Some((file, 0))));
    assert!(rig.status(1, file).is_ok());
    assert_eq!(rig.look(1, dir, "file"), Ok(other));
}

#[test]
fn an_unnamed_file_lives_with_its_session_unless_it_gets_a_name() {
    let (mut rig, dir, _) = known();
    let unnamed = |rig: &mut Rig| match rig.call(2, &ROOT, Call::MakeUnnamed { dir, mode: 0o600 }) {
        Ok(Answer::Status(status)) => status.fid,
        other => panic!("{other:?}"),
    };
    let (dropped, named) = (unnamed(&mut rig), unnamed(&mut rig));
    rig.call(2, &ROOT, Call::Link { fid: named, dir, name: name("named") }).unwrap();
    rig.detach(2);
    assert_eq!(rig.status(0, dropped), Err(Fault::Stale));
    assert_eq!(rig.look(0, dir, "named"), Ok(named));
}

fn lock(fid: Fid, owner: u64, wait: bool, reclaim: bool) -> Call {
    Call::Lock {
        fid,
        owner: LockOwner(owner),
        pid: 7,
        family: LockFamily::Posix,
        range: ByteRange { start: 0, end: 9 },
        mode: LockMode::Exclusive,
        wait,
        reclaim,
    }
}

#[test]
fn a_lock_is_waited_for_taken_back_and_freed_by_death() {
    let (mut rig, _, file) = known();
    assert_eq!(rig.call(0, &ROOT, lock(file, 1, false, false)), Ok(Answer::Done));
    assert_eq!(rig.call(1, &ROOT, lock(file, 1, false, false)), Err(Fault::Locked));
    let waiting = rig.start(1, &ROOT, lock(file, 1, true, false));
    let impatient = rig.start(2, &ROOT, lock(file, 1, true, false));
    assert_eq!((rig.reply(waiting), rig.reply(impatient)), (None, None));
    let mut out = Vec::new();
    rig.vice().cancel(rig.now, impatient, &mut out);
    rig.deliver(out);
    assert_eq!(rig.reply(impatient), Some(Err(Fault::Cancelled)));
    let mut out = Vec::new();
    rig.vice().peer_died(rig.now, rig.clients[0].session, &mut out);
    rig.deliver(out);
    assert_eq!(rig.reply(waiting), Some(Ok(Answer::Done)));
    let test = Call::TestLock {
        fid: file,
        owner: LockOwner(2),
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Shared,
    };
    assert!(matches!(rig.call(2, &ROOT, test), Ok(Answer::LockTest(Some(_)))));
}

#[test]
fn locks_need_a_file_and_a_range() {
    let (mut rig, dir, file) = known();
    let backwards = Call::Lock {
        fid: file,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange { start: 5, end: 4 },
        mode: LockMode::Shared,
        wait: false,
        reclaim: false,
    };
    assert_eq!(rig.call(0, &ROOT, backwards), Err(Fault::Invalid));
    rig.call(0, &ROOT, remove(dir, "file")).unwrap();
    assert_eq!(rig.call(0, &ROOT, lock(file, 1, false, false)), Err(Fault::Stale));
}

#[test]
fn the_report_counts() {
    let (mut rig, _, _) = known();
    let Ok(Answer::Report(text)) = rig.call(0, &ROOT, Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["sessions"], 3);
    assert_eq!(report["calls"]["make"], 2);
    assert_eq!(report["calls"]["lookup"], 2);
    assert_eq!(report["grace"], false);
    assert_eq!(report["volumes"][0]["used_files"], 3);
    assert!(report["promises"].as_u64().unwrap() >= 3);
}

#[test]
fn time_alone_ends_no_session_that_speaks() {
    let (mut rig, _, _) = known();
    for _ in 0..10 {
        rig.wait(Duration::from_secs(10));
        assert!((0..3).all(|who| rig.renew(who)));
    }
    assert!(rig.clients.iter().all(|client| !client.ended));
}
