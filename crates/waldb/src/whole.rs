//! Small text files that are replaced as a whole and detect damage.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Appends a line with the crc32c of `body`.
pub fn summed(body: &str) -> String {
    format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// Writes the file `name` in `dir`, and replaces an older one. It is on disk when this returns.
///
/// # Errors
/// The file system's; then the file is the old one or the new one.
pub fn write_whole(dir: &Path, name: &str, contents: &str) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}
