//! A network device whose packets a program sends and receives (Linux TUN). Source:
//! `linux/if_tun.h`.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

use rustix::fs::OFlags;
use rustix::io;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

const SET_INTERFACE: Opcode = opcode::write::<libc::c_int>(b'T', 202);
const NAME_BYTES: usize = 16;

/// `struct ifreq` in the form that this call uses.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: i16,
    rest: [u8; 22],
}

/// Makes the device `name` (at most 15 bytes), which exists until the file closes. Reads and writes
/// do not block, and are one IP packet each.
///
/// # Errors
/// `EPERM` without the right to configure networks, `ENOENT` without `/dev/net/tun`, `EBUSY` if the
/// name is taken.
pub fn open(name: &str) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK)?;
    let mut bytes = [0; NAME_BYTES];
    let taken = name.len().min(NAME_BYTES - 1);
    bytes[..taken].copy_from_slice(&name.as_bytes()[..taken]);
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    set_interface(&file, &mut InterfaceRequest { name: bytes, flags, rest: [0; 22] })?;
    Ok(file)
}

fn set_interface(file: &File, request: &mut InterfaceRequest) -> io::Result<()> {
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` of 40 bytes, which is the size of the
    // request, for the length of the call.
    unsafe { ioctl(file.as_fd(), Updater::<SET_INTERFACE, InterfaceRequest>::new(request)) }
}
