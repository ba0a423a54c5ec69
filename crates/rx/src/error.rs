//! How calls fail, and the codes on the wire.

/// Codes of Rx itself. Source: OpenAFS `src/rx/rx.h`.
pub mod code {
    /// The peer is not heard of.
    pub const CALL_DEAD: i32 = -1;
    /// There is no such service, or it does not have this security class.
    pub const INVALID_OPERATION: i32 = -2;
    /// The call took too long.
    pub const CALL_TIMEOUT: i32 = -3;
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: i32 = -5;
    /// The application ended the call.
    pub const USER_ABORT: i32 = -6;
}

/// Why something did not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RxError {
    /// The connection is closed, or never was.
    #[error("there is no such connection")]
    NoConnection,
    /// The call is over, or never was.
    #[error("there is no such call")]
    NoCall,
    /// All four channels of the connection are in use.
    #[error("all four channels of the connection are in use")]
    Busy,
    /// A table of the endpoint is full.
    #[error("the endpoint is full")]
    Full,
    /// The last byte of this direction was written already.
    #[error("the call was ended in this direction")]
    Ended,
    /// The peer is not heard of any more.
    #[error("the peer does not answer")]
    Dead,
    /// The call made no progress for too long, or took too long as a whole.
    #[error("the call took too long")]
    TimedOut,
    /// The peer ended the call or the connection with this code.
    #[error("the peer ended the call with code {0}")]
    PeerAborted(i32),
    /// This side ended the call or the connection with this code.
    #[error("this side ended the call with code {0}")]
    Aborted(i32),
}

impl RxError {
    /// The code that AFS has for it.
    pub fn code(&self) -> i32 {
        match self {
            RxError::NoConnection | RxError::NoCall | RxError::Ended => code::INVALID_OPERATION,
            RxError::Busy | RxError::Full | RxError::Dead => code::CALL_DEAD,
            RxError::TimedOut => code::CALL_TIMEOUT,
            RxError::PeerAborted(code) | RxError::Aborted(code) => *code,
        }
    }
}
