//! What the service asks its driver to do.

use std::os::fd::OwnedFd;

use types::{Answer, BreakId, BreakItem, Fault, ReplyAddress, SessionId};

/// One thing for the driver to send or to forget. Effects of one call of the service are in the
/// order in which they must go out.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly every effect is a reply
pub enum Effect {
    /// The answer to a request; every request gets exactly one, unless its session ended before.
    Reply {
        /// Which request.
        origin: ReplyAddress,
        /// What came of it.
        result: Result<Answer, Fault>,
        /// With [`Answer::Body`]: a read-only descriptor of the body.
        body: Option<OwnedFd>,
    },
    /// Promises that end. The session answers with [`crate::Vice::ack`].
    Break {
        /// Who holds them.
        to: SessionId,
        /// What the acknowledgement names.
        id: BreakId,
        /// Which, and why.
        items: Vec<BreakItem>,
    },
    /// The session is gone with its locks and holds: close its connection, expect no more of it.
    SessionEnded(SessionId),
}
