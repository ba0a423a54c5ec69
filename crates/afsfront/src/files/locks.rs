//! Locks of whole files, as AFS has them.
//!
//! Model: a lock is the host's, not a process's: the client decides between its own processes. It
//! ends five minutes after it was given or extended, and the host's session has the lock of
//! Rialto's that stands for it. A host may have several read locks of a file: they are counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use afs3::structs::{AfsFid, VolSync, lock_type};
use parking_lot::Mutex;
use types::{ByteRange, Call, Fid, LockFamily, LockMode, LockOwner, Timestamp};

use super::{FileCall, find};
use crate::{Refusal, Services};

/// How long a lock lasts that is not extended.
const LASTS: Duration = Duration::from_secs(300);
/// The owner of all locks of a host's session.
const OWNER: LockOwner = LockOwner(0);
const WHOLE: ByteRange = ByteRange { start: 0, end: u64::MAX };

/// The locks of all hosts.
#[derive(Default)]
pub(super) struct ForeignLocks {
    held: Mutex<HashMap<(u64, Fid), HostLock>>,
}

/// A host's lock of a file.
struct HostLock {
    mode: LockMode,
    /// How many read locks it stands for.
    count: u32,
    until: Timestamp,
}

impl HostLock {
    /// One more call of the host locks the file. The host's own lock refuses it, too, unless both
    /// read.
    fn share(&mut self, mode: LockMode, until: Timestamp) -> Result<(), Refusal> {
        if (self.mode, mode) != (LockMode::Shared, LockMode::Shared) {
            return Err(Refusal::LOCKED);
        }
        self.count += 1;
        self.until = until;
        Ok(())
    }
}

fn unlock(fid: Fid) -> Call {
    Call::Unlock { fid, owner: OWNER, family: LockFamily::Flock, range: WHOLE }
}

impl ForeignLocks {
    /// The locks of a file, as a status has them: how many hosts' calls read, or -1 for one that
    /// writes. Those of Rialto's own clients are not among them.
    pub fn count(&self, fid: Fid) -> i32 {
        let held = self.held.lock();
        let of_file = held.iter().filter(|((_, of), _)| *of == fid);
        of_file.fold(0, |count, (_, lock)| match lock.mode {
            LockMode::Exclusive => -1,
            LockMode::Shared => count + i32::try_from(lock.count).unwrap_or(i32::MAX),
        })
    }

    /// Ends the locks of a host whose time is over.
    pub fn end_late(&self, services: &dyn Services, host: u64) {
        let now = services.now();
        let is_late = |((of, fid), lock): (&(u64, Fid), &HostLock)| {
            (*of == host && lock.until < now).then_some(*fid)
        };
        let late: Vec<Fid> = self.held.lock().iter().filter_map(is_late).collect();
        for fid in late {
            if services.ask_as_server(unlock(fid)).is_ok() {
                self.held.lock().remove(&(host, fid));
            }
        }
    }
}

impl FileCall<'_> {
    fn until(&self) -> Timestamp {
        self.services.now().later(LASTS)
    }

    pub(super) fn lock(&self, fid: AfsFid, kind: i32) -> Result<VolSync, Refusal> {
        let mode = match kind {
            lock_type::READ => LockMode::Shared,
            lock_type::WRITE => LockMode::Exclusive,
            _ => return Err(Refusal::INVALID),
        };
        let (found, sync) = (find(self, fid)?.fid, self.sync_of(fid.volume)?);
        let key = (self.host.number, found);
        // No lock of ours is held while the services are asked: they may wait for other clients.
        if let Some(known) = self.service.locks.held.lock().get_mut(&key) {
            known.share(mode, self.until())?;
            return Ok(sync);
        }
        self.services.ask(Call::Lock {
            fid: found,
            owner: OWNER,
            pid: 0,
            family: LockFamily::Flock,
            range: WHOLE,
            mode,
            wait: false,
            reclaim: false,
        })?;
        match self.service.locks.held.lock().entry(key) {
            // Another call of this host was faster.
            Entry::Occupied(mut known) => known.get_mut().share(mode, self.until())?,
            Entry::Vacant(place) => {
                place.insert(HostLock { mode, count: 1, until: self.until() });
            }
        }
        Ok(sync)
    }

    pub(super) fn extend_lock(&self, fid: AfsFid) -> Result<VolSync, Refusal> {
        let (found, sync) = (find(self, fid)?.fid, self.sync_of(fid.volume)?);
        let mut held = self.service.locks.held.lock();
        let known = held.get_mut(&(self.host.number, found)).ok_or(Refusal::INVALID)?;
        known.until = self.until();
        Ok(sync)
    }

    pub(super) fn release_lock(&self, fid: AfsFid) -> Result<VolSync, Refusal> {
        let (found, sync) = (find(self, fid)?.fid, self.sync_of(fid.volume)?);
        let is_last = {
            let mut held = self.service.locks.held.lock();
            // It may have ended, since its time was over: as stock servers have it, no error.
            let Entry::Occupied(mut known) = held.entry((self.host.number, found)) else {
                return Ok(sync);
            };
            known.get_mut().count -= 1;
            let is_last = known.get().count == 0;
            if is_last {
                known.remove();
            }
            is_last
        };
        if is_last {
            self.services.ask(unlock(found))?;
        }
        Ok(sync)
    }
}
