//! Records in memory that outlives the process, even if it is killed.
//!
//! Model. A [`Keep`] is a file in memory (`memfd`) whose descriptor the keeper holds. It has
//! *records*: bytes under a [`Key`]. A record is replaced or removed as a whole, and a successor
//! that opens the file finds each as it was before or after, whenever the process was killed: there
//! is no torn record, and what [`Keep::put`] returned from is there. [`Words`] are a record of
//! words that change in place, each by itself.
//!
//! The file is a sequence of *blocks* of 2^n bytes, each with a header:
//!
//! | word | contents |
//! |---|---|
//! | 0 | n in bits 0-7; bit 8: the block has a record; its length in bits 32-63 |
//! | 1 | the record's number: of two records with one key the higher one counts |
//! | 2, 3, 4 | the key |
//!
//! The first block whose word 0 is 0 ends the sequence. A record is written into a free block, its
//! word 0 last. Then the block of the earlier record becomes free. Blocks are neither split nor
//! joined: the records of a mount are of few sizes. The index of keys and the lists of free blocks
//! are in the process's own memory, and a successor makes them from the headers.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mem::shared::{SharedMemory, WORD};
use parking_lot::Mutex;

/// The first word of the file: the format and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"rlt-kp01");
/// Where the first block begins.
const FIRST: usize = 4096;
/// Bytes of a block's header.
const HEADER: usize = 5 * WORD;
/// The smallest block has 2^this bytes.
const CLASS_MIN: u32 = 6;
/// Bytes of the file. They take memory only once they are used.
const FILE_BYTES: usize = 64 << 30;
/// Free blocks of at least 2^this bytes give their memory back, but for a few.
const CLASS_LARGE: u32 = 16;
/// So many large blocks of one size keep their memory while they are free.
const LARGE_KEPT: usize = 16;
const PAGE: usize = 4096;

const LIVE: u64 = 1 << 8;
const LENGTH_SHIFT: u32 = 32;

/// The longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = (1 << 28) - HEADER;

/// The name of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The kind of record; each kind has one owner in the program.
    pub kind: u64,
    /// The owner's numbers of it.
    pub major: u64,
    /// See `major`.
    pub minor: u64,
}

/// The records. Any number of threads may use it; the threads that change one record must agree.
#[derive(Debug)]
pub struct Keep {
    memory: SharedMemory,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    index: HashMap<Key, usize>,
    /// The keys of all [`Words`] that there are.
    words: HashSet<Key>,
    /// By class.
    free: Vec<Vec<usize>>,
    /// Where the next new block begins.
    end: usize,
    number: u64,
}

/// A record with an owner in the program: it is removed when that is dropped.
#[derive(Debug)]
pub struct Record {
    keep: Arc<Keep>,
    key: Key,
}

impl Record {
    /// Replaces its bytes.
    ///
    /// # Errors
    /// As [`Keep::put`].
    pub fn set(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.keep.put(self.key, parts)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.keep.remove(self.key);
    }
}

/// Words of a record, which change in place. They are the successor's as they were last stored.
#[derive(Debug)]
pub struct Words {
    keep: Arc<Keep>,
    key: Key,
    at: usize,
    count: usize,
}

impl Keep {
    /// An empty one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create() -> io::Result<Arc<Keep>> {
        Self::create_with(FILE_BYTES)
    }

    fn create_with(bytes: usize) -> io::Result<Arc<Keep>> {
        let memory = SharedMemory::create("rialto-keep", bytes)?;
        memory.word(0).store(MAGIC, Ordering::Release);
        Ok(Arc::new(Keep { memory, state: Mutex::new(State { end: FIRST, ..State::default() }) }))
    }

    /// That of a predecessor, which has ended.
    ///
    /// # Errors
    /// `InvalidData` if it is none, or is damaged; the kernel's.
    pub fn open(file: OwnedFd) -> io::Result<Arc<Keep>> {
        let memory = SharedMemory::open(file)?;
        if memory.word(0).load(Ordering::Acquire) != MAGIC {
            return Err(damaged(
                "the records of the process before are of another version of this program",
            ));
        }
        let mut state = State { end: FIRST, ..State::default() };
        let mut numbers: HashMap<Key, u64> = HashMap::new();
        while state.end + HEADER <= memory.len() {
            let at = state.end;
            let head = memory.word(at).load(Ordering::Acquire);
            if head == 0 {
                break;
            }
            let class = (head & 0xff) as u32;
            let bytes = 1_usize.checked_shl(class).unwrap_or_default();
            let fits = (CLASS_MIN..usize::BITS).contains(&class)
                && bytes <= memory.len() - at
                && (head >> LENGTH_SHIFT) as usize <= bytes - HEADER;
            if !fits {
                return Err(damaged("a block does not fit"));
            }
            state.end += bytes;
            if head & LIVE == 0 {
                state.is_free(class, at);
                continue;
            }
            let number = memory.word(at + WORD).load(Ordering::Relaxed);
            state.number = state.number.max(number);
            let key = key_at(&memory, at);
            let ends = match state.index.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(at);
                    numbers.insert(key, number);
                    continue;
                }
                Entry::Occupied(mut entry) if numbers[&key] < number => {
                    numbers.insert(key, number);
                    entry.insert(at)
                }
                Entry::Occupied(_) => at,
            };
            let class = end_record(&memory, ends);
            state.is_free(class, ends);
        }
        Ok(Arc::new(Keep { memory, state: Mutex::new(state) }))
    }

    /// The file, for the keeper.
    pub fn file(&self) -> &OwnedFd {
        self.memory.file()
    }

    /// Sets the record of `key` to the bytes of `parts`, one behind the other.
    ///
    /// # Errors
    /// `OutOfMemory` if the file is full; `InvalidInput` for more than [`RECORD_BYTES_MAX`]. The
    /// earlier record stays.
    pub fn put(&self, key: Key, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum();
        let (at, class, number) = self.block(length)?;
        let mut offset = at + HEADER;
        // A part that does not end with a word is followed by another one only as one piece.
        match parts {
            [part] => self.memory.write(offset, part),
            parts
                if parts[..parts.len().saturating_sub(1)]
                    .iter()
                    .all(|part| part.len().is_multiple_of(WORD)) =>
            {
                for part in parts {
                    self.memory.write(offset, part);
                    offset += part.len();
                }
            }
            parts => self.memory.write(offset, &parts.concat()),
        }
        self.publish(key, at, class, number, length);
        Ok(())
    }

    /// The record of `key`, with an owner: a new one, or that of a predecessor.
    ///
    /// # Errors
    /// As [`Self::put`]: then there is none.
    pub fn record(self: &Arc<Self>, key: Key, parts: &[&[u8]]) -> io::Result<Record> {
        let record = Record { keep: Arc::clone(self), key };
        record.set(parts)?;
        Ok(record)
    }

    /// Removes the record of `key`, if there is one.
    pub fn remove(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(at) = state.index.remove(&key) {
            self.free(&mut state, at);
        }
    }

    /// The record of `key`.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        // Under the lock, so that the block is not used again meanwhile.
        let state = self.state.lock();
        let at = *state.index.get(&key)?;
        Some(self.bytes_at(at))
    }

    /// All records of this kind, by key.
    pub fn all(&self, kind: u64) -> Vec<(Key, Vec<u8>)> {
        let state = self.state.lock();
        let of_kind = state.index.iter().filter(|(key, _)| key.kind == kind);
        let mut all: Vec<_> = of_kind.map(|(key, at)| (*key, self.bytes_at(*at))).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// The keys of all records of this kind, in order.
    pub fn keys(&self, kind: u64) -> Vec<Key> {
        let state = self.state.lock();
        let mut keys: Vec<_> = state.index.keys().filter(|key| key.kind == kind).copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The `count` words of `key`: those of a predecessor, or new ones that are 0. There is one
    /// `Words` of a key at a time, until it is dropped.
    ///
    /// # Errors
    /// As [`Self::put`]; `InvalidData` if the record is of another length; `ResourceBusy` if there
    /// is a `Words` of the key.
    pub fn words(self: &Arc<Self>, key: Key, count: usize) -> io::Result<Words> {
        let length = count * WORD;
        let found = {
            let mut state = self.state.lock();
            if state.words.contains(&key) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            let found = state.index.get(&key).copied();
            if found.is_some_and(|at| self.length_at(at) != length) {
                return Err(damaged("a record of words is of another length"));
            }
            state.words.insert(key);
            found
        };
        // Gives the key free if there is no room.
        let mut words = Words { keep: Arc::clone(self), key, at: 0, count };
        let at = match found {
            Some(at) => at,
            None => {
                let (at, class, number) = self.block(length)?;
                (0..count).for_each(|index| {
                    self.memory.word(at + HEADER + index * WORD).store(0, Ordering::Relaxed);
                });
                self.publish(key, at, class, number, length);
                at
            }
        };
        words.at = at + HEADER;
        Ok(words)
    }

    /// A free block for a record, which becomes one only by [`Self::publish`].
    fn block(&self, length: usize) -> io::Result<(usize, u32, u64)> {
        if length > RECORD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let class = (length + HEADER).next_power_of_two().trailing_zeros().max(CLASS_MIN);
        let mut state = self.state.lock();
        state.number += 1;
        let number = state.number;
        let reused = state.free.get_mut(class as usize).and_then(Vec::pop);
        if let Some(at) = reused {
            return Ok((at, class, number));
        }
        let (at, bytes) = (state.end, 1 << class);
        if bytes > self.memory.len() - at {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Before a later block can begin behind it.
        self.memory.word(at).store(u64::from(class), Ordering::Release);
        state.end += bytes;
        Ok((at, class, number))
    }

    fn publish(&self, key: Key, at: usize, class: u32, number: u64, length: usize) {
        let words = [number, key.kind, key.major, key.minor];
        for (index, word) in words.into_iter().enumerate() {
            self.memory.word(at + (index + 1) * WORD).store(word, Ordering::Relaxed);
        }
        let head = u64::from(class) | LIVE | (length as u64) << LENGTH_SHIFT;
        self.memory.word(at).store(head, Ordering::Release);
        let mut state = self.state.lock();
        if let Some(earlier) = state.index.insert(key, at) {
            self.free(&mut state, earlier);
        }
    }

    fn free(&self, state: &mut State, at: usize) {
        let class = end_record(&self.memory, at);
        state.is_free(class, at);
        if class >= CLASS_LARGE && state.free[class as usize].len() > LARGE_KEPT {
            // The first page has the header.
            if let Err(error) = self.memory.clear(at + PAGE, (1 << class) - PAGE) {
                tracing::debug!(%error, "memory of an ended record is not given back");
            }
        }
    }

    fn length_at(&self, at: usize) -> usize {
        (self.memory.word(at).load(Ordering::Acquire) >> LENGTH_SHIFT) as usize
    }

    fn bytes_at(&self, at: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.length_at(at)];
        self.memory.read(at + HEADER, &mut bytes);
        bytes
    }
}

impl State {
    fn is_free(&mut self, class: u32, at: usize) {
        let class = class as usize;
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(at);
    }
}

impl Words {
    /// The word of this index.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Sets the word of this index; those that were set before are seen with it.
    ///
    /// # Panics
    /// If there is none.
    pub fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    /// Removes the record.
    pub fn end(self) {
        self.keep.remove(self.key);
    }

    fn word(&self, index: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        self.keep.memory.word(self.at + index * WORD)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.keep.state.lock().words.remove(&self.key);
    }
}

fn key_at(memory: &SharedMemory, at: usize) -> Key {
    let word = |index: usize| memory.word(at + index * WORD).load(Ordering::Relaxed);
    Key { kind: word(2), major: word(3), minor: word(4) }
}

/// Ends the record of a block; returns the block's class.
fn end_record(memory: &SharedMemory, at: usize) -> u32 {
    let class = memory.word(at).load(Ordering::Relaxed) & 0xff;
    memory.word(at).store(class, Ordering::Release);
    class as u32
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn key(major: u64) -> Key {
        Key { kind: 3, major, minor: major * 7 }
    }

    fn reopened(keep: Arc<Keep>) -> Arc<Keep> {
        let file = keep.file().try_clone().unwrap();
        drop(keep);
        Keep::open(file).unwrap()
    }

    #[test]
    fn it_has_the_records_of_a_map_after_each_reopening() {
        let mut rng = StdRng::seed_from_u64(7);
        let (mut keep, mut model) = (Keep::create().unwrap(), BTreeMap::new());
        for step in 0..20_000_u32 {
            let key = key(rng.random_range(0..50));
            match rng.random_range(0..10) {
                0..=6 => {
                    let length = if step % 50 == 0 { 300_000 } else { 400 };
                    let value: Vec<u8> =
                        (0..rng.random_range(0..length)).map(|_| rng.random()).collect();
                    let cut = rng.random_range(0..=value.len());
                    keep.put(key, &[&value[..cut], &value[cut..]]).unwrap();
                    model.insert(key, value);
                }
                7..=8 => {
                    keep.remove(key);
                    model.remove(&key);
                }
                _ => assert_eq!(keep.get(key).as_ref(), model.get(&key)),
            }
            if step % 1000 == 0 {
                keep = reopened(keep);
                assert!(keep.all(3).into_iter().eq(model.clone()));
                assert!(keep.keys(3).iter().eq(model.keys()) && keep.all(4).is_empty());
            }
        }
    }

    #[test]
    fn a_record_goes_with_its_owner() {
        let keep = Keep::create().unwrap();
        let record = keep.record(key(1), &[b"one"]).unwrap();
        record.set(&[b"other"]).unwrap();
        assert_eq!(keep.get(key(1)).unwrap(), b"other");
        drop(record);
        assert_eq!(keep.get(key(1)), None);
    }

    #[test]
    fn words_change_in_place_and_are_found_again() {
        let keep = Keep::create().unwrap();
        let words = keep.words(key(1), 3).unwrap();
        assert_eq!((words.get(0), words.get(2)), (0, 0));
        words.set(2, 77);
        assert_eq!(
            keep.words(key(1), 3).unwrap_err().kind(),
            io::ErrorKind::ResourceBusy,
            "they are in use"
        );
        drop(words);
        let keep = reopened(keep);
        assert!(keep.words(key(1), 4).is_err());
        let words = keep.words(key(1), 3).unwrap();
        assert_eq!((words.get(1), words.get(2)), (0, 77));
        words.end();
        assert_eq!(keep.get(key(1)), None);
        let new = keep.words(key(2), 3).unwrap();
        assert_eq!(new.get(2), 0, "a block that is used again begins with zeros");
    }

    #[test]
    fn of_two_records_of_a_key_the_later_counts() {
        let keep = Keep::create().unwrap();
        keep.put(key(1), &[b"early"]).unwrap();
        // As if the process was killed before the block of the earlier record became free.
        let (at, class, number) = keep.block(5).unwrap();
        keep.memory.write(at + HEADER, b"later");
        for (index, word) in [number, 3, 1, 7].into_iter().enumerate() {
            keep.memory.word(at + (index + 1) * WORD).store(word, Ordering::Relaxed);
        }
        let head = u64::from(class) | LIVE | 5 << LENGTH_SHIFT;
        keep.memory.word(at).store(head, Ordering::Release);
        let keep = reopened(keep);
        assert_eq!(keep.get(key(1)).unwrap(), b"later");
        let keep = reopened(keep);
        assert_eq!(keep.all(3).len(), 1);
        let state = keep.state.lock();
        assert_eq!(state.free[CLASS_MIN as usize].len(), 1, "the earlier one's block is free");
    }

    #[test]
    fn a_full_file_refuses_and_keeps_what_it_has() {
        let keep = Keep::create_with(FIRST + 128).unwrap();
        keep.put(key(1), &[b"one"]).unwrap();
        keep.put(key(2), &[b"two"]).unwrap();
        let error = keep.put(key(1), &[b"new"]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(keep.get(key(1)).unwrap(), b"one");
        keep.remove(key(2));
        keep.put(key(1), &[b"new"]).unwrap();
        assert_eq!(reopened(keep).get(key(1)).unwrap(), b"new");
    }

    #[test]
    fn damage_is_refused() {
        let with = |at: usize, word: u64| {
            let keep = Keep::create_with(1 << 20).unwrap();
            keep.put(key(1), &[b"one"]).unwrap();
            keep.memory.word(at).store(word, Ordering::Release);
            Keep::open(keep.file().try_clone().unwrap()).map(drop)
        };
        assert!(with(8, 5).is_ok());
        for (at, word) in [(0, 1), (FIRST, 5), (FIRST, 63), (FIRST, 255), (FIRST, 6 | 25 << 32)] {
            assert_eq!(with(at, word).unwrap_err().kind(), io::ErrorKind::InvalidData, "{word}");
        }
    }
}
