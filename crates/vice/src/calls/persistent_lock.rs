//! Persistent locks (docs/spec/sharing.md, PL-1 to PL-3): an exclusive lock whose abnormal end
//! later lockers learn of.
//!
//! The file has a record of each one in an attribute of the service's own, so the records go where
//! the file goes, and what they mean is known wherever the lock is asked for. `lease::LockRecord`
//! has the model: a record whose lock is not held is broken.

use lease::{LockRecord, LockRequest, PassesBroken};
use store::Vnode;
use types::{
    Answer, ByteRange, Call, Fault, Fid, LockFamily, LockMode, LockOwner, PersistHow, SessionId,
};

use super::data::need_file;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::volumes::{LOCK_RECORDS, ViceVolume};

/// Session, owner, first and last byte, as little-endian u64, of each lock.
const RECORD_BYTES: usize = 32;
/// Persistent locks of one file. An attribute has room for some more.
const RECORDS_MAX: usize = 256;

/// The file's persistent locks.
///
/// # Errors
/// Errors of the store; `Damaged`.
pub(crate) fn records(volume: &ViceVolume, vnode: &Vnode) -> Result<Vec<LockRecord>, Fault> {
    let Some(value) = volume.store.xattr(vnode, LOCK_RECORDS)? else { return Ok(Vec::new()) };
    let (records, rest) = value.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(Fault::Damaged);
    }
    Ok(records.iter().map(decoded).collect())
}

fn decoded(bytes: &[u8; RECORD_BYTES]) -> LockRecord {
    let (numbers, _) = bytes.as_chunks::<8>();
    let [session, owner, start, end] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(numbers[at]));
    LockRecord {
        session: SessionId(session),
        owner: LockOwner(owner),
        range: ByteRange { start, end },
    }
}

fn encoded(records: &[LockRecord]) -> Vec<u8> {
    let numbers = |record: &LockRecord| {
        [record.session.0, record.owner.0, record.range.start, record.range.end]
    };
    records.iter().flat_map(numbers).flat_map(u64::to_le_bytes).collect()
}

/// `PersistLock`: the lock is in the table first, so that no other session gets it any more; then
/// its record is on the disk, then it is answered (PL-2).
pub(crate) fn persist_lock(
    files: &Files,
    ask: &mut CallContext<'_>,
    call: &Call,
) -> Result<CallOutcome, Fault> {
    let Call::PersistLock { fid, owner, pid, range, how } = *call else {
        return Err(Fault::Invalid);
    };
    let session = ask.origin.session;
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    files.need_data(ask, &volume, &vnode, Right::LockExclusive)?;
    if range.start > range.end {
        return Err(Fault::Invalid);
    }
    if files.coherence().leases().sessions().is_anonymous(session) {
        return Err(Fault::AccessDenied);
    }
    files.promise(ask, &volume, &[fid])?;
    let before = records(&volume, &vnode)?;
    let own = LockRecord { session, owner, range: united(&before, session, owner, range) };
    let passes = match how {
        PersistHow::New => PassesBroken::Nothing,
        PersistHow::Claims => PassesBroken::OwnersOwn,
        PersistHow::Repairs => PassesBroken::All,
    };
    let is_claimed = |record: &LockRecord| record.owner == owner && record.range == range;
    if how == PersistHow::Claims && !before.iter().any(is_claimed) {
        // An owner that repaired the file was here meanwhile.
        return Err(Fault::Expired);
    }
    let after = replaced(&before, &own);
    if after.len() > RECORDS_MAX {
        return Err(Fault::Busy);
    }
    let was_held = files.coherence().leases().locks_mut().is_held(fid, &own);
    let (family, mode) = (LockFamily::Posix, LockMode::Exclusive);
    let request = LockRequest { fid, session, owner, pid, family, range, mode, passes };
    files.coherence().lock(ask, &request, before, false, false)?;
    let mut outcome = put(files, ask, &volume, &mut vnode, after);
    // As in `lock`: the volume may have been searched for locks before this one was there.
    if outcome.is_ok() && volume.is_superseded() {
        outcome = Err(Fault::NoVolume);
    }
    if outcome.is_err() && !was_held {
        unlock(files, ask, fid, owner, range);
    }
    outcome
}

/// `FinishLock`: the data are on the disk, then the records go, then the lock (PL-2).
pub(crate) fn finish_lock(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    owner: LockOwner,
    range: ByteRange,
) -> Result<CallOutcome, Fault> {
    let session = ask.origin.session;
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    let mut records = records(&volume, &vnode)?;
    let count = records.len();
    let is_own = |one: &LockRecord| one.session == session && one.owner == owner;
    records.retain(|record| !(is_own(record) && range.contains(record.range)));
    if records.len() == count {
        return Err(Fault::Stale);
    }
    // The file would be torn without a record of it, if the machine stopped in between.
    volume.store.sync_body(&vnode)?;
    let outcome = put(files, ask, &volume, &mut vnode, records)?;
    unlock(files, ask, fid, owner, range);
    Ok(outcome)
}

fn unlock(files: &Files, ask: &mut CallContext<'_>, fid: Fid, owner: LockOwner, range: ByteRange) {
    let (session, family) = (ask.origin.session, LockFamily::Posix);
    let mut leases = files.coherence().leases();
    leases.locks_mut().unlock(session, fid, owner, family, range, &mut ask.events);
}

/// Commits the file's records. Nothing that a client sees of the file changes, so no promise is
/// broken.
fn put(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    vnode: &mut Vnode,
    records: Vec<LockRecord>,
) -> Result<CallOutcome, Fault> {
    let mut change = Change::new(ask.scope, volume);
    let mut edit = volume.store.edit(vnode, &mut change.update);
    if records.is_empty() {
        edit.remove_xattr(LOCK_RECORDS)?;
    } else {
        edit.put_xattr(LOCK_RECORDS, &encoded(&records))?;
    }
    change.put_unseen(vnode);
    let outcome = files.commit(ask, change, Answer::Done)?;
    files.coherence().leases().locks_mut().set_records(vnode.status.fid, records);
    Ok(outcome)
}

/// The range with those of the owner's records that overlap it.
fn united(
    records: &[LockRecord],
    session: SessionId,
    owner: LockOwner,
    range: ByteRange,
) -> ByteRange {
    let own = records.iter().filter(|one| one.session == session && one.owner == owner);
    own.filter(|record| record.range.overlaps(range)).fold(range, |all, record| ByteRange {
        start: all.start.min(record.range.start),
        end: all.end.max(record.range.end),
    })
}

/// The records with this one instead of what others say of its bytes.
fn replaced(records: &[LockRecord], own: &LockRecord) -> Vec<LockRecord> {
    let rest = records.iter().flat_map(|record| {
        record.range.without(own.range).map(|range| LockRecord { range, ..*record })
    });
    rest.chain([*own]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(session: u64, owner: u64, start: u64, end: u64) -> LockRecord {
        LockRecord {
            session: SessionId(session),
            owner: LockOwner(owner),
            range: ByteRange { start, end },
        }
    }

    #[test]
    fn records_come_back_from_their_bytes() {
        let all = [record(1, 2, 3, 4), record(u64::MAX, 0, 0, u64::MAX)];
        let bytes = encoded(&all);
        assert_eq!(bytes.len(), 2 * RECORD_BYTES);
        let (chunks, _) = bytes.as_chunks::<RECORD_BYTES>();
        assert_eq!(chunks.iter().map(decoded).collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_new_record_takes_its_bytes_from_others() {
        let old = [record(1, 1, 0, 99), record(2, 1, 200, 299)];
        let own = record(3, 1, 50, 249);
        let left = [record(1, 1, 0, 49), record(2, 1, 250, 299), own];
        assert_eq!(replaced(&old, &own), left);
        let all = record(3, 1, 0, u64::MAX);
        assert_eq!(replaced(&old, &all), [all]);
        let inside = record(3, 1, 10, 20);
        assert_eq!(
            replaced(&old[..1], &inside),
            [record(1, 1, 0, 9), record(1, 1, 21, 99), inside]
        );
    }

    #[test]
    fn an_owners_records_that_overlap_become_one() {
        let old = [record(1, 1, 0, 9), record(1, 2, 5, 30), record(2, 1, 0, 50)];
        let (session, owner) = (SessionId(1), LockOwner(1));
        let range = ByteRange { start: 8, end: 20 };
        assert_eq!(united(&old, session, owner, range), ByteRange { start: 0, end: 20 });
    }
}
