//! The limits of each session, of each host and of all together: the numbers of `types::limits`,
//! which `[limits]` in `cell.toml` changes.
//!
//! A session is one of *nobody* until a caller uses it who is proved by a token or named over a
//! trusted connection. A *host* ([`types::Host`]) is an address, of IPv6 a /64, or one user of this
//! machine who came over the socket for users. Neither the server's own socket nor other servers of
//! the cell count as hosts.

use serde::{Deserialize, Serialize};
use types::limits;
use vice::ViceConfig;

/// See the head of the file. A request beyond a limit gets an answer that permits a retry: a hello
/// `Crowded`, an attach and a call `Busy`, a region that it is not open; of promises the oldest of
/// the same session end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ServerLimits {
    /// [`limits::SESSIONS_MAX`].
    pub sessions: usize,
    /// [`limits::SESSIONS_PER_HOST_MAX`].
    pub sessions_per_host: usize,
    /// [`limits::NOBODY_SESSIONS_MAX`].
    pub nobody_sessions: usize,
    /// [`limits::NOBODY_SESSIONS_PER_HOST_MAX`].
    pub nobody_sessions_per_host: usize,
    /// [`limits::CONNECTIONS_PER_HOST_MAX`].
    pub connections_per_host: usize,
    /// [`limits::DESCRIPTORS_KEPT`].
    pub descriptors_kept: u64,
    /// [`limits::REGIONS_MAX`].
    pub regions: usize,
    /// [`limits::REGIONS_PER_HOST_MAX`].
    pub regions_per_host: usize,
    /// [`limits::REGION_MIB_MAX`].
    pub region_mib: usize,
    /// [`limits::REGION_MIB_PER_HOST_MAX`].
    pub region_mib_per_host: usize,
    /// [`limits::NOBODY_CREDITS`].
    pub nobody_requests: u32,
    /// [`limits::NOBODY_MEMORY_MIB`].
    pub nobody_memory_mib: usize,
    /// [`limits::PROMISES_MAX`].
    pub promises: usize,
    /// [`limits::PROMISES_PER_SESSION_MAX`].
    pub promises_per_session: usize,
    /// [`limits::PROMISES_PER_HOST_MAX`].
    pub promises_per_host: usize,
    /// [`limits::NOBODY_PROMISES_MAX`].
    pub nobody_promises_per_session: usize,
    /// [`limits::LOCKS_MAX`].
    pub locks: usize,
    /// [`limits::LOCKS_PER_SESSION_MAX`].
    pub locks_per_session: usize,
    /// [`limits::LOCKS_PER_HOST_MAX`].
    pub locks_per_host: usize,
    /// [`limits::NOBODY_LOCKS_MAX`].
    pub nobody_locks_per_session: usize,
    /// [`limits::NOBODY_LOCK_QUEUE_MAX`].
    pub nobody_lock_queue: usize,
    /// [`limits::HOLDS_MAX`].
    pub holds: usize,
    /// [`limits::HOLDS_PER_SESSION_MAX`].
    pub holds_per_session: usize,
    /// [`limits::HOLDS_PER_HOST_MAX`].
    pub holds_per_host: usize,
    /// [`limits::NOBODY_HOLDS_MAX`].
    pub nobody_holds_per_session: usize,
    /// [`limits::PASSWORDS_WAITING_MAX`].
    pub passwords_waiting: usize,
    /// [`limits::PASSWORDS_PER_HOST_MAX`].
    pub passwords_per_host: usize,
    /// [`limits::AUDIT_DAYS`].
    pub audit_days: u64,
    /// [`limits::AUDIT_MIB_MAX`].
    pub audit_mib: u64,
    /// [`limits::LOG_MIB_MAX`].
    pub log_mib: u64,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            sessions: limits::SESSIONS_MAX,
            sessions_per_host: limits::SESSIONS_PER_HOST_MAX,
            nobody_sessions: limits::NOBODY_SESSIONS_MAX,
            nobody_sessions_per_host: limits::NOBODY_SESSIONS_PER_HOST_MAX,
            connections_per_host: limits::CONNECTIONS_PER_HOST_MAX,
            descriptors_kept: limits::DESCRIPTORS_KEPT,
            regions: limits::REGIONS_MAX,
            regions_per_host: limits::REGIONS_PER_HOST_MAX,
            region_mib: limits::REGION_MIB_MAX,
            region_mib_per_host: limits::REGION_MIB_PER_HOST_MAX,
            nobody_requests: limits::NOBODY_CREDITS,
            nobody_memory_mib: limits::NOBODY_MEMORY_MIB,
            promises: limits::PROMISES_MAX,
            promises_per_session: limits::PROMISES_PER_SESSION_MAX,
            promises_per_host: limits::PROMISES_PER_HOST_MAX,
            nobody_promises_per_session: limits::NOBODY_PROMISES_MAX,
            locks: limits::LOCKS_MAX,
            locks_per_session: limits::LOCKS_PER_SESSION_MAX,
            locks_per_host: limits::LOCKS_PER_HOST_MAX,
            nobody_locks_per_session: limits::NOBODY_LOCKS_MAX,
            nobody_lock_queue: limits::NOBODY_LOCK_QUEUE_MAX,
            holds: limits::HOLDS_MAX,
            holds_per_session: limits::HOLDS_PER_SESSION_MAX,
            holds_per_host: limits::HOLDS_PER_HOST_MAX,
            nobody_holds_per_session: limits::NOBODY_HOLDS_MAX,
            passwords_waiting: limits::PASSWORDS_WAITING_MAX,
            passwords_per_host: limits::PASSWORDS_PER_HOST_MAX,
            audit_days: limits::AUDIT_DAYS,
            audit_mib: limits::AUDIT_MIB_MAX,
            log_mib: limits::LOG_MIB_MAX,
        }
    }
}

impl ServerLimits {
    /// Checks that the limits permit service.
    ///
    /// # Errors
    /// The first wrong limit, as text for administrators.
    pub fn check(&self) -> Result<(), String> {
        let least = dafs::limits::CREDITS_MIN;
        if self.nobody_requests < least || self.nobody_requests > limits::SLOTS_MAX {
            return Err(format!("[limits]: nobody-requests is {least} to {}", limits::SLOTS_MAX));
        }
        let fields = [
            ("sessions", self.sessions),
            ("nobody-sessions", self.nobody_sessions),
            ("connections-per-host", self.connections_per_host),
            ("promises", self.promises),
            ("promises-per-session", self.promises_per_session),
            ("passwords-waiting", self.passwords_waiting),
        ];
        match fields.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => {
                Err(format!("[limits]: {name} is 0, so the server could serve no client"))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn apply_to(&self, config: &mut ViceConfig) {
        let lease = &mut config.lease;
        lease.promises_max = self.promises;
        lease.promises_per_session_max = self.promises_per_session;
        lease.promises_per_host_max = self.promises_per_host;
        lease.stranger.promises_max = self.nobody_promises_per_session;
        lease.locks_max = self.locks;
        lease.locks_per_session_max = self.locks_per_session;
        lease.locks_per_host_max = self.locks_per_host;
        lease.stranger.locks_max = self.nobody_locks_per_session;
        lease.stranger.lock_queue_max = self.nobody_lock_queue;
        lease.holds_max = self.holds;
        lease.holds_per_session_max = self.holds_per_session;
        lease.holds_per_host_max = self.holds_per_host;
        lease.stranger.holds_max = self.nobody_holds_per_session;
    }
}
