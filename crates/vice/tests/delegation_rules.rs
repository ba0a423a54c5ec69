//! Delegations, rule by rule: which sessions get one, which files it covers, which calls wait, and
//! what ends it. Random histories are in `delegation_histories.rs`.

use std::time::Duration;

use crate::common::{Ground, Rig, VOLUME, name, remove, write};
use store::VolumeQuota;
use types::{
    Answer, BreakReason, ByteRange, Call, Caller, Cookie, CreateHow, DataVersion, Fault, Fid,
    LockFamily, LockMode, LockOwner, NewKind, RemoveWhat, RenameMode, ReplyAddress, SHORT_SLOT,
    StatusChange, Timestamp, VnodeSlots,
};

const ROOT: Caller = Caller::ROOT;
const SECOND: Duration = Duration::from_secs(1);

/// A delegation of client 0, and the files that it has made under it.
struct Own {
    dir: Fid,
    slots: VnodeSlots,
}

impl Own {
    fn slot(&mut self) -> u64 {
        self.slots.take().unwrap()
    }
}

fn delegate(rig: &mut Rig, who: usize, dir: Fid) -> Result<Own, Fault> {
    match rig.call_in(who, 3, &ROOT, Call::Delegate { fid: dir })? {
        Answer::Delegation { status, slots } => {
            assert_eq!(status.fid, dir);
            Ok(Own { dir, slots })
        }
        other => panic!("{other:?}"),
    }
}

fn at(secs: i64) -> Timestamp {
    Timestamp::new(secs, 77)
}

fn delegated(slot: u64, call: Call) -> Call {
    Call::Delegated { at: at(950), slot, call: Box::new(call) }
}

fn plain_make(dir: Fid, called: &str, kind: NewKind) -> Call {
    Call::Make { dir, name: name(called), kind, mode: 0o644, how: CreateHow::Guarded }
}

/// A delegated change by client 0.
fn change(rig: &mut Rig, call: Call) -> Result<Answer, Fault> {
    rig.call_in(0, 1, &ROOT, delegated(0, call))
}

/// Client 0 makes a file in its directory, or in `sub`.
fn make(rig: &mut Rig, own: &mut Own, sub: Option<Fid>, called: &str, kind: NewKind) -> Fid {
    let dir = sub.unwrap_or(own.dir);
    let slot = own.slot();
    match rig.call_in(0, 1, &ROOT, delegated(slot, plain_make(dir, called, kind))) {
        Ok(Answer::Made { status, .. }) => status.fid,
        other => panic!("{other:?}"),
    }
}

fn give_back(rig: &mut Rig, who: usize, dirs: &[Fid]) {
    assert_eq!(rig.call_in(who, 2, &ROOT, Call::Return { fids: dirs.to_vec() }), Ok(Answer::Done));
}

/// Recalls that a client received since the last call.
fn recalled(rig: &mut Rig, who: usize) -> Vec<Fid> {
    let broken = std::mem::take(&mut rig.clients[who].broken);
    broken
        .into_iter()
        .filter(|item| item.reason == BreakReason::Recall)
        .map(|item| item.fid)
        .collect()
}

/// Client 0 has a delegation.
fn alone() -> (Rig, Own) {
    let mut rig = Rig::new(Ground::memory(), 3);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    let own = delegate(&mut rig, 0, dir).unwrap();
    (rig, own)
}

fn status_of(answer: Option<Result<Answer, Fault>>) -> types::Status {
    match answer {
        Some(Ok(Answer::Status(status) | Answer::Entry { status, .. })) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn af1_files_have_short_uniquifiers_where_lists_decide() {
    let (mut rig, mut own) = alone();
    let is_short = |fid: Fid| fid.unique.0 <= u32::MAX.into();
    let before = make(&mut rig, &mut own, None, "before", NewKind::File);
    assert!(!is_short(before), "where mode bits decide the fid is the secret");
    assert_eq!(own.slots.first & SHORT_SLOT, 0);
    let root = rig.root();
    let mut list = guard::Acl::new();
    assert!(list.set(types::PrincipalId::ANYBODY, guard::Rights::ALL, false));
    let call = Call::SetAcl { fid: root, list: Some(list.encode().into()), instead_of: None };
    let setting = rig.start(0, &ROOT, call);
    give_back(&mut rig, 0, &[own.dir]);
    assert_eq!(rig.reply(setting), Some(Ok(Answer::Done)));
    let plain = rig.file(root, "plain");
    assert!(is_short(plain));
    let mut own = delegate(&mut rig, 0, own.dir).unwrap();
    assert_ne!(own.slots.first & SHORT_SLOT, 0);
    let slot = own.slots.first;
    let made = make(&mut rig, &mut own, None, "made", NewKind::File);
    assert_eq!(made, own.slots.fid(own.dir.volume, slot, false));
    assert!(is_short(made));
    // A client that knows no marks makes long ones, and so does one with a slot from before.
    let slot = own.slot() & !SHORT_SLOT;
    let call = delegated(slot, plain_make(own.dir, "long", NewKind::File));
    let Ok(Answer::Made { status, .. }) = rig.call_in(0, 1, &ROOT, call) else { panic!() };
    assert_eq!(status.fid, own.slots.fid(own.dir.volume, slot, false));
    assert!(!is_short(status.fid));
    // A mark makes no slot another one.
    let call = delegated(slot | SHORT_SLOT, plain_make(own.dir, "again", NewKind::File));
    assert_eq!(rig.call_in(0, 1, &ROOT, call), Err(Fault::NotDelegated));
}

#[test]
fn a_delegated_change_has_its_own_time_and_the_file_its_slot() {
    let (mut rig, mut own) = alone();
    let slot = own.slot();
    let call = delegated(slot, plain_make(own.dir, "f", NewKind::File));
    let Ok(Answer::Made { status, dir, existed: false }) = rig.call(0, &ROOT, call) else {
        panic!()
    };
    assert_eq!(status.fid, own.slots.fid(own.dir.volume, slot, false));
    assert_eq!((status.created, status.changed, dir.modified), (at(950), at(950), at(950)));
    let late = Call::Delegated {
        at: at(rig.wall + 3600),
        slot: 0,
        call: Box::new(write(status.fid, Some(0), b"x")),
    };
    let Ok(Answer::Written { status, .. }) = rig.call(0, &ROOT, late) else { panic!() };
    assert_eq!(status.modified, rig.clock(), "no write is dated an hour from now");
}

#[test]
fn a_delegated_change_is_not_older_than_the_delegation() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let sub = make(&mut rig, &mut own, None, "sub", NewKind::Directory);
    let inner = make(&mut rig, &mut own, Some(sub), "inner", NewKind::File);
    let long_ago = at(rig.wall - 500);
    let as_of = |call| Call::Delegated { at: long_ago, slot: 0, call: Box::new(call) };
    for fid in [file, inner] {
        let Ok(Answer::Written { status, .. }) =
            rig.call(0, &ROOT, as_of(write(fid, Some(0), b"x")))
        else {
            panic!()
        };
        assert_eq!(
            (status.changed, status.modified),
            (rig.clock(), rig.clock()),
            "a backup by ctime sees the change"
        );
        let change = StatusChange { mode: Some(0o640), ..StatusChange::default() };
        let status = status_of(Some(rig.call(0, &ROOT, as_of(Call::SetStatus { fid, change }))));
        assert_eq!(status.changed, rig.clock());
    }
}

#[test]
fn de1_a_call_on_covered_files_waits_and_then_sees_all_changes() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let sub = make(&mut rig, &mut own, None, "sub", NewKind::Directory);
    let inner = make(&mut rig, &mut own, Some(sub), "inner", NewKind::File);
    let root = Fid::root(own.dir.volume);
    let lock = |fid| Call::Lock {
        fid,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Shared,
        wait: true,
        reclaim: false,
    };
    let set = |fid| Call::SetStatus {
        fid,
        change: StatusChange { mode: Some(0o600), ..StatusChange::default() },
    };
    let rename = |from_dir, from, to_dir| Call::Rename {
        from_dir,
        from: name(from),
        to_dir,
        to: name("moved"),
        mode: RenameMode::Replace,
        hold: false,
    };
    let rows: Vec<(&str, Call, Fid)> = vec![
        ("status", Call::GetStatus { fid: own.dir }, own.dir),
        ("status of a file", Call::GetStatus { fid: file }, own.dir),
        ("status of a file in a new directory", Call::GetStatus { fid: inner }, sub),
        ("lookup in", Call::Lookup { dir: own.dir, name: name("nothing") }, own.dir),
        ("lookup of", Call::Lookup { dir: root, name: name("dir") }, own.dir),
        (
            "list",
            Call::ReadDir { dir: sub, cookie: Cookie::START, bytes_max: 999, plus: false },
            sub,
        ),
        ("read", Call::Read { fid: file, offset: 0, length: 9 }, own.dir),
        ("write", write(file, Some(0), b"theirs"), own.dir),
        ("make", plain_make(own.dir, "new", NewKind::File), own.dir),
        ("make what is there", plain_make(own.dir, "f", NewKind::File), own.dir),
        ("chmod", set(file), own.dir),
        ("remove", remove(own.dir, "f"), own.dir),
        ("rename out", rename(sub, "inner", root), sub),
        ("rename of", rename(root, "dir", root), own.dir),
        ("link", Call::Link { fid: inner, dir: root, name: name("l") }, sub),
        ("lock", lock(file), own.dir),
        ("attributes", Call::XattrList { fid: inner }, sub),
        (
            "rmdir",
            Call::Remove { dir: root, name: name("dir"), what: RemoveWhat::Directory, hold: false },
            own.dir,
        ),
    ];
    for (title, call, wanted) in rows {
        let (mut rig, mut own) = alone();
        let again = [
            make(&mut rig, &mut own, None, "f", NewKind::File),
            make(&mut rig, &mut own, None, "sub", NewKind::Directory),
        ];
        assert_eq!(again, [file, sub], "the same world each time");
        assert_eq!(make(&mut rig, &mut own, Some(sub), "inner", NewKind::File), inner);
        let origin = rig.start(1, &ROOT, call);
        assert_eq!(rig.reply(origin), None, "{title}");
        assert_eq!(recalled(&mut rig, 0), [wanted], "{title}");
        // Changes that were answered before the recall still arrive.
        change(&mut rig, write(inner, Some(0), b"ours")).unwrap();
        give_back(&mut rig, 0, &[own.dir, sub]);
        assert!(rig.reply(origin).is_some(), "{title}: DE-2");
    }
}

#[test]
fn a_reader_sees_what_came_between_his_question_and_the_return() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let origin = rig.start(1, &ROOT, Call::GetStatus { fid: file });
    change(&mut rig, write(file, Some(0), b"12345")).unwrap();
    assert_eq!(rig.reply(origin), None, "DE-2");
    give_back(&mut rig, 0, &[own.dir]);
    let status = status_of(rig.reply(origin));
    assert_eq!((status.size, status.data_version), (5, DataVersion(2)));
    assert_eq!(change(&mut rig, write(file, Some(0), b"late")), Err(Fault::NotDelegated));
}

#[test]
fn a_listing_leaves_out_what_another_has_and_does_not_wait() {
    let (mut rig, mut own) = alone();
    make(&mut rig, &mut own, None, "f", NewKind::File);
    let root = Fid::root(own.dir.volume);
    rig.make(1, &ROOT, root, "theirs", NewKind::File, 0o644);
    let list = Call::ReadDir { dir: root, cookie: Cookie::START, bytes_max: 9999, plus: true };
    let Ok(Answer::Entries { entries, .. }) = rig.call(1, &ROOT, list) else { panic!() };
    let mut shown: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                String::from_utf8_lossy(entry.name.as_bytes()).into_owned(),
                entry.status.is_some(),
                entry.sole,
            )
        })
        .collect();
    shown.sort();
    assert_eq!(shown, [("dir".to_owned(), false, false), ("theirs".to_owned(), true, false)]);
    assert_eq!(recalled(&mut rig, 0), []);
}

#[test]
fn a_file_without_other_promises_is_sole_and_becomes_a_child() {
    let mut rig = Rig::new(Ground::memory(), 3);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    let (known, unknown) = (rig.file(dir, "known"), rig.file(dir, "unknown"));
    let shared = rig.status(1, known).unwrap();
    let own = delegate(&mut rig, 0, dir).unwrap();
    let sole = |rig: &mut Rig, called: &str| match rig.call(
        0,
        &ROOT,
        Call::Lookup { dir, name: name(called) },
    ) {
        Ok(Answer::Entry { sole, .. }) => sole,
        other => panic!("{other:?}"),
    };
    assert!(!sole(&mut rig, "known"), "client 1 was promised it");
    assert!(sole(&mut rig, "unknown"));
    assert!(sole(&mut rig, "unknown"), "and stays so");
    assert_eq!(change(&mut rig, write(known, Some(0), b"x")), Err(Fault::NotDelegated));
    assert!(change(&mut rig, write(unknown, Some(0), b"x")).is_ok());
    assert_eq!(rig.status(1, known).unwrap(), shared, "all sessions see what is not covered");
    let origin = rig.start(1, &ROOT, Call::GetStatus { fid: unknown });
    assert_eq!(rig.reply(origin), None);
    give_back(&mut rig, 0, &[own.dir]);
    assert_eq!(status_of(rig.reply(origin)).size, 1);
    assert_eq!(
        change(&mut rig, write(unknown, Some(0), b"y")),
        Err(Fault::NotDelegated),
        "children go with it"
    );
}

#[test]
fn only_what_is_covered_may_be_changed_unasked() {
    let (mut rig, mut own) = alone();
    let root = Fid::root(own.dir.volume);
    let outside = rig.file(root, "outside");
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let sub = make(&mut rig, &mut own, None, "sub", NewKind::Directory);
    let move_to = |from_dir, from, to_dir| Call::Rename {
        from_dir,
        from: name(from),
        to_dir,
        to: name("to"),
        mode: RenameMode::Replace,
        hold: false,
    };
    let slot = own.slot();
    let used = own.slots.first - 3;
    let other = make(&mut rig, &mut own, None, "other", NewKind::Directory);
    let rows: Vec<(&str, u64, Call, Result<(), Fault>)> = vec![
        ("make elsewhere", slot, plain_make(root, "x", NewKind::File), Err(Fault::NotDelegated)),
        (
            "a slot that was not given",
            u64::MAX / 4,
            plain_make(own.dir, "x", NewKind::File),
            Err(Fault::NotDelegated),
        ),
        (
            "the root's slot of another",
            1,
            plain_make(own.dir, "x", NewKind::File),
            Err(Fault::NotDelegated),
        ),
        (
            "a slot that is used",
            used,
            plain_make(own.dir, "x", NewKind::File),
            Err(Fault::NotDelegated),
        ),
        ("write elsewhere", 0, write(outside, Some(0), b"x"), Err(Fault::NotDelegated)),
        (
            "link of another",
            0,
            Call::Link { fid: outside, dir: own.dir, name: name("x") },
            Err(Fault::NotDelegated),
        ),
        (
            "link elsewhere",
            0,
            Call::Link { fid: file, dir: root, name: name("x") },
            Err(Fault::NotDelegated),
        ),
        ("rename out", 0, move_to(own.dir, "f", root), Err(Fault::NotDelegated)),
        ("a directory moves", 0, move_to(own.dir, "sub", other), Err(Fault::NotDelegated)),
        ("read", 0, Call::Read { fid: file, offset: 0, length: 1 }, Err(Fault::Invalid)),
        ("as refused as ever", 0, plain_make(own.dir, "f", NewKind::File), Err(Fault::Exists)),
        ("rename in", 0, move_to(own.dir, "f", sub), Ok(())),
        ("remove", 0, remove(sub, "to"), Ok(())),
        ("make", slot, plain_make(own.dir, "x", NewKind::Fifo), Ok(())),
    ];
    for (title, slot, call, wanted) in rows {
        let found = rig.call_in(0, 1, &ROOT, delegated(slot, call));
        assert_eq!(found.map(drop), wanted, "{title}");
    }
    let unrelated = crate::common::user(12, 12, &[]);
    let denied = rig.call_in(0, 1, &unrelated, delegated(0, remove(own.dir, "x")));
    assert_eq!(denied, Err(Fault::AccessDenied), "rules of access hold as ever");
}

#[test]
fn a_directory_in_use_is_not_delegated_before_its_users_left() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    rig.status(1, dir).unwrap();
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy));
    assert_eq!(rig.clients[1].broken.len(), 1, "client 1 is to come back if it cares");
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "too early to ask again");
    rig.status(1, dir).unwrap();
    rig.wait(2 * SECOND);
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "it came back");
    rig.wait(2 * SECOND);
    let own = delegate(&mut rig, 0, dir).unwrap();
    assert_eq!(delegate(&mut rig, 1, dir).err(), Some(Fault::Busy));
    let origin = rig.start(1, &ROOT, Call::GetStatus { fid: dir });
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "it is wanted back");
    give_back(&mut rig, 0, &[own.dir]);
    assert!(rig.reply(origin).is_some());
    rig.clients[1].prompt = true;
    rig.wait(SECOND / 2);
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "recalled a moment ago");
    rig.wait(SECOND);
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "client 1 knows it");
    rig.wait(2 * SECOND);
    assert!(delegate(&mut rig, 0, dir).is_ok());
}

#[test]
fn calls_that_waited_go_on_in_the_order_in_which_they_came() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let origins: Vec<ReplyAddress> = (0..20_u8)
        .map(|number| {
            rig.start_in(
                1 + usize::from(number % 2),
                10 + u32::from(number),
                &ROOT,
                write(file, None, &[number]),
            )
        })
        .collect();
    let taken_back = origins[7];
    let mut out = Vec::new();
    rig.vice().cancel(rig.now, taken_back, &mut out);
    rig.deliver(out);
    assert_eq!(rig.reply(taken_back), Some(Err(Fault::Cancelled)));
    assert_eq!(recalled(&mut rig, 0), [own.dir], "once");
    give_back(&mut rig, 0, &[own.dir]);
    assert!(
        origins
            .iter()
            .filter(|origin| **origin != taken_back)
            .all(|origin| rig.reply(*origin).is_some())
    );
    let Ok(Answer::Data { data, .. }) =
        rig.call(1, &ROOT, Call::Read { fid: file, offset: 0, length: 99 })
    else {
        panic!()
    };
    let wanted: Vec<u8> = (0..20).filter(|number| *number != 7).collect();
    assert_eq!(data, wanted);
}

#[test]
fn a_holder_that_dies_or_leaves_stops_nobody() {
    for how in ["detach", "expire", "replaced"] {
        let (mut rig, mut own) = alone();
        let file = make(&mut rig, &mut own, None, "f", NewKind::File);
        let origin = rig.start(1, &ROOT, Call::GetStatus { fid: file });
        match how {
            "detach" => rig.detach(0),
            "replaced" => {
                let mut out = Vec::new();
                rig.vice().attach(rig.now, rig.clients[0].id, 2, &mut out).unwrap();
                rig.deliver(out);
            }
            _ => {
                for _ in 0..16 {
                    rig.wait(SECOND);
                    assert!(rig.renew(1) && rig.renew(2));
                }
            }
        }
        assert!(rig.reply(origin).is_some(), "{how}");
    }
}

#[test]
fn de2_an_overdue_recall_withholds_renewals_until_changes_come() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let origin = rig.start(1, &ROOT, Call::GetStatus { fid: file });
    for second in 0..40 {
        rig.wait(SECOND);
        assert!(rig.renew(0), "after {second} s");
        assert!(rig.renew(1) && rig.renew(2));
        change(&mut rig, write(file, Some(0), b"more")).unwrap();
    }
    let mut withheld = 0;
    while rig.reply(origin).is_none() {
        rig.wait(SECOND);
        withheld += u32::from(!rig.renew(0));
        assert!(rig.renew(1) && rig.renew(2));
        assert!(withheld < 60, "CB-4");
    }
    assert!(rig.clients[0].ended && withheld >= 14, "{withheld}");
}

#[test]
fn delegated_changes_that_come_again_are_answered_again() {
    let (mut rig, mut own) = alone();
    let slot = own.slot();
    let fid = own.slots.fid(own.dir.volume, slot, false);
    let calls = [
        delegated(slot, plain_make(own.dir, "f", NewKind::File)),
        delegated(0, write(fid, None, b"once")),
        delegated(0, Call::Link { fid, dir: own.dir, name: name("l") }),
        delegated(0, remove(own.dir, "l")),
    ];
    for call in calls {
        let origin = rig.start_in(0, 1, &ROOT, call.clone());
        let first = rig.reply(origin).unwrap();
        assert!(first.is_ok(), "{call:?} {first:?}");
        rig.perform(origin, &ROOT, call.clone());
        assert_eq!(rig.reply(origin), Some(first.clone()), "EO-1");
        rig.restart();
        assert!(rig.resume(0).unwrap().reclaim);
        rig.perform(origin, &ROOT, call.clone());
        assert_eq!(rig.reply(origin), Some(first), "EO-1, before other clients are back");
        assert_eq!(rig.call_in(0, 9, &ROOT, Call::ReclaimDone), Ok(Answer::Done));
        for who in [1, 2] {
            rig.reclaim(who);
        }
        own = delegate(&mut rig, 0, own.dir).unwrap();
        rig.look(0, own.dir, "f").unwrap();
    }
}

#[test]
fn de1_after_a_restart_reads_wait_for_delegating_sessions() {
    let (mut rig, mut own) = alone();
    let file = make(&mut rig, &mut own, None, "f", NewKind::File);
    let slot = own.slot();
    rig.restart();
    for who in 0..3 {
        assert!(rig.resume(who).unwrap().reclaim);
    }
    let reader = rig.start(1, &ROOT, Call::GetStatus { fid: file });
    let newcomer = rig.attach();
    let lookup = rig.start(newcomer, &ROOT, Call::Root { volume: name(VOLUME) });
    for who in [1, 2] {
        assert_eq!(rig.call_in(who, 9, &ROOT, Call::ReclaimDone), Ok(Answer::Done));
    }
    assert_eq!((rig.reply(reader), rig.reply(lookup)), (None, None), "the past is not shown");
    assert!(rig.status(0, file).is_ok(), "the session with the delegation may read");
    // A change that it has not sent before, and that no other session could send: others are
    // refused.
    let unmarked = rig.start_in(1, 4, &ROOT, delegated(0, write(file, Some(0), b"not mine")));
    assert_eq!(rig.reply(unmarked), None, "only marked sessions");
    change(&mut rig, write(file, Some(0), b"sent late")).unwrap();
    rig.call_in(0, 1, &ROOT, delegated(slot, plain_make(own.dir, "late", NewKind::File))).unwrap();
    assert_eq!(delegate(&mut rig, 0, own.dir).err(), Some(Fault::Busy), "not before grace is over");
    assert_eq!(rig.call_in(0, 9, &ROOT, Call::ReclaimDone), Ok(Answer::Done));
    assert_eq!(status_of(rig.reply(reader)).size, 9);
    assert!(rig.reply(lookup).is_some());
    assert_eq!(
        change(&mut rig, write(file, Some(0), b"too late")),
        Err(Fault::NotDelegated),
        "none outlives a restart"
    );
}

#[test]
fn those_who_never_had_a_delegation_stop_no_readers() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    rig.restart();
    rig.resume(1).unwrap();
    assert!(rig.status(1, root).is_ok());
}

#[test]
fn scarce_room_recalls_delegations_before_a_call_is_refused() {
    let quota = VolumeQuota { bytes: 1 << 30, files: 60_000 };
    let mut rig = Rig::with_quota(Ground::memory(), 2, quota);
    let root = rig.root();
    let (dir, other) = (rig.directory(root, "dir"), rig.file(root, "other"));
    let own = delegate(&mut rig, 0, dir).unwrap();
    let grow = |size| Call::Allocate {
        fid: other,
        offset: 0,
        length: size,
        mode: types::AllocateMode::Extend,
    };
    assert!(rig.call(1, &ROOT, grow(400 << 20)).is_ok());
    assert_eq!(recalled(&mut rig, 0), []);
    let origin = rig.start(1, &ROOT, grow(900 << 20));
    assert_eq!(rig.reply(origin), None, "it does not fit beside what is set aside");
    assert_eq!(recalled(&mut rig, 0), [own.dir]);
    give_back(&mut rig, 0, &[own.dir]);
    assert!(matches!(rig.reply(origin), Some(Ok(_))));
    assert_eq!(
        rig.call(1, &ROOT, grow(2 << 30)),
        Err(Fault::QuotaExceeded),
        "no delegation is in its way"
    );
    rig.wait(8 * SECOND);
    assert_eq!(delegate(&mut rig, 0, dir).err(), Some(Fault::Busy), "no room to set aside");
}

#[test]
fn a_lower_quota_waits_for_what_is_outstanding() {
    let (mut rig, own) = alone();
    let root = Fid::root(own.dir.volume);
    let origin = rig.start(1, &ROOT, Call::SetQuota { fid: root, bytes: 1 << 20, files: 100 });
    assert_eq!((rig.reply(origin), recalled(&mut rig, 0)), (None, vec![own.dir]));
    give_back(&mut rig, 0, &[own.dir]);
    assert!(matches!(rig.reply(origin), Some(Ok(_))));
}

#[test]
fn a_removed_directory_is_free_its_moved_child_stays_covered() {
    let (mut rig, mut own) = alone();
    let sub = make(&mut rig, &mut own, None, "sub", NewKind::Directory);
    let file = make(&mut rig, &mut own, Some(sub), "f", NewKind::File);
    let call = Call::Rename {
        from_dir: sub,
        from: name("f"),
        to_dir: own.dir,
        to: name("f"),
        mode: RenameMode::Replace,
        hold: false,
    };
    change(&mut rig, call).unwrap();
    change(
        &mut rig,
        Call::Remove { dir: own.dir, name: name("sub"), what: RemoveWhat::Directory, hold: false },
    )
    .unwrap();
    let origin = rig.start(1, &ROOT, Call::GetStatus { fid: file });
    assert_eq!(recalled(&mut rig, 0), [sub], "it belongs to the directory in which it was made");
    assert_eq!(rig.reply(origin), None);
    give_back(&mut rig, 0, &[sub]);
    assert!(rig.reply(origin).is_some());
    assert_eq!(rig.status(1, sub), Err(Fault::Stale));
}
