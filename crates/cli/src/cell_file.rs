//! `cell.toml`, as commands that change a part of it read and replace it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use local::cell::CellDir;

/// Reads the file.
///
/// # Errors
/// That of the file.
pub fn read(cell: &CellDir) -> Result<String, String> {
    let file = cell.dir().join("cell.toml");
    fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Replaces the file in one step, if it changes.
///
/// # Errors
/// That of the file.
pub fn write(cell: &CellDir, before: &str, after: &str) -> Result<(), String> {
    if after == before {
        return Ok(());
    }
    let file = cell.dir().join("cell.toml");
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let draft = cell.dir().join("cell.toml.new");
    let _ = fs::remove_file(&draft);
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&draft);
    opened
        .and_then(|mut to| to.write_all(after.as_bytes()).and_then(|()| to.sync_all()))
        .and_then(|()| fs::rename(&draft, &file))
        .and_then(|()| fs::File::open(cell.dir())?.sync_all())
        .map_err(failed)
}
