//! Anonymous sessions (`lease/leases/anonymous.rs`): the server stores nothing of them on disk
//! before an authenticated user calls through them.
//!
//! So a host that can reach the server causes no sync by attaching, and leaves no record: a restart
//! ends these sessions, and waits for none of them (CB-5). Their changes, where the rules allow an
//! anonymous caller any, are made once as all others (EO-1) while the session lasts; a client whose
//! session ended with the server process learns that it ended, but not the result of its last
//! request.

use std::net::IpAddr;

use types::limits::CLIENT_KEPT_DAYS;
use types::{ClientId, Fault, SessionId, Time, Timestamp};

use crate::{Attached, Effect, Vice};

impl Vice {
    /// Creates an anonymous session; see the head of the file. [`Vice::prove`] makes it
    /// authenticated.
    ///
    /// # Errors
    /// As [`Vice::attach`].
    pub fn attach_stranger(
        &self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Effect>,
    ) -> Result<Attached, Fault> {
        let _one_at_a_time = self.attaching.lock();
        if self
            .partitions
            .home()
            .sessions()
            .incarnation(client)?
            .is_some_and(|newest| newest > incarnation)
        {
            return Err(Fault::Expired);
        }
        let mut events = Vec::new();
        let mut core = self.core.lock();
        let attached = core.leases.attach_anonymous(now, client, incarnation, &mut events);
        let session = attached.map_err(|_| Fault::Expired)?;
        core.slots.add_session(session);
        drop(core);
        // Replies name it: no other session may ever have the number. One sync in 64 attaches.
        let used_up = self.partitions.use_up_session(session);
        if used_up.is_err() {
            self.core.lock().leases.detach(now, session, &mut events);
        }
        self.carry_out(now, events, out);
        used_up?;
        Ok(self.attached(session, false))
    }

    /// An authenticated user, or one of a trusted host, calls through the session: it becomes
    /// authenticated and is recorded. Syncs the home partition the first time.
    ///
    /// # Errors
    /// `Expired` if the session is over, also because a later incarnation of its client was
    /// authenticated before (EO-2); `Medium` if it cannot be recorded.
    pub fn prove(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) -> Result<(), Fault> {
        let _one_at_a_time = self.attaching.lock();
        let core = self.core.lock();
        let (client, incarnation) = core.leases.owner(session).ok_or(Fault::Expired)?;
        if !core.leases.is_anonymous(session) {
            return Ok(());
        }
        drop(core);
        let mut events = Vec::new();
        if self
            .partitions
            .home()
            .sessions()
            .incarnation(client)?
            .is_some_and(|newest| newest > incarnation)
        {
            self.core.lock().leases.detach(now, session, &mut events);
            self.carry_out(now, events, out);
            return Err(Fault::Expired);
        }
        self.record_session(session, client, incarnation)?;
        let proved = self.core.lock().leases.prove(now, session, &mut events);
        self.carry_out(now, events, out);
        proved.map_err(|_| Fault::Expired)
    }

    /// Sets the host of the session, for shared limits. `None`: this machine, or another server.
    pub fn set_host(&self, session: SessionId, host: Option<IpAddr>) {
        self.core.lock().leases.set_host(session, host);
    }

    /// Whether the session is anonymous.
    pub fn is_stranger(&self, session: SessionId) -> bool {
        self.core.lock().leases.is_anonymous(session)
    }

    /// Whether a panic left the tables of sessions and promises half changed: the server answers no
    /// more calls and must be restarted.
    pub fn is_broken(&self) -> bool {
        self.core.is_broken()
    }

    /// Slots of an authenticated session.
    pub fn slots_max(&self) -> u32 {
        self.config.slots_max
    }

    /// Removes the incarnations of clients that have been away for [`CLIENT_KEPT_DAYS`]. Call it
    /// now and then; `wall` is today. Returns how many it removed.
    ///
    /// # Errors
    /// `Medium`, `Damaged`.
    pub fn forget_clients(&self, wall: Timestamp) -> Result<usize, Fault> {
        let day = u64::try_from(wall.secs / 86_400).unwrap_or(0);
        let (mut after, mut forgotten) = (None, 0);
        loop {
            // Attaches wait from the check to the removal, but never for more than a few records.
            let _one_at_a_time = self.attaching.lock();
            let is_here = |client| self.core.lock().leases.has_client(client);
            let (some, next) = self.partitions.home().sessions().forget_clients(
                after,
                CLIENTS_AT_ONCE,
                (day, CLIENT_KEPT_DAYS),
                &is_here,
            )?;
            forgotten += some;
            after = next;
            if after.is_none() {
                return Ok(forgotten);
            }
        }
    }
}

/// Records that are checked while attaches wait.
const CLIENTS_AT_ONCE: usize = 256;
