//! Packed bodies: their readers get the sealed content, in memory, on disk and in streams.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Name, SeekWhat, StreamCursor, Timestamp, VnodeNo, VolumeId, VolumeKind};

use super::world::{World, make_file, name};
use crate::format::header::HeadState;
use crate::{
    BLOCK_BYTES, BodyLocation, FinishAs, MemMachine, NewClone, OpenOptions, Partition,
    ScrubFinding, StoreError, StreamPart, Update, Vnode, Volume,
};

/// Text that compresses as source does, a hole, and a part that does not compress.
fn text(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let words = [
        "fn ",
        "let ",
        "self.",
        "(&mut ",
        "Result<",
        "> {\n    ",
        "volume",
        "epoch",
        ";\n",
        "    }\n",
    ];
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend_from_slice(words[rng.random_range(0..words.len())].as_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn create(world: &World, number: u8, bytes: &[u8]) -> VnodeNo {
    let fill = |vnode: &mut Vnode, update: &mut Update<'_>| {
        world.volume.body(vnode, update).unwrap().write(0, bytes).unwrap();
    };
    make_file(&world.volume, &name(number), fill).no()
}

fn write(world: &World, no: VnodeNo, offset: u64, bytes: &[u8]) {
    let (mut vnode, mut update) = (world.volume.vnode(no).unwrap().unwrap(), Update::new());
    world.volume.body(&mut vnode, &mut update).unwrap().write(offset, bytes).unwrap();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
}

fn seal(world: &World, text: &str) -> VolumeId {
    let name = Name::new(text.as_bytes()).unwrap();
    let new = NewClone {
        id: None,
        name,
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(3, 3),
        replaces: None,
    };
    world.partition.volumes().clone_volume(world.volume.id(), &new).unwrap().id()
}

fn sweep(world: &World) {
    while world.partition.sweep(7).unwrap() > 0 {}
}

fn is_packed(volume: &Volume, no: VnodeNo) -> bool {
    matches!(volume.vnode(no).unwrap().unwrap().place, BodyLocation::File { packed: true, .. })
}

fn all(volume: &Volume, no: VnodeNo) -> Vec<u8> {
    volume
        .reader_of(&volume.vnode(no).unwrap().unwrap())
        .unwrap()
        .read(0, 1 << 24)
        .unwrap()
        .to_vec()
}

#[test]
fn what_only_a_sealed_epoch_shows_is_packed_and_reads_as_before() {
    let world = World::new();
    let mut bytes = text(300_000, 1);
    let no = create(&world, 1, &bytes);
    // A hole of more than a chunk.
    write(&world, no, 30 * BLOCK_BYTES, b"far");
    bytes.resize(30 * BLOCK_BYTES as usize, 0);
    bytes.extend_from_slice(b"far");
    let id = seal(&world, "sealed");
    sweep(&world);
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    assert!(!is_packed(&sealed, no), "the head writes that file");
    write(&world, no, 5, b"new");
    sweep(&world);
    assert!(is_packed(&sealed, no) && !is_packed(&world.volume, no));
    assert_eq!(all(&sealed, no), bytes);
    let vnode = sealed.vnode(no).unwrap().unwrap();
    for (offset, length) in
        [(0, 1), (65_535, 2), (65_536, 65_536), (100_001, 99_999), (299_999, 5), (491_519, 9)]
    {
        let end = bytes.len().min(offset + length);
        assert_eq!(
            sealed.reader_of(&vnode).unwrap().read(offset as u64, length).unwrap(),
            bytes[offset..end],
            "{offset} {length}"
        );
    }
    assert_eq!(
        sealed.reader_of(&vnode).unwrap().seek(19 * BLOCK_BYTES, SeekWhat::Data).unwrap(),
        Some(30 * BLOCK_BYTES)
    );
    assert_eq!(
        sealed.reader_of(&vnode).unwrap().seek(0, SeekWhat::Hole).unwrap(),
        Some(19 * BLOCK_BYTES)
    );
    assert_eq!(sealed.reader(no).unwrap().unwrap().sums(0, 31).unwrap().len(), 31);
    assert_eq!(world.scrub_all(), []);
    drop(sealed);
    world.partition.remove_volume(id).unwrap();
    sweep(&world);
    assert_eq!(world.machine.0.lock().files.names().len(), 1);
}

#[test]
fn what_does_not_become_smaller_stays_plain() {
    let world = World::new();
    let mut rng = SmallRng::seed_from_u64(3);
    let bytes: Vec<u8> = (0..200_000).map(|_| rng.random()).collect();
    let no = create(&world, 1, &bytes);
    let id = seal(&world, "sealed");
    write(&world, no, 5, b"new");
    sweep(&world);
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    assert!(!is_packed(&sealed, no));
    assert_eq!(all(&sealed, no), bytes);
    assert_eq!(world.scrub_all(), []);
    assert_eq!(world.machine.0.lock().files.names().len(), 2);
}

#[test]
fn a_packed_body_that_rots_is_found() {
    let world = World::new();
    let no = create(&world, 1, &text(300_000, 1));
    let id = seal(&world, "sealed");
    write(&world, no, 5, b"new");
    sweep(&world);
    let body = *world.machine.0.lock().files.names().iter().find(|name| name.packed).unwrap();
    world.machine.0.lock().files.tamper(body, 70, 1);
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    let vnode = sealed.vnode(no).unwrap().unwrap();
    assert!(matches!(
        sealed.reader_of(&vnode).and_then(|reader| reader.read(0, 100)),
        Err(StoreError::Damaged(_))
    ));
    assert_eq!(
        sealed.reader_of(&vnode).unwrap().read(200_000, 100).unwrap(),
        text(300_000, 1)[200_000..200_100],
        "the rest is there"
    );
    assert_ne!(world.scrub_all(), []);
}

#[test]
fn a_head_that_comes_to_a_packed_body_gets_a_plain_file() {
    let world = World::new();
    let bytes = text(300_000, 1);
    let no = create(&world, 1, &bytes);
    let id = seal(&world, "sealed");
    // There is no read-write volume, as in a copy, and later there is one.
    let tree_state = &world.volume.tree_state;
    let become_head = |head| {
        let mut header = tree_state.header.lock();
        let new = crate::format::header::TreeHeader { head, ..header.stored.clone() };
        tree_state.change(&mut header, new, crate::media::engine::Batch::default()).unwrap();
    };
    become_head(HeadState::Unowned);
    let mut batch = crate::media::engine::Batch::default();
    crate::body::pack::note_epoch(&tree_state.media, tree_state.id, 0, 1, &mut batch);
    tree_state.media.apply(&batch).unwrap();
    tree_state.media.wake_packer();
    sweep(&world);
    become_head(HeadState::Serving);
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    assert!(is_packed(&sealed, no) && is_packed(&world.volume, no));
    assert!(
        world.volume.reader(no).unwrap().unwrap().open_body().unwrap().is_none(),
        "kernels cannot read it"
    );
    let usage = world.volume.usage();
    write(&world, no, 100, b"new");
    assert!(is_packed(&sealed, no) && !is_packed(&world.volume, no));
    assert_eq!((all(&sealed, no), world.volume.usage()), (bytes.clone(), usage));
    let mut changed = bytes.clone();
    changed[100..103].copy_from_slice(b"new");
    assert_eq!(all(&world.volume, no), changed);
    assert_eq!(world.scrub_all(), []);
    let mut later = World::new();
    later.reopen(world.machine.power_loss(1));
    assert_eq!(all(&later.volume, no).len(), bytes.len());
}

#[test]
fn snapshots_are_packed_when_the_read_write_volume_goes() {
    let world = World::new();
    let bytes = text(300_000, 1);
    let no = create(&world, 1, &bytes);
    let first = seal(&world, "first");
    let late = create(&world, 2, &text(100_000, 2));
    let second = seal(&world, "second");
    create(&world, 3, &text(100_000, 3));
    world.partition.remove_volume(world.volume.id()).unwrap();
    sweep(&world);
    for (id, no, bytes) in
        [(first, no, &bytes), (second, no, &bytes), (second, late, &text(100_000, 2))]
    {
        let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
        assert!(is_packed(&sealed, no));
        assert_eq!(all(&sealed, no), *bytes);
    }
    assert_eq!(world.scrub_all(), []);
}

#[test]
fn packing_outlives_crashes() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut world = World::new();
        let files: Vec<VnodeNo> = (0..3)
            .map(|number| create(&world, number, &text(100_000, u64::from(number))))
            .collect();
        world.partition.sync_all().unwrap();
        let mut clones = Vec::new();
        for step in 0..20 {
            match rng.random_range(0..6) {
                0 => {
                    let id = seal(&world, &format!("clone{step}"));
                    let volume = world.partition.volumes().volume(id).unwrap().unwrap();
                    clones.push((id, files.iter().map(|no| all(&volume, *no)).collect::<Vec<_>>()));
                }
                1 => {
                    let after = if rng.random() {
                        world.machine.power_loss(seed)
                    } else {
                        world.machine.killed()
                    };
                    world.reopen(after);
                }
                2 => world.partition.sync_all().unwrap(),
                3 => world.partition.sweep(1).map(drop).unwrap(),
                _ => write(
                    &world,
                    files[rng.random_range(0..3)],
                    rng.random_range(0..150_000),
                    &text(30_000, step),
                ),
            }
            for (id, bytes) in &clones {
                let volume = world.partition.volumes().volume(*id).unwrap().unwrap();
                for (no, bytes) in files.iter().zip(bytes) {
                    assert!(
                        all(&volume, *no) == *bytes,
                        "seed {seed}, step {step}, {no:?} of {id:?}"
                    );
                }
            }
        }
        world.partition.sync_all().unwrap();
        sweep(&world);
        let wrong = world
            .scrub_all()
            .into_iter()
            .filter(|wrong| !matches!(wrong, ScrubFinding::StrayBody { .. }));
        assert_eq!(wrong.collect::<Vec<_>>(), [], "seed {seed}");
    }
}

/// The disk becomes full while a body is packed: the body stays plain, no file is left behind, and
/// it is packed when there is room.
#[test]
fn a_full_disk_keeps_bodies_as_they_are() {
    let world = World::new();
    let bytes = text(600_000, 4);
    let no = create(&world, 1, &bytes);
    let id = seal(&world, "sealed");
    write(&world, no, 5, b"new");
    let used = world.machine.0.lock().files.used_bytes();
    world.machine.set_capacity(used + BLOCK_BYTES);
    let refused = (0..100).find_map(|_| world.partition.sweep(7).err());
    assert!(matches!(refused, Some(StoreError::NoSpace)), "{refused:?}");
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    assert!(!is_packed(&sealed, no));
    assert_eq!(all(&sealed, no), bytes);
    assert_eq!((world.scrub(), world.machine.0.lock().files.used_bytes()), (Vec::new(), used));
    world.machine.set_capacity(1 << 40);
    sweep(&world);
    assert!(is_packed(&sealed, no));
    assert_eq!(all(&sealed, no), bytes);
    assert_eq!(world.scrub_all(), []);
}

/// Any read of a packed body can return packed chunks with the sums of their content, and never
/// more bytes than requested.
#[test]
fn chunks_leave_as_they_lie_with_their_sums() {
    let world = World::new();
    let mut bytes = text(300_000, 1);
    let no = create(&world, 1, &bytes);
    write(&world, no, 30 * BLOCK_BYTES, b"far");
    bytes.resize(30 * BLOCK_BYTES as usize, 0);
    bytes.extend_from_slice(b"far");
    seal(&world, "sealed");
    let head = world.volume.reader(no).unwrap().unwrap();
    assert_eq!(head.read_packed(0, 1 << 20).unwrap(), None, "it is not packed yet");
    drop(head);
    write(&world, no, 5, b"new");
    sweep(&world);
    let sealed = world.partition.volumes().volume_named(b"sealed").unwrap().unwrap();
    assert!(is_packed(&sealed, no));
    let reader = sealed.reader(no).unwrap().unwrap();
    let mut rng = SmallRng::seed_from_u64(5);
    for _ in 0..300 {
        let (offset, length) = (rng.random_range(0..500_000_u64), rng.random_range(1..200_000_u32));
        let Some(run) = reader.read_packed(offset, length).unwrap() else { continue };
        assert!(
            run.is_whole()
                && run.answers(offset, length, bytes.len() as u64)
                && run.bytes.len() < length as usize
        );
        let mut frames = &run.bytes[..];
        let there = &bytes[run.offset as usize..][..run.length as usize];
        for (frame, chunk) in run.frames.iter().zip(there.chunks(1 << 16)) {
            let (frame, rest) = frames.split_at(*frame as usize);
            let mut unpacked = vec![0; chunk.len()];
            assert!(
                frame.is_empty() || crate::media::disk::unpack_frame(frame, &mut unpacked).is_ok()
            );
            assert!(unpacked == chunk);
            frames = rest;
        }
        let sums: Vec<u32> = there.chunks(1 << 14).map(crate::format::sums::of_block).collect();
        let holes = run
            .sums
            .iter()
            .zip(&sums)
            .filter(|(found, sum)| *found != *sum && **found != 0)
            .count();
        assert_eq!(holes, 0);
    }
    assert_eq!(reader.read_packed(0, 1 << 20).unwrap().map(|run| run.frames.len()), Some(8));
    assert_eq!(reader.read_packed(bytes.len() as u64, 10).unwrap(), None);
}

/// Streams transfer packed bodies between copies; a receiver without support gets plain ones; and a
/// frame that contradicts its header is refused.
#[test]
fn packed_chunks_travel_as_they_are() {
    let world = World::new();
    let mut bytes = text(300_000, 1);
    let no = create(&world, 1, &bytes);
    write(&world, no, 30 * BLOCK_BYTES, b"far");
    bytes.resize(30 * BLOCK_BYTES as usize, 0);
    bytes.extend_from_slice(b"far");
    let id = seal(&world, "sealed");
    write(&world, no, 5, b"new");
    sweep(&world);
    let sealed = world.partition.volumes().volume(id).unwrap().unwrap();
    assert!(is_packed(&sealed, no));
    let plain = crate::changes_part(&sealed, 0, StreamCursor::START, 1 << 20).unwrap();
    let packed = crate::packed_changes_part(&sealed, 0, StreamCursor::START, 1 << 20).unwrap();
    assert!(packed.len() * 3 < plain.len(), "{} bytes, and {} plain", packed.len(), plain.len());
    assert_eq!(crate::stream::rewritten(&packed), Some(packed.clone()));
    let tree = VolumeId(77);
    let head = StreamPart::open(&packed).unwrap().head;
    for (part, compress) in [(&plain, true), (&packed, true), (&packed, false)] {
        let options = OpenOptions { seed: Some(3), compress, ..OpenOptions::default() };
        let copy = Partition::open_memory(&MemMachine::new(), options).unwrap();
        copy.streams().begin_incoming(tree, &head).unwrap();
        assert_eq!(copy.streams().apply_part(tree, part).unwrap(), StreamCursor::END);
        let name = Name::new(b"copy").unwrap();
        let view = NewClone {
            id: None,
            name,
            kind: VolumeKind::ReadOnly,
            now: Timestamp::new(3, 3),
            replaces: None,
        };
        let copied = copy.streams().finish_incoming(tree, &FinishAs::View(view)).unwrap();
        while copy.sweep(7).unwrap() > 0 {}
        assert_eq!((all(&copied, no), is_packed(&copied, no)), (bytes.clone(), compress));
    }
    // A frame of more than a chunk, one of less, and none at all, in a part with a right checksum.
    let frame_at = packed.windows(4).position(|at| at == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    let length = u32::from_le_bytes(packed[frame_at - 4..frame_at].try_into().unwrap()) as usize;
    for content in [vec![7; 1 << 20], vec![7; 1000], Vec::new()] {
        let frame = if content.is_empty() {
            b"no frame".to_vec()
        } else {
            zstd::bulk::compress(&content, 3).unwrap()
        };
        let mut fields = packed[1..frame_at - 4].to_vec();
        fields.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        fields.extend_from_slice(&frame);
        fields.extend_from_slice(&packed[frame_at + length..packed.len() - 4]);
        let copy = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
        copy.streams().begin_incoming(tree, &head).unwrap();
        let refused = copy.streams().apply_part(tree, &crate::stream::sealed(&fields));
        assert!(matches!(refused, Err(StoreError::NoStream(_))), "{refused:?}");
    }
}
