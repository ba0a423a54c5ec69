//! What one asks `/dev/fuse` itself. Source: `linux/fuse.h`, "Device ioctls".

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const FUSE_DEVICE: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(FUSE_DEVICE, 0);

/// Joins `fresh`, a newly opened `/dev/fuse`, to the mount that `joined` serves, so that requests can be read through both.
///
/// # Errors
/// `EINVAL` if `joined` has no mount yet or `fresh` has one already.
pub fn clone_device(fresh: BorrowedFd<'_>, joined: BorrowedFd<'_>) -> io::Result<()> {
    let number = joined.as_raw_fd() as u32;
    // SAFETY: FUSE_DEV_IOC_CLONE only reads one u32 through its argument, which `Setter` keeps alive for the call.
    // `joined` is borrowed, so its number names the same open file until the call is over.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }
}
