//! Servers of a cell in memory, and the time that bytes take between them.
//!
//! Model. A server sends its answers through its line, one behind the other, at
//! [`LINE_BYTES_A_SECOND`]; a transfer takes [`WAY`] in addition. Computing takes no time. Pulls
//! run by themselves; a call of the leader is done at one moment. A server that dies loses its
//! unsynced data, its answers under way, and its pulls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, Call, Caller, ClientId, Fault, Pull, ReplyAddress, Revision, ServerId, TaskState, Time,
    VolumeCall,
};
use vice::{Effect, Execution, Fetch, Unanswered, Work};

use super::super::database::Database;
use super::super::house::SimHouse;
use super::super::wires::Wires;
use crate::server::wall;

/// Bytes that one server can send in a second.
const LINE_BYTES_A_SECOND: u64 = 10_000_000;
/// Time from one machine to another.
pub(super) const WAY: Duration = Duration::from_millis(1);
/// Most bytes of an answer beside its payload: frame, message, and the headers of TCP and IP around
/// the packets of 64 KiB.
const AROUND_BYTES: u64 = 256;
const TICK: Duration = Duration::from_millis(500);
const SWEPT_AT_ONCE: usize = 16;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick,
    /// A pull continues.
    Drive(Running),
    /// An answer arrives at a pull, from this life of that server.
    Arrives(Running, (usize, u64), Parcel),
    Dies(usize),
}

/// A pull: server, its life, task.
type Running = (usize, u64, u64);

/// Number of an answer under way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Parcel(u64);

/// The simulated servers; see the head of the file.
pub(super) struct Fleet {
    pub(super) now: Time,
    pub(super) rng: SmallRng,
    /// The first one is the source, and has the database.
    pub(super) houses: Vec<SimHouse>,
    pub(super) database: Arc<Database>,
    wires: Wires,
    /// When each line is free.
    free: Vec<Time>,
    /// Bytes that each server sent, and that arrived there.
    pub(super) sent: Vec<u64>,
    pub(super) arrived: Vec<u64>,
    /// For each server that has fetched: the number of servers from the source to it.
    pub(super) depth: BTreeMap<usize, u32>,
    /// Servers that died.
    pub(super) died: BTreeSet<usize>,
    pulls: BTreeMap<Running, Pull>,
    parcels: BTreeMap<u64, Result<Answer, Unanswered>>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbered: u64,
    clients: u64,
}

impl Fleet {
    /// So many servers, which are up.
    pub(super) fn new(seed: u64, servers: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5eed_f1ee);
        let mut fleet = Fleet {
            now: Time::ZERO,
            houses: Vec::new(),
            database: Arc::default(),
            wires: Wires::new(rng.random(), servers),
            free: vec![Time::ZERO; servers],
            sent: vec![0; servers],
            arrived: vec![0; servers],
            depth: BTreeMap::new(),
            died: BTreeSet::new(),
            pulls: BTreeMap::new(),
            parcels: BTreeMap::new(),
            events: BinaryHeap::new(),
            numbered: 0,
            clients: 0,
            rng,
        };
        for no in 0..servers {
            let house = SimHouse::new(no, 1, &mut fleet.rng);
            fleet.database.put_server(&house.info, Revision(0)).expect("a new server");
            fleet.houses.push(house);
            fleet.start(no);
        }
        fleet.at(fleet.now + TICK, Event::Tick);
        fleet
    }

    pub(super) fn start(&mut self, no: usize) {
        if self.houses[no].up.is_none() {
            let Fleet { houses, rng, database, wires, now, .. } = self;
            houses[no].start(*now, no, rng, database, wires);
        }
    }

    pub(super) fn die(&mut self, no: usize) {
        if self.houses[no].up.take().is_none() {
            return;
        }
        self.wires.set_up(no, false);
        self.died.insert(no);
        self.pulls.retain(|(server, ..), _| *server != no);
        let seed = self.rng.random();
        for machine in &mut self.houses[no].machines {
            *machine = machine.power_loss(seed);
        }
    }

    /// The server dies after `delay`.
    pub(super) fn dies_in(&mut self, delay: Duration, no: usize) {
        self.at(self.now + delay, Event::Dies(no));
    }

    pub(super) fn number_of(&self, id: ServerId) -> usize {
        self.houses
            .iter()
            .position(|house| house.info.id == id)
            .expect("only servers of the cell are named")
    }

    /// Resets the counts of bytes and the depths.
    pub(super) fn count_anew(&mut self) {
        self.sent.fill(0);
        self.arrived.fill(0);
        self.depth.clear();
        self.died.clear();
    }

    fn at(&mut self, at: Time, what: Event) {
        self.numbered += 1;
        self.events.push(Reverse((at, self.numbered, what)));
    }

    /// Time passes until then.
    pub(super) fn pass_until(&mut self, until: Time) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, what))) = self.events.pop() else { break };
            self.now = self.now.max(at);
            match what {
                Event::Tick => self.tick(),
                Event::Drive(running) => self.drive(running),
                Event::Arrives(to, from, parcel) => self.arrives(to, from, &parcel),
                Event::Dies(no) => self.die(no),
            }
        }
        self.now = self.now.max(until);
    }

    fn tick(&mut self) {
        for no in 0..self.houses.len() {
            let Some(life) = &self.houses[no].up else { continue };
            let (vice, now) = (Arc::clone(&life.vice), self.houses[no].clock.read(self.now));
            vice.tick(now, &mut Vec::new());
            for partition in vice.partitions().iter() {
                partition
                    .sweep(SWEPT_AT_ONCE)
                    .and_then(|_| partition.sync_all())
                    .expect("a disk without faults");
            }
        }
        self.at(self.now + TICK, Event::Tick);
    }

    /// A call, done at this moment; `None` if the server does not answer. No client here has
    /// promises, so no call has to wait.
    pub(super) fn perform(&mut self, no: usize, call: &Call) -> Option<Result<Answer, Fault>> {
        let life = self.houses[no].up.as_ref()?;
        let (vice, now, wall) =
            (Arc::clone(&life.vice), self.houses[no].clock.read(self.now), wall(self.now));
        self.clients += 1;
        let mut effects = Vec::new();
        let attached = vice.attach(now, ClientId(u128::from(self.clients)), 1, &mut effects);
        let session = match attached {
            Ok(attached) => attached.session,
            Err(fault) => return Some(Err(fault)),
        };
        let origin = ReplyAddress { session, slot: 0, request: 1 };
        vice.perform(Execution::new(now, wall, &Caller::ROOT, origin), call.clone(), &mut effects);
        let reply = effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { origin: of, result, .. } if of == origin => Some(result),
            _ => None,
        });
        vice.detach(now, session, &mut Vec::new());
        self.begin_pulls(no);
        reply
    }

    fn begin_pulls(&mut self, no: usize) {
        let house = &mut self.houses[no];
        let (Some(life), of) = (&mut house.up, house.life) else { return };
        let ordered = std::mem::take(&mut *life.pulls.ordered.lock());
        for (pull, task) in ordered {
            let running = (no, of, task.number);
            if let Some(life) = &mut self.houses[no].up {
                life.fetches.insert(task.number, Fetch::new(pull.clone(), task));
            }
            self.pulls.insert(running, pull);
            self.at(self.now, Event::Drive(running));
        }
    }

    /// Everything that a pull can do before an answer arrives.
    fn drive(&mut self, running: Running) {
        let (no, life, task) = running;
        if self.houses[no].life != life {
            return;
        }
        let Some(mut fetch) = self.houses[no].up.as_mut().and_then(|up| up.fetches.remove(&task))
        else {
            return;
        };
        let mut over = false;
        loop {
            if let Some(call) = fetch.question() {
                self.ask(running, call);
            }
            let Some(up) = &self.houses[no].up else { return };
            let (vice, now) = (Arc::clone(&up.vice), self.houses[no].clock.read(self.now));
            match vice.work(&mut fetch, now, wall(self.now), &mut Vec::new()) {
                Work::Did => {}
                Work::Waits => break,
                Work::Pause(pause) => {
                    self.at(self.now + pause, Event::Drive(running));
                    break;
                }
                Work::Over => {
                    over = true;
                    break;
                }
            }
        }
        if over && fetch.task().state == TaskState::Done {
            let above = self.pulls.get(&running).and_then(|pull| self.source_of(pull));
            let depth = above.and_then(|above| self.depth.get(&above)).map_or(1, |above| above + 1);
            self.depth.insert(no, depth);
        }
        let Some(up) = &mut self.houses[no].up else { return };
        up.pulls.tasks.lock().put(fetch.task());
        if over {
            self.pulls.remove(&running);
        } else {
            up.fetches.insert(task, fetch);
        }
    }

    fn source_of(&self, pull: &Pull) -> Option<usize> {
        let from = pull.from.first()?;
        self.houses.iter().position(|house| house.info.addresses.contains(from))
    }

    /// A pull calls the other server, whose answer takes time.
    fn ask(&mut self, running: Running, call: VolumeCall) {
        let lost = Err(Unanswered::Lost("it does not answer".to_owned()));
        let from = self
            .pulls
            .get(&running)
            .and_then(|pull| self.source_of(pull))
            .expect("pulls name servers");
        let answer = match self.perform(from, &Call::Volume(call)) {
            Some(answer) => answer.map_err(Unanswered::Refused),
            None => lost,
        };
        let payload = if let Ok(Answer::Part(part)) = &answer { part.len() as u64 } else { 0 };
        let bytes = payload + AROUND_BYTES * (1 + payload / 65_536);
        let begins = self.free[from].max(self.now + WAY);
        self.free[from] =
            begins + Duration::from_nanos(bytes * 1_000_000_000 / LINE_BYTES_A_SECOND);
        self.sent[from] += bytes;
        self.numbered += 1;
        let parcel = self.numbered;
        self.parcels.insert(parcel, answer);
        let arrival = self.free[from] + WAY;
        let sender = (from, self.houses[from].life);
        self.at(arrival, Event::Arrives(running, sender, Parcel(parcel)));
    }

    fn arrives(&mut self, to: Running, from: (usize, u64), parcel: &Parcel) {
        let Some(mut answer) = self.parcels.remove(&parcel.0) else { return };
        let sender = &self.houses[from.0];
        if sender.up.is_none() || sender.life != from.1 {
            answer = Err(Unanswered::Lost("it is gone".to_owned()));
        }
        let (no, life, task) = to;
        if self.houses[no].life != life {
            return;
        }
        let Some(fetch) = self.houses[no].up.as_mut().and_then(|up| up.fetches.get_mut(&task))
        else {
            return;
        };
        if let Ok(Answer::Part(part)) = &answer {
            self.arrived[no] += part.len() as u64;
        }
        fetch.answered(answer);
        self.drive(to);
    }
}
