//! A mount without a file system behind it: a tree in memory that answers through the same channel
//! and workers.
//!
//! For measurements only. The time of a scenario on it is the cost of the kernel, the channel and
//! the workers; the rest of a real mount's time is spent below. Its promises to the kernel never
//! end, and it has neither locks, extended attributes, hard links nor special files. One lock
//! guards the whole tree.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::attributes::FOREVER_SECS;
use crate::channel::Requester;
use crate::connections::{Handler, Urgency};
use crate::handler_mount::Handled;
use crate::mounting::{self, MountError};
use crate::request::{KernelRequest, Operation};
use crate::workers::KernelTransport;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const PERMISSIONS: u32 = 0o7777;
const BLOCK_BYTES: u32 = 128 << 10;
const SECTOR_BYTES: u64 = 512;
/// Cookies of listings start here; 1 and 2 are `.` and `..`.
const COOKIE_FIRST: u64 = 3;

struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    modified: (u64, u32),
    /// A file's bytes, or a link's target.
    data: Vec<u8>,
    /// A directory's entries: the node, and the cookie under which it is listed.
    names: HashMap<Vec<u8>, (u64, u64)>,
    /// The same entries in the order of listings.
    listed: BTreeMap<u64, (Vec<u8>, u64)>,
    parent: u64,
    /// A node without a name is dropped with the kernel's last reference.
    named: bool,
    lookups: u64,
}

/// The files. They outlive a mount.
pub struct NullTree {
    state: Mutex<State>,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
    cookie: u64,
}

/// A [`NullTree`] that is mounted. Dropping it unmounts.
pub struct NullMount(Handled<Nothing>);

struct Nothing(Arc<NullTree>);

impl Default for NullTree {
    fn default() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let root = Node::new(DIRECTORY | 0o755, (uid, gid), abi::ROOT_ID);
        let nodes = HashMap::from([(abi::ROOT_ID, root)]);
        NullTree {
            state: Mutex::new(State { nodes, next: abi::ROOT_ID + 1, cookie: COOKIE_FIRST }),
        }
    }
}

impl NullMount {
    /// Mounts `tree` at `at`.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted.
    pub fn start(at: &Path, tree: Arc<NullTree>) -> Result<NullMount, MountError> {
        let mounted =
            Handled::start(at, "rialto:null", Arc::new(Nothing(tree)), KernelTransport::Auto)?;
        mounting::raise_read_ahead(at);
        Ok(NullMount(mounted))
    }

    /// Waits until it is unmounted.
    pub fn wait(&self) {
        self.0.wait();
    }
}

impl Node {
    fn new(mode: u32, (uid, gid): (u32, u32), parent: u64) -> Node {
        Node {
            mode,
            uid,
            gid,
            modified: now(),
            data: Vec::new(),
            names: HashMap::new(),
            listed: BTreeMap::new(),
            parent,
            named: true,
            lookups: 0,
        }
    }

    fn attr(&self, ino: u64) -> abi::Attr {
        let (secs, nanos) = self.modified;
        let size = self.data.len() as u64;
        abi::Attr {
            ino,
            size,
            blocks: size.div_ceil(SECTOR_BYTES),
            atime: secs,
            mtime: secs,
            ctime: secs,
            atimensec: nanos,
            mtimensec: nanos,
            ctimensec: nanos,
            mode: self.mode,
            nlink: if self.mode & DIRECTORY != 0 { 2 } else { u32::from(self.named) },
            uid: self.uid,
            gid: self.gid,
            blksize: BLOCK_BYTES,
            ..Default::default()
        }
    }
}

fn now() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_nanos())
}

/// The answer to a request.
enum Answer {
    Bytes(Vec<u8>),
    /// Some bytes of a node, which the kernel copies from where they are.
    Part {
        node: u64,
        offset: usize,
        length: usize,
    },
}

fn bytes<T: IntoBytes + zerocopy::Immutable>(value: &T) -> Answer {
    Answer::Bytes(value.as_bytes().to_vec())
}

impl State {
    fn node(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::STALE)
    }

    fn entry(&mut self, number: u64) -> Result<abi::EntryOut, Errno> {
        let node = self.node(number)?;
        node.lookups += 1;
        let attr = node.attr(number);
        Ok(abi::EntryOut {
            nodeid: number,
            entry_valid: FOREVER_SECS,
            attr_valid: FOREVER_SECS,
            attr,
            ..Default::default()
        })
    }

    fn attributes(&mut self, number: u64) -> Result<Answer, Errno> {
        let attr = self.node(number)?.attr(number);
        Ok(bytes(&abi::AttrOut { attr_valid: FOREVER_SECS, attr, ..Default::default() }))
    }

    /// An absent name is an entry without a node, which the kernel caches too.
    fn lookup(&mut self, dir: u64, name: &[u8]) -> Result<Answer, Errno> {
        let found = self.node(dir)?.names.get(name).map(|(number, _)| *number);
        let absent = || abi::EntryOut { entry_valid: FOREVER_SECS, ..Default::default() };
        Ok(bytes(&found.map_or_else(|| Ok(absent()), |number| self.entry(number))?))
    }

    fn make(
        &mut self,
        header: &abi::InHeader,
        name: &[u8],
        mode: u32,
        data: &[u8],
    ) -> Result<abi::EntryOut, Errno> {
        let dir = header.nodeid;
        if self.node(dir)?.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let number = self.next;
        self.next += 1;
        let node = Node { data: data.to_vec(), ..Node::new(mode, (header.uid, header.gid), dir) };
        self.nodes.insert(number, node);
        self.enter(dir, name, number)?;
        self.entry(number)
    }

    fn enter(&mut self, dir: u64, name: &[u8], number: u64) -> Result<(), Errno> {
        let cookie = self.cookie;
        self.cookie += 1;
        let into = self.node(dir)?;
        into.names.insert(name.to_vec(), (number, cookie));
        into.listed.insert(cookie, (name.to_vec(), number));
        into.modified = now();
        self.node(number)?.parent = dir;
        Ok(())
    }

    fn leave(&mut self, dir: u64, name: &[u8]) -> Result<u64, Errno> {
        let from = self.node(dir)?;
        let (number, cookie) = from.names.remove(name).ok_or(Errno::NOENT)?;
        from.listed.remove(&cookie);
        from.modified = now();
        Ok(number)
    }

    fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Result<Answer, Errno> {
        let (number, _) = *self.node(dir)?.names.get(name).ok_or(Errno::NOENT)?;
        let node = self.node(number)?;
        match (node.mode & DIRECTORY != 0, directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ if !node.names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.leave(dir, name)?;
        self.lose_name(number)?;
        Ok(Answer::Bytes(Vec::new()))
    }

    fn lose_name(&mut self, number: u64) -> Result<(), Errno> {
        let node = self.node(number)?;
        node.named = false;
        if node.lookups == 0 {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    fn rename(
        &mut self,
        dir: u64,
        newdir: u64,
        flags: u32,
        from: &[u8],
        to: &[u8],
    ) -> Result<Answer, Errno> {
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let replaced = self.node(newdir)?.names.get(to).map(|(number, _)| *number);
        let (moved, _) = *self.node(dir)?.names.get(from).ok_or(Errno::NOENT)?;
        if let Some(replaced) = replaced.filter(|replaced| *replaced != moved) {
            if !self.node(replaced)?.names.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            self.leave(newdir, to)?;
            self.lose_name(replaced)?;
        }
        self.leave(dir, from)?;
        self.enter(newdir, to, moved)?;
        Ok(Answer::Bytes(Vec::new()))
    }

    fn setattr(&mut self, number: u64, of: &abi::SetattrIn) -> Result<Answer, Errno> {
        let node = self.node(number)?;
        let asked = |bit| of.valid & bit != 0;
        if asked(abi::fattr::MODE) {
            node.mode = node.mode & !PERMISSIONS | of.mode & PERMISSIONS;
        }
        node.uid = if asked(abi::fattr::UID) { of.uid } else { node.uid };
        node.gid = if asked(abi::fattr::GID) { of.gid } else { node.gid };
        if asked(abi::fattr::SIZE) {
            node.data.resize(usize::try_from(of.size).map_err(|_| Errno::FBIG)?, 0);
        }
        if asked(abi::fattr::MTIME) && !asked(abi::fattr::MTIME_NOW) {
            node.modified = (of.mtime, of.mtimensec);
        } else if asked(abi::fattr::SIZE) || asked(abi::fattr::MTIME_NOW) {
            node.modified = now();
        }
        self.attributes(number)
    }

    fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<Answer, Errno> {
        let node = self.node(number)?;
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start.checked_add(data.len()).ok_or(Errno::FBIG)?;
        match node.data.len() {
            length if length == start => node.data.extend_from_slice(data),
            length => {
                node.data.resize(length.max(end), 0);
                node.data[start..end].copy_from_slice(data);
            }
        }
        node.modified = now();
        Ok(bytes(&abi::WriteOut { size: data.len() as u32, padding: 0 }))
    }

    fn list(&mut self, dir: u64, of: &abi::ReadIn, plus: bool) -> Result<Answer, Errno> {
        let node = self.node(dir)?;
        let parent = node.parent;
        let dots = [(1, b".".to_vec(), dir, false), (2, b"..".to_vec(), parent, false)];
        let rest = node.listed.range(of.offset.saturating_add(1)..);
        let rest = rest.map(|(cookie, (name, number))| (*cookie, name.clone(), *number, true));
        // No entry is shorter than this, so at most so many fit.
        let most = of.size as usize / size_of::<abi::Dirent>();
        let entries: Vec<_> =
            dots.into_iter().filter(|dot| dot.0 > of.offset).chain(rest.take(most)).collect();
        let fixed = size_of::<abi::Dirent>() + if plus { size_of::<abi::EntryOut>() } else { 0 };
        let mut out = Vec::with_capacity(of.size as usize);
        for (cookie, name, number, real) in entries {
            if out.len() + (fixed + name.len()).next_multiple_of(8) > of.size as usize {
                break;
            }
            if plus {
                let entry = if real { self.entry(number)? } else { abi::EntryOut::default() };
                out.extend_from_slice(entry.as_bytes());
            }
            let kind = (self.node(number)?.mode >> 12) & 0xf;
            let dirent = abi::Dirent { ino: number, off: cookie, namelen: name.len() as u32, kind };
            out.extend_from_slice(dirent.as_bytes());
            out.extend_from_slice(&name);
            out.resize(out.len().next_multiple_of(8), 0);
        }
        Ok(Answer::Bytes(out))
    }

    fn forget(&mut self, number: u64, count: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 && !node.named {
            self.nodes.remove(&number);
        }
    }

    fn run(&mut self, request: &KernelRequest<'_>) -> Result<Answer, Errno> {
        let here = request.header.nodeid;
        let nothing = || Ok(Answer::Bytes(Vec::new()));
        let opened = abi::OpenOut {
            open_flags: abi::flag::FOPEN_KEEP_CACHE | abi::flag::FOPEN_NOFLUSH,
            ..Default::default()
        };
        match request.operation {
            Operation::Lookup { name } => self.lookup(here, name),
            Operation::Getattr(_) => self.attributes(here),
            Operation::Setattr(of) => self.setattr(here, &of),
            Operation::Mkdir { of, name } => Ok(bytes(&self.make(
                &request.header,
                name,
                DIRECTORY | of.mode & PERMISSIONS,
                &[],
            )?)),
            Operation::Symlink { name, target } => {
                Ok(bytes(&self.make(&request.header, name, SYMLINK | 0o777, target)?))
            }
            Operation::Create { of, name } => {
                let entry = self.make(&request.header, name, FILE | of.mode & PERMISSIONS, &[])?;
                Ok(Answer::Bytes([entry.as_bytes(), opened.as_bytes()].concat()))
            }
            Operation::Open(_) => Ok(bytes(&opened)),
            Operation::Opendir(_) => Ok(bytes(&abi::OpenOut::default())),
            Operation::Read(of) => self.part(here, of.offset, of.size as usize),
            Operation::Readlink => self.part(here, 0, usize::MAX),
            Operation::Write { of, data } => self.write(here, of.offset, data),
            Operation::Readdir { of, plus } => self.list(here, &of, plus),
            Operation::Unlink { name } => self.remove(here, name, false),
            Operation::Rmdir { name } => self.remove(here, name, true),
            Operation::Rename { newdir, flags, from, to } => {
                self.rename(here, newdir, flags, from, to)
            }
            Operation::Statfs => Ok(bytes(&abi::StatfsOut {
                bsize: 4096,
                frsize: 4096,
                namelen: 255,
                ..Default::default()
            })),
            Operation::Release(_)
            | Operation::Releasedir(_)
            | Operation::Fsync(_)
            | Operation::Fsyncdir(_) => nothing(),
            Operation::Syncfs | Operation::Destroy => nothing(),
            _ => Err(Errno::NOSYS),
        }
    }

    fn part(&mut self, number: u64, offset: u64, most: usize) -> Result<Answer, Errno> {
        let length = self.node(number)?.data.len();
        let offset = usize::try_from(offset).unwrap_or(length).min(length);
        Ok(Answer::Part { node: number, offset, length: most.min(length - offset) })
    }
}

impl Handler for Nothing {
    fn urgency(&self, request: &[u8]) -> Urgency {
        match KernelRequest::header(request).map(|header| header.opcode) {
            Ok(opcode::INTERRUPT) => Urgency::Urgent,
            Ok(opcode::FORGET | opcode::BATCH_FORGET) => Urgency::Forgets,
            _ => Urgency::Normal,
        }
    }

    fn handle(&self, bytes: &mut Vec<u8>, requester: &dyn Requester) {
        let Ok(header) = KernelRequest::header(bytes) else { return };
        let request = match KernelRequest::decode(bytes) {
            Ok(request) => request,
            Err(_) => {
                let _ = requester.reply(header.unique, Err(Errno::NOSYS));
                return;
            }
        };
        let mut state = self.0.state.lock();
        match request.operation {
            Operation::Interrupt { .. } => return,
            Operation::Forget { lookups } => return state.forget(header.nodeid, lookups),
            Operation::BatchForget(all) => {
                return crate::request::forgets(all)
                    .for_each(|one| state.forget(one.nodeid, one.nlookup));
            }
            _ => {}
        }
        // The request may be cancelled by now, so a failed reply is no error.
        let _ = match state.run(&request) {
            Ok(Answer::Bytes(bytes)) => {
                drop(state);
                requester.reply(header.unique, Ok(&[IoSlice::new(&bytes)]))
            }
            Ok(Answer::Part { node, offset, length }) => {
                let data = state
                    .nodes
                    .get(&node)
                    .map_or(&[][..], |node| &node.data[offset..offset + length]);
                requester.reply(header.unique, Ok(&[IoSlice::new(data)]))
            }
            Err(errno) => requester.reply(header.unique, Err(errno)),
        };
    }

    fn ended(&self) {}

    fn refuse(&self, request: &[u8], requester: &dyn Requester) {
        if let Ok(header) = KernelRequest::header(request) {
            let _ = requester.reply(header.unique, Err(Errno::NOLCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::channel::Device;

    #[test]
    fn a_tree_in_memory_is_a_file_system() {
        if !rustix::process::geteuid().is_root() || !Path::new(Device::PATH).exists() {
            let line =
                "SKIP unit: a_tree_in_memory_is_a_file_system: mounting needs root and /dev/fuse";
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), format!("\n{line}\n").as_bytes());
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let tree = Arc::new(NullTree::default());
        let mounted = NullMount::start(dir.path(), Arc::clone(&tree)).unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/file"), vec![7; 300_000]).unwrap();
        std::os::unix::fs::symlink("dir/file", at("link")).unwrap();
        assert!(fs::read(at("link")).unwrap() == vec![7; 300_000]);
        assert_eq!(fs::metadata(at("absent")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        (0..3000).for_each(|number| fs::write(at(&format!("dir/{number}")), "x").unwrap());
        assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 3001);
        assert!(fs::remove_dir(at("dir")).is_err(), "it is not empty");
        fs::rename(at("dir/file"), at("moved")).unwrap();
        drop(mounted);

        let mounted = NullMount::start(dir.path(), tree).unwrap();
        assert_eq!(
            fs::metadata(at("moved")).unwrap().len(),
            300_000,
            "the files outlive the mount"
        );
        fs::remove_dir_all(at("dir")).unwrap();
        fs::remove_file(at("moved")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(mounted);
    }
}
