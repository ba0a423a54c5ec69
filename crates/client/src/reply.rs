//! The outcome of a call.

use std::os::fd::OwnedFd;

use types::{Answer, BootVerifier, Fault};

/// An answer, and the descriptor that came beside it (only with [`Answer::Body`] and
/// [`Answer::Blank`]).
#[derive(Debug)]
pub struct Reply {
    /// The answer of the service.
    pub answer: Answer,
    /// The body that the answer names, open for reading.
    pub body: Option<OwnedFd>,
    /// The boot verifier of the server that answered: that of the session's last attachment.
    /// `None`: unknown.
    pub verifier: Option<BootVerifier>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, body: None, verifier: None }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The service refused.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The caller cancelled the call before it had an effect.
    #[error("cancelled")]
    Cancelled,
    /// No answer within the deadline of the session's configuration. Whether the call was applied
    /// is unknown.
    #[error("no answer within the deadline")]
    TimedOut,
    /// The session ended (its lease expired) before the reply to a change came. Whether the change
    /// was applied is unknown.
    #[error("session ended before the reply")]
    Lost,
    /// This program cannot read the server's answer: the server is newer, or faulty. Whether the
    /// call was applied is unknown.
    #[error("the server's answer cannot be read; it may be newer than this program")]
    Unreadable,
    /// The owner of the session closed it.
    #[error("session is closed")]
    Closed,
    /// The server refuses this client: its version, its identity, or a malformed message. A retry
    /// is useless.
    #[error("server refuses: {0}")]
    Refused(String),
}

impl CallError {
    /// The service's refusal, if the error is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            CallError::Fault(fault) => Some(*fault),
            CallError::Cancelled
            | CallError::TimedOut
            | CallError::Lost
            | CallError::Unreadable
            | CallError::Closed
            | CallError::Refused(_) => None,
        }
    }
}
