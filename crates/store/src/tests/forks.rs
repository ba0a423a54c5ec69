//! Writable clones, case by case: their initial state, their room, and their removal. `clones.rs`
//! and `crash.rs` test them in random histories.

use std::sync::Arc;

use types::{Name, StreamCursor, Timestamp, VnodeNo, VolumeId, VolumeKind};

use super::world::{Model, World, contents, make_file, name, new_root};
use crate::format::key::kind;
use crate::tree::origin::ORIGINS_MAX;
use crate::{
    BLOCK_BYTES, BodyLocation, FinishAs, MemMachine, NewClone, NewFork, OpenOptions,
    PART_BYTES_MIN, Partition, PartitionConfig, StoreError, StreamPart, Update, Usage, Vnode,
    Volume, VolumeQuota,
};

fn fork(partition: &Partition, of: &Volume, called: &str) -> Arc<Volume> {
    partition.volumes().fork_volume(of.id(), &new_fork(called)).unwrap()
}

fn new_fork(called: &str) -> NewFork {
    NewFork {
        id: None,
        name: Name::new(called.as_bytes()).unwrap(),
        quota: None,
        now: Timestamp::new(7, 7),
    }
}

fn snapshot(partition: &Partition, of: &Volume, called: &str) -> Arc<Volume> {
    let name = Name::new(called.as_bytes()).unwrap();
    let new = NewClone {
        id: None,
        name,
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(8, 8),
        replaces: None,
    };
    partition.volumes().clone_volume(of.id(), &new).unwrap()
}

fn create(volume: &Volume, number: u8, length: u64) -> VnodeNo {
    let fill = |vnode: &mut Vnode, update: &mut Update<'_>| {
        volume.body(vnode, update).unwrap().write(0, &vec![number; length as usize]).unwrap();
    };
    make_file(volume, &name(number), fill).no()
}

fn write(volume: &Volume, no: VnodeNo, offset: u64, data: &[u8]) -> Vnode {
    let mut vnode = volume.vnode(no).unwrap().unwrap();
    let mut update = Update::new();
    volume.body(&mut vnode, &mut update).unwrap().write(offset, data).unwrap();
    update.put_vnode(&vnode);
    volume.commit(update).unwrap();
    vnode
}

fn read(volume: &Volume, no: VnodeNo, offset: u64, length: usize) -> Vec<u8> {
    volume
        .reader_of(&volume.vnode(no).unwrap().unwrap())
        .unwrap()
        .read(offset, length)
        .unwrap()
        .to_vec()
}

/// Removes the name of a file that a client has open.
fn unlink(volume: &Volume, number: u8, no: VnodeNo) {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    volume.edit(&mut dir, &mut update).remove_entry(name(number).as_bytes()).unwrap().unwrap();
    let mut vnode = volume.vnode(no).unwrap().unwrap();
    vnode.status.links = 0;
    update.put_vnode(&vnode);
    update.put_vnode(&dir);
    update.add_orphan(no);
    volume.commit(update).unwrap();
}

fn sweep(partition: &Partition) {
    while partition.sweep(7).unwrap() > 0 {}
}

fn findings(partition: &Partition) -> Vec<crate::ScrubFinding> {
    partition.scrub(&mut |_| {}, &false.into()).unwrap().findings
}

/// Records, without the marks of unsynced bodies, which the seal of a fork removes.
fn records(world: &World) -> usize {
    let machine = world.machine.0.lock();
    machine.log.keys().filter(|key| key[0] != crate::format::key::kind::UNSTABLE).count()
}

#[test]
fn how_much_there_is_makes_no_difference() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let mut grown = Vec::new();
    for count in [1, 40] {
        for number in 0..count {
            create(volume, 100 + count + number, 3 * BLOCK_BYTES);
        }
        let files = world.machine.0.lock().files.names();
        let before = records(&world);
        let clone = fork(partition, volume, &format!("w{count}"));
        grown.push(records(&world) - before);
        assert_eq!(world.machine.0.lock().files.names(), files, "nothing is copied");
        assert_eq!((contents(&clone), clone.usage()), (contents(volume), volume.usage()));
        assert_eq!(clone.info().origin, Some(volume.id()));
    }
    assert_eq!(grown, [3, 3], "header, name and usage");
    assert_eq!(findings(partition), []);
}

#[test]
fn each_goes_its_own_way() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let (large, small) = (create(volume, 1, 5 * BLOCK_BYTES), create(volume, 2, 100));
    let clone = fork(partition, volume, "clone");
    assert_eq!(clone.vnode(large).unwrap().unwrap().place, BodyLocation::Origin);
    write(volume, large, BLOCK_BYTES, b"theirs");
    write(volume, small, 0, b"theirs");
    let now = write(&clone, large, 0, b"ours");
    write(&clone, small, 50, b"ours");
    assert!(matches!(now.place, BodyLocation::File { .. }));
    let mut expected = vec![1; 5 * BLOCK_BYTES as usize];
    expected[..4].copy_from_slice(b"ours");
    assert_eq!(read(&clone, large, 0, 1 << 20), expected);
    assert_eq!(read(volume, large, 0, 4), [1; 4]);
    assert_eq!((read(&clone, small, 0, 6), read(volume, small, 50, 4)), (vec![2; 6], vec![2; 4]));
    // Both create a file now, and neither sees the other's.
    let (mine, other) = (create(&clone, 3, 10), create(volume, 4, 10));
    assert_eq!((clone.vnode(other).unwrap(), volume.vnode(mine).unwrap()), (None, None));
    assert!(clone.lookup(VnodeNo::ROOT, name(4).as_bytes()).unwrap().is_none());
    assert_eq!(findings(partition), []);
}

#[test]
fn whatever_goes_first_nothing_is_lost_and_nothing_is_left() {
    // The volume, its snapshot, the clone of the snapshot, and a clone of that one.
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 2, 0, 3], [0, 2, 1, 3]] {
        let world = World::new();
        let partition = world.partition.clone();
        let no = create(&world.volume, 1, 3 * BLOCK_BYTES);
        let kept = snapshot(&partition, &world.volume, "kept");
        write(&world.volume, no, 0, b"head");
        let first = fork(&partition, &kept, "first");
        write(&first, no, BLOCK_BYTES, b"first");
        let second = fork(&partition, &first, "second");
        create(&second, 9, 20);
        let World { machine, volume, .. } = world;
        let mut volumes: Vec<Option<Arc<Volume>>> =
            vec![Some(volume), Some(kept), Some(first), Some(second)];
        let shown: Vec<Model> = volumes.iter().flatten().map(|volume| contents(volume)).collect();
        for gone in order {
            let volume = volumes[gone].take().unwrap();
            partition.remove_volume(volume.id()).unwrap();
            drop(volume);
            sweep(&partition);
            for (volume, shown) in volumes.iter().zip(&shown) {
                assert!(
                    volume.as_ref().is_none_or(|volume| contents(volume) == *shown),
                    "{order:?}, {gone}"
                );
            }
            assert_eq!(findings(&partition), [], "{order:?}, {gone}");
        }
        assert!(machine.0.lock().log.keys().all(|key| key[0] == kind::PARTITION), "{order:?}");
        assert_eq!(machine.0.lock().files.names(), [], "{order:?}");
    }
}

#[test]
fn open_files_without_names_are_not_in_it() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let (stays, goes) = (create(volume, 1, 10), create(volume, 2, 2 * BLOCK_BYTES));
    unlink(volume, 2, goes);
    let kept = snapshot(partition, volume, "kept");
    let at_once = fork(partition, volume, "at.once");
    let mut update = Update::new();
    volume.drop_vnode(&volume.vnode(goes).unwrap().unwrap(), &mut update).unwrap();
    update.remove_orphan(goes);
    volume.commit(update).unwrap();
    // The snapshot still has the file, and in a clone of it no client has it open either.
    assert!(kept.vnode(goes).unwrap().is_some());
    let later = fork(partition, &kept, "later");
    for clone in [&at_once, &later] {
        assert!(clone.vnode(goes).unwrap().is_none() && clone.vnode(stays).unwrap().is_some());
        assert_eq!(clone.usage(), Usage { bytes: crate::DIRECTORY_BYTES + 10, files: 2 });
    }
    assert_eq!(findings(partition), []);
}

#[test]
fn a_copy_of_a_clone_stands_alone() {
    let world = World::new();
    let no = create(&world.volume, 1, 4 * BLOCK_BYTES);
    create(&world.volume, 2, 10);
    let clone = fork(&world.partition, &world.volume, "clone");
    write(&clone, no, 2 * BLOCK_BYTES, b"changed");
    create(&clone, 3, 3 * BLOCK_BYTES);
    let sealed = snapshot(&world.partition, &clone, "sealed");
    let there = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
    let mut cursor = StreamCursor::START;
    while cursor != StreamCursor::END {
        let part = crate::changes_part(&sealed, 0, cursor, PART_BYTES_MIN).unwrap();
        if cursor == StreamCursor::START {
            there
                .streams()
                .begin_incoming(clone.id(), &StreamPart::open(&part).unwrap().head)
                .unwrap();
        }
        cursor = there.streams().apply_part(clone.id(), &part).unwrap();
    }
    let (name, quota, now) = (clone.name(), VolumeQuota::default(), Timestamp::new(9, 9));
    let finish = FinishAs::ReadWrite { name, quota, created: now, now, arriving: false };
    let copy = there.streams().finish_incoming(clone.id(), &finish).unwrap();
    assert_eq!(
        (contents(&copy), copy.usage(), copy.info().origin),
        (contents(&clone), clone.usage(), None)
    );
    assert_eq!(findings(&there), []);
}

/// The tree of a clone that was moved away, with some volumes left, gets everything back in its old
/// place.
#[test]
fn a_clone_comes_back_over_what_it_left() {
    let world = World::new();
    let partition = &world.partition;
    let (large, small) = (create(&world.volume, 1, 4 * BLOCK_BYTES), create(&world.volume, 2, 10));
    let clone = fork(partition, &world.volume, "clone");
    let tree = clone.id();
    let first = snapshot(partition, &clone, "first");
    write(&clone, large, 0, b"new");
    let mut update = Update::new();
    let mut dir = clone.vnode(VnodeNo::ROOT).unwrap().unwrap();
    clone.edit(&mut dir, &mut update).remove_entry(name(2).as_bytes()).unwrap().unwrap();
    clone.drop_vnode(&clone.vnode(small).unwrap().unwrap(), &mut update).unwrap();
    update.put_vnode(&dir);
    clone.commit(update).unwrap();
    let second = snapshot(partition, &clone, "second");
    let (old, new) = (contents(&first), contents(&second));
    for since in [0, first.epoch()] {
        let mut parts = Vec::new();
        let mut cursor = StreamCursor::START;
        while cursor != StreamCursor::END {
            let part = crate::changes_part(&second, since, cursor, PART_BYTES_MIN).unwrap();
            cursor = StreamPart::open(&part).unwrap().to;
            parts.push(part);
        }
        let World { partition, .. } = world.on(world.machine.killed());
        for gone in [tree, second.id()] {
            partition.remove_volume(gone).unwrap();
        }
        sweep(&partition);
        partition
            .streams()
            .begin_incoming(tree, &StreamPart::open(&parts[0]).unwrap().head)
            .unwrap();
        for part in &parts {
            partition.streams().apply_part(tree, part).unwrap();
        }
        let finish = FinishAs::ReadWrite {
            name: Name::new(b"back").unwrap(),
            quota: VolumeQuota::default(),
            created: Timestamp::new(9, 9),
            now: Timestamp::new(9, 9),
            arriving: false,
        };
        let back = partition.streams().finish_incoming(tree, &finish).unwrap();
        assert_eq!(contents(&back), new, "since {since}");
        assert_eq!(
            contents(&partition.volumes().volume(first.id()).unwrap().unwrap()),
            old,
            "since {since}"
        );
        assert_eq!(findings(&partition), [], "since {since}");
    }
}

#[test]
fn kernels_are_given_what_it_has_in_files_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition =
        Partition::create(&path, &PartitionConfig::default(), OpenOptions::default()).unwrap();
    let volume = partition.volumes().create_volume(&Name::new(b"v").unwrap(), &new_root()).unwrap();
    let no = create(&volume, 1, 2 * BLOCK_BYTES);
    write(&volume, no, 1 << 30, b"far");
    let clone = fork(&partition, &volume, "clone");
    let body = |volume: &Volume| volume.reader(no).unwrap().unwrap().open_body().unwrap();
    assert!(body(&volume).is_some() && body(&clone).is_none());
    write(&clone, no, 3, b"new");
    assert!(body(&clone).is_some());
    assert_eq!(
        (read(&clone, no, 0, 8), read(&clone, no, 1 << 30, 8)),
        (b"\x01\x01\x01new\x01\x01".into(), b"far".into())
    );
    assert_eq!(read(&volume, no, 0, 8), [1; 8]);
    let files = std::fs::read_dir(path.join(format!("bodies/{:x}", clone.id().0))).unwrap();
    let file = std::fs::read_dir(files.map(|dir| dir.unwrap().path()).next().unwrap())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 < 1 << 20,
        "holes are kept"
    );
    let second = fork(&partition, &volume, "second");
    // Before a kernel writes to a file, it becomes the clone's own.
    let mut vnode = second.vnode(no).unwrap().unwrap();
    let mut update = Update::new();
    second.body(&mut vnode, &mut update).unwrap().lend().unwrap();
    update.put_vnode(&vnode);
    second.commit(update).unwrap();
    assert!(second.loans().has(no) && body(&second).is_some());
    assert!(second.loans().end(no).unwrap());
    partition.sync_all().unwrap();
    assert_eq!(findings(&partition), []);
}

#[test]
fn a_packed_body_of_the_origin_is_read_and_left() {
    let mut world = World::new();
    let no = create(&world.volume, 1, 8 * BLOCK_BYTES);
    let clone = fork(&world.partition, &world.volume, "clone");
    // Only the clone shows it now, and bodies that only sealed epochs show are packed.
    let id = world.volume.id();
    let World { partition, machine, volume, .. } = &mut world;
    partition.remove_volume(id).unwrap();
    *volume = Arc::clone(&clone);
    sweep(partition);
    let packed = |machine: &MemMachine| {
        machine.0.lock().files.names().iter().filter(|name| name.packed).count()
    };
    assert_eq!(packed(machine), 1);
    assert_eq!(read(&clone, no, 0, 1 << 20), vec![1; 8 * BLOCK_BYTES as usize]);
    let mut vnode = clone.vnode(no).unwrap().unwrap();
    let mut update = Update::new();
    clone.body(&mut vnode, &mut update).unwrap().truncate(3 * BLOCK_BYTES + 5).unwrap();
    update.put_vnode(&vnode);
    clone.commit(update).unwrap();
    assert_eq!(read(&clone, no, 0, 1 << 20), vec![1; 3 * BLOCK_BYTES as usize + 5]);
    assert_eq!(findings(partition), []);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    create(volume, 1, 10);
    let before = records(&world);
    assert!(matches!(
        partition.volumes().fork_volume(volume.id(), &new_fork("root")),
        Err(StoreError::Taken("name"))
    ));
    let taken = NewFork { id: Some(volume.id()), ..new_fork("other") };
    assert!(matches!(
        partition.volumes().fork_volume(volume.id(), &taken),
        Err(StoreError::Taken("number"))
    ));
    assert!(matches!(
        partition.volumes().fork_volume(VolumeId(99), &new_fork("other")),
        Err(StoreError::NoVolume(_))
    ));
    assert_eq!((records(&world), volume.epoch()), (before, 1));
    // The most nested clones of clones; all of them can be removed.
    let mut last = Arc::clone(volume);
    let mut made = 0;
    loop {
        match partition.volumes().fork_volume(last.id(), &new_fork(&format!("w{made}"))) {
            Ok(clone) => last = clone,
            Err(StoreError::Misuse(_)) => break,
            Err(error) => panic!("{error}"),
        }
        made += 1;
    }
    assert_eq!(made, ORIGINS_MAX - 1);
    assert_eq!(contents(&last), contents(volume));
    drop(last);
    let again = world.on(world.machine.killed());
    let last = again
        .partition
        .volumes()
        .volume_named(format!("w{}", made - 1).as_bytes())
        .unwrap()
        .unwrap();
    assert_eq!(contents(&last), contents(volume));
    drop(last);
    for number in 0..made {
        let id = again
            .partition
            .volumes()
            .volume_named(format!("w{number}").as_bytes())
            .unwrap()
            .unwrap()
            .id();
        again.partition.remove_volume(id).unwrap();
    }
    sweep(&again.partition);
    assert_eq!(again.partition.volumes().list(VolumeId(0), 100).unwrap().len(), 1);
    assert_eq!(records(&again), before);
}
