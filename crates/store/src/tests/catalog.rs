//! The catalog: volumes are created, found, listed, renamed, removed.

use std::sync::Arc;

use types::{Fid, Kind, Name, Timestamp, VnodeNo, VolumeId};

use super::world::{new_root, options};
use crate::{
    BLOCK_BYTES, MemMachine, OpenOptions, Partition, StoreError, Update, Vnode, Volume,
    VolumeFields, VolumeQuota,
};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn opened() -> (MemMachine, Partition) {
    let machine = MemMachine::new();
    let partition = Partition::open_memory(&machine, options()).unwrap();
    (machine, partition)
}

/// A file with a body of its own in the root.
fn fill(volume: &Volume, bytes: u64) -> Vnode {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let (vnode, unique) = volume.slots().unwrap().allocate(false).unwrap();
    let fid = Fid { volume: volume.id(), vnode, unique };
    let mut vnode = Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
    update.create_vnode(&vnode);
    volume.body(&mut vnode, &mut update).unwrap().write(0, &vec![7; bytes as usize]).unwrap();
    volume.edit(&mut vnode, &mut update).put_xattr(b"user.a", b"value").unwrap();
    volume.edit(&mut dir, &mut update).put_entry(&name("file"), vnode.target()).unwrap();
    update.put_vnode(&vnode);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    vnode
}

/// The kinds of records that are left, without those of the partition itself.
fn kinds(machine: &MemMachine) -> String {
    let mut kinds: Vec<u8> =
        machine.0.lock().log.keys().map(|key| key[0]).filter(|kind| *kind != b'P').collect();
    kinds.dedup();
    String::from_utf8(kinds).unwrap()
}

fn ids(partition: &Partition, after: u64, max: usize) -> Vec<u64> {
    partition
        .volumes()
        .list(VolumeId(after), max)
        .unwrap()
        .iter()
        .map(|volume| volume.id.0)
        .collect()
}

#[test]
fn volumes_are_found_by_number_and_name_and_listed_in_order() {
    let (machine, mut partition) = opened();
    for text in ["b", "a", "c"] {
        partition.volumes().create_volume(&name(text), &new_root()).unwrap();
    }
    let given = partition
        .volumes()
        .create_numbered_volume(Some(VolumeId(70)), &name("given"), &new_root())
        .unwrap();
    assert_eq!(
        partition.volumes().create_volume(&name("next"), &new_root()).unwrap().id(),
        VolumeId(71)
    );
    fill(&given, 3 * BLOCK_BYTES);
    for _ in 0..2 {
        assert_eq!(ids(&partition, 0, 100), [1, 2, 3, 70, 71]);
        assert_eq!(ids(&partition, 1, 2), [2, 3]);
        assert_eq!(ids(&partition, 70, 1), [71]);
        assert_eq!(ids(&partition, u64::MAX, 1), [0; 0]);
        let listed = partition.volumes().list(VolumeId(69), 1).unwrap().remove(0);
        let volume = partition.volumes().volume(VolumeId(70)).unwrap().unwrap();
        assert_eq!(listed, volume.info());
        assert_eq!((listed.usage.bytes, listed.usage.files), (4096 + 3 * BLOCK_BYTES, 2));
        assert!(Arc::ptr_eq(
            &volume,
            &partition.volumes().volume_named(b"given").unwrap().unwrap()
        ));
        assert!(partition.volumes().volume(VolumeId(69)).unwrap().is_none());
        assert!(partition.volumes().volume_named(b"absent").unwrap().is_none());
        drop(volume);
        partition = Partition::open_memory(&machine, options()).unwrap();
    }
}

#[test]
fn a_name_and_a_number_are_one_volumes_alone() {
    let (_, partition) = opened();
    let first = partition.volumes().create_volume(&name("first"), &new_root()).unwrap();
    let second = partition.volumes().create_volume(&name("second"), &new_root()).unwrap();
    let now = Timestamp::new(9, 9);
    let taken =
        |result: Result<_, StoreError>| assert!(matches!(result, Err(StoreError::Taken(_))));
    taken(partition.volumes().create_volume(&name("first"), &new_root()).map(drop));
    taken(
        partition
            .volumes()
            .create_numbered_volume(Some(second.id()), &name("third"), &new_root())
            .map(drop),
    );
    taken(partition.volumes().rename_volume(first.id(), &name("second"), now));
    partition.volumes().rename_volume(first.id(), &name("first"), now).unwrap();
    partition.volumes().rename_volume(first.id(), &name("renamed"), now).unwrap();
    assert!(partition.volumes().volume_named(b"first").unwrap().is_none());
    assert_eq!(partition.volumes().volume_named(b"renamed").unwrap().unwrap().info().updated, now);
    partition.volumes().rename_volume(second.id(), &name("first"), now).unwrap();
    assert!(matches!(
        partition.volumes().rename_volume(VolumeId(9), &name("x"), now),
        Err(StoreError::NoVolume(VolumeId(9)))
    ));
    assert_eq!(ids(&partition, 0, 9), [1, 2]);
}

#[test]
fn fields_outlive_the_memory() {
    let (machine, partition) = opened();
    let id = partition.volumes().create_volume(&name("v"), &new_root()).unwrap().id();
    let quota = VolumeQuota { bytes: 5, files: 6 };
    let now = Timestamp::new(8, 7);
    partition
        .volumes()
        .set_fields(
            id,
            VolumeFields { quota: Some(quota), offline: Some(true), arriving: None },
            now,
        )
        .unwrap();
    partition.volumes().set_fields(id, VolumeFields::default(), now).unwrap();
    drop(partition);
    let partition = Partition::open_memory(&machine.power_loss(1), options()).unwrap();
    let info = partition.volumes().volume(id).unwrap().unwrap().info();
    assert_eq!((info.quota, info.offline, info.updated), (quota, true, now));
}

/// Volumes leave memory one after the other, and are unchanged when they are loaded again.
#[test]
fn more_volumes_than_stay_in_memory() {
    let (_, partition) = opened();
    let kept = partition.volumes().create_volume(&name("kept"), &new_root()).unwrap();
    let many = 3000;
    for number in 2..=many {
        partition.volumes().create_volume(&name(&format!("v{number}")), &new_root()).unwrap();
    }
    assert!(Arc::ptr_eq(&kept, &partition.volumes().volume(kept.id()).unwrap().unwrap()));
    for id in (1..=many).map(VolumeId) {
        let volume = partition.volumes().volume(id).unwrap().unwrap();
        let (slot, _) = volume.slots().unwrap().allocate(false).unwrap();
        assert_eq!(volume.usage().files, 1);
        drop(volume);
        assert!(
            partition
                .volumes()
                .volume(id)
                .unwrap()
                .unwrap()
                .slots()
                .unwrap()
                .allocate(false)
                .unwrap()
                .0
                > slot
        );
    }
    assert_eq!(ids(&partition, 0, usize::MAX).len() as u64, many);
}

#[test]
fn a_removed_volume_leaves_nothing() {
    let (machine, partition) = opened();
    partition.volumes().create_volume(&name("stays"), &new_root()).unwrap();
    let before = kinds(&machine);
    let volume = partition.volumes().create_volume(&name("goes"), &new_root()).unwrap();
    let id = volume.id();
    let file = fill(&volume, 5 * BLOCK_BYTES);
    partition.remove_volume(id).unwrap();
    assert!(
        partition.volumes().volume(id).unwrap().is_none()
            && partition.volumes().volume_named(b"goes").unwrap().is_none()
    );
    assert!(matches!(partition.remove_volume(id), Err(StoreError::NoVolume(_))));
    // The number is not used again before all of the volume is removed; its name is free.
    let again = partition.volumes().create_numbered_volume(Some(id), &name("other"), &new_root());
    assert!(matches!(again, Err(StoreError::Busy(_))));
    // A caller with the volume may still read; the sweep waits, and changes are refused.
    assert_eq!(partition.sweep(10).unwrap(), 0);
    assert_eq!(volume.reader_of(&file).unwrap().read(0, 5).unwrap(), [7; 5][..]);
    let mut update = Update::new();
    update.put_vnode(&file);
    assert!(matches!(volume.commit(update), Err(StoreError::NoVolume(_))));
    drop(volume);
    while partition.sweep(10).unwrap() > 0 {}
    assert_eq!(kinds(&machine), before);
    assert_eq!(machine.0.lock().files.names(), []);
    partition.volumes().create_numbered_volume(Some(id), &name("goes"), &new_root()).unwrap();
}

#[test]
fn the_sweep_of_a_removed_volume_goes_on_after_a_crash() {
    let (machine, partition) = opened();
    let volume = partition.volumes().create_volume(&name("goes"), &new_root()).unwrap();
    for _ in 0..4 {
        fill(&volume, 2 * BLOCK_BYTES);
    }
    partition.sync_all().unwrap();
    machine.keep_images();
    partition.remove_volume(volume.id()).unwrap();
    drop(volume);
    while partition.sweep(1).unwrap() > 0 {}
    for (seed, image) in machine.images().into_iter().enumerate() {
        let machine = image.power_loss(seed as u64);
        let partition = Partition::open_memory(&machine, options()).unwrap();
        match partition.volumes().volume_named(b"goes").unwrap() {
            Some(volume) => {
                assert_eq!(volume.usage().bytes, 4096 + 4 * 2 * BLOCK_BYTES);
                assert_eq!(machine.0.lock().files.names().len(), 4);
            }
            None => {
                while partition.sweep(1).unwrap() > 0 {}
                assert_eq!(
                    (kinds(&machine).as_str(), machine.0.lock().files.names().len()),
                    ("", 0)
                );
            }
        }
    }
}

#[test]
fn directories_of_bodies_come_and_go_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition =
        Partition::create(&path, &crate::PartitionConfig::default(), OpenOptions::default())
            .unwrap();
    let volume = partition.volumes().create_volume(&name("v"), &new_root()).unwrap();
    let bodies = || std::fs::read_dir(path.join("bodies")).unwrap().count();
    fill(&volume, 100);
    assert_eq!(bodies(), 0);
    let file = fill(&volume, 2 * BLOCK_BYTES);
    volume.sync_body(&file).unwrap();
    assert_eq!(bodies(), 1);
    partition.remove_volume(volume.id()).unwrap();
    drop(volume);
    while partition.sweep(10).unwrap() > 0 {}
    assert_eq!(bodies(), 0);
}
