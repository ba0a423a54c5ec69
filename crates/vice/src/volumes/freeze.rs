//! Volumes that move from one server to another: the one that holds, and the one where it arrives.
//!
//! Model. *Held*: everything that clients had to themselves is back, what they change waits, what
//! they read is answered; so what is sealed now is all that there is. A hold ends when it is let
//! go, or when the volume is removed because it is elsewhere; calls that waited are executed anew,
//! and find the volume or not. When the time of a hold is over nobody is answered any more, and
//! promises are broken, until the cell's database says whose the volume is. *Arriving*: the volume
//! serves nobody until it is told to ([`types::VolumeCall::Serve`]).
//!
//! Both stand in the volume's header, so after a restart the volume is *in doubt* before it is
//! anything else: the database is asked. It says of a held volume that it is here, then it serves;
//! or that it is elsewhere, then it stays away and waits to be removed. Of an arriving volume it
//! may say that it is here: then it serves when the other server, whatever became of it, serves no
//! more (`ALONE_AFTER`).
//!
//! When a volume has arrived, its clients claim what they had: files without names stay for the
//! time of a lease, and claims of locks are taken.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lease::Output;
use types::{Answer, Call, Fault, Fid, SiteKind, Time, Timestamp, VolumeGroup, VolumeId};

use super::ViceVolume;
use crate::calls::CallOutcome;
use crate::service::CallContext;
use crate::{Effect, Vice};

/// How long a volume is held at most, before the database is asked.
const HOLD_MAX: Duration = Duration::from_secs(10);
/// How long after an arrival the server that held the volume may yet answer for it, beyond a hold
/// and a lease.
const MARGIN: Duration = Duration::from_secs(5);
/// Between two questions to the database.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is known beyond the headers.
#[derive(Default)]
pub(crate) struct Moves {
    /// Held volumes, and until when that is in order.
    held: HashMap<VolumeId, Time>,
    /// The database is to be asked, not before then; and since when it is in doubt.
    doubts: HashMap<VolumeId, (Time, Time)>,
    /// Volumes that arrived, and until when claims are taken.
    arrived: HashMap<VolumeId, Time>,
}

impl Moves {
    /// Whether claims are taken for files of this volume.
    pub fn takes_claims(&self, volume: VolumeId) -> bool {
        self.arrived.contains_key(&volume)
    }

    /// Whether changes of the volume wait.
    pub fn holds(&self, volume: VolumeId) -> bool {
        self.held.contains_key(&volume)
    }

    /// When there is something to do next.
    pub fn wake_at(&self) -> Time {
        self.held.values().chain(self.arrived.values()).copied().min().unwrap_or(Time::NEVER)
    }
}

/// Whose a volume is, as the database says.
enum Whose {
    Ours,
    Others,
    /// Ours, on another partition, which has it too.
    Beside,
    Nobodys,
}

impl Vice {
    pub(super) fn hold_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        millis: u32,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
        if volume.store.is_frozen() {
            return Err(Fault::Busy);
        }
        volume.need_writable()?;
        if volume.store.is_arriving() || volume.is_away() {
            return Err(Fault::Offline);
        }
        if millis == 0 {
            self.let_go(&volume, &mut ask.events)?;
            return Ok(CallOutcome::Answer(Answer::Done));
        }
        let until = ask.now + HOLD_MAX.min(Duration::from_millis(millis.into()));
        self.bring_in(ask, &volume)?;
        self.end_idle_lends(&volume)?;
        // Nobody waits for a kernel, which cannot be stopped. What is given back is not lent anew
        // for a while, so who asks again comes through.
        need_no_lends(&volume)?;
        volume.block_delegations(until + MARGIN);
        self.moves.lock().held.insert(id, until);
        let held = volume.partition.hold_volume(id, true).map_err(Fault::from);
        // One may have come between.
        if let Err(fault) = held.and_then(|()| need_no_lends(&volume)) {
            self.let_go(&volume, &mut ask.events)?;
            return Err(fault);
        }
        Ok(CallOutcome::Answer(Answer::Done))
    }

    /// The volume is as any other again, and calls that waited for it go on.
    fn let_go(&self, volume: &ViceVolume, events: &mut Vec<Output>) -> Result<(), Fault> {
        let id = volume.store.id();
        volume.partition.hold_volume(id, false)?;
        volume.block_delegations(Time::ZERO);
        let mut moves = self.moves.lock();
        // With the doubt, or its time could be over in between: nobody would ask, and it would be
        // away for ever.
        volume.set_away(false);
        self.end_hold_of(&mut moves, id, events);
        Ok(())
    }

    /// Nothing waits for the volume any more: it serves, or it was removed.
    pub(super) fn end_hold(&self, id: VolumeId, events: &mut Vec<Output>) {
        self.end_hold_of(&mut self.moves.lock(), id, events);
    }

    fn end_hold_of(&self, moves: &mut Moves, id: VolumeId, events: &mut Vec<Output>) {
        moves.doubts.remove(&id);
        if moves.held.remove(&id).is_some() {
            self.holds_ended.fetch_add(1, Ordering::SeqCst);
            events.push(Output::DelegationsOver(vec![Fid::root(id)]));
        }
    }

    /// What the call waits for, if its volume is held.
    pub(crate) fn held_by(&self, call: &Call) -> Option<Fid> {
        let volume = call.changed_volume()?;
        self.moves.lock().holds(volume).then(|| Fid::root(volume))
    }

    pub(super) fn serve_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
        if !volume.store.is_writable() {
            // A read-only site that came from another partition.
            volume.partition.tree_arrives(volume.store.tree_id(), false)?;
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
        // Before anybody is served: whoever comes finds what he had.
        let mut moves = self.moves.lock();
        moves.arrived.insert(id, now + self.config.lease.lease);
        moves.doubts.remove(&id);
        drop(moves);
        let fields =
            store::VolumeFields { arriving: Some(false), ..store::VolumeFields::default() };
        volume.partition.set_fields(id, fields, wall)?;
        volume.set_away(false);
        Ok(())
    }

    /// The volume was just loaded: if its header says that it is held or arriving, nobody is served
    /// before the database was asked.
    pub(crate) fn note_doubt(&self, volume: &ViceVolume) {
        let id = volume.store.id();
        let mut moves = self.moves.lock();
        if volume.store.is_arriving() || volume.store.is_held() && !moves.holds(id) {
            volume.set_away(true);
            moves.doubts.entry(id).or_insert((Time::ZERO, Time::NEVER));
        }
    }

    /// What time does to volumes that move.
    pub(crate) fn tick_moves(&self, now: Time, out: &mut Vec<Output>) {
        let over: Vec<VolumeId> = {
            let moves = self.moves.lock();
            moves.held.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect()
        };
        for id in over {
            self.end_late_hold(now, id, out);
        }
        let mut settled = Vec::new();
        self.moves.lock().arrived.retain(|id, until| {
            let stays = *until > now;
            if !stays {
                settled.push(*id);
            }
            stays
        });
        for id in settled {
            out.append(&mut self.drop_orphans_of(now, id));
        }
    }

    /// The time of a hold is over, unless it was let go a moment ago.
    fn end_late_hold(&self, now: Time, id: VolumeId, out: &mut Vec<Output>) {
        let volume = self.any_volume(id).ok();
        let mut moves = self.moves.lock();
        if moves.held.get(&id).is_none_or(|until| *until > now) {
            return;
        }
        moves.held.remove(&id);
        moves.doubts.insert(id, (now, now));
        self.holds_ended.fetch_add(1, Ordering::SeqCst);
        if let Some(volume) = &volume {
            volume.set_away(true);
        }
        drop(moves);
        tracing::warn!(
            volume = id.0,
            "a hold was not ended in time; nobody is served until the cell's database was asked"
        );
        if volume.is_some() {
            let _ = self.core.lock().leases.break_volume(now, id, out);
        }
        // They find that it is away.
        out.push(Output::DelegationsOver(vec![Fid::root(id)]));
    }

    /// Whether the cell's database is to be asked about a volume.
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
                tracing::debug!(volume = id.0, %fault, "whose a volume is cannot be told yet");
            }
        }
        self.settle(now, events, out);
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
                self.end_hold(id, events);
                return Ok(());
            }
            volume => volume?,
        };
        let whose = self.whose(&volume)?;
        let is_alone = now.since(since) >= HOLD_MAX + self.config.lease.lease + MARGIN;
        match whose {
            Whose::Ours if volume.store.is_arriving() && is_alone => {
                tracing::warn!(
                    volume = id.0,
                    "a volume that arrived was not told to serve, and is here; it serves"
                );
                self.arrive(now, wall, &volume)
            }
            Whose::Beside if is_alone => self.serve_beside(now, wall, &volume, events),
            // What nobody claims is ours: the database may have forgotten it, and it was here.
            Whose::Ours | Whose::Nobodys if !volume.store.is_arriving() => {
                self.keep(&volume)?;
                self.let_go(&volume, events)
            }
            Whose::Ours | Whose::Others | Whose::Beside | Whose::Nobodys => Ok(()),
        }
    }

    /// The one that arrived on another partition takes the place of this one. Nobody trusts
    /// anything of it any more.
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
            "a volume is on another partition now, and was not told so; it serves there"
        );
        volume.partition.remove_volume(id)?;
        self.volumes.forget(id);
        self.end_hold(id, events);
        let _ = self.core.lock().leases.break_volume(now, id, events);
        self.arrive(now, wall, &*self.any_volume(id)?)
    }

    /// Before a volume serves again after a hold that nobody ended, its record is written once
    /// more: whoever leads the move read it before, and can say no longer that the volume is
    /// elsewhere, which would lose what is changed here from now on.
    ///
    /// # Errors
    /// `Conflict`, `CellAway`: the database is asked again.
    fn keep(&self, volume: &ViceVolume) -> Result<(), Fault> {
        let Some(db) = self.cell()? else { return Ok(()) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(()) };
        let is_here = matches!(self.whose_in(&group.record, volume)?, Whose::Ours | Whose::Nobodys);
        if is_here {
            Ok(db.put_group(&group.record, group.revision).map(drop)?)
        } else {
            Err(Fault::Conflict)
        }
    }

    /// # Errors
    /// `CellAway`.
    fn whose(&self, volume: &ViceVolume) -> Result<Whose, Fault> {
        let Some(db) = self.cell()? else { return Ok(Whose::Ours) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(Whose::Nobodys) };
        self.whose_in(&group.record, volume)
    }

    /// As this record says.
    fn whose_in(&self, group: &VolumeGroup, volume: &ViceVolume) -> Result<Whose, Fault> {
        let Some(site) = group.sites.iter().find(|site| site.kind == SiteKind::ReadWrite) else {
            return Ok(Whose::Nobodys);
        };
        if site.server != self.me().id {
            return Ok(Whose::Others);
        }
        let Some(no) = self.partitions.called(&site.partition).filter(|no| *no != volume.no) else {
            return Ok(Whose::Ours);
        };
        let is_there = self.partitions.get(no)?.volume(volume.store.id())?.is_some();
        Ok(if is_there { Whose::Beside } else { Whose::Ours })
    }
}

/// # Errors
/// `Busy`.
fn need_no_lends(volume: &ViceVolume) -> Result<(), Fault> {
    let id = volume.store.id();
    let is_lent = volume.partition.lent().iter().any(|(of, _)| *of == id);
    if is_lent { Err(Fault::Busy) } else { Ok(()) }
}
