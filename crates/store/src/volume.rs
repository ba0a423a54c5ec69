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

/// Limits of a volume; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeQuota {
    /// In bytes.
    pub bytes: u64,
    /// In files.
    pub files: u64,
}

/// What a volume uses: the sum over its vnodes (ST-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `used` of every vnode.
    pub bytes: u64,
    /// Vnodes, the root directory included.
    pub files: u64,
}

/// The root directory of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewRoot {
    /// Mode bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All its times.
    pub now: Timestamp,
    /// The volume's quota.
    pub quota: VolumeQuota,
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// One volume of an open partition. Thread-safe. Writers of one vnode are serialised by the caller.
pub struct Volume {
    id: VolumeId,
    pub(crate) trunk: Arc<TreeState>,
    shows: Shows,
    /// It was removed; only who had it before has it still.
    gone: AtomicBool,
    /// Asked for since the partition last looked.
    pub(crate) asked_for: AtomicBool,
}

/// What of its tree a volume shows.
enum Shows {
    Head,
    /// What is put together where the head is (`stream/`): nobody sees it.
    Incoming,
    Sealed {
        tree: Arc<EpochView>,
        header: Mutex<ViewHeader>,
    },
}

impl Volume {
    /// Whether what its files hold is encrypted on the disk; then kernels are given none of it.
    pub fn is_encrypted(&self) -> bool {
        // Without its key it is, too.
        !matches!(self.trunk.media.ciphers.of(self.trunk.id), Ok(None))
    }

    /// The volume that writes the tree.
    pub(crate) fn head(trunk: Arc<TreeState>) -> Volume {
        Volume::new(trunk.id, trunk, Shows::Head)
    }

    /// What writes the head of a tree that comes in, whether a read-write volume waits for it or
    /// not.
    pub(crate) fn incoming(trunk: Arc<TreeState>) -> Volume {
        Volume::new(trunk.id, trunk, Shows::Incoming)
    }

    /// A volume that shows a sealed epoch of the tree.
    pub(crate) fn view(id: VolumeId, trunk: Arc<TreeState>, header: ViewHeader) -> Volume {
        let tree = EpochView { shown: id, ..trunk.head().at(header.epoch) };
        Volume::new(id, trunk, Shows::Sealed { tree: Arc::new(tree), header: Mutex::new(header) })
    }

    fn new(id: VolumeId, trunk: Arc<TreeState>, shows: Shows) -> Volume {
        Volume { id, trunk, shows, gone: AtomicBool::new(false), asked_for: AtomicBool::new(false) }
    }

    /// Its records, as it shows them now.
    pub(crate) fn tree(&self) -> Arc<EpochView> {
        match &self.shows {
            Shows::Head => self.trunk.shown(),
            Shows::Incoming => self.trunk.head(),
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

    /// Whether it was removed, or replaced, since it was asked for. It goes on showing what it
    /// showed.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Whether it may be changed at all.
    ///
    /// # Errors
    /// `ReadOnly`; `Busy` while it is held or frozen; `NoVolume` if it was removed; `Medium` after
    /// a failed sync.
    pub(crate) fn writable(&self) -> Result<()> {
        if !self.is_writable() {
            return Err(StoreError::ReadOnly(self.id));
        }
        if self.trunk.is_held() {
            return Err(StoreError::Busy("the volume is being moved"));
        }
        if self.is_frozen() {
            return Err(StoreError::Busy("a dump is restored over the volume"));
        }
        self.is_there()
    }

    /// Whether it is a volume still.
    ///
    /// # Errors
    /// `NoVolume` if it was removed; `Medium` after a failed sync.
    pub(crate) fn is_there(&self) -> Result<()> {
        if self.is_gone() {
            return Err(StoreError::NoVolume(self.id));
        }
        self.trunk.media.usable()
    }

    /// Its number.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The number of its tree: that of the read-write volume of its group.
    pub fn tree_id(&self) -> VolumeId {
        self.trunk.id
    }

    /// What of its tree it shows.
    pub fn kind(&self) -> VolumeKind {
        self.view_header().map_or(VolumeKind::ReadWrite, |header| header.lock().kind)
    }

    /// Whether it shows the head, and so may be changed.
    pub fn is_writable(&self) -> bool {
        matches!(self.shows, Shows::Head | Shows::Incoming)
    }

    /// Whether it is what comes in, which nobody is shown.
    pub(crate) fn is_incoming(&self) -> bool {
        matches!(self.shows, Shows::Incoming)
    }

    /// Whether it is read-write and takes no changes for now, because something comes in over it:
    /// it shows what was there before.
    pub fn is_frozen(&self) -> bool {
        matches!(self.shows, Shows::Head) && self.trunk.is_frozen()
    }

    /// The epoch that it shows; of the head, the one that is written now.
    pub fn epoch(&self) -> u64 {
        self.tree().epoch
    }

    /// Its name.
    pub fn name(&self) -> Name {
        match self.view_header() {
            Some(header) => header.lock().name.clone(),
            None => self.trunk.header.lock().stored.name.clone(),
        }
    }

    /// Whether an administrator took it off.
    pub fn is_offline(&self) -> bool {
        match self.view_header() {
            Some(header) => header.lock().offline,
            None => self.trunk.header.lock().stored.offline,
        }
    }

    /// Whether it takes no changes because it is being moved away.
    pub fn is_held(&self) -> bool {
        self.is_writable() && self.trunk.is_held()
    }

    /// Whether it came from elsewhere and serves nobody yet.
    pub fn is_arriving(&self) -> bool {
        self.is_writable() && self.trunk.header.lock().stored.arriving
    }

    /// How its tree stands on this partition.
    pub fn standing(&self) -> IncomingState {
        IncomingState::of(&self.trunk.header.lock().stored)
    }

    /// What it uses now, without I/O; of a sealed epoch, what the tree used when it was sealed.
    pub fn usage(&self) -> Usage {
        self.view_header().map_or_else(|| self.trunk.used(), |header| header.lock().usage)
    }

    /// Its limits, without I/O. A volume that cannot be changed has none.
    pub fn quota(&self) -> VolumeQuota {
        if self.is_writable() {
            self.trunk.header.lock().stored.quota
        } else {
            VolumeQuota::default()
        }
    }

    /// Everything that is known of it; without I/O where nothing is encrypted.
    pub fn info(&self) -> VolumeFacts {
        // What cannot be read is said by who reads what is encrypted.
        let encrypted = self.trunk.media.ciphers.wrapped_by(self.trunk.id).unwrap_or_default();
        let info = match self.view_header() {
            Some(header) => VolumeFacts::of_view(self.id, header.lock().clone()),
            None => VolumeFacts::of_head(
                self.id,
                self.trunk.header.lock().stored.clone(),
                self.trunk.used(),
            ),
        };
        VolumeFacts { encrypted, ..info }
    }

    /// A vnode, as of its last commit.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; so for every reading method.
    pub fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        self.tree().vnode(no)
    }

    /// Vnodes in ascending order of their numbers, each as [`Volume::vnode`] has it, and cheaper
    /// together.
    ///
    /// # Errors
    /// `Medium`.
    pub fn vnodes(&self, nos: &[VnodeNo]) -> Result<Vec<Result<Option<Vnode>>>> {
        self.tree().vnodes(nos)
    }

    /// One entry.
    pub fn lookup(&self, dir: VnodeNo, name: &[u8]) -> Result<Option<StoredEntry>> {
        let hash = self.tree().hash(name);
        let bucket = self.tree().bucket(dir, hash)?;
        Ok(bucket
            .into_iter()
            .find(|found| found.name.as_bytes() == name)
            .map(|found| entry(hash, found)))
    }

    /// As `lookup`, for a change of this entry: what is found stays in the update, so nobody else
    /// may change the directory until the commit; or look again.
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
        update.set_looked(dir, hash, bucket);
        Ok(found)
    }

    /// Up to `entries_max` entries behind `cookie` (0: from the first), in cookie order; and
    /// whether that was the last. An entry that stays is seen once, whatever comes and goes around
    /// it.
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

    /// A slot that was never used, and will never be again even if the machine loses power now.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate(&self, directory: bool) -> Result<(VnodeNo, Uniquifier)> {
        let fid = self.fid_of_slot(self.allocate_slot()?, directory);
        Ok((fid.vnode, fid.unique))
    }

    /// A slot for a new vnode, never used before and never given again, whatever happens to the
    /// machine.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate_slot(&self) -> Result<u64> {
        self.writable()?;
        self.trunk.allocate_slot()
    }

    /// As many slots as share a key, for a session that makes files itself; likewise.
    ///
    /// # Errors
    /// `ReadOnly`, `Medium`.
    pub fn allocate_run(&self) -> Result<VnodeSlots> {
        self.writable()?;
        self.trunk.allocate_run(self.id())
    }

    /// The fid of the file that a slot gets.
    pub fn fid_of_slot(&self, slot: u64, directory: bool) -> Fid {
        Fid::of_slot(self.id(), slot, directory, self.trunk.key_of_slot(self.id(), slot))
    }

    /// Whether this life or an earlier one may have given the slot to somebody, and no vnode takes
    /// it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn is_given_slot(&self, slot: u64) -> Result<bool> {
        let (given, taken) = self.trunk.slot(slot);
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
    /// `BucketFull`; nothing has then changed.
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

    /// Removes an entry; says which, `None` if there is none.
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

    /// Makes or replaces an attribute. Names have no NUL; limits of lengths are the caller's.
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

    /// Removes an attribute; says whether it was there.
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

    /// Removes a vnode with body and attributes; counts one file less. `vnode` must be current. Of
    /// an orphan its mark goes with [`Update::remove_orphan`].
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

    /// Applies `update` as one batch: visible now, kept over the death of the process (see
    /// [`crate::Partition::gather`] for when), durable after the next sync.
    ///
    /// # Errors
    /// `NoSpace` if it adds files or bytes and the partition is nearly full; `Medium` after a
    /// failed sync; `ReadOnly`; `NoVolume` if it was removed; `Misuse` if a body was changed and
    /// its vnode not put. Nothing has then changed.
    pub fn commit(&self, mut update: Update) -> Result<()> {
        let media = &self.trunk.media;
        update.enter(&self.trunk);
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
        // What comes in over a volume is counted when it takes its place.
        let counts = matches!(self.shows, Shows::Head) || !self.trunk.is_frozen();
        let delta = if counts { delta } else { [0, 0] };
        if delta != [0, 0] {
            batch.add(&key::usage(self.id), &delta);
        }
        self.trunk.use_slot(update.highest_slot());
        let changes =
            matches!(self.shows, Shows::Head) && self.trunk.is_based() && update.changes();
        if update.quota.is_some() || changes {
            self.trunk.change_fields(update.quota, changes, batch)?;
        } else if !batch.is_empty() {
            media.apply(&batch)?;
        }
        if delta != [0, 0] {
            let mut usage = self.trunk.usage.lock();
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
