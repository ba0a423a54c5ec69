//! Writable clones: a new tree that begins as what a volume shows now, and from then on goes its
//! own way.
//!
//! Model. What the volume shows is sealed, if it is not (`clone.rs`), and in the same batch a tree
//! is there that has this epoch as its *origin* (`origin.rs`): its header, name, number and usage,
//! and the key of the origin where that is encrypted, since the same bytes are read through both.
//! No record and no body is copied, so how many files there are makes no difference. The origin's
//! header counts the clone like a volume that shows the epoch, so nothing that the clone needs is
//! swept, whoever removes the origin's volumes; when the last record of the clone is swept, the
//! batch that says so takes that back (`removal.rs`).
//!
//! Files without names that somebody had open in the volume are nobody's in the clone: it begins
//! without them.

use std::sync::Arc;

use types::{Name, Timestamp, VnodeNo, VolumeId};

use crate::copy_on_write::Aside;
use crate::engine::Batch;
use crate::header::{FIRST_EPOCH, ForkOrigin, TreeHeader};
use crate::key::{self, kind};
use crate::origin::{ORIGINS_MAX, depth};
use crate::record;
use crate::stream::orphans_of;
use crate::tree::EpochView;
use crate::tree_state::{TreeState, put_header};
use crate::volume::Result;
use crate::{Partition, StoreError, Usage, Volume, VolumeQuota};

/// A writable clone that is to be made.
#[derive(Clone, Debug)]
pub struct NewFork {
    /// Its number; `None`: the next one that this partition did not have.
    pub id: Option<VolumeId>,
    /// Its name.
    pub name: Name,
    /// Its limits; `None`: those of the volume, or none if that is read-only.
    pub quota: Option<VolumeQuota>,
    /// When it was made.
    pub now: Timestamp,
}

impl Partition {
    /// Makes a read-write volume that begins as what `of` shows now; stable when it returns.
    ///
    /// # Errors
    /// As [`Partition::clone_volume`]; `Misuse` if there are too many clones of clones below it;
    /// `Locked` if the volume is encrypted and its key is not here.
    pub fn fork_volume(&self, of: VolumeId, new: &NewFork) -> Result<Arc<Volume>> {
        self.sealing(of, &|of, aside| self.fork(of, new, aside))
    }

    /// The batch. Nobody writes the tree that `of` is of.
    fn fork(&self, of: &Volume, new: &NewFork, aside: &[Aside]) -> Result<Arc<Volume>> {
        let media = &self.0.media;
        let trunk = &of.trunk;
        if depth(trunk.origin.as_ref()) + 1 >= ORIGINS_MAX {
            return Err(StoreError::Misuse("there are too many clones of clones below it"));
        }
        let catalog = self.0.catalog.lock();
        let mut batch = Batch::default();
        let mut header = trunk.header.lock();
        let (below, epoch) = self.sealed(of, &header, aside, &mut batch)?;
        let quota = if of.is_writable() { below.quota } else { VolumeQuota::default() };
        let id = self.take_number(&catalog, new.id, &mut batch)?;
        self.take_name(&catalog, &new.name, id, &mut batch)?;
        let fork = TreeHeader {
            name: new.name.clone(),
            created: new.now,
            updated: new.now,
            quota: new.quota.unwrap_or(quota),
            offline: false,
            headless: false,
            incoming: false,
            arriving: false,
            held: false,
            epoch: FIRST_EPOCH,
            sealed: Vec::new(),
            frozen: false,
            base: None,
            origin: Some(ForkOrigin { tree: trunk.id, epoch }),
            ..below.clone()
        };
        put_header(id, &fork, &mut batch);
        let usage = leave_orphans(of, id, aside, &mut batch)?;
        let usage = [usage.bytes as i64, usage.files as i64];
        batch.add(&key::usage(id), &usage);
        // With the same key, since it reads the origin's records and bodies; one that cannot be
        // read has no clone.
        if media.ciphers.of(trunk.id)?.is_some()
            && let Some(wrapped) = media.ciphers.wrapped(trunk.id)?
        {
            media.ciphers.put(id, &wrapped, &mut batch)?;
        }
        let made = trunk.change(&mut header, below, batch);
        made.inspect_err(|_| media.ciphers.forget(id))?;
        trunk.follow(&header.stored);
        drop(header);
        let origin = Arc::new(EpochView { shown: VolumeId(0), ..trunk.head().at(epoch) });
        let volume =
            Arc::new(Volume::head(TreeState::new(media.clone(), id, fork, usage, Some(origin))));
        self.0.residents.lock().add(&volume);
        drop(catalog);
        Ok(volume)
    }
}

/// The clone with this number begins without the files that have no names; says what it uses then.
fn leave_orphans(of: &Volume, id: VolumeId, aside: &[Aside], batch: &mut Batch) -> Result<Usage> {
    let orphans: Vec<VnodeNo> = match of.view_header() {
        Some(view) => view.lock().orphans.clone(),
        None => orphans_of(&of.trunk)?,
    };
    let mut usage = of.usage();
    // What kernels wrote last is in the copies.
    usage.bytes = aside.iter().fold(usage.bytes, |bytes, aside| aside.used(bytes));
    for no in orphans {
        let Some(vnode) = of.vnode(no)?.filter(|vnode| vnode.status.links == 0) else { continue };
        let copied = aside.iter().find(|aside| aside.vnode() == no);
        let used = copied.map_or(vnode.status.used, |aside| aside.used(vnode.status.used));
        let key = key::of_vnode(kind::VNODE, id, no).epoch(FIRST_EPOCH);
        batch.put(&key, &record::tombstone(&key));
        usage =
            Usage { bytes: usage.bytes.saturating_sub(used), files: usage.files.saturating_sub(1) };
    }
    Ok(usage)
}
