//! Starting to write a file's dirty pages to its disk without waiting for all of them.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Result;

use crate::failure::checked;

/// Starts writing all dirty pages. On return none of them is writable through a map without a
/// fault, at which the kernel sets the file's times. Waits for the pages that were being written
/// before.
///
/// # Errors
/// Those of the disk.
///
/// Source: `sync_file_range(2)`.
pub fn start(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the call takes numbers and no pointer. `fd` is borrowed, so its number names an open
    // file.
    let result = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, flags) };
    checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::map::Map;

    #[test]
    fn a_store_after_start_sets_the_times_again() {
        let dir = std::env::temp_dir().join(format!("writeback-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&dir)
            .expect("makes it");
        file.set_len(8192).expect("extends it");
        let mut map = Map::new(&file, 8192, true).expect("maps it");
        let times = || {
            let known = file.metadata().expect("the file exists");
            (known.mtime(), known.mtime_nsec())
        };
        let mut seen = Vec::new();
        for byte in 0..3 {
            map.write(5, &[byte]);
            start(file.as_fd()).expect("starts");
            seen.push(times());
        }
        std::fs::remove_file(&dir).expect("the file can be removed");
        assert!(seen[0] != seen[1] && seen[1] != seen[2], "{seen:?}");
    }
}
