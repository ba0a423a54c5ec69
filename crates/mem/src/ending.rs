//! The end of the process.
//!
//! A command may end while threads still connect to servers that do not answer. Libraries clean up
//! when a process ends, and a thread that uses one of them afterwards fails: AWS-LC frees the
//! source of its random numbers, and aborts the process when a handshake asks for one. The process
//! then ends with that signal, though its work is done.

use std::ffi::{c_int, c_void};
use std::ptr;

type Handler = extern "C" fn(c_int, *mut c_void);

unsafe extern "C" {
    /// Of the C library: calls the function with the exit code when the process ends, before those
    /// that were registered earlier.
    fn on_exit(function: Handler, argument: *mut c_void) -> c_int;
}

extern "C" fn end(code: c_int, _: *mut c_void) {
    // SAFETY: it ends the process; no memory is used afterwards.
    unsafe { libc::_exit(code) }
}

/// When the process ends from now on, with whatever code, libraries do not clean up. The standard
/// output is flushed all the same: Rust does that before.
pub fn end_without_cleaning_up() {
    // SAFETY: the function is there as long as the process, and uses no argument. A refusal, for
    // lack of memory, leaves all as it was.
    unsafe { on_exit(end, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "RIALTO_TEST_ENDS";

    extern "C" fn cleaning_up() {
        println!("a library cleans up");
    }

    #[test]
    fn the_process_ends_with_its_code_and_nothing_else() {
        if let Some(how) = std::env::var_os(CHILD) {
            // SAFETY: the function is there as long as the process.
            assert_eq!(unsafe { libc::atexit(cleaning_up) }, 0);
            if how == "at once" {
                end_without_cleaning_up();
            }
            print!("the last words, ");
            std::process::exit(7);
        }
        let said = |how: &str| {
            let this = std::env::current_exe().expect("the test's own program");
            let name = "ending::tests::the_process_ends_with_its_code_and_nothing_else";
            let arguments = [name, "--exact", "--nocapture", "--test-threads=1"];
            let ended = Command::new(this).args(arguments).env(CHILD, how).output();
            let ended = ended.expect("the test's own program");
            (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
        };
        let (code, text) = said("as ever");
        assert!(
            code == Some(7) && text.ends_with("the last words, a library cleans up\n"),
            "{text}"
        );
        let (code, text) = said("at once");
        assert!(code == Some(7) && text.ends_with("the last words, "), "{text}");
    }
}
