//! Random histories of operations on one or two machines, recorded without times, versions and
//! numbers, so that two runs can be compared.

use std::sync::LazyLock;

use bytes::Bytes;
use guard::{Acl, Rights};
use rand::Rng;
use rand::rngs::SmallRng;
use types::{
    Caller, Cookie, Fid, Kind, Name, NewKind, PrincipalId, RenameMode, SetTime, StatusChange,
    Timestamp,
};
use venus::{Error, LookupReply, OpenHandle, OpenMode, RequestContext, Venus};

use super::name;

/// Number of names in use.
const NAMES: u32 = 5;
/// Users that occur: the superuser; an owner of things in some directories; a member of the owner's
/// group; a user who sends supplementary groups, that group among them.
static USERS: LazyLock<[Caller; 4]> = LazyLock::new(|| {
    let user = |uid, gid, groups: Option<&[u32]>| Caller {
        uid,
        gid,
        groups: groups.map(Into::into),
        who: types::RequestIdentity::NAMED,
    };
    [Caller::ROOT, user(10, 20, None), user(11, 20, Some(&[])), user(12, 30, Some(&[20, 40]))]
});

/// A path below the root: one or two names.
pub type Path = Vec<Name>;

/// One operation. A handle is given by its place in the list of those that are open at the machine.
#[derive(Clone, Debug)]
pub enum Op {
    Mkdir(Path),
    Symlink(Path),
    MountPoint(Path),
    RemoveMountPoint(Path),
    /// Makes, writes and closes a file.
    Put {
        at: Path,
        bytes: usize,
        exclusive: bool,
        user: usize,
    },
    /// Opens a file (makes it if it is absent) and leaves it open.
    Open {
        at: Path,
    },
    Write {
        handle: usize,
        offset: u64,
        bytes: usize,
    },
    Fsync {
        handle: usize,
    },
    Close {
        handle: usize,
    },
    Unlink {
        at: Path,
        user: usize,
    },
    Rmdir(Path),
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },
    Link {
        from: Path,
        to: Path,
    },
    Set {
        at: Path,
        change: StatusChange,
        user: usize,
    },
    Stat(Path),
    List(Path),
    Content(Path),
    FsyncDir(Path),
    /// Gives user 10 these rights by the file's own list; `None`: removes the list.
    Permit {
        at: Path,
        rights: Option<&'static str>,
    },
}

fn path(random: &mut SmallRng, depth: usize) -> Path {
    (0..depth).map(|_| name(&format!("n{}", random.random_range(0..NAMES)))).collect()
}

fn some_path(random: &mut SmallRng) -> Path {
    let depth = if random.random_bool(0.25) { 1 } else { 2 };
    path(random, depth)
}

fn change(random: &mut SmallRng) -> StatusChange {
    let mut change = StatusChange::default();
    match random.random_range(0..6) {
        0 => change.mode = Some(random.random_range(0..0o10000)),
        1 => change.modified = Some(SetTime::To(Timestamp::new(random.random_range(0..1000), 5))),
        2 => (change.uid, change.gid) = (Some(random.random_range(0..2) * 10), Some(20)),
        3 => change.size = Some(random.random_range(0..2) * 3000),
        4 => change.gid = Some(20),
        _ => (change.accessed, change.mode) = (Some(SetTime::Now), Some(0o755)),
    }
    change
}

/// A random operation.
pub fn draw(random: &mut SmallRng) -> Op {
    let user = if random.random_bool(0.3) { random.random_range(1..4) } else { 0 };
    let at = some_path(random);
    let handle = random.random_range(0..3);
    match random.random_range(0..42) {
        0..5 => Op::Mkdir(path(random, 1)),
        5 => Op::Mkdir(at),
        6 => Op::Symlink(at),
        7..14 => {
            let bytes = [0, 1, 700, 4096, 16384, 20000, 70000][random.random_range(0..7)];
            Op::Put { at, bytes, exclusive: random.random_bool(0.5), user }
        }
        14 | 15 => Op::Open { at },
        16..19 => Op::Write {
            handle,
            offset: [0, 100, 4096, 40000][random.random_range(0..4)],
            bytes: random.random_range(1..30000),
        },
        19 => Op::Fsync { handle },
        20 => Op::Close { handle },
        21..25 => Op::Unlink { at, user },
        25 | 26 => Op::Rmdir(at),
        27..30 => {
            let modes = [
                RenameMode::Replace,
                RenameMode::Replace,
                RenameMode::NoReplace,
                RenameMode::Exchange,
                RenameMode::MountPoint,
            ];
            Op::Rename { from: at, to: some_path(random), mode: modes[random.random_range(0..5)] }
        }
        30 => Op::Link { from: at, to: some_path(random) },
        31..34 => Op::Set { at, change: change(random), user },
        34..36 => Op::Stat(at),
        36 => Op::List(path(random, 1)),
        37 => Op::Content(at),
        39 => Op::MountPoint(at),
        40 => Op::RemoveMountPoint(at),
        38 => Op::FsyncDir(path(random, 1)),
        _ => Op::List(Vec::new()),
    }
}

/// A random operation where access lists decide.
pub fn draw_listed(random: &mut SmallRng) -> Op {
    if random.random_bool(0.06) {
        let rights = ["rlidwk", "rlidwk", "rl", "li", "ld", "lw", ""][random.random_range(0..7)];
        return Op::Permit {
            at: some_path(random),
            rights: random.random_bool(0.8).then_some(rights),
        };
    }
    draw(random)
}

/// Applications of one machine.
pub struct Machine<'a> {
    pub venus: &'a Venus,
    root: Fid,
    open: Vec<OpenHandle>,
    written: u8,
}

fn by(user: usize) -> RequestContext<'static> {
    RequestContext::of(&USERS[user])
}

/// A list that gives one principal these rights.
pub fn only(who: i32, rights: &str) -> Acl {
    let mut list = Acl::new();
    assert!(list.set(PrincipalId(who), rights.parse().expect("rights"), false));
    list
}

fn words(error: &Error) -> String {
    format!("{error}")
}

impl<'a> Machine<'a> {
    pub fn new(venus: &'a Venus, root: Fid) -> Self {
        Machine { venus, root, open: Vec::new(), written: 0 }
    }

    fn walk(&self, path: &[Name]) -> Result<Fid, Error> {
        let mut at = self.root;
        for name in path {
            match self.venus.lookup(&by(0), at, name)? {
                LookupReply::Entry(entry) => {
                    // As the mount does.
                    if entry.status.by_list
                        && entry.status.kind != Kind::Directory
                        && entry.status.links == 1
                    {
                        self.venus.access().ruled_by(&entry.status, at, entry.stamp);
                    }
                    at = entry.status.fid;
                }
                LookupReply::Absent { .. } => return Err(types::Fault::NotFound.into()),
            }
        }
        Ok(at)
    }

    fn parent(&self, path: &[Name]) -> Result<(Fid, Name), Error> {
        let (last, above) = path.split_last().expect("paths are not empty");
        Ok((self.walk(above)?, last.clone()))
    }

    fn bytes(&mut self, count: usize) -> Bytes {
        self.written = self.written.wrapping_add(1);
        Bytes::from(vec![self.written; count])
    }

    /// Runs the operation; returns its result as text.
    pub fn run(&mut self, op: &Op) -> String {
        self.try_run(op).unwrap_or_else(|error| words(&error))
    }

    fn try_run(&mut self, op: &Op) -> Result<String, Error> {
        const RW: OpenMode = OpenMode { read: true, write: true, append: false, truncate: false };
        const WO: OpenMode = OpenMode { read: false, write: true, append: false, truncate: false };
        let me = by(0);
        match op {
            Op::Mkdir(at) => {
                let (dir, name) = self.parent(at)?;
                let made = self.venus.changes().make(&me, dir, &name, NewKind::Directory, 0o777)?;
                Ok(self.describe(&made.status))
            }
            Op::Symlink(at) => {
                let (dir, name) = self.parent(at)?;
                let made = self.venus.changes().make(
                    &me,
                    dir,
                    &name,
                    NewKind::Symlink(Bytes::from_static(b"there")),
                    0o777,
                )?;
                Ok(self.describe(&made.status))
            }
            Op::MountPoint(at) => {
                let (dir, name) = self.parent(at)?;
                let made = self.venus.changes().make(
                    &me,
                    dir,
                    &name,
                    NewKind::MountPoint(Bytes::from_static(b"#other")),
                    0,
                )?;
                Ok(self.describe(&made.status))
            }
            Op::RemoveMountPoint(at) => {
                let (dir, name) = self.parent(at)?;
                self.venus.changes().remove_mount_point(&me, dir, &name).map(|()| "gone".into())
            }
            Op::Put { at, bytes, exclusive, user } => {
                let (dir, name) = self.parent(at)?;
                let (entry, opened) =
                    self.venus.create(&by(*user), dir, &name, 0o644, *exclusive, WO)?;
                let data = self.bytes(*bytes);
                if !self.lets_write(*user, &entry.status)? {
                    self.venus.release(&by(*user), opened.handle, None)?;
                    return Ok("refused by the kernel".into());
                }
                if !data.is_empty() {
                    self.venus.write(&by(*user), opened.handle, 0, data, false)?;
                }
                if !opened.quiet {
                    self.venus.flush(&by(*user), opened.handle, None)?;
                }
                self.venus.release(&by(*user), opened.handle, None)?;
                Ok("put".into())
            }
            Op::Open { at } => {
                if self.open.len() == 3 {
                    return Ok("enough".into());
                }
                let (dir, name) = self.parent(at)?;
                let (_, opened) = self.venus.create(&me, dir, &name, 0o600, false, RW)?;
                self.open.push(opened.handle);
                Ok("open".into())
            }
            Op::Write { handle, offset, bytes } => {
                let Some(handle) = self.open.get(*handle).copied() else {
                    return Ok("none".into());
                };
                let data = self.bytes(*bytes);
                self.venus.write(&me, handle, *offset, data, false)?;
                // Other clients see it when it is flushed, or a second later: only the former can
                // be compared.
                self.venus.flush(&me, handle, None)?;
                Ok("written".into())
            }
            Op::Fsync { handle } => {
                let Some(handle) = self.open.get(*handle).copied() else {
                    return Ok("none".into());
                };
                self.venus.fsync(&me, handle)?;
                Ok("synced".into())
            }
            Op::Close { handle } => {
                if *handle >= self.open.len() {
                    return Ok("none".into());
                }
                let handle = self.open.remove(*handle);
                self.venus.flush(&me, handle, None)?;
                self.venus.release(&me, handle, None)?;
                Ok("closed".into())
            }
            Op::Unlink { at, user } => {
                let (dir, name) = self.parent(at)?;
                self.venus.changes().unlink(&by(*user), dir, &name).map(|()| "gone".into())
            }
            Op::Rmdir(at) => {
                let (dir, name) = self.parent(at)?;
                self.venus.changes().rmdir(&me, dir, &name).map(|()| "gone".into())
            }
            Op::Rename { from, to, mode } => {
                let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
                self.venus
                    .changes()
                    .rename(&me, (from, &old), (to, &new), *mode)
                    .map(|()| "moved".into())
            }
            Op::Link { from, to } => {
                let (fid, (dir, name)) = (self.walk(from)?, self.parent(to)?);
                self.venus
                    .changes()
                    .link(&me, fid, dir, &name)
                    .map(|entry| self.describe(&entry.status))
            }
            Op::Set { at, change, user } => {
                let fid = self.walk(at)?;
                self.venus.setattr(&by(*user), fid, *change).map(|set| self.describe(&set.status))
            }
            Op::Stat(at) => {
                let fid = self.walk(at)?;
                self.venus.getattr(&me, fid).map(|found| self.describe(&found.status))
            }
            Op::List(at) => self.list(at),
            Op::Content(at) => self.content(at),
            Op::Permit { at, rights } => {
                let list = rights.map(|rights| only(10, rights));
                self.venus
                    .access()
                    .set_acl(&me, self.walk(at)?, list.as_ref(), None)
                    .map(|()| "listed".into())
            }
            Op::FsyncDir(at) => {
                self.venus.dirs().fsyncdir(&me, self.walk(at)?).map(|()| "synced".into())
            }
        }
    }

    /// The kernel receives rights, and checks them at the open.
    fn lets_write(&self, user: usize, status: &types::Status) -> Result<bool, Error> {
        if !status.by_list {
            return Ok(true);
        }
        let (rights, _) = self.venus.access().rights(&by(user), status.fid)?;
        Ok(rights.has(Rights::WRITE) || rights.has(Rights::INSERT) && status.uid == USERS[user].uid)
    }

    fn describe(&self, status: &types::Status) -> String {
        let types::Status { kind, mode, uid, gid, links, size, used, .. } = status;
        format!("{kind:?} {mode:o} {uid}:{gid} {links} links, {size} bytes, {used} used")
    }

    fn list(&self, at: &[Name]) -> Result<String, Error> {
        let dir = self.walk(at)?;
        let handle = self.venus.dirs().opendir(&by(0), dir)?;
        let mut names = Vec::new();
        let mut cookie = Cookie::START;
        let end = loop {
            match self.venus.dirs().readdir(&by(0), handle, cookie, 700, true) {
                Err(error) => break Err(error),
                Ok(page) => {
                    names.extend(
                        page.entries
                            .iter()
                            .map(|entry| format!("{:?} {:?}", entry.name, entry.kind)),
                    );
                    cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
                    if page.end {
                        break Ok(());
                    }
                }
            }
        };
        self.venus.dirs().releasedir(handle);
        names.sort();
        end.map(|()| names.join(", "))
    }

    fn content(&self, at: &[Name]) -> Result<String, Error> {
        let fid = self.walk(at)?;
        let mode = OpenMode { read: true, write: false, append: false, truncate: false };
        let opened = self.venus.open(&by(0), fid, mode)?;
        let data = self.venus.read(&by(0), opened.handle, 0, 1 << 20);
        self.venus.release(&by(0), opened.handle, None)?;
        let data = data?;
        Ok(format!("{} bytes, sum {:x}", data.len(), crc32c::crc32c(&data)))
    }

    /// All files, path by path.
    pub fn tree(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut left: Vec<Path> = vec![Vec::new()];
        while let Some(dir) = left.pop() {
            let fid = self.walk(&dir).expect("it was just listed");
            let handle = self.venus.dirs().opendir(&by(0), fid).expect("a directory");
            let page = self
                .venus
                .dirs()
                .readdir(&by(0), handle, Cookie::START, 60000, true)
                .expect("few entries");
            self.venus.dirs().releasedir(handle);
            for entry in page.entries {
                let mut at = dir.clone();
                at.push(entry.name);
                let status =
                    self.venus.getattr(&by(0), entry.fid).expect("it was just listed").status;
                let content = if status.kind == Kind::File {
                    self.content(&at).expect("a file")
                } else {
                    String::new()
                };
                let modified = if status.modified.secs < 1000 { status.modified.secs } else { 0 };
                all.push(format!("{at:?} {} {modified} {content}", self.describe(&status)));
                if status.kind == Kind::Directory {
                    left.push(at);
                }
            }
        }
        all.sort();
        all
    }

    /// Closes all open handles.
    pub fn close_all(&mut self) {
        while !self.open.is_empty() {
            self.run(&Op::Close { handle: 0 });
        }
    }
}
