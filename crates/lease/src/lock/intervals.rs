//! Ranges of many owners, found by what they overlap in steps that do not grow with how many others there are (an interval tree over the bits of the bytes' numbers).
//!
//! A range belongs to one *node*: the smallest aligned block of bytes, a power of two long, that has all of it. The middle of the block lies within the range, so of those
//! of one node a byte before the middle is in each that begins at or before it, and a byte behind the middle in each that ends at or behind it. A byte lies in one block
//! of each size: 65 looks find all ranges that have it, and no others. What overlaps a range has its first byte, or begins behind that within it.

use std::cell::Cell;
use std::collections::BTreeMap;

use types::{ByteRange, LockOwner, SessionId};

use super::table::Held;
use super::{LockFamilyOrd, Owner};

/// Of no owner, before all; and behind all.
const FIRST: Owner = Owner { session: SessionId(0), owner: LockOwner(0), family: LockFamilyOrd::Posix };
const LAST: Owner = Owner { session: SessionId(u64::MAX), owner: LockOwner(u64::MAX), family: LockFamilyOrd::Flock };

/// The logarithm of a block's length, and its number among those.
type Node = (u32, u64);

/// Ranges; those of one owner are disjoint.
#[derive(Debug)]
pub(super) struct Intervals {
    starts: BTreeMap<(u64, Owner), Held>,
    by_start: BTreeMap<(Node, u64, Owner), Held>,
    by_end: BTreeMap<(Node, u64, Owner), Held>,
    /// How many belong to blocks of each size.
    sizes: [u32; 65],
    /// Entries that were looked at, for tests.
    looked: Cell<usize>,
}

impl Default for Intervals {
    fn default() -> Self {
        let (starts, by_start, by_end) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Intervals { starts, by_start, by_end, sizes: [0; 65], looked: Cell::new(0) }
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

impl Intervals {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn insert(&mut self, held: Held) {
        let (node, owner) = (node_of(held.range), held.owner);
        self.starts.insert((held.range.start, owner), held);
        self.by_start.insert((node, held.range.start, owner), held);
        self.by_end.insert((node, held.range.end, owner), held);
        self.sizes[node.0 as usize] += 1;
    }

    pub fn remove(&mut self, held: &Held) {
        let (node, owner) = (node_of(held.range), held.owner);
        if self.starts.remove(&(held.range.start, owner)).is_some() {
            self.by_start.remove(&(node, held.range.start, owner));
            self.by_end.remove(&(node, held.range.end, owner));
            self.sizes[node.0 as usize] -= 1;
        }
    }

    /// Those that have a byte of the range.
    pub fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = &Held> {
        let behind = range.start.checked_add(1).filter(|next| *next <= range.end);
        let behind = behind.map(|next| self.starts.range((next, FIRST)..=(range.end, LAST)).map(|(_, held)| held));
        self.with_byte(range.start).chain(behind.into_iter().flatten()).inspect(|_| self.look())
    }

    fn with_byte(&self, byte: u64) -> impl Iterator<Item = &Held> {
        let sizes = (0..=u64::BITS).filter(|size| self.sizes[*size as usize] > 0);
        sizes.flat_map(move |size| {
            self.look();
            let node = (size, block(size, byte));
            let is_before_the_middle = size > 0 && byte & (1 << (size - 1)) == 0;
            match is_before_the_middle {
                true => self.by_start.range((node, 0, FIRST)..=(node, byte, LAST)),
                false => self.by_end.range((node, byte, FIRST)..=(node, u64::MAX, LAST)),
            }
            .map(|(_, held)| held)
        })
    }

    fn look(&self) {
        self.looked.set(self.looked.get() + 1);
    }

    /// Entries that were looked at so far.
    #[cfg(test)]
    pub fn looked(&self) -> usize {
        self.looked.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::LockMode;

    use super::*;

    fn held(owner: u64, start: u64, end: u64) -> Held {
        let owner = Owner { session: SessionId(1), owner: LockOwner(owner), family: LockFamilyOrd::Posix };
        Held { owner, pid: 1, range: ByteRange { start, end }, mode: LockMode::Shared }
    }

    fn edge() -> impl Strategy<Value = u64> {
        prop_oneof![0..64_u64, (0..64_u32).prop_map(|bit| 1 << bit), (0..64_u64).prop_map(|back| u64::MAX - back)]
    }

    proptest! {
        #[test]
        fn finds_what_a_look_at_all_finds(
            ranges in prop::collection::vec((edge(), edge()), 0..60),
            gone in prop::collection::vec(any::<bool>(), 60),
            (from, to) in (edge(), edge()),
        ) {
            let all: Vec<Held> = (0..).zip(&ranges).map(|(owner, (a, b))| held(owner, *a.min(b), *a.max(b))).collect();
            let mut intervals = Intervals::default();
            all.iter().for_each(|held| intervals.insert(*held));
            let mut left = Vec::new();
            for (held, gone) in all.iter().zip(gone) {
                if gone { intervals.remove(held) } else { left.push(*held) }
            }
            let wanted = ByteRange { start: from.min(to), end: from.max(to) };
            let mut found: Vec<_> = intervals.overlapping(wanted).map(|held| held.owner).collect();
            found.sort_unstable();
            let expected: Vec<_> = left.iter().filter(|held| held.range.overlaps(wanted)).map(|held| held.owner).collect();
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
        assert!(intervals.looked() <= 65, "{}", intervals.looked());
    }
}
