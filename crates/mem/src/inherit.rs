//! A descriptor that stays open when the program executes another one (`exec`), named by its number
//! on the command line.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Keeps `fd` open across the next `exec`; the new program passes the number to [`taken`]. Nothing
/// else closes it.
///
/// # Errors
/// The kernel's.
pub fn left(fd: OwnedFd) -> io::Result<RawFd> {
    fcntl_setfd(&fd, FdFlags::empty())?;
    Ok(fd.into_raw_fd())
}

/// The descriptor that was left to this process under this number; the next `exec` closes it. The
/// caller must call this once for each, before it opens anything else.
///
/// # Errors
/// The number is a standard stream, is not open, or was not left.
pub fn taken(number: RawFd) -> io::Result<OwnedFd> {
    if number <= io::stderr().as_raw_fd() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the process that started this one left the descriptor for this call alone, as the
    // caller promises; if there is none, the next call fails.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match fcntl_getfd(&fd) {
        Ok(flags) if !flags.contains(FdFlags::CLOEXEC) => {
            fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            Ok(fd)
        }
        result => {
            // Another owner closes it.
            let _ = fd.into_raw_fd();
            Err(result.err().unwrap_or(rustix::io::Errno::BADF).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn some() -> File {
        File::open("/proc/self/comm").unwrap()
    }

    #[test]
    fn a_left_descriptor_is_taken_once() {
        let number = left(some().into()).unwrap();
        let fd = taken(number).unwrap();
        assert!(taken(number).is_err(), "it was taken");
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
    }

    #[test]
    fn a_descriptor_that_was_not_left_keeps_its_owner() {
        assert!(taken(0).is_err() && taken(-1).is_err() && taken(RawFd::MAX).is_err());
        let file = some();
        assert!(taken(file.as_raw_fd()).is_err(), "another owner has it");
        assert!(file.metadata().is_ok());
    }
}
