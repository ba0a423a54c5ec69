//! A copy of the embedded database: a thread has a snapshot of RocksDB and reads parts of it. The
//! snapshot borrows the database, so it cannot be held between calls by itself.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use types::Revision;

use super::{Embedded, FilesView, Result};
use crate::CellError;
use crate::copy::{CellCopy, CopyCursor, CopyPart, part};
use crate::engine::View;

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
        let db = Arc::clone(&self.operations.engine.db);
        let work = move || {
            let snapshot = FilesView(db.snapshot());
            // The revision that the snapshot shows: each change is one batch with the counters.
            let counters = (&snapshot as &dyn View).counters();
            if begin.send(counters.map(|counters| Revision(counters.revision))).is_err() {
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
