//! Lists of volumes: of the partition, of one tree; orphans; and the state of a tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use types::{VnodeNo, VolumeId};

use super::set::VolumeSet;
use crate::StoreError;
use crate::error::Result;
use crate::format::header::{TreeHeader, Usage, ViewHeader};
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::tree::TreeState;
use crate::tree::facts::{IncomingState, VolumeFacts};
use crate::tree::trees::next_number;

impl VolumeSet {
    /// Up to `max` volumes with numbers above `after`, in their order. VolumeSet with a damaged
    /// header are left out and logged.
    ///
    /// # Errors
    /// `Medium`.
    pub fn list(&self, after: VolumeId, max: usize) -> Result<Vec<VolumeFacts>> {
        let Some(from) = after.0.checked_add(1) else { return Ok(Vec::new()) };
        let mut found = BTreeMap::new();
        let trees = self.trees();
        trees.each_tree(from, max, &mut |id, header| {
            let shown = header.head.has_volume();
            if shown {
                found.insert(id, VolumeFacts::of_head(id, header, Usage::default()));
            }
            shown
        })?;
        let mut left = max;
        trees.each_header(kind::VIEW, from, &mut |id, key, value| {
            found.insert(id, VolumeFacts::of_view(id, ViewHeader::decode(key, value)?));
            left = left.saturating_sub(1);
            Ok(left > 0)
        })?;
        let mut found: Vec<VolumeFacts> = found.into_values().take(max).collect();
        self.fill_usage(&mut found)?;
        for volume in &mut found {
            volume.encrypted = trees.media.ciphers.wrapped_by(volume.tree)?;
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
        self.trees().media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
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

    /// The volumes that show the tree of this one, in the order of their numbers. Without sealed
    /// epochs this reads only the tree's header; otherwise it reads volumes of sealed epochs until
    /// all of the tree's are found.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn group(&self, id: VolumeId) -> Result<Vec<VolumeFacts>> {
        let volume = self.existing(id)?;
        let tree = volume.tree_id();
        let encrypted = self.trees().media.ciphers.wrapped_by(tree)?;
        let mut group: Vec<VolumeFacts> =
            self.volume(tree)?.iter().map(|head| head.info()).collect();
        let mut left: u32 =
            volume.tree_state.header.lock().stored.sealed.iter().map(|sealed| sealed.volumes).sum();
        if left == 0 {
            return Ok(group);
        }
        self.trees().each_header(kind::VIEW, 0, &mut |id, key, value| {
            let header = ViewHeader::decode(key, value)?;
            if header.tree == tree {
                group.push(VolumeFacts { encrypted, ..VolumeFacts::of_view(id, header) });
                left -= 1;
            }
            Ok(left > 0)
        })?;
        group.sort_by_key(|volume| volume.id);
        Ok(group)
    }

    /// Whether a volume shows the tree here, or a stream comes into it. Otherwise only writable
    /// clones need what the partition has of it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn is_in_use(&self, tree: VolumeId) -> Result<bool> {
        let Some(tree_state) = self.trees().tree(tree)? else { return Ok(false) };
        let head = tree_state.header.lock().stored.head;
        Ok(head.has_volume() || head.comes_in() || self.any_view(tree)?.is_some())
    }

    /// The first volume that shows a sealed epoch of the tree. Reads all such volumes of the
    /// partition where there may be one.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn any_view(&self, tree: VolumeId) -> Result<Option<VolumeId>> {
        let tree_state = self.trees().tree(tree)?;
        if tree_state.is_none_or(|tree_state| tree_state.header.lock().stored.sealed.is_empty()) {
            return Ok(None);
        }
        let mut found = None;
        self.trees().each_header(kind::VIEW, 0, &mut |id, key, value| {
            found = (ViewHeader::decode(key, value)?.tree == tree).then_some(id);
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// A volume that shows this epoch of the tree. Reads volumes of sealed epochs until it finds
    /// one.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn view_of(&self, tree: VolumeId, epoch: u64) -> Result<Option<VolumeId>> {
        let mut found = None;
        self.trees().each_header(kind::VIEW, 0, &mut |id, key, value| {
            let header = ViewHeader::decode(key, value)?;
            if (header.tree, header.epoch) == (tree, epoch) {
                found = Some(id);
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// The lowest number above those of all volumes that this partition ever had.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn next_volume(&self) -> Result<VolumeId> {
        Ok(VolumeId(next_number(&self.trees().media)?))
    }

    /// The epochs of a tree that volumes on this partition show, ascending.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn sealed_epochs(&self, tree: VolumeId) -> Result<Vec<u64>> {
        let tree_state = self.trees().tree(tree)?;
        Ok(tree_state.map_or_else(Vec::new, |tree_state| {
            tree_state.header.lock().stored.sealed.iter().map(|sealed| sealed.epoch).collect()
        }))
    }

    /// Whether the partition has the tree, in any volume or as a stream.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn has_tree(&self, tree: VolumeId) -> Result<bool> {
        Ok(self.trees().tree(tree)?.is_some())
    }

    /// The state of the tree here; `None`: the partition does not have it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn tree_standing(&self, tree: VolumeId) -> Result<Option<IncomingState>> {
        Ok(self
            .trees()
            .tree(tree)?
            .map(|tree_state| IncomingState::of(&tree_state.header.lock().stored)))
    }

    /// Records whether the tree is a copy of one on another partition that has precedence; stable
    /// when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `Medium`.
    pub fn tree_arrives(&self, tree: VolumeId, arriving: bool) -> Result<()> {
        let catalog = self.trees().catalog();
        let tree_state = self.trees().tree(tree)?.ok_or(StoreError::NoVolume(tree))?;
        let mut header = tree_state.header.lock();
        if header.stored.arriving != arriving {
            let new = TreeHeader { arriving, ..header.stored.clone() };
            tree_state.change(&mut header, new, Batch::default())?;
        }
        drop((header, catalog));
        self.trees().media.sync()
    }

    /// The epoch of which the tree's read-write volume is a copy, if no client changed it since.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn base_epoch(&self, tree: VolumeId) -> Result<Option<u64>> {
        let base = |tree_state: Arc<TreeState>| {
            tree_state.header.lock().stored.base.map(|base| base.epoch)
        };
        Ok(self.trees().tree(tree)?.and_then(base))
    }

    /// Adds the usage of the read-write volumes, which are in the order of their numbers.
    fn fill_usage(&self, volumes: &mut [VolumeFacts]) -> Result<()> {
        let (Some(first), Some(last)) = (volumes.first(), volumes.last()) else { return Ok(()) };
        let (from, end) = (key::usage(first.id), prefix_end(&key::usage(last.id)));
        let mut rest = volumes.iter_mut().filter(|volume| volume.id == volume.tree).peekable();
        self.trees().media.engine.scan(&from, &end, &mut |key, value| {
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
