//! Peer groups of mounts. Source: `mount_setattr(2)`, `mount_namespaces(7)`.

use std::os::fd::{AsRawFd, BorrowedFd};

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
    // SAFETY: the kernel reads an empty path and a `mount_attr` of the given size, which both
    // outlive the call. `mount` is borrowed, so its number names an open file.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    checked(result as i32).map(drop)
}
