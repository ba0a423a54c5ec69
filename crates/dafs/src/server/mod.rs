//! The server's half of a session: one machine that outlives the connections it is used over.
//!
//! - *Connections.* At most two: operations (attached) and back (bound). A newer one of a kind
//!   replaces the older one.
//! - *Slots* (`slot.rs`). A request is new (last number + 1), a repeat (last number, answered
//!   before), in progress (last number, came over an earlier connection), or wrong. New ones and
//!   repeats go up with the same [`ReplyAddress`](types::ReplyAddress); the service has the replies
//!   that must not be made twice (EO-1). One in progress is not passed up again: its reply goes to
//!   the connection that is alive then.
//! - *Chains* (`chain.rs`). Members wait in memory until the one before has its reply. When the
//!   operations connection goes, the waiting ones are forgotten as if they had never come; the
//!   client sends them again.
//! - *Credits.* `granted` is what the client may use from now on, `enforced` what it may still be
//!   using: lowering one lowers the other only when the client has said that it follows (DA-1 is
//!   checked against `enforced`).
//! - *Breaks* go over the back connection, without one over operations, and are kept until they are
//!   acknowledged: whenever the connection they were sent over goes, they are sent again.

mod breaks;
mod chain;
mod session;
mod slot;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use types::{
    Answer, BootVerifier, BreakId, BreakItem, Call, Caller, Fault, Fid, ReplyAddress, SessionId,
};

pub use session::ServerSession;

use crate::credentials::CredentialVerifier;
use crate::{ChannelId, Frame, Terms};

/// What a session begins with.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// Its number.
    pub session: SessionId,
    /// Which life of the server this is; another number at each start.
    pub server: u64,
    /// See [`BootVerifier`].
    pub boot_verifier: BootVerifier,
    /// How long it lives without a renewal.
    pub lease: Duration,
    /// Slots, and credits to begin with: [`crate::limits::CREDITS_MIN`] to
    /// [`types::limits::SLOTS_MAX`].
    pub slots: u32,
    /// Random; proves that a back connection belongs to the session.
    pub bind_key: u128,
    /// `None`: a new session. `Some`: it lived before a restart of the server; of each slot with a
    /// durable reply record the slot and the record's request number.
    pub recorded: Option<Vec<(u32, u64)>>,
}

/// What happens to a session.
// moved once on its way in; a box for each frame would cost more
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum ServerInput {
    /// A connection attached to this session, which may have had another one before.
    Attached {
        /// Which connection.
        channel: ChannelId,
        /// What its hello agreed on.
        terms: Terms,
        /// The session existed before this attach (here or in an earlier life of the server).
        resumed: bool,
        /// The attach extended the lease. Otherwise a break is overdue.
        renewed: bool,
        /// Who says who asks over it.
        door: Arc<dyn CredentialVerifier>,
    },
    /// A connection wants to be the back connection.
    Bind {
        /// Which connection.
        channel: ChannelId,
        /// What its hello agreed on.
        terms: Terms,
        /// The proof.
        key: u128,
    },
    /// A frame came.
    Arrived {
        /// From which connection.
        channel: ChannelId,
        /// The frame.
        frame: Frame,
    },
    /// A connection ended.
    Lost {
        /// Which one.
        channel: ChannelId,
    },
    /// The service answered an [`ServerOutput::Execute`].
    Answered {
        /// Which one.
        origin: ReplyAddress,
        /// With what.
        result: Result<Answer, Fault>,
        /// A descriptor goes with it: the driver attaches it to the frame that this step sends, if
        /// any.
        descriptor: bool,
    },
    /// The service ends promises of this client.
    Break {
        /// Which break.
        id: BreakId,
        /// Which promises; at most [`crate::limits::BREAK_ITEMS_MAX`].
        items: Vec<BreakItem>,
    },
    /// A renewal that was put out has reached the lease.
    Renewed {
        /// From which connection it came.
        channel: ChannelId,
        /// Its number.
        number: u64,
        /// The lease was extended. Otherwise a break is overdue; if the session is gone, say
        /// [`ServerInput::End`] instead.
        renewed: bool,
    },
    /// The session gets this many credits from now on ([`crate::limits::CREDITS_MIN`] to the slots
    /// that it began with).
    Grant(u32),
    /// The session is over: its lease ended, or the server stops. The reason is sent to the client.
    End(Fault),
}

/// What is to be done.
#[allow(clippy::large_enum_variant)] // as above
#[derive(Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Send a frame.
    Send {
        /// Over which connection.
        channel: ChannelId,
        /// The frame.
        frame: Frame,
    },
    /// Close a connection after what was sent. The machine has forgotten it.
    Close {
        /// Which one.
        channel: ChannelId,
    },
    /// Execute a call and come back with [`ServerInput::Answered`]. `repeated`: it came before, and
    /// its reply may be recorded.
    Execute {
        /// Where the answer belongs.
        origin: ReplyAddress,
        /// Who asks.
        caller: Caller,
        /// What.
        call: Call,
        /// The client sent it before.
        repeated: bool,
        /// It is a member of a chain.
        chained: bool,
    },
    /// The client takes back a call in progress, which is answered all the same (with `Cancelled`
    /// if that came in time).
    Cancel(ReplyAddress),
    /// The client worked off a break.
    Acknowledged {
        /// Which one.
        id: BreakId,
        /// Removed files that it has open.
        held: Vec<Fid>,
    },
    /// Extend the lease, then come back with [`ServerInput::Renewed`].
    Renew {
        /// From which connection.
        channel: ChannelId,
        /// Number of the renewal.
        number: u64,
    },
    /// The client ends the session: forget everything about it.
    Detached,
    /// The client does not acknowledge its breaks, too many wait: the session cannot be kept
    /// coherent and is to be ended.
    Overrun,
}
