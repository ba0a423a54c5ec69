//! Volumes that move: the state beyond their headers.
//!
//! A volume is *frozen* until a time, or *in doubt* since a time (it is *away*: no client is
//! served before the cell's database was asked), or has *arrived* and takes claims until a time.
//! One that was released is *unconfirmed* until the database has said that no copy of it took over
//! while this server was away; while the database cannot be asked it serves, and is in doubt.
//! One that has standbys is *fenced* while one of them may take over, and at first after a start:
//! its calls wait, whatever its other state (`standby/`). `admin/freeze.rs` has the model of the
//! others. The transitions are the functions here; each is one step under the lock, so a call that
//! waits for a freeze either finds it or goes on.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use types::{Time, VolumeId};

use super::ViceVolume;

/// Interval of questions to the database.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Moves {
    table: Mutex<Table>,
    /// Counts freezes that ended.
    ended: AtomicU64,
    /// Counts volumes that were superseded.
    superseded: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// Frozen volumes, and when the freeze ends.
    frozen: HashMap<VolumeId, Time>,
    /// Volumes in doubt: when to ask the database next, and since when they are in doubt.
    doubts: HashMap<VolumeId, (Time, Time)>,
    /// Volumes that arrived or came into service, and until when claims are accepted.
    arrived: HashMap<VolumeId, Time>,
    /// Released volumes that the database has assigned to this server since its start.
    confirmed: HashSet<VolumeId>,
    /// Volumes with standbys whose calls wait.
    fenced: HashSet<VolumeId>,
    /// Volumes of which the database has said, since this server's start, that no standby took
    /// over.
    answered_for: HashSet<VolumeId>,
    /// Volumes that were given up on an order, and when that was first said.
    given_up: HashMap<VolumeId, Time>,
    /// Volumes that take over from a lost server (SB-6), and when no client can trust that any
    /// more: then they serve.
    alone_at: HashMap<VolumeId, Time>,
    /// Volumes that this server took over since its start.
    taken_over: HashSet<VolumeId>,
}

impl Moves {
    /// Whether claims of files of this volume are accepted.
    pub fn takes_claims(&self, volume: VolumeId) -> bool {
        let table = self.table.lock();
        table.arrived.contains_key(&volume) || table.alone_at.contains_key(&volume)
    }

    /// Whether changes of the volume wait.
    pub fn is_frozen(&self, volume: VolumeId) -> bool {
        self.table.lock().frozen.contains_key(&volume)
    }

    /// Does something that no freeze and no fence begins or ends during; `act` learns whether a
    /// volume is frozen or fenced.
    pub fn while_unchanged<T>(&self, act: impl FnOnce(&dyn Fn(VolumeId) -> bool) -> T) -> T {
        let table = self.table.lock();
        act(&|volume| table.frozen.contains_key(&volume) || table.fenced.contains(&volume))
    }

    /// Whether all calls of the volume wait.
    pub fn is_fenced(&self, volume: VolumeId) -> bool {
        self.table.lock().fenced.contains(&volume)
    }

    /// Whether the calls of any volume wait.
    pub fn is_any_fenced(&self) -> bool {
        !self.table.lock().fenced.is_empty()
    }

    /// Volumes whose calls wait.
    pub fn fenced(&self) -> Vec<VolumeId> {
        self.table.lock().fenced.iter().copied().collect()
    }

    /// All calls of the volume wait from now on. Returns whether they did not before.
    pub fn fence(&self, id: VolumeId, volume: Option<&ViceVolume>) -> bool {
        let mut table = self.table.lock();
        if let Some(volume) = volume {
            volume.set_fenced(true);
        }
        table.fenced.insert(id)
    }

    /// The calls of the volume are executed. Returns whether they waited.
    pub fn unfence(&self, id: VolumeId, volume: Option<&ViceVolume>) -> bool {
        let mut table = self.table.lock();
        if let Some(volume) = volume {
            volume.set_fenced(false);
        }
        let was_fenced = table.fenced.remove(&id);
        self.ended.fetch_add(u64::from(was_fenced), Ordering::SeqCst);
        was_fenced
    }

    /// The database has said, or it is known, that no standby of the volume took over before this
    /// server's start.
    pub fn answer_for(&self, volume: VolumeId) {
        self.table.lock().answered_for.insert(volume);
    }

    /// No client can trust the former server of the volume any more from then on.
    pub fn be_alone_at(&self, volume: VolumeId, at: Time) {
        self.table.lock().alone_at.insert(volume, at);
    }

    /// See [`Moves::be_alone_at`].
    pub fn alone_at(&self, volume: VolumeId) -> Option<Time> {
        self.table.lock().alone_at.get(&volume).copied()
    }

    /// This server took the volume over as a standby.
    pub fn take_over(&self, volume: VolumeId) {
        self.table.lock().taken_over.insert(volume);
    }

    /// Whether this server took the volume over since its start: what an earlier instance recorded
    /// of it is of a former generation.
    pub fn was_taken_over(&self, volume: VolumeId) -> bool {
        self.table.lock().taken_over.contains(&volume)
    }

    /// Since when this server is told to give the volume up.
    pub fn given_up_since(&self, volume: VolumeId, now: Time) -> Time {
        *self.table.lock().given_up.entry(volume).or_insert(now)
    }

    /// To be read before the database is asked: an answer from before a volume was superseded
    /// lets none serve.
    pub fn superseded(&self) -> u64 {
        self.superseded.load(Ordering::SeqCst)
    }

    /// The volume takes over no more: the database names another server.
    pub fn give_way(&self, volume: &ViceVolume) {
        let mut table = self.table.lock();
        table.alone_at.remove(&volume.store.id());
        volume.go_away();
    }

    /// Counts the freezes that ended.
    pub fn freezes_ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    /// When the next time limit ends, or a volume that takes over may serve.
    pub fn wake_at(&self, now: Time) -> Time {
        let table = self.table.lock();
        let serve = table.alone_at.values().filter(|at| **at > now);
        let limits = table.frozen.values().chain(table.arrived.values());
        limits.chain(serve).copied().min().unwrap_or(Time::NEVER)
    }

    /// Changes of the volume wait from now on.
    pub fn freeze(&self, volume: VolumeId, until: Time) {
        self.table.lock().frozen.insert(volume, until);
    }

    /// The volume serves again, unless it was superseded meanwhile. Returns whether it was frozen.
    pub fn thaw(&self, volume: &ViceVolume) -> bool {
        let mut table = self.table.lock();
        if volume.is_superseded() {
            return self.end_freeze(&mut table, volume.store.id());
        }
        // Before the doubt is removed: otherwise the freeze could time out in between, and the
        // volume would stay away for ever, without a question to the database.
        volume.come_back();
        self.end(&mut table, volume.store.id())
    }

    /// The volume is removed. Returns whether it was frozen.
    pub fn forget(&self, volume: VolumeId) -> bool {
        let mut table = self.table.lock();
        table.confirmed.remove(&volume);
        table.answered_for.remove(&volume);
        table.alone_at.remove(&volume);
        let was_fenced = table.fenced.remove(&volume);
        self.ended.fetch_add(u64::from(was_fenced), Ordering::SeqCst);
        self.end(&mut table, volume) || was_fenced
    }

    fn end(&self, table: &mut Table, volume: VolumeId) -> bool {
        table.doubts.remove(&volume);
        self.end_freeze(table, volume)
    }

    fn end_freeze(&self, table: &mut Table, volume: VolumeId) -> bool {
        let was_frozen = table.frozen.remove(&volume).is_some();
        self.ended.fetch_add(u64::from(was_frozen), Ordering::SeqCst);
        was_frozen
    }

    /// A volume was just loaded: if its header says that it is frozen or arriving, it serves no
    /// client before the database was asked; if it was `released`, none before the first question.
    /// The calls of one with standbys wait for the database's answer.
    pub fn note_loaded(&self, volume: &ViceVolume, released: bool) {
        let id = volume.store.id();
        let mut table = self.table.lock();
        let is_in_doubt = volume.store.is_held() && !table.frozen.contains_key(&id);
        if let Some(at) = table.alone_at.get(&id).copied().filter(|_| volume.store.is_arriving()) {
            volume.take_over();
            table.doubts.entry(id).or_insert((at, Time::NEVER));
        } else if volume.store.is_arriving() || is_in_doubt {
            volume.go_away();
            table.doubts.entry(id).or_insert((Time::ZERO, Time::NEVER));
        } else if released && !table.frozen.contains_key(&id) && !table.confirmed.contains(&id) {
            volume.be_unconfirmed();
        }
        if volume.store.info().has_standbys
            && volume.store.is_writable()
            && !table.answered_for.contains(&id)
        {
            table.fenced.insert(id);
        }
        volume.set_fenced(table.fenced.contains(&id));
    }

    /// The database has assigned the unconfirmed volume to this server: it serves. `asked`: as
    /// [`Moves::superseded`].
    pub fn confirm(&self, volume: &ViceVolume, asked: u64) {
        let mut table = self.table.lock();
        if volume.is_superseded() && self.superseded() != asked {
            return;
        }
        table.confirmed.insert(volume.store.id());
        table.doubts.remove(&volume.store.id());
        volume.come_back();
    }

    /// The database cannot be asked about the unconfirmed volume, which serves until it can be.
    /// `asked`: as [`Moves::superseded`].
    pub fn serve_in_doubt(&self, volume: &ViceVolume, asked: u64) {
        let mut table = self.table.lock();
        if volume.is_superseded() && self.superseded() != asked {
            return;
        }
        table.doubts.entry(volume.store.id()).or_insert((Time::ZERO, Time::NEVER));
        volume.come_back();
    }

    /// The database has assigned the volume to another server; it is asked again now and then.
    pub fn supersede(&self, volume: &ViceVolume) {
        let mut table = self.table.lock();
        table.doubts.entry(volume.store.id()).or_insert((Time::ZERO, Time::NEVER));
        // Should it be loaded again, the database is asked again.
        table.answered_for.remove(&volume.store.id());
        table.confirmed.remove(&volume.store.id());
        self.superseded.fetch_add(1, Ordering::SeqCst);
        volume.be_superseded();
    }

    /// The volume takes claims until then. The caller lets it serve afterwards.
    pub fn take_claims(&self, volume: VolumeId, until: Time) {
        self.table.lock().arrived.insert(volume, until);
    }

    /// The volume has arrived, and takes claims until then. The caller lets it serve afterwards.
    pub fn arrive(&self, volume: VolumeId, until: Time) {
        let mut table = self.table.lock();
        debug_assert!(!table.frozen.contains_key(&volume), "VO-6: {volume:?} arrives frozen");
        table.arrived.insert(volume, until);
        table.confirmed.insert(volume);
        table.answered_for.insert(volume);
        table.alone_at.remove(&volume);
        table.given_up.remove(&volume);
        table.doubts.remove(&volume);
    }

    /// Freezes whose time is over.
    pub fn late(&self, now: Time) -> Vec<VolumeId> {
        let table = self.table.lock();
        table.frozen.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect()
    }

    /// Ends a freeze whose time is over: the volume is in doubt, and away if it is loaded. False:
    /// the freeze was ended a moment ago.
    pub fn doubt(&self, now: Time, id: VolumeId, volume: Option<&ViceVolume>) -> bool {
        let mut table = self.table.lock();
        if table.frozen.get(&id).is_none_or(|until| *until > now) {
            return false;
        }
        table.frozen.remove(&id);
        table.doubts.insert(id, (now, now));
        self.ended.fetch_add(1, Ordering::SeqCst);
        if let Some(volume) = volume.filter(|volume| !volume.is_superseded()) {
            volume.go_away();
        }
        true
    }

    /// Ends the time of claims where it is over. Returns the volumes.
    pub fn end_claims(&self, now: Time) -> Vec<VolumeId> {
        let mut ended = Vec::new();
        self.table.lock().arrived.retain(|id, until| {
            let stays = *until > now;
            if !stays {
                ended.push(*id);
            }
            stays
        });
        ended
    }

    /// Whether the cell's database must be asked about a volume.
    pub fn has_doubts(&self, now: Time) -> bool {
        self.table.lock().doubts.values().any(|(next, _)| *next <= now)
    }

    /// Volumes about which the database must be asked now, and since when they are in doubt. They
    /// are due again after a while.
    pub fn due_doubts(&self, now: Time) -> Vec<(VolumeId, Time)> {
        let mut due = Vec::new();
        let Table { doubts, alone_at, .. } = &mut *self.table.lock();
        for (id, (next, since)) in doubts {
            if *next <= now {
                *since = (*since).min(now);
                // One that takes over serves as soon as it may: its clients wait.
                let serves = alone_at.get(id).copied().filter(|at| *at > now);
                *next = serves.unwrap_or(Time::NEVER).min(now + ASK_AGAIN);
                due.push((*id, *since));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was asked about once a second, and served so much later than it might.
    #[test]
    fn sb4_a_volume_is_asked_about_when_it_may_serve() {
        let (moves, id) = (Moves::default(), VolumeId(7));
        let now = Time::from_start(Duration::from_secs(100));
        let serves = now + Duration::from_millis(300);
        moves.freeze(id, now);
        assert!(moves.doubt(now, id, None));
        moves.be_alone_at(id, serves);
        assert_eq!(moves.due_doubts(now), [(id, now)]);
        assert_eq!(moves.wake_at(now), serves, "the service is woken for it");
        assert!(!moves.has_doubts(now) && moves.has_doubts(serves));
        assert_eq!(moves.due_doubts(serves), [(id, now)]);
        assert!(!moves.has_doubts(serves), "and then as ever");
        assert_eq!(moves.wake_at(serves), Time::NEVER);
    }
}
