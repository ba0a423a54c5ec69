//! Effects of an event, for the driver to carry out.

use types::{BreakId, BreakItem, ClientId, Fault, Fid, ReplyAddress, SessionId};

/// Names a change that waits until its breaks are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakTicket(pub u64);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its lease ended without a renewal.
    Expired,
    /// Its client came back with a later incarnation.
    Replaced,
    /// Its host reported that the client died.
    PeerDied,
    /// Its client detached.
    Detached,
}

/// One effect for the driver to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a break to a session. It may be dropped while the session has no connection: it is sent
    /// again when the session resumes.
    Break {
        /// The session that had the promises.
        to: SessionId,
        /// Number that the acknowledgement names.
        id: BreakId,
        /// Files whose promises end, each with its reason.
        items: Vec<BreakItem>,
    },
    /// No session trusts the old state any more: the reply of the change may be sent (CB-1).
    TicketDone(BreakTicket),
    /// A lock request that waited has its result.
    LockDone {
        /// The request that waited.
        origin: ReplyAddress,
        /// `Ok`: locked. [`Fault::Locked`] for a request that only waited for grace,
        /// [`Fault::Deadlock`], [`Fault::Cancelled`], or [`Fault::Expired`] when its session ended.
        result: Result<(), Fault>,
    },
    /// A session is over, with its promises, locks, holds and waiting requests. Its durable record
    /// can be removed.
    SessionEnded {
        /// Number of the session.
        session: SessionId,
        /// The client that it belonged to.
        client: ClientId,
        /// The event that ended it.
        reason: EndReason,
        /// Files that no session holds any more. Empty during grace; see `GraceOver`.
        freed: Vec<Fid>,
    },
    /// These directories are not delegated any more: calls that wait for one can continue (DE-2).
    DelegationsOver(Vec<Fid>),
    /// During grace: a session that may have changed files under delegations has finished, and
    /// others may be allowed to read now ([`crate::Leases::may_read`]).
    ReadingAgain,
    /// Grace is over: changes and new locks continue, and files without names that no session holds
    /// can be removed.
    GraceOver,
}
