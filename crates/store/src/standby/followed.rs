//! The trees for which a partition stands by.
//!
//! Model. The `f` record of a tree says that the partition stands by for it, and while it *follows*
//! the base and the place behind the applied entries. It is written with them, in their commit
//! scope. A loss of power may keep the record and lose bytes of bodies that came before it. So
//! after a start with another boot verifier the place is none: the standby begins anew with a base,
//! or takes over with all that came to the disk, if an administrator says so.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::{ClientId, FeedPlace, ReplyAddress, SessionId, VolumeId};

use super::codec::{EntriesIn, HeirReply};
use crate::StoreError;
use crate::body::sync::settle_tree;
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader};
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::media::{CommitScope, Media};
use crate::stream::apply_entry;
use crate::tree::TreeState;
use crate::tree::feed::Heir;
use crate::volume::set::VolumeSet;
use crate::volume::{Shows, Volume};

/// A tree for which this partition stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyState {
    /// The number of the tree.
    pub tree: VolumeId,
    /// The epoch of the base with which it follows; 0: it does not follow.
    pub base: u64,
    /// The place behind the applied entries; the feed is 0 after a loss of power.
    pub place: FeedPlace,
}

/// See the head of the file.
pub struct Standbys {
    pub(super) volumes: Arc<VolumeSet>,
    /// Those that follow and were used.
    followed: Mutex<HashMap<VolumeId, Arc<Followed>>>,
}

/// A tree that follows.
pub(crate) struct Followed {
    pub(crate) volume: Arc<Volume>,
    /// Also serialises all work on the tree.
    pub(super) state: Mutex<Following>,
}

/// The state of a tree that follows.
pub(crate) struct Following {
    /// `base` 0: it follows no more.
    pub(super) stored: StandbyState,
    /// The place up to which all entries are on disk, as far as this process knows.
    synced: Option<FeedPlace>,
}

impl Standbys {
    pub(crate) fn new(volumes: Arc<VolumeSet>) -> Standbys {
        Standbys { volumes, followed: Mutex::default() }
    }

    pub(super) fn media(&self) -> &Arc<Media> {
        &self.volumes.trees().media
    }

    /// The partition stands by for the tree from now on; stable when it returns. Repeating it does
    /// nothing.
    ///
    /// # Errors
    /// `OldFormat`, `Medium`.
    pub fn add(&self, tree: VolumeId) -> Result<()> {
        let followed = self.followed.lock();
        if self.stored(tree)?.is_none() {
            self.media().need_format_of_standbys()?;
            let state = StandbyState { tree, base: 0, place: FeedPlace::default() };
            let mut batch = Batch::default();
            self.put(&state, &mut batch);
            self.media().apply(&batch)?;
        }
        drop(followed);
        self.media().sync()
    }

    /// The partition no longer stands by for the tree; what was applied is dropped, volumes of
    /// sealed epochs stay. Repeating it does nothing.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove(&self, tree: VolumeId) -> Result<()> {
        self.drop_applied(tree)?;
        let _followed = self.followed.lock();
        let mut batch = Batch::default();
        batch.delete(&key::standby(tree));
        remove_replies(tree, &mut batch);
        self.media().apply(&batch)?;
        self.media().sync()
    }

    /// The tree has a read-write volume here: the partition does not stand by for it. The replies
    /// of former servers stay. Repeating it does nothing.
    ///
    /// # Errors
    /// `Medium`.
    pub fn end(&self, tree: VolumeId) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete(&key::standby(tree));
        self.media().apply(&batch)?;
        self.media().sync()
    }

    /// All of them. Costs what their number is, not that of volumes.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn list(&self) -> Result<Vec<StandbyState>> {
        let mut found = Vec::new();
        self.media().each(&[kind::STANDBY], &mut |key, value| {
            found.push(self.decoded(key, value)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Begins to follow: the head is what `base` shows, the newest sealed epoch of the tree.
    ///
    /// # Errors
    /// `NoVolume` if there is no such base; `Taken` if the tree has a read-write volume; `Misuse`
    /// if the partition does not stand by for the tree, or it has a newer epoch; `Busy` while a
    /// stream comes in or removed records are swept; `Medium`.
    pub fn begin(&self, base: VolumeId, place: FeedPlace) -> Result<()> {
        let base = self.volumes.existing(base)?;
        let tree_state = &base.tree_state;
        let Some(view) = base.view_header() else { return Err(StoreError::Taken("number")) };
        if self.stored(tree_state.id)?.is_none() {
            return Err(StoreError::Misuse("the partition does not stand by for the volume"));
        }
        let no_writers = tree_state.writers.write();
        let catalog = self.volumes.trees().catalog();
        base.is_there()?;
        let mut header = tree_state.header.lock();
        let stored = &header.stored;
        match stored.head {
            HeadState::Unowned => {}
            HeadState::Incoming => return Err(StoreError::Busy("a stream comes in")),
            HeadState::Following => return Err(StoreError::Busy("it follows already")),
            _ => return Err(StoreError::Taken("number")),
        }
        let view = view.lock();
        let (epoch, usage) = (view.epoch, view.usage);
        drop(view);
        if epoch != stored.floor() {
            return Err(StoreError::Misuse("another volume shows a newer epoch of the tree"));
        }
        if self.volumes.sweeper().is_still_swept(tree_state.id, stored.epoch)? {
            return Err(StoreError::Busy("the sweep of its removed records is not complete"));
        }
        let mut new = stored.clone();
        new.become_head(HeadState::Following, "standby begins to follow");
        let tree = tree_state.id;
        let state = StandbyState { tree, base: epoch, place };
        let mut batch = Batch::default();
        self.put(&state, &mut batch);
        remove_replies(tree, &mut batch);
        tree_state.put_arrival(usage, &mut batch);
        tree_state.change(&mut header, new, batch)?;
        tree_state.skip_slots(&mut header);
        tree_state.follow_header(&header.stored);
        tree_state.set_used(usage);
        drop((header, catalog, no_writers));
        self.media().sync()
    }

    /// Drops what was applied, so that a stream can come in. The base stays. Its room is given back
    /// in the background: `begin_incoming` is `Busy` until then.
    ///
    /// # Errors
    /// `Medium`.
    pub fn drop_applied(&self, tree: VolumeId) -> Result<()> {
        let Some(followed) = self.following(tree)? else { return Ok(()) };
        let mut state = followed.state.lock();
        if state.stored.base == 0 {
            return Ok(());
        }
        let tree_state = &followed.volume.tree_state;
        let no_writers = tree_state.writers.write();
        let catalog = self.volumes.trees().catalog();
        let mut header = tree_state.header.lock();
        let mut new = header.stored.clone();
        new.become_head(HeadState::Unowned, "standby dropped what it applied");
        state.stored = StandbyState { tree, base: 0, place: FeedPlace::default() };
        let mut batch = Batch::default();
        self.put(&state.stored, &mut batch);
        self.volumes.sweeper().drop_head(tree_state, &mut header, new, batch)?;
        drop((header, catalog, no_writers, state));
        self.followed.lock().remove(&tree);
        self.media().sync()
    }

    /// Applies entries that begin at the tree's place, or before it; returns the place behind them.
    /// It survives the death of the process, and is on disk after [`Standbys::sync`].
    ///
    /// # Errors
    /// `NoStream` if they do not belong here, are damaged, or do not fit to what is here: the
    /// standby needs a new base; `NoVolume` if it does not follow; `NoSpace`, `Medium`.
    pub fn apply(&self, tree: VolumeId, entries: &Bytes) -> Result<FeedPlace> {
        let followed = self.following(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = followed.state.lock();
        if state.stored.base == 0 {
            return Err(StoreError::NoVolume(tree));
        }
        let mut entries = EntriesIn::open(entries)?;
        let tree_state = &followed.volume.tree_state;
        let hash_key = tree_state.header.lock().stored.hash_key;
        let place = state.stored.place;
        let head = &entries.head;
        if (head.tree, head.hash_key, head.from.feed) != (tree, hash_key, place.feed) {
            return Err(StoreError::NoStream("entries of another feed"));
        }
        if head.from.position > place.position {
            return Err(StoreError::NoStream("an entry is missing before these"));
        }
        let to = head.to();
        if to.position <= place.position {
            return Ok(place);
        }
        let scope = CommitScope::begin(self.media());
        let new = StandbyState { place: to, ..state.stored };
        let applied = self.apply_all(&scope, &followed.volume, &mut entries, &new);
        let written = scope.write_out();
        applied?;
        written?;
        state.stored = new;
        Ok(to)
    }

    fn apply_all(
        &self,
        scope: &CommitScope,
        volume: &Volume,
        entries: &mut EntriesIn<'_>,
        new: &StandbyState,
    ) -> Result<()> {
        let tree = new.tree;
        let mut batch = Batch::default();
        let mut heirs = HashMap::new();
        for _ in 0..entries.head.count {
            let entry = entries.entry()?;
            apply_entry(scope, volume, entry.items.into_iter().map(Ok))?;
            if let Some(quota) = entry.quota {
                volume.tree_state.change_fields(Some(quota), false, Batch::default())?;
            }
            for heir in &entry.replies {
                let key = key::heir(tree, heir.client, heir.origin.session, heir.origin.slot);
                let slot = (heir.client, heir.origin.session, heir.origin.slot);
                // A number without a reply was read beside the changes, and may be an older one.
                if heir.reply.is_empty() {
                    let known = heirs.get(&slot).copied();
                    let known = known.map_or_else(|| self.last_request(&key, heir), Ok)?;
                    if known >= heir.origin.request {
                        continue;
                    }
                }
                heirs.insert(slot, heir.origin.request);
                batch.put(&key, &record::encode_reply(&key, heir.origin.request, heir.reply));
            }
        }
        if !entries.is_at_end() {
            return Err(StoreError::NoStream("something follows the last entry"));
        }
        self.put(new, &mut batch);
        self.media().apply_in(Some(scope), &batch).map(drop)
    }

    /// The number of the last reply that came here with this key; 0: none.
    fn last_request(&self, key: &[u8], heir: &HeirReply<'_>) -> Result<u64> {
        let Some(value) = self.media().engine.get(key)? else { return Ok(0) };
        Ok(record::decode_reply(key, heir.origin.slot, &value)?.request)
    }

    /// Brings everything that was applied to the disk, and returns the place behind it.
    ///
    /// # Errors
    /// `NoVolume` if it does not follow; `Medium`.
    pub fn sync(&self, tree: VolumeId) -> Result<FeedPlace> {
        let followed = self.following(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut state = followed.state.lock();
        if state.stored.base == 0 {
            return Err(StoreError::NoVolume(tree));
        }
        if state.synced != Some(state.stored.place) {
            self.settle(&followed.volume.tree_state, &mut state)?;
        }
        Ok(state.stored.place)
    }

    /// Brings all that was applied to the disk.
    pub(super) fn settle(&self, tree_state: &TreeState, state: &mut Following) -> Result<()> {
        settle_tree(tree_state)?;
        self.media().sync()?;
        state.synced = Some(state.stored.place);
        Ok(())
    }

    /// The number and record of the last reply to a client's slot that came through the feed of a
    /// volume that took over here.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn reply(
        &self,
        tree: VolumeId,
        client: ClientId,
        session: SessionId,
        slot: u32,
    ) -> Result<Option<(u64, Bytes)>> {
        let key = key::heir(tree, client, session, slot);
        let Some(value) = self.media().engine.get(&key)? else { return Ok(None) };
        let stored = record::decode_reply(&key, slot, &value)?;
        Ok(Some((stored.request, stored.reply)))
    }

    /// All replies of former servers of the tree, as [`Standbys::reply`] finds them.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn heirs(&self, tree: VolumeId) -> Result<Vec<Heir>> {
        let mut found = Vec::new();
        self.media().each(&key::of_volume(kind::HEIR, tree), &mut |key, value| {
            let number = |at| key::number_at(key, at).ok_or_else(|| record::damaged("reply", key));
            let client = ClientId(u128::from(number(1)?) << 64 | u128::from(number(2)?));
            let slot = u32::try_from(number(4)?).map_err(|_| record::damaged("reply", key))?;
            let stored = record::decode_reply(key, slot, value)?;
            let (session, request) = (SessionId(number(3)?), stored.request);
            let origin = ReplyAddress { session, slot, request };
            found.push(Heir { client, origin, reply: stored.reply });
            Ok(())
        })?;
        Ok(found)
    }

    /// The tree that follows, from memory or disk.
    pub(crate) fn following(&self, tree: VolumeId) -> Result<Option<Arc<Followed>>> {
        let mut followed = self.followed.lock();
        if let Some(known) = followed.get(&tree) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(state) = self.stored(tree)?.filter(|state| state.base != 0) else {
            return Ok(None);
        };
        let tree_state = self
            .volumes
            .trees()
            .tree(tree)?
            .ok_or_else(|| StoreError::Damaged(format!("tree of volume {}", tree.0)))?;
        let volume = Arc::new(Volume::new(tree_state, Shows::Incoming));
        let state = Following { stored: state, synced: None };
        let known = Arc::new(Followed { volume, state: Mutex::new(state) });
        followed.insert(tree, Arc::clone(&known));
        Ok(Some(known))
    }

    /// The tree follows no more.
    pub(super) fn forget(&self, tree: VolumeId) {
        self.followed.lock().remove(&tree);
    }

    fn stored(&self, tree: VolumeId) -> Result<Option<StandbyState>> {
        let key = key::standby(tree);
        let value = self.media().engine.get(&key)?;
        value.map(|value| self.decoded(&key, &value)).transpose()
    }

    fn decoded(&self, key: &[u8], value: &[u8]) -> Result<StandbyState> {
        let tree = key::number_at(key, 0).ok_or_else(|| record::damaged("standby", key))?;
        let [base, feed, position, verifier] = record::decode_numbers(key, value)?;
        let is_whole = verifier == self.media().verifier();
        let place = if is_whole { FeedPlace { feed, position } } else { FeedPlace::default() };
        Ok(StandbyState { tree: VolumeId(tree), base, place })
    }

    fn put(&self, state: &StandbyState, batch: &mut Batch) {
        let key = key::standby(state.tree);
        let FeedPlace { feed, position } = state.place;
        let numbers = [state.base, feed, position, self.media().verifier()];
        batch.put(&key, &record::encode_numbers(&key, &numbers));
    }
}

fn remove_replies(tree: VolumeId, batch: &mut Batch) {
    let prefix = key::of_volume(kind::HEIR, tree);
    batch.delete_range(&prefix, &prefix_end(&prefix));
}

/// A header whose read-write volume has standbys, or has none any more.
pub(super) fn with_standbys(stored: &TreeHeader, has_standbys: bool) -> TreeHeader {
    TreeHeader { has_standbys, ..stored.clone() }
}
