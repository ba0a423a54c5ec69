//! Checks that the disk has room for all files of a measurement.

use std::path::Path;

use local::failure::{Doing, Failure};
use local::show;

use super::{Form, Scenario, Size};

/// Blocks, names and indices of small files, and logs.
const SMALL_FILE_BYTES: u64 = 12 << 10;
const EMPTY_FILE_BYTES: u64 = 1 << 10;
/// A source tree's files are 25 KiB in the mean.
const TREE_FILE_BYTES: u64 = 32 << 10;
/// Limit of files that one scenario makes at a time.
const CREATED_FILES: u64 = 10_000;
/// Bytes left to other programs.
const SPARE_BYTES: u64 = 512 << 20;

/// Inodes left to other programs.
const SPARE_FILES: u64 = 10_000;

/// The disk space that a measurement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Count of inodes.
    pub files: u64,
}

impl Room {
    /// Computes the space for `sides` sides.
    pub fn needed(size: Size, scenarios: &[Scenario], sides: usize) -> Room {
        let most = |named: bool| {
            let of_form =
                scenarios.iter().filter(|scenario| (scenario.form() == Form::Named) == named);
            of_form.filter_map(|scenario| scenario.empty_files()).max().unwrap_or(0) as u64
        };
        // A scenario that runs only when named measures one side's processes, and the others take
        // no part.
        let (empty, named) = (most(false), most(true));
        // The large file, and one that is written anew; over TCP a third is in the disk cache.
        let large = 3 * size.file_bytes;
        let small =
            (size.files as u64 * 2 + size.entries as u64 + CREATED_FILES) * SMALL_FILE_BYTES;
        let tree = 2 * size.archive_files as u64 * TREE_FILE_BYTES;
        let one = large + small + tree + empty * EMPTY_FILE_BYTES * 11 / 10;
        let files = 3 * (size.files + size.entries + size.archive_files) as u64
            + CREATED_FILES
            + empty * 11 / 10;
        let named = named * EMPTY_FILE_BYTES;
        Room {
            bytes: one * sides as u64 + named + tree + SPARE_BYTES,
            files: files * sides as u64 + SPARE_FILES,
        }
    }

    /// # Errors
    /// If the disk below `dir` has less.
    pub fn check(self, dir: &Path) -> Result<(), Failure> {
        let what = || format!("making room in {}", dir.display());
        let found = rustix::fs::statvfs(dir).doing(what)?;
        let free = found.f_bavail * found.f_frsize;
        if free >= self.bytes {
            return Ok(());
        }
        let why =
            format!("{} are free and {} are needed", show::bytes(free), show::bytes(self.bytes));
        Err(Failure::new(what(), why)
            .mend("use --quick, fewer scenarios, or another disk with --dir"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_sides_and_files_need_more_room_and_less_is_refused() {
        let usual = Room::needed(Size::QUICK, &[Scenario::Unpack], 2);
        let larger = [
            Room::needed(Size::QUICK, &[Scenario::Unpack], 3),
            Room::needed(Size::FULL, &[Scenario::Unpack], 2),
            Room::needed(Size::QUICK, &[Scenario::List1m], 2),
        ];
        assert!(larger.iter().all(|room| room.bytes > usual.bytes && room.files > usual.files));
        assert!(larger[2].files > 2_000_000, "a million on each side");
        Room { bytes: 1, files: 0 }.check(Path::new("/")).unwrap();
        let message =
            Room { bytes: u64::MAX, files: 0 }.check(Path::new("/")).unwrap_err().to_string();
        assert!(message.contains("are needed") && message.contains("--quick"), "{message}");
    }
}
