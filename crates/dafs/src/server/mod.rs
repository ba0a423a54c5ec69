//! The server's half of a session.

use std::time::Duration;

use types::{Answer, BootVerifier, BreakId, BreakItem, Call, Caller, Fault, Fid, Origin, SessionId, Time};

use crate::{ChannelId, Frame, PeerError, Terms};

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
    /// Slots: at least 2, at most [`types::limits::SLOTS_MAX`].
    pub slots: u32,
    /// Random; proves that a back connection belongs to the session.
    pub bind_key: u128,
    /// `None`: a new session. `Some`: it lived before a restart of the server; of each slot with a durable reply record
    /// the slot and the record's request number.
    pub recorded: Option<Vec<(u32, u64)>>,
}

/// What happens to a session.
#[derive(Debug)]
pub enum ServerInput {
    /// A connection attached to this session (which may have had another one before). `resumed`: as the client asked.
    Attached {
        /// Which connection.
        channel: ChannelId,
        /// What its hello agreed on.
        terms: Terms,
        /// The client resumes this session (otherwise it is new).
        resumed: bool,
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
        origin: Origin,
        /// With what.
        result: Result<Answer, Fault>,
        /// A descriptor goes with it: the driver attaches it to the frame that this step sends, if any.
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
    },
    /// The session gets this many credits from now on (1 to the slots that it began with).
    Grant(u32),
    /// The session is over: its lease ended, or the server stops. The reason is sent to the client.
    End(Fault),
}

/// What is to be done.
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
    /// Execute a call and come back with [`ServerInput::Answered`]. `repeated`: it came before, and its reply may be recorded.
    Execute {
        /// Where the answer belongs.
        origin: Origin,
        /// Who asks.
        caller: Caller,
        /// What.
        call: Call,
        /// The client sent it before.
        repeated: bool,
    },
    /// The client takes back a call in progress, which is answered all the same (with `Cancelled` if that came in time).
    Cancel(Origin),
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
    /// The client does not acknowledge its breaks, too many wait: the session cannot be kept coherent and is to be ended.
    Overrun,
}

/// See the head of the file.
#[derive(Debug)]
pub struct ServerSession {
    setup: SessionSetup,
}

impl ServerSession {
    /// A session that nobody is attached to yet.
    pub fn new(setup: SessionSetup) -> ServerSession {
        ServerSession { setup }
    }

    /// Its number.
    pub fn id(&self) -> SessionId {
        self.setup.session
    }

    /// Whether a client is connected.
    pub fn is_connected(&self) -> bool {
        false
    }

    /// Takes in one event.
    ///
    /// # Errors
    /// [`PeerError`]: the connection that the input came from is to be closed; the machine has forgotten it.
    pub fn step(&mut self, _now: Time, _input: ServerInput, _out: &mut Vec<ServerOutput>) -> Result<(), PeerError> {
        Err(PeerError::Unasked)
    }
}
