//! Errors of system calls without a safe wrapper.

use rustix::io::{Errno, Result};

/// The result of a call that has just returned: its non-negative value, or its error.
pub(crate) fn checked(result: i32) -> Result<i32> {
    if result >= 0 {
        return Ok(result);
    }
    let code = std::io::Error::last_os_error()
        .raw_os_error()
        .expect("the last error has a code of the system");
    Err(Errno::from_raw_os_error(code))
}
