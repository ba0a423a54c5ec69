//! One owner's ranges of a file: disjoint, in order, and neighbours have different modes.

use types::{ByteRange, LockMode};

use super::table::Held;

/// Gives the bytes of `new.range` the mode `mode`, or none, and leaves all others as they are.
pub(super) fn set(mine: Vec<Held>, new: Held, mode: Option<LockMode>) -> Vec<Held> {
    let mut ranges: Vec<Held> = mine.into_iter().flat_map(|held| outside(held, new.range)).collect();
    ranges.extend(mode.map(|mode| Held { mode, ..new }));
    ranges.sort_unstable_by_key(|held| held.range.start);
    ranges.dedup_by(|next, last| join(last, next));
    ranges
}

/// What is left of a lock when the bytes of `cut` are taken out.
fn outside(held: Held, cut: ByteRange) -> impl Iterator<Item = Held> {
    let ByteRange { start, end } = held.range;
    let overlaps = held.range.overlaps(cut);
    let whole = (!overlaps).then_some(held.range);
    let before = (overlaps && start < cut.start).then(|| ByteRange { start, end: cut.start - 1 });
    let after = (overlaps && cut.end < end).then(|| ByteRange { start: cut.end + 1, end });
    [whole, before, after].into_iter().flatten().map(move |range| Held { range, ..held })
}

/// Makes `last` cover `next` too if they touch and have one mode.
fn join(last: &mut Held, next: &Held) -> bool {
    let touch = last.mode == next.mode && last.range.end.checked_add(1) == Some(next.range.start);
    if touch {
        last.range.end = next.range.end;
        last.pid = next.pid;
    }
    touch
}
