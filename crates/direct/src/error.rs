//! Why an operation failed.

use client::CallError;
use types::Fault;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The server refused.
    #[error("{0}")]
    Refused(Fault),
    /// The session ended before the answer. Whether a change was applied is unknown.
    #[error("the session ended before the answer; whether a change was applied is unknown")]
    Lost,
    /// There is no server, or it does not take this client.
    #[error("{0}")]
    Unreachable(String),
    /// A path that no file can have.
    #[error("no file can have this path")]
    BadPath,
    /// The path leads through more symbolic links than a path may.
    #[error("too many symbolic links")]
    TooManyLinks,
    /// The path leads to a symbolic link that begins with `/`, so it depends on the place at which
    /// the cell is mounted.
    #[error("a symbolic link on the path leads out of the cell")]
    AbsoluteLink,
    /// The path leads through a mount point of another cell.
    #[error("the path leads into another cell")]
    OtherCell,
    /// The server answered something that does not belong to the call.
    #[error("the server answered something else; check that it has the same version")]
    Odd,
    /// The buffer is empty, or longer than one operation moves.
    #[error("a buffer of {0} bytes; one operation moves 1 to 1,048,576")]
    Length(usize),
    /// The system has no memory or descriptors left.
    #[error("memory: {0}")]
    Memory(std::io::Error),
}

impl From<CallError> for DirectError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Fault(fault) => DirectError::Refused(fault),
            CallError::Lost | CallError::TimedOut | CallError::Unreadable => DirectError::Lost,
            CallError::Cancelled => DirectError::Refused(Fault::Cancelled),
            other => DirectError::Unreachable(other.to_string()),
        }
    }
}
