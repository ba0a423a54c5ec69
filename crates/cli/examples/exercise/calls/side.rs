//! One of the two sides: its places, the files that are open in it, and what a call does there.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use mem::lock::{RangeLock, set_file_range, set_range};
use mem::map::Map;
use rustix::fs::{
    Access, Advice, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags,
    RawDir, RenameFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

use super::call::{At, Base, Call, LockHow, RenameHow, SetHow, Space};

/// Calls between two counts of the entries.
const COUNTED_EVERY: u64 = 64;
/// Alignment of direct transfers.
const ALIGNED: usize = 4096;

pub(super) struct Side {
    places: Vec<PathBuf>,
    open: BTreeMap<usize, Opened>,
    maps: BTreeMap<usize, Mapped>,
    executed: u64,
    entries: Cell<usize>,
}

struct Opened {
    fd: OwnedFd,
    is_dir: bool,
    is_direct: bool,
}

/// A map, which may outlive the descriptor that it was made through.
struct Mapped {
    map: Map,
    /// A place only, which keeps nothing open.
    file: OwnedFd,
    writable: bool,
}

impl Side {
    pub fn new(places: Vec<PathBuf>) -> Self {
        let (open, maps, entries) = Default::default();
        Side { places, open, maps, executed: 0, entries }
    }

    pub fn places(&self) -> usize {
        self.places.len()
    }

    pub fn place(&self, number: usize) -> &Path {
        &self.places[number]
    }

    /// About how many entries the tree has.
    pub fn entries(&self) -> usize {
        self.entries.get()
    }

    pub fn open_slots(&self) -> Vec<usize> {
        self.open.keys().copied().collect()
    }

    pub fn mapped_slots(&self) -> Vec<usize> {
        self.maps.keys().copied().collect()
    }

    /// Directories that are open, with a path to each.
    pub fn open_directories(&self) -> Vec<(usize, PathBuf)> {
        let dirs = self.open.iter().filter(|(_, opened)| opened.is_dir);
        dirs.map(|(slot, opened)| (*slot, through(&opened.fd))).collect()
    }

    pub fn names(&self, dir: &Path) -> Vec<OsString> {
        listed(dir).into_iter().map(|(name, _)| name).collect()
    }

    pub fn directories(&self, dir: &Path) -> Vec<OsString> {
        let dirs = listed(dir).into_iter().filter(|(_, is_dir)| *is_dir);
        dirs.map(|(name, _)| name).collect()
    }

    pub fn is_directory(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok_and(|of| of.is_dir())
    }

    pub fn close(&mut self) {
        self.open.clear();
        self.maps.clear();
    }

    /// The paths of what a call touched, from the root of the tree.
    pub fn touched(&self, call: &Call) -> Vec<PathBuf> {
        let paths = call.paths().into_iter().filter_map(|at| match at.base {
            Base::Place(_) => Some(at.path.clone()),
            Base::Slot(slot) => Some(self.present_path(slot)?.join(&at.path)),
        });
        let open = call.slots().into_iter().filter_map(|slot| self.present_path(slot));
        paths.chain(open).collect()
    }

    fn present_path(&self, slot: usize) -> Option<PathBuf> {
        let path = std::fs::read_link(through(&self.open.get(&slot)?.fd)).ok()?;
        let below = self.places.iter().find_map(|place| path.strip_prefix(place).ok());
        below.map(Path::to_owned)
    }

    /// The view of a path at a place, and whether the first place shows the same file.
    pub fn look(&self, place: usize, path: &Path, with_content: bool) -> Result<String> {
        let (here, first) = (self.places[place].join(path), self.places[0].join(path));
        let stat = rustix::fs::lstat(&here)?;
        let agrees = rustix::fs::lstat(&first).is_ok_and(|first| {
            (first.st_dev, first.st_ino) == (stat.st_dev, stat.st_ino)
                && shown(&first) == shown(&stat)
        });
        let mut text = format!("{}, agrees: {agrees}", shown(&stat));
        text += &extras(&here, &stat, with_content)?;
        Ok(text)
    }

    pub fn look_open(&self, slot: usize) -> Result<String> {
        let opened = self.opened(slot)?;
        Ok(shown(&rustix::fs::fstat(&opened.fd)?))
    }

    /// Whether the call changes a directory that has no name any more. A local file system takes
    /// such a change, and a mount refuses it with `ESTALE` (docs/spec/mount.md).
    pub fn changes_removed_directory(&self, call: &Call) -> bool {
        let is_removed = |stat: Stat| {
            stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        };
        match call {
            Call::ChmodOpen { slot, .. } => self
                .opened(*slot)
                .and_then(|opened| rustix::fs::fstat(&opened.fd))
                .is_ok_and(is_removed),
            Call::Chmod { at, .. }
            | Call::Chown { at, .. }
            | Call::SetTimes { at, .. }
            | Call::SetAttribute { at, .. }
            | Call::RemoveAttribute { at, .. }
            | Call::OpenTemporary { at, .. } => {
                self.full(at).and_then(rustix::fs::stat).is_ok_and(is_removed)
            }
            _ => false,
        }
    }

    fn opened(&self, slot: usize) -> Result<&Opened> {
        self.open.get(&slot).ok_or(Errno::BADF)
    }

    fn full(&self, at: &At) -> Result<PathBuf> {
        Ok(match at.base {
            Base::Place(place) => self.places[place].join(&at.path),
            Base::Slot(slot) => through(&self.opened(slot)?.fd).join(&at.path),
        })
    }

    /// Does the call; returns what a program sees of it.
    pub fn execute(&mut self, call: &Call) -> Result<String> {
        if self.executed.is_multiple_of(COUNTED_EVERY) {
            self.entries.set(count(&self.places[0]));
        }
        self.executed += 1;
        match call {
            Call::Open { .. } | Call::OpenTemporary { .. } => self.open(call),
            Call::Close { slot } => {
                self.close_slot(*slot);
                Ok(String::new())
            }
            Call::Read { .. }
            | Call::Write { .. }
            | Call::ReadAt { .. }
            | Call::WriteAt { .. }
            | Call::Seek { .. }
            | Call::CopyRange { .. } => self.transfer(call),
            Call::Map { .. }
            | Call::MapRead { .. }
            | Call::MapWrite { .. }
            | Call::MapSync { .. }
            | Call::Unmap { .. } => self.map(call),
            Call::SetAttribute { .. }
            | Call::GetAttribute { .. }
            | Call::ListAttributes { .. }
            | Call::RemoveAttribute { .. } => self.attribute(call),
            Call::Flock { .. } | Call::RangeLock { .. } | Call::ProcessLock { .. } => {
                self.lock(call)
            }
            Call::Truncate { .. }
            | Call::TruncateOpen { .. }
            | Call::Allocate { .. }
            | Call::Sync { .. }
            | Call::Forget { .. } => self.space(call),
            Call::Chmod { .. }
            | Call::ChmodOpen { .. }
            | Call::Chown { .. }
            | Call::SetTimes { .. }
            | Call::Stat { .. }
            | Call::StatOpen { .. }
            | Call::Access { .. } => self.status(call),
            _ => self.name(call),
        }
    }

    fn open(&mut self, call: &Call) -> Result<String> {
        let (slot, path, flags, mode) = match call {
            Call::Open { slot, at, flags, mode } => (*slot, self.full(at)?, *flags, *mode),
            Call::OpenTemporary { slot, at } => {
                (*slot, self.full(at)?, OFlags::TMPFILE | OFlags::RDWR, 0o640)
            }
            _ => unreachable!("opens only"),
        };
        // A direct append is at the end of the file, which no alignment holds for.
        let is_direct = flags.contains(OFlags::DIRECT) && !flags.contains(OFlags::APPEND);
        let mut flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, is_direct);
        self.close_slot(slot);
        let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(mode))?;
        let stat = rustix::fs::fstat(&fd)?;
        // The kernel tells no file system that a pipe is open, so it is over with its last name.
        if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
            return Ok("a pipe".to_owned());
        }
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_direct = is_direct && !is_dir;
        self.open.insert(slot, Opened { fd, is_dir, is_direct });
        Ok(shown(&stat))
    }

    /// On a local file system a map keeps the open file, and so the locks, of a descriptor that was
    /// closed; a map of a passed body does not (docs/spec/passthrough.md). So the program unlocks.
    fn close_slot(&mut self, slot: usize) {
        if let Some(opened) = self.open.remove(&slot)
            && self.maps.contains_key(&slot)
        {
            let _ = rustix::fs::flock(&opened.fd, FlockOperation::NonBlockingUnlock);
            let _ = set_file_range(opened.fd.as_fd(), RangeLock::Unlock, 0, 0, false);
        }
    }

    fn transfer(&mut self, call: &Call) -> Result<String> {
        let position = |opened: &Opened| -> Result<()> {
            if opened.is_direct {
                let at = rustix::fs::tell(&opened.fd)? & !(ALIGNED as u64 - 1);
                rustix::fs::seek(&opened.fd, SeekFrom::Start(at))?;
            }
            Ok(())
        };
        let aligned = |opened: &Opened, at: u64| {
            if opened.is_direct { at & !(ALIGNED as u64 - 1) } else { at }
        };
        match *call {
            Call::Read { slot, length } => {
                let opened = self.opened(slot)?;
                position(opened)?;
                let mut buffer = Buffer::new(aligned(opened, length as u64) as usize, 0);
                let count = rustix::io::read(&opened.fd, buffer.bytes())?;
                Ok(bytes_shown(&buffer.bytes()[..count]))
            }
            Call::ReadAt { slot, offset, length } => {
                let opened = self.opened(slot)?;
                let mut buffer = Buffer::new(aligned(opened, length as u64) as usize, 0);
                let offset = aligned(opened, offset);
                let count = rustix::io::pread(&opened.fd, buffer.bytes(), offset)?;
                Ok(bytes_shown(&buffer.bytes()[..count]))
            }
            Call::Write { slot, length, fill } => {
                let opened = self.opened(slot)?;
                position(opened)?;
                let mut buffer = Buffer::new(aligned(opened, length as u64) as usize, fill);
                let count = rustix::io::write(&opened.fd, buffer.bytes())?;
                // A pipe has no position.
                let at = rustix::fs::tell(&opened.fd);
                Ok(format!("{count} written, then at {at:?}"))
            }
            Call::WriteAt { slot, offset, length, fill } => {
                let opened = self.opened(slot)?;
                let mut buffer = Buffer::new(aligned(opened, length as u64) as usize, fill);
                let offset = aligned(opened, offset);
                let count = rustix::io::pwrite(&opened.fd, buffer.bytes(), offset)?;
                Ok(format!("{count} written"))
            }
            Call::Seek { slot, from, by } => {
                let opened = self.opened(slot)?;
                // Offsets in directories are the file system's own.
                if opened.is_dir {
                    return Ok(String::new());
                }
                let to = match from {
                    0 => SeekFrom::Start(by.unsigned_abs()),
                    1 => SeekFrom::Current(by),
                    _ => SeekFrom::End(-by),
                };
                Ok(format!("at {}", rustix::fs::seek(&opened.fd, to)?))
            }
            Call::CopyRange { from, to, from_offset, to_offset, length } => {
                let (from, to) = (self.opened(from)?, self.opened(to)?);
                if from.is_direct || to.is_direct {
                    return Ok(String::new());
                }
                let (mut from_offset, mut to_offset) = (from_offset, to_offset);
                let count = rustix::fs::copy_file_range(
                    &from.fd,
                    Some(&mut from_offset),
                    &to.fd,
                    Some(&mut to_offset),
                    length,
                )?;
                Ok(format!("{count} copied, then at {from_offset} and {to_offset}"))
            }
            _ => unreachable!("transfers only"),
        }
    }

    fn map(&mut self, call: &Call) -> Result<String> {
        match *call {
            Call::Map { slot, length, writable } => {
                self.maps.remove(&slot);
                let opened = self.opened(slot)?;
                let map = Map::new(&opened.fd, length, writable)?;
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let file = rustix::fs::open(through(&opened.fd), flags, Mode::empty())?;
                self.maps.insert(slot, Mapped { map, file, writable });
            }
            Call::MapRead { slot, offset, length } => {
                let mapped = self.maps.get(&slot).ok_or(Errno::BADF)?;
                let (offset, length) = mapped.inside(offset, length)?;
                let mut seen = vec![0; length];
                mapped.map.read(offset, &mut seen);
                return Ok(format!("{} at {offset}", bytes_shown(&seen)));
            }
            Call::MapWrite { slot, offset, length, fill } => {
                let mapped = self.maps.get_mut(&slot).ok_or(Errno::BADF)?;
                if !mapped.writable {
                    return Err(Errno::ACCESS);
                }
                let (offset, length) = mapped.inside(offset, length)?;
                mapped.map.write(offset, &vec![fill; length]);
                return Ok(format!("{length} written at {offset}"));
            }
            Call::MapSync { slot } => self.maps.get(&slot).ok_or(Errno::BADF)?.map.flush()?,
            Call::Unmap { slot } => {
                self.maps.remove(&slot);
            }
            _ => unreachable!("maps only"),
        }
        Ok(String::new())
    }

    fn space(&mut self, call: &Call) -> Result<String> {
        match call {
            Call::Truncate { at, size } => {
                let path = self.full(at)?;
                // A place only: truncate(2) through it is one by path.
                let place = rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                mem::length::set(place.as_fd(), *size)?;
            }
            Call::TruncateOpen { slot, size } => {
                rustix::fs::ftruncate(&self.opened(*slot)?.fd, *size)?;
            }
            Call::Allocate { slot, what, offset, length } => {
                let flags = match what {
                    Space::Reserve => FallocateFlags::empty(),
                    Space::ReserveBehind => FallocateFlags::KEEP_SIZE,
                    Space::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Space::Zero => FallocateFlags::ZERO_RANGE,
                };
                rustix::fs::fallocate(&self.opened(*slot)?.fd, flags, *offset, *length)?;
            }
            Call::Sync { slot, data_only } => {
                let fd = &self.opened(*slot)?.fd;
                if *data_only { rustix::fs::fdatasync(fd)? } else { rustix::fs::fsync(fd)? }
            }
            Call::Forget { slot } => {
                rustix::fs::fadvise(&self.opened(*slot)?.fd, 0, None, Advice::DontNeed)?;
            }
            _ => unreachable!("calls about space only"),
        }
        Ok(String::new())
    }

    fn name(&mut self, call: &Call) -> Result<String> {
        match call {
            Call::MakeDir { at, mode } => {
                rustix::fs::mkdir(self.full(at)?, Mode::from_raw_mode(*mode))?;
            }
            Call::RemoveDir { at } => rustix::fs::rmdir(self.full(at)?)?,
            Call::Unlink { at } => rustix::fs::unlink(self.full(at)?)?,
            Call::RemoveTree { at } => {
                std::fs::remove_dir_all(self.full(at)?)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            }
            Call::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, self.full(from)?, CWD, self.full(to)?, flags)?;
            }
            Call::Link { from, to } => rustix::fs::link(self.full(from)?, self.full(to)?)?,
            Call::LinkOpen { slot, to } => {
                let from = through(&self.opened(*slot)?.fd);
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, from, CWD, self.full(to)?, flags)?;
            }
            Call::Symlink { target, at } => rustix::fs::symlink(target, self.full(at)?)?,
            Call::ReadLink { at } => {
                let target = rustix::fs::readlink(self.full(at)?, Vec::new())?;
                return Ok(format!("{target:?}"));
            }
            Call::MakeNode { at, socket, mode } => {
                let kind = if *socket { FileType::Socket } else { FileType::Fifo };
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::mknodat(CWD, self.full(at)?, kind, mode, 0)?;
            }
            Call::List { at } => {
                let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = rustix::fs::open(self.full(at)?, flags, Mode::empty())?;
                return list(&dir);
            }
            Call::ListOpen { slot } => {
                let opened = self.opened(*slot)?;
                if !opened.is_dir {
                    return Err(Errno::NOTDIR);
                }
                rustix::fs::seek(&opened.fd, SeekFrom::Start(0))?;
                let names = list(&opened.fd);
                // Positions in directories are the file system's own, and a read looks at them.
                rustix::fs::seek(&opened.fd, SeekFrom::Start(0))?;
                return names;
            }
            _ => unreachable!("calls about names only"),
        }
        Ok(String::new())
    }

    fn status(&mut self, call: &Call) -> Result<String> {
        let follows = |follow: bool| {
            if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
        };
        match call {
            Call::Chmod { at, mode } => {
                rustix::fs::chmod(self.full(at)?, Mode::from_raw_mode(*mode))?;
            }
            Call::ChmodOpen { slot, mode } => {
                let opened = self.opened(*slot)?;
                // A directory that was removed while it was open keeps what is known of it only
                // until its status is changed.
                if opened.is_dir && rustix::fs::fstat(&opened.fd)?.st_nlink == 0 {
                    return Ok("removed".to_owned());
                }
                rustix::fs::fchmod(&self.opened(*slot)?.fd, Mode::from_raw_mode(*mode))?;
            }
            Call::Chown { at, user, group, follow } => {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                rustix::fs::chownat(CWD, self.full(at)?, user, group, follows(*follow))?;
            }
            Call::SetTimes { at, accessed, modified, follow } => {
                let time = |of: &Option<(i64, u32)>| match *of {
                    Some((seconds, nanoseconds)) => {
                        Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
                    }
                    None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                };
                let times =
                    Timestamps { last_access: time(accessed), last_modification: time(modified) };
                let path = self.full(at)?;
                rustix::fs::utimensat(CWD, &path, &times, follows(*follow))?;
                let now = rustix::fs::statat(CWD, &path, follows(*follow))?;
                let accessed = accessed.map(|_| (now.st_atime, now.st_atime_nsec));
                let modified = modified.map(|_| (now.st_mtime, now.st_mtime_nsec));
                return Ok(format!("accessed {accessed:?}, modified {modified:?}"));
            }
            Call::Stat { at, follow } => {
                return Ok(shown(&rustix::fs::statat(CWD, self.full(at)?, follows(*follow))?));
            }
            Call::StatOpen { slot } => {
                return Ok(shown(&rustix::fs::fstat(&self.opened(*slot)?.fd)?));
            }
            Call::Access { at, what } => {
                rustix::fs::access(self.full(at)?, Access::from_bits_retain((*what).into()))?;
            }
            _ => unreachable!("calls about status only"),
        }
        Ok(String::new())
    }

    fn attribute(&mut self, call: &Call) -> Result<String> {
        match call {
            Call::SetAttribute { at, name, length, fill, how, follow } => {
                let (path, value) = (self.full(at)?, vec![*fill; *length]);
                let flags = match how {
                    SetHow::Any => XattrFlags::empty(),
                    SetHow::Create => XattrFlags::CREATE,
                    SetHow::Replace => XattrFlags::REPLACE,
                };
                if *follow {
                    rustix::fs::setxattr(path, *name, &value, flags)?;
                } else {
                    rustix::fs::lsetxattr(path, *name, &value, flags)?;
                }
                Ok(String::new())
            }
            Call::GetAttribute { at, name, follow } => {
                let (path, mut value) = (self.full(at)?, vec![0; 1000]);
                let length = if *follow {
                    rustix::fs::getxattr(path, *name, value.as_mut_slice())?
                } else {
                    rustix::fs::lgetxattr(path, *name, value.as_mut_slice())?
                };
                Ok(bytes_shown(&value[..length]))
            }
            Call::ListAttributes { at, follow } => {
                attribute_names(&self.full(at)?, *follow).map(|names| format!("{names:?}"))
            }
            Call::RemoveAttribute { at, name, follow } => {
                let path = self.full(at)?;
                if *follow {
                    rustix::fs::removexattr(path, *name)?;
                } else {
                    rustix::fs::lremovexattr(path, *name)?;
                }
                Ok(String::new())
            }
            _ => unreachable!("attributes only"),
        }
    }

    fn lock(&mut self, call: &Call) -> Result<String> {
        match *call {
            Call::Flock { slot, how } => {
                let how = match how {
                    LockHow::Shared => FlockOperation::NonBlockingLockShared,
                    LockHow::Exclusive => FlockOperation::NonBlockingLockExclusive,
                    LockHow::Unlock => FlockOperation::NonBlockingUnlock,
                };
                rustix::fs::flock(&self.opened(slot)?.fd, how)?;
                Ok(String::new())
            }
            Call::RangeLock { slot, how, offset, length } => {
                let how = match how {
                    LockHow::Shared => RangeLock::Shared,
                    LockHow::Exclusive => RangeLock::Exclusive,
                    LockHow::Unlock => RangeLock::Unlock,
                };
                let fd = self.opened(slot)?.fd.as_fd();
                set_file_range(fd, how, offset, length, false)?;
                Ok(String::new())
            }
            // The lock of the process ends with the call, since any close would end it later.
            Call::ProcessLock { slot, other, exclusive, offset, length } => {
                let how = if exclusive { RangeLock::Exclusive } else { RangeLock::Shared };
                let (mine, others) =
                    (self.opened(slot)?.fd.as_fd(), self.opened(other)?.fd.as_fd());
                set_range(mine, how, offset, length, false)?;
                let try_lock =
                    set_file_range(others, RangeLock::Exclusive, offset + length / 2, 1, false);
                set_range(mine, RangeLock::Unlock, offset, length, false)?;
                Ok(format!("{try_lock:?}"))
            }
            _ => unreachable!("locks only"),
        }
    }
}

impl Mapped {
    /// The part of a range that is in the file as well as in the map: behind the file's end there
    /// is a signal instead of bytes.
    fn inside(&self, offset: usize, length: usize) -> Result<(usize, usize)> {
        let size = rustix::fs::fstat(&self.file)?.st_size as usize;
        let end = size.min(self.map.len());
        if end == 0 {
            return Ok((0, 0));
        }
        let offset = offset % end;
        Ok((offset, length.min(end - offset)))
    }
}

/// Bytes at an address that direct transfers accept.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize, fill: u8) -> Self {
        let bytes = vec![fill; length + ALIGNED];
        let start = bytes.as_ptr().align_offset(ALIGNED);
        Buffer { bytes, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

/// A path to what is open.
fn through(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The names in a directory in their order, and which are directories; nothing if it cannot be
/// listed.
fn listed(dir: &Path) -> Vec<(OsString, bool)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<(OsString, bool)> = entries
        .map(|entry| (entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_dir())))
        .collect();
    names.sort();
    names
}

fn count(dir: &Path) -> usize {
    let names = listed(dir);
    let below = names.iter().filter(|(_, is_dir)| *is_dir).map(|(name, _)| count(&dir.join(name)));
    names.len() + below.sum::<usize>()
}

fn list(dir: &OwnedFd) -> Result<String> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.push((OsString::from_vec(entry.file_name().to_bytes().to_vec()), entry.file_type()));
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(format!("{names:?}"))
}

fn bytes_shown(bytes: &[u8]) -> String {
    format!("{} bytes {:08x} {:?}", bytes.len(), crc32c::crc32c(bytes), bytes.first())
}

/// The part of a status that is the same on every file system.
fn shown(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mut text = format!(
        "{:06o} links {} owner {}:{}",
        stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid
    );
    if kind != FileType::Directory {
        let _ = write!(text, " size {}", stat.st_size);
    }
    text
}

/// Attributes, the target of a link, the content of a file.
fn extras(path: &Path, stat: &Stat, with_content: bool) -> Result<String> {
    let mut text = String::new();
    for name in attribute_names(path, false)? {
        let mut value = vec![0; 1000];
        let length = rustix::fs::lgetxattr(path, name.as_slice(), value.as_mut_slice())?;
        let name = String::from_utf8_lossy(&name);
        let _ = write!(text, ", {name} {}", bytes_shown(&value[..length]));
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let _ = write!(text, ", to {:?}", rustix::fs::readlink(path, Vec::new())?);
        }
        FileType::RegularFile if with_content => {
            let content = std::fs::read(path)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let _ = write!(text, ", content {}", bytes_shown(&content));
        }
        _ => {}
    }
    Ok(text)
}

fn attribute_names(path: &Path, follow: bool) -> Result<Vec<Vec<u8>>> {
    let mut list = vec![0; 4000];
    let length = if follow {
        rustix::fs::listxattr(path, list.as_mut_slice())?
    } else {
        rustix::fs::llistxattr(path, list.as_mut_slice())?
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    // A label of the system's is no call's.
    let mut names: Vec<Vec<u8>> =
        names.filter(|name| !name.starts_with(b"security.")).map(<[u8]>::to_vec).collect();
    names.sort();
    Ok(names)
}

/// A line for each entry of a tree, with all that is compared.
pub(super) fn tree(root: &Path) -> std::result::Result<Vec<String>, String> {
    let mut lines = Vec::new();
    // To look at a mount point is not to enter it.
    std::fs::read_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
    walk(root, Path::new(""), &mut HashMap::new(), &mut lines)?;
    Ok(lines)
}

/// `links` has the first path of each file.
fn walk(
    root: &Path,
    below: &Path,
    links: &mut HashMap<u64, PathBuf>,
    lines: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let path = root.join(below);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("{what} of {}: {error}", path.display())
    };
    let stat = rustix::fs::lstat(&path).map_err(|error| failed("status", &error))?;
    let extras = extras(&path, &stat, true).map_err(|error| failed("content", &error))?;
    let first = links.entry(stat.st_ino).or_insert_with(|| below.to_owned());
    let mut line = format!("{}: {}{extras}", below.display(), shown(&stat));
    if first != below {
        let _ = write!(line, ", the file {}", first.display());
    }
    lines.push(line);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let entries = std::fs::read_dir(&path).map_err(|error| failed("listing", &error))?;
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(|error| failed("listing", &error))?.file_name());
        }
        names.sort();
        for name in names {
            walk(root, &below.join(name), links, lines)?;
        }
    }
    Ok(())
}
