//! The file of a body that the tree's origin supplies (`tree/origin.rs`).
//!
//! Gates are taken from a tree towards its origin, never the other way.

use std::sync::Arc;

use types::VnodeNo;

use super::files::open_file;
use crate::error::Result;
use crate::format::names::BodyName;
use crate::media::disk::{BodyFile, Disk, unpack};
use crate::media::gates::ReadGate;
use crate::tree::EpochView;
use crate::{BodyLocation, StoreError, Vnode};

/// The tree that owns the file of a body that the origin supplies; while this exists, the file does
/// not change.
pub(crate) struct FileOwner {
    tree: Arc<EpochView>,
    vnode: Vnode,
    gate: ReadGate,
}

impl FileOwner {
    /// The owner of the file of a body that the origin of `shown` supplies.
    pub(crate) fn find(shown: &EpochView, no: VnodeNo) -> Result<FileOwner> {
        let mut next = shown.origin.clone();
        while let Some(tree) = next {
            let gate = tree.media.gates.gate((tree.id, no)).read_arc();
            match tree.own_vnode(no)? {
                Some(vnode) if matches!(vnode.place, BodyLocation::File { .. }) => {
                    return Ok(FileOwner { tree, vnode, gate });
                }
                _ => next = tree.origin.clone(),
            }
        }
        Err(StoreError::Damaged(format!(
            "vnode {} of tree {}, whose origin has no body of it,",
            no.0, shown.id.0
        )))
    }

    /// Opens the file.
    pub(crate) fn file(&self) -> Result<Arc<dyn BodyFile>> {
        open_file(&self.tree, &self.gate, &self.vnode)
    }

    /// Copies the bytes into a new file.
    pub(super) fn copy(&self, disk: &dyn Disk, to: BodyName) -> Result<Arc<dyn BodyFile>> {
        let failed = |e| StoreError::from_io("copy of a body", &e);
        let from = self.tree.body_name(&self.vnode).expect("a file owner has a file");
        if !from.packed {
            // Otherwise a disk error would not name the owner.
            self.file()?;
            return disk.copy(from, to).map_err(failed);
        }
        let made = disk.create(to).map_err(failed)?;
        unpack(&*self.file()?, &*made).map_err(failed)?;
        Ok(made)
    }
}
