//! A volume as the service uses it: its store, its access model, and the locks that span vnodes.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use store::{Update, Vnode};
use types::{Caller, Fault, Fid, Kind, Name};

use crate::access::{AccessModel, Right};

/// One volume.
pub(crate) struct ViceVolume {
    pub store: Arc<store::Volume>,
    pub access: AccessModel,
    /// Held by moves of directories between directories: nobody else moves the ancestors while one looks for a loop.
    pub moves: Mutex<()>,
    /// Held from the look at the usage to the commit, by everything that grows a volume that has a quota. Makes the quota exact.
    pub growth: Mutex<()>,
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

    /// As `entry`, for a change of it: the caller has the directory's stripe, or will look again when it has.
    ///
    /// # Errors
    /// The store's.
    pub fn entry_to_change(&self, dir: Fid, name: &Name, update: &mut Update) -> Result<Option<Fid>, Fault> {
        let entry = self.store.look(dir.vnode, name.as_bytes(), update)?;
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
}
