//! Rights of open files, as they were when the files were opened.
//!
//! POSIX judges an open file once, at `open`: a program continues to read and write after a `chmod`
//! that would refuse it now. The server receives no opens, and judges each call on data by the mode
//! bits of that moment. So when the mode, owner or group of a file changes, the old rights are
//! noted for each session that may have the file open: those that are promised it or hold it, and
//! the session that makes the change, if it sets [`types::StatusChange::hold`]. A session that
//! acknowledges the break without having the file open loses the note; otherwise the note stays
//! until the session ends its hold or is over. A restart of the server loses all notes.
//!
//! A session gains nothing by a false report that it has a file open: it had the noted rights until
//! that moment.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use smallvec::SmallVec;
use types::{Fid, SessionId, Status};

/// Notes of one session: each is an open file whose rights changed.
const NOTES_MAX: usize = 4096;
/// Rights of one file that are noted for a session. Later ones are not: the session has had it open
/// since the first.
const RIGHTS_MAX: usize = 4;

/// The parts of a status that mode bits judge by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeRights {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

impl ModeRights {
    pub fn of(status: &Status) -> ModeRights {
        ModeRights { mode: status.mode, uid: status.uid, gid: status.gid }
    }

    /// The file's status with these rights in it.
    pub fn applied(self, status: &Status) -> Status {
        Status { mode: self.mode, uid: self.uid, gid: self.gid, ..*status }
    }
}

/// The notes of one session.
type Notes = BTreeMap<Fid, SmallVec<[ModeRights; 1]>>;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct OpenRights {
    sessions: Mutex<BTreeMap<SessionId, Notes>>,
}

impl OpenRights {
    /// Notes that the session may have had the file open with these rights.
    pub fn note(&self, session: SessionId, fid: Fid, rights: ModeRights) {
        let mut sessions = self.sessions.lock();
        let notes = sessions.entry(session).or_default();
        if notes.len() >= NOTES_MAX && !notes.contains_key(&fid) {
            return;
        }
        let noted = notes.entry(fid).or_default();
        if noted.len() < RIGHTS_MAX && !noted.contains(&rights) {
            noted.push(rights);
        }
    }

    /// Rights of the file while the session had it open.
    pub fn rights(&self, session: SessionId, fid: Fid) -> SmallVec<[ModeRights; 1]> {
        let sessions = self.sessions.lock();
        sessions.get(&session).and_then(|notes| notes.get(&fid)).cloned().unwrap_or_default()
    }

    /// Notes that the session does not have the file open.
    pub fn forget(&self, session: SessionId, fid: Fid) {
        let mut sessions = self.sessions.lock();
        let Some(notes) = sessions.get_mut(&session) else { return };
        notes.remove(&fid);
        if notes.is_empty() {
            sessions.remove(&session);
        }
    }

    /// Removes the notes of a session that ended.
    pub fn remove_session(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_of_one_session_and_bounded() {
        let (one, other) = (SessionId(1), SessionId(2));
        let fid = |number| Fid::new(1, 2 * number, 7);
        let rights = |mode| ModeRights { mode, uid: 1, gid: 1 };
        let opened = OpenRights::default();
        for mode in 0..100 {
            opened.note(one, fid(0), rights(mode));
        }
        assert_eq!(opened.rights(one, fid(0)).len(), RIGHTS_MAX);
        assert!(opened.rights(other, fid(0)).is_empty());
        for number in 0..2 * NOTES_MAX as u64 {
            opened.note(one, fid(number), rights(0o644));
        }
        assert_eq!(opened.sessions.lock()[&one].len(), NOTES_MAX);
        opened.forget(one, fid(0));
        assert!(opened.rights(one, fid(0)).is_empty());
        opened.remove_session(one);
        assert!(opened.sessions.lock().is_empty());
    }
}
