//! Byte-range locks of a process (`fcntl`), which have no safe wrapper. Tests and checkers use
//! them.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Result;

use crate::failure::checked;

/// The operation on the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Take a shared lock.
    Shared,
    /// Take an exclusive lock.
    Exclusive,
    /// Release the range.
    Unlock,
}

impl RangeLock {
    fn number(self) -> i16 {
        let number = match self {
            RangeLock::Shared => libc::F_RDLCK,
            RangeLock::Exclusive => libc::F_WRLCK,
            RangeLock::Unlock => libc::F_UNLCK,
        };
        number as i16
    }
}

/// A conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeConflict {
    /// The lock's first byte.
    pub start: i64,
    /// The lock's length; 0: to the end of every file.
    pub length: i64,
    /// The lock is exclusive.
    pub exclusive: bool,
    /// The owner's process id; 0 if that process is on another machine.
    pub pid: i32,
}

fn call(fd: BorrowedFd<'_>, command: i32, lock: &mut libc::flock) -> Result<()> {
    // SAFETY: these commands read and write one `flock` through the pointer, which is valid for
    // both during the call. `fd` is borrowed, so its number names an open file.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    checked(result).map(drop)
}

fn lock_of(what: RangeLock, start: i64, length: i64) -> libc::flock {
    // SAFETY: `flock` is plain numbers, for which all zeros is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = what.number();
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = length;
    lock
}

/// Locks or unlocks `length` bytes from `start` on (0: to the end) for this process. With `wait`,
/// waits for other owners.
///
/// # Errors
/// `EAGAIN` or `EACCES` if another owner has the range; `EINTR` if a signal ended the wait;
/// `EDEADLK`.
pub fn set_range(
    fd: BorrowedFd<'_>,
    what: RangeLock,
    start: i64,
    length: i64,
    wait: bool,
) -> Result<()> {
    call(fd, if wait { libc::F_SETLKW } else { libc::F_SETLK }, &mut lock_of(what, start, length))
}

/// Same as [`set_range`] for this open file instead of this process (`F_OFD_SETLK`).
///
/// # Errors
/// As [`set_range`].
pub fn set_file_range(
    fd: BorrowedFd<'_>,
    what: RangeLock,
    start: i64,
    length: i64,
    wait: bool,
) -> Result<()> {
    call(
        fd,
        if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK },
        &mut lock_of(what, start, length),
    )
}

/// A lock of another owner that conflicts with `what` on the range, if any.
///
/// # Errors
/// The system's.
pub fn test_range(
    fd: BorrowedFd<'_>,
    what: RangeLock,
    start: i64,
    length: i64,
) -> Result<Option<RangeConflict>> {
    let mut lock = lock_of(what, start, length);
    call(fd, libc::F_GETLK, &mut lock)?;
    let conflict = RangeConflict {
        start: lock.l_start,
        length: lock.l_len,
        exclusive: lock.l_type == RangeLock::Exclusive.number(),
        pid: lock.l_pid,
    };
    Ok((lock.l_type != RangeLock::Unlock.number()).then_some(conflict))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn ranges_of_two_open_files_exclude_each_other() {
        let path = std::env::temp_dir().join(format!("mem-lock-{}", std::process::id()));
        let open = || {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .expect("a file")
        };
        let (first, second) = (open(), open());
        set_file_range(first.as_fd(), RangeLock::Exclusive, 10, 10, false)
            .expect("no other owner has the range");
        assert_eq!(
            set_file_range(second.as_fd(), RangeLock::Shared, 19, 1, false),
            Err(Errno::AGAIN)
        );
        assert_eq!(set_file_range(second.as_fd(), RangeLock::Exclusive, 20, 1, false), Ok(()));
        let conflict =
            test_range(second.as_fd(), RangeLock::Shared, 0, 0).expect("locks can be tested");
        assert_eq!(
            conflict.map(|found| (found.start, found.length, found.exclusive)),
            Some((10, 10, true))
        );
        set_file_range(first.as_fd(), RangeLock::Unlock, 0, 0, false)
            .expect("the lock belongs to this file");
        assert_eq!(set_range(second.as_fd(), RangeLock::Shared, 0, 10, false), Ok(()));
        std::fs::remove_file(&path).expect("the file exists");
    }
}
