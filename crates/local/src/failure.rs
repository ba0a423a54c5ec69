//! Errors of commands: the action that failed, the cause, and the remedy.
//!
//! Printed as `rialto COMMAND: WHAT: WHY; WHAT TO DO`. Exit codes: 0 done, 1 failed, 2 wrong usage
//! (from the argument parser), 3 nothing to work on (no cell, or its server does not run).

use std::fmt;
use std::process::ExitCode;

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of a command line that cannot be executed as it is.
pub const WRONG_USAGE: u8 = 2;
/// Exit code of a command that found no cell, no mount or no running server to work on.
pub const NOTHING_THERE: u8 = 3;

/// Exit code of a command that could not unmount what is in use: that of umount(8).
pub const BUSY: u8 = 32;

/// A command's error. Lower case, no full stop, like every message of the project.
#[derive(Debug)]
pub struct Failure {
    what: String,
    why: String,
    mend: Option<String>,
    code: u8,
}

impl Failure {
    /// `what` failed because of `why`.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Self {
        Failure { what: what.into(), why: why.to_string(), mend: None, code: FAILED }
    }

    /// Adds the remedy.
    pub fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    /// Marks the failure as one of the command line.
    pub fn wrong_usage(mut self) -> Self {
        self.code = WRONG_USAGE;
        self
    }

    /// Marks the failure as "there is nothing to work on".
    pub fn nothing_there(mut self) -> Self {
        self.code = NOTHING_THERE;
        self
    }

    /// Marks the failure as "it is in use", as umount(8) does.
    pub fn busy(mut self) -> Self {
        self.code = BUSY;
        self
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        self.mend.as_ref().map_or(Ok(()), |mend| write!(f, "; {mend}"))
    }
}

/// Adds the failed action to an error, so that call sites read as sentences.
pub trait Doing<T> {
    /// On error: the action `what` failed, and the error is the cause.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|why| Failure::new(what(), why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_what_why_and_what_to_do() {
        let failure = Failure::new("mounting on /x", "no such directory");
        assert_eq!(failure.to_string(), "mounting on /x: no such directory");
        assert_eq!(
            failure.mend("make it first").to_string(),
            "mounting on /x: no such directory; make it first"
        );
    }
}
