//! The entry of the feed for an update: what it changes, with the bytes of the blocks that differ
//! from what the head has.
//!
//! A block differs if its sum does. The update holds the gate of each body that it changed, so the
//! file has what the new sums say.

use types::VnodeNo;

use super::files::{open_file, read_exactly};
use super::update::Update;
use crate::error::Result;
use crate::format::record::{GROUP_BLOCKS, Sums};
use crate::media::disk::BodyFile;
use crate::tree::EpochView;
use crate::tree::feed::{BlockRun, FeedEntry, VnodeChange};
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode};

/// The most blocks with bytes of one run: a part of an entry has whole runs.
const RUN_BLOCKS_MAX: u64 = (64 << 10) / BLOCK_BYTES;

impl Update<'_> {
    /// The entry, before the update is applied; `None`: it changes nothing that standbys have.
    pub(super) fn entry(&self, tree: &EpochView) -> Result<Option<FeedEntry>> {
        let mut vnodes = Vec::with_capacity(self.vnodes.len());
        for (no, vnode) in &self.vnodes {
            let mut change = VnodeChange::new(*no, vnode.clone());
            if let Some(vnode) = vnode {
                self.add_content(tree, vnode, &mut change)?;
            }
            vnodes.push(change);
        }
        let of_vnodes = self
            .buckets
            .iter()
            .map(|((no, _), _)| no)
            .chain(self.xattrs.iter().map(|((no, _), _)| no))
            .chain(self.inline.iter().map(|(no, _)| no))
            .chain(self.sums.keys().map(|(no, _)| no));
        for no in of_vnodes {
            if !self.vnodes.iter().any(|(of, _)| of == no) {
                return Err(StoreError::Misuse("a change without its vnode"));
            }
        }
        let (replies, heirs) = (self.replies.clone(), Vec::new());
        let entry = FeedEntry { vnodes, quota: self.quota, replies, heirs };
        let is_empty = entry.vnodes.is_empty() && entry.quota.is_none() && entry.replies.is_empty();
        Ok((!is_empty).then_some(entry))
    }

    fn add_content(&self, tree: &EpochView, vnode: &Vnode, change: &mut VnodeChange) -> Result<()> {
        let no = vnode.no();
        change.xattrs =
            self.xattrs(no).map(|(name, value)| (name.clone(), value.clone())).collect();
        let buckets = self.buckets.iter().filter(|((dir, _), _)| *dir == no);
        change.buckets = buckets.map(|((_, hash), bucket)| (*hash, bucket.clone())).collect();
        change.buckets.sort_unstable_by_key(|(hash, _)| *hash);
        match vnode.place {
            BodyLocation::None => {}
            BodyLocation::Inline => {
                change.inline = match self.inline(no) {
                    Some(bytes) => bytes.clone(),
                    None => tree.inline(no)?.map(|bytes| bytes.to_vec()),
                };
            }
            _ => change.blocks = self.changed_blocks(tree, vnode)?,
        }
        Ok(())
    }

    /// The blocks of a body in a file that differ from those of the head.
    fn changed_blocks(&self, tree: &EpochView, vnode: &Vnode) -> Result<Vec<BlockRun>> {
        let no = vnode.no();
        let size = vnode.status.size;
        let mut runs = Runs { runs: Vec::new(), unread: (0, 0), file: None, size };
        let cut = self.cut_sums.iter().filter(|(of, _)| *of == no).map(|(_, from)| *from).min();
        if let Some(first) = cut.and_then(|cut| cut.checked_mul(GROUP_BLOCKS)) {
            runs.hole(first, u64::MAX - first);
        }
        for ((_, group), sums) in self.sums.range((no, 0)..=(no, u64::MAX)) {
            let old = match cut {
                Some(cut) if cut <= *group => [0; GROUP_BLOCKS as usize],
                _ => tree.sums(no, *group)?,
            };
            self.changed_in_group(tree, vnode, *group, (sums, &old), &mut runs)?;
        }
        runs.ended()
    }

    fn changed_in_group(
        &self,
        tree: &EpochView,
        vnode: &Vnode,
        group: u64,
        (new, old): (&Sums, &Sums),
        runs: &mut Runs,
    ) -> Result<()> {
        for (at, (new, old)) in new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old)
        {
            let block = group * GROUP_BLOCKS + at as u64;
            debug_assert_ne!(new, old);
            if *new == 0 {
                runs.read()?;
                runs.hole(block, 1);
            } else if block * BLOCK_BYTES >= vnode.status.size {
                runs.read()?;
                runs.zeros(block);
            } else {
                if runs.file.is_none() {
                    runs.file = Some(self.opened(tree, vnode)?);
                }
                runs.data(block)?;
            }
        }
        Ok(())
    }

    fn opened(&self, tree: &EpochView, vnode: &Vnode) -> Result<std::sync::Arc<dyn BodyFile>> {
        let no: VnodeNo = vnode.no();
        let held = self.bodies.iter().find(|held| held.vnode == no);
        let held =
            held.ok_or(StoreError::Misuse("sums of a body that the update does not hold"))?;
        open_file(tree, &held.gate, vnode)
    }
}

/// The runs so far.
struct Runs {
    runs: Vec<BlockRun>,
    /// The blocks at the end that are not read yet: the first one, and how many.
    unread: (u64, u64),
    file: Option<std::sync::Arc<dyn BodyFile>>,
    size: u64,
}

impl Runs {
    fn hole(&mut self, first: u64, count: u64) {
        match self.runs.last_mut() {
            Some(BlockRun::Hole(begin, counted)) if begin.saturating_add(*counted) == first => {
                *counted += count;
            }
            _ => self.runs.push(BlockRun::Hole(first, count)),
        }
    }

    fn zeros(&mut self, block: u64) {
        match self.runs.last_mut() {
            Some(BlockRun::Zeros(begin, counted)) if *begin + *counted == block => *counted += 1,
            _ => self.runs.push(BlockRun::Zeros(block, 1)),
        }
    }

    /// Adds a block that begins before the end.
    fn data(&mut self, block: u64) -> Result<()> {
        let (first, count) = self.unread;
        if count > 0 && (block != first + count || count == RUN_BLOCKS_MAX) {
            self.read()?;
        }
        let (first, count) = self.unread;
        self.unread = if count == 0 { (block, 1) } else { (first, count + 1) };
        Ok(())
    }

    /// Reads the blocks that are not read yet, as one run.
    fn read(&mut self) -> Result<()> {
        let (first, count) = std::mem::take(&mut self.unread);
        if count == 0 {
            return Ok(());
        }
        let at = first * BLOCK_BYTES;
        let mut bytes = vec![0; (self.size - at).min(count * BLOCK_BYTES) as usize];
        let file = self.file.as_ref().ok_or(StoreError::Misuse("a body is not open"))?;
        read_exactly(&**file, at, &mut bytes)?;
        self.runs.push(BlockRun::Data(first, bytes));
        Ok(())
    }

    fn ended(mut self) -> Result<Vec<BlockRun>> {
        self.read()?;
        Ok(self.runs)
    }
}
