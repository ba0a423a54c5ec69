//! Chooses the writes in a drive's cache that reach the medium when the power goes.
//!
//! A drive may write its cache to the medium in any order, and the power may go at any moment. So
//! of the writes since the last completed flush any set may be on the medium, and of each write any
//! set of its sectors. A sector itself is old or new as a whole: drives guarantee that. Of a sector
//! that several writes changed, any version may be on the medium: a drive may write one version,
//! then take the next into its cache. Leaving writes out in the order of their arrival reaches all
//! of these states, since a later write that was stored is never older than an earlier one.
//!
//! Independent choices alone would find little: a journal's transaction is complete only if all of
//! its writes are on the medium. So the seed first chooses how the drive behaved.

use rand::Rng;
use rand::rngs::SmallRng;

/// The bytes that a drive writes as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// How the drive behaved.
#[derive(Clone, Copy, Debug)]
enum Luck {
    /// It wrote nothing of its cache.
    Nothing,
    /// It wrote all of its cache.
    Everything,
    /// It wrote in the order of arrival; the power went in the middle of the write with this
    /// number.
    InOrder(usize),
    /// It wrote everything but some consecutive writes.
    AllBut { from: usize, count: usize },
    /// It wrote only some consecutive writes.
    Only { from: usize, count: usize },
    /// It wrote each one with the first probability, and a part of it with the other.
    Each { whole: f64, torn: f64 },
    /// It wrote each sector with this probability.
    Sectors(f64),
}

impl Luck {
    fn draw(writes: usize, rng: &mut SmallRng) -> Luck {
        let run = |rng: &mut SmallRng| {
            let longest = if rng.random() { 2 } else { writes.max(1) };
            (rng.random_range(0..writes.max(1)), rng.random_range(1..=longest))
        };
        match rng.random_range(0..10) {
            0 => Luck::Nothing,
            1 => Luck::Everything,
            2 | 3 => Luck::InOrder(rng.random_range(0..=writes)),
            4 | 5 => {
                let (from, count) = run(rng);
                Luck::AllBut { from, count }
            }
            6 => {
                let (from, count) = run(rng);
                Luck::Only { from, count }
            }
            7 | 8 => {
                let whole = rng.random_range(0.0..1.0);
                Luck::Each { whole, torn: (1.0 - whole) * rng.random_range(0.0..1.0) }
            }
            _ => Luck::Sectors(rng.random_range(0.0..1.0)),
        }
    }

    /// The probability that a sector of write `number` was written; drawn once a write.
    fn of_write(self, number: usize, rng: &mut SmallRng) -> f64 {
        let certain = |is_kept| if is_kept { 1.0 } else { 0.0 };
        match self {
            Luck::Nothing => 0.0,
            Luck::Everything => 1.0,
            Luck::InOrder(end) if number == end => 0.5,
            Luck::InOrder(end) => certain(number < end),
            Luck::AllBut { from, count } => certain(number < from || number >= from + count),
            Luck::Only { from, count } => certain(number >= from && number < from + count),
            Luck::Each { whole, torn } => match rng.random_range(0.0..1.0) {
                drawn if drawn < whole => 1.0,
                drawn if drawn < whole + torn => rng.random_range(0.0..1.0),
                _ => 0.0,
            },
            Luck::Sectors(chance) => chance,
        }
    }
}

/// Calls `keep` with the parts of `writes` (offset and bytes) that reached the medium, in the order
/// of arrival.
pub(crate) fn choose<'a>(
    writes: &[(u64, &'a [u8])],
    rng: &mut SmallRng,
    mut keep: impl FnMut(u64, &'a [u8]),
) {
    let luck = Luck::draw(writes.len(), rng);
    for (number, (offset, data)) in writes.iter().enumerate() {
        let chance = luck.of_write(number, rng);
        if chance == 1.0 {
            keep(*offset, data);
        } else if chance > 0.0 {
            let mut at = *offset;
            for sector in sectors(*offset, data) {
                if rng.random_bool(chance) {
                    keep(at, sector);
                }
                at += sector.len() as u64;
            }
        }
    }
}

/// The parts of a write that lie in one sector each.
fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = (SECTOR_BYTES - offset as usize % SECTOR_BYTES).min(data.len());
    let (first, rest) = data.split_at(first);
    std::iter::once(first).chain(rest.chunks(SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    fn outcome(writes: &[(u64, &[u8])], seed: u64) -> Vec<u8> {
        let mut disk = vec![b'-'; 4 * SECTOR_BYTES];
        choose(writes, &mut SmallRng::seed_from_u64(seed), |offset, data| {
            disk[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        });
        disk.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
    }

    #[test]
    fn every_state_of_overlapping_writes_is_reached_and_no_other() {
        let (one, two) = (vec![b'1'; 2 * SECTOR_BYTES], vec![b'2'; 2 * SECTOR_BYTES]);
        let writes = [(0, &one[..]), (SECTOR_BYTES as u64, &two[..])];
        let found: BTreeSet<_> = (0..4000).map(|seed| outcome(&writes, seed)).collect();
        let mut all = BTreeSet::new();
        for first in *b"-1" {
            for both in *b"-12" {
                for last in *b"-2" {
                    all.insert(vec![first, both, last, b'-']);
                }
            }
        }
        assert_eq!(found, all);
    }

    #[test]
    fn a_sector_is_never_torn() {
        let data: Vec<u8> = (0..3 * SECTOR_BYTES).map(|at| (at / SECTOR_BYTES) as u8 + 1).collect();
        let mut odd = 0;
        for seed in 0..500 {
            let mut sizes = Vec::new();
            let writes = [(100, &data[..])];
            choose(&writes, &mut SmallRng::seed_from_u64(seed), |offset, data| {
                sizes.push((offset, data.len()));
            });
            for (offset, length) in sizes {
                let is_cut = |at: u64| {
                    at.is_multiple_of(SECTOR_BYTES as u64) || at == 100 || at == 100 + 1536
                };
                assert!(is_cut(offset) && is_cut(offset + length as u64), "{offset} {length}");
                odd += usize::from(length < data.len());
            }
        }
        assert!(odd > 0, "no write was torn");
    }
}
