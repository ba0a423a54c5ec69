//! Operations on files and their bytes.

use bytes::Bytes;
use rustix::io::Errno;
use types::{AllocateMode, Fault, Fid, LockOwner, SeekWhat};
use venus::{OpenHandle, OpenMode, OpenReply, RequestContext, Venus, WriteAt};

use crate::abi::{self, flag};
use crate::attributes;
use crate::errno::RequestRefusal;
use crate::invalidation::Notifier;
use crate::locks::MountLocks;
use crate::mount_options::AccessTimes;
use crate::task::Task;

/// Flags of `open`, as Linux numbers them on x86-64 and arm64.
mod open_flag {
    pub const ACCESS_MODE: u32 = 0o3;
    pub const WRITE_ONLY: u32 = 0o1;
    pub const READ_WRITE: u32 = 0o2;
    pub const EXCLUSIVE: u32 = 0o200;
    pub const TRUNCATE: u32 = 0o1000;
    pub const APPEND: u32 = 0o2000;
    /// The kernel's own: the file will be executed.
    pub const EXECUTE: u32 = 0o40;
    /// `O_DIRECT` of this machine.
    pub const DIRECT: u32 = libc::O_DIRECT as u32;
    /// `O_NOATIME`: reads through the descriptor are not recorded.
    pub const NO_ACCESS_TIME: u32 = 0o1_000_000;
    /// Also a part of `O_SYNC`.
    pub const DATA_SYNC: u32 = 0o10000;
}

fn open_mode(flags: u32) -> OpenMode {
    let access = flags & open_flag::ACCESS_MODE;
    OpenMode {
        read: access != open_flag::WRITE_ONLY,
        write: matches!(access, open_flag::WRITE_ONLY | open_flag::READ_WRITE),
        append: flags & open_flag::APPEND != 0,
        truncate: flags & open_flag::TRUNCATE != 0,
    }
}

/// Whether the flags open a file for changes.
pub(crate) fn writes(flags: u32) -> bool {
    open_mode(flags).write
}

/// The mode of `fallocate`; `None`: not supported.
fn allocate_mode(mode: u32) -> Option<AllocateMode> {
    const KEEP_SIZE: u32 = 0x01;
    const PUNCH_HOLE: u32 = 0x02;
    const ZERO_RANGE: u32 = 0x10;
    const PUNCH_AND_KEEP: u32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_AND_KEEP: u32 = ZERO_RANGE | KEEP_SIZE;
    Some(match mode {
        0 => AllocateMode::Extend,
        KEEP_SIZE => AllocateMode::KeepSize,
        PUNCH_AND_KEEP => AllocateMode::PunchHole,
        ZERO_RANGE => AllocateMode::ZeroExtend,
        ZERO_AND_KEEP => AllocateMode::ZeroKeepSize,
        _ => return None,
    })
}

/// The name of a file that has none.
const NO_NAME: &[u8] = b"";

impl Task<'_> {
    /// A handle that cannot write, or whose closing does not concern venus, has nothing to flush,
    /// so its closing needs no request, unless the file has byte-range locks: closing any
    /// descriptor of a file ends its process's locks on it.
    pub(crate) fn open_out(&self, fid: Fid, opened: &OpenReply, read_only: bool) -> abi::OpenOut {
        let mut open_flags = 0;
        if opened.direct {
            open_flags |= flag::FOPEN_DIRECT_IO;
        }
        // The kernel's pages are valid until a break invalidates them; with a body it uses none,
        // and drops them.
        open_flags |=
            if opened.backing.is_some() { flag::FOPEN_PASSTHROUGH } else { flag::FOPEN_KEEP_CACHE };
        if (read_only || opened.quiet) && !self.on.locks.any_ever(fid) {
            open_flags |= flag::FOPEN_NOFLUSH;
        }
        let backing_id = opened.backing.map_or(0, |backing| backing.0);
        abi::OpenOut { fh: opened.handle.0, open_flags, backing_id }
    }

    pub(crate) fn open(&self, of: abi::OpenIn) -> Result<(), RequestRefusal> {
        let (fid, mode) = (self.fid()?, open_mode(of.flags));
        self.need_open(fid, of.flags)?;
        let opened = self.venus().open(&self.request(), fid, mode)?;
        // The kernel may have all pages, or the body: then it reads without a request.
        let reads = mode.read && !mode.write && of.flags & open_flag::NO_ACCESS_TIME == 0;
        if reads && note_read(self, fid) {
            self.on.notifier.status(fid);
        }
        if self.reply.value(&self.open_out(fid, &opened, !mode.write)).is_err() {
            let _ = self.venus().release(&self.request(), opened.handle, None);
        }
        Ok(())
    }

    /// The kernel has checked by the ids of this machine, which may mean nothing in the cell.
    fn need_open(&self, fid: Fid, flags: u32) -> Result<(), RequestRefusal> {
        let wanted = match flags & open_flag::ACCESS_MODE {
            _ if flags & open_flag::EXECUTE != 0 => 1,
            open_flag::WRITE_ONLY => 2,
            open_flag::READ_WRITE => 6,
            _ => 4,
        };
        self.access().need_bits(fid, wanted)
    }

    /// The kernel sends this when it knows of no such name, and the creator of a file may open it,
    /// so it checks no rights. A file that another client created meanwhile must not be opened like
    /// this: the reply says that the kernel's knowledge is stale, so it looks up again, and then
    /// opens and checks in the usual way.
    pub(crate) fn create(&self, of: &abi::CreateIn, name: &[u8]) -> Result<(), RequestRefusal> {
        let dir = self.fid()?;
        let mode = attributes::permissions(of.mode);
        match self.venus().create(
            &self.request(),
            dir,
            &self.name(name)?,
            mode,
            true,
            open_mode(of.flags),
        ) {
            Ok((entry, opened)) => self.entry(name, &entry, Some(&opened)),
            Err(venus::Error::Fault(Fault::Exists)) if of.flags & open_flag::EXCLUSIVE == 0 => {
                return Err(RequestRefusal(Errno::STALE));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(crate) fn tmpfile(&self, of: &abi::CreateIn) -> Result<(), RequestRefusal> {
        let mode = attributes::permissions(of.mode);
        let (entry, opened) =
            self.venus().make_unnamed(&self.request(), self.fid()?, mode, open_mode(of.flags))?;
        self.entry(NO_NAME, &entry, Some(&opened));
        Ok(())
    }
}

/// A program has read the file, by this request. The kernel itself forgets the access time after a
/// request that reads. Returns whether that is another one now.
pub(crate) fn note_read(task: &Task<'_>, fid: Fid) -> bool {
    let times = task.mount.options.access_times(fid.vnode.is_directory());
    let always = times == AccessTimes::Always;
    times != AccessTimes::Never && task.venus().control().note_read(&task.request(), fid, always)
}

/// A program has read bytes through a descriptor.
pub(crate) fn note_bytes_read(task: &Task<'_>, of: &abi::ReadIn) -> Result<(), RequestRefusal> {
    if of.flags & open_flag::NO_ACCESS_TIME == 0 {
        note_read(task, task.fid()?);
    }
    Ok(())
}

pub(crate) fn read(
    venus: &Venus,
    request: &RequestContext<'_>,
    of: &abi::ReadIn,
) -> Result<Bytes, RequestRefusal> {
    Ok(venus.read(request, OpenHandle(of.fh), of.offset, of.size)?)
}

/// A change of a file's bytes that drops its set-id bits. The kernel drops them at each truncation
/// itself, and leaves them to the file system for a write and a reservation: it goes on showing the
/// mode that it has.
pub(crate) struct DroppingSetIds<'t> {
    /// The file that has such bits.
    from: Option<(&'t Notifier, Fid)>,
}

/// Called before a change of the file that drops set-id bits if it `drops` any.
///
/// # Errors
/// `ESTALE`.
pub(crate) fn dropping_set_ids<'t>(
    task: &'t Task<'_>,
    drops: bool,
) -> Result<DroppingSetIds<'t>, RequestRefusal> {
    if !drops {
        return Ok(DroppingSetIds { from: None });
    }
    let fid = task.fid()?;
    let has = task.venus().access().has_set_ids(fid);
    Ok(DroppingSetIds { from: has.then_some((&*task.on.notifier, fid)) })
}

impl DroppingSetIds<'_> {
    /// The change is done, and not replied yet: the kernel forgets the mode.
    pub fn end(self) {
        if let Some((notifier, fid)) = self.from {
            notifier.status(fid);
        }
    }
}

/// A write that bypasses the kernel's pages ends those that were read meanwhile before it is
/// replied: they may have the bytes of before. The kernel itself ends them before such a write, and
/// after it only if the program waits for it (not with `io_submit`).
///
/// # Errors
/// `ESTALE`, or venus's refusal.
pub(crate) fn write(
    task: &Task<'_>,
    of: &abi::WriteIn,
    data: Bytes,
) -> Result<abi::WriteOut, RequestRefusal> {
    let (venus, notifier, handle) = (task.venus(), &task.on.notifier, OpenHandle(of.fh));
    let kill_privileges = of.write_flags & flag::WRITE_KILL_SUIDGID != 0;
    let request = &task.request();
    if of.write_flags & flag::WRITE_CACHE != 0 {
        // The kernel writes pages of a map back through any open file, also one that appends.
        let at = WriteAt::Exactly(of.offset);
        let wrote = venus.write(request, handle, at, data, kill_privileges)?;
        return Ok(abi::WriteOut { size: wrote.count, padding: 0 });
    }
    let send = |data| venus.write(request, handle, of.offset, data, kill_privileges);
    if !venus.is_direct(handle) {
        let wrote = send(data)?;
        if of.flags & open_flag::DIRECT != 0 {
            notifier.written_pages(task.fid()?, of.offset, of.size);
        }
        return Ok(abi::WriteOut { size: wrote.count, padding: 0 });
    }
    let growth = notifier.grows(task.fid()?, of.offset);
    let wrote = send(data.clone())?;
    if let Some(last) = data[..data.len().min(wrote.count as usize)].last() {
        growth.reached(wrote.offset + u64::from(wrote.count), *last);
    }
    // After a cached write the kernel requests a sync by itself.
    if of.flags & open_flag::DATA_SYNC != 0 {
        venus.fsync(request, handle)?;
    }
    Ok(abi::WriteOut { size: wrote.count, padding: 0 })
}

pub(crate) fn flush(
    venus: &Venus,
    request: &RequestContext<'_>,
    locks: &MountLocks,
    fid: Result<Fid, RequestRefusal>,
    of: &abi::FlushIn,
) -> Result<(), RequestRefusal> {
    let owner = LockOwner(of.lock_owner);
    let result = venus.flush(request, OpenHandle(of.fh), Some(owner));
    locks.unlocked(fid?, owner);
    Ok(result?)
}

pub(crate) fn release(
    venus: &Venus,
    request: &RequestContext<'_>,
    locks: &MountLocks,
    fid: Result<Fid, RequestRefusal>,
    of: &abi::ReleaseIn,
) -> Result<(), RequestRefusal> {
    let handle = OpenHandle(of.fh);
    if let Ok(fid) = fid {
        locks.end(venus, request, fid, handle);
    }
    let flock_owner =
        (of.release_flags & flag::RELEASE_FLOCK_UNLOCK != 0).then_some(LockOwner(of.lock_owner));
    venus.release(request, handle, flock_owner)?;
    Ok(())
}

pub(crate) fn fsync(
    venus: &Venus,
    request: &RequestContext<'_>,
    of: &abi::FsyncIn,
) -> Result<(), RequestRefusal> {
    venus.fsync(request, OpenHandle(of.fh))?;
    Ok(())
}

pub(crate) fn fallocate(
    venus: &Venus,
    request: &RequestContext<'_>,
    of: &abi::FallocateIn,
) -> Result<(), RequestRefusal> {
    let mode = allocate_mode(of.mode).ok_or(Errno::OPNOTSUPP)?;
    venus.fallocate(request, OpenHandle(of.fh), of.offset, of.length, mode)?;
    Ok(())
}

pub(crate) fn lseek(
    venus: &Venus,
    request: &RequestContext<'_>,
    of: &abi::LseekIn,
) -> Result<abi::LseekOut, RequestRefusal> {
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    let what = match of.whence {
        SEEK_DATA => SeekWhat::Data,
        SEEK_HOLE => SeekWhat::Hole,
        _ => return Err(RequestRefusal(Errno::INVAL)),
    };
    let offset = venus.lseek(request, OpenHandle(of.fh), of.offset, what)?;
    Ok(abi::LseekOut { offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_are_linuxs() {
        use rustix::fs::OFlags;
        let bits = |flags: OFlags| flags.bits();
        assert_eq!(open_flag::ACCESS_MODE, bits(OFlags::ACCMODE));
        assert_eq!(open_flag::WRITE_ONLY, bits(OFlags::WRONLY));
        assert_eq!(open_flag::READ_WRITE, bits(OFlags::RDWR));
        assert_eq!(open_flag::EXCLUSIVE, bits(OFlags::EXCL));
        assert_eq!(open_flag::TRUNCATE, bits(OFlags::TRUNC));
        assert_eq!(open_flag::APPEND, bits(OFlags::APPEND));
        assert_eq!(open_flag::NO_ACCESS_TIME, bits(OFlags::NOATIME));
        assert_eq!(open_flag::DATA_SYNC & bits(OFlags::SYNC), open_flag::DATA_SYNC);
        let mode = open_mode(bits(OFlags::RDWR | OFlags::APPEND));
        assert_eq!(mode, OpenMode { read: true, write: true, append: true, truncate: false });
        let mode = open_mode(bits(OFlags::WRONLY | OFlags::TRUNC));
        assert_eq!(mode, OpenMode { read: false, write: true, append: false, truncate: true });
    }

    #[test]
    fn fallocate_offers_what_it_offers() {
        use rustix::fs::FallocateFlags as F;
        assert_eq!(allocate_mode(0), Some(AllocateMode::Extend));
        assert_eq!(
            allocate_mode((F::PUNCH_HOLE | F::KEEP_SIZE).bits()),
            Some(AllocateMode::PunchHole)
        );
        assert_eq!(allocate_mode(F::ZERO_RANGE.bits()), Some(AllocateMode::ZeroExtend));
        assert_eq!(
            allocate_mode((F::ZERO_RANGE | F::KEEP_SIZE).bits()),
            Some(AllocateMode::ZeroKeepSize)
        );
        assert_eq!(allocate_mode(F::COLLAPSE_RANGE.bits()), None);
        assert_eq!(allocate_mode(F::INSERT_RANGE.bits()), None);
    }
}
