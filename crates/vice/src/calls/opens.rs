//! Opens (docs/spec/sharing.md): what a session does with a file's data, and denies to others.
//!
//! An open that *excludes*, because it denies something or has a key, takes effect as a change
//! does: it is in the table first, so that no other session gets the data any more; then the
//! promises of the others are broken, and it is answered when they have acknowledged (SH-3). One
//! that takes reading away also gives the file a new data version: else a client would find after
//! the break that the version is still the one that it has, and go on with its copy.

use lease::OpenRequest;
use store::{Update, Vnode};
use types::posix::age_data;
use types::{Answer, BreakItem, BreakReason, Call, DataUse, Fault, Fid, OpenId};

use super::body_loan::need_no_loan;
use super::data::need_file;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome, Fed};
use crate::files::Files;
use crate::sessions::{Loans, Registry};
use crate::volumes::ViceVolume;

const DONE: CallOutcome = CallOutcome::Answer(Answer::Done);

pub(crate) fn open(
    files: &Files,
    loans: &Loans,
    registry: &Registry,
    ask: &mut CallContext<'_>,
    call: &Call,
) -> Result<CallOutcome, Fault> {
    let Call::Open { fid, access, deny, key, claims } = *call else { return Err(Fault::Invalid) };
    if access == DataUse::Nothing {
        return Err(Fault::Invalid);
    }
    let session = ask.origin.session;
    let request = OpenRequest { fid, session, access, deny, key };
    ask.reclaims = claims;
    let volume = files.volume_for(ask, fid.volume)?;
    if access.writes() || request.excludes() {
        volume.need_writable()?;
    }
    let _held = files.write_lock(&[fid]);
    files.need_back(ask, &volume, &[fid])?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    if access.reads() {
        files.need_data(ask, &volume, &vnode, Right::ReadData)?;
    }
    // A reader could keep the owner out.
    if access.writes() || request.excludes() {
        files.need_data(ask, &volume, &vnode, Right::WriteData)?;
    }
    files.promise(ask, &volume, &[fid])?;
    // A volume that has just arrived accepts claims; the first one gets the file.
    let claims = claims && !files.volumes().moves().takes_claims(fid.volume);
    let open = files.coherence().leases().opens().open(&request, claims)?;
    let outcome = if request.excludes() {
        exclude(files, loans, registry, ask, (&volume, &mut vnode), (&request, open))
    } else {
        let status = volume.status_of(&vnode);
        Ok(CallOutcome::Answer(Answer::Opened { open, status }))
    };
    // A volume that was given up meanwhile was searched for opens before this one was there.
    let given_up = volume.is_superseded();
    if outcome.is_err() || given_up {
        // It may be over already, with its session.
        let _ = files.coherence().leases().opens().close(session, fid, open);
    }
    if given_up && !matches!(outcome, Ok(CallOutcome::Waits)) {
        return Err(Fault::NoVolume);
    }
    outcome
}

/// Shuts the others out of the file; the open is in the table.
fn exclude(
    files: &Files,
    loans: &Loans,
    registry: &Registry,
    ask: &mut CallContext<'_>,
    (volume, vnode): (&ViceVolume, &mut Vnode),
    (request, open): (&OpenRequest, OpenId),
) -> Result<CallOutcome, Fault> {
    let OpenRequest { fid, session, .. } = *request;
    // A kernel that writes the body cannot be stopped.
    need_no_loan(files, loans, volume, fid)?;
    registry.mark_excluding(session)?;
    // An open that is claimed in grace gave the file its version before, and no session has cached
    // anything since (SH-5).
    let reads_end = request.deny.reads() || request.key.is_some();
    if reads_end && files.coherence().leases().may_change() {
        let mut update = Update::new();
        age_data(&mut vnode.status);
        update.put_vnode(vnode);
        volume.store.commit(update)?;
        ask.fed = Some(Fed::by(&volume.store, false));
    }
    let answer = Answer::Opened { open, status: volume.status_of(vnode) };
    let item = BreakItem { fid, reason: BreakReason::Data, name: None };
    Ok(files.coherence().break_promises(ask, &[item], session, None, answer))
}

pub(crate) fn close(
    files: &Files,
    ask: &CallContext<'_>,
    fid: Fid,
    open: OpenId,
) -> Result<CallOutcome, Fault> {
    files.coherence().leases().opens().close(ask.origin.session, fid, open)?;
    Ok(DONE)
}

pub(crate) fn downgrade(
    files: &Files,
    ask: &CallContext<'_>,
    (fid, open): (Fid, OpenId),
    access: DataUse,
    deny: DataUse,
) -> Result<CallOutcome, Fault> {
    let session = ask.origin.session;
    files.coherence().leases().opens().downgrade(session, fid, open, access, deny)?;
    Ok(DONE)
}
