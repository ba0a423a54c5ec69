//! Operations of applications.
#![allow(missing_docs)] // The variants are documented as a whole; a field is named for what it is.

use bytes::Bytes;
use rand::Rng;
use types::{
    ByteRange, Call, Cookie, CreateHow, Fid, LockFamily, LockMode, LockOwner, Name, NewKind,
    RemoveWhat, RenameMode, StatusChange,
};

use crate::ground::Ground;
use crate::history::{APPEND_BYTES, OpNo, data_of};
use crate::server::SharedTree;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read all data of a file.
    Read(Fid),
    /// Read a status.
    Stat(Fid),
    /// Replace all data of a file.
    Write { fid: Fid, bytes: usize, stable: bool },
    /// Append a record to the log.
    Append { fid: Fid, stable: bool },
    /// Make earlier writes stable.
    Commit(Fid),
    /// Change mode bits.
    Chmod(Fid, u16),
    /// Make a name that no other application touches.
    MakeOwn(Name),
    /// Remove such a name.
    RemoveOwn(Name),
    /// Look a shared name up.
    Lookup(Name),
    /// Make a shared name.
    MakeShared { name: Name, guarded: bool },
    /// Remove a shared name.
    RemoveShared(Name),
    /// Rename a shared name.
    RenameShared(Name, Name),
    /// Open the file of a shared name for a while, read it, close it.
    Open(Name),
    /// Read an open file: it must still exist.
    ReadOpen(Fid),
    /// Lock a file for a while.
    Lock { fid: Fid, exclusive: bool, family: LockFamily },
    /// Ask for a delegation of the nest.
    Nest,
    /// Make a name in the nest.
    NestMake(Name),
    /// Remove a name in the nest.
    NestRemove(Name),
    /// List the nest.
    NestList,
}

const SHARED: [&str; 3] = ["s0", "s1", "s2"];

fn shared(ground: &mut Ground) -> Name {
    Name::new(SHARED[ground.rng.random_range(0..SHARED.len())].as_bytes()).expect("a name")
}

/// The name that an operation of `client` makes for itself.
fn own(client: usize, op: OpNo) -> Name {
    Name::new(format!("{}{}", own_prefix(client), op.0).as_bytes()).expect("a name")
}

/// The prefix of such names.
pub fn own_prefix(client: usize) -> String {
    format!("own-{client}-")
}

/// Draws an operation.
pub fn draw(ground: &mut Ground, tree: &SharedTree, client: usize, op: OpNo) -> Op {
    let stable = ground.one_in(3);
    let (file, bytes) = tree.files[usize::from(ground.one_in(4))];
    match ground.rng.random_range(0..130) {
        0..22 => Op::Read(file),
        22..32 => Op::Stat([file, tree.dir, tree.log][ground.rng.random_range(0..3)]),
        32..50 => Op::Write { fid: file, bytes, stable },
        50..57 => Op::Append { fid: tree.log, stable },
        57..62 => Op::Commit([file, tree.dir][ground.rng.random_range(0..2)]),
        62..65 => Op::Chmod(file, 0o600 | ground.rng.random_range(0..0o100)),
        65..71 => Op::MakeOwn(own(client, op)),
        71..76 => match ground.history.own_names(own_prefix(client).as_bytes()).pop() {
            Some(name) => Op::RemoveOwn(name),
            None => Op::MakeOwn(own(client, op)),
        },
        76..82 => Op::Lookup(shared(ground)),
        82..86 => Op::MakeShared { name: shared(ground), guarded: ground.one_in(2) },
        86..89 => Op::RemoveShared(shared(ground)),
        89..91 => Op::RenameShared(shared(ground), shared(ground)),
        91..94 => Op::Open(shared(ground)),
        100..108 => Op::Nest,
        108..122 => match ground.history.nest.names().pop() {
            Some(name) if ground.one_in(3) => Op::NestRemove(name),
            _ => Op::NestMake(
                Name::new(format!("asked-{client}-{}", op.0).as_bytes()).expect("a name"),
            ),
        },
        122..130 => Op::NestList,
        _ => {
            let flock = ground.one_in(2);
            let family = if flock { LockFamily::Flock } else { LockFamily::Posix };
            Op::Lock { fid: tree.locks[usize::from(flock)], exclusive: !ground.one_in(3), family }
        }
    }
}

/// Draws a read that the cache may answer.
pub fn draw_look(ground: &mut Ground, tree: &SharedTree) -> Op {
    let (file, _) = tree.files[ground.rng.random_range(0..tree.files.len())];
    match ground.rng.random_range(0..4) {
        0 => Op::Read(file),
        1 => Op::Stat(file),
        2 => Op::Stat(tree.dir),
        _ => Op::Lookup(shared(ground)),
    }
}

impl Op {
    /// The call of the operation. Removals always ask for a hold, since the removed file may be
    /// open here; the client releases an unneeded hold at once.
    pub fn call(&self, tree: &SharedTree, op: OpNo, owner: LockOwner) -> Call {
        let dir = tree.dir;
        let make = |name: &Name, how| Call::Make {
            dir,
            name: name.clone(),
            kind: NewKind::File,
            mode: 0o644,
            how,
        };
        let write = |fid, offset, bytes, stable| Call::Write {
            fid,
            offset,
            data: Bytes::from(data_of(op, bytes)),
            stable,
            kill_privileges: false,
        };
        match self {
            Op::Read(fid) | Op::ReadOpen(fid) => {
                Call::Read { fid: *fid, offset: 0, length: 1 << 16 }
            }
            Op::Stat(fid) => Call::GetStatus { fid: *fid },
            Op::Write { fid, bytes, stable } => write(*fid, Some(0), *bytes, *stable),
            Op::Append { fid, stable } => write(*fid, None, APPEND_BYTES, *stable),
            Op::Commit(fid) => Call::Commit { fid: *fid },
            Op::Chmod(fid, mode) => {
                let change = StatusChange { mode: Some(*mode), ..StatusChange::default() };
                Call::SetStatus { fid: *fid, change }
            }
            Op::Nest => Call::Delegate { fid: tree.nest },
            Op::NestMake(name) => Call::Make {
                dir: tree.nest,
                name: name.clone(),
                kind: NewKind::File,
                mode: 0o644,
                how: CreateHow::Guarded,
            },
            Op::NestRemove(name) => Call::Remove {
                dir: tree.nest,
                name: name.clone(),
                what: RemoveWhat::File,
                hold: false,
            },
            Op::NestList => Call::ReadDir {
                dir: tree.nest,
                cookie: Cookie::START,
                bytes_max: 1 << 17,
                plus: false,
            },
            Op::MakeOwn(name) => make(name, CreateHow::Guarded),
            Op::MakeShared { name, guarded } => {
                make(name, if *guarded { CreateHow::Guarded } else { CreateHow::Unchecked })
            }
            Op::RemoveOwn(name) | Op::RemoveShared(name) => {
                Call::Remove { dir, name: name.clone(), what: RemoveWhat::File, hold: true }
            }
            Op::RenameShared(from, to) => Call::Rename {
                from_dir: dir,
                from: from.clone(),
                to_dir: dir,
                to: to.clone(),
                mode: RenameMode::Replace,
                hold: true,
            },
            Op::Lookup(name) | Op::Open(name) => Call::Lookup { dir, name: name.clone() },
            Op::Lock { fid, exclusive, family } => lock(*fid, owner, *exclusive, *family, false),
        }
    }

    /// The file whose cached state this operation makes old.
    pub fn changes(&self, tree: &SharedTree) -> Option<Fid> {
        match self {
            Op::Write { fid, .. } | Op::Append { fid, .. } | Op::Chmod(fid, _) => Some(*fid),
            Op::MakeOwn(_)
            | Op::RemoveOwn(_)
            | Op::MakeShared { .. }
            | Op::RemoveShared(_)
            | Op::RenameShared(..) => Some(tree.dir),
            _ => None,
        }
    }

    /// Shared names that it changes, and whether it makes them.
    pub fn shared_names(&self) -> Vec<(Name, bool)> {
        match self {
            Op::MakeShared { name, .. } => vec![(name.clone(), true)],
            Op::RemoveShared(name) => vec![(name.clone(), false)],
            Op::RenameShared(from, to) if from != to => {
                vec![(from.clone(), false), (to.clone(), true)]
            }
            _ => Vec::new(),
        }
    }
}

/// A call for a lock of the whole file.
pub fn lock(
    fid: Fid,
    owner: LockOwner,
    exclusive: bool,
    family: LockFamily,
    reclaim: bool,
) -> Call {
    let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
    Call::Lock { fid, owner, pid: 1, family, range: ByteRange::ALL, mode, wait: !reclaim, reclaim }
}
