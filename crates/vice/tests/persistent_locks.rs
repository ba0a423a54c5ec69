//! Persistent locks against holders that die, come back, or never said that they were done; through
//! restarts, losses of power and moves of the volume (docs/spec/sharing.md, PL-1 to PL-3).

use std::time::Duration;

use types::{
    Answer, AuthLevel, ByteRange, Call, Caller, Fault, Fid, LockFamily, LockMode, LockOwner,
    NewKind, PersistHow, PrincipalId, RequestIdentity, XattrMode,
};

use crate::common::{Ground, Rig, remove, user, write};

const ROOT: Caller = Caller::ROOT;
const OWNER: LockOwner = LockOwner(1);
const ALL: ByteRange = ByteRange::ALL;
/// As long as a session lives without a message.
const LIFE: Duration = Duration::from_secs(16);
const DONE: Result<Answer, Fault> = Ok(Answer::Done);
const BROKEN: Result<Answer, Fault> = Err(Fault::LockBroken);
const LOCKED: Result<Answer, Fault> = Err(Fault::Locked);

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn lock(fid: Fid, range: ByteRange) -> Call {
    let (owner, family, mode) = (OWNER, LockFamily::Posix, LockMode::Exclusive);
    Call::Lock { fid, owner, pid: 1, family, range, mode, wait: false, reclaim: false }
}

fn unlock(fid: Fid) -> Call {
    Call::Unlock { fid, owner: OWNER, family: LockFamily::Posix, range: ALL }
}

fn waits(call: &Call) -> Call {
    let Call::Lock { fid, owner, pid, family, range, mode, reclaim, .. } = *call else { panic!() };
    Call::Lock { fid, owner, pid, family, range, mode, wait: true, reclaim }
}

fn claims(call: &Call) -> Call {
    let Call::Lock { fid, owner, pid, family, range, mode, wait, .. } = *call else { panic!() };
    Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim: true }
}

fn persist(fid: Fid, range: ByteRange, how: PersistHow) -> Call {
    Call::PersistLock { fid, owner: OWNER, pid: 1, range, how }
}

fn new(fid: Fid) -> Call {
    persist(fid, ALL, PersistHow::New)
}

fn repair(fid: Fid) -> Call {
    persist(fid, ALL, PersistHow::Repairs)
}

fn finish(fid: Fid) -> Call {
    Call::FinishLock { fid, owner: OWNER, range: ALL }
}

fn file_on(ground: Ground, clients: usize) -> (Rig, Fid) {
    let mut rig = Rig::new(ground, clients);
    let root = rig.root();
    let file = rig.make(0, &ROOT, root, "file", NewKind::File, 0o666);
    rig.call(0, &ROOT, write(file, Some(0), &[7; 1000])).unwrap();
    (rig, file)
}

fn file(clients: usize) -> (Rig, Fid) {
    file_on(Ground::memory(), clients)
}

fn ask(rig: &mut Rig, who: usize, call: Call) -> Result<Answer, Fault> {
    rig.call(who, &ROOT, call)
}

#[test]
fn pl1_an_abnormal_end_is_reported_until_a_repair() {
    let (mut rig, fid) = file(4);
    assert_eq!(ask(&mut rig, 1, new(fid)), DONE);
    assert_eq!(ask(&mut rig, 2, lock(fid, ALL)), LOCKED, "the holder lives");
    rig.detach(1);
    for _ in 0..2 {
        assert_eq!(ask(&mut rig, 2, lock(fid, ALL)), BROKEN);
        assert_eq!(ask(&mut rig, 3, waits(&lock(fid, ALL))), BROKEN, "it does not wait for ever");
        assert_eq!(ask(&mut rig, 2, new(fid)), BROKEN);
        assert_eq!(ask(&mut rig, 2, finish(fid)), Err(Fault::Stale), "it is not its own");
    }
    assert_eq!(ask(&mut rig, 2, repair(fid)), DONE);
    assert_eq!(ask(&mut rig, 3, lock(fid, ALL)), LOCKED);
    assert_eq!(ask(&mut rig, 3, repair(fid)), LOCKED, "one repairs at a time");
    assert_eq!(ask(&mut rig, 2, finish(fid)), DONE);
    assert_eq!(ask(&mut rig, 3, lock(fid, ALL)), DONE);
    assert_eq!(ask(&mut rig, 3, finish(fid)), Err(Fault::Stale), "it is no persistent lock");
}

#[test]
fn pl1_who_repairs_and_dies_leaves_it_broken() {
    let (mut rig, fid) = file(4);
    ask(&mut rig, 1, new(fid)).unwrap();
    rig.detach(1);
    ask(&mut rig, 2, repair(fid)).unwrap();
    rig.detach(2);
    assert_eq!(ask(&mut rig, 3, lock(fid, ALL)), BROKEN);
}

#[test]
fn pl1_a_holder_that_falls_silent_learns_of_it_too() {
    let (mut rig, fid) = file(3);
    ask(&mut rig, 1, new(fid)).unwrap();
    let waiting = rig.start(2, &ROOT, waits(&lock(fid, ALL)));
    assert_eq!(rig.reply(waiting), None);
    rig.wait(LIFE - Duration::from_secs(1));
    assert!(rig.renew(0) && rig.renew(2));
    assert_eq!(rig.reply(waiting), None, "the holder may yet come back");
    rig.wait(Duration::from_secs(2));
    assert!(rig.clients[1].ended);
    assert_eq!(rig.reply(waiting), Some(BROKEN));
    let again = rig.attach();
    assert_eq!(ask(&mut rig, again, lock(fid, ALL)), BROKEN, "its work was interrupted");
}

#[test]
fn pl1_a_plain_unlock_is_no_normal_end() {
    let (mut rig, fid) = file(2);
    ask(&mut rig, 1, new(fid)).unwrap();
    assert_eq!(ask(&mut rig, 1, unlock(fid)), DONE);
    assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), BROKEN);
    assert_eq!(ask(&mut rig, 1, lock(fid, ALL)), BROKEN, "also for itself");
    assert_eq!(ask(&mut rig, 1, finish(fid)), DONE, "it says that the file is whole");
    assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), DONE);
}

#[test]
fn pl1_only_the_bytes_of_the_lock_are_concerned() {
    let (mut rig, fid) = file(3);
    ask(&mut rig, 1, persist(fid, range(100, 199), PersistHow::New)).unwrap();
    ask(&mut rig, 1, persist(fid, range(300, 399), PersistHow::New)).unwrap();
    rig.detach(1);
    assert_eq!(ask(&mut rig, 2, lock(fid, range(0, 99))), DONE);
    assert_eq!(ask(&mut rig, 2, lock(fid, range(200, 299))), DONE);
    assert_eq!(ask(&mut rig, 2, lock(fid, range(150, 250))), BROKEN);
    // A refused request takes nothing from the owner, and gives it nothing.
    assert_eq!(ask(&mut rig, 0, lock(fid, range(250, 260))), LOCKED);
    assert_eq!(ask(&mut rig, 0, lock(fid, range(400, u64::MAX))), DONE);
    // A repair of a part leaves the rest as it was.
    let part = range(100, 149);
    assert_eq!(ask(&mut rig, 2, persist(fid, part, PersistHow::Repairs)), DONE);
    assert_eq!(ask(&mut rig, 2, Call::FinishLock { fid, owner: OWNER, range: part }), DONE);
    assert_eq!(ask(&mut rig, 2, lock(fid, part)), DONE);
    assert_eq!(ask(&mut rig, 2, lock(fid, range(150, 150))), BROKEN);
    assert_eq!(ask(&mut rig, 2, lock(fid, range(399, 399))), BROKEN);
}

#[test]
fn pl1_shared_locks_are_refused_too_and_flock_is_apart() {
    let (mut rig, fid) = file(2);
    ask(&mut rig, 1, new(fid)).unwrap();
    rig.detach(1);
    let with = |family, mode| {
        let (owner, range) = (OWNER, ALL);
        Call::Lock { fid, owner, pid: 1, family, range, mode, wait: false, reclaim: false }
    };
    assert_eq!(ask(&mut rig, 0, with(LockFamily::Posix, LockMode::Shared)), BROKEN);
    assert_eq!(ask(&mut rig, 0, with(LockFamily::Flock, LockMode::Exclusive)), DONE);
}

#[test]
fn pl1_many_who_wait_all_learn_of_it() {
    let (mut rig, fid) = file(9);
    ask(&mut rig, 1, new(fid)).unwrap();
    let origins: Vec<_> = (2..9).map(|who| rig.start(who, &ROOT, waits(&lock(fid, ALL)))).collect();
    rig.detach(1);
    for origin in origins {
        assert_eq!(rig.reply(origin), Some(BROKEN));
    }
}

#[test]
fn who_waits_gets_the_lock_when_it_is_finished() {
    let (mut rig, fid) = file(3);
    ask(&mut rig, 1, lock(fid, ALL)).unwrap();
    let waiting = rig.start(2, &ROOT, waits(&lock(fid, ALL)));
    // The lock becomes persistent while another waits for it.
    assert_eq!(ask(&mut rig, 1, new(fid)), DONE);
    assert_eq!(rig.reply(waiting), None);
    assert_eq!(ask(&mut rig, 1, finish(fid)), DONE);
    assert_eq!(rig.reply(waiting), Some(DONE));
}

#[test]
fn pl2_a_restart_keeps_a_lock_that_is_claimed_and_breaks_others() {
    for (is_claimed, loses_power) in [(true, false), (false, false), (true, true), (false, true)] {
        let (mut rig, fid) = file(3);
        ask(&mut rig, 1, new(fid)).unwrap();
        if loses_power {
            let Ground::Memory(machine) = &rig.ground else { panic!() };
            let machine = machine.power_loss(u64::from(is_claimed));
            rig.restart_on(machine);
        } else {
            rig.restart();
        }
        assert!(rig.resume(2).unwrap().reclaim);
        let waiting = rig.start_in(2, 1, &ROOT, lock(fid, ALL));
        assert_eq!(rig.reply(waiting), None, "the holder may claim it");
        assert!(rig.resume(1).unwrap().reclaim);
        if is_claimed {
            assert_eq!(ask(&mut rig, 1, claims(&lock(fid, ALL))), DONE);
        }
        for who in [0, 1, 2] {
            if who == 0 {
                rig.resume(0).unwrap();
            }
            assert_eq!(ask(&mut rig, who, Call::ReclaimDone), DONE);
        }
        assert_eq!(rig.reply(waiting), Some(if is_claimed { LOCKED } else { BROKEN }));
        if is_claimed {
            assert_eq!(ask(&mut rig, 1, finish(fid)), DONE);
            assert_eq!(ask(&mut rig, 2, lock(fid, ALL)), DONE);
        } else {
            assert_eq!(ask(&mut rig, 1, lock(fid, ALL)), BROKEN);
        }
    }
}

#[test]
fn pl2_a_finished_lock_is_no_more_after_a_loss_of_power() {
    for seed in 0..20 {
        let (mut rig, fid) = file(2);
        ask(&mut rig, 1, new(fid)).unwrap();
        ask(&mut rig, 1, write(fid, Some(0), &[9; 1000])).unwrap();
        ask(&mut rig, 1, finish(fid)).unwrap();
        let Ground::Memory(machine) = &rig.ground else { panic!() };
        let machine = machine.power_loss(seed);
        rig.restart_on(machine);
        (0..2).for_each(|who| rig.reclaim(who));
        assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), DONE);
        let read = ask(&mut rig, 0, Call::Read { fid, offset: 0, length: 1000 });
        let Ok(Answer::Data { data, .. }) = read else { panic!("{read:?}") };
        assert_eq!(data.to_vec(), [9; 1000], "the data were on the disk before");
    }
}

#[test]
fn pl2_repeated_requests_are_executed_once() {
    let (mut rig, fid) = file(2);
    let origin = rig.start(1, &ROOT, new(fid));
    assert_eq!(rig.reply(origin), Some(DONE));
    rig.perform(origin, &ROOT, new(fid));
    assert_eq!(rig.reply(origin), Some(DONE));
    let origin = rig.start(1, &ROOT, finish(fid));
    assert_eq!(rig.reply(origin), Some(DONE));
    assert_eq!(ask(&mut rig, 0, new(fid)), DONE);
    rig.perform(origin, &ROOT, finish(fid));
    assert_eq!(rig.reply(origin), Some(DONE));
    assert_eq!(ask(&mut rig, 1, lock(fid, ALL)), LOCKED, "it did not end the lock of another");
}

#[test]
fn a_persistent_lock_breaks_no_promise_and_shows_no_attribute() {
    let (mut rig, fid) = file(2);
    let before = rig.status(0, fid).unwrap();
    rig.clients[0].broken.clear();
    for call in [new(fid), finish(fid), new(fid)] {
        ask(&mut rig, 1, call).unwrap();
    }
    assert_eq!(rig.clients[0].broken, []);
    assert_eq!(rig.status(0, fid), Ok(before));
    assert_eq!(ask(&mut rig, 0, Call::XattrList { fid }), Ok(Answer::XattrNames(Vec::new())));
    let name = bytes::Bytes::from_static(b"rialto.locks");
    let set = Call::XattrSet {
        fid,
        name: name.clone(),
        value: bytes::Bytes::new(),
        mode: XattrMode::Either,
    };
    for call in [Call::XattrGet { fid, name: name.clone() }, Call::XattrRemove { fid, name }, set] {
        assert_eq!(ask(&mut rig, 0, call), Err(Fault::Unsupported), "no caller has a way to it");
    }
    rig.detach(1);
    assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), BROKEN);
}

#[test]
fn a_caller_that_may_not_write_leaves_no_broken_lock() {
    let mut rig = Rig::new(Ground::memory(), 3);
    let root = rig.root();
    let fid = rig.make(0, &user(500, 500, &[]), root, "file", NewKind::File, 0o644);
    let who = RequestIdentity {
        level: AuthLevel::Password,
        principal: PrincipalId(501),
        ..RequestIdentity::NOBODY
    };
    let reader = Caller { who, ..user(501, 501, &[]) };
    for call in [new(fid), repair(fid)] {
        assert_eq!(rig.call(1, &reader, call), Err(Fault::AccessDenied));
    }
    rig.detach(1);
    assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), DONE);
}

#[test]
fn a_file_has_a_bounded_number_of_persistent_locks() {
    let (mut rig, fid) = file(3);
    for at in 0..256 {
        let bytes = range(2 * at, 2 * at);
        assert_eq!(ask(&mut rig, 1, persist(fid, bytes, PersistHow::New)), DONE);
    }
    let one_more = persist(fid, range(1000, 1000), PersistHow::New);
    assert_eq!(ask(&mut rig, 1, one_more.clone()), Err(Fault::Busy));
    rig.detach(1);
    assert_eq!(ask(&mut rig, 2, one_more), Err(Fault::Busy));
    assert_eq!(ask(&mut rig, 2, lock(fid, range(510, 510))), BROKEN);
    assert_eq!(ask(&mut rig, 2, repair(fid)), DONE, "one record takes the place of all");
    assert_eq!(ask(&mut rig, 2, finish(fid)), DONE);
    assert_eq!(ask(&mut rig, 0, lock(fid, ALL)), DONE);
}

#[test]
fn a_removed_file_and_a_directory_have_no_persistent_lock() {
    let (mut rig, fid) = file(2);
    let root = rig.root();
    ask(&mut rig, 1, new(fid)).unwrap();
    ask(&mut rig, 0, remove(root, "file")).unwrap();
    assert_eq!(ask(&mut rig, 1, finish(fid)), Err(Fault::Stale));
    assert_eq!(ask(&mut rig, 0, new(root)), Err(Fault::IsDirectory));
    let backwards = persist(fid, range(2, 1), PersistHow::New);
    assert!(ask(&mut rig, 0, backwards).is_err());
}
