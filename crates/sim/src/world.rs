//! The cluster: one server, some clients, and time that passes.

use std::time::Duration;

use dafs::Hello;
use rand::Rng;
use types::Time;

use crate::client::Client;
use crate::event::Event;
use crate::fault::{self, Fault};
use crate::ground::{Ground, Violation};
use crate::history::Tally;
use crate::inbox::{Inbox, to_bytes};
use crate::mutation::Mutation;
use crate::net::{Arrival, ConnId, Side};
use crate::server::{Server, Tree};

/// How one run goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The rule that is broken on purpose.
    pub mutation: Option<Mutation>,
    /// Tell everything that happens.
    pub trace: bool,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rule that did not hold, if any.
    pub violation: Option<Violation>,
    /// Same for two runs in which the same happened.
    pub digest: u64,
    /// Numbers for people.
    pub tally: Tally,
}

/// Applications begin, and faults happen, up to here.
const ACTIVE: Duration = Duration::from_secs(45);
/// After the faults everything has so long to come to an end: two leases with grace for those who vanished while the server
/// restarted, and time for what they wanted.
const SETTLE: Duration = Duration::from_secs(120);

struct World {
    ground: Ground,
    server: Server,
    tree: Tree,
    clients: Vec<Client>,
    power_lost: bool,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut world = World::new(seed, options);
    world.go();
    Outcome {
        violation: world.ground.violation().cloned(),
        digest: world.ground.digest(),
        tally: world.ground.history.tally,
    }
}

impl World {
    fn new(seed: u64, options: Options) -> Self {
        let mut ground = Ground::new(seed, options.mutation, options.trace);
        let (server, tree) = Server::new(&mut ground);
        let count = ground.rng.random_range(2..=4);
        let ops = 60 / count as u32;
        let clients = (0..count).map(|index| Client::new(&mut ground, index, ops)).collect();
        let mut world = World { ground, server, tree, clients, power_lost: false };
        for client in 0..count {
            let delay = world.ground.between(Duration::ZERO, Duration::from_millis(100));
            world.ground.after(delay, Event::ClientUp { client });
        }
        let from = Time::from_start(Duration::from_millis(50));
        fault::plan(&mut world.ground, count, from, Time::ZERO + ACTIVE);
        world.ground.at(Time::ZERO + ACTIVE, Event::Heal);
        world
    }

    fn go(&mut self) {
        let until = Time::ZERO + ACTIVE + SETTLE;
        while self.ground.violation().is_none() {
            if self.ground.healed && self.clients.iter().all(Client::is_done) {
                return self.judge_end();
            }
            let Some(event) = self.ground.next_event() else { break };
            if self.ground.now > until {
                break;
            }
            self.happen(event);
        }
        if self.ground.violation().is_none() {
            let unfinished: Vec<String> =
                self.clients.iter().filter(|client| !client.is_done()).map(Client::unfinished).collect();
            self.ground.violate("progress", format!("does not come to an end: {unfinished:?}"));
        }
    }

    fn judge_end(&mut self) {
        let Some(found) = self.server.found(&self.tree) else {
            return self.ground.violate("progress", "the server is down".to_owned());
        };
        let verdict = self.ground.history.finished(&found, self.tree.log);
        self.ground.judge(verdict);
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.unless_stalled(event) else { return };
        let ground = &mut self.ground;
        match event {
            Event::Deliver { conn, to } => self.deliver(conn, to),
            Event::Dial { client, life, role } => {
                self.clients[client].dial(ground, life, role, self.server.is_up());
            }
            Event::DialFailed { client, life, role } => self.clients[client].dial_failed(ground, life, role),
            Event::ClientTick { client, life } => self.clients[client].tick(ground, life),
            Event::Step { client, life, thread } => self.clients[client].step(ground, &self.tree, life, thread),
            Event::NestFlush { client, life } => self.clients[client].flush_nest(ground, &self.tree, life),
            Event::AttachTimeout { client, life, conn } => self.clients[client].attach_timeout(ground, life, conn),
            Event::ServerTick { life } => self.server.tick(ground, life),
            Event::Execute { life, origin, caller, call, repeated } => {
                self.server.execute(ground, life, origin, &caller, *call, repeated);
            }
            Event::ServerSync { life } => self.server.sync(ground, life),
            Event::Fault(fault) => self.strike(fault),
            Event::ServerUp => {
                ground.note(|| "server comes up".to_owned());
                self.server.start(ground, &self.tree, std::mem::take(&mut self.power_lost));
            }
            Event::ClientUp { client } => {
                ground.note(|| format!("client {client} comes up"));
                self.clients[client].start(ground);
            }
            Event::StallOver { client } => self.clients[client].go_on(ground),
            Event::Rejoin { client } => {
                ground.note(|| format!("client {client} rejoins"));
                ground.rejoin(client);
            }
            Event::Heal => self.heal(),
        }
    }

    /// Keeps what happens to a client that stands still.
    fn unless_stalled(&mut self, event: Event) -> Option<Event> {
        let client = match &event {
            Event::Deliver { conn, to: Side::Client } => self.ground.net.client_of(*conn)?,
            Event::Dial { client, .. }
            | Event::DialFailed { client, .. }
            | Event::ClientTick { client, .. }
            | Event::AttachTimeout { client, .. }
            | Event::NestFlush { client, .. }
            | Event::Step { client, .. } => *client,
            _ => return Some(event),
        };
        match self.clients.get_mut(client) {
            Some(client) => client.defer(event),
            None => Some(event),
        }
    }

    fn deliver(&mut self, conn: ConnId, to: Side) {
        let client = self.ground.net.client_of(conn);
        let Some(arrival) = self.ground.arrival(conn, to) else { return };
        if let Arrival::Bytes(bytes) = &arrival {
            let length = bytes.len();
            self.ground.note(|| format!("{conn:?} to {to:?}: {length} bytes"));
        } else {
            self.ground.note(|| format!("{conn:?} to {to:?}: end"));
        }
        match (to, client) {
            (Side::Server, _) => self.server.on_arrival(&mut self.ground, conn, arrival),
            (Side::Client, Some(client)) if client < self.clients.len() => {
                self.clients[client].on_arrival(&mut self.ground, conn, arrival);
            }
            (Side::Client, _) => {}
        }
    }

    fn strike(&mut self, fault: Fault) {
        let ground = &mut self.ground;
        ground.note(|| format!("fault: {fault:?}"));
        match fault {
            Fault::ServerDies | Fault::PowerLoss => {
                if self.server.is_up() {
                    self.power_lost = fault == Fault::PowerLoss;
                    self.server.die(ground, self.power_lost);
                    let down = match ground.rng.random_range(0..3) {
                        0 => ground.between(Duration::from_millis(1), Duration::from_millis(100)),
                        1 => ground.between(Duration::from_millis(100), Duration::from_secs(3)),
                        _ => ground.between(Duration::from_secs(3), Duration::from_secs(20)),
                    };
                    ground.after(down, Event::ServerUp);
                }
            }
            Fault::ClientDies(client) | Fault::ClientVanishes(client) => {
                if self.clients[client].is_up() {
                    let vanishes = matches!(fault, Fault::ClientVanishes(_));
                    self.clients[client].die(ground, vanishes);
                    if !vanishes && !ground.net.is_cut(client) && ground.one_in(3) {
                        self.server.peer_died(ground, self.clients[client].id());
                    }
                    let down = ground.between(Duration::from_millis(10), Duration::from_secs(20));
                    ground.after(down, Event::ClientUp { client });
                }
            }
            Fault::Stall(client) => {
                self.clients[client].stall(ground);
                let long = ground.between(Duration::from_millis(10), Duration::from_secs(25));
                ground.after(long, Event::StallOver { client });
            }
            Fault::Partition(client) => {
                ground.net.cut(client);
                let long = ground.between(Duration::from_millis(10), Duration::from_secs(30));
                ground.after(long, Event::Rejoin { client });
            }
            Fault::Break(client) => {
                let conns = ground.net.of_client(client);
                if !conns.is_empty() {
                    let which = ground.rng.random_range(0..conns.len());
                    ground.break_up(conns[which]);
                }
            }
            Fault::BreakAll(client) => {
                for conn in ground.net.of_client(client) {
                    ground.break_up(conn);
                }
            }
            Fault::SayAgain(client) => self.say_again(client),
        }
    }

    /// A connection attempt is made twice, as by a middle box: the server hears one hello and attach (or bind) more.
    fn say_again(&mut self, client: usize) {
        let ground = &mut self.ground;
        let conns = ground.net.of_client(client);
        if conns.is_empty() || !self.server.is_up() {
            return;
        }
        let which = ground.rng.random_range(0..conns.len());
        let said = ground.net.said(conns[which]);
        let mut inbox = Inbox::default();
        inbox.push(&said);
        let mut again = inbox.take(Hello::BYTES);
        if let Ok(Some(frame)) = inbox.frame() {
            again.extend(to_bytes(&frame));
        }
        let conn = ground.net.connect(self.clients.len());
        ground.send(conn, Side::Client, &again);
        ground.close(conn, Side::Client);
    }

    fn heal(&mut self) {
        let ground = &mut self.ground;
        ground.note(|| "faults are over".to_owned());
        ground.healed = true;
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.go_on(ground);
            ground.rejoin(index);
            client.start(ground);
        }
        self.server.start(ground, &self.tree, std::mem::take(&mut self.power_lost));
    }
}
