//! Whether a mount is in the tree of this process. Source: `statmount(2)`.

use rustix::io;

use crate::failure::checked;

/// One number on all architectures; `libc` does not have it yet.
const STATMOUNT: libc::c_long = 457;

/// The least that can be asked for: the mount's numbers and flags.
const MNT_BASIC: u64 = 2;

/// The kernel's `struct mnt_id_req`, in its first version.
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mount: u64,
    fields: u64,
}

/// Room for the kernel's `struct statmount`, whose fixed part is 512 bytes.
const ANSWER_WORDS: usize = 128;

/// Whether the mount with this unique number (`STATX_MNT_ID_UNIQUE`) is in the tree, which costs
/// the same however many mounts there are.
///
/// # Errors
/// `ENOSYS` before Linux 6.8; as the system says.
pub fn is_mounted(unique_number: u64) -> io::Result<bool> {
    let request = Request {
        size: size_of::<Request>() as u32,
        spare: 0,
        mount: unique_number,
        fields: MNT_BASIC,
    };
    let mut answer = [0_u64; ANSWER_WORDS];
    // SAFETY: the kernel reads a `mnt_id_req` of the size that it declares, and writes at most as
    // many bytes as the last but one argument says; both outlive the call.
    let result = unsafe {
        libc::syscall(STATMOUNT, &raw const request, answer.as_mut_ptr(), size_of_val(&answer), 0)
    };
    match checked(result as i32) {
        Ok(_) => Ok(true),
        Err(io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}
