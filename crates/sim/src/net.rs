//! Connections: two streams of bytes each, reliable and in order while the connection lives.
//!
//! A connection may break at any byte: each end then gets some prefix of the bytes under way, and
//! the end of the stream. While a client is partitioned nothing arrives, in neither direction, and
//! nothing is lost: TCP sends again when the network is back. Streams of different connections are
//! not ordered among each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::Rng;
use types::Time;

use crate::event::SimEvent;
use crate::ground::Ground;

/// A connection, numbered over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The end that connected.
    Client,
    /// The end that accepted.
    Server,
}

impl ConnectionEnd {
    /// The other end.
    pub fn other(self) -> ConnectionEnd {
        match self {
            ConnectionEnd::Client => ConnectionEnd::Server,
            ConnectionEnd::Server => ConnectionEnd::Client,
        }
    }
}

/// The next item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Bytes, in order.
    Bytes(Vec<u8>),
    /// The end of the stream.
    End,
}

#[derive(Default)]
struct Stream {
    under_way: VecDeque<(Time, Arrival)>,
    last: Time,
    /// The receiving end is closed or gone.
    deaf: bool,
    ended: bool,
}

struct Conn {
    client: usize,
    to_client: Stream,
    to_server: Stream,
    /// The first bytes that the client has sent, for a repeated connection attempt.
    said: Vec<u8>,
}

impl Conn {
    fn stream(&mut self, to: ConnectionEnd) -> &mut Stream {
        match to {
            ConnectionEnd::Client => &mut self.to_client,
            ConnectionEnd::Server => &mut self.to_server,
        }
    }
}

/// All connections.
#[derive(Default)]
pub struct Net {
    conns: BTreeMap<ConnId, Conn>,
    last: u64,
    /// Clients that are partitioned.
    cut: BTreeSet<usize>,
    /// Arrivals that a partition delays.
    stalled: Vec<(ConnId, ConnectionEnd)>,
}

/// Bytes at the start of a client's stream that are stored for a repeated connection attempt.
const SAID_BYTES_MAX: usize = 1 << 10;

impl Net {
    /// A new connection of `client`.
    pub fn connect(&mut self, client: usize) -> ConnId {
        self.last += 1;
        let id = ConnId(self.last);
        let (to_client, to_server) = (Stream::default(), Stream::default());
        self.conns.insert(id, Conn { client, to_client, to_server, said: Vec::new() });
        id
    }

    /// The client of a connection.
    pub fn client_of(&self, conn: ConnId) -> Option<usize> {
        self.conns.get(&conn).map(|conn| conn.client)
    }

    /// Connections of one client, in order.
    pub fn of_client(&self, client: usize) -> Vec<ConnId> {
        self.conns.iter().filter(|(_, conn)| conn.client == client).map(|(id, _)| *id).collect()
    }

    /// Every connection, in order.
    pub fn all(&self) -> Vec<ConnId> {
        self.conns.keys().copied().collect()
    }

    /// Returns whether the client is partitioned.
    pub fn is_cut(&self, client: usize) -> bool {
        self.cut.contains(&client)
    }

    /// The first bytes that the client sent over the connection.
    pub fn said(&self, conn: ConnId) -> Vec<u8> {
        self.conns.get(&conn).map(|conn| conn.said.clone()).unwrap_or_default()
    }

    /// Partitions the client from now on.
    pub fn cut(&mut self, client: usize) {
        self.cut.insert(client);
    }

    fn take(&mut self, conn: ConnId, to: ConnectionEnd, now: Time) -> Option<Arrival> {
        let found = self.conns.get_mut(&conn)?;
        let client = found.client;
        let stream = found.stream(to);
        if stream.under_way.front().is_none_or(|(due, _)| *due > now) {
            return None;
        }
        if self.cut.contains(&client) {
            self.stalled.push((conn, to));
            return None;
        }
        let arrival = stream.under_way.pop_front().map(|(_, arrival)| arrival)?;
        if stream.deaf {
            return None;
        }
        if arrival == Arrival::End {
            stream.deaf = true;
            self.forget_if_over(conn);
        }
        Some(arrival)
    }

    fn forget_if_over(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_some_and(|conn| conn.to_client.deaf && conn.to_server.deaf) {
            self.conns.remove(&conn);
        }
    }
}

impl Ground {
    /// The next item that has arrived at an end of a connection.
    pub fn arrival(&mut self, conn: ConnId, to: ConnectionEnd) -> Option<Arrival> {
        self.net.take(conn, to, self.now)
    }

    /// Sends bytes.
    pub fn send(&mut self, conn: ConnId, from: ConnectionEnd, bytes: &[u8]) {
        if from == ConnectionEnd::Client
            && let Some(found) = self.net.conns.get_mut(&conn)
        {
            let room = SAID_BYTES_MAX.saturating_sub(found.said.len());
            found.said.extend(bytes.iter().take(room));
        }
        let split = if bytes.len() > 1 && self.one_in(8) {
            self.rng.random_range(1..bytes.len())
        } else {
            0
        };
        let (head, tail) = bytes.split_at(split);
        for part in [head, tail].into_iter().filter(|part| !part.is_empty()) {
            self.put(conn, from.other(), Arrival::Bytes(part.to_vec()));
        }
    }

    /// One end closes: it receives nothing more, and the other end gets the end after all sent
    /// bytes.
    pub fn close(&mut self, conn: ConnId, from: ConnectionEnd) {
        let Some(found) = self.net.conns.get_mut(&conn) else { return };
        found.stream(from).deaf = true;
        self.put(conn, from.other(), Arrival::End);
        self.net.forget_if_over(conn);
    }

    /// One end vanishes without closing: the other end receives nothing more, not even the end.
    pub fn vanish(&mut self, conn: ConnId, side: ConnectionEnd) {
        let Some(found) = self.net.conns.get_mut(&conn) else { return };
        found.stream(side).deaf = true;
        found.stream(side.other()).ended = true;
    }

    /// The connection breaks: each end gets some of the bytes under way, and then the end.
    pub fn break_up(&mut self, conn: ConnId) {
        for to in [ConnectionEnd::Client, ConnectionEnd::Server] {
            let Some(found) = self.net.conns.get_mut(&conn) else { return };
            let stream = found.stream(to);
            if stream.ended {
                continue;
            }
            let length = |arrival: &Arrival| match arrival {
                Arrival::Bytes(bytes) => bytes.len(),
                Arrival::End => 0,
            };
            let under_way: usize =
                stream.under_way.iter().map(|(_, arrival)| length(arrival)).sum();
            let mut keep = self.rng.random_range(0..=under_way);
            let Some(found) = self.net.conns.get_mut(&conn) else { return };
            for (_, arrival) in &mut found.stream(to).under_way {
                if let Arrival::Bytes(bytes) = arrival {
                    bytes.truncate(keep);
                    keep -= bytes.len();
                }
            }
            self.put(conn, to, Arrival::End);
        }
    }

    fn put(&mut self, conn: ConnId, to: ConnectionEnd, arrival: Arrival) {
        let delay = match self.rng.random_range(0..100) {
            0 => self.between(Duration::from_millis(100), Duration::from_secs(2)),
            1..10 => self.between(Duration::from_millis(5), Duration::from_millis(50)),
            _ => self.between(Duration::from_micros(20), Duration::from_millis(2)),
        };
        let now = self.now;
        let Some(found) = self.net.conns.get_mut(&conn) else { return };
        let stream = found.stream(to);
        if stream.ended {
            return;
        }
        stream.ended = arrival == Arrival::End;
        stream.last = stream.last.max(now + delay);
        let due = stream.last;
        stream.under_way.push_back((due, arrival));
        self.at(due, SimEvent::Deliver { conn, to });
    }

    /// A partition ends: the delayed items arrive now.
    pub fn rejoin(&mut self, client: usize) {
        self.net.cut.remove(&client);
        let (mine, others) = std::mem::take(&mut self.net.stalled)
            .into_iter()
            .partition(|(conn, _)| self.net.client_of(*conn) == Some(client));
        self.net.stalled = others;
        let mine: Vec<_> = mine;
        for (conn, to) in mine {
            self.at(self.now, SimEvent::Deliver { conn, to });
        }
    }
}
