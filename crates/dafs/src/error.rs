//! Errors in a peer's behaviour.

use types::Fault;

use crate::{FrameKind, HelloRefusal, WireError};

/// An act of a peer that ends its connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The peer sent bytes that are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent no hello of this protocol.
    #[error("no hello: {0}")]
    NoHello(&'static str),
    /// The server refused the connection before it belonged to a session.
    #[error("connection refused: {0}")]
    Turned(HelloRefusal),
    /// A frame that is not allowed at this point.
    #[error("unexpected {0:?}")]
    Unexpected(FrameKind),
    /// A connection that is not, or no longer, part of this session.
    #[error("the connection is not part of the session")]
    UnknownChannel,
    /// A frame that names another session.
    #[error("frame of another session")]
    WrongSession,
    /// DA-1: a slot without a credit.
    #[error("DA-1: slot {slot} with {credits} credits")]
    NoCredit {
        /// The slot's index.
        slot: u32,
        /// The session's credits.
        credits: u32,
    },
    /// A request number that is neither the next nor the last one of its slot.
    #[error("slot {slot}: request {got} after {last}")]
    WrongNumber {
        /// The slot's index.
        slot: u32,
        /// The number that arrived.
        got: u64,
        /// The slot's last number.
        last: u64,
    },
    /// A request in a slot whose request is still in progress.
    #[error("slot {0} is in use")]
    SlotBusy(u32),
    /// A chain that begins inside another, or continues without a beginning.
    #[error("chain out of order")]
    BrokenChain,
    /// A chain with more than [`crate::limits::CHAIN_MAX`] members.
    #[error("chain is too long")]
    LongChain,
    /// The placeholder for a chain's current file outside a chain.
    #[error("a request outside a chain names the chain's file")]
    NoCurrent,
    /// A bind with a wrong key.
    #[error("wrong key")]
    WrongKey,
    /// A reply, renewal or acknowledgement without a request.
    #[error("answer without a request")]
    Unasked,
    /// An answer of a kind that does not belong to the call.
    #[error("answer does not fit the call")]
    WrongAnswer,
    /// More credentials than [`crate::limits::CREDENTIALS_MAX`].
    #[error("too many credentials")]
    TooManyCredentials,
    /// The server ended the connection with a goodbye.
    #[error("server ended the connection: {reason}")]
    Goodbye {
        /// The reason, for programs.
        fault: Option<Fault>,
        /// The reason, for people.
        reason: String,
    },
}
