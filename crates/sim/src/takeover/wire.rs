//! The network: messages between clients and servers, and between servers.
//!
//! Messages of one connection arrive in their order. One that is lost ends its connection: later
//! ones of it are lost, too, and the asker finds out as its questions stay without an answer. A
//! connection that its asker has left may deliver at the server what was under way, but not at a
//! server that was started since.

use std::collections::{BTreeMap, BTreeSet};

use types::{BreakId, BreakItem, Call, Fault, ReplyAddress, SessionId, Time};
use vice::Attached;

/// The one that asks on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    Client(usize),
    Server(usize),
    /// An administrator's command.
    Leader,
}

/// An asker and the server that it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wire {
    pub asker: Asker,
    pub server: usize,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub(super) enum Content {
    // To the server.
    Attach,
    Resume(SessionId),
    Request(ReplyAddress, Box<Call>),
    Acknowledge(SessionId, BreakId),
    /// Sent at this time of the client's clock.
    Ping(SessionId, Time),
    /// Of a server or of a command, with its session (`incarnation`) and the question's number.
    Question {
        incarnation: u64,
        number: u64,
        call: Box<Call>,
    },
    // To the asker.
    Attached(Attached),
    /// There is no such session any more.
    NoSession,
    Reply(ReplyAddress, Box<Result<types::Answer, Fault>>),
    Break(SessionId, BreakId, Vec<BreakItem>),
    Pong(Time),
    Ended(SessionId),
    Answered(u64, Box<Result<types::Answer, Fault>>),
    /// Nothing listens there.
    Unreachable,
}

/// One message of a connection.
#[derive(Clone, Debug)]
pub(super) struct SimMessage {
    pub wire: Wire,
    /// The number of the connection, from the asker.
    pub connection: u64,
    pub to_server: bool,
    pub content: Content,
}

#[derive(Default)]
struct WireState {
    /// The connection that its asker uses now, if that is a server or a command.
    connection: u64,
    /// The last connection that was used, and the last that is broken.
    used: u64,
    broken: u64,
    /// The last connection of a server that has died since: what was under way on it is lost.
    dead: u64,
    /// When the last message arrives: at the asker, at the server.
    last: [Time; 2],
}

/// All wires, and what is cut.
#[derive(Default)]
pub(super) struct Network {
    wires: BTreeMap<Wire, WireState>,
    /// Servers that reach none, and are reached by none.
    pub isolated: BTreeSet<usize>,
    pub cut: BTreeSet<Wire>,
    /// One message in so many is lost; 0: none.
    pub lossy: u32,
}

impl Network {
    /// Whether messages are lost here now.
    pub fn is_cut(&self, wire: Wire) -> bool {
        let is_alone = |server: &usize| self.isolated.contains(server);
        let asker_is_alone = matches!(&wire.asker, Asker::Server(server) if is_alone(server));
        is_alone(&wire.server) || asker_is_alone || self.cut.contains(&wire)
    }

    /// The connection, and those before it, carry nothing more.
    pub fn break_off(&mut self, wire: Wire, connection: u64) {
        let state = self.wires.entry(wire).or_default();
        state.broken = state.broken.max(connection);
    }

    /// The server has died, and its connections with it.
    pub fn break_all(&mut self, server: usize) {
        for (_, state) in self.wires.iter_mut().filter(|(wire, _)| wire.server == server) {
            state.broken = state.broken.max(state.used);
            state.dead = state.used;
        }
    }

    /// Whether this connection was to a process that is gone.
    pub fn is_dead(&self, wire: Wire, connection: u64) -> bool {
        self.wires.get(&wire).is_some_and(|state| connection <= state.dead)
    }

    pub fn is_broken(&self, wire: Wire, connection: u64) -> bool {
        self.wires.get(&wire).is_some_and(|state| connection <= state.broken)
    }

    /// The present connection of a server or a command.
    pub fn connection(&mut self, wire: Wire) -> u64 {
        let state = self.wires.entry(wire).or_default();
        state.connection = state.connection.max(1);
        state.connection
    }

    /// The asker begins another connection.
    pub fn connect_anew(&mut self, wire: Wire) -> u64 {
        let state = self.wires.entry(wire).or_default();
        state.connection = state.connection.max(state.broken) + 1;
        state.connection
    }

    /// The time of an arrival, which is not before that of earlier messages.
    pub fn arrival(&mut self, message: &SimMessage, wished: Time) -> Time {
        let state = self.wires.entry(message.wire).or_default();
        state.used = state.used.max(message.connection);
        let last = &mut state.last[usize::from(message.to_server)];
        *last = (*last).max(wished);
        *last
    }
}
