//! The access lists of a volume.
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

use guard::Acl;
use parking_lot::Mutex;
use store::{StoreError, Vnode};
use types::{Fault, Fid, Kind, VnodeNo};

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

/// Whether the root has a list.
fn has_list(store: &store::Volume) -> Result<bool, StoreError> {
    let root = store.vnode(VnodeNo::ROOT)?;
    Ok(root.map_or(Ok(None), |root| store.xattr(&root, ATTRIBUTE))?.is_some())
}

/// A volume's lists, and their cache.
pub(crate) struct VolumeAcls {
    store: Arc<store::Volume>,
    decide: AtomicBool,
    /// See [`VolumeAcls::models`].
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
    pub fn of(store: &Arc<store::Volume>) -> Result<Self, StoreError> {
        Ok(VolumeAcls {
            store: Arc::clone(store),
            decide: AtomicBool::new(has_list(store)?),
            models: AtomicU64::default(),
            remembered: Mutex::default(),
        })
    }

    /// Whether lists decide, and not mode bits alone.
    pub fn decide(&self) -> bool {
        self.decide.load(Ordering::Relaxed)
    }

    /// Sets whether lists decide.
    pub fn set_decide(&self, decide: bool) {
        self.decide.store(decide, Ordering::Relaxed);
        self.note_change();
        self.forget();
    }

    /// All contents of the volume are others: whether lists decide is read again.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn contents_replaced(&self) -> Result<(), StoreError> {
        self.set_decide(has_list(&self.store)?);
        Ok(())
    }

    /// Something that every status of the volume says was changed.
    pub fn note_change(&self) {
        self.models.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of changes of what every status of the volume says: whether lists decide, whether
    /// reads are recorded.
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

impl VolumeAcls {
    /// The list that decides for a directory or file.
    ///
    /// # Errors
    /// `Damaged` if it cannot be decoded; errors of the store.
    pub fn ruling(&self, vnode: &Vnode) -> Result<Arc<Ruling>, Fault> {
        if !vnode.has_xattr && vnode.status.kind != Kind::Directory {
            return self.ruling(&self.above(vnode)?);
        }
        let changes = {
            let remembered = self.remembered.lock();
            if let Some(ruling) = remembered.lists.get(&vnode.status.fid) {
                return Ok(Arc::clone(ruling));
            }
            remembered.changes
        };
        let ruling = self.find_ruling(vnode)?;
        self.remember(changes, vnode.status.fid, &ruling);
        Ok(ruling)
    }

    /// Whether a file has a list of its own. True if that cannot be read: the check then reads the
    /// list, and returns the error.
    pub fn has_own_list(&self, vnode: &Vnode) -> bool {
        let may = vnode.has_xattr && vnode.status.kind != Kind::Directory && self.decide();
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
    ///
    /// # Errors
    /// `Damaged`; errors of the store.
    pub fn above(&self, vnode: &Vnode) -> Result<Vnode, Fault> {
        let parent = self.store.vnode(vnode.parent)?;
        let root = |parent: Option<Vnode>| {
            parent.map_or_else(|| self.store.vnode(VnodeNo::ROOT), |one| Ok(Some(one)))
        };
        root(parent)?.ok_or(Fault::Damaged)
    }
}
