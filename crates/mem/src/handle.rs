//! File handles: names of files that outlive their paths. Sources: `name_to_handle_at(2)`,
//! `open_by_handle_at(2)`.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{self, Errno};

use crate::failure::checked;

/// The largest handle of the kernel (`MAX_HANDLE_SZ`), in words.
const WORDS_MAX: usize = 32;

/// The kernel's `struct file_handle`, with room for the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    words: [u32; WORDS_MAX],
}

impl FileHandle {
    /// The handle of this kind with these words.
    ///
    /// # Errors
    /// `EINVAL` if the kernel has no handle of so many words.
    pub fn new(kind: i32, words: &[u32]) -> io::Result<FileHandle> {
        let mut handle =
            FileHandle { bytes: size_of_val(words) as u32, kind, words: [0; WORDS_MAX] };
        let room = handle.words.get_mut(..words.len()).ok_or(Errno::INVAL)?;
        room.copy_from_slice(words);
        Ok(handle)
    }

    /// The handle of the file that `path` means below `dir`; a symbolic link itself.
    ///
    /// # Errors
    /// The kernel's: `EOPNOTSUPP` where the file system has no handles.
    pub fn of(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<FileHandle> {
        let mut handle = FileHandle::new(0, &[0; WORDS_MAX])?;
        let mut mount_id = 0;
        // SAFETY: `path` ends with a zero. The kernel writes at most `bytes` bytes behind the
        // header, which `FileHandle` has room for, and one number to `mount_id`.
        let result = unsafe {
            libc::name_to_handle_at(
                dir.as_raw_fd(),
                path.as_ptr(),
                (&raw mut handle).cast(),
                &raw mut mount_id,
                0,
            )
        };
        checked(result).map(|_| handle)
    }

    /// The words of the handle.
    pub fn words(&self) -> &[u32] {
        let used = self.bytes as usize / size_of::<u32>();
        self.words.get(..used).unwrap_or(&self.words)
    }

    /// The kind of the handle, which the file system defines.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// Opens the file, in the file system that `mount` is open in. `how`: flags of `open`. Needs
    /// `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` if there is none, `EPERM` without the capability; as the file system says.
    pub fn open(&self, mount: BorrowedFd<'_>, how: i32) -> io::Result<OwnedFd> {
        let mut handle = *self;
        // SAFETY: the kernel reads a `file_handle` and as many bytes after it as the handle
        // declares; `FileHandle` has that layout and outlives the call. `mount` is borrowed, so its
        // number names an open file.
        let result = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&raw mut handle).cast(),
                how | libc::O_CLOEXEC,
            )
        };
        let fd = checked(result)?;
        // SAFETY: the kernel just made this descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Opens the directory with this handle for reading, in the file system that `mount` is open in.
/// Needs `CAP_DAC_READ_SEARCH`.
///
/// # Errors
/// `ESTALE` if there is none, `EPERM` without the capability; as the file system says.
pub fn open_directory(mount: BorrowedFd<'_>, kind: i32, words: [u32; 3]) -> io::Result<OwnedFd> {
    FileHandle::new(kind, &words)?.open(mount, libc::O_RDONLY | libc::O_DIRECTORY)
}

/// Same as [`open_directory`] with `O_PATH`: the kernel does not ask the file system, unless that
/// has to find the directory.
///
/// # Errors
/// As [`open_directory`].
pub fn open_place(mount: BorrowedFd<'_>, kind: i32, words: [u32; 3]) -> io::Result<OwnedFd> {
    FileHandle::new(kind, &words)?.open(mount, libc::O_PATH | libc::O_DIRECTORY)
}
