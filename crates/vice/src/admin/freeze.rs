//! Volumes that move from one server to another: frozen at the source, arriving at the target.
//!
//! Model. *Frozen*: all delegations are back, changes wait, reads are answered; so what is sealed
//! now is complete. A freeze ends when the mover ends it, or when the volume is removed because it
//! is elsewhere; calls that waited are executed again, and find the volume or not. When the time of
//! a freeze is over no client is served any more, and promises are broken, until the cell's
//! database names the volume's site. *Arriving*: the volume serves no client before the call to do
//! so ([`types::VolumeCall::Serve`]).
//!
//! Both states are in the volume's header, so after a restart the volume is *in doubt* before
//! anything else: the server asks the database. If it says that a frozen volume is here, the volume
//! serves; if elsewhere, it stays offline and waits to be removed. If it says that an arriving
//! volume is here, the volume serves once the other server, whatever its state, serves no more
//! (`is_alone`).
//!
//! A copy of a released volume may take over elsewhere while this server is away
//! ([`types::VolumeCall::TakeOver`]). So after a start a released volume is *unconfirmed*: before
//! the first call of a client the database is asked (`files/sites.rs`). While it cannot be asked
//! the volume serves, as it did before, and is in doubt; once it names another server, what is here
//! is *superseded*: it serves no client, and stays for an administrator who wants its last changes.
//!
//! When a volume has arrived, its clients claim their locks and holds: files without names stay for
//! the time of a lease, and claims of locks are accepted.

use std::sync::Arc;
use std::time::Duration;

use lease::Output;
use types::{Answer, Fault, Fid, Time, Timestamp, VolumeId};

use crate::call::{CallContext, CallOutcome};
use crate::calls::end_idle_loans;
use crate::cell::CellLink;
use crate::files::{Files, OwnedBy};
use crate::sessions::Loans;
use crate::volumes::{ViceVolume, Volumes};

/// Maximum time of a freeze, before the database is asked.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// How long after an arrival the server that froze the volume may yet answer for it, beyond a
/// freeze and a lease.
const MARGIN: Duration = Duration::from_secs(5);
/// See the head of the file.
pub(crate) struct Freezing {
    files: Arc<Files>,
    loans: Arc<Loans>,
    cell: Arc<CellLink>,
    /// The time of a client's lease.
    lease: Duration,
}

/// Removes the freeze of a volume that was removed, and continues the calls that waited for it:
/// they find that it is removed.
pub(super) fn end_freeze(volumes: &Volumes, id: VolumeId, events: &mut Vec<Output>) {
    continue_calls(volumes.moves().forget(id), id, events);
}

fn continue_calls(was_frozen: bool, id: VolumeId, events: &mut Vec<Output>) {
    if was_frozen {
        events.push(Output::DelegationsOver(vec![Fid::root(id)]));
    }
}

impl Freezing {
    pub fn new(
        files: Arc<Files>,
        loans: Arc<Loans>,
        cell: Arc<CellLink>,
        lease: Duration,
    ) -> Freezing {
        Freezing { files, loans, cell, lease }
    }

    pub(super) fn hold_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        millis: u32,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.files.volumes().any_volume(id)?;
        if volume.store.is_being_restored() {
            return Err(Fault::Busy);
        }
        volume.need_writable()?;
        if volume.store.is_arriving() || volume.is_away() {
            return Err(Fault::Offline);
        }
        if millis == 0 {
            self.unfreeze(&volume, &mut ask.events)?;
            return Ok(CallOutcome::Answer(Answer::Done));
        }
        if volume.is_fenced() {
            return Err(Fault::Busy);
        }
        let until = ask.now + FREEZE_MAX.min(Duration::from_millis(millis.into()));
        self.files.bring_in(ask, &volume)?;
        end_idle_loans(&self.files, &self.loans, &volume)?;
        // The freeze does not wait for a kernel, which cannot be stopped. A returned body is not
        // loaned again for a while, so a repeated call succeeds.
        need_no_loans(&volume)?;
        volume.block_delegations(until + MARGIN);
        self.files.volumes().moves().freeze(id, until);
        let frozen = volume.partition.volumes().hold_volume(id, true).map_err(Fault::from);
        // A loan may have begun in between.
        if let Err(fault) = frozen.and_then(|()| need_no_loans(&volume)) {
            self.unfreeze(&volume, &mut ask.events)?;
            return Err(fault);
        }
        Ok(CallOutcome::Answer(Answer::Done))
    }

    /// Ends the freeze, and continues the calls that waited for it.
    fn unfreeze(&self, volume: &ViceVolume, events: &mut Vec<Output>) -> Result<(), Fault> {
        volume.partition.volumes().hold_volume(volume.store.id(), false)?;
        volume.allow_delegations();
        let was_frozen = self.files.volumes().moves().thaw(volume);
        continue_calls(was_frozen, volume.store.id(), events);
        Ok(())
    }

    pub(super) fn serve_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.files.volumes().any_volume(id)?;
        if !volume.store.is_writable() {
            // A read-only site that came from another partition.
            volume.partition.volumes().tree_arrives(volume.store.tree_id(), false)?;
            return Ok(CallOutcome::Answer(Answer::Done));
        }
        volume.need_writable()?;
        if volume.store.is_arriving() {
            self.arrive(ask.now, ask.wall, &volume)?;
        }
        Ok(CallOutcome::Answer(Answer::Done))
    }

    fn arrive(&self, now: Time, wall: Timestamp, volume: &ViceVolume) -> Result<(), Fault> {
        let id = volume.store.id();
        // Before the first call is served, so that all clients can claim their locks and holds.
        self.files.volumes().moves().arrive(id, now + self.lease);
        let fields =
            store::VolumeFields { arriving: Some(false), ..store::VolumeFields::default() };
        volume.partition.volumes().set_fields(id, fields, wall)?;
        volume.come_back();
        Ok(())
    }

    /// A volume comes into service. It may have come from a server of AFS, whose volume servers
    /// put it together here while it was offline, so that its clients have locks to claim.
    pub(super) fn take_claims(&self, now: Time, id: VolumeId) {
        self.files.volumes().moves().take_claims(id, now + self.lease);
    }

    /// Handles the time limits of moving volumes.
    pub fn tick(&self, now: Time, events: &mut Vec<Output>) {
        for id in self.files.volumes().moves().late(now) {
            self.end_late_freeze(now, id, events);
        }
        for id in self.files.volumes().moves().end_claims(now) {
            events.append(&mut self.files.drop_orphans_of(now, id));
        }
    }

    /// Ends a freeze whose time is over, unless it was ended a moment ago.
    fn end_late_freeze(&self, now: Time, id: VolumeId, events: &mut Vec<Output>) {
        let volume = self.files.volumes().any_volume(id).ok();
        if !self.files.volumes().moves().doubt(now, id, volume.as_deref()) {
            return;
        }
        tracing::warn!(
            volume = id.0,
            "a freeze was not ended in time; the volume is offline until the database answers"
        );
        if volume.is_some() {
            let _ = self.files.coherence().leases().break_volume(now, id, events);
        }
        // These calls find that the volume is away.
        continue_calls(true, id, events);
    }

    /// Asks the cell's database about volumes in doubt, which may take long.
    pub fn settle_doubts(&self, now: Time, wall: Timestamp, events: &mut Vec<Output>) {
        for (id, since) in self.files.volumes().moves().due_doubts(now) {
            if let Err(fault) = self.settle_doubt(now, wall, id, since, events) {
                tracing::debug!(volume = id.0, %fault, "a volume's site cannot be looked up yet");
            }
        }
    }

    fn settle_doubt(
        &self,
        now: Time,
        wall: Timestamp,
        id: VolumeId,
        since: Time,
        events: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        let volume = match self.files.volumes().any_volume(id) {
            Err(Fault::NoVolume) => {
                end_freeze(self.files.volumes(), id, events);
                return Ok(());
            }
            volume => volume?,
        };
        let asked = self.files.volumes().moves().superseded();
        let owner = self.files.sites().owner(&volume)?;
        let is_alone = match self.files.volumes().moves().alone_at(id) {
            Some(at) => now >= at,
            None => now.since(since) >= FREEZE_MAX + self.lease + MARGIN,
        };
        match owner {
            OwnedBy::Ours if volume.store.is_arriving() && is_alone => {
                tracing::warn!(
                    volume = id.0,
                    "the volume has arrived here, and no other server can serve it any more; it \
                     serves"
                );
                self.arrive(now, wall, &volume)
            }
            OwnedBy::Beside if is_alone => self.serve_beside(now, wall, &volume, events),
            OwnedBy::Others if volume.is_taking_over() => {
                // Another standby was ordered to take over meanwhile.
                self.files.volumes().moves().give_way(&volume);
                Ok(())
            }
            OwnedBy::Others if volume.may_be_superseded() => {
                self.supersede(now, &volume, events);
                Ok(())
            }
            OwnedBy::Ours | OwnedBy::Beside | OwnedBy::Unrecorded if volume.may_be_superseded() => {
                self.files.volumes().moves().confirm(&volume, asked);
                Ok(())
            }
            // A volume without a record serves: the database may have lost the record, and the
            // volume was here.
            OwnedBy::Ours | OwnedBy::Unrecorded if !volume.store.is_arriving() => {
                self.keep(&volume)?;
                self.unfreeze(&volume, events)
            }
            OwnedBy::Ours | OwnedBy::Others | OwnedBy::Beside | OwnedBy::Unrecorded => Ok(()),
        }
    }

    /// The record says that another server has the volume since an administrator's order: it
    /// serves here no more. The answer comes when no client trusts this server any more.
    ///
    /// # Errors
    /// `Busy`: a client has locks or opens in it, and trusts them as long as its lease runs.
    pub fn give_up(&self, ask: &mut CallContext<'_>, id: VolumeId) -> Result<CallOutcome, Fault> {
        // This server may have put it aside already, as the database said. Its clients may trust
        // it all the same.
        if let Ok(volume) = self.files.volumes().any_volume(id)
            && volume.store.is_writable()
        {
            self.files.volumes().moves().supersede(&volume);
            self.unfreeze(&volume, &mut ask.events)?;
        }
        let since = self.files.volumes().moves().given_up_since(id, ask.now);
        let mut leases = self.files.coherence().leases();
        // After the volume ended its service: a lock or an open that is granted now is
        // seen by its call.
        if leases.locks_mut().has_any_in(id) || leases.opens().has_any_in(id) {
            if ask.now < since + self.lease + MARGIN {
                leases.locks_mut().refuse_waits_in(id, &mut ask.events);
                let _ = leases.break_volume(ask.now, id, &mut ask.events);
                return Err(Fault::Busy);
            }
            leases.locks_mut().forget_volume(id, &mut ask.events);
            leases.opens().forget_volume(id);
        }
        drop(leases);
        Ok(self.files.coherence().break_volume(ask, id, Answer::Done))
    }

    /// A copy took over elsewhere while the volume served here in doubt.
    pub fn supersede(&self, now: Time, volume: &ViceVolume, events: &mut Vec<Output>) {
        if volume.is_superseded() {
            return;
        }
        let id = volume.store.id();
        tracing::warn!(
            volume = id.0,
            "a copy of this volume took over at another server; what is here serves no client"
        );
        self.files.volumes().moves().supersede(volume);
        if let Err(fault) = self.unfreeze(volume, events) {
            tracing::warn!(volume = id.0, %fault, "the freeze of a superseded volume stays");
        }
        let mut leases = self.files.coherence().leases();
        leases.locks_mut().refuse_waits_in(id, events);
        let _ = leases.break_volume(now, id, events);
    }

    /// Replaces the volume by the one that arrived on another partition, and breaks all promises of
    /// it.
    fn serve_beside(
        &self,
        now: Time,
        wall: Timestamp,
        volume: &ViceVolume,
        events: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        let id = volume.store.id();
        tracing::warn!(
            volume = id.0,
            "a move to another partition was not finished; the volume serves there now"
        );
        volume.partition.remove_volume(id)?;
        self.files.volumes().forget(id);
        end_freeze(self.files.volumes(), id, events);
        let _ = self.files.coherence().leases().break_volume(now, id, events);
        let arrived = self.files.volumes().any_volume(id)?;
        assert_ne!(arrived.no, volume.no, "VO-6: {id:?} serves where it was removed");
        self.arrive(now, wall, &arrived)
    }

    /// Writes a volume's record again before the volume serves after a freeze that was not ended:
    /// the mover read the record before, and can no longer change the site, which would lose later
    /// changes here.
    ///
    /// # Errors
    /// `Conflict`, `CellAway`: a later check asks the database again.
    fn keep(&self, volume: &ViceVolume) -> Result<(), Fault> {
        let Some(db) = self.cell.db()? else { return Ok(()) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(()) };
        let is_here = matches!(
            self.files.sites().owner_in(&group.record, volume)?,
            OwnedBy::Ours | OwnedBy::Unrecorded
        );
        if is_here {
            Ok(db.put_group(&group.record, group.revision).map(drop)?)
        } else {
            Err(Fault::Conflict)
        }
    }
}

/// # Errors
/// `Busy`.
fn need_no_loans(volume: &ViceVolume) -> Result<(), Fault> {
    let id = volume.store.id();
    let is_lent = volume.partition.lent().iter().any(|(of, _)| *of == id);
    if is_lent { Err(Fault::Busy) } else { Ok(()) }
}
