//! The time after a restart in which the earlier life is settled (CB-5).
//!
//! Clients trust what the earlier life promised until they hear of the restart or their lease is
//! over. So no change may be acknowledged, and no lock given to anyone but its former holder,
//! before each known session has said that its reclaims are done, or has ended, or a whole lease
//! has passed.

use std::collections::HashSet;

use types::{SessionId, Time};

#[derive(Debug)]
pub(crate) struct Grace {
    until: Time,
    /// Known sessions that have not settled. `None`: not all are known, so only time ends it.
    waiting: Option<HashSet<SessionId>>,
    /// Those of them that may have changed files under delegations: until they have sent what they
    /// have, nobody else may read.
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

    /// The session has reclaimed what it had, or is over. Whether others may read more now.
    pub fn settle(&mut self, session: SessionId) -> bool {
        if let Some(waiting) = &mut self.waiting {
            waiting.remove(&session);
        }
        self.delegated.remove(&session)
    }

    /// Whether what the session reads is not another's to change. Where not all are known, any
    /// unknown one may have delegations.
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
