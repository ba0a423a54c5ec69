//! Which volumes move so that partitions are filled alike.
//!
//! Model. A partition's *level* is the share of its room that volumes take; its room is that share
//! and what is free. Each step takes the fullest partition, and the emptiest one that can take a
//! volume of it, and moves the volume that brings the two closest together. No volume moves twice,
//! and no step makes the greater of two levels greater. The plan ends when all levels are within
//! the tolerance, or no move improves anything.

use types::VolumeId;

/// Levels are in thousandths.
const WHOLE: u128 = 1000;

/// A partition and the volumes that could leave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilledPartition {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes of volumes that stay.
    pub fixed_bytes: u64,
    /// Numbers of read-write volumes, with the bytes that move with each.
    pub volumes: Vec<(VolumeId, u64)>,
}

/// One move of a plan; partitions by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The number of the read-write volume.
    pub volume: VolumeId,
    /// The bytes that move.
    pub bytes: u64,
    /// Its partition.
    pub from: usize,
    /// Where it goes.
    pub to: usize,
}

/// The filling of a partition, which a plan changes.
struct Shelf {
    used: u64,
    room: u64,
}

impl Shelf {
    /// In thousandths.
    fn level(&self) -> u128 {
        self.level_with(i128::from(self.used))
    }

    fn level_with(&self, used: i128) -> u128 {
        u128::try_from(used).unwrap_or(0) * WHOLE / u128::from(self.room.max(1))
    }
}

/// The moves after which the levels differ by at most `tolerance` thousandths, or as few as
/// possible; at most `most` moves, in their order. `fits`: whether the volume may be on the
/// partition with this position.
pub fn balance(
    partitions: &[FilledPartition],
    fits: &dyn Fn(VolumeId, usize) -> bool,
    tolerance: u32,
    most: usize,
) -> Vec<PlannedMove> {
    let mut shelves: Vec<Shelf> = partitions.iter().map(shelf).collect();
    let mut left: Vec<Vec<(VolumeId, u64)>> =
        partitions.iter().map(|one| one.volumes.clone()).collect();
    let mut plan = Vec::new();
    while plan.len() < most {
        let Some(next) = next_move(&shelves, &left, fits, u128::from(tolerance)) else { break };
        let PlannedMove { volume, bytes, from, to } = next;
        left[from].retain(|(id, _)| *id != volume);
        shelves[from].used -= bytes;
        shelves[to].used += bytes;
        plan.push(next);
    }
    plan
}

/// The difference of the greatest and the least level, in thousandths.
pub fn unevenness(partitions: &[FilledPartition]) -> u32 {
    let levels = || partitions.iter().map(|one| shelf(one).level());
    let (most, least) = (levels().max().unwrap_or(0), levels().min().unwrap_or(0));
    u32::try_from(most - least).unwrap_or(u32::MAX)
}

fn shelf(partition: &FilledPartition) -> Shelf {
    let moving = partition.volumes.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let used = moving.saturating_add(partition.fixed_bytes);
    Shelf { used, room: used.saturating_add(partition.free_bytes) }
}

fn next_move(
    shelves: &[Shelf],
    left: &[Vec<(VolumeId, u64)>],
    fits: &dyn Fn(VolumeId, usize) -> bool,
    tolerance: u128,
) -> Option<PlannedMove> {
    let mut by_level: Vec<usize> = (0..shelves.len()).collect();
    by_level.sort_by_key(|at| (shelves[*at].level(), *at));
    for from in by_level.iter().rev().copied() {
        for to in by_level.iter().copied() {
            if shelves[from].level() <= shelves[to].level() + tolerance {
                break;
            }
            let moves = left[from].iter().filter(|(id, bytes)| {
                *bytes > 0 && *bytes <= shelves[to].room - shelves[to].used && fits(*id, to)
            });
            let after = |bytes: u64| higher_after(&shelves[from], &shelves[to], bytes);
            let best = moves.min_by_key(|(id, bytes)| (after(*bytes), *id));
            if let Some((volume, bytes)) =
                best.copied().filter(|(_, bytes)| after(*bytes) < shelves[from].level())
            {
                return Some(PlannedMove { volume, bytes, from, to });
            }
        }
    }
    None
}

/// The greater of the two levels after a move of so many bytes.
fn higher_after(from: &Shelf, to: &Shelf, bytes: u64) -> u128 {
    let moved = i128::from(bytes);
    let (less, more) = (i128::from(from.used) - moved, i128::from(to.used) + moved);
    from.level_with(less).max(to.level_with(more))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition(free_bytes: u64, sizes: &[u64], first: u64) -> FilledPartition {
        let volumes = (first..).map(VolumeId).zip(sizes.iter().copied()).collect();
        FilledPartition { free_bytes, fixed_bytes: first % 5, volumes }
    }

    fn moved(partitions: &[FilledPartition], plan: &[PlannedMove]) -> Vec<FilledPartition> {
        let mut after = partitions.to_vec();
        for PlannedMove { volume, bytes, from, to } in plan {
            let at = after[*from].volumes.iter().position(|one| *one == (*volume, *bytes));
            let one = after[*from].volumes.remove(at.unwrap());
            after[*from].free_bytes += bytes;
            after[*to].free_bytes -= bytes;
            after[*to].volumes.push(one);
        }
        after
    }

    #[test]
    fn a_full_partition_gives_to_an_empty_one() {
        let all = [partition(100, &[300, 200, 400], 5), partition(1000, &[], 10)];
        assert_eq!(unevenness(&all), 900);
        let plan = balance(&all, &|_, _| true, 50, 100);
        assert!(unevenness(&moved(&all, &plan)) <= 100, "{plan:?}");
        assert!(balance(&all, &|_, to| to == 0, 50, 100).is_empty());
        assert_eq!(balance(&all, &|_, _| true, 50, 1).len(), 1);
        assert!(balance(&all, &|_, _| true, 900, 100).is_empty(), "it is even enough");
    }

    #[test]
    fn one_large_volume_does_not_go_to_and_fro() {
        let all = [partition(100, &[900], 5), partition(1000, &[], 10)];
        assert!(balance(&all, &|_, _| true, 50, 100).is_empty());
        assert!(balance(&[], &|_, _| true, 50, 100).is_empty());
    }

    fn partitions() -> impl Strategy<Value = Vec<FilledPartition>> {
        let one = (0..2000_u64, prop::collection::vec(0..500_u64, 0..12));
        prop::collection::vec(one, 0..6).prop_map(|all| {
            let with = |(at, (free, sizes)): (usize, (u64, Vec<u64>))| {
                partition(free, &sizes, 1 + 100 * at as u64)
            };
            all.into_iter().enumerate().map(with).collect()
        })
    }

    proptest! {
        #[test]
        fn every_move_improves_and_fits(all in partitions(), tolerance in 0..300_u32, bar in 0..7) {
            let fits = |id: VolumeId, to: usize| (id.0 + to as u64) % 7 != bar as u64;
            let plan = balance(&all, &fits, tolerance, 1000);
            let mut now = all.clone();
            let mut seen = std::collections::HashSet::new();
            for one in &plan {
                prop_assert!(seen.insert(one.volume), "it moves once");
                prop_assert!(fits(one.volume, one.to));
                prop_assert!(one.bytes <= now[one.to].free_bytes, "it has room");
                let pair = |all: &[FilledPartition]| {
                    shelf(&all[one.from]).level().max(shelf(&all[one.to]).level())
                };
                let before = pair(&now);
                now = moved(&now, std::slice::from_ref(one));
                prop_assert!(pair(&now) < before);
            }
            let highest = |all: &[FilledPartition]| {
                all.iter().map(|one| shelf(one).level()).max().unwrap_or(0)
            };
            prop_assert!(highest(&now) <= highest(&all));
            prop_assert_eq!(balance(&all, &fits, tolerance, 1000), plan, "it is the same again");
        }
    }
}
