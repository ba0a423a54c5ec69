//! The newest backup of a cell's database that was made on this machine: a small file in the cell's
//! directory, for `rialto doctor`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

const FILE: &str = "backup.json";

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRecord {
    /// When it was made, in seconds since 1970.
    pub taken: i64,
    /// The revision that it shows.
    pub revision: u64,
}

impl BackupRecord {
    /// The record in the directory; `None`: there is none that can be read.
    pub fn read(dir: &Path) -> Option<BackupRecord> {
        serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()
    }

    /// Replaces the record in the directory.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = dir.join(format!("{FILE}.{}.new", std::process::id()));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        serde_json::to_writer(&file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&draft, dir.join(FILE))?;
        File::open(dir)?.sync_all()
    }
}
