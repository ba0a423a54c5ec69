//! Promises against a simple model: which answers each client may still take from its cache.
//!
//! The model's client may answer from a file's promise until it acknowledges the last break of the
//! file that it received. A change is done exactly when no other client trusts the state from
//! *before* the change, or its session is over (CB-1).

use std::collections::{BTreeMap, BTreeSet};

use lease::{BreakTicket, LeaseConfig, Leases, Output, Promised};
use proptest::prelude::*;
use types::{BreakId, BreakItem, BreakReason, ClientId, Fid, SessionId, Time};

const CLIENTS: usize = 4;
const FILES: u64 = 5;

#[derive(Clone, Debug)]
enum Op {
    Promise {
        client: usize,
        file: u64,
    },
    Change {
        client: usize,
        files: Vec<u64>,
    },
    /// Acknowledges one of the client's breaks, in any order; `open`: the files that it has open.
    Ack {
        client: usize,
        which: usize,
        open: Vec<u64>,
    },
    Unhold {
        client: usize,
        file: u64,
    },
    Resume {
        client: usize,
    },
    Restart {
        client: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let client = || 0..CLIENTS;
    let files = || prop::collection::vec(0..FILES, 1..4);
    prop_oneof![
        8 => (client(), 0..FILES).prop_map(|(client, file)| Op::Promise { client, file }),
        4 => (client(), files()).prop_map(|(client, files)| Op::Change { client, files }),
        6 => (client(), 0..8usize, files())
            .prop_map(|(client, which, open)| Op::Ack { client, which, open }),
        1 => (client(), 0..FILES).prop_map(|(client, file)| Op::Unhold { client, file }),
        1 => client().prop_map(|client| Op::Resume { client }),
        1 => client().prop_map(|client| Op::Restart { client }),
    ]
}

struct Client {
    incarnation: u64,
    promised: BTreeSet<Fid>,
    /// Breaks to be acknowledged.
    unacked: BTreeMap<BreakId, BTreeSet<Fid>>,
    /// Files that were promised and are still in the cache, with the break that removes them. An
    /// earlier break that is acknowledged later removes none.
    breaking: BTreeMap<Fid, BreakId>,
    held: BTreeSet<Fid>,
}

impl Client {
    fn new(incarnation: u64) -> Self {
        let (promised, held) = (BTreeSet::new(), BTreeSet::new());
        Client { incarnation, promised, unacked: BTreeMap::new(), breaking: BTreeMap::new(), held }
    }
}

struct World {
    leases: Leases,
    sessions: Vec<SessionId>,
    clients: Vec<Client>,
    /// Acknowledgements that each change waits for.
    tickets: BTreeMap<BreakTicket, BTreeSet<(usize, BreakId)>>,
}

impl World {
    fn new(promises_max: usize) -> Self {
        let config = LeaseConfig { promises_max, ..LeaseConfig::default() };
        let mut leases = Leases::new(config, None, SessionId(1), Time::ZERO);
        let mut attach =
            |index: usize| leases.attach(Time::ZERO, ClientId(index as u128), 1, &mut Vec::new());
        let sessions = (0..CLIENTS).map(|index| attach(index).expect("attach")).collect();
        let clients = (0..CLIENTS).map(|_| Client::new(1)).collect();
        World { leases, sessions, clients, tickets: BTreeMap::new() }
    }

    fn index(&self, session: SessionId) -> usize {
        self.sessions.iter().position(|other| *other == session).expect("a session of ours")
    }

    fn apply(&mut self, op: &Op) {
        let mut out = Vec::new();
        match op {
            Op::Promise { client, file } => {
                assert_eq!(
                    self.leases.promise(
                        Time::ZERO,
                        self.sessions[*client],
                        fid(*file),
                        false,
                        &mut out
                    ),
                    Promised::Yes
                );
                self.clients[*client].promised.insert(fid(*file));
                self.take_breaks(&out, BreakReason::Pressure);
            }
            Op::Change { client, files } => self.change(*client, files),
            Op::Ack { client, which, open } => self.ack(*client, *which, open),
            Op::Unhold { client, file } => {
                let last =
                    self.clients[*client].held.remove(&fid(*file)) && !self.holds(fid(*file));
                assert_eq!(self.leases.unhold(self.sessions[*client], fid(*file)), last);
            }
            Op::Resume { client } => self.resume(*client),
            Op::Restart { client } => self.restart(*client),
        }
        self.check();
    }

    fn change(&mut self, client: usize, files: &[u64]) {
        let item =
            |file: &u64| BreakItem { fid: fid(*file), reason: BreakReason::Data, name: None };
        let items: Vec<BreakItem> = files.iter().map(item).collect();
        let mut out = Vec::new();
        let ticket =
            self.leases.break_promises(Time::ZERO, &items, self.sessions[client], &mut out);
        self.take_breaks(&out, BreakReason::Data);
        let mut waits = BTreeSet::new();
        for other in (0..CLIENTS).filter(|other| *other != client) {
            for fid in files.iter().map(|file| fid(*file)) {
                assert!(
                    !self.clients[other].promised.contains(&fid),
                    "CB-1: {other} was sent no break of {fid}"
                );
                waits.extend(self.clients[other].breaking.get(&fid).map(|id| (other, *id)));
            }
        }
        assert_eq!(ticket.is_some(), !waits.is_empty());
        self.tickets.extend(ticket.map(|ticket| (ticket, waits)));
    }

    /// Checks that the machine ends only existing promises, each session's in one batch.
    fn take_breaks(&mut self, out: &[Output], expected: BreakReason) {
        for output in out {
            let Output::Break { to, id, items } = output else { panic!("unexpected {output:?}") };
            let to = self.index(*to);
            let client = &mut self.clients[to];
            for item in items {
                assert_eq!(item.reason, expected);
                assert!(client.promised.remove(&item.fid), "{to} was not promised {}", item.fid);
            }
            client.breaking.extend(items.iter().map(|item| (item.fid, *id)));
            let fids = items.iter().map(|item| item.fid).collect();
            assert!(client.unacked.insert(*id, fids).is_none(), "each batch has its own number");
        }
    }

    fn ack(&mut self, client: usize, which: usize, open: &[u64]) {
        let Some(id) = self.clients[client].unacked.keys().nth(which).copied() else { return };
        let fids = self.clients[client].unacked.remove(&id).expect("just seen");
        self.clients[client].breaking.retain(|_, last| *last != id);
        let open: Vec<Fid> = open.iter().map(|file| fid(*file)).collect();
        let mut out = Vec::new();
        self.leases.ack(self.sessions[client], id, &open, &mut out);
        self.clients[client].held.extend(open.iter().filter(|fid| fids.contains(fid)));
        self.finish(&out, |waited| *waited == (client, id));
    }

    /// Removes breaks that are over, and compares which changes are done.
    fn finish(&mut self, out: &[Output], over: impl Fn(&(usize, BreakId)) -> bool) {
        for waits in self.tickets.values_mut() {
            waits.retain(|waited| !over(waited));
        }
        let done: BTreeSet<BreakTicket> =
            self.tickets.iter().filter(|(_, waits)| waits.is_empty()).map(|(id, _)| *id).collect();
        let said = out.iter().filter_map(|output| match output {
            Output::TicketDone(ticket) => Some(*ticket),
            _ => None,
        });
        assert_eq!(said.collect::<BTreeSet<_>>(), done);
        self.tickets.retain(|ticket, _| !done.contains(ticket));
    }

    fn resume(&mut self, client: usize) {
        let mut out = Vec::new();
        let session = self.sessions[client];
        let incarnation = self.clients[client].incarnation;
        let resumed = self.leases.resume(
            Time::ZERO,
            session,
            ClientId(client as u128),
            incarnation,
            &mut out,
        );
        assert!(resumed.is_ok_and(|resumed| !resumed.reclaim));
        let said = out.iter().map(|output| match output {
            Output::Break { to, id, items } if *to == session => {
                (*id, items.iter().map(|item| item.fid).collect())
            }
            other => panic!("unexpected {other:?}"),
        });
        assert_eq!(said.collect::<BTreeMap<_, BTreeSet<Fid>>>(), self.clients[client].unacked);
    }

    /// The client restarts: its holds end (EO-2).
    fn restart(&mut self, client: usize) {
        let incarnation = self.clients[client].incarnation + 1;
        let mut out = Vec::new();
        let attached =
            self.leases.attach(Time::ZERO, ClientId(client as u128), incarnation, &mut out);
        let held = std::mem::replace(&mut self.clients[client], Client::new(incarnation)).held;
        let free: Vec<Fid> = held.into_iter().filter(|fid| !self.holds(*fid)).collect();
        assert!(matches!(&out[0], Output::SessionEnded { freed, .. } if *freed == free), "{out:?}");
        self.finish(&out, |(waited, _)| *waited == client);
        self.sessions[client] = attached.expect("attach");
    }

    fn holds(&self, fid: Fid) -> bool {
        self.clients.iter().any(|client| client.held.contains(&fid))
    }

    fn check(&self) {
        for (index, client) in self.clients.iter().enumerate() {
            for file in 0..FILES {
                let promised = self.leases.promises().has(self.sessions[index], fid(file));
                assert_eq!(promised, client.promised.contains(&fid(file)));
                assert_eq!(self.leases.holds().is_held(fid(file)), self.holds(fid(file)));
            }
        }
        let promises = self.clients.iter().map(|client| client.promised.len()).sum();
        assert_eq!(self.leases.counts().promises, promises);
        assert_eq!(self.leases.counts().tickets, self.tickets.len());
    }
}

fn fid(file: u64) -> Fid {
    Fid::new(1, 2 * file, 1)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn promises_follow_the_model(
        ops in prop::collection::vec(op(), 1..80),
        roomy in any::<bool>(),
    ) {
        let mut world = World::new(if roomy { 1000 } else { 6 });
        for op in &ops {
            world.apply(op);
        }
    }
}
