//! Administration of volumes, and its effects on their clients.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Ground, Rig, name, user, write};
use bytes::Bytes;
use types::{
    Answer, BreakReason, Call, Caller, CreateHow, Fault, Fid, NewKind, PartitionNo, RenameMode,
    VolumeCall, VolumeChange, VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

/// Rounds in which a call meets another by chance.
const ROUNDS: usize = 200;

fn administer(rig: &mut Rig, call: VolumeCall) -> Result<Answer, Fault> {
    rig.call(0, &Caller::ROOT, Call::Volume(call))
}

fn create_on(rig: &mut Rig, partition: u32, called: &str) -> Result<VolumeInfo, Fault> {
    let partition = Some(PartitionNo(partition));
    let call = VolumeCall::Create {
        id: None,
        partition,
        name: name(called),
        quota_bytes: 0,
        quota_files: 0,
        owner: (7, 8),
        encrypt: None,
    };
    match administer(rig, call)? {
        Answer::Volumes { mut volumes, end: true } if volumes.len() == 1 => Ok(volumes.remove(0)),
        other => panic!("{other:?}"),
    }
}

fn examine(rig: &mut Rig, called: &str) -> Result<Vec<VolumeInfo>, Fault> {
    match administer(rig, VolumeCall::Examine { volume: WhichVolume::Name(name(called)) })? {
        Answer::Volumes { volumes, end: true } => Ok(volumes),
        other => panic!("{other:?}"),
    }
}

fn listed(rig: &mut Rig, partition: u32, after: u64, max: u32) -> (Vec<u64>, bool) {
    let call = VolumeCall::List { partition: PartitionNo(partition), after: VolumeId(after), max };
    match administer(rig, call).unwrap() {
        Answer::Volumes { volumes, end } => {
            (volumes.iter().map(|volume| volume.id.0).collect(), end)
        }
        other => panic!("{other:?}"),
    }
}

fn read(rig: &mut Rig, who: usize, fid: Fid) -> Result<Bytes, Fault> {
    match rig.call(who, &Caller::ROOT, Call::Read { fid, offset: 0, length: 1 << 20 })? {
        Answer::Data { data, .. } => Ok(data),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_volume_is_a_file_system_of_its_own_on_its_partition() {
    let mut rig = Rig::new(Ground::memory(), 1);
    rig.add_partition();
    let made = create_on(&mut rig, 1, "home.a").unwrap();
    assert_eq!(
        (made.partition, made.kind, made.state),
        (PartitionNo(1), VolumeKind::ReadWrite, VolumeState::Online)
    );
    assert_eq!(
        (made.id, made.tree),
        (VolumeId(2), VolumeId(2)),
        "numbers are the server's, not the partition's"
    );
    assert_eq!(create_on(&mut rig, 0, "home.b").unwrap().id, VolumeId(3));
    let root = rig.root_of(0, "home.a").unwrap();
    let status = rig.status(0, root).unwrap();
    assert_eq!((status.uid, status.gid, status.mode), (7, 8, 0o755));
    let file = rig.file(root, "f");
    rig.call(0, &Caller::ROOT, write(file, Some(0), b"kept")).unwrap();

    let of_cell = rig.root();
    let rename = Call::Rename {
        from_dir: root,
        from: name("f"),
        to_dir: of_cell,
        to: name("f"),
        mode: RenameMode::Replace,
        hold: false,
    };
    assert_eq!(rig.call(0, &Caller::ROOT, rename), Err(Fault::CrossVolume));
    let link = Call::Link { fid: file, dir: of_cell, name: name("f") };
    assert_eq!(rig.call(0, &Caller::ROOT, link), Err(Fault::CrossVolume));

    rig.restart();
    rig.reclaim(0);
    assert_eq!(read(&mut rig, 0, file).unwrap(), "kept");
    assert_eq!(examine(&mut rig, "home.a").unwrap()[0].used_files, 2);
}

#[test]
fn eo1_a_change_is_answered_from_its_own_partitions_record() {
    let mut rig = Rig::new(Ground::memory(), 1);
    rig.add_partition();
    create_on(&mut rig, 1, "home.a").unwrap();
    let (there, here) = (rig.root_of(0, "home.a").unwrap(), rig.root());
    // The same slot, first on one partition, then on the other: the later request counts, on either
    // partition.
    for dir in [here, there, here, there] {
        rig.file(dir, &format!("f{}", rig.clients[0].requests));
        let last = rig.clients[0].requests;
        let call = Call::Make {
            dir,
            name: name(format!("f{}", last - 1)),
            kind: NewKind::File,
            mode: 0o644,
            how: types::CreateHow::Guarded,
        };
        let session = rig.clients[0].session;
        rig.restart();
        assert!(rig.resume(0).unwrap().recorded.contains(&(0, last)));
        let origin = types::ReplyAddress { session, slot: 0, request: last };
        rig.perform(origin, &Caller::ROOT, call);
        rig.reclaim(0);
        assert!(matches!(rig.reply(origin), Some(Ok(Answer::Made { existed: false, .. }))), "EO-1");
    }
}

#[test]
fn names_and_numbers_are_one_volumes() {
    let mut rig = Rig::new(Ground::memory(), 1);
    rig.add_partition();
    let a = create_on(&mut rig, 0, "home.a").unwrap();
    assert_eq!(
        create_on(&mut rig, 1, "home.a"),
        Err(Fault::Exists),
        "VO-2: on another partition too"
    );
    assert_eq!(create_on(&mut rig, 2, "home.c"), Err(Fault::Invalid), "no such partition");
    for bad in ["17", "a/b", "home.backup", "-x", "a b"] {
        let Ok(bad) = types::Name::new(bad.as_bytes()) else { continue };
        assert_eq!(
            administer(&mut rig, VolumeCall::Rename { id: a.id, name: bad }),
            Err(Fault::Invalid)
        );
    }
    create_on(&mut rig, 1, "home.b").unwrap();
    let rename = |to: &str| VolumeCall::Rename { id: a.id, name: name(to) };
    assert_eq!(administer(&mut rig, rename("home.b")), Err(Fault::Exists));
    assert_eq!(administer(&mut rig, rename("home.a")), Ok(Answer::Done), "it is its own");
    assert_eq!(administer(&mut rig, rename("home.c")), Ok(Answer::Done));
    assert_eq!(examine(&mut rig, "home.a"), Err(Fault::NoVolume));
    assert_eq!(examine(&mut rig, "home.c").unwrap()[0].id, a.id);
    assert!(rig.root_of(0, "home.c").is_ok());

    assert_eq!(administer(&mut rig, VolumeCall::Remove { id: a.id }), Ok(Answer::Done));
    assert_eq!(administer(&mut rig, VolumeCall::Remove { id: a.id }), Err(Fault::NoVolume));
    assert!(create_on(&mut rig, 0, "home.c").unwrap().id > a.id, "a number is never used again");
}

#[test]
fn only_the_superuser_changes_volumes() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let create = VolumeCall::Create {
        id: None,
        partition: None,
        name: name("x"),
        quota_bytes: 0,
        quota_files: 0,
        owner: (0, 0),
        encrypt: None,
    };
    assert_eq!(rig.call(0, &user(5, 5, &[]), Call::Volume(create)), Err(Fault::NotPermitted));
    let remove = VolumeCall::Remove { id: VolumeId(1) };
    assert_eq!(rig.call(0, &user(5, 5, &[]), Call::Volume(remove)), Err(Fault::NotPermitted));
    assert!(rig.call(0, &user(5, 5, &[]), Call::Volume(VolumeCall::Partitions)).is_ok());
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let mut rig = Rig::new(Ground::memory(), 1);
    for number in 2..=9 {
        create_on(&mut rig, 0, &format!("v{number}")).unwrap();
    }
    assert_eq!(listed(&mut rig, 0, 0, 100), ((1..=9).collect(), true));
    assert_eq!(listed(&mut rig, 0, 0, 4), ((1..=4).collect(), false));
    assert_eq!(listed(&mut rig, 0, 4, 5), ((5..=9).collect(), true));
    assert_eq!(listed(&mut rig, 0, 9, 5), (Vec::new(), true));
}

#[test]
fn nobody_answers_from_a_cache_after_a_volume_is_gone() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(1, "home.a").unwrap();
    let file = rig.file(root, "f");
    rig.look(1, root, "f").unwrap();
    rig.clients[1].prompt = false;
    let removing = rig.start(0, &Caller::ROOT, Call::Volume(VolumeCall::Remove { id: made.id }));
    assert_eq!(
        rig.reply(removing),
        None,
        "CB-1: it waits for the clients that have it in their caches"
    );
    let broken: Vec<_> = rig.clients[1].broken.iter().map(|item| item.fid).collect();
    assert!(broken.contains(&root) && broken.contains(&file), "{broken:?}");
    rig.acknowledge(1);
    assert_eq!(rig.reply(removing), Some(Ok(Answer::Done)));
    assert_eq!(rig.status(1, file), Err(Fault::NoVolume));
    assert_eq!(rig.call(1, &Caller::ROOT, write(file, None, b"x")), Err(Fault::NoVolume));
    assert_eq!(rig.root_of(1, "home.a"), Err(Fault::NoVolume));
}

#[test]
fn a_volume_is_brought_in_before_it_goes() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(1, "home.a").unwrap();
    let dir = rig.make(1, &Caller::ROOT, root, "d", NewKind::Directory, 0o755);
    assert!(matches!(
        rig.call(1, &Caller::ROOT, Call::Delegate { fid: dir }),
        Ok(Answer::Delegation { .. })
    ));
    let change = VolumeChange { state: Some(VolumeState::Offline), ..VolumeChange::default() };
    let taking_off =
        rig.start(0, &Caller::ROOT, Call::Volume(VolumeCall::SetFields { id: made.id, change }));
    assert_eq!(rig.reply(taking_off), None, "DE-2: what is delegated is awaited");
    assert!(
        rig.clients[1]
            .broken
            .iter()
            .any(|item| item.reason == BreakReason::Recall && item.fid == dir)
    );
    assert_eq!(
        rig.call_in(1, 1, &Caller::ROOT, Call::Delegate { fid: root }),
        Err(Fault::Busy),
        "and nothing more is given"
    );
    assert_eq!(
        rig.call_in(1, 1, &Caller::ROOT, Call::Return { fids: vec![dir] }),
        Ok(Answer::Done)
    );
    assert_eq!(rig.reply(taking_off), Some(Ok(Answer::Done)));

    assert_eq!(rig.status(1, root), Err(Fault::Offline));
    assert_eq!(examine(&mut rig, "home.a").unwrap()[0].state, VolumeState::Offline);
    rig.restart();
    (0..2).for_each(|who| rig.reclaim(who));
    assert_eq!(rig.status(1, root), Err(Fault::Offline), "it stays so over a restart");
    let change = VolumeChange { state: Some(VolumeState::Online), ..VolumeChange::default() };
    assert_eq!(
        administer(&mut rig, VolumeCall::SetFields { id: made.id, change }),
        Ok(Answer::Done)
    );
    assert!(rig.look(1, root, "d").is_ok());
}

#[test]
fn fields_that_are_not_named_stay() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let change = |quota_bytes, quota_files| VolumeCall::SetFields {
        id: made.id,
        change: VolumeChange { quota_bytes, quota_files, ..VolumeChange::default() },
    };
    assert_eq!(administer(&mut rig, change(Some(1 << 20), None)), Ok(Answer::Done));
    assert_eq!(administer(&mut rig, change(None, Some(2))), Ok(Answer::Done));
    let shown = examine(&mut rig, "home.a").unwrap().remove(0);
    assert_eq!((shown.quota_bytes, shown.quota_files), (1 << 20, 2));
    let root = rig.root_of(0, "home.a").unwrap();
    rig.file(root, "f");
    let more = Call::Make {
        dir: root,
        name: name("g"),
        kind: NewKind::File,
        mode: 0o644,
        how: types::CreateHow::Guarded,
    };
    assert_eq!(rig.call(0, &Caller::ROOT, more), Err(Fault::QuotaExceeded));
}

fn clone(
    rig: &mut Rig,
    of: VolumeId,
    called: &str,
    kind: VolumeKind,
    replace: bool,
) -> Result<VolumeInfo, Fault> {
    match administer(rig, VolumeCall::Clone { id: None, of, name: name(called), kind, replace })? {
        Answer::Volumes { mut volumes, end: true } if volumes.len() == 1 => Ok(volumes.remove(0)),
        other => panic!("{other:?}"),
    }
}

/// The same file in another volume of the group.
fn in_volume(fid: Fid, volume: VolumeId) -> Fid {
    Fid { volume, ..fid }
}

#[test]
fn a_clone_goes_on_showing_what_was_there() {
    let mut rig = Rig::new(Ground::memory(), 2);
    rig.add_partition();
    let made = create_on(&mut rig, 1, "home.a").unwrap();
    let root = rig.root_of(0, "home.a").unwrap();
    let (short, long, gone) =
        (rig.file(root, "short"), rig.file(root, "long"), rig.file(root, "gone"));
    for (file, bytes) in [(short, &b"short"[..]), (long, &[7; 100_000]), (gone, b"gone")] {
        rig.call(0, &Caller::ROOT, write(file, Some(0), bytes)).unwrap();
    }
    let before =
        clone(&mut rig, made.id, "home.a.snapshot.before", VolumeKind::Snapshot, false).unwrap();
    assert_eq!(
        (before.tree, before.partition, before.kind),
        (made.id, PartitionNo(1), VolumeKind::Snapshot)
    );

    rig.call(0, &Caller::ROOT, write(short, Some(0), b"SHORTER")).unwrap();
    rig.call(0, &Caller::ROOT, write(long, Some(50_000), b"new")).unwrap();
    rig.call(0, &Caller::ROOT, crate::common::remove(root, "gone")).unwrap();
    rig.file(root, "later");
    for round in 0..2 {
        assert_eq!(rig.root_of(1, "home.a.snapshot.before"), Ok(in_volume(root, before.id)));
        let old = |fid| in_volume(fid, before.id);
        assert_eq!(read(&mut rig, 1, old(short)).unwrap(), "short", "VO-1, round {round}");
        assert_eq!(read(&mut rig, 1, old(long)).unwrap(), vec![7; 100_000]);
        assert_eq!(read(&mut rig, 1, old(gone)).unwrap(), "gone");
        assert_eq!(rig.look(1, old(root), "later"), Err(Fault::NotFound));
        assert_eq!(rig.look(1, old(root), "gone"), Ok(old(gone)));
        assert_eq!(read(&mut rig, 1, short).unwrap(), "SHORTER");
        assert_eq!(rig.look(1, root, "gone"), Err(Fault::NotFound));
        rig.restart();
        (0..2).for_each(|who| rig.reclaim(who));
    }
}

#[test]
fn nobody_changes_what_is_sealed() {
    let mut rig = Rig::new(Ground::disk(), 1);
    let root = rig.root();
    let file = rig.file(root, "f");
    rig.call(0, &Caller::ROOT, write(file, Some(0), b"kept")).unwrap();
    let cell = examine(&mut rig, "root.cell").unwrap().remove(0).id;
    let kept = clone(&mut rig, cell, "kept", VolumeKind::Snapshot, false).unwrap();
    let (root, file) = (in_volume(root, kept.id), in_volume(file, kept.id));
    let make = Call::Make {
        dir: root,
        name: name("g"),
        kind: NewKind::File,
        mode: 0o644,
        how: types::CreateHow::Guarded,
    };
    let size = types::StatusChange { size: Some(1), ..types::StatusChange::default() };
    let xattr = Call::XattrSet {
        fid: file,
        name: Bytes::from_static(b"user.a"),
        value: Bytes::new(),
        mode: types::XattrMode::Either,
    };
    let rename = Call::Rename {
        from_dir: root,
        from: name("f"),
        to_dir: root,
        to: name("g"),
        mode: RenameMode::Replace,
        hold: false,
    };
    for call in [
        make,
        Call::MakeUnnamed { dir: root, mode: 0o600 },
        Call::Link { fid: file, dir: root, name: name("g") },
        crate::common::remove(root, "f"),
        rename,
        Call::SetStatus { fid: file, change: size },
        xattr,
        Call::XattrRemove { fid: file, name: Bytes::from_static(b"user.a") },
        write(file, Some(0), b"x"),
        Call::Allocate { fid: file, offset: 0, length: 1, mode: types::AllocateMode::Extend },
        Call::SetQuota { fid: root, bytes: 1, files: 1 },
        Call::Delegate { fid: root },
        Call::LendBlank { fid: root },
    ] {
        assert_eq!(rig.call(0, &Caller::ROOT, call.clone()), Err(Fault::ReadOnly), "{call:?}");
    }
    for how in [types::Lending::Read, types::Lending::Write] {
        let lend = Call::LendBody { fid: file, how };
        assert_eq!(
            rig.call(0, &Caller::ROOT, lend),
            Err(Fault::Unsupported),
            "the file may be the head's too"
        );
    }
    let again = clone(&mut rig, kept.id, "again", VolumeKind::Snapshot, false).unwrap();
    assert_eq!((again.epoch, again.tree), (kept.epoch, cell), "another view of the same epoch");
    assert_eq!(read(&mut rig, 0, file).unwrap(), "kept");
}

#[test]
fn a_backup_replaces_the_previous_one_and_no_other_volume() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let other = create_on(&mut rig, 0, "home.b").unwrap();
    let root = rig.root_of(0, "home.a").unwrap();
    let backup =
        |rig: &mut Rig, replace| clone(rig, made.id, "home.a.backup", VolumeKind::Backup, replace);
    let first = backup(&mut rig, true).unwrap();
    let seen = rig.root_of(1, "home.a.backup").unwrap();
    rig.file(root, "later");
    assert_eq!(backup(&mut rig, false), Err(Fault::Exists));
    let second = backup(&mut rig, true).unwrap();
    assert_eq!(first.id, second.id, "clients that know the number still find it");
    assert!(first.epoch < second.epoch);
    assert!(
        rig.clients[1].broken.iter().any(|item| item.fid == seen),
        "CB-1: clients that saw the old one get a break"
    );
    assert_eq!(rig.root_of(1, "home.a.backup"), Ok(seen));
    assert!(rig.look(1, seen, "later").is_ok());
    let group: Vec<_> = examine(&mut rig, "home.a").unwrap().iter().map(|one| one.id).collect();
    assert_eq!(group, [made.id, second.id], "VO-2");

    let wrong = clone(&mut rig, other.id, "home.a.backup", VolumeKind::Backup, true);
    assert_eq!(wrong, Err(Fault::Exists), "another volume's");
    assert_eq!(clone(&mut rig, made.id, "home.b", VolumeKind::Snapshot, true), Err(Fault::Exists));
    assert_eq!(
        clone(&mut rig, made.id, "home.b", VolumeKind::ReadWrite, true),
        Err(Fault::Invalid)
    );
    assert_eq!(
        clone(&mut rig, made.id, "home.b", VolumeKind::ReadWrite, false),
        Err(Fault::Exists)
    );
    assert_eq!(
        clone(&mut rig, made.id, "home.a.copy", VolumeKind::Backup, false),
        Err(Fault::Invalid)
    );
}

#[test]
fn a_writable_clone_and_what_it_is_of_never_meet_again() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(0, "home.a").unwrap();
    let file = rig.file(root, "f");
    rig.call(0, &Caller::ROOT, write(file, Some(0), &[1; 40_000])).unwrap();
    let twin = clone(&mut rig, made.id, "home.b", VolumeKind::ReadWrite, false).unwrap();
    assert_eq!(
        (twin.tree, twin.origin, twin.kind),
        (twin.id, Some(made.id), VolumeKind::ReadWrite)
    );
    let (there, whole) = (in_volume(file, twin.id), Bytes::from(vec![1; 40_000]));
    assert_eq!(read(&mut rig, 1, there).unwrap(), whole);
    // Clients of one volume get no breaks for changes of the other.
    rig.call(0, &Caller::ROOT, write(file, Some(20_000), b"theirs")).unwrap();
    assert!(!rig.clients[1].broken.iter().any(|item| item.fid == there));
    let lend = Call::LendBody { fid: there, how: types::Lending::Read };
    assert_eq!(
        rig.call(0, &Caller::ROOT, lend),
        Err(Fault::Unsupported),
        "the file is the other's too"
    );
    assert_eq!(read(&mut rig, 0, there).unwrap(), whole);
    rig.call(1, &Caller::ROOT, write(there, Some(0), b"ours")).unwrap();
    rig.restart();
    (0..2).for_each(|client| rig.reclaim(client));
    administer(&mut rig, VolumeCall::Remove { id: made.id }).unwrap();
    let found = read(&mut rig, 0, there).unwrap();
    assert_eq!((&found[..4], &found[4..]), (&b"ours"[..], &whole[4..]));
    assert_eq!(examine(&mut rig, "home.b").unwrap()[0].origin, Some(made.id));
    let again = clone(&mut rig, twin.id, "home.c", VolumeKind::ReadWrite, false).unwrap();
    assert_eq!(read(&mut rig, 0, in_volume(file, again.id)).unwrap(), found);
}

#[test]
fn what_is_asked_for_while_a_hold_begins_is_lent_to_nobody() {
    let mut rig = Rig::new(Ground::disk(), 1);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(0, "home.a").unwrap();
    let partition = rig.vice().partitions().iter().next().unwrap().clone();
    let over = AtomicBool::new(false);
    let (mut refused, mut lent) = (0, Vec::<usize>::new());
    std::thread::scope(|scope| {
        // Directly on the store, since the service first waits for calls: only the moments between
        // matter here.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                partition.volumes().hold_volume(made.id, true).unwrap();
                partition.volumes().hold_volume(made.id, false).unwrap();
            }
        });
        // On a busy machine the two may not meet for a while.
        let mut number = 0;
        while number < ROUNDS || refused == 0 && number < 50 * ROUNDS {
            number += 1;
            let file = loop {
                let make = Call::Make {
                    dir: root,
                    name: name(format!("f{number}")),
                    kind: NewKind::File,
                    mode: 0o644,
                    how: CreateHow::Unchecked,
                };
                if let Ok(Answer::Made { status, .. }) = rig.call(0, &Caller::ROOT, make) {
                    break status.fid;
                }
            };
            let lend = Call::LendBody { fid: file, how: types::Lending::Write };
            if rig.call(0, &Caller::ROOT, lend).is_err() {
                refused += 1;
                lent.extend(partition.lent().contains(&(made.id, file.vnode)).then_some(number));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!((1..ROUNDS).contains(&refused), "{refused} were refused");
    assert_eq!(lent, [0; 0], "refused, and lent all the same");
}

#[test]
fn what_is_delegated_is_in_the_clone() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(1, "home.a").unwrap();
    let dir = rig.make(1, &Caller::ROOT, root, "d", NewKind::Directory, 0o755);
    let Ok(Answer::Delegation { slots, .. }) =
        rig.call(1, &Caller::ROOT, Call::Delegate { fid: dir })
    else {
        panic!("not delegated")
    };
    let call = VolumeCall::Clone {
        id: None,
        of: made.id,
        name: name("kept"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    let cloning = rig.start(0, &Caller::ROOT, Call::Volume(call));
    assert_eq!(rig.reply(cloning), None);
    // Client 1 has answered its applications already: they know of this file.
    let make = Call::Make {
        dir,
        name: name("f"),
        kind: NewKind::File,
        mode: 0o644,
        how: types::CreateHow::Guarded,
    };
    let at = types::Timestamp::new(5, 0);
    let delegated = Call::Delegated { at, slot: slots.first, call: Box::new(make) };
    assert!(rig.call_in(1, 1, &Caller::ROOT, delegated).is_ok());
    assert_eq!(
        rig.call_in(1, 1, &Caller::ROOT, Call::Return { fids: vec![dir] }),
        Ok(Answer::Done)
    );
    let Some(Ok(Answer::Volumes { volumes, .. })) = rig.reply(cloning) else {
        panic!("not cloned")
    };
    assert!(rig.look(0, in_volume(dir, volumes[0].id), "f").is_ok(), "DE-2");
    assert!(matches!(
        rig.call(1, &Caller::ROOT, Call::Delegate { fid: dir }),
        Err(Fault::Busy) | Ok(_)
    ));
}

#[test]
fn a_snapshot_outlives_its_volume_and_goes_alone() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let made = create_on(&mut rig, 0, "home.a").unwrap();
    let root = rig.root_of(0, "home.a").unwrap();
    let file = rig.file(root, "f");
    rig.call(0, &Caller::ROOT, write(file, Some(0), b"kept")).unwrap();
    let one = clone(&mut rig, made.id, "one", VolumeKind::Snapshot, false).unwrap();
    rig.call(0, &Caller::ROOT, write(file, Some(0), b"KEPT")).unwrap();
    let two = clone(&mut rig, made.id, "two", VolumeKind::Snapshot, false).unwrap();
    assert_eq!(administer(&mut rig, VolumeCall::Remove { id: made.id }), Ok(Answer::Done));
    assert_eq!(rig.status(0, file), Err(Fault::NoVolume));
    assert_eq!(read(&mut rig, 0, in_volume(file, one.id)).unwrap(), "kept", "VO-3");
    let group: Vec<_> = examine(&mut rig, "two").unwrap().iter().map(|one| one.id).collect();
    assert_eq!(group, [two.id, one.id]);
    assert_eq!(administer(&mut rig, VolumeCall::Remove { id: one.id }), Ok(Answer::Done));
    while rig.vice().partition().sweep(100).unwrap() > 0 {}
    rig.restart();
    rig.reclaim(0);
    assert_eq!(read(&mut rig, 0, in_volume(file, two.id)).unwrap(), "KEPT", "VO-3");
    assert_eq!(read(&mut rig, 0, in_volume(file, one.id)), Err(Fault::NoVolume));
}
