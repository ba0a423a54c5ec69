//! The ordered key-value engine below the records, with a minimal interface, and its unit of
//! change: a [`Batch`].
//!
//! An engine applies a batch whole or not at all (ST-1), makes it visible at once, and keeps
//! batches in the order in which they were applied: after a crash it has the effect of the first n
//! batches, with n at least what the last sync covered.

mod rocks;
#[cfg(test)]
mod suite;
mod write_combiner;

use std::ops::ControlFlow;

pub(crate) use rocks::RocksEngine;
pub(crate) use write_combiner::WriteCombiner;

use crate::StoreError;
use crate::format::key::Key;

type Result<T> = std::result::Result<T, StoreError>;

/// Receives one record of a scan: key, value.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// An ordered map from bytes to bytes that survives crashes. Thread-safe.
pub(crate) trait Engine: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// The values of keys in ascending order, of one kind of record. Cheaper than one by one.
    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// Visits records from `from` (included) to `end` (excluded) in key order until `visit` stops
    /// it.
    fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()>;
    /// Applies `batch`: visible on return, and safe from the death of the process.
    fn apply(&self, batch: &Batch) -> Result<()>;
    /// Brings every batch applied before the call to the disk.
    fn sync(&self) -> Result<()>;
    /// Writes the log's content into tables, so that the next start is short.
    fn flush(&self) -> Result<()>;
    /// Gives back the room of removed records, as far as possible; may take long, and needs room
    /// meanwhile.
    fn reclaim(&self);
    /// Whether the engine works on its tables, which takes room that it gives back.
    fn is_tidying(&self) -> bool;
    /// Statistics of the engine, for people.
    fn stats(&self) -> String;
}

/// Changes that are applied together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// The keys and values of all changes, concatenated.
    bytes: Vec<u8>,
    changes: Vec<(What, u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Put,
    Delete,
    DeleteRange,
    Add,
}

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineChange<'a> {
    /// Sets a value.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key.
    Delete(&'a [u8]),
    /// Removes the keys from the first (included) to the second (excluded).
    DeleteRange(&'a [u8], &'a [u8]),
    /// Adds little-endian 64-bit numbers, elementwise and wrapping, to the value (absent: zeros).
    Add(&'a [u8], &'a [u8]),
}

impl Batch {
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(What::Put, key, value);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.push(What::Delete, key, &[]);
    }

    pub(crate) fn delete_range(&mut self, from: &[u8], end: &[u8]) {
        self.push(What::DeleteRange, from, end);
    }

    pub(crate) fn add(&mut self, key: &[u8], by: &[i64]) {
        let bytes: Vec<u8> = by.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.add_bytes(key, &bytes);
    }

    /// As `add`, for numbers in the encoding of values.
    fn add_bytes(&mut self, key: &[u8], by: &[u8]) {
        self.push(What::Add, key, by);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn push(&mut self, what: What, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let length =
            |bytes: &[u8]| u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB");
        self.changes.push((what, length(key), length(value)));
    }

    /// The changes in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = EngineChange<'_>> {
        let mut rest = &self.bytes[..];
        self.changes.iter().map(move |&(what, key, value)| {
            let (key, after) = rest.split_at(key as usize);
            let (value, after) = after.split_at(value as usize);
            rest = after;
            match what {
                What::Put => EngineChange::Put(key, value),
                What::Delete => EngineChange::Delete(key),
                What::DeleteRange => EngineChange::DeleteRange(key, value),
                What::Add => EngineChange::Add(key, value),
            }
        })
    }
}

/// `value + by`, elementwise, as [`EngineChange::Add`] defines it.
pub(crate) fn add_numbers(value: &mut Vec<u8>, by: &[u8]) {
    if value.len() < by.len() {
        value.resize(by.len(), 0);
    }
    for (number, add) in value.chunks_exact_mut(8).zip(by.chunks_exact(8)) {
        let sum = i64::from_le_bytes(number.try_into().expect("8 bytes"))
            .wrapping_add(i64::from_le_bytes(add.try_into().expect("8 bytes")));
        number.copy_from_slice(&sum.to_le_bytes());
    }
}

/// The first key behind every key that begins with `prefix`. `prefix` must not be all 0xff.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}
