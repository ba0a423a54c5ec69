//! Slots for new vnodes: never allocated twice, even after a crash.

use types::{Fid, Uniquifier, VnodeNo, VnodeSlots};

use super::state::TreeState;
use crate::error::Result;

/// Allocates slots of a tree that takes changes.
pub struct SlotAllocator<'a> {
    tree_state: &'a TreeState,
}

impl SlotAllocator<'_> {
    pub(crate) fn new(tree_state: &TreeState) -> SlotAllocator<'_> {
        SlotAllocator { tree_state }
    }

    /// A vnode number that was never used and will not be used again, even if the machine loses
    /// power now.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate(&self, directory: bool) -> Result<(VnodeNo, Uniquifier)> {
        let (tree, slot) = (self.tree_state.id, self.allocate_slot()?);
        let fid = Fid::of_slot(tree, slot, directory, self.tree_state.key_of_slot(tree, slot));
        Ok((fid.vnode, fid.unique))
    }

    /// A slot for a new vnode, never used before and never allocated again, even after a crash.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate_slot(&self) -> Result<u64> {
        self.tree_state.allocate_slot()
    }

    /// Vnodes come in with the numbers that they have elsewhere, up to this one: neither these nor
    /// any that is reserved now is allocated. Returns the first number that may be.
    ///
    /// # Errors
    /// `Medium`.
    pub fn take_numbers(&self, last: VnodeNo) -> Result<VnodeNo> {
        Ok(VnodeNo(2 * self.tree_state.take_slots(last.0 / 2)?))
    }

    /// A run of slots that share a key, for a session that makes files itself; with the same
    /// promise.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate_run(&self) -> Result<VnodeSlots> {
        self.tree_state.allocate_run(self.tree_state.id)
    }
}
