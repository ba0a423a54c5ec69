//! The group's record is made to say which standbys are in step, in a thread that may wait for the
//! database. One thread does it at a time: so no attempt overtakes an earlier one, and one whose
//! answer was lost is void after the next, which always makes a new revision.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use celldb::CellDb;
use lease::Output;
use parking_lot::Mutex;
use types::{Changed, Fault, Revision, Time, VolumeGroup, VolumeId};

use super::feeding::{Feeding, Ripe};
use super::feeds::{Feeds, nanos};
use crate::files::OwnedBy;

/// The pause after an attempt that failed.
const AGAIN: Duration = Duration::from_millis(250);

impl Feeds {
    /// Whether the database must be asked.
    pub fn has_database_work(&self, now: Time) -> bool {
        if nanos(now) < self.ask_at.load(Ordering::SeqCst) || self.settling.is_locked() {
            return false;
        }
        let has_news = || {
            self.cell.available().is_some_and(|db| {
                !self.table.read().is_empty()
                    && db.access().latest().0 != self.seen.load(Ordering::SeqCst)
            })
        };
        let is_new = |id: &VolumeId| self.get(*id).is_none();
        self.files.volumes().moves().fenced().iter().any(is_new)
            || self.table.read().values().any(|feeding| feeding.lock().needs_database())
            || has_news()
    }

    /// Asks the database, which may take long.
    pub fn settle(&self, now: Time, events: &mut Vec<Output>, ripe: &mut Ripe) {
        let Some(mut seen) = self.settling.try_lock() else { return };
        self.hear_news(&mut seen);
        for id in self.files.volumes().moves().fenced() {
            self.get_or_begin(id, true);
        }
        let all: Vec<_> =
            self.table.read().iter().map(|(id, feeding)| (*id, Arc::clone(feeding))).collect();
        for (id, feeding) in all {
            if !feeding.lock().needs_database() {
                continue;
            }
            if let Err(fault) = self.settle_one(now, id, &feeding, events, ripe) {
                tracing::debug!(volume = id.0, %fault, "a record of standbys waits");
                // A change that was planned and did not reach the database brings no news of it.
                feeding.lock().recheck = true;
                self.ask_at.store(nanos(now + AGAIN), Ordering::SeqCst);
            }
            for (standby, base) in feeding.lock().untidy() {
                self.remove_older_bases(id, standby, base);
            }
            self.ripen(now, id, events, ripe);
        }
    }

    /// Groups that were changed are read again.
    fn hear_news(&self, seen: &mut Revision) {
        let Some(db) = self.cell.available() else { return };
        let latest = db.access().latest();
        if latest == *seen {
            return;
        }
        let Ok((upto, changes)) = db.access().news(*seen) else { return };
        let table = self.table.read();
        for (id, feeding) in table.iter() {
            let concerns = |changes: &Vec<(Revision, Changed)>| {
                changes.iter().any(|(_, changed)| *changed == Changed::Group(*id))
            };
            if changes.as_ref().is_none_or(concerns) {
                feeding.lock().recheck = true;
            }
        }
        *seen = upto;
        self.seen.store(latest.0, Ordering::SeqCst);
    }

    fn settle_one(
        &self,
        now: Time,
        id: VolumeId,
        feeding: &Mutex<Feeding>,
        events: &mut Vec<Output>,
        ripe: &mut Ripe,
    ) -> Result<(), Fault> {
        let volume = match self.files.volumes().any_volume(id) {
            Err(Fault::NoVolume) => {
                // It was removed, or moved away.
                feeding.lock().supersede(ripe);
                self.forget(now, id, feeding, events);
                return Ok(());
            }
            volume => volume?,
        };
        let db: Option<&dyn CellDb> = self.cell.db()?;
        let known = db.map_or(Ok(None), |db| db.group_of(id))?;
        let (Some(db), Some(known)) = (db, known) else {
            // A cell without a database, or without this record: the volume was here.
            let mut feeding = feeding.lock();
            let plan = feeding.plan(&nothing(&volume.store));
            feeding.is_as_planned(&plan);
            return Ok(());
        };
        let mut group = known.record;
        if matches!(self.files.sites().owner_in(&group, &volume)?, OwnedBy::Others) {
            feeding.lock().supersede(ripe);
            // Before calls go on that waited for the fence.
            self.freezing.supersede(now, &volume, events);
            self.forget(now, id, feeding, events);
            self.followers.look_at(&group);
            return Ok(());
        }
        let plan = feeding.lock().plan(&group);
        if plan.writes {
            db.put_group(&plan.group, known.revision)?;
            group = plan.group.clone();
        }
        let mut feeding_now = feeding.lock();
        feeding_now.is_as_planned(&plan);
        let has_standbys = group.standbys().next().is_some();
        let is_over = feeding_now.is_over() && !has_standbys;
        drop(feeding_now);
        self.files.volumes().moves().answer_for(id);
        if !has_standbys && volume.store.info().has_standbys {
            volume.partition.feeds().end(id)?;
            let prefix = [volume.store.name().as_bytes(), b".standby-"].concat();
            self.remove_bases(&volume, &prefix, None)?;
        }
        if is_over {
            self.forget(now, id, feeding, events);
        }
        Ok(())
    }

    /// The volume has no standbys any more.
    fn forget(&self, now: Time, id: VolumeId, feeding: &Mutex<Feeding>, events: &mut Vec<Output>) {
        self.enforce(now, id, &feeding.lock(), events);
        self.table.write().remove(&id);
    }
}

/// A record without standbys.
fn nothing(volume: &store::Volume) -> VolumeGroup {
    VolumeGroup {
        name: volume.name(),
        read_write: volume.id(),
        read_only: None,
        backup: None,
        sites: Vec::new(),
        released_epoch: 0,
        busy: None,
    }
}
