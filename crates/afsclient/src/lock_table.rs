//! Locks of applications here, by file, and what their servers must have for them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{ByteRange, Fid, LockFamily, LockMode, LockOwner};

use crate::users::AfsUser;

/// A lock of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLock {
    pub owner: LockOwner,
    pub pid: u32,
    pub family: LockFamily,
    pub range: ByteRange,
    pub mode: LockMode,
}

impl OwnLock {
    fn conflicts(&self, other: &OwnLock) -> bool {
        self.family == other.family
            && self.owner != other.owner
            && self.range.overlaps(other.range)
            && (self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive)
    }
}

/// The locks of one file.
#[derive(Debug, Default)]
pub(crate) struct LockedFile {
    pub own: Vec<OwnLock>,
    /// The lock at the server, and whose it is.
    pub there: Option<(LockMode, AfsUser)>,
}

/// The files with locks. Each has its own mutex, which is locked while its server is called.
#[derive(Default)]
pub(crate) struct LockedFiles(Mutex<HashMap<Fid, Arc<Mutex<LockedFile>>>>);

impl LockedFiles {
    /// The locks of a file.
    pub fn of(&self, fid: Fid) -> Arc<Mutex<LockedFile>> {
        Arc::clone(self.0.lock().entry(fid).or_default())
    }

    /// Files with a lock at their server.
    pub fn all(&self) -> Vec<(Fid, Arc<Mutex<LockedFile>>)> {
        self.0.lock().iter().map(|(fid, file)| (*fid, Arc::clone(file))).collect()
    }

    /// Forgets files without locks that no thread uses.
    pub fn sweep(&self) {
        self.0.lock().retain(|_, file| {
            Arc::strong_count(file) > 1
                || file.try_lock().is_none_or(|file| file.there.is_some() || !file.own.is_empty())
        });
    }
}

impl LockedFile {
    /// A lock here that keeps the wanted one out.
    pub fn conflict(&self, wanted: &OwnLock) -> Option<&OwnLock> {
        self.own.iter().find(|lock| lock.conflicts(wanted))
    }

    /// Takes the owner's locks of the family off a range.
    pub fn cut(&mut self, owner: LockOwner, family: LockFamily, range: ByteRange) {
        let mut kept = Vec::with_capacity(self.own.len() + 1);
        for lock in self.own.drain(..) {
            if lock.owner != owner || lock.family != family || !lock.range.overlaps(range) {
                kept.push(lock);
                continue;
            }
            if lock.range.start < range.start {
                let before = ByteRange { start: lock.range.start, end: range.start - 1 };
                kept.push(OwnLock { range: before, ..lock });
            }
            if lock.range.end > range.end {
                let behind = ByteRange { start: range.end + 1, end: lock.range.end };
                kept.push(OwnLock { range: behind, ..lock });
            }
        }
        self.own = kept;
    }

    /// Grants a lock.
    pub fn take(&mut self, lock: OwnLock) {
        self.cut(lock.owner, lock.family, lock.range);
        self.own.push(lock);
    }

    /// The lock that the server must have for those here and this one.
    pub fn needed(&self, with: Option<LockMode>) -> Option<LockMode> {
        let all = self.own.iter().map(|lock| lock.mode).chain(with);
        all.max_by_key(|mode| *mode == LockMode::Exclusive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: u64, start: u64, end: u64, mode: LockMode) -> OwnLock {
        let (owner, range) = (LockOwner(owner), ByteRange { start, end });
        OwnLock { owner, pid: 1, family: LockFamily::Posix, range, mode }
    }

    #[test]
    fn owners_ranges_and_families_decide_here() {
        let mut file = LockedFile::default();
        file.take(lock(1, 0, 9, LockMode::Exclusive));
        assert!(file.conflict(&lock(2, 9, 20, LockMode::Shared)).is_some());
        assert!(file.conflict(&lock(2, 10, 20, LockMode::Exclusive)).is_none());
        assert!(file.conflict(&lock(1, 0, 9, LockMode::Shared)).is_none());
        let other = OwnLock { family: LockFamily::Flock, ..lock(2, 0, 9, LockMode::Exclusive) };
        assert!(file.conflict(&other).is_none());
    }

    #[test]
    fn a_released_range_leaves_what_is_around_it() {
        let mut file = LockedFile::default();
        file.take(lock(1, 0, 9, LockMode::Shared));
        file.cut(LockOwner(1), LockFamily::Posix, ByteRange { start: 3, end: 5 });
        assert_eq!(file.own, [lock(1, 0, 2, LockMode::Shared), lock(1, 6, 9, LockMode::Shared)]);
        file.cut(LockOwner(1), LockFamily::Posix, ByteRange::ALL);
        assert_eq!((file.own.len(), file.needed(None)), (0, None));
    }

    #[test]
    fn the_server_has_the_strongest_of_the_locks() {
        let mut file = LockedFile::default();
        file.take(lock(1, 0, 9, LockMode::Shared));
        assert_eq!(file.needed(None), Some(LockMode::Shared));
        assert_eq!(file.needed(Some(LockMode::Exclusive)), Some(LockMode::Exclusive));
        file.take(lock(1, 0, 4, LockMode::Exclusive));
        assert_eq!(file.needed(Some(LockMode::Shared)), Some(LockMode::Exclusive));
    }
}
