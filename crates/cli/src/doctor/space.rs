//! Room on the disks below partitions, the cell's directory and the caches of mounts.
//!
//! Each disk has one finding, that of its most important use: a full disk below a partition refuses
//! changes; one below the cell's directory stops the cell's database and the audit log; one below a
//! cache only makes reads slower.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use local::cell::{CellDir, MountRecords};
use local::show;
use store::SpaceLevel;

use super::Finding;
use crate::transport::MountFacts;

/// Free share in percent below which a disk is nearly full.
const FREE_PERCENT_MIN: u64 = 5;
/// The database of a cell, its audit log and the logs of daemons grow by steps of some MiB.
const CELL_BYTES_MIN: u64 = 16 << 20;
/// Less holds hardly a file that is worth being cached.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// The use of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskUse {
    Partition,
    Cell,
    Cache,
}

/// The room on a disk: bytes, and files if the file system limits their number.
#[derive(Clone, Copy, Debug)]
struct DiskRoom {
    total: u64,
    free: u64,
    files: u64,
    free_files: u64,
}

/// Checks the disks below `cell` and below the caches of the mounts that `dir` records.
pub fn examine(dir: &Path, cell: Option<&CellDir>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut places: Vec<(DiskUse, PathBuf)> = Vec::new();
    if let Some(cell) = cell {
        // Several partitions may be on one disk, and each is full then.
        for path in cell.partitions() {
            seen.extend(device(&path));
            let is_there = path.exists();
            places.extend(is_there.then_some((DiskUse::Partition, path)));
        }
    }
    let cell_dir = cell.map(|cell| (DiskUse::Cell, cell.dir().to_owned()));
    let caches = caches(dir).into_iter().map(|path| (DiskUse::Cache, path));
    for (of, path) in cell_dir.into_iter().chain(caches) {
        if device(&path).is_some_and(|device| seen.insert(device)) {
            places.push((of, path));
        }
    }
    places.iter().map(|(of, path)| one(*of, path)).collect()
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|meta| meta.dev())
}

fn caches(dir: &Path) -> Vec<PathBuf> {
    let records = MountRecords::of(dir);
    let points = records.recorded().unwrap_or_default();
    let of = |at: &PathBuf| {
        let facts = MountFacts::read(&records.facts_file(at));
        facts.and_then(|facts| facts.cache).unwrap_or_else(|| records.cache(at))
    };
    points.iter().map(of).collect()
}

fn one(of: DiskUse, place: &Path) -> Finding {
    match room(place) {
        Ok(room) => judge(of, room, place),
        Err(error) => {
            Finding::fail(CHECK, format!("{}: {error}", place.display()), "check that disk")
        }
    }
}

fn room(place: &Path) -> io::Result<DiskRoom> {
    let space = rustix::fs::statvfs(place)?;
    Ok(DiskRoom {
        total: space.f_blocks * space.f_frsize,
        free: space.f_bavail * space.f_frsize,
        files: space.f_files,
        free_files: space.f_favail,
    })
}

const CHECK: &str = "disk space";

fn judge(of: DiskUse, room: DiskRoom, place: &Path) -> Finding {
    let DiskRoom { total, free, files, free_files } = room;
    let what = match of {
        DiskUse::Partition => "partition",
        DiskUse::Cell => "cell's directory",
        DiskUse::Cache => "cache",
    };
    let mut found = format!(
        "{} of {} free for the {what} {}",
        show::bytes(free),
        show::bytes(total),
        place.display()
    );
    let is_low = |free: u64, all: u64| free < all / 100 * FREE_PERCENT_MIN;
    let has_few_files = files > 0 && is_low(free_files, files);
    if has_few_files {
        found.push_str(&format!(", and {free_files} of {files} inodes"));
    }
    match refused(of, room) {
        Some(refused) if of == DiskUse::Cache => {
            Finding::warn(CHECK, format!("{found}; {refused}"), remedy(of))
        }
        Some(refused) => Finding::fail(CHECK, format!("{found}; {refused}"), remedy(of)),
        None if is_low(free, total) || has_few_files => {
            Finding::warn(CHECK, format!("{found}: less than {FREE_PERCENT_MIN} %"), remedy(of))
        }
        None => Finding::ok(CHECK, found),
    }
}

/// The consequence of a full disk.
fn refused(of: DiskUse, room: DiskRoom) -> Option<&'static str> {
    let has_no_files = room.files > 0 && room.free_files == 0;
    match of {
        DiskUse::Partition if has_no_files => Some("the disk has no inodes left"),
        DiskUse::Partition => {
            // The data of one request must fit.
            let left = room.free.saturating_sub(types::limits::PAYLOAD_BYTES_MAX as u64);
            match SpaceLevel::of(room.total, left) {
                SpaceLevel::Nothing => Some("disk full: every change is refused"),
                SpaceLevel::NoRecords => {
                    Some("disk full: new files and bytes are refused, removals are not")
                }
                SpaceLevel::NoBodies => Some("disk full: new bytes are refused, removals are not"),
                SpaceLevel::Ample => None,
            }
        }
        DiskUse::Cell if has_no_files || room.free < CELL_BYTES_MIN => {
            Some("disk full: the cell's database, the audit log and the logs cannot grow")
        }
        DiskUse::Cache if has_no_files || room.free < CACHE_BYTES_MIN => {
            Some("disk full: nothing more is cached, and reads go to the servers")
        }
        DiskUse::Cell | DiskUse::Cache => None,
    }
}

fn remedy(of: DiskUse) -> &'static str {
    match of {
        DiskUse::Partition => {
            "remove something from the tree or from that disk, or move volumes to another \
                partition ('rialto vos move')"
        }
        DiskUse::Cell => "make room on that disk",
        DiskUse::Cache => {
            "make room on that disk, or mount with a smaller --cache-size or another --cache-dir"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity::{Fail, Ok as Fine, Warn};
    use super::*;

    const GIB: u64 = 1 << 30;

    fn with(free: u64, free_files: u64) -> DiskRoom {
        DiskRoom { total: 100 * GIB, free, files: 1000, free_files }
    }

    #[test]
    fn full_and_nearly_full_disks_are_told_with_numbers() {
        use DiskUse::{Cache, Cell, Partition};
        for (of, free, files, level) in [
            (Partition, 50 * GIB, 500, Fine),
            (Partition, 4 * GIB, 500, Warn),
            (Partition, GIB / 2, 500, Fail),
            (Partition, 50 * GIB, 49, Warn),
            (Partition, 50 * GIB, 0, Fail),
            (Cell, 5 * GIB, 50, Fine),
            (Cell, 4 * GIB, 50, Warn),
            (Cell, CELL_BYTES_MIN - 1, 50, Fail),
            (Cell, 5 * GIB, 0, Fail),
            (Cache, 5 * GIB, 50, Fine),
            (Cache, 4 * GIB, 50, Warn),
            (Cache, 0, 0, Warn),
        ] {
            let finding = judge(of, with(free, files), Path::new("/x"));
            assert_eq!(finding.level, level, "{of:?}: {finding:?}");
            assert!(finding.found.contains("of 100.0 GiB free"), "{finding:?}");
            assert_eq!(finding.mend.is_some(), level != Fine, "{finding:?}");
        }
        let few = judge(Cell, with(50 * GIB, 7), Path::new("/x")).found;
        assert!(few.contains("7 of 1000 inodes"), "{few}");
        let cached = judge(Cache, with(0, 500), Path::new("/x"));
        assert!(cached.found.contains("nothing more is cached"), "{cached:?}");
        assert!(cached.mend.unwrap().contains("--cache-dir"));
    }

    #[test]
    fn a_file_system_that_counts_no_files_has_enough_of_them() {
        let room = DiskRoom { files: 0, free_files: 0, ..with(50 * GIB, 0) };
        assert_eq!(judge(DiskUse::Partition, room, Path::new("/x")).level, Fine);
    }

    #[test]
    fn each_disk_is_told_once_also_where_no_cell_is() {
        let dir = tempfile::tempdir().unwrap();
        let cell =
            CellDir::create(&dir.path().join("cell"), "test", local::cell::NewCell::default())
                .unwrap();
        let findings = examine(cell.dir(), Some(&cell));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].found.contains("cell's directory"), "{findings:?}");
        let home = dir.path().join("home");
        assert_eq!(examine(&home, None), []);
        let records = MountRecords::of(&home);
        records.prepare().unwrap();
        for at in ["/mnt/one", "/mnt/two"].map(Path::new) {
            fs::write(records.pid_file(at), "1\n99\n").unwrap();
            fs::create_dir_all(records.cache(at)).unwrap();
        }
        let findings = examine(&home, None);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].found.contains("the cache "), "{findings:?}");
    }
}
