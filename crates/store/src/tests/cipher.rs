//! Encrypted volumes: the disk has no file content in the clear, without the key no content is
//! readable, and with it all is. The other suites, which create encrypted volumes too, test
//! crashes, clones and streams.

use std::sync::Arc;

use types::{
    Fid, KeyKeeper, Kind, Name, StreamCursor, Timestamp, TreeKey, VnodeNo, VolumeId, VolumeKind,
};

use super::world::{Keys, World, make_file, name, new_root, options};
use crate::format::record::TreeKeyRecord;
use crate::media::engine::{Batch, Engine};
use crate::{
    BLOCK_BYTES, MemMachine, NewClone, OpenOptions, Partition, StoreError, Update, Vnode, Volume,
};

const SECRET: &[u8] = b"the launch is at dawn. ";

fn secret(bytes: usize) -> Vec<u8> {
    SECRET.iter().copied().cycle().take(bytes).collect()
}

/// Whether any data on the machine's disk contains the text.
fn shows(machine: &MemMachine, text: &[u8]) -> bool {
    let machine = machine.0.lock();
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    machine.log.records().any(|(_, value)| has(value))
        || machine.files.contents().iter().any(|file| has(file))
}

/// An inline file, one in a file of its own, sealed epochs of both, and the target of a link.
fn fill(world: &World) {
    let volume = &world.volume;
    let [short, long] = [(1, 400), (2, 100_003)].map(|(number, bytes)| {
        make_file(volume, &name(number), |vnode, update| {
            volume.body(vnode, update).unwrap().write(0, &secret(bytes)).unwrap();
        })
    });
    let seen = Name::new(b"seen").unwrap();
    let clone = NewClone {
        id: None,
        name: seen,
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(3, 3),
        replaces: None,
    };
    world.partition.volumes().clone_volume(volume.id(), &clone).unwrap();
    for vnode in [short, long] {
        let mut update = Update::new();
        let mut vnode = volume.vnode(vnode.no()).unwrap().unwrap();
        volume.body(&mut vnode, &mut update).unwrap().write(17, SECRET).unwrap();
        update.put_vnode(&vnode);
        volume.commit(update).unwrap();
    }
    world.partition.sync_all().unwrap();
    while world.partition.sweep(100).unwrap() > 0 {}
}

fn read(volume: &Volume, number: u8) -> Result<Vec<u8>, StoreError> {
    let entry = volume.lookup(VnodeNo::ROOT, name(number).as_bytes())?.unwrap();
    let vnode = volume.vnode(entry.target.vnode)?.unwrap();
    volume.reader_of(&vnode).and_then(|reader| reader.read(0, 1 << 20)).map(|bytes| bytes.to_vec())
}

#[test]
fn nothing_is_on_the_disk_in_the_clear() {
    for encrypted in [false, true] {
        let world = World::new_as(encrypted);
        fill(&world);
        assert_eq!(shows(&world.machine, SECRET), !encrypted, "encrypted: {encrypted}");
        assert_eq!(world.volume.is_encrypted(), encrypted);
        let seen = world.partition.volumes().volume_named(b"seen").unwrap().unwrap();
        assert_eq!(read(&seen, 1).unwrap(), secret(400));
        assert_eq!(read(&seen, 2).unwrap(), secret(100_003));
    }
}

/// The sums of a body's blocks as they would be in its records: two adjacent ones, and the last
/// with the hole behind it. Eight random bytes do not match one by chance.
fn sums_of(body: &[u8]) -> Vec<[u8; 8]> {
    let sums: Vec<u32> =
        body.chunks(BLOCK_BYTES as usize).map(crate::format::sums::of_block).chain([0]).collect();
    let pair = |pair: &[u32]| -> [u8; 8] {
        [pair[0].to_le_bytes(), pair[1].to_le_bytes()].concat().try_into().unwrap()
    };
    sums.windows(2).map(pair).collect()
}

/// A sum confirms a guess of its block, whatever the cipher of the block.
#[test]
fn m11_no_sum_of_a_plain_block_is_on_the_disk() {
    for encrypted in [false, true] {
        let world = World::new_as(encrypted);
        fill(&world);
        let volume = &world.volume;
        // More than one group, changed in the head and in a clone, with new sums after a loss of
        // power.
        let large: Vec<u8> = (0..(1 << 20) + 50_000_u32).map(|at| (at / 1000) as u8).collect();
        make_file(volume, &name(3), |vnode, update| {
            volume.body(vnode, update).unwrap().write(0, &large).unwrap();
        });
        let new = crate::NewFork {
            id: None,
            name: Name::new(b"fork").unwrap(),
            quota: None,
            now: Timestamp::new(4, 4),
        };
        let fork = world.partition.volumes().fork_volume(volume.id(), &new).unwrap();
        assert_eq!(read(&fork, 3).unwrap(), large[..1 << 20]);
        world.partition.sync_all().unwrap();
        let mut found = 0;
        for body in [&secret(100_003), &large] {
            found += sums_of(body).iter().filter(|pair| shows(&world.machine, &pair[..])).count();
        }
        assert_eq!(found == 0, encrypted, "{found} sums, encrypted: {encrypted}");
        let machine = world.machine.power_loss(1);
        drop((fork, world));
        let partition = Partition::open_memory(&machine, options()).unwrap();
        for of in [&b"root"[..], b"fork", b"seen"] {
            let volume = partition.volumes().volume_named(of).unwrap().unwrap();
            assert_eq!(read(&volume, 2).unwrap().len(), 100_003);
        }
        let found = sums_of(&large).iter().filter(|pair| shows(&machine, &pair[..])).count();
        assert_eq!(found == 0, encrypted);
    }
}

#[test]
fn m11_a_volume_whose_sums_lie_in_the_clear_is_refused() {
    let world = World::new_as(true);
    fill(&world);
    let World { machine, partition, volume, .. } = world;
    let tree = volume.id();
    drop(volume);
    let key = crate::format::key::cipher(tree);
    let record =
        TreeKeyRecord::decode(&key, &partition.0.media.engine.get(&key).unwrap().unwrap()).unwrap();
    assert!(record.seals_sums);
    let mut batch = Batch::default();
    batch.put(&key, &TreeKeyRecord { seals_sums: false, ..record }.encode(&key));
    partition.0.media.apply(&batch).unwrap();
    partition.sync().unwrap();
    drop(partition);
    let partition = Partition::open_memory(&machine, options()).unwrap();
    let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
    for number in [1, 2] {
        let refused = read(&volume, number).unwrap_err();
        assert!(
            matches!(&refused, StoreError::Locked(why) if why.contains("older program")),
            "{refused:?}"
        );
    }
    let new = crate::NewFork {
        id: None,
        name: Name::new(b"fork").unwrap(),
        quota: None,
        now: Timestamp::new(4, 4),
    };
    assert!(matches!(
        partition.volumes().fork_volume(tree, &new).map(drop),
        Err(StoreError::Locked(_))
    ));
    assert_eq!(
        partition.volumes().list(VolumeId(0), 1).unwrap()[0].encrypted,
        Some(7),
        "it is listed"
    );
}

#[test]
fn without_the_key_nothing_can_be_had_and_nothing_is_lost() {
    let world = World::new_as(true);
    fill(&world);
    let plain = world
        .partition
        .volumes()
        .create_volume(&Name::new(b"plain").unwrap(), &new_root())
        .unwrap();
    make_file(&plain, &name(1), |vnode, update| {
        plain.body(vnode, update).unwrap().write(0, b"open").unwrap();
    });
    world.partition.sync_all().unwrap();
    let World { machine, partition, volume, .. } = world;
    drop((partition, volume, plain));
    {
        let partition =
            Partition::open_memory(&machine, OpenOptions { keys: None, ..options() }).unwrap();
        let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
        for number in [1, 2] {
            assert!(matches!(read(&volume, number), Err(StoreError::Locked(_))));
        }
        let (vnode, unique) = volume.slots().unwrap().allocate(false).unwrap();
        let fid = Fid { volume: volume.id(), vnode, unique };
        let new = Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
        for length in [10, 100_000] {
            let (mut vnode, mut update) = (new.clone(), Update::new());
            let written = volume
                .body(&mut vnode, &mut update)
                .and_then(|mut body| body.write(0, &secret(length)));
            update.put_vnode(&vnode);
            let committed = written.and_then(|()| volume.commit(update));
            assert!(matches!(committed, Err(StoreError::Locked(_))), "{committed:?}");
        }
        let root = Name::new(b"another").unwrap();
        assert!(matches!(
            partition.volumes().create_volume_as(None, &root, &new_root(), true),
            Err(StoreError::Locked(_))
        ));
        let plain = partition.volumes().volume_named(b"plain").unwrap().unwrap();
        assert_eq!(read(&plain, 1).unwrap(), b"open");
    }
    let partition = Partition::open_memory(&machine, options()).unwrap();
    let volume = partition.volumes().volume_named(b"root").unwrap().unwrap();
    assert_eq!(read(&volume, 2).unwrap().len(), 100_003);
    assert!(!shows(&machine, SECRET));
}

#[test]
fn a_copy_is_encrypted_with_a_key_of_its_own_or_refused() {
    let world = World::new_as(true);
    fill(&world);
    let seen = world.partition.volumes().volume_named(b"seen").unwrap().unwrap();
    let part = crate::changes_part(&seen, 0, StreamCursor::START, 0).unwrap();
    let head = crate::StreamPart::open(&part).unwrap().head;
    assert!(head.encrypted);
    let bare = Partition::open_memory(&MemMachine::new(), OpenOptions { keys: None, ..options() })
        .unwrap();
    assert!(matches!(
        bare.streams().begin_incoming(volume_of(&world), &head),
        Err(StoreError::Locked(_))
    ));
    assert!(bare.volumes().trees().tree(volume_of(&world)).unwrap().is_none(), "nothing was begun");
    let (machine, tree) = (MemMachine::new(), volume_of(&world));
    let copy = Partition::open_memory(&machine, options()).unwrap();
    copy.streams().begin_incoming(tree, &head).unwrap();
    let wrapped = |partition: &Partition| partition.0.media.ciphers.wrapped(tree).unwrap().unwrap();
    assert_ne!(wrapped(&copy), wrapped(&world.partition));
}

fn volume_of(world: &World) -> VolumeId {
    world.volume.id()
}

/// A keeper with a new wrapping that also accepts the old one.
#[derive(Debug)]
struct Later;

impl KeyKeeper for Later {
    fn wrap(&self, key: &TreeKey) -> Result<Vec<u8>, String> {
        Ok([b"later", &Keys.wrap(key)?[..]].concat())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<TreeKey, String> {
        Keys.unwrap(wrapped.strip_prefix(b"later").unwrap_or(wrapped))
    }

    fn wrapped_by(&self, wrapped: &[u8]) -> u32 {
        if wrapped.starts_with(b"later") { 8 } else { Keys.wrapped_by(wrapped) }
    }
}

#[test]
fn the_keepers_key_changes_and_no_body_is_written() {
    let world = World::new_as(true);
    fill(&world);
    let World { machine, partition, volume, .. } = world;
    let tree = volume.id();
    drop((partition, volume));
    let before = machine.0.lock().files.contents();
    let partition =
        Partition::open_memory(&machine, OpenOptions { keys: Some(Arc::new(Later)), ..options() })
            .unwrap();
    let key =
        |partition: &Partition| partition.volumes().list(VolumeId(0), 9).unwrap()[0].encrypted;
    assert_eq!(key(&partition), Some(7));
    let rewrapped = partition.wrap_keys_anew().unwrap();
    assert_eq!((rewrapped.wrapped, rewrapped.left.len()), (1, 0));
    assert_eq!(
        (
            key(&partition),
            partition.volumes().volume_named(b"root").unwrap().unwrap().info().encrypted
        ),
        (Some(8), Some(8))
    );
    assert!(partition.0.media.ciphers.wrapped(tree).unwrap().unwrap().starts_with(b"later"));
    drop(partition);
    assert_eq!(machine.0.lock().files.contents(), before);
    let old = Partition::open_memory(&machine, options()).unwrap();
    let volume = old.volumes().volume_named(b"root").unwrap().unwrap();
    assert!(
        matches!(read(&volume, 2), Err(StoreError::Locked(_))),
        "the old keeper does not know it any more"
    );
    old.volumes().create_volume_as(None, &Name::new(b"newer").unwrap(), &new_root(), true).unwrap();
    let rewrapped = old.wrap_keys_anew().unwrap();
    assert_eq!(
        (rewrapped.wrapped, rewrapped.left.len()),
        (1, 1),
        "one that is locked keeps no other"
    );
    drop((old, volume));
    let partition =
        Partition::open_memory(&machine, OpenOptions { keys: Some(Arc::new(Later)), ..options() })
            .unwrap();
    assert_eq!(
        read(&partition.volumes().volume_named(b"root").unwrap().unwrap(), 2).unwrap().len(),
        100_003
    );
}
