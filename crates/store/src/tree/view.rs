//! The records of one tree as one of its epochs shows them.
//!
//! Every record of the tree carries the epoch that wrote it. A reader of epoch E sees under a
//! prefix the newest record not newer than E. A tree that was never sealed has all its records in
//! its first epoch, so one exact get finds them; in a later epoch a miss needs a scan.
//!
//! Only the head takes writes. Up to the newest sealed epoch that a volume shows, the *floor*,
//! records never change; only the head sees newer ones. So a put replaces records newer than the
//! floor, and an erasure leaves a tombstone only over an older one. Records newer than the floor in
//! other epochs than the head's own exist only after the volume of a sealed epoch was removed. So
//! between two shown sealed epochs a prefix has at most one record, except for those that wait for
//! the sweep after a removal.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use siphasher::sip::SipHasher13;
use types::{Cookie, VnodeNo, VolumeId};

use crate::error::Result;
use crate::format::header::FIRST_EPOCH;
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record::{self, BucketEntry, GROUP_BLOCKS, Sums};
use crate::media::Media;
use crate::media::engine::{Engine, prefix_end};
use crate::{BodyLocation, StoredEntry, Vnode};

/// The bits of a hash that select the bucket: the low 4 hold the index in the bucket, the top 2
/// stay 0 so that cookies are positive as signed numbers. Unit tests use few buckets, so that
/// collisions are common.
const HASH_MASK: u64 = if cfg!(test) { 0x3f0 } else { 0x3fff_ffff_ffff_fff0 };

/// A view of a tree in one epoch, see the head of the file.
pub(crate) struct EpochView {
    pub(crate) media: Arc<Media>,
    /// The tree's number, part of its keys.
    pub(crate) id: VolumeId,
    /// The number of the volume that shows the view, part of fids.
    pub(crate) shown: VolumeId,
    /// The epoch that readers see; in the head, the one that takes writes.
    pub(crate) epoch: u64,
    /// The newest shown sealed epoch; 0: none.
    pub(crate) floor: u64,
    pub(crate) hash_key: u128,
    /// The view of the origin, for records that this tree does not have (`origin.rs`).
    pub(crate) origin: Option<Arc<EpochView>>,
}

impl EpochView {
    /// The newest record under `prefix` not newer than `epoch`, or the origin's, with its key.
    pub(crate) fn newest(&self, prefix: &[u8], epoch: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match (self.newest_here(prefix, epoch)?, &self.origin) {
            (None, Some(origin)) => origin.newest(&origin.own_key(prefix), origin.epoch),
            (found, _) => Ok(found),
        }
    }

    fn newest_here(&self, prefix: &[u8], epoch: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let exact = [prefix, &(!epoch).to_be_bytes()].concat();
        if let Some(value) = self.media.engine.get(&exact)? {
            return Ok(Some((exact, value)));
        }
        if self.epoch == FIRST_EPOCH {
            return Ok(None);
        }
        let mut found = None;
        self.media.engine.scan(&exact, &prefix_end(prefix), &mut |key, value| {
            if key.len() == exact.len() {
                found = Some((key.to_vec(), value.to_vec()));
            }
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The key for a new record under `prefix`.
    pub(crate) fn current(&self, prefix: &[u8]) -> Vec<u8> {
        [prefix, &(!self.epoch).to_be_bytes()].concat()
    }

    /// Whether older epochs or the origin may have records.
    pub(crate) fn is_layered(&self) -> bool {
        self.epoch > FIRST_EPOCH || self.origin.is_some()
    }

    /// Whether a sealed epoch is shown, so that erased records may still be visible.
    pub(crate) fn is_sealed(&self) -> bool {
        self.floor > 0
    }

    /// Whether only the head sees the vnode's body file, or there is none.
    pub(crate) fn owns(&self, vnode: &Vnode) -> bool {
        match vnode.place {
            BodyLocation::File { epoch, .. } => epoch.max(vnode.own_since) > self.floor,
            BodyLocation::None | BodyLocation::Inline => true,
            BodyLocation::Origin => false,
        }
    }

    /// Whether the vnode's body file goes with the head's record, because no sealed epoch names it.
    /// A head that does not own it may be alone with it still: the volume of the epoch that it was
    /// shared with may be gone since.
    pub(crate) fn alone_names(&self, vnode: &Vnode) -> bool {
        if self.owns(vnode) {
            return true;
        }
        let file = |place: &BodyLocation| match place {
            BodyLocation::File { epoch, generation, .. } => Some((*epoch, *generation)),
            _ => None,
        };
        let Some(wanted) = file(&vnode.place) else { return false };
        let prefix = key::of_vnode(kind::VNODE, self.id, vnode.no());
        let mut is_named = false;
        let mut look = |key: &[u8], value: &[u8]| {
            is_named |= match record::decode_vnode(key, self.id, vnode.no(), value) {
                Ok(old) => old.is_some_and(|old| file(&old.place) == Some(wanted)),
                // It may name the file: scrub reports it.
                Err(_) => true,
            };
            ControlFlow::Continue(())
        };
        let from = prefix.epoch(self.floor);
        let looked = self.media.engine.scan(&from, &prefix_end(&prefix), &mut look);
        looked.is_ok() && !is_named
    }

    /// The name of the file of a body; `None`: no file of this tree has it.
    pub(crate) fn body_name(&self, vnode: &Vnode) -> Option<BodyName> {
        BodyName::at(self.id, vnode.no(), vnode.place)
    }

    /// Whether this is the view that takes writes.
    pub(crate) fn is_head(&self) -> bool {
        self.shown == self.id && self.epoch > self.floor
    }

    /// Whether records of other epochs than the head's own may exist that only the head sees.
    pub(crate) fn has_gap(&self) -> bool {
        self.is_layered() && self.epoch > self.floor + 1
    }

    /// The same tree in an older epoch that a volume shows.
    pub(crate) fn at(&self, epoch: u64) -> EpochView {
        debug_assert!(epoch <= self.epoch, "VO-1: no volume shows an epoch before it is sealed");
        EpochView {
            media: Arc::clone(&self.media),
            epoch,
            floor: epoch,
            origin: self.origin.clone(),
            ..*self
        }
    }

    pub(crate) fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        self.vnode_at(no, self.epoch)
    }

    /// Vnodes in ascending order of their numbers, each with its own error.
    pub(crate) fn vnodes(&self, nos: &[VnodeNo]) -> Result<Vec<Result<Option<Vnode>>>> {
        if self.is_layered() {
            return Ok(nos.iter().map(|no| self.vnode(*no)).collect());
        }
        let keys: Vec<key::Key> = nos
            .iter()
            .map(|no| key::of_vnode(kind::VNODE, self.id, *no).epoch(self.epoch))
            .collect();
        let values = self.media.engine.get_many(&keys)?;
        let decode = |((no, key), value): ((&VnodeNo, &key::Key), Option<Vec<u8>>)| match value {
            Some(value) => record::decode_vnode(key, self.shown, *no, &value),
            None => Ok(None),
        };
        Ok(nos.iter().zip(&keys).zip(values).map(decode).collect())
    }

    pub(crate) fn vnode_at(&self, no: VnodeNo, epoch: u64) -> Result<Option<Vnode>> {
        match self.newest(&key::of_vnode(kind::VNODE, self.id, no), epoch)? {
            Some((key, value)) => {
                let vnode = record::decode_vnode(&key, self.shown, no, &value)?;
                Ok(vnode.map(|vnode| self.as_shown(&key, epoch, vnode)))
            }
            None => Ok(None),
        }
    }

    /// A vnode from this tree's records; `None` also if only the origin may have it.
    pub(crate) fn own_vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        match self.newest_here(&key::of_vnode(kind::VNODE, self.id, no), self.epoch)? {
            Some((key, value)) => record::decode_vnode(&key, self.shown, no, &value),
            None => Ok(None),
        }
    }

    pub(crate) fn inline(&self, no: VnodeNo) -> Result<Option<Bytes>> {
        match self.newest(&key::of_vnode(kind::INLINE, self.id, no), self.epoch)? {
            Some((key, value)) => {
                let bytes = record::decode_bytes("inline body", &key, value)?;
                bytes.map(|bytes| self.media.ciphers.open_inline(self.id, no, bytes)).transpose()
            }
            None => Ok(None),
        }
    }

    pub(crate) fn sums(&self, no: VnodeNo, group: u64) -> Result<Sums> {
        match self.newest(&key::sums(self.id, no, group), self.epoch)? {
            Some((key, value)) => self.media.ciphers.decode_sums(self.id, no, &key, &value),
            None => Ok([0; GROUP_BLOCKS as usize]),
        }
    }

    /// Encodes the record of a group's sums, encrypted if the tree is.
    pub(crate) fn encode_sums(&self, no: VnodeNo, key: &[u8], sums: &Sums) -> Result<Vec<u8>> {
        self.media.ciphers.encode_sums(self.id, no, key, sums)
    }

    /// Visits the groups that are not all holes, in order, starting with `from`.
    pub(crate) fn each_group(
        &self,
        no: VnodeNo,
        from: u64,
        visit: &mut dyn FnMut(u64, Sums) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = key::of_vnode(kind::SUMS, self.id, no);
        let mut result = Ok(());
        self.each_newest(&prefix, &from.to_be_bytes(), &mut |_, key, value| {
            let Some(group) = key::number_at(key, 2) else { return ControlFlow::Continue(()) };
            match self.media.ciphers.decode_sums(self.id, no, key, value) {
                Ok(sums) => visit(group, sums),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }

    /// The hash of a name in this tree.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.hash_key as u64, (self.hash_key >> 64) as u64).hash(name)
            & HASH_MASK
    }

    pub(crate) fn bucket(&self, dir: VnodeNo, hash: u64) -> Result<Vec<BucketEntry>> {
        self.bucket_at(dir, hash, self.epoch)
    }

    pub(crate) fn bucket_at(
        &self,
        dir: VnodeNo,
        hash: u64,
        epoch: u64,
    ) -> Result<Vec<BucketEntry>> {
        match self.newest(&key::entries(self.id, dir, hash), epoch)? {
            Some((key, value)) => record::decode_bucket(&key, &value),
            None => Ok(Vec::new()),
        }
    }

    /// Visits a directory's entries from `cookie` on, in cookie order.
    pub(crate) fn each_entry(
        &self,
        dir: VnodeNo,
        Cookie(cookie): Cookie,
        visit: &mut dyn FnMut(StoredEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_bucket(dir, cookie & !0xf, &mut |hash, bucket| {
            bucket
                .into_iter()
                .filter(|found| hash | u64::from(found.index) >= cookie)
                .try_for_each(|found| visit(entry(hash, found)))
        })
    }

    /// Visits a directory's buckets in the order of hashes, starting with one; an empty bucket is a
    /// tombstone.
    pub(crate) fn each_bucket(
        &self,
        dir: VnodeNo,
        from: u64,
        visit: &mut dyn FnMut(u64, Vec<BucketEntry>) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = key::of_vnode(kind::ENTRIES, self.id, dir);
        let mut result = Ok(());
        self.each_newest(&prefix, &from.to_be_bytes(), &mut |_, key, value| {
            let Some(hash) = key::number_at(key, 2) else { return ControlFlow::Continue(()) };
            match record::decode_bucket(key, value) {
                Ok(bucket) => visit(hash, bucket),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }

    pub(crate) fn xattr(&self, no: VnodeNo, name: &[u8]) -> Result<Option<Bytes>> {
        match self.newest(&key::xattr(self.id, no, name), self.epoch)? {
            Some((key, value)) => record::decode_bytes("attribute", &key, value),
            None => Ok(None),
        }
    }

    /// Names of attributes and lengths of their values, in name order.
    pub(crate) fn xattrs(&self, no: VnodeNo) -> Result<Vec<(Bytes, usize)>> {
        let prefix = key::of_vnode(kind::XATTR, self.id, no);
        let mut found: Vec<(Bytes, usize)> = Vec::new();
        let mut result = Ok(());
        self.each_newest(&prefix, &[], &mut |tail, key, value| {
            // The name without the NUL.
            let name = &tail[..tail.len().saturating_sub(1)];
            match record::decode_bytes("attribute", key, value.to_vec()) {
                Ok(Some(value)) => found.push((Bytes::copy_from_slice(name), value.len())),
                Ok(None) => {}
                Err(error) => {
                    result = Err(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        result.map(|()| found)
    }
}

/// An entry of a bucket, with its cookie.
pub(crate) fn entry(hash: u64, found: BucketEntry) -> StoredEntry {
    StoredEntry {
        cookie: Cookie((hash | u64::from(found.index)) + 1),
        name: found.name,
        target: found.target,
    }
}
