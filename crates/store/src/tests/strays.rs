//! Files without a record, while updates use their names.

use super::world::{World, make_file, name};
use crate::body::orphans::{remove_strays, strays};
use crate::format::names::BodyName;
use crate::{ScrubFinding, Update, Vnode};

/// The file for the next body of a vnode in no file.
fn next_file(world: &World, vnode: &Vnode) -> BodyName {
    let (volume, epoch) = (world.volume.id(), world.volume.tree().epoch);
    BodyName { volume, vnode: vnode.no(), epoch, generation: vnode.generations + 1, packed: false }
}

fn leave(world: &World, file: BodyName) {
    world.partition.0.media.disk.create(file).unwrap().write_at(0, &[1; 100]).unwrap();
}

#[test]
fn du1_files_without_a_record_go_after_a_loss() {
    let mut world = World::new();
    let vnode = make_file(&world.volume, &name(0), |_, _| {});
    world.partition.sync_all().unwrap();
    world.reopen(world.machine.power_loss(1));
    while world.partition.sweep(100).unwrap() > 0 {}
    leave(&world, next_file(&world, &vnode));
    // In the same boot no search is necessary: the death of a process leaves no such file.
    world.reopen(world.machine.killed());
    while world.partition.sweep(100).unwrap() > 0 {}
    assert!(matches!(world.scrub_all()[..], [ScrubFinding::StrayBody { .. }]));
    world.reopen(world.machine.power_loss(2));
    while world.partition.sweep(100).unwrap() > 0 {}
    assert_eq!(world.scrub_all(), []);
}

#[test]
fn du1_a_name_that_is_taken_anew_is_no_stray() {
    let world = World::new();
    let mut vnodes: Vec<_> =
        (0..3).map(|at| make_file(&world.volume, &name(at), |_, _| {})).collect();
    vnodes.iter().for_each(|vnode| leave(&world, next_file(&world, vnode)));
    let tree_state = &world.volume.tree_state;
    let strays = strays(tree_state).unwrap();
    assert_eq!(strays.len(), 3);
    // After the list one body uses a listed name, and another one is about to.
    let bytes = vec![7; 40_000];
    let write = |vnode: &mut Vnode| {
        let mut update = Update::new();
        world.volume.body(vnode, &mut update).unwrap().write(0, &bytes).unwrap();
        update.put_vnode(vnode);
        update
    };
    world.volume.commit(write(&mut vnodes[0])).unwrap();
    let update = write(&mut vnodes[1]);
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| remove_strays(tree_state, &strays).unwrap());
        // The removal waits for the update here, or comes after it.
        world.volume.commit(update).unwrap();
        assert_eq!(removed.join().unwrap(), 1);
    });
    for vnode in &vnodes[..2] {
        assert!(world.volume.reader_of(vnode).unwrap().read(0, 50_000).unwrap() == bytes);
    }
    assert_eq!(world.scrub_all(), []);
}
