//! A call, and how one is drawn.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::SmallRng;
use rustix::fs::OFlags;

use super::side::Side;

/// Files that are open at once, at most.
pub(super) const SLOTS: usize = 16;
/// Entries of the tree from which on more are removed than made.
const ENTRIES_MANY: usize = 150;
/// Directories below each other.
const DEPTH_MAX: usize = 4;
const NAMES: [&[u8]; 10] =
    [b"a", b"b", b"c", b"d", b"e", b"f", b"g.txt", b".h", b"\xff\xfe", b"j k"];
const ATTRIBUTES: [&str; 4] = ["user.a", "user.b", "user.c", "trusted.d"];

/// Where a path begins.
#[derive(Clone, Debug)]
pub(super) enum Base {
    Place(usize),
    /// A directory that is open.
    Slot(usize),
}

/// A path.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub base: Base,
    pub path: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RenameHow {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    Reserve,
    ReserveBehind,
    Punch,
    Zero,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LockHow {
    Shared,
    Exclusive,
    Unlock,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SetHow {
    Any,
    Create,
    Replace,
}

/// One call. Slots are files that are open.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Open { slot: usize, at: At, flags: OFlags, mode: u32 },
    OpenTemporary { slot: usize, at: At },
    Close { slot: usize },
    Read { slot: usize, length: usize },
    Write { slot: usize, length: usize, fill: u8 },
    ReadAt { slot: usize, offset: u64, length: usize },
    WriteAt { slot: usize, offset: u64, length: usize, fill: u8 },
    Seek { slot: usize, from: u8, by: i64 },
    Truncate { at: At, size: u64 },
    TruncateOpen { slot: usize, size: u64 },
    Allocate { slot: usize, what: Space, offset: u64, length: u64 },
    CopyRange { from: usize, to: usize, from_offset: u64, to_offset: u64, length: usize },
    Map { slot: usize, length: usize, writable: bool },
    MapRead { slot: usize, offset: usize, length: usize },
    MapWrite { slot: usize, offset: usize, length: usize, fill: u8 },
    MapSync { slot: usize },
    Unmap { slot: usize },
    Sync { slot: usize, data_only: bool },
    Forget { slot: usize },
    MakeDir { at: At, mode: u32 },
    RemoveDir { at: At },
    Unlink { at: At },
    RemoveTree { at: At },
    Rename { from: At, to: At, how: RenameHow },
    Link { from: At, to: At },
    LinkOpen { slot: usize, to: At },
    Symlink { target: PathBuf, at: At },
    ReadLink { at: At },
    MakeNode { at: At, socket: bool, mode: u32 },
    Chmod { at: At, mode: u32 },
    ChmodOpen { slot: usize, mode: u32 },
    Chown { at: At, user: Option<u32>, group: Option<u32>, follow: bool },
    SetTimes { at: At, accessed: Option<(i64, u32)>, modified: Option<(i64, u32)>, follow: bool },
    SetAttribute { at: At, name: &'static str, length: usize, fill: u8, how: SetHow, follow: bool },
    GetAttribute { at: At, name: &'static str, follow: bool },
    ListAttributes { at: At, follow: bool },
    RemoveAttribute { at: At, name: &'static str, follow: bool },
    Stat { at: At, follow: bool },
    StatOpen { slot: usize },
    Access { at: At, what: u8 },
    List { at: At },
    ListOpen { slot: usize },
    Flock { slot: usize, how: LockHow },
    RangeLock { slot: usize, how: LockHow, offset: i64, length: i64 },
    ProcessLock { slot: usize, other: usize, exclusive: bool, offset: i64, length: i64 },
}

impl Call {
    /// The call that follows. `place` and `second` are the places of its paths.
    pub fn draw(random: &mut SmallRng, tree: &Side, place: usize, second: usize) -> Call {
        let mut draw = Draw { random, tree, place };
        let is_full = tree.entries() > ENTRIES_MANY;
        let number = draw.random.random_range(0..1000);
        match number {
            0..90 => draw.open(),
            90..100 => Call::OpenTemporary { slot: draw.free_slot(), at: draw.dir() },
            100..160 => draw.with_slot(|_, slot| Call::Close { slot }),
            160..200 => draw.with_slot(|draw, slot| Call::Read { slot, length: draw.length() }),
            200..250 => draw.with_slot(|draw, slot| {
                let (length, fill) = (draw.length(), draw.fill());
                Call::Write { slot, length, fill }
            }),
            250..290 => draw.with_slot(|draw, slot| {
                let (offset, length) = draw.range();
                Call::ReadAt { slot, offset, length }
            }),
            290..350 => draw.with_slot(|draw, slot| {
                let ((offset, length), fill) = (draw.range(), draw.fill());
                Call::WriteAt { slot, offset, length, fill }
            }),
            350..365 => draw.with_slot(|draw, slot| {
                let (from, by) = (draw.one_of(&[0, 1, 2]), draw.random.random_range(-9000..60_000));
                Call::Seek { slot, from, by }
            }),
            365..385 => Call::Truncate { at: draw.path(), size: draw.range().0 },
            385..405 => draw.with_slot(|draw, slot| {
                let size = draw.range().0;
                Call::TruncateOpen { slot, size }
            }),
            405..430 => draw.with_slot(|draw, slot| {
                let (offset, length) = draw.range();
                let what =
                    draw.one_of(&[Space::Reserve, Space::ReserveBehind, Space::Punch, Space::Zero]);
                Call::Allocate { slot, what, offset, length: length as u64 }
            }),
            430..445 => draw.with_slot(|draw, from| {
                let (to, (from_offset, length)) = (draw.slot(), draw.range());
                let to_offset = draw.range().0;
                Call::CopyRange { from, to, from_offset, to_offset, length }
            }),
            445..465 => draw.with_slot(|draw, slot| {
                let (length, writable) = (draw.range().1, draw.random.random());
                Call::Map { slot, length, writable }
            }),
            465..485 => draw.with_map(|draw, slot| {
                let (offset, length) = draw.range();
                Call::MapRead { slot, offset: offset as usize, length }
            }),
            485..510 => draw.with_map(|draw, slot| {
                let ((offset, length), fill) = (draw.range(), draw.fill());
                Call::MapWrite { slot, offset: offset as usize, length, fill }
            }),
            510..515 => draw.with_map(|_, slot| Call::MapSync { slot }),
            515..525 => draw.with_map(|_, slot| Call::Unmap { slot }),
            525..530 => draw.with_slot(|draw, slot| {
                let data_only = draw.random.random();
                Call::Sync { slot, data_only }
            }),
            530..535 => draw.with_slot(|_, slot| Call::Forget { slot }),
            535..575 if !is_full => Call::MakeDir { at: draw.new_path(), mode: draw.mode() },
            535..585 => Call::RemoveDir { at: draw.path() },
            585..620 => Call::Unlink { at: draw.path() },
            620..622 => Call::RemoveTree { at: draw.dir_below() },
            622..625 if is_full => Call::RemoveTree { at: draw.dir_below() },
            622..700 => {
                let (from, how) = (draw.path(), draw.rename_how());
                draw.other_place(second);
                let to = if draw.random.random_ratio(1, 2) { draw.path() } else { draw.new_path() };
                Call::Rename { from, to, how }
            }
            700..725 => {
                let from = draw.path();
                draw.other_place(second);
                Call::Link { from, to: draw.new_path() }
            }
            725..735 => draw.with_slot(|draw, slot| {
                let to = draw.new_path();
                Call::LinkOpen { slot, to }
            }),
            735..755 => Call::Symlink { target: draw.target(), at: draw.new_path() },
            755..765 => Call::ReadLink { at: draw.path() },
            765..775 => {
                let (socket, mode) = (draw.random.random(), draw.mode());
                Call::MakeNode { at: draw.new_path(), socket, mode }
            }
            775..795 => Call::Chmod { at: draw.path(), mode: draw.mode() },
            795..805 => draw.with_slot(|draw, slot| {
                let mode = draw.mode();
                Call::ChmodOpen { slot, mode }
            }),
            805..820 => {
                // Of a change of neither the kernel does not tell a FUSE file system, which leaves
                // set-id bits that a local one drops.
                let (user, group) = draw.one_of(&[
                    (Some(0), None),
                    (None, Some(0)),
                    (Some(1000), Some(65534)),
                    (Some(65534), Some(1000)),
                    (None, Some(1000)),
                ]);
                Call::Chown { at: draw.path(), user, group, follow: draw.random.random() }
            }
            820..835 => Call::SetTimes {
                at: draw.path(),
                accessed: draw.time(),
                modified: draw.time(),
                follow: draw.random.random(),
            },
            835..860 => Call::SetAttribute {
                at: draw.path(),
                name: draw.one_of(&ATTRIBUTES),
                length: draw.random.random_range(0..500),
                fill: draw.fill(),
                how: draw.one_of(&[SetHow::Any, SetHow::Any, SetHow::Create, SetHow::Replace]),
                follow: draw.random.random(),
            },
            860..875 => Call::GetAttribute {
                at: draw.path(),
                name: draw.one_of(&ATTRIBUTES),
                follow: draw.random.random(),
            },
            875..885 => Call::ListAttributes { at: draw.path(), follow: draw.random.random() },
            885..895 => Call::RemoveAttribute {
                at: draw.path(),
                name: draw.one_of(&ATTRIBUTES),
                follow: draw.random.random(),
            },
            895..920 => Call::Stat { at: draw.path(), follow: draw.random.random() },
            920..930 => draw.with_slot(|_, slot| Call::StatOpen { slot }),
            930..940 => Call::Access { at: draw.path(), what: draw.random.random_range(0..8) },
            940..955 => Call::List { at: draw.dir() },
            955..960 => draw.with_slot(|_, slot| Call::ListOpen { slot }),
            960..975 => draw.with_slot(|draw, slot| {
                let how = draw.lock_how();
                Call::Flock { slot, how }
            }),
            975..990 => draw.with_slot(|draw, slot| {
                let (how, (offset, length)) = (draw.lock_how(), draw.lock_range());
                Call::RangeLock { slot, how, offset, length }
            }),
            _ => draw.with_slot(|draw, slot| {
                let (other, exclusive) = (draw.slot(), draw.random.random());
                let (offset, length) = draw.lock_range();
                Call::ProcessLock { slot, other, exclusive, offset, length }
            }),
        }
    }

    /// The paths in it.
    pub fn paths(&self) -> Vec<&At> {
        match self {
            Call::Open { at, .. }
            | Call::OpenTemporary { at, .. }
            | Call::Truncate { at, .. }
            | Call::MakeDir { at, .. }
            | Call::RemoveDir { at }
            | Call::Unlink { at }
            | Call::RemoveTree { at }
            | Call::LinkOpen { to: at, .. }
            | Call::Symlink { at, .. }
            | Call::ReadLink { at }
            | Call::MakeNode { at, .. }
            | Call::Chmod { at, .. }
            | Call::Chown { at, .. }
            | Call::SetTimes { at, .. }
            | Call::SetAttribute { at, .. }
            | Call::GetAttribute { at, .. }
            | Call::ListAttributes { at, .. }
            | Call::RemoveAttribute { at, .. }
            | Call::Stat { at, .. }
            | Call::Access { at, .. }
            | Call::List { at } => vec![at],
            Call::Rename { from, to, .. } | Call::Link { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The slots in it.
    pub fn slots(&self) -> Vec<usize> {
        match *self {
            Call::Open { slot, .. }
            | Call::OpenTemporary { slot, .. }
            | Call::Close { slot }
            | Call::Read { slot, .. }
            | Call::Write { slot, .. }
            | Call::ReadAt { slot, .. }
            | Call::WriteAt { slot, .. }
            | Call::Seek { slot, .. }
            | Call::TruncateOpen { slot, .. }
            | Call::Allocate { slot, .. }
            | Call::Map { slot, .. }
            | Call::MapRead { slot, .. }
            | Call::MapWrite { slot, .. }
            | Call::MapSync { slot }
            | Call::Unmap { slot }
            | Call::Sync { slot, .. }
            | Call::Forget { slot }
            | Call::LinkOpen { slot, .. }
            | Call::ChmodOpen { slot, .. }
            | Call::StatOpen { slot }
            | Call::ListOpen { slot }
            | Call::Flock { slot, .. }
            | Call::RangeLock { slot, .. }
            | Call::ProcessLock { slot, .. } => vec![slot],
            Call::CopyRange { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The word before its arguments.
    fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split(' ').next().unwrap_or_default().to_owned()
    }
}

/// How often each kind of call was done, and how often with success.
#[derive(Default)]
pub(super) struct Kinds(BTreeMap<String, (u64, u64)>);

impl Kinds {
    pub fn add(&mut self, call: &Call, succeeded: bool) {
        let of = self.0.entry(call.kind()).or_default();
        of.0 += 1;
        of.1 += u64::from(succeeded);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, (all, succeeded)) in &self.0 {
            writeln!(f, "  {kind:<16} {all:>8}, {succeeded} succeeded")?;
        }
        Ok(())
    }
}

struct Draw<'a> {
    random: &'a mut SmallRng,
    tree: &'a Side,
    place: usize,
}

impl Draw<'_> {
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    fn fill(&mut self) -> u8 {
        self.random.random_range(1..=255)
    }

    fn mode(&mut self) -> u32 {
        if self.random.random() {
            self.one_of(&[0o644, 0o755, 0o600])
        } else {
            self.random.random_range(0..0o10000)
        }
    }

    fn time(&mut self) -> Option<(i64, u32)> {
        let seconds = self.random.random_range(-100_000..2_000_000_000);
        self.random
            .random_ratio(3, 4)
            .then(|| (seconds, self.random.random_range(0..1_000_000_000)))
    }

    /// Where bytes are: mostly in the first pages, sometimes far behind.
    fn range(&mut self) -> (u64, usize) {
        let most = self.one_of(&[5_000, 20_000, 20_000, 60_000, 300_000, 2_000_000]);
        let offset = self.random.random_range(0..most);
        (if self.random.random_ratio(1, 4) { offset & !4095 } else { offset }, self.length())
    }

    fn length(&mut self) -> usize {
        let most = self.one_of(&[10, 5_000, 5_000, 20_000, 20_000, 150_000]);
        let length = self.random.random_range(0..most);
        if self.random.random_ratio(1, 4) { length & !4095 } else { length }
    }

    fn lock_range(&mut self) -> (i64, i64) {
        (self.random.random_range(0..200), self.random.random_range(0..100))
    }

    fn lock_how(&mut self) -> LockHow {
        self.one_of(&[LockHow::Shared, LockHow::Exclusive, LockHow::Unlock])
    }

    fn rename_how(&mut self) -> RenameHow {
        self.one_of(&[
            RenameHow::Replace,
            RenameHow::Replace,
            RenameHow::Replace,
            RenameHow::NoReplace,
            RenameHow::Exchange,
        ])
    }

    /// In one of five cases the second path is at another place, to which nothing can be moved.
    fn other_place(&mut self, second: usize) {
        if self.random.random_ratio(1, 5) {
            self.place = second;
        }
    }

    fn open(&mut self) -> Call {
        let slot = self.free_slot();
        let at = if self.random.random_ratio(1, 3) { self.new_path() } else { self.path() };
        let mut flags = self.one_of(&[
            OFlags::RDONLY,
            OFlags::RDWR,
            OFlags::RDWR,
            OFlags::RDWR | OFlags::CREATE,
            OFlags::RDWR | OFlags::CREATE,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            OFlags::WRONLY | OFlags::CREATE,
            OFlags::RDONLY | OFlags::DIRECTORY,
        ]);
        for (flag, one_in) in [
            (OFlags::TRUNC, 6),
            (OFlags::APPEND, 5),
            (OFlags::DIRECT, 8),
            (OFlags::NOFOLLOW, 6),
            (OFlags::DSYNC, 60),
        ] {
            if self.random.random_ratio(1, one_in) && !flags.contains(OFlags::DIRECTORY) {
                flags |= flag;
            }
        }
        let mode = self.mode();
        Call::Open { slot, at, flags, mode }
    }

    /// A slot to open a file in, which closes what is open there.
    fn free_slot(&mut self) -> usize {
        self.random.random_range(0..SLOTS)
    }

    fn slot(&mut self) -> usize {
        let open = self.tree.open_slots();
        if open.is_empty() { 0 } else { self.one_of(&open) }
    }

    fn with_slot(&mut self, call: impl FnOnce(&mut Self, usize) -> Call) -> Call {
        if self.tree.open_slots().is_empty() {
            return self.open();
        }
        let slot = self.slot();
        call(self, slot)
    }

    /// With the slot of a file that is mapped, or a map of one that is not.
    fn with_map(&mut self, call: impl FnOnce(&mut Self, usize) -> Call) -> Call {
        let mapped = self.tree.mapped_slots();
        if mapped.is_empty() {
            return self.with_slot(|draw, slot| {
                let length = draw.range().1;
                Call::Map { slot, length, writable: true }
            });
        }
        let slot = self.one_of(&mapped);
        call(self, slot)
    }

    fn base(&mut self) -> (Base, PathBuf) {
        // A directory that is open, by whatever path it was reached.
        let open = self.tree.open_directories();
        if !open.is_empty() && self.random.random_ratio(1, 8) {
            let (slot, path) = open[self.random.random_range(0..open.len())].clone();
            return (Base::Slot(slot), path);
        }
        (Base::Place(self.place), self.tree.place(self.place).to_owned())
    }

    /// A path that probably exists.
    fn path(&mut self) -> At {
        self.walk(1, 8)
    }

    /// A directory that exists.
    fn dir(&mut self) -> At {
        let (base, full) = self.base();
        let mut path = PathBuf::new();
        while self.random.random_ratio(2, 3) {
            let dirs = self.tree.directories(&full.join(&path));
            if dirs.is_empty() {
                break;
            }
            path.push(&dirs[self.random.random_range(0..dirs.len())]);
        }
        if path.as_os_str().is_empty() {
            path.push(".");
        }
        At { base, path }
    }

    /// A directory below the root.
    fn dir_below(&mut self) -> At {
        let at = self.dir();
        if at.path == Path::new(".") { At { path: self.name(), ..at } } else { at }
    }

    /// A path whose last name is probably new.
    fn new_path(&mut self) -> At {
        let At { base, path } = self.dir();
        let name = self.name();
        let path = if path == Path::new(".") { name } else { path.join(name) };
        let depth = path.components().count();
        if depth > DEPTH_MAX {
            At { base, path: path.components().skip(1).collect() }
        } else {
            At { base, path }
        }
    }

    /// Walks down what is there; at each step it ends there in one of `out_of` cases with a name
    /// that is drawn.
    fn walk(&mut self, drawn: u32, out_of: u32) -> At {
        let (base, full) = self.base();
        let mut path = PathBuf::new();
        loop {
            let names = self.tree.names(&full.join(&path));
            if names.is_empty() || self.random.random_ratio(drawn, out_of) {
                path.push(self.name());
                break;
            }
            path.push(&names[self.random.random_range(0..names.len())]);
            if !self.tree.is_directory(&full.join(&path)) || self.random.random_ratio(1, 3) {
                break;
            }
        }
        if self.random.random_ratio(1, 40) {
            path.push(self.one_of(&[".", "x/..", "", "a"]));
        }
        At { base, path }
    }

    fn name(&mut self) -> PathBuf {
        let name = match self.random.random_range(0..100) {
            0 => vec![b'l'; 255],
            1 => vec![b'm'; 256],
            _ => self.one_of(&NAMES).to_vec(),
        };
        PathBuf::from(OsStr::from_bytes(&name))
    }

    /// The target of a symbolic link, which never leaves the tree.
    fn target(&mut self) -> PathBuf {
        match self.random.random_range(0..10) {
            0 => self.name().join(self.name()),
            1 => PathBuf::from("x".repeat(self.random.random_range(1..600))),
            _ => self.name(),
        }
    }
}
