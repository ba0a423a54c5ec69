//! Exactly once: repeated requests, before and after restarts; and the time after a restart.

use std::time::Duration;

use crate::common::{Ground, Rig, config, name, remove, write};
use types::{
    Answer, ByteRange, Call, Caller, ClientId, Cookie, CreateHow, Fault, Fid, LockFamily, LockMode,
    LockOwner, NewKind, RemoveWhat, ReplyAddress,
};
use vice::{Effect, Execution};

const ROOT: Caller = Caller::ROOT;

fn make(dir: Fid, at: &str) -> Call {
    Call::Make { dir, name: name(at), kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded }
}

fn entries(rig: &mut Rig, dir: Fid) -> usize {
    match rig.call(
        0,
        &ROOT,
        Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 9999, plus: false },
    ) {
        Ok(Answer::Entries { entries, .. }) => entries.len(),
        other => panic!("{other:?}"),
    }
}

/// Every kind of change on a tree that allows it.
fn changes(rig: &mut Rig) -> Vec<Call> {
    let root = rig.root();
    let dir = rig.directory(root, "d");
    let file = rig.file(dir, "f");
    rig.file(dir, "g");
    vec![
        make(dir, "new"),
        Call::MakeUnnamed { dir, mode: 0o600 },
        Call::Link { fid: file, dir, name: name("l") },
        remove(dir, "g"),
        Call::Rename {
            from_dir: dir,
            from: name("new"),
            to_dir: root,
            to: name("moved"),
            mode: types::RenameMode::Replace,
            hold: false,
        },
        write(file, None, b"appended"),
        Call::SetStatus {
            fid: file,
            change: types::StatusChange { mode: Some(0o600), ..Default::default() },
        },
        Call::XattrSet {
            fid: file,
            name: "user.a".into(),
            value: "v".into(),
            mode: types::XattrMode::Create,
        },
        Call::XattrRemove { fid: file, name: "user.a".into() },
        Call::Allocate { fid: file, offset: 0, length: 20000, mode: types::AllocateMode::Extend },
        Call::SetQuota { fid: root, bytes: 1 << 30, files: 0 },
    ]
}

#[test]
fn eo1_a_repeated_change_is_answered_again_and_not_repeated() {
    let mut rig = Rig::new(Ground::memory(), 1);
    for call in changes(&mut rig) {
        assert!(call.changes());
        let origin = rig.start(0, &ROOT, call.clone());
        let first = rig.reply(origin).unwrap();
        assert!(first.is_ok(), "{call:?}: {first:?}");
        rig.perform(origin, &ROOT, call.clone());
        assert_eq!(rig.reply(origin), Some(first), "{call:?}");
    }
}

#[test]
fn so_it_is_after_a_restart() {
    let mut rig = Rig::new(Ground::memory(), 1);
    for call in changes(&mut rig) {
        let origin = rig.start(0, &ROOT, call.clone());
        let first = rig.reply(origin).unwrap();
        rig.restart();
        let resumed = rig.resume(0).unwrap();
        assert!(resumed.recorded.contains(&(origin.slot, origin.request)), "{call:?}");
        assert_eq!(rig.call_in(0, 1, &ROOT, Call::ReclaimDone), Ok(Answer::Done));
        rig.perform(origin, &ROOT, call.clone());
        assert_eq!(rig.reply(origin), Some(first), "{call:?}");
    }
}

#[test]
fn a_refusal_that_comes_again_is_the_same_refusal() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    rig.file(root, "f");
    let origin = rig.start(0, &ROOT, make(root, "f"));
    assert_eq!(rig.reply(origin), Some(Err(Fault::Exists)));
    let other = rig.origin(0);
    rig.perform(ReplyAddress { slot: 5, ..other }, &ROOT, remove(root, "f"));
    rig.perform(origin, &ROOT, make(root, "f"));
    assert_eq!(rig.reply(origin), Some(Err(Fault::Exists)));
    assert_eq!(entries(&mut rig, root), 0);
}

#[test]
fn an_older_request_is_refused() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let old = rig.origin(0);
    rig.call(0, &ROOT, make(root, "f")).unwrap();
    rig.perform(old, &ROOT, remove(root, "f"));
    assert_eq!(rig.reply(old), Some(Err(Fault::Invalid)));
    assert_eq!(entries(&mut rig, root), 1);
}

#[test]
fn appends_that_are_sent_over_and_over_arrive_once_each() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let file = rig.file(root, "log");
    for number in 0..60_u8 {
        let call = write(file, None, &[number]);
        let origin = rig.start(0, &ROOT, call.clone());
        if number % 3 == 0 {
            rig.restart();
            rig.resume(0).unwrap();
            rig.call_in(0, 1, &ROOT, Call::ReclaimDone).unwrap();
        }
        if number % 2 == 0 {
            rig.perform(origin, &ROOT, call);
        }
    }
    let read = Call::Read { fid: file, offset: 0, length: 1000 };
    let Ok(Answer::Data { data, .. }) = rig.call(0, &ROOT, read) else { panic!() };
    assert_eq!(data[..], (0..60).collect::<Vec<u8>>()[..]);
}

#[test]
fn an_earlier_life_of_a_client_is_refused_for_ever() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let attach = |rig: &mut Rig, incarnation| {
        let mut out = Vec::new();
        let attached = rig.vice().attach(rig.now, ClientId(9), incarnation, &mut out);
        rig.deliver(out);
        attached
    };
    let third = attach(&mut rig, 3).unwrap();
    assert_eq!(attach(&mut rig, 2), Err(Fault::Expired));
    let fourth = attach(&mut rig, 4).unwrap();
    assert_ne!(third.session, fourth.session);
    assert!(!rig.vice().renew(rig.now, third.session, &mut Vec::new()), "the third life is over");
    rig.restart();
    assert_eq!(attach(&mut rig, 3), Err(Fault::Expired), "EO-2 holds over a restart");
    let numbers: Vec<_> =
        (5..9).map(|incarnation| attach(&mut rig, incarnation).unwrap().session).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers[0] > fourth.session,
        "numbers are not used again"
    );
}

#[test]
fn changes_and_locks_wait_for_grace_and_reading_does_not() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let file = rig.file(root, "f");
    rig.restart();
    rig.resume(0).unwrap();
    assert_eq!(rig.look(0, root, "f"), Ok(file));
    let change = rig.start_in(0, 1, &ROOT, make(root, "new"));
    let lock = rig.start_in(0, 2, &ROOT, lock(file, false));
    assert_eq!((rig.reply(change), rig.reply(lock)), (None, None));
    assert_eq!(
        rig.look(0, root, "new"),
        Err(Fault::NotFound),
        "not done before it may be acknowledged"
    );
    rig.call(0, &ROOT, Call::ReclaimDone).unwrap();
    assert_eq!(
        (rig.reply(change), rig.reply(lock)),
        (None, None),
        "client 1 may still trust its cache"
    );
    rig.reclaim(1);
    assert!(matches!(rig.reply(change), Some(Ok(Answer::Made { .. }))));
    assert_eq!(rig.reply(lock), Some(Ok(Answer::Done)));
}

fn lock(fid: Fid, reclaim: bool) -> Call {
    Call::Lock {
        fid,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Flock,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait: false,
        reclaim,
    }
}

#[test]
fn a_recorded_reply_is_an_acknowledgement_and_waits_too() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    rig.look(1, root, "nothing").unwrap_err();
    rig.clients[1].prompt = false;
    // Done, but not acknowledged: client 1 has not received the break.
    let origin = rig.start(0, &ROOT, make(root, "new"));
    assert_eq!(rig.reply(origin), None);
    rig.restart();
    rig.resume(0).unwrap();
    for _ in 0..2 {
        rig.perform(origin, &ROOT, make(root, "new"));
        assert_eq!(rig.reply(origin), None, "CB-5");
    }
    rig.call_in(0, 1, &ROOT, Call::ReclaimDone).unwrap();
    let half = rig.config.lease.give_up() / 2;
    rig.wait(half);
    assert!(rig.renew(0));
    rig.wait(half);
    assert!(rig.clients[1].ended && !rig.clients[0].ended);
    assert!(matches!(rig.reply(origin), Some(Ok(Answer::Made { existed: false, .. }))));
    assert!(rig.replies.is_empty(), "one reply");
}

#[test]
fn a_lock_is_claimed_before_others_get_it() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let file = rig.file(root, "f");
    rig.call(0, &ROOT, lock(file, false)).unwrap();
    rig.restart();
    rig.resume(1).unwrap();
    let other = rig.start(1, &ROOT, lock(file, false));
    rig.call_in(1, 1, &ROOT, Call::ReclaimDone).unwrap();
    rig.resume(0).unwrap();
    assert_eq!(rig.call(0, &ROOT, lock(file, true)), Ok(Answer::Done));
    rig.call(0, &ROOT, Call::ReclaimDone).unwrap();
    assert_eq!(rig.reply(other), Some(Err(Fault::Locked)));
    assert_eq!(
        rig.call(0, &ROOT, lock(file, true)),
        Err(Fault::Expired),
        "there is a time for claims"
    );
}

#[test]
fn files_without_names_are_claimed_or_go() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    let (claimed, unclaimed) = (rig.file(root, "a"), rig.file(root, "b"));
    for at in ["a", "b"] {
        rig.call(
            0,
            &ROOT,
            Call::Remove { dir: root, name: name(at), what: RemoveWhat::File, hold: true },
        )
        .unwrap();
    }
    let files = rig.usage().used_files;
    rig.restart();
    rig.clients[0].open.insert(claimed);
    rig.reclaim(0);
    assert!(rig.status(0, unclaimed).is_ok(), "a client may still claim it");
    rig.reclaim(1);
    assert!(rig.status(0, claimed).is_ok());
    assert_eq!(rig.status(0, unclaimed), Err(Fault::Stale));
    assert_eq!(rig.usage().used_files, files - 1);
    rig.call(0, &ROOT, Call::Unhold { fids: vec![claimed] }).unwrap();
    assert_eq!(rig.usage().used_files, files - 2);
}

#[test]
fn what_waits_for_grace_is_bounded_and_can_be_taken_back() {
    let mut rig = Rig::new(Ground::memory(), 2);
    rig.config.waiting_calls_max = 2;
    let root = rig.root();
    let file = rig.file(root, "f");
    rig.restart();
    rig.resume(0).unwrap();
    let waiting: Vec<_> =
        (1..4).map(|slot| rig.start_in(0, slot, &ROOT, write(file, None, b"x"))).collect();
    assert_eq!(rig.reply(waiting[2]), Some(Err(Fault::Busy)));
    let mut out = Vec::new();
    rig.vice().cancel(rig.now, waiting[0], &mut out);
    rig.deliver(out);
    assert_eq!(rig.reply(waiting[0]), Some(Err(Fault::Cancelled)));
    rig.reclaim(0);
    rig.reclaim(1);
    assert!(matches!(rig.reply(waiting[1]), Some(Ok(Answer::Written { offset: 0, .. }))));
    assert_eq!(rig.status(0, file).unwrap().size, 1);
}

#[test]
fn a_server_that_nobody_knew_has_no_grace() {
    let mut rig = Rig::new(Ground::memory(), 1);
    rig.detach(0);
    rig.restart();
    let who = rig.attach();
    let root = rig.look_root(who);
    assert!(rig.call(who, &ROOT, make(root, "f")).is_ok());
}

#[test]
fn du1_power_loss_keeps_committed_data_and_changes_the_verifier() {
    for seed in 0..20 {
        let mut rig = Rig::new(Ground::memory(), 1);
        let root = rig.root();
        let file = rig.file(root, "f");
        rig.call(0, &ROOT, write(file, Some(0), &[7; 40_000])).unwrap();
        let Ok(Answer::Committed { verifier }) = rig.call(0, &ROOT, Call::Commit { fid: file })
        else {
            panic!()
        };
        let lost = rig.start(0, &ROOT, write(file, Some(40_000), b"unstable"));
        let written = rig.reply(lost);
        assert!(matches!(
            written,
            Some(Ok(Answer::Written { verifier: same, .. })) if same == verifier
        ));
        let Ground::Memory(machine) = &rig.ground else { panic!() };
        let machine = machine.power_loss(seed);
        rig.restart_on(machine);
        let resumed = rig.resume(0).unwrap();
        assert_ne!(
            resumed.verifier, verifier,
            "unstable changes may be lost, and the client sends them again"
        );
        rig.call_in(0, 1, &ROOT, Call::ReclaimDone).unwrap();
        // Done and recorded, or neither.
        rig.perform(lost, &ROOT, write(file, Some(40_000), b"unstable"));
        assert!(rig.reply(lost).unwrap().is_ok());
        let read = Call::Read { fid: file, offset: 0, length: 40_000 };
        let Ok(Answer::Data { data, .. }) = rig.call(0, &ROOT, read) else { panic!() };
        assert_eq!(data[..], [7; 40_000][..], "DU-1");
        assert_eq!(rig.status(0, file).unwrap().size, 40_008);
    }
}

#[test]
fn after_a_failed_sync_nothing_changes_any_more() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let file = rig.file(root, "f");
    let Ground::Memory(machine) = &rig.ground else { panic!() };
    machine.fail_syncs(true);
    assert_eq!(rig.call(0, &ROOT, Call::Commit { fid: file }), Err(Fault::Medium));
    assert_eq!(rig.call(0, &ROOT, make(root, "g")), Err(Fault::Medium), "DU-3");
    assert_eq!(rig.look(0, root, "f"), Ok(file), "reading goes on");
}

#[test]
fn sessions_of_a_thousand_clients_come_back() {
    let mut rig = Rig::new(Ground::memory(), 0);
    let sessions: Vec<_> = (0..1000).map(|_| rig.attach()).collect();
    rig.restart();
    assert!(sessions.iter().all(|who| rig.resume(*who).is_ok_and(|attached| attached.reclaim)));
    rig.wait(config().lease.give_up() + Duration::from_secs(1));
    assert!(
        rig.clients.iter().all(|client| client.ended),
        "none of them said that it was done, nor anything else"
    );
}

#[test]
fn eo1_changes_of_a_scope_and_others_come_in_their_order() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    // Reserves slots, with a sync.
    rig.file(root, "first");
    let Ground::Memory(machine) = &rig.ground else { unreachable!() };
    let (machine, before) = (machine.clone(), machine.unsynced_batches());
    let below = || machine.unsynced_batches() - before;
    let scope = rig.vice().partition().gather();
    let gathered = |rig: &mut Rig, at: &str| {
        let (origin, mut out) = (rig.origin(0), Vec::new());
        let execution = Execution::new(rig.now, rig.clock(), &ROOT, origin);
        let within = Execution { scope: Some(&scope), ..execution };
        rig.vice().perform(within, make(root, at), &mut out);
        assert!(matches!(out[..], [Effect::Reply { result: Ok(_), .. }]), "{out:?}");
        rig.look(0, root, at).expect("visible at once");
        origin
    };
    gathered(&mut rig, "a");
    gathered(&mut rig, "b");
    assert_eq!(below(), 0);
    rig.file(root, "alone");
    assert_eq!(below(), 2, "both together, then the one without a scope");
    let last = gathered(&mut rig, "c");
    assert_eq!(below(), 2);
    scope.write_out().unwrap();
    assert_eq!(below(), 3);
    rig.restart();
    rig.resume(0).unwrap();
    rig.call_in(0, 1, &ROOT, Call::ReclaimDone).unwrap();
    rig.perform(last, &ROOT, make(root, "c"));
    assert!(matches!(rig.reply(last), Some(Ok(Answer::Made { existed: false, .. }))));
    assert_eq!(entries(&mut rig, root), 5);
}
