//! The feed of a tree: the log of its changes, in memory, for standbys.
//!
//! Model. Each commit to the head adds an *entry*: the final state of all that it changed, in the
//! order in which the commits became visible. The entries have numbers, from 0 on. Those
//! that all standbys have are forgotten; a feed that has grown too large is *over*, and then no
//! place is in it. A body is logged as the blocks whose sums changed.
//!
//! The state of the tree has the feed: who wants it to go on keeps a volume of the tree in memory.
//!
//! A commit with many bytes is several entries, the first ones with a part of the bytes, so that
//! one entry fits into one answer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use types::{ClientId, FeedPlace, ReplyAddress, VnodeNo, VolumeId};

use crate::format::header::VolumeQuota;
use crate::format::record::BucketEntry;
use crate::format::vnode::Vnode;

/// The most bytes of entries that no standby, or not every one, has.
const BYTES_MAX: usize = if cfg!(test) { 4 << 20 } else { 256 << 20 };
/// The most bytes of bodies in one entry: with all else that it may have, it fits into an answer,
/// and an answer has several, so that it is nearly full.
pub(crate) const ENTRY_DATA_MAX: usize = if cfg!(test) { 96 << 10 } else { 192 << 10 };
/// The memory of an entry, and of each part of it, beside its bytes.
const PART_BYTES: usize = 160;

/// All that one commit changed, or a part of the bytes that it wrote.
#[derive(Debug, Default)]
pub(crate) struct FeedEntry {
    /// Vnodes that were changed (`None`: removed), with what belongs to them.
    pub(crate) vnodes: Vec<VnodeChange>,
    pub(crate) quota: Option<VolumeQuota>,
    pub(crate) replies: Vec<(ReplyAddress, Bytes)>,
    /// Replies of former servers of the volume.
    pub(crate) heirs: Vec<Heir>,
}

/// The last reply to a slot of a client's session at a former server of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heir {
    /// The client that may ask for it.
    pub client: ClientId,
    /// The request.
    pub origin: ReplyAddress,
    /// The encoded reply, or no bytes.
    pub reply: Bytes,
}

/// A vnode that was changed.
#[derive(Debug)]
pub(crate) struct VnodeChange {
    pub(crate) no: VnodeNo,
    /// `None`: it was removed.
    pub(crate) vnode: Option<Vnode>,
    /// The bytes of a body that is inline.
    pub(crate) inline: Option<Vec<u8>>,
    /// `None`: the attribute was removed.
    pub(crate) xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// By their hashes.
    pub(crate) buckets: Vec<(u64, Vec<BucketEntry>)>,
    pub(crate) blocks: Vec<BlockRun>,
    /// More bytes of the same commit follow in another entry.
    pub(crate) has_more: bool,
}

/// Blocks of a body that changed.
#[derive(Debug)]
pub(crate) enum BlockRun {
    /// The first block, and how many.
    Hole(u64, u64),
    /// Room is reserved for them.
    Zeros(u64, u64),
    /// The first block, and the bytes.
    Data(u64, Vec<u8>),
}

impl BlockRun {
    fn bytes(&self) -> usize {
        match self {
            BlockRun::Hole(..) | BlockRun::Zeros(..) => 0,
            BlockRun::Data(_, data) => data.len(),
        }
    }
}

impl VnodeChange {
    /// The vnode without anything that belongs to it.
    pub(crate) fn new(no: VnodeNo, vnode: Option<Vnode>) -> VnodeChange {
        VnodeChange {
            no,
            vnode,
            inline: None,
            xattrs: Vec::new(),
            buckets: Vec::new(),
            blocks: Vec::new(),
            has_more: false,
        }
    }

    fn bytes(&self) -> usize {
        let inline = self.inline.as_ref().map_or(0, Vec::len);
        let xattrs = self
            .xattrs
            .iter()
            .map(|(name, value)| PART_BYTES + name.len() + value.as_ref().map_or(0, Vec::len));
        let names = |entry: &BucketEntry| PART_BYTES / 4 + entry.name.as_bytes().len();
        let buckets = self.buckets.iter().map(|(_, bucket)| bucket.iter().map(names).sum());
        let blocks = self.blocks.iter().map(|run| PART_BYTES / 4 + run.bytes());
        2 * PART_BYTES + inline + xattrs.chain(buckets).chain(blocks).sum::<usize>()
    }
}

impl FeedEntry {
    pub(crate) fn bytes(&self) -> usize {
        let replies = self.replies.iter().map(|(_, reply)| reply);
        let replies = replies.chain(self.heirs.iter().map(|heir| &heir.reply));
        let replies = replies.map(|reply| PART_BYTES + reply.len());
        PART_BYTES + self.vnodes.iter().map(VnodeChange::bytes).chain(replies).sum::<usize>()
    }

    /// The entry, after others with the bytes of bodies for which it has no room.
    fn in_parts(mut self) -> Vec<FeedEntry> {
        let mut parts = Vec::new();
        for change in &mut self.vnodes {
            let Some(vnode) = &change.vnode else { continue };
            let mut total: usize = change.blocks.iter().map(BlockRun::bytes).sum();
            let mut runs = VecDeque::from(std::mem::take(&mut change.blocks));
            while total > ENTRY_DATA_MAX {
                let mut first = VnodeChange::new(change.no, Some(vnode.clone()));
                first.has_more = true;
                let mut taken = 0;
                while let Some(run) = runs.front() {
                    if taken > 0 && taken + run.bytes() > ENTRY_DATA_MAX {
                        break;
                    }
                    taken += run.bytes();
                    first.blocks.extend(runs.pop_front());
                }
                total -= taken;
                parts.push(FeedEntry { vnodes: vec![first], ..FeedEntry::default() });
            }
            change.blocks = runs.into();
        }
        parts.push(self);
        parts
    }
}

/// The log of a tree's changes. Thread-safe.
pub struct Feed {
    id: u64,
    pub(crate) tree: VolumeId,
    /// That of the tree, which changes when another volume is restored over it.
    pub(crate) hash_key: u128,
    log: Mutex<FeedLog>,
}

#[derive(Default)]
struct FeedLog {
    /// The position of the first entry.
    first: u64,
    entries: VecDeque<(Arc<FeedEntry>, usize)>,
    /// Of all entries.
    bytes: usize,
    is_over: bool,
}

impl Feed {
    pub(crate) fn new(id: u64, tree: VolumeId, hash_key: u128) -> Feed {
        Feed { id, tree, hash_key, log: Mutex::default() }
    }

    /// Adds what a commit changed. The caller still holds what keeps other changes of the same
    /// vnodes away.
    pub(crate) fn add(&self, entry: FeedEntry) {
        let mut log = self.log.lock();
        if log.is_over {
            return;
        }
        for part in entry.in_parts() {
            let bytes = part.bytes();
            log.bytes += bytes;
            log.entries.push_back((Arc::new(part), bytes));
        }
        if log.bytes > BYTES_MAX {
            tracing::warn!("standbys of a volume are too slow; they begin anew");
            log.end();
        }
    }

    /// Adds replies of former servers: a client that was away since may yet ask for them.
    pub fn pass_on(&self, heirs: Vec<Heir>) {
        let mut entry = FeedEntry::default();
        let mut bytes = 0;
        for one in heirs {
            bytes += PART_BYTES + one.reply.len();
            if bytes > ENTRY_DATA_MAX {
                bytes = PART_BYTES + one.reply.len();
                self.add(std::mem::take(&mut entry));
            }
            entry.heirs.push(one);
        }
        if !entry.heirs.is_empty() {
            self.add(entry);
        }
    }

    /// Adds replies that no other entry has: a standby learns what was done before its base.
    pub fn carry(&self, replies: Vec<(ReplyAddress, Bytes)>) {
        let mut entry = FeedEntry::default();
        for one in replies {
            if entry.bytes() + one.1.len() > ENTRY_DATA_MAX {
                self.add(std::mem::take(&mut entry));
            }
            entry.replies.push(one);
        }
        if !entry.replies.is_empty() {
            self.add(entry);
        }
    }

    /// Nothing is logged any more, and no place is in the feed.
    pub(crate) fn stop(&self) {
        self.log.lock().end();
    }

    /// Entries from a place on, with their positions, while their bytes are at most `bytes_max`,
    /// and one at least; `None`: the place is not in the feed.
    pub(crate) fn entries(&self, from: FeedPlace, bytes_max: usize) -> Option<Vec<Arc<FeedEntry>>> {
        let log = self.log.lock();
        let skipped = from.position.checked_sub(log.first)?;
        if log.is_over || from.feed != self.id || skipped > log.entries.len() as u64 {
            return None;
        }
        let mut left = bytes_max;
        let mut found = Vec::new();
        for (entry, bytes) in log.entries.range(skipped as usize..) {
            if !found.is_empty() && *bytes > left {
                break;
            }
            left = left.saturating_sub(*bytes);
            found.push(Arc::clone(entry));
        }
        Some(found)
    }

    /// The place behind the last entry.
    pub fn end(&self) -> FeedPlace {
        let log = self.log.lock();
        FeedPlace { feed: self.id, position: log.first + log.entries.len() as u64 }
    }

    /// Entries and bytes behind a position.
    pub fn behind(&self, position: u64) -> (u64, u64) {
        let log = self.log.lock();
        let skipped = position.saturating_sub(log.first).min(log.entries.len() as u64);
        let left = log.entries.range(skipped as usize..);
        (left.len() as u64, left.map(|(_, bytes)| *bytes as u64).sum())
    }

    /// All standbys have the entries before this position.
    pub fn forget_before(&self, position: u64) {
        let mut log = self.log.lock();
        while log.first < position {
            let Some((_, bytes)) = log.entries.pop_front() else { return };
            log.bytes -= bytes;
            log.first += 1;
        }
    }

    /// No place is in it: its tree was replaced or removed, or its standbys were too slow.
    pub fn is_over(&self) -> bool {
        self.log.lock().is_over
    }
}

impl FeedLog {
    fn end(&mut self) {
        let first = self.first + self.entries.len() as u64;
        *self = FeedLog { first, is_over: true, ..FeedLog::default() };
    }
}
