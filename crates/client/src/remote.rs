//! The two halves of a client-server association: the calls of the client ([`Remote`]), and the
//! events that reach it ([`Events`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use dafs::CallId;
use fabric::tls::RefusedKeys;
use mem::arena::Buffer;
use parking_lot::Mutex;
use types::{
    Answer, BootVerifier, BreakItem, Call, Caller, ClientId, Fid, ReplyAddress, ServerId,
    ServerKind, ServerRoles, Time, VolumeId,
};

use crate::{CallError, Cancel, Completed, CompletionGroup, Reply};

/// A call that was submitted, at the session that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted(pub(crate) Option<CallId>);

/// A change that a server acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoneChange {
    /// Its request.
    pub origin: ReplyAddress,
    /// The file that it named, of the volume.
    pub fid: Fid,
    /// It certainly changed something, so that its server recorded the reply.
    pub is_certain: bool,
}

/// Which server instance answers calls now, in which session. Two that are equal, before a call and
/// after its answer, prove that one instance had the session all the time, and so all its locks and
/// opens. Events report a change of it later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Association {
    /// Counts the places of a volume.
    pub places: u64,
    /// Counts sessions and server instances there.
    pub sessions: u64,
}

/// How the connections of a session are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionReport {
    /// The number under which servers know this client; `None`: it has no session.
    pub client: Option<ClientId>,
    /// Others in the network can read them.
    pub is_clear_text: bool,
    /// Fingerprints of the authorities that vouch for the server; empty without TLS.
    pub authorities: Vec<String>,
}

/// A file service that any number of threads can call. A call blocks its thread until the answer
/// arrives.
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

    /// As [`Self::call`], for a question that must be answered before this client acknowledges a
    /// break: calls that may wait for that acknowledgement do not delay it.
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

    /// Sends calls in order, in one request: [`Fid::CURRENT`] in a call means the file that the
    /// call before it answered with. After the first failure the rest is [`Fault::ChainAborted`].
    /// One result for each call, in order.
    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>>;

    /// As [`Remote::chain`], but gives each result to `take` as soon as it arrives, with its place
    /// in the chain.
    fn chain_each(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        self.chain(caller, calls).into_iter().enumerate().for_each(|(at, result)| take(at, result));
    }

    /// As [`Remote::chain_each`]; it stops waiting for answers once `cancel` has fired. So it is
    /// for questions, and for changes whose outcome does not matter then.
    fn chain_each_until(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        _cancel: &Cancel,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        self.chain_each(caller, calls, take);
    }

    /// As [`Remote::call`]. After an error, `at` is the place of the request, if one was sent.
    ///
    /// # Errors
    /// As [`Remote::call`].
    fn call_at(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        _at: &mut Option<ReplyAddress>,
    ) -> Result<Reply, CallError> {
        self.call(caller, call, cancel)
    }

    /// As [`Remote::chain_each_until`], with the places of the requests that have errors.
    fn chain_each_at(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        cancel: &Cancel,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>, Option<ReplyAddress>),
    ) {
        self.chain_each_until(caller, calls, cancel, &mut |at, result| take(at, result, None));
    }

    /// Begins a call that completes into a group, under a number. With memory, the call's data lies
    /// there, or is placed there; the memory stays until the call is over. This one blocks; a
    /// session returns at once.
    ///
    /// # Errors
    /// As [`Self::call`]: nothing was begun.
    fn submit(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        (group, tag): (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        let result = self.call(caller, call, None);
        if let (Ok(Reply { answer: Answer::Data { data, .. }, .. }), Some(memory)) =
            (&result, memory)
        {
            memory.fill_from(data);
        }
        group.complete(Completed { tag, result });
        Ok(Submitted(None))
    }

    /// As [`Remote::submit`], in the session of now or not at all ([`Cancel::of_session`]).
    ///
    /// # Errors
    /// As [`Remote::submit`]; `Cancelled`: the server is away.
    fn submit_in_session(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        self.submit(caller, call, memory, into)
    }

    /// Asks the server to give a submitted call up. It completes in any case: with `Cancelled` if
    /// it still waited.
    fn cancel_submitted(&self, _submitted: Submitted) {}

    /// Waits until `least` operations of the group are complete, at most until `until`.
    fn wait_for(&self, group: &Arc<CompletionGroup>, least: usize, until: Option<Instant>) {
        group.wait(least, until);
    }

    /// Looks for answers in shared memory, without a system call.
    fn look_into_lane(&self) {}

    /// Do direct operations go through shared memory now?
    fn has_lane(&self) -> bool {
        false
    }

    /// A copy of the volume took over elsewhere: changes that have no answer yet end with `Lost`,
    /// though answers may arrive later.
    fn withdraw_changes(&self, _volume: VolumeId) {}

    /// Takes the latest changes of a volume that the server acknowledged, the oldest first, to
    /// compare them with what a copy has that took over. Should the volume come back here, they are
    /// no changes of that stay.
    fn take_changes(&self, _volume: VolumeId) -> Vec<DoneChange> {
        Vec::new()
    }

    /// Sets the sink of breaks and of the session's events. Called once, before the first call.
    fn set_events(&self, events: Arc<dyn Events>);

    /// Can [`Call::OpenBody`] work here?
    fn passes_descriptors(&self) -> bool;

    /// Ends the connections with a server whose key is one of these: none of them is accepted, and
    /// the session looks for its server elsewhere.
    fn refuse_keys(&self, _refused: &RefusedKeys) {}

    /// The roles of the server in its cell, as its certificate says.
    fn server_roles(&self) -> ServerRoles {
        ServerRoles::ALL
    }

    /// The kind of the server. One of AFS has volumes, and no part of the cell's database.
    fn kind(&self) -> ServerKind {
        ServerKind::Rialto
    }

    /// Is the server reachable, as far as the session knows?
    fn stands(&self) -> bool {
        true
    }

    /// The boot verifier of the server as of the last attachment. `None`: unknown.
    fn boot_verifier(&self) -> Option<BootVerifier> {
        None
    }

    /// Which server instance answers now, in which session.
    fn association(&self) -> Association {
        Association::default()
    }

    /// Sets the server's id and further addresses at which to look for it. From then on the session
    /// accepts no other server.
    fn found_at(&self, _server: ServerId, _addresses: &[SocketAddr]) {}

    /// Where the server is, for people.
    fn address(&self) -> String {
        "its server".to_owned()
    }

    /// How its connections are made.
    fn connection(&self) -> ConnectionReport {
        ConnectionReport::default()
    }

    /// Is it the session of a predecessor of this process ([`crate::ClientOptions::keep`])?
    fn is_resumed(&self) -> bool {
        false
    }

    /// This process knows what it has in a resumed session: its files, promises, locks. Until then
    /// all [`Events`] wait, so that the kernel forgets what a break ends before the server learns
    /// of it, and a reclaim claims all. Restoring must come soon, for changes elsewhere wait, and
    /// must make no changes.
    fn restored(&self) {}

    /// The answer to a request of a predecessor of this process that equals this call. Each is
    /// taken once; waits for it. [`CallError::Lost`]: whether it was executed is unknown.
    fn take_orphan(&self, _caller: &Caller, _call: &Call) -> Option<Result<Reply, CallError>> {
        None
    }

    /// The takeover is over: no request of a predecessor is made again.
    fn forget_orphans(&self) {}

    /// Detaches, if there is a session: every call fails from now on.
    fn detach(&self) {}
}

/// The acknowledgement of a break. Its owner acknowledges when it shows the old state no more; a
/// change elsewhere waits for that, for a lease at most (CB-1).
#[must_use = "a change elsewhere waits until the break is acknowledged"]
pub struct BreakAck {
    held: Vec<Fid>,
    /// Taken by [`BreakAck::acknowledge`].
    send: Option<Box<dyn FnOnce(Vec<Fid>) + Send>>,
}

impl BreakAck {
    /// `send` is called with the files that are held, in the thread that acknowledges.
    pub fn new(send: impl FnOnce(Vec<Fid>) + Send + 'static) -> Self {
        BreakAck { held: Vec::new(), send: Some(Box::new(send)) }
    }

    /// Adds those of the files that are open here; the server holds them from then on.
    pub fn hold(&mut self, fids: impl IntoIterator<Item = Fid>) {
        self.held.extend(fids);
    }

    /// Acknowledges.
    pub fn acknowledge(mut self) {
        let send = self.send.take().expect("taken here alone");
        send(std::mem::take(&mut self.held));
    }

    /// Parts of it, at least one: the break is acknowledged when all of them are.
    pub fn split(self, parts: usize) -> Vec<BreakAck> {
        assert!(parts > 0, "CB-1: a break in no part would never be acknowledged");
        let whole = Arc::new(Mutex::new((Some(self), parts)));
        let part = |_| {
            let whole = Arc::clone(&whole);
            BreakAck::new(move |held| {
                let (ack, left) = &mut *whole.lock();
                *left -= 1;
                let mut ack_now = ack.take().expect("there until the last part");
                ack_now.hold(held);
                if *left > 0 { *ack = Some(ack_now) } else { ack_now.acknowledge() }
            })
        };
        (0..parts).map(part).collect()
    }
}

impl Drop for BreakAck {
    fn drop(&mut self) {
        debug_assert!(
            self.send.is_none() || std::thread::panicking(),
            "CB-1: a break was not acknowledged"
        );
    }
}

/// Events of a session. A thread of the session calls each of them, never from within a call.
pub trait Events: Send + Sync {
    /// Promises end. A change elsewhere waits for the acknowledgement, which any thread may give.
    /// Other breaks wait until this returns: it must never wait for the kernel or the server.
    fn on_break(&self, items: &[BreakItem], ack: BreakAck);

    /// A renewal that was sent at this time ([`crate::clock`]) was answered: the lease runs from
    /// there.
    fn on_renewed(&self, sent_at: Time);

    /// The server is unreachable. Calls go on waiting for it.
    fn on_parted(&self) {}

    /// The lease expired: promises, holds and locks are gone. A new session follows by itself.
    fn on_lease_lost(&self);

    /// A new server instance runs and has no promise of this session. Reclaim holds and locks
    /// through `reclaim` (other calls wait meanwhile); the session sends [`Call::ReclaimDone`] on
    /// return.
    fn on_server_restarted(&self, reclaim: &dyn Remote);

    /// The volume moved to another server, in another session: promises, preallocated bodies and
    /// loans of the old one are void. Reclaim holds and locks through `reclaim`, which calls the
    /// new one; other calls wait meanwhile. On return the session reports the new lease.
    fn on_moved(&self, reclaim: &dyn Remote) {
        self.on_server_restarted(reclaim);
    }

    /// A copy of the volume became the read-write volume at another server, because the former one
    /// was lost: what that acknowledged since the copy was made is lost with it, stable or not.
    /// Otherwise as [`Events::on_moved`].
    fn on_taken_over(&self, reclaim: &dyn Remote) {
        self.on_moved(reclaim);
    }

    /// Changes of these files that were acknowledged are lost: after [`Events::on_taken_over`].
    fn on_changes_lost(&self, _fids: &[Fid]) {}

    /// The server is unreachable still, and other servers answer. Called now and then.
    fn on_away(&self) {}
}
