//! The two halves of a client-server association: what the client asks ([`Remote`]), and what it is
//! told ([`Events`]).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{Answer, BootVerifier, BreakItem, Call, Caller, Fault, Fid, ServerId, Time};

use crate::Cancel;

/// An answer, and the descriptor that came beside it (only with [`Answer::Body`] and
/// [`Answer::Blank`]).
#[derive(Debug)]
pub struct Reply {
    /// What was answered.
    pub answer: Answer,
    /// The body that the answer speaks of, open for reading.
    pub body: Option<OwnedFd>,
    /// The boot verifier of the server under which it came: that of the session's last attachment.
    /// `None`: nobody says.
    pub verifier: Option<BootVerifier>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, body: None, verifier: None }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The service refused.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The caller took the call back before it had an effect.
    #[error("cancelled")]
    Cancelled,
    /// No answer within the deadline of the session's configuration. Whether the call was applied
    /// is unknown.
    #[error("no answer within the deadline")]
    TimedOut,
    /// The session ended (its lease was over) before the reply to a change came. Whether it was
    /// applied is unknown.
    #[error("session ended before the reply")]
    Lost,
    /// The server answered in a way that this program cannot read: it is newer, or in error.
    /// Whether the call was applied is unknown.
    #[error("the server's answer cannot be read; it may be newer than this program")]
    Unreadable,
    /// The session was closed by its owner.
    #[error("session is closed")]
    Closed,
    /// The server does not want this client: version, identity, or what it says was malformed.
    /// Trying again is no use.
    #[error("server refuses: {0}")]
    Refused(String),
}

impl CallError {
    /// The service's refusal, if it is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            CallError::Fault(fault) => Some(*fault),
            CallError::Cancelled
            | CallError::TimedOut
            | CallError::Lost
            | CallError::Unreadable
            | CallError::Closed
            | CallError::Refused(_) => None,
        }
    }
}

/// A file service that can be called from any number of threads. A call blocks its thread until the
/// answer is there.
pub trait Remote: Send + Sync {
    /// Calls, as `caller`. Waits through lost connections and server restarts. After `cancel` fires
    /// the call ends soon: with [`CallError::Cancelled`] if it had no effect, otherwise with its
    /// real answer.
    ///
    /// # Errors
    /// [`CallError::Fault`] is the service's refusal; the others say why there is no answer.
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError>;

    /// The same for a question that an acknowledgement of ours waits for: it is not held up by
    /// calls that may wait for just that.
    ///
    /// # Errors
    /// As [`Self::call`].
    fn call_urgently(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.call(caller, call, cancel)
    }

    /// Calls in order, in one request: [`Fid::CURRENT`] in a call means the file that the one
    /// before answered with. After the first failure the rest is [`Fault::ChainAborted`]. One
    /// result for each call, in order.
    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>>;

    /// As [`Remote::chain`], but each result is given to `take` as soon as it is here, with its
    /// place in the chain.
    fn chain_each(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        self.chain(caller, calls).into_iter().enumerate().for_each(|(at, result)| take(at, result));
    }

    /// As [`Remote::chain_each`], for questions alone, whose answers are not waited for any more
    /// once `cancel` has fired.
    fn chain_each_until(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        _cancel: &Cancel,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        self.chain_each(caller, calls, take);
    }

    /// Who hears of breaks and of the session's fate from now on. Called once, before the first
    /// call.
    fn set_events(&self, events: Arc<dyn Events>);

    /// Whether [`Call::OpenBody`] can work here.
    fn passes_descriptors(&self) -> bool;

    /// Whether the server can be heard now, as far as is known.
    fn stands(&self) -> bool {
        true
    }

    /// The boot verifier of the server as of the last attachment. `None`: nobody says.
    fn boot_verifier(&self) -> Option<BootVerifier> {
        None
    }

    /// Which server it is, and where it may be found too when it is not where it was. From then on
    /// no other server is taken for it.
    fn found_at(&self, _server: ServerId, _addresses: &[SocketAddr]) {}

    /// Ends in good order, if there is something to end: every call fails from now on.
    fn detach(&self) {}
}

/// A break that is to be acknowledged: that happens when this is dropped, in whatever thread.
pub struct BreakAck {
    held: Vec<Fid>,
    #[allow(clippy::type_complexity)] // it is named here
    acknowledge: Mutex<Option<Box<dyn FnOnce(Vec<Fid>) + Send>>>,
}

impl BreakAck {
    /// `acknowledge` is called once, with the files that are held.
    pub fn new(acknowledge: impl FnOnce(Vec<Fid>) + Send + 'static) -> Self {
        BreakAck { held: Vec::new(), acknowledge: Mutex::new(Some(Box::new(acknowledge))) }
    }

    /// Those of the files that are open here, which the server holds from then on.
    pub fn hold(&mut self, fids: impl IntoIterator<Item = Fid>) {
        self.held.extend(fids);
    }
}

impl Drop for BreakAck {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.acknowledge.lock().take() {
            acknowledge(std::mem::take(&mut self.held));
        }
    }
}

/// What a session tells its owner. Each is called from a thread of the session, never from within a
/// call.
pub trait Events: Send + Sync {
    /// Promises end. The break is acknowledged when `heard` is dropped, and a change elsewhere
    /// waits for that. Other breaks wait for the return: never wait for the kernel or the server in
    /// here.
    fn on_break(&self, items: &[BreakItem], heard: BreakAck);

    /// A renewal that was sent at this time ([`crate::clock`]) was answered: the lease runs from
    /// there.
    fn on_renewed(&self, sent_at: Time);

    /// The server cannot be heard any more. Calls go on waiting for it.
    fn on_parted(&self) {}

    /// The lease is over: promises, holds and locks are gone. A new session follows by itself.
    fn on_lease_lost(&self);

    /// The server lives a new life and knows no promise of this session any more. Claim holds and
    /// locks through `reclaim` (other calls wait meanwhile); [`Call::ReclaimDone`] is sent on
    /// return.
    fn on_server_restarted(&self, reclaim: &dyn Remote);

    /// The volume is on another server from now on, in another session: no promise, blank or lend
    /// of the old one holds. Claim holds and locks through `reclaim`, which calls the new one;
    /// other calls wait meanwhile. The new lease is told on return.
    fn on_moved(&self, reclaim: &dyn Remote) {
        self.on_server_restarted(reclaim);
    }
}
