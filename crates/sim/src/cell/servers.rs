//! Servers start, do periodic work, and die.

use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use rand::Rng;
use store::{MemMachine, Partition};
use types::{ServerId, Time};
use vice::Vice;

use super::reference::shown;
use super::sessions::SessionUser;
use super::world::{Happening, World};
use crate::server::wall;

/// Interval of a server's periodic work.
const TICK: Duration = Duration::from_millis(500);
/// Bodies that one sweep removes.
const SWEPT_AT_ONCE: usize = 16;
/// Longest time for which a server is down.
const DOWN_MAX: Duration = Duration::from_secs(25);

/// How a server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its process dies.
    Process,
    /// Its machine loses its power.
    Power,
}

impl World {
    /// The index of the server with this id.
    pub fn number_of(&self, id: ServerId) -> usize {
        self.houses
            .iter()
            .position(|house| house.info.id == id)
            .expect("only servers of the cell are named")
    }

    /// The service of a server that is up, and the time on its clock.
    pub(super) fn service(&self, no: usize) -> Option<(Arc<Vice>, Time)> {
        let house = &self.houses[no];
        house.up.as_ref().map(|life| (Arc::clone(&life.vice), house.clock.read(self.now)))
    }

    /// The partitions of a server that is up.
    pub fn partitions(&self, no: usize) -> Vec<Partition> {
        self.service(no)
            .map_or_else(Vec::new, |(vice, _)| vice.partitions().iter().cloned().collect())
    }

    pub(super) fn start(&mut self, no: usize) {
        if self.houses[no].up.is_some() {
            return;
        }
        self.note(|| format!("server {no} comes up"));
        let World { houses, rng, database, wires, now, .. } = self;
        houses[no].start(*now, no, rng, database, wires);
        let life = self.houses[no].life;
        self.note_half_over(no);
        if std::mem::take(&mut self.powerless[no]) {
            self.look_what_is_left(no);
        }
        let back: Vec<SessionUser> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.seats.contains_key(&no))
            .map(|(who, _)| *who)
            .collect();
        back.into_iter().for_each(|who| self.resume(who, no));
        self.after(TICK, Happening::Tick(no, life));
    }

    /// Checks after a loss of power that each volume is in a state since all data was last on disk.
    fn look_what_is_left(&mut self, no: usize) {
        let here = self.houses[no].info.id;
        let mut wrong = Vec::new();
        for (id, reference) in &mut self.trees {
            let group = self.database.group_of(*id).expect("it is here");
            let site = group.and_then(|seen| seen.record.read_write_site().map(|site| site.server));
            if site != Some(here) {
                continue;
            }
            let vice = &self.houses[no].up.as_ref().expect("it has just started").vice;
            for partition in vice.partitions().iter() {
                let Ok(Some(volume)) = partition.volumes().volume(*id) else { continue };
                if volume.is_writable() && !volume.is_arriving() {
                    let checked = shown(&volume).and_then(|found| reference.goes_back_to(&found));
                    wrong.extend(
                        checked
                            .err()
                            .map(|why| format!("volume {} after a loss of power: {why}", id.0)),
                    );
                }
            }
        }
        wrong.into_iter().for_each(|why| self.violate(why));
    }

    /// A server dies.
    pub fn die(&mut self, no: usize, death: Death) {
        if self.houses[no].up.is_none() {
            return;
        }
        self.note(|| format!("server {no} dies: {death:?}"));
        self.deaths += 1;
        self.houses[no].up = None;
        self.wires.set_up(no, false);
        self.waiting.retain(|(server, _), _| *server != no);
        self.replies.retain(|(server, _), _| *server != no);
        self.sealing.retain(|(server, _), _| *server != no);
        self.pulls.retain(|(server, ..), _| *server != no);
        self.peers
            .retain(|who, _| !matches!(who, SessionUser::Puller(server, ..) if *server == no));
        if death == Death::Power {
            (self.powerless[no], self.powerless_once[no]) = (true, true);
            let World { houses, rng, .. } = self;
            for machine in &mut houses[no].machines {
                *machine = machine.power_loss(rng.random());
            }
        }
        let down = self.upto(DOWN_MAX);
        let down = if self.one_in(2) { down / 100 } else { down };
        self.after(down, Happening::Up(no));
    }

    /// Does something at a server that may die in the middle of it, at a sync: no answer is sent,
    /// and its disks are as that sync left them. Not where clients wait, since the outcome of their
    /// calls would be unknown.
    pub(super) fn at_risk<T>(&mut self, no: usize, act: impl FnOnce(&mut Self) -> T) -> T {
        if self.armed[no].is_none() || self.waiting.keys().any(|(server, _)| *server == no) {
            return act(self);
        }
        let Some(death) = self.armed[no].take() else { return act(self) };
        self.houses[no].machines.iter().for_each(MemMachine::keep_images);
        self.muted = true;
        let result = act(self);
        self.muted = false;
        for at in 0..self.houses[no].machines.len() {
            let mut images = self.houses[no].machines[at].images();
            if !images.is_empty() {
                self.powerless_once[no] = true;
                let which = self.rng.random_range(0..images.len());
                self.houses[no].machines[at] = images.swap_remove(which);
            }
        }
        self.note(|| format!("server {no} dies in the middle of that"));
        self.die(no, death);
        result
    }

    pub(super) fn tick(&mut self, no: usize, life: u64) {
        let (Some((vice, now)), true) = (self.service(no), self.houses[no].life == life) else {
            return;
        };
        let mut effects = Vec::new();
        vice.tick(now, &mut effects);
        for seat in self.peers.values().filter_map(|peer| peer.seats.get(&no)) {
            vice.renew(now, seat.session, &mut effects);
        }
        self.deliver(no, effects);
        if vice.has_doubts(now) {
            let mut effects = Vec::new();
            vice.settle_doubts(now, wall(self.now), &mut effects);
            self.deliver(no, effects);
        }
        let syncs = self.one_in(3);
        for partition in vice.partitions().iter() {
            if let Err(error) = partition.sweep(SWEPT_AT_ONCE) {
                self.violate(format!("server {no} cannot sweep: {error}"));
            }
            if syncs && let Err(error) = partition.sync_all() {
                self.violate(format!("server {no} cannot sync: {error}"));
            }
        }
        if syncs {
            self.all_synced(no);
        }
        self.judge();
        self.after(TICK, Happening::Tick(no, life));
    }

    /// All data of this server is on its disks.
    fn all_synced(&mut self, no: usize) {
        let here = self.houses[no].info.id;
        for (id, reference) in &mut self.trees {
            let group = self.database.group_of(*id).expect("it is here");
            if group.and_then(|seen| seen.record.read_write_site().map(|site| site.server))
                == Some(here)
            {
                reference.synced();
            }
        }
    }

    /// Plans so many faults in the coming time.
    pub fn plan_faults(&mut self, count: u32, over: Duration) {
        self.faults_left = count;
        for _ in 0..count {
            let at = self.upto(over);
            self.after(at, Happening::Strike);
        }
    }

    pub(super) fn strike(&mut self) {
        if self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        let no = self.rng.random_range(0..self.houses.len());
        let death = if self.one_in(3) { Death::Power } else { Death::Process };
        if self.one_in(3) {
            self.die(no, death);
        } else {
            self.armed[no] = Some(death);
        }
    }

    /// All faults are over.
    pub fn heal(&mut self) {
        self.note(|| "faults are over".to_owned());
        self.faults_left = 0;
        self.armed.fill(None);
        self.wires.lose(0);
        (0..self.houses.len()).for_each(|no| self.start(no));
    }
}
