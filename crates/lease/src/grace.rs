//! The time after a restart in which the earlier life is settled (CB-5).
//!
//! Clients trust what the earlier life promised until they hear of the restart or their lease is over. So no change may be acknowledged, and
//! no lock given to anyone but its former holder, before each known session has said that its reclaims are done, or has
//! ended, or a whole lease has passed.

use std::collections::HashSet;

use types::{SessionId, Time};

#[derive(Debug)]
pub(crate) struct Grace {
    until: Time,
    /// Known sessions that have not settled. `None`: not all are known, so only time ends it.
    waiting: Option<HashSet<SessionId>>,
}

impl Grace {
    pub fn new(until: Time, known: impl Iterator<Item = SessionId>, complete: bool) -> Self {
        Grace { until, waiting: complete.then(|| known.collect()) }
    }

    /// The session has reclaimed what it had, or is over.
    pub fn settle(&mut self, session: SessionId) {
        if let Some(waiting) = &mut self.waiting {
            waiting.remove(&session);
        }
    }

    pub fn is_over(&self, now: Time) -> bool {
        now >= self.until || self.waiting.as_ref().is_some_and(HashSet::is_empty)
    }

    pub fn until(&self) -> Time {
        self.until
    }
}
