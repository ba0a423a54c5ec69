//! Trees that come in: parts are applied to a head that no volume shows, until it is sealed under a
//! view, or becomes a read-write volume.
//!
//! The progress of a stream is stored beside the tree's header (`p` record) and is valid after any
//! crash: bodies are on disk before it is written. After a crash, later parts are applied again. A
//! tree whose head receives a stream is swept like one that is written: the head counts as shown.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::{Name, StreamCursor, Timestamp, VolumeId};

use super::apply::apply;
use super::body::Mode;
use super::codec::{StreamHead, StreamPart};
use super::progress::{IncomingInfo, Under, get_progress, put_progress};
use crate::StoreError;
use crate::body::seal_copies::SealCopies;
use crate::body::sync::settle_tree;
use crate::error::Result;
use crate::format::header::{Base, HeadState, TreeHeader, Usage, VolumeQuota};
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::media::{CommitScope, Media};
use crate::tree::TreeState;
use crate::tree::state::put_header;
use crate::volume::clone::NewClone;
use crate::volume::set::VolumeSet;
use crate::volume::sweeper::put_hidden;
use crate::volume::{Shows, Volume};

/// The bytes of parts between two syncs. Unit tests sync often, so that streams continue in the
/// middle of bodies.
const SETTLE_BYTES: u64 = if cfg!(test) { 150 << 10 } else { 64 << 20 };

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

/// The streams that come in on a partition.
pub struct IncomingStreams {
    volumes: Arc<VolumeSet>,
    incomings: Mutex<HashMap<VolumeId, Arc<Incoming>>>,
}

impl IncomingStreams {
    pub(crate) fn new(volumes: Arc<VolumeSet>) -> IncomingStreams {
        IncomingStreams { volumes, incomings: Mutex::default() }
    }

    pub(super) fn volumes(&self) -> &VolumeSet {
        &self.volumes
    }

    pub(super) fn media(&self) -> &Arc<Media> {
        &self.volumes.trees().media
    }

    /// Begins or continues a stream into a tree; returns the cursor of the next part. The tree has
    /// the number `tree`, whatever its number is at the source; a full stream creates it if it does
    /// not exist. A stream of an older epoch that came in earlier is replaced.
    ///
    /// # Errors
    /// `Taken` if the number is a volume's, or the partition has the epoch already; `NoStream` if
    /// the tree here is no copy of the source's tree, lacks the epoch to start from, or is newer;
    /// `Busy` while an earlier one is swept; `NoSpace`, `Medium`.
    pub fn begin_incoming(&self, tree: VolumeId, head: &StreamHead) -> Result<StreamCursor> {
        self.media().room_for_records(None)?;
        if let Some(incoming) = self.incoming(tree)? {
            let mut state = incoming.state.lock();
            if !state.over {
                return self.go_on(&incoming, &mut state, head);
            }
        }
        let catalog = self.volumes.trees().catalog();
        if self.incoming(tree)?.is_some() {
            return Err(StoreError::Busy("another stream has just begun"));
        }
        let info =
            IncomingInfo { tree, head: *head, cursor: StreamCursor::START, bytes: 0, over: false };
        let mut batch = Batch::default();
        put_progress(&info, None, &mut batch);
        match self.volumes.trees().tree(tree)? {
            Some(tree_state) => self.open_head(&tree_state, head, batch)?,
            None => {
                if head.since != 0 {
                    return Err(StoreError::NoStream(
                        "no volume on this partition has the epoch that it starts from",
                    ));
                }
                catalog.take_number(Some(tree), &mut batch)?;
                put_header(tree, &empty_tree(tree, head), &mut batch);
                if head.encrypted || self.volumes.encrypts() {
                    let ciphers = &self.media().ciphers;
                    ciphers.put(tree, &ciphers.make()?, &mut batch)?;
                }
                batch.add(&key::usage(tree), &[0, 0]);
                self.media().apply(&batch)?;
            }
        }
        drop(catalog);
        self.media().sync()?;
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
        self.media().sync()?;
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
        let state = tree_state.head_state();
        if state.has_volume() || state == HeadState::Following {
            return Err(StoreError::Taken("number"));
        }
        if self.volumes.sweeper().is_still_swept(tree_state.id, head.epoch)? {
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
        let mut new = TreeHeader { epoch: head.epoch, next_slot, ..stored.clone() };
        new.become_head(HeadState::Incoming, "stream begun");
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
        let scope = CommitScope::begin(self.media());
        let State { under, mode, .. } = &mut *state;
        let since = under.as_ref().map_or(part.head.since, |under| under.since);
        let applied = apply(&scope, &incoming.volume, since, under.as_ref(), mode, &part);
        let written = scope.write_out();
        applied?;
        written?;
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
        settle_tree(&volume.tree_state)?;
        let info = IncomingInfo { cursor: state.cursor, bytes: state.bytes, ..state.stable };
        let mut batch = Batch::default();
        put_progress(&info, state.under.as_ref(), &mut batch);
        self.media().apply(&batch)?;
        self.media().sync()?;
        state.stable = info;
        Ok(())
    }

    /// Makes a volume of a complete stream, in one batch; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume` if no stream comes in there; `NoStream` if it is incomplete; `Taken` if a volume
    /// has the name or number; `Misuse` as [`VolumeSet::clone_volume`]; `NoSpace`, `Medium`.
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
            FinishAs::View(new) => {
                self.volumes.seal(&incoming.volume, new, &SealCopies::default(), Some(usage))?
            }
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
        self.forget(tree);
        self.media().wake_packer();
        self.media().sync()?;
        Ok(volume)
    }

    fn give_head(
        &self,
        tree_state: &Arc<TreeState>,
        usage: Usage,
        fields: &dyn Fn(&mut TreeHeader),
    ) -> Result<Arc<Volume>> {
        let catalog = self.volumes.trees().catalog();
        let mut header = tree_state.header.lock();
        let mut new = TreeHeader { offline: false, ..header.stored.clone() };
        new.become_head(HeadState::Serving, "stream finished");
        fields(&mut new);
        let mut batch = Batch::default();
        catalog.take_name(&new.name, tree_state.id, &mut batch)?;
        tree_state.put_arrival(usage, &mut batch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        tree_state.set_used(usage);
        self.volumes.existing(tree_state.id)
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
        let catalog = self.volumes.trees().catalog();
        let mut batch = Batch::default();
        batch.delete(&key::progress(tree));
        let mut header = tree_state.header.lock();
        let mut new = header.stored.clone();
        if let Some(under) = &state.under {
            new.become_head(HeadState::TakenBack, "stream abandoned");
            take_back(tree_state.id, under, new.epoch, &mut batch);
            tree_state.change(&mut header, new, batch)?;
            tree_state.follow_header(&header.stored);
            self.media().gates.forget(tree_state.id);
            self.volumes.sweeper().wake();
        } else {
            new.become_head(HeadState::Unowned, "stream abandoned");
            self.volumes.sweeper().drop_head(tree_state, &mut header, new, batch)?;
        }
        drop((header, catalog, no_writers));
        state.over = true;
        self.forget(tree);
        self.media().sync()
    }

    /// All streams that come in, including those that no sender continues.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn incomings(&self) -> Result<Vec<IncomingInfo>> {
        let mut found = Vec::new();
        self.media().each(&[kind::PROGRESS], &mut |key, value| {
            found.push(get_progress(key, value)?.0);
            Ok(())
        })?;
        Ok(found)
    }

    /// The stream is over.
    pub(super) fn forget(&self, tree: VolumeId) {
        self.incomings.lock().remove(&tree);
    }

    /// The stream that comes in under this number, from memory or disk.
    pub(crate) fn incoming(&self, tree: VolumeId) -> Result<Option<Arc<Incoming>>> {
        let mut incomings = self.incomings.lock();
        if let Some(incoming) = incomings.get(&tree) {
            return Ok(Some(Arc::clone(incoming)));
        }
        let key = key::progress(tree);
        let Some(value) = self.media().engine.get(&key)? else { return Ok(None) };
        let (stable, under) = get_progress(&key, &value)?;
        let tree_state = self
            .volumes
            .trees()
            .tree(tree)?
            .ok_or_else(|| StoreError::Damaged(format!("tree of volume {}", tree.0)))?;
        let (cursor, bytes) = (stable.cursor, stable.bytes);
        let state = State { stable, under, cursor, bytes, mode: Mode::Unknown, over: false };
        let volume = Arc::new(Volume::new(tree_state, Shows::Incoming));
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
        head: HeadState::Incoming,
        arriving: false,
        has_standbys: false,
        next_slot: head.next_slot,
        epoch: head.epoch,
        sealed: Vec::new(),
        base: None,
        origin: None,
    }
}

/// Adds to the batch that a stream over a volume is taken back; the volume shows its sealed epoch
/// until the records of this one are swept.
fn take_back(tree: VolumeId, under: &Under, epoch: u64, batch: &mut Batch) {
    let orphans = key::of_volume(kind::ORPHAN, tree);
    batch.delete_range(&orphans, &prefix_end(&orphans));
    for no in &under.orphans {
        let key = key::of_vnode(kind::ORPHAN, tree, *no);
        batch.put(&key, &record::encode_numbers(&key, &[]));
    }
    put_hidden(tree, epoch, batch);
}

/// Whether both heads describe one stream.
pub(super) fn is_same_stream(one: &StreamHead, other: &StreamHead) -> bool {
    (one.tree, one.epoch, one.since, one.hash_key)
        == (other.tree, other.epoch, other.since, other.hash_key)
}
