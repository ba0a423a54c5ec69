//! Peer groups of mounts, and their attributes. Source: `mount_setattr(2)`, `mount_namespaces(7)`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io;

use crate::failure::checked;

/// Makes `mount`, the root of a mount, the first of a peer group: its later copies belong to the
/// group, and what is mounted in one of them appears in all. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// As the system says; `ENOSYS` before Linux 5.12.
pub fn share(mount: BorrowedFd<'_>) -> io::Result<()> {
    let wanted =
        libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_SHARED, userns_fd: 0 };
    set(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &wanted)
}

/// Sets and clears attributes (`MOUNT_ATTR_*`) of `mount`, the root of a mount. Needs
/// `CAP_SYS_ADMIN`.
///
/// # Errors
/// As the system says; `EBUSY` if it becomes read-only while a file is open for writing.
pub fn change(mount: BorrowedFd<'_>, attr_set: u64, attr_clr: u64) -> io::Result<()> {
    let wanted = libc::mount_attr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    set(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &wanted)
}

/// The same for the mount at `path` and all mounts in it: for all of them, or for none.
///
/// # Errors
/// As [`change`].
pub fn change_all(path: &Path, attr_set: u64, attr_clr: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Errno::INVAL)?;
    let wanted = libc::mount_attr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    set(libc::AT_FDCWD, &path, AT_RECURSIVE, &wanted)
}

/// Source: Linux, `include/uapi/linux/fcntl.h`.
const AT_RECURSIVE: i32 = 0x8000;

fn set(at: i32, path: &std::ffi::CStr, flags: i32, wanted: &libc::mount_attr) -> io::Result<()> {
    // SAFETY: the kernel reads a path and a `mount_attr` of the given size, which both outlive the
    // call. `at` names an open file that the caller borrows, or the current directory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(wanted),
            size_of::<libc::mount_attr>(),
        )
    };
    checked(result as i32).map(drop)
}
