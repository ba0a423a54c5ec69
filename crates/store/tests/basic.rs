//! All operations of a caller, once each, on disk and in memory.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use bytes::Bytes;
use store::{
    BodyLocation, MemMachine, NewRoot, OpenError, OpenOptions, Partition, PartitionConfig,
    SessionRecord, StoreError, Update, Usage, Vnode, Volume, VolumeQuota,
};
use types::{
    AllocateMode, ClientId, Fid, Kind, Name, ReplyAddress, SeekWhat, SessionId, Timestamp, VnodeNo,
};

const BLOCK: u64 = store::BLOCK_BYTES;

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 4 << 20, seed: Some(1), ..OpenOptions::default() }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn root() -> NewRoot {
    NewRoot {
        mode: 0o755,
        uid: 1,
        gid: 2,
        now: Timestamp::new(1000, 5),
        quota: VolumeQuota::default(),
    }
}

/// A new file named `text` in the root directory.
fn create(volume: &Volume, text: &str, kind: Kind) -> Vnode {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let (vnode, unique) = volume.allocate(kind == Kind::Directory).unwrap();
    let fid = Fid { volume: volume.id(), vnode, unique };
    let made = Vnode::new(fid, kind, 0o644, 1, 2, VnodeNo::ROOT, Timestamp::new(5, 6));
    volume.put_entry(&mut dir, &name(text), made.target(), &mut update).unwrap();
    update.create_vnode(&made);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    made
}

fn write(volume: &Volume, vnode: &mut Vnode, offset: u64, data: &[u8]) {
    let mut update = Update::new();
    volume.write(vnode, offset, data, &mut update).unwrap();
    update.put_vnode(vnode);
    volume.commit(update).unwrap();
}

fn change(
    volume: &Volume,
    vnode: &mut Vnode,
    act: impl FnOnce(&mut Vnode, &mut Update) -> Result<(), StoreError>,
) {
    let mut update = Update::new();
    act(vnode, &mut update).unwrap();
    update.put_vnode(vnode);
    volume.commit(update).unwrap();
}

/// Runs the same on a directory and in memory; `reopen` simulates a new process.
fn on_both(test: impl Fn(Partition, &dyn Fn(Partition) -> Partition)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let made =
        Partition::create(&path, &PartitionConfig { server: "s".into() }, options()).unwrap();
    test(made, &|old| {
        drop(old);
        Partition::open(&path, options()).unwrap()
    });
    let machine = MemMachine::new();
    test(Partition::open_memory(&machine, options()).unwrap(), &|old| {
        drop(old);
        Partition::open_memory(&machine, options()).unwrap()
    });
}

#[test]
fn files_are_found_again_after_a_restart() {
    on_both(|partition, reopen| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        let mut small = create(&volume, "small", Kind::File);
        write(&volume, &mut small, 0, b"hello");
        let mut large = create(&volume, "large", Kind::File);
        let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
        write(&volume, &mut large, 0, &data);
        assert_eq!((small.place, small.status.used), (BodyLocation::Inline, 5));
        assert_eq!(large.status.used, data.len().div_ceil(BLOCK as usize) as u64 * BLOCK);
        let verifier = partition.boot_verifier();
        let usage = volume.usage();
        assert_eq!(usage, Usage { bytes: 4096 + 5 + large.status.used, files: 3 });
        drop(volume);
        let partition = reopen(partition);
        assert_eq!(partition.boot_verifier(), verifier);
        let volume = partition.volume_named(b"root").unwrap().unwrap();
        assert_eq!(volume.usage(), usage);
        let found = volume.lookup(VnodeNo::ROOT, b"large").unwrap().unwrap();
        let vnode = volume.vnode(found.target.vnode).unwrap().unwrap();
        assert_eq!(vnode, large);
        assert_eq!(volume.read(&vnode, 0, 4_000_000).unwrap(), data);
        assert_eq!(volume.read(&vnode, 1_234_567, 70_000).unwrap(), data[1_234_567..1_304_567]);
        assert_eq!(volume.read(&small, 1, 100).unwrap(), &b"ello"[..]);
        partition.sync_all().unwrap();
        assert_eq!(volume.read(&vnode, 0, 4_000_000).unwrap(), data);
    });
}

#[test]
fn a_body_grows_out_of_its_record_shrinks_and_has_holes() {
    on_both(|partition, _| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        let mut file = create(&volume, "f", Kind::File);
        write(&volume, &mut file, 0, &[7; 10_000]);
        write(&volume, &mut file, 20 * BLOCK + 5, &[8; 100]);
        assert!(matches!(file.place, BodyLocation::File { .. }));
        assert_eq!(file.status.used, 2 * BLOCK);
        let mut expected = vec![0; (20 * BLOCK + 105) as usize];
        expected[..10_000].fill(7);
        expected[(20 * BLOCK + 5) as usize..].fill(8);
        assert_eq!(volume.read(&file, 0, 1 << 20).unwrap(), expected);
        assert_eq!(volume.seek(&file, 0, SeekWhat::Hole).unwrap(), Some(BLOCK));
        assert_eq!(volume.seek(&file, BLOCK, SeekWhat::Data).unwrap(), Some(20 * BLOCK));
        assert_eq!(
            volume.seek(&file, 20 * BLOCK + 50, SeekWhat::Hole).unwrap(),
            Some(20 * BLOCK + 105)
        );
        assert_eq!(volume.seek(&file, 20 * BLOCK + 105, SeekWhat::Data).unwrap(), None);
        change(&volume, &mut file, |f, u| volume.truncate(f, 5_000, u));
        assert_eq!((file.status.size, file.status.used), (5_000, BLOCK));
        change(&volume, &mut file, |f, u| volume.truncate(f, 12_000, u));
        expected.truncate(12_000);
        expected[5_000..].fill(0);
        assert_eq!(volume.read(&file, 0, 1 << 20).unwrap(), expected);
        change(&volume, &mut file, |f, u| {
            volume.allocate_range(f, 0, 10 * BLOCK, AllocateMode::Extend, u)
        });
        assert_eq!((file.status.size, file.status.used), (10 * BLOCK, 10 * BLOCK));
        change(&volume, &mut file, |f, u| {
            volume.allocate_range(f, 100, 5 * BLOCK, AllocateMode::PunchHole, u)
        });
        assert_eq!(file.status.used, 6 * BLOCK);
        expected.resize(10 * BLOCK as usize, 0);
        expected[100..].fill(0);
        assert_eq!(volume.read(&file, 0, 1 << 20).unwrap(), expected);
        change(&volume, &mut file, |f, u| volume.truncate(f, 0, u));
        assert_eq!((file.place, file.status.used), (BodyLocation::None, 0));
        assert_eq!(volume.usage(), Usage { bytes: 4096, files: 2 });
        assert_eq!(partition.sweep(100).unwrap(), 1);
        assert_eq!(partition.sweep(100).unwrap(), 0);
        write(&volume, &mut file, (1 << 41) + 1, b"far");
        assert_eq!(volume.read(&file, (1 << 41) - 2, 10).unwrap(), &b"\0\0\0far"[..]);
        let mut update = Update::new();
        assert!(matches!(
            volume.truncate(&mut file.clone(), 1 << 62, &mut update),
            Err(StoreError::TooBig)
        ));
        drop(update);
        assert_eq!(volume.read(&file, (1 << 41) - 2, 10).unwrap(), &b"\0\0\0far"[..]);
    });
}

/// Memory for large reads is reused with its old content.
#[test]
fn holes_and_the_end_of_a_file_read_as_zeros() {
    on_both(|partition, _| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        let mut full = create(&volume, "full", Kind::File);
        write(&volume, &mut full, 0, &vec![7; 1 << 20]);
        let mut sparse = create(&volume, "sparse", Kind::File);
        write(&volume, &mut sparse, 3 * BLOCK, &vec![8; BLOCK as usize + 5]);
        change(&volume, &mut sparse, |vnode, update| volume.truncate(vnode, 1 << 20, update));
        let mut expected = vec![0; 1 << 20];
        expected[3 * BLOCK as usize..4 * BLOCK as usize + 5].fill(8);
        for _ in 0..20 {
            assert!(volume.read(&full, 0, 1 << 20).unwrap().iter().all(|byte| *byte == 7));
            assert!(volume.read(&sparse, 0, 1 << 20).unwrap() == expected);
        }
    });
}

#[test]
fn entries_are_listed_once_in_cookie_order() {
    on_both(|partition, _| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        for i in 0..100 {
            create(&volume, &format!("f{i}"), Kind::File);
        }
        let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
        assert_eq!(dir.entries, 100);
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let (page, end) = volume.read_dir(VnodeNo::ROOT, cookie, 7).unwrap();
            for entry in page {
                assert!(entry.cookie > cookie && entry.cookie < 1 << 63);
                cookie = entry.cookie;
                seen.push(entry.name);
            }
            if end {
                break;
            }
            // Removes one entry that was read and adds one: the others are not affected.
            let mut update = Update::new();
            volume
                .remove_entry(&mut dir, seen.last().unwrap().as_bytes(), &mut update)
                .unwrap()
                .unwrap();
            update.put_vnode(&dir);
            volume.commit(update).unwrap();
        }
        let all: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!((all.len(), seen.len()), (100, 100));
        assert_eq!(volume.vnode(VnodeNo::ROOT).unwrap().unwrap().entries, 86);
        assert!(volume.remove_entry(&mut dir, b"nobody", &mut Update::new()).unwrap().is_none());
    });
}

#[test]
fn attributes_orphans_links_and_removal() {
    on_both(|partition, reopen| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        let mut link = create(&volume, "l", Kind::Symlink);
        change(&volume, &mut link, |v, u| volume.set_target(v, b"/a/b", u));
        assert_eq!(volume.target(&link).unwrap(), &b"/a/b"[..]);
        let mut file = create(&volume, "f", Kind::File);
        write(&volume, &mut file, 0, &[1; 40_000]);
        change(&volume, &mut file, |v, u| volume.put_xattr(v, b"user.b", b"2", u));
        change(&volume, &mut file, |v, u| volume.put_xattr(v, b"user.a", &[1; 60_000], u));
        let names = volume.xattrs(&file).unwrap();
        assert_eq!(names, [(Bytes::from("user.a"), 60_000), (Bytes::from("user.b"), 1)]);
        assert_eq!(volume.xattr(&file, b"user.b").unwrap().unwrap(), &b"2"[..]);
        change(&volume, &mut file, |v, u| {
            volume.remove_xattr(v, b"user.b", u).map(|was| assert!(was))
        });
        assert!(file.has_xattr && volume.xattr(&file, b"user.b").unwrap().is_none());
        let mut update = Update::new();
        update.add_orphan(file.no());
        volume.commit(update).unwrap();
        assert_eq!(partition.orphans().unwrap(), [(volume.id(), file.no())]);
        let mut update = Update::new();
        volume.drop_vnode(&file, &mut update).unwrap();
        update.remove_orphan(file.no());
        volume.commit(update).unwrap();
        assert!(
            partition.orphans().unwrap().is_empty() && volume.vnode(file.no()).unwrap().is_none()
        );
        assert!(matches!(volume.read(&file, 0, 1), Err(StoreError::Gone(..))));
        assert_eq!(volume.usage(), Usage { bytes: 4096 + 4, files: 2 });
        drop(volume);
        let partition = reopen(partition);
        assert_eq!(partition.sweep(10).unwrap(), 1);
        let next = partition.volume_named(b"root").unwrap().unwrap().allocate(false).unwrap();
        assert!(next.0 > file.no());
    });
}

#[test]
fn sessions_and_replies_survive() {
    on_both(|partition, reopen| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        let session = partition.allocate_session().unwrap();
        let client = ClientId(77 << 100);
        let record = SessionRecord { session, client, incarnation: 3, extra: Bytes::from("x") };
        partition.put_session(&record).unwrap();
        partition.put_incarnation(client, 3).unwrap();
        let mut update = Update::new();
        update.reply(ReplyAddress { session, slot: 2, request: 9 }, Bytes::from("done"));
        update.set_quota(VolumeQuota { bytes: 5, files: 6 });
        volume.commit(update).unwrap();
        drop(volume);
        let partition = reopen(partition);
        assert_eq!(partition.sessions().unwrap(), [record]);
        let replies = partition.replies(session).unwrap();
        assert_eq!((replies.len(), replies[0].slot, replies[0].request), (1, 2, 9));
        assert_eq!(replies[0].reply, &b"done"[..]);
        assert_eq!(partition.incarnation(client).unwrap(), Some(3));
        assert_eq!(partition.incarnation(ClientId(1)).unwrap(), None);
        assert_eq!(
            partition.volume_named(b"root").unwrap().unwrap().quota(),
            VolumeQuota { bytes: 5, files: 6 }
        );
        assert!(partition.allocate_session().unwrap() > session);
        partition.remove_session(session).unwrap();
        assert!(
            partition.sessions().unwrap().is_empty()
                && partition.replies(session).unwrap().is_empty()
        );
    });
}

#[test]
fn clients_that_are_long_away_are_forgotten() {
    on_both(|partition, _| {
        let all: Vec<ClientId> = (0..10).map(|number| ClientId(number << 100 | 5)).collect();
        all.iter().for_each(|client| partition.put_incarnation(*client, 3).unwrap());
        let pass = |day: u64, here: &[ClientId]| {
            let (mut after, mut forgotten) = (None, 0);
            loop {
                let is_here = |client| here.contains(&client);
                let (some, next) = partition.forget_clients(after, 3, (day, 30), &is_here).unwrap();
                forgotten += some;
                after = next;
                if after.is_none() {
                    return forgotten;
                }
            }
        };
        assert_eq!(pass(100, &all[..2]), 0, "it is noted that they are away");
        assert_eq!(pass(129, &all[..2]), 0);
        // One client connected again meanwhile.
        partition.put_incarnation(all[4], 7).unwrap();
        assert_eq!(pass(130, &all[..2]), 7);
        let left: Vec<_> =
            all.iter().map(|client| partition.incarnation(*client).unwrap()).collect();
        let (three, seven) = (Some(3), Some(7));
        assert_eq!(left, [three, three, None, None, seven, None, None, None, None, None]);
    });
}

#[test]
fn replies_of_sessions_without_a_record_are_removed() {
    on_both(|partition, _| {
        let volume = partition.create_volume(&name("root"), &root()).unwrap();
        for session in [5, 6, 7].map(SessionId) {
            let mut update = Update::new();
            update.reply(ReplyAddress { session, slot: 2, request: 9 }, Bytes::from("done"));
            volume.commit(update).unwrap();
        }
        partition.forget_replies(&|session| session == SessionId(6)).unwrap();
        let left = [5, 6, 7].map(|session| partition.replies(SessionId(session)).unwrap().len());
        assert_eq!(left, [0, 1, 0]);
    });
}

#[test]
fn what_is_no_partition_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let open = || Partition::open(&path, options()).map(drop);
    assert!(matches!(open(), Err(OpenError::NotAPartition { .. })));
    let partition =
        Partition::create(&path, &PartitionConfig { server: "s".into() }, options()).unwrap();
    assert!(matches!(open(), Err(OpenError::InUse { .. })));
    let id = partition.id();
    drop(partition);
    assert_eq!(Partition::open(&path, options()).unwrap().id(), id);
    let again = Partition::create(&path, &PartitionConfig::default(), options()).map(drop);
    assert!(matches!(again, Err(OpenError::NotEmpty { .. })));
    std::fs::rename(path.join("meta"), path.join("away")).unwrap();
    let error = open().unwrap_err();
    assert!(
        matches!(error, OpenError::Damaged { .. }) && error.to_string().contains("meta"),
        "{error}"
    );
    std::fs::rename(path.join("away"), path.join("meta")).unwrap();
    let format = std::fs::read_to_string(path.join("FORMAT")).unwrap();
    std::fs::write(path.join("FORMAT"), format.replace("version 2", "version 9")).unwrap();
    assert!(matches!(open(), Err(OpenError::UnknownVersion { found: 9, .. })));
    std::fs::write(path.join("FORMAT"), &format[..30]).unwrap();
    assert!(matches!(open(), Err(OpenError::Damaged { .. })));
}
