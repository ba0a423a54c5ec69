//! Read-ahead: a sequential reader, or one in equal steps, finds the next bytes here already.
//!
//! A stream's *window* is how far ahead of it the client has asked. It doubles while reads follow
//! each other, up to a size that suffices when the server is near; beyond that only while the line
//! is long and the reader still has to wait for bytes that are on their way: so it grows to the
//! line's bandwidth times its delay, and no further. On a short line a waiting reader waits for the
//! processors, and bytes that came too early are no longer in their caches when they are needed: 16
//! MiB ahead cost a fifth more processor time than 4 MiB.
//!
//! A reader that skips by the same distance three times reads in *steps*: the blocks of the next
//! steps are fetched.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use client::Cancel;
use types::{Answer, Call, Caller, Status};

use crate::admission::Pace;
use crate::core::{Core, as_caller};
use crate::disk_cache::Edition;
use crate::file_data::FileBytes;
use crate::open::Open;
use crate::read_cache::{Ahead, BLOCK, Block};

const WINDOW_MIN: u64 = BLOCK;
/// Up to here a window grows whether or not the reader waits.
const WINDOW_NEAR: u64 = 4 << 20;
/// Blocks of one request: one thread receives them one after the other, and none has to be woken
/// for each.
const RUN_BLOCKS: usize = 4;
/// Reads of one stream may overtake each other in the kernel by so much: it has up to three
/// requests of a block each on their way, which worker threads take in any order.
const SLACK: u64 = 4 * BLOCK;
/// Equal steps in a row after which the next ones are fetched, and how many.
const STEPS: u32 = 2;
const STEPS_AHEAD: u64 = 4;
/// Most bytes that wait for the disk cache.
const FILLING_BYTES_MAX: usize = 32 << 20;

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
    pace: Pace,
}

impl Sequence {
    /// Whether a read from `start` on goes on where the last ones ended.
    pub fn is_followed_by(&self, start: u64) -> bool {
        let slack = if self.window == 0 { 0 } else { SLACK };
        start + slack >= self.next && start <= self.next + slack
    }

    /// A read of `start..end`, and whether it had to wait for bytes on their way; returns the
    /// ranges of whole blocks to fetch now.
    fn observe(
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

impl Core {
    pub fn drop_ahead(&self, bytes: usize) {
        self.ahead.change(bytes, 0);
    }

    /// Reads `start..end`, which lies in the file, out of the blocks read ahead; and whether the
    /// read had to wait for them on a long line.
    pub fn read_blocks(
        &self,
        file: &FileBytes,
        status: &Status,
        start: u64,
        end: u64,
        cancel: Option<&Cancel>,
    ) -> (Option<Bytes>, bool) {
        let mut data = file.data.lock();
        let mut waited = false;
        loop {
            if data.reads.version != status.data_version || cancel.is_some_and(Cancel::is_cancelled)
            {
                return (None, waited);
            }
            let mut freed = 0;
            let found = data.reads.read(start, end, status.size, &mut freed);
            self.drop_ahead(freed);
            match found {
                Ahead::Data(bytes) => return (Some(bytes), waited),
                Ahead::Missing => return (None, waited),
                Ahead::Coming => {
                    waited |= data.reads.is_far();
                    file.moved.wait_for(&mut data, std::time::Duration::from_millis(20));
                }
            }
        }
    }

    /// After a read of `start..end`: asks for the next bytes. `waited`: see [`Core::read_blocks`].
    pub fn look_ahead(
        self: &Arc<Self>,
        open: &Open,
        status: &Status,
        start: u64,
        end: u64,
        waited: bool,
    ) {
        let window_max = self.config.read_ahead_bytes_max as u64;
        let mut sequence = open.sequence.lock();
        let follows = sequence.is_followed_by(start);
        let ranges = sequence.observe(start, end, status.size, window_max, waited);
        let (far, rate) = (self.config.keep_bytes, self.config.keep_rate_max);
        let fast = sequence.pace.is_fast(Instant::now(), follows, (start, end), far, rate);
        drop(sequence);
        for (from, to) in ranges {
            self.fetch_range(open, status, from, to, fast);
        }
    }

    /// Asks for the blocks of `from..to` that are neither here nor on their way. `fast`: see
    /// `admission.rs`.
    fn fetch_range(self: &Arc<Self>, open: &Open, status: &Status, from: u64, to: u64, fast: bool) {
        let mut data = open.file.data.lock();
        let freed = data.reads.meet(status.data_version);
        self.drop_ahead(freed);
        let room =
            self.ahead.limit(self.config.read_cache_bytes_max).saturating_sub(self.ahead.bytes());
        let missing = (from / BLOCK..to.div_ceil(BLOCK))
            .filter(|index| !data.reads.blocks.contains_key(index));
        let blocks: Vec<u64> = missing.take(room / BLOCK as usize).collect();
        for run in blocks.chunks(RUN_BLOCKS) {
            run.iter().for_each(|index| drop(data.reads.blocks.insert(*index, Block::Coming)));
            let (core, file, caller) =
                (Arc::clone(self), Arc::clone(&open.file), open.caller.clone());
            let (version, run) = (status.data_version, run.to_vec());
            self.readers.run(move || core.fetch_run(&file, &caller, version, &run, fast));
        }
    }

    /// Fetches these blocks in one request; each is here as soon as its bytes are.
    fn fetch_run(
        self: &Arc<Self>,
        file: &FileBytes,
        caller: &Caller,
        version: u64,
        blocks: &[u64],
        fast: bool,
    ) {
        let read =
            |index: &u64| Call::Read { fid: file.fid, offset: index * BLOCK, length: BLOCK as u32 };
        let mut calls: Vec<Call> = blocks.iter().map(read).collect();
        let request = as_caller(caller, None);
        if calls.iter_mut().try_for_each(|call| self.send_related(&request, call)).is_err() {
            return blocks
                .iter()
                .for_each(|index| self.block_came(file, (version, 0), *index, None, fast));
        }
        let (snapshot, place, life) = (self.begin(), self.instance.place(), self.instance.life());
        let asked = Instant::now();
        self.remote.chain_each(caller, calls, &mut |at, result| {
            if at == 0 && result.is_ok() {
                file.data.lock().reads.began_after(asked.elapsed());
            }
            let result = result.inspect(|reply| self.check_instance(place, reply));
            let answer = match result.map(|reply| reply.answer) {
                Ok(Answer::Data { data, status, .. }) => {
                    self.tables.lock().put(snapshot, status);
                    Some((data, status))
                }
                _ => None,
            };
            if let Some(index) = blocks.get(at) {
                self.block_came(file, (version, life), *index, answer, fast);
            }
        });
    }

    /// A block that was on its way is here, or will not come: then its reader asks for it itself.
    fn block_came(
        self: &Arc<Self>,
        file: &FileBytes,
        (version, life): (u64, u64),
        index: u64,
        answer: Option<(Bytes, Status)>,
        fast: bool,
    ) {
        let mut data = file.data.lock();
        if matches!(data.reads.blocks.get(&index), Some(Block::Coming)) {
            data.reads.blocks.remove(&index);
            let fits = |(bytes, status): &&(Bytes, Status)| {
                !bytes.is_empty() && status.data_version == version && data.reads.version == version
            };
            if let Some((bytes, _)) = answer.as_ref().filter(fits) {
                self.ahead.change(0, bytes.len());
                data.reads
                    .blocks
                    .insert(index, Block::Here { left: bytes.len(), data: bytes.clone() });
            }
        }
        file.moved.notify_all();
        drop(data);
        if let Some((bytes, status)) = answer
            && !(fast && self.leave_out(&status, index))
        {
            self.store(&status, life, index * BLOCK, &bytes);
        }
    }

    /// Writes bytes, which were asked for in this server instance, to the disk cache, soon; not if
    /// the disk is slower than the line.
    pub fn store(self: &Arc<Self>, status: &Status, life: u64, offset: u64, bytes: &Bytes) {
        let length = bytes.len();
        if self.disk().is_none() || self.filling.bytes() > self.filling.limit(FILLING_BYTES_MAX) {
            return;
        }
        self.filling.change(0, length);
        let (core, status, bytes) = (Arc::clone(self), *status, bytes.clone());
        self.fillers.run(move || {
            if let Some(disk) = core.disk() {
                disk.store(status.fid, Edition::of(&status, life), status.size, offset, &bytes);
            }
            drop(bytes);
            core.filling.change(length, 0);
        });
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
