//! Records of one volume for a successor of this process: open files, their locks, and written
//! bytes that the server does not have yet (`docs/spec/keeper.md`).
//!
//! Each is written before the kernel gets the answer that it belongs to. Numbers of handles go on
//! where no process before gave one: the kernel may still name a handle that was closed.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use keep::kind::{HANDLE, LIFE, LOCKS, MAPPED, WRITE};
use keep::{Keeper, Key, Record};
use types::{
    ByteRange, Caller, Fid, LockFamily, LockMode, LockOwner, RequestIdentity, Uniquifier, VnodeNo,
    VolumeId,
};

use super::{End, Granted, Open};
use crate::base::{Backing, OpenHandle, OpenMode};

/// Numbers of one process: it opens fewer files.
const LIFE_SHIFT: u32 = 40;

/// Where one volume's records are.
#[derive(Debug)]
pub(crate) struct VolumeLegacy {
    keeper: Arc<Keeper>,
    volume: VolumeId,
    /// Above all numbers of processes before.
    base: u64,
    serial: AtomicU64,
    is_full: AtomicBool,
}

/// An open file of a predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftHandle {
    pub fid: Fid,
    pub mode: OpenMode,
    pub caller: Caller,
    pub direct: bool,
    pub backing: Option<Backing>,
}

/// A write of a predecessor that the server may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftWrite {
    pub fid: Fid,
    pub offset: u64,
    pub kill: bool,
    pub caller: Caller,
    pub bytes: Bytes,
}

impl VolumeLegacy {
    /// Of this volume, in a new process.
    ///
    /// # Errors
    /// If the records cannot be used.
    pub fn new(keeper: &Arc<Keeper>, volume: VolumeId) -> std::io::Result<Self> {
        let life = keeper.records().words(Key { kind: LIFE, major: volume.0, minor: 0 }, 1)?;
        life.set(0, life.get(0) + 1);
        let base = life.get(0) << LIFE_SHIFT;
        let keeper = Arc::clone(keeper);
        let (serial, is_full) = (AtomicU64::new(base), AtomicBool::new(false));
        Ok(VolumeLegacy { keeper, volume, base, serial, is_full })
    }

    fn key(&self, kind: u64, minor: u64) -> Key {
        Key { kind, major: self.volume.0, minor }
    }

    fn all(&self, kind: u64) -> Vec<(u64, Vec<u8>)> {
        let all = self.keeper.records().all(kind).into_iter();
        all.filter(|(key, _)| key.major == self.volume.0)
            .map(|(key, bytes)| (key.minor, bytes))
            .collect()
    }

    /// Something that is not recorded is lost with this process, as it is without a keeper.
    fn note(&self, result: std::io::Result<()>) {
        if let Err(error) = result
            && !self.is_full.swap(true, Ordering::Relaxed)
        {
            tracing::error!(%error, "a successor of this process would lack open files or writes");
        }
    }

    /// No handle of a process before has a number above this.
    pub fn handles_begin(&self) -> u64 {
        self.base
    }

    /// Records an open file.
    pub fn put_handle(&self, handle: OpenHandle, open: &Open) {
        let mode = open.mode;
        let flags = u64::from(mode.read)
            | u64::from(mode.write) << 1
            | u64::from(mode.append) << 2
            | u64::from(open.direct) << 3;
        let backing = open.backing.map_or(0, |backing| u64::from(backing.0 as u32) + 1);
        let mut words = vec![flags, backing];
        put_fid(&mut words, open.file.fid);
        put_caller(&mut words, &open.caller);
        let key = self.key(HANDLE, handle.0);
        self.note(self.keeper.records().put(key, &[&bytes_of(&words)]));
    }

    /// The file is closed.
    pub fn remove_handle(&self, handle: OpenHandle) {
        self.keeper.records().remove(self.key(HANDLE, handle.0));
    }

    /// The open files of a predecessor.
    pub fn handles(&self) -> Vec<(OpenHandle, LeftHandle)> {
        let parse = |bytes: &[u8]| {
            let mut words = Parser::new(bytes);
            let (flags, backing) = (words.next()?, words.next()?);
            let mode = OpenMode {
                read: flags & 1 != 0,
                write: flags & 2 != 0,
                append: flags & 4 != 0,
                truncate: false,
            };
            let backing = backing.checked_sub(1).map(|number| Backing(number as u32 as i32));
            let fid = words.fid(self.volume)?;
            let caller = words.caller()?;
            Some(LeftHandle { fid, mode, caller, direct: flags & 8 != 0, backing })
        };
        let all = self.all(HANDLE).into_iter();
        all.filter_map(|(handle, bytes)| Some((OpenHandle(handle), parse(&bytes)?))).collect()
    }

    /// Records the locks of a file in place of those in `record`.
    pub fn put_locks(&self, fid: Fid, locks: &[Granted], record: &mut Option<Record>) {
        if locks.is_empty() {
            *record = None;
            return;
        }
        let mut words = vec![fid.unique.0];
        for lock in locks {
            let family = u64::from(lock.family == LockFamily::Flock);
            let mode = u64::from(lock.mode == LockMode::Exclusive) << 1;
            let ByteRange { start, end } = lock.range;
            let (owner, pid, handle) = (lock.owner.0, u64::from(lock.pid), lock.handle.0);
            words.extend([family | mode, owner, pid, start, end, handle]);
        }
        let bytes = bytes_of(&words);
        let result = match record {
            Some(record) => record.set(&[&bytes]),
            None => self
                .keeper
                .records()
                .record(self.key(LOCKS, fid.vnode.0), &[&bytes])
                .map(|new| *record = Some(new)),
        };
        self.note(result);
    }

    /// The locks of a predecessor, by file.
    pub fn locks(&self) -> Vec<(Fid, Vec<Granted>)> {
        let parse = |vnode: u64, bytes: &[u8]| {
            let mut words = Parser::new(bytes);
            let unique = Uniquifier(words.next()?);
            let fid = Fid { volume: self.volume, vnode: VnodeNo(vnode), unique };
            let mut locks = Vec::new();
            while let Some(flags) = words.next() {
                let exclusive = flags & 2 != 0;
                locks.push(Granted {
                    family: if flags & 1 != 0 { LockFamily::Flock } else { LockFamily::Posix },
                    mode: if exclusive { LockMode::Exclusive } else { LockMode::Shared },
                    owner: LockOwner(words.next()?),
                    pid: words.next()? as u32,
                    range: ByteRange { start: words.next()?, end: words.next()? },
                    handle: OpenHandle(words.next()?),
                    end: End::Far,
                });
            }
            Some((fid, locks))
        };
        self.all(LOCKS).iter().filter_map(|(vnode, bytes)| parse(*vnode, bytes)).collect()
    }

    /// Records bytes that an application wrote; the record goes when they are at the server.
    pub fn put_write(
        &self,
        fid: Fid,
        offset: u64,
        kill: bool,
        caller: &Caller,
        bytes: &[u8],
    ) -> Option<Record> {
        let mut words = vec![offset, u64::from(kill)];
        put_fid(&mut words, fid);
        put_caller(&mut words, caller);
        let key = self.key(WRITE, self.serial.fetch_add(1, Ordering::Relaxed));
        let record = self.keeper.records().record(key, &[&bytes_of(&words), bytes]);
        record.inspect_err(|_| self.note(Err(std::io::ErrorKind::OutOfMemory.into()))).ok()
    }

    /// The writes of a predecessor, oldest first. They are recorded no more: the caller writes them
    /// again, and [`Self::forget_writes`] then.
    pub fn writes(&self) -> Vec<(u64, LeftWrite)> {
        let parse = |bytes: Vec<u8>| {
            let mut words = Parser::new(&bytes);
            let (offset, kill) = (words.next()?, words.next()? != 0);
            let fid = words.fid(self.volume)?;
            let caller = words.caller()?;
            let from = words.at;
            let bytes = Bytes::from(bytes).slice(from..);
            Some(LeftWrite { fid, offset, kill, caller, bytes })
        };
        let all = self.all(WRITE).into_iter();
        all.filter_map(|(serial, bytes)| Some((serial, parse(bytes)?))).collect()
    }

    /// This write of a predecessor is recorded anew.
    pub fn forget_write(&self, serial: u64) {
        self.keeper.records().remove(self.key(WRITE, serial));
    }

    /// Records that an application may have the file's body mapped for writing.
    pub fn put_mapped(&self, fid: Fid) {
        let key = self.key(MAPPED, fid.vnode.0);
        self.note(self.keeper.records().put(key, &[&bytes_of(&[fid.unique.0])]));
    }

    /// No application has the file's body mapped for writing.
    pub fn remove_mapped(&self, fid: Fid) {
        self.keeper.records().remove(self.key(MAPPED, fid.vnode.0));
    }

    /// The files that applications may have mapped for writing since a predecessor's time.
    pub fn mapped(&self) -> Vec<Fid> {
        let parse = |vnode: u64, bytes: &[u8]| {
            let unique = Uniquifier(Parser::new(bytes).next()?);
            Some(Fid { volume: self.volume, vnode: VnodeNo(vnode), unique })
        };
        self.all(MAPPED).iter().filter_map(|(vnode, bytes)| parse(*vnode, bytes)).collect()
    }

    fn body_name(fid: Fid) -> String {
        format!("body-{}-{}-{}", fid.volume.0, fid.vnode.0, fid.unique.0)
    }

    /// Has the keeper hold a body that the kernel has.
    pub fn hold_body(&self, fid: Fid, body: BorrowedFd<'_>) {
        self.note(self.keeper.hold(&Self::body_name(fid), body));
    }

    /// The kernel has the body no more.
    pub fn release_body(&self, fid: Fid) {
        self.keeper.release(&Self::body_name(fid));
    }

    /// The body that a predecessor gave to the kernel.
    pub fn body(&self, fid: Fid) -> Option<OwnedFd> {
        self.keeper.inherited(&Self::body_name(fid))
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn put_fid(words: &mut Vec<u64>, fid: Fid) {
    words.extend([fid.vnode.0, fid.unique.0]);
}

/// Callers at a client are named ones.
fn put_caller(words: &mut Vec<u64>, caller: &Caller) {
    words.push(u64::from(caller.uid) << 32 | u64::from(caller.gid));
    match &caller.groups {
        None => words.push(0),
        Some(groups) => {
            words.push(groups.len() as u64 + 1);
            words.extend(groups.iter().map(|group| u64::from(*group)));
        }
    }
}

/// Reads the words of a record.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Parser { bytes, at: 0 }
    }

    fn next(&mut self) -> Option<u64> {
        let word = self.bytes.get(self.at..self.at + size_of::<u64>())?;
        self.at += word.len();
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    fn fid(&mut self, volume: VolumeId) -> Option<Fid> {
        let (vnode, unique) = (VnodeNo(self.next()?), Uniquifier(self.next()?));
        Some(Fid { volume, vnode, unique })
    }

    fn caller(&mut self) -> Option<Caller> {
        let ids = self.next()?;
        let groups = match self.next()? {
            0 => None,
            count => Some(
                (1..count).map(|_| self.next().map(|group| group as u32)).collect::<Option<_>>()?,
            ),
        };
        let (uid, gid) = ((ids >> 32) as u32, ids as u32);
        Some(Caller { uid, gid, groups, who: RequestIdentity::NAMED })
    }
}
