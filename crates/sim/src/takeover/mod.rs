//! A volume with standbys under faults (`docs/spec/standby.md`).
//!
//! The code under test is the code that ships: `vice` over `store` on machines in memory, its feeds
//! and followers, and the commands of `vos`. Simulated are the network, clocks that run apart, the
//! cell database behind lines that lose questions, answers and order, the drivers of servers, and
//! clients that follow the volume as the shipped client does. One seed decides everything.
//!
//! At each read and grant: a log has each change once, all that was acknowledged before, and no
//! earlier read had more; a lock has one holder. At the end: faults are over, one server serves the
//! volume, all standbys are in step, each operation has ended, and all that was acknowledged is
//! there, or its client was told that an asynchronous standby lacks it.

mod apps;
mod client;
mod database;
mod faults;
mod house;
mod judge;
mod leader;
mod mutation;
mod servers;
mod wire;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use types::{Answer, Call, Name, VolumeCall};

pub use mutation::TakeoverMutation;

use apps::name_of;
use world::StandbyWorld;

/// The time in which faults strike.
const FAULTS_OVER: Duration = Duration::from_secs(80);
/// The time after the faults in which all ends well.
const SETTLES: Duration = Duration::from_secs(150);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The manner of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverOptions {
    /// A rule that is broken on purpose.
    pub mutation: Option<TakeoverMutation>,
    /// Record all events.
    pub trace: bool,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct TakeoverOutcome {
    /// The rule that did not hold, if any.
    pub violation: Option<String>,
    /// All events, if the run was traced.
    pub history: String,
    /// Counters for the summary.
    pub tally: TakeoverTally,
}

/// Counters for the summary of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverTally {
    /// Calls of clients.
    pub calls: u64,
    /// Reads from caches.
    pub cached: u64,
    /// Changes that clients know as done.
    pub done: u64,
    /// Deaths of servers.
    pub deaths: u64,
    /// Takeovers in the database.
    pub takeovers: u64,
    /// Clients that followed the volume.
    pub followed: u64,
    /// Replies of a former server.
    pub inherited: u64,
    /// Operations whose outcome stayed unknown.
    pub unknown: u64,
    /// Changes that were named as lost.
    pub named: u64,
    /// Such changes that are there all the same.
    pub needless: u64,
    /// Locks that were granted.
    pub locked: u64,
    /// Commands of administrators, and those that were refused.
    pub ordered: u64,
    /// See `ordered`.
    pub refused: u64,
    /// Questions of standbys that had entries to apply.
    pub ahead: u64,
}

impl TakeoverTally {
    /// Adds another run's counters.
    pub fn add(&mut self, other: &TakeoverTally) {
        let pairs = [
            (&mut self.calls, other.calls),
            (&mut self.cached, other.cached),
            (&mut self.done, other.done),
            (&mut self.deaths, other.deaths),
            (&mut self.takeovers, other.takeovers),
            (&mut self.followed, other.followed),
            (&mut self.inherited, other.inherited),
            (&mut self.unknown, other.unknown),
            (&mut self.named, other.named),
            (&mut self.needless, other.needless),
            (&mut self.locked, other.locked),
            (&mut self.ordered, other.ordered),
            (&mut self.refused, other.refused),
            (&mut self.ahead, other.ahead),
        ];
        pairs.into_iter().for_each(|(sum, one)| *sum += one);
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Runs one seed.
pub fn run(seed: u64, options: TakeoverOptions) -> TakeoverOutcome {
    let world = Mutex::new(StandbyWorld::new(seed, options));
    let until = {
        let mut world = world.lock();
        let faults = if world.one_in(8) { 0 } else { world.rng.random_range(1..=7) };
        world.plan_faults(faults, FAULTS_OVER);
        world.now + FAULTS_OVER + Duration::from_secs(10)
    };
    pass(&world, until);
    world.lock().heal();
    let mut left = SETTLES;
    loop {
        let until = world.lock().now + LOOK;
        pass(&world, until);
        left = left.saturating_sub(LOOK);
        let mut world = world.lock();
        if world.violation.is_some() || world.is_well() || left.is_zero() {
            break;
        }
    }
    let mut world = world.into_inner();
    world.judge_end();
    TakeoverOutcome {
        violation: world.violation,
        history: world.history.unwrap_or_default(),
        tally: world.tally,
    }
}

/// Lets time pass, and gives commands as they come.
fn pass(world: &Mutex<StandbyWorld>, until: types::Time) {
    loop {
        let order = {
            let mut world = world.lock();
            if world.violation.is_some() {
                return;
            }
            world.orders.pop()
        };
        if let Some(order) = order {
            leader::carry_out(world, &order);
        } else if !world.lock().happens_by(until) {
            return;
        }
    }
}

impl StandbyWorld {
    /// Whether all is as it shall be after the faults.
    fn is_well(&mut self) -> bool {
        let idle =
            self.clients.iter().flatten().all(|client| {
                client.is_at_home() && client.apps.iter().all(|app| !app.state.waits())
            });
        let home = self.home();
        idle && self.all_in_step() && self.serves_now(home)
    }

    /// Judges the end of a run.
    fn judge_end(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let home = self.home();
        if !self.is_well() {
            let all: Vec<_> =
                self.clients.iter().flatten().map(client::TakeoverClient::unfinished).collect();
            let serves = self.serves_now(home);
            let (in_step, all) = (self.all_in_step(), all.join("; "));
            let which = types::WhichVolume::Id(world::TREE);
            let found = self.call_now(home, Call::Volume(VolumeCall::Examine { volume: which }));
            let state = found.map(|found| match found {
                Answer::Volumes { volumes, .. } => volumes.first().map(|volume| volume.state),
                _ => None,
            });
            let what = format!(
                "no end: {home} serves {serves}, its volume is {state:?}, in step {in_step}: {all}"
            );
            return self.violate(what);
        }
        for no in (0..self.houses.len()).filter(|no| *no != home) {
            if self.serves_now(no) {
                self.violate(format!("SB-3: {home} and {no} serve the volume"));
            }
        }
        let mut logs = Vec::new();
        for fid in self.logs.clone() {
            match self.call_now(home, Call::Read { fid, offset: 0, length: 1 << 20 }) {
                Ok(Answer::Data { data, .. }) => logs.push(data.to_vec()),
                other => return self.violate(format!("a log cannot be read: {other:?}")),
            }
        }
        let mut names = BTreeSet::new();
        let made: Vec<u64> = self.judge.names();
        for token in made {
            let call = Call::Lookup { dir: self.root, name: name_of(token) };
            match self.call_now(home, call) {
                Ok(Answer::Entry { .. }) => _ = names.insert(token),
                Ok(_) | Err(types::Fault::NotFound) => {}
                Err(fault) => return self.violate(format!("a lookup is refused: {fault}")),
            }
        }
        match self.judge.end(&logs, &names) {
            Ok(needless) => self.tally.needless = needless,
            Err(what) => self.violate(what),
        }
        self.tally.done = self.judge.done_count();
    }
}
