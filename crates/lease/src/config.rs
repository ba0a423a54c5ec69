//! What a [`crate::Leases`] is told when it starts.

use std::time::Duration;

use types::{ClientId, SessionId, limits};

/// Times and table limits.
#[derive(Clone, Copy, Debug)]
pub struct LeaseConfig {
    /// How long a client trusts without a word from the server.
    pub lease: Duration,
    /// How much longer the server keeps what the client had.
    pub grace: Duration,
    /// A session that leaves a break unacknowledged for longer is not renewed any more, so that one
    /// stuck client stops the others for this time and a lease, not for ever.
    pub break_patience: Duration,
    /// Promises of all sessions. One more ends the oldest promises of the session that has the
    /// most. A promise takes about 110 bytes.
    pub promises_max: usize,
    /// Promises of one user's session. One more ends the oldest promises of that session.
    pub promises_per_session_max: usize,
    /// Promises of all users' sessions of one host. One more ends the oldest promises of the
    /// session that asks.
    pub promises_per_host_max: usize,
    /// What a session may have through which no user has called.
    pub stranger: StrangerConfig,
    /// Locks and waiting lock requests of one session. One more is refused.
    pub locks_per_session_max: usize,
    /// Locks and waiting lock requests of all users' sessions of one host. One more is refused.
    pub locks_per_host_max: usize,
    /// Holds of one session. One more is refused.
    pub holds_per_session_max: usize,
    /// Holds of all users' sessions of one host. One more is refused.
    pub holds_per_host_max: usize,
    /// Locks, waiting requests among them, of all sessions. One more is refused.
    pub locks_max: usize,
    /// Holds of all sessions. One more is refused.
    pub holds_max: usize,
    /// Delegated directories, and files that go with them, of all sessions. At one more the session
    /// that has it is asked for all it has. Each takes about 150 bytes.
    pub delegated_max: usize,
}

/// What one session may have through which no user has called. There are only so many of these
/// sessions, so this bounds all of them.
#[derive(Clone, Copy, Debug)]
pub struct StrangerConfig {
    /// Promises. One more ends the oldest promises of that session.
    pub promises_max: usize,
    /// Locks and waiting lock requests. One more is refused.
    pub locks_max: usize,
    /// Requests, of any session, that wait for locks of a file: with so many another one is
    /// refused.
    pub lock_queue_max: usize,
    /// Holds. One more is refused.
    pub holds_max: usize,
}

impl Default for StrangerConfig {
    fn default() -> Self {
        StrangerConfig {
            promises_max: limits::NOBODY_PROMISES_MAX,
            locks_max: limits::NOBODY_LOCKS_MAX,
            lock_queue_max: limits::NOBODY_LOCK_QUEUE_MAX,
            holds_max: limits::NOBODY_HOLDS_MAX,
        }
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        LeaseConfig {
            lease: limits::LEASE,
            grace: limits::LEASE_GRACE,
            break_patience: limits::LEASE,
            promises_max: limits::PROMISES_MAX,
            promises_per_session_max: limits::PROMISES_PER_SESSION_MAX,
            promises_per_host_max: limits::PROMISES_PER_HOST_MAX,
            stranger: StrangerConfig::default(),
            locks_per_session_max: limits::LOCKS_PER_SESSION_MAX,
            locks_per_host_max: limits::LOCKS_PER_HOST_MAX,
            holds_per_session_max: limits::HOLDS_PER_SESSION_MAX,
            holds_per_host_max: limits::HOLDS_PER_HOST_MAX,
            locks_max: limits::LOCKS_MAX,
            holds_max: limits::HOLDS_MAX,
            delegated_max: 1 << 20,
        }
    }
}

impl LeaseConfig {
    /// How long after a session's last word the server gives it up.
    pub fn give_up(&self) -> Duration {
        self.lease + self.grace
    }
}

/// A session of the server's earlier life, from its durable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSession {
    /// Its number.
    pub session: SessionId,
    /// Whose it is.
    pub client: ClientId,
    /// Which life of that client.
    pub incarnation: u64,
    /// It may have had delegations, so it alone knows what files are like until it has said so.
    pub delegated: bool,
}

/// What is left of the server's earlier life.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    /// Sessions that had not ended.
    pub known: Vec<KnownSession>,
    /// Whether `known` has all of them. False when records may have been lost, which a new boot
    /// verifier tells, unless each record was synced before its session was used: grace then lasts
    /// a whole lease, whoever returns.
    pub complete: bool,
}
