//! Blocks of files in this process's memory, whose checksums were compared when they were read.
//!
//! A block is known by its file, the version of the file's data, and its number: a change makes
//! another version, so a block is never wrong, only unused. A session that may read the current
//! version may have the bytes (`direct_reads.rs`). The block that was not used for a full
//! round of a clock's hand leaves first.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use store::BLOCK_BYTES;
use types::{DataVersion, Fid};

/// The blocks of one read of the longest kind, with both ends within blocks.
pub(crate) type BlockRun = SmallVec<[Bytes; 4]>;

/// See the head of the file.
pub(crate) struct VerifiedBlocks {
    blocks_max: usize,
    clock: Mutex<Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlockName {
    fid: Fid,
    version: DataVersion,
    block: u64,
}

#[derive(Default)]
struct Clock {
    places: HashMap<BlockName, usize>,
    slots: Vec<BlockSlot>,
    hand: usize,
}

struct BlockSlot {
    name: BlockName,
    bytes: Bytes,
    is_used: bool,
}

impl VerifiedBlocks {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> VerifiedBlocks {
        let blocks_max = (bytes / BLOCK_BYTES as usize).max(1);
        VerifiedBlocks { blocks_max, clock: Mutex::default() }
    }

    /// The blocks that hold the bytes from `offset` to `end`; `None` if one is missing.
    pub fn find(&self, fid: Fid, version: DataVersion, offset: u64, end: u64) -> Option<BlockRun> {
        let mut clock = self.clock.lock();
        let mut run = BlockRun::new();
        for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let place = *clock.places.get(&BlockName { fid, version, block })?;
            let slot = &mut clock.slots[place];
            slot.is_used = true;
            run.push(slot.bytes.clone());
        }
        Some(run)
    }

    /// Adds the whole blocks among bytes that were read from `offset` on, and the last one, if the
    /// file of `size` bytes ends in it.
    pub fn add(&self, fid: Fid, version: DataVersion, offset: u64, bytes: &[u8], size: u64) {
        let end = offset + bytes.len() as u64;
        let mut clock = self.clock.lock();
        for block in offset.div_ceil(BLOCK_BYTES)..end.div_ceil(BLOCK_BYTES) {
            let (from, to) = (block * BLOCK_BYTES, ((block + 1) * BLOCK_BYTES).min(size));
            if to > end {
                break;
            }
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            clock.add(BlockName { fid, version, block }, part, self.blocks_max);
        }
    }
}

impl Clock {
    fn add(&mut self, name: BlockName, bytes: &[u8], blocks_max: usize) {
        if self.places.contains_key(&name) {
            return;
        }
        let slot = BlockSlot { name, bytes: Bytes::copy_from_slice(bytes), is_used: false };
        if self.slots.len() < blocks_max {
            self.places.insert(name, self.slots.len());
            self.slots.push(slot);
            return;
        }
        while std::mem::take(&mut self.slots[self.hand].is_used) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let left = std::mem::replace(&mut self.slots[self.hand], slot);
        self.places.remove(&left.name);
        self.places.insert(name, self.hand);
        self.hand = (self.hand + 1) % self.slots.len();
    }
}

#[cfg(test)]
mod tests {
    use types::{Uniquifier, VnodeNo, VolumeId};

    use super::*;

    const FID: Fid = Fid { volume: VolumeId(1), vnode: VnodeNo(2), unique: Uniquifier(3) };
    const ONE: DataVersion = DataVersion(1);

    fn bytes(from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|at| (at / 1000) as u8).collect()
    }

    fn read(blocks: &VerifiedBlocks, offset: u64, end: u64) -> Option<Vec<u8>> {
        let run = blocks.find(FID, ONE, offset, end)?.concat();
        let skip = (offset % BLOCK_BYTES) as usize;
        Some(run[skip..skip + (end - offset) as usize].to_vec())
    }

    #[test]
    fn whole_blocks_and_the_last_one_are_kept() {
        let (blocks, size) = (VerifiedBlocks::new(1 << 20), 5 * BLOCK_BYTES + 100);
        // Both ends lie within blocks.
        blocks.add(FID, ONE, 100, &bytes(100, 3 * BLOCK_BYTES + 7), size);
        assert!(read(&blocks, 0, 10).is_none() && read(&blocks, 200, 300).is_none());
        assert!(read(&blocks, 3 * BLOCK_BYTES, 3 * BLOCK_BYTES + 1).is_none());
        let (from, to) = (BLOCK_BYTES + 5, 3 * BLOCK_BYTES);
        assert_eq!(read(&blocks, from, to).unwrap(), bytes(from, to));
        blocks.add(FID, ONE, 4 * BLOCK_BYTES, &bytes(4 * BLOCK_BYTES, size), size);
        assert_eq!(read(&blocks, size - 1, size).unwrap(), bytes(size - 1, size));
        assert!(blocks.find(FID, DataVersion(2), from, to).is_none(), "another version");
        let other = Fid { unique: Uniquifier(4), ..FID };
        assert!(blocks.find(other, ONE, from, to).is_none());
    }

    #[test]
    fn the_block_that_is_not_used_leaves_first() {
        let (blocks, size) = (VerifiedBlocks::new(4 * BLOCK_BYTES as usize), 100 * BLOCK_BYTES);
        let add = |block: u64| {
            let (from, to) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
            blocks.add(FID, ONE, from, &bytes(from, to), size);
        };
        let has =
            |block: u64| read(&blocks, block * BLOCK_BYTES, block * BLOCK_BYTES + 1).is_some();
        (0..4).for_each(add);
        for block in 4..50 {
            assert!(has(0), "block 0 alone is in use when block {block} comes");
            add(block);
        }
        assert!(has(0) && has(49));
        assert_eq!(
            (0..50).filter(|block| has(*block)).count(),
            4,
            "no more than there is room for"
        );
    }
}
