//! A volume: vnodes, entries, attributes, quota and usage; bodies are in `body.rs` and `reader.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use types::{Fid, Name, Timestamp, Uniquifier, VnodeNo, VnodeSlots, VolumeId, VolumeKind};

use crate::engine::Batch;
use crate::header::ViewHeader;
use crate::tree::{EpochView, entry};
use crate::tree_state::TreeState;
use crate::{
    EntryTarget, IncomingState, StoreError, StoredEntry, Update, Vnode, VolumeFacts, bucket, key,
    record,
};

/// Limits of a volume; 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeQuota {
    /// In bytes.
    pub bytes: u64,
    /// In files.
    pub files: u64,
}

/// The usage of a volume: the sum over its vnodes (ST-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `used` of every vnode.
    pub bytes: u64,
    /// Vnodes, the root directory included.
    pub files: u64,
}

/// The attributes of the root directory of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewRoot {
    /// Mode bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The time of all its timestamps.
    pub now: Timestamp,
    /// The volume's quota.
    pub quota: VolumeQuota,
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// One volume of an open partition. Thread-safe. Writers of one vnode are serialised by the caller.
pub struct Volume {
    id: VolumeId,
    pub(crate) tree_state: Arc<TreeState>,
    shows: Shows,
    /// The volume was removed; only callers that had it before have it still.
    gone: AtomicBool,
    /// The volume was used since the partition last checked.
    pub(crate) recently_used: AtomicBool,
}

/// The state of its tree that a volume shows.
enum Shows {
    Head,
    /// The head that receives a stream (`stream/`): no client sees it.
    Incoming,
    Sealed {
        tree: Arc<EpochView>,
        header: Mutex<ViewHeader>,
    },
}

impl Volume {
    /// Whether file contents are encrypted on the disk; then kernels get no body loan.
    pub fn is_encrypted(&self) -> bool {
        // An encrypted volume without its key counts too.
        !matches!(self.tree_state.media.ciphers.of(self.tree_state.id), Ok(None))
    }

    /// The volume that writes the tree.
    pub(crate) fn head(tree_state: Arc<TreeState>) -> Volume {
        Volume::new(tree_state.id, tree_state, Shows::Head)
    }

    /// The writer of the head of a tree that comes in, with or without a read-write volume below
    /// it.
    pub(crate) fn incoming(tree_state: Arc<TreeState>) -> Volume {
        Volume::new(tree_state.id, tree_state, Shows::Incoming)
    }

    /// A volume that shows a sealed epoch of the tree.
    pub(crate) fn view(id: VolumeId, tree_state: Arc<TreeState>, header: ViewHeader) -> Volume {
        let tree = EpochView { shown: id, ..tree_state.head().at(header.epoch) };
        Volume::new(
            id,
            tree_state,
            Shows::Sealed { tree: Arc::new(tree), header: Mutex::new(header) },
        )
    }

    fn new(id: VolumeId, tree_state: Arc<TreeState>, shows: Shows) -> Volume {
        Volume {
            id,
            tree_state,
            shows,
            gone: AtomicBool::new(false),
            recently_used: AtomicBool::new(false),
        }
    }

    /// The view of its records at this moment.
    pub(crate) fn tree(&self) -> Arc<EpochView> {
        match &self.shows {
            Shows::Head => self.tree_state.shown(),
            Shows::Incoming => self.tree_state.head(),
            Shows::Sealed { tree, .. } => Arc::clone(tree),
        }
    }

    /// The header of a volume that shows a sealed epoch.
    pub(crate) fn view_header(&self) -> Option<&Mutex<ViewHeader>> {
        match &self.shows {
            Shows::Head | Shows::Incoming => None,
            Shows::Sealed { header, .. } => Some(header),
        }
    }

    /// Whether the volume was removed or replaced since the caller got it. It goes on showing the
    /// same state.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Whether the volume may be changed at all.
    ///
    /// # Errors
    /// `ReadOnly`; `Busy` while it is held or frozen; `NoVolume` if it was removed; `Medium` after
    /// a failed sync.
    pub(crate) fn writable(&self) -> Result<()> {
        if !self.is_writable() {
            return Err(StoreError::ReadOnly(self.id));
        }
        if self.tree_state.is_held() {
            return Err(StoreError::Busy("the volume is being moved"));
        }
        if self.is_frozen() {
            return Err(StoreError::Busy("a dump is restored over the volume"));
        }
        self.is_there()
    }

    /// Whether the volume still exists.
    ///
    /// # Errors
    /// `NoVolume` if it was removed; `Medium` after a failed sync.
    pub(crate) fn is_there(&self) -> Result<()> {
        if self.is_gone() {
            return Err(StoreError::NoVolume(self.id));
        }
        self.tree_state.media.usable()
    }

    /// The number of the volume.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The number of its tree: that of the read-write volume of its group.
    pub fn tree_id(&self) -> VolumeId {
        self.tree_state.id
    }

    /// The kind of the volume: what state of its tree it shows.
    pub fn kind(&self) -> VolumeKind {
        self.view_header().map_or(VolumeKind::ReadWrite, |header| header.lock().kind)
    }

    /// Whether the volume shows the head, so that it may be changed.
    pub fn is_writable(&self) -> bool {
        matches!(self.shows, Shows::Head | Shows::Incoming)
    }

    /// Whether this is the head of a tree that comes in, which clients do not see.
    pub(crate) fn is_incoming(&self) -> bool {
        matches!(self.shows, Shows::Incoming)
    }

    /// Whether the volume is read-write and takes no changes for now, because a stream comes in
    /// over it: it shows its former state.
    pub fn is_frozen(&self) -> bool {
        matches!(self.shows, Shows::Head) && self.tree_state.is_frozen()
    }

    /// The epoch that the volume shows; for the head, the one that takes writes.
    pub fn epoch(&self) -> u64 {
        self.tree().epoch
    }

    /// The name of the volume.
    pub fn name(&self) -> Name {
        match self.view_header() {
            Some(header) => header.lock().name.clone(),
            None => self.tree_state.header.lock().stored.name.clone(),
        }
    }

    /// Whether an administrator took the volume offline.
    pub fn is_offline(&self) -> bool {
        match self.view_header() {
            Some(header) => header.lock().offline,
            None => self.tree_state.header.lock().stored.offline,
        }
    }

    /// Whether the volume takes no changes because it is being moved away.
    pub fn is_held(&self) -> bool {
        self.is_writable() && self.tree_state.is_held()
    }

    /// Whether the volume came from elsewhere and does not serve clients yet.
    pub fn is_arriving(&self) -> bool {
        self.is_writable() && self.tree_state.header.lock().stored.arriving
    }

    /// The state of its tree on this partition.
    pub fn standing(&self) -> IncomingState {
        IncomingState::of(&self.tree_state.header.lock().stored)
    }

    /// The usage now, without I/O; for a sealed epoch, the usage when it was sealed.
    pub fn usage(&self) -> Usage {
        self.view_header().map_or_else(|| self.tree_state.used(), |header| header.lock().usage)
    }

    /// The limits, without I/O. A volume that cannot be changed has none.
    pub fn quota(&self) -> VolumeQuota {
        if self.is_writable() {
            self.tree_state.header.lock().stored.quota
        } else {
            VolumeQuota::default()
        }
    }

    /// All facts about the volume; without I/O where nothing is encrypted.
    pub fn info(&self) -> VolumeFacts {
        // A reader of the encrypted data reports the failure.
        let encrypted =
            self.tree_state.media.ciphers.wrapped_by(self.tree_state.id).unwrap_or_default();
        let info = match self.view_header() {
            Some(header) => VolumeFacts::of_view(self.id, header.lock().clone()),
            None => VolumeFacts::of_head(
                self.id,
                self.tree_state.header.lock().stored.clone(),
                self.tree_state.used(),
            ),
        };
        VolumeFacts { encrypted, ..info }
    }

    /// A vnode, as of its last commit.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; the same for every reading method.
    pub fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        self.tree().vnode(no)
    }

    /// Vnodes in ascending order of their numbers, each as by [`Volume::vnode`], at less cost
    /// together.
    ///
    /// # Errors
    /// `Medium`.
    pub fn vnodes(&self, nos: &[VnodeNo]) -> Result<Vec<Result<Option<Vnode>>>> {
        self.tree().vnodes(nos)
    }

    /// One directory entry.
    ///
    /// # Errors
    /// As every reading method.
    pub fn lookup(&self, dir: VnodeNo, name: &[u8]) -> Result<Option<StoredEntry>> {
        let hash = self.tree().hash(name);
        let bucket = self.tree().bucket(dir, hash)?;
        Ok(bucket
            .into_iter()
            .find(|found| found.name.as_bytes() == name)
            .map(|found| entry(hash, found)))
    }

    /// As `lookup`, before a change of this entry: the update stores the bucket, so no other update
    /// may change the directory until the commit; otherwise call this again.
    ///
    /// # Errors
    /// As every reading method.
    pub fn look(
        &self,
        dir: VnodeNo,
        name: &[u8],
        update: &mut Update,
    ) -> Result<Option<StoredEntry>> {
        let hash = self.tree().hash(name);
        let bucket = self.tree().bucket(dir, hash)?;
        let found = bucket
            .iter()
            .find(|found| found.name.as_bytes() == name)
            .map(|found| entry(hash, found.clone()));
        update.set_read_bucket(dir, hash, bucket);
        Ok(found)
    }

    /// Up to `entries_max` entries behind `cookie` (0: from the first), in cookie order, and
    /// whether the last one was among them. An entry that stays is returned once, whatever entries
    /// come and go around it.
    ///
    /// # Errors
    /// As every reading method.
    pub fn read_dir(
        &self,
        dir: VnodeNo,
        cookie: u64,
        entries_max: usize,
    ) -> Result<(Vec<StoredEntry>, bool)> {
        let mut entries = Vec::new();
        let mut end = true;
        self.tree().each_entry(dir, cookie, &mut |entry| {
            if entries.len() == entries_max {
                end = false;
                return ControlFlow::Break(());
            }
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        Ok((entries, end))
    }

    /// A vnode number that was never used and will not be used again, even if the machine loses
    /// power now.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate(&self, directory: bool) -> Result<(VnodeNo, Uniquifier)> {
        let fid = self.fid_of_slot(self.allocate_slot()?, directory);
        Ok((fid.vnode, fid.unique))
    }

    /// A slot for a new vnode, never used before and never allocated again, even after a crash.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate_slot(&self) -> Result<u64> {
        self.writable()?;
        self.tree_state.allocate_slot()
    }

    /// A run of slots that share a key, for a session that makes files itself; with the same
    /// promise.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate_run(&self) -> Result<VnodeSlots> {
        self.writable()?;
        self.tree_state.allocate_run(self.id())
    }

    /// The fid of the file in a slot.
    pub fn fid_of_slot(&self, slot: u64, directory: bool) -> Fid {
        Fid::of_slot(self.id(), slot, directory, self.tree_state.key_of_slot(self.id(), slot))
    }

    /// Whether this process or an earlier one may have allocated the slot, and no vnode uses it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn is_given_slot(&self, slot: u64) -> Result<bool> {
        let (given, taken) = self.tree_state.slot(slot);
        if !taken {
            return Ok(given);
        }
        Ok(given
            && self.vnode(VnodeNo(2 * slot))?.is_none()
            && self.vnode(VnodeNo(2 * slot + 1))?.is_none())
    }

    /// Makes or replaces an entry (a replaced one keeps its cookie) and counts it in `dir.entries`.
    ///
    /// # Errors
    /// `BucketFull`, which changes nothing.
    pub fn put_entry(
        &self,
        dir: &mut Vnode,
        name: &Name,
        target: EntryTarget,
        update: &mut Update,
    ) -> Result<()> {
        let hash = self.tree().hash(name.as_bytes());
        let mut bucket = self.bucket(dir.no(), hash, update)?;
        if bucket::put(&mut bucket, name, target)? {
            dir.entries += 1;
        }
        update.set_bucket(dir.no(), hash, bucket);
        Ok(())
    }

    /// Removes an entry and returns it; `None` if there is none.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_entry(
        &self,
        dir: &mut Vnode,
        name: &[u8],
        update: &mut Update,
    ) -> Result<Option<StoredEntry>> {
        let hash = self.tree().hash(name);
        let mut bucket = self.bucket(dir.no(), hash, update)?;
        let Some(at) = bucket.iter().position(|found| found.name.as_bytes() == name) else {
            return Ok(None);
        };
        let removed = bucket.remove(at);
        dir.entries = dir.entries.saturating_sub(1);
        update.set_bucket(dir.no(), hash, bucket);
        Ok(Some(entry(hash, removed)))
    }

    fn bucket(&self, dir: VnodeNo, hash: u64, update: &Update) -> Result<Vec<record::BucketEntry>> {
        match update.bucket(dir, hash) {
            Some(bucket) => Ok(bucket.clone()),
            None => self.tree().bucket(dir, hash),
        }
    }

    /// An attribute's value.
    ///
    /// # Errors
    /// As every reading method.
    pub fn xattr(&self, vnode: &Vnode, name: &[u8]) -> Result<Option<Bytes>> {
        if vnode.has_xattr { self.tree().xattr(vnode.no(), name) } else { Ok(None) }
    }

    /// Names of attributes and the lengths of their values, in name order.
    ///
    /// # Errors
    /// As every reading method.
    pub fn xattrs(&self, vnode: &Vnode) -> Result<Vec<(Bytes, usize)>> {
        if vnode.has_xattr { self.tree().xattrs(vnode.no()) } else { Ok(Vec::new()) }
    }

    /// Makes or replaces an attribute. Names have no NUL; the caller checks the limits of lengths.
    ///
    /// # Errors
    /// `Misuse` for a NUL in the name.
    pub fn put_xattr(
        &self,
        vnode: &mut Vnode,
        name: &[u8],
        value: &[u8],
        update: &mut Update,
    ) -> Result<()> {
        if name.contains(&0) {
            return Err(StoreError::Misuse("NUL in an attribute's name"));
        }
        update.set_xattr(vnode.no(), name, Some(value.to_vec()));
        vnode.has_xattr = true;
        Ok(())
    }

    /// Removes an attribute; returns whether it existed.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_xattr(
        &self,
        vnode: &mut Vnode,
        name: &[u8],
        update: &mut Update,
    ) -> Result<bool> {
        let mut left: Vec<Vec<u8>> =
            self.xattrs(vnode)?.into_iter().map(|(name, _)| name.to_vec()).collect();
        for (changed, value) in update.xattrs(vnode.no()) {
            left.retain(|name| name != changed);
            if value.is_some() {
                left.push(changed.clone());
            }
        }
        let count = left.len();
        left.retain(|left| left != name);
        if left.len() == count {
            return Ok(false);
        }
        update.set_xattr(vnode.no(), name, None);
        vnode.has_xattr = !left.is_empty();
        Ok(true)
    }

    /// Removes a vnode with body and attributes; counts one file less. `vnode` must be current. The
    /// caller removes the mark of an orphan with [`Update::remove_orphan`].
    ///
    /// # Errors
    /// As every reading method.
    pub fn drop_vnode(&self, vnode: &Vnode, update: &mut Update) -> Result<()> {
        self.drop_body(vnode, update);
        for (name, _) in self.xattrs(vnode)? {
            update.set_xattr(vnode.no(), &name, None);
        }
        update.drop_vnode(vnode);
        Ok(())
    }

    /// Applies `update` as one batch: visible now, safe from the death of the process (see
    /// [`crate::Partition::gather`] for when), stable after the next sync.
    ///
    /// # Errors
    /// `NoSpace` if the update adds files or bytes and the partition is nearly full; `Medium` after
    /// a failed sync; `ReadOnly`; `NoVolume` if the volume was removed; `Misuse` if a body was
    /// changed without a put of its vnode. After an error nothing has changed.
    pub fn commit(&self, mut update: Update) -> Result<()> {
        let media = &self.tree_state.media;
        update.enter(&self.tree_state);
        self.writable()?;
        if !update.is_whole() {
            return Err(StoreError::Misuse("a body was changed without its vnode"));
        }
        if update.grows() {
            media.room_for_records()?;
        }
        let mut batch = Batch::default();
        let tree = self.tree();
        update.fill(&tree, &mut batch)?;
        let delta = [update.bytes_delta, update.files_delta];
        // The usage of a stream over a volume counts only when it takes the volume's place.
        let counts = matches!(self.shows, Shows::Head) || !self.tree_state.is_frozen();
        let delta = if counts { delta } else { [0, 0] };
        if delta != [0, 0] {
            batch.add(&key::usage(self.id), &delta);
        }
        self.tree_state.use_slot(update.highest_slot());
        let changes =
            matches!(self.shows, Shows::Head) && self.tree_state.is_based() && update.changes();
        if update.quota.is_some() || changes {
            self.tree_state.change_fields(update.quota, changes, batch)?;
        } else if !batch.is_empty() {
            media.apply(&batch)?;
        }
        if delta != [0, 0] {
            let mut usage = self.tree_state.usage.lock();
            usage[0] += delta[0];
            usage[1] += delta[1];
        }
        if update.has_garbage() || tree.has_gap() {
            media.garbage.store(true, Ordering::SeqCst);
        }
        update.committed();
        Ok(())
    }
}
