//! Which volumes move so that partitions are filled, or used, alike.
//!
//! Model. A partition's *level* is, by room, the share of its room that volumes take; its room is
//! that share and what is free. By load it is the share of all uses that its volumes have. Each
//! step takes the partition with the highest level, and the lowest one that can take a volume of
//! it, and moves the volume that brings the two closest together. No volume moves twice, and no
//! step makes the greater of two levels greater. The plan ends when all levels are within the
//! tolerance, or no move improves anything.

use types::VolumeId;

/// Levels are in thousandths.
const WHOLE: u128 = 1000;
/// By load, a twentieth of a partition's room stays free.
const FREE_PART: u64 = 20;

/// The measure of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceBy {
    /// How full they are.
    Room,
    /// How much their volumes are used.
    Load,
}

/// A partition and the volumes that could leave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilledPartition {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes of volumes that stay.
    pub fixed_bytes: u64,
    /// Uses of volumes that stay.
    pub fixed_load: u64,
    /// Read-write volumes.
    pub volumes: Vec<MovableVolume>,
}

/// A volume that could leave its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovableVolume {
    /// Its number.
    pub id: VolumeId,
    /// The bytes that move.
    pub bytes: u64,
    /// Its uses, in any unit.
    pub load: u64,
}

/// One move of a plan; partitions by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The number of the read-write volume.
    pub volume: VolumeId,
    /// The bytes that move.
    pub bytes: u64,
    /// Its uses.
    pub load: u64,
    /// Its partition.
    pub from: usize,
    /// Where it goes.
    pub to: usize,
}

/// The level of a partition, which a plan changes.
struct Shelf {
    /// Bytes or uses, by the measure.
    used: u64,
    /// The room, or the uses of all partitions.
    whole: u64,
    /// Bytes that can come.
    free_bytes: u64,
}

impl Shelf {
    /// In thousandths.
    fn level(&self) -> u128 {
        self.level_with(i128::from(self.used))
    }

    fn level_with(&self, used: i128) -> u128 {
        u128::try_from(used).unwrap_or(0) * WHOLE / u128::from(self.whole.max(1))
    }
}

impl BalanceBy {
    /// The share of a volume in the level of its partition.
    fn weight(self, volume: &MovableVolume) -> u64 {
        match self {
            BalanceBy::Room => volume.bytes,
            BalanceBy::Load => volume.load,
        }
    }

    fn used(self, partition: &FilledPartition) -> u64 {
        let fixed = match self {
            BalanceBy::Room => partition.fixed_bytes,
            BalanceBy::Load => partition.fixed_load,
        };
        partition.volumes.iter().fold(fixed, |sum, one| sum.saturating_add(self.weight(one)))
    }

    fn shelves(self, partitions: &[FilledPartition]) -> Vec<Shelf> {
        let all = partitions.iter().fold(0_u64, |sum, one| sum.saturating_add(self.used(one)));
        let shelf = |one: &FilledPartition| {
            let (used, filled) = (self.used(one), BalanceBy::Room.used(one));
            let room = filled.saturating_add(one.free_bytes);
            match self {
                BalanceBy::Room => Shelf { used, whole: room, free_bytes: one.free_bytes },
                BalanceBy::Load => {
                    let free_bytes = one.free_bytes.saturating_sub(room / FREE_PART);
                    Shelf { used, whole: all, free_bytes }
                }
            }
        };
        partitions.iter().map(shelf).collect()
    }
}

/// The moves after which the levels differ by at most `tolerance` thousandths, or as few as
/// possible; at most `most` moves, in their order. `fits`: whether the volume may be on the
/// partition with this position.
pub fn balance(
    partitions: &[FilledPartition],
    by: BalanceBy,
    fits: &dyn Fn(VolumeId, usize) -> bool,
    tolerance: u32,
    most: usize,
) -> Vec<PlannedMove> {
    let mut shelves = by.shelves(partitions);
    let mut left: Vec<Vec<MovableVolume>> =
        partitions.iter().map(|one| one.volumes.clone()).collect();
    let mut plan = Vec::new();
    while plan.len() < most {
        let Some((volume, from, to)) = next_move(&shelves, by, &left, fits, u128::from(tolerance))
        else {
            break;
        };
        let MovableVolume { id, bytes, load } = volume;
        left[from].retain(|one| one.id != id);
        shelves[from].used -= by.weight(&volume);
        shelves[to].used += by.weight(&volume);
        shelves[from].free_bytes += bytes;
        shelves[to].free_bytes -= bytes;
        plan.push(PlannedMove { volume: id, bytes, load, from, to });
    }
    plan
}

/// The difference of the greatest and the least level, in thousandths.
pub fn unevenness(partitions: &[FilledPartition], by: BalanceBy) -> u32 {
    let shelves = by.shelves(partitions);
    let levels = || shelves.iter().map(Shelf::level);
    let (most, least) = (levels().max().unwrap_or(0), levels().min().unwrap_or(0));
    u32::try_from(most - least).unwrap_or(u32::MAX)
}

fn next_move(
    shelves: &[Shelf],
    by: BalanceBy,
    left: &[Vec<MovableVolume>],
    fits: &dyn Fn(VolumeId, usize) -> bool,
    tolerance: u128,
) -> Option<(MovableVolume, usize, usize)> {
    let mut by_level: Vec<usize> = (0..shelves.len()).collect();
    by_level.sort_by_key(|at| (shelves[*at].level(), *at));
    for from in by_level.iter().rev().copied() {
        for to in by_level.iter().copied() {
            if shelves[from].level() <= shelves[to].level() + tolerance {
                break;
            }
            let moves = left[from].iter().filter(|one| {
                by.weight(one) > 0 && one.bytes <= shelves[to].free_bytes && fits(one.id, to)
            });
            let after =
                |one: &MovableVolume| higher_after(&shelves[from], &shelves[to], by.weight(one));
            let best = moves.min_by_key(|one| (after(one), one.id));
            if let Some(volume) = best.filter(|one| after(one) < shelves[from].level()) {
                return Some((*volume, from, to));
            }
        }
    }
    None
}

/// The greater of the two levels after a move of so much.
fn higher_after(from: &Shelf, to: &Shelf, weight: u64) -> u128 {
    let moved = i128::from(weight);
    let (less, more) = (i128::from(from.used) - moved, i128::from(to.used) + moved);
    from.level_with(less).max(to.level_with(more))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: BalanceBy = BalanceBy::Room;
    const LOAD: BalanceBy = BalanceBy::Load;

    fn partition(free_bytes: u64, sizes: &[u64], first: u64) -> FilledPartition {
        let volumes = (first..).zip(sizes.iter().copied());
        let volumes = volumes.map(|(id, bytes)| MovableVolume {
            id: VolumeId(id),
            bytes,
            load: bytes * 7 % 300,
        });
        let volumes = volumes.collect();
        FilledPartition { free_bytes, fixed_bytes: first % 5, fixed_load: first % 7, volumes }
    }

    fn moved(partitions: &[FilledPartition], plan: &[PlannedMove]) -> Vec<FilledPartition> {
        let mut after = partitions.to_vec();
        for PlannedMove { volume: id, bytes, load, from, to } in plan.iter().copied() {
            let volume = MovableVolume { id, bytes, load };
            let at = after[from].volumes.iter().position(|one| *one == volume);
            let one = after[from].volumes.remove(at.unwrap());
            after[from].free_bytes += bytes;
            after[to].free_bytes -= bytes;
            after[to].volumes.push(one);
        }
        after
    }

    #[test]
    fn a_full_partition_gives_to_an_empty_one() {
        let all = [partition(100, &[300, 200, 400], 5), partition(1000, &[], 10)];
        assert_eq!(unevenness(&all, ROOM), 900);
        let plan = balance(&all, ROOM, &|_, _| true, 50, 100);
        assert!(unevenness(&moved(&all, &plan), ROOM) <= 100, "{plan:?}");
        assert!(balance(&all, ROOM, &|_, to| to == 0, 50, 100).is_empty());
        assert_eq!(balance(&all, ROOM, &|_, _| true, 50, 1).len(), 1);
        assert!(balance(&all, ROOM, &|_, _| true, 900, 100).is_empty(), "it is even enough");
    }

    #[test]
    fn a_busy_partition_gives_to_an_idle_one() {
        let volume = |id, bytes, load| MovableVolume { id: VolumeId(id), bytes, load };
        let busy = vec![volume(1, 10, 600), volume(2, 500, 300), volume(3, 200, 0)];
        let with = |free_bytes, volumes| FilledPartition {
            free_bytes,
            volumes,
            ..FilledPartition::default()
        };
        let all = [with(5000, busy), with(1000, vec![volume(4, 100, 100)])];
        assert_eq!(unevenness(&all, LOAD), 800, "of all uses");
        let fits = |id: VolumeId, _| id != VolumeId(4);
        let plan = balance(&all, LOAD, &fits, 50, 100);
        let gone: Vec<_> = plan.iter().map(|one| (one.volume.0, one.from, one.to)).collect();
        assert_eq!(gone, [(2, 0, 1)], "the one after which both are used most alike");
        assert_eq!(unevenness(&moved(&all, &plan), LOAD), 200);

        // Without room for that one the smaller one moves, though it is used more.
        let mut all = all;
        all[1].free_bytes = 400;
        let plan = balance(&all, LOAD, &fits, 50, 100);
        assert_eq!(plan.iter().map(|one| one.volume.0).collect::<Vec<_>>(), [1]);
        assert!(balance(&all, ROOM, &|_, _| true, 200, 100).is_empty(), "by room it is even");
        let idle = [with(100, vec![volume(1, 10, 0)]), with(100, Vec::new())];
        assert!(balance(&idle, LOAD, &|_, _| true, 0, 100).is_empty());
    }

    #[test]
    fn one_large_volume_does_not_go_to_and_fro() {
        let all = [partition(100, &[900], 5), partition(1000, &[], 10)];
        for by in [ROOM, LOAD] {
            assert!(balance(&all, by, &|_, _| true, 50, 100).is_empty());
            assert!(balance(&[], by, &|_, _| true, 50, 100).is_empty());
        }
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
        fn every_move_improves_and_fits(
            all in partitions(), tolerance in 0..300_u32, bar in 0..7, by_load: bool,
        ) {
            let by = if by_load { LOAD } else { ROOM };
            let fits = |id: VolumeId, to: usize| (id.0 + to as u64) % 7 != bar as u64;
            let plan = balance(&all, by, &fits, tolerance, 1000);
            let mut now = all.clone();
            let mut seen = std::collections::HashSet::new();
            for one in &plan {
                prop_assert!(seen.insert(one.volume), "it moves once");
                prop_assert!(fits(one.volume, one.to));
                prop_assert!(one.bytes <= now[one.to].free_bytes, "it has room");
                let pair = |all: &[FilledPartition]| {
                    let shelves = by.shelves(all);
                    shelves[one.from].level().max(shelves[one.to].level())
                };
                let before = pair(&now);
                now = moved(&now, std::slice::from_ref(one));
                prop_assert!(pair(&now) < before);
            }
            let highest = |all: &[FilledPartition]| {
                by.shelves(all).iter().map(Shelf::level).max().unwrap_or(0)
            };
            prop_assert!(highest(&now) <= highest(&all));
            let again = balance(&all, by, &fits, tolerance, 1000);
            prop_assert_eq!(again, plan, "it is the same again");
        }
    }
}
