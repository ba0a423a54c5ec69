//! Access lists.
//!
//! A directory's list is kept as an attribute that no call for attributes reaches, so clones, streams and dumps have it without knowing. A directory without one
//! has that of the nearest directory above that has one; the root has one, or lists decide nothing in the volume. A file has its directory's.
//!
//! Parsed lists are remembered, by the directory that asked for them. Whoever changes a list, or moves a directory, forgets them all after the commit; who was
//! reading meanwhile sees by the count that what was read may be old, and does not remember it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use guard::{Acl, Rights};
use parking_lot::Mutex;
use store::{StoreError, Vnode};
use types::{Fault, Fid, Kind, Level, VnodeNo};

use super::{Asker, Right};
use crate::volumes::ViceVolume;

/// What a directory's list is kept as.
pub(crate) const ATTRIBUTE: &[u8] = b"rialto.acl";
/// Directories of a volume whose lists are remembered.
const REMEMBERED_MAX: usize = 4096;
/// Bytes of their lists, as stored, counted for each directory.
const REMEMBERED_BYTES_MAX: usize = 4 << 20;

/// A list, and the directory that has it.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub of: Fid,
    pub list: Acl,
    bytes: usize,
}

/// A volume's lists.
#[derive(Default)]
pub(crate) struct Lists {
    decide: AtomicBool,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    changes: u64,
    bytes: usize,
    lists: HashMap<Fid, Arc<Ruling>>,
}

impl Lists {
    /// Of a volume as it is stored.
    ///
    /// # Errors
    /// The store's.
    pub fn of(store: &store::Volume) -> Result<Self, StoreError> {
        let lists = Lists::default();
        let root = store.vnode(VnodeNo::ROOT)?;
        let has = root.map_or(Ok(None), |root| store.xattr(&root, ATTRIBUTE))?.is_some();
        lists.decide.store(has, Ordering::Relaxed);
        Ok(lists)
    }

    /// Whether they decide, and not mode bits alone.
    pub fn decide(&self) -> bool {
        self.decide.load(Ordering::Relaxed)
    }

    /// From now on they do, or do not.
    pub fn set_decide(&self, decide: bool) {
        self.decide.store(decide, Ordering::Relaxed);
        self.forget();
    }

    /// A list was changed, or a directory has another one above it.
    pub fn forget(&self) {
        let mut remembered = self.remembered.lock();
        let changes = remembered.changes + 1;
        *remembered = Remembered { changes, ..Remembered::default() };
    }

    fn remember(&self, changes: u64, dir: Fid, ruling: &Arc<Ruling>) {
        let mut remembered = self.remembered.lock();
        if remembered.changes != changes {
            return;
        }
        let bytes = remembered.bytes + ruling.bytes;
        if bytes > REMEMBERED_BYTES_MAX || remembered.lists.len() >= REMEMBERED_MAX {
            remembered.lists.clear();
            remembered.bytes = 0;
        }
        remembered.bytes += ruling.bytes;
        remembered.lists.insert(dir, Arc::clone(ruling));
    }
}

impl ViceVolume {
    /// The list that decides for a directory.
    ///
    /// # Errors
    /// `Damaged` if it cannot be read; the store's.
    pub fn ruling(&self, dir: &Vnode) -> Result<Arc<Ruling>, Fault> {
        let changes = {
            let remembered = self.lists.remembered.lock();
            if let Some(ruling) = remembered.lists.get(&dir.status.fid) {
                return Ok(Arc::clone(ruling));
            }
            remembered.changes
        };
        let ruling = self.find_ruling(dir)?;
        self.lists.remember(changes, dir.status.fid, &ruling);
        Ok(ruling)
    }

    fn find_ruling(&self, dir: &Vnode) -> Result<Arc<Ruling>, Fault> {
        let (mut at, mut above) = (dir.status.fid, dir.parent);
        let mut found = self.store.xattr(dir, ATTRIBUTE)?;
        while found.is_none() && at.vnode != VnodeNo::ROOT {
            // A directory that was removed names one that may be gone too.
            let vnode =
                self.store.vnode(above)?.map_or_else(|| self.store.vnode(VnodeNo::ROOT), |one| Ok(Some(one)))?;
            let vnode = vnode.ok_or(Fault::Damaged)?;
            (at, above) = (vnode.status.fid, vnode.parent);
            found = self.store.xattr(&vnode, ATTRIBUTE)?;
        }
        let bytes = found.as_deref().unwrap_or_default();
        let list = if bytes.is_empty() { Acl::new() } else { Acl::decode(bytes).map_err(|_| Fault::Damaged)? };
        Ok(Arc::new(Ruling { of: at, list, bytes: bytes.len() }))
    }

    /// The directory whose list decides for a vnode.
    ///
    /// # Errors
    /// The store's.
    pub fn ruled_by(&self, vnode: &Vnode) -> Result<Vnode, Fault> {
        if vnode.status.kind == Kind::Directory {
            return Ok(vnode.clone());
        }
        let parent = self.store.vnode(vnode.parent)?;
        let root = |parent: Option<Vnode>| parent.map_or_else(|| self.store.vnode(VnodeNo::ROOT), |one| Ok(Some(one)));
        root(parent)?.ok_or(Fault::Damaged)
    }

    /// What the asker may do in a directory.
    ///
    /// # Errors
    /// As [`ViceVolume::ruling`], and [`super::Principals::cps`].
    pub fn rights(&self, asker: Asker<'_>, dir: &Vnode) -> Result<Rights, Fault> {
        let caller = asker.caller;
        if caller.is_root() {
            return Ok(Rights::ALL);
        }
        let cps = asker.principals.cps(caller)?;
        let given = self.ruling(dir)?.list.rights(&cps);
        let owns = caller.uid == dir.status.uid && caller.who.level != Level::Nobody;
        let implied = Rights::LOOKUP.with(Rights::ADMINISTER);
        Ok(if owns || cps.is_administrator() { given.with(implied) } else { given })
    }
}

pub(super) fn need(asker: Asker<'_>, volume: &ViceVolume, vnode: &Vnode, right: Right) -> Result<(), Fault> {
    if asker.caller.is_root() {
        return Ok(());
    }
    let is_directory = vnode.status.kind == Kind::Directory;
    let dir = volume.ruled_by(vnode)?;
    let rights = volume.rights(asker, &dir)?;
    // Who may put files into a drop box writes those that are his.
    let dropped = !is_directory && owns(asker, vnode) && rights.has(Rights::INSERT);
    let granted = match right {
        Right::See if is_directory => {
            vnode.no() == VnodeNo::ROOT || rights.has(Rights::LOOKUP) || sees_from_above(asker, volume, vnode)?
        }
        Right::See | Right::List | Right::Search => rights.has(Rights::LOOKUP),
        Right::Read if is_directory => rights.has(Rights::LOOKUP),
        Right::Read | Right::ReadData => rights.has(Rights::READ),
        Right::Insert => rights.has(Rights::INSERT),
        Right::Delete => rights.has(Rights::DELETE),
        Right::Move => true,
        Right::Write | Right::WriteData | Right::LockExclusive => rights.has(Rights::WRITE) || dropped,
        Right::LockShared => rights.has(Rights::LOCK) || rights.has(Rights::WRITE) || dropped,
        Right::Administer => rights.has(Rights::ADMINISTER),
    };
    if granted { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// Whether the asker lists the directory that this one is in, which shows what it is.
fn sees_from_above(asker: Asker<'_>, volume: &ViceVolume, dir: &Vnode) -> Result<bool, Fault> {
    let Some(above) = volume.store.vnode(dir.parent)? else { return Ok(false) };
    Ok(volume.rights(asker, &above)?.has(Rights::LOOKUP))
}

fn owns(asker: Asker<'_>, vnode: &Vnode) -> bool {
    asker.caller.uid == vnode.status.uid && asker.caller.who.level != Level::Nobody
}
