//! Sessions whose other ends do not speak Rialto's protocol.

use types::{Answer, BreakId, BreakItem, Fault, ReplyAddress, SessionId};

/// The owner of such sessions takes what the service has for them. It must not wait.
pub(crate) trait ForeignSessions: Send + Sync {
    /// The answer to a call that was made by [`crate::context::ServerContext::perform_foreign`].
    fn answer(&self, origin: ReplyAddress, result: Result<Answer, Fault>);

    /// These promises end. The service is told when the other end knows
    /// ([`vice::Vice::ack`]).
    fn end_promises(&self, session: SessionId, id: BreakId, items: Vec<BreakItem>);

    /// The session is over.
    fn ended(&self, session: SessionId);
}
