//! Bodies that kernels write: the records follow, committed data is not lost, and no block becomes
//! damaged.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{AllocateMode, Name, SeekWhat, SessionId, Timestamp, VnodeNo, VolumeId, VolumeKind};

use super::world::{World, make_file, name};
use crate::{
    BLOCK_BYTES, BlankName, MemMachine, NewClone, ScrubFinding, StoreError, Update, Vnode,
};

/// A world with one stable file of these bytes.
fn with_file(bytes: &[u8]) -> (World, VnodeNo) {
    let world = World::new();
    let fill = |vnode: &mut Vnode, update: &mut Update<'_>| {
        world.volume.body(vnode, update).unwrap().write(0, bytes).unwrap();
    };
    let no = make_file(&world.volume, &name(0), fill).no();
    world.partition.sync_all().unwrap();
    (world, no)
}

fn vnode(world: &World, no: VnodeNo) -> Vnode {
    world.volume.vnode(no).unwrap().unwrap()
}

fn change(
    world: &World,
    no: VnodeNo,
    act: impl FnOnce(&mut Vnode, &mut Update<'_>) -> Result<(), StoreError>,
) -> Vnode {
    let (mut vnode, mut update) = (vnode(world, no), Update::within(world.scope.as_ref()));
    act(&mut vnode, &mut update).unwrap();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
    vnode
}

fn lend(world: &World, no: VnodeNo) {
    change(world, no, |vnode, update| {
        vnode.handed = true;
        world.volume.body(vnode, update).and_then(|mut body| body.lend())
    });
}

fn settle(world: &World, no: VnodeNo) -> bool {
    let mut changed = false;
    change(world, no, |vnode, update| {
        changed = world.volume.loans().settle(vnode, update)?;
        Ok(())
    });
    changed
}

/// Writes as a kernel does, without notice to the store.
fn kernel(world: &World, no: VnodeNo, offset: u64, bytes: &[u8]) {
    let name = world.volume.tree().body_name(&vnode(world, no)).unwrap();
    world.volume.tree().media.disk.open(name).unwrap().unwrap().write_at(offset, bytes).unwrap();
}

fn read(world: &World, no: VnodeNo) -> Vec<u8> {
    world.volume.reader_of(&vnode(world, no)).unwrap().read(0, 1 << 24).unwrap().to_vec()
}

fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    let end = offset as usize + new.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset as usize..end].copy_from_slice(new);
}

/// Ends the loan, computes all sums, and checks everything.
fn end_clean(world: &World, no: VnodeNo) {
    settle(world, no);
    assert!(world.volume.loans().end(no).unwrap());
    assert!(world.partition.lent().is_empty());
    world.partition.sync_all().unwrap();
    assert_eq!(world.scrub(), []);
}

#[test]
fn pt2_a_dropped_update_lends_nothing() {
    for length in [100, 100_000] {
        let bytes = vec![1; length];
        let (world, no) = with_file(&bytes);
        let (mut vnode, mut update) = (vnode(&world, no), Update::new());
        world.volume.body(&mut vnode, &mut update).unwrap().lend().unwrap();
        assert!(world.volume.loans().has(no));
        drop(update);
        assert!(!world.volume.loans().has(no));
        world.partition.sync_all().unwrap();
        assert_eq!(read(&world, no), bytes);
        assert_eq!(world.scrub(), []);
    }
}

#[test]
fn records_follow_what_kernels_write() {
    let (world, no) = with_file(&[1; 100_000]);
    let mut bytes = vec![1; 100_000];
    lend(&world, no);
    assert!(!settle(&world, no), "no kernel wrote yet");
    kernel(&world, no, 50_000, &[2; 20_000]);
    put(&mut bytes, 50_000, &[2; 20_000]);
    assert_eq!(read(&world, no), bytes, "at once, and not damaged");
    let far = 20 * BLOCK_BYTES + 5;
    kernel(&world, no, far, &[3; 10]);
    put(&mut bytes, far, &[3; 10]);
    assert_eq!(vnode(&world, no).status.size, 100_000, "not yet");
    assert!(settle(&world, no));
    assert!(!settle(&world, no));
    let status = vnode(&world, no).status;
    assert_eq!((status.size, status.used), (far + 10, 8 * BLOCK_BYTES));
    assert_eq!(read(&world, no), bytes);
    assert_eq!(
        world
            .volume
            .reader_of(&vnode(&world, no))
            .unwrap()
            .seek(8 * BLOCK_BYTES, SeekWhat::Data)
            .unwrap(),
        Some(20 * BLOCK_BYTES)
    );
    assert_eq!(world.volume.reader(no).unwrap().unwrap().sums(0, 10).unwrap(), Vec::<u32>::new());
    end_clean(&world, no);
    assert_eq!(read(&world, no), bytes);
    let body = world.machine.0.lock().files.names()[0];
    world.machine.0.lock().files.tamper(body, 60_000, 1);
    let rotten =
        world.volume.reader_of(&vnode(&world, no)).and_then(|reader| reader.read(60_000, 1));
    assert!(matches!(rotten, Err(StoreError::Damaged(_))), "what kernels wrote is summed");
}

#[test]
fn other_changes_of_a_lent_body_lose_nothing() {
    let (world, no) = with_file(&[1; 100_000]);
    let mut bytes = vec![1; 100_000];
    lend(&world, no);
    let volume = &world.volume;
    kernel(&world, no, 150_000, &[2; 1000]);
    put(&mut bytes, 150_000, &[2; 1000]);
    change(&world, no, |vnode, update| {
        volume.body(vnode, update).and_then(|mut body| body.write(10, b"server"))
    });
    put(&mut bytes, 10, b"server");
    assert_eq!(read(&world, no), bytes, "what lay behind the recorded end is still there");
    kernel(&world, no, 151_000, &[3; 7]);
    put(&mut bytes, 151_000, &[3; 7]);
    let mut at = 0;
    change(&world, no, |vnode, update| {
        volume.body(vnode, update).and_then(|mut body| body.append(b"end")).map(|end| at = end)
    });
    assert_eq!(at, 151_007);
    put(&mut bytes, 151_007, b"end");
    assert_eq!(read(&world, no), bytes);
    kernel(&world, no, 200_000, &[4; 10]);
    put(&mut bytes, 200_000, &[4; 10]);
    change(&world, no, |vnode, update| {
        volume
            .body(vnode, update)
            .and_then(|mut body| body.allocate_range(0, 190_000, AllocateMode::Extend))
    });
    assert_eq!(read(&world, no), bytes);
    change(&world, no, |vnode, update| {
        volume
            .body(vnode, update)
            .and_then(|mut body| body.allocate_range(0, 2 * BLOCK_BYTES, AllocateMode::PunchHole))
    });
    bytes[..2 * BLOCK_BYTES as usize].fill(0);
    change(&world, no, |vnode, update| {
        volume.body(vnode, update).and_then(|mut body| body.truncate(160_000))
    });
    bytes.truncate(160_000);
    assert_eq!(read(&world, no), bytes);
    let place = vnode(&world, no).place;
    change(&world, no, |vnode, update| {
        volume.body(vnode, update).and_then(|mut body| body.truncate(0))
    });
    kernel(&world, no, 0, &[5; 100]);
    assert!(settle(&world, no));
    assert_eq!((vnode(&world, no).place, read(&world, no)), (place, vec![5; 100]), "PT-4");
    end_clean(&world, no);
    assert_eq!(read(&world, no), vec![5; 100]);
}

#[test]
fn a_change_by_the_store_of_a_returned_body_is_settled() {
    let (world, no) = with_file(&[1; 100_000]);
    lend(&world, no);
    let write = |at: u64| {
        change(&world, no, |vnode, update| {
            world.volume.body(vnode, update).and_then(|mut body| body.write(at, b"server"))
        });
    };
    write(10);
    assert!(settle(&world, no), "a kernel may have written too");
    kernel(&world, no, 100, &[2; 100]);
    world.volume.loans().be_returned(no);
    assert!(settle(&world, no), "what a kernel wrote before");
    write(20);
    assert!(!settle(&world, no), "nobody else has the body");
    write(200_000);
    assert!(!settle(&world, no));
    lend(&world, no);
    write(30);
    assert!(settle(&world, no), "a kernel has it again");
    end_clean(&world, no);
}

/// A store during the write-out sets the times; later ones into the same page do not.
#[test]
fn stores_during_an_update_of_the_records_are_settled_later() {
    for is_returned in [false, true] {
        let (world, no) = with_file(&[1; 100_000]);
        lend(&world, no);
        if is_returned {
            world.volume.loans().be_returned(no);
        }
        kernel(&world, no, 100, &[2; 100]);
        world.machine.0.lock().files.stored_during_write_out = Some((150, 3));
        assert!(settle(&world, no));
        assert!(settle(&world, no), "the store during the write-out, returned: {is_returned}");
        assert!(!settle(&world, no));
        end_clean(&world, no);
    }
}

#[test]
fn a_new_life_of_the_server_finds_it_lent_and_cuts_nothing() {
    let (mut world, no) = with_file(&[1; 100_000]);
    lend(&world, no);
    kernel(&world, no, 100_000, &[2; 100_000]);
    let machine = MemMachine(world.machine.0.clone());
    world.reopen(machine);
    assert_eq!(world.partition.lent(), [(world.volume.id(), no)]);
    kernel(&world, no, 200_000, &[3; 100_000]);
    let volume = &world.volume;
    change(&world, no, |vnode, update| {
        volume.body(vnode, update).and_then(|mut body| body.write(0, b"x"))
    });
    let mut bytes = [[1; 100_000], [2; 100_000], [3; 100_000]].concat();
    bytes[0] = b'x';
    assert_eq!(read(&world, no), bytes);
    world.partition.sync_all().unwrap();
    kernel(&world, no, 0, &[4; 300_000]);
    assert_eq!(read(&world, no), [4; 300_000], "a sync does not take it for settled");
    end_clean(&world, no);
}

#[test]
fn a_body_that_is_in_no_file_moves_into_one() {
    for bytes in [&b""[..], &b"inline"[..]] {
        let (world, no) = with_file(bytes);
        lend(&world, no);
        assert_eq!(read(&world, no), bytes);
        kernel(&world, no, bytes.len() as u64, &[7; 50_000]);
        end_clean(&world, no);
        assert_eq!(read(&world, no), [bytes, &[7; 50_000]].concat());
    }
}

#[test]
fn what_was_committed_under_a_lend_outlives_a_loss_of_power() {
    for seed in 0..150 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut world, no) = with_file(&[1; 100_000]);
        let mut stable = vec![1; 100_000];
        lend(&world, no);
        let some = |rng: &mut SmallRng| {
            let (offset, length) = (rng.random_range(0..200_000_u64), rng.random_range(1..40_000));
            (offset, vec![rng.random_range(1..255_u8); length])
        };
        for _ in 0..rng.random_range(0..4) {
            let (offset, bytes) = some(&mut rng);
            kernel(&world, no, offset, &bytes);
            put(&mut stable, offset, &bytes);
        }
        // As an fsync does.
        settle(&world, no);
        world.volume.sync_body(&vnode(&world, no)).unwrap();
        world.partition.sync().unwrap();
        let mut later = Vec::new();
        for _ in 0..rng.random_range(0..3) {
            let (offset, bytes) = some(&mut rng);
            kernel(&world, no, offset, &bytes);
            later.push(offset..offset + bytes.len() as u64);
            if rng.random() {
                settle(&world, no);
            }
        }
        let after = world.machine.power_loss(seed);
        world.reopen(after);
        settle(&world, no);
        let found = read(&world, no);
        assert!(
            found.len() >= stable.len(),
            "seed {seed}: {} of {} bytes",
            found.len(),
            stable.len()
        );
        for (at, (found, stable)) in found.iter().zip(&stable).enumerate() {
            let touched = later.iter().any(|range| range.contains(&(at as u64)));
            assert!(found == stable || touched, "seed {seed}: byte {at} is {found}, not {stable}");
        }
        end_clean(&world, no);
        assert_eq!(read(&world, no), found, "seed {seed}");
    }
}

/// A blank with this content.
fn blank(world: &World, bytes: &[u8]) -> BlankName {
    let (name, descriptor) = world.partition.make_blank(SessionId(7)).unwrap();
    assert!(descriptor.is_none(), "memory has no descriptors");
    let file = world.volume.tree().media.disk.open_blank(name).unwrap().unwrap();
    file.write_at(0, bytes).unwrap();
    name
}

fn adopt(world: &World, no: VnodeNo, blank: BlankName) {
    change(world, no, |vnode, update| {
        world.volume.body(vnode, update)?.adopt(blank)?;
        vnode.handed = true;
        Ok(())
    });
    world.volume.loans().end_adoption(no, blank).unwrap();
    assert!(!settle(world, no), "no kernel wrote");
}

#[test]
fn an_adopted_blank_is_the_body_and_is_written_on() {
    for before in [0, 1, 10_000, 100_000] {
        let (world, no) = with_file(&vec![9; before]);
        let mut bytes = vec![4; 70_000];
        let blank = blank(&world, &bytes);
        adopt(&world, no, blank);
        assert_eq!(world.partition.blanks().unwrap(), []);
        let status = vnode(&world, no).status;
        assert_eq!((status.size, status.used), (70_000, 5 * BLOCK_BYTES));
        assert_eq!(read(&world, no), bytes);
        kernel(&world, no, 69_990, &[5; 40_000]);
        put(&mut bytes, 69_990, &[5; 40_000]);
        end_clean(&world, no);
        assert_eq!(read(&world, no), bytes);
        assert_eq!(
            world.volume.usage().bytes,
            vnode(&world, no).status.used + crate::DIRECTORY_BYTES
        );
    }
}

#[test]
fn an_adoption_in_a_scope_outlives_the_process_before_the_blank() {
    let (mut world, no) = with_file(&[9; 1000]);
    let blank = blank(&world, &[4; 70_000]);
    world.scope = Some(world.partition.gather());
    adopt(&world, no, blank);
    let mut later = World::new();
    later.reopen(world.machine.killed());
    assert_eq!(read(&later, no), [4; 70_000]);
    world.end_scope();
    end_clean(&world, no);
}

#[test]
fn a_dropped_adoption_changes_nothing_and_can_be_repeated() {
    let (world, no) = with_file(&[9; 100_000]);
    let blank = blank(&world, &[4; 200_000]);
    let (mut dropped, mut update) = (vnode(&world, no), Update::new());
    world.volume.body(&mut dropped, &mut update).unwrap().adopt(blank).unwrap();
    drop(update);
    assert!(world.partition.lent().is_empty());
    assert_eq!(read(&world, no), [9; 100_000]);
    adopt(&world, no, blank);
    assert_eq!(read(&world, no), [4; 200_000]);
    let (mut again, mut update) = (vnode(&world, no), Update::new());
    let strange = BlankName { number: 1, ..blank };
    assert!(matches!(
        world.volume.body(&mut again, &mut update).and_then(|mut body| body.adopt(strange)),
        Err(StoreError::Misuse(_))
    ));
    drop(update);
    end_clean(&world, no);
}

#[test]
fn what_was_stable_before_an_adoption_outlives_a_loss_of_power() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let before = [5_000, 100_000][seed as usize % 2];
        let (mut world, no) = with_file(&vec![9; before]);
        // The kernel wrote the same again, and more.
        let mut bytes = vec![9; before];
        bytes.extend_from_slice(&[4; 50_000]);
        let blank = blank(&world, &bytes);
        adopt(&world, no, blank);
        if rng.random() {
            world.partition.sync().unwrap();
        }
        let after = world.machine.power_loss(seed);
        world.reopen(after);
        let found = read(&world, no);
        assert!(
            found.len() >= before && found[..before].iter().all(|byte| *byte == 9),
            "seed {seed}"
        );
        if world.partition.lent().is_empty() {
            assert_eq!(world.scrub(), []);
        } else {
            end_clean(&world, no);
        }
    }
}

/// Seals the present state; returns the number of the volume that shows it.
fn seal(world: &World, text: &str) -> Result<VolumeId, StoreError> {
    let name = Name::new(text.as_bytes()).unwrap();
    let new = NewClone {
        id: None,
        name,
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(3, 3),
        replaces: None,
    };
    world.partition.volumes().clone_volume(world.volume.id(), &new).map(|volume| volume.id())
}

fn sealed(world: &World, id: VolumeId, no: VnodeNo) -> Vec<u8> {
    let volume = world.partition.volumes().volume(id).unwrap().unwrap();
    volume
        .reader_of(&volume.vnode(no).unwrap().unwrap())
        .unwrap()
        .read(0, 1 << 24)
        .unwrap()
        .to_vec()
}

#[test]
fn a_sealed_epoch_keeps_what_kernels_had_written_by_then() {
    let (world, no) = with_file(&[1; 100_000]);
    lend(&world, no);
    kernel(&world, no, 90_000, &[2; 20_000]);
    let first = seal(&world, "first").unwrap();
    let mut before = vec![1; 100_000];
    put(&mut before, 90_000, &[2; 20_000]);
    kernel(&world, no, 0, &[3; 10_000]);
    assert_eq!(sealed(&world, first, no), before, "all of it, settled or not, and nothing later");
    assert_eq!(vnode(&world, no).status.size, 100_000, "the head is settled when it is settled");
    assert!(settle(&world, no));
    let far = 70 * BLOCK_BYTES;
    kernel(&world, no, far, &[4; 10]);
    let mut after = before.clone();
    put(&mut after, 0, &[3; 10_000]);
    put(&mut after, far, &[4; 10]);
    let second = seal(&world, "second").unwrap();
    assert_eq!(
        (sealed(&world, first, no), sealed(&world, second, no)),
        (before.clone(), after.clone())
    );
    let one = world.partition.volumes().volume(second).unwrap().unwrap();
    let shown = one.vnode(no).unwrap().unwrap().status;
    assert_eq!((shown.size, shown.used), (far + 10, 8 * BLOCK_BYTES));
    drop(one);
    end_clean(&world, no);
    assert_eq!(read(&world, no), after);
    assert_eq!(world.volume.usage().bytes, vnode(&world, no).status.used + crate::DIRECTORY_BYTES);
    change(&world, no, |vnode, update| {
        world.volume.body(vnode, update).and_then(|mut body| body.write(5, b"later"))
    });
    assert_eq!((sealed(&world, first, no), sealed(&world, second, no)), (before, after));
    assert_eq!(world.scrub_all(), []);
    for (id, files) in [(first, 2), (second, 1)] {
        world.partition.remove_volume(id).unwrap();
        while world.partition.sweep(7).unwrap() > 0 {}
        assert_eq!(world.machine.0.lock().files.names().len(), files);
    }
}

#[test]
fn a_seal_that_is_refused_leaves_no_copies() {
    let (world, no) = with_file(&[1; 100_000]);
    lend(&world, no);
    let taken = seal(&world, "one").unwrap();
    kernel(&world, no, 0, &[2; 10]);
    assert!(matches!(seal(&world, "one"), Err(StoreError::Taken("name"))));
    assert_eq!(world.machine.0.lock().files.names().len(), 2);
    assert_eq!(sealed(&world, taken, no), [1; 100_000]);
    end_clean(&world, no);
}

#[test]
fn what_is_sealed_of_a_lent_body_outlives_crashes() {
    for seed in 0..100 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut world, no) = with_file(&[1; 100_000]);
        lend(&world, no);
        let mut clones: Vec<(VolumeId, Vec<u8>)> = Vec::new();
        for step in 0..rng.random_range(2..12) {
            match rng.random_range(0..8) {
                0 | 1 => {
                    let id = seal(&world, &format!("clone{step}")).unwrap();
                    clones.push((id, sealed(&world, id, no)));
                }
                2 => drop(settle(&world, no)),
                3 if !clones.is_empty() => {
                    let (gone, _) = clones.swap_remove(rng.random_range(0..clones.len()));
                    world.partition.remove_volume(gone).unwrap();
                    world.partition.sweep(3).map(drop).unwrap();
                }
                4 => {
                    let size = rng.random_range(0..200_000);
                    change(&world, no, |vnode, update| {
                        world.volume.body(vnode, update).and_then(|mut body| body.truncate(size))
                    });
                }
                5 if rng.random_range(0..3) == 0 => {
                    let after = world.machine.power_loss(seed);
                    world.reopen(after);
                }
                6 if rng.random_range(0..3) == 0 => {
                    let after = world.machine.killed();
                    world.reopen(after);
                }
                _ => {
                    let offset = rng.random_range(0..300_000);
                    kernel(&world, no, offset, &vec![rng.random(); rng.random_range(1..50_000)]);
                }
            }
            for (id, bytes) in &clones {
                assert!(sealed(&world, *id, no) == *bytes, "seed {seed}, step {step}: {id:?}");
            }
        }
        let after = world.machine.power_loss(seed + 1);
        world.reopen(after);
        settle(&world, no);
        assert!(world.volume.loans().end(no).unwrap());
        world.partition.sync_all().unwrap();
        // A power loss may restore a removed file.
        let wrong = world
            .scrub_all()
            .into_iter()
            .filter(|wrong| !matches!(wrong, ScrubFinding::StrayBody { .. }));
        assert_eq!(wrong.collect::<Vec<_>>(), [], "seed {seed}");
        for (id, bytes) in &clones {
            assert!(sealed(&world, *id, no) == *bytes, "seed {seed}: {id:?}");
        }
    }
}
