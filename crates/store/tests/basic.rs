//! All operations of a caller, once each, on disk and in memory.

use bytes::Bytes;
use store::{
    BodyLocation, MemMachine, NewRoot, OpenError, OpenOptions, Partition, PartitionConfig,
    SessionRecord, StoreError, Update, Usage, Vnode, Volume, VolumeQuota,
};
use types::{
    AllocateMode, ClientId, Cookie, Fid, Kind, Name, ReplyAddress, SeekWhat, SessionId, Timestamp,
    VnodeNo,
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
    let (vnode, unique) = volume.slots().unwrap().allocate(kind == Kind::Directory).unwrap();
    let fid = Fid { volume: volume.id(), vnode, unique };
    let made = Vnode::new(fid, kind, 0o644, 1, 2, VnodeNo::ROOT, Timestamp::new(5, 6));
    volume.edit(&mut dir, &mut update).put_entry(&name(text), made.target()).unwrap();
    update.create_vnode(&made);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    made
}

fn write(volume: &Volume, vnode: &mut Vnode, offset: u64, data: &[u8]) {
    let mut update = Update::new();
    volume.body(vnode, &mut update).unwrap().write(offset, data).unwrap();
    update.put_vnode(vnode);
    volume.commit(update).unwrap();
}

fn change(
    volume: &Volume,
    vnode: &mut Vnode,
    act: impl FnOnce(&mut Vnode, &mut Update<'_>) -> Result<(), StoreError>,
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
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
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
        let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
        assert_eq!(volume.usage(), usage);
        let found = volume.lookup(VnodeNo::ROOT, b"large").unwrap().unwrap();
        let vnode = volume.vnode(found.target.vnode).unwrap().unwrap();
        assert_eq!(vnode, large);
        assert_eq!(volume.reader_of(&vnode).unwrap().read(0, 4_000_000).unwrap(), data);
        assert_eq!(
            volume.reader_of(&vnode).unwrap().read(1_234_567, 70_000).unwrap(),
            data[1_234_567..1_304_567]
        );
        assert_eq!(volume.reader_of(&small).unwrap().read(1, 100).unwrap(), &b"ello"[..]);
        partition.sync_all().unwrap();
        assert_eq!(volume.reader_of(&vnode).unwrap().read(0, 4_000_000).unwrap(), data);
    });
}

#[test]
fn a_body_grows_out_of_its_record_shrinks_and_has_holes() {
    on_both(|partition, _| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        let mut file = create(&volume, "f", Kind::File);
        write(&volume, &mut file, 0, &[7; 10_000]);
        write(&volume, &mut file, 20 * BLOCK + 5, &[8; 100]);
        assert!(matches!(file.place, BodyLocation::File { .. }));
        assert_eq!(file.status.used, 2 * BLOCK);
        let mut expected = vec![0; (20 * BLOCK + 105) as usize];
        expected[..10_000].fill(7);
        expected[(20 * BLOCK + 5) as usize..].fill(8);
        assert_eq!(volume.reader_of(&file).unwrap().read(0, 1 << 20).unwrap(), expected);
        assert_eq!(volume.reader_of(&file).unwrap().seek(0, SeekWhat::Hole).unwrap(), Some(BLOCK));
        assert_eq!(
            volume.reader_of(&file).unwrap().seek(BLOCK, SeekWhat::Data).unwrap(),
            Some(20 * BLOCK)
        );
        assert_eq!(
            volume.reader_of(&file).unwrap().seek(20 * BLOCK + 50, SeekWhat::Hole).unwrap(),
            Some(20 * BLOCK + 105)
        );
        assert_eq!(
            volume.reader_of(&file).unwrap().seek(20 * BLOCK + 105, SeekWhat::Data).unwrap(),
            None
        );
        change(&volume, &mut file, |f, u| {
            volume.body(f, u).and_then(|mut body| body.truncate(5_000))
        });
        assert_eq!((file.status.size, file.status.used), (5_000, BLOCK));
        change(&volume, &mut file, |f, u| {
            volume.body(f, u).and_then(|mut body| body.truncate(12_000))
        });
        expected.truncate(12_000);
        expected[5_000..].fill(0);
        assert_eq!(volume.reader_of(&file).unwrap().read(0, 1 << 20).unwrap(), expected);
        change(&volume, &mut file, |f, u| {
            volume
                .body(f, u)
                .and_then(|mut body| body.allocate_range(0, 10 * BLOCK, AllocateMode::Extend))
        });
        assert_eq!((file.status.size, file.status.used), (10 * BLOCK, 10 * BLOCK));
        change(&volume, &mut file, |f, u| {
            volume
                .body(f, u)
                .and_then(|mut body| body.allocate_range(100, 5 * BLOCK, AllocateMode::PunchHole))
        });
        assert_eq!(file.status.used, 6 * BLOCK);
        expected.resize(10 * BLOCK as usize, 0);
        expected[100..].fill(0);
        assert_eq!(volume.reader_of(&file).unwrap().read(0, 1 << 20).unwrap(), expected);
        change(&volume, &mut file, |f, u| volume.body(f, u).and_then(|mut body| body.truncate(0)));
        assert_eq!((file.place, file.status.used), (BodyLocation::None, 0));
        assert_eq!(volume.usage(), Usage { bytes: 4096, files: 2 });
        assert_eq!(partition.sweep(100).unwrap(), 1);
        assert_eq!(partition.sweep(100).unwrap(), 0);
        write(&volume, &mut file, (1 << 41) + 1, b"far");
        assert_eq!(
            volume.reader_of(&file).unwrap().read((1 << 41) - 2, 10).unwrap(),
            &b"\0\0\0far"[..]
        );
        let mut update = Update::new();
        assert!(matches!(
            volume.body(&mut file.clone(), &mut update).and_then(|mut body| body.truncate(1 << 62)),
            Err(StoreError::TooBig)
        ));
        drop(update);
        assert_eq!(
            volume.reader_of(&file).unwrap().read((1 << 41) - 2, 10).unwrap(),
            &b"\0\0\0far"[..]
        );
    });
}

/// Memory for large reads is reused with its old content.
#[test]
fn holes_and_the_end_of_a_file_read_as_zeros() {
    on_both(|partition, _| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        let mut full = create(&volume, "full", Kind::File);
        write(&volume, &mut full, 0, &vec![7; 1 << 20]);
        let mut sparse = create(&volume, "sparse", Kind::File);
        write(&volume, &mut sparse, 3 * BLOCK, &vec![8; BLOCK as usize + 5]);
        change(&volume, &mut sparse, |vnode, update| {
            volume.body(vnode, update).and_then(|mut body| body.truncate(1 << 20))
        });
        let mut expected = vec![0; 1 << 20];
        expected[3 * BLOCK as usize..4 * BLOCK as usize + 5].fill(8);
        for _ in 0..20 {
            assert!(
                volume
                    .reader_of(&full)
                    .unwrap()
                    .read(0, 1 << 20)
                    .unwrap()
                    .iter()
                    .all(|byte| *byte == 7)
            );
            assert!(volume.reader_of(&sparse).unwrap().read(0, 1 << 20).unwrap() == expected);
        }
    });
}

#[test]
fn entries_are_listed_once_in_cookie_order() {
    on_both(|partition, _| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        for i in 0..100 {
            create(&volume, &format!("f{i}"), Kind::File);
        }
        let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
        assert_eq!(dir.entries, 100);
        let (mut cookie, mut seen) = (Cookie::START, Vec::new());
        loop {
            let (page, end) = volume.read_dir(VnodeNo::ROOT, cookie, 7).unwrap();
            for entry in page {
                assert!(entry.cookie > cookie && entry.cookie < Cookie(1 << 63));
                cookie = entry.cookie;
                seen.push(entry.name);
            }
            if end {
                break;
            }
            // Removes one entry that was read and adds one: the others are not affected.
            let mut update = Update::new();
            volume
                .edit(&mut dir, &mut update)
                .remove_entry(seen.last().unwrap().as_bytes())
                .unwrap()
                .unwrap();
            update.put_vnode(&dir);
            volume.commit(update).unwrap();
        }
        let all: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!((all.len(), seen.len()), (100, 100));
        assert_eq!(volume.vnode(VnodeNo::ROOT).unwrap().unwrap().entries, 86);
        assert!(
            volume.edit(&mut dir, &mut Update::new()).remove_entry(b"nobody").unwrap().is_none()
        );
    });
}

#[test]
fn attributes_orphans_links_and_removal() {
    on_both(|partition, reopen| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        let mut link = create(&volume, "l", Kind::Symlink);
        change(&volume, &mut link, |v, u| {
            volume.body(v, u).and_then(|mut body| body.write(0, b"/a/b"))
        });
        assert_eq!(volume.reader_of(&link).unwrap().read(0, usize::MAX).unwrap(), &b"/a/b"[..]);
        let mut file = create(&volume, "f", Kind::File);
        write(&volume, &mut file, 0, &[1; 40_000]);
        change(&volume, &mut file, |v, u| volume.edit(v, u).put_xattr(b"user.b", b"2"));
        change(&volume, &mut file, |v, u| volume.edit(v, u).put_xattr(b"user.a", &[1; 60_000]));
        let names = volume.xattrs(&file).unwrap();
        assert_eq!(names, [(Bytes::from("user.a"), 60_000), (Bytes::from("user.b"), 1)]);
        assert_eq!(volume.xattr(&file, b"user.b").unwrap().unwrap(), &b"2"[..]);
        change(&volume, &mut file, |v, u| {
            volume.edit(v, u).remove_xattr(b"user.b").map(|was| assert!(was))
        });
        assert!(file.has_xattr && volume.xattr(&file, b"user.b").unwrap().is_none());
        let mut update = Update::new();
        update.add_orphan(file.no());
        volume.commit(update).unwrap();
        assert_eq!(partition.volumes().orphans().unwrap(), [(volume.id(), file.no())]);
        let mut update = Update::new();
        volume.drop_vnode(&file, &mut update).unwrap();
        update.remove_orphan(file.no());
        volume.commit(update).unwrap();
        assert!(
            partition.volumes().orphans().unwrap().is_empty()
                && volume.vnode(file.no()).unwrap().is_none()
        );
        assert!(matches!(
            volume.reader_of(&file).and_then(|reader| reader.read(0, 1)),
            Err(StoreError::Gone(..))
        ));
        assert_eq!(volume.usage(), Usage { bytes: 4096 + 4, files: 2 });
        drop(volume);
        let partition = reopen(partition);
        assert_eq!(partition.sweep(10).unwrap(), 1);
        let next = partition
            .volumes()
            .volume_named(b"root")
            .unwrap()
            .unwrap()
            .slots()
            .unwrap()
            .allocate(false)
            .unwrap();
        assert!(next.0 > file.no());
    });
}

#[test]
fn sessions_and_replies_survive() {
    on_both(|partition, reopen| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        let session = partition.sessions().allocate_session().unwrap();
        let client = ClientId(77 << 100);
        let record = SessionRecord { session, client, incarnation: 3, extra: Bytes::from("x") };
        partition.sessions().put_session(&record).unwrap();
        partition.sessions().put_incarnation(client, 3).unwrap();
        let mut update = Update::new();
        update.reply(ReplyAddress { session, slot: 2, request: 9 }, Bytes::from("done"));
        update.set_quota(VolumeQuota { bytes: 5, files: 6 });
        volume.commit(update).unwrap();
        drop(volume);
        let partition = reopen(partition);
        assert_eq!(partition.sessions().list().unwrap(), [record]);
        let replies = partition.sessions().replies(session).unwrap();
        assert_eq!((replies.len(), replies[0].slot, replies[0].request), (1, 2, 9));
        assert_eq!(replies[0].reply, &b"done"[..]);
        assert_eq!(partition.sessions().incarnation(client).unwrap(), Some(3));
        assert_eq!(partition.sessions().incarnation(ClientId(1)).unwrap(), None);
        assert_eq!(
            partition.volumes().volume_named(b"root").unwrap().unwrap().quota(),
            VolumeQuota { bytes: 5, files: 6 }
        );
        assert!(partition.sessions().allocate_session().unwrap() > session);
        partition.sessions().remove_session(session).unwrap();
        assert!(
            partition.sessions().list().unwrap().is_empty()
                && partition.sessions().replies(session).unwrap().is_empty()
        );
    });
}

#[test]
fn clients_that_are_long_away_are_forgotten() {
    on_both(|partition, _| {
        let all: Vec<ClientId> = (0..10).map(|number| ClientId(number << 100 | 5)).collect();
        all.iter().for_each(|client| partition.sessions().put_incarnation(*client, 3).unwrap());
        let pass = |day: u64, here: &[ClientId]| {
            let (mut after, mut forgotten) = (None, 0);
            loop {
                let is_here = |client| here.contains(&client);
                let (some, next) =
                    partition.sessions().forget_clients(after, 3, (day, 30), &is_here).unwrap();
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
        partition.sessions().put_incarnation(all[4], 7).unwrap();
        assert_eq!(pass(130, &all[..2]), 7);
        let left: Vec<_> =
            all.iter().map(|client| partition.sessions().incarnation(*client).unwrap()).collect();
        let (three, seven) = (Some(3), Some(7));
        assert_eq!(left, [three, three, None, None, seven, None, None, None, None, None]);
    });
}

#[test]
fn replies_of_sessions_without_a_record_are_removed() {
    on_both(|partition, _| {
        let volume = partition.volumes().create_volume(&name("root"), &root()).unwrap();
        for session in [5, 6, 7].map(SessionId) {
            let mut update = Update::new();
            update.reply(ReplyAddress { session, slot: 2, request: 9 }, Bytes::from("done"));
            volume.commit(update).unwrap();
        }
        partition.sessions().forget_replies(&|session| session == SessionId(6)).unwrap();
        let left = [5, 6, 7]
            .map(|session| partition.sessions().replies(SessionId(session)).unwrap().len());
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
    std::fs::write(path.join("FORMAT"), format.replace("version 3", "version 9")).unwrap();
    assert!(matches!(open(), Err(OpenError::UnknownVersion { found: 9, .. })));
    std::fs::write(path.join("FORMAT"), &format[..30]).unwrap();
    assert!(matches!(open(), Err(OpenError::Damaged { .. })));
}
