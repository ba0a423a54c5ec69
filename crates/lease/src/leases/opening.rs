//! Opens of sessions: the grace period, limits, and sessions that may have none.

use std::ops::{Deref, DerefMut};

use types::{Fault, OpenId};

use crate::limits::Limits;
use crate::opens::{OpenRequest, Opens};
use crate::sessions::Sessions;

/// The opens, with what decides whether a session may have one more.
#[derive(Debug)]
pub struct SessionOpens<'a> {
    pub(super) opens: &'a mut Opens,
    pub(super) sessions: &'a Sessions,
    pub(super) limits: &'a mut Limits,
    pub(super) in_grace: bool,
}

impl Deref for SessionOpens<'_> {
    type Target = Opens;

    fn deref(&self) -> &Opens {
        self.opens
    }
}

impl DerefMut for SessionOpens<'_> {
    fn deref_mut(&mut self) -> &mut Opens {
        self.opens
    }
}

impl SessionOpens<'_> {
    /// Opens a file, or claims an open from before the restart (`claims`). The caller waits for the
    /// end of grace before it opens, but not before it claims (SH-5).
    ///
    /// # Errors
    /// `Expired` without the session, and for a claim by a session that has none to make (any
    /// more): another session may have had the file meanwhile. `AccessDenied` for an anonymous
    /// session. `Busy` during grace, and at a limit. `ShareConflict` and `KeyConflict` beside other
    /// opens; `Invalid` without an access.
    pub fn open(&mut self, request: &OpenRequest, claims: bool) -> Result<OpenId, Fault> {
        let known = self.sessions.get(request.session).ok_or(Fault::Expired)?;
        if known.anonymous {
            return Err(Fault::AccessDenied);
        }
        // A session without the mark never had an open that excludes others.
        let may_claim = known.reclaiming && (known.excluding || !request.excludes());
        match (self.in_grace, claims) {
            (true, true) if may_claim => {}
            (_, true) => return Err(Fault::Expired),
            (true, false) => return Err(Fault::Busy),
            (false, false) => {}
        }
        if !self.limits.allow_open(self.sessions, self.opens, request.session) {
            return Err(Fault::Busy);
        }
        self.opens.add(request)
    }
}
