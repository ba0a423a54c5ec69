//! Whether a file is open for writing: the kernel grants a read lease only if it is not.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};

use crate::failure::checked;

/// True if the file of `fd`, which must be open for reading only, is open for writing anywhere on
/// this machine, or mapped so. The function releases the lease at once, so the answer holds for
/// this moment only.
///
/// # Errors
/// `EACCES` if the file is another user's and the process has no `CAP_LEASE`; `EINVAL` where the
/// file system has no leases.
///
/// Source: fcntl(2), "Leases".
pub fn is_open_for_writing(fd: BorrowedFd<'_>) -> Result<bool> {
    match set(fd, libc::F_RDLCK) {
        Ok(()) => set(fd, libc::F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

/// True if the file of `fd` is open or mapped on this machine through anything but `fd` and its
/// duplicates.
///
/// # Errors
/// As [`is_open_for_writing`].
pub fn is_open_elsewhere(fd: BorrowedFd<'_>) -> Result<bool> {
    match set(fd, libc::F_WRLCK) {
        Ok(()) => set(fd, libc::F_UNLCK).map(|()| false),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Not in libc. Source: Linux, `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: i32 = 10;

fn set(fd: BorrowedFd<'_>, kind: i32) -> Result<()> {
    if kind != libc::F_UNLCK {
        // When a process opens the file during the lease, the kernel sends this process a signal,
        // which by default ends it. SAFETY: F_SETSIG takes a number and no pointer. `fd` is
        // borrowed, so its number names an open file.
        unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    }
    // SAFETY: F_SETLEASE takes a number and no pointer. `fd` is borrowed, so its number names an
    // open file.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) };
    checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_open_during_a_lease_request_waits_and_kills_no_process() {
        let path = std::env::temp_dir().join(format!("lease-signal-{}", std::process::id()));
        File::create(&path).expect("temporary files can be made");
        let own = File::open(&path).expect("the file was just made");
        let other = path.clone();
        let opening = std::thread::spawn(move || {
            (0..20_000).for_each(|_| {
                drop(File::options().write(true).open(&other).expect("the file exists"))
            });
        });
        while !opening.is_finished() {
            is_open_for_writing(own.as_fd()).expect("the file system has leases");
        }
        opening.join().expect("the thread only opens the file");
        std::fs::remove_file(&path).expect("the file can be removed");
    }

    #[test]
    fn anybody_else_is_seen() {
        let path = std::env::temp_dir().join(format!("lease-else-{}", std::process::id()));
        let options = || {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .expect("opens")
        };
        let ours = options();
        ours.set_len(4096).expect("extends it");
        let copy = ours.try_clone().expect("duplicates it");
        let alone = is_open_elsewhere(ours.as_fd());
        drop(copy);
        let reader = File::open(&path).expect("the file exists");
        let map = crate::map::Map::new(&reader, 4096, false).expect("maps it");
        drop(reader);
        let mapped = is_open_elsewhere(ours.as_fd());
        drop(map);
        let free = is_open_elsewhere(ours.as_fd());
        std::fs::remove_file(&path).expect("the file can be removed");
        assert_eq!((alone, mapped, free), (Ok(false), Ok(true), Ok(false)));
    }

    #[test]
    fn writers_are_seen_and_readers_are_not() {
        let path = std::env::temp_dir().join(format!("lease-{}", std::process::id()));
        let writer = File::create(&path).expect("temporary files can be made");
        let reader = File::open(&path).expect("the file was just made");
        let seen = is_open_for_writing(reader.as_fd());
        drop(writer);
        let another = File::open(&path).expect("the file exists");
        let free = is_open_for_writing(reader.as_fd());
        drop(another);
        std::fs::remove_file(&path).expect("the file can be removed");
        assert_eq!((seen, free), (Ok(true), Ok(false)));
    }
}
