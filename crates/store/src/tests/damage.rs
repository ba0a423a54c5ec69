//! Flipped bits on the medium are never served as valid data, and scrub finds each of them.

use std::sync::atomic::AtomicBool;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Fid, Kind, Name, Timestamp, VnodeNo};

use super::world::{World, name, options};
use crate::format::key::kind;
use crate::{BLOCK_BYTES, OpenError, Partition, ScrubFinding, StoreError, Update, Vnode};

/// A volume with every kind of record: 0 is a file with a body file and attributes, 1 an inline
/// one, 2 an orphan.
fn populated() -> World {
    let world = World::new();
    let volume = &world.volume;
    for (number, length) in [(0, 5 * BLOCK_BYTES + 100), (1, 3000), (2, 20_000)] {
        let mut update = Update::new();
        let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
        let (no, unique) = volume.slots().unwrap().allocate(false).unwrap();
        let fid = Fid { volume: volume.id(), vnode: no, unique };
        let mut vnode =
            Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
        update.create_vnode(&vnode);
        volume
            .body(&mut vnode, &mut update)
            .unwrap()
            .write(0, &vec![number as u8 + 1; length as usize])
            .unwrap();
        volume.edit(&mut vnode, &mut update).put_xattr(b"user.a", b"value").unwrap();
        if number == 2 {
            vnode.status.links = 0;
            update.add_orphan(no);
        } else {
            volume
                .edit(&mut dir, &mut update)
                .put_entry(&name(number as u8), vnode.target())
                .unwrap();
        }
        update.put_vnode(&vnode);
        update.put_vnode(&dir);
        volume.commit(update).unwrap();
    }
    world.partition.sync_all().unwrap();
    assert_eq!(world.scrub(), []);
    world
}

fn file(world: &World, number: u8) -> Vnode {
    let entry = world.volume.lookup(VnodeNo::ROOT, name(number).as_bytes()).unwrap().unwrap();
    world.volume.vnode(entry.target.vnode).unwrap().unwrap()
}

#[test]
fn a_flipped_bit_in_a_body_is_never_served() {
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..200 {
        let world = populated();
        let vnode = file(&world, 0);
        let at = rng.random_range(0..vnode.status.size);
        let body = world.machine.0.lock().files.names()[0];
        world.machine.0.lock().files.tamper(body, at, 1 << rng.random_range(0..8));
        let block = at / BLOCK_BYTES;
        let hit = world.volume.reader_of(&vnode).and_then(|reader| reader.read(at, 1));
        assert!(matches!(hit, Err(StoreError::Damaged(_))), "{hit:?}");
        assert!(matches!(
            world.volume.reader_of(&vnode).and_then(|reader| reader.read(0, 1 << 20)),
            Err(StoreError::Damaged(_))
        ));
        let other = (block + 1) % 5;
        assert_eq!(
            world.volume.reader_of(&vnode).unwrap().read(other * BLOCK_BYTES, 10).unwrap(),
            [1; 10][..]
        );
        assert_eq!(world.scrub(), [ScrubFinding::DamagedBlock { fid: vnode.status.fid, block }]);
        // A part of a damaged block cannot stay; a whole new block repairs it.
        let mut update = Update::new();
        let part = world
            .volume
            .body(&mut vnode.clone(), &mut update)
            .and_then(|mut body| body.write(block * BLOCK_BYTES + 1, b"x"));
        assert!(matches!(part, Err(StoreError::Damaged(_))));
        drop(update);
        let mut healed = vnode.clone();
        let mut update = Update::new();
        world
            .volume
            .body(&mut healed, &mut update)
            .unwrap()
            .write(block * BLOCK_BYTES, &vec![9; BLOCK_BYTES as usize])
            .unwrap();
        update.put_vnode(&healed);
        world.volume.commit(update).unwrap();
        assert_eq!(world.volume.reader_of(&healed).unwrap().read(at, 1).unwrap(), [9][..]);
    }
}

#[test]
fn a_flipped_bit_in_a_record_is_never_served() {
    let mut rng = SmallRng::seed_from_u64(2);
    let clean = populated();
    let good = clean.found();
    let keys: Vec<Vec<u8>> = clean.machine.0.lock().log.keys().cloned().collect();
    let kinds: std::collections::BTreeSet<u8> = keys.iter().map(|key| key[0]).collect();
    for kind in [
        kind::VNODE,
        kind::ENTRIES,
        kind::SUMS,
        kind::INLINE,
        kind::XATTR,
        kind::VOLUME,
        kind::ORPHAN,
    ] {
        assert!(kinds.contains(&kind), "no record of kind {}", kind as char);
    }
    for key in keys {
        for _ in 0..12 {
            let world = populated();
            world.machine.0.lock().log.tamper(&key, |value| {
                let at = rng.random_range(0..value.len());
                value[at] ^= 1 << rng.random_range(0..8);
            });
            let report = world.partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap();
            assert!(report.checked.records > 5);
            if key[0] == kind::USAGE {
                // The running server has the right value in memory; the next start would not.
                continue;
            }
            let text = key.escape_ascii().to_string();
            let named = report.findings.iter().any(
                |finding| matches!(finding, ScrubFinding::DamagedRecord { key } if *key == text),
            );
            assert!(named, "{}: {:?}", key.escape_ascii(), report.findings);
            // Every readable body has its written content.
            for number in [0, 1] {
                let Ok(Some(entry)) = world.volume.lookup(VnodeNo::ROOT, name(number).as_bytes())
                else {
                    continue;
                };
                let Ok(Some(vnode)) = world.volume.vnode(entry.target.vnode) else { continue };
                let right = &good.files[&vnode.no()];
                if let Ok(bytes) =
                    world.volume.reader_of(&vnode).and_then(|reader| reader.read(0, 1 << 20))
                {
                    assert_eq!(bytes, right.bytes[..]);
                }
                if let Ok(value) = world.volume.xattr(&vnode, b"user.a") {
                    assert_eq!(value.unwrap(), &b"value"[..]);
                }
            }
        }
    }
}

#[test]
fn records_under_each_others_keys_are_damaged() {
    let world = populated();
    let mut machine = world.machine.0.lock();
    let keys: Vec<Vec<u8>> =
        machine.log.keys().filter(|key| key[0] == kind::VNODE).cloned().collect();
    let mut values = Vec::new();
    keys.iter().for_each(|key| machine.log.tamper(key, |value| values.push(value.clone())));
    machine.log.tamper(&keys[0], |value| value.clone_from(&values[1]));
    drop(machine);
    assert!(matches!(world.volume.vnode(VnodeNo::ROOT), Err(StoreError::Damaged(_))));
}

#[test]
fn st2_a_wrong_usage_is_found_and_damaged_headers_are_skipped() {
    let mut world = populated();
    let usage = crate::format::key::usage(world.volume.id()).to_vec();
    world.machine.0.lock().log.tamper(&usage, |value| value[0] ^= 1);
    world.reopen(world.machine.clone());
    assert!(matches!(world.scrub()[..], [ScrubFinding::WrongUsage { .. }]));
    let header = crate::format::key::volume(world.volume.id()).to_vec();
    world.machine.0.lock().log.tamper(&header, |value| value[5] ^= 1);
    let partition = Partition::open_memory(&world.machine, options()).unwrap();
    assert!(matches!(partition.volumes().volume(types::VolumeId(1)), Err(StoreError::Damaged(_))));
    assert!(partition.volumes().list(types::VolumeId(0), 10).unwrap().is_empty());
    let boot = crate::format::key::partition(0).to_vec();
    world.machine.0.lock().log.tamper(&boot, |value| value[5] ^= 1);
    assert!(matches!(
        Partition::open_memory(&world.machine, options()),
        Err(OpenError::Damaged { .. })
    ));
}

#[test]
fn scrub_finds_what_does_not_add_up() {
    let world = populated();
    let volume = &world.volume;
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let mut update = Update::new();
    let mut one = file(&world, 1);
    let zero = file(&world, 0);
    // An entry of no vnode, a wrong count, one link too many, and a charge too high.
    let nothing = crate::EntryTarget { vnode: VnodeNo(4_000_000), ..zero.target() };
    let lost = Name::new(b"lost").unwrap();
    volume.edit(&mut dir, &mut update).put_entry(&lost, nothing).unwrap();
    dir.entries += 1;
    one.status.links = 2;
    one.status.used += 7;
    update.put_vnode(&dir);
    update.put_vnode(&one);
    volume.commit(update).unwrap();
    let mut findings = world.scrub();
    findings.sort_by_key(|finding| format!("{finding:?}"));
    let fid = one.status.fid;
    let usage = volume.usage();
    let expected = [
        ScrubFinding::DanglingEntry { dir: dir.status.fid, name: lost },
        ScrubFinding::WrongEntries { fid: dir.status.fid, stored: 4, counted: 3 },
        ScrubFinding::WrongLinks { fid, stored: 2, counted: 1 },
        ScrubFinding::WrongUsage {
            volume: volume.id(),
            stored: usage,
            counted: crate::Usage { bytes: usage.bytes + 7, ..usage },
        },
        ScrubFinding::WrongUsed { fid, stored: 3007, counted: 3000 },
    ];
    assert_eq!(findings, expected);
    findings.iter().for_each(|finding| assert!(!finding.to_string().is_empty()));
    // A lost file, and one without a record.
    let body = world.machine.0.lock().files.names()[0];
    let stray = crate::format::names::BodyName { generation: 9, ..body };
    let disk = &world.partition.0.media.disk;
    disk.remove(body).unwrap();
    disk.create(stray).unwrap();
    world.partition.0.media.gates.gate((body.volume, body.vnode)).write().close();
    let report = world.partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert!(report.findings.contains(&ScrubFinding::LostBody { fid: zero.status.fid }));
    assert!(
        report.findings.iter().any(|finding| matches!(finding, ScrubFinding::StrayBody { .. }))
    );
    assert!(matches!(
        volume.reader_of(&zero).and_then(|reader| reader.read(0, 1)),
        Err(StoreError::Damaged(_))
    ));
    let cancelled = world.partition.scrub(&mut |_| {}, &AtomicBool::new(true)).unwrap();
    assert!(cancelled.cancelled);
}

#[test]
fn du3_after_a_failed_sync_changes_are_refused() {
    let mut world = populated();
    let verifier = world.partition.boot_verifier();
    let mut vnode = file(&world, 1);
    let mut write = |world: &World| -> Result<(), StoreError> {
        let mut update = Update::new();
        world.volume.body(&mut vnode, &mut update)?.write(0, b"x")?;
        update.put_vnode(&vnode);
        world.volume.commit(update)
    };
    write(&world).unwrap();
    world.machine.fail_syncs(true);
    assert!(matches!(world.partition.sync(), Err(StoreError::Medium(_))));
    assert_ne!(world.partition.boot_verifier(), verifier);
    assert!(world.partition.stopped().is_some(), "the partition reports the failure");
    let health = world.partition.health();
    assert_eq!((health.state, health.errors), (types::DiskHealth::Failing, 1), "PH-1");
    world.machine.fail_syncs(false);
    assert!(matches!(world.partition.sync(), Err(StoreError::Medium(_))), "DU-3");
    assert!(matches!(write(&world), Err(StoreError::Medium(_))), "DU-3");
    assert_eq!(world.volume.reader_of(&file(&world, 0)).unwrap().read(0, 1).unwrap(), [1][..]);
    world.reopen(world.machine.clone());
    assert_ne!(world.partition.boot_verifier(), verifier);
    assert_eq!(world.partition.stopped(), None);
    assert_eq!(world.partition.health().state, types::DiskHealth::Well);
    write(&world).unwrap();
    world.partition.sync().unwrap();
}

#[test]
fn a_full_disk_refuses_the_write_and_changes_nothing() {
    let world = populated();
    let before = world.found();
    let usage = world.volume.usage();
    let space = world.partition.space().unwrap();
    assert!(space.free_bytes > 0);
    // Bodies take up 9 blocks; a quarter of so small a disk is reserved.
    world.machine.set_capacity(12 * BLOCK_BYTES);
    let mut vnode = file(&world, 0);
    let mut update = Update::new();
    let end = vnode.status.size;
    let result = world
        .volume
        .body(&mut vnode, &mut update)
        .and_then(|mut body| body.write(end, &[5; 200_000]));
    assert!(matches!(result, Err(StoreError::NoSpace)), "{result:?}");
    drop(update);
    assert_eq!(world.found(), before);
    assert_eq!(world.volume.usage(), usage);
    assert_eq!(world.scrub(), []);
    // Changes in place have room, and removals work.
    let mut vnode = file(&world, 0);
    let mut update = Update::new();
    world.volume.body(&mut vnode, &mut update).unwrap().write(0, &[6; 1000]).unwrap();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
    let mut update = Update::new();
    world.volume.drop_vnode(&vnode, &mut update).unwrap();
    world.volume.commit(update).unwrap();
}
