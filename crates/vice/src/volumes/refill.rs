//! The next state of a read-only volume, put together from a server that does not count epochs.
//!
//! Model. The tree's head is regained from the volume, offline, under a name that no volume of the
//! cell has ([`types::refilled_name`]). There the state is put together (`assembly.rs`), while the
//! read-only volume goes on showing the one before. Then the head is cloned to the read-only
//! volume, which shows the new state in one batch, and is removed. If a crash ends the work before,
//! a head of that name is left, and the next attempt removes it.

use std::sync::Arc;

use store::NewHead;
use types::{Fault, VolumeKind, refilled_name};

use super::{ViceVolume, Volumes};

/// The head in which the next state of `copy` is put together.
///
/// # Errors
/// `ReadOnly`: it is no read-only volume; `Exists`: its read-write volume is here; `Busy`: what an
/// earlier attempt left is being removed, or a stream comes in; the store's.
pub(super) fn refilled(volumes: &Volumes, copy: &ViceVolume) -> Result<Arc<ViceVolume>, Fault> {
    if copy.store.kind() != VolumeKind::ReadOnly {
        return Err(Fault::ReadOnly);
    }
    let tree = copy.store.tree_id();
    let name = refilled_name(tree);
    let _naming = volumes.begin_naming();
    match volumes.any_volume(tree) {
        Err(Fault::NoVolume) => {}
        Ok(left) if left.store.name() == name && left.store.is_offline() => {
            left.partition.remove_volume(tree)?;
            volumes.forget(tree);
        }
        there => return Err(there.err().unwrap_or(Fault::Exists)),
    }
    let now = copy.store.info().updated;
    copy.partition.volumes().regain_head(copy.store.id(), &name, NewHead::IsRefilled, now)?;
    volumes.any_volume(tree)
}
