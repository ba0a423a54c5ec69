//! What can be wrong with bytes ([`WireError`]) and with a peer's behaviour ([`PeerError`]).

use types::{Fault, NameError};

use crate::{FrameKind, HelloRefusal};

/// Why some bytes are no message. Nothing has been allocated for what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("message is too short")]
    Truncated,
    /// Bytes behind the last field.
    #[error("{0} bytes behind the end of the message")]
    Trailing(usize),
    /// The first bytes are not those of this protocol.
    #[error("not a frame of this protocol")]
    BadMagic,
    /// A version that was not agreed on.
    #[error("protocol version {0} is not spoken here")]
    BadVersion(u16),
    /// A number that stands for nothing.
    #[error("{what}: {value} means nothing")]
    BadValue {
        /// Which field.
        what: &'static str,
        /// What it held.
        value: u64,
    },
    /// A count or length above its limit.
    #[error("{what}: {value} is more than {max}")]
    TooMuch {
        /// Which field.
        what: &'static str,
        /// What it held.
        value: u64,
        /// The limit.
        max: u64,
    },
    /// A name that is none.
    #[error("bad name: {0}")]
    BadName(#[from] NameError),
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    BadText,
    /// The sum over the frame does not match.
    #[error("checksum does not match")]
    BadChecksum,
    /// Payload where none belongs, or one that does not fit the message.
    #[error("payload does not fit the message")]
    BadPayload,
}

/// What a peer did that ends its connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It sent bytes that are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It sent no hello of ours.
    #[error("no hello: {0}")]
    NoHello(&'static str),
    /// It was turned away before it belonged to a session.
    #[error("turned away: {0}")]
    Turned(HelloRefusal),
    /// A frame that has no place here.
    #[error("unexpected {0:?}")]
    Unexpected(FrameKind),
    /// A connection that this session does not know (any more).
    #[error("the connection is not part of the session")]
    UnknownChannel,
    /// A frame that names another session.
    #[error("frame of another session")]
    WrongSession,
    /// DA-1: a slot without a credit.
    #[error("DA-1: slot {slot} with {credits} credits")]
    NoCredit {
        /// Which slot.
        slot: u32,
        /// How many credits there are.
        credits: u32,
    },
    /// A request number that is neither the next nor the last one of its slot.
    #[error("slot {slot}: request {got} after {last}")]
    WrongNumber {
        /// Which slot.
        slot: u32,
        /// What came.
        got: u64,
        /// The slot's last number.
        last: u64,
    },
    /// A request in a slot whose request is still in progress.
    #[error("slot {0} is in use")]
    SlotBusy(u32),
    /// A chain that begins inside another, or goes on without a beginning.
    #[error("chain out of order")]
    BrokenChain,
    /// More members than allowed.
    #[error("chain is too long")]
    LongChain,
    /// The placeholder for a chain's current file outside a chain.
    #[error("a request outside a chain names the chain's file")]
    NoCurrent,
    /// A bind with a wrong key.
    #[error("wrong key")]
    WrongKey,
    /// A reply, renewal or acknowledgement that nobody asked for.
    #[error("answer that nobody asked for")]
    Unasked,
    /// An answer of a kind that does not belong to the call.
    #[error("answer does not fit the call")]
    WrongAnswer,
    /// More credentials than allowed.
    #[error("too many credentials")]
    TooManyCredentials,
    /// The server ended the connection, in its words.
    #[error("server ended the connection: {reason}")]
    Goodbye {
        /// Why, for programs.
        fault: Option<Fault>,
        /// Why, for people.
        reason: String,
    },
}
