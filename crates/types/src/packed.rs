//! A packed run of a body: chunks of one length, each compressed by itself, with the checksums of
//! the blocks that they unpack to.

use bytes::Bytes;

use crate::limits::PAYLOAD_BYTES_MAX;

/// Chunks as the partition stores them; the head of the file describes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRun {
    /// Offset of the first chunk in the body, in bytes.
    pub offset: u64,
    /// Bytes that the chunks unpack to: all of each, except bytes past the end of the body.
    pub length: u32,
    /// Bytes of each chunk's zstd frame; 0: the chunk is all zeros, and has none.
    pub frames: Vec<u32>,
    /// The crc32c of each block; bytes past the end of the body count as zeros. 0: the block is a
    /// hole; a sum of 0 is stored as 1.
    pub sums: Vec<u32>,
    /// The frames, one after the other.
    pub bytes: Bytes,
}

impl PackedRun {
    /// Bytes of a body in one chunk.
    pub const CHUNK_BYTES: u64 = 64 << 10;
    /// Bytes of a body with one sum.
    pub const BLOCK_BYTES: u64 = 16 << 10;
    /// The most that a run unpacks to: a read that begins and ends within chunks.
    pub const BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 2 * Self::CHUNK_BYTES as usize;

    /// Whether the parts fit together. The frames' content is only checked by unpacking.
    pub fn is_whole(&self) -> bool {
        let length = u64::from(self.length);
        let framed = self.frames.iter().map(|bytes| u64::from(*bytes)).sum::<u64>();
        self.offset.is_multiple_of(Self::CHUNK_BYTES)
            && (1..=Self::BYTES_MAX as u64).contains(&length)
            && self.frames.len() as u64 == length.div_ceil(Self::CHUNK_BYTES)
            && self.sums.len() as u64 == length.div_ceil(Self::BLOCK_BYTES)
            && framed == self.bytes.len() as u64
    }

    /// Whether these are the chunks of a read of `length` bytes from `offset` on, of a body of
    /// `size` bytes: no more and no fewer.
    pub fn answers(&self, offset: u64, length: u32, size: u64) -> bool {
        let wanted = offset.saturating_add(length.into()).min(size);
        let end = wanted.checked_next_multiple_of(Self::CHUNK_BYTES).unwrap_or(size).min(size);
        let start = offset / Self::CHUNK_BYTES * Self::CHUNK_BYTES;
        offset < wanted && self.offset == start && u64::from(self.length) == end - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    fn run(offset: u64, length: u64) -> PackedRun {
        let frames = vec![3; length.div_ceil(64 * K) as usize];
        let bytes = vec![0; 3 * frames.len()].into();
        PackedRun {
            offset,
            length: length as u32,
            frames,
            sums: vec![1; length.div_ceil(16 * K) as usize],
            bytes,
        }
    }

    #[test]
    fn a_run_is_all_chunks_that_a_read_meets_and_no_other() {
        let size = 200 * K;
        assert!(run(64 * K, 64 * K).answers(70 * K, 10, size));
        assert!(
            run(64 * K, 136 * K).answers(127 * K, 90 * K as u32, size),
            "to the end of the body"
        );
        for (other, why) in [
            (run(0, 128 * K), "a chunk too early"),
            (run(64 * K, 128 * K), "a chunk too many"),
            (run(64 * K, 60 * K), "not all"),
        ] {
            assert!(!other.answers(70 * K, 10, size), "{why}");
        }
        assert!(!run(192 * K, 8 * K).answers(size, 10, size), "nothing is there");
        assert!(!run(0, 64 * K).answers(u64::MAX, 10, u64::MAX));
    }

    #[test]
    fn parts_that_do_not_fit_together_are_no_run() {
        let good = run(64 * K, 100 * K);
        assert!(good.is_whole());
        assert!(!PackedRun { offset: 1, ..good.clone() }.is_whole());
        assert!(!PackedRun { length: 0, ..good.clone() }.is_whole());
        assert!(!PackedRun { length: 20 * K as u32, ..good.clone() }.is_whole());
        assert!(!PackedRun { frames: vec![6], ..good.clone() }.is_whole());
        assert!(!PackedRun { frames: vec![3, 4], ..good.clone() }.is_whole());
        assert!(!PackedRun { sums: vec![1; 6], ..good.clone() }.is_whole());
        assert!(!run(0, PackedRun::BYTES_MAX as u64 + 1).is_whole());
    }
}
