//! Records of one volume, found by epoch.
//!
//! Every record of the tree carries the epoch that wrote it. What a reader of epoch E sees under a prefix is the newest
//! record not newer than E. A volume without sealed epochs has all its records in its current epoch, so one exact get
//! finds them; only with sealed epochs does a miss need a scan. What is removed leaves no record, or a tombstone if an
//! older epoch may still show it.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use siphasher::sip::SipHasher13;
use types::{VnodeNo, VolumeId};

use crate::engine::{Batch, Engine, prefix_end};
use crate::key::{self, kind};
use crate::media::Media;
use crate::record::{self, BucketEntry, GROUP_BLOCKS, Sums};
use crate::vnode::Vnode;
use crate::{Entry, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Bits of a hash that tell buckets apart: the low 4 hold the index in the bucket, the top 2 stay 0 so that cookies are
/// positive as signed numbers. Unit tests use few buckets, so that collisions are everyday.
const HASH_MASK: u64 = if cfg!(test) { 0x3f0 } else { 0x3fff_ffff_ffff_fff0 };

pub(crate) struct Tree {
    pub(crate) media: Arc<Media>,
    pub(crate) id: VolumeId,
    pub(crate) epoch: u64,
    pub(crate) sealed: bool,
    pub(crate) hash_key: u128,
}

impl Tree {
    /// The newest record under `prefix` not newer than `epoch`, with its key.
    fn newest(&self, prefix: &[u8], epoch: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let exact = [prefix, &(!epoch).to_be_bytes()].concat();
        if let Some(value) = self.media.engine.get(&exact)? {
            return Ok(Some((exact, value)));
        }
        if !self.sealed {
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

    /// The key that a record under `prefix` is written with now.
    pub(crate) fn current(&self, prefix: &[u8]) -> Vec<u8> {
        [prefix, &(!self.epoch).to_be_bytes()].concat()
    }

    /// Takes away what is under `prefix`.
    pub(crate) fn erase(&self, prefix: &[u8], batch: &mut Batch) {
        let key = self.current(prefix);
        if self.sealed {
            batch.put(&key, &record::tombstone(&key));
        } else {
            batch.delete(&key);
        }
    }

    pub(crate) fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        self.vnode_at(no, self.epoch)
    }

    /// Vnodes in ascending order of their numbers, and each with the failure that is its own.
    pub(crate) fn vnodes(&self, nos: &[VnodeNo]) -> Result<Vec<Result<Option<Vnode>>>> {
        if self.sealed {
            return Ok(nos.iter().map(|no| self.vnode(*no)).collect());
        }
        let keys: Vec<key::Key> =
            nos.iter().map(|no| key::of_vnode(kind::VNODE, self.id, *no).epoch(self.epoch)).collect();
        let values = self.media.engine.get_many(&keys)?;
        let decode = |((no, key), value): ((&VnodeNo, &key::Key), Option<Vec<u8>>)| match value {
            Some(value) => record::decode_vnode(key, self.id, *no, &value),
            None => Ok(None),
        };
        Ok(nos.iter().zip(&keys).zip(values).map(decode).collect())
    }

    pub(crate) fn vnode_at(&self, no: VnodeNo, epoch: u64) -> Result<Option<Vnode>> {
        match self.newest(&key::of_vnode(kind::VNODE, self.id, no), epoch)? {
            Some((key, value)) => record::decode_vnode(&key, self.id, no, &value),
            None => Ok(None),
        }
    }

    pub(crate) fn inline(&self, no: VnodeNo) -> Result<Option<Bytes>> {
        match self.newest(&key::of_vnode(kind::INLINE, self.id, no), self.epoch)? {
            Some((key, value)) => record::decode_bytes("inline body", &key, value),
            None => Ok(None),
        }
    }

    pub(crate) fn sums(&self, no: VnodeNo, group: u64) -> Result<Sums> {
        match self.newest(&key::sums(self.id, no, group), self.epoch)? {
            Some((key, value)) => record::decode_sums(&key, &value),
            None => Ok([0; GROUP_BLOCKS as usize]),
        }
    }

    /// Visits the groups that are not all holes, from `from` on, in order.
    pub(crate) fn each_group(
        &self,
        no: VnodeNo,
        from: u64,
        visit: &mut dyn FnMut(u64, Sums) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = key::of_vnode(kind::SUMS, self.id, no);
        let mut last = None;
        let mut result = Ok(());
        self.media.engine.scan(&prefix.number(from), &prefix_end(&prefix), &mut |key, value| {
            let Some(group) = key::number_at(key, 2) else { return ControlFlow::Continue(()) };
            if key::epoch_of(key) > self.epoch || last == Some(group) {
                return ControlFlow::Continue(());
            }
            last = Some(group);
            match record::decode_sums(key, value) {
                Ok(sums) => visit(group, sums),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }

    /// The hash that names of this volume are kept under.
    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.hash_key as u64, (self.hash_key >> 64) as u64).hash(name) & HASH_MASK
    }

    pub(crate) fn bucket(&self, dir: VnodeNo, hash: u64) -> Result<Vec<BucketEntry>> {
        self.bucket_at(dir, hash, self.epoch)
    }

    pub(crate) fn bucket_at(&self, dir: VnodeNo, hash: u64, epoch: u64) -> Result<Vec<BucketEntry>> {
        match self.newest(&key::entries(self.id, dir, hash), epoch)? {
            Some((key, value)) => record::decode_bucket(&key, &value),
            None => Ok(Vec::new()),
        }
    }

    /// Visits a directory's entries from `cookie` on, in cookie order.
    pub(crate) fn each_entry(
        &self,
        dir: VnodeNo,
        cookie: u64,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = key::of_vnode(kind::ENTRIES, self.id, dir);
        let from = prefix.number(cookie & !0xf);
        let mut last = None;
        let mut result = Ok(());
        self.media.engine.scan(&from, &prefix_end(&prefix), &mut |key, value| {
            let Some(hash) = key::number_at(key, 2) else { return ControlFlow::Continue(()) };
            if key::epoch_of(key) > self.epoch || last == Some(hash) {
                return ControlFlow::Continue(());
            }
            last = Some(hash);
            match record::decode_bucket(key, value) {
                Ok(bucket) => bucket
                    .into_iter()
                    .filter(|found| hash | u64::from(found.index) >= cookie)
                    .try_for_each(|found| visit(entry(hash, found))),
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
        let mut last = Bytes::new();
        let mut result = Ok(());
        self.media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
            let name = &key[prefix.len()..key.len() - key::EPOCH_BYTES - 1];
            if key::epoch_of(key) > self.epoch || last == name {
                return ControlFlow::Continue(());
            }
            last = Bytes::copy_from_slice(name);
            match record::decode_bytes("attribute", key, value.to_vec()) {
                Ok(Some(value)) => found.push((last.clone(), value.len())),
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
pub(crate) fn entry(hash: u64, found: BucketEntry) -> Entry {
    Entry { cookie: (hash | u64::from(found.index)) + 1, name: found.name, target: found.target }
}
