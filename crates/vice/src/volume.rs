//! A volume as the service uses it: its store, its access model, and the locks that span vnodes.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use store::Vnode;
use types::{Caller, Fault, Fid, Kind, Name};

use crate::access::{AccessModel, Right};

/// One volume.
pub(crate) struct ViceVolume {
    pub store: Arc<store::Volume>,
    pub access: AccessModel,
    /// Held by moves of directories between directories: nobody else moves the ancestors while one looks for a loop.
    pub moves: Mutex<()>,
    /// Held from the look at the usage to the commit, by everything that grows a volume that has a quota. Makes the quota exact.
    growth: Mutex<()>,
}

/// Room under the quota, until it is dropped after the commit.
pub(crate) type Room<'a> = Option<MutexGuard<'a, ()>>;

impl ViceVolume {
    pub fn new(store: Arc<store::Volume>) -> Self {
        ViceVolume { store, access: AccessModel::Posix, moves: Mutex::new(()), growth: Mutex::new(()) }
    }

    /// The vnode of `fid`.
    ///
    /// # Errors
    /// `Stale` if there is no such file (any more).
    pub fn vnode(&self, fid: Fid) -> Result<Vnode, Fault> {
        match self.store.vnode(fid.vnode)? {
            Some(vnode) if vnode.status.fid == fid => Ok(vnode),
            _ => Err(Fault::Stale),
        }
    }

    /// The vnode of `fid`, which must be a directory.
    ///
    /// # Errors
    /// `Stale`, `NotDirectory`.
    pub fn directory(&self, fid: Fid) -> Result<Vnode, Fault> {
        let vnode = self.vnode(fid)?;
        if vnode.status.kind == Kind::Directory { Ok(vnode) } else { Err(Fault::NotDirectory) }
    }

    /// What an entry of a directory names.
    ///
    /// # Errors
    /// The store's.
    pub fn entry(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Fault> {
        let entry = self.store.lookup(dir.vnode, name.as_bytes())?;
        Ok(entry.map(|entry| Fid { volume: dir.volume, vnode: entry.target.vnode, unique: entry.target.unique }))
    }

    /// Whether the caller may make an entry in this directory, which must have a name itself.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `GroupsNeeded`.
    pub fn need_room(&self, caller: &Caller, dir: &Vnode) -> Result<(), Fault> {
        if dir.status.links == 0 {
            return Err(Fault::NotFound);
        }
        self.access.need(caller, &dir.status, Right::ChangeEntries)
    }

    /// Room for so much more.
    ///
    ///
    /// # Errors
    /// `QuotaExceeded`.
    pub fn room(&self, bytes: u64, files: u64) -> Result<Room<'_>, Fault> {
        self.room_for(files, |_| Ok(bytes))
    }

    /// As `room`; `bytes` says how much it will be at most, given how much is free, and may look closer if that is not enough.
    pub fn room_for(&self, files: u64, bytes: impl FnOnce(u64) -> Result<u64, Fault>) -> Result<Room<'_>, Fault> {
        if self.store.quota() == store::Quota::default() {
            return Ok(None);
        }
        let guard = self.growth.lock();
        let (quota, usage) = (self.store.quota(), self.store.usage());
        let free = |limit: u64, used: u64| if limit == 0 { u64::MAX } else { limit.saturating_sub(used) };
        let bytes_free = free(quota.bytes, usage.bytes);
        if files > free(quota.files, usage.files) || bytes(bytes_free)? > bytes_free {
            return Err(Fault::QuotaExceeded);
        }
        Ok(Some(guard))
    }
}
