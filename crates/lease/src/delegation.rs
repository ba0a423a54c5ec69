//! Delegations: which session has a directory alone, and which files belong to the delegation
//! (`docs/spec/delegation.md`, DE-1 and DE-2).
//!
//! A directory is delegated to at most one session. A file that was made or found in it by that
//! session alone is its *child*: a file belongs to the one directory under which it became one,
//! until that directory is given back, or the file is delegated itself or removed. *Covered* files
//! are the delegated ones and the children.
//!
//! Events: *grant* and *adopt* add; *recall* marks a directory and starts the clock of its session,
//! which is reset while the session sends its journal (*progress*) and is overdue when nothing
//! arrives for too long; *give back*, the end of the session and the end of a file (*forget*)
//! remove. A directory that was recalled or refused stays *quiet* for a while: a session gains
//! nothing from a delegation of a shared directory for a moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use types::{Fid, SessionId, Time, VolumeId};

use crate::output::Output;

/// A directory that was recalled is not delegated again for this long.
pub(crate) const QUIET_AFTER_RECALL: Duration = Duration::from_secs(1);
/// A directory whose other users were just sent a break is not delegated for this long.
pub(crate) const QUIET_AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// At this number of quiet directories the expired ones are dropped.
const QUIET_MAX: usize = 4096;

#[derive(Debug)]
struct Delegated {
    session: SessionId,
    children: HashSet<Fid>,
    recalled: bool,
    /// Since when the session may answer for the directory; of a directory that was made in a
    /// delegated one, since when for that one.
    given: Time,
}

/// The delegations of one session.
#[derive(Debug, Default)]
struct Had {
    dirs: HashSet<Fid>,
    /// Number of delegated directories of each volume.
    volumes: BTreeMap<VolumeId, usize>,
    /// Number of recalled directories.
    recalled: usize,
    /// Time of the first recall, or of the last progress since.
    since: Time,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Delegations {
    dirs: HashMap<Fid, Delegated>,
    children: HashMap<Fid, Fid>,
    sessions: HashMap<SessionId, Had>,
    quiet: HashMap<Fid, Time>,
}

impl Delegations {
    /// Delegated directories, of all sessions.
    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Children of all delegated directories.
    pub(crate) fn children(&self) -> usize {
        self.children.len()
    }

    /// The session that covers the file, and the delegated directory that it belongs to.
    pub(crate) fn cover(&self, fid: Fid) -> Option<(SessionId, Fid)> {
        if self.dirs.is_empty() {
            return None;
        }
        let dir = if self.dirs.contains_key(&fid) { fid } else { *self.children.get(&fid)? };
        let delegated = self.dirs.get(&dir).expect("DE-1: a child's directory is delegated");
        Some((delegated.session, dir))
    }

    /// Whether another session's delegation covers the file.
    pub fn covers_elsewhere(&self, session: SessionId, fid: Fid) -> bool {
        self.cover(fid).is_some_and(|(other, _)| other != session)
    }

    /// Whether the session covers the file.
    pub fn covers(&self, session: SessionId, fid: Fid) -> bool {
        self.cover(fid).is_some_and(|(owner, _)| owner == session)
    }

    /// Whether the directory is delegated to any session.
    pub fn is_delegated(&self, dir: Fid) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// Whether the directory itself is delegated to the session.
    pub fn has(&self, session: SessionId, dir: Fid) -> bool {
        self.dirs.get(&dir).is_some_and(|delegated| delegated.session == session)
    }

    /// Whether the directory is recalled.
    pub(crate) fn is_recalled(&self, dir: Fid) -> bool {
        self.dirs.get(&dir).is_some_and(|delegated| delegated.recalled)
    }

    /// Whether the file is a child of this directory.
    pub(crate) fn is_child(&self, dir: Fid, fid: Fid) -> bool {
        self.children.get(&fid) == Some(&dir)
    }

    /// Since when its session alone answers for the file; `None`: the file is not covered.
    pub fn given(&self, fid: Fid) -> Option<Time> {
        let (_, dir) = self.cover(fid)?;
        self.dirs.get(&dir).map(|delegated| delegated.given)
    }

    /// Delegates a directory that no other session has. A child stops being one.
    pub(crate) fn grant(&mut self, given: Time, session: SessionId, dir: Fid) {
        assert!(
            self.cover(dir).is_none_or(|(other, _)| other == session),
            "DE-1: {dir} is delegated to another session"
        );
        if self.dirs.contains_key(&dir) {
            return;
        }
        self.orphan(dir);
        self.dirs
            .insert(dir, Delegated { session, children: HashSet::new(), recalled: false, given });
        let had = self.sessions.entry(session).or_default();
        had.dirs.insert(dir);
        *had.volumes.entry(dir.volume).or_insert(0) += 1;
    }

    /// Makes the file a child of the directory, which is delegated.
    pub(crate) fn adopt(&mut self, dir: Fid, fid: Fid) {
        assert!(self.cover(fid).is_none(), "DE-1: {fid} is covered already");
        let delegated = self.dirs.get_mut(&dir).expect("DE-1: only a delegated directory adopts");
        delegated.children.insert(fid);
        self.children.insert(fid, dir);
    }

    fn orphan(&mut self, fid: Fid) {
        let dir = self.children.remove(&fid);
        if let Some(delegated) = dir.and_then(|dir| self.dirs.get_mut(&dir)) {
            delegated.children.remove(&fid);
        }
    }

    /// Recalls the directory. Returns its session if the directory was not recalled before.
    pub(crate) fn recall(&mut self, now: Time, dir: Fid) -> Option<SessionId> {
        let delegated = self.dirs.get_mut(&dir).filter(|delegated| !delegated.recalled)?;
        delegated.recalled = true;
        let had = self
            .sessions
            .get_mut(&delegated.session)
            .expect("DE-1: a session with a directory is listed");
        if had.recalled == 0 {
            had.since = now;
        }
        had.recalled += 1;
        Some(delegated.session)
    }

    /// The session sent a change from its journal: it works off the recall.
    pub fn progress(&mut self, now: Time, session: SessionId) {
        if let Some(had) = self.sessions.get_mut(&session) {
            had.since = had.since.max(now);
        }
    }

    /// Whether a recall of the session has waited longer than `patience`.
    pub(crate) fn is_overdue(&self, now: Time, session: SessionId, patience: Duration) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(|had| had.recalled > 0 && now.since(had.since) > patience)
    }

    /// The session returns these directories; those that it does not have are ignored.
    pub fn give_back(
        &mut self,
        now: Time,
        session: SessionId,
        dirs: &[Fid],
        out: &mut Vec<Output>,
    ) {
        let had = |dir: &Fid| self.take_back(now, session, *dir);
        let over: Vec<Fid> = dirs.iter().copied().filter(had).collect();
        if !over.is_empty() {
            out.push(Output::DelegationsOver(over));
        }
    }

    /// Takes a directory and its children from the session. Returns whether the session had it.
    fn take_back(&mut self, now: Time, session: SessionId, dir: Fid) -> bool {
        if !self.has(session, dir) {
            return false;
        }
        let delegated = self.dirs.remove(&dir).expect("just found");
        for child in &delegated.children {
            self.children.remove(child);
        }
        let had =
            self.sessions.get_mut(&session).expect("DE-1: a session with a directory is listed");
        had.dirs.remove(&dir);
        had.since = now;
        let left = had
            .volumes
            .get_mut(&dir.volume)
            .expect("DE-1: each directory is counted in its volume");
        *left -= 1;
        if *left == 0 {
            had.volumes.remove(&dir.volume);
        }
        if delegated.recalled {
            assert!(had.recalled > 0, "DE-2: the recall of {dir} is not counted");
            had.recalled -= 1;
        }
        assert!(had.recalled <= had.dirs.len(), "DE-2: {session:?} cannot return all recalls");
        if had.dirs.is_empty() {
            self.sessions.remove(&session);
        }
        if delegated.recalled {
            self.bar(now, dir, QUIET_AFTER_RECALL);
        }
        true
    }

    /// Ends the session. Returns its directories, in order.
    pub(crate) fn end(&mut self, now: Time, session: SessionId) -> Vec<Fid> {
        let dirs = self.of_session(session);
        for dir in &dirs {
            self.take_back(now, session, *dir);
        }
        dirs
    }

    /// Removes a file that no longer exists. A directory whose children have moved elsewhere stays
    /// until it is given back, since they do. True: a delegation ended.
    pub(crate) fn forget(&mut self, now: Time, fid: Fid) -> bool {
        self.orphan(fid);
        debug_assert!(!self.children.contains_key(&fid), "DE-1: {fid} is gone, and covered");
        match self.dirs.get(&fid) {
            Some(delegated) if delegated.children.is_empty() => {
                self.take_back(now, delegated.session, fid)
            }
            _ => false,
        }
    }

    /// All directories of a session, in order.
    pub fn of_session(&self, session: SessionId) -> Vec<Fid> {
        let mut dirs: Vec<Fid> =
            self.sessions.get(&session).into_iter().flat_map(|had| &had.dirs).copied().collect();
        dirs.sort_unstable();
        dirs
    }

    /// All directories of a volume that sessions other than `except` have, in order.
    pub fn in_volume(&self, volume: VolumeId, except: SessionId) -> Vec<Fid> {
        let others = self
            .sessions
            .iter()
            .filter(|(id, had)| **id != except && had.volumes.contains_key(&volume));
        let dirs = others.flat_map(|(_, had)| &had.dirs).filter(|dir| dir.volume == volume);
        let mut dirs: Vec<Fid> = dirs.copied().collect();
        dirs.sort_unstable();
        dirs
    }

    /// Volumes with delegations.
    pub fn volumes(&self) -> HashSet<VolumeId> {
        self.sessions.values().flat_map(|had| had.volumes.keys()).copied().collect()
    }

    /// How many sessions other than `except` have delegations in the volume.
    pub fn sessions_in(&self, volume: VolumeId, except: Option<SessionId>) -> usize {
        let counts =
            |id: &SessionId, had: &Had| Some(*id) != except && had.volumes.contains_key(&volume);
        self.sessions.iter().filter(|(id, had)| counts(id, had)).count()
    }

    /// Whether the directory may not be delegated yet.
    pub(crate) fn is_quiet(&self, now: Time, dir: Fid) -> bool {
        self.quiet.get(&dir).is_some_and(|until| now < *until)
    }

    /// Bars the directory from delegation for `time`.
    pub(crate) fn bar(&mut self, now: Time, dir: Fid, time: Duration) {
        if self.quiet.len() >= QUIET_MAX {
            self.quiet.retain(|_, until| now < *until);
        }
        // Beyond the limit contention is everywhere, and one more delegation in vain does no harm.
        if self.quiet.len() < QUIET_MAX {
            let until = self.quiet.entry(dir).or_insert(now);
            *until = (*until).max(now + time);
        }
    }
}
