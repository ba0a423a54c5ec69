//! Setting the length of a file through a descriptor that is open for reading only, without a
//! second open.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

use crate::failure::checked;

/// Cuts or extends the file of `fd` to `length` bytes. The process needs the right to write it.
///
/// # Errors
/// Those of truncate(2); `ENOENT` where /proc is not mounted.
pub fn set(fd: BorrowedFd<'_>, length: u64) -> Result<()> {
    let path = CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .expect("a number contains no zero byte");
    let length = libc::off_t::try_from(length).map_err(|_| Errno::FBIG)?;
    // SAFETY: the path ends with a zero and outlives the call, which stores no pointer to it.
    let result = unsafe { libc::truncate(path.as_ptr(), length) };
    checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_that_is_open_for_reading_is_cut_and_extended() {
        let path = std::env::temp_dir().join(format!("length-{}", std::process::id()));
        fs::write(&path, "letters").expect("temporary files can be made");
        let file = File::open(&path).expect("the file exists");
        set(file.as_fd(), 3).expect("the file is writable");
        assert_eq!(fs::read(&path).expect("the file exists"), b"let");
        set(file.as_fd(), 5).expect("the file is writable");
        assert_eq!(fs::read(&path).expect("the file exists"), b"let\0\0");
        assert_eq!(set(file.as_fd(), u64::MAX), Err(Errno::FBIG));
        fs::remove_file(&path).expect("the file can be removed");
    }
}
