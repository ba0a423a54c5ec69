//! The cell and its time: servers, those who have sessions with them, and everything that happens
//! by itself.

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

/// Something that happens by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    Up(usize),
    Tick(usize, u64),
    Pull(usize, u64, u64),
    Client(usize),
    Strike,
}

/// See the head of the file.
pub struct World {
    /// The moment, on no machine's clock.
    pub now: Time,
    /// Where every choice comes from.
    pub rng: SmallRng,
    /// The servers.
    pub houses: Vec<SimHouse>,
    /// The database.
    pub database: Arc<Database>,
    /// Between machines.
    pub wires: Wires,
    /// What read-write volumes hold.
    pub trees: BTreeMap<VolumeId, Reference>,
    /// What sealed epochs show, by tree and epoch.
    pub sealed: BTreeMap<(VolumeId, u64), Arc<Sealed>>,
    /// What volumes that are being made may begin with, by name.
    pub coming: BTreeMap<Name, Vec<Arc<Sealed>>>,
    /// Volumes that showed what came over them, of which nobody has said yet that it is done.
    pub came_over: BTreeSet<VolumeId>,
    /// Read-write volumes that were removed.
    pub gone: BTreeSet<VolumeId>,
    /// Who leads something now, as claims call them.
    pub leading: BTreeSet<String>,
    /// Leaders that there were.
    pub leaders: u64,
    /// Somebody's claim was taken off: what that one had begun may be left.
    pub forced: bool,
    /// What whoever leads does wrongly.
    pub mutation: Option<StepMutation>,
    /// Faults that are still to strike.
    pub faults_left: u32,
    /// Servers that die in the middle of the next change that an administrator or a pull makes
    /// there.
    pub armed: Vec<Option<Death>>,
    /// What clients wait for.
    pub(super) waiting: HashMap<(usize, ReplyAddress), (usize, VolumeId, Call)>,
    pub(super) clients: usize,
    pub(super) quiet: bool,
    /// What services put out is lost.
    pub(super) muted: bool,
    pub(super) replies: HashMap<(usize, ReplyAddress), Result<Answer, Fault>>,
    /// Volumes that are to be sealed by calls that wait.
    pub(super) sealing: HashMap<(usize, ReplyAddress), VolumeId>,
    pub(super) peers: BTreeMap<SessionUser, SessionPeer>,
    /// Its power was lost since it last ran.
    pub(super) powerless: Vec<bool>,
    /// Whether it ever lost its power, or was stopped in a sync: a body that nothing names may be
    /// left then.
    pub(super) powerless_once: Vec<bool>,
    pub(super) pulls: BTreeMap<(usize, u64, u64), Pull>,
    queue: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    queued: u64,
    violation: Option<String>,
    history: Option<String>,
    /// Calls, for people.
    pub calls: u64,
    /// Deaths of servers, for people.
    pub deaths: u64,
}

impl World {
    /// A cell of servers that are up, with nothing in it. `trace`: keeps a history.
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

    // Telling.

    /// Something that happened.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.since_start().as_secs_f64();
        if let Some(history) = &mut self.history {
            let _ = writeln!(history, "{now:>12.6} {}", what());
        }
    }

    /// All that happened, if that was wanted.
    pub fn history(&mut self) -> String {
        self.history.take().unwrap_or_default()
    }

    /// A rule did not hold; the first counts.
    pub fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    /// The rule that did not hold.
    pub fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    // Time.

    pub(super) fn after(&mut self, delay: Duration, what: Happening) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + delay, self.queued, what)));
    }

    /// A time up to `most`.
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

    /// The next thing happens, if that is by then.
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
