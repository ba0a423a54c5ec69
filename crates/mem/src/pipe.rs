//! The end of a program whose output has no reader any more.

use std::io;

/// From now on a write to a pipe without a reader ends the process without a word, as with the
/// tools of the system. A program in Rust begins with such writes as errors.
///
/// A write to a socket whose other side has gone is affected too, unless it forbids that
/// (`MSG_NOSIGNAL`).
///
/// # Errors
/// The kernel's. Source: signal(7).
pub fn end_without_reader() -> io::Result<()> {
    // SAFETY: the default action runs no code of this process.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}
