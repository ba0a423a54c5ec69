//! Volumes of several servers under faults: operations of administrators, stopped anywhere.
//!
//! What runs is the code that ships: the steps of `vos`, `vice` over `store` on machines in memory, pulls ([`vice::Fetch`]). What is made up is who leads an operation
//! and stops, which calls are lost, which servers die (between two calls, or at a sync in the middle of one) and lose what was not on disk, and who
//! works in the volumes meanwhile. One thread, one seed: while a leader waits for an answer, [`world::World`] lets everything else happen.
//!
//! Each run orders a few operations, one after the other; what was stopped is ordered again, until it is through or faults are over. At each call: no volume is served by two
//! servers, each shows what the model of its tree holds, or held when the epoch was sealed. At the end: each volume is there once, where the database says; nothing is
//! claimed, and nothing left over; what is on the disks adds up.

mod clients;
mod database;
mod house;
mod judge;
mod leader;
mod mutation;
mod order;
mod pulls;
mod reference;
pub mod release;
mod servers;
mod sessions;
mod wires;
mod world;

use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use parking_lot::Mutex;
use rand::Rng;
use types::{Busy, Name, VolumeInfo};
use vos::{Error, Job, Who};

pub use mutation::Mutation;

use leader::{Leader, Left};
use order::Order;
use world::World;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What did not hold.
    pub violation: Option<String>,
    /// All that happened, if it was traced.
    pub history: String,
    /// Numbers for people.
    pub tally: Tally,
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that were ordered.
    pub ordered: u64,
    /// Attempts at them.
    pub attempts: u64,
    /// Leaders that were stopped.
    pub stopped: u64,
    /// Calls to servers.
    pub calls: u64,
    /// Servers that died.
    pub deaths: u64,
}

impl Tally {
    /// Both together.
    pub fn add(&mut self, other: &Tally) {
        let Tally { ordered, attempts, stopped, calls, deaths } = other;
        self.ordered += ordered;
        self.attempts += attempts;
        self.stopped += stopped;
        self.calls += calls;
        self.deaths += deaths;
    }
}

/// Calls after which a leader may be stopped.
const STOPS_WITHIN: u32 = 60;
/// Attempts at an operation while there are faults.
const ATTEMPTS_MAX: u32 = 4;
/// Attempts when there are none.
const HEALED_ATTEMPTS_MAX: u32 = 6;
/// How long faults strike.
const FAULTS_OVER: Duration = Duration::from_secs(60);
/// After faults: holds, leases and doubts end.
const SETTLES: Duration = Duration::from_secs(60);

/// Runs one seed. `trace`: with a history.
pub fn run(seed: u64, trace: bool) -> Outcome {
    run_broken(seed, trace, None)
}

/// Runs one seed, with a step that is done wrongly.
pub fn run_broken(seed: u64, trace: bool, mutation: Option<Mutation>) -> Outcome {
    let mut world = World::new(seed, trace);
    world.mutation = mutation;
    let world = Mutex::new(world);
    let mut run = Run { world: &world, tally: Tally::default(), left: Vec::new() };
    run.all();
    let mut world = world.lock();
    let tally = Tally { calls: world.calls, deaths: world.deaths, ..run.tally };
    Outcome { violation: world.violation().cloned(), history: world.history(), tally }
}

struct Run<'w> {
    world: &'w Mutex<World>,
    tally: Tally,
    /// Operations that were begun and not ended.
    left: Vec<Order>,
}

impl Run<'_> {
    fn all(&mut self) {
        let orders = {
            let mut world = self.world.lock();
            let faults = if world.one_in(6) { 0 } else { world.rng.random_range(1..=6) };
            world.plan_faults(faults, FAULTS_OVER);
            let lose = if world.one_in(2) { 0 } else { world.rng.random_range(10..60) };
            world.wires.lose(lose);
            world.rng.random_range(4..=14)
        };
        for number in 0..orders {
            let order = Order::draw(&mut self.world.lock(), number);
            // What is begun there ends first.
            let names: Vec<Name> = order.names().into_iter().cloned().collect();
            let before = self.left.iter().position(|one| one.names().into_iter().any(|name| names.contains(name)));
            let order = before.map_or(order, |at| self.left.remove(at));
            self.tally.ordered += 1;
            if !self.through(&order, ATTEMPTS_MAX, true) && !self.unlocked(&order) {
                self.left.push(order);
            }
            let mut world = self.world.lock();
            let pause = world.upto(Duration::from_secs(8));
            world.pass(pause);
            if world.violation().is_some() {
                return;
            }
        }
        self.world.lock().heal();
        self.world.lock().pass(SETTLES);
        for order in std::mem::take(&mut self.left) {
            if !self.through(&order, HEALED_ATTEMPTS_MAX, false) {
                self.world.lock().violate(format!("progress: {order:?} does not come to its end"));
            }
        }
        self.mend();
        let mut world = self.world.lock();
        world.quiet = true;
        world.pass(SETTLES);
        world.judge_end();
    }

    /// Now and then an administrator takes the claim of an operation that does not end off, and forgets the operation.
    fn unlocked(&mut self, order: &Order) -> bool {
        if !self.world.lock().one_in(3) {
            return false;
        }
        let names: Vec<Name> = order.names().into_iter().cloned().collect();
        let unlock = |job: &Job<'_>| {
            for name in &names {
                if let Some(group) = job.servers.db().group_named(name)? {
                    vos::unlock(job, group)?;
                }
            }
            Ok(())
        };
        let unlocked = self.lead(Left::All, unlock).is_ok();
        self.world.lock().forced |= unlocked;
        // A removal may have been through, and only its last answer lost.
        unlocked && self.done(order)
    }

    /// What was left after claims were taken off is mended as administrators do it, and every site gets what is there now.
    fn mend(&mut self) {
        let servers: Vec<_> = self.world.lock().houses.iter().map(|house| house.info.id).collect();
        if self.world.lock().forced {
            let mended = self.lead(Left::All, |job| {
                servers.iter().try_for_each(|server| vos::sync_database(job, *server, None).map(drop))?;
                vos::sync_servers(job, None, None).map(drop)
            });
            if let Err(error) = mended {
                self.world.lock().violate(format!("progress: what was left cannot be mended: {error}"));
            }
        }
        let groups = self.world.lock().database.groups(types::VolumeId(0), usize::MAX).unwrap_or_default();
        for group in groups.into_iter().filter(|group| group.record.read_write_site().is_some()) {
            let has_sites = group.record.sites.iter().any(|site| site.kind == types::SiteKind::ReadOnly);
            let order = Order::Release(group.record.name);
            if has_sites && !self.through(&order, HEALED_ATTEMPTS_MAX, false) {
                self.world.lock().violate(format!("progress: {order:?} does not come to its end"));
            }
        }
    }

    /// Attempts an operation until it is through; whether it is.
    fn through(&mut self, order: &Order, attempts: u32, stops: bool) -> bool {
        for _ in 0..attempts {
            let error = match self.attempt(order, stops) {
                Ok(()) => return self.done(order),
                Err(error) => error,
            };
            let mut world = self.world.lock();
            if world.violation().is_some() {
                return true;
            }
            let refused = matches!(error, Error::Refused { .. } | Error::Unfit(_) | Error::NoVolume | Error::Cell(_));
            if refused && !stops && order.is_settled(&world) {
                drop(world);
                return self.done(order);
            }
            let pause = world.upto(Duration::from_secs(15));
            world.pass(pause);
        }
        false
    }

    /// A volume that was removed holds nothing any more.
    fn done(&mut self, order: &Order) -> bool {
        let mut world = self.world.lock();
        if let Order::Remove(_) = order {
            let there: Vec<_> = world.trees.keys().copied().collect();
            for id in there {
                let group = world.database.group_of(id).ok().flatten();
                if group.is_none_or(|seen| seen.record.read_write_site().is_none()) {
                    world.trees.remove(&id);
                    world.gone.insert(id);
                }
            }
        }
        true
    }

    fn attempt(&mut self, order: &Order, stops: bool) -> Result<(), Error> {
        let left = {
            let mut world = self.world.lock();
            let stops = stops && world.one_in(2);
            let left =
                if stops { Left::Some(world.rng.random_range(0..STOPS_WITHIN), world.one_in(2)) } else { Left::All };
            world.note(|| format!("ORDER {order:?}, {left:?}"));
            left
        };
        let world = self.world;
        let coming = |name: &Name, volume: &VolumeInfo| {
            let mut world = world.lock();
            if let Some(sealed) = world.sealed.get(&(volume.tree, volume.epoch)).map(Arc::clone) {
                world.coming.entry(name.clone()).or_default().push(sealed);
            }
        };
        let result = lead(world, &mut self.tally, left, |job| order.lead(job, &coming));
        world.lock().note(|| format!("ORDER ends: {result:?}"));
        result
    }

    fn lead<T>(&mut self, left: Left, act: impl FnOnce(&Job<'_>) -> Result<T, Error>) -> Result<T, Error> {
        lead(self.world, &mut self.tally, left, act)
    }
}

/// Somebody new leads something; whoever led before is gone.
fn lead<T>(
    world: &Mutex<World>,
    tally: &mut Tally,
    left: Left,
    act: impl FnOnce(&Job<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    tally.attempts += 1;
    let leader = Leader::new(world, tally.attempts, left);
    let is_over = |_: &Busy| true;
    let who = Who { by: format!("leader {}", tally.attempts), now_secs: &|| 7, is_over: &is_over };
    let result = act(&Job { servers: &leader, who, dry_run: false, tell: &|_| {} });
    tally.stopped += u64::from(leader.ends());
    result
}
