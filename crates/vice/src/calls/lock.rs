//! Locks, holds, and the reclaims after a restart: the leases' calls, for existing files.

use lease::{LockOutcome, LockRequest};
use store::Vnode;
use types::{Answer, ByteRange, Call, Fault, Fid, LockFamily, LockMode, LockOwner};

use super::CallOutcome;
use crate::Vice;
use crate::access::Right;
use crate::service::CallContext;
use crate::volumes::ViceVolume;

const DONE: CallOutcome = CallOutcome::Answer(Answer::Done);

impl Vice {
    pub(super) fn lock(
        &self,
        ask: &mut CallContext<'_>,
        call: &Call,
    ) -> Result<CallOutcome, Fault> {
        let Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim } = *call else {
            return Err(Fault::Invalid);
        };
        let request =
            LockRequest { fid, session: ask.origin.session, owner, pid, family, range, mode };
        self.check_lock(ask, fid, range, |volume| match (mode, family) {
            (LockMode::Shared, _) => Right::LockShared,
            // As on Linux: `fcntl` needs a descriptor that writes, `flock` any.
            (LockMode::Exclusive, LockFamily::Flock) if !volume.lists.decide() => Right::LockShared,
            (LockMode::Exclusive, _) => Right::LockExclusive,
        })?;
        // A volume that has just arrived accepts claims; the first one gets the lock, and the other
        // is refused.
        let mut core = self.core.lock();
        let claims = reclaim && self.moves.lock().takes_claims(fid.volume);
        let (wait, reclaim) = (wait && !claims, reclaim && !claims);
        match core.leases.lock(ask.origin, &request, wait, reclaim, &mut ask.events) {
            LockOutcome::Granted => Ok(DONE),
            LockOutcome::Waiting => {
                core.lock_waits.insert(ask.origin, (ask.caller.clone(), false));
                Ok(CallOutcome::Waits)
            }
            LockOutcome::Refused(fault) => Err(fault),
        }
    }

    pub(super) fn unlock(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        owner: LockOwner,
        family: LockFamily,
        range: ByteRange,
    ) -> Result<CallOutcome, Fault> {
        self.core.lock().leases.unlock(
            ask.origin.session,
            fid,
            owner,
            family,
            range,
            &mut ask.events,
        );
        Ok(DONE)
    }

    pub(super) fn test_lock(
        &self,
        ask: &mut CallContext<'_>,
        call: &Call,
    ) -> Result<CallOutcome, Fault> {
        let Call::TestLock { fid, owner, family, range, mode } = *call else {
            return Err(Fault::Invalid);
        };
        self.check_lock(ask, fid, range, |_| Right::See)?;
        let request =
            LockRequest { fid, session: ask.origin.session, owner, pid: 0, family, range, mode };
        Ok(CallOutcome::Answer(Answer::LockTest(self.core.lock().leases.test_lock(&request))))
    }

    /// A client that locks a file will read it next, so no other session may cover it: the promise
    /// waits for the recall.
    fn check_lock(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        range: ByteRange,
        right: impl Fn(&ViceVolume) -> Right,
    ) -> Result<(), Fault> {
        let volume = self.volume(fid.volume)?;
        let _seen = self.stripes.read(fid);
        self.need_back(ask, &volume, &[fid])?;
        self.need_data(ask, &volume, &volume.vnode(fid)?, right(&volume))?;
        if range.start > range.end {
            return Err(Fault::Invalid);
        }
        self.promise(ask, &volume, &[fid])
    }

    /// A file that is removed, or that the caller may neither read nor write, cannot be held: a
    /// client that has it open gets the error when it uses the file.
    pub(super) fn hold(
        &self,
        ask: &mut CallContext<'_>,
        fids: &[Fid],
    ) -> Result<CallOutcome, Fault> {
        for fid in fids {
            let Ok(volume) = self.volume(fid.volume) else { continue };
            let _seen = self.stripes.read(*fid);
            match volume.vnode(*fid).and_then(|vnode| self.may_hold(ask, &volume, &vnode)) {
                Ok(true) => self.core.lock().leases.hold(ask.origin.session, *fid)?,
                Ok(false) | Err(Fault::Stale) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(DONE)
    }

    /// A session with a promise of the file was allowed to see it, and may have opened it then.
    fn may_hold(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
        vnode: &Vnode,
    ) -> Result<bool, Fault> {
        if self.core.lock().leases.is_promised(ask.origin.session, vnode.status.fid) {
            return Ok(true);
        }
        for right in [Right::ReadData, Right::WriteData] {
            match self.need_data(ask, volume, vnode, right) {
                Ok(()) => return Ok(true),
                Err(Fault::AccessDenied) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    pub(super) fn unhold(
        &self,
        ask: &mut CallContext<'_>,
        fids: &[Fid],
    ) -> Result<CallOutcome, Fault> {
        for fid in fids {
            let mut core = self.core.lock();
            core.opened.forget(ask.origin.session, *fid);
            let is_free = core.leases.unhold(ask.origin.session, *fid);
            drop(core);
            if is_free {
                self.drop_if_free(ask.now, *fid, &mut ask.events);
            }
        }
        Ok(DONE)
    }

    pub(super) fn reclaim_done(&self, ask: &mut CallContext<'_>) -> Result<CallOutcome, Fault> {
        self.core.lock().leases.reclaim_done(ask.now, ask.origin.session, &mut ask.events);
        Ok(DONE)
    }
}
