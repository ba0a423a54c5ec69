//! Preallocated bodies (docs/spec/passthrough.md): a session's kernel writes new files into them,
//! and they become bodies without a copy.

use store::BlankName;
use types::posix::touch_data;
use types::{Answer, DataUse, Fault, Fid};

use super::body_loan::has_ample_room;
use super::data::need_file;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::sessions::{Blanks, Loans};

pub(crate) fn lend_blank(
    files: &Files,
    blanks: &Blanks,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    volume.need_writable()?;
    volume.need_delegations_allowed(ask.now)?;
    if !volume.hands_out_bodies() || volume.store.info().has_standbys {
        return Err(Fault::Unsupported);
    }
    if !ask.caller.who.level.is_proved() {
        return Err(Fault::AccessDenied);
    }
    if !has_ample_room(&volume)? {
        return Err(Fault::Busy);
    }
    let session = ask.origin.session;
    if blanks.has_enough(session) {
        return Err(Fault::Busy);
    }
    let (name, descriptor) = volume.partition.make_blank(session)?;
    blanks.add(volume.no, name);
    let descriptor = descriptor.ok_or(Fault::Unsupported)?;
    Ok(CallOutcome::Body(Answer::Blank(name.number), descriptor))
}

pub(crate) fn adopt_body(
    files: &Files,
    loans: &Loans,
    blanks: &Blanks,
    ask: &mut CallContext<'_>,
    fid: Fid,
    number: u64,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    volume.need_writable()?;
    if volume.store.is_encrypted() {
        return Err(Fault::Unsupported);
    }
    let _held = files.write_lock(&[fid]);
    files.need_back(ask, &volume, &[fid])?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    files.need_data(ask, &volume, &vnode, Right::WriteData)?;
    files.need_share(ask, fid, DataUse::Both)?;
    files.promise(ask, &volume, &[fid])?;
    let blank = BlankName { session: ask.origin.session, number };
    let is_there = blanks.has(volume.no, blank);
    if !is_there && loans.has(fid, blank.session) {
        // The call comes twice: once as it was when the server restarted, and once with all
        // reclaims.
        return Ok(CallOutcome::Answer(Answer::Status(vnode.status)));
    }
    // No other session may have changed the body that it replaces.
    let leases = files.coherence().leases();
    let alone = leases.delegations().covers(blank.session, fid)
        || leases.reclaims_delegations(blank.session);
    drop(leases);
    match (is_there, alone) {
        (true, true) => {}
        (true, false) => return Err(Fault::NotDelegated),
        (false, _) => return Err(Fault::Stale),
    }
    let mut change = Change::new(ask.scope, &volume);
    volume.store.body(&mut vnode, &mut change.update)?.adopt(blank)?;
    vnode.handed = true;
    touch_data(&mut vnode.status, ask.wall);
    change.put_data(&vnode);
    let outcome = files.commit(ask, change, Answer::Status(vnode.status))?;
    debug_assert!(
        volume.store.loans().has(fid.vnode),
        "PT-2: a kernel writes into {fid}, which is not on loan"
    );
    loans.add(fid, blank.session);
    blanks.remove(blank);
    if let Err(error) = volume.store.loans().end_adoption(fid.vnode, blank) {
        tracing::warn!(?blank, %error, "an adopted body keeps its old name until a restart");
    }
    Ok(outcome)
}
