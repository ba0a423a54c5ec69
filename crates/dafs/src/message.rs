//! Messages that keep a session: all but requests and replies. Layouts: `docs/protocol.md`, "Session messages".

use std::time::Duration;

use types::{BootVerifier, ClientId, SessionId};

/// First message on an operations connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Which client.
    pub client: ClientId,
    /// Rises with each start of the client; a lower one than known is refused (EO-2).
    pub incarnation: u64,
    /// The session to go on with.
    pub resume: Option<SessionId>,
    /// Host and program, for people to read. UTF-8, at most [`crate::limits::DISPLAY_BYTES_MAX`] bytes.
    pub display: String,
    /// Process id of the program.
    pub pid: u32,
}

/// Answer to [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The session.
    pub session: SessionId,
    /// It is the one that was to be resumed: locks and promises are still there (unless the server restarted, see `server`).
    pub resumed: bool,
    /// Which life of the server: another number means that it restarted.
    pub server: u64,
    /// See [`BootVerifier`].
    pub boot_verifier: BootVerifier,
    /// How long the session lives without a renewal.
    pub lease: Duration,
    /// Credits to begin with.
    pub slots: u32,
    /// Proves that a back connection belongs to the session.
    pub bind_key: u128,
}

/// First message on a back connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The session to join.
    pub session: SessionId,
    /// As [`Attached::bind_key`].
    pub key: u128,
}
