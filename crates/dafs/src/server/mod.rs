//! The server's half of a session: one machine that outlives the connections of the session.
//!
//! - *Connections.* At most two: operations (attached) and back (bound). A newer one of a kind
//!   replaces the older one.
//! - *Slots* (`slot.rs`). A request is new (last number + 1), a repeat (last number, answered
//!   before), in progress (last number, came over an earlier connection), or wrong. The machine
//!   passes new ones and repeats to the service with the same
//!   [`ReplyAddress`](types::ReplyAddress); the service has the recorded replies of changes (EO-1).
//!   It does not pass a request in progress again: the reply goes to the connection that is alive
//!   then.
//! - *Chains* (`chain.rs`). Members wait in memory until the one before has its reply. When the
//!   operations connection ends, the machine drops the waiting ones as if they had never come; the
//!   client sends them again.
//! - *Credits.* `granted` is what the client may use from now on, `enforced` what it may still be
//!   using: lowering `granted` lowers `enforced` only when the client has confirmed the grant (DA-1
//!   is checked against `enforced`).
//! - *Breaks* go over the back connection, without one over operations, and are stored until the
//!   client acknowledges them: when their connection ends, they are sent again.

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

/// The parameters of a session.
#[derive(Clone, Debug)]
pub struct SessionSetup {
    /// The session's number.
    pub session: SessionId,
    /// The server instance; another number at each start.
    pub server: u64,
    /// See [`BootVerifier`].
    pub boot_verifier: BootVerifier,
    /// How long the session lives without a renewal.
    pub lease: Duration,
    /// Slots, and initial credits: [`crate::limits::CREDITS_MIN`] to [`types::limits::SLOTS_MAX`].
    pub slots: u32,
    /// Random; proves that a back connection belongs to the session.
    pub bind_key: u128,
    /// `None`: a new session. `Some`: the session existed before a restart of the server; each slot
    /// with a durable reply record, and the record's request number.
    pub recorded: Option<Vec<(u32, u64)>>,
}

/// An event of a session.
// An input is moved once; boxing would cost an allocation for each frame.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum ServerInput {
    /// A connection attached to this session, which may have had another one before.
    Attached {
        /// The connection's number.
        channel: ChannelId,
        /// The terms of its hello.
        terms: Terms,
        /// The session existed before this attach (in this server instance or an earlier one).
        resumed: bool,
        /// The attach extended the lease. False: a break is overdue.
        renewed: bool,
        /// Verifies the credentials that come over the connection.
        door: Arc<dyn CredentialVerifier>,
    },
    /// A connection wants to be the back connection.
    Bind {
        /// The connection's number.
        channel: ChannelId,
        /// The terms of its hello.
        terms: Terms,
        /// The client's proof: must equal [`SessionSetup::bind_key`].
        key: u128,
    },
    /// A frame arrived.
    Arrived {
        /// The connection that it came over.
        channel: ChannelId,
        /// The frame.
        frame: Frame,
    },
    /// A connection ended.
    Lost {
        /// The connection's number.
        channel: ChannelId,
    },
    /// The service answered a [`ServerOutput::Execute`].
    Answered {
        /// The answered request.
        origin: ReplyAddress,
        /// The answer or the fault.
        result: Result<Answer, Fault>,
        /// A descriptor belongs to the answer: the driver attaches it to the frame that this step
        /// sends, if any.
        descriptor: bool,
    },
    /// The service has executed a call, and its answer comes later: the next member of its chain
    /// may run.
    Executed {
        /// The executed request.
        origin: ReplyAddress,
        /// The file that [`Fid::CURRENT`] means from now on, if that changes.
        current: Option<Fid>,
    },
    /// The service ends promises of this client.
    Break {
        /// The break's number.
        id: BreakId,
        /// The promises that end; at most [`crate::limits::BREAK_ITEMS_MAX`].
        items: Vec<BreakItem>,
    },
    /// The service has handled a [`ServerOutput::Renew`].
    Renewed {
        /// The connection that the renewal came over.
        channel: ChannelId,
        /// The renewal's number.
        number: u64,
        /// The lease was extended. False: a break is overdue; for a session that is gone, use
        /// [`ServerInput::End`] instead.
        renewed: bool,
    },
    /// New number of credits of the session ([`crate::limits::CREDITS_MIN`] to its initial number
    /// of slots).
    Grant(u32),
    /// The session ends: its lease ended, or the server stops. The client receives the reason.
    End(Fault),
}

/// An order to the driver.
#[allow(clippy::large_enum_variant)] // as above
#[derive(Debug, PartialEq, Eq)]
pub enum ServerOutput {
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
    /// Execute a call and report [`ServerInput::Answered`]. `repeated`: the call came before, and
    /// its reply may be recorded.
    Execute {
        /// The request that the answer belongs to.
        origin: ReplyAddress,
        /// The verified caller.
        caller: Caller,
        /// The call itself.
        call: Call,
        /// The client sent it before.
        repeated: bool,
        /// It is a member of a chain.
        chained: bool,
    },
    /// The client cancels a call in progress, which the service must still answer (with `Cancelled`
    /// if the cancel came in time).
    Cancel(ReplyAddress),
    /// The client has handled a break.
    Acknowledged {
        /// The break's number.
        id: BreakId,
        /// Fids of removed files that the client has open.
        held: Vec<Fid>,
    },
    /// Extend the lease, then report [`ServerInput::Renewed`].
    Renew {
        /// The connection that the renewal came over.
        channel: ChannelId,
        /// The renewal's number.
        number: u64,
    },
    /// The client ends the session: delete its state.
    Detached,
    /// Too many breaks wait for the client's acknowledgement: the session cannot stay coherent and
    /// must end.
    Overrun,
}
