//! What has to happen outside after an event.

use types::{BreakId, BreakItem, ClientId, Fault, Fid, ReplyAddress, SessionId};

/// Names a change that waits until its breaks are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakTicket(pub u64);

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its lease was over.
    Expired,
    /// Its client came back with a higher incarnation.
    Replaced,
    /// Its client is known to have died.
    PeerDied,
    /// Its client said goodbye.
    Detached,
}

/// What has to happen outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Tell a session that promises ended. May be dropped while the session has no connection: it
    /// is said again when the session resumes.
    Break {
        /// Whom.
        to: SessionId,
        /// What the acknowledgement names.
        id: BreakId,
        /// Which promises, and why.
        items: Vec<BreakItem>,
    },
    /// Nobody trusts what the change made old any more: its reply may go out (CB-1).
    TicketDone(BreakTicket),
    /// A lock request that waited has its answer.
    LockDone {
        /// Which request.
        origin: ReplyAddress,
        /// `Ok`: locked. [`Fault::Locked`] for a request that only waited for grace,
        /// [`Fault::Deadlock`], [`Fault::Cancelled`], or [`Fault::Expired`] when its session ended.
        result: Result<(), Fault>,
    },
    /// A session is over; promises, locks, holds and waiting requests went with it. Its durable
    /// record can go.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Whose it was.
        client: ClientId,
        /// Why.
        reason: EndReason,
        /// Files that nobody holds any more. Empty during grace; see `GraceOver`.
        freed: Vec<Fid>,
    },
    /// These directories are not delegated any more: who waits for one can go on (DE-2).
    DelegationsOver(Vec<Fid>),
    /// During grace: one that may have changed files under delegations has settled, and others may
    /// be allowed to read now ([`crate::Leases::may_read`]).
    ReadingAgain,
    /// The earlier life is settled: changes and new locks go on, and files without names that
    /// nobody holds can go.
    GraceOver,
}
