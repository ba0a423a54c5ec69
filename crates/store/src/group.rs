//! Volumes of one tree, and numbers for new ones.

use types::VolumeId;

use crate::header::ViewHeader;
use crate::key::{self, kind};
use crate::partition::which;
use crate::volume::Result;
use crate::volume_facts::VolumeFacts;
use crate::{Partition, StoreError};

impl Partition {
    /// The volumes that show the tree of this one, in the order of their numbers. Without sealed
    /// epochs this reads only the tree's header; otherwise it reads volumes of sealed epochs until
    /// all of the tree's are found.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn group(&self, id: VolumeId) -> Result<Vec<VolumeFacts>> {
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        let tree = volume.tree_id();
        let encrypted = self.0.media.ciphers.wrapped_by(tree)?;
        let mut group: Vec<VolumeFacts> =
            self.volume(tree)?.iter().map(|head| head.info()).collect();
        let mut left: u32 =
            volume.tree_state.header.lock().stored.sealed.iter().map(|sealed| sealed.volumes).sum();
        if left == 0 {
            return Ok(group);
        }
        self.each_header(kind::VIEW, 0, &mut |id, key, value| {
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

    /// The first volume that shows a sealed epoch of the tree. Reads all such volumes of the
    /// partition where there may be one.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn any_view(&self, tree: VolumeId) -> Result<Option<VolumeId>> {
        let tree_state = self.tree_of(tree)?;
        if tree_state.is_none_or(|tree_state| tree_state.header.lock().stored.sealed.is_empty()) {
            return Ok(None);
        }
        let mut found = None;
        self.each_header(kind::VIEW, 0, &mut |id, key, value| {
            found = (ViewHeader::decode(key, value)?.tree == tree).then_some(id);
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Whether a volume shows the tree here, or a stream comes into it. Otherwise only writable
    /// clones need what the partition has of it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn is_in_use(&self, tree: VolumeId) -> Result<bool> {
        let Some(tree_state) = self.tree_of(tree)? else { return Ok(false) };
        let is_written = {
            let header = &tree_state.header.lock().stored;
            !header.headless || header.incoming
        };
        Ok(is_written || self.any_view(tree)?.is_some())
    }

    /// A volume that shows this epoch of the tree. Reads volumes of sealed epochs until it finds
    /// one.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn view_of(&self, tree: VolumeId, epoch: u64) -> Result<Option<VolumeId>> {
        let mut found = None;
        self.each_header(kind::VIEW, 0, &mut |id, key, value| {
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
        Ok(VolumeId(self.number(&key::partition(which::NEXT_VOLUME))?.unwrap_or(1)))
    }
}
