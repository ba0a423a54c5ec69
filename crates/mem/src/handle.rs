//! Opening a directory by its handle. Source: `open_by_handle_at(2)`.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io;

use crate::failure::checked;

/// The kernel's `struct file_handle` with room for three words.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    words: [u32; 3],
}

/// Opens the directory with this handle for reading, in the file system that `mount` is open in.
/// Needs `CAP_DAC_READ_SEARCH`.
///
/// # Errors
/// `ESTALE` if there is none, `EPERM` without the capability; as the file system says.
pub fn open_directory(mount: BorrowedFd<'_>, kind: i32, words: [u32; 3]) -> io::Result<OwnedFd> {
    open(mount, kind, words, libc::O_RDONLY)
}

/// Same as [`open_directory`] with `O_PATH`: the kernel does not ask the file system, unless that
/// has to find the directory.
///
/// # Errors
/// As [`open_directory`].
pub fn open_place(mount: BorrowedFd<'_>, kind: i32, words: [u32; 3]) -> io::Result<OwnedFd> {
    open(mount, kind, words, libc::O_PATH)
}

fn open(mount: BorrowedFd<'_>, kind: i32, words: [u32; 3], how: i32) -> io::Result<OwnedFd> {
    let mut handle = Handle { bytes: size_of_val(&words) as u32, kind, words };
    let flags = how | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a `file_handle` and as many bytes after it as the handle declares;
    // `Handle` has that layout and outlives the call. `mount` is borrowed, so its number names an
    // open file.
    let result =
        unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    let fd = checked(result)?;
    // SAFETY: the kernel just made this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
