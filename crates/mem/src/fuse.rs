//! Calls of `/dev/fuse` itself. Source: `linux/fuse.h`, "Device ioctls".

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::failure::checked;

const FUSE_DEVICE: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(FUSE_DEVICE, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(FUSE_DEVICE, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(FUSE_DEVICE, 2);

#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Joins `fresh`, a newly opened `/dev/fuse`, to the mount that `joined` serves, so that requests
/// can be read through both.
///
/// # Errors
/// `EINVAL` if `joined` has no mount yet or `fresh` has one already.
pub fn clone_device(fresh: BorrowedFd<'_>, joined: BorrowedFd<'_>) -> io::Result<()> {
    let number = joined.as_raw_fd() as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE only reads one u32 through its argument, which `Setter` keeps
    // alive for the call. `joined` is borrowed, so its number names the same open file until the
    // call is over.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }
}

/// Registers a backing file, which the kernel may read and write in place of a file of the mount
/// that `device` serves; returns its number.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` or if the mount did not agree on it; `ELOOP` if the file's file
/// system is stacked too high.
pub fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: FUSE_DEV_IOC_BACKING_OPEN only reads one `BackingMap` through the pointer, which is
    // valid during the call. Both descriptors are borrowed, so their numbers name open files; the
    // kernel takes a reference of its own.
    let number = unsafe {
        libc::ioctl(device.as_raw_fd(), u64::from(BACKING_OPEN), std::ptr::from_ref(&map))
    };
    checked(number)
}

/// Unregisters a backing file. Files that are open with it still use it.
///
/// # Errors
/// `ENOENT` if there is no such number.
pub fn close_backing(device: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    let number = number as u32;
    // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE only reads one u32 through the pointer, which is valid
    // during the call.
    let result = unsafe {
        libc::ioctl(device.as_raw_fd(), u64::from(BACKING_CLOSE), std::ptr::from_ref(&number))
    };
    checked(result).map(drop)
}
