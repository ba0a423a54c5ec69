//! Access lists.
//!
//! A list is stored as an attribute that no attribute call reaches, so clones, streams and dumps
//! contain it without special care. A directory without a list uses that of the nearest directory
//! above that has one; the root has one, or lists decide nothing in the volume. A file uses its
//! directory's, or one of its own: then that one decides who reads, writes, locks and administers
//! the file, and the directory's who sees that the file exists.
//!
//! Parsed lists are cached, by the directory or file that they decide for. A change of a list, or a
//! move of a directory, empties the cache after the commit; a concurrent reader detects by the
//! count that its list may be old, and does not cache it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guard::{Acl, Cps, Rights};
use parking_lot::Mutex;
use store::{StoreError, Vnode};
use types::{Fault, Fid, Kind, VnodeNo};

use super::{CallerView, Right};
use crate::volumes::ViceVolume;

/// Name of the attribute that stores a list.
pub(crate) const ATTRIBUTE: &[u8] = b"rialto.acl";
/// Directories and files of a volume whose lists are cached.
const REMEMBERED_MAX: usize = 4096;
/// Bytes of the cached lists, as stored, counted for each directory and file.
const REMEMBERED_BYTES_MAX: usize = 4 << 20;

/// A list, and the directory or file that has it.
#[derive(Debug)]
pub(crate) struct Ruling {
    pub of: Fid,
    pub list: Acl,
    bytes: usize,
}

/// Cache of a volume's lists.
#[derive(Default)]
pub(crate) struct VolumeAcls {
    decide: AtomicBool,
    /// Number of changes between lists and mode bits.
    models: AtomicU64,
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    changes: u64,
    bytes: usize,
    lists: HashMap<Fid, Arc<Ruling>>,
}

impl VolumeAcls {
    /// Reads whether lists decide in a stored volume.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn of(store: &store::Volume) -> Result<Self, StoreError> {
        let lists = VolumeAcls::default();
        let root = store.vnode(VnodeNo::ROOT)?;
        let has = root.map_or(Ok(None), |root| store.xattr(&root, ATTRIBUTE))?.is_some();
        lists.decide.store(has, Ordering::Relaxed);
        Ok(lists)
    }

    /// Whether lists decide, and not mode bits alone.
    pub fn decide(&self) -> bool {
        self.decide.load(Ordering::Relaxed)
    }

    /// Sets whether lists decide.
    pub fn set_decide(&self, decide: bool) {
        self.decide.store(decide, Ordering::Relaxed);
        self.models.fetch_add(1, Ordering::SeqCst);
        self.forget();
    }

    /// Number of changes between lists and mode bits.
    pub fn models(&self) -> u64 {
        self.models.load(Ordering::SeqCst)
    }

    /// Empties the cache: a list was changed, or a directory has another parent.
    pub fn forget(&self) {
        let mut remembered = self.remembered.lock();
        let changes = remembered.changes + 1;
        *remembered = Remembered { changes, ..Remembered::default() };
    }

    fn remember(&self, changes: u64, asked: Fid, ruling: &Arc<Ruling>) {
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
        remembered.lists.insert(asked, Arc::clone(ruling));
    }
}

impl ViceVolume {
    /// The list that decides for a directory or file.
    ///
    /// # Errors
    /// `Damaged` if it cannot be decoded; errors of the store.
    pub fn ruling(&self, vnode: &Vnode) -> Result<Arc<Ruling>, Fault> {
        if !vnode.has_xattr && vnode.status.kind != Kind::Directory {
            return self.ruling(&self.above(vnode)?);
        }
        let changes = {
            let remembered = self.lists.remembered.lock();
            if let Some(ruling) = remembered.lists.get(&vnode.status.fid) {
                return Ok(Arc::clone(ruling));
            }
            remembered.changes
        };
        let ruling = self.find_ruling(vnode)?;
        self.lists.remember(changes, vnode.status.fid, &ruling);
        Ok(ruling)
    }

    /// Whether a file has a list of its own. True if that cannot be read: the check then reads the
    /// list, and returns the error.
    pub fn has_own_list(&self, vnode: &Vnode) -> bool {
        let may = vnode.has_xattr && vnode.status.kind != Kind::Directory && self.lists.decide();
        may && self.ruling(vnode).map_or(true, |ruling| ruling.of == vnode.status.fid)
    }

    fn find_ruling(&self, vnode: &Vnode) -> Result<Arc<Ruling>, Fault> {
        let (mut at, mut above) = (vnode.status.fid, vnode.parent);
        let mut found = self.store.xattr(vnode, ATTRIBUTE)?;
        while found.is_none() && at.vnode != VnodeNo::ROOT {
            // A removed directory names a parent that may be removed too.
            let vnode = self
                .store
                .vnode(above)?
                .map_or_else(|| self.store.vnode(VnodeNo::ROOT), |one| Ok(Some(one)))?;
            let vnode = vnode.ok_or(Fault::Damaged)?;
            (at, above) = (vnode.status.fid, vnode.parent);
            found = self.store.xattr(&vnode, ATTRIBUTE)?;
        }
        let bytes = found.as_deref().unwrap_or_default();
        let list = if bytes.is_empty() {
            Acl::new()
        } else {
            Acl::decode(bytes).map_err(|_| Fault::Damaged)?
        };
        Ok(Arc::new(Ruling { of: at, list, bytes: bytes.len() }))
    }

    /// The directory that a file is in; of a removed one, the root.
    fn above(&self, vnode: &Vnode) -> Result<Vnode, Fault> {
        let parent = self.store.vnode(vnode.parent)?;
        let root = |parent: Option<Vnode>| {
            parent.map_or_else(|| self.store.vnode(VnodeNo::ROOT), |one| Ok(Some(one)))
        };
        root(parent)?.ok_or(Fault::Damaged)
    }

    /// Rights of the caller in a directory or on a file, and whose list gives them: the file
    /// itself, if it has a list of its own, otherwise its directory.
    ///
    /// # Errors
    /// As [`ViceVolume::ruling`], and [`super::Principals::cps`].
    pub fn rights(&self, asker: CallerView<'_>, vnode: &Vnode) -> Result<(Rights, Fid), Fault> {
        let cps =
            if asker.caller.is_root() { None } else { Some(asker.principals.cps(asker.caller)?) };
        if vnode.status.kind == Kind::Directory {
            return Ok((self.rights_in(asker, cps.as_ref(), vnode)?, vnode.status.fid));
        }
        let dir = self.above(vnode)?;
        let in_dir = self.rights_in(asker, cps.as_ref(), &dir)?;
        let own = if vnode.has_xattr { Some(self.ruling(vnode)?) } else { None };
        let Some(ruling) = own.filter(|ruling| ruling.of == vnode.status.fid) else {
            return Ok((in_dir, dir.status.fid));
        };
        let Some(cps) = cps else { return Ok((in_dir, vnode.status.fid)) };
        let mut own = ruling.list.rights(&cps).of_file();
        if owns(asker, vnode) || cps.is_administrator() {
            own = own.with(Rights::ADMINISTER);
        }
        Ok((
            if in_dir.has(Rights::LOOKUP) { own.with(Rights::LOOKUP) } else { own },
            vnode.status.fid,
        ))
    }

    /// Rights in a directory. Without a CPS: the superuser.
    fn rights_in(
        &self,
        asker: CallerView<'_>,
        cps: Option<&Cps>,
        dir: &Vnode,
    ) -> Result<Rights, Fault> {
        let Some(cps) = cps else { return Ok(Rights::ALL) };
        let given = self.ruling(dir)?.list.rights(cps);
        let implied = Rights::LOOKUP.with(Rights::ADMINISTER);
        Ok(if owns(asker, dir) || cps.is_administrator() { given.with(implied) } else { given })
    }
}

pub(super) fn need(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    right: Right,
) -> Result<(), Fault> {
    if asker.caller.is_root() {
        return Ok(());
    }
    let is_directory = vnode.status.kind == Kind::Directory;
    let (rights, _) = volume.rights(asker, vnode)?;
    // A caller that may insert files into a drop box may write the files that it owns.
    let dropped = !is_directory && owns(asker, vnode) && rights.has(Rights::INSERT);
    let granted = match right {
        Right::See if is_directory => {
            vnode.no() == VnodeNo::ROOT
                || rights.has(Rights::LOOKUP)
                || sees_from_above(asker, volume, vnode)?
        }
        Right::See | Right::List | Right::Search => rights.has(Rights::LOOKUP),
        Right::Read if is_directory => rights.has(Rights::LOOKUP),
        Right::Read | Right::ReadData => rights.has(Rights::READ),
        Right::Insert => rights.has(Rights::INSERT),
        Right::Delete => rights.has(Rights::DELETE),
        Right::Move => true,
        Right::Write | Right::WriteData | Right::LockExclusive => {
            rights.has(Rights::WRITE) || dropped
        }
        Right::LockShared => rights.has(Rights::LOCK) || rights.has(Rights::WRITE) || dropped,
        Right::Administer => rights.has(Rights::ADMINISTER),
    };
    if granted { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// Whether the caller may list the parent of this directory, which shows its status.
fn sees_from_above(asker: CallerView<'_>, volume: &ViceVolume, dir: &Vnode) -> Result<bool, Fault> {
    let Some(above) = volume.store.vnode(dir.parent)? else { return Ok(false) };
    Ok(volume.rights(asker, &above)?.0.has(Rights::LOOKUP))
}

fn owns(asker: CallerView<'_>, vnode: &Vnode) -> bool {
    asker.caller.uid == vnode.status.uid && asker.caller.who.level.is_proved()
}
