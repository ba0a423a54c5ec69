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
    /// A session that leaves a break unacknowledged for longer is not renewed any more, so that one stuck client stops
    /// the others for this time and a lease, not for ever.
    pub break_patience: Duration,
    /// Promises of all sessions. One more ends the oldest promises of the session that has the most.
    /// A promise takes about 110 bytes.
    pub promises_max: usize,
    /// Locks and waiting lock requests of one session. One more is refused.
    pub locks_per_session_max: usize,
    /// Holds of one session. One more is refused.
    pub holds_per_session_max: usize,
    /// Delegated directories, and files that go with them, of all sessions. At one more the session that has it is asked for all it has.
    /// Each takes about 150 bytes.
    pub delegated_max: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        LeaseConfig {
            lease: limits::LEASE,
            grace: limits::LEASE_GRACE,
            break_patience: limits::LEASE,
            promises_max: 4 << 20,
            locks_per_session_max: 1 << 16,
            holds_per_session_max: 1 << 20,
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
    /// Whether `known` has all of them. False when records may have been lost, which a new boot verifier tells, unless
    /// each record was synced before its session was used: grace then lasts a whole lease, whoever returns.
    pub complete: bool,
}
