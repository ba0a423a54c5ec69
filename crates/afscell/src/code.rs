//! A code with which a server of AFS ends a call, for people.

use std::fmt;
use std::io;

/// A code; shown with its name if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfsCode(pub i32);

impl fmt::Display for AfsCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (afs3::errors::code_name(self.0), self.0) {
            (Some(name), code) => write!(f, "{name} ({code})"),
            (None, code @ 1..=200) => write!(f, "{}", io::Error::from_raw_os_error(code)),
            (None, code) => write!(f, "code {code}"),
        }
    }
}
