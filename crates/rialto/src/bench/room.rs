//! Whether the disk has room for what will be written.

use std::path::Path;

use super::{Scenario, Size};
use crate::failure::{Doing, Failure};
use crate::show;

/// Blocks, names and indices of small files, and logs.
const SMALL_FILE_BYTES: u64 = 12 << 10;
const EMPTY_FILE_BYTES: u64 = 1 << 10;
/// A source tree's files are 25 KiB in the mean.
const TREE_FILE_BYTES: u64 = 32 << 10;
/// Made by one scenario at a time, at most.
const CREATED_FILES: u64 = 10_000;
/// Left to others.
const SPARE_BYTES: u64 = 512 << 20;

/// Bytes that a measurement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room(pub u64);

impl Room {
    /// For `sides` sides.
    pub fn needed(size: Size, scenarios: &[Scenario], sides: usize) -> Room {
        let empty: u64 = scenarios.iter().filter_map(|scenario| scenario.empty_files()).max().unwrap_or(0) as u64;
        // The large file, and one that is written anew; over TCP a third lies in the disk cache.
        let large = 3 * size.file_bytes;
        let small = (size.files as u64 * 2 + size.entries as u64 + CREATED_FILES) * SMALL_FILE_BYTES;
        let tree = 2 * size.archive_files as u64 * TREE_FILE_BYTES;
        let one = large + small + tree + empty * EMPTY_FILE_BYTES * 11 / 10;
        Room(one * sides as u64 + tree + SPARE_BYTES)
    }

    /// # Errors
    /// If the disk below `dir` has less.
    pub fn check(self, dir: &Path) -> Result<(), Failure> {
        let what = || format!("making room in {}", dir.display());
        let found = rustix::fs::statvfs(dir).doing(what)?;
        let free = found.f_bavail * found.f_frsize;
        if free >= self.0 {
            return Ok(());
        }
        let why = format!("{} are free and {} are needed", show::bytes(free), show::bytes(self.0));
        Err(Failure::new(what(), why).mend("use --quick, fewer scenarios, or another disk with --dir"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_sides_and_files_need_more_room_and_a_disk_that_has_less_is_refused() {
        let usual = Room::needed(Size::QUICK, &[Scenario::Unpack], 2);
        assert!(Room::needed(Size::QUICK, &[Scenario::Unpack], 3) > usual);
        assert!(Room::needed(Size::FULL, &[Scenario::Unpack], 2) > usual);
        assert!(Room::needed(Size::QUICK, &[Scenario::List1m], 2) > usual);
        Room(1).check(Path::new("/")).unwrap();
        let message = Room(u64::MAX).check(Path::new("/")).unwrap_err().to_string();
        assert!(message.contains("are needed") && message.contains("--quick"), "{message}");
    }
}
