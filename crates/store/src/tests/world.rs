//! A volume beside a simple model of it, and random operations on both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use types::{
    AllocateMode, Cookie, Fid, KeyKeeper, Kind, Name, TREE_KEY_BYTES, Timestamp, TreeKey, VnodeNo,
    VolumeId, VolumeKind,
};

use crate::{
    BLOCK_BYTES, CommitScope, MemMachine, NewClone, NewFork, NewRoot, OpenOptions, Partition,
    ScrubFinding, Update, Vnode, Volume, VolumeQuota,
};

/// The offset of an operation on a body: mostly within a few blocks, sometimes around the end of
/// the first MiB.
pub(crate) fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..BLOCK_BYTES * 4,
        1 => (0..5_u64).prop_map(|block| block * BLOCK_BYTES),
        1 => BLOCK_BYTES * 62..BLOCK_BYTES * 66,
    ]
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(u8),
    Write {
        file: u8,
        offset: u64,
        length: u64,
        byte: u8,
    },
    Append {
        file: u8,
        length: u64,
        byte: u8,
    },
    Truncate {
        file: u8,
        size: u64,
    },
    Range {
        file: u8,
        offset: u64,
        length: u64,
        mode: u8,
    },
    Rename(u8, u8),
    Remove(u8),
    SetXattr(u8, u8),
    RemoveXattr(u8, u8),
    /// A write whose update is dropped.
    Abandon {
        file: u8,
        offset: u64,
        length: u64,
        byte: u8,
    },
    Commit(u8),
    /// Creates a clone with this number, in place of an existing one.
    Clone(u8),
    RemoveClone(u8),
    RenameClone(u8, u8),
    /// Creates a writable clone with this number of the current volume, unless there is one.
    Fork(u8),
    /// The same from a clone.
    ForkClone(u8, u8),
    /// Makes this writable clone the current volume (0: the original volume), if it exists.
    Turn(u8),
    /// Removes a writable clone, unless it is the current volume.
    RemoveFork(u8),
    Sync,
    SyncAll,
    Sweep,
    Kill,
    PowerLoss(u64),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![1..600_u64, 1..BLOCK_BYTES * 3, Just(BLOCK_BYTES)];
    let size = prop_oneof![offset(), Just(0)];
    let file = 0..6_u8;
    prop_oneof![
        3 => file.clone().prop_map(Op::Create),
        6 => (file.clone(), offset(), length.clone(), 1..=255_u8)
            .prop_map(|(file, offset, length, byte)| Op::Write { file, offset, length, byte }),
        3 => (file.clone(), length.clone(), 1..=255_u8)
            .prop_map(|(file, length, byte)| Op::Append { file, length, byte }),
        3 => (file.clone(), size).prop_map(|(file, size)| Op::Truncate { file, size }),
        3 => (file.clone(), offset(), length.clone(), 0..5_u8)
            .prop_map(|(file, offset, length, mode)| Op::Range { file, offset, length, mode }),
        1 => (file.clone(), 0..6_u8).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => file.clone().prop_map(Op::Remove),
        1 => (file.clone(), 0..3_u8).prop_map(|(file, name)| Op::SetXattr(file, name)),
        1 => (file.clone(), 0..3_u8).prop_map(|(file, name)| Op::RemoveXattr(file, name)),
        1 => (file.clone(), offset(), length, 1..=255_u8)
            .prop_map(|(file, offset, length, byte)| Op::Abandon { file, offset, length, byte }),
        3 => file.prop_map(Op::Commit),
        2 => (0..4_u8).prop_map(Op::Clone),
        1 => (0..4_u8).prop_map(Op::RemoveClone),
        1 => (0..4_u8, 0..4_u8).prop_map(|(from, to)| Op::RenameClone(from, to)),
        2 => (1..4_u8).prop_map(Op::Fork),
        1 => (1..4_u8, 0..4_u8).prop_map(|(fork, clone)| Op::ForkClone(fork, clone)),
        3 => (0..4_u8).prop_map(Op::Turn),
        1 => (0..4_u8).prop_map(Op::RemoveFork),
        1 => Just(Op::Sync),
        1 => Just(Op::SyncAll),
        1 => Just(Op::Sweep),
        1 => Just(Op::Kill),
        1 => any::<u64>().prop_map(Op::PowerLoss),
    ]
}

/// A file of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct File {
    /// Shared by all models with the same bytes.
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The root directory and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) names: BTreeMap<Vec<u8>, VnodeNo>,
    pub(crate) files: BTreeMap<VnodeNo, File>,
    /// Complete models of clones.
    pub(crate) clones: BTreeMap<Vec<u8>, Model>,
    /// Other read-write volumes.
    pub(crate) others: BTreeMap<Vec<u8>, Model>,
}

impl Model {
    /// The model of the current volume alone.
    fn alone(&self) -> Model {
        Model { names: self.names.clone(), files: self.files.clone(), ..Model::default() }
    }

    /// The file with this name.
    pub(crate) fn no(&self, file: u8) -> Option<VnodeNo> {
        self.names.get(name(file).as_bytes()).copied()
    }

    /// Switches from volume `from` to volume `to`, if it exists; returns whether it does.
    pub(crate) fn turn(&mut self, from: u8, to: u8) -> bool {
        let Some(other) = self.others.remove(turn_name(to).as_bytes()) else { return false };
        let left = self.alone();
        self.others.insert(turn_name(from).as_bytes().to_vec(), left);
        (self.names, self.files) = (other.names, other.files);
        true
    }

    /// Applies `op` to volume `turn`; returns the file whose bytes may change. `made` is the vnode
    /// of a file that it creates.
    pub(crate) fn apply(&mut self, turn: u8, op: &Op, made: VnodeNo) -> Option<VnodeNo> {
        let model = self;
        let no = |model: &Model, file: u8| model.names.get(name(file).as_bytes()).copied();
        let change = |model: &mut Model, file: u8, act: &dyn Fn(&mut Vec<u8>)| {
            let no = no(model, file)?;
            act(Arc::make_mut(&mut model.files.get_mut(&no).unwrap().bytes));
            Some(no)
        };
        match *op {
            Op::Create(file) => {
                if no(model, file).is_none() {
                    model.names.insert(name(file).as_bytes().to_vec(), made);
                    model.files.insert(made, File::default());
                }
                None
            }
            Op::Write { file, offset, length, byte } => {
                change(model, file, &|bytes| put(bytes, offset, length, byte))
            }
            Op::Append { file, length, byte } => {
                change(model, file, &|bytes| put(bytes, bytes.len() as u64, length, byte))
            }
            Op::Truncate { file, size } => {
                change(model, file, &|bytes| bytes.resize(size as usize, 0))
            }
            Op::Range { file, offset, length, mode } => change(model, file, &|bytes| {
                let (mode, end) = (MODES[usize::from(mode)], (offset + length) as usize);
                if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroExtend) {
                    bytes.resize(bytes.len().max(end), 0);
                }
                if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
                    let length = bytes.len();
                    bytes[length.min(offset as usize)..length.min(end)].fill(0);
                }
            }),
            Op::Rename(from, to) => {
                if from != to
                    && let Some(no) = model.names.remove(name(from).as_bytes())
                    && let Some(replaced) = model.names.insert(name(to).as_bytes().to_vec(), no)
                {
                    model.files.remove(&replaced);
                }
                None
            }
            Op::Remove(file) => {
                if let Some(no) = model.names.remove(name(file).as_bytes()) {
                    model.files.remove(&no);
                }
                None
            }
            Op::SetXattr(file, which) => {
                if let Some(no) = no(model, file) {
                    let xattrs = &mut model.files.get_mut(&no).unwrap().xattrs;
                    let value = vec![which; xattrs.len() + 1];
                    xattrs.insert(xattr(which), value);
                }
                None
            }
            Op::RemoveXattr(file, which) => {
                if let Some(no) = no(model, file) {
                    model.files.get_mut(&no).unwrap().xattrs.remove(&xattr(which));
                }
                None
            }
            Op::Clone(number) => {
                model.clones.insert(clone_name(turn, number).as_bytes().to_vec(), model.alone());
                None
            }
            Op::RemoveClone(number) => {
                model.clones.remove(clone_name(turn, number).as_bytes());
                None
            }
            Op::RenameClone(from, to) => {
                let (from, to) = (clone_name(turn, from), clone_name(turn, to));
                if !model.clones.contains_key(to.as_bytes())
                    && let Some(copy) = model.clones.remove(from.as_bytes())
                {
                    model.clones.insert(to.as_bytes().to_vec(), copy);
                }
                None
            }
            Op::Fork(fork) => {
                if model.may_fork(turn, fork) {
                    let copy = model.alone();
                    model.others.insert(turn_name(fork).as_bytes().to_vec(), copy);
                }
                None
            }
            Op::ForkClone(fork, number) => {
                if model.may_fork(turn, fork)
                    && let Some(copy) =
                        model.clones.get(clone_name(turn, number).as_bytes()).cloned()
                {
                    model.others.insert(turn_name(fork).as_bytes().to_vec(), copy);
                }
                None
            }
            Op::RemoveFork(fork) => {
                model.others.remove(turn_name(fork).as_bytes());
                None
            }
            _ => None,
        }
    }

    /// Whether there is no writable clone with this number, and none of its records.
    fn may_fork(&self, turn: u8, fork: u8) -> bool {
        let name = turn_name(fork);
        let of = [name.as_bytes(), b"."].concat();
        let left = self.clones.keys().any(|clone| clone.starts_with(&of));
        turn != fork && !left && !self.others.contains_key(name.as_bytes())
    }
}

/// A partition with a current volume, beside its model; `M` is the machine.
pub(crate) struct World<M = MemMachine> {
    pub(crate) machine: M,
    pub(crate) partition: Partition,
    pub(crate) volume: Arc<Volume>,
    pub(crate) model: Model,
    /// The number of the current volume.
    pub(crate) turn: u8,
    /// Gathers the operations on files, if it is open.
    pub(crate) scope: Option<CommitScope>,
}

/// A file in the root directory, which `fill` fills.
pub(crate) fn make_file(
    volume: &Volume,
    name: &Name,
    fill: impl FnOnce(&mut Vnode, &mut Update<'_>),
) -> Vnode {
    let mut update = Update::new();
    let mut dir = volume.vnode(VnodeNo::ROOT).unwrap().unwrap();
    let (no, unique) = volume.slots().unwrap().allocate(false).unwrap();
    let fid = Fid { volume: volume.id(), vnode: no, unique };
    let mut vnode = Vnode::new(fid, Kind::File, 0o600, 1, 1, VnodeNo::ROOT, Timestamp::default());
    update.create_vnode(&vnode);
    fill(&mut vnode, &mut update);
    volume.edit(&mut dir, &mut update).put_entry(name, vnode.target()).unwrap();
    update.put_vnode(&vnode);
    update.put_vnode(&dir);
    volume.commit(update).unwrap();
    vnode
}

pub(crate) fn options() -> OpenOptions {
    // Few open bodies, so that gates come and go.
    OpenOptions {
        seed: Some(7),
        open_bodies_max: 2,
        compress: true,
        keys: Some(Arc::new(Keys)),
        ..OpenOptions::default()
    }
}

/// Wraps keys reversibly, and rejects everything else.
#[derive(Debug)]
pub(crate) struct Keys;

impl KeyKeeper for Keys {
    fn wrap(&self, key: &TreeKey) -> Result<Vec<u8>, String> {
        Ok(key.iter().map(|byte| byte ^ 0x5a).chain(*b"test").collect())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<TreeKey, String> {
        let bytes = wrapped.strip_suffix(b"test").ok_or("not wrapped here")?;
        let key: [u8; TREE_KEY_BYTES] = bytes.try_into().map_err(|_| "of another length")?;
        Ok(TreeKey::new(key.map(|byte| byte ^ 0x5a)))
    }

    fn wrapped_by(&self, _wrapped: &[u8]) -> u32 {
        7
    }
}

pub(crate) fn new_root() -> NewRoot {
    NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 2),
        quota: VolumeQuota::default(),
    }
}

pub(crate) fn name(number: u8) -> Name {
    Name::new(format!("f{number}").as_bytes()).unwrap()
}

/// The name of a clone of the current volume.
fn clone_name(turn: u8, number: u8) -> Name {
    let text = if turn == 0 { format!("c{number}") } else { format!("w{turn}.c{number}") };
    Name::new(text.as_bytes()).unwrap()
}

/// The name of a current volume.
pub(crate) fn turn_name(turn: u8) -> Name {
    let text = if turn == 0 { "root".to_owned() } else { format!("w{turn}") };
    Name::new(text.as_bytes()).unwrap()
}

const MODES: [AllocateMode; 5] = [
    AllocateMode::Extend,
    AllocateMode::KeepSize,
    AllocateMode::PunchHole,
    AllocateMode::ZeroExtend,
    AllocateMode::ZeroKeepSize,
];

impl World {
    pub(crate) fn new() -> World {
        World::new_as(false)
    }

    /// A world whose names have another hash.
    pub(crate) fn another() -> World {
        World::new_with(false, OpenOptions { seed: Some(8), ..options() })
    }

    pub(crate) fn new_as(encrypted: bool) -> World {
        World::new_with(encrypted, options())
    }

    fn new_with(encrypted: bool, options: OpenOptions) -> World {
        let machine = MemMachine::new();
        let partition = Partition::open_memory(&machine, options).unwrap();
        let name = Name::new(b"root").unwrap();
        let volume = if encrypted {
            partition.volumes().create_volume_as(None, &name, &new_root(), true).unwrap()
        } else {
            partition.volumes().create_volume(&name, &new_root()).unwrap()
        };
        World { machine, partition, volume, model: Model::default(), turn: 0, scope: None }
    }

    /// The same world on another machine, with the same current volume.
    pub(crate) fn on(&self, machine: MemMachine) -> World {
        let mut world = World { turn: self.turn, ..World::new() };
        world.reopen(machine);
        world
    }

    /// Opens the same disk in a new process.
    pub(crate) fn reopen(&mut self, machine: MemMachine) {
        self.partition = Partition::open_memory(&machine, options()).unwrap();
        self.machine = machine;
        self.volume = self
            .partition
            .volumes()
            .volume_named(turn_name(self.turn).as_bytes())
            .unwrap()
            .unwrap();
    }
}

impl World<()> {
    /// The current volume in an open partition; the model is read from it.
    pub(crate) fn of(partition: Partition, turn: u8) -> World<()> {
        let volume = partition.volumes().volume_named(turn_name(turn).as_bytes()).unwrap().unwrap();
        let mut world =
            World { machine: (), partition, volume, model: Model::default(), turn, scope: None };
        world.model = world.found();
        world
    }
}

impl<M> World<M> {
    /// Ends the scope, if there is one.
    pub(crate) fn end_scope(&mut self) {
        self.scope.take().map(|scope| scope.write_out().unwrap());
    }

    fn vnode(&self, no: VnodeNo) -> Vnode {
        self.volume.vnode(no).unwrap().unwrap()
    }

    pub(crate) fn no(&self, file: u8) -> Option<VnodeNo> {
        self.model.no(file)
    }

    /// Applies `op` to the model; returns the file whose bytes may change.
    pub(crate) fn apply_model(&mut self, op: &Op, made: VnodeNo) -> Option<VnodeNo> {
        self.model.apply(self.turn, op, made)
    }

    /// Changes the current volume, if the new one exists. Everything is on disk.
    pub(crate) fn turn(&mut self, turn: u8) {
        if self.model.turn(self.turn, turn) {
            self.turn = turn;
            self.volume =
                self.partition.volumes().volume_named(turn_name(turn).as_bytes()).unwrap().unwrap();
        }
    }

    /// The number of the clone with this name.
    pub(crate) fn clone_id(&self, number: u8) -> Option<VolumeId> {
        let name = clone_name(self.turn, number);
        self.partition.volumes().volume_named(name.as_bytes()).unwrap().map(|volume| volume.id())
    }

    fn fork(&self, of: VolumeId, fork: u8) {
        let name = turn_name(fork);
        let left = self.partition.volumes().list(VolumeId(0), 100).unwrap();
        let of_it = |listed: &crate::VolumeFacts| {
            listed.name == name
                || listed.name.as_bytes().starts_with(&[name.as_bytes(), b"."].concat())
        };
        if !left.iter().any(of_it) {
            let new = NewFork { id: None, name, quota: None, now: Timestamp::new(6, 6) };
            let made = self.partition.volumes().fork_volume(of, &new).unwrap();
            assert!(made.is_writable() && made.tree_id() == made.id());
        }
    }

    /// Applies `op` on clones to the store.
    fn apply_clones(&self, op: &Op) {
        let now = Timestamp::new(5, 5);
        match *op {
            Op::Clone(number) => {
                let replaces = self.clone_id(number);
                // Half of them keep their numbers.
                let id = replaces.filter(|_| number.is_multiple_of(2));
                let name = clone_name(self.turn, number);
                let new = NewClone { id, name, kind: VolumeKind::Snapshot, now, replaces };
                self.partition.volumes().clone_volume(self.volume.id(), &new).unwrap();
            }
            Op::RemoveClone(number) => {
                if let Some(id) = self.clone_id(number) {
                    self.partition.remove_volume(id).unwrap();
                }
            }
            Op::RenameClone(from, to) => {
                let taken = self.clone_id(to).is_some();
                if let Some(id) = self.clone_id(from) {
                    let renamed =
                        self.partition.volumes().rename_volume(id, &clone_name(self.turn, to), now);
                    assert_eq!(renamed.is_err(), taken && from != to, "{renamed:?}");
                }
            }
            Op::Fork(fork) => self.fork(self.volume.id(), fork),
            Op::ForkClone(fork, number) => {
                if let Some(of) = self.clone_id(number) {
                    self.fork(of, fork);
                }
            }
            Op::RemoveFork(fork) => {
                let found =
                    self.partition.volumes().volume_named(turn_name(fork).as_bytes()).unwrap();
                if let Some(fork) = found.filter(|found| found.id() != self.volume.id()) {
                    self.partition.remove_volume(fork.id()).unwrap();
                }
            }
            _ => unreachable!("{op:?} is none on clones"),
        }
    }

    /// Applies `op` to the store. `earlier` is the model before it.
    pub(crate) fn apply_store(&mut self, op: &Op, earlier: &Model, made: VnodeNo) {
        let volume = self.volume.clone();
        let file_of = |file: u8| earlier.names.get(name(file).as_bytes()).map(|no| self.vnode(*no));
        let mut update = Update::within(self.scope.as_ref());
        match *op {
            Op::Create(file) => {
                if file_of(file).is_none() {
                    let mut dir = self.vnode(VnodeNo::ROOT);
                    let fid = Fid::new(volume.id().0, made.0, made.0 / 2 + 1);
                    let mut vnode = Vnode::new(
                        fid,
                        Kind::File,
                        0o600,
                        1,
                        1,
                        VnodeNo::ROOT,
                        Timestamp::default(),
                    );
                    // Half of them keep their body files for ever, as if a kernel had them.
                    vnode.handed = vnode.no().0.is_multiple_of(4);
                    volume
                        .edit(&mut dir, &mut update)
                        .put_entry(&name(file), vnode.target())
                        .unwrap();
                    update.create_vnode(&vnode);
                    update.put_vnode(&dir);
                }
            }
            Op::Write { file, offset, length, byte } => {
                if let Some(mut vnode) = file_of(file) {
                    volume
                        .body(&mut vnode, &mut update)
                        .unwrap()
                        .write(offset, &vec![byte; length as usize])
                        .unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::Append { file, length, byte } => {
                if let Some(mut vnode) = file_of(file) {
                    let end = vnode.status.size;
                    volume
                        .body(&mut vnode, &mut update)
                        .unwrap()
                        .write(end, &vec![byte; length as usize])
                        .unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::Truncate { file, size } => {
                if let Some(mut vnode) = file_of(file) {
                    volume.body(&mut vnode, &mut update).unwrap().truncate(size).unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::Range { file, offset, length, mode } => {
                if let Some(mut vnode) = file_of(file) {
                    volume
                        .body(&mut vnode, &mut update)
                        .unwrap()
                        .allocate_range(offset, length, MODES[usize::from(mode)])
                        .unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::Rename(from, to) => {
                if from != to
                    && let Some(vnode) = file_of(from)
                {
                    let mut dir = self.vnode(VnodeNo::ROOT);
                    volume
                        .edit(&mut dir, &mut update)
                        .remove_entry(name(from).as_bytes())
                        .unwrap()
                        .unwrap();
                    volume
                        .edit(&mut dir, &mut update)
                        .put_entry(&name(to), vnode.target())
                        .unwrap();
                    update.put_vnode(&dir);
                    if let Some(replaced) = file_of(to) {
                        volume.drop_vnode(&replaced, &mut update).unwrap();
                    }
                }
            }
            Op::Remove(file) => {
                if let Some(vnode) = file_of(file) {
                    let mut dir = self.vnode(VnodeNo::ROOT);
                    volume
                        .edit(&mut dir, &mut update)
                        .remove_entry(name(file).as_bytes())
                        .unwrap()
                        .unwrap();
                    update.put_vnode(&dir);
                    volume.drop_vnode(&vnode, &mut update).unwrap();
                }
            }
            Op::SetXattr(file, which) => {
                if let Some(mut vnode) = file_of(file) {
                    let value = vec![which; volume.xattrs(&vnode).unwrap().len() + 1];
                    volume.edit(&mut vnode, &mut update).put_xattr(&xattr(which), &value).unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::RemoveXattr(file, which) => {
                if let Some(mut vnode) = file_of(file) {
                    volume.edit(&mut vnode, &mut update).remove_xattr(&xattr(which)).unwrap();
                    update.put_vnode(&vnode);
                }
            }
            Op::Abandon { file, offset, length, byte } => {
                if let Some(mut vnode) = file_of(file) {
                    volume
                        .body(&mut vnode, &mut update)
                        .unwrap()
                        .write(offset, &vec![byte; length as usize])
                        .unwrap();
                }
                return;
            }
            Op::Commit(file) => {
                if let Some(vnode) = file_of(file) {
                    volume.sync_body(&vnode).unwrap();
                    self.partition.sync().unwrap();
                }
                return;
            }
            Op::Clone(_)
            | Op::RemoveClone(_)
            | Op::RenameClone(..)
            | Op::Fork(_)
            | Op::ForkClone(..)
            | Op::RemoveFork(_) => return self.apply_clones(op),
            Op::Sync => return self.partition.sync().unwrap(),
            Op::SyncAll => return self.partition.sync_all().unwrap(),
            Op::Sweep => {
                self.partition.sweep(100).unwrap();
                return;
            }
            Op::Kill | Op::PowerLoss(_) | Op::Turn(_) => return,
        }
        volume.commit(update).unwrap();
    }

    /// The store's state of the root directory and its files, and of all clones.
    pub(crate) fn found(&self) -> Model {
        let mut found = contents(&self.volume);
        for listed in self.partition.volumes().list(VolumeId(0), 100).unwrap() {
            let volume = self.partition.volumes().volume(listed.id).unwrap().unwrap();
            assert_eq!(volume.info(), listed);
            let name = listed.name.as_bytes().to_vec();
            if listed.kind != VolumeKind::ReadWrite {
                found.clones.insert(name, contents(&volume));
            } else if volume.id() != self.volume.id() {
                found.others.insert(name, contents(&volume));
            }
        }
        found
    }

    /// Whether a file's bytes are in its record, so that they are atomic with it.
    pub(crate) fn is_inline(&self, no: VnodeNo) -> bool {
        !self.vnode(no).place.is_file()
    }

    /// Checks everything; stray files do not count.
    pub(crate) fn scrub(&self) -> Vec<ScrubFinding> {
        let mut findings = self.scrub_all();
        findings.retain(|finding| !matches!(finding, ScrubFinding::StrayBody { .. }));
        findings
    }

    /// Checks everything.
    pub(crate) fn scrub_all(&self) -> Vec<ScrubFinding> {
        self.partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap().findings
    }
}

/// The state that a volume shows.
pub(crate) fn contents(volume: &Volume) -> Model {
    let mut found = Model::default();
    let (entries, end) = volume.read_dir(VnodeNo::ROOT, Cookie::START, 1000).unwrap();
    assert!(end);
    for entry in entries {
        let no = entry.target.vnode;
        let vnode = volume.vnode(no).unwrap().unwrap();
        assert_eq!(vnode.status.fid.volume, volume.id());
        let bytes = volume.reader_of(&vnode).unwrap().read(0, 1 << 30).unwrap().to_vec();
        assert_eq!(bytes.len() as u64, vnode.status.size);
        let value = |name: &[u8]| volume.xattr(&vnode, name).unwrap().unwrap().to_vec();
        let xattrs =
            volume.xattrs(&vnode).unwrap().iter().map(|(n, _)| (n.to_vec(), value(n))).collect();
        assert_eq!(volume.lookup(VnodeNo::ROOT, entry.name.as_bytes()).unwrap().unwrap(), entry);
        found.names.insert(entry.name.as_bytes().to_vec(), no);
        found.files.insert(no, File { bytes: Arc::new(bytes), xattrs });
    }
    found
}

fn put(bytes: &mut Vec<u8>, offset: u64, length: u64, byte: u8) {
    let end = (offset + length) as usize;
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset as usize..end].fill(byte);
}

fn xattr(which: u8) -> Vec<u8> {
    format!("user.{which}").into_bytes()
}

impl<M> std::fmt::Debug for World<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.model.fmt(f)
    }
}
