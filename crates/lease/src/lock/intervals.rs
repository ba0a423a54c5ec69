//! Ranges of bytes, found by the bytes that they overlap, in a number of steps that does not grow
//! with the number of ranges that do not overlap (an interval tree over the bits of the bytes'
//! numbers).
//!
//! A range belongs to one *node*: the smallest aligned block of bytes, a power of two long, that
//! contains it. The middle of the block lies within the range. So a byte before the middle is in
//! each range of the node that begins at or before the byte, and a byte behind the middle in each
//! that ends at or behind it. A byte lies in one block of each size: 65 look-ups find all ranges
//! that contain it, and no others. A range that overlaps another one contains its first byte, or
//! begins behind that within it.

use std::cell::Cell;
use std::collections::BTreeMap;

use types::ByteRange;

/// An entry with a range, and a key of its own.
pub(super) trait Ranged: Copy {
    /// Two entries with one key never overlap.
    type Key: Copy + Ord;
    /// Not after any key.
    const FIRST: Self::Key;
    /// Not before any key.
    const LAST: Self::Key;

    fn key(&self) -> Self::Key;
    fn range(&self) -> ByteRange;
}

/// The logarithm of a block's length, and its number among the blocks of that length.
type Node = (u32, u64);

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Intervals<T: Ranged> {
    starts: BTreeMap<(u64, T::Key), T>,
    by_start: BTreeMap<(Node, u64, T::Key), T>,
    by_end: BTreeMap<(Node, u64, T::Key), T>,
    /// Number of entries in blocks of each size.
    sizes: [u32; 65],
    /// Entries that were visited, for tests.
    visited: Cell<usize>,
}

impl<T: Ranged> Default for Intervals<T> {
    fn default() -> Self {
        let (starts, by_start, by_end) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Intervals { starts, by_start, by_end, sizes: [0; 65], visited: Cell::new(0) }
    }
}

fn node_of(range: ByteRange) -> Node {
    let size = u64::BITS - (range.start ^ range.end).leading_zeros();
    (size, block(size, range.start))
}

/// The number of the block of this size that has the byte.
fn block(size: u32, byte: u64) -> u64 {
    byte.checked_shr(size).unwrap_or(0)
}

impl<T: Ranged> Intervals<T> {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn insert(&mut self, item: T) {
        let (range, key) = (item.range(), item.key());
        let node = node_of(range);
        self.starts.insert((range.start, key), item);
        self.by_start.insert((node, range.start, key), item);
        self.by_end.insert((node, range.end, key), item);
        self.sizes[node.0 as usize] += 1;
    }

    pub fn remove(&mut self, item: &T) {
        let (range, key) = (item.range(), item.key());
        let node = node_of(range);
        if self.starts.remove(&(range.start, key)).is_some() {
            self.by_start.remove(&(node, range.start, key));
            self.by_end.remove(&(node, range.end, key));
            self.sizes[node.0 as usize] -= 1;
        }
    }

    /// The entries that contain a byte of the range.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = &T> {
        let behind = range.start.checked_add(1).filter(|next| *next <= range.end);
        let behind = behind.map(|next| {
            self.starts.range((next, T::FIRST)..=(range.end, T::LAST)).map(|(_, item)| item)
        });
        self.with_byte(range.start).chain(behind.into_iter().flatten()).inspect(|_| self.look())
    }

    fn with_byte(&self, byte: u64) -> impl Iterator<Item = &T> {
        let sizes = (0..=u64::BITS).filter(|size| self.sizes[*size as usize] > 0);
        sizes.flat_map(move |size| {
            self.look();
            let node = (size, block(size, byte));
            let is_before_the_middle = size > 0 && byte & (1 << (size - 1)) == 0;
            match is_before_the_middle {
                true => self.by_start.range((node, 0, T::FIRST)..=(node, byte, T::LAST)),
                false => self.by_end.range((node, byte, T::FIRST)..=(node, u64::MAX, T::LAST)),
            }
            .map(|(_, item)| item)
        })
    }

    fn look(&self) {
        self.visited.set(self.visited.get() + 1);
    }

    /// Entries that were visited so far.
    #[cfg(test)]
    pub fn visited(&self) -> usize {
        self.visited.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{LockMode, LockOwner, SessionId};

    use super::super::held::HeldLock;
    use super::super::{LockFamilyOrd, SessionOwner};
    use super::*;

    fn held(owner: u64, start: u64, end: u64) -> HeldLock {
        let owner = SessionOwner {
            session: SessionId(1),
            owner: LockOwner(owner),
            family: LockFamilyOrd::Posix,
        };
        HeldLock { owner, pid: 1, range: ByteRange { start, end }, mode: LockMode::Shared }
    }

    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..64_u64,
            (0..64_u32).prop_map(|bit| 1 << bit),
            (0..64_u64).prop_map(|back| u64::MAX - back)
        ]
    }

    proptest! {
        #[test]
        fn finds_what_a_look_at_all_finds(
            ranges in prop::collection::vec((edge(), edge()), 0..60),
            gone in prop::collection::vec(any::<bool>(), 60),
            (from, to) in (edge(), edge()),
        ) {
            let all: Vec<HeldLock> = (0..)
                .zip(&ranges)
                .map(|(owner, (a, b))| held(owner, *a.min(b), *a.max(b)))
                .collect();
            let mut intervals = Intervals::default();
            all.iter().for_each(|held| intervals.insert(*held));
            let mut left = Vec::new();
            for (held, gone) in all.iter().zip(gone) {
                if gone { intervals.remove(held) } else { left.push(*held) }
            }
            let wanted = ByteRange { start: from.min(to), end: from.max(to) };
            let mut found: Vec<_> = intervals.overlapping(wanted).map(|held| held.owner).collect();
            found.sort_unstable();
            let overlaps = left.iter().filter(|held| held.range.overlaps(wanted));
            let expected: Vec<_> = overlaps.map(|held| held.owner).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(intervals.is_empty(), left.is_empty());
        }
    }

    #[test]
    fn looks_at_little_where_there_is_much() {
        let mut intervals = Intervals::default();
        // Many that lie close by, in any order of lengths, and none that has the byte.
        (0..20_000).for_each(|owner| intervals.insert(held(owner, 0, 100 + owner % 20)));
        (20_000..40_000).for_each(|owner| intervals.insert(held(owner, 200 + owner, 1 << 40)));
        assert_eq!(intervals.overlapping(ByteRange { start: 127, end: 190 }).count(), 0);
        assert!(intervals.visited() <= 65, "{}", intervals.visited());
    }
}
