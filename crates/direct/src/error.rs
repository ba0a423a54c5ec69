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
    /// The file's open at the server was lost: the program was cut off for longer than its lease,
    /// or another program was first after a restart or a move. Others may have used the file since.
    /// The error stays until the program closes the file. An operation that was in progress may
    /// have been applied.
    #[error("the open of the file was lost, and others may have used it since; close it")]
    LostOpen,
    /// As `LostOpen`, for a lock of a file that has no open.
    #[error("a lock of the file was lost, and others may have had it since; close the file")]
    LostLock,
    /// The file was closed, by this clone of it or another one.
    #[error("the file was closed")]
    Closed,
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
