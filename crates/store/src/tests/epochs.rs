//! Sealed epochs, constructed directly: a reader of epoch E sees the newest record not newer than
//! E.

use std::sync::Arc;

use types::{Fid, Kind, Timestamp, VnodeNo, VolumeId};

use super::world::{World, name};
use crate::engine::Batch;
use crate::header::{SealedEpoch, TreeHeader};
use crate::tree_state::TreeState;
use crate::{Update, Vnode, Volume};

/// The world's volume with epoch 1 sealed and epoch 2 as the head.
fn sealed(world: &World) -> Arc<Volume> {
    let old = &world.volume.tree_state;
    let header = TreeHeader {
        next_slot: 1000,
        epoch: 2,
        sealed: vec![SealedEpoch { epoch: 1, volumes: 1 }],
        ..old.header.lock().stored.clone()
    };
    let usage = *old.usage.lock();
    Arc::new(Volume::head(TreeState::new(old.media.clone(), old.id, header, usage, None)))
}

fn create(volume: &Volume, number: u8, no: u64, bytes: &[u8]) -> Vnode {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let fid = Fid::new(volume.id().0, no, 1);
    let mut vnode = Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
    update.create_vnode(&vnode);
    volume.write(&mut vnode, 0, bytes, &mut update).unwrap();
    volume.put_xattr(&mut vnode, b"user.a", bytes, &mut update).unwrap();
    volume.put_entry(&mut dir, &name(number), vnode.target(), &mut update).unwrap();
    update.put_vnode(&vnode);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    vnode
}

#[test]
fn the_current_epoch_shows_older_records_until_it_has_its_own() {
    let world = World::new();
    for number in 0..40 {
        create(
            &world.volume,
            number,
            100 + u64::from(number) * 2,
            format!("old {number}").as_bytes(),
        );
    }
    let volume = sealed(&world);
    // Visible through the seal.
    let mut changed = volume.vnode(VnodeNo(110)).unwrap().unwrap();
    assert_eq!(volume.read(&changed, 0, 100).unwrap(), &b"old 5"[..]);
    assert_eq!(
        volume.lookup(VnodeNo::ROOT, name(5).as_bytes()).unwrap().unwrap().target.vnode,
        VnodeNo(110)
    );
    // Changed, removed, and new in epoch 2.
    let mut update = Update::new();
    volume.write(&mut changed, 0, b"new", &mut update).unwrap();
    volume.put_xattr(&mut changed, b"user.a", b"new value", &mut update).unwrap();
    update.put_vnode(&changed);
    volume.commit(update).unwrap();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let gone = volume.vnode(VnodeNo(112)).unwrap().unwrap();
    let mut update = Update::new();
    volume.remove_entry(&mut dir, name(6).as_bytes(), &mut update).unwrap().unwrap();
    volume.drop_vnode(&gone, &mut update).unwrap();
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    create(&volume, 50, 300, b"young");

    assert_eq!(volume.read(&changed, 0, 100).unwrap(), &b"new 5"[..]);
    assert_eq!(volume.xattr(&changed, b"user.a").unwrap().unwrap(), &b"new value"[..]);
    assert_eq!(volume.xattrs(&changed).unwrap().len(), 1);
    assert!(volume.vnode(VnodeNo(112)).unwrap().is_none());
    assert!(volume.lookup(VnodeNo::ROOT, name(6).as_bytes()).unwrap().is_none());
    let (entries, end) = volume.read_dir(VnodeNo::ROOT, 0, 1000).unwrap();
    assert_eq!((entries.len(), end), (40, true));

    // Epoch 1 is unchanged.
    let old = &world.volume;
    assert_eq!(old.vnode(VnodeNo(112)).unwrap().unwrap(), gone);
    assert_eq!(
        old.lookup(VnodeNo::ROOT, name(6).as_bytes()).unwrap().unwrap().target.vnode,
        VnodeNo(112)
    );
    assert!(old.lookup(VnodeNo::ROOT, name(50).as_bytes()).unwrap().is_none());
    let (entries, _) = old.read_dir(VnodeNo::ROOT, 0, 1000).unwrap();
    assert_eq!(entries.len(), 40);
    assert!(entries.iter().all(|entry| entry.name != name(50)));
    let before = old.vnode(VnodeNo(110)).unwrap().unwrap();
    assert_eq!(old.read(&before, 0, 100).unwrap(), &b"old 5"[..]);
    assert_eq!(old.xattr(&before, b"user.a").unwrap().unwrap(), &b"old 5"[..]);
    // The same at epoch 1 of the newer volume.
    assert_eq!(volume.tree().vnode_at(VnodeNo(112), 1).unwrap().unwrap(), gone);
    assert_eq!(volume.tree().vnode_at(VnodeNo(300), 1).unwrap(), None);
    let hash = volume.tree().hash(name(6).as_bytes());
    assert!(
        volume
            .tree()
            .bucket_at(VnodeNo::ROOT, hash, 1)
            .unwrap()
            .iter()
            .any(|entry| entry.name == name(6))
    );
}

#[test]
fn the_newest_of_many_epochs_is_found_and_tombstones_end_it() {
    let world = World::new();
    let volume = sealed(&world);
    let tree = &volume.tree();
    let no = VnodeNo(500);
    let prefix = crate::key::of_vnode(crate::key::kind::VNODE, volume.id(), no);
    let mut batch = Batch::default();
    for epoch in [1, 4, 9] {
        let key = prefix.epoch(epoch);
        let fid = Fid::new(volume.id().0, no.0, epoch);
        let vnode = Vnode::new(fid, Kind::File, 0, 0, 0, VnodeNo::ROOT, Timestamp::default());
        batch.put(&key, &crate::record::encode_vnode(&key, &vnode));
    }
    let key = prefix.epoch(6);
    batch.put(&key, &crate::record::tombstone(&key));
    tree.media.apply(&batch).unwrap();
    let at = |epoch| tree.vnode_at(no, epoch).unwrap().map(|vnode| vnode.status.fid.unique.0);
    let seen: Vec<_> = (0..12).map(at).collect();
    let (one, four, nine) = (Some(1), Some(4), Some(9));
    assert_eq!(seen, [None, one, one, one, four, four, None, None, None, nine, nine, nine]);
    assert_eq!(tree.vnode_at(VnodeNo(501), 12).unwrap(), None);
    assert_eq!(tree.id, VolumeId(1));
}
