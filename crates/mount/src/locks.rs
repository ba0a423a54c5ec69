//! Byte-range and whole-file locks, and when they end.
//!
//! Venus and the server have the locks; this file has the kernel's rules for their end.
//! - A whole-file lock (`flock`) belongs to an open file: it ends with its `RELEASE`, which says
//!   so.
//! - A process's byte-range locks on a file end when it closes *any* descriptor of the file: that
//!   is `FLUSH`, which names the owner.
//! - A byte-range lock of an open file (`F_OFD_SETLK`) ends with its `RELEASE`, which does not say
//!   so; and a handle that was opened with `FOPEN_NOFLUSH` has no `FLUSH`.
//!
//! So each owner's handles are noted here when a byte-range lock is requested through them. A
//! `RELEASE` ends the locks of the owners that used that handle and no other. It comes late (the
//! kernel does not wait for it): an owner may lock anew through another handle meanwhile, so
//! *noting* a handle and *ending* an owner's locks exclude each other. When `close` returns, the
//! `RELEASE` is sent; a request that is sent later may be read by another worker and overtake it.
//! So a conflict with another owner of this mount is reported only after the releases that are
//! under way ([`MountLocks::after_releases`]).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use types::{ByteRange, Fault, Fid, LockFamily, LockMode, LockOwner};
use venus::{OpenHandle, RequestContext, Venus};

use crate::abi::{self, flag};
use crate::errno::RequestRefusal;

/// Numbers of `fcntl`.
const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;
/// The kernel's value for "past every end of file".
const OFFSET_MAX: u64 = i64::MAX as u64;

/// How long a worker may take from the moment when it has read a `RELEASE` until it is noted here:
/// on a loaded machine it waits for a processor.
const OVERTAKEN: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Owner {
    handles: HashSet<OpenHandle>,
    /// Its locks are being ended.
    ending: bool,
}

/// After so many files that were locked, these are forgotten.
const LOCKED_BEFORE_MAX: usize = 4096;

/// The owners that may have byte-range locks, and their handles.
#[derive(Default)]
pub struct MountLocks {
    files: Mutex<HashMap<Fid, HashMap<LockOwner, Owner>>>,
    /// Files that had byte-range locks. A file that was locked is likely to be locked again, and a
    /// descriptor has to report its closes from its open on.
    locked_before: Mutex<HashSet<Fid>>,
    changed: Condvar,
}

impl MountLocks {
    /// Whether the file may have byte-range locks of this mount, or had some.
    pub fn any_ever(&self, fid: Fid) -> bool {
        self.any(fid) || self.locked_before.lock().contains(&fid)
    }

    /// Whether the file may have byte-range locks of this mount.
    fn any(&self, fid: Fid) -> bool {
        self.files.lock().contains_key(&fid)
    }

    fn note_file(&self, fid: Fid) {
        let mut before = self.locked_before.lock();
        if before.len() >= LOCKED_BEFORE_MAX && !before.contains(&fid) {
            before.clear();
        }
        before.insert(fid);
    }

    /// Notes that a lock is about to be requested.
    pub fn note(&self, fid: Fid, owner: LockOwner, handle: OpenHandle) {
        let mut files = self.files.lock();
        while files
            .get(&fid)
            .and_then(|owners| owners.get(&owner))
            .is_some_and(|owner| owner.ending)
        {
            self.changed.wait(&mut files);
        }
        files.entry(fid).or_default().entry(owner).or_default().handles.insert(handle);
        drop(files);
        self.note_file(fid);
    }

    /// The owner has no locks any more: it has unlocked or closed the file.
    pub fn unlocked(&self, fid: Fid, owner: LockOwner) {
        // A release that ends its locks now may still take away what is locked before that is over.
        self.remove(fid, owner, |noted| !noted.ending);
    }

    /// A release has ended the owner's locks.
    fn ended(&self, fid: Fid, owner: LockOwner) {
        self.remove(fid, owner, |noted| {
            debug_assert!(
                noted.ending && noted.handles.is_empty(),
                "LK-5: no lock is requested while its owner's locks end"
            );
            true
        });
        self.changed.notify_all();
    }

    fn remove(&self, fid: Fid, owner: LockOwner, may: impl FnOnce(&Owner) -> bool) {
        let mut files = self.files.lock();
        let Some(owners) = files.get_mut(&fid) else { return };
        if owners.get(&owner).is_some_and(may) {
            owners.remove(&owner);
        }
        if owners.is_empty() {
            files.remove(&fid);
        }
    }

    /// The handle is released: returns the owners whose locks end with it. Until each is
    /// [`Self::ended`], it cannot be noted.
    #[must_use]
    pub fn release(&self, fid: Fid, handle: OpenHandle) -> Vec<LockOwner> {
        let mut files = self.files.lock();
        let Some(owners) = files.get_mut(&fid) else { return Vec::new() };
        let mut ending = Vec::new();
        for (number, owner) in owners {
            if owner.handles.remove(&handle) && owner.handles.is_empty() {
                debug_assert!(!owner.ending, "LK-5: an owner's locks end once");
                owner.ending = true;
                ending.push(*number);
            }
        }
        ending
    }

    /// Asks for a lock or about one, and once more after the releases of other handles that are
    /// under way if that meets a conflict.
    fn after_releases<T>(
        &self,
        fid: Fid,
        owner: LockOwner,
        ask: impl Fn() -> T,
        is_conflict: impl Fn(&T) -> bool,
    ) -> T {
        let has_others = || {
            let files = self.files.lock();
            files.get(&fid).is_some_and(|owners| owners.keys().any(|other| *other != owner))
        };
        // Before the question: what is released between the two has ended.
        let mut may_be_stale = has_others();
        let mut answer = ask();
        let began = Instant::now();
        while may_be_stale && is_conflict(&answer) {
            // Before the question too: a release that was read is noted, or its worker runs.
            let is_overtaken = is_another_running() && began.elapsed() < OVERTAKEN;
            let has_waited = self.wait_for_releases(fid);
            may_be_stale = is_overtaken || has_waited;
            std::thread::sleep(Duration::from_micros(200));
            answer = ask();
        }
        answer
    }

    /// Returns when no release of a handle of the file is under way; whether one was.
    fn wait_for_releases(&self, fid: Fid) -> bool {
        let mut files = self.files.lock();
        let mut has_waited = false;
        while files.get(&fid).is_some_and(|owners| owners.values().any(|owner| owner.ending)) {
            self.changed.wait(&mut files);
            has_waited = true;
        }
        has_waited
    }

    /// Locks or unlocks a range of a file.
    ///
    /// # Errors
    /// Why it cannot; that of `fid` if the file must be known.
    pub fn set(
        &self,
        venus: &Venus,
        request: &RequestContext<'_>,
        fid: Result<Fid, RequestRefusal>,
        of: &abi::LkIn,
        wait: bool,
    ) -> Result<(), RequestRefusal> {
        let (handle, owner, family, range) =
            (OpenHandle(of.fh), LockOwner(of.owner), family(of), range(of)?);
        match lock_mode(of)? {
            Some(mode) => {
                let lock = || {
                    let pid = of.lk.pid;
                    venus.locks().setlk(request, handle, owner, pid, family, range, mode, wait)
                };
                if family == LockFamily::Posix {
                    let fid = fid?;
                    self.note(fid, owner, handle);
                    self.after_releases(fid, owner, lock, |locked| {
                        matches!(locked, Err(error) if error.fault() == Some(Fault::Locked))
                    })?;
                } else {
                    lock()?;
                }
            }
            None => {
                venus.locks().unlock(request, handle, owner, family, range)?;
                if family == LockFamily::Posix && range == ByteRange::ALL {
                    self.unlocked(fid?, owner);
                }
            }
        }
        Ok(())
    }

    /// Ends the locks that end with the handle.
    pub fn end(&self, venus: &Venus, request: &RequestContext<'_>, fid: Fid, handle: OpenHandle) {
        for owner in self.release(fid, handle) {
            let range = ByteRange::ALL;
            if let Err(error) =
                venus.locks().unlock(request, handle, owner, LockFamily::Posix, range)
            {
                tracing::warn!(%error, %fid, "cannot end a closed file's locks at the server");
            }
            self.ended(fid, owner);
        }
    }
}

fn family(of: &abi::LkIn) -> LockFamily {
    if of.lk_flags & flag::LK_FLOCK != 0 { LockFamily::Flock } else { LockFamily::Posix }
}

fn range(of: &abi::LkIn) -> Result<ByteRange, RequestRefusal> {
    if family(of) == LockFamily::Flock {
        return Ok(ByteRange::ALL);
    }
    let end = if of.lk.end >= OFFSET_MAX { u64::MAX } else { of.lk.end };
    if of.lk.start > end {
        Err(RequestRefusal(Errno::INVAL))
    } else {
        Ok(ByteRange { start: of.lk.start, end })
    }
}

fn lock_mode(of: &abi::LkIn) -> Result<Option<LockMode>, RequestRefusal> {
    match of.lk.kind {
        F_RDLCK => Ok(Some(LockMode::Shared)),
        F_WRLCK => Ok(Some(LockMode::Exclusive)),
        F_UNLCK => Ok(None),
        _ => Err(RequestRefusal(Errno::INVAL)),
    }
}

/// The lock that a request would meet.
///
/// # Errors
/// Why that is not known.
pub fn conflict(
    locks: &MountLocks,
    venus: &Venus,
    request: &RequestContext<'_>,
    fid: Result<Fid, RequestRefusal>,
    of: &abi::LkIn,
) -> Result<abi::LkOut, RequestRefusal> {
    let mode = lock_mode(of)?.ok_or(Errno::INVAL)?;
    let (handle, owner, range) = (OpenHandle(of.fh), LockOwner(of.owner), range(of)?);
    let ask = || venus.locks().getlk(request, handle, owner, family(of), range, mode);
    let conflict = locks.after_releases(fid?, owner, ask, |found| matches!(found, Ok(Some(_))))?;
    let lk = conflict.map_or(abi::FileLock { kind: F_UNLCK, ..Default::default() }, |found| {
        abi::FileLock {
            start: found.range.start,
            end: found.range.end.min(OFFSET_MAX),
            kind: if found.mode == LockMode::Shared { F_RDLCK } else { F_WRLCK },
            pid: found.pid,
        }
    });
    Ok(abi::LkOut { lk })
}

/// Whether another worker thread runs or waits for a processor: it may have a request that no table
/// shows yet. A thread that sleeps has none, or waits with it.
fn is_another_running() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().filter(|thread| *thread.file_name() != *own).any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains(" (mount") && stat.contains(") R ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FID: Fid = Fid::new(1, 2, 3);

    #[test]
    fn locks_end_with_the_last_handle_that_they_were_asked_through() {
        let locks = MountLocks::default();
        locks.note(FID, LockOwner(1), OpenHandle(10));
        locks.note(FID, LockOwner(1), OpenHandle(11));
        locks.note(FID, LockOwner(2), OpenHandle(10));
        assert!(locks.any(FID));
        assert_eq!(locks.release(FID, OpenHandle(10)), [LockOwner(2)]);
        locks.ended(FID, LockOwner(2));
        assert_eq!(locks.release(FID, OpenHandle(11)), [LockOwner(1)]);
        locks.ended(FID, LockOwner(1));
        assert!(!locks.any(FID));
        assert_eq!(locks.release(FID, OpenHandle(11)), []);
    }

    #[test]
    fn a_late_release_does_not_end_what_was_locked_after_the_flush() {
        let locks = MountLocks::default();
        locks.note(FID, LockOwner(1), OpenHandle(10));
        locks.unlocked(FID, LockOwner(1));
        locks.note(FID, LockOwner(1), OpenHandle(11));
        assert_eq!(locks.release(FID, OpenHandle(10)), []);
    }

    #[test]
    fn no_lock_is_noted_while_the_owners_locks_end() {
        let locks = std::sync::Arc::new(MountLocks::default());
        locks.note(FID, LockOwner(1), OpenHandle(10));
        assert_eq!(locks.release(FID, OpenHandle(10)), [LockOwner(1)]);
        let other = std::sync::Arc::clone(&locks);
        let noted = std::thread::spawn(move || other.note(FID, LockOwner(1), OpenHandle(11)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        locks.unlocked(FID, LockOwner(1));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!noted.is_finished(), "an unlock meanwhile ends no release");
        locks.ended(FID, LockOwner(1));
        noted.join().unwrap();
        assert!(locks.any(FID));
    }
}
