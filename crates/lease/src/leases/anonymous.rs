//! Anonymous sessions: no authenticated user has called through them yet.
//!
//! Any host can open such a session, so no change waits for it. It has no lease: the server
//! withholds its renewals, and its client, which trusts its cache only while it has a lease (CB-4),
//! uses no cached answers (CB-1). The server still registers its promises, within narrow limits,
//! and sends their breaks: the client drops stale data, and the rest is current.
//!
//! The first call of a user makes the session authenticated ([`Leases::prove`]). From then on
//! changes wait for it as for any other. Its lease begins when the earlier breaks are acknowledged:
//! no change has made the client's remaining data stale, so the client drops nothing.

use types::{ClientId, SessionId, Time};

use super::Leases;
use crate::config::AnonymousConfig;
use crate::lock::LockRequest;
use crate::output::{EndReason, Output};
use crate::session::{AttachError, Session};

impl Session {
    /// Whether its client may not trust its cache yet.
    pub fn is_without_lease(&mut self) -> bool {
        if self.breaks_before_proof.is_some_and(|last| self.pending.range(..=last).next().is_none())
        {
            self.breaks_before_proof = None;
        }
        self.anonymous || self.breaks_before_proof.is_some()
    }
}

impl Leases {
    /// Creates an anonymous session. Earlier anonymous sessions with this client's name end now,
    /// but no authenticated one: a name is no proof.
    ///
    /// # Errors
    /// [`AttachError::OldIncarnation`] if a later incarnation of the client has been seen.
    pub fn attach_anonymous(
        &mut self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Output>,
    ) -> Result<SessionId, AttachError> {
        for older in self.sessions.older(client, incarnation)? {
            if self.is_anonymous(older) {
                self.end(now, older, EndReason::Replaced, out);
            }
        }
        Ok(self.sessions.add_anonymous(client, incarnation, now + self.config.give_up()))
    }

    /// A user has called through the session. Sessions of earlier incarnations of its client end
    /// now (EO-2).
    ///
    /// # Errors
    /// [`AttachError`]: the session has ended, or ends now because a later incarnation of its
    /// client was authenticated before.
    pub fn prove(
        &mut self,
        now: Time,
        session: SessionId,
        out: &mut Vec<Output>,
    ) -> Result<(), AttachError> {
        let known = self.sessions.get(session).ok_or(AttachError::Gone(session))?;
        if !known.anonymous {
            return Ok(());
        }
        let (client, incarnation) = (known.client, known.incarnation);
        match self.sessions.older(client, incarnation) {
            Ok(older) => {
                older.into_iter().for_each(|older| self.end(now, older, EndReason::Replaced, out));
            }
            Err(error) => {
                self.end(now, session, EndReason::Replaced, out);
                return Err(error);
            }
        }
        self.sessions.authenticate(session);
        Ok(())
    }

    /// Whether the session is anonymous.
    pub fn is_anonymous(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|known| known.anonymous)
    }

    /// Whether the client has a session.
    pub fn has_client(&self, client: ClientId) -> bool {
        self.sessions.has_client(client)
    }

    /// Whether the session may hold one more file. Counts a refusal.
    pub(super) fn has_room_to_hold(&mut self, session: SessionId) -> bool {
        let has = self.holds.len() < self.config.holds_max
            && match self.is_anonymous(session) {
                true => self.holds.count(session) < self.config.stranger.holds_max,
                false => {
                    let count = |leases: &Leases, session| leases.holds.count(session);
                    self.holds.count(session) < self.config.holds_per_session_max
                        && !self.is_host_full(session, self.config.holds_per_host_max, count)
                }
            };
        self.limits_met.holds += u64::from(!has);
        has
    }

    /// Whether the session may have one more lock, or wait for it.
    pub(super) fn has_room_to_lock(&self, request: &LockRequest, wait: bool) -> bool {
        let LockRequest { session, fid, family, .. } = *request;
        let count = |leases: &Leases, session| leases.locks.used_by(session);
        match self.is_anonymous(session) {
            true => {
                let AnonymousConfig { locks_max, lock_queue_max, .. } = self.config.stranger;
                self.locks.used_by(session) < locks_max
                    && !(wait && self.locks.waiting_for(fid, family) >= lock_queue_max)
            }
            false => !self.is_host_full(session, self.config.locks_per_host_max, count),
        }
    }
}
