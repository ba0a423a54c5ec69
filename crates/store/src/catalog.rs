//! The catalog: the volumes of a partition, found by number or name, listed, created, renamed,
//! removed. The start of a partition reads none of it (VO-4).
//!
//! Each change is one batch, so a volume exists whole or not at all, and names and numbers stay
//! unique (VO-2): a thread that changes the catalog holds its lock from the check to the batch.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::MutexGuard;
use rand::Rng;
use types::{Fid, Kind, Name, Timestamp, VnodeNo, VolumeId};

use crate::engine::{Batch, Engine, prefix_end};
use crate::header::{FIRST_EPOCH, TreeHeader, ViewHeader};
use crate::key::{self, kind};
use crate::loaded_volumes::Residents;
use crate::partition::which;
use crate::tree_state::{TreeState, put_header};
use crate::volume::Result;
use crate::volume_facts::{VolumeFacts, VolumeFields};
use crate::{NewRoot, Partition, StoreError, Update, Usage, Vnode, Volume, record};

/// Why a volume cannot be sealed or moved.
pub(crate) const FROZEN: StoreError = StoreError::Busy("a dump is restored over the volume");

impl Partition {
    /// The volume with this number; `None`: there is none.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; the same for every reading method.
    pub fn volume(&self, id: VolumeId) -> Result<Option<Arc<Volume>>> {
        let mut residents = self.0.residents.lock();
        if let Some(volume) = residents.volume(id) {
            return Ok(Some(volume));
        }
        let volume = self.load(id, &mut residents)?;
        if let Some(volume) = &volume {
            residents.add(volume);
        }
        Ok(volume)
    }

    /// The volume with this name.
    ///
    /// # Errors
    /// As [`Partition::volume`].
    pub fn volume_named(&self, name: &[u8]) -> Result<Option<Arc<Volume>>> {
        match self.number(&key::name(name))? {
            Some(id) => self.volume(VolumeId(id)),
            None => Ok(None),
        }
    }

    /// Up to `max` volumes with numbers above `after`, in their order. Volumes with a damaged
    /// header are left out and logged.
    ///
    /// # Errors
    /// `Medium`.
    pub fn list(&self, after: VolumeId, max: usize) -> Result<Vec<VolumeFacts>> {
        let Some(from) = after.0.checked_add(1) else { return Ok(Vec::new()) };
        let mut found = BTreeMap::new();
        self.each_head(from, max, &mut |id, header| {
            drop(found.insert(id, VolumeFacts::of_head(id, header, Usage::default())));
        })?;
        self.each_view(from, max, &mut |id, header| {
            drop(found.insert(id, VolumeFacts::of_view(id, header)));
        })?;
        let mut found: Vec<VolumeFacts> = found.into_values().take(max).collect();
        self.fill_usage(&mut found)?;
        for volume in &mut found {
            volume.encrypted = self.0.media.ciphers.wrapped_by(volume.tree)?;
        }
        Ok(found)
    }

    /// All orphans with their volumes, without those of volumes that are unchanged copies: the
    /// source's clients had them open, and a removal would change the copy.
    ///
    /// # Errors
    /// `Medium`.
    pub fn orphans(&self) -> Result<Vec<(VolumeId, VnodeNo)>> {
        let mut orphans = Vec::new();
        let prefix = [kind::ORPHAN];
        self.0.media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
            if let (Some(volume), Some(vnode)) = (key::number_at(key, 0), key::number_at(key, 1)) {
                orphans.push((VolumeId(volume), VnodeNo(vnode)));
            }
            ControlFlow::Continue(())
        })?;
        let mut trees: Vec<VolumeId> = orphans.iter().map(|(tree, _)| *tree).collect();
        trees.dedup();
        for tree in trees {
            // The user of a damaged record reports it.
            if matches!(self.base_epoch(tree), Ok(Some(_))) {
                orphans.retain(|(of, _)| *of != tree);
            }
        }
        Ok(orphans)
    }

    /// Creates a volume with an empty root directory and the next number that this partition did
    /// not use; stable when it returns.
    ///
    /// # Errors
    /// `Taken` if the volume exists; `NoSpace`, `Medium`.
    pub fn create_volume(&self, name: &Name, root: &NewRoot) -> Result<Arc<Volume>> {
        self.create_numbered_volume(None, name, root)
    }

    /// As [`Partition::create_volume`], with a number from the cell database.
    ///
    /// # Errors
    /// As [`Partition::create_volume`].
    pub fn create_numbered_volume(
        &self,
        id: Option<VolumeId>,
        name: &Name,
        root: &NewRoot,
    ) -> Result<Arc<Volume>> {
        self.create_volume_as(id, name, root, self.0.encrypts)
    }

    /// Whether new volumes are encrypted by default.
    pub fn encrypts(&self) -> bool {
        self.0.encrypts
    }

    /// As [`Partition::create_numbered_volume`]; with `encrypt` the volume gets a key of its own
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
        let media = &self.0.media;
        let cipher = if encrypt { Some(media.ciphers.make()?) } else { None };
        media.room_for_records()?;
        let catalog = self.0.catalog.lock();
        let mut batch = Batch::default();
        let id = self.take_number(&catalog, id, &mut batch)?;
        self.take_name(&catalog, name, id, &mut batch)?;
        let header = TreeHeader {
            name: name.clone(),
            hash_key: self.0.rng.lock().random(),
            created: root.now,
            updated: root.now,
            quota: root.quota,
            offline: false,
            headless: false,
            incoming: false,
            arriving: false,
            held: false,
            next_slot: 1,
            epoch: FIRST_EPOCH,
            sealed: Vec::new(),
            frozen: false,
            base: None,
            origin: None,
        };
        put_header(id, &header, &mut batch);
        if let Some(wrapped) = cipher {
            media.ciphers.put(id, &wrapped, &mut batch)?;
        }
        let mut update = Update::new();
        let vnode = Vnode::new(
            Fid::root(id),
            Kind::Directory,
            root.mode,
            root.uid,
            root.gid,
            VnodeNo::ROOT,
            root.now,
        );
        update.create_vnode(&vnode);
        let usage = [update.bytes_delta, update.files_delta];
        batch.add(&key::usage(id), &usage);
        let tree_state = TreeState::new(media.clone(), id, header, usage, None);
        update.fill(&tree_state.head(), &mut batch)?;
        media.apply(&batch)?;
        let volume = Arc::new(Volume::head(tree_state));
        self.0.residents.lock().add(&volume);
        drop(catalog);
        media.sync()?;
        Ok(volume)
    }

    /// Renames the volume; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `Taken` if another volume has the name; `Medium`.
    pub fn rename_volume(&self, id: VolumeId, name: &Name, now: Timestamp) -> Result<()> {
        let catalog = self.0.catalog.lock();
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        let old = volume.name();
        if old == *name {
            return Ok(());
        }
        let mut batch = Batch::default();
        self.take_name(&catalog, name, id, &mut batch)?;
        batch.delete(&key::name(old.as_bytes()));
        self.change_header(&volume, batch, &|header| header.rename(name, now))?;
        drop(catalog);
        self.0.media.sync()
    }

    /// The read-write volume stops taking changes, or takes them again; stable when it returns.
    /// Changes that were committed by then are in the next sealed epoch.
    ///
    /// # Errors
    /// `NoVolume`, `ReadOnly`, `Medium`.
    pub fn hold_volume(&self, id: VolumeId, held: bool) -> Result<()> {
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        if !volume.is_writable() {
            return Err(StoreError::ReadOnly(id));
        }
        let no_writers = volume.tree_state.writers.write();
        let catalog = self.0.catalog.lock();
        volume.is_there()?;
        let mut header = volume.tree_state.header.lock();
        if header.stored.frozen {
            return Err(FROZEN);
        }
        let new = TreeHeader { held, ..header.stored.clone() };
        volume.tree_state.change(&mut header, new, Batch::default())?;
        volume.tree_state.follow_header(&header.stored);
        drop((header, catalog, no_writers));
        self.0.media.sync()
    }

    /// Changes fields of the volume; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `ReadOnly` for the quota of a volume that has none; `Medium`.
    pub fn set_fields(&self, id: VolumeId, fields: VolumeFields, now: Timestamp) -> Result<()> {
        let catalog = self.0.catalog.lock();
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        if fields.quota.is_some() && !volume.is_writable() {
            return Err(StoreError::ReadOnly(id));
        }
        self.change_header(&volume, Batch::default(), &|header| header.set(fields, now))?;
        drop(catalog);
        self.0.media.sync()
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
        self.0.media.apply(&batch)?;
        *view = new;
        Ok(())
    }

    /// The number of a new volume: the wanted one, or the next. The caller holds the catalog lock.
    pub(crate) fn take_number(
        &self,
        _catalog: &MutexGuard<'_, ()>,
        wanted: Option<VolumeId>,
        batch: &mut Batch,
    ) -> Result<VolumeId> {
        let key = key::partition(which::NEXT_VOLUME);
        let next = self.number(&key)?.unwrap_or(1);
        let id = wanted.unwrap_or(VolumeId(next));
        if id.0 == 0 || id.0 == u64::MAX {
            return Err(StoreError::Misuse("no volume has this number"));
        }
        let engine = &self.0.media.engine;
        for key in [key::volume(id), key::view(id)] {
            if engine.get(&key)?.is_some() {
                return Err(StoreError::Taken("number"));
            }
        }
        if engine.get(&key::removal(id))?.is_some() {
            return Err(StoreError::Busy(
                "the sweep of the volume removed under this number is not complete",
            ));
        }
        if id.0 >= next {
            batch.put(&key, &record::encode_numbers(&key, &[id.0 + 1]));
        }
        Ok(id)
    }

    /// Assigns the name to the volume. The caller holds the catalog lock.
    pub(crate) fn take_name(
        &self,
        _catalog: &MutexGuard<'_, ()>,
        name: &Name,
        id: VolumeId,
        batch: &mut Batch,
    ) -> Result<()> {
        let key = key::name(name.as_bytes());
        if self.0.media.engine.get(&key)?.is_some() {
            return Err(StoreError::Taken("name"));
        }
        batch.put(&key, &record::encode_numbers(&key, &[id.0]));
        Ok(())
    }

    /// Loads a volume that is not in memory.
    fn load(&self, id: VolumeId, residents: &mut Residents) -> Result<Option<Arc<Volume>>> {
        let key = key::view(id);
        if let Some(value) = self.0.media.engine.get(&key)? {
            let header = ViewHeader::decode(&key, &value)?;
            let tree_state = self.tree_state(header.tree, residents)?;
            let tree_state = tree_state
                .ok_or_else(|| StoreError::Damaged(format!("tree of volume {}", id.0)))?;
            return Ok(Some(Arc::new(Volume::view(id, tree_state, header))));
        }
        let tree_state = self
            .tree_state(id, residents)?
            .filter(|tree_state| !tree_state.header.lock().stored.headless);
        Ok(tree_state.map(|tree_state| Arc::new(Volume::head(tree_state))))
    }

    /// The writer of the head of a tree, which a volume shows or a stream fills.
    pub(crate) fn writer(&self, tree: VolumeId) -> Result<Option<Arc<Volume>>> {
        let Some(tree_state) = self.tree_of(tree)? else { return Ok(None) };
        // A head that is being taken back has no other writer either.
        let comes_in = tree_state.header.lock().stored.incoming || tree_state.is_frozen();
        if comes_in { Ok(Some(Arc::new(Volume::incoming(tree_state)))) } else { self.volume(tree) }
    }

    /// The tree with this number, whatever volume shows it.
    pub(crate) fn tree_of(&self, id: VolumeId) -> Result<Option<Arc<TreeState>>> {
        self.tree_state(id, &mut self.0.residents.lock())
    }

    /// The tree with this number, from memory or disk.
    fn tree_state(
        &self,
        id: VolumeId,
        residents: &mut Residents,
    ) -> Result<Option<Arc<TreeState>>> {
        if let Some(tree_state) = residents.tree_state(id) {
            return Ok(Some(tree_state));
        }
        let engine = &self.0.media.engine;
        let key = key::volume(id);
        let Some(value) = engine.get(&key)? else { return Ok(None) };
        let header = TreeHeader::decode(&key, &value)?;
        let key = key::usage(id);
        let usage = engine.get(&key)?.ok_or_else(|| record::damaged("usage", &key))?;
        let usage = record::decode_usage(&key, &usage)?;
        let origin = self.origin_of(&header)?;
        let tree_state = TreeState::new(self.0.media.clone(), id, header, usage, origin);
        residents.add_tree(&tree_state);
        Ok(Some(tree_state))
    }

    /// Up to `max` read-write volumes from number `from` on.
    pub(crate) fn each_head(
        &self,
        from: u64,
        max: usize,
        visit: &mut dyn FnMut(VolumeId, TreeHeader),
    ) -> Result<()> {
        self.each_tree(from, max, &mut |id, header| {
            let shown = !header.headless;
            if shown {
                visit(id, header);
            }
            shown
        })
    }

    /// Trees from number `from` on, until `visit` has returned `true` `max` times.
    pub(crate) fn each_tree(
        &self,
        from: u64,
        max: usize,
        visit: &mut dyn FnMut(VolumeId, TreeHeader) -> bool,
    ) -> Result<()> {
        let mut left = max;
        self.each_header(kind::VOLUME, from, &mut |id, key, value| {
            let header = TreeHeader::decode(key, value)?;
            left -= usize::from(left > 0 && visit(id, header));
            Ok(left > 0)
        })
    }

    /// Up to `max` volumes of sealed epochs, from number `from` on.
    pub(crate) fn each_view(
        &self,
        from: u64,
        max: usize,
        visit: &mut dyn FnMut(VolumeId, ViewHeader),
    ) -> Result<()> {
        let mut left = max;
        self.each_header(kind::VIEW, from, &mut |id, key, value| {
            visit(id, ViewHeader::decode(key, value)?);
            left = left.saturating_sub(1);
            Ok(left > 0)
        })
    }

    /// Visits headers from number `from` on, until `visit` stops it. Damaged headers are skipped.
    pub(crate) fn each_header(
        &self,
        kind: u8,
        from: u64,
        visit: &mut VisitHeader<'_>,
    ) -> Result<()> {
        let from = key::of_volume(kind, VolumeId(from));
        self.0.media.engine.scan(&from, &[kind + 1], &mut |key, value| {
            let Some(id) = key::number_at(key, 0) else { return ControlFlow::Continue(()) };
            match visit(VolumeId(id), key, value) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    tracing::error!(%error, "a damaged header: the list omits its volume");
                    ControlFlow::Continue(())
                }
            }
        })
    }

    /// Adds the usage of the read-write volumes, which are in the order of their numbers.
    fn fill_usage(&self, volumes: &mut [VolumeFacts]) -> Result<()> {
        let (Some(first), Some(last)) = (volumes.first(), volumes.last()) else { return Ok(()) };
        let (from, end) = (key::usage(first.id), prefix_end(&key::usage(last.id)));
        let mut rest = volumes.iter_mut().filter(|volume| volume.id == volume.tree).peekable();
        self.0.media.engine.scan(&from, &end, &mut |key, value| {
            let id = key::number_at(key, 0).map(VolumeId);
            while rest.next_if(|volume| Some(volume.id) < id).is_some() {}
            if let Some(volume) = rest.next_if(|volume| Some(volume.id) == id)
                && let Ok([bytes, files]) = record::decode_usage(key, value)
            {
                volume.usage = Usage { bytes: bytes.max(0) as u64, files: files.max(0) as u64 };
            }
            if rest.peek().is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

/// Receives a volume's number and the key and value of its header; returns whether to continue.
pub(crate) type VisitHeader<'a> = dyn FnMut(VolumeId, &[u8], &[u8]) -> Result<bool> + 'a;

pub(crate) fn put_view(id: VolumeId, header: &ViewHeader, batch: &mut Batch) {
    let key = key::view(id);
    batch.put(&key, &header.encode(&key));
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
