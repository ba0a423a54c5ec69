//! Delegations: which session has a directory to itself, and what goes with it
//! (`docs/spec/delegation.md`, DE-1 and DE-2).
//!
//! A directory is delegated to at most one session. What was made or found in it alone goes with it
//! as a *child*: a file belongs to the one directory under which it became one, until that
//! directory is given back, or it is delegated itself, or gone for good. *Covered* is what is
//! delegated or a child.
//!
//! Events: *grant* and *adopt* add; *recall* marks a directory as wanted back, and starts the clock
//! of its session: it stands while the session sends what it has (*progress*) and is overdue when
//! nothing comes for too long; *give back*, the end of the session and the end of a file (*forget*)
//! take away. A directory that was recalled, or refused, stays *quiet* for a while: who shares a
//! directory gains nothing from having it alone for a moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use types::{Fid, SessionId, Time, VolumeId};

/// How long a directory that was recalled is not delegated again.
pub(crate) const QUIET_AFTER_RECALL: Duration = Duration::from_secs(1);
/// How long one is not asked about again whose other users have just been told to forget it.
pub(crate) const QUIET_AFTER_REFUSAL: Duration = Duration::from_secs(1);
/// Quiet directories at which those whose time is over are forgotten.
const QUIET_MAX: usize = 4096;

#[derive(Debug)]
struct Delegated {
    session: SessionId,
    children: HashSet<Fid>,
    recalled: bool,
    /// Since when the session answers for it; of a directory that was made in one, since when for
    /// that.
    given: Time,
}

/// What one session has.
#[derive(Debug, Default)]
struct Had {
    dirs: HashSet<Fid>,
    /// Directories of each volume.
    volumes: BTreeMap<VolumeId, usize>,
    /// Directories that are wanted back.
    recalled: usize,
    /// Since when they are and nothing came.
    since: Time,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    dirs: HashMap<Fid, Delegated>,
    children: HashMap<Fid, Fid>,
    sessions: HashMap<SessionId, Had>,
    quiet: HashMap<Fid, Time>,
}

impl Delegations {
    /// Directories that are delegated.
    pub fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Files that go with one.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// Who has the file to itself, and with which directory it goes.
    pub fn cover(&self, fid: Fid) -> Option<(SessionId, Fid)> {
        if self.dirs.is_empty() {
            return None;
        }
        let dir = if self.dirs.contains_key(&fid) { fid } else { *self.children.get(&fid)? };
        let delegated = self.dirs.get(&dir).expect("DE-1: a child's directory is delegated");
        Some((delegated.session, dir))
    }

    /// Whether the directory itself is delegated to the session.
    pub fn has(&self, session: SessionId, dir: Fid) -> bool {
        self.dirs.get(&dir).is_some_and(|delegated| delegated.session == session)
    }

    /// Whether the directory is wanted back.
    pub fn is_recalled(&self, dir: Fid) -> bool {
        self.dirs.get(&dir).is_some_and(|delegated| delegated.recalled)
    }

    /// Whether the file goes with this directory.
    pub fn is_child(&self, dir: Fid, fid: Fid) -> bool {
        self.children.get(&fid) == Some(&dir)
    }

    /// Since when its session answers for the file alone; none: nobody does.
    pub fn given(&self, fid: Fid) -> Option<Time> {
        let (_, dir) = self.cover(fid)?;
        self.dirs.get(&dir).map(|delegated| delegated.given)
    }

    /// Delegates a directory that nobody else has. One that was a child is none any more.
    pub fn grant(&mut self, given: Time, session: SessionId, dir: Fid) {
        assert!(
            self.cover(dir).is_none_or(|(other, _)| other == session),
            "DE-1: {dir} is another session's"
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

    /// The file goes with the directory from now on, which is delegated.
    pub fn adopt(&mut self, dir: Fid, fid: Fid) {
        assert!(self.cover(fid).is_none(), "DE-1: {fid} is covered already");
        if let Some(delegated) = self.dirs.get_mut(&dir) {
            delegated.children.insert(fid);
            self.children.insert(fid, dir);
        }
    }

    fn orphan(&mut self, fid: Fid) {
        let dir = self.children.remove(&fid);
        if let Some(delegated) = dir.and_then(|dir| self.dirs.get_mut(&dir)) {
            delegated.children.remove(&fid);
        }
    }

    /// The directory is wanted back. Its session, if that is news.
    pub fn recall(&mut self, now: Time, dir: Fid) -> Option<SessionId> {
        let delegated = self.dirs.get_mut(&dir).filter(|delegated| !delegated.recalled)?;
        delegated.recalled = true;
        let had =
            self.sessions.get_mut(&delegated.session).expect("DE-1: who has a directory is listed");
        if had.recalled == 0 {
            had.since = now;
        }
        had.recalled += 1;
        Some(delegated.session)
    }

    /// The session sent something of what it has.
    pub fn progress(&mut self, now: Time, session: SessionId) {
        if let Some(had) = self.sessions.get_mut(&session) {
            had.since = had.since.max(now);
        }
    }

    /// Whether the session owes something for longer than `patience`.
    pub fn is_overdue(&self, now: Time, session: SessionId, patience: Duration) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(|had| had.recalled > 0 && now.since(had.since) > patience)
    }

    /// Takes a directory and its children away from the session. Whether it had it.
    pub fn give_back(&mut self, now: Time, session: SessionId, dir: Fid) -> bool {
        if !self.has(session, dir) {
            return false;
        }
        let delegated = self.dirs.remove(&dir).expect("just found");
        for child in &delegated.children {
            self.children.remove(child);
        }
        let had = self.sessions.get_mut(&session).expect("DE-1: who has a directory is listed");
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
            had.recalled -= 1;
            self.hush(now, dir, QUIET_AFTER_RECALL);
        }
        if self.sessions.get(&session).is_some_and(|had| had.dirs.is_empty()) {
            self.sessions.remove(&session);
        }
        true
    }

    /// The session is over; what it had, in order.
    pub fn end(&mut self, now: Time, session: SessionId) -> Vec<Fid> {
        let dirs = self.of_session(session);
        for dir in &dirs {
            self.give_back(now, session, *dir);
        }
        dirs
    }

    /// The file is gone for good. A directory whose children have moved elsewhere stays until it is
    /// given back, since they do. True: a delegation ended.
    pub fn forget(&mut self, now: Time, fid: Fid) -> bool {
        self.orphan(fid);
        match self.dirs.get(&fid) {
            Some(delegated) if delegated.children.is_empty() => {
                self.give_back(now, delegated.session, fid)
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

    /// All directories of a volume that others than `except` have, in order.
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

    /// How many sessions other than `except` have something in the volume.
    pub fn sessions_in(&self, volume: VolumeId, except: Option<SessionId>) -> usize {
        let counts =
            |id: &SessionId, had: &Had| Some(*id) != except && had.volumes.contains_key(&volume);
        self.sessions.iter().filter(|(id, had)| counts(id, had)).count()
    }

    /// Whether it is too early to delegate the directory.
    pub fn is_quiet(&self, now: Time, dir: Fid) -> bool {
        self.quiet.get(&dir).is_some_and(|until| now < *until)
    }

    /// The directory is not delegated for a while.
    pub fn hush(&mut self, now: Time, dir: Fid, time: Duration) {
        if self.quiet.len() >= QUIET_MAX {
            self.quiet.retain(|_, until| now < *until);
        }
        // Past that many, contention is everywhere, and one more in vain does no harm.
        if self.quiet.len() < QUIET_MAX {
            let until = self.quiet.entry(dir).or_insert(now);
            *until = (*until).max(now + time);
        }
    }
}
