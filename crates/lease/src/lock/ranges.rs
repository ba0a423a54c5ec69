//! One owner's ranges of a file: disjoint, in order, and neighbours have different modes.

use types::{ByteRange, LockMode};

use super::held::HeldLock;

/// Sets the bytes of `new.range` to `mode`, or unlocks them, and leaves all others as they are.
pub(super) fn set(mine: Vec<HeldLock>, new: HeldLock, mode: Option<LockMode>) -> Vec<HeldLock> {
    let mut ranges: Vec<HeldLock> =
        mine.into_iter().flat_map(|held| outside(held, new.range)).collect();
    ranges.extend(mode.map(|mode| HeldLock { mode, ..new }));
    ranges.sort_unstable_by_key(|held| held.range.start);
    ranges.dedup_by(|next, last| join(last, next));
    ranges
}

/// The parts of a lock outside of `cut`.
fn outside(held: HeldLock, cut: ByteRange) -> impl Iterator<Item = HeldLock> {
    let ByteRange { start, end } = held.range;
    let overlaps = held.range.overlaps(cut);
    let whole = (!overlaps).then_some(held.range);
    let before = (overlaps && start < cut.start).then(|| ByteRange { start, end: cut.start - 1 });
    let after = (overlaps && cut.end < end).then(|| ByteRange { start: cut.end + 1, end });
    [whole, before, after].into_iter().flatten().map(move |range| HeldLock { range, ..held })
}

/// Extends `last` over `next` if they touch and have one mode.
fn join(last: &mut HeldLock, next: &HeldLock) -> bool {
    let touch = last.mode == next.mode && last.range.end.checked_add(1) == Some(next.range.start);
    if touch {
        last.range.end = next.range.end;
        last.pid = next.pid;
    }
    touch
}

#[cfg(test)]
mod tests {
    use types::{LockOwner, SessionId};

    use super::super::{LockFamilyOrd, SessionOwner};
    use super::*;

    const OWNER: SessionOwner =
        SessionOwner { session: SessionId(1), owner: LockOwner(1), family: LockFamilyOrd::Posix };

    fn held(start: u64, end: u64, mode: LockMode) -> HeldLock {
        HeldLock { owner: OWNER, pid: 1, range: ByteRange { start, end }, mode }
    }

    fn after(mine: &[HeldLock], start: u64, end: u64, mode: Option<LockMode>) -> Vec<HeldLock> {
        set(mine.to_vec(), held(start, end, LockMode::Shared), mode)
    }

    use LockMode::{Exclusive, Shared};

    #[test]
    fn neighbours_of_one_mode_become_one_lock() {
        let mine = [held(0, 9, Shared), held(20, 29, Shared)];
        assert_eq!(after(&mine, 10, 19, Some(Shared)), [held(0, 29, Shared)]);
        assert_eq!(after(&mine, 5, 24, Some(Shared)), [held(0, 29, Shared)]);
    }

    #[test]
    fn a_change_of_mode_splits() {
        let mine = [held(0, 29, Shared)];
        let split = [held(0, 9, Shared), held(10, 19, Exclusive), held(20, 29, Shared)];
        assert_eq!(after(&mine, 10, 19, Some(Exclusive)), split);
        assert_eq!(after(&split, 10, 19, Some(Shared)), mine);
        assert_eq!(after(&split, 0, 29, Some(Exclusive)), [held(0, 29, Exclusive)]);
    }

    #[test]
    fn a_hole_splits_and_an_edge_shortens() {
        let mine = [held(10, 29, Exclusive)];
        assert_eq!(after(&mine, 15, 19, None), [held(10, 14, Exclusive), held(20, 29, Exclusive)]);
        assert_eq!(after(&mine, 0, 10, None), [held(11, 29, Exclusive)]);
        assert_eq!(after(&mine, 29, u64::MAX, None), [held(10, 28, Exclusive)]);
        assert_eq!(after(&mine, 0, u64::MAX, None), []);
    }

    #[test]
    fn the_last_byte_of_all_has_no_neighbour_behind_it() {
        let mine = [held(0, u64::MAX, Shared)];
        let split = [held(0, u64::MAX - 1, Shared), held(u64::MAX, u64::MAX, Exclusive)];
        assert_eq!(after(&mine, u64::MAX, u64::MAX, Some(Exclusive)), split);
        assert_eq!(after(&split, u64::MAX, u64::MAX, None), [held(0, u64::MAX - 1, Shared)]);
    }
}
