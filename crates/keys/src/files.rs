//! Files that only their owner can read, replaced as a whole.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::KeyError;

/// An error about this file.
pub(crate) fn at(path: &Path, why: impl Display) -> KeyError {
    KeyError { path: path.display().to_string(), why: why.to_string() }
}

/// Makes the directory for its owner alone.
pub(crate) fn make_dir(path: &Path) -> Result<(), KeyError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| at(path, error))
}

/// Replaces a file as a whole.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), KeyError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    // A draft that a crash left may have another mode.
    let _ = fs::remove_file(draft);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft).and_then(
        |mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        },
    );
    let placed = written.and_then(|()| fs::rename(draft, path));
    let synced =
        placed.and_then(|()| path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()));
    synced.map_err(|error| at(path, error))
}

/// Reads a file; `None`: there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, KeyError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, error)),
    }
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), KeyError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(path, error)),
        _ => Ok(()),
    }
}
