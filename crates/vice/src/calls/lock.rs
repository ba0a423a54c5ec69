//! Locks, holds, and the reclaims after a restart: the leases' calls, for existing files.

use lease::{LockRequest, PassesBroken};
use store::Vnode;
use types::{Answer, ByteRange, Call, Fault, Fid, LockFamily, LockMode, LockOwner};

use super::persistent_lock;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome};
use crate::files::Files;
use crate::volumes::ViceVolume;

const DONE: CallOutcome = CallOutcome::Answer(Answer::Done);

pub(crate) fn lock(
    files: &Files,
    ask: &mut CallContext<'_>,
    call: &Call,
) -> Result<CallOutcome, Fault> {
    let Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim } = *call else {
        return Err(Fault::Invalid);
    };
    let (session, passes) = (ask.origin.session, claimed(reclaim));
    let request = LockRequest { fid, session, owner, pid, family, range, mode, passes };
    ask.reclaims = reclaim;
    // No persistent lock of the file begins or ends before the request is in the table.
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    let right = match (mode, family) {
        (LockMode::Shared, _) => Right::LockShared,
        // As on Linux: `fcntl` needs a descriptor that writes, `flock` any.
        (LockMode::Exclusive, LockFamily::Flock) if !volume.lists.decide() => Right::LockShared,
        (LockMode::Exclusive, _) => Right::LockExclusive,
    };
    check_lock(files, ask, &volume, &vnode, range, right)?;
    let records = persistent_lock::records(&volume, &vnode)?;
    // A volume that has just arrived accepts claims; the first one gets the lock, and the other
    // is refused.
    let claims = reclaim && files.volumes().moves().takes_claims(fid.volume);
    let (wait, reclaim) = (wait && !claims, reclaim && !claims);
    let outcome = files.coherence().lock(ask, &request, records, wait, reclaim)?;
    // A volume that was given up, or left, meanwhile was searched for locks before this one was
    // there.
    let is_here = files.volumes().any_volume(fid.volume).is_ok_and(|it| !it.is_superseded());
    if !is_here {
        if matches!(outcome, CallOutcome::Waits) {
            files.coherence().leases().locks_mut().refuse_waits_in(fid.volume, &mut ask.events);
            return Ok(outcome);
        }
        unlock(files, ask, fid, owner, family, range)?;
        return Err(Fault::NoVolume);
    }
    Ok(outcome)
}

/// An owner that claims a persistent lock passes its record.
fn claimed(reclaim: bool) -> PassesBroken {
    if reclaim { PassesBroken::OwnersOwn } else { PassesBroken::Nothing }
}

pub(crate) fn unlock(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    owner: LockOwner,
    family: LockFamily,
    range: ByteRange,
) -> Result<CallOutcome, Fault> {
    if files.volumes().moves().is_fenced(fid.volume) {
        // Another caller would be granted the lock, and it may be at another server by now.
        return Err(Fault::Busy);
    }
    files.coherence().leases().locks_mut().unlock(
        ask.origin.session,
        fid,
        owner,
        family,
        range,
        &mut ask.events,
    );
    Ok(DONE)
}

pub(crate) fn test_lock(
    files: &Files,
    ask: &mut CallContext<'_>,
    call: &Call,
) -> Result<CallOutcome, Fault> {
    let Call::TestLock { fid, owner, family, range, mode } = *call else {
        return Err(Fault::Invalid);
    };
    let (volume, _seen) = files.look_at(ask, fid)?;
    check_lock(files, ask, &volume, &volume.vnode(fid)?, range, Right::See)?;
    let (session, passes) = (ask.origin.session, PassesBroken::Nothing);
    let request = LockRequest { fid, session, owner, pid: 0, family, range, mode, passes };
    Ok(CallOutcome::Answer(Answer::LockTest(files.coherence().leases().locks_mut().test(&request))))
}

/// A client that locks a file will read it next, so no other session may cover it: the promise
/// waits for the recall.
fn check_lock(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    range: ByteRange,
    right: Right,
) -> Result<(), Fault> {
    files.need_data(ask, volume, vnode, right)?;
    if range.start > range.end {
        return Err(Fault::Invalid);
    }
    files.promise(ask, volume, &[vnode.status.fid])
}

/// A file that is removed, or that the caller may neither read nor write, cannot be held: a
/// client that has it open gets the error when it uses the file.
pub(crate) fn hold(
    files: &Files,
    ask: &mut CallContext<'_>,
    fids: &[Fid],
) -> Result<CallOutcome, Fault> {
    for fid in fids {
        let volume = match files.volume_to_claim(fid.volume) {
            Ok(volume) => volume,
            Err(Fault::Busy) => return Err(Fault::Busy),
            Err(_) => continue,
        };
        let _seen = files.read_lock(*fid);
        match volume.vnode(*fid).and_then(|vnode| may_hold(files, ask, &volume, &vnode)) {
            Ok(true) => files.coherence().leases().hold(ask.origin.session, *fid)?,
            Ok(false) | Err(Fault::Stale) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(DONE)
}

/// A session with a promise of the file was allowed to see it, and may have opened it then.
fn may_hold(
    files: &Files,
    ask: &CallContext<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
) -> Result<bool, Fault> {
    if files.coherence().leases().promises().has(ask.origin.session, vnode.status.fid) {
        return Ok(true);
    }
    for right in [Right::ReadData, Right::WriteData] {
        match files.need_data(ask, volume, vnode, right) {
            Ok(()) => return Ok(true),
            Err(Fault::AccessDenied) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}

pub(crate) fn unhold(
    files: &Files,
    ask: &mut CallContext<'_>,
    fids: &[Fid],
) -> Result<CallOutcome, Fault> {
    for fid in fids {
        files.note_closed(ask.origin.session, *fid);
        let is_free = files.coherence().leases().unhold(ask.origin.session, *fid);
        if is_free {
            files.drop_if_free(ask.now, *fid, &mut ask.events);
        }
    }
    Ok(DONE)
}

pub(crate) fn reclaim_done(files: &Files, ask: &mut CallContext<'_>) -> Result<CallOutcome, Fault> {
    files.coherence().leases().reclaim_done(ask.now, ask.origin.session, &mut ask.events);
    Ok(DONE)
}
