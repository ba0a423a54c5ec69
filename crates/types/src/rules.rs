//! The cell's rules: fences and mandates, and the calls about them (`docs/spec/access.md`,
//! *Fences*, *The call table*).

use std::fmt;
use std::net::IpAddr;

use crate::{ClientId, PrincipalId, ServerId, SessionId};

/// The callers that a fence refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whom {
    /// Calls of this user, at any authentication level.
    User(PrincipalId),
    /// Calls from an address whose first `prefix` bits are these.
    Hosts {
        /// An address of the network.
        address: IpAddr,
        /// How many leading bits of it count.
        prefix: u8,
    },
    /// Calls with the token of this number.
    Token(u128),
    /// Calls through this client, in any session.
    Client(ClientId),
    /// The client of a session of the asked server. No fence is stored so: that server turns it
    /// into [`Whom::Client`].
    Session(SessionId),
}

/// A refusal of all calls of some callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Assigned by the database, never reused.
    pub number: u64,
    /// The callers that it refuses.
    pub whom: Whom,
    /// Seconds since 1970.
    pub since: i64,
    /// When it ends: seconds since 1970; 0: it does not end.
    pub until: i64,
    /// The principal that made it; [`PrincipalId::NONE`]: the superuser of a server.
    pub by: PrincipalId,
    /// For people; at most [`crate::limits::WHY_BYTES_MAX`] bytes.
    pub why: String,
}

/// A part of the cell that a principal administers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Realm {
    /// Volumes with this name; with a final `*`, all whose names begin so. At most
    /// [`crate::limits::NAME_BYTES_MAX`] bytes.
    Volumes(String),
    /// A server, and all that it has.
    Server(ServerId),
    /// A partition of a server, as the server names it, and all that is on it.
    Partition(ServerId, String),
}

/// A principal administers a part of the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mandate {
    /// Assigned by the database, never reused.
    pub number: u64,
    /// A user, or a group whose members all do.
    pub principal: PrincipalId,
    /// The part.
    pub realm: Realm,
    /// The principal that gave it; [`PrincipalId::NONE`]: the superuser of a server.
    pub by: PrincipalId,
}

/// The calls about rules. Any server of the cell answers; one without database asks the one that
/// has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardCall {
    /// Those with numbers above `after`, in their order, at most `max`. Answer: `Fences`.
    Fences {
        /// Only those with greater numbers; 0: all.
        after: u64,
        /// Limit of the answer.
        max: u32,
    },
    /// `NoSpace`: there are [`crate::limits::RULES_MAX`] already. `seconds`: for how long; 0: until
    /// it is removed. Answer: `Enforced`.
    AddFence {
        /// The callers to refuse.
        whom: Whom,
        /// For how long; 0: until it is removed.
        seconds: u64,
        /// The reason, for people.
        why: String,
    },
    /// `NotFound` if there is none. Answer: `Enforced`.
    RemoveFence {
        /// The rule's number.
        number: u64,
    },
    /// As `Fences`. Answer: `Mandates`.
    Mandates {
        /// Only those with greater numbers; 0: all.
        after: u64,
        /// Limit of the answer.
        max: u32,
    },
    /// As `AddFence`; `Exists` if there is an identical one. Answer: `Enforced`.
    AddMandate {
        /// The user or group that shall administer.
        principal: PrincipalId,
        /// The part of the cell.
        realm: Realm,
    },
    /// Answer: `Enforced`.
    RemoveMandate {
        /// The rule's number.
        number: u64,
    },
    /// From now on and for ever, no key that this server's record lists authenticates a server.
    /// `NotFound`: the database has no such server. Answer: `Enforced`, with the number of
    /// withdrawn keys.
    WithdrawKeys {
        /// The server.
        server: ServerId,
    },
    /// Lines of the asked server's audit log, from this place on, as JSON: `file` and `offset` of
    /// the next line, `text` with whole lines, `end`: there are no more. Answer: `Report`.
    AuditLines {
        /// The number of the file; 0: the oldest.
        file: u64,
        /// The place in the file, in bytes.
        offset: u64,
    },
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::User(id) => write!(f, "user {id}"),
            Whom::Hosts { address, prefix } => write!(f, "host {address}/{prefix}"),
            Whom::Token(number) => write!(f, "token {number:032x}"),
            Whom::Client(ClientId(number)) => write!(f, "client {number:032x}"),
            Whom::Session(SessionId(number)) => write!(f, "session {number}"),
        }
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Realm::Volumes(pattern) => write!(f, "volume {pattern}"),
            Realm::Server(server) => write!(f, "server {server}"),
            Realm::Partition(server, name) => write!(f, "partition {server} {name}"),
        }
    }
}
