//! The client's half of a session: one machine for each server that is talked to. It outlives
//! connections and, when the server keeps its sessions, the server.
//!
//! - *Calls.* A call waits (`queue.rs`) until a credit is free, takes a slot (`flight.rs`) and the
//!   slot's next number, and stays there until it is answered. One slot stays free for calls that
//!   end waiting elsewhere (unlocks, reclaims), and locks that wait take at most a quarter of the
//!   slots: otherwise calls that wait for each other could fill them all.
//! - *Reconnect.* The machine attaches anew, registers credentials again as they are needed, and
//!   sends every unanswered call again with its slot and number; the server answers what it has
//!   done already. Of a chain, the unanswered rest is sent: its first member names the file that
//!   the answered ones led to. If they failed, the rest is flagged so that it is not executed.
//! - *Session lost.* If the server does not know the session any more, what became of the calls on
//!   their way is unknown.
//! - *Keep-alive.* Renewals run over the back connection when there is one, so that the lease is
//!   only extended when breaks can arrive; the operations connection is then probed beside it. An
//!   attach counts as a renewal. The lease runs from when a renewal was sent.

mod calls;
mod credentials;
mod flight;
mod keepalive;
mod queue;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use types::{
    Answer, BootVerifier, BreakId, BreakItem, Call, Caller, ClientId, Fault, Fid, SessionId, Time,
};

pub use session::ClientSession;

use crate::credentials::{Hash, Wallet};
use crate::{ChannelId, Frame, Region, Terms, WireError};

/// What a session begins with.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Which client.
    pub client: ClientId,
    /// Rises with each start of the client.
    pub incarnation: u64,
    /// Host and program, for people to read; cut to [`crate::limits::DISPLAY_BYTES_MAX`] bytes.
    pub display: String,
    /// Process id.
    pub pid: u32,
    /// Calls that may wait for a credit; one more is refused with [`CallFailure::QueueFull`].
    pub queue_max: usize,
    /// Ask for a second connection for breaks and renewals.
    pub back_channel: bool,
    /// Tokens of those who ask.
    pub wallet: Option<Arc<dyn Wallet>>,
}

/// One call, as its driver numbers it. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionRole {
    /// Requests and replies.
    Operations,
    /// Breaks, acknowledgements, renewals.
    Back,
}

/// Why a call brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The service refused it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The session ended while the call was on its way: whether it was executed is unknown.
    #[error("session lost, the outcome is unknown")]
    SessionLost,
    /// Too many calls wait already. Not sent.
    #[error("too many calls wait")]
    QueueFull,
    /// A chain with more members than half of the session's credits or
    /// [`crate::limits::CHAIN_MAX`]. Not sent.
    #[error("chain does not fit")]
    BadChain,
    /// The call breaks a limit of the protocol. Not sent.
    #[error("call cannot be sent: {0}")]
    Unsendable(WireError),
    /// The service answered, in a way that this program cannot read: it is newer, or in error.
    /// Whether the call was executed is unknown.
    #[error("the answer cannot be read: {0}")]
    Unreadable(WireError),
    /// The session was closed on this side before the call was sent.
    #[error("session closed")]
    Closed,
}

/// What happens to a session.
#[derive(Debug)]
pub enum ClientInput {
    /// A connection that was asked for stands, and its hello is over.
    Connected {
        /// What it is for.
        role: ConnectionRole,
        /// Which one.
        channel: ChannelId,
        /// What the hello agreed on.
        terms: Terms,
        /// Of the certificate that the server showed; none over clear text and on one machine.
        certificate: Option<Hash>,
    },
    /// A connection that was asked for could not be made.
    ConnectFailed {
        /// What it was for.
        role: ConnectionRole,
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
    /// A call.
    Submit {
        /// Its number.
        id: CallId,
        /// Who asks.
        caller: Caller,
        /// What.
        call: Call,
        /// Where the answer's payload is to be placed, if the driver can do that.
        region: Option<Region>,
        /// Others wait for what follows from it: it may take the credit that is kept free for such
        /// calls.
        urgent: bool,
    },
    /// Calls that run one after the other; the first refusal keeps the rest from running.
    SubmitChain {
        /// Who asks.
        caller: Caller,
        /// Number and call of each.
        members: Vec<(CallId, Call)>,
    },
    /// Take back a call. If it waits here, it is done with `Cancelled` at once; otherwise the
    /// server is asked.
    Cancel(CallId),
    /// A break was worked off.
    BreakHandled {
        /// Which one.
        id: BreakId,
        /// Removed files of it that are open here.
        held: Vec<Fid>,
    },
    /// End the session; everything that waits is done with [`CallFailure::Closed`] or
    /// [`CallFailure::SessionLost`].
    Detach,
    /// A promised time came.
    Tick,
}

/// What is to be done.
// moved once on its way out; a box for each frame would cost more
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Make a connection, say hello, and come back with [`ClientInput::Connected`] or
    /// [`ClientInput::ConnectFailed`].
    Connect {
        /// What for.
        role: ConnectionRole,
        /// Not before this time.
        at: Time,
    },
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
    /// A call is over.
    Done {
        /// Which one.
        id: CallId,
        /// How.
        result: Result<Answer, CallFailure>,
        /// A descriptor came beside the frame of this step.
        descriptor: bool,
    },
    /// Promises end: work it off, then [`ClientInput::BreakHandled`]. May come twice after a
    /// reconnect.
    Break {
        /// Which break.
        id: BreakId,
        /// Which promises.
        items: Vec<BreakItem>,
    },
    /// The lease runs from `sent_at`.
    Renewed {
        /// When the renewal was sent.
        sent_at: Time,
        /// How long it runs from there.
        lease: Duration,
    },
    /// Attached to a session, for the first time or again. Comes before calls that waited are sent.
    Established {
        /// Which one.
        session: SessionId,
        /// The same as before.
        resumed: bool,
        /// The server was started anew since the last time: promises are void; claim locks and
        /// holds, then `ReclaimDone`.
        restarted: bool,
        /// See [`BootVerifier`].
        boot_verifier: BootVerifier,
    },
    /// The session is gone, with promises and locks. Comes before the calls that it takes along are
    /// done.
    SessionLost,
    /// The server refuses this client for good (a younger incarnation is attached, say).
    Refused(Fault),
    /// Everything is closed; the machine takes nothing more.
    Closed,
    /// Give the machine a tick then (the latest one counts).
    WakeAt(Time),
}
