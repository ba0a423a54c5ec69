//! Writable clones: a new tree that begins as the present state of a volume and then changes
//! independently.
//!
//! Model. The volume's state is sealed, if it is not (`clone.rs`), and the same batch creates a
//! tree with this epoch as its *origin* (`origin.rs`): its header, name, number and usage, and the
//! key of the origin where that is encrypted, since the same bytes are read through both. No record
//! and no body is copied, so the cost does not depend on the number of files. The origin's header
//! counts the clone like a volume that shows the epoch, so nothing that the clone needs is swept
//! when the origin's volumes are removed; the batch that sweeps the last record of the clone ends
//! that (`removal.rs`).
//!
//! A clone begins without the orphans of the volume, which only clients of the volume have open.

use std::sync::Arc;

use types::{Name, Timestamp, VnodeNo, VolumeId};

use super::Volume;
use super::set::VolumeSet;
use crate::StoreError;
use crate::body::seal_copies::SealCopies;
use crate::error::Result;
use crate::format::header::{FIRST_EPOCH, ForkOrigin, HeadState, TreeHeader, Usage, VolumeQuota};
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::Batch;
use crate::tree::origin::{ORIGINS_MAX, depth};
use crate::tree::state::{orphans_of, put_header};

/// The parameters of a new writable clone.
#[derive(Clone, Debug)]
pub struct NewFork {
    /// The number; `None`: the next one that this partition did not use.
    pub id: Option<VolumeId>,
    /// The name of the clone.
    pub name: Name,
    /// The limits; `None`: those of the volume, or no limits if the volume is read-only.
    pub quota: Option<VolumeQuota>,
    /// When the clone was created.
    pub now: Timestamp,
}

impl VolumeSet {
    /// Creates a read-write volume that begins as the present state of `of`; stable when it
    /// returns.
    ///
    /// # Errors
    /// As [`VolumeSet::clone_volume`]; `Misuse` if there are too many clones of clones below it;
    /// `Locked` if the volume is encrypted and its key is missing.
    pub fn fork_volume(&self, of: VolumeId, new: &NewFork) -> Result<Arc<Volume>> {
        self.sealing(of, &|of, seal_copies| self.fork(of, new, seal_copies))
    }

    /// Creates the clone in one batch. The tree of `of` has no writers.
    fn fork(&self, of: &Volume, new: &NewFork, seal_copies: &SealCopies) -> Result<Arc<Volume>> {
        let media = &self.trees().media;
        let tree_state = &of.tree_state;
        if depth(tree_state.origin.as_ref()) + 1 >= ORIGINS_MAX {
            return Err(StoreError::Misuse("there are too many clones of clones below it"));
        }
        let catalog = self.trees().catalog();
        let mut batch = Batch::default();
        let mut header = tree_state.header.lock();
        let (below, epoch) = self.sealed(of, &header, seal_copies, &mut batch)?;
        assert!(
            below.sealed.iter().any(|sealed| sealed.epoch == epoch),
            "VO-3: the origin counts the clone as a volume that shows the epoch"
        );
        let quota = if of.is_writable() { below.quota } else { VolumeQuota::default() };
        let id = catalog.take_number(new.id, &mut batch)?;
        catalog.take_name(&new.name, id, &mut batch)?;
        let fork = TreeHeader {
            name: new.name.clone(),
            created: new.now,
            updated: new.now,
            quota: new.quota.unwrap_or(quota),
            offline: false,
            head: HeadState::Serving,
            arriving: false,
            has_standbys: false,
            epoch: FIRST_EPOCH,
            sealed: Vec::new(),
            base: None,
            origin: Some(ForkOrigin { tree: tree_state.id, epoch }),
            ..below.clone()
        };
        put_header(id, &fork, &mut batch);
        let usage = leave_orphans(of, id, seal_copies, &mut batch)?;
        batch.add(&key::usage(id), &[usage.bytes as i64, usage.files as i64]);
        // With the same key, since the clone reads the origin's records and bodies; a volume
        // without its key cannot be cloned.
        if media.ciphers.of(tree_state.id)?.is_some()
            && let Some(wrapped) = media.ciphers.wrapped(tree_state.id)?
        {
            media.ciphers.put(id, &wrapped, &mut batch)?;
        }
        let made = tree_state.change(&mut header, below, batch);
        made.inspect_err(|_| media.ciphers.forget(id))?;
        tree_state.follow_header(&header.stored);
        drop(header);
        self.existing(id)
    }
}

/// Removes the orphans from the clone with this number; returns its usage then.
fn leave_orphans(
    of: &Volume,
    id: VolumeId,
    seal_copies: &SealCopies,
    batch: &mut Batch,
) -> Result<Usage> {
    let orphans: Vec<VnodeNo> = match of.view_header() {
        Some(view) => view.lock().orphans.clone(),
        None => orphans_of(&of.tree_state)?,
    };
    let mut usage = of.usage();
    // The copies contain the last writes of kernels.
    usage.bytes = seal_copies.used(usage.bytes);
    for no in orphans {
        let Some(vnode) = of.vnode(no)?.filter(|vnode| vnode.status.links == 0) else { continue };
        let used = seal_copies.used_by(no, vnode.status.used);
        let key = key::of_vnode(kind::VNODE, id, no).epoch(FIRST_EPOCH);
        batch.put(&key, &record::tombstone(&key));
        usage =
            Usage { bytes: usage.bytes.saturating_sub(used), files: usage.files.saturating_sub(1) };
    }
    Ok(usage)
}
