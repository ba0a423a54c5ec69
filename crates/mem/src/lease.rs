//! Whether anybody has a file open for writing: the kernel grants a read lease only if nobody has.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

/// Whether the file of `fd`, which must be open for reading only, is open for writing anywhere on this machine, or mapped so.
/// The lease that answers this is given back at once, so the answer is about this moment.
///
/// # Errors
/// `EACCES` if the file is another user's and the process has no `CAP_LEASE`; `EINVAL` where the file system has no leases.
///
/// Source: fcntl(2), "Leases".
pub fn is_open_for_writing(fd: BorrowedFd<'_>) -> Result<bool> {
    match set(fd, libc::F_RDLCK) {
        Ok(()) => set(fd, libc::F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

fn set(fd: BorrowedFd<'_>, kind: i32) -> Result<()> {
    // SAFETY: F_SETLEASE takes a number and no pointer. `fd` is borrowed, so its number names an open file.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) };
    if result == 0 {
        return Ok(());
    }
    let code = std::io::Error::last_os_error().raw_os_error().expect("it is the system's");
    Err(Errno::from_raw_os_error(code))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn writers_are_seen_and_readers_are_not() {
        let path = std::env::temp_dir().join(format!("lease-{}", std::process::id()));
        let writer = File::create(&path).expect("temporary files can be made");
        let reader = File::open(&path).expect("it was just made");
        let seen = is_open_for_writing(reader.as_fd());
        drop(writer);
        let another = File::open(&path).expect("it is there");
        let free = is_open_for_writing(reader.as_fd());
        drop(another);
        std::fs::remove_file(&path).expect("it is ours");
        assert_eq!((seen, free), (Ok(true), Ok(false)));
    }
}
