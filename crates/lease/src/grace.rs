//! The grace period after a restart, in which clients reclaim (CB-5).
//!
//! Clients trust the promises of the earlier server instance until they learn of the restart or
//! their lease ends. So the server acknowledges no change, and grants no lock except to its former
//! holder, before each known session has reported that its reclaims are done, or has ended. A
//! session that is back renews its lease, and is waited for as long as that, but not for more than
//! two whole leases: one that is never done must not keep all others waiting. Where not all
//! sessions are known, a whole lease has to pass.

use std::collections::HashSet;
use std::time::Duration;

use types::{SessionId, Time};

#[derive(Debug)]
pub(crate) struct Grace {
    /// Known sessions that have not finished.
    waiting: HashSet<SessionId>,
    /// Those of them that come before readers: no other session may read until they have sent their
    /// journals, if they may have changed files under delegations, and have claimed their opens, if
    /// those may deny reading.
    first: HashSet<SessionId>,
    /// When unknown sessions are over; `None`: there are none.
    unknown_until: Option<Time>,
    /// When it ends at the latest.
    until: Time,
}

impl Grace {
    /// After a restart at `now`. `lease`: how long a session lives without a message of its client.
    /// `complete`: there were no sessions but the known ones.
    pub fn new(
        now: Time,
        lease: Duration,
        known: impl Iterator<Item = SessionId>,
        first: HashSet<SessionId>,
        complete: bool,
    ) -> Self {
        let unknown_until = (!complete).then(|| now + lease);
        Grace { waiting: known.collect(), first, unknown_until, until: now + lease * 2 }
    }

    /// The session has finished its reclaims, or has ended. Returns whether others may now read
    /// more.
    pub fn finish(&mut self, session: SessionId) -> bool {
        self.waiting.remove(&session);
        self.first.remove(&session)
    }

    /// Whether no other session may still send changes of what the session reads, or claim opens
    /// that deny it. Where not all
    /// sessions are known, any unknown one may have delegations or such opens.
    pub fn may_read(&self, session: SessionId) -> bool {
        self.unknown_until.is_none() && self.first.iter().all(|other| *other == session)
    }

    /// Unknown sessions end with the time. Returns whether they did now, and others may read more.
    pub fn end_unknown(&mut self, now: Time) -> bool {
        self.unknown_until.take_if(|until| now >= *until).is_some()
    }

    pub fn is_over(&self, now: Time) -> bool {
        now >= self.until || self.unknown_until.is_none() && self.waiting.is_empty()
    }

    /// When time alone changes something.
    pub fn wake_at(&self) -> Time {
        self.unknown_until.unwrap_or(self.until)
    }
}
