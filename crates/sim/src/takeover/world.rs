//! The cell and its time: servers, clients, messages and all other events.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use celldb::CellDb;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Fid, Revision, Site, SiteKind, Time, VolumeGroup, VolumeId};

use super::client::TakeoverClient;
use super::database::{DatabaseLine, LateChange};
use super::faults::Fault;
use super::house::{PARTITION, StandbyHouse, id, number};
use super::judge::TokenJudge;
use super::mutation::TakeoverMutation;
use super::wire::{Asker, Content, Network, SimMessage};
use super::{TakeoverOptions, TakeoverTally};
use crate::cell::database::Database;

/// The volume with standbys.
pub(super) const TREE: VolumeId = VolumeId(40);
/// The usual time of a message on its way, and that of one in some that is late.
const WAY: Duration = Duration::from_millis(2);
const LATE_WAY: Duration = Duration::from_millis(400);
const LATE_ONE_IN: u32 = 60;
/// A change of the database that comes late comes within this.
const LATE_CHANGE: Duration = Duration::from_secs(4);

/// One event.
pub(super) enum Occurrence {
    Arrive(Box<SimMessage>),
    Up(usize),
    /// The server dies, and stays down for a while.
    Death(usize),
    Tick(usize, u64),
    /// The step of a standby, with the server's life and the step's number.
    Step(usize, u64, u64),
    /// A standby applies what waits while its question is on its way.
    Apply(usize, u64),
    /// A client looks what is due.
    Mind(usize),
    /// An application of a client goes on.
    Act(usize, usize),
    LateChange(usize, Box<LateChange>),
    Strike,
    Mend(Fault),
}

/// See the head of the file.
pub(super) struct StandbyWorld {
    pub now: Time,
    pub rng: SmallRng,
    pub options: TakeoverOptions,
    /// Standbys ask for small answers at times.
    pub has_small_answers: bool,
    pub database: Arc<Database>,
    pub houses: Vec<StandbyHouse>,
    pub clients: Vec<Option<TakeoverClient>>,
    pub network: Network,
    pub judge: TokenJudge,
    pub tally: TakeoverTally,
    pub root: Fid,
    /// The logs in it.
    pub logs: Vec<Fid>,
    /// Faults are over, and applications begin nothing.
    pub is_quiet: bool,
    pub faults_left: u32,
    /// Answers to commands of administrators.
    pub answers: BTreeMap<u64, Option<Result<types::Answer, types::Fault>>>,
    /// Commands that are to be given.
    pub orders: Vec<super::leader::StandbyOrder>,
    pub questions: u64,
    known: Option<(Revision, usize)>,
    queue: BTreeMap<(Time, u64), Occurrence>,
    queued: u64,
    pub violation: Option<String>,
    pub history: Option<String>,
}

impl StandbyWorld {
    /// A cell whose servers are up. The volume is at server 0, all others stand by.
    pub fn new(seed: u64, options: TakeoverOptions) -> StandbyWorld {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x7a4e_0fe4);
        let servers = rng.random_range(2..=3);
        let is_async = rng.random_range(0..4) == 0;
        let database: Arc<Database> = Arc::default();
        let line = |me, rng: &mut SmallRng| {
            DatabaseLine::new(&database, me, options.mutation, rng.random())
        };
        let houses: Vec<_> = (0..servers)
            .map(|no| {
                let line = line(Some(id(no)), &mut rng);
                StandbyHouse::new(no, &mut rng, line)
            })
            .collect();
        let mut world = StandbyWorld {
            now: Time::from_start(Duration::from_secs(1)),
            options,
            has_small_answers: seed % 4 == 2,
            houses,
            clients: Vec::new(),
            network: Network::default(),
            judge: TokenJudge::new(is_async),
            tally: TakeoverTally::default(),
            root: Fid::root(TREE),
            logs: Vec::new(),
            is_quiet: false,
            faults_left: 0,
            answers: BTreeMap::new(),
            orders: Vec::new(),
            questions: 0,
            known: None,
            queue: BTreeMap::new(),
            queued: 0,
            violation: None,
            history: options.trace.then(String::new),
            database: Arc::clone(&database),
            rng,
        };
        for no in 0..servers {
            let info = &world.houses[no].info;
            database.put_server(info, Revision(0)).expect("a new server");
            world.start(no);
        }
        world.create();
        let kind = if is_async { SiteKind::AsyncStandby } else { SiteKind::Standby };
        let site = |no, kind| Site { server: id(no), partition: PARTITION.into(), kind, epoch: 0 };
        let name = super::name("data");
        let mut group = VolumeGroup::new(name, TREE, site(0, SiteKind::ReadWrite));
        group.sites.extend((1..servers).map(|no| site(no, kind)));
        database.put_group(&group, Revision(0)).expect("a new group");
        let clients = world.rng.random_range(1..=3);
        for index in 0..clients {
            let line = DatabaseLine::new(&database, None, None, world.rng.random());
            let client = TakeoverClient::new(&mut world, index, line);
            world.clients.push(Some(client));
            world.after(Duration::from_millis(1), Occurrence::Mind(index));
        }
        world
    }

    // History and violations.

    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now.since_start().as_secs_f64();
        if let Some(history) = &mut self.history {
            let _ = writeln!(history, "{now:>12.6} {}", what());
        }
    }

    /// Reports a rule that did not hold; the first report counts.
    pub fn violate(&mut self, what: impl std::fmt::Display) {
        self.note(|| format!("VIOLATION: {what}"));
        let at = self.now.since_start().as_secs_f64();
        self.violation.get_or_insert(format!("at {at:.3} s: {what}"));
    }

    pub fn check(&mut self, judged: Result<(), String>) {
        if let Err(what) = judged {
            self.violate(what);
        }
    }

    pub fn breaks(&self, mutation: TakeoverMutation) -> bool {
        self.options.mutation == Some(mutation)
    }

    // The passage of time.

    pub fn at(&mut self, at: Time, what: Occurrence) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), what);
    }

    pub fn after(&mut self, delay: Duration, what: Occurrence) {
        self.at(self.now + delay, what);
    }

    pub fn upto(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.random_range(0..=most.as_micros() as u64))
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    /// The next event happens, if it is due by then. Returns whether it did.
    pub fn happens_by(&mut self, until: Time) -> bool {
        let Some(first) = self.queue.first_entry().filter(|first| first.key().0 <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        let ((at, _), what) = first.remove_entry();
        self.now = self.now.max(at);
        if let Some(until) = self.stalls(&what) {
            self.at(until, what);
            return true;
        }
        match what {
            Occurrence::Arrive(message) => self.arrive(*message),
            Occurrence::Up(no) => self.start(no),
            Occurrence::Death(no) => self.strike_down(no),
            Occurrence::Tick(no, life) => self.tick(no, life),
            Occurrence::Step(no, life, step) => self.step(no, life, step),
            Occurrence::Apply(no, life) => self.apply_waiting(no, life),
            Occurrence::Mind(index) => self.with_client(index, TakeoverClient::mind),
            Occurrence::Act(index, thread) => {
                self.with_client(index, |client, world| client.act(world, thread));
            }
            Occurrence::LateChange(no, late) => {
                let done = self.houses[no].line.put_now(&late.group, late.expected);
                self.note(|| format!("a late change of server {no} is made: {}", done.is_ok()));
                self.watch_record();
            }
            Occurrence::Strike => self.strike(),
            Occurrence::Mend(fault) => self.mend(fault),
        }
        true
    }

    /// Until when the server that this is for does nothing.
    fn stalls(&self, what: &Occurrence) -> Option<Time> {
        let no = match what {
            Occurrence::Tick(no, _) | Occurrence::Step(no, ..) | Occurrence::Apply(no, _) => *no,
            Occurrence::Arrive(message) if message.to_server => message.wire.server,
            Occurrence::Arrive(message) => match message.wire.asker {
                Asker::Server(no) => no,
                Asker::Client(_) | Asker::Leader => return None,
            },
            _ => return None,
        };
        let house = &self.houses[no];
        (house.up.is_some() && house.stalled_until > self.now).then_some(house.stalled_until)
    }

    /// Lets a client do something.
    pub fn with_client(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut TakeoverClient, &mut StandbyWorld),
    ) {
        let Some(mut client) = self.clients[index].take() else { return };
        act(&mut client, self);
        self.clients[index] = Some(client);
    }

    // Messages.

    /// Sends a message. It may be lost.
    pub fn send(&mut self, message: SimMessage) {
        let SimMessage { wire, connection, .. } = message;
        let lossy = self.network.lossy;
        let is_lost = lossy > 0 && self.one_in(lossy);
        if is_lost || self.network.is_cut(wire) || self.network.is_broken(wire, connection) {
            return self.network.break_off(wire, connection);
        }
        let way = if self.one_in(LATE_ONE_IN) { LATE_WAY } else { WAY };
        let wished = self.now + self.upto(way);
        let at = self.network.arrival(&message, wished);
        self.at(at, Occurrence::Arrive(Box::new(message)));
    }

    fn arrive(&mut self, message: SimMessage) {
        let SimMessage { wire, connection, to_server, .. } = message;
        if self.network.is_cut(wire) {
            return self.network.break_off(wire, connection);
        }
        if to_server && self.houses[wire.server].up.is_none() {
            self.network.break_off(wire, connection);
            if self.one_in(4) {
                // The machine is away, too.
                return;
            }
            let refusal = SimMessage { to_server: false, content: Content::Unreachable, ..message };
            let delay = self.upto(WAY);
            self.after(delay, Occurrence::Arrive(Box::new(refusal)));
            return;
        }
        if to_server && self.network.is_dead(wire, connection) {
            return;
        }
        if to_server {
            return self.server_receives(message);
        }
        match wire.asker {
            Asker::Client(index) => {
                self.with_client(index, |client, world| client.receives(world, message));
            }
            Asker::Server(no) => self.standby_receives(no, message),
            Asker::Leader => {
                if let Content::Answered(number, answer) = message.content
                    && let Some(place) = self.answers.get_mut(&number)
                {
                    *place = Some(*answer);
                }
            }
        }
    }

    // The record.

    /// The server with the volume, as the database says.
    pub fn home(&self) -> usize {
        let seen = self.database.group_of(TREE).expect("it is in memory").expect("it is there");
        number(seen.record.read_write_site().expect("it has one").server)
    }

    /// Looks whether the record has changed.
    pub fn watch_record(&mut self) {
        let Ok(Some(seen)) = self.database.group_of(TREE) else { return };
        let Some(site) = seen.record.read_write_site() else { return };
        let (revision, home) = (seen.revision, number(site.server));
        match self.known {
            Some((known, _)) if known == revision => return,
            Some((_, before)) if before != home => {
                self.judge.leaves(before);
                self.tally.takeovers += 1;
            }
            Some(_) => self.judge.serves(home),
            None => {}
        }
        self.known = Some((revision, home));
        self.note(|| {
            let sites = seen.record.sites.iter();
            let sites: Vec<_> = sites
                .map(|site| format!("{} {:?} {}", number(site.server), site.kind, site.epoch))
                .collect();
            format!("record {}: {}", revision.0, sites.join(", "))
        });
    }

    /// Plans the changes that are under way to the database from this server.
    pub fn plan_late_changes(&mut self, no: usize) {
        for late in self.houses[no].line.take_late() {
            let delay = self.upto(LATE_CHANGE);
            self.after(delay, Occurrence::LateChange(no, Box::new(late)));
        }
        self.watch_record();
    }
}
