//! Limits of promises, locks, holds and opens: of each session, of each host, and of all together.

use crate::config::LeaseConfig;
use crate::hold::Holds;
use crate::lock::{LockRequest, LockTable};
use crate::opens::Opens;
use crate::promises::Promises;
use crate::sessions::Sessions;
use types::SessionId;

/// How often a limit was reached since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsMet {
    /// A session reached its limit of promises, and its oldest were broken.
    pub sessions: u64,
    /// A host's sessions reached their limit, and the oldest promises of the one that asked were
    /// broken.
    pub hosts: u64,
    /// All sessions together reached the limit of promises.
    pub all: u64,
    /// A lock was refused at a limit.
    pub locks: u64,
    /// A hold was refused at a limit.
    pub holds: u64,
    /// An open was refused at a limit.
    pub opens: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Limits {
    config: LeaseConfig,
    met: LimitsMet,
}

impl Limits {
    pub fn new(config: LeaseConfig) -> Limits {
        Limits { config, met: LimitsMet::default() }
    }

    /// How often limits were reached.
    pub fn met(&self) -> LimitsMet {
        self.met
    }

    /// The session has one more promise. Returns the session whose oldest promises must go.
    pub fn promised(
        &mut self,
        sessions: &Sessions,
        promises: &Promises,
        session: SessionId,
    ) -> Option<SessionId> {
        let count = |session| promises.count(session);
        let anonymous = sessions.is_anonymous(session);
        let of_session = match anonymous {
            true => self.config.stranger.promises_max,
            false => self.config.promises_per_session_max,
        };
        if count(session) > of_session {
            self.met.sessions += 1;
            return Some(session);
        }
        if !anonymous && sessions.is_host_full(session, self.config.promises_per_host_max, count) {
            self.met.hosts += 1;
            return Some(session);
        }
        let richest = (promises.len() > self.config.promises_max).then(|| sessions.richest(count));
        self.met.all += u64::from(matches!(richest, Some(Some(_))));
        richest.flatten()
    }

    /// Whether the session may hold one more file.
    pub fn allow_hold(&mut self, sessions: &Sessions, holds: &Holds, session: SessionId) -> bool {
        let count = |session| holds.count(session);
        let has_room = holds.len() < self.config.holds_max
            && match sessions.is_anonymous(session) {
                true => count(session) < self.config.stranger.holds_max,
                false => {
                    count(session) < self.config.holds_per_session_max
                        && !sessions.is_host_full(session, self.config.holds_per_host_max, count)
                }
            };
        self.met.holds += u64::from(!has_room);
        has_room
    }

    /// Whether the session may open one more file.
    pub fn allow_open(&mut self, sessions: &Sessions, opens: &Opens, session: SessionId) -> bool {
        let count = |session| opens.count(session);
        let has_room = opens.len() < self.config.opens_max
            && count(session) < self.config.opens_per_session_max
            && !sessions.is_host_full(session, self.config.opens_per_host_max, count);
        self.met.opens += u64::from(!has_room);
        has_room
    }

    /// Whether the session may have one more lock, or wait for it.
    pub fn allow_lock(
        &mut self,
        sessions: &Sessions,
        locks: &LockTable,
        request: &LockRequest,
        wait: bool,
    ) -> bool {
        let LockRequest { session, fid, family, .. } = *request;
        let count = |session| locks.used_by(session);
        let has_room = match sessions.is_anonymous(session) {
            true => {
                let of = self.config.stranger;
                count(session) < of.locks_max
                    && !(wait && locks.waiting_for(fid, family) >= of.lock_queue_max)
            }
            false => !sessions.is_host_full(session, self.config.locks_per_host_max, count),
        };
        self.met.locks += u64::from(!has_room);
        has_room
    }
}
