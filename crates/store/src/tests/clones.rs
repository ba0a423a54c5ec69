//! Volumes of sealed epochs: what they show stays (VO-1), and exactly the records and files that no
//! volume shows are removed (VO-3).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use types::{Name, Timestamp, VnodeNo, VolumeId, VolumeKind};

use super::world::{Model, Op, World, contents, make_file, name, new_root, op};
use crate::format::header::TreeHeader;
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::Engine;
use crate::{
    BLOCK_BYTES, BodyLocation, NewClone, OpenOptions, Partition, StoreError, Update, Vnode, Volume,
};

/// Visits the vnodes that were changed, created or removed in epochs behind `from` up to `to`,
/// which volumes of this tree show (`to` may be the head's). The order is not defined; a vnode
/// that changed in several epochs is visited several times.
fn each_change(
    volume: &Volume,
    from: u64,
    to: u64,
    visit: &mut dyn FnMut(VnodeNo) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let shown =
        |header: &TreeHeader, epoch| header.sealed.iter().any(|sealed| sealed.epoch == epoch);
    let header = volume.tree_state.header.lock();
    let known =
        shown(&header.stored, from) && (shown(&header.stored, to) || to == header.stored.epoch);
    drop(header);
    if !known || from > to {
        return Err(StoreError::Misuse("no volume shows these epochs"));
    }
    let (first, end) =
        (key::changes(volume.tree_state.id, from + 1), key::changes(volume.tree_state.id, to + 1));
    volume.tree_state.media.engine.scan(&first, &end, &mut |key, _| match (
        key::number_at(key, 2),
        key::number_at(key, 3),
    ) {
        (Some(no), None) => visit(VnodeNo(no)),
        // A bucket of a directory; the directory has its own note.
        _ => ControlFlow::Continue(()),
    })
}

fn clone_of(of: &Volume, text: &str) -> NewClone {
    let name = Name::new(text.as_bytes()).unwrap();
    assert!(of.is_writable());
    NewClone {
        id: None,
        name,
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(3, 3),
        replaces: None,
    }
}

fn create(volume: &Volume, number: u8, length: u64) -> Vnode {
    make_file(volume, &name(number), |vnode, update| {
        volume.body(vnode, update).unwrap().write(0, &vec![number; length as usize]).unwrap();
    })
}

fn write(volume: &Volume, no: VnodeNo, offset: u64, data: &[u8]) -> Vnode {
    let mut vnode = volume.vnode(no).unwrap().unwrap();
    let mut update = Update::new();
    volume.body(&mut vnode, &mut update).unwrap().write(offset, data).unwrap();
    update.put_vnode(&vnode);
    volume.commit(update).unwrap();
    vnode
}

fn name_of(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn sweep(partition: &Partition) {
    while partition.sweep(7).unwrap() > 0 {}
}

fn changed(volume: &Volume, from: u64, to: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let visit = &mut |no: VnodeNo| {
        found.push(no.0);
        ControlFlow::Continue(())
    };
    each_change(volume, from, to, visit).unwrap();
    found
}

/// Every record of trees is visible in some view, every tombstone hides a record, and notes of
/// changes exist only for epochs that need them.
fn nothing_needless(world: &World) {
    let mut trees = Vec::new();
    let mut visit = |id, _| {
        trees.push(id);
        true
    };
    world.partition.volumes().trees().each_tree(0, 100, &mut visit).unwrap();
    let tree_state = |id: VolumeId| world.partition.volumes().trees().tree(id).unwrap().unwrap();
    let tree_states: BTreeMap<u64, _> =
        trees.into_iter().map(|id| (id.0, tree_state(id))).collect();
    // The shown epochs, including those that are origins of writable clones.
    let shown_of = |tree: u64| -> Vec<u64> {
        let header = tree_states[&tree].header.lock().stored.clone();
        let head = header.head.has_head().then_some(u64::MAX);
        header.sealed.iter().map(|sealed| sealed.epoch).chain(head).collect()
    };
    let tree_of = |key: &[u8]| key::number_at(key, 0).unwrap();
    let mut records: BTreeMap<Vec<u8>, Vec<(u64, bool)>> = BTreeMap::new();
    let machine = world.machine.0.lock();
    for (key, value) in machine.log.records() {
        if b"veisx".contains(&key[0]) {
            let (prefix, _) = key.split_at(key.len() - key::EPOCH_BYTES);
            records
                .entry(prefix.to_vec())
                .or_default()
                .push((key::epoch_of(key), record::is_tombstone(value)));
        }
        if key[0] == kind::CHANGE {
            let oldest = tree_states[&tree_of(key)]
                .header
                .lock()
                .stored
                .sealed
                .first()
                .map(|sealed| sealed.epoch);
            assert!(
                oldest.is_some_and(|oldest| key::number_at(key, 1).unwrap() > oldest),
                "{}",
                key.escape_ascii()
            );
        }
        assert!(key[0] != kind::REMOVAL, "{}", key.escape_ascii());
    }
    let files = machine.files.names();
    let vnodes: Vec<VnodeNo> = machine
        .log
        .keys()
        .filter(|key| key[0] == kind::VNODE)
        .map(|key| VnodeNo(key::number_at(key, 1).unwrap()))
        .collect();
    drop(machine);
    for (prefix, mut versions) in records {
        versions.sort_unstable();
        let shown = shown_of(tree_of(&prefix));
        let seen = |at: usize| {
            let next = versions.get(at + 1).map_or(u64::MAX, |(epoch, _)| epoch - 1);
            let last = at + 1 == versions.len();
            shown.iter().any(|shown| {
                if *shown == u64::MAX { last } else { (versions[at].0..=next).contains(shown) }
            })
        };
        for (at, version) in versions.iter().enumerate() {
            assert!(
                seen(at),
                "{version:?} of {} is seen by none of {shown:?}",
                prefix.escape_ascii()
            );
        }
        let hides =
            !versions[0].1 || tree_states[&tree_of(&prefix)].head().inherits(&prefix).unwrap();
        assert!(hides, "the tombstone of {} hides nothing", prefix.escape_ascii());
    }
    let mut named: Vec<_> = Vec::new();
    for volume in world.partition.volumes().list(VolumeId(0), 100).unwrap() {
        let mut next = Some(world.partition.volumes().volume(volume.id).unwrap().unwrap().tree());
        while let Some(tree) = next {
            for no in vnodes.iter().copied() {
                named.extend(tree.own_vnode(no).unwrap().and_then(|vnode| tree.body_name(&vnode)));
            }
            next = tree.origin.clone();
        }
    }
    named.sort_unstable();
    named.dedup();
    assert_eq!(files, named);
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(
        op().prop_filter("leaves files behind", |op| !matches!(op, Op::PowerLoss(_))),
        1..60,
    )
}

fn config() -> ProptestConfig {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64);
    ProptestConfig {
        cases,
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

impl World {
    fn step(&mut self, op: &Op) {
        if let Op::Turn(turn) = *op {
            self.turn(turn);
        }
        if matches!(op, Op::Kill) {
            self.reopen(self.machine.clone());
        }
        let made = if matches!(op, Op::Create(_)) {
            self.volume.slots().unwrap().allocate(false).unwrap().0
        } else {
            VnodeNo(0)
        };
        let earlier = self.model.clone();
        self.apply_model(op, made);
        self.apply_store(op, &earlier, made);
        if let Op::Abandon { .. } = op {
            self.model = self.found();
        }
    }

    /// Sweeps to the end, and checks that no superfluous records are left.
    fn sweep_all(&mut self) {
        self.partition.sync_all().unwrap();
        sweep(&self.partition);
        nothing_needless(self);
        assert_eq!(self.found(), self.model);
        assert_eq!(self.scrub_all(), []);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_shown_stays_and_all_else_goes(
        encrypted in any::<bool>(),
        ops in ops(),
        order in prop::collection::vec(0..4_u8, 8),
    ) {
        let mut world = World::new_as(encrypted);
        for op in &ops {
            world.step(op);
            prop_assert_eq!(world.found(), world.model.clone(), "after {:?}", op);
            if matches!(op, Op::Sweep) {
                world.sweep_all();
            }
        }
        for number in order.into_iter().chain(0..4) {
            for turn in [number, 0, 1, 2, 3] {
                world.step(&Op::Turn(turn));
                world.step(&Op::RemoveClone(number));
            }
            world.step(&Op::Remove(number));
            world.sweep_all();
        }
        for fork in 0..4 {
            world.step(&Op::RemoveFork(fork));
            world.sweep_all();
        }
        // The clones of volumes that were removed before them.
        for left in world.partition.volumes().list(VolumeId(0), 100).unwrap() {
            if left.kind != VolumeKind::ReadWrite {
                world.partition.remove_volume(left.id).unwrap();
                world.model.clones.remove(left.name.as_bytes());
                world.sweep_all();
            }
        }
        // As if there had never been any clones; but the tree records that its records may be of
        // other epochs.
        let left = if world.volume.tree_state.origin.is_none() { &b"Wcdgu"[..] } else { b"Wdgu" };
        let is_left = |key: &&Vec<u8>| left.contains(&key[0]);
        prop_assert_eq!(world.machine.0.lock().log.keys().filter(is_left).count(), 0);
        let id = world.volume.id();
        world.partition.remove_volume(id).unwrap();
        let World { machine, partition, volume, .. } = world;
        drop(volume);
        sweep(&partition);
        prop_assert!(machine.0.lock().log.keys().all(|key| key[0] == kind::PARTITION));
        prop_assert_eq!(machine.0.lock().files.names(), []);
    }

    /// The read-write volume is removed first: its clones stay whole, and the last of them removes
    /// the tree.
    #[test]
    fn clones_outlive_the_volume_that_they_were_made_of(
        encrypted in any::<bool>(),
        ops in ops(),
        order in prop::collection::vec(0..4_u8, 4),
    ) {
        let mut world = World::new_as(encrypted);
        ops.iter().for_each(|op| world.step(op));
        (0..4).for_each(|turn| world.step(&Op::RemoveFork(turn)));
        let World { machine, partition, volume, mut model, .. } = world;
        partition.remove_volume(volume.id()).unwrap();
        prop_assert!(partition.volumes().volume(volume.id()).unwrap().is_none());
        drop(volume);
        for number in order.into_iter().chain(0..4) {
            sweep(&partition);
            let shown = |id| contents(&partition.volumes().volume(id).unwrap().unwrap());
            let listed = partition.volumes().list(VolumeId(0), 100).unwrap();
            let found: BTreeMap<Vec<u8>, Model> = listed
                .iter()
                .map(|listed| (listed.name.as_bytes().to_vec(), shown(listed.id)))
                .collect();
            prop_assert_eq!(&found, &model.clones);
            let findings = partition.scrub(&mut |_| {}, &false.into()).unwrap().findings;
            prop_assert_eq!(findings, []);
            let names = ["", "w1.", "w2.", "w3."].map(|clone| format!("{clone}c{number}"));
            for name in names.map(String::into_bytes) {
                let there = partition.volumes().volume_named(&name).unwrap();
                let Some(volume) = there else { continue };
                let (id, tree) = (volume.id(), volume.tree_id());
                partition.remove_volume(id).unwrap();
                model.clones.remove(&name);
                // No volume gets the tree's number before all of the tree is removed.
                let (other, volumes) = (name_of("again"), partition.volumes());
                let again = volumes.create_numbered_volume(Some(tree), &other, &new_root());
                prop_assert!(
                    matches!(again, Err(StoreError::Taken("number") | StoreError::Busy(_)))
                );
                // A caller with the clone still sees it.
                sweep(&partition);
                prop_assert_eq!(&contents(&volume), &found[&name]);
            }
        }
        sweep(&partition);
        prop_assert!(machine.0.lock().log.keys().all(|key| key[0] == kind::PARTITION));
        prop_assert_eq!(machine.0.lock().files.names(), []);
    }
}

/// Kernels may have the head's file as long as the vnode lives (PT-4): the clone gets the copy.
#[test]
fn the_head_goes_on_in_its_file_and_the_clone_gets_a_copy() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let changed_later = create(volume, 1, 5 * BLOCK_BYTES);
    let untouched = create(volume, 2, 3 * BLOCK_BYTES);
    let clone = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "clone")).unwrap();
    let files = || world.machine.0.lock().files.names().len();
    assert_eq!(files(), 2);
    let now = write(volume, changed_later.no(), BLOCK_BYTES, b"new");
    assert_eq!((now.place, files()), (changed_later.place, 3));
    write(volume, changed_later.no(), 0, b"again");
    assert_eq!(files(), 3, "one copy per epoch");
    let old = clone.vnode(changed_later.no()).unwrap().unwrap();
    assert_ne!(old.place, now.place);
    assert_eq!(
        clone.reader_of(&old).unwrap().read(0, 1 << 20).unwrap(),
        vec![1; 5 * BLOCK_BYTES as usize]
    );
    assert_eq!(clone.vnode(untouched.no()).unwrap().unwrap().place, untouched.place);
    // A second clone shares the file with the head again, and the first one keeps its copy.
    let second =
        partition.volumes().clone_volume(volume.id(), &clone_of(volume, "second")).unwrap();
    write(volume, changed_later.no(), 0, b"third");
    assert_eq!(files(), 4);
    assert_eq!(clone.vnode(changed_later.no()).unwrap().unwrap(), old);
    let middle = second.vnode(changed_later.no()).unwrap().unwrap();
    assert_eq!(second.reader_of(&middle).unwrap().read(0, 6).unwrap(), &b"again\x01"[..]);
    // A cut to length 0 makes no copy if no kernel has the file.
    let mut cut = volume.vnode(untouched.no()).unwrap().unwrap();
    let mut update = Update::new();
    volume.body(&mut cut, &mut update).unwrap().truncate(0).unwrap();
    update.put_vnode(&cut);
    volume.commit(update).unwrap();
    assert_eq!(files(), 4);
    assert_eq!(
        clone.reader_of(&untouched_in(&clone, untouched.no())).unwrap().read(0, 1).unwrap(),
        [2][..]
    );
    assert_eq!(world.scrub_all(), []);
}

fn untouched_in(volume: &Volume, no: VnodeNo) -> Vnode {
    volume.vnode(no).unwrap().unwrap()
}

#[test]
fn a_clone_refuses_changes_and_hands_nothing_out() {
    let world = World::new();
    let file = create(&world.volume, 1, 2 * BLOCK_BYTES);
    let clone = world
        .partition
        .volumes()
        .clone_volume(world.volume.id(), &clone_of(&world.volume, "clone"))
        .unwrap();
    let mut vnode = clone.vnode(file.no()).unwrap().unwrap();
    let mut update = Update::new();
    let read_only =
        |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::ReadOnly(_))));
    read_only(clone.body(&mut vnode, &mut update).and_then(|mut body| body.write(0, b"x")));
    read_only(clone.body(&mut vnode, &mut update).and_then(|mut body| body.truncate(0)));
    read_only(clone.body(&mut vnode, &mut update).and_then(|mut body| body.lend()));
    read_only(clone.slots().and_then(|slots| slots.allocate(false)).map(drop));
    update.put_vnode(&vnode);
    read_only(clone.commit(update));
    assert!(clone.reader(file.no()).unwrap().unwrap().open_body().unwrap().is_none());
    assert_eq!(
        (clone.kind(), clone.is_writable(), clone.tree_id()),
        (VolumeKind::Snapshot, false, world.volume.id())
    );
    assert_eq!(clone.usage(), world.volume.usage());
}

#[test]
fn a_seal_waits_for_who_writes() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let mut file = create(volume, 1, 2 * BLOCK_BYTES);
    // An update that holds a body is wholly before the seal or behind it.
    let mut update = Update::new();
    volume.body(&mut file, &mut update).unwrap().write(0, b"before").unwrap();
    update.put_vnode(&file);
    let clone = std::thread::scope(|scope| {
        let sealing = scope.spawn(|| {
            partition.volumes().clone_volume(volume.id(), &clone_of(volume, "clone")).unwrap()
        });
        // In either order: the seal waits for the body, or has not begun.
        std::thread::yield_now();
        volume.commit(update).unwrap();
        sealing.join().unwrap()
    });
    write(volume, file.no(), 0, b"behind");
    let sealed = clone.vnode(file.no()).unwrap().unwrap();
    assert_eq!(clone.reader_of(&sealed).unwrap().read(0, 6).unwrap(), &b"before"[..]);
    assert_eq!(world.scrub_all(), []);
}

#[test]
fn clones_of_clones_and_in_the_place_of_others() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let file = create(volume, 1, 100);
    let first = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "backup")).unwrap();
    write(volume, file.no(), 0, b"x");
    let twin = partition.volumes().clone_volume(first.id(), &clone_of(volume, "twin")).unwrap();
    assert_eq!((twin.epoch(), contents(&twin)), (first.epoch(), contents(&first)));
    let taken = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "backup"));
    assert!(matches!(taken, Err(StoreError::Taken("name"))));
    let replaces = Some(first.id());
    let again = NewClone { replaces, kind: VolumeKind::Backup, ..clone_of(volume, "backup") };
    let second = partition.volumes().clone_volume(volume.id(), &again).unwrap();
    assert!(partition.volumes().volume(first.id()).unwrap().is_none());
    assert_eq!(partition.volumes().volume_named(b"backup").unwrap().unwrap().id(), second.id());
    for wrong in [volume.id(), VolumeId(99)] {
        let wrong = NewClone { replaces: Some(wrong), ..clone_of(volume, "other") };
        assert!(partition.volumes().clone_volume(volume.id(), &wrong).is_err());
    }
    drop(first);
    sweep(partition);
    // The twin showed the same epoch.
    let old = twin.vnode(file.no()).unwrap().unwrap();
    assert_eq!(twin.reader_of(&old).unwrap().read(0, 1).unwrap(), [1][..]);
    assert_eq!(world.scrub_all(), []);
}

#[test]
fn a_clone_replaced_under_its_number_shows_the_old_or_the_new() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let file = create(volume, 1, 2 * BLOCK_BYTES);
    let old = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "kept")).unwrap();
    let shows =
        |of: &Volume| of.reader_of(&untouched_in(of, file.no())).unwrap().read(0, 1).unwrap();
    for round in [7, 8, 9] {
        write(volume, file.no(), 0, &[round]);
        let new =
            NewClone { id: Some(old.id()), replaces: Some(old.id()), ..clone_of(volume, "kept") };
        let now = partition.volumes().clone_volume(volume.id(), &new).unwrap();
        assert_eq!(
            (now.id(), now.epoch(), shows(&now)),
            (old.id(), volume.epoch() - 1, [round].to_vec().into())
        );
        assert!(old.is_gone() && !now.is_gone());
        assert!(std::sync::Arc::ptr_eq(
            &now,
            &partition.volumes().volume(old.id()).unwrap().unwrap()
        ));
        // A caller with the old clone sees the old state.
        sweep(partition);
        assert_eq!(shows(&old), [1][..]);
    }
    // A clone of another clone can replace it too: the epoch is that clone's.
    let other = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "other")).unwrap();
    let new = NewClone { id: Some(old.id()), replaces: Some(old.id()), ..clone_of(volume, "kept") };
    let now = partition.volumes().clone_volume(other.id(), &new).unwrap();
    assert_eq!(now.epoch(), other.epoch());
    partition.remove_volume(other.id()).unwrap();
    drop((old, other));
    sweep(partition);
    assert_eq!(shows(&now), [9][..]);
    nothing_needless(&world);
}

#[test]
fn what_was_changed_between_two_clones_is_known() {
    let world = World::new();
    let (volume, partition) = (&world.volume, &world.partition);
    let files: Vec<Vnode> = (0..10).map(|number| create(volume, number, 10)).collect();
    let first = partition.volumes().clone_volume(volume.id(), &clone_of(volume, "first")).unwrap();
    write(volume, files[3].no(), 0, b"x");
    write(volume, files[3].no(), 0, b"y");
    let second =
        partition.volumes().clone_volume(volume.id(), &clone_of(volume, "second")).unwrap();
    let new = create(volume, 20, 10);
    assert_eq!(changed(volume, first.epoch(), second.epoch()), [files[3].no().0]);
    assert_eq!(changed(volume, second.epoch(), volume.epoch()), [VnodeNo::ROOT.0, new.no().0]);
    assert_eq!(changed(&second, first.epoch(), volume.epoch()).len(), 3);
    partition.remove_volume(second.id()).unwrap();
    drop(second);
    sweep(partition);
    assert_eq!(changed(volume, first.epoch(), volume.epoch()).len(), 3);
    let other =
        each_change(volume, first.epoch() + 1, volume.epoch(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(other, Err(StoreError::Misuse(_))));
}

/// Each step of the removal of a clone, with power lost at each sync: the clone is whole, or the
/// records that only it showed are removed.
#[test]
fn removals_go_on_after_a_loss_of_power() {
    let mut world = World::new();
    for file in 0..4 {
        world.step(&Op::Create(file));
        world.step(&Op::Write { file, offset: 0, length: 2 * BLOCK_BYTES, byte: 1 });
    }
    for number in 0..3 {
        world.step(&Op::Clone(number));
        world.step(&Op::Write { file: number, offset: 5, length: 9, byte: 7 });
        world.step(&Op::Remove(3 - number));
    }
    world.partition.sync_all().unwrap();
    let before = world.model.clone();
    world.machine.keep_images();
    world.step(&Op::RemoveClone(1));
    while world.partition.sweep(1).unwrap() > 0 {
        world.partition.sync().unwrap();
    }
    for (seed, image) in world.machine.images().into_iter().enumerate() {
        let mut found = World::new();
        found.reopen(image.power_loss(seed as u64));
        let shows = found.found();
        assert!(shows == before || shows == world.model, "image {seed}");
        found.model = shows;
        found.step(&Op::RemoveClone(1));
        found.sweep_all();
    }
}

#[test]
fn on_real_files_a_copy_keeps_holes_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition =
        Partition::create(&path, &crate::PartitionConfig::default(), OpenOptions::default())
            .unwrap();
    let volume = partition.volumes().create_volume(&Name::new(b"v").unwrap(), &new_root()).unwrap();
    let file = create(&volume, 1, 2 * BLOCK_BYTES);
    write(&volume, file.no(), 1 << 30, b"far");
    let clone = partition.volumes().clone_volume(volume.id(), &clone_of(&volume, "clone")).unwrap();
    let now = write(&volume, file.no(), 3, b"new");
    let old = clone.vnode(file.no()).unwrap().unwrap();
    assert_ne!(old.place, now.place);
    assert!(matches!(old.place, BodyLocation::File { .. }));
    assert_eq!(clone.reader_of(&old).unwrap().read(0, 8).unwrap(), [1; 8][..]);
    assert_eq!(clone.reader_of(&old).unwrap().read(1 << 30, 8).unwrap(), &b"far"[..]);
    assert_eq!(
        volume.reader_of(&now).unwrap().read(0, 8).unwrap(),
        &b"\x01\x01\x01new\x01\x01"[..]
    );
    let of = |place| match place {
        BodyLocation::File { epoch, generation, .. } => path.join(format!(
            "bodies/1/{:02x}/{:x}.{epoch:x}.{generation:x}",
            (file.no().0 >> 1) & 0xff,
            file.no().0
        )),
        _ => unreachable!(),
    };
    use std::os::unix::fs::MetadataExt;
    let copy = std::fs::metadata(of(old.place)).unwrap();
    assert_eq!(copy.len(), (1 << 30) + 3);
    assert!(copy.blocks() * 512 < 1 << 20, "holes are kept");
    let findings = partition.scrub(&mut |_| {}, &false.into()).unwrap().findings;
    assert_eq!(findings, []);
    drop((clone, volume));
    let partition = {
        drop(partition);
        Partition::open(&path, OpenOptions::default()).unwrap()
    };
    let clone = partition.volumes().volume_named(b"clone").unwrap().unwrap();
    assert_eq!(
        clone.reader_of(&clone.vnode(file.no()).unwrap().unwrap()).unwrap().read(0, 8).unwrap(),
        [1; 8][..]
    );
}

/// The head owns the file alone again when the volume of the only epoch that shared it is removed:
/// no unnamed copy is made.
#[test]
fn a_body_that_is_shared_no_more_is_not_copied() {
    let world = World::new();
    let file = create(&world.volume, 1, 70_000);
    let kept = world
        .partition
        .volumes()
        .clone_volume(world.volume.id(), &clone_of(&world.volume, "kept"))
        .unwrap();
    write(&world.volume, file.no(), 0, b"one");
    let gone = world
        .partition
        .volumes()
        .clone_volume(world.volume.id(), &clone_of(&world.volume, "gone"))
        .unwrap();
    // Puts a record in the next epoch, before the body changes.
    let mut vnode = world.volume.vnode(file.no()).unwrap().unwrap();
    vnode.status.mode = 0o640;
    let mut update = Update::new();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
    let id = gone.id();
    drop(gone);
    world.partition.remove_volume(id).unwrap();
    write(&world.volume, file.no(), 5, b"two");
    sweep(&world.partition);
    assert_eq!(world.machine.0.lock().files.names().len(), 2, "the head's, and that of the clone");
    let shown = kept.vnode(file.no()).unwrap().unwrap();
    assert_eq!(kept.reader_of(&shown).unwrap().read(0, 3).unwrap(), [1; 3][..]);
}

/// The head shared its file with a clone that is gone, and goes on with a record that does not say
/// so. When the vnode goes, its file goes too: no other record names it.
#[test]
fn a_body_that_is_shared_no_more_goes_with_its_vnode() {
    let world = World::new();
    let file = create(&world.volume, 1, 70_000);
    let kept = world
        .partition
        .volumes()
        .clone_volume(world.volume.id(), &clone_of(&world.volume, "kept"))
        .unwrap();
    write(&world.volume, file.no(), 0, b"one");
    let gone = world
        .partition
        .volumes()
        .clone_volume(world.volume.id(), &clone_of(&world.volume, "gone"))
        .unwrap();
    let mut vnode = world.volume.vnode(file.no()).unwrap().unwrap();
    vnode.status.mode = 0o640;
    let mut update = Update::new();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
    let id = gone.id();
    drop(gone);
    world.partition.remove_volume(id).unwrap();
    sweep(&world.partition);
    let vnode = world.volume.vnode(file.no()).unwrap().unwrap();
    let mut update = Update::new();
    world.volume.drop_vnode(&vnode, &mut update).unwrap();
    world.volume.commit(update).unwrap();
    sweep(&world.partition);
    assert_eq!(world.machine.0.lock().files.names().len(), 1, "that of the clone");
    let shown = kept.vnode(file.no()).unwrap().unwrap();
    assert_eq!(kept.reader_of(&shown).unwrap().read(0, 3).unwrap(), [1; 3][..]);
}
