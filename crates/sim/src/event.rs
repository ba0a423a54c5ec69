//! What can happen next.

use types::{Call, Caller, ReplyAddress};

use crate::fault::InjectedFault;
use crate::net::{ConnId, ConnectionEnd};

/// One thing that happens. Those that belong to one life of a machine name it, and mean nothing to
/// the next one.
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
        /// What for.
        role: dafs::ConnectionRole,
    },
    /// An attempt to connect came to nothing.
    DialFailed {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// What for.
        role: dafs::ConnectionRole,
    },
    /// A client's machine asked to be woken.
    ClientTick {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
    },
    /// One of a client's applications goes on.
    Step {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// Which application.
        thread: usize,
    },
    /// A client's attach was not answered for too long.
    AttachTimeout {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
        /// Over which connection.
        conn: ConnId,
    },
    /// What a client has changed in the nest without asking is to be sent.
    NestFlush {
        /// Which client.
        client: usize,
        /// Which life of it.
        life: u64,
    },
    /// The server's leases asked to be woken.
    ServerTick {
        /// Which life of the server.
        life: u64,
    },
    /// A worker of the server takes up a request.
    Execute {
        /// Which life of the server.
        life: u64,
        /// Where the answer belongs.
        origin: ReplyAddress,
        /// Who asks.
        caller: Caller,
        /// What.
        call: Box<Call>,
        /// It came before.
        repeated: bool,
    },
    /// The server syncs its log in the background.
    ServerSync {
        /// Which life of the server.
        life: u64,
    },
    /// The world turns bad.
    Fault(InjectedFault),
    /// The server comes up.
    ServerUp,
    /// A client comes up.
    ClientUp {
        /// Which client.
        client: usize,
    },
    /// A client's machine goes on after a stall.
    StallOver {
        /// Which client.
        client: usize,
    },
    /// A partition ends.
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
