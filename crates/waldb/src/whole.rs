//! Small text files that are there whole or not at all, and show it when they are damaged.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The lines with a line behind them that has their crc32c.
pub fn summed(body: &str) -> String {
    format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// Writes the file `name` in `dir`, in place of one that is there. It is on disk when this returns.
///
/// # Errors
/// The file system's; what was there before is there still, or all of the new.
pub fn write_whole(dir: &Path, name: &str, contents: &str) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}
