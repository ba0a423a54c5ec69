//! The cache of one file for reading: blocks that were read ahead, and the body's descriptor with
//! its checksums.
//!
//! Both belong to one data version of the file. Readers compare it with a valid status, so a break
//! needs no action here. An own write advances the version if it was the only change (`previous` is
//! our version).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use types::DataVersion;

use super::{SUMMED, VerifiedBlocks};

/// The unit of read-ahead, aligned: as much as the kernel asks for in one request, so that each
/// read of a stream is one block.
pub(crate) const BLOCK: u64 = 1 << 20;

/// Checksums that are stored and dropped together: those of one MiB.
pub(crate) const GROUP: u64 = 64;

/// From this delay on a line may hold more than [`read_ahead`](crate::read_ahead)'s near window: 4
/// MiB in 2 ms are 2 GB/s.
const FAR: Duration = Duration::from_millis(2);

pub(crate) enum Block {
    Coming,
    Here {
        data: Bytes,
        /// Bytes that were not read yet. The kernel caches what it read, so a block that was read
        /// whole is dropped.
        left: usize,
    },
}

pub(crate) struct DirectBody {
    pub fd: Arc<OwnedFd>,
    pub version: DataVersion,
    pub sums: HashMap<u64, Arc<[u32]>>,
}

#[derive(Default)]
pub(crate) struct ReadCache {
    pub version: DataVersion,
    /// The shortest time from a request for blocks to its first one.
    delay: Option<Duration>,
    pub blocks: HashMap<u64, Block>,
    pub body: Option<DirectBody>,
    pub known: VerifiedBlocks,
}

/// The blocks' answer to a read.
pub(crate) enum Ahead {
    Data(Bytes),
    Coming,
    Missing,
}

impl ReadCache {
    pub fn bytes(&self) -> usize {
        self.blocks.values().map(Block::len).sum()
    }

    /// A request for blocks brought its first one after `delay`.
    pub fn began_after(&mut self, delay: Duration) {
        self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
    }

    /// Whether the server, or its disk, is far away: answers take long, even when nothing else is
    /// on its way.
    pub fn is_far(&self) -> bool {
        self.delay.is_some_and(|delay| delay >= FAR)
    }

    /// The file has `version` now; blocks of an older one go. Returns the bytes freed.
    pub fn meet(&mut self, version: DataVersion) -> usize {
        if version <= self.version {
            return 0;
        }
        self.version = version;
        self.blocks.drain().map(|(_, block)| block.len()).sum()
    }

    /// An own write was applied. Returns the bytes freed.
    pub fn wrote(
        &mut self,
        start: u64,
        end: u64,
        previous: DataVersion,
        version: DataVersion,
    ) -> usize {
        self.body =
            self.body.take().filter(|body| body.version == previous || body.version >= version);
        if let Some(body) = self.body.as_mut().filter(|body| body.version == previous) {
            body.version = version;
            let touched = start / (SUMMED * GROUP)..=end.saturating_sub(1) / (SUMMED * GROUP);
            body.sums.retain(|group, _| !touched.contains(group));
        }
        if self.version >= version {
            return 0;
        }
        if self.version != previous {
            return self.meet(version);
        }
        self.version = version;
        let mut freed = 0;
        self.blocks.retain(|index, block| {
            // Blocks on their way were asked for under the old version and will be refused.
            let keep = matches!(block, Block::Here { .. })
                && (end <= index * BLOCK || start >= (index + 1) * BLOCK);
            freed += if keep { 0 } else { block.len() };
            keep
        });
        freed
    }

    /// Reads `start..end` of a file of `size` bytes out of the blocks; those that were read whole
    /// go. The bytes freed are added to `freed`.
    pub fn read(&mut self, start: u64, end: u64, size: u64, freed: &mut usize) -> Ahead {
        let indices = start / BLOCK..=(end - 1) / BLOCK;
        for index in indices.clone() {
            match self.blocks.get(&index) {
                None => return Ahead::Missing,
                Some(Block::Coming) => return Ahead::Coming,
                Some(Block::Here { data, .. })
                    if (index * BLOCK + data.len() as u64)
                        < end.min((index + 1) * BLOCK).min(size) =>
                {
                    return Ahead::Missing;
                }
                Some(Block::Here { .. }) => {}
            }
        }
        let mut parts = Vec::new();
        for index in indices {
            let Some(Block::Here { data, left }) = self.blocks.get_mut(&index) else {
                return Ahead::Missing;
            };
            let base = index * BLOCK;
            let (lo, hi) =
                (start.max(base) - base, (end.min(base + BLOCK) - base).min(data.len() as u64));
            let part = data.slice(lo.min(hi) as usize..hi as usize);
            *left = left.saturating_sub(part.len());
            let done = *left == 0;
            parts.push(part);
            if done {
                *freed += self.blocks.remove(&index).map_or(0, |block| block.len());
            }
        }
        match <[Bytes; 1]>::try_from(parts) {
            Ok([only]) => Ahead::Data(only),
            Err(parts) => Ahead::Data(parts.concat().into()),
        }
    }
}

impl Block {
    fn len(&self) -> usize {
        match self {
            Block::Coming => 0,
            Block::Here { data, .. } => data.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(byte: u8) -> Block {
        Block::Here { data: Bytes::from(vec![byte; BLOCK as usize]), left: BLOCK as usize }
    }

    fn reads() -> ReadCache {
        ReadCache {
            version: DataVersion(5),
            blocks: HashMap::from([(0, here(0)), (1, here(1)), (2, Block::Coming)]),
            ..ReadCache::default()
        }
    }

    #[test]
    fn blocks_serve_once_and_go_when_read_whole() {
        let (mut reads, mut freed, size) = (reads(), 0, 10 * BLOCK);
        let Ahead::Data(data) = reads.read(BLOCK - 1, BLOCK + 1, size, &mut freed) else {
            panic!("both blocks are here")
        };
        assert_eq!(&data[..], [0, 1]);
        assert_eq!(freed, 0);
        assert!(matches!(reads.read(0, BLOCK - 1, size, &mut freed), Ahead::Data(_)));
        assert_eq!(freed, BLOCK as usize, "the first block was read whole, in two parts");
        assert!(matches!(reads.read(0, 1, size, &mut freed), Ahead::Missing));
        assert!(matches!(
            reads.read(2 * BLOCK - 1, 2 * BLOCK + 1, size, &mut freed),
            Ahead::Coming
        ));
    }

    #[test]
    fn a_line_is_as_far_as_its_quickest_answer() {
        let (mut reads, millis) = (ReadCache::default(), Duration::from_millis);
        assert!(!reads.is_far(), "nothing is known");
        reads.began_after(millis(30));
        assert!(reads.is_far());
        reads.began_after(millis(12));
        assert!(reads.is_far());
        reads.began_after(millis(1));
        reads.began_after(millis(40));
        assert!(!reads.is_far(), "the others waited behind what was on its way");
    }

    #[test]
    fn only_an_own_write_preserves_the_other_blocks() {
        let mut ours = reads();
        assert_eq!(ours.wrote(BLOCK, BLOCK + 1, DataVersion(5), DataVersion(6)), BLOCK as usize);
        assert_eq!(
            (ours.version, ours.blocks.len()),
            (DataVersion(6), 1),
            "block 0 stays, what was coming does not"
        );
        let mut strange = reads();
        assert_eq!(
            strange.wrote(BLOCK, BLOCK + 1, DataVersion(6), DataVersion(7)),
            2 * BLOCK as usize
        );
        assert_eq!((strange.version, strange.blocks.len()), (DataVersion(7), 0));
        let mut late = reads();
        assert_eq!(
            late.wrote(0, 1, DataVersion(3), DataVersion(4)),
            0,
            "its effect is in the blocks already"
        );
        assert_eq!(late.blocks.len(), 3);
    }
}
