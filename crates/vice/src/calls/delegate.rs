//! Delegations of directories, and the changes that clients made under them
//! (`docs/spec/delegation.md`).

use std::time::Duration;

use store::{SessionRecord, Vnode};
use types::{Answer, Call, Fault, Fid, Timestamp, VnodeSlots};

use super::CallOutcome;
use crate::Vice;
use crate::access::{self, Right};
use crate::service::{CallContext, HAD_DELEGATIONS};
use crate::volumes::ViceVolume;

/// Runs of slots for new files that a session may have in one volume.
const RUNS_MAX: usize = 4096;
/// Largest accepted difference of clocks. A change that is dated later than now by more, or from so
/// long before the client had the delegation, gets the server's time. Otherwise a client could give
/// a file any `ctime`, and backups by `ctime` would miss the change.
const APART_MAX: Duration = Duration::from_secs(60);

impl Vice {
    pub(super) fn delegate(
        &self,
        ask: &mut CallContext<'_>,
        dir: Fid,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(dir.volume)?;
        volume.need_writable()?;
        volume.need_delegations_allowed(ask.now)?;
        // Concurrent changes and reads of the directory are finished, or see the delegation.
        let _held = self.stripes.write(&[dir]);
        let vnode = volume.directory(dir)?;
        if vnode.status.links == 0 {
            return Err(Fault::NotFound);
        }
        need_to_change(ask, &volume, &vnode)?;
        let session = ask.origin.session;
        self.need_room_to_delegate(ask, &volume)?;
        self.core.lock().leases.delegate(ask.now, session, dir, &mut ask.events)?;
        let slots = self.mark(ask).and_then(|()| self.give_slots(ask, &volume));
        if slots.is_err() {
            self.core.lock().leases.give_back(ask.now, session, &[dir], &mut ask.events);
        }
        let status = volume.directory(dir)?.status;
        Ok(CallOutcome::Answer(Answer::Delegation { status, slots: slots? }))
    }

    /// Records before a session's first delegation that it may have delegations: after a restart
    /// only the session knows what it has changed.
    fn mark(&self, ask: &CallContext<'_>) -> Result<(), Fault> {
        let _one_at_a_time = self.marking.lock();
        let session = ask.origin.session;
        let core = self.core.lock();
        if core.leases.is_marked(session) {
            return Ok(());
        }
        let (client, incarnation) = core.leases.owner(session).ok_or(Fault::Expired)?;
        drop(core);
        let extra = bytes::Bytes::from_static(&[HAD_DELEGATIONS]);
        let home = self.partitions.home();
        home.sessions().put_session(&SessionRecord { session, client, incarnation, extra })?;
        home.sync()?;
        self.core.lock().leases.mark(session);
        Ok(())
    }

    fn give_slots(&self, ask: &CallContext<'_>, volume: &ViceVolume) -> Result<VnodeSlots, Fault> {
        let slots = volume.store.slots()?.allocate_run()?;
        let mut core = self.core.lock();
        let given = core.given.entry((ask.origin.session, volume.store.id())).or_default();
        let runs = given.len();
        match given.last_mut() {
            Some(last)
                if last.first + u64::from(last.count) == slots.first
                    && last.count < u32::MAX - slots.count =>
            {
                last.count += slots.count;
            }
            _ if runs >= RUNS_MAX => return Err(Fault::Busy),
            _ => given.push(slots),
        }
        Ok(slots)
    }

    /// Checks a slot that the session was given and has not used. For slots of an earlier server
    /// instance only that they were given is known, not to which session.
    pub(super) fn given_slot(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
        slot: u64,
    ) -> Result<u64, Fault> {
        let core = self.core.lock();
        let session = ask.origin.session;
        let given = core.given.get(&(session, volume.store.id()));
        let good = core.leases.reclaims_delegations(session)
            || given.is_some_and(|runs| runs.iter().rev().any(|run| run.contains(slot)));
        drop(core);
        if good && volume.store.is_given_slot(slot)? { Ok(slot) } else { Err(Fault::NotDelegated) }
    }

    pub(super) fn give_back(
        &self,
        ask: &mut CallContext<'_>,
        dirs: &[Fid],
    ) -> Result<CallOutcome, Fault> {
        self.core.lock().leases.give_back(ask.now, ask.origin.session, dirs, &mut ask.events);
        Ok(CallOutcome::Answer(Answer::Done))
    }

    /// Executes a change that the session has answered itself: as any other, but at its own time,
    /// and only of covered files. Each file that it changes is checked for that when it is promised
    /// ([`Vice::promise`]).
    pub(super) fn delegated(
        &self,
        ask: &mut CallContext<'_>,
        at: Timestamp,
        slot: u64,
        call: &Call,
    ) -> Result<CallOutcome, Fault> {
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
        let core = self.core.lock();
        let session = ask.origin.session;
        let all = dirs.iter().flatten().all(|dir| core.leases.is_delegated(session, *dir));
        if !all && !core.leases.reclaims_delegations(session) {
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
            .filter_map(|fid| core.leases.delegated_since(fid))
            .max();
        drop(core);
        let ago = given.map(|given| ask.now.since(given).saturating_add(APART_MAX));
        let is_past = ago.is_some_and(|ago| at.later(ago) < ask.wall);
        if at <= ask.wall.later(APART_MAX) && !is_past {
            ask.wall = at;
        }
        ask.delegated = Some(slot);
        let outcome = self.execute(ask, call)?;
        // A refused change is no progress: with such changes a session could delay a recall for
        // ever.
        self.core.lock().leases.progress(ask.now, session);
        Ok(outcome)
    }
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
