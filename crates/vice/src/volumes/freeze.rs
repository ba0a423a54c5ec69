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
//! When a volume has arrived, its clients claim their locks and holds: files without names stay for
//! the time of a lease, and claims of locks are accepted.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lease::Output;
use types::{Answer, Call, Fault, Fid, SiteKind, Time, Timestamp, VolumeGroup, VolumeId};

use super::ViceVolume;
use crate::calls::CallOutcome;
use crate::service::CallContext;
use crate::{Effect, Vice};

/// Maximum time of a freeze, before the database is asked.
const FREEZE_MAX: Duration = Duration::from_secs(10);
/// How long after an arrival the server that froze the volume may yet answer for it, beyond a
/// freeze and a lease.
const MARGIN: Duration = Duration::from_secs(5);
/// Interval of questions to the database.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// State of moving volumes beyond their headers.
#[derive(Default)]
pub(crate) struct Moves {
    /// Frozen volumes, and when the freeze ends.
    frozen: HashMap<VolumeId, Time>,
    /// Volumes in doubt: when to ask the database next, and since when they are in doubt.
    doubts: HashMap<VolumeId, (Time, Time)>,
    /// Volumes that arrived, and until when claims are accepted.
    arrived: HashMap<VolumeId, Time>,
}

impl Moves {
    /// Whether claims of files of this volume are accepted.
    pub fn takes_claims(&self, volume: VolumeId) -> bool {
        self.arrived.contains_key(&volume)
    }

    /// Whether changes of the volume wait.
    pub fn is_frozen(&self, volume: VolumeId) -> bool {
        self.frozen.contains_key(&volume)
    }

    /// When the next time limit ends.
    pub fn wake_at(&self) -> Time {
        self.frozen.values().chain(self.arrived.values()).copied().min().unwrap_or(Time::NEVER)
    }
}

/// The owner of a volume, according to the database.
enum Site {
    Ours,
    Others,
    /// This server, on another partition, which has the volume too.
    Beside,
    Unrecorded,
}

impl Vice {
    pub(super) fn hold_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        millis: u32,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
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
        let until = ask.now + FREEZE_MAX.min(Duration::from_millis(millis.into()));
        self.bring_in(ask, &volume)?;
        self.end_idle_loans(&volume)?;
        // The freeze does not wait for a kernel, which cannot be stopped. A returned body is not
        // loaned again for a while, so a repeated call succeeds.
        need_no_loans(&volume)?;
        volume.block_delegations(until + MARGIN);
        self.moves.lock().frozen.insert(id, until);
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
        let id = volume.store.id();
        volume.partition.volumes().hold_volume(id, false)?;
        volume.block_delegations(Time::ZERO);
        let mut moves = self.moves.lock();
        // Before the doubt is removed: otherwise the freeze could time out in between, and the
        // volume would stay away for ever, without a question to the database.
        volume.set_away(false);
        self.end_freeze_of(&mut moves, id, events);
        Ok(())
    }

    /// Removes the freeze of a volume that serves again or was removed.
    pub(super) fn end_freeze(&self, id: VolumeId, events: &mut Vec<Output>) {
        self.end_freeze_of(&mut self.moves.lock(), id, events);
    }

    fn end_freeze_of(&self, moves: &mut Moves, id: VolumeId, events: &mut Vec<Output>) {
        moves.doubts.remove(&id);
        if moves.frozen.remove(&id).is_some() {
            self.freezes_ended.fetch_add(1, Ordering::SeqCst);
            events.push(Output::DelegationsOver(vec![Fid::root(id)]));
        }
    }

    /// The directory that the call waits for, if its volume is frozen.
    pub(crate) fn frozen_by(&self, call: &Call) -> Option<Fid> {
        let volume = call.changed_volume()?;
        self.moves.lock().is_frozen(volume).then(|| Fid::root(volume))
    }

    pub(super) fn serve_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
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
        let mut moves = self.moves.lock();
        moves.arrived.insert(id, now + self.config.lease.lease);
        moves.doubts.remove(&id);
        drop(moves);
        let fields =
            store::VolumeFields { arriving: Some(false), ..store::VolumeFields::default() };
        volume.partition.volumes().set_fields(id, fields, wall)?;
        volume.set_away(false);
        Ok(())
    }

    /// Notes a volume that was just loaded: if its header says that it is frozen or arriving, it
    /// serves no client before the database was asked.
    pub(crate) fn note_doubt(&self, volume: &ViceVolume) {
        let id = volume.store.id();
        let mut moves = self.moves.lock();
        if volume.store.is_arriving() || volume.store.is_held() && !moves.is_frozen(id) {
            volume.set_away(true);
            moves.doubts.entry(id).or_insert((Time::ZERO, Time::NEVER));
        }
    }

    /// Handles the time limits of moving volumes.
    pub(crate) fn tick_moves(&self, now: Time, out: &mut Vec<Output>) {
        let over: Vec<VolumeId> = {
            let moves = self.moves.lock();
            moves.frozen.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect()
        };
        for id in over {
            self.end_late_freeze(now, id, out);
        }
        let mut ended = Vec::new();
        self.moves.lock().arrived.retain(|id, until| {
            let stays = *until > now;
            if !stays {
                ended.push(*id);
            }
            stays
        });
        for id in ended {
            out.append(&mut self.drop_orphans_of(now, id));
        }
    }

    /// Ends a freeze whose time is over, unless it was ended a moment ago.
    fn end_late_freeze(&self, now: Time, id: VolumeId, out: &mut Vec<Output>) {
        let volume = self.any_volume(id).ok();
        let mut moves = self.moves.lock();
        if moves.frozen.get(&id).is_none_or(|until| *until > now) {
            return;
        }
        moves.frozen.remove(&id);
        moves.doubts.insert(id, (now, now));
        self.freezes_ended.fetch_add(1, Ordering::SeqCst);
        if let Some(volume) = &volume {
            volume.set_away(true);
        }
        drop(moves);
        tracing::warn!(
            volume = id.0,
            "a freeze was not ended in time; the volume is offline until the database answers"
        );
        if volume.is_some() {
            let _ = self.core.lock().leases.break_volume(now, id, out);
        }
        // These calls find that the volume is away.
        out.push(Output::DelegationsOver(vec![Fid::root(id)]));
    }

    /// Whether the cell's database must be asked about a volume.
    pub fn has_doubts(&self, now: Time) -> bool {
        self.moves.lock().doubts.values().any(|(next, _)| *next <= now)
    }

    /// Asks the cell's database about volumes in doubt, which may take long.
    pub fn settle_doubts(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) {
        let mut doubts = Vec::new();
        for (id, (next, since)) in &mut self.moves.lock().doubts {
            if *next <= now {
                *since = (*since).min(now);
                *next = now + ASK_AGAIN;
                doubts.push((*id, *since));
            }
        }
        let mut events = Vec::new();
        for (id, since) in doubts {
            if let Err(fault) = self.settle_doubt(now, wall, id, since, &mut events) {
                tracing::debug!(volume = id.0, %fault, "a volume's site cannot be looked up yet");
            }
        }
        self.carry_out(now, events, out);
    }

    fn settle_doubt(
        &self,
        now: Time,
        wall: Timestamp,
        id: VolumeId,
        since: Time,
        events: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        let volume = match self.any_volume(id) {
            Err(Fault::NoVolume) => {
                self.end_freeze(id, events);
                return Ok(());
            }
            volume => volume?,
        };
        let site = self.site(&volume)?;
        let is_alone = now.since(since) >= FREEZE_MAX + self.config.lease.lease + MARGIN;
        match site {
            Site::Ours if volume.store.is_arriving() && is_alone => {
                tracing::warn!(
                    volume = id.0,
                    "a move was not finished, but the volume has arrived here; it serves"
                );
                self.arrive(now, wall, &volume)
            }
            Site::Beside if is_alone => self.serve_beside(now, wall, &volume, events),
            // A volume without a record serves: the database may have lost the record, and the
            // volume was here.
            Site::Ours | Site::Unrecorded if !volume.store.is_arriving() => {
                self.keep(&volume)?;
                self.unfreeze(&volume, events)
            }
            Site::Ours | Site::Others | Site::Beside | Site::Unrecorded => Ok(()),
        }
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
        self.volumes.forget(id);
        self.end_freeze(id, events);
        let _ = self.core.lock().leases.break_volume(now, id, events);
        self.arrive(now, wall, &*self.any_volume(id)?)
    }

    /// Writes a volume's record again before the volume serves after a freeze that was not ended:
    /// the mover read the record before, and can no longer change the site, which would lose later
    /// changes here.
    ///
    /// # Errors
    /// `Conflict`, `CellAway`: a later check asks the database again.
    fn keep(&self, volume: &ViceVolume) -> Result<(), Fault> {
        let Some(db) = self.cell()? else { return Ok(()) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(()) };
        let is_here = matches!(self.site_in(&group.record, volume)?, Site::Ours | Site::Unrecorded);
        if is_here {
            Ok(db.put_group(&group.record, group.revision).map(drop)?)
        } else {
            Err(Fault::Conflict)
        }
    }

    /// # Errors
    /// `CellAway`.
    fn site(&self, volume: &ViceVolume) -> Result<Site, Fault> {
        let Some(db) = self.cell()? else { return Ok(Site::Ours) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(Site::Unrecorded) };
        self.site_in(&group.record, volume)
    }

    /// The owner according to this record.
    fn site_in(&self, group: &VolumeGroup, volume: &ViceVolume) -> Result<Site, Fault> {
        let Some(site) = group.sites.iter().find(|site| site.kind == SiteKind::ReadWrite) else {
            return Ok(Site::Unrecorded);
        };
        if site.server != self.me().id {
            return Ok(Site::Others);
        }
        let Some(no) = self.partitions.called(&site.partition).filter(|no| *no != volume.no) else {
            return Ok(Site::Ours);
        };
        let is_there = self.partitions.get(no)?.volumes().volume(volume.store.id())?.is_some();
        Ok(if is_there { Site::Beside } else { Site::Ours })
    }
}

/// # Errors
/// `Busy`.
fn need_no_loans(volume: &ViceVolume) -> Result<(), Fault> {
    let id = volume.store.id();
    let is_lent = volume.partition.lent().iter().any(|(of, _)| *of == id);
    if is_lent { Err(Fault::Busy) } else { Ok(()) }
}
