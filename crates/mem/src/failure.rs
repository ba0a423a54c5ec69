//! What a system call without a safe wrapper says when it fails.

use rustix::io::{Errno, Result};

/// The result of a call that has just returned: what is not negative, or why it failed.
pub(crate) fn checked(result: i32) -> Result<i32> {
    if result >= 0 {
        return Ok(result);
    }
    let code = std::io::Error::last_os_error().raw_os_error().expect("it is the system's");
    Err(Errno::from_raw_os_error(code))
}
