//! The operations.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use client::Remote;
use parking_lot::{Mutex, RwLock};
use types::{
    AllocateMode, Answer, ByteRange, Call, CreateHow, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner, Name,
    NewKind, RenameMode, SeekWhat, Status, StatusChange, VolumeStatus, XattrMode,
};

use crate::{
    Attributes, DirHandle, Entry, Error, Found, Handle, Invalidate, ListEntry, Listing, Nobody, OpenMode, Opened,
    Request, Stamp, VenusConfig, Wrote,
};

/// A file system in fids. Blocks the calling thread; any number of threads may call.
pub struct Venus {
    remote: Arc<dyn Remote>,
    invalidate: RwLock<Arc<dyn Invalidate>>,
    next: AtomicU64,
    files: Mutex<HashMap<Handle, (Fid, OpenMode)>>,
    dirs: Mutex<HashMap<DirHandle, Fid>>,
}

impl Venus {
    /// On top of `remote`, whose events it takes over.
    ///
    /// # Errors
    /// If the cache directory of the configuration cannot be used.
    pub fn new(remote: Arc<dyn Remote>, _config: VenusConfig) -> std::io::Result<Self> {
        Ok(Venus {
            remote,
            invalidate: RwLock::new(Arc::new(Nobody)),
            next: AtomicU64::new(1),
            files: Mutex::default(),
            dirs: Mutex::default(),
        })
    }

    /// Who hears what the kernel must forget. Set before the first request of the kernel.
    pub fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        *self.invalidate.write() = invalidate;
    }

    /// Runs `reply`, which writes a reply into the kernel, with whether the answer stamped `stamp` may still be cached there.
    /// Breaks wait until it is done, so that their notifications come behind it. It must not call into venus.
    pub fn answering<R>(&self, _stamp: Stamp, reply: impl FnOnce(bool) -> R) -> R {
        reply(false)
    }

    fn call(&self, request: &Request<'_>, call: Call) -> Result<Answer, Error> {
        let first = self.remote.call(request.caller, call.clone(), request.cancel);
        let reply = match (first, request.groups) {
            (Err(error), Some(groups)) if error.fault() == Some(Fault::GroupsNeeded) => {
                let caller = types::Caller { groups: Some(groups()), ..request.caller.clone() };
                self.remote.call(&caller, call, request.cancel)
            }
            (first, _) => first,
        };
        Ok(reply?.answer)
    }

    fn entry(status: Status) -> Entry {
        Entry { status, cacheable: false, name_cacheable: false, stamp: Stamp(0) }
    }

    /// The root of a volume, referred to once more.
    ///
    /// # Errors
    /// As the service says; so in all operations.
    pub fn root(&self, request: &Request<'_>, volume: &Name) -> Result<Attributes, Error> {
        self.status_of(request, Call::Root { volume: volume.clone() })
    }

    fn status_of(&self, request: &Request<'_>, call: Call) -> Result<Attributes, Error> {
        match self.call(request, call)? {
            Answer::Status(status) => Ok(Attributes { status, cacheable: false, stamp: Stamp(0) }),
            _ => Err(Error::Protocol),
        }
    }

    /// One name; what it found is referred to once more.
    ///
    /// # Errors
    /// As the service says; that there is no such entry is no error.
    pub fn lookup(&self, request: &Request<'_>, dir: Fid, name: &Name) -> Result<Found, Error> {
        match self.call(request, Call::Lookup { dir, name: name.clone() }) {
            Ok(Answer::Entry { status, .. }) => Ok(Found::Entry(Self::entry(status))),
            Ok(_) => Err(Error::Protocol),
            Err(Error::Fault(Fault::NotFound)) => Ok(Found::Absent { cacheable: false, stamp: Stamp(0) }),
            Err(error) => Err(error),
        }
    }

    /// The kernel was given `fid` once more otherwise than by lookup, make, create or link (by a listing).
    pub fn remember(&self, _fid: Fid) {}

    /// The kernel has `count` references to `fid` less.
    pub fn forget(&self, _fid: Fid, _count: u64) {}

    /// The status.
    ///
    /// # Errors
    /// As the service says.
    pub fn getattr(&self, request: &Request<'_>, fid: Fid) -> Result<Attributes, Error> {
        self.status_of(request, Call::GetStatus { fid })
    }

    /// Changes the status.
    ///
    /// # Errors
    /// As the service says.
    pub fn setattr(&self, request: &Request<'_>, fid: Fid, change: StatusChange) -> Result<Attributes, Error> {
        self.status_of(request, Call::SetStatus { fid, change })
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// As the service says.
    pub fn readlink(&self, request: &Request<'_>, fid: Fid) -> Result<Bytes, Error> {
        match self.call(request, Call::ReadLink { fid })? {
            Answer::Target(target) => Ok(target),
            _ => Err(Error::Protocol),
        }
    }

    /// A new file, directory, link or node; refused if the name is there.
    ///
    /// # Errors
    /// As the service says.
    pub fn make(&self, request: &Request<'_>, dir: Fid, name: &Name, kind: NewKind, mode: u16) -> Result<Entry, Error> {
        match self.call(request, Call::Make { dir, name: name.clone(), kind, mode, how: CreateHow::Guarded })? {
            Answer::Made { status, .. } => Ok(Self::entry(status)),
            _ => Err(Error::Protocol),
        }
    }

    /// Makes a plain file, or finds it unless `exclusive`, and opens it.
    ///
    /// # Errors
    /// As the service says.
    pub fn create(
        &self,
        request: &Request<'_>,
        dir: Fid,
        name: &Name,
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<(Entry, Opened), Error> {
        let how = if exclusive { CreateHow::Guarded } else { CreateHow::Unchecked };
        match self.call(request, Call::Make { dir, name: name.clone(), kind: NewKind::File, mode, how })? {
            Answer::Made { status, .. } => Ok((Self::entry(status), self.open(request, status.fid, open)?)),
            _ => Err(Error::Protocol),
        }
    }

    /// A file without a name, open; `dir` says in which volume.
    ///
    /// # Errors
    /// As the service says.
    pub fn make_unnamed(
        &self,
        request: &Request<'_>,
        dir: Fid,
        mode: u16,
        open: OpenMode,
    ) -> Result<(Entry, Opened), Error> {
        let made = self.status_of(request, Call::MakeUnnamed { dir, mode })?;
        Ok((Self::entry(made.status), self.open(request, made.status.fid, open)?))
    }

    /// One more name for `fid`.
    ///
    /// # Errors
    /// As the service says.
    pub fn link(&self, request: &Request<'_>, fid: Fid, dir: Fid, name: &Name) -> Result<Entry, Error> {
        match self.call(request, Call::Link { fid, dir, name: name.clone() })? {
            Answer::Made { status, .. } => Ok(Self::entry(status)),
            _ => Err(Error::Protocol),
        }
    }

    /// Takes the name of something that is no directory away.
    ///
    /// # Errors
    /// As the service says.
    pub fn unlink(&self, request: &Request<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.call(request, Call::Remove { dir, name: name.clone(), directory: false, hold: false }).map(drop)
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    /// As the service says.
    pub fn rmdir(&self, request: &Request<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.call(request, Call::Remove { dir, name: name.clone(), directory: true, hold: false }).map(drop)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As the service says.
    pub fn rename(
        &self,
        request: &Request<'_>,
        from: (Fid, &Name),
        to: (Fid, &Name),
        mode: RenameMode,
    ) -> Result<(), Error> {
        let call =
            Call::Rename { from_dir: from.0, from: from.1.clone(), to_dir: to.0, to: to.1.clone(), mode, hold: false };
        self.call(request, call).map(drop)
    }

    /// Opens a plain file. Rights are the kernel's business (`default_permissions`), on the status that it was given.
    ///
    /// # Errors
    /// As the service says.
    pub fn open(&self, _request: &Request<'_>, fid: Fid, mode: OpenMode) -> Result<Opened, Error> {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed));
        self.files.lock().insert(handle, (fid, mode));
        Ok(Opened { handle, direct: mode.append, keep_cache: false })
    }

    fn fid_of(&self, handle: Handle) -> Result<(Fid, OpenMode), Error> {
        self.files.lock().get(&handle).copied().ok_or(Error::BadHandle)
    }

    /// Up to `length` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// As the service says.
    pub fn read(&self, request: &Request<'_>, handle: Handle, offset: u64, length: u32) -> Result<Bytes, Error> {
        let (fid, _) = self.fid_of(handle)?;
        match self.call(request, Call::Read { fid, offset, length })? {
            Answer::Data { data, .. } => Ok(data),
            _ => Err(Error::Protocol),
        }
    }

    /// Writes all of `data` (at most 1 MiB), at the end of the file if the handle appends. It reaches the server at the
    /// latest at flush, fsync, unlock, or after a second.
    ///
    /// # Errors
    /// Its own, or that of an earlier write in the background, once for each handle.
    pub fn write(
        &self,
        request: &Request<'_>,
        handle: Handle,
        offset: u64,
        data: Bytes,
        kill_privileges: bool,
    ) -> Result<Wrote, Error> {
        let (fid, mode) = self.fid_of(handle)?;
        let offset = (!mode.append).then_some(offset);
        match self.call(request, Call::Write { fid, offset, data, stable: false, kill_privileges })? {
            Answer::Written { count, offset, .. } => Ok(Wrote { count, offset }),
            _ => Err(Error::Protocol),
        }
    }

    /// A descriptor is closed: everything written is at the server afterwards, and `owner`'s byte-range locks end.
    ///
    /// # Errors
    /// That of a write in the background, once for each handle.
    pub fn flush(&self, request: &Request<'_>, handle: Handle, owner: Option<LockOwner>) -> Result<(), Error> {
        let Some(owner) = owner else { return Ok(()) };
        self.unlock(request, handle, owner, LockFamily::Posix, ByteRange::ALL)
    }

    /// The last descriptor of the handle is closed; `flock_owner`'s whole-file lock ends.
    ///
    /// # Errors
    /// If there is no such handle.
    pub fn release(&self, request: &Request<'_>, handle: Handle, flock_owner: Option<LockOwner>) -> Result<(), Error> {
        if let Some(owner) = flock_owner {
            self.unlock(request, handle, owner, LockFamily::Flock, ByteRange::ALL)?;
        }
        self.files.lock().remove(&handle).map(drop).ok_or(Error::BadHandle)
    }

    /// Everything written is stable afterwards.
    ///
    /// # Errors
    /// Its own, or that of an earlier write in the background, once for each handle.
    pub fn fsync(&self, request: &Request<'_>, handle: Handle) -> Result<(), Error> {
        let (fid, _) = self.fid_of(handle)?;
        self.call(request, Call::Commit { fid }).map(drop)
    }

    /// Reserves, zeroes or punches.
    ///
    /// # Errors
    /// As the service says.
    pub fn fallocate(
        &self,
        request: &Request<'_>,
        handle: Handle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<(), Error> {
        let (fid, _) = self.fid_of(handle)?;
        self.call(request, Call::Allocate { fid, offset, length, mode }).map(drop)
    }

    /// The next data or hole at or behind `offset`.
    ///
    /// # Errors
    /// [`Fault::NothingThere`] past the end.
    pub fn lseek(&self, request: &Request<'_>, handle: Handle, offset: u64, what: SeekWhat) -> Result<u64, Error> {
        let (fid, _) = self.fid_of(handle)?;
        match self.call(request, Call::Seek { fid, offset, what })? {
            Answer::Offset(offset) => Ok(offset),
            _ => Err(Error::Protocol),
        }
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As the service says.
    pub fn opendir(&self, _request: &Request<'_>, dir: Fid) -> Result<DirHandle, Error> {
        let handle = DirHandle(self.next.fetch_add(1, Ordering::Relaxed));
        self.dirs.lock().insert(handle, dir);
        Ok(handle)
    }

    /// Entries behind `cookie` (0: the first), about `bytes_max` bytes of them as the kernel lays them out.
    ///
    /// # Errors
    /// As the service says.
    pub fn readdir(
        &self,
        request: &Request<'_>,
        handle: DirHandle,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Listing, Error> {
        let dir = self.dirs.lock().get(&handle).copied().ok_or(Error::BadHandle)?;
        match self.call(request, Call::ReadDir { dir, cookie, bytes_max, plus })? {
            Answer::Entries { entries, end, .. } => {
                let entries = entries.into_iter().map(|e| ListEntry {
                    name: e.name,
                    fid: e.fid,
                    kind: e.kind,
                    cookie: e.cookie,
                    status: e.status,
                    cacheable: false,
                });
                Ok(Listing { entries: entries.collect(), end, names_cacheable: false, stamp: Stamp(0) })
            }
            _ => Err(Error::Protocol),
        }
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.dirs.lock().remove(&handle);
    }

    /// The directory's entries are stable afterwards.
    ///
    /// # Errors
    /// As the service says.
    pub fn fsyncdir(&self, request: &Request<'_>, handle: DirHandle) -> Result<(), Error> {
        let fid = self.dirs.lock().get(&handle).copied().ok_or(Error::BadHandle)?;
        self.call(request, Call::Commit { fid }).map(drop)
    }

    /// The volume of `fid`.
    ///
    /// # Errors
    /// As the service says.
    pub fn statfs(&self, request: &Request<'_>, fid: Fid) -> Result<VolumeStatus, Error> {
        match self.call(request, Call::VolumeStatus { fid })? {
            Answer::Volume(volume) => Ok(volume),
            _ => Err(Error::Protocol),
        }
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`Fault::NoXattr`] if there is none; as the service says.
    pub fn getxattr(&self, request: &Request<'_>, fid: Fid, name: &[u8]) -> Result<Bytes, Error> {
        match self.call(request, Call::XattrGet { fid, name: Bytes::copy_from_slice(name) })? {
            Answer::Xattr(value) => Ok(value),
            _ => Err(Error::Protocol),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As the service says.
    pub fn setxattr(
        &self,
        request: &Request<'_>,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), Error> {
        self.call(request, Call::XattrSet { fid, name: Bytes::copy_from_slice(name), value, mode }).map(drop)
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// As the service says.
    pub fn listxattr(&self, request: &Request<'_>, fid: Fid) -> Result<Vec<Bytes>, Error> {
        match self.call(request, Call::XattrList { fid })? {
            Answer::XattrNames(names) => Ok(names),
            _ => Err(Error::Protocol),
        }
    }

    /// Takes an extended attribute away.
    ///
    /// # Errors
    /// [`Fault::NoXattr`] if there is none; as the service says.
    pub fn removexattr(&self, request: &Request<'_>, fid: Fid, name: &[u8]) -> Result<(), Error> {
        self.call(request, Call::XattrRemove { fid, name: Bytes::copy_from_slice(name) }).map(drop)
    }

    /// The lock in the way of one, if any.
    ///
    /// # Errors
    /// As the service says.
    pub fn getlk(
        &self,
        request: &Request<'_>,
        handle: Handle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
    ) -> Result<Option<LockConflict>, Error> {
        let (fid, _) = self.fid_of(handle)?;
        match self.call(request, Call::TestLock { fid, owner, family, range, mode })? {
            Answer::LockTest(conflict) => Ok(conflict),
            _ => Err(Error::Protocol),
        }
    }

    /// Takes a lock; with `wait`, blocks until it is had or the request is cancelled.
    ///
    /// # Errors
    /// [`Fault::Locked`] without `wait`; [`Fault::Deadlock`]; as the service says.
    #[allow(clippy::too_many_arguments)] // They are the lock.
    pub fn setlk(
        &self,
        request: &Request<'_>,
        handle: Handle,
        owner: LockOwner,
        pid: u32,
        family: LockFamily,
        range: ByteRange,
        mode: LockMode,
        wait: bool,
    ) -> Result<(), Error> {
        let (fid, _) = self.fid_of(handle)?;
        self.call(request, Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim: false }).map(drop)
    }

    /// Lets go of a lock, or of a part; what was written under it is at the server before.
    ///
    /// # Errors
    /// As the service says.
    pub fn unlock(
        &self,
        request: &Request<'_>,
        handle: Handle,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
    ) -> Result<(), Error> {
        let (fid, _) = self.fid_of(handle)?;
        self.call(request, Call::Unlock { fid, owner, family, range }).map(drop)
    }

    /// Everything written in the volume of `fid` is stable afterwards.
    ///
    /// # Errors
    /// As the service says.
    pub fn syncfs(&self, request: &Request<'_>, fid: Fid) -> Result<(), Error> {
        self.call(request, Call::CommitVolume { fid }).map(drop)
    }

    /// Everything written is at the server and stable; nothing is held any more; background threads have ended. Open
    /// handles are no use afterwards.
    ///
    /// # Errors
    /// The first error of a write in the background that nobody was told.
    pub fn shutdown(&self) -> Result<(), Error> {
        Ok(())
    }
}
