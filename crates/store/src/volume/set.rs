//! The set of volumes of a partition, found by number or name, created, renamed. The start of a
//! partition reads none of it (VO-4).
//!
//! Each change is one batch, so a volume exists whole or not at all (VO-2). A new volume is loaded
//! like any other, so there is one instance of it also if another thread finds it at once.

use std::sync::Arc;

use parking_lot::Mutex;
use types::{Fid, Kind, Name, Timestamp, VnodeNo, VolumeId};

use super::loaded::Residents;
use super::sweeper::Sweeper;
use super::{BEING_RESTORED, NewRoot, Shows, Volume};
use crate::StoreError;
use crate::body::Update;
use crate::error::Result;
use crate::format::header::{FIRST_EPOCH, HeadState, TreeHeader, ViewHeader};
use crate::format::key;
use crate::format::vnode::Vnode;
use crate::media::engine::{Batch, Engine};
use crate::tree::facts::VolumeFields;
use crate::tree::state::{head_of, put_header, put_view};
use crate::tree::{TreeState, Trees};

/// The volumes, see the head of the file.
pub struct VolumeSet {
    trees: Arc<Trees>,
    sweeper: Sweeper,
    loaded: Mutex<Residents>,
    /// New volumes are encrypted by default.
    encrypts: bool,
}

impl VolumeSet {
    pub(crate) fn new(trees: Arc<Trees>, encrypts: bool) -> VolumeSet {
        let sweeper = Sweeper::new(Arc::clone(&trees));
        VolumeSet { trees, sweeper, loaded: Mutex::default(), encrypts }
    }

    pub(crate) fn trees(&self) -> &Trees {
        &self.trees
    }

    pub(crate) fn sweeper(&self) -> &Sweeper {
        &self.sweeper
    }

    /// Whether new volumes are encrypted by default.
    pub fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// The volume with this number; `None`: there is none.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; the same for every reading method.
    pub fn volume(&self, id: VolumeId) -> Result<Option<Arc<Volume>>> {
        let mut loaded = self.loaded.lock();
        if let Some(volume) = loaded.volume(id) {
            return Ok(Some(volume));
        }
        let volume = self.load(id)?.map(Arc::new);
        if let Some(volume) = &volume {
            loaded.add(volume);
        }
        Ok(volume)
    }

    /// The volume with this number.
    pub(crate) fn existing(&self, id: VolumeId) -> Result<Arc<Volume>> {
        self.volume(id)?.ok_or(StoreError::NoVolume(id))
    }

    /// Loads a volume that is not in memory.
    fn load(&self, id: VolumeId) -> Result<Option<Volume>> {
        let key = key::view(id);
        if let Some(value) = self.trees.media.engine.get(&key)? {
            let header = ViewHeader::decode(&key, &value)?;
            let tree_state = self.trees.tree(header.tree)?;
            let tree_state = tree_state
                .ok_or_else(|| StoreError::Damaged(format!("tree of volume {}", id.0)))?;
            return Ok(Some(Volume::view(id, tree_state, header)));
        }
        let shown = |tree_state: &Arc<TreeState>| tree_state.head_state().has_volume();
        Ok(self
            .trees
            .tree(id)?
            .filter(shown)
            .map(|tree_state| Volume::new(tree_state, Shows::Head)))
    }

    /// Forgets a volume that was removed.
    pub(super) fn forget(&self, id: VolumeId) {
        self.loaded.lock().remove(id);
    }

    /// The volume with this name.
    ///
    /// # Errors
    /// As [`VolumeSet::volume`].
    pub fn volume_named(&self, name: &[u8]) -> Result<Option<Arc<Volume>>> {
        match self.trees.media.number(&key::name(name))? {
            Some(id) => self.volume(VolumeId(id)),
            None => Ok(None),
        }
    }

    /// Creates a volume with an empty root directory and the next number that this partition did
    /// not use; stable when it returns.
    ///
    /// # Errors
    /// `Taken` if the volume exists; `NoSpace`, `Medium`.
    pub fn create_volume(&self, name: &Name, root: &NewRoot) -> Result<Arc<Volume>> {
        self.create_numbered_volume(None, name, root)
    }

    /// As [`VolumeSet::create_volume`], with a number from the cell database.
    ///
    /// # Errors
    /// As [`VolumeSet::create_volume`].
    pub fn create_numbered_volume(
        &self,
        id: Option<VolumeId>,
        name: &Name,
        root: &NewRoot,
    ) -> Result<Arc<Volume>> {
        self.create_volume_as(id, name, root, self.encrypts)
    }

    /// As [`VolumeSet::create_numbered_volume`]; with `encrypt` the volume gets a key of its own
    /// that encrypts file contents (`cipher.rs`).
    ///
    /// # Errors
    /// As there; `Locked` if the partition has no keeper of keys.
    pub fn create_volume_as(
        &self,
        id: Option<VolumeId>,
        name: &Name,
        root: &NewRoot,
        encrypt: bool,
    ) -> Result<Arc<Volume>> {
        let media = &self.trees.media;
        let cipher = if encrypt { Some(media.ciphers.make()?) } else { None };
        media.room_for_records(None)?;
        let catalog = self.trees.catalog();
        let mut batch = Batch::default();
        let id = catalog.take_number(id, &mut batch)?;
        catalog.take_name(name, id, &mut batch)?;
        let header = TreeHeader {
            name: name.clone(),
            hash_key: media.random(),
            created: root.now,
            updated: root.now,
            quota: root.quota,
            offline: false,
            head: HeadState::Serving,
            arriving: false,
            has_standbys: false,
            next_slot: 1,
            epoch: FIRST_EPOCH,
            sealed: Vec::new(),
            base: None,
            origin: None,
        };
        put_header(id, &header, &mut batch);
        if let Some(wrapped) = cipher {
            media.ciphers.put(id, &wrapped, &mut batch)?;
        }
        let NewRoot { mode, uid, gid, now, .. } = *root;
        let vnode = Vnode::new(Fid::root(id), Kind::Directory, mode, uid, gid, VnodeNo::ROOT, now);
        let mut update = Update::new();
        update.create_vnode(&vnode);
        batch.add(&key::usage(id), &[update.bytes_delta, update.files_delta]);
        update.fill(&head_of(media, id, &header, None), &mut batch)?;
        media.apply(&batch)?;
        drop(catalog);
        media.sync()?;
        self.existing(id)
    }

    /// Renames the volume; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `Taken` if another volume has the name; `Medium`.
    pub fn rename_volume(&self, id: VolumeId, name: &Name, now: Timestamp) -> Result<()> {
        let catalog = self.trees.catalog();
        let volume = self.existing(id)?;
        let old = volume.name();
        if old == *name {
            return Ok(());
        }
        let mut batch = Batch::default();
        catalog.take_name(name, id, &mut batch)?;
        batch.delete(&key::name(old.as_bytes()));
        self.change_header(&volume, batch, &|header| header.rename(name, now))?;
        drop(catalog);
        self.trees.media.sync()
    }

    /// The read-write volume stops taking changes, or takes them again; stable when it returns.
    /// Changes that were committed by then are in the next sealed epoch.
    ///
    /// # Errors
    /// `NoVolume`, `ReadOnly`, `Medium`.
    pub fn hold_volume(&self, id: VolumeId, held: bool) -> Result<()> {
        let volume = self.existing(id)?;
        if !volume.is_writable() {
            return Err(StoreError::ReadOnly(id));
        }
        let no_writers = volume.tree_state.writers.write();
        let catalog = self.trees.catalog();
        volume.is_there()?;
        let mut header = volume.tree_state.header.lock();
        if header.stored.head.is_being_restored() {
            return Err(BEING_RESTORED);
        }
        let mut new = header.stored.clone();
        new.become_head(if held { HeadState::Held } else { HeadState::Serving }, "hold");
        volume.tree_state.change(&mut header, new, Batch::default())?;
        volume.tree_state.follow_header(&header.stored);
        drop((header, catalog, no_writers));
        self.trees.media.sync()
    }

    /// Changes fields of the volume; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `ReadOnly` for the quota of a volume that has none; `Medium`.
    pub fn set_fields(&self, id: VolumeId, fields: VolumeFields, now: Timestamp) -> Result<()> {
        let catalog = self.trees.catalog();
        let volume = self.existing(id)?;
        if fields.quota.is_some() && !volume.is_writable() {
            return Err(StoreError::ReadOnly(id));
        }
        self.change_header(&volume, Batch::default(), &|header| header.set(fields, now))?;
        drop(catalog);
        self.trees.media.sync()
    }

    /// Applies `batch` with the volume's header changed.
    fn change_header(
        &self,
        volume: &Volume,
        mut batch: Batch,
        change: &dyn Fn(&mut dyn Fields),
    ) -> Result<()> {
        let Some(view) = volume.view_header() else {
            let mut header = volume.tree_state.header.lock();
            let mut new = header.stored.clone();
            change(&mut new);
            return volume.tree_state.change(&mut header, new, batch);
        };
        let mut view = view.lock();
        let mut new = view.clone();
        change(&mut new);
        put_view(volume.id(), &new, &mut batch);
        self.trees.media.apply(&batch)?;
        *view = new;
        Ok(())
    }
}

/// The fields that both kinds of header have and administrators change.
trait Fields {
    fn rename(&mut self, name: &Name, now: Timestamp);
    fn set(&mut self, fields: VolumeFields, now: Timestamp);
}

impl Fields for TreeHeader {
    fn rename(&mut self, name: &Name, now: Timestamp) {
        self.name = name.clone();
        self.updated = now;
    }
    fn set(&mut self, fields: VolumeFields, now: Timestamp) {
        self.quota = fields.quota.unwrap_or(self.quota);
        self.offline = fields.offline.unwrap_or(self.offline);
        self.arriving = fields.arriving.unwrap_or(self.arriving);
        self.updated = now;
    }
}

impl Fields for ViewHeader {
    fn rename(&mut self, name: &Name, now: Timestamp) {
        self.name = name.clone();
        self.updated = now;
    }
    fn set(&mut self, fields: VolumeFields, now: Timestamp) {
        self.offline = fields.offline.unwrap_or(self.offline);
        self.updated = now;
    }
}
