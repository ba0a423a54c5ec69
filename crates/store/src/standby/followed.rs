//! The trees for which a partition stands by.

use std::sync::Arc;

use bytes::Bytes;
use types::{ClientId, FeedPlace, Name, SessionId, Timestamp, VolumeId};

use crate::StoreError;
use crate::error::Result;
use crate::volume::Volume;
use crate::volume::set::VolumeSet;

const NOT_BUILT: StoreError = StoreError::Misuse("not built");

/// A tree for which this partition stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyState {
    /// The number of the tree.
    pub tree: VolumeId,
    /// The epoch of the base with which it follows; 0: it does not follow.
    pub base: u64,
    /// What was applied.
    pub place: FeedPlace,
}

/// See the head of the file.
pub struct Standbys {
    volumes: Arc<VolumeSet>,
}

impl Standbys {
    pub(crate) fn new(volumes: Arc<VolumeSet>) -> Standbys {
        Standbys { volumes }
    }

    /// The partition stands by for the tree from now on; stable when it returns. Repeating it does
    /// nothing.
    ///
    /// # Errors
    /// `Medium`.
    pub fn add(&self, _tree: VolumeId) -> Result<()> {
        Err(NOT_BUILT)
    }

    /// The partition no longer stands by for the tree; what was applied is dropped, volumes of
    /// sealed epochs stay. Repeating it does nothing.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove(&self, _tree: VolumeId) -> Result<()> {
        Err(NOT_BUILT)
    }

    /// All of them. Costs what their number is, not that of volumes.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn list(&self) -> Result<Vec<StandbyState>> {
        Err(NOT_BUILT)
    }

    /// Begins to follow: the head is what `base` shows, the newest sealed epoch of the tree.
    ///
    /// # Errors
    /// `NoVolume` if there is no such base; `Taken` if the tree has a read-write volume; `Misuse` if
    /// the partition does not stand by for the tree, or it has a newer epoch; `Busy` while a stream
    /// comes in or removed records are swept; `Medium`.
    pub fn begin(&self, _base: VolumeId, _place: FeedPlace) -> Result<()> {
        Err(NOT_BUILT)
    }

    /// Drops what was applied, so that a stream can come in. The base stays. Its room is given back
    /// in the background: `begin_incoming` is `Busy` until then.
    ///
    /// # Errors
    /// `Medium`.
    pub fn drop_applied(&self, _tree: VolumeId) -> Result<()> {
        Err(NOT_BUILT)
    }

    /// Applies entries that begin at the tree's place, or before it; returns the place behind them.
    /// It survives the death of the process, and is on disk after [`crate::Partition::sync_tree`].
    ///
    /// # Errors
    /// `NoStream` if they do not belong here, are damaged, or do not fit to what is here: the
    /// standby needs a new base; `NoVolume` if it does not follow; `NoSpace`, `Medium`.
    pub fn apply(&self, _tree: VolumeId, _entries: &Bytes) -> Result<FeedPlace> {
        Err(NOT_BUILT)
    }

    /// Everything that was applied is on disk when it returns.
    ///
    /// # Errors
    /// `NoVolume` if it does not follow; `Medium`.
    pub fn sync(&self, _tree: VolumeId) -> Result<FeedPlace> {
        Err(NOT_BUILT)
    }

    /// Makes the read-write volume of what was applied, in a new generation of epochs, *arriving*;
    /// the partition no longer stands by. All of it is on disk when it returns.
    ///
    /// # Errors
    /// `NoVolume` if it does not follow; `Taken` if another volume has the name; `Medium`.
    pub fn take_over(&self, _tree: VolumeId, _name: &Name, _now: Timestamp) -> Result<Arc<Volume>> {
        Err(NOT_BUILT)
    }

    /// The number and record of the last reply to a client's slot that came through the feed of a
    /// volume that took over here.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn reply(
        &self,
        _tree: VolumeId,
        _client: ClientId,
        _session: SessionId,
        _slot: u32,
    ) -> Result<Option<(u64, Bytes)>> {
        let _ = &self.volumes;
        Err(NOT_BUILT)
    }
}
