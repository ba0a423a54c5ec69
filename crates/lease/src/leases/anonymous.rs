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
use crate::output::{EndReason, Output};
use crate::sessions::AttachError;

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
            if self.sessions.is_anonymous(older) {
                self.end(now, older, EndReason::Replaced, out);
            }
        }
        let expires = now + self.config.give_up();
        let session = self.sessions.add_anonymous(client, incarnation, expires);
        self.promises.enter(session);
        Ok(session)
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
        self.sessions.authenticate(session, self.promises.last_break(session));
        Ok(())
    }
}
