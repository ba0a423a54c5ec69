//! The cluster: one server, some clients, and simulated time.

use std::time::Duration;

use dafs::Hello;
use rand::Rng;
use types::Time;

use crate::client::Client;
use crate::event::SimEvent;
use crate::fault::{self, InjectedFault};
use crate::ground::{Ground, Violation};
use crate::history::SessionTally;
use crate::inbox::{ArrivedBytes, to_bytes};
use crate::mutation::Mutation;
use crate::net::{Arrival, ConnId, ConnectionEnd};
use crate::server::{SharedTree, SimServer};

/// Options of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The rule that the run breaks on purpose.
    pub mutation: Option<Mutation>,
    /// Print every event.
    pub trace: bool,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The first rule that did not hold, if any.
    pub violation: Option<Violation>,
    /// Equal for two runs with the same events.
    pub digest: u64,
    /// Counters for the summary.
    pub tally: SessionTally,
}

/// Applications begin operations, and faults happen, up to this moment.
const ACTIVE: Duration = Duration::from_secs(45);
/// Time to finish after the faults: two leases with grace for clients that vanished while the
/// server restarted, and time for the operations of the applications.
const SETTLE: Duration = Duration::from_secs(120);

struct World {
    ground: Ground,
    server: SimServer,
    tree: SharedTree,
    clients: Vec<Client>,
    power_lost: bool,
}

/// Runs one seed.
pub fn run(seed: u64, options: RunOptions) -> RunOutcome {
    let mut world = World::new(seed, options);
    world.go();
    RunOutcome {
        violation: world.ground.violation().cloned(),
        digest: world.ground.digest(),
        tally: world.ground.history.tally,
    }
}

impl World {
    fn new(seed: u64, options: RunOptions) -> Self {
        let mut ground = Ground::new(seed, options.mutation, options.trace);
        let (server, tree) = SimServer::new(&mut ground);
        let count = ground.rng.random_range(2..=4);
        let ops = 60 / count as u32;
        let clients = (0..count).map(|index| Client::new(&mut ground, index, ops)).collect();
        let mut world = World { ground, server, tree, clients, power_lost: false };
        for client in 0..count {
            let delay = world.ground.between(Duration::ZERO, Duration::from_millis(100));
            world.ground.after(delay, SimEvent::ClientUp { client });
        }
        let from = Time::from_start(Duration::from_millis(50));
        fault::plan(&mut world.ground, count, from, Time::ZERO + ACTIVE);
        world.ground.at(Time::ZERO + ACTIVE, SimEvent::Heal);
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
            let unfinished: Vec<String> = self
                .clients
                .iter()
                .filter(|client| !client.is_done())
                .map(Client::unfinished)
                .collect();
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

    fn happen(&mut self, event: SimEvent) {
        let Some(event) = self.unless_stalled(event) else { return };
        let ground = &mut self.ground;
        match event {
            SimEvent::Deliver { conn, to } => self.deliver(conn, to),
            SimEvent::Dial { client, life, role } => {
                self.clients[client].dial(ground, life, role, self.server.is_up());
            }
            SimEvent::DialFailed { client, life, role } => {
                self.clients[client].dial_failed(ground, life, role);
            }
            SimEvent::ClientTick { client, life } => self.clients[client].tick(ground, life),
            SimEvent::Step { client, life, thread } => {
                self.clients[client].step(ground, &self.tree, life, thread);
            }
            SimEvent::NestFlush { client, life } => {
                self.clients[client].flush_nest(ground, &self.tree, life);
            }
            SimEvent::AttachTimeout { client, life, conn } => {
                self.clients[client].attach_timeout(ground, life, conn);
            }
            SimEvent::ServerTick { life } => self.server.tick(ground, life),
            SimEvent::Execute { life, origin, caller, call, repeated } => {
                self.server.execute(ground, life, origin, &caller, *call, repeated);
            }
            SimEvent::ServerSync { life } => self.server.sync(ground, life),
            SimEvent::Fault(fault) => self.strike(fault),
            SimEvent::ServerUp => {
                ground.note(|| "server comes up".to_owned());
                self.server.start(ground, &self.tree, std::mem::take(&mut self.power_lost));
            }
            SimEvent::ClientUp { client } => {
                ground.note(|| format!("client {client} comes up"));
                self.clients[client].start(ground);
            }
            SimEvent::StallOver { client } => self.clients[client].go_on(ground),
            SimEvent::Rejoin { client } => {
                ground.note(|| format!("client {client} rejoins"));
                ground.rejoin(client);
            }
            SimEvent::Heal => self.heal(),
        }
    }

    /// Defers an event of a stalled client; returns any other event.
    fn unless_stalled(&mut self, event: SimEvent) -> Option<SimEvent> {
        let client = match &event {
            SimEvent::Deliver { conn, to: ConnectionEnd::Client } => {
                self.ground.net.client_of(*conn)?
            }
            SimEvent::Dial { client, .. }
            | SimEvent::DialFailed { client, .. }
            | SimEvent::ClientTick { client, .. }
            | SimEvent::AttachTimeout { client, .. }
            | SimEvent::NestFlush { client, .. }
            | SimEvent::Step { client, .. } => *client,
            _ => return Some(event),
        };
        match self.clients.get_mut(client) {
            Some(client) => client.defer(event),
            None => Some(event),
        }
    }

    fn deliver(&mut self, conn: ConnId, to: ConnectionEnd) {
        let client = self.ground.net.client_of(conn);
        let Some(arrival) = self.ground.arrival(conn, to) else { return };
        if let Arrival::Bytes(bytes) = &arrival {
            let length = bytes.len();
            self.ground.note(|| format!("{conn:?} to {to:?}: {length} bytes"));
        } else {
            self.ground.note(|| format!("{conn:?} to {to:?}: end"));
        }
        match (to, client) {
            (ConnectionEnd::Server, _) => self.server.on_arrival(&mut self.ground, conn, arrival),
            (ConnectionEnd::Client, Some(client)) if client < self.clients.len() => {
                self.clients[client].on_arrival(&mut self.ground, conn, arrival);
            }
            (ConnectionEnd::Client, _) => {}
        }
    }

    fn strike(&mut self, fault: InjectedFault) {
        let ground = &mut self.ground;
        ground.note(|| format!("fault: {fault:?}"));
        match fault {
            InjectedFault::ServerDies | InjectedFault::PowerLoss => {
                if self.server.is_up() {
                    self.power_lost = fault == InjectedFault::PowerLoss;
                    self.server.die(ground, self.power_lost);
                    let down = match ground.rng.random_range(0..3) {
                        0 => ground.between(Duration::from_millis(1), Duration::from_millis(100)),
                        1 => ground.between(Duration::from_millis(100), Duration::from_secs(3)),
                        _ => ground.between(Duration::from_secs(3), Duration::from_secs(20)),
                    };
                    ground.after(down, SimEvent::ServerUp);
                }
            }
            InjectedFault::ClientDies(client) | InjectedFault::ClientVanishes(client) => {
                if self.clients[client].is_up() {
                    let vanishes = matches!(fault, InjectedFault::ClientVanishes(_));
                    self.clients[client].die(ground, vanishes);
                    if !vanishes && !ground.net.is_cut(client) && ground.one_in(3) {
                        self.server.peer_died(ground, self.clients[client].id());
                    }
                    let down = ground.between(Duration::from_millis(10), Duration::from_secs(20));
                    ground.after(down, SimEvent::ClientUp { client });
                }
            }
            InjectedFault::Stall(client) | InjectedFault::ClientIsSucceeded(client) => {
                if matches!(fault, InjectedFault::ClientIsSucceeded(_)) {
                    self.clients[client].kill(ground);
                }
                self.clients[client].stall(ground);
                let long = ground.between(Duration::from_millis(10), Duration::from_secs(25));
                ground.after(long, SimEvent::StallOver { client });
            }
            InjectedFault::Partition(client) => {
                ground.net.cut(client);
                let long = ground.between(Duration::from_millis(10), Duration::from_secs(30));
                ground.after(long, SimEvent::Rejoin { client });
            }
            InjectedFault::Break(client) => {
                let conns = ground.net.of_client(client);
                if !conns.is_empty() {
                    let which = ground.rng.random_range(0..conns.len());
                    ground.break_up(conns[which]);
                }
            }
            InjectedFault::BreakAll(client) => {
                for conn in ground.net.of_client(client) {
                    ground.break_up(conn);
                }
            }
            InjectedFault::SayAgain(client) => self.say_again(client),
        }
    }

    /// Repeats a connection attempt, as a middle box may: the server receives the hello and the
    /// attach (or bind) a second time.
    fn say_again(&mut self, client: usize) {
        let ground = &mut self.ground;
        let conns = ground.net.of_client(client);
        if conns.is_empty() || !self.server.is_up() {
            return;
        }
        let which = ground.rng.random_range(0..conns.len());
        let said = ground.net.said(conns[which]);
        let mut inbox = ArrivedBytes::default();
        inbox.push(&said);
        let mut again = inbox.take(Hello::BYTES);
        if let Ok(Some(frame)) = inbox.frame() {
            again.extend(to_bytes(&frame));
        }
        let conn = ground.net.connect(self.clients.len());
        ground.send(conn, ConnectionEnd::Client, &again);
        ground.close(conn, ConnectionEnd::Client);
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
