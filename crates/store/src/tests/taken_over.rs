//! A copy takes over from a volume that was lost, and goes on as a volume like any other: after
//! random histories, with older copies of the lost volume beside it.

use std::sync::Arc;

use proptest::prelude::*;
use types::{Timestamp, VolumeId, VolumeKind};

use super::stream::{Whole, clone_of, config, copied, findings, name, open, send, whole};
use super::world::{Op, World, make_file, op};
use crate::tree::generation::{self, LOST_SLOTS};
use crate::{MemMachine, NewClone, NewFork, NewHead, Partition, StoreError, Update, Volume};

const COPY: u64 = 1000;
const OLDER: u64 = 2000;
/// The name that `World` gives its first volume.
const NAME: &str = "root";
const NOW: Timestamp = Timestamp::new(11, 11);

fn take_over(partition: &Partition) -> Result<Arc<Volume>, StoreError> {
    partition.volumes().regain_head(
        VolumeId(COPY),
        &name(NAME),
        NewHead::TakesOver { above: 0 },
        NOW,
    )
}

/// The same without a change in a volume of the next generation.
fn raised((mut seen, usage): Whole) -> Whole {
    let by = generation::raise(1, generation::next(1));
    for one in seen.values_mut() {
        one.status.data_version = one.status.data_version.raised(by);
        one.status.status_version = one.status.status_version.raised(by);
    }
    (seen, usage)
}

fn filled(world: &World) {
    for (text, length) in [("small", 100), ("large", 40_000)] {
        make_file(&world.volume, &name(text), |vnode, update| {
            world.volume.body(vnode, update).unwrap().write(0, &vec![7; length]).unwrap();
        });
    }
}

fn write(volume: &Volume, text: &str, data: &[u8]) {
    let root = types::VnodeNo::ROOT;
    let no = volume.lookup(root, text.as_bytes()).unwrap().unwrap().target.vnode;
    let mut vnode = volume.vnode(no).unwrap().unwrap();
    let mut update = Update::new();
    volume.body(&mut vnode, &mut update).unwrap().write(5, data).unwrap();
    update.put_vnode(&vnode);
    volume.commit(update).unwrap();
}

#[test]
fn no_number_or_version_of_the_lost_volume_comes_again() {
    let world = World::new();
    filled(&world);
    let copy = open(&MemMachine::new());
    let (released, _) = copied(&clone_of(&world, "one"), &copy, COPY);
    // The copy never learns of these.
    write(&world.volume, "small", b"lost");
    let lost = make_file(&world.volume, &name("lost"), |_, _| {});
    clone_of(&world, "two");
    let before = whole(&released);
    let taken = take_over(&copy).unwrap();
    assert_eq!(whole(&taken), raised(before.clone()));
    assert_eq!(whole(&released), before, "VO-1");
    assert!(taken.is_arriving() && taken.id() == world.volume.id());
    let small = |volume: &Volume| {
        let root = types::VnodeNo::ROOT;
        let no = volume.lookup(root, b"small").unwrap().unwrap().target.vnode;
        volume.vnode(no).unwrap().unwrap().status.data_version
    };
    assert!(small(&taken) > small(&world.volume));
    assert!(taken.info().epoch > world.volume.info().epoch);
    let made = make_file(&taken, &name("made"), |_, _| {});
    assert!(made.no().0 > lost.no().0 + LOST_SLOTS);
    write(&taken, "large", b"ours");
    assert_eq!(whole(&released), before, "VO-1");
    assert_eq!(findings(&copy), []);
}

#[test]
fn a_restart_and_a_second_loss_change_nothing() {
    let world = World::new();
    filled(&world);
    let machine = MemMachine::new();
    let copy = open(&machine);
    copied(&clone_of(&world, "one"), &copy, COPY);
    let first = whole(&take_over(&copy).unwrap());
    // The batch is on disk.
    let copy = open(&machine.power_loss(3));
    let taken = copy.volumes().volume(world.volume.id()).unwrap().unwrap();
    assert!(taken.is_arriving());
    assert_eq!(whole(&taken), first);
    // A copy of the second generation takes over in the third.
    let third = open(&MemMachine::new());
    let new = NewClone {
        id: None,
        name: name("again"),
        kind: VolumeKind::Snapshot,
        now: NOW,
        replaces: None,
    };
    let again = copy.volumes().clone_volume(taken.id(), &new).unwrap();
    copied(&again, &third, COPY);
    let last = take_over(&third).unwrap();
    assert_eq!(whole(&last), raised(first));
    assert_eq!(findings(&third), []);
}

/// The copy's next state comes from elsewhere; it has an epoch that the source never had.
#[test]
fn no_server_goes_on_from_an_epoch_that_a_copy_counted() {
    let world = World::new();
    filled(&world);
    let copy = open(&MemMachine::new());
    let (released, _) = copied(&clone_of(&world, "one"), &copy, COPY);
    let before = whole(&released);
    let refilled = copy
        .volumes()
        .regain_head(VolumeId(COPY), &name("filled"), NewHead::IsRefilled, NOW)
        .unwrap();
    assert_eq!(whole(&refilled), before, "it is the same generation");
    assert!(refilled.is_offline() && refilled.is_arriving());
    write(&refilled, "small", b"other");
    assert_eq!(whole(&released), before, "VO-1");
    let new = NewClone {
        id: Some(VolumeId(COPY)),
        name: released.name(),
        kind: VolumeKind::Snapshot,
        now: NOW,
        replaces: Some(VolumeId(COPY)),
    };
    let shown = copy.volumes().clone_volume(refilled.id(), &new).unwrap();
    assert_eq!(whole(&shown), whole(&refilled));
    copy.remove_volume(refilled.id()).unwrap();
    drop((released, refilled));
    while copy.sweep(1000).unwrap() > 0 {}
    for _ in 0..5 {
        clone_of(&world, &format!("more{}", world.volume.epoch()));
    }
    let newest = clone_of(&world, "newest");
    let refused = send(&newest, shown.epoch(), &copy, shown.tree_id(), &mut |_| false);
    assert!(matches!(refused, Err(StoreError::Misuse(_))), "{refused:?}");
    assert_eq!(findings(&copy), []);
    // And it can be filled once more, above all that it had.
    let last = shown.epoch();
    let again = copy
        .volumes()
        .regain_head(VolumeId(COPY), &name("filled"), NewHead::IsRefilled, NOW)
        .unwrap();
    assert!(again.epoch() > last);
    assert_eq!(whole(&again), whole(&shown));
}

#[test]
fn a_clone_of_a_volume_that_took_over_shows_the_same() {
    let world = World::new();
    filled(&world);
    let copy = open(&MemMachine::new());
    copied(&clone_of(&world, "one"), &copy, COPY);
    let taken = take_over(&copy).unwrap();
    write(&taken, "small", b"ours");
    let fork = NewFork { id: None, name: name("fork"), quota: None, now: NOW };
    let fork = copy.volumes().fork_volume(taken.id(), &fork).unwrap();
    assert_eq!(whole(&fork), whole(&taken));
    write(&fork, "small", b"mine");
    assert_eq!(findings(&copy), []);
}

#[test]
fn what_cannot_take_over_says_why_and_stays() {
    let world = World::new();
    filled(&world);
    let copy = open(&MemMachine::new());
    assert!(matches!(take_over(&copy), Err(StoreError::NoVolume(_))));
    let (released, _) = copied(&clone_of(&world, "one"), &copy, COPY);
    let before = whole(&released);
    // A part of a newer epoch is there.
    write(&world.volume, "large", &[9; 200_000]);
    let newer = clone_of(&world, "two");
    let tree = world.volume.id();
    assert!(!send(&newer, released.epoch(), &copy, tree, &mut |_| true).unwrap());
    assert!(matches!(take_over(&copy), Err(StoreError::Busy(_))));
    // All of it is there, under another volume.
    copied(&newer, &copy, OLDER);
    assert!(matches!(take_over(&copy), Err(StoreError::Misuse(_))));
    copy.remove_volume(VolumeId(OLDER)).unwrap();
    while copy.sweep(100).unwrap() > 0 {}
    let other = world.partition.volumes().regain_head(
        newer.id(),
        &name("x"),
        NewHead::TakesOver { above: 0 },
        NOW,
    );
    assert!(matches!(other, Err(StoreError::Taken(_))), "the volume is there");
    assert_eq!(whole(&take_over(&copy).unwrap()), raised(before));
    assert!(matches!(take_over(&copy), Err(StoreError::Taken(_))));
    assert_eq!(findings(&copy), []);
}

fn run<M>(world: &mut World<M>, ops: &[Op]) {
    for op in ops {
        let made = match op {
            Op::Create(_) => world.volume.slots().unwrap().allocate(false).unwrap().0,
            _ => types::VnodeNo(0),
        };
        let earlier = world.model.clone();
        world.apply_model(op, made);
        world.apply_store(op, &earlier, made);
        if let Op::Abandon { .. } = op {
            world.model = world.found();
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let of_volumes = |op: &Op| {
        matches!(
            op,
            Op::Kill
                | Op::PowerLoss(_)
                | Op::Clone(_)
                | Op::RemoveClone(_)
                | Op::RenameClone(..)
                | Op::Fork(_)
                | Op::ForkClone(..)
                | Op::Turn(_)
                | Op::RemoveFork(_)
        )
    };
    prop::collection::vec(op().prop_filter("files alone", move |op| !of_volumes(op)), 1..30)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_volume_that_took_over_is_one_like_any_other(
        before in ops(), more in ops(), lost in ops(), after in ops(), last in ops(),
    ) {
        let mut world = World::new();
        let (copy, beside) = (open(&MemMachine::new()), open(&MemMachine::new()));
        run(&mut world, &before);
        // A site that missed a release, and one that has the last.
        copied(&clone_of(&world, "one"), &beside, OLDER);
        copied(&clone_of(&world, "two"), &copy, OLDER);
        run(&mut world, &more);
        let (released, _) = copied(&clone_of(&world, "three"), &copy, COPY);
        run(&mut world, &lost);
        let seen = whole(&released);
        let taken = take_over(&copy).unwrap();
        prop_assert_eq!(whole(&taken), raised(seen.clone()));
        let mut next = World::of(copy.clone(), 0);
        for (round, ops) in [after, last].iter().enumerate() {
            run(&mut next, ops);
            prop_assert_eq!(&next.found(), &next.model);
            // The others follow it: as a difference where they have its beginning.
            let kind = VolumeKind::Snapshot;
            let sealed = NewClone {
                id: None, name: name(&format!("sealed{round}")), kind, now: NOW, replaces: None,
            };
            let sealed = copy.volumes().clone_volume(taken.id(), &sealed).unwrap();
            prop_assert_eq!(whole(&sealed), whole(&taken));
            copied(&sealed, &beside, OLDER);
            next.model = next.found();
        }
        prop_assert_eq!(whole(&released), seen);
        prop_assert_eq!(findings(&copy), []);
        prop_assert_eq!(findings(&beside), []);
    }
}
