//! The one place that decides whether a caller may make a call at all (AC-4): before anything of
//! the call is read, each time that it is executed.

use guard::{AdminScope, AdminStanding, Row, row};
use types::{Call, Caller, Fault, SessionId, Timestamp};

use crate::Vice;

impl Vice {
    /// Checks that the caller's credential has not ended, that its server key is still listed, that
    /// no fence refuses it, and that the call table allows it this call.
    ///
    /// # Errors
    /// `TokenExpired`; `Fenced`; `NotPermitted`; `CellAway`.
    pub(crate) fn need_row(
        &self,
        wall: Timestamp,
        caller: &Caller,
        session: SessionId,
        call: &Call,
    ) -> Result<(), Fault> {
        if caller.who.ends.is_some_and(|ends| ends <= wall) {
            return Err(Fault::TokenExpired);
        }
        self.need_listed(caller)?;
        self.need_unfenced(wall, caller, session)?;
        let row = row(call);
        if row.is_open() || self.stands_for(caller, &row)? {
            Ok(())
        } else {
            Err(Fault::NotPermitted)
        }
    }

    fn stands_for(&self, caller: &Caller, row: &Row) -> Result<bool, Fault> {
        let nothing = |_: Option<&AdminScope>| false;
        let mut standing = AdminStanding {
            proved: caller.who.level.is_proved(),
            server: caller.is_superuser() || caller.who.level == types::AuthLevel::Server,
            enrolling: caller.who.level == types::AuthLevel::Enrolling,
            administrator: false,
            covers: &nothing,
        };
        // No look-up of principals where the level alone decides.
        if row.allows(&standing) {
            return Ok(true);
        }
        // An address alone makes no caller an administrator of a part of the cell.
        if *row == Row::Server
            || caller.who.level == types::AuthLevel::Host
                && matches!(row, Row::Administrator | Row::Enrolment | Row::Delegated(_))
        {
            return Ok(false);
        }
        let cps = self.cps(caller)?;
        standing.administrator = cps.is_administrator();
        if row.allows(&standing) || !matches!(row, Row::Delegated(_)) {
            return Ok(row.allows(&standing));
        }
        let realms = self.realms(&cps);
        let covers = |place: Option<&AdminScope>| self.covers(&realms, place);
        Ok(row.allows(&AdminStanding { covers: &covers, ..standing }))
    }
}
