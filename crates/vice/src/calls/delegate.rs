//! Delegations of directories, and the changes that clients made under them
//! (`docs/spec/delegation.md`).

use std::time::Duration;

use store::Vnode;
use types::{Answer, Call, Fault, Fid, SHORT_SLOT, SessionId, Timestamp, VnodeSlots};

use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome};
use crate::files::Files;
use crate::sessions::{GivenSlots, Registry};
use crate::volumes::ViceVolume;

/// Largest accepted difference of clocks. A change that is dated later than now by more, or from so
/// long before the client had the delegation, gets the server's time. Otherwise a client could give
/// a file any `ctime`, and backups by `ctime` would miss the change.
const APART_MAX: Duration = Duration::from_secs(60);

pub(crate) fn delegate(
    files: &Files,
    registry: &Registry,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    dir: Fid,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(dir.volume)?;
    volume.need_writable()?;
    volume.need_delegations_allowed(ask.now)?;
    // Concurrent changes and reads of the directory are finished, or see the delegation.
    let _held = files.write_lock(&[dir]);
    let vnode = volume.directory(dir)?;
    if vnode.status.links == 0 {
        return Err(Fault::NotFound);
    }
    need_to_change(ask, &volume, &vnode)?;
    let session = ask.origin.session;
    files.need_room_to_delegate(ask, &volume)?;
    files.coherence().leases().delegate(ask.now, session, dir, &mut ask.events)?;
    let marked = registry.mark_delegating(session);
    let slots = marked.and_then(|()| give_slots(given, session, &volume));
    if slots.is_err() {
        files.coherence().leases().delegations_mut().give_back(
            ask.now,
            session,
            &[dir],
            &mut ask.events,
        );
    }
    let status = volume.directory(dir)?.status;
    Ok(CallOutcome::Answer(Answer::Delegation { status, slots: slots? }))
}

fn give_slots(
    given: &GivenSlots,
    session: SessionId,
    volume: &ViceVolume,
) -> Result<VnodeSlots, Fault> {
    let slots = volume.store.slots()?.allocate_run()?;
    given.give(session, volume.store.id(), slots)?;
    Ok(VnodeSlots { first: volume.slot_as_lists_say(slots.first), ..slots })
}

/// Checks a slot that the session was given and has not used. For slots of an earlier server
/// instance only that they were given is known, not to which session. Whether it is short the
/// session says: it made the fid, perhaps before lists decided here, or as a client that does not
/// know of it.
pub(crate) fn given_slot(
    files: &Files,
    given: &GivenSlots,
    session: SessionId,
    volume: &ViceVolume,
    slot: u64,
) -> Result<u64, Fault> {
    let number = slot & !SHORT_SLOT;
    let good = volume.is_taking_over()
        || files.coherence().leases().reclaims_delegations(session)
        || given.has(session, volume.store.id(), number);
    if good && volume.store.is_given_slot(number)? { Ok(slot) } else { Err(Fault::NotDelegated) }
}

pub(crate) fn give_back(
    files: &Files,
    ask: &mut CallContext<'_>,
    dirs: &[Fid],
) -> Result<CallOutcome, Fault> {
    files.coherence().leases().delegations_mut().give_back(
        ask.now,
        ask.origin.session,
        dirs,
        &mut ask.events,
    );
    Ok(CallOutcome::Answer(Answer::Done))
}

/// Begins a change that the session has answered itself: it is executed as any other, but at its
/// own time, and only of covered files. Each file that it changes is checked for that when it is
/// promised ([`Files::promise`]).
pub(crate) fn begin_delegated(
    files: &Files,
    ask: &mut CallContext<'_>,
    at: Timestamp,
    slot: u64,
    call: &Call,
) -> Result<(), Fault> {
    if !call.delegable() || ask.delegated.is_some() {
        return Err(Fault::Invalid);
    }
    let dirs = match call {
        Call::Make { dir, .. } | Call::Remove { dir, .. } | Call::Link { dir, .. } => {
            [Some(*dir), None]
        }
        Call::Rename { from_dir, to_dir, .. } => [Some(*from_dir), Some(*to_dir)],
        _ => [None, None],
    };
    let leases = files.coherence().leases();
    let session = ask.origin.session;
    let all = dirs.iter().flatten().all(|dir| leases.delegations().has(session, *dir));
    let takes_over = |id| files.volumes().any_volume(id).is_ok_and(|one| one.is_taking_over());
    if !all
        && !leases.reclaims_delegations(session)
        && !call.changed_volume().is_some_and(takes_over)
    {
        return Err(Fault::NotDelegated);
    }
    let file = match call {
        Call::SetStatus { fid, .. }
        | Call::Write { fid, .. }
        | Call::XattrSet { fid, .. }
        | Call::XattrRemove { fid, .. } => Some(*fid),
        _ => None,
    };
    // A restart of the server lost the times of earlier delegations.
    let given = dirs
        .into_iter()
        .flatten()
        .chain(file)
        .filter_map(|fid| leases.delegations().given(fid))
        .max();
    drop(leases);
    let ago = given.map(|given| ask.now.since(given).saturating_add(APART_MAX));
    let is_past = ago.is_some_and(|ago| at.later(ago) < ask.wall);
    if at <= ask.wall.later(APART_MAX) && !is_past {
        ask.wall = at;
    }
    ask.delegated = Some(slot);
    Ok(())
}

/// A directory is delegated for a caller that may change its entries: the answer contains its
/// status, and others wait for what is covered. Where mode bits decide, a trusted host judges its
/// users itself, as with data.
fn need_to_change(ask: &CallContext<'_>, volume: &ViceVolume, dir: &Vnode) -> Result<(), Fault> {
    if !volume.lists.decide() && ask.caller.who.level.is_trusted() {
        return Ok(());
    }
    access::need(ask.asker(), volume, dir, Right::Search)?;
    let inserts = access::may(ask.asker(), volume, dir, Right::Insert)?;
    if inserts { Ok(()) } else { access::need(ask.asker(), volume, dir, Right::Delete) }
}
