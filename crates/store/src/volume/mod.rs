//! VolumeSet: what callers read and change, and the set of them on a partition.
//!
//! Model. A [`Volume`] shows the head of a tree, which takes writes, or a sealed epoch (this
//! file). The set of volumes is [`VolumeSet`] (`set.rs`, `list.rs`); it grows by clones
//! (`clone.rs`, `fork.rs`) and takeovers (`take_over.rs`), and shrinks by removals (`removal.rs`),
//! whose records the *sweeper* removes later (`sweeper.rs`).
//! Imports `format/`, `media/`, `tree/` and `body/`.

pub(crate) mod clone;
mod edit;
pub(crate) mod fork;
pub(crate) mod list;
mod loaded;
pub(crate) mod removal;
pub(crate) mod set;
pub(crate) mod sweeper;
pub(crate) mod take_over;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
pub use edit::VnodeEdit;
use parking_lot::Mutex;
use types::{Cookie, Fid, Name, Timestamp, VnodeNo, VolumeId, VolumeKind};

use crate::body::edit::drop_body;
use crate::body::{BodyEdit, BodyLoans, BodyReader, Update, sync};
use crate::error::Result;
use crate::format::header::{HeadState, Usage, ViewHeader, VolumeQuota};
use crate::tree::facts::IncomingState;
use crate::tree::view::entry;
use crate::tree::{EpochView, SlotAllocator, TreeState};
use crate::{StoreError, StoredEntry, Vnode, VolumeFacts};

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

/// Why a volume cannot be changed, sealed or moved.
pub(crate) const BEING_RESTORED: StoreError =
    StoreError::Busy("a dump is restored over the volume");

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
pub(crate) enum Shows {
    /// The head, or what stands for it while a dump is restored over the volume.
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

    /// A volume that shows a sealed epoch of the tree.
    pub(crate) fn view(id: VolumeId, tree_state: Arc<TreeState>, header: ViewHeader) -> Volume {
        let tree = EpochView { shown: id, ..tree_state.head().at(header.epoch) };
        let shows = Shows::Sealed { tree: Arc::new(tree), header: Mutex::new(header) };
        Volume { id, ..Volume::new(tree_state, shows) }
    }

    /// The volume that writes the tree: its read-write volume, or what a stream fills.
    pub(crate) fn new(tree_state: Arc<TreeState>, shows: Shows) -> Volume {
        Volume {
            id: tree_state.id,
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

    /// Whether the volume may be changed at all.
    ///
    /// # Errors
    /// `ReadOnly`; `Busy` while it is held or being restored; `NoVolume` if it was removed;
    /// `Medium` after a failed sync.
    pub(crate) fn writable(&self) -> Result<()> {
        match (&self.shows, self.tree_state.head_state()) {
            (Shows::Sealed { .. }, _) => return Err(StoreError::ReadOnly(self.id)),
            (_, HeadState::Held) => return Err(StoreError::Busy("the volume is being moved")),
            (Shows::Head, state) if state.is_being_restored() => return Err(BEING_RESTORED),
            _ => {}
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

    /// Whether the volume is read-write and takes no changes for now, because a stream comes in
    /// over it: it shows its former state.
    pub fn is_being_restored(&self) -> bool {
        matches!(self.shows, Shows::Head) && self.tree_state.head_state().is_being_restored()
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
        self.is_writable() && self.tree_state.head_state() == HeadState::Held
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
        update: &mut Update<'_>,
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
        cookie: Cookie,
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

    /// Slots for new vnodes.
    ///
    /// # Errors
    /// `ReadOnly`, `Busy`, `NoVolume`, `Medium` if the volume takes no changes.
    pub fn slots(&self) -> Result<SlotAllocator<'_>> {
        self.writable()?;
        Ok(SlotAllocator::new(&self.tree_state))
    }

    /// The fid of the file in a slot, which may be [`short`](types::SHORT_SLOT).
    pub fn fid_of_slot(&self, slot: u64, directory: bool) -> Fid {
        let key = self.tree_state.key_of_slot(self.id(), slot & !types::SHORT_SLOT);
        Fid::of_slot(self.id(), slot, directory, key)
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

    /// The entries and attributes of a vnode, to be changed with the update.
    pub fn edit<'a, 's>(
        &self,
        vnode: &'a mut Vnode,
        update: &'a mut Update<'s>,
    ) -> VnodeEdit<'a, 's> {
        VnodeEdit::new(self.tree(), vnode, update)
    }

    /// Removes a vnode with body and attributes; counts one file less. `vnode` must be current. The
    /// caller removes the mark of an orphan with [`Update::remove_orphan`].
    ///
    /// # Errors
    /// As every reading method.
    pub fn drop_vnode(&self, vnode: &Vnode, update: &mut Update<'_>) -> Result<()> {
        drop_body(&self.tree_state, &self.tree(), vnode, update);
        for (name, _) in self.xattrs(vnode)? {
            update.set_xattr(vnode.no(), &name, None);
        }
        update.drop_vnode(vnode);
        Ok(())
    }

    /// Applies `update` as one batch: visible now, safe from the death of the process (see
    /// [`Update::within`] for when), stable after the next sync.
    ///
    /// # Errors
    /// `NoSpace` if the update adds files or bytes and the partition is nearly full; `Medium` after
    /// a failed sync; `ReadOnly`; `NoVolume` if the volume was removed; `Misuse` if a body was
    /// changed without a put of its vnode. After an error nothing has changed.
    pub fn commit(&self, mut update: Update<'_>) -> Result<()> {
        update.enter(&self.tree_state);
        self.writable()?;
        update.commit(&self.tree_state)
    }

    /// The body of a vnode, to be changed with the update.
    ///
    /// # Errors
    /// `ReadOnly`, `Busy`, `NoVolume`, `Medium` if the volume takes no changes.
    pub fn body<'a, 's>(
        &'a self,
        vnode: &'a mut Vnode,
        update: &'a mut Update<'s>,
    ) -> Result<BodyEdit<'a, 's>> {
        self.writable()?;
        Ok(BodyEdit::new(&self.tree_state, vnode, update))
    }

    /// The bodies that are lent to kernels.
    pub fn loans(&self) -> BodyLoans<'_> {
        BodyLoans::new(&self.tree_state)
    }

    /// Brings the body's data to the disk. Follow with [`crate::Partition::sync`] for the records.
    ///
    /// # Errors
    /// `Medium`; from then on every change is refused (DU-3).
    pub fn sync_body(&self, vnode: &Vnode) -> Result<()> {
        let media = &self.tree_state.media;
        match self.tree().body_name(vnode) {
            // Bodies of sealed epochs are on disk already.
            Some(name) if self.is_writable() => sync::sync_one(media, name),
            _ => media.usable(),
        }
    }

    /// The vnode and its body, consistent with each other. Waits until an update that wrote to the
    /// body commits.
    ///
    /// # Errors
    /// As every reading method.
    pub fn reader(&self, no: VnodeNo) -> Result<Option<BodyReader>> {
        let gate = self.tree_state.media.gates.gate((self.tree_state.id, no)).read_arc();
        BodyReader::new(gate, self.tree(), no)
    }

    /// A reader of a vnode that was read earlier.
    ///
    /// # Errors
    /// `Gone` if the vnode now belongs to another file; as every reading method.
    pub fn reader_of(&self, vnode: &Vnode) -> Result<BodyReader> {
        let reader = self.reader(vnode.no())?;
        let same = reader.filter(|reader| reader.vnode().status.fid == vnode.status.fid);
        same.ok_or(StoreError::Gone(self.id(), vnode.no()))
    }
}

/// Up to `max` numbers of a volume's vnodes from this one on, in ascending order. Some may have no
/// vnode any more; there are no others if there are none.
///
/// # Errors
/// As every reading method of [`Volume`].
pub fn vnode_numbers(volume: &Volume, from: VnodeNo, max: usize) -> Result<Vec<VnodeNo>> {
    let mut found = Vec::new();
    volume.tree().each_vnode_no(from, &mut |no| {
        found.push(no);
        if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}
