//! A volume that moves from one service to another, step by step: changes of a frozen volume wait,
//! an arriving volume serves no client too early, and a server that restarts or misses the mover's
//! call asks the cell's database before the volume serves again. So does one whose released volume
//! may have been taken over by a copy elsewhere.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use celldb::{CellDb, Embedded};
use types::{
    Answer, ByteRange, Call, Caller, DataUse, Fault, Fid, Finish, Lending, LockFamily, LockMode,
    LockOwner, NewKind, PartitionNo, PersistHow, Revision, ServerId, ServerInfo, Site, SiteKind,
    StreamCursor, Timestamp, VolumeCall, VolumeChange, VolumeGroup, VolumeId, VolumeInfo,
    VolumeKind, VolumeState, WhichVolume,
};
use vice::{CellAccess, Execution, ViceParts};

const ROOT: Caller = Caller::ROOT;
/// Rounds in which two threads meet by chance.
const ROUNDS: usize = 20_000;

fn ask(rig: &mut Rig, call: VolumeCall) -> Result<Answer, Fault> {
    rig.call(0, &ROOT, Call::Volume(call))
}

fn one(answer: Result<Answer, Fault>) -> VolumeInfo {
    match answer {
        Ok(Answer::Volumes { mut volumes, .. }) => volumes.remove(0),
        other => panic!("{other:?}"),
    }
}

fn create(rig: &mut Rig) -> VolumeInfo {
    // Different from the numbers that the other service assigns.
    let (id, partition, owner) = (Some(VolumeId(40)), None, (0, 0));
    one(ask(
        rig,
        VolumeCall::Create {
            id,
            partition,
            name: name("data"),
            quota_bytes: 0,
            quota_files: 0,
            owner,
            encrypt: None,
        },
    ))
}

fn seal(rig: &mut Rig, of: VolumeId) -> VolumeInfo {
    let (name, kind) = (name("data.moving"), VolumeKind::Snapshot);
    one(ask(rig, VolumeCall::Clone { id: Some(VolumeId(41)), of, name, kind, replace: true }))
}

fn state(rig: &mut Rig, id: VolumeId) -> VolumeState {
    one(ask(rig, VolumeCall::Examine { volume: WhichVolume::Id(id) })).state
}

/// Copies a sealed volume, and lets it arrive.
fn carry(from: &mut Rig, to: &mut Rig, sealed: &VolumeInfo) {
    let finish = Finish::ReadWrite {
        name: name("data"),
        quota_bytes: 0,
        quota_files: 0,
        created: Timestamp::new(3, 3),
        arriving: true,
        updated: None,
    };
    let arrived = carry_as(from, to, sealed, finish);
    assert_eq!((arrived.id, arrived.state), (sealed.tree, VolumeState::Arriving));
}

/// Copies a sealed volume.
fn carry_as(from: &mut Rig, to: &mut Rig, sealed: &VolumeInfo, finish: Finish) -> VolumeInfo {
    let (partition, tree) = (PartitionNo(0), sealed.tree);
    let mut cursor = StreamCursor::START;
    while cursor != StreamCursor::END {
        let changes = VolumeCall::Changes {
            id: sealed.id,
            since: 0,
            cursor,
            bytes_max: 1 << 20,
            packed: false,
        };
        let Ok(Answer::Part(part)) = ask(from, changes) else { panic!("no part") };
        let Ok(Answer::Cursor(next)) =
            ask(to, VolumeCall::Apply { partition, tree, part, over: false })
        else {
            panic!()
        };
        cursor = next;
    }
    one(ask(to, VolumeCall::Finish { partition, tree, finish }))
}

fn hold(rig: &mut Rig, id: VolumeId, millis: u32) -> Result<Answer, Fault> {
    ask(rig, VolumeCall::Hold { id, millis })
}

fn read(rig: &mut Rig, who: usize, fid: Fid) -> Result<Vec<u8>, Fault> {
    match rig.call(who, &ROOT, Call::Read { fid, offset: 0, length: 100 })? {
        Answer::Data { data, .. } => Ok(data.to_vec()),
        other => panic!("{other:?}"),
    }
}

/// An open that denies everything.
fn open(fid: Fid, claims: bool) -> Call {
    let (access, deny) = (DataUse::Both, DataUse::Both);
    Call::Open { fid, access, deny, key: None, claims }
}

fn lock(fid: Fid, reclaim: bool) -> Call {
    let (owner, family, range) = (LockOwner(1), LockFamily::Posix, ByteRange::ALL);
    Call::Lock {
        fid,
        owner,
        pid: 1,
        family,
        range,
        mode: LockMode::Exclusive,
        wait: false,
        reclaim,
    }
}

/// Asks the database about volumes in doubt.
fn settle(rig: &mut Rig) {
    let mut out = Vec::new();
    let (now, wall) = (rig.now, rig.clock());
    rig.vice().settle_doubts(now, wall, &mut out);
    rig.deliver(out);
}

/// Restarts the server as this one of a cell.
fn restart_in(rig: &mut Rig, id: ServerId, cell: CellAccess) {
    rig.parts = Box::new(move || {
        let (name, addresses, keys) = ("one".into(), Vec::new(), Vec::new());
        let me = Some(ServerInfo { id, name, addresses, keys });
        ViceParts { me, cell: cell.clone(), ..ViceParts::default() }
    });
    rig.restart();
}

/// A database in which the volume's read-write site is this server.
fn database(dir: &std::path::Path, at: ServerId) -> Arc<dyn CellDb> {
    let db = Embedded::open(dir).unwrap();
    let site =
        Site { server: at, partition: "/vicepa".into(), kind: SiteKind::ReadWrite, epoch: 0 };
    db.put_group(&VolumeGroup::new(name("data"), VolumeId(40), site), Revision::default()).unwrap();
    Arc::new(db)
}

/// As a volume that comes from a server of AFS, which is put together while it is offline.
#[test]
fn a_volume_that_comes_into_service_takes_claims() {
    let mut rig = Rig::new(Ground::memory(), 3);
    let volume = create(&mut rig);
    let root = rig.root_of(1, "data").unwrap();
    let (file, other) = (rig.file(root, "f"), rig.file(root, "g"));
    assert_eq!(rig.call(1, &ROOT, lock(file, true)), Err(Fault::Expired));
    let turn = |rig: &mut Rig, state| {
        let change = VolumeChange { state: Some(state), ..VolumeChange::default() };
        ask(rig, VolumeCall::SetFields { id: volume.id, change }).unwrap();
    };
    turn(&mut rig, VolumeState::Offline);
    assert_eq!(rig.call(1, &ROOT, lock(file, true)), Err(Fault::Offline));
    turn(&mut rig, VolumeState::Online);
    assert_eq!(rig.call(1, &ROOT, lock(file, true)), Ok(Answer::Done));
    assert_eq!(rig.call(2, &ROOT, lock(file, true)), Err(Fault::Locked), "the first one has it");
    rig.wait(Duration::from_secs(14));
    (0..3).for_each(|who| assert!(rig.renew(who)));
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.call(2, &ROOT, lock(other, true)), Err(Fault::Expired));
    turn(&mut rig, VolumeState::Online);
    assert_eq!(rig.call(2, &ROOT, lock(other, true)), Err(Fault::Expired), "it was in service");
}

/// A client's kernel drops the pages of a broken file when reads of them are answered.
#[test]
fn an_offline_volume_answers_reads_that_a_break_waits_for() {
    let mut rig = Rig::new(Ground::memory(), 3);
    let volume = create(&mut rig);
    let root = rig.root_of(1, "data").unwrap();
    let (file, other) = (rig.file(root, "f"), rig.file(root, "g"));
    rig.call(0, &ROOT, write(file, Some(0), b"read")).unwrap();
    for round in ["acknowledged", "late"] {
        assert_eq!(read(&mut rig, 1, file).unwrap(), b"read");
        rig.clients[1].prompt = false;
        let change = |state| VolumeChange { state: Some(state), ..VolumeChange::default() };
        let fields =
            |state| Call::Volume(VolumeCall::SetFields { id: volume.id, change: change(state) });
        let going = rig.start(0, &ROOT, fields(VolumeState::Offline));
        assert_eq!(read(&mut rig, 1, file).unwrap(), b"read");
        assert_eq!(read(&mut rig, 1, other), Err(Fault::Offline), "no break of it");
        assert_eq!(read(&mut rig, 2, file), Err(Fault::Offline), "it has no data");
        assert_eq!(rig.call(1, &ROOT, write(file, Some(0), b"lost")), Err(Fault::Offline));
        if round == "late" {
            rig.wait(Duration::from_secs(4));
            assert_eq!(read(&mut rig, 1, file), Err(Fault::Offline), "for some seconds only");
        }
        rig.acknowledge(1);
        assert_eq!(rig.reply(going), None, "CB-1: the read was promised");
        rig.acknowledge(1);
        assert_eq!(rig.reply(going), Some(Ok(Answer::Done)));
        assert_eq!(read(&mut rig, 1, file), Err(Fault::Offline));
        rig.clients[1].prompt = true;
        rig.call(0, &ROOT, fields(VolumeState::Online)).unwrap();
    }
}

#[test]
fn a_volume_moves_with_what_is_open_locked_and_on_its_way() {
    let (mut from, mut to) = (Rig::new(Ground::memory(), 3), Rig::new(Ground::memory(), 3));
    let volume = create(&mut from);
    let root = from.root_of(1, "data").unwrap();
    let (file, gone) = (from.file(root, "f"), from.file(root, "gone"));
    let shared = from.file(root, "shared");
    let dir = from.make(2, &ROOT, root, "d", NewKind::Directory, 0o755);
    from.call(1, &ROOT, write(file, Some(0), b"before")).unwrap();
    from.call(1, &ROOT, open(shared, false)).unwrap();
    from.call(1, &ROOT, write(gone, Some(0), b"open")).unwrap();
    // Client 1 has it open when it loses its name, and a lock on the other one; client 2 has a
    // delegation.
    from.clients[1].open.insert(gone);
    from.call(0, &ROOT, remove(root, "gone")).unwrap();
    from.call(1, &ROOT, lock(file, false)).unwrap();
    assert!(matches!(
        from.call(2, &ROOT, Call::Delegate { fid: dir }),
        Ok(Answer::Delegation { .. })
    ));

    let holding =
        from.start(0, &ROOT, Call::Volume(VolumeCall::Hold { id: volume.id, millis: 5000 }));
    assert_eq!(from.reply(holding), None, "what is delegated comes back first");
    assert_eq!(from.call_in(2, 1, &ROOT, Call::Return { fids: vec![dir] }), Ok(Answer::Done));
    assert_eq!(from.reply(holding), Some(Ok(Answer::Done)));
    assert_eq!(state(&mut from, volume.id), VolumeState::Held);
    // No session gets a delegation, reads are answered, changes wait.
    assert_eq!(from.call(2, &ROOT, Call::Delegate { fid: dir }), Err(Fault::Busy));
    assert_eq!(read(&mut from, 2, file).unwrap(), b"before");
    let late = from.start_in(2, 1, &ROOT, write(file, Some(0), b"too late"));
    let made = Call::Make {
        dir: root,
        name: name("new"),
        kind: NewKind::File,
        mode: 0o600,
        how: types::CreateHow::Guarded,
    };
    let making = from.start_in(2, 2, &ROOT, made);
    let sealed = seal(&mut from, volume.id);
    carry(&mut from, &mut to, &sealed);
    assert_eq!((from.reply(late), from.reply(making)), (None, None));
    // It serves no client yet.
    assert_eq!(to.root_of(1, "data"), Err(Fault::NoVolume));
    assert_eq!(read(&mut from, 1, file).unwrap(), b"before");
    ask(&mut from, VolumeCall::Remove { id: volume.id }).unwrap();
    assert!(from.clients[1].broken.iter().any(|item| item.fid == file), "CB-1");
    assert_eq!(
        (from.reply(late), from.reply(making)),
        (Some(Err(Fault::NoVolume)), Some(Err(Fault::NoVolume)))
    );
    assert_eq!(ask(&mut to, VolumeCall::Serve { id: volume.id }), Ok(Answer::Done));
    assert_eq!(state(&mut to, volume.id), VolumeState::Online);

    // Clients claim their locks and holds, and continue.
    assert_eq!(to.root_of(1, "data"), Ok(root));
    assert_eq!(read(&mut to, 1, file).unwrap(), b"before");
    assert_eq!(to.call(1, &ROOT, lock(file, true)), Ok(Answer::Done));
    assert_eq!(to.call(2, &ROOT, lock(file, true)), Err(Fault::Locked));
    assert!(matches!(to.call(1, &ROOT, open(shared, true)), Ok(Answer::Opened { .. })));
    assert_eq!(to.call(2, &ROOT, open(shared, true)), Err(Fault::ShareConflict), "SH-1");
    assert_eq!(read(&mut to, 2, shared), Err(Fault::ShareConflict), "SH-2");
    assert_eq!(to.call(1, &ROOT, Call::Hold { fids: vec![gone] }), Ok(Answer::Done));
    assert!(to.call(2, &ROOT, write(file, Some(0), b"after")).is_ok());
    assert_eq!(read(&mut to, 1, gone).unwrap(), b"open");
    // Orphans without a hold are removed after a while; a held one when its session ends.
    let other = to.file(root, "other");
    to.wait(Duration::from_secs(14));
    (0..3).for_each(|who| assert!(to.renew(who)));
    to.wait(Duration::from_secs(2));
    assert_eq!(
        to.call(2, &ROOT, lock(other, true)),
        Err(Fault::Expired),
        "the time for claims is over"
    );
    assert_eq!(to.call(2, &ROOT, open(other, true)), Err(Fault::Expired));
    assert_eq!(read(&mut to, 1, gone).unwrap(), b"open");
    assert_eq!(to.call(1, &ROOT, Call::Unhold { fids: vec![gone] }), Ok(Answer::Done));
    assert_eq!(to.status(2, gone), Err(Fault::Stale));
}

#[test]
fn a_volume_that_comes_back_has_no_locks_of_its_earlier_stay() {
    let (mut one, mut two) = (Rig::new(Ground::memory(), 3), Rig::new(Ground::memory(), 3));
    let volume = create(&mut one);
    let root = one.root_of(1, "data").unwrap();
    let (locked, shared) = (one.file(root, "locked"), one.file(root, "shared"));
    let go = |from: &mut Rig, to: &mut Rig| {
        hold(from, volume.id, 5000).unwrap();
        let sealed = seal(from, volume.id);
        carry(from, to, &sealed);
        ask(from, VolumeCall::Remove { id: sealed.id }).unwrap();
        ask(from, VolumeCall::Remove { id: volume.id }).unwrap();
        while from.vice().partition().sweep(100).unwrap() > 0 {}
        ask(to, VolumeCall::Serve { id: volume.id }).unwrap();
    };
    one.call(1, &ROOT, lock(locked, false)).unwrap();
    one.call(1, &ROOT, open(shared, false)).unwrap();
    go(&mut one, &mut two);
    // Client 1 gave both up there, or never claimed them.
    go(&mut two, &mut one);
    assert_eq!(one.root_of(2, "data"), Ok(root));
    assert_eq!(one.call(2, &ROOT, lock(locked, false)), Ok(Answer::Done));
    assert!(matches!(one.call(2, &ROOT, open(shared, false)), Ok(Answer::Opened { .. })));
}

#[test]
fn pl3_persistent_locks_go_with_their_volume() {
    for is_claimed in [true, false] {
        let (mut from, mut to) = (Rig::new(Ground::memory(), 3), Rig::new(Ground::memory(), 4));
        let volume = create(&mut from);
        let root = from.root_of(1, "data").unwrap();
        let fid = from.file(root, "f");
        let (owner, range) = (LockOwner(77), ByteRange::ALL);
        let persist = |owner, how| Call::PersistLock { fid, owner, pid: 1, range, how };
        from.call(1, &ROOT, persist(owner, PersistHow::New)).unwrap();
        hold(&mut from, volume.id, 5000).unwrap();
        let sealed = seal(&mut from, volume.id);
        carry(&mut from, &mut to, &sealed);
        ask(&mut from, VolumeCall::Remove { id: volume.id }).unwrap();
        ask(&mut to, VolumeCall::Serve { id: volume.id }).unwrap();
        // The client has another session here than there.
        let (client, other) = (3, 2);
        assert_eq!(to.call(other, &ROOT, lock(fid, false)), Err(Fault::LockBroken));
        let claim = persist(owner, PersistHow::Claims);
        if is_claimed {
            let Call::Lock { family, mode, .. } = lock(fid, true) else { panic!() };
            let call =
                Call::Lock { fid, owner, pid: 1, family, range, mode, wait: false, reclaim: true };
            assert_eq!(to.call(client, &ROOT, call), Ok(Answer::Done));
            assert_eq!(to.call(other, &ROOT, lock(fid, false)), Err(Fault::Locked));
            assert_eq!(to.call(client, &ROOT, claim), Ok(Answer::Done));
            let finish = Call::FinishLock { fid, owner, range };
            assert_eq!(to.call(client, &ROOT, finish), Ok(Answer::Done));
            assert_eq!(to.call(other, &ROOT, lock(fid, false)), Ok(Answer::Done));
        } else {
            let repair = persist(LockOwner(5), PersistHow::Repairs);
            assert_eq!(to.call(other, &ROOT, repair), Ok(Answer::Done));
            let late = to.call(client, &ROOT, claim);
            assert_eq!(late, Err(Fault::Expired), "another repaired the file meanwhile");
        }
    }
}

#[test]
fn a_hold_that_is_let_go_was_only_a_pause() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let volume = create(&mut rig);
    let root = rig.root_of(1, "data").unwrap();
    let file = rig.file(root, "f");
    hold(&mut rig, volume.id, 5000).unwrap();
    let writing = rig.start(1, &ROOT, write(file, Some(0), b"waits"));
    assert_eq!(rig.reply(writing), None);
    // Other volumes do not wait.
    let elsewhere = rig.look_root(0);
    rig.file(elsewhere, "free");
    hold(&mut rig, volume.id, 0).unwrap();
    assert!(matches!(rig.reply(writing), Some(Ok(Answer::Written { .. }))));
    assert_eq!(read(&mut rig, 1, file).unwrap(), b"waits");
    assert_eq!(state(&mut rig, volume.id), VolumeState::Online);
    assert_eq!(hold(&mut rig, VolumeId(99), 1), Err(Fault::NoVolume));
    let kept = seal(&mut rig, volume.id);
    assert_eq!(hold(&mut rig, kept.id, 1000), Err(Fault::ReadOnly));
}

#[test]
fn a_hold_that_nobody_ends_asks_whose_the_volume_is() {
    let dir = tempfile::tempdir().unwrap();
    for ours in [true, false] {
        let (cell, opening) = CellAccess::opening();
        let parts = move || ViceParts { cell: cell.clone(), ..ViceParts::default() };
        let mut rig =
            Rig::with(Ground::memory(), 2, store::VolumeQuota::default(), Box::new(parts));
        let volume = create(&mut rig);
        let root = rig.root_of(1, "data").unwrap();
        let file = rig.file(root, "f");
        assert!(rig.status(1, file).is_ok());
        let me = rig.vice().me().id;
        let at = if ours { me } else { ServerId(me.0 + 1) };
        let db = database(&dir.path().join(ours.to_string()), at);
        hold(&mut rig, volume.id, 3000).unwrap();
        let writing = rig.start(1, &ROOT, write(file, Some(0), b"waits"));
        assert!(!rig.vice().has_doubts(rig.now));
        rig.wait(Duration::from_secs(4));
        // Until the database answers, no client is served, and no client trusts its cache.
        assert!(rig.vice().has_doubts(rig.now));
        assert!(rig.clients[1].broken.iter().any(|item| item.fid == file), "CB-1");
        assert_eq!(rig.status(1, file), Err(Fault::NoVolume));
        assert_eq!(rig.reply(writing), Some(Err(Fault::NoVolume)));
        opening.opened(db);
        settle(&mut rig);
        assert_eq!(rig.status(1, file).is_ok(), ours);
        rig.wait(Duration::from_secs(2));
        assert_eq!(
            rig.vice().has_doubts(rig.now),
            !ours,
            "it is asked again as long as it is another's"
        );
        let removed = ask(&mut rig, VolumeCall::Remove { id: volume.id });
        assert_eq!(removed, Ok(Answer::Done));
        settle(&mut rig);
        assert!(!rig.vice().has_doubts(rig.now + Duration::from_secs(5)));
    }
}

#[test]
fn a_volume_is_not_held_while_a_kernel_writes_a_body_of_it() {
    let mut rig = Rig::new(Ground::disk(), 2);
    let volume = create(&mut rig);
    let root = rig.root_of(1, "data").unwrap();
    let (file, other) = (rig.file(root, "f"), rig.file(root, "g"));
    let lend = |fid| Call::LendBody { fid, how: Lending::Write };
    assert!(matches!(rig.call(1, &ROOT, lend(file)), Ok(Answer::Body { .. })));
    for _ in 0..3 {
        assert_eq!(hold(&mut rig, volume.id, 5000), Err(Fault::Busy));
        assert_eq!(state(&mut rig, volume.id), VolumeState::Online);
        assert!(matches!(
            rig.call(1, &ROOT, write(file, Some(0), b"goes on")),
            Ok(Answer::Written { .. })
        ));
        assert_eq!(
            rig.call(1, &ROOT, lend(other)),
            Err(Fault::Busy),
            "a repeated call succeeds soon"
        );
    }
    let back = Call::SettleBody { fid: file, back: true };
    assert!(matches!(rig.call(1, &ROOT, back), Ok(Answer::Status(_))));
    assert_eq!(hold(&mut rig, volume.id, 5000), Ok(Answer::Done));
    assert_eq!(hold(&mut rig, volume.id, 0), Ok(Answer::Done));
    assert!(matches!(rig.call(1, &ROOT, lend(file)), Ok(Answer::Body { .. })));
}

#[test]
fn a_freeze_that_ends_as_it_times_out_leaves_no_lasting_doubt() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let volume = create(&mut rig);
    for round in 0..ROUNDS {
        hold(&mut rig, volume.id, 1000).unwrap();
        rig.now = rig.now + Duration::from_secs(2);
        assert!(rig.renew(0));
        let origin = rig.origin(0);
        let (vice, now, wall) = (rig.vice(), rig.now, rig.clock());
        let (mut late, mut went) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| vice.tick(now, &mut late));
            let go = Call::Volume(VolumeCall::Hold { id: volume.id, millis: 0 });
            vice.perform(Execution::new(now, wall, &ROOT, origin), go, &mut went);
        });
        rig.deliver(late);
        rig.deliver(went);
        rig.replies.clear();
        // In either order: it serves, or the database is asked.
        settle(&mut rig);
        assert_eq!(rig.root_of(0, "data").err(), None, "round {round}");
    }
}

#[test]
fn who_dies_in_a_move_asks_before_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    let (mut from, mut to) = (Rig::new(Ground::memory(), 1), Rig::new(Ground::memory(), 1));
    let volume = create(&mut from);
    let root = from.root_of(0, "data").unwrap();
    let file = from.file(root, "f");
    hold(&mut from, volume.id, 10_000).unwrap();
    let sealed = seal(&mut from, volume.id);
    carry(&mut from, &mut to, &sealed);
    let here = ServerId(2);
    let db = database(&dir.path().join("db"), here);
    for (rig, id) in [(&mut from, ServerId(1)), (&mut to, here)] {
        restart_in(rig, id, CellAccess::Database(Arc::clone(&db)));
        rig.reclaim(0);
        assert_eq!(rig.status(0, file), Err(Fault::NoVolume));
        settle(rig);
        assert_eq!(rig.status(0, file), Err(Fault::NoVolume));
    }
    assert_eq!(
        (state(&mut from, volume.id), state(&mut to, volume.id)),
        (VolumeState::Held, VolumeState::Arriving)
    );
    // The mover is gone. The database names the volume's site; when the other server cannot serve
    // any more, it serves here.
    for _ in 0..4 {
        to.wait(Duration::from_secs(9));
        assert!(to.renew(0));
        settle(&mut to);
    }
    assert_eq!(state(&mut to, volume.id), VolumeState::Online);
    assert!(to.status(0, file).is_ok());
    assert!(to.call(0, &ROOT, write(file, Some(0), b"here")).is_ok());
    settle(&mut from);
    assert_eq!(from.status(0, file), Err(Fault::NoVolume));
    assert_eq!(ask(&mut from, VolumeCall::Remove { id: volume.id }), Ok(Answer::Done));
}

/// The released volume at its server and as a copy at another one.
fn released() -> (Rig, Rig, VolumeInfo, Fid) {
    let (mut lost, mut copy) = (Rig::new(Ground::memory(), 2), Rig::new(Ground::memory(), 2));
    let volume = create(&mut lost);
    let root = lost.root_of(1, "data").unwrap();
    let file = lost.file(root, "f");
    lost.call(1, &ROOT, write(file, Some(0), b"released")).unwrap();
    let (id, kind) = (Some(VolumeId(42)), VolumeKind::ReadOnly);
    let (name, of) = (name("data.readonly"), volume.id);
    let clone = VolumeCall::Clone { id, of, name: name.clone(), kind, replace: false };
    let sealed = one(ask(&mut lost, clone));
    carry_as(&mut lost, &mut copy, &sealed, Finish::View { id, name, kind, replace: false });
    lost.call(1, &ROOT, write(file, Some(0), b"lost ...")).unwrap();
    (lost, copy, volume, file)
}

fn take_over(rig: &mut Rig) -> Result<Answer, Fault> {
    ask(rig, VolumeCall::TakeOver { copy: VolumeId(42), name: name("data"), above: 0 })
}

#[test]
fn a_copy_takes_over_and_the_lost_server_serves_it_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (mut lost, mut copy, volume, file) = released();
    let db = database(&dir.path().join("db"), ServerId(2));
    restart_in(&mut copy, ServerId(2), CellAccess::Database(Arc::clone(&db)));
    (0..2).for_each(|who| copy.reclaim(who));
    let known = lost.status(1, file).unwrap();
    let taken = one(take_over(&mut copy));
    assert_eq!((taken.id, taken.state), (volume.id, VolumeState::Arriving));
    assert_eq!(take_over(&mut copy), Err(Fault::Exists));
    // No client is served before those of the lost server cannot trust it any more.
    settle(&mut copy);
    for _ in 0..3 {
        assert_eq!(copy.status(1, file), Err(Fault::NoVolume));
        copy.wait(Duration::from_secs(9));
        (0..2).for_each(|who| assert!(copy.renew(who)));
        settle(&mut copy);
    }
    copy.wait(Duration::from_secs(9));
    (0..2).for_each(|who| assert!(copy.renew(who)));
    settle(&mut copy);
    assert_eq!(state(&mut copy, volume.id), VolumeState::Online);
    assert_eq!(read(&mut copy, 1, file).unwrap(), b"released");
    assert!(copy.status(1, file).unwrap().data_version > known.data_version);
    assert!(copy.call(1, &ROOT, write(file, Some(0), b"here")).is_ok());

    // The lost server comes back. Its volume stays, and no client gets it.
    restart_in(&mut lost, ServerId(1), CellAccess::Database(db));
    (0..2).for_each(|who| lost.reclaim(who));
    assert_eq!(lost.status(1, file), Err(Fault::NoVolume));
    assert_eq!(lost.call(1, &ROOT, write(file, Some(0), b"x")), Err(Fault::NoVolume));
    assert_eq!(state(&mut lost, volume.id), VolumeState::Superseded);
    assert!(lost.root_of(1, "data.readonly").is_ok(), "what was released is still served");
    seal(&mut lost, volume.id);
    assert_eq!(ask(&mut lost, VolumeCall::Remove { id: volume.id }), Ok(Answer::Done));
    settle(&mut lost);
    assert!(!lost.vice().has_doubts(lost.now + Duration::from_secs(5)));
}

#[test]
fn a_released_volume_serves_while_the_database_is_away() {
    let dir = tempfile::tempdir().unwrap();
    for ours in [true, false] {
        let (mut rig, _, volume, file) = released();
        let (cell, opening) = CellAccess::opening();
        restart_in(&mut rig, ServerId(1), cell);
        (0..2).for_each(|who| rig.reclaim(who));
        assert!(rig.status(1, file).is_ok());
        assert!(rig.call(0, &ROOT, write(file, Some(0), b"goes on")).is_ok());
        assert!(rig.vice().has_doubts(rig.now));
        settle(&mut rig);
        assert!(rig.status(1, file).is_ok());
        let at = if ours { ServerId(1) } else { ServerId(2) };
        opening.opened(database(&dir.path().join(ours.to_string()), at));
        rig.wait(Duration::from_secs(2));
        settle(&mut rig);
        let expected = if ours { VolumeState::Online } else { VolumeState::Superseded };
        assert_eq!(state(&mut rig, volume.id), expected);
        assert_eq!(rig.status(1, file).is_ok(), ours);
        let is_broken = rig.clients[1].broken.iter().any(|item| item.fid == file);
        assert!(ours || is_broken, "CB-1");
        rig.wait(Duration::from_secs(2));
        assert_eq!(rig.vice().has_doubts(rig.now), !ours);
    }
}
