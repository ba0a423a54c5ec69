//! The shares of hosts: the sessions of one host have at most a part of each table, so that no host
//! shuts others out.
//!
//! The sums are not stored but computed when one may have become too large: at every [`STEP`]th
//! promise, lock or hold of a session. So a host may exceed its share by [`STEP`] for each of its
//! sessions.

use std::net::IpAddr;

use types::SessionId;

use super::Leases;

/// See the head of the file. A host with a thousand sessions costs sixteen look-ups a promise.
const STEP: usize = 64;

impl Leases {
    /// Sets the host of the session's client. `None`: the server's own machine, or another server;
    /// such a host has no limits.
    pub fn set_host(&mut self, session: SessionId, host: Option<IpAddr>) {
        self.sessions.set_host(session, host);
    }

    /// Whether the sessions on this session's host have `max` together, by `count`.
    pub(super) fn is_host_full(
        &self,
        session: SessionId,
        max: usize,
        count: impl Fn(&Leases, SessionId) -> usize,
    ) -> bool {
        count(self, session).is_multiple_of(STEP)
            && self.sessions.of_its_host(session).map(|other| count(self, other)).sum::<usize>()
                >= max
    }

    pub(super) fn promises_of(&self, session: SessionId) -> usize {
        self.sessions.get(session).map_or(0, |known| known.promises)
    }
}
