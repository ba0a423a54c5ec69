//! The grace period after a restart, in which clients reclaim (CB-5).
//!
//! Clients trust the promises of the earlier server instance until they learn of the restart or
//! their lease ends. So the server acknowledges no change, and grants no lock except to its former
//! holder, before each known session has reported that its reclaims are done, or has ended, or a
//! whole lease has passed.

use std::collections::HashSet;

use types::{SessionId, Time};

#[derive(Debug)]
pub(crate) struct Grace {
    until: Time,
    /// Known sessions that have not finished. `None`: not all are known, so only time ends grace.
    waiting: Option<HashSet<SessionId>>,
    /// Those of them that may have changed files under delegations: no other session may read until
    /// they have sent their journals.
    delegated: HashSet<SessionId>,
}

impl Grace {
    pub fn new(
        until: Time,
        known: impl Iterator<Item = SessionId>,
        delegated: HashSet<SessionId>,
        complete: bool,
    ) -> Self {
        Grace { until, waiting: complete.then(|| known.collect()), delegated }
    }

    /// The session has finished its reclaims, or has ended. Returns whether others may now read
    /// more.
    pub fn finish(&mut self, session: SessionId) -> bool {
        if let Some(waiting) = &mut self.waiting {
            waiting.remove(&session);
        }
        self.delegated.remove(&session)
    }

    /// Whether no other session may still send changes of what the session reads. Where not all
    /// sessions are known, any unknown one may have delegations.
    pub fn may_read(&self, session: SessionId) -> bool {
        self.waiting.is_some() && self.delegated.iter().all(|other| *other == session)
    }

    pub fn is_over(&self, now: Time) -> bool {
        now >= self.until || self.waiting.as_ref().is_some_and(HashSet::is_empty)
    }

    pub fn until(&self) -> Time {
        self.until
    }
}
