//! Volumes of several servers under faults: operations of administrators, stopped anywhere.
//!
//! The code under test is the code that ships: the steps of `vos`, `vice` over `store` on machines
//! in memory, pulls ([`vice::Fetch`]). Simulated are the leaders of operations and their stops,
//! lost calls, servers that die (between two calls, or at a sync in the middle of one) and lose
//! unsynced data, and the clients that work in the volumes meanwhile. One seed decides everything,
//! and one thread runs at a time: while a leader waits for an answer, [`world::World`] lets all
//! other events happen.
//!
//! Each run orders a few operations, one after the other; an operation that was stopped is ordered
//! again, until it is done or faults are over. At each call: no volume is served by two servers,
//! and each shows what the model of its tree holds, or held when the epoch was sealed. At the end:
//! each volume exists once, where the database lists it; no claim and no temporary volume is left,
//! and a scrub of the disks finds nothing.

mod clients;
pub(crate) mod database;
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
use types::{Busy, Name, VolumeId, VolumeInfo};
use vos::{Job, JobLeader, VosError};

pub use mutation::StepMutation;

use leader::{Leader, LeaderSeat, Left, Table};
use order::VolumeOrder;
use world::World;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct CellRunOutcome {
    /// The rule that did not hold, if any.
    pub violation: Option<String>,
    /// All events, if the run was traced.
    pub history: String,
    /// Counters for the summary.
    pub tally: VolumeTally,
}

/// Counters for the summary of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeTally {
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

impl VolumeTally {
    /// Adds another run's counters.
    pub fn add(&mut self, other: &VolumeTally) {
        let VolumeTally { ordered, attempts, stopped, calls, deaths } = other;
        self.ordered += ordered;
        self.attempts += attempts;
        self.stopped += stopped;
        self.calls += calls;
        self.deaths += deaths;
    }
}

/// A leader may be stopped within so many calls.
const STOPS_WITHIN: u32 = 60;
/// Attempts at an operation while there are faults.
const ATTEMPTS_MAX: u32 = 4;
/// Attempts after the faults.
const HEALED_ATTEMPTS_MAX: u32 = 6;
/// The time in which faults strike.
const FAULTS_OVER: Duration = Duration::from_secs(60);
/// The time after the faults in which freezes, leases and doubts end.
const SETTLES: Duration = Duration::from_secs(60);

/// Runs one seed. `trace`: with a history.
pub fn run(seed: u64, trace: bool) -> CellRunOutcome {
    run_broken(seed, trace, None)
}

/// Runs one seed, with a step that is done wrongly on purpose.
pub fn run_broken(seed: u64, trace: bool, mutation: Option<StepMutation>) -> CellRunOutcome {
    let mut world = World::new(seed, trace);
    world.mutation = mutation;
    let world = Mutex::new(world);
    let mut run = Run {
        world: &world,
        tally: VolumeTally::default(),
        left: Vec::new(),
        dump_given_up: false,
        seat: None,
    };
    run.all();
    let mut world = world.lock();
    let tally = VolumeTally { calls: world.calls, deaths: world.deaths, ..run.tally };
    CellRunOutcome { violation: world.violation().cloned(), history: world.history(), tally }
}

struct Run<'w> {
    world: &'w Mutex<World>,
    tally: VolumeTally,
    /// Operations that were begun and not ended.
    left: Vec<VolumeOrder>,
    /// An operation that reads a dump was given up: a snapshot may be left until the next dump.
    dump_given_up: bool,
    /// The place of this run's leaders among leaders that run at the same time.
    seat: Option<LeaderSeat<'w>>,
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
            let order = VolumeOrder::draw(&mut self.world.lock(), number);
            let order = self.what_is_begun_first(order);
            if self.world.lock().one_in(4) {
                let second = VolumeOrder::draw(&mut self.world.lock(), orders + number);
                let second = self.what_is_begun_first(second);
                self.at_once(&[order, second]);
            } else {
                self.tally.ordered += 1;
                if !self.through(&order, ATTEMPTS_MAX, true) && !self.unlocked(&order) {
                    self.left.push(order);
                }
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
        let mut left = std::mem::take(&mut self.left);
        // Of two operations on one volume, one may wait for the other.
        for _ in 0..left.len() {
            left.retain(|order| !self.through(order, HEALED_ATTEMPTS_MAX, false));
        }
        let before = left.len();
        left.retain(|order| !(self.is_baseless(order) && self.take_claims_off(order)));
        // Other operations wait for the volumes that these announced and will never make. Without
        // the claims they finish, or find nothing.
        if left.len() < before {
            for _ in 0..left.len() {
                left.retain(|order| !self.through(order, HEALED_ATTEMPTS_MAX, false));
            }
        }
        for order in left {
            self.world.lock().violate(format!("progress: {order:?} does not come to its end"));
        }
        self.mend();
        let mut world = self.world.lock();
        world.quiet = true;
        world.pass(SETTLES);
        world.judge_end();
    }

    /// An unfinished operation on the same volumes comes first; returns it, otherwise `order`.
    fn what_is_begun_first(&mut self, order: VolumeOrder) -> VolumeOrder {
        let names: Vec<Name> = order.names().into_iter().cloned().collect();
        let before = self
            .left
            .iter()
            .position(|one| one.names().into_iter().any(|name| names.contains(name)));
        before.map_or(order, |at| self.left.remove(at))
    }

    /// Runs the operations of several administrators at once, on the same volumes or on others.
    fn at_once(&mut self, orders: &[VolumeOrder]) {
        let (world, table) = (self.world, Table::new(orders.len()));
        let done = std::thread::scope(|scope| {
            let seats = (0..orders.len()).map(|at| LeaderSeat { table: &table, at });
            let lead = |(order, seat)| scope.spawn(move || lead_beside_others(world, order, seat));
            let all: Vec<_> = orders.iter().zip(seats).map(lead).collect();
            all.into_iter()
                .map(|one| one.join().expect("a leader does not panic"))
                .collect::<Vec<_>>()
        });
        for (tally, left) in done {
            self.tally.add(&tally);
            self.tally.ordered += 1;
            self.left.extend(left);
        }
    }

    /// Now and then an administrator removes the claims of an operation that does not end, and
    /// gives the operation up.
    fn unlocked(&mut self, order: &VolumeOrder) -> bool {
        self.world.lock().one_in(3) && self.take_claims_off(order)
    }

    /// Returns whether the source of the operation is gone, so that an administrator must give it
    /// up.
    fn is_baseless(&self, order: &VolumeOrder) -> bool {
        let (VolumeOrder::Clone(of, _) | VolumeOrder::Copy(of, ..) | VolumeOrder::Restore(of, ..)) =
            order
        else {
            return false;
        };
        let group = self.world.lock().database.group_named(of).ok().flatten();
        group.is_none_or(|group| group.record.read_write_site().is_none())
    }

    /// An administrator removes the claims of an operation and gives the operation up.
    fn take_claims_off(&mut self, order: &VolumeOrder) -> bool {
        let names: Vec<Name> = order.names().into_iter().cloned().collect();
        let unlock = |job: &Job<'_>| {
            for name in &names {
                if let Some(group) = job.servers.db().group_named(name)? {
                    vos::unlock(job, group)?;
                }
            }
            Ok(())
        };
        let claims = |world: &World| {
            let groups =
                names.iter().filter_map(|name| world.database.group_named(name).ok().flatten());
            groups.filter(|group| group.record.busy.is_some()).count()
        };
        let before = claims(&self.world.lock());
        let removals = self.removals(&names);
        let unlocked = self.lead(Left::All, unlock).is_ok();
        let off = {
            let mut world = self.world.lock();
            // Also if only the answer was lost: the database has no claim then.
            let off = unlocked || claims(&world) < before;
            world.forced |= off;
            off
        };
        if off {
            self.may_be_gone(removals);
        }
        // A removal may have been done, and only its last answer lost.
        unlocked && self.done(order)
    }

    /// The groups of these names that removals have claimed, of this order or of another one.
    fn removals(&self, names: &[Name]) -> Vec<VolumeId> {
        let world = self.world.lock();
        let found = names.iter().filter_map(|name| world.database.group_named(name).ok().flatten());
        let is_removed = |busy: &Busy| busy.operation == "remove";
        found
            .filter(|seen| seen.record.busy.as_ref().is_some_and(is_removed))
            .map(|seen| seen.record.read_write)
            .collect()
    }

    /// It is unknown whether removals without an end were done at their servers, unless a server
    /// shows the volume.
    fn may_be_gone(&self, numbers: Vec<VolumeId>) {
        let mut world = self.world.lock();
        for number in numbers {
            if !world.is_served(number) {
                world.trees.remove(&number);
                world.gone.insert(number);
            }
        }
    }

    /// Repairs what is left after claims were removed, as administrators do it, and releases every
    /// volume to all its sites.
    fn mend(&mut self) {
        let servers: Vec<_> = self.world.lock().houses.iter().map(|house| house.info.id).collect();
        if self.world.lock().forced {
            let mended = self.lead(Left::All, |job| {
                servers
                    .iter()
                    .try_for_each(|server| vos::sync_database(job, *server, None).map(drop))?;
                vos::sync_servers(job, None, None).map(drop)
            });
            if let Err(error) = mended {
                self.world
                    .lock()
                    .violate(format!("progress: what was left cannot be mended: {error}"));
            }
        }
        let groups = self.world.lock().database.groups(VolumeId(0), usize::MAX).unwrap_or_default();
        for group in groups.into_iter().filter(|group| group.record.read_write_site().is_some()) {
            let has_sites =
                group.record.sites.iter().any(|site| site.kind == types::SiteKind::ReadOnly);
            let order = VolumeOrder::Release(group.record.name);
            if has_sites && !self.through(&order, HEALED_ATTEMPTS_MAX, false) {
                self.world.lock().violate(format!("progress: {order:?} does not come to its end"));
            }
        }
        if self.dump_given_up {
            self.dump_again();
        }
    }

    /// The next dump removes the snapshot that one left whose operation was given up.
    fn dump_again(&mut self) {
        let groups = self.world.lock().left_by_dumps();
        for name in groups {
            if let Err(error) =
                self.lead(Left::All, |job| order::dumped(job, &name, 0, &|_| {}).map(drop))
            {
                let name = judge::text(&name);
                self.world.lock().violate(format!("progress: {name} cannot be dumped: {error}"));
            }
        }
    }

    /// Attempts an operation until it is done; returns whether it is.
    fn through(&mut self, order: &VolumeOrder, attempts: u32, stops: bool) -> bool {
        for _ in 0..attempts {
            let error = match self.attempt(order, stops) {
                Ok(()) => return self.done(order),
                Err(error) => error,
            };
            let mut world = self.world.lock();
            if world.violation().is_some() {
                return true;
            }
            let refused = matches!(
                error,
                VosError::Refused { .. }
                    | VosError::Unfit(_)
                    | VosError::HalfRestored
                    | VosError::NoVolume
                    | VosError::Cell(_)
            );
            if refused && !stops && order.is_settled(&world) {
                drop(world);
                self.dump_given_up |= order.reads_a_dump();
                return self.done(order);
            }
            let pause = world.upto(Duration::from_secs(15));
            world.pass(pause);
        }
        false
    }

    /// Marks a volume that was removed as gone.
    fn done(&mut self, order: &VolumeOrder) -> bool {
        let mut world = self.world.lock();
        if let VolumeOrder::Remove(_) = order {
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

    fn attempt(&mut self, order: &VolumeOrder, stops: bool) -> Result<(), VosError> {
        let left = {
            let mut world = self.world.lock();
            let stops = stops && world.one_in(2);
            let left = if stops {
                Left::Some(world.rng.random_range(0..STOPS_WITHIN), world.one_in(2))
            } else {
                Left::All
            };
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
        let result =
            lead(world, &mut self.tally, (left, self.seat), |job| order.lead(job, &coming));
        let mut world = world.lock();
        world.note(|| format!("ORDER ends: {result:?}"));
        if let (VolumeOrder::Over(_, over, _), Ok(())) = (order, &result) {
            let group =
                world.database.group_named(over).ok().flatten().map(|seen| seen.record.read_write);
            if group.is_some_and(|tree| !world.came_over.remove(&tree)) {
                world.violate(format!(
                    "VO-1: {} was restored, it is said, and shows what it had",
                    judge::text(over)
                ));
            }
        }
        result
    }

    fn lead<T>(
        &mut self,
        left: Left,
        act: impl FnOnce(&Job<'_>) -> Result<T, VosError>,
    ) -> Result<T, VosError> {
        lead(self.world, &mut self.tally, (left, self.seat), act)
    }
}

/// Leads an order while others lead theirs; returns the counters, and the order if it is not done.
fn lead_beside_others(
    world: &Mutex<World>,
    order: &VolumeOrder,
    seat: LeaderSeat<'_>,
) -> (VolumeTally, Vec<VolumeOrder>) {
    let mut run = Run {
        world,
        tally: VolumeTally::default(),
        left: Vec::new(),
        dump_given_up: false,
        seat: Some(seat),
    };
    seat.wait();
    let _leaves = Leaves { world, seat };
    if !run.through(order, ATTEMPTS_MAX, true) {
        run.left.push(order.clone());
    }
    (run.tally, run.left)
}

/// Gives the leader's turn away, also on a panic.
struct Leaves<'w> {
    world: &'w Mutex<World>,
    seat: LeaderSeat<'w>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.seat.leave(self.world);
    }
}

/// A new leader does something. Claims of earlier leaders are void, except those of leaders that
/// run at the same time.
fn lead<T>(
    world: &Mutex<World>,
    tally: &mut VolumeTally,
    (left, seat): (Left, Option<LeaderSeat<'_>>),
    act: impl FnOnce(&Job<'_>) -> Result<T, VosError>,
) -> Result<T, VosError> {
    tally.attempts += 1;
    let leader = Leader::new(world, left, seat);
    let is_over = |busy: &Busy| !world.lock().leading.contains(&busy.by);
    let who = JobLeader { by: leader.by(), now_secs: &|| 7, is_over: &is_over };
    let result = act(&Job { servers: &leader, who, dry_run: false, tell: &|_| {} });
    tally.stopped += u64::from(leader.ends());
    result
}
