//! A copy of the embedded database: a thread has a snapshot of RocksDB and reads parts of it. The
//! snapshot borrows the database, so it cannot be held between calls by itself.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rocksdb::{Direction, IteratorMode, Snapshot};
use types::Revision;

use super::{Embedded, Result, medium};
use crate::copy::{CELL_VALUE_BYTES_MAX, CellCopy, CopyCursor, CopyPart, put_record};
use crate::{CellError, key, record};

/// See the head of the file. Its thread ends when it is dropped.
struct EmbeddedCopy {
    at: Revision,
    /// `None`: it is being dropped.
    asks: Option<SyncSender<(CopyCursor, usize)>>,
    parts: Receiver<Result<CopyPart>>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    pub(super) fn begin_copy(&self) -> Result<Box<dyn CellCopy>> {
        let (asks, asked) = sync_channel(1);
        let (tell, parts) = sync_channel(1);
        let (begin, began) = sync_channel(1);
        let db = Arc::clone(&self.db);
        let work = move || {
            let snapshot = db.snapshot();
            if begin.send(revision(&snapshot)).is_err() {
                return;
            }
            while let Ok((cursor, max)) = asked.recv() {
                if tell.send(part(&snapshot, &cursor, max)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("cell-copy".into()).spawn(work);
        let thread = thread.map_err(|error| CellError::Medium(format!("no thread: {error}")))?;
        let mut copy =
            EmbeddedCopy { at: Revision::default(), asks: Some(asks), parts, thread: Some(thread) };
        copy.at = began.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(Box::new(copy))
    }
}

fn ended() -> CellError {
    CellError::Medium("the thread of the copy has ended".to_owned())
}

/// The revision that the snapshot shows: each change is one batch with the counters.
fn revision(snapshot: &Snapshot<'_>) -> Result<Revision> {
    let stored = snapshot.get(key::COUNTERS).map_err(|error| medium(&error))?;
    let counters =
        stored.map(|value| record::decode_counters(key::COUNTERS, &value)).transpose()?;
    Ok(Revision(counters.unwrap_or_default().revision))
}

fn part(snapshot: &Snapshot<'_>, cursor: &CopyCursor, max: usize) -> Result<CopyPart> {
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
        for found in snapshot.iterator(IteratorMode::From(&from, Direction::Forward)) {
            let (key, value) = found.map_err(|error| medium(&error))?;
            changes_behind = key::behind_changes(&key);
            if changes_behind.is_some() {
                break;
            }
            record::check(&key, &value)?;
            put_record(&mut bytes, &key, &value);
            if bytes.len() > wanted {
                bytes.truncate(wanted);
                bytes.drain(..cursor.skip);
                return Ok(CopyPart { bytes, end: false });
            }
        }
        match changes_behind {
            Some(behind) => from = behind,
            None => break,
        }
    }
    bytes.drain(..cursor.skip.min(bytes.len()));
    Ok(CopyPart { bytes, end: true })
}

impl CellCopy for EmbeddedCopy {
    fn at(&self) -> Revision {
        self.at
    }

    fn part(&mut self, cursor: &CopyCursor, max: usize) -> Result<CopyPart> {
        let asked = self.asks.as_ref().is_some_and(|asks| asks.send((cursor.clone(), max)).is_ok());
        if !asked {
            return Err(ended());
        }
        self.parts.recv().unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for EmbeddedCopy {
    fn drop(&mut self) {
        drop(self.asks.take());
        // The database can be opened again once the thread has ended.
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a copy of the cell database panicked");
        }
    }
}
