//! A new directory that is filled with records.

use std::path::{Path, PathBuf};

use rocksdb::DB;
use waldb::Synced;

use super::{Result, open_files, write};
use crate::CellError;
use crate::engine::{Batch, Fill};
use crate::format::{check_format, put_format};

/// See the head of the file.
pub(crate) struct FilesFill {
    db: DB,
    synced: Synced,
    path: PathBuf,
    _diary: Option<tempfile::TempDir>,
}

impl FilesFill {
    /// # Errors
    /// `Misuse` if something is at `path`; `Medium`.
    pub fn begin(path: &Path) -> Result<FilesFill> {
        if path.exists() || check_format(path)?.is_some() {
            return Err(CellError::Misuse(format!("{} is there already", path.display())));
        }
        let (db, synced, diary) = open_files(path)?;
        Ok(FilesFill { db, synced, path: path.to_owned(), _diary: diary })
    }
}

impl Fill for FilesFill {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        write(&self.db, batch, false)
    }

    fn end(&mut self, batch: &Batch) -> Result<()> {
        write(&self.db, batch, true)?;
        self.synced.note(self.db.latest_sequence_number());
        put_format(&self.path)
    }
}
