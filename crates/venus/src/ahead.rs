//! Read-ahead: who reads a file from front to back finds the next blocks here already.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use client::Cancel;
use types::{Answer, Call, Caller, Status};

use crate::extents::CHUNK;
use crate::file::File;
use crate::open::Open;
use crate::reads::{Ahead, BLOCK, Block};
use crate::shared::{Core, as_caller};

/// The first window.
const WINDOW_MIN: u64 = 256 << 10;
/// Reads of one stream may overtake each other in the kernel by so much.
const SLACK: u64 = 1 << 20;

/// Whether one handle reads from front to back, and how far ahead of it has been asked for.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    next: u64,
    window: u64,
    until: u64,
}

impl Sequence {
    /// A read of `start..end`; what to fetch now, in whole blocks.
    fn observe(&mut self, start: u64, end: u64, size: u64, window_max: u64) -> Option<(u64, u64)> {
        let slack = if self.window == 0 { 0 } else { SLACK };
        if start + slack < self.next || start > self.next + slack {
            *self = Sequence { next: end, window: 0, until: 0 };
            return None;
        }
        self.next = self.next.max(end);
        self.window = (self.window * 2).clamp(WINDOW_MIN, window_max.max(WINDOW_MIN));
        let from = self.until.max(self.next.next_multiple_of(BLOCK));
        let to = (self.next + self.window).min(size).next_multiple_of(BLOCK);
        if to <= from || (to - from) * 2 < self.window && to < size {
            return None;
        }
        self.until = to;
        Some((from, to))
    }
}

impl Core {
    pub fn drop_ahead(&self, bytes: usize) {
        self.ahead_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Reads `start..end`, which lies in the file, out of what was read ahead.
    pub fn read_blocks(
        &self,
        file: &File,
        status: &Status,
        start: u64,
        end: u64,
        cancel: Option<&Cancel>,
    ) -> Option<Bytes> {
        let mut data = file.data.lock();
        loop {
            if data.reads.version != status.data_version || cancel.is_some_and(Cancel::is_cancelled) {
                return None;
            }
            let mut freed = 0;
            let found = data.reads.read(start, end, status.size, &mut freed);
            self.drop_ahead(freed);
            match found {
                Ahead::Data(bytes) => return Some(bytes),
                Ahead::Missing => return None,
                Ahead::Coming => {
                    file.moved.wait_for(&mut data, std::time::Duration::from_millis(20));
                }
            }
        }
    }

    /// After a read of `start..end`: asks for what will be read next.
    pub fn look_ahead(self: &Arc<Self>, open: &Open, status: &Status, start: u64, end: u64) {
        let window_max = self.config.read_ahead_bytes_max as u64;
        let Some((from, to)) = open.sequence.lock().observe(start, end, status.size, window_max) else { return };
        let mut data = open.file.data.lock();
        let freed = data.reads.meet(status.data_version);
        self.drop_ahead(freed);
        let mut at = from;
        while at < to {
            let end = (at + CHUNK as u64).min(to);
            let room =
                self.ahead_bytes.load(Ordering::Acquire) + (end - at) as usize <= self.config.read_cache_bytes_max;
            let blocks: Vec<u64> =
                (at / BLOCK..end / BLOCK).filter(|index| !data.reads.blocks.contains_key(index)).collect();
            if let (true, Some(first), Some(last)) = (room, blocks.first().copied(), blocks.last().copied()) {
                blocks.iter().for_each(|index| drop(data.reads.blocks.insert(*index, Block::Coming)));
                let (core, file, caller) = (Arc::clone(self), Arc::clone(&open.file), open.caller.clone());
                let version = status.data_version;
                self.readers.run(move || core.fetch_ahead(&file, &caller, version, first, last, &blocks));
            }
            at = end;
        }
    }

    fn fetch_ahead(&self, file: &File, caller: &Caller, version: u64, first: u64, last: u64, wanted: &[u64]) {
        let (offset, length) = (first * BLOCK, ((last + 1 - first) * BLOCK) as u32);
        let snapshot = self.begin();
        let answer = self.call(&as_caller(caller, None), Call::Read { fid: file.fid, offset, length });
        let found = match answer {
            Ok(Answer::Data { data, status, .. }) => {
                self.tables.lock().put(snapshot, status);
                self.store(&status, offset, &data);
                (status.data_version == version).then_some(data)
            }
            _ => None,
        };
        let mut data = file.data.lock();
        for index in wanted {
            if !matches!(data.reads.blocks.get(index), Some(Block::Coming)) {
                continue;
            }
            data.reads.blocks.remove(index);
            let at = ((index - first) * BLOCK) as usize;
            let part = found.as_ref().filter(|bytes| at < bytes.len() && data.reads.version == version);
            if let Some(part) = part.map(|bytes| bytes.slice(at..bytes.len().min(at + BLOCK as usize))) {
                self.ahead_bytes.fetch_add(part.len(), Ordering::AcqRel);
                data.reads.blocks.insert(*index, Block::Here { left: part.len(), data: part });
            }
        }
        file.moved.notify_all();
    }

    /// Keeps fetched bytes on disk.
    pub fn store(&self, status: &Status, offset: u64, bytes: &Bytes) {
        if let Some(disk) = &self.disk {
            disk.store(status.fid, status.data_version, status.size, offset, bytes);
        }
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
            fetched.extend(sequence.observe(i * 128 * K, (i + 1) * 128 * K, size, 4 << 20));
        }
        assert!(fetched.windows(2).all(|pair| pair[0].1 == pair[1].0), "each block once, without gaps");
        assert!(fetched.iter().all(|(from, to)| from % BLOCK == 0 && to % BLOCK == 0));
        let ahead = fetched.last().expect("fetched").1 - 200 * 128 * K;
        assert!((2 << 20..=5 << 20).contains(&ahead), "{ahead} ahead at the end");
    }

    #[test]
    fn random_reads_fetch_nothing_ahead() {
        let mut sequence = Sequence::default();
        for offset in [50 << 20, 3 << 20, 70 << 20, 9 << 20] {
            assert_eq!(sequence.observe(offset, offset + 4 * K, 100 << 20, 4 << 20), None);
        }
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.observe(0, 4 * K, 4 * K, 4 << 20), None);
        let mut sequence = Sequence::default();
        assert_eq!(sequence.observe(0, 128 * K, BLOCK + 1, 4 << 20), Some((BLOCK, 2 * BLOCK)));
        assert_eq!(sequence.observe(128 * K, 256 * K, BLOCK + 1, 4 << 20), None);
    }
}
