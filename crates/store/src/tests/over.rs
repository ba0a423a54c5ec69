//! Dumps over a volume: it shows its former state until the dump is complete, and then the dump's,
//! despite aborts, crashes and changes in between.

use bytes::Bytes;
use proptest::prelude::*;
use types::{StreamCursor, Timestamp, VnodeNo, VolumeId, VolumeKind};

use super::stream::{Whole, config, findings, name, open, whole};
use super::world::{Op, World, make_file, op};
use crate::media::engine::{Batch, Engine as _};
use crate::{
    FinishAs, MemMachine, NewClone, PART_BYTES_MIN, Partition, ScrubFinding, StoreError,
    StreamPart, Update, Volume, VolumeQuota,
};

const TREE: VolumeId = VolumeId(77);
/// The value in `stream/over.rs`.
const SHIFT: u64 = 1 << 40;

#[derive(Clone, Debug)]
enum Step {
    Source(Op),
    /// Later dumps come from another volume.
    Switch,
    /// Sends the clone with this number: in full, or since the base of the volume; abandons the
    /// stream after so many parts, if it needs that many.
    Restore {
        clone: u8,
        full: bool,
        stop: Option<u8>,
    },
    Abandon,
    /// Changes a file of the restored volume, and creates some.
    Change(u8),
    /// Creates a snapshot of the restored volume, or removes it.
    Snapshot(u8),
    Forget(u8),
    Sweep,
    Kill,
    PowerLoss(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let stop = || prop_oneof![2 => Just(None), 1 => (0..4_u8).prop_map(Some)];
    prop_oneof![
        16 => op()
            .prop_filter("of the copy alone", |op| !matches!(op, Op::Kill | Op::PowerLoss(_)))
            .prop_map(Step::Source),
        4 => (0..4_u8).prop_map(|number| Step::Source(Op::Clone(number))),
        1 => Just(Step::Switch),
        8 => (0..4_u8, prop::bool::weighted(0.2), stop())
            .prop_map(|(clone, full, stop)| Step::Restore { clone, full, stop }),
        1 => Just(Step::Abandon),
        1 => any::<u8>().prop_map(Step::Change),
        2 => (0..3_u8).prop_map(Step::Snapshot),
        1 => (0..3_u8).prop_map(Step::Forget),
        4 => Just(Step::Sweep),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ]
}

/// The versions at the source.
fn unshifted((mut vnodes, usage): Whole) -> Whole {
    for seen in vnodes.values_mut() {
        seen.status.data_version.0 %= SHIFT;
        seen.status.status_version.0 %= SHIFT;
    }
    (vnodes, usage)
}

struct Setup {
    source: World,
    /// Another volume, whose names have another hash.
    other: World,
    /// Whether the volume's state, and that of a stream that comes in, is of `other`, or after a
    /// switch of `source`.
    is_of_other: bool,
    machine: MemMachine,
    copy: Partition,
    shows: Whole,
    /// The epoch of the source that is the base of the volume.
    base: Option<u64>,
    snapshots: Vec<(VolumeId, Whole)>,
}

fn finish() -> FinishAs {
    FinishAs::ReadWrite {
        name: name("restored"),
        quota: VolumeQuota::default(),
        created: Timestamp::new(4, 4),
        now: Timestamp::new(5, 5),
        arriving: false,
    }
}

/// Sends parts until `stop` returns `true`; returns whether all were sent.
fn send(
    source: &Volume,
    since: u64,
    to: &Partition,
    mut cursor: StreamCursor,
    stop: &mut dyn FnMut(&Bytes) -> bool,
) -> Result<bool, StoreError> {
    while cursor != StreamCursor::END {
        let part = crate::changes_part(source, since, cursor, PART_BYTES_MIN)?;
        if stop(&part) {
            return Ok(false);
        }
        cursor = to.streams().apply_part(TREE, &part)?;
    }
    Ok(true)
}

fn begin(source: &Volume, since: u64, to: &Partition) -> Result<StreamCursor, StoreError> {
    let first = crate::changes_part(source, since, StreamCursor::START, PART_BYTES_MIN)?;
    to.streams().begin_over(TREE, &StreamPart::open(&first)?.head)
}

impl Setup {
    fn new() -> Setup {
        let (source, other) = (World::new(), World::another());
        let machine = MemMachine::new();
        let copy = open(&machine);
        let sealed = sealed(&source, "first");
        let first = crate::changes_part(&sealed, 0, StreamCursor::START, PART_BYTES_MIN).unwrap();
        let cursor =
            copy.streams().begin_incoming(TREE, &StreamPart::open(&first).unwrap().head).unwrap();
        assert!(send(&sealed, 0, &copy, cursor, &mut |_| false).unwrap());
        copy.streams().finish_incoming(TREE, &finish()).unwrap();
        let (shows, base) = (whole(&sealed), Some(sealed.epoch()));
        Setup {
            source,
            other,
            is_of_other: false,
            machine,
            copy,
            shows,
            base,
            snapshots: Vec::new(),
        }
    }

    fn volume(&self) -> std::sync::Arc<Volume> {
        self.copy.volumes().volume(TREE).unwrap().unwrap()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Source(op) => {
                let source = &mut self.source;
                let made = if matches!(op, Op::Create(_)) {
                    source.volume.slots().unwrap().allocate(false).unwrap().0
                } else {
                    VnodeNo(0)
                };
                let earlier = source.model.clone();
                source.apply_model(op, made);
                source.apply_store(op, &earlier, made);
                if let Op::Abandon { .. } = op {
                    source.model = source.found();
                }
            }
            Step::Switch => {
                std::mem::swap(&mut self.source, &mut self.other);
                self.is_of_other = !self.is_of_other;
            }
            Step::Restore { clone, full, stop } => self.restore(*clone, *full, *stop),
            Step::Abandon => drop(self.copy.streams().abandon_incoming(TREE)),
            Step::Change(number) => self.change(*number),
            Step::Snapshot(number) => self.snapshot(*number),
            Step::Forget(number) => {
                if !self.snapshots.is_empty() {
                    let (id, _) =
                        self.snapshots.remove(usize::from(*number) % self.snapshots.len());
                    self.copy.remove_volume(id).unwrap();
                }
            }
            Step::Sweep => self.copy.sweep(100).map(drop).unwrap(),
            Step::Kill => self.copy = open(&self.machine),
            Step::PowerLoss(seed) => {
                self.copy.sync_all().unwrap();
                let machine = self.machine.power_loss(*seed);
                self.machine = machine;
                self.copy = open(&self.machine);
            }
        }
        self.check(&self.copy);
    }

    fn restore(&mut self, clone: u8, full: bool, stop: Option<u8>) {
        let Some(id) = self.source.clone_id(clone) else { return };
        let source = self.source.partition.volumes().volume(id).unwrap().unwrap();
        let since = if full || self.is_of_other { 0 } else { self.base.unwrap_or(source.epoch()) };
        if crate::changes_part(&source, since, StreamCursor::START, PART_BYTES_MIN).is_err() {
            return;
        }
        let cursor = match begin(&source, since, &self.copy) {
            Ok(cursor) => cursor,
            // An earlier stream still comes in, or is being swept.
            Err(StoreError::Busy(_)) => return,
            // Snapshots show names with the other hash.
            Err(StoreError::NoStream(_)) if self.is_of_other && !self.snapshots.is_empty() => {
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(!self.is_of_other || self.snapshots.is_empty());
        let mut left = stop.map_or(usize::MAX, usize::from);
        let mut stops = |_: &Bytes| {
            left = left.wrapping_sub(1);
            left == usize::MAX
        };
        if send(&source, since, &self.copy, cursor, &mut stops).unwrap() {
            self.finish(&source);
        }
    }

    /// The volume shows the old or the new state, whenever the power fails.
    fn finish(&mut self, source: &Volume) {
        let new = unshifted(whole(source));
        self.machine.keep_images();
        self.copy.streams().finish_over(TREE, Timestamp::new(8, 8)).unwrap();
        for (seed, image) in self.machine.images().into_iter().enumerate() {
            let copy = open(&image.power_loss(seed as u64));
            let shows = unshifted(whole(&copy.volumes().volume(TREE).unwrap().unwrap()));
            assert!(shows == new || shows == self.shows, "image {seed} shows something else");
        }
        (self.shows, self.base, self.is_of_other) = (new, Some(source.epoch()), false);
        assert!(matches!(
            self.copy.streams().finish_over(TREE, Timestamp::default()),
            Err(StoreError::NoVolume(_))
        ));
    }

    fn change(&mut self, number: u8) {
        let volume = self.volume();
        if volume.is_being_restored() {
            assert!(matches!(
                volume.slots().and_then(|slots| slots.allocate(false)),
                Err(StoreError::Busy(_))
            ));
            return;
        }
        make_file(
            &volume,
            &name(&format!("new{number}.{}", volume.slots().unwrap().allocate(false).unwrap().0.0)),
            |vnode, update| {
                volume.body(vnode, update).unwrap().write(0, &[number; 9000]).unwrap();
            },
        );
        let mut old = (2..200).map(VnodeNo).filter_map(|no| volume.vnode(no).unwrap());
        if let Some(mut vnode) = old.rfind(|old| old.status.kind == types::Kind::File) {
            let mut update = Update::new();
            volume.body(&mut vnode, &mut update).unwrap().write(0, b"changed").unwrap();
            update.put_vnode(&vnode);
            volume.commit(update).unwrap();
        }
        self.copy.sync_all().unwrap();
        (self.shows, self.base) = (unshifted(whole(&volume)), None);
    }

    fn snapshot(&mut self, number: u8) {
        let name =
            name(&format!("snapshot{number}.{}", self.copy.volumes().next_volume().unwrap().0));
        let kind = VolumeKind::Snapshot;
        let new = NewClone { id: None, name, kind, now: Timestamp::new(3, 3), replaces: None };
        match self.copy.volumes().clone_volume(TREE, &new) {
            Ok(made) => self.snapshots.push((made.id(), unshifted(whole(&made)))),
            Err(StoreError::Busy(_)) => assert!(self.volume().is_being_restored()),
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self, copy: &Partition) {
        assert_eq!(unshifted(whole(&copy.volumes().volume(TREE).unwrap().unwrap())), self.shows);
        assert_eq!(copy.volumes().base_epoch(TREE).unwrap(), self.base);
        for (id, shows) in &self.snapshots {
            assert_eq!(
                unshifted(whole(&copy.volumes().volume(*id).unwrap().unwrap())),
                *shows,
                "snapshot {id:?}"
            );
        }
    }
}

fn sealed(world: &World, text: &str) -> std::sync::Arc<Volume> {
    let kind = VolumeKind::Snapshot;
    let new =
        NewClone { id: None, name: name(text), kind, now: Timestamp::new(3, 3), replaces: None };
    world.partition.volumes().clone_volume(world.volume.id(), &new).unwrap()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_volume_shows_what_it_had_or_what_was_restored(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut setup = Setup::new();
        steps.iter().for_each(|step| setup.step(step));
        let _ = setup.copy.streams().abandon_incoming(TREE);
        setup.copy.sync_all().unwrap();
        let powerless = steps.iter().any(|step| matches!(step, Step::PowerLoss(_)));
        let mut found = findings(&setup.copy);
        let is_stray = |found: &crate::ScrubFinding| {
            matches!(found, crate::ScrubFinding::StrayBody { .. })
        };
        found.retain(|found| !(powerless && is_stray(found)));
        prop_assert_eq!(found, []);
        setup.check(&setup.copy);
        prop_assert!(!setup.volume().is_being_restored());
        for (id, _) in &setup.snapshots {
            setup.copy.remove_volume(*id).unwrap();
        }
        setup.copy.remove_volume(TREE).unwrap();
        while setup.copy.sweep(100).unwrap() > 0 {}
        let machine = setup.machine.0.lock();
        let left: Vec<_> = machine
            .log
            .keys()
            .filter(|key| key[0] != crate::format::key::kind::PARTITION)
            .map(|key| key.escape_ascii().to_string())
            .collect();
        prop_assert_eq!(left, Vec::<String>::new());
    }
}

fn whole_key(world: &World) -> u128 {
    let of = sealed(world, "key");
    let part = crate::changes_part(&of, 0, StreamCursor::START, PART_BYTES_MIN).unwrap();
    StreamPart::open(&part).unwrap().head.hash_key
}

#[test]
fn an_increment_fits_what_nobody_changed_and_says_so_otherwise() {
    let mut setup = Setup::new();
    let source = setup.source.volume.clone();
    let make = |text: &str| {
        make_file(&source, &name(text), |vnode, update| {
            source.body(vnode, update).unwrap().write(0, &[7; 70_000]).unwrap();
        });
    };
    make("f");
    let second = sealed(&setup.source, "second");
    make("g");
    let third = sealed(&setup.source, "third");
    let first = setup.base.unwrap();
    let refused = |begun: Result<StreamCursor, StoreError>| {
        assert!(matches!(begun, Err(StoreError::NoStream(_))));
    };
    refused(begin(&third, second.epoch(), &setup.copy));
    let cursor = begin(&second, first, &setup.copy).unwrap();
    assert!(setup.volume().is_being_restored());
    assert!(send(&second, first, &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&second);
    refused(begin(&second, first, &setup.copy));
    setup.change(1);
    refused(begin(&third, second.epoch(), &setup.copy));
    // A stream of another volume.
    let part = crate::changes_part(&second, 0, StreamCursor::START, PART_BYTES_MIN).unwrap();
    let head = StreamPart::open(&part).unwrap().head;
    assert_ne!(whole_key(&setup.source), whole_key(&setup.other), "their names have other hashes");
    let other = crate::StreamHead { hash_key: !head.hash_key, ..head };
    refused(setup.copy.streams().begin_over(TREE, &crate::StreamHead { since: 1, ..other }));
    setup.snapshot(1);
    refused(setup.copy.streams().begin_over(TREE, &other));
    setup.step(&Step::Forget(0));
    // A full stream fits any volume, and versions rise.
    let before = setup.volume().vnode(VnodeNo::ROOT).unwrap().unwrap().status;
    let cursor = begin(&second, 0, &setup.copy).unwrap();
    assert!(send(&second, 0, &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&second);
    let after = setup.volume().vnode(VnodeNo::ROOT).unwrap().unwrap().status;
    assert!(
        after.data_version > before.data_version && after.status_version > before.status_version
    );
    // The next increment fits again.
    let cursor = begin(&third, second.epoch(), &setup.copy).unwrap();
    assert!(send(&third, second.epoch(), &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&third);
    setup.check(&setup.copy);
    let last = setup.volume().vnode(VnodeNo::ROOT).unwrap().unwrap().status;
    assert!(last.data_version >= after.data_version);
    // A full stream of another volume fits too, and so does its increment.
    setup.step(&Step::Switch);
    make_file(&setup.source.volume.clone(), &name("elsewhere"), |_, _| {});
    let first = sealed(&setup.source, "first of the other");
    let cursor = begin(&first, 0, &setup.copy).unwrap();
    assert!(send(&first, 0, &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&first);
    assert!(setup.volume().lookup(VnodeNo::ROOT, b"elsewhere").unwrap().is_some());
    assert!(setup.volume().lookup(VnodeNo::ROOT, b"g").unwrap().is_none());
    make_file(&setup.source.volume.clone(), &name("later"), |_, _| {});
    let second = sealed(&setup.source, "second of the other");
    let cursor = begin(&second, first.epoch(), &setup.copy).unwrap();
    assert!(send(&second, first.epoch(), &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&second);
    setup.check(&setup.copy);
}

#[test]
fn a_volume_being_restored_can_be_removed_and_is_not_sealed() {
    let setup = Setup::new();
    make_file(&setup.source.volume, &name("f"), |_, _| {});
    let second = sealed(&setup.source, "second");
    begin(&second, setup.base.unwrap(), &setup.copy).unwrap();
    let kind = VolumeKind::Snapshot;
    let new =
        NewClone { id: None, name: name("s"), kind, now: Timestamp::new(3, 3), replaces: None };
    assert!(matches!(setup.copy.volumes().clone_volume(TREE, &new), Err(StoreError::Busy(_))));
    assert!(matches!(setup.copy.volumes().hold_volume(TREE, true), Err(StoreError::Busy(_))));
    setup.copy.remove_volume(TREE).unwrap();
    while setup.copy.sweep(100).unwrap() > 0 {}
    assert!(
        setup.copy.volumes().volume(TREE).unwrap().is_none()
            && !setup.copy.volumes().has_tree(TREE).unwrap()
    );
    assert_eq!(setup.copy.streams().incomings().unwrap(), []);
}

/// The disk becomes full under a stream: the error says so, the volume is unchanged, and the stream
/// continues when there is room again.
#[test]
fn a_full_disk_under_a_stream_leaves_everything_as_it_was() {
    let mut setup = Setup::new();
    let source = setup.source.volume.clone();
    make_file(&source, &name("large"), |vnode, update| {
        source.body(vnode, update).unwrap().write(0, &[7; 900_000]).unwrap();
    });
    let second = sealed(&setup.source, "second");
    let first = setup.base.unwrap();
    setup.machine.set_capacity(600 << 10);
    let cursor = begin(&second, first, &setup.copy).unwrap();
    let refused = send(&second, first, &setup.copy, cursor, &mut |_| false);
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    setup.check(&setup.copy);
    // After abandoning the stream the volume is as before.
    setup.copy.streams().abandon_incoming(TREE).unwrap();
    while setup.copy.sweep(100).unwrap() > 0 {}
    assert_eq!(findings(&setup.copy), []);
    assert_eq!(setup.machine.0.lock().files.names(), []);
    assert!(!setup.volume().is_being_restored());
    setup.check(&setup.copy);
    // A continued stream completes.
    let cursor = begin(&second, first, &setup.copy).unwrap();
    assert!(matches!(
        send(&second, first, &setup.copy, cursor, &mut |_| false),
        Err(StoreError::NoSpace)
    ));
    setup.machine.set_capacity(1 << 40);
    let cursor = begin(&second, first, &setup.copy).unwrap();
    assert!(send(&second, first, &setup.copy, cursor, &mut |_| false).unwrap());
    setup.finish(&second);
    assert_eq!(findings(&setup.copy), []);
}

#[test]
fn an_epoch_of_the_same_number_of_another_copy_is_no_base() {
    let setup = Setup::new();
    make_file(&setup.source.volume.clone(), &name("here"), |_, _| {});
    let second = sealed(&setup.source, "second");
    let part =
        crate::changes_part(&second, setup.base.unwrap(), StreamCursor::START, PART_BYTES_MIN)
            .unwrap();
    let head = StreamPart::open(&part).unwrap().head;
    let of_another = crate::StreamHead { tree: VolumeId(head.tree.0 + 1), ..head };
    assert!(matches!(
        setup.copy.streams().begin_over(TREE, &of_another),
        Err(StoreError::NoStream(_))
    ));
    assert!(setup.copy.streams().begin_over(TREE, &head).is_ok());
}

/// The record of a stream that comes in over a volume has a layout of its own, and a volume may
/// stay so for long: that is no damage.
#[test]
fn scrub_finds_nothing_wrong_with_what_comes_in() {
    let setup = Setup::new();
    make_file(&setup.source.volume, &name("f"), |_, _| {});
    let second = sealed(&setup.source, "second");
    let cursor = begin(&second, setup.base.unwrap(), &setup.copy).unwrap();
    assert_eq!(findings(&setup.copy), []);
    assert!(send(&second, setup.base.unwrap(), &setup.copy, cursor, &mut |_| false).unwrap());
    assert_eq!(findings(&setup.copy), []);
    // Damage in the record is still found.
    let key = crate::format::key::progress(TREE);
    let mut value = setup.copy.0.media.engine.get(&key).unwrap().unwrap().to_vec();
    value[20] ^= 1;
    let mut batch = Batch::default();
    batch.put(&key, &value);
    setup.copy.0.media.apply(&batch).unwrap();
    let damaged = ScrubFinding::DamagedRecord { key: key.escape_ascii().to_string() };
    assert_eq!(findings(&setup.copy), [damaged]);
}
