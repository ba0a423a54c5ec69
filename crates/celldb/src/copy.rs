//! Copies of all records as of one revision, a part at a time.
//!
//! A copy is a run of bytes: the records in the order of their keys, each as the lengths of key and
//! value (u32, little-endian), the key, the value. A part of it begins where its caller says, by
//! the last whole record that the caller has, so that a part whose answer was lost is asked for
//! again. The log of changes is no record of the cell, and no copy has it.

use types::Revision;
use types::limits::{CELL_KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};

use crate::engine::View;
use crate::{CellDb, CellError, key, record};

/// Bytes of a value: a group with all its sites has 400 KB.
pub const CELL_VALUE_BYTES_MAX: usize = 16 << 20;
/// Bytes before key and value.
const LENGTHS_BYTES: usize = 8;

/// The place in a copy from which a part begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyCursor {
    /// The key of the last whole record that the caller has; empty: none.
    pub after: Vec<u8>,
    /// The bytes of the next record that the caller has already.
    pub skip: usize,
}

/// A part of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPart {
    /// Records, the first and the last of which may be cut.
    pub bytes: Vec<u8>,
    /// Nothing follows.
    pub end: bool,
}

/// A copy: it shows the database as of its revision while others change it, until it is dropped.
pub trait CellCopy: Send {
    /// The revision that it shows.
    fn at(&self) -> Revision;

    /// At most `max` bytes from `cursor` on.
    ///
    /// # Errors
    /// `Damaged`, `Medium`, `Misuse`; `Away` where another server has the database, also if that
    /// server ended the copy.
    fn part(&mut self, cursor: &CopyCursor, max: usize) -> Result<CopyPart, CellError>;
}

/// Takes the revision of a copy, the key of a record, and its value.
pub type CopySink<'a> = dyn FnMut(Revision, &[u8], &[u8]) -> Result<(), CellError> + 'a;

/// Gives all records of one revision to `sink`, in the order of their keys; returns the revision.
///
/// # Errors
/// Those of [`CellDb::copy`] and [`CellCopy::part`]; the sink's; `Damaged` if the parts are no
/// records.
pub fn copy_records(db: &dyn CellDb, sink: &mut CopySink<'_>) -> Result<Revision, CellError> {
    let mut copy = db.copy()?;
    let (mut cursor, mut bytes) = (CopyCursor::default(), Vec::new());
    loop {
        let part = copy.part(&cursor, PAYLOAD_BYTES_MAX)?;
        if part.bytes.is_empty() && !part.end {
            return Err(damaged("an empty part that is not the last"));
        }
        bytes.extend_from_slice(&part.bytes);
        let mut rest = &bytes[..];
        while let Some((key, value, behind)) = take(rest)? {
            if *key <= cursor.after[..] {
                return Err(damaged("records out of order"));
            }
            sink(copy.at(), key, value)?;
            cursor.after = key.to_vec();
            rest = behind;
        }
        let taken = bytes.len() - rest.len();
        bytes.drain(..taken);
        cursor.skip = bytes.len();
        if part.end {
            return if bytes.is_empty() { Ok(copy.at()) } else { Err(damaged("a record is cut")) };
        }
    }
}

fn damaged(why: &str) -> CellError {
    CellError::Damaged(format!("a copy ({why})"))
}

/// A record and the bytes behind it.
type Taken<'a> = Option<(&'a [u8], &'a [u8], &'a [u8])>;

/// The first record; `None`: not all of it is there.
fn take(bytes: &[u8]) -> Result<Taken<'_>, CellError> {
    let Some((lengths, rest)) = bytes.split_first_chunk::<LENGTHS_BYTES>() else {
        return Ok(None);
    };
    let [key, value] = [0, 4].map(|at| {
        let length = [lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]];
        u32::from_le_bytes(length) as usize
    });
    if !(1..=CELL_KEY_BYTES_MAX).contains(&key) || value > CELL_VALUE_BYTES_MAX {
        return Err(damaged("a length that no record has"));
    }
    let Some((key, rest)) = rest.split_at_checked(key) else { return Ok(None) };
    Ok(rest.split_at_checked(value).map(|(value, rest)| (key, value, rest)))
}

/// At most `max` bytes of the copy that a view gives, from `cursor` on.
pub(crate) fn part(
    view: &dyn View,
    cursor: &CopyCursor,
    max: usize,
) -> Result<CopyPart, CellError> {
    let wanted = cursor.skip.checked_add(max).filter(|_| cursor.skip <= 2 * CELL_VALUE_BYTES_MAX);
    let wanted =
        wanted.ok_or_else(|| CellError::Misuse("no record has as many bytes".to_owned()))?;
    // The next key after a key is that key with a zero byte.
    let mut from = cursor.after.clone();
    if !from.is_empty() {
        from.push(0);
    }
    let mut bytes = Vec::new();
    loop {
        let mut changes_behind = None;
        view.scan(&from, &mut |key, value| {
            changes_behind = key::behind_changes(key);
            if changes_behind.is_some() {
                return Ok(false);
            }
            record::check(key, value)?;
            put_record(&mut bytes, key, value);
            Ok(bytes.len() <= wanted)
        })?;
        if bytes.len() > wanted {
            bytes.truncate(wanted);
            bytes.drain(..cursor.skip);
            return Ok(CopyPart { bytes, end: false });
        }
        match changes_behind {
            Some(behind) => from = behind,
            None => break,
        }
    }
    bytes.drain(..cursor.skip.min(bytes.len()));
    Ok(CopyPart { bytes, end: true })
}

/// Appends a record as a copy has it.
fn put_record(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    to.extend((key.len() as u32).to_le_bytes());
    to.extend((value.len() as u32).to_le_bytes());
    to.extend(key);
    to.extend(value);
}
