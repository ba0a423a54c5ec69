//! The cell and its time: servers, the users of sessions, and all events that no call causes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Answer, Call, Fault, Name, Pull, ReplyAddress, Revision, Time, VolumeId};

use super::database::Database;
use super::house::SimHouse;
use super::mutation::StepMutation;
use super::reference::{Reference, Sealed};
use super::servers::Death;
use super::sessions::{SessionPeer, SessionUser};
use super::wires::Wires;

/// An event that no call causes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Up(usize),
    Tick(usize, u64),
    Pull(usize, u64, u64),
    Client(usize),
    Strike,
}

/// The simulated cell; see the head of the file.
pub struct World {
    /// The present time of the simulation, of no machine's clock.
    pub now: Time,
    /// The source of all choices.
    pub rng: SmallRng,
    /// The servers.
    pub houses: Vec<SimHouse>,
    /// The cell database.
    pub database: Arc<Database>,
    /// The network between the machines.
    pub wires: Wires,
    /// The expected contents of read-write volumes.
    pub trees: BTreeMap<VolumeId, Reference>,
    /// The contents of sealed epochs, by tree and epoch.
    pub sealed: BTreeMap<(VolumeId, u64), Arc<Sealed>>,
    /// The contents with which volumes that are being made may begin, by name.
    pub coming: BTreeMap<Name, Vec<Arc<Sealed>>>,
    /// Restores over volumes, by server and volume, that were ordered to be finished and have not
    /// been seen to be, with the names of the volumes' groups.
    pub(super) half_over: BTreeMap<(usize, VolumeId), Name>,
    /// Volumes that show restored contents before the restore was answered.
    pub came_over: BTreeSet<VolumeId>,
    /// Read-write volumes that were removed.
    pub gone: BTreeSet<VolumeId>,
    /// The present leaders, by their names in claims.
    pub leading: BTreeSet<String>,
    /// Number of leaders so far.
    pub leaders: u64,
    /// A claim was removed: a part of its operation may be left.
    pub forced: bool,
    /// The step that leaders do wrongly.
    pub mutation: Option<StepMutation>,
    /// Faults that are yet to strike.
    pub faults_left: u32,
    /// Servers that die in the middle of the next change that an administrator or a pull makes
    /// there.
    pub armed: Vec<Option<Death>>,
    /// Calls for which clients wait.
    pub(super) waiting: HashMap<(usize, ReplyAddress), (usize, VolumeId, Call)>,
    pub(super) clients: usize,
    pub(super) quiet: bool,
    /// Effects of services are dropped.
    pub(super) muted: bool,
    pub(super) replies: HashMap<(usize, ReplyAddress), Result<Answer, Fault>>,
    /// Volumes that waiting calls will seal.
    pub(super) sealing: HashMap<(usize, ReplyAddress), VolumeId>,
    pub(super) peers: BTreeMap<SessionUser, SessionPeer>,
    /// For each server: its power was lost since it last ran.
    pub(super) powerless: Vec<bool>,
    /// For each server: it lost its power or was stopped in a sync at least once. An orphan body
    /// may be left then.
    pub(super) powerless_once: Vec<bool>,
    pub(super) pulls: BTreeMap<(usize, u64, u64), Pull>,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    queued: u64,
    violation: Option<String>,
    history: Option<String>,
    /// Number of calls, for the summary.
    pub calls: u64,
    /// Number of deaths of servers, for the summary.
    pub deaths: u64,
}

impl World {
    /// A cell of servers that are up, without volumes. `trace`: records a history.
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed_ce11);
        let servers = rng.random_range(2..=4);
        let wires = Wires::new(rng.random(), servers);
        let mut world = World {
            now: Time::ZERO,
            houses: Vec::new(),
            database: Arc::default(),
            wires,
            trees: BTreeMap::new(),
            sealed: BTreeMap::new(),
            coming: BTreeMap::new(),
            half_over: BTreeMap::new(),
            came_over: BTreeSet::new(),
            gone: BTreeSet::new(),
            leading: BTreeSet::new(),
            leaders: 0,
            forced: false,
            mutation: None,
            faults_left: 0,
            armed: vec![None; servers],
            waiting: HashMap::new(),
            clients: rng.random_range(1..=3),
            quiet: false,
            muted: false,
            replies: HashMap::new(),
            sealing: HashMap::new(),
            peers: BTreeMap::new(),
            powerless: vec![false; servers],
            powerless_once: vec![false; servers],
            pulls: BTreeMap::new(),
            queue: BinaryHeap::new(),
            queued: 0,
            violation: None,
            history: trace.then(String::new),
            calls: 0,
            deaths: 0,
            rng,
        };
        for no in 0..servers {
            let partitions = world.rng.random_range(1..=2);
            let house = SimHouse::new(no, partitions, &mut world.rng);
            world.database.put_server(&house.info, Revision(0)).expect("a new server");
            world.houses.push(house);
            world.start(no);
        }
        for client in 0..world.clients {
            world.after(Duration::from_millis(10), Happening::Client(client));
        }
        world
    }

    // History and violations.

    /// Records an event.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.since_start().as_secs_f64();
        if let Some(history) = &mut self.history {
            let _ = writeln!(history, "{now:>12.6} {}", what());
        }
    }

    /// All events, if they were recorded.
    pub fn history(&mut self) -> String {
        self.history.take().unwrap_or_default()
    }

    /// Reports a rule that did not hold; the first report counts.
    pub fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    /// The first rule that did not hold.
    pub fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    // The passage of time.

    pub(super) fn after(&mut self, delay: Duration, what: Happening) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + delay, self.queued, what)));
    }

    /// A random time up to `most`.
    pub fn upto(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.random_range(0..=most.as_micros() as u64))
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.happens_by(until) {}
        self.now = until;
    }

    /// The next event happens, if it is due by then; returns whether it did.
    pub(super) fn happens_by(&mut self, until: Time) -> bool {
        if self.queue.peek().is_none_or(|Reverse((at, ..))| *at > until) {
            return false;
        }
        let Some(Reverse((at, _, what))) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match what {
            Happening::Up(no) => self.start(no),
            Happening::Tick(no, life) => self.tick(no, life),
            Happening::Pull(no, life, task) => self.pull_on(no, life, task),
            Happening::Client(client) => self.client_acts(client),
            Happening::Strike => self.strike(),
        }
        true
    }
}
