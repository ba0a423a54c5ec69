//! Configuration of [`crate::Leases`], and the state of the earlier server instance.

use std::time::Duration;

use types::{ClientId, SessionId, limits};

/// Times and table limits.
#[derive(Clone, Copy, Debug)]
pub struct LeaseConfig {
    /// How long a client trusts its cache without a renewal.
    pub lease: Duration,
    /// How much longer than `lease` the server keeps a silent session.
    pub grace: Duration,
    /// The server stops renewing a session that leaves a break unacknowledged for longer, so that
    /// one stuck client delays the others for this time and a lease, not for ever.
    pub break_patience: Duration,
    /// Promises of all sessions. One more ends the oldest promises of the session that has the
    /// most. A promise takes about 110 bytes.
    pub promises_max: usize,
    /// Promises of one authenticated session. One more ends the oldest promises of that session.
    pub promises_per_session_max: usize,
    /// Promises of all authenticated sessions of one host. One more ends the oldest promises of the
    /// session that asks.
    pub promises_per_host_max: usize,
    /// Limits of an anonymous session.
    pub stranger: AnonymousConfig,
    /// Locks and waiting lock requests of one session. One more is refused.
    pub locks_per_session_max: usize,
    /// Locks and waiting requests of all authenticated sessions of one host. One more is refused.
    pub locks_per_host_max: usize,
    /// Holds of one session. One more is refused.
    pub holds_per_session_max: usize,
    /// Holds of all authenticated sessions of one host. One more is refused.
    pub holds_per_host_max: usize,
    /// Locks and waiting lock requests of all sessions. One more is refused.
    pub locks_max: usize,
    /// Holds of all sessions. One more is refused.
    pub holds_max: usize,
    /// Opens of one session. One more is refused.
    pub opens_per_session_max: usize,
    /// Opens of all sessions of one host. One more is refused.
    pub opens_per_host_max: usize,
    /// Opens of all sessions. One more is refused.
    pub opens_max: usize,
    /// Delegated directories and their children, of all sessions. At one more the server recalls
    /// all delegations of the session that has it. Each takes about 150 bytes.
    pub delegated_max: usize,
}

/// Limits of one anonymous session. The number of these sessions is bounded, and so are all.
#[derive(Clone, Copy, Debug)]
pub struct AnonymousConfig {
    /// One more promise ends the oldest promises of that session.
    pub promises_max: usize,
    /// Locks and waiting lock requests. One more is refused.
    pub locks_max: usize,
    /// Requests, of any session, that wait for locks of a file. One more is refused.
    pub lock_queue_max: usize,
    /// Holds. One more is refused.
    pub holds_max: usize,
}

impl Default for AnonymousConfig {
    fn default() -> Self {
        AnonymousConfig {
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
            stranger: AnonymousConfig::default(),
            locks_per_session_max: limits::LOCKS_PER_SESSION_MAX,
            locks_per_host_max: limits::LOCKS_PER_HOST_MAX,
            holds_per_session_max: limits::HOLDS_PER_SESSION_MAX,
            holds_per_host_max: limits::HOLDS_PER_HOST_MAX,
            locks_max: limits::LOCKS_MAX,
            holds_max: limits::HOLDS_MAX,
            opens_per_session_max: limits::OPENS_PER_SESSION_MAX,
            opens_per_host_max: limits::OPENS_PER_HOST_MAX,
            opens_max: limits::OPENS_MAX,
            delegated_max: 1 << 20,
        }
    }
}

impl LeaseConfig {
    /// Time from the last message of a session until the server ends it.
    pub fn give_up(&self) -> Duration {
        self.lease + self.grace
    }
}

/// A session of the earlier server instance, from its durable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSession {
    /// Its number; no later session gets it.
    pub session: SessionId,
    /// The client that the session belongs to.
    pub client: ClientId,
    /// The incarnation of that client.
    pub incarnation: u64,
    /// The session may have had delegations, so it alone knows the state of their files until it
    /// has sent its journal.
    pub delegated: bool,
    /// The session may have had opens that exclude others, so no other session may read before it
    /// has claimed them.
    pub excluding: bool,
}

/// State that the earlier server instance left.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    /// Sessions that had not ended.
    pub known: Vec<KnownSession>,
    /// Whether `known` has all of them. False if records may have been lost, as a new boot verifier
    /// shows, unless each record was synced before its session was used: grace then lasts a whole
    /// lease, whichever sessions return.
    pub complete: bool,
}
