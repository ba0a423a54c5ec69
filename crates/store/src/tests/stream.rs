//! Copies made by streams equal the sealed epoch at the source in bytes, names, cookies, statuses,
//! versions, attributes and holes, despite streams that were abandoned, repeated, or cut off by a
//! crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use proptest::prelude::*;
use types::{
    Cookie, Fid, Kind, Name, Status, StreamCursor, Timestamp, VnodeNo, VolumeId, VolumeKind,
};

use super::world::{Op, World, make_file, new_root, op, options};
use crate::format::key::kind;
use crate::{
    BLOCK_BYTES, FinishAs, MemMachine, NewClone, PART_BYTES_MIN, Partition, ScrubFinding,
    StoreError, StoredEntry, StreamPart, Update, Usage, Vnode, Volume, VolumeQuota,
};

/// The visible state of a vnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    parent: VnodeNo,
    exclusive: u64,
    entries: Vec<StoredEntry>,
    xattrs: Vec<(Bytes, Bytes)>,
    bytes: Bytes,
    blocks: Vec<u32>,
    charged: u64,
}

pub(crate) type Whole = (BTreeMap<VnodeNo, Seen>, Usage);

pub(crate) fn whole(volume: &Volume) -> Whole {
    let (mut found, mut all) = (BTreeMap::new(), BTreeSet::new());
    let mut visit = |no| {
        all.insert(no);
        ControlFlow::Continue(())
    };
    volume.tree().each_vnode_no(VnodeNo(1), &mut visit).unwrap();
    for no in all {
        let Some(vnode) = volume.vnode(no).unwrap() else { continue };
        let xattr = |(name, _): (Bytes, usize)| {
            let value = volume.xattr(&vnode, &name).unwrap().unwrap();
            (name, value)
        };
        let mut seen = Seen {
            status: Status { fid: Fid { volume: VolumeId(0), ..vnode.status.fid }, ..vnode.status },
            parent: vnode.parent,
            exclusive: vnode.exclusive,
            entries: volume.read_dir(no, Cookie::START, 1000).unwrap().0,
            xattrs: volume.xattrs(&vnode).unwrap().into_iter().map(xattr).collect(),
            bytes: Bytes::new(),
            blocks: Vec::new(),
            charged: 0,
        };
        assert_eq!(seen.entries.len() as u64, vnode.entries);
        for entry in &seen.entries {
            assert_eq!(
                volume.lookup(no, entry.name.as_bytes()).unwrap().map(|found| found.target),
                Some(entry.target),
                "{:?}",
                entry.name
            );
        }
        if vnode.status.kind == Kind::File {
            let reader = volume.reader(no).unwrap().unwrap();
            seen.bytes = reader.read(0, 1 << 30).unwrap();
            seen.blocks = reader.sums(0, 1 << 20).unwrap();
            seen.charged = reader.charged(0, u64::MAX).unwrap();
        }
        found.insert(no, seen);
    }
    (found, volume.usage())
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A view with this number, in place of an earlier view of that number.
fn view(id: u64, text: &str, of: &Partition) -> FinishAs {
    let replaces = of.volumes().volume(VolumeId(id)).unwrap().map(|volume| volume.id());
    let kind = VolumeKind::Snapshot;
    FinishAs::View(NewClone {
        id: Some(VolumeId(id)),
        name: name(text),
        kind,
        now: Timestamp::new(9, 9),
        replaces,
    })
}

/// Sends parts until `stop` returns `true`; returns whether all were sent.
pub(crate) fn send(
    source: &Volume,
    since: u64,
    to: &Partition,
    tree: VolumeId,
    stop: &mut dyn FnMut(&Bytes) -> bool,
) -> Result<bool, StoreError> {
    let first = crate::packed_changes_part(source, since, StreamCursor::START, PART_BYTES_MIN)?;
    let mut cursor = to.streams().begin_incoming(tree, &StreamPart::open(&first)?.head)?;
    while cursor != StreamCursor::END {
        let part = crate::packed_changes_part(source, since, cursor, PART_BYTES_MIN)?;
        assert!(part.len() <= PART_BYTES_MIN, "a part has {} bytes", part.len());
        if stop(&part) {
            return Ok(false);
        }
        cursor = to.streams().apply_part(tree, &part)?;
    }
    Ok(true)
}

/// The epoch to start from: the copy's, if the source shows it too.
fn common(source: &Volume, copy: &Partition, id: u64) -> u64 {
    let has = copy.volumes().volume(VolumeId(id)).unwrap().map_or(0, |volume| volume.epoch());
    if crate::changes_part(source, has, StreamCursor::START, PART_BYTES_MIN).is_ok() {
        has
    } else {
        0
    }
}

fn scrubbed(partition: &Partition) {
    assert_eq!(findings(partition), []);
}

pub(crate) fn findings(partition: &Partition) -> Vec<ScrubFinding> {
    while partition.sweep(100).unwrap() > 0 {}
    partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap().findings
}

pub(crate) fn open(machine: &MemMachine) -> Partition {
    Partition::open_memory(machine, options()).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    World(Op),
    /// Sends the clone with this number, and abandons the stream after so many parts, if it needs
    /// that many.
    Pull(u8, Option<u8>),
    /// Sends a part again.
    Again,
    Abandon,
    /// Sweeps the copy, and packs its bodies.
    Sweep,
    Kill,
    PowerLoss(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => op()
            .prop_filter("of the copy alone", |op| !matches!(op, Op::Kill | Op::PowerLoss(_)))
            .prop_map(Step::World),
        4 => (0..4_u8).prop_map(|number| Step::World(Op::Clone(number))),
        6 => (0..4_u8, prop_oneof![Just(None), (0..4_u8).prop_map(Some)])
            .prop_map(|(of, stop)| Step::Pull(of, stop)),
        1 => Just(Step::Again),
        1 => Just(Step::Abandon),
        4 => Just(Step::Sweep),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ]
}

const COPY: u64 = 1000;
const RELAYED: u64 = 2000;

struct Pair {
    world: World,
    machine: MemMachine,
    copy: Partition,
    last: Option<Bytes>,
    /// The state that the copy's view must show.
    expected: Option<(u64, Whole)>,
}

impl Pair {
    fn new() -> Pair {
        let machine = MemMachine::new();
        Pair { world: World::new(), copy: open(&machine), machine, last: None, expected: None }
    }

    fn tree(&self) -> VolumeId {
        self.world.volume.id()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::World(op) => {
                let made = if matches!(op, Op::Create(_)) {
                    self.world.volume.slots().unwrap().allocate(false).unwrap().0
                } else {
                    VnodeNo(0)
                };
                let earlier = self.world.model.clone();
                self.world.apply_model(op, made);
                self.world.apply_store(op, &earlier, made);
                if let Op::Abandon { .. } = op {
                    self.world.model = self.world.found();
                }
            }
            Step::Pull(number, stop) => self.pull(*number, *stop),
            Step::Again => {
                if let Some(part) = self.last.take() {
                    // The copy refuses a part of a finished stream.
                    let _ = self.copy.streams().apply_part(self.tree(), &part);
                }
            }
            Step::Abandon => drop(self.copy.streams().abandon_incoming(self.tree())),
            Step::Sweep => self.copy.sweep(100).map(drop).unwrap(),
            Step::Kill => self.copy = open(&self.machine),
            Step::PowerLoss(seed) => {
                let machine = self.machine.power_loss(*seed);
                self.machine = machine;
                self.copy = open(&self.machine);
            }
        }
        self.check(&self.copy);
    }

    fn pull(&mut self, number: u8, stop: Option<u8>) {
        let Some(id) = self.world.clone_id(number) else { return };
        let source = self.world.partition.volumes().volume(id).unwrap().unwrap();
        let since = common(&source, &self.copy, COPY);
        let mut left = stop.map_or(usize::MAX, usize::from);
        let last = &mut self.last;
        let mut stops = |part: &Bytes| {
            *last = Some(part.clone());
            left = left.wrapping_sub(1);
            left == usize::MAX
        };
        let sent = send(&source, since, &self.copy, self.world.volume.id(), &mut stops);
        match sent {
            Ok(true) => self.finish(&source),
            Ok(false) => {}
            // The copy has the epoch or a newer one, or sweeps an earlier one.
            Err(StoreError::Taken(_) | StoreError::NoStream(_) | StoreError::Busy(_)) => {
                self.copy.sweep(100).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The copy shows the old or the new state, whenever the power fails.
    fn finish(&mut self, source: &Volume) {
        let new = Some((source.epoch(), whole(source)));
        self.machine.keep_images();
        let finished = self
            .copy
            .streams()
            .finish_incoming(self.tree(), &view(COPY, "copy", &self.copy))
            .unwrap();
        for (seed, image) in self.machine.images().into_iter().enumerate() {
            let copy = open(&image.power_loss(seed as u64));
            let shows = copy
                .volumes()
                .volume(VolumeId(COPY))
                .unwrap()
                .map(|volume| (volume.epoch(), whole(&volume)));
            assert!(
                shows == new || shows == self.expected,
                "image {seed} shows {:?}",
                shows.map(|shows| shows.0)
            );
        }
        assert_eq!(finished.epoch(), source.epoch());
        self.expected = new;
        assert!(matches!(
            self.copy.streams().finish_incoming(self.tree(), &view(1, "x", &self.copy)),
            Err(StoreError::NoVolume(_))
        ));
    }

    fn check(&self, copy: &Partition) {
        let shows = copy
            .volumes()
            .volume(VolumeId(COPY))
            .unwrap()
            .map(|volume| (volume.epoch(), whole(&volume)));
        assert!(shows == self.expected, "shows {:?}\nnot {:?}", shows, self.expected);
        if let Some(volume) = copy.volumes().volume(VolumeId(COPY)).unwrap() {
            assert_eq!(volume.name(), name("copy"));
        }
    }
}

pub(crate) fn config() -> ProptestConfig {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64);
    ProptestConfig {
        cases,
        max_shrink_iters: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_copy_is_what_was_sealed_whatever_happens_on_the_way(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut pair = Pair::new();
        let relayed = open(&MemMachine::new());
        for step in &steps {
            pair.step(step);
            // The copy is a source like any other.
            let copy = pair.copy.volumes().volume(VolumeId(COPY)).unwrap();
            if let (Step::Pull(..), Some(copy)) = (step, copy) {
                let since = common(&copy, &relayed, RELAYED);
                match send(&copy, since, &relayed, pair.tree(), &mut |_| false) {
                    Ok(_) => {
                        let finish = view(RELAYED, "relayed", &relayed);
                        let streams = relayed.streams();
                        let relay = streams.finish_incoming(pair.tree(), &finish).unwrap();
                        prop_assert_eq!(whole(&relay), whole(&copy));
                    }
                    Err(StoreError::Taken(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        scrubbed(&relayed);
        // An abandoned stream leaves no records.
        let _ = pair.copy.streams().abandon_incoming(pair.tree());
        pair.copy.sync_all().unwrap();
        // A loss of power leaves files without a record.
        let powerless = steps.iter().any(|step| matches!(step, Step::PowerLoss(_)));
        let mut found = findings(&pair.copy);
        found.retain(|found| !(powerless && matches!(found, ScrubFinding::StrayBody { .. })));
        prop_assert_eq!(found, []);
        pair.check(&pair.copy);
        if pair.expected.is_some() {
            pair.copy.remove_volume(VolumeId(COPY)).unwrap();
        }
        while pair.copy.sweep(100).unwrap() > 0 {}
        let machine = pair.machine.0.lock();
        let left: Vec<_> = machine
            .log
            .keys()
            .filter(|key| key[0] != kind::PARTITION)
            .map(|key| key.escape_ascii().to_string())
            .collect();
        prop_assert_eq!(left, Vec::<String>::new());
    }
}

pub(crate) fn clone_of<M>(world: &World<M>, text: &str) -> std::sync::Arc<Volume> {
    let kind = VolumeKind::Snapshot;
    let new =
        NewClone { id: None, name: name(text), kind, now: Timestamp::new(3, 3), replaces: None };
    world.partition.volumes().clone_volume(world.volume.id(), &new).unwrap()
}

/// A file in the root directory, which `fill` fills.
fn make(world: &World, text: &str, fill: impl FnOnce(&mut Vnode, &mut Update<'_>)) -> Vnode {
    make_file(&world.volume, &name(text), fill)
}

pub(crate) fn copied(
    source: &Volume,
    copy: &Partition,
    id: u64,
) -> (std::sync::Arc<Volume>, usize) {
    let mut bytes = 0;
    let tree = source.tree_id();
    let mut count = |part: &Bytes| {
        bytes += part.len();
        false
    };
    assert!(send(source, common(source, copy, id), copy, tree, &mut count).unwrap());
    let volume =
        copy.streams().finish_incoming(tree, &view(id, &format!("copy{id}"), copy)).unwrap();
    assert_eq!(whole(&volume), whole(source));
    (volume, bytes)
}

#[test]
fn what_is_sent_is_what_changed() {
    let world = World::new();
    let fill = |byte: u8, blocks: u64| {
        let volume = world.volume.clone();
        move |vnode: &mut Vnode, update: &mut Update<'_>| {
            volume
                .body(vnode, update)
                .unwrap()
                .write(0, &vec![byte; (blocks * BLOCK_BYTES) as usize])
                .unwrap();
        }
    };
    let big = make(&world, "big", fill(1, 200));
    let sparse = make(&world, "sparse", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(1 << 30, b"far").unwrap();
        world
            .volume
            .body(vnode, update)
            .unwrap()
            .allocate_range(2 << 30, 1 << 20, types::AllocateMode::KeepSize)
            .unwrap();
    });
    for number in 0..100 {
        make(&world, &format!("small{number}"), fill(2, 0));
    }
    let copy = open(&MemMachine::new());
    let (first, bytes) = copied(&clone_of(&world, "one"), &copy, COPY);
    assert!(bytes < (201 * BLOCK_BYTES + (60 << 10)) as usize, "{bytes} bytes: holes are not sent");
    // One block of a large file.
    let write = |no: VnodeNo, offset: u64, data: &[u8]| {
        let mut vnode = world.volume.vnode(no).unwrap().unwrap();
        let mut update = Update::new();
        world.volume.body(&mut vnode, &mut update).unwrap().write(offset, data).unwrap();
        update.put_vnode(&vnode);
        world.volume.commit(update).unwrap();
    };
    write(big.no(), 77 * BLOCK_BYTES + 5, b"changed");
    write(sparse.no(), 1 << 20, b"near");
    let (second, bytes) = copied(&clone_of(&world, "two"), &copy, COPY);
    assert!(bytes < (2 * BLOCK_BYTES + 1024) as usize, "{bytes} bytes for two blocks");
    // A name in a directory of a hundred: the part has its bucket (there are few in these tests),
    // not the others.
    make(&world, "new", fill(3, 0));
    let (_, bytes) = copied(&clone_of(&world, "three"), &copy, COPY);
    assert!(bytes < 1024, "{bytes} bytes for a name");
    assert!(first.is_gone() && second.is_gone());
    scrubbed(&copy);
}

/// As in a move: the last part has slots that were not allocated when the first part came.
#[test]
fn slots_are_not_reused_after_a_stream_in_several_steps() {
    let world = World::new();
    let copy = open(&MemMachine::new());
    make(&world, "f", |_, _| {});
    let (first, tree) = (clone_of(&world, "first"), world.volume.id());
    copied(&first, &copy, COPY);
    for _ in 0..5 {
        world.volume.slots().unwrap().allocate_run().unwrap();
    }
    let last = make(&world, "g", |_, _| {});
    let second = clone_of(&world, "second");
    assert!(send(&second, first.epoch(), &copy, tree, &mut |_| false).unwrap());
    let finish = FinishAs::ReadWrite {
        name: name("moved"),
        quota: VolumeQuota::default(),
        created: Timestamp::new(4, 4),
        now: Timestamp::new(5, 5),
        arriving: false,
    };
    let moved = copy.streams().finish_incoming(tree, &finish).unwrap();
    let (no, _) = moved.slots().unwrap().allocate(false).unwrap();
    assert!(no > last.no(), "{no:?} after {:?}", last.no());
}

#[test]
fn a_copy_becomes_a_read_write_volume_and_goes_on() {
    let world = World::new();
    make(&world, "f", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(0, &[1; 50_000]).unwrap();
    });
    let sealed = clone_of(&world, "sealed");
    let copy = open(&MemMachine::new());
    assert!(send(&sealed, 0, &copy, VolumeId(77), &mut |_| false).unwrap());
    let finish = FinishAs::ReadWrite {
        name: name("restored"),
        quota: VolumeQuota { bytes: 1 << 30, files: 0 },
        created: Timestamp::new(4, 4),
        now: Timestamp::new(5, 5),
        arriving: true,
    };
    let restored = copy.streams().finish_incoming(VolumeId(77), &finish).unwrap();
    assert_eq!(whole(&restored), whole(&sealed));
    let info = restored.info();
    assert_eq!(
        (info.kind, info.id, info.name, info.tree),
        (VolumeKind::ReadWrite, VolumeId(77), name("restored"), VolumeId(77))
    );
    assert_eq!(
        (info.quota.bytes, info.created, info.updated),
        (1 << 30, Timestamp::new(4, 4), Timestamp::new(5, 5))
    );
    assert!(restored.is_arriving());
    let fields = crate::VolumeFields { arriving: Some(false), ..crate::VolumeFields::default() };
    copy.volumes().set_fields(VolumeId(77), fields, Timestamp::new(6, 6)).unwrap();
    assert!(!restored.is_arriving());
    // No slot of the source is allocated again.
    let (no, _) = restored.slots().unwrap().allocate(false).unwrap();
    assert!(no.0 / 2 >= 4096, "{no:?}");
    let (other, _) = restored.slots().unwrap().allocate(true).unwrap();
    let mut update = Update::new();
    let fid = Fid::new(77, other.0, 5);
    update.create_vnode(&Vnode::new(fid, Kind::File, 0, 0, 0, VnodeNo::ROOT, Timestamp::default()));
    restored.commit(update).unwrap();
    assert!(matches!(
        copy.streams().begin_incoming(VolumeId(77), &head_of(&sealed)),
        Err(StoreError::Taken("number"))
    ));
    let again = copy.volumes().create_volume(&name("restored"), &new_root());
    assert!(matches!(again, Err(StoreError::Taken("name"))));
}

/// A part with every kind of item.
pub(crate) fn part() -> Bytes {
    let world = World::new();
    make(&world, "gone", |_, _| {});
    let file = make(&world, "f", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(0, &[1; 3 * BLOCK_BYTES as usize]).unwrap();
        world.volume.edit(vnode, update).put_xattr(b"user.a", b"value").unwrap();
        world
            .volume
            .body(vnode, update)
            .unwrap()
            .allocate_range(1 << 20, 1 << 16, types::AllocateMode::KeepSize)
            .unwrap();
    });
    let one = clone_of(&world, "one");
    let mut dir = world.volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let mut update = Update::new();
    let gone = world.volume.edit(&mut dir, &mut update).remove_entry(b"gone").unwrap().unwrap();
    let gone = world.volume.vnode(gone.target.vnode).unwrap().unwrap();
    world.volume.drop_vnode(&gone, &mut update).unwrap();
    update.put_vnode(&dir);
    world.volume.commit(update).unwrap();
    make(&world, "short", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(0, b"inline").unwrap();
    });
    let mut vnode = world.volume.vnode(file.no()).unwrap().unwrap();
    let mut update = Update::new();
    world.volume.body(&mut vnode, &mut update).unwrap().write(BLOCK_BYTES, b"changed").unwrap();
    update.put_vnode(&vnode);
    world.volume.commit(update).unwrap();
    crate::changes_part(&clone_of(&world, "two"), one.epoch(), StreamCursor::START, 0).unwrap()
}

fn head_of(source: &Volume) -> crate::StreamHead {
    StreamPart::open(&crate::changes_part(source, 0, StreamCursor::START, 0).unwrap()).unwrap().head
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_everything_as_it_was() {
    let world = World::new();
    make(&world, "f", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(0, &[1; 500_000]).unwrap();
    });
    let one = clone_of(&world, "one");
    make(&world, "g", |vnode, update| {
        world.volume.body(vnode, update).unwrap().write(0, &[2; 500_000]).unwrap();
    });
    let two = clone_of(&world, "two");
    let tree = world.volume.id();
    let copy = open(&MemMachine::new());
    let delta = crate::changes_part(&two, one.epoch(), StreamCursor::START, 0).unwrap();
    let refused = |result: Result<StreamCursor, StoreError>| {
        assert!(matches!(result, Err(StoreError::NoStream(_))), "{result:?}");
    };
    // The copy lacks the epoch to start from.
    refused(copy.streams().begin_incoming(tree, &StreamPart::open(&delta).unwrap().head));
    assert_eq!(copy.streams().incomings().unwrap(), []);
    assert!(matches!(copy.streams().apply_part(tree, &delta), Err(StoreError::NoVolume(_))));
    // Parts in disorder, of another stream, damaged.
    let first = crate::changes_part(&one, 0, StreamCursor::START, 0).unwrap();
    let part = StreamPart::open(&first).unwrap();
    copy.streams().begin_incoming(tree, &part.head).unwrap();
    refused(copy.streams().apply_part(tree, &crate::changes_part(&one, 0, part.to, 0).unwrap()));
    refused(
        copy.streams()
            .apply_part(tree, &crate::changes_part(&two, 0, StreamCursor::START, 0).unwrap()),
    );
    for at in (0..first.len()).step_by(997) {
        let mut bad = first.to_vec();
        bad[at] ^= 0x40;
        refused(copy.streams().apply_part(tree, &bad.into()));
        refused(copy.streams().apply_part(tree, &first.slice(..at)));
    }
    assert!(matches!(
        copy.streams().finish_incoming(tree, &view(COPY, "copy", &copy)),
        Err(StoreError::NoStream(_))
    ));
    assert_eq!(copy.volumes().list(VolumeId(0), 10).unwrap(), []);
    // A tree with another hash key.
    let other = World::new();
    drop(other.partition.volumes().create_volume(&name("second"), &new_root()).unwrap());
    let stranger = other.partition.volumes().volume_named(b"second").unwrap().unwrap();
    let new = NewClone {
        id: None,
        name: name("s"),
        kind: VolumeKind::Snapshot,
        now: Timestamp::default(),
        replaces: None,
    };
    let stranger = other.partition.volumes().clone_volume(stranger.id(), &new).unwrap();
    let (_, _) = copied(&one, &copy, COPY);
    refused(copy.streams().begin_incoming(tree, &head_of(&stranger)));
    // The same stream again, and older ones.
    assert!(matches!(
        copy.streams().begin_incoming(tree, &head_of(&one)),
        Err(StoreError::Taken("epoch"))
    ));
    let (_, _) = copied(&two, &copy, COPY);
    refused(copy.streams().begin_incoming(tree, &head_of(&one)));
    assert!(matches!(
        crate::changes_part(&world.volume, 0, StreamCursor::START, 0),
        Err(StoreError::Misuse(_))
    ));
    assert!(matches!(
        crate::changes_part(&two, two.epoch() + 5, StreamCursor::START, 0),
        Err(StoreError::Misuse(_))
    ));
    scrubbed(&copy);
}

/// An abandoned stream left the body in a file of its own, so unchanged blocks come from the epoch
/// `since`, which is packed by now.
#[test]
fn what_is_the_same_is_copied_from_a_packed_body() {
    let world = World::new();
    let file = make(&world, "f", |vnode, update| {
        world
            .volume
            .body(vnode, update)
            .unwrap()
            .write(0, &[7; 40 * BLOCK_BYTES as usize])
            .unwrap();
    });
    let change = |block: u64| {
        let mut vnode = world.volume.vnode(file.no()).unwrap().unwrap();
        let mut update = Update::new();
        world
            .volume
            .body(&mut vnode, &mut update)
            .unwrap()
            .write(block * BLOCK_BYTES, b"changed")
            .unwrap();
        update.put_vnode(&vnode);
        world.volume.commit(update).unwrap();
    };
    let options = crate::OpenOptions { compress: true, ..options() };
    let copy = Partition::open_memory(&MemMachine::new(), options).unwrap();
    let first = clone_of(&world, "one");
    let (kept, _) = copied(&first, &copy, COPY);
    while copy.sweep(100).unwrap() > 0 {}
    let place = kept.vnode(file.no()).unwrap().unwrap().place;
    assert!(matches!(place, crate::BodyLocation::File { packed: true, .. }), "{place:?}");
    change(3);
    let given_up = clone_of(&world, "two");
    assert!(send(&given_up, first.epoch(), &copy, world.volume.id(), &mut |_| false).unwrap());
    change(5);
    copied(&clone_of(&world, "three"), &copy, COPY);
    scrubbed(&copy);
}

/// A restart in the middle of a body: it is not known whether the body was patched or rebuilt.
#[test]
fn a_stream_goes_on_in_the_middle_of_a_body() {
    for given_up in [false, true] {
        for power in [None, Some(1), Some(2)] {
            let world = World::new();
            let file = make(&world, "f", |vnode, update| {
                world
                    .volume
                    .body(vnode, update)
                    .unwrap()
                    .write(0, &[7; 60 * BLOCK_BYTES as usize])
                    .unwrap();
            });
            let change = |byte: u8| {
                let mut vnode = world.volume.vnode(file.no()).unwrap().unwrap();
                let mut update = Update::new();
                let first = u64::from(byte) * BLOCK_BYTES;
                world
                    .volume
                    .body(&mut vnode, &mut update)
                    .unwrap()
                    .write(first, &[byte; 30 * BLOCK_BYTES as usize])
                    .unwrap();
                update.put_vnode(&vnode);
                world.volume.commit(update).unwrap();
            };
            let machine = MemMachine::new();
            let copy = open(&machine);
            let (tree, first) = (world.volume.id(), clone_of(&world, "one"));
            let (kept, _) = copied(&first, &copy, COPY);
            if given_up {
                change(9);
                let earlier = clone_of(&world, "earlier");
                assert!(send(&earlier, first.epoch(), &copy, tree, &mut |_| false).unwrap());
            }
            change(1);
            let last = clone_of(&world, "last");
            let mut parts = 0;
            let mut third = |_: &Bytes| {
                parts += 1;
                parts == 3
            };
            assert!(!send(&last, first.epoch(), &copy, tree, &mut third).unwrap());
            drop((copy, kept));
            let machine = power.map_or(machine.clone(), |seed| machine.power_loss(seed));
            let copy = open(&machine);
            let begun = copy.streams().incomings().unwrap()[0].cursor;
            assert!(begun > StreamCursor { vnode: file.no(), stage: 3, position: 0 }, "{begun:?}");
            copied(&last, &copy, COPY);
            copy.sync_all().unwrap();
            scrubbed(&copy);
        }
    }
}
