//! Holds: which sessions have a file open that may lose, or has lost, its last name.

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;
use types::{Fid, SessionId};

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Holds {
    files: HashMap<Fid, SmallVec<[SessionId; 1]>>,
    sessions: HashMap<SessionId, HashSet<Fid>>,
    count: usize,
}

impl Holds {
    /// Whether any session has the file open.
    pub fn is_held(&self, fid: Fid) -> bool {
        self.files.contains_key(&fid)
    }

    /// Whether this session has the file open.
    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.sessions.get(&session).is_some_and(|fids| fids.contains(&fid))
    }

    /// Sessions that have the file open.
    pub(crate) fn sessions(&self, fid: Fid) -> impl Iterator<Item = SessionId> + '_ {
        self.files.get(&fid).into_iter().flatten().copied()
    }

    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, HashSet::len)
    }

    /// Holds of all sessions.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Registers a hold. Has no effect if it exists.
    pub(crate) fn add(&mut self, session: SessionId, fid: Fid) {
        if self.sessions.entry(session).or_default().insert(fid) {
            self.files.entry(fid).or_default().push(session);
            self.count += 1;
        }
    }

    /// Removes a hold. True if the session had it and no other session holds the file.
    pub(crate) fn remove(&mut self, session: SessionId, fid: Fid) -> bool {
        let Some(fids) = self.sessions.get_mut(&session) else { return false };
        if !fids.remove(&fid) {
            return false;
        }
        if fids.is_empty() {
            self.sessions.remove(&session);
        }
        self.drop_holder(session, fid)
    }

    /// Removes all holds of a session. Returns the files that no session holds any more, in order.
    pub(crate) fn end(&mut self, session: SessionId) -> Vec<Fid> {
        let fids = self.sessions.remove(&session).unwrap_or_default();
        let mut freed: Vec<Fid> =
            fids.into_iter().filter(|fid| self.drop_holder(session, *fid)).collect();
        freed.sort_unstable();
        freed
    }

    fn drop_holder(&mut self, session: SessionId, fid: Fid) -> bool {
        let holders =
            self.files.get_mut(&fid).expect("HO-1: a session's hold is in the table of files");
        let before = holders.len();
        holders.retain(|other| *other != session);
        assert_eq!(holders.len() + 1, before, "HO-1: {session:?} holds {fid} once");
        self.count -= 1;
        let free = holders.is_empty();
        if free {
            self.files.remove(&fid);
        }
        free
    }
}
