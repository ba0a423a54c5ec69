//! Changing the entries and attributes of one vnode.

use std::sync::Arc;

use types::Name;

use crate::body::Update;
use crate::error::Result;
use crate::format::bucket;
use crate::format::record::BucketEntry;
use crate::tree::EpochView;
use crate::tree::view::entry;
use crate::{EntryTarget, StoreError, StoredEntry, Vnode};

/// A vnode whose entries or attributes change, and the update. The caller puts the vnode.
pub struct VnodeEdit<'a, 's> {
    tree: Arc<EpochView>,
    vnode: &'a mut Vnode,
    update: &'a mut Update<'s>,
}

impl VnodeEdit<'_, '_> {
    pub(super) fn new<'a, 's>(
        tree: Arc<EpochView>,
        vnode: &'a mut Vnode,
        update: &'a mut Update<'s>,
    ) -> VnodeEdit<'a, 's> {
        VnodeEdit { tree, vnode, update }
    }

    /// Makes or replaces an entry (a replaced one keeps its cookie) and counts it.
    ///
    /// # Errors
    /// `BucketFull`, which changes nothing.
    pub fn put_entry(&mut self, name: &Name, target: EntryTarget) -> Result<()> {
        let hash = self.tree.hash(name.as_bytes());
        let mut bucket = self.bucket(hash)?;
        if bucket::put(&mut bucket, name, target)? {
            self.vnode.entries += 1;
        }
        self.update.set_bucket(self.vnode.no(), hash, bucket);
        Ok(())
    }

    /// Removes an entry and returns it; `None` if there is none.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_entry(&mut self, name: &[u8]) -> Result<Option<StoredEntry>> {
        let hash = self.tree.hash(name);
        let mut bucket = self.bucket(hash)?;
        let Some(at) = bucket.iter().position(|found| found.name.as_bytes() == name) else {
            return Ok(None);
        };
        let removed = bucket.remove(at);
        self.vnode.entries = self.vnode.entries.saturating_sub(1);
        self.update.set_bucket(self.vnode.no(), hash, bucket);
        Ok(Some(entry(hash, removed)))
    }

    fn bucket(&self, hash: u64) -> Result<Vec<BucketEntry>> {
        match self.update.bucket(self.vnode.no(), hash) {
            Some(bucket) => Ok(bucket.clone()),
            None => self.tree.bucket(self.vnode.no(), hash),
        }
    }

    /// Makes or replaces an attribute. Names have no NUL; the caller checks the limits of lengths.
    ///
    /// # Errors
    /// `Misuse` for a NUL in the name.
    pub fn put_xattr(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        if name.contains(&0) {
            return Err(StoreError::Misuse("NUL in an attribute's name"));
        }
        self.update.set_xattr(self.vnode.no(), name, Some(value.to_vec()));
        self.vnode.has_xattr = true;
        Ok(())
    }

    /// Removes an attribute; returns whether it existed.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_xattr(&mut self, name: &[u8]) -> Result<bool> {
        let no = self.vnode.no();
        let stored = if self.vnode.has_xattr { self.tree.xattrs(no)? } else { Vec::new() };
        let mut left: Vec<Vec<u8>> = stored.into_iter().map(|(name, _)| name.to_vec()).collect();
        for (changed, value) in self.update.xattrs(no) {
            left.retain(|name| name != changed);
            if value.is_some() {
                left.push(changed.clone());
            }
        }
        let count = left.len();
        left.retain(|left| left != name);
        if left.len() == count {
            return Ok(false);
        }
        self.update.set_xattr(self.vnode.no(), name, None);
        self.vnode.has_xattr = !left.is_empty();
        Ok(true)
    }
}
