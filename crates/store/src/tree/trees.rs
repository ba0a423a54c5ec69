//! The trees of a partition: found by number, listed, loaded; and the lock on numbers and names.
//!
//! A tree is loaded on demand under the lock of the loaded ones, so there is one state of it for
//! all callers. Numbers and names of volumes stay unique (VO-2): a thread that changes the set of
//! volumes holds the [`Catalog`] from the check to the batch.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use types::{Name, VolumeId};

use super::origin::ORIGINS_MAX;
use super::state::TreeState;
use super::view::EpochView;
use crate::StoreError;
use crate::error::Result;
use crate::format::header::{ForkOrigin, HeadState, TreeHeader};
use crate::format::key::{self, kind, which};
use crate::format::record;
use crate::media::Media;
use crate::media::engine::{Batch, Engine};

/// Receives a volume's number and the key and value of its header; returns whether to continue.
type VisitHeader<'a> = dyn FnMut(VolumeId, &[u8], &[u8]) -> Result<bool> + 'a;

/// The trees, see the head of the file.
pub(crate) struct Trees {
    pub(crate) media: Arc<Media>,
    /// Locked while the set of volumes or their names change.
    catalog: Mutex<()>,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    trees: HashMap<VolumeId, Weak<TreeState>>,
    /// The number of entries that starts the next clearing of dead ones.
    clear_at: usize,
}

/// Dead entries are cleared when there are so many more entries than after the last clearing.
const CLEAR_AFTER: usize = 4096;

impl Trees {
    pub(crate) fn new(media: Arc<Media>) -> Trees {
        Trees { media, catalog: Mutex::default(), loaded: Mutex::default() }
    }

    /// Locks the set of volumes and their names.
    pub(crate) fn catalog(&self) -> Catalog<'_> {
        Catalog { media: &self.media, _only: self.catalog.lock() }
    }

    /// The tree with this number, whatever volume shows it, from memory or disk.
    pub(crate) fn tree(&self, id: VolumeId) -> Result<Option<Arc<TreeState>>> {
        let mut loaded = self.loaded.lock();
        if let Some(tree_state) = loaded.trees.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(tree_state));
        }
        let engine = &self.media.engine;
        let key = key::volume(id);
        let Some(value) = engine.get(&key)? else { return Ok(None) };
        let header = TreeHeader::decode(&key, &value)?;
        let key = key::usage(id);
        let usage = engine.get(&key)?.ok_or_else(|| record::damaged("usage", &key))?;
        let usage = record::decode_usage(&key, &usage)?;
        let origin = self.origin_at(header.origin, ORIGINS_MAX)?;
        let tree_state = TreeState::new(self.media.clone(), id, header, usage, origin);
        if loaded.trees.len() >= loaded.clear_at.max(CLEAR_AFTER) {
            loaded.trees.retain(|_, tree_state| tree_state.strong_count() > 0);
            loaded.clear_at = loaded.trees.len() + CLEAR_AFTER;
        }
        loaded.trees.insert(id, Arc::downgrade(&tree_state));
        Ok(Some(tree_state))
    }

    /// The tree with this number, if its head has an owner or had one until a stream was taken
    /// back.
    pub(crate) fn writer(&self, id: VolumeId) -> Result<Option<Arc<TreeState>>> {
        Ok(self.tree(id)?.filter(|tree_state| tree_state.head_state() != HeadState::Unowned))
    }

    /// Forgets a tree that no volume shows any more.
    pub(crate) fn forget(&self, tree: VolumeId) {
        self.loaded.lock().trees.remove(&tree);
    }

    /// The view of the origin of a tree.
    ///
    /// # Errors
    /// `Damaged` if the origin is missing or the chain has no end; `Medium`.
    fn origin_at(&self, origin: Option<ForkOrigin>, left: usize) -> Result<Option<Arc<EpochView>>> {
        let Some(ForkOrigin { tree: id, epoch }) = origin else { return Ok(None) };
        let damaged = || StoreError::Damaged(format!("tree {}, the origin of another,", id.0));
        let left = left.checked_sub(1).ok_or_else(damaged)?;
        let key = key::volume(id);
        let header = TreeHeader::decode(&key, &self.media.engine.get(&key)?.ok_or_else(damaged)?)?;
        let origin = self.origin_at(header.origin, left)?;
        let (media, hash_key) = (Arc::clone(&self.media), header.hash_key);
        let (shown, floor) = (VolumeId(0), epoch);
        Ok(Some(Arc::new(EpochView { media, id, shown, epoch, floor, hash_key, origin })))
    }

    /// Trees from number `from` on, until `visit` has returned `true` `max` times.
    pub(crate) fn each_tree(
        &self,
        from: u64,
        max: usize,
        visit: &mut dyn FnMut(VolumeId, TreeHeader) -> bool,
    ) -> Result<()> {
        let mut left = max;
        self.each_header(kind::VOLUME, from, &mut |id, key, value| {
            let header = TreeHeader::decode(key, value)?;
            left -= usize::from(left > 0 && visit(id, header));
            Ok(left > 0)
        })
    }

    /// Visits headers from number `from` on, until `visit` stops it. Damaged headers are skipped.
    pub(crate) fn each_header(
        &self,
        kind: u8,
        from: u64,
        visit: &mut VisitHeader<'_>,
    ) -> Result<()> {
        let from = key::of_volume(kind, VolumeId(from));
        self.media.engine.scan(&from, &[kind + 1], &mut |key, value| {
            let Some(id) = key::number_at(key, 0) else { return ControlFlow::Continue(()) };
            match visit(VolumeId(id), key, value) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    tracing::error!(%error, "a damaged header: the list omits its volume");
                    ControlFlow::Continue(())
                }
            }
        })
    }
}

/// The lock on the set of volumes and their names.
pub(crate) struct Catalog<'a> {
    media: &'a Media,
    _only: MutexGuard<'a, ()>,
}

impl Catalog<'_> {
    /// The number of a new volume: the wanted one, or the next.
    pub(crate) fn take_number(
        &self,
        wanted: Option<VolumeId>,
        batch: &mut Batch,
    ) -> Result<VolumeId> {
        let next = next_number(self.media)?;
        let id = wanted.unwrap_or(VolumeId(next));
        if id.0 == 0 || id.0 == u64::MAX {
            return Err(StoreError::Misuse("no volume has this number"));
        }
        let engine = &self.media.engine;
        for key in [key::volume(id), key::view(id)] {
            if engine.get(&key)?.is_some() {
                return Err(StoreError::Taken("number"));
            }
        }
        if engine.get(&key::removal(id))?.is_some() {
            return Err(StoreError::Busy(
                "the sweep of the volume removed under this number is not complete",
            ));
        }
        if id.0 >= next {
            let key = key::partition(which::NEXT_VOLUME);
            batch.put(&key, &record::encode_numbers(&key, &[id.0 + 1]));
        }
        Ok(id)
    }

    /// Assigns the name to the volume.
    pub(crate) fn take_name(&self, name: &Name, id: VolumeId, batch: &mut Batch) -> Result<()> {
        if self.media.engine.get(&key::name(name.as_bytes()))?.is_some() {
            return Err(StoreError::Taken("name"));
        }
        put_name(name, id, batch);
        Ok(())
    }
}

/// The lowest number above those of all volumes that this partition ever had.
pub(crate) fn next_number(media: &Media) -> Result<u64> {
    Ok(media.number(&key::partition(which::NEXT_VOLUME))?.unwrap_or(1))
}

/// Records that the name is the volume's.
pub(crate) fn put_name(name: &Name, id: VolumeId, batch: &mut Batch) {
    let key = key::name(name.as_bytes());
    batch.put(&key, &record::encode_numbers(&key, &[id.0]));
}
