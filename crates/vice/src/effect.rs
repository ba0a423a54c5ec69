//! Effects: orders of the service to its driver.

use std::os::fd::OwnedFd;

use types::{Answer, BreakId, BreakItem, Fault, Fid, ReplyAddress, SessionId};

/// One order for the driver to carry out. The effects of one call of the service are in the order
/// in which they must be sent.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly every effect is a reply
pub enum Effect {
    /// The answer to a request; every request gets exactly one, unless its session ended before.
    Reply {
        /// The request's session, slot and number.
        origin: ReplyAddress,
        /// The answer, or the refusal.
        result: Result<Answer, Fault>,
        /// With [`Answer::Body`]: a read-only descriptor of the body.
        body: Option<OwnedFd>,
    },
    /// A call has its effect, and its reply comes when standbys have it: what the same client asked
    /// to be done after it may be executed.
    Executed {
        /// The request's session, slot and number.
        origin: ReplyAddress,
        /// The file that the rest of its chain may name without its number.
        current: Option<Fid>,
    },
    /// Promises that end. The session answers with [`crate::Vice::ack`].
    Break {
        /// The session that had the promises.
        to: SessionId,
        /// Number that the acknowledgement names.
        id: BreakId,
        /// The promises, and why each ends.
        items: Vec<BreakItem>,
    },
    /// The session is over with its locks and holds: close its connections, accept no more from it.
    SessionEnded(SessionId),
}
