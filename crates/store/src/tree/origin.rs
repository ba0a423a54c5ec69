//! Origins: trees that begin as a sealed epoch of another, writable clones (`fork.rs`).
//!
//! Model. Such a tree has an *origin*: a tree of the same partition and a sealed epoch of it, which
//! the origin's header counts as shown for as long as the clone's tree exists. The clone's own
//! records are those that changed since; where it has no record, not even a tombstone, readers see
//! the origin's at that epoch, and the origin may have an origin itself. Keys differ only by the
//! number of the tree; hashes of names and numbers of vnodes are the same. So the creation of a
//! clone copies nothing, and a read costs one more search per origin. An erasure leaves a tombstone
//! over the origin's record, as over a sealed epoch's.
//!
//! *Bodies.* A body in a file of the origin is [`BodyLocation::Origin`] here: the records of the
//! clone and of its sealed epochs never name a file of another tree, because the origin may give
//! its sealed epochs a copy (`copy_on_write.rs`) or a packed file (`pack.rs`) at any time. A reader
//! of such a body finds the file's name under the gate of the body in the tree that names it, and
//! holds that gate as readers of a sealed epoch do (`body/origin_body.rs`). The first change gives
//! the clone's head a file of its own, with the same bytes; checksums of blocks stay in place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use types::VnodeNo;

use super::generation;
use super::view::EpochView;
use crate::error::Result;
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::{Engine, prefix_end};
use crate::{BodyLocation, Vnode};

/// The most origins below a tree: each costs one more search for unchanged records.
pub(crate) const ORIGINS_MAX: usize = 32;
/// Records that one step reads where two trees are merged. Unit tests have few.
const RECORDS_AT_ONCE: usize = if cfg!(test) { 3 } else { 256 };

/// Receives the part of a record's key behind the prefix, without the epoch; the key; and the
/// value.
pub(crate) type VisitRecord<'a> = dyn FnMut(&[u8], &[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Records by the part of their keys behind the prefix: keys and values.
type Records = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

impl EpochView {
    /// The same prefix of keys in this tree.
    pub(crate) fn own_key(&self, prefix: &[u8]) -> Vec<u8> {
        let mut own = prefix.to_vec();
        own[1..9].copy_from_slice(&self.id.0.to_be_bytes());
        own
    }

    /// Whether the origin shows a record under the prefix.
    pub(crate) fn inherits(&self, prefix: &[u8]) -> Result<bool> {
        let Some(origin) = &self.origin else { return Ok(false) };
        let found = origin.newest(&origin.own_key(prefix), origin.epoch)?;
        Ok(found.is_some_and(|(_, value)| !record::is_tombstone(&value)))
    }

    /// How much higher versions are for readers of the epoch than in the record, which may be the
    /// origin's.
    fn raise(&self, key: &[u8], epoch: u64) -> u64 {
        if key::number_at(key, 0) == Some(self.id.0) {
            return generation::raise(key::epoch_of(key), epoch);
        }
        let below = self.origin.as_ref().map_or(0, |origin| origin.raise(key, origin.epoch));
        below + generation::raise(0, epoch)
    }

    /// A vnode as this tree shows it in an epoch; its record may be the origin's.
    pub(crate) fn as_shown(&self, key: &[u8], epoch: u64, mut vnode: Vnode) -> Vnode {
        let raise = self.raise(key, epoch);
        vnode.status.data_version = vnode.status.data_version.raised(raise);
        vnode.status.status_version = vnode.status.status_version.raised(raise);
        if key::number_at(key, 0) == Some(self.id.0) {
            return vnode;
        }
        let place = if vnode.place.is_file() { BodyLocation::Origin } else { vnode.place };
        // No kernel has a file of this tree's vnode yet, and its files are numbered from the start.
        Vnode { place, generations: 0, own_since: 0, handed: false, ..vnode }
    }

    /// Visits the newest record of every kind under `under`, in order from `from` on, including
    /// tombstones.
    pub(crate) fn each_newest(
        &self,
        under: &[u8],
        from: &[u8],
        visit: &mut VisitRecord<'_>,
    ) -> Result<()> {
        match &self.origin {
            Some(origin) => self.each_merged(origin, under, from, visit),
            None => self.each_newest_here(under, from, visit),
        }
    }

    fn each_newest_here(
        &self,
        under: &[u8],
        from: &[u8],
        visit: &mut VisitRecord<'_>,
    ) -> Result<()> {
        let mut last: Vec<u8> = Vec::new();
        let first = [under, from].concat();
        self.media.engine.scan(&first, &prefix_end(under), &mut |key, value| {
            let tail = &key[under.len()..key.len() - key::EPOCH_BYTES];
            if key::epoch_of(key) > self.epoch || last == tail {
                return ControlFlow::Continue(());
            }
            last.clear();
            last.extend_from_slice(tail);
            visit(tail, key, value)
        })
    }

    fn each_merged(
        &self,
        origin: &EpochView,
        under: &[u8],
        from: &[u8],
        visit: &mut VisitRecord<'_>,
    ) -> Result<()> {
        let mut from = from.to_vec();
        loop {
            let (own, more_own) = some(&mut |visit| self.each_newest_here(under, &from, visit))?;
            let below = origin.own_key(under);
            let (mut merged, more_below) =
                some(&mut |visit| origin.each_newest(&below, &from, visit))?;
            let last = |records: &Records| records.last_key_value().map(|(tail, _)| tail.clone());
            let ends = [
                more_own.then(|| last(&own)).flatten(),
                more_below.then(|| last(&merged)).flatten(),
            ];
            let end = ends.into_iter().flatten().min();
            merged.extend(own);
            for (tail, (key, value)) in &merged {
                if end.as_ref().is_some_and(|end| tail > end) {
                    break;
                }
                if visit(tail, key, value).is_break() {
                    return Ok(());
                }
            }
            let Some(end) = end else { return Ok(()) };
            // Behind all epochs of that record.
            from = [&end[..], &[0xff; key::EPOCH_BYTES + 1]].concat();
        }
    }

    /// Visits the numbers of vnodes in order from one on; also of some that are not shown.
    pub(crate) fn each_vnode_no(
        &self,
        from: VnodeNo,
        visit: &mut dyn FnMut(VnodeNo) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = key::of_volume(kind::VNODE, self.id);
        self.each_newest(&prefix, &from.0.to_be_bytes(), &mut |_, key, _| {
            key::number_at(key, 1).map_or(ControlFlow::Continue(()), |no| visit(VnodeNo(no)))
        })
    }
}

/// The number of trees below one with this origin.
pub(crate) fn depth(origin: Option<&Arc<EpochView>>) -> usize {
    origin.map_or(0, |origin| 1 + depth(origin.origin.as_ref()))
}

/// Collects the first records of a visit, and whether there are more.
fn some(each: &mut dyn FnMut(&mut VisitRecord<'_>) -> Result<()>) -> Result<(Records, bool)> {
    let (mut records, mut more) = (Records::new(), false);
    each(&mut |tail, key, value| {
        more = records.len() == RECORDS_AT_ONCE;
        if more {
            return ControlFlow::Break(());
        }
        records.insert(tail.to_vec(), (key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok((records, more))
}
