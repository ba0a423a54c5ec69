//! The client's half of a session: one machine for each server that the client uses. It outlives
//! connections and, when the server preserves its sessions, the server instance.
//!
//! - *Calls.* A call waits (`queue.rs`) until a credit is free, takes a slot (`flight.rs`) and the
//!   slot's next number, and stays there until it is answered. One slot stays free for calls that
//!   end waiting elsewhere (unlocks, reclaims), and locks that wait take at most a quarter of the
//!   slots: otherwise calls that wait for each other could fill them all.
//! - *Reconnect.* The machine attaches anew, registers credentials again as calls need them, and
//!   sends every unanswered call again with its slot and number; the server answers from its
//!   replies what it has executed already. Of a chain, the machine sends the unanswered rest: its
//!   first member names the file that the answered ones led to. If they failed, the rest is flagged
//!   so that the server does not execute it.
//! - *Succession* (`kept.rs`). A machine can be made from what an earlier one, whose process is
//!   gone, has put out to be kept. It resumes the session as after a lost connection.
//! - *Session lost.* If the server does not know the session any more, the outcome of sent calls is
//!   unknown.
//! - *Keep-alive.* Renewals run over the back connection when there is one, so that the lease is
//!   only extended when breaks can arrive; the machine then probes the operations connection as
//!   well. An attach counts as a renewal. The lease runs from when a renewal was sent.

mod calls;
mod credentials;
mod flight;
mod keepalive;
mod keeper;
mod kept;
mod queue;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use types::{
    Answer, BootVerifier, BreakId, BreakItem, Call, Caller, ClientId, Fault, Fid, SessionId, Time,
};

pub use kept::{
    ChainLanding, Keeping, KeptChain, KeptError, KeptRequest, KeptSession, KeptState, KeptTerms,
    Landing, decode_outcome, encode_outcome,
};
pub use session::{ClientSession, place_of};

use crate::credentials::{Hash, Wallet};
use crate::{ChannelId, Frame, Region, Terms, WireError};

/// The parameters of a session.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The client's identity.
    pub client: ClientId,
    /// Rises with each start of the client.
    pub incarnation: u64,
    /// Host and program, for people to read; cut to [`crate::limits::DISPLAY_BYTES_MAX`] bytes.
    pub display: String,
    /// Process id of the client.
    pub pid: u32,
    /// Calls that may wait for a credit; one more is refused with [`CallFailure::QueueFull`].
    pub queue_max: usize,
    /// Ask for a second connection, for breaks and renewals.
    pub back_channel: bool,
    /// Put out what a successor of this process needs to resume the session.
    pub keeps: bool,
    /// Tokens of the machine's users.
    pub wallet: Option<Arc<dyn Wallet>>,
}

/// One call, by its driver's number, which the driver never uses again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionRole {
    /// Requests and replies.
    Operations,
    /// Breaks, acknowledgements, renewals.
    Back,
}

/// The reason why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The service refused it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The session ended while the call was outstanding: its outcome is unknown.
    #[error("session lost, the outcome is unknown")]
    SessionLost,
    /// Too many calls wait already; the call was not sent.
    #[error("too many calls wait")]
    QueueFull,
    /// A chain with more members than half of the session's credits or
    /// [`crate::limits::CHAIN_MAX`]; it was not sent.
    #[error("chain does not fit")]
    BadChain,
    /// The call breaks a limit of the protocol; it was not sent.
    #[error("call cannot be sent: {0}")]
    Unsendable(WireError),
    /// This program cannot read the answer: the server is newer, or faulty. The call's outcome is
    /// unknown.
    #[error("the answer cannot be read: {0}")]
    Unreadable(WireError),
    /// The client closed the session before the call was sent.
    #[error("session closed")]
    Closed,
}

/// An event of a session.
#[derive(Debug)]
pub enum ClientInput {
    /// A requested connection is open, and its hello is over.
    Connected {
        /// The connection's purpose.
        role: ConnectionRole,
        /// The connection's number.
        channel: ChannelId,
        /// The terms of the hello.
        terms: Terms,
        /// Hash of the server's certificate; `None` over clear text and on one machine.
        certificate: Option<Hash>,
    },
    /// A requested connection could not be made.
    ConnectFailed {
        /// The connection's purpose.
        role: ConnectionRole,
    },
    /// A frame arrived.
    Arrived {
        /// The connection that it came over.
        channel: ChannelId,
        /// The frame; the machine verifies its checksums.
        frame: Frame,
    },
    /// A connection ended.
    Lost {
        /// The connection's number.
        channel: ChannelId,
    },
    /// Send a call.
    Submit {
        /// The call's number.
        id: CallId,
        /// The credential of the call.
        caller: Caller,
        /// The call itself.
        call: Call,
        /// The destination of the answer's payload, if the driver can place it.
        region: Option<Region>,
        /// Others wait for the effect of this call: it may take the credit that is reserved for
        /// such calls.
        urgent: bool,
    },
    /// Calls that run one after the other; the first refusal stops the rest.
    SubmitChain {
        /// The credential of the calls.
        caller: Caller,
        /// Number and call of each member.
        members: Vec<(CallId, Call)>,
    },
    /// Cancel a call. If it waits in the queue, it ends with `Cancelled` at once; otherwise the
    /// machine asks the server.
    Cancel(CallId),
    /// The driver has handled a break.
    BreakHandled {
        /// The break's number.
        id: BreakId,
        /// Fids of removed files of the break that are open on this client.
        held: Vec<Fid>,
    },
    /// End the session; every outstanding call ends with [`CallFailure::Closed`] or
    /// [`CallFailure::SessionLost`].
    Detach,
    /// The time of a [`ClientOutput::WakeAt`] came.
    Tick,
}

/// An order to the driver.
// An output is moved once; boxing would cost an allocation for each frame.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Make a connection, exchange the hello, and report [`ClientInput::Connected`] or
    /// [`ClientInput::ConnectFailed`].
    Connect {
        /// The connection's purpose.
        role: ConnectionRole,
        /// Earliest time of the attempt.
        at: Time,
    },
    /// Store this for a successor before anything else is done.
    Keep(Keeping),
    /// Send a frame.
    Send {
        /// The connection to use.
        channel: ChannelId,
        /// The frame, with its checksums.
        frame: Frame,
    },
    /// Close a connection after its last frame. The machine has removed it already.
    Close {
        /// The connection's number.
        channel: ChannelId,
    },
    /// A call has ended.
    Done {
        /// The call's number.
        id: CallId,
        /// The answer, or the reason why there is none.
        result: Result<Answer, CallFailure>,
        /// A descriptor came with the frame of this step.
        descriptor: bool,
        /// Of a request that was kept, if its session goes on: what to store first.
        landing: Option<Landing>,
    },
    /// Promises end: handle the break, then report [`ClientInput::BreakHandled`]. A break may come
    /// twice after a reconnect.
    Break {
        /// The break's number.
        id: BreakId,
        /// The promises that end.
        items: Vec<BreakItem>,
    },
    /// The lease runs from `sent_at`.
    Renewed {
        /// Time at which the renewal was sent.
        sent_at: Time,
        /// Length of the lease.
        lease: Duration,
    },
    /// The client attached to a session, for the first time or again. Precedes waiting calls.
    Established {
        /// The session's number.
        session: SessionId,
        /// It is the same session as before.
        resumed: bool,
        /// The server restarted since the last attach: promises are void; reclaim locks and holds,
        /// then send `ReclaimDone`.
        restarted: bool,
        /// See [`BootVerifier`].
        boot_verifier: BootVerifier,
    },
    /// The session is lost, with promises and locks. Precedes the end of the calls that are lost
    /// with it.
    SessionLost,
    /// The server refuses this client for good (for example, a younger incarnation is attached).
    Refused(Fault),
    /// The session is closed; the machine accepts no more inputs.
    Closed,
    /// Give the machine a tick at this time (the latest order counts).
    WakeAt(Time),
}
