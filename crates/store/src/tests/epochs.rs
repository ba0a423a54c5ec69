//! Sealed epochs, constructed directly: a reader of epoch E sees the newest record not newer than
//! E.

use std::sync::Arc;

use types::{Cookie, Fid, Kind, Timestamp, VnodeNo, VolumeId};

use super::world::{World, name};
use crate::format::header::{SealedEpoch, TreeHeader};
use crate::media::engine::Batch;
use crate::tree::state::TreeState;
use crate::volume::Shows;
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
    let usage = [old.used().bytes as i64, old.used().files as i64];
    let tree_state = TreeState::new(old.media.clone(), old.id, header, usage, None);
    Arc::new(Volume::new(tree_state, Shows::Head))
}

fn create(volume: &Volume, number: u8, no: u64, bytes: &[u8]) -> Vnode {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let fid = Fid::new(volume.id().0, no, 1);
    let mut vnode = Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
    update.create_vnode(&vnode);
    volume.body(&mut vnode, &mut update).unwrap().write(0, bytes).unwrap();
    volume.edit(&mut vnode, &mut update).put_xattr(b"user.a", bytes).unwrap();
    volume.edit(&mut dir, &mut update).put_entry(&name(number), vnode.target()).unwrap();
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
    assert_eq!(volume.reader_of(&changed).unwrap().read(0, 100).unwrap(), &b"old 5"[..]);
    assert_eq!(
        volume.lookup(VnodeNo::ROOT, name(5).as_bytes()).unwrap().unwrap().target.vnode,
        VnodeNo(110)
    );
    // Changed, removed, and new in epoch 2.
    let mut update = Update::new();
    volume.body(&mut changed, &mut update).unwrap().write(0, b"new").unwrap();
    volume.edit(&mut changed, &mut update).put_xattr(b"user.a", b"new value").unwrap();
    update.put_vnode(&changed);
    volume.commit(update).unwrap();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let gone = volume.vnode(VnodeNo(112)).unwrap().unwrap();
    let mut update = Update::new();
    volume.edit(&mut dir, &mut update).remove_entry(name(6).as_bytes()).unwrap().unwrap();
    volume.drop_vnode(&gone, &mut update).unwrap();
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    create(&volume, 50, 300, b"young");

    assert_eq!(volume.reader_of(&changed).unwrap().read(0, 100).unwrap(), &b"new 5"[..]);
    assert_eq!(volume.xattr(&changed, b"user.a").unwrap().unwrap(), &b"new value"[..]);
    assert_eq!(volume.xattrs(&changed).unwrap().len(), 1);
    assert!(volume.vnode(VnodeNo(112)).unwrap().is_none());
    assert!(volume.lookup(VnodeNo::ROOT, name(6).as_bytes()).unwrap().is_none());
    let (entries, end) = volume.read_dir(VnodeNo::ROOT, Cookie::START, 1000).unwrap();
    assert_eq!((entries.len(), end), (40, true));

    // Epoch 1 is unchanged.
    let old = &world.volume;
    assert_eq!(old.vnode(VnodeNo(112)).unwrap().unwrap(), gone);
    assert_eq!(
        old.lookup(VnodeNo::ROOT, name(6).as_bytes()).unwrap().unwrap().target.vnode,
        VnodeNo(112)
    );
    assert!(old.lookup(VnodeNo::ROOT, name(50).as_bytes()).unwrap().is_none());
    let (entries, _) = old.read_dir(VnodeNo::ROOT, Cookie::START, 1000).unwrap();
    assert_eq!(entries.len(), 40);
    assert!(entries.iter().all(|entry| entry.name != name(50)));
    let before = old.vnode(VnodeNo(110)).unwrap().unwrap();
    assert_eq!(old.reader_of(&before).unwrap().read(0, 100).unwrap(), &b"old 5"[..]);
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
    let prefix = crate::format::key::of_vnode(crate::format::key::kind::VNODE, volume.id(), no);
    let mut batch = Batch::default();
    for epoch in [1, 4, 9] {
        let key = prefix.epoch(epoch);
        let fid = Fid::new(volume.id().0, no.0, epoch);
        let vnode = Vnode::new(fid, Kind::File, 0, 0, 0, VnodeNo::ROOT, Timestamp::default());
        batch.put(&key, &crate::format::record::encode_vnode(&key, &vnode));
    }
    let key = prefix.epoch(6);
    batch.put(&key, &crate::format::record::tombstone(&key));
    tree.media.apply(&batch).unwrap();
    let at = |epoch| tree.vnode_at(no, epoch).unwrap().map(|vnode| vnode.status.fid.unique.0);
    let seen: Vec<_> = (0..12).map(at).collect();
    let (one, four, nine) = (Some(1), Some(4), Some(9));
    assert_eq!(seen, [None, one, one, one, four, four, None, None, None, nine, nine, nine]);
    assert_eq!(tree.vnode_at(VnodeNo(501), 12).unwrap(), None);
    assert_eq!(tree.id, VolumeId(1));
}
