//! Trees that come in: parts are applied to a head that no volume shows, until it is sealed under a
//! view, or becomes a read-write volume.
//!
//! The progress of a stream is stored beside the tree's header (`p` record) and is valid after any
//! crash: bodies are on disk before it is written. After a crash, later parts are applied again. A
//! tree whose head receives a stream is swept like one that is written: the head counts as shown.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::{Fid, Name, StreamCursor, Timestamp, VnodeNo, VolumeId};

use super::Under;
use super::body::{Building, Mode};
use super::codec::{Item, StreamHead, StreamPart, get_cursor, get_head, put_cursor, put_head};
use super::outgoing::stage;
use crate::body_sync::settle_tree;
use crate::engine::{Batch, Engine};
use crate::header::{Base, TreeHeader};
use crate::key::{self, kind};
use crate::media::CommitScope;
use crate::record::{self, BucketEntry, In, Out};
use crate::tree_state::{TreeState, put_header};
use crate::vnode::initial_used;
use crate::volume::Result;
use crate::{NewClone, Partition, StoreError, Update, Usage, Vnode, Volume, VolumeQuota};

/// The bytes of parts between two syncs. Unit tests sync often, so that streams continue in the
/// middle of bodies.
const SETTLE_BYTES: u64 = if cfg!(test) { 150 << 10 } else { 64 << 20 };
/// The number of buckets that one batch applies.
const BUCKETS_AT_ONCE: usize = 64;

/// The volume that a complete stream becomes.
#[derive(Clone, Debug)]
pub enum FinishAs {
    /// A volume that shows the epoch; it may replace another.
    View(NewClone),
    /// The tree's read-write volume.
    ReadWrite {
        /// The name of the volume.
        name: Name,
        /// The limits of the volume.
        quota: VolumeQuota,
        /// When the volume was created.
        created: Timestamp,
        /// The current time.
        now: Timestamp,
        /// The volume does not serve clients yet.
        arriving: bool,
    },
}

/// A tree that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingInfo {
    /// The number of the tree.
    pub tree: VolumeId,
    /// The stream.
    pub head: StreamHead,
    /// The cursor from which the stream continues after a crash.
    pub cursor: StreamCursor,
    /// The bytes of the parts before that cursor.
    pub bytes: u64,
    /// The stream comes in over a read-write volume.
    pub over: bool,
}

/// The state of a tree on a partition. If two partitions of a server have the tree, the server uses
/// the one with the lower state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncomingState {
    /// The read-write volume serves clients, or did before it was held or taken offline.
    Serves,
    /// The tree has at most volumes of sealed epochs.
    Views,
    /// The tree is a copy that does not serve clients yet.
    Arrives,
}

impl IncomingState {
    pub(crate) fn of(header: &TreeHeader) -> IncomingState {
        match header {
            TreeHeader { arriving: true, .. } => IncomingState::Arrives,
            TreeHeader { headless: true, .. } => IncomingState::Views,
            _ => IncomingState::Serves,
        }
    }
}

/// The state in memory of a tree that comes in.
pub(crate) struct Incoming {
    pub(super) volume: Arc<Volume>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) stable: IncomingInfo,
    /// The state of a stream over a volume.
    pub(super) under: Option<Under>,
    /// The cursor at which the next part begins; at or behind the stable one.
    pub(super) cursor: StreamCursor,
    bytes: u64,
    mode: Mode,
    /// The stream was finished or abandoned.
    pub(super) over: bool,
}

impl Partition {
    /// Begins or continues a stream into a tree; returns the cursor of the next part. The tree has
    /// the number `tree`, whatever its number is at the source; a full stream creates it if it does
    /// not exist. A stream of an older epoch that came in earlier is replaced.
    ///
    /// # Errors
    /// `Taken` if the number is a volume's, or the partition has the epoch already; `NoStream` if
    /// the tree here is no copy of the source's tree, lacks the epoch to start from, or is newer;
    /// `Busy` while an earlier one is swept; `NoSpace`, `Medium`.
    pub fn begin_incoming(&self, tree: VolumeId, head: &StreamHead) -> Result<StreamCursor> {
        self.0.media.room_for_records()?;
        if let Some(incoming) = self.incoming(tree)? {
            let mut state = incoming.state.lock();
            if !state.over {
                return self.go_on(&incoming, &mut state, head);
            }
        }
        let catalog = self.0.catalog.lock();
        if self.incoming(tree)?.is_some() {
            return Err(StoreError::Busy("another stream has just begun"));
        }
        let info =
            IncomingInfo { tree, head: *head, cursor: StreamCursor::START, bytes: 0, over: false };
        let mut batch = Batch::default();
        put_progress(&info, None, &mut batch);
        match self.tree_of(tree)? {
            Some(tree_state) => self.open_head(&tree_state, head, batch)?,
            None => {
                if head.since != 0 {
                    return Err(StoreError::NoStream(
                        "no volume on this partition has the epoch that it starts from",
                    ));
                }
                self.take_number(&catalog, Some(tree), &mut batch)?;
                put_header(tree, &empty_tree(tree, head), &mut batch);
                if head.encrypted || self.0.encrypts {
                    let ciphers = &self.0.media.ciphers;
                    ciphers.put(tree, &ciphers.make()?, &mut batch)?;
                }
                batch.add(&key::usage(tree), &[0, 0]);
                self.0.media.apply(&batch)?;
            }
        }
        drop(catalog);
        self.0.media.sync()?;
        Ok(StreamCursor::START)
    }

    /// Continues the same stream; another one replaces it.
    fn go_on(
        &self,
        incoming: &Incoming,
        state: &mut State,
        head: &StreamHead,
    ) -> Result<StreamCursor> {
        let known = &state.stable.head;
        if state.under.is_some() {
            return Err(StoreError::Taken("number"));
        }
        if is_same_stream(known, head) {
            return Ok(state.cursor);
        }
        if head.epoch < known.epoch {
            return Err(StoreError::NoStream("a newer stream is coming in; abandon that first"));
        }
        let info =
            IncomingInfo { head: *head, cursor: StreamCursor::START, bytes: 0, ..state.stable };
        let mut batch = Batch::default();
        put_progress(&info, None, &mut batch);
        self.change_head(&incoming.volume.tree_state, head, batch)?;
        self.0.media.sync()?;
        *state = State {
            stable: info,
            under: None,
            cursor: info.cursor,
            bytes: 0,
            mode: Mode::Unknown,
            over: false,
        };
        Ok(state.cursor)
    }

    /// Prepares the head of an existing tree, which no volume shows, to receive the epoch.
    fn open_head(
        &self,
        tree_state: &Arc<TreeState>,
        head: &StreamHead,
        batch: Batch,
    ) -> Result<()> {
        if !tree_state.header.lock().stored.headless {
            return Err(StoreError::Taken("number"));
        }
        if self.is_still_swept(tree_state.id, head.epoch)? {
            return Err(StoreError::Busy("the sweep of its removed records is not complete"));
        }
        self.change_head(tree_state, head, batch)
    }

    fn change_head(&self, tree_state: &TreeState, head: &StreamHead, batch: Batch) -> Result<()> {
        let no_writers = tree_state.writers.write();
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        if stored.hash_key != head.hash_key {
            return Err(StoreError::NoStream(
                "it is of another volume than the one on this partition",
            ));
        }
        if head.epoch <= stored.floor() {
            let there = stored.sealed.iter().any(|sealed| sealed.epoch == head.epoch);
            return Err(if there {
                StoreError::Taken("epoch")
            } else {
                StoreError::NoStream("this partition has a newer epoch")
            });
        }
        if head.since != 0 && !stored.sealed.iter().any(|sealed| sealed.epoch == head.since) {
            return Err(StoreError::NoStream(
                "this partition does not have the epoch that it starts from",
            ));
        }
        let next_slot = stored.next_slot.max(head.next_slot);
        let new = TreeHeader { incoming: true, epoch: head.epoch, next_slot, ..stored.clone() };
        tree_state.change(&mut header, new, batch)?;
        tree_state.skip_slots(&mut header);
        tree_state.follow_header(&header.stored);
        drop((header, no_writers));
        Ok(())
    }

    /// Applies a part; returns the cursor of the next one. Becomes stable from time to time, and at
    /// the end of the stream.
    ///
    /// # Errors
    /// `NoVolume` if no stream comes in there; `NoStream` if the part is damaged, of another
    /// stream, or leaves a gap; `NoSpace`, `Damaged`, `Medium`. The part may be applied again after
    /// any of them.
    pub fn apply_part(&self, tree: VolumeId, part: &Bytes) -> Result<StreamCursor> {
        let part = StreamPart::open(part)?;
        part.check()?;
        let incoming = self.incoming(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = incoming.state.lock();
        if state.over {
            return Err(StoreError::NoVolume(tree));
        }
        if !is_same_stream(&state.stable.head, &part.head) {
            return Err(StoreError::NoStream("a part of another stream"));
        }
        if part.from > state.cursor {
            return Err(StoreError::NoStream("a part is missing before this one"));
        }
        let gathering = CommitScope::begin(&self.0.media);
        let applied = incoming.apply(&mut state, &part);
        let ended = gathering.end();
        applied?;
        ended?;
        state.cursor = part.to;
        let size = part.bytes() as u64;
        state.bytes += size;
        if state.bytes - state.stable.bytes >= SETTLE_BYTES {
            self.settle_incoming(&incoming, &mut state)?;
        }
        Ok(state.cursor)
    }

    pub(super) fn settle_incoming(&self, incoming: &Incoming, state: &mut State) -> Result<()> {
        let volume = &incoming.volume;
        settle_tree(&volume.tree_state, &|no| volume.resum(no))?;
        let info = IncomingInfo { cursor: state.cursor, bytes: state.bytes, ..state.stable };
        let mut batch = Batch::default();
        put_progress(&info, state.under.as_ref(), &mut batch);
        self.0.media.apply(&batch)?;
        self.0.media.sync()?;
        state.stable = info;
        Ok(())
    }

    /// Makes a volume of a complete stream, in one batch; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume` if no stream comes in there; `NoStream` if it is incomplete; `Taken` if a volume
    /// has the name or number; `Misuse` as [`Partition::clone_volume`]; `NoSpace`, `Medium`.
    pub fn finish_incoming(&self, tree: VolumeId, finish: &FinishAs) -> Result<Arc<Volume>> {
        let incoming = self.incoming(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = incoming.state.lock();
        if state.over {
            return Err(StoreError::NoVolume(tree));
        }
        if state.cursor != StreamCursor::END {
            return Err(StoreError::NoStream("the stream is incomplete"));
        }
        if state.under.is_some() {
            return Err(StoreError::Misuse("the stream comes in over a volume"));
        }
        let usage = state.stable.head.usage;
        let tree_state = &incoming.volume.tree_state;
        let afresh =
            tree_state.header.lock().stored.sealed.is_empty() && state.stable.head.since == 0;
        if afresh && tree_state.used() != usage {
            return Err(StoreError::NoStream(
                "the usage of the stream's files differs from its head",
            ));
        }
        self.settle_incoming(&incoming, &mut state)?;
        let no_writers = tree_state.writers.write();
        let volume = match finish {
            FinishAs::View(new) => self.seal(&incoming.volume, new, &[], Some(usage))?,
            FinishAs::ReadWrite { name, quota, created, now, arriving } => {
                let from = state.stable.head.tree;
                let fields = |header: &mut TreeHeader| {
                    header.name = name.clone();
                    header.arriving = *arriving;
                    (header.quota, header.created, header.updated) = (*quota, *created, *now);
                    header.base = Some(Base { tree: from, epoch: header.epoch, shift: 0 });
                };
                self.give_head(tree_state, usage, &fields)?
            }
        };
        drop(no_writers);
        state.over = true;
        self.0.incomings.lock().remove(&tree);
        self.0.media.wake_packer();
        self.0.media.sync()?;
        Ok(volume)
    }

    fn give_head(
        &self,
        tree_state: &Arc<TreeState>,
        usage: Usage,
        fields: &dyn Fn(&mut TreeHeader),
    ) -> Result<Arc<Volume>> {
        let catalog = self.0.catalog.lock();
        let mut header = tree_state.header.lock();
        let mut new = TreeHeader { headless: false, offline: false, ..header.stored.clone() };
        fields(&mut new);
        let mut batch = Batch::default();
        self.take_name(&catalog, &new.name, tree_state.id, &mut batch)?;
        end_progress(tree_state, &mut new, usage, &mut batch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        tree_state.set_used(usage);
        self.volume(tree_state.id)?.ok_or(StoreError::NoVolume(tree_state.id))
    }

    /// Abandons a stream; the views of the tree stay. Its room is given back in the background; a
    /// volume below it takes changes again after that.
    ///
    /// # Errors
    /// `NoVolume` if no stream comes in there; `Medium`.
    pub fn abandon_incoming(&self, tree: VolumeId) -> Result<()> {
        let incoming = self.incoming(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = incoming.state.lock();
        if state.over {
            return Err(StoreError::NoVolume(tree));
        }
        let tree_state = &incoming.volume.tree_state;
        let no_writers = tree_state.writers.write();
        let catalog = self.0.catalog.lock();
        let mut batch = Batch::default();
        batch.delete(&key::progress(tree));
        let mut header = tree_state.header.lock();
        let new = TreeHeader { incoming: false, ..header.stored.clone() };
        if let Some(under) = &state.under {
            self.take_back(tree_state, under, &new, &mut batch);
            tree_state.change(&mut header, new, batch)?;
            tree_state.follow_header(&header.stored);
            self.0.media.bodies.forget(tree_state.id);
            self.0.removals.lock().wake();
        } else {
            self.drop_head(tree_state, &mut header, new, batch)?;
        }
        drop((header, catalog, no_writers));
        state.over = true;
        self.0.incomings.lock().remove(&tree);
        self.0.media.sync()
    }

    /// The epochs of a tree that volumes on this partition show, ascending.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn sealed_epochs(&self, tree: VolumeId) -> Result<Vec<u64>> {
        let tree_state = self.tree_of(tree)?;
        Ok(tree_state.map_or_else(Vec::new, |tree_state| {
            tree_state.header.lock().stored.sealed.iter().map(|sealed| sealed.epoch).collect()
        }))
    }

    /// Whether the partition has the tree, in any volume or as a stream.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn has_tree(&self, tree: VolumeId) -> Result<bool> {
        Ok(self.tree_of(tree)?.is_some())
    }

    /// The state of the tree here; `None`: the partition does not have it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn tree_standing(&self, tree: VolumeId) -> Result<Option<IncomingState>> {
        Ok(self
            .tree_of(tree)?
            .map(|tree_state| IncomingState::of(&tree_state.header.lock().stored)))
    }

    /// Records whether the tree is a copy of one on another partition that has precedence; stable
    /// when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `Medium`.
    pub fn tree_arrives(&self, tree: VolumeId, arriving: bool) -> Result<()> {
        let catalog = self.0.catalog.lock();
        let tree_state = self.tree_of(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut header = tree_state.header.lock();
        if header.stored.arriving != arriving {
            let new = TreeHeader { arriving, ..header.stored.clone() };
            tree_state.change(&mut header, new, Batch::default())?;
        }
        drop((header, catalog));
        self.0.media.sync()
    }

    /// All streams that come in, including those that no sender continues.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn incomings(&self) -> Result<Vec<IncomingInfo>> {
        let mut found = Vec::new();
        self.each(&[kind::PROGRESS], &mut |key, value| {
            found.push(get_progress(key, value)?.0);
            Ok(())
        })?;
        Ok(found)
    }

    /// The stream that comes in under this number, from memory or disk.
    pub(crate) fn incoming(&self, tree: VolumeId) -> Result<Option<Arc<Incoming>>> {
        let mut incomings = self.0.incomings.lock();
        if let Some(incoming) = incomings.get(&tree) {
            return Ok(Some(Arc::clone(incoming)));
        }
        let key = key::progress(tree);
        let Some(value) = self.0.media.engine.get(&key)? else { return Ok(None) };
        let (stable, under) = get_progress(&key, &value)?;
        let tree_state = self
            .tree_of(tree)?
            .ok_or_else(|| StoreError::Damaged(format!("tree of volume {}", tree.0)))?;
        let (cursor, bytes) = (stable.cursor, stable.bytes);
        let state = State { stable, under, cursor, bytes, mode: Mode::Unknown, over: false };
        let volume = Arc::new(Volume::incoming(tree_state));
        let incoming = Arc::new(Incoming { volume, state: Mutex::new(state) });
        incomings.insert(tree, Arc::clone(&incoming));
        Ok(Some(incoming))
    }
}

/// An empty tree that can receive a stream.
fn empty_tree(tree: VolumeId, head: &StreamHead) -> TreeHeader {
    let name = Name::new(format!("incoming.{}", tree.0).as_bytes()).expect("a word is a name");
    TreeHeader {
        name,
        hash_key: head.hash_key,
        created: Timestamp::default(),
        updated: Timestamp::default(),
        quota: VolumeQuota::default(),
        offline: false,
        headless: true,
        incoming: true,
        arriving: false,
        held: false,
        next_slot: head.next_slot,
        epoch: head.epoch,
        sealed: Vec::new(),
        frozen: false,
        base: None,
        origin: None,
    }
}

/// Adds the other changes to the batch that makes a volume of an incoming tree.
pub(crate) fn end_progress(
    tree_state: &TreeState,
    header: &mut TreeHeader,
    usage: Usage,
    batch: &mut Batch,
) {
    header.incoming = false;
    batch.delete(&key::progress(tree_state.id));
    let numbers = [usage.bytes as i64, usage.files as i64];
    batch.delete(&key::usage(tree_state.id));
    batch.add(&key::usage(tree_state.id), &numbers);
}

/// Whether both heads describe one stream.
pub(super) fn is_same_stream(one: &StreamHead, other: &StreamHead) -> bool {
    (one.tree, one.epoch, one.since, one.hash_key)
        == (other.tree, other.epoch, other.since, other.hash_key)
}

/// The layout of the progress of a stream over a volume.
const PROGRESS_OVER: u8 = 2;

pub(super) fn put_progress(info: &IncomingInfo, under: Option<&Under>, batch: &mut Batch) {
    let key = key::progress(info.tree);
    let mut out =
        if under.is_some() { Out::with_version(160, PROGRESS_OVER) } else { Out::new(120) };
    put_head(&mut out, &info.head);
    put_cursor(&mut out, info.cursor);
    out.u64(info.bytes);
    if let Some(under) = under {
        out.u64(under.since);
        out.u64(under.shift);
        out.u32(u32::try_from(under.orphans.len()).expect("open files are far below 2^32"));
        under.orphans.iter().for_each(|no| out.u64(no.0));
    }
    batch.put(&key, &out.seal(&key));
}

pub(crate) fn get_progress(key: &[u8], value: &[u8]) -> Result<(IncomingInfo, Option<Under>)> {
    let decode = || {
        let tree = VolumeId(key::number_at(key, 0)?);
        let (version, mut fields) = In::open_any(key, value)
            .filter(|(version, _)| (1..=PROGRESS_OVER).contains(version))?;
        let (head, cursor, bytes) =
            (get_head(&mut fields)?, get_cursor(&mut fields)?, fields.u64()?);
        let mut under = None;
        if version == PROGRESS_OVER {
            let (since, shift, count) = (fields.u64()?, fields.u64()?, fields.u32()?);
            let orphans: Option<Vec<VnodeNo>> =
                (0..count).map(|_| fields.u64().map(VnodeNo)).collect();
            under = Some(Under { since, shift, orphans: orphans? });
        }
        let over = under.is_some();
        fields.end((IncomingInfo { tree, head, cursor, bytes, over }, under))
    };
    decode().ok_or_else(|| record::damaged("progress", key))
}

/// The vnode of the current items, and the update that they form.
struct Current {
    vnode: Vnode,
    update: Update,
}

impl Incoming {
    fn apply(&self, state: &mut State, part: &StreamPart) -> Result<()> {
        let tree = self.volume.tree();
        let since = state.under.as_ref().map_or(part.head.since, |under| under.since);
        let before = (since != 0).then(|| tree.at(since));
        let over = state.under.is_some();
        let building =
            Building { volume: &self.volume, before: before.as_ref(), mode: state.mode, over };
        let shift = state.under.as_ref().map_or(0, |under| under.shift);
        let mut applying = Applying { building, shift, current: None, next: part.from.vnode };
        if part.from.stage != stage::VNODE {
            applying.resume(part.from.vnode)?;
        }
        for item in part.items() {
            let applied = applying.item(item?, part.head.since == 0);
            state.mode = applying.building.mode;
            applied?;
        }
        applying.commit()?;
        if part.head.since == 0 {
            applying.clear_up_to(part.to.vnode)?;
        }
        Ok(())
    }
}

struct Applying<'a> {
    building: Building<'a>,
    /// How much higher versions are here than at the source.
    shift: u64,
    current: Option<Current>,
    /// Vnodes below this number match the stream.
    next: VnodeNo,
}

impl Applying<'_> {
    /// Loads the vnode in whose middle the part begins.
    fn resume(&mut self, no: VnodeNo) -> Result<()> {
        let vnode = self
            .building
            .volume
            .vnode(no)?
            .ok_or(StoreError::NoStream("a part is missing before this one"))?;
        self.current = Some(Current { vnode, update: Update::new() });
        self.next = VnodeNo(no.0 + 1);
        Ok(())
    }

    fn item(&mut self, item: Item<'_>, everything: bool) -> Result<()> {
        match item {
            Item::Vnode(vnode, form) => {
                self.commit()?;
                if everything {
                    self.clear_up_to(vnode.no())?;
                }
                self.next = VnodeNo(vnode.no().0 + 1);
                self.begin(*vnode, form)
            }
            Item::Gone(no) => {
                self.commit()?;
                self.remove(no)
            }
            Item::Xattr(name, value) => {
                let volume = self.building.volume;
                let Current { vnode, update } = self.current()?;
                volume.put_xattr(vnode, name, value, update)
            }
            Item::Buckets { from, until, rest, buckets } => {
                self.buckets((from, until), rest, buckets)
            }
            Item::Blocks(run, first, count) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.blocks(&mut current.vnode, run, first, count, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Data(first, data) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.data(&mut current.vnode, first, data, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Packed(first, frame) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.packed(&mut current.vnode, first, frame, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Whole(used) => {
                if self.current()?.vnode.status.used != used {
                    return Err(StoreError::NoStream(
                        "the size or usage of a body differs from its vnode",
                    ));
                }
                self.commit()
            }
        }
    }

    fn current(&mut self) -> Result<&mut Current> {
        self.current.as_mut().ok_or(NO_VNODE)
    }

    /// Commits what the items so far changed in the vnode.
    fn commit(&mut self) -> Result<()> {
        let Some(Current { vnode, mut update }) = self.current.take() else { return Ok(()) };
        update.put_vnode(&vnode);
        self.building.volume.commit(update)
    }

    /// Prepares a vnode with the wanted status, to which further items belong.
    fn begin(&mut self, wanted: Vnode, form: super::codec::BodyForm<'_>) -> Result<()> {
        let volume = self.building.volume;
        let (size, no) = (wanted.status.size, wanted.no());
        let fid = Fid { volume: volume.id(), ..wanted.status.fid };
        let mut old = volume.vnode(no)?;
        let mut generations = 0;
        if let Some(other) =
            old.take_if(|old| old.status.fid != fid || old.status.kind != wanted.status.kind)
        {
            // In another history of the tree another file had the number.
            generations = other.generations;
            self.remove(no)?;
        }
        let mut update = Update::new();
        let mut vnode = wanted;
        vnode.status.fid = fid;
        vnode.has_xattr = false;
        vnode.status.data_version = vnode.status.data_version.saturating_add(self.shift);
        vnode.status.status_version = vnode.status.status_version.saturating_add(self.shift);
        match old {
            None => {
                let directory = vnode.status.kind == types::Kind::Directory;
                vnode.status.size = if directory { size } else { 0 };
                vnode.status.used = initial_used(vnode.status.kind);
                vnode.generations = generations;
                update.create_vnode(&vnode);
            }
            Some(old) => {
                for (name, _) in volume.xattrs(&old)? {
                    update.set_xattr(no, &name, None);
                }
                (vnode.status.size, vnode.status.used) = (old.status.size, old.status.used);
                (vnode.place, vnode.generations, vnode.own_since) =
                    (old.place, old.generations, old.own_since);
                vnode.handed = old.handed && self.building.over;
                if old.status.links == 0 && vnode.status.links > 0 {
                    update.remove_orphan(no);
                }
            }
        }
        if vnode.status.links == 0 {
            update.add_orphan(no);
        }
        self.building.mode = self.building.begin(&mut vnode, form, size, &mut update)?;
        self.current = Some(Current { vnode, update });
        Ok(())
    }

    /// Removes the vnode with all its records.
    fn remove(&mut self, no: VnodeNo) -> Result<()> {
        let volume = self.building.volume;
        let Some(vnode) = volume.vnode(no)? else { return Ok(()) };
        self.clear_buckets(no, (0, u64::MAX), &BTreeSet::new())?;
        let mut update = Update::new();
        volume.drop_vnode(&vnode, &mut update)?;
        if vnode.status.links == 0 {
            update.remove_orphan(no);
        }
        volume.commit(update)
    }

    /// Removes vnodes that the stream skips: from the last one that it named to this one,
    /// exclusive.
    fn clear_up_to(&mut self, end: VnodeNo) -> Result<()> {
        let tree = self.building.volume.tree();
        let mut gone = Vec::new();
        if self.next < end {
            tree.each_vnode_no(self.next, &mut |no| {
                if no >= end {
                    return ControlFlow::Break(());
                }
                gone.push(no);
                ControlFlow::Continue(())
            })?;
        }
        gone.into_iter().try_for_each(|no| self.remove(no))
    }

    fn buckets(
        &mut self,
        range: (u64, u64),
        rest: bool,
        buckets: Vec<(u64, Vec<BucketEntry>)>,
    ) -> Result<()> {
        let volume = self.building.volume;
        let no = self.current()?.vnode.no();
        if !no.is_directory() {
            return Err(StoreError::NoStream("entries of a vnode that is not a directory"));
        }
        if rest {
            let stay = buckets.iter().map(|(hash, _)| *hash).collect();
            self.clear_buckets(no, range, &stay)?;
        }
        let mut update = Update::new();
        buckets.into_iter().for_each(|(hash, bucket)| update.set_bucket(no, hash, bucket));
        volume.commit(update)
    }

    /// Removes the directory's buckets in the range except those that stay.
    fn clear_buckets(
        &self,
        dir: VnodeNo,
        (from, until): (u64, u64),
        stay: &BTreeSet<u64>,
    ) -> Result<()> {
        let volume = self.building.volume;
        let mut gone = Vec::new();
        volume.tree().each_bucket(dir, from, &mut |hash, bucket| {
            if hash >= until {
                return ControlFlow::Break(());
            }
            if !bucket.is_empty() && !stay.contains(&hash) {
                gone.push(hash);
            }
            ControlFlow::Continue(())
        })?;
        for hashes in gone.chunks(BUCKETS_AT_ONCE) {
            let mut update = Update::new();
            hashes.iter().for_each(|hash| update.set_bucket(dir, *hash, Vec::new()));
            volume.commit(update)?;
        }
        Ok(())
    }
}

const NO_VNODE: StoreError = StoreError::NoStream("an item that belongs to no vnode");
