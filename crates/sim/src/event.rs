//! Events of the simulation.

use types::{Call, Caller, ReplyAddress};

use crate::fault::InjectedFault;
use crate::net::{ConnId, ConnectionEnd};

/// One event. An event that belongs to one life of a machine names it; a later life ignores it.
#[derive(Clone, Debug)]
pub enum SimEvent {
    /// Bytes, or the end, may be ready at one end of a connection.
    Deliver {
        /// Which connection.
        conn: ConnId,
        /// At which end.
        to: ConnectionEnd,
    },
    /// A client tries to connect.
    Dial {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// The connection's purpose.
        role: dafs::ConnectionRole,
    },
    /// A connection attempt failed.
    DialFailed {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// The connection's purpose.
        role: dafs::ConnectionRole,
    },
    /// The timer of a client's session machine fires.
    ClientTick {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
    },
    /// One of a client's applications continues.
    Step {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// Which application.
        thread: usize,
    },
    /// A client's attach was not answered in time.
    AttachTimeout {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// Over which connection.
        conn: ConnId,
    },
    /// A client's own changes of the nest are due to be sent.
    NestFlush {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
    },
    /// The timer of the server's leases fires.
    ServerTick {
        /// Which life of the server.
        life: u64,
    },
    /// A worker of the server executes a request.
    Execute {
        /// Which life of the server.
        life: u64,
        /// The address of the answer.
        origin: ReplyAddress,
        /// The caller of the request.
        caller: Caller,
        /// The request's call.
        call: Box<Call>,
        /// The request was received before.
        repeated: bool,
    },
    /// The server syncs its log in the background.
    ServerSync {
        /// Which life of the server.
        life: u64,
    },
    /// A fault strikes.
    Fault(InjectedFault),
    /// The server starts.
    ServerUp,
    /// A client starts.
    ClientUp {
        /// Which client.
        client: usize,
    },
    /// A client's stall ends.
    StallOver {
        /// Which client.
        client: usize,
    },
    /// A network partition ends.
    Rejoin {
        /// Which client.
        client: usize,
    },
    /// Faults are over.
    Heal,
}

// The queue orders events by time and number; two never compare further.
impl PartialEq for SimEvent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for SimEvent {}
impl PartialOrd for SimEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SimEvent {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
