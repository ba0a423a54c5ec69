//! How one handle reads, and how far ahead of it the client has asked.

use super::{BLOCK, Pace};

const WINDOW_MIN: u64 = BLOCK;

/// Up to here a window grows whether or not the reader waits.
const WINDOW_NEAR: u64 = 4 << 20;

/// Reads of one stream may overtake each other in the kernel by so much: it has up to three
/// requests of a block each on their way, which worker threads take in any order.
const SLACK: u64 = 4 * BLOCK;

/// Equal steps in a row after which the next ones are fetched, and how many.
const STEPS: u32 = 2;

const STEPS_AHEAD: u64 = 4;

/// How one handle reads, and how far ahead of it the client has asked.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    next: u64,
    window: u64,
    until: u64,
    /// Start of the last run of reads, its distance to the one before, and the equal distances in a
    /// row.
    run: u64,
    step: u64,
    steps: u32,
    pub pace: Pace,
}

impl Sequence {
    /// Whether a read from `start` on goes on where the last ones ended.
    pub fn is_followed_by(&self, start: u64) -> bool {
        let slack = if self.window == 0 { 0 } else { SLACK };
        start + slack >= self.next && start <= self.next + slack
    }

    /// A read of `start..end`, and whether it had to wait for bytes on their way; returns the
    /// ranges of whole blocks to fetch now.
    pub fn observe(
        &mut self,
        start: u64,
        end: u64,
        size: u64,
        window_max: u64,
        waited: bool,
    ) -> Vec<(u64, u64)> {
        if !self.is_followed_by(start) {
            return self.skip(start, end, size);
        }
        self.next = self.next.max(end);
        if self.window < WINDOW_NEAR || waited {
            self.window = (self.window * 2).clamp(WINDOW_MIN, window_max.max(WINDOW_MIN));
        }
        let from = self.until.max(self.next.next_multiple_of(BLOCK));
        let to = (self.next + self.window).min(size).next_multiple_of(BLOCK);
        if to <= from || (to - from) * 2 < self.window && to < size {
            return Vec::new();
        }
        self.until = to;
        vec![(from, to)]
    }

    /// A read that does not follow the last one.
    fn skip(&mut self, start: u64, end: u64, size: u64) -> Vec<(u64, u64)> {
        let step = start.saturating_sub(self.run);
        let steps = if step > BLOCK && step == self.step { self.steps + 1 } else { 0 };
        *self = Sequence {
            next: end,
            window: 0,
            until: 0,
            run: start,
            step,
            steps,
            pace: Pace::default(),
        };
        if steps < STEPS {
            return Vec::new();
        }
        // At first all blocks of the next steps, then the farthest one each time.
        let nearest = if steps == STEPS { 1 } else { STEPS_AHEAD };
        let runs = (nearest..=STEPS_AHEAD).map(|ahead| (start + ahead * step, end + ahead * step));
        runs.filter(|(from, _)| *from < size)
            .map(|(from, to)| (from / BLOCK * BLOCK, to.min(size).next_multiple_of(BLOCK)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    #[test]
    fn the_window_doubles_while_reads_follow_each_other() {
        let mut sequence = Sequence::default();
        let size = 100 << 20;
        let mut fetched = Vec::new();
        for i in 0..200 {
            fetched.extend(sequence.observe(i * 128 * K, (i + 1) * 128 * K, size, 16 << 20, false));
        }
        assert!(
            fetched.windows(2).all(|pair| pair[0].1 == pair[1].0),
            "each block once, without gaps"
        );
        assert!(fetched.iter().all(|(from, to)| from % BLOCK == 0 && to % BLOCK == 0));
        let ahead = fetched.last().expect("fetched").1 - 200 * 128 * K;
        assert!((2 << 20..=5 << 20).contains(&ahead), "{ahead} ahead at the end");
    }

    #[test]
    fn reads_that_overtake_each_other_are_one_stream() {
        let mut sequence = Sequence::default();
        let (size, most) = (1 << 30, 16 << 20);
        let mut fetched = Vec::new();
        for first in (0..256).step_by(4) {
            for at in [0, 3, 2, 1].map(|behind| first + behind) {
                fetched.extend(sequence.observe(at * BLOCK, (at + 1) * BLOCK, size, most, true));
            }
            // Only the very first reads are no stream yet.
            assert!(first == 0 || sequence.window > 0, "the stream broke before {first}");
        }
        assert!(
            fetched.windows(2).all(|pair| pair[0].1 <= pair[1].0),
            "no block twice: {fetched:?}"
        );
        assert_eq!(sequence.window, most);
    }

    #[test]
    fn random_reads_fetch_nothing_ahead() {
        let mut sequence = Sequence::default();
        for offset in [50 << 20, 3 << 20, 70 << 20, 9 << 20] {
            assert_eq!(sequence.observe(offset, offset + 4 * K, 100 << 20, 4 << 20, false), []);
        }
    }

    #[test]
    fn only_a_reader_that_waits_gets_a_larger_window() {
        let (size, most) = (1 << 30, 16 << 20);
        for (waited, least, largest) in [(false, 4 << 20, 4 << 20), (true, 16 << 20, 16 << 20)] {
            let mut sequence = Sequence::default();
            for i in 0..64 {
                sequence.observe(i << 20, (i + 1) << 20, size, most, waited);
            }
            assert!((least..=largest).contains(&sequence.window), "{}", sequence.window);
        }
    }

    #[test]
    fn equal_steps_are_foreseen() {
        let mut sequence = Sequence::default();
        let (size, step) = (1 << 30, 10 << 20);
        let fetched: Vec<_> = (1..6u64)
            .map(|i| sequence.observe(i * step, i * step + 64 * K, size, 4 << 20, false))
            .collect();
        assert!(fetched[..2].iter().all(Vec::is_empty), "{fetched:?}");
        let first: Vec<u64> = fetched[2].iter().map(|(from, _)| *from).collect();
        assert_eq!(first, [4 * step, 5 * step, 6 * step, 7 * step]);
        assert_eq!(fetched[3], [(8 * step, 8 * step + BLOCK)]);
        assert_eq!(
            sequence.observe(7 * step, 7 * step + 64 * K, size, 4 << 20, false),
            [],
            "another step"
        );
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.observe(0, 4 * K, 4 * K, 4 << 20, false), []);
        let mut sequence = Sequence::default();
        assert_eq!(sequence.observe(0, 128 * K, BLOCK + 1, 4 << 20, false), [(BLOCK, 2 * BLOCK)]);
        assert_eq!(sequence.observe(128 * K, 256 * K, BLOCK + 1, 4 << 20, false), []);
    }
}
