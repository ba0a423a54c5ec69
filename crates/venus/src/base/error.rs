//! Why an operation failed. Only `mount/errno.rs` turns these into errnos.

use client::CallError;
use types::Fault;

/// The error of an operation of [`crate::Venus`]. `Clone`, because a failed background write is
/// reported to every open handle of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The service refused.
    #[error("{0}")]
    Fault(Fault),
    /// The caller cancelled the request before it had an effect.
    #[error("interrupted")]
    Interrupted,
    /// No answer within the session's deadline; whether the call was applied is unknown.
    #[error("no answer from the server within the deadline")]
    TimedOut,
    /// The session ended before the reply; whether the call was applied is unknown.
    #[error("session ended before the answer")]
    Lost,
    /// The client shut down, or the server refuses this client.
    #[error("session is closed: {0}")]
    Closed(String),
    /// This machine has no threads for the cache manager, or its disk cache cannot be opened.
    #[error("no cache for the volume: {0}")]
    NoCache(String),
    /// A lock on the file was lost with its session.
    #[error("a lock on the file was lost with its session")]
    LockLost,
    /// The handle is neither open nor known.
    #[error("no such handle")]
    BadHandle,
    /// The server's answer does not fit the call.
    #[error("server's answer does not fit the call")]
    Protocol,
}

impl Error {
    /// The service's refusal, if the error is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Error::Fault(fault) => Some(*fault),
            _ => None,
        }
    }

    /// Whether the medium or the quota has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Fault(Fault::NoSpace | Fault::QuotaExceeded))
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Fault(Fault::Cancelled) | CallError::Cancelled => Error::Interrupted,
            CallError::Fault(fault) => Error::Fault(fault),
            CallError::TimedOut => Error::TimedOut,
            CallError::Lost => Error::Lost,
            CallError::Unreadable => Error::Protocol,
            CallError::Closed => Error::Closed("by its owner".into()),
            CallError::Refused(why) => Error::Closed(why),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        CallError::from(fault).into()
    }
}
