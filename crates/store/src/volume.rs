//! A volume: vnodes, entries, attributes, quota and usage; bodies are in `body.rs` and `reader.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use types::{Fid, Name, Timestamp, Uniquifier, VnodeNo, VolumeId};

use crate::bucket;
use crate::engine::{Batch, Engine, prefix_end};
use crate::key::{self, kind};
use crate::media::Media;
use crate::record::{self, VolumeHeader};
use crate::tree::{Tree, entry};
use crate::{Entry, StoreError, Target, Update, Vnode};

/// Limits of a volume; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// In bytes.
    pub bytes: u64,
    /// In files.
    pub files: u64,
}

/// What a volume uses: the sum over its vnodes (ST-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// `used` of every vnode.
    pub bytes: u64,
    /// Vnodes, the root directory included.
    pub files: u64,
}

/// The root directory of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct NewRoot {
    /// Mode bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All its times.
    pub now: Timestamp,
    /// The volume's quota.
    pub quota: Quota,
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// Slots that are set aside in one durable step, so that few allocations wait for the disk.
const SLOTS_AT_ONCE: u64 = 4096;

/// One volume of an open partition. Thread-safe. Writers of one vnode are serialised by the caller.
pub struct Volume {
    pub(crate) tree: Arc<Tree>,
    name: Name,
    header: Mutex<Header>,
    usage: Mutex<[i64; 2]>,
    /// No vnode has a slot above this one.
    slots_used: AtomicU64,
}

/// The header, and the slots between what is handed out and what is set aside.
struct Header {
    stored: VolumeHeader,
    next_slot: u64,
}

impl Volume {
    pub(crate) fn new(media: Arc<Media>, id: VolumeId, header: VolumeHeader, usage: [i64; 2]) -> Volume {
        let tree =
            Tree { media, id, epoch: header.epoch, sealed: !header.sealed.is_empty(), hash_key: header.hash_key };
        let next_slot = header.next_slot;
        Volume {
            tree: Arc::new(tree),
            name: header.name.clone(),
            header: Mutex::new(Header { stored: header, next_slot }),
            usage: Mutex::new(usage),
            // Whatever was set aside in an earlier life may be in use.
            slots_used: AtomicU64::new(next_slot),
        }
    }

    /// Its number.
    pub fn id(&self) -> VolumeId {
        self.tree.id
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// What it uses now, without I/O.
    pub fn usage(&self) -> Usage {
        let [bytes, files] = *self.usage.lock();
        Usage { bytes: bytes.max(0) as u64, files: files.max(0) as u64 }
    }

    /// Its limits, without I/O.
    pub fn quota(&self) -> Quota {
        self.header.lock().stored.quota
    }

    /// A vnode, as of its last commit.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; so for every reading method.
    pub fn vnode(&self, no: VnodeNo) -> Result<Option<Vnode>> {
        self.tree.vnode(no)
    }

    /// Vnodes in ascending order of their numbers, each as [`Volume::vnode`] has it, and cheaper together.
    ///
    /// # Errors
    /// `Medium`.
    pub fn vnodes(&self, nos: &[VnodeNo]) -> Result<Vec<Result<Option<Vnode>>>> {
        self.tree.vnodes(nos)
    }

    /// One entry.
    pub fn lookup(&self, dir: VnodeNo, name: &[u8]) -> Result<Option<Entry>> {
        let hash = self.tree.hash(name);
        let bucket = self.tree.bucket(dir, hash)?;
        Ok(bucket.into_iter().find(|found| found.name.as_bytes() == name).map(|found| entry(hash, found)))
    }

    /// As `lookup`, for a change of this entry: what is found stays in the update, so nobody else may change the directory until the commit;
    /// or look again.
    pub fn look(&self, dir: VnodeNo, name: &[u8], update: &mut Update) -> Result<Option<Entry>> {
        let hash = self.tree.hash(name);
        let bucket = self.tree.bucket(dir, hash)?;
        let found = bucket.iter().find(|found| found.name.as_bytes() == name).map(|found| entry(hash, found.clone()));
        update.set_looked(dir, hash, bucket);
        Ok(found)
    }

    /// Up to `entries_max` entries behind `cookie` (0: from the first), in cookie order; and whether that was the
    /// last. An entry that stays is seen once, whatever comes and goes around it.
    pub fn read_dir(&self, dir: VnodeNo, cookie: u64, entries_max: usize) -> Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let mut end = true;
        self.tree.each_entry(dir, cookie, &mut |entry| {
            if entries.len() == entries_max {
                end = false;
                return ControlFlow::Break(());
            }
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        Ok((entries, end))
    }

    /// A slot that was never used, and will never be again even if the machine loses power now.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate(&self, directory: bool) -> Result<(VnodeNo, Uniquifier)> {
        let fid = Fid::of_slot(self.id(), self.allocate_slots(1)?, directory);
        Ok((fid.vnode, fid.unique))
    }

    /// The first of `count` slots for new vnodes that follow each other, never used before and never given again, whatever happens to the machine.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate_slots(&self, count: u32) -> Result<u64> {
        let mut header = self.header.lock();
        let (first, next) = (header.next_slot, header.next_slot + u64::from(count));
        if next > header.stored.next_slot {
            let more = VolumeHeader { next_slot: next - 1 + SLOTS_AT_ONCE, ..header.stored.clone() };
            let mut batch = Batch::default();
            put_header(self.id(), &more, &mut batch);
            self.tree.media.apply(&batch)?;
            self.tree.media.sync()?;
            header.stored = more;
        }
        header.next_slot = next;
        Ok(first)
    }

    /// Whether this life or an earlier one may have given the slot to somebody, and no vnode takes it.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn is_given_slot(&self, slot: u64) -> Result<bool> {
        let given = (1..self.header.lock().stored.next_slot).contains(&slot);
        if slot > self.slots_used.load(Ordering::SeqCst) {
            return Ok(given);
        }
        Ok(given && self.vnode(VnodeNo(2 * slot))?.is_none() && self.vnode(VnodeNo(2 * slot + 1))?.is_none())
    }

    /// Makes or replaces an entry (a replaced one keeps its cookie) and counts it in `dir.entries`.
    ///
    /// # Errors
    /// `BucketFull`; nothing has then changed.
    pub fn put_entry(&self, dir: &mut Vnode, name: &Name, target: Target, update: &mut Update) -> Result<()> {
        let hash = self.tree.hash(name.as_bytes());
        let mut bucket = self.bucket(dir.no(), hash, update)?;
        if bucket::put(&mut bucket, name, target)? {
            dir.entries += 1;
        }
        update.set_bucket(dir.no(), hash, bucket);
        Ok(())
    }

    /// Removes an entry; says which, `None` if there is none.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_entry(&self, dir: &mut Vnode, name: &[u8], update: &mut Update) -> Result<Option<Entry>> {
        let hash = self.tree.hash(name);
        let mut bucket = self.bucket(dir.no(), hash, update)?;
        let Some(at) = bucket.iter().position(|found| found.name.as_bytes() == name) else { return Ok(None) };
        let removed = bucket.remove(at);
        dir.entries = dir.entries.saturating_sub(1);
        update.set_bucket(dir.no(), hash, bucket);
        Ok(Some(entry(hash, removed)))
    }

    fn bucket(&self, dir: VnodeNo, hash: u64, update: &Update) -> Result<Vec<record::BucketEntry>> {
        match update.bucket(dir, hash) {
            Some(bucket) => Ok(bucket.clone()),
            None => self.tree.bucket(dir, hash),
        }
    }

    /// An attribute's value.
    ///
    /// # Errors
    /// As every reading method.
    pub fn xattr(&self, vnode: &Vnode, name: &[u8]) -> Result<Option<Bytes>> {
        if vnode.has_xattr { self.tree.xattr(vnode.no(), name) } else { Ok(None) }
    }

    /// Names of attributes and the lengths of their values, in name order.
    ///
    /// # Errors
    /// As every reading method.
    pub fn xattrs(&self, vnode: &Vnode) -> Result<Vec<(Bytes, usize)>> {
        if vnode.has_xattr { self.tree.xattrs(vnode.no()) } else { Ok(Vec::new()) }
    }

    /// Makes or replaces an attribute. Names have no NUL; limits of lengths are the caller's.
    ///
    /// # Errors
    /// `Misuse` for a NUL in the name.
    pub fn put_xattr(&self, vnode: &mut Vnode, name: &[u8], value: &[u8], update: &mut Update) -> Result<()> {
        if name.contains(&0) {
            return Err(StoreError::Misuse("NUL in an attribute's name"));
        }
        update.set_xattr(vnode.no(), name, Some(value.to_vec()));
        vnode.has_xattr = true;
        Ok(())
    }

    /// Removes an attribute; says whether it was there.
    ///
    /// # Errors
    /// As every reading method.
    pub fn remove_xattr(&self, vnode: &mut Vnode, name: &[u8], update: &mut Update) -> Result<bool> {
        let mut left: Vec<Vec<u8>> = self.xattrs(vnode)?.into_iter().map(|(name, _)| name.to_vec()).collect();
        for (changed, value) in update.xattrs(vnode.no()) {
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
        update.set_xattr(vnode.no(), name, None);
        vnode.has_xattr = !left.is_empty();
        Ok(true)
    }

    /// Removes a vnode with body and attributes; counts one file less. `vnode` must be current. Of an orphan its mark goes with
    /// [`Update::remove_orphan`].
    ///
    /// # Errors
    /// As every reading method.
    pub fn drop_vnode(&self, vnode: &Vnode, update: &mut Update) -> Result<()> {
        self.drop_body(vnode, update);
        for (name, _) in self.xattrs(vnode)? {
            update.set_xattr(vnode.no(), &name, None);
        }
        update.drop_vnode(vnode);
        Ok(())
    }

    /// Vnodes marked as orphans.
    ///
    /// # Errors
    /// As every reading method.
    pub fn orphans(&self) -> Result<Vec<VnodeNo>> {
        let prefix = key::of_volume(kind::ORPHAN, self.id());
        let mut orphans = Vec::new();
        self.tree.media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
            orphans.extend(key::number_at(key, 1).map(VnodeNo));
            ControlFlow::Continue(())
        })?;
        Ok(orphans)
    }

    /// Applies `update` as one batch: visible now, kept over the death of the process (see [`crate::Partition::gather`] for when), durable after
    /// the next sync.
    ///
    /// # Errors
    /// `NoSpace` if it adds files or bytes and the partition is nearly full; `Medium` after a failed sync;
    /// `Misuse` if a body was changed and its vnode not put. Nothing has then changed.
    pub fn commit(&self, update: Update) -> Result<()> {
        let media = &self.tree.media;
        media.usable()?;
        if !update.is_whole() {
            return Err(StoreError::Misuse("a body was changed without its vnode"));
        }
        if update.grows() {
            media.room_for_records()?;
        }
        let mut batch = Batch::default();
        update.fill(&self.tree, &mut batch)?;
        let delta = [update.bytes_delta, update.files_delta];
        if delta != [0, 0] {
            batch.add(&key::usage(self.id()), &delta);
        }
        let header = self.put_quota(&update, &mut batch);
        self.slots_used.fetch_max(update.highest_slot(), Ordering::SeqCst);
        if !batch.is_empty() {
            media.apply(&batch)?;
        }
        if let Some(mut header) = header
            && let Some(quota) = update.quota
        {
            header.stored.quota = quota;
        }
        let mut usage = self.usage.lock();
        usage[0] += delta[0];
        usage[1] += delta[1];
        drop(usage);
        if update.has_garbage() {
            media.garbage.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        update.committed();
        Ok(())
    }

    /// With a new quota: the header, locked until the batch is applied, since others write that record too.
    fn put_quota(&self, update: &Update, batch: &mut Batch) -> Option<MutexGuard<'_, Header>> {
        let quota = update.quota?;
        let header = self.header.lock();
        put_header(self.id(), &VolumeHeader { quota, ..header.stored.clone() }, batch);
        Some(header)
    }
}

pub(crate) fn put_header(id: VolumeId, header: &VolumeHeader, batch: &mut Batch) {
    let key = key::volume(id);
    batch.put(&key, &record::encode_volume(&key, header));
}
