//! Body loans (docs/spec/passthrough.md): giving bodies to kernels, and updating the records to
//! what kernels wrote.
//!
//! A loan is over when no session has the body and no process has it open for writing (PT-2). Until
//! then the server updates its record each second ([`crate::Vice::tend`]), without a request of a
//! session, so that others see what was written (docs/spec/semantics.md). The next update that
//! answers a call waits for the breaks that this sends: an answer means that all clients have
//! acknowledged (CB-1).

use lease::Output;
use store::{BodyLocation, Update, Vnode};
use types::posix::touch_data;
use types::{
    Answer, BreakItem, BreakReason, DataUse, Fault, Fid, Lending, SessionId, Time, Timestamp,
    VnodeNo, VolumeId,
};

use super::data::need_file;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::sessions::Loans;
use crate::volumes::ViceVolume;

/// Free bytes that the volume and the partition must have before a body is lent for writing: the
/// kernel knows no quota.
const LOAN_HEADROOM_BYTES: u64 = 1 << 30;
/// No session has number 0.
const NOBODY: SessionId = SessionId(0);

pub(crate) fn lend_body(
    files: &Files,
    loans: &Loans,
    ask: &mut CallContext<'_>,
    fid: Fid,
    how: Lending,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    // A sealed body may share a file with the head's, which kernels write into.
    if !volume.hands_out_bodies() || volume.need_writable().is_err() {
        return Err(Fault::Unsupported);
    }
    let _held = files.write_lock(&[fid]);
    files.need_back(ask, &volume, &[fid])?;
    let vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    let right = if how == Lending::Read { Right::ReadData } else { Right::WriteData };
    files.need_data(ask, &volume, &vnode, right)?;
    // The kernel reads what it writes into.
    let uses = if how == Lending::Read { DataUse::Read } else { DataUse::Both };
    files.need_share(ask, fid, uses)?;
    if !volume.store.loans().has(fid.vnode)
        && !files.coherence().leases().may_read(ask.origin.session)
    {
        // An open that denies it may yet be claimed (SH-5); none does of a body that is on loan.
        return Err(Fault::Busy);
    }
    files.promise(ask, &volume, &[fid])?;
    match how {
        Lending::Read if !matches!(vnode.place, BodyLocation::File { .. }) => {
            return Err(Fault::Unsupported);
        }
        Lending::Write | Lending::Join if volume.need_delegations_allowed(ask.now).is_err() => {
            return Err(Fault::Busy);
        }
        // A kernel's writes reach the server, and so its standbys, only later.
        Lending::Write | Lending::Join if volume.store.info().has_standbys => {
            return Err(Fault::Busy);
        }
        Lending::Write if !has_ample_room(&volume)? => return Err(Fault::Busy),
        Lending::Read | Lending::Write | Lending::Join => {}
    }
    if how != Lending::Read {
        loans.add(fid, ask.origin.session);
    }
    if let Err(fault) = hand_out(&volume, vnode, how != Lending::Read) {
        loans.remove(fid, ask.origin.session);
        // A hold may have come between: a body without sessions must not prevent a move of the
        // volume.
        if let Err(also) = end_loan(files, loans, &volume, fid) {
            tracing::warn!(%fid, %also, "a body loan without sessions cannot be ended yet");
        }
        return Err(fault);
    }
    debug_assert!(
        how == Lending::Read || volume.store.loans().has(fid.vnode),
        "PT-2: a kernel writes into {fid}, which is not on loan"
    );
    let reader = volume.store.reader(fid.vnode)?.ok_or(Fault::Stale)?;
    let body = reader.open_body()?.ok_or(Fault::Unsupported)?;
    Ok(CallOutcome::Body(Answer::Body { status: volume.status_of(reader.vnode()) }, body))
}

/// Records that a kernel has the body, and whether it writes.
fn hand_out(volume: &ViceVolume, mut vnode: Vnode, writes: bool) -> Result<(), Fault> {
    let mut update = Update::new();
    let known = vnode.clone();
    vnode.handed = true;
    if writes {
        volume.store.body(&mut vnode, &mut update)?.lend()?;
    }
    if writes || vnode != known {
        update.put_vnode(&vnode);
        volume.store.commit(update)?;
    }
    Ok(())
}

pub(crate) fn has_ample_room(volume: &ViceVolume) -> Result<bool, Fault> {
    let (quota, usage) = (volume.store.quota().bytes, volume.store.usage().bytes);
    let allowed = quota == 0 || quota.saturating_sub(usage) >= LOAN_HEADROOM_BYTES;
    Ok(allowed && volume.partition.space()?.free_bytes >= LOAN_HEADROOM_BYTES)
}

pub(crate) fn settle_body(
    files: &Files,
    loans: &Loans,
    ask: &mut CallContext<'_>,
    fid: Fid,
    back: bool,
) -> Result<CallOutcome, Fault> {
    let (volume, held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    if !loans.has(fid, ask.origin.session) {
        // The session does not have the body: then the caller must have the right to write.
        files.need_data(ask, &volume, &vnode, Right::WriteData)?;
    }
    files.promise(ask, &volume, &[fid])?;
    let mut change = Change::new(ask.scope, &volume);
    let changed = volume.store.loans().settle(&mut vnode, &mut change.update)?;
    let outcome = if changed || loans.is_breaking(fid) {
        if changed {
            touch_data(&mut vnode.status, ask.wall);
        }
        change.put_data(&vnode);
        files.commit(ask, change, Answer::Status(vnode.status))?
    } else {
        drop(change);
        CallOutcome::Answer(Answer::Status(vnode.status))
    };
    if back {
        loans.remove(fid, ask.origin.session);
        if !loans.is_loaned(fid) {
            volume.store.loans().be_returned(fid.vnode);
        }
        end_loan(files, loans, &volume, fid)?;
    }
    drop(held);
    Ok(outcome)
}

/// Ends the loans of the volume that no session has any more.
///
/// # Errors
/// Errors of the store.
pub(crate) fn end_idle_loans(
    files: &Files,
    loans: &Loans,
    volume: &ViceVolume,
) -> Result<(), Fault> {
    let id = volume.store.id();
    for (_, no) in volume.partition.lent().into_iter().filter(|(of, _)| *of == id) {
        if let Some(vnode) = volume.store.vnode(no)? {
            let fid = vnode.status.fid;
            let _held = files.write_lock(&[fid]);
            end_loan(files, loans, volume, fid)?;
        }
    }
    Ok(())
}

/// Updates the record of a loaned body, or ends the loan if it is over. Returns whether it is.
pub(crate) fn tend(
    files: &Files,
    loans: &Loans,
    at: (Time, Timestamp),
    (volume, no): (VolumeId, VnodeNo),
    events: &mut Vec<Output>,
) -> bool {
    let tended = files.volumes().any_volume(volume).and_then(|volume| {
        let Some(vnode) = volume.store.vnode(no)? else { return Ok(false) };
        tend_one(files, loans, at, &volume, vnode.status.fid, events)
    });
    tended.unwrap_or_else(|fault| {
        tracing::warn!(
            vnode = no.0,
            %fault,
            "the record of a loaned body cannot be updated; it is tried each second"
        );
        false
    })
}

fn tend_one(
    files: &Files,
    loans: &Loans,
    (now, wall): (Time, Timestamp),
    volume: &ViceVolume,
    fid: Fid,
    events: &mut Vec<Output>,
) -> Result<bool, Fault> {
    volume.need_writable()?;
    let _held = files.write_lock(&[fid]);
    let mut vnode = volume.vnode(fid)?;
    let mut update = Update::new();
    if volume.store.loans().settle(&mut vnode, &mut update)? {
        touch_data(&mut vnode.status, wall);
        update.put_vnode(&vnode);
        volume.store.commit(update)?;
        let item = BreakItem { fid, reason: BreakReason::Data, name: None };
        let send = || files.coherence().leases().break_promises(now, &[item], NOBODY, events);
        loans.note_breaks(fid, send);
        return Ok(false);
    }
    drop(update);
    end_loan(files, loans, volume, fid)
}

/// Ends the loan if it is over.
///
/// # Errors
/// `Busy`: a session has the body, or a process has it open for writing. Errors of the store.
pub(super) fn need_no_loan(
    files: &Files,
    loans: &Loans,
    volume: &ViceVolume,
    fid: Fid,
) -> Result<(), Fault> {
    let is_over = !volume.store.loans().has(fid.vnode) || end_loan(files, loans, volume, fid)?;
    if is_over { Ok(()) } else { Err(Fault::Busy) }
}

/// Ends the loan if no session has the body; whether it is over.
fn end_loan(files: &Files, loans: &Loans, volume: &ViceVolume, fid: Fid) -> Result<bool, Fault> {
    let free = !loans.is_loaned(fid) && files.coherence().leases().may_change();
    let over = free && volume.store.loans().end(fid.vnode)?;
    debug_assert!(
        !over || !volume.store.loans().has(fid.vnode),
        "PT-2: the loan of {fid} is not over"
    );
    Ok(over)
}
