//! Verified blocks: this client has compared them with their sums, or written them (PT-3).
//!
//! The record belongs to one data version. Own writes advance it: their answers have the version
//! before and after, and may be entered in any order, so steps that do not follow on yet wait.
//! Another client's change leaves a gap that is never filled, and the record then belongs to a
//! version that is not the file's.

use std::collections::BTreeMap;

use types::DataVersion;

use super::SUMMED;

/// Most steps that wait; more than writes are ever under way at once.
const STEPS_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct VerifiedBlocks {
    version: DataVersion,
    /// A bit a block.
    bits: Vec<u64>,
    /// Steps that wait: version before, version after.
    steps: BTreeMap<DataVersion, DataVersion>,
}

impl VerifiedBlocks {
    /// Starts a record of this version, without verified blocks.
    pub fn reset(&mut self, version: DataVersion) {
        *self = VerifiedBlocks { version, ..VerifiedBlocks::default() };
    }

    /// Blocks `first..=last` of this version match their sums.
    pub fn checked(&mut self, first: u64, last: u64, version: DataVersion) {
        if version > self.version {
            self.reset(version);
        }
        if version == self.version {
            (first..=last).for_each(|block| self.set(block));
        }
    }

    /// An own write of `start..end`; the file has `size` bytes since.
    pub fn wrote(
        &mut self,
        start: u64,
        end: u64,
        size: u64,
        previous: DataVersion,
        version: DataVersion,
    ) {
        if self.version == DataVersion::NONE {
            self.version = previous;
        }
        for block in start / SUMMED..end.div_ceil(SUMMED) {
            if start <= block * SUMMED && end >= ((block + 1) * SUMMED).min(size) {
                self.set(block);
            }
        }
        if previous >= self.version {
            self.steps.insert(previous, version);
        }
        while let Some(next) = self.steps.remove(&self.version) {
            self.version = next;
        }
        if self.steps.len() > STEPS_MAX {
            self.reset(version);
        }
    }

    /// The version, if all its blocks are verified; it has `size` bytes.
    pub fn whole_version(&self, size: u64) -> Option<DataVersion> {
        Some(self.version).filter(|version| self.is_whole(*version, size))
    }

    /// Whether all blocks of this version, which has `size` bytes, are verified.
    pub fn is_whole(&self, version: DataVersion, size: u64) -> bool {
        let blocks = size.div_ceil(SUMMED);
        self.version == version && self.steps.is_empty() && (0..blocks).all(|block| self.has(block))
    }

    fn set(&mut self, block: u64) {
        let at = (block / 64) as usize;
        if self.bits.len() <= at {
            self.bits.resize(at + 1, 0);
        }
        self.bits[at] |= 1 << (block % 64);
    }

    fn has(&self, block: u64) -> bool {
        self.bits.get((block / 64) as usize).is_some_and(|bits| bits >> (block % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::DataVersion as V;
    use super::*;

    #[test]
    fn writes_make_it_whole_in_any_order_of_answers() {
        let mut known = VerifiedBlocks::default();
        known.reset(V(4));
        known.wrote(SUMMED, 2 * SUMMED + 7, 2 * SUMMED + 7, V(5), V(6));
        assert!(!known.is_whole(V(6), 2 * SUMMED + 7));
        known.wrote(0, SUMMED, SUMMED, V(4), V(5));
        assert!(known.is_whole(V(6), 2 * SUMMED + 7));
        known.wrote(2 * SUMMED + 7, 2 * SUMMED + 9, 2 * SUMMED + 9, V(6), V(7));
        assert!(
            known.is_whole(V(7), 2 * SUMMED + 9),
            "the last block was known, and so is what is appended to it"
        );
    }

    #[test]
    fn another_clients_change_leaves_a_gap_until_a_check() {
        let mut known = VerifiedBlocks::default();
        known.wrote(0, SUMMED, SUMMED, V(1), V(2));
        assert!(known.is_whole(V(2), SUMMED));
        known.wrote(0, SUMMED, SUMMED, V(3), V(4));
        assert!(!known.is_whole(V(4), SUMMED), "another client changed it from 2 to 3");
        known.checked(0, 0, V(4));
        assert!(known.is_whole(V(4), SUMMED));
        known.checked(0, 0, V(3));
        assert!(!known.is_whole(V(3), SUMMED));
    }

    #[test]
    fn a_part_of_a_block_that_was_not_known_stays_unknown() {
        let mut known = VerifiedBlocks::default();
        known.reset(V(1));
        known.wrote(5, SUMMED, SUMMED, V(1), V(2));
        assert!(!known.is_whole(V(2), SUMMED));
        known.wrote(0, 100, SUMMED, V(2), V(3));
        assert!(!known.is_whole(V(3), SUMMED), "two parts that we do not add up");
    }
}
