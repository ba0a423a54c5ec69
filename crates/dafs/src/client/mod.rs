//! The client's half of a session.

use std::time::Duration;

use types::{Answer, BootVerifier, BreakId, BreakItem, Call, Caller, ClientId, Fault, Fid, SessionId, Time};

use crate::{ChannelId, Frame, PeerError, Region, Terms, WireError};

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
}

/// One call, as its driver numbers it. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
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
    /// A chain longer than the session's credits or [`crate::limits::CHAIN_MAX`], or one without members. Not sent.
    #[error("chain does not fit")]
    BadChain,
    /// The call breaks a limit of the protocol. Not sent.
    #[error("call cannot be sent: {0}")]
    Unsendable(WireError),
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
        role: Role,
        /// Which one.
        channel: ChannelId,
        /// What the hello agreed on.
        terms: Terms,
    },
    /// A connection that was asked for could not be made.
    ConnectFailed {
        /// What it was for.
        role: Role,
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
    },
    /// Calls that run one after the other; the first refusal keeps the rest from running.
    SubmitChain {
        /// Who asks.
        caller: Caller,
        /// Number and call of each.
        members: Vec<(CallId, Call)>,
    },
    /// Take back a call. If it waits here, it is done with `Cancelled` at once; otherwise the server is asked.
    Cancel(CallId),
    /// A break was worked off.
    BreakHandled {
        /// Which one.
        id: BreakId,
        /// Removed files of it that are open here.
        held: Vec<Fid>,
    },
    /// End the session; everything that waits is done with [`CallFailure::Closed`] or [`CallFailure::SessionLost`].
    Detach,
    /// A promised time came.
    Tick,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Make a connection, say hello, and come back with [`ClientInput::Connected`] or [`ClientInput::ConnectFailed`].
    Connect {
        /// What for.
        role: Role,
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
    /// Promises end: work it off, then [`ClientInput::BreakHandled`]. May come twice after a reconnect.
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
        /// The server was started anew since the last time: promises are void; claim locks and holds, then `ReclaimDone`.
        restarted: bool,
        /// See [`BootVerifier`].
        boot_verifier: BootVerifier,
    },
    /// The session is gone, with promises and locks. Comes before the calls that it takes along are done.
    SessionLost,
    /// The server refuses this client for good (a younger incarnation is attached, say).
    Refused(Fault),
    /// Everything is closed; the machine takes nothing more.
    Closed,
    /// Give the machine a tick then (the latest one counts).
    WakeAt(Time),
}

/// See the head of the file.
#[derive(Debug)]
pub struct ClientSession {
    config: ClientConfig,
}

impl ClientSession {
    /// A session that is not connected yet; asks for its first connection.
    pub fn new(now: Time, config: ClientConfig, out: &mut Vec<ClientOutput>) -> ClientSession {
        out.push(ClientOutput::Connect { role: Role::Operations, at: now });
        ClientSession { config }
    }

    /// Takes in one event.
    ///
    /// # Errors
    /// [`PeerError`]: the connection that the input came from is to be closed; the machine has forgotten it and asks for another.
    pub fn step(&mut self, _now: Time, _input: ClientInput, _out: &mut Vec<ClientOutput>) -> Result<(), PeerError> {
        let _ = &self.config;
        Err(PeerError::Unasked)
    }
}
