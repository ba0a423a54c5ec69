//! The session machine with its tables, and the actions that its outputs require.
//!
//! Everything here happens under one lock and does no I/O: frames are queued on their channels in
//! the order in which the machine puts them out, notices are queued in the same order, and
//! [`After`] lists the actions that remain to be done without the lock.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dafs::{
    CallFailure, CallId, ChannelId, ClientInput, ClientOutput, ClientSession, ConnectionRole,
    FrameKind, PeerError, client::Keeping, client::Landing,
};
use types::{Answer, BootVerifier, BreakId, BreakItem, Fault, ReplyAddress, Time, VolumeId};

use super::channel::FrameChannel;
use super::orphans::Orphans;
use super::pending::PendingCall;
use crate::kept::{Answered, Legacy, Place, Receipt};
use crate::{CallError, DoneChange, Reply};

/// So many acknowledged changes are remembered, of all volumes of the server: those that a standby
/// can lack are the latest.
const CHANGES_MAX: usize = 16 << 10;

/// The state of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// No session, or its connection is being made again.
    Apart,
    /// Attached.
    Attached,
    /// The server refuses this client for good; the reason.
    Refused(String),
    /// Closed by its owner.
    Closed,
}

/// May calls proceed after a server's restart?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimGate {
    Open,
    /// Locks and holds are being reclaimed after the restart with this number.
    Reclaiming(u64),
}

/// Something for [`crate::Events`].
#[derive(Debug)]
pub(crate) enum Notice {
    /// With the [`ClientCore::association`] that it belongs to.
    Break(u64, BreakId, Vec<BreakItem>),
    Renewed(Time),
    /// The connection is lost.
    Parted,
    LeaseLost,
}

pub(crate) struct ClientCore {
    pub machine: ClientSession,
    pub calls: HashMap<CallId, Arc<PendingCall>>,
    pub channels: Vec<Arc<FrameChannel>>,
    pub phase: SessionPhase,
    pub gate: ReclaimGate,
    /// A thread reclaims locks and holds; after another restart it does so again by itself.
    pub reclaiming: bool,
    /// There was a session, so the address led to the right server.
    pub attached_once: bool,
    restarts: u64,
    /// Counts sessions and server instances: breaks of an earlier one need no acknowledgement, and
    /// their numbers are used again.
    pub association: u64,
    pub notices: VecDeque<Notice>,
    /// When the machine needs a tick. The machine reports only changes of it, so the last value is
    /// valid.
    pub wake_at: Time,
    pub next_call: u64,
    pub next_channel: u64,
    /// The server's, as of the last attachment.
    pub verifier: Option<BootVerifier>,
    /// Where the session leaves what a successor of this process needs.
    pub place: Option<Place>,
    /// The changes of a predecessor that no request has taken yet.
    pub orphans: Orphans,
    /// The session was a predecessor's, and this process does not know yet what it has in it: all
    /// notices wait, and so does a reclaim.
    pub is_restoring: bool,
    /// The server restarted meanwhile.
    reclaims_later: bool,
    /// Why the last attempt to connect failed, for error messages.
    pub last_error: Option<String>,
    /// The latest changes that were acknowledged, the oldest first.
    changes: VecDeque<DoneChange>,
    /// Calls of the session that were not sent when its connection broke.
    recalled: Vec<CallId>,
    outputs: Vec<ClientOutput>,
}

/// Actions that remain after a step, to be done without the lock.
#[derive(Default)]
pub(crate) struct After {
    /// Channels with new frames.
    pub flush: Vec<Arc<FrameChannel>>,
    /// Channels to close after their last frame.
    pub close: Vec<Arc<FrameChannel>>,
    /// Connections to make.
    pub connect: Vec<(ConnectionRole, Time)>,
    /// A tick is due then, as far as this step knew.
    pub wake_at: Option<Time>,
    /// Notices were queued.
    pub notices: bool,
    /// Phase or gate changed.
    pub changed: bool,
    /// A thread for the reclaim must be started.
    pub reclaim: bool,
}

/// The request to which a frame replies.
fn replied(input: &ClientInput) -> Option<ReplyAddress> {
    let ClientInput::Arrived { frame, .. } = input else { return None };
    let dafs::FrameHeader { kind, session, slot, request, .. } = frame.header;
    (kind == FrameKind::Reply).then_some(ReplyAddress { session, slot, request })
}

impl ClientCore {
    pub fn new(machine: ClientSession) -> Self {
        ClientCore {
            machine,
            calls: HashMap::new(),
            channels: Vec::new(),
            phase: SessionPhase::Apart,
            gate: ReclaimGate::Open,
            reclaiming: false,
            attached_once: false,
            restarts: 0,
            association: 0,
            notices: VecDeque::new(),
            wake_at: Time::NEVER,
            next_call: 1,
            next_channel: 1,
            verifier: None,
            place: None,
            orphans: Orphans::default(),
            is_restoring: false,
            reclaims_later: false,
            last_error: None,
            changes: VecDeque::new(),
            recalled: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Gives the machine one input; `from` is the channel over which it came, with the descriptor
    /// that came beside it.
    pub fn step(
        &mut self,
        now: Time,
        input: ClientInput,
        from: Option<ChannelId>,
        descriptor: Option<OwnedFd>,
    ) -> After {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut after = After::default();
        let replied = replied(&input);
        let result = self.machine.step(now, input, &mut outputs);
        self.take_outputs(&mut outputs, descriptor, replied, &mut after);
        for id in std::mem::take(&mut self.recalled) {
            // A cancelled call is no fault of the server.
            let _ = self.machine.step(now, ClientInput::Cancel(id), &mut outputs);
            self.take_outputs(&mut outputs, None, None, &mut after);
        }
        self.outputs = outputs;
        if let Err(error) = result {
            self.on_peer_error(&error, from, &mut after);
        }
        after
    }

    /// Takes the first outputs of a new machine.
    pub fn begin(&mut self, mut outputs: Vec<ClientOutput>) -> After {
        let mut after = After::default();
        self.take_outputs(&mut outputs, None, None, &mut after);
        after
    }

    fn on_peer_error(&mut self, error: &PeerError, from: Option<ChannelId>, after: &mut After) {
        if self.phase == SessionPhase::Closed {
            // A frame that was in transit when the session was closed.
            tracing::debug!(%error, "after closing");
        } else {
            tracing::warn!(%error, "the server broke the protocol; the client connects again");
        }
        self.last_error = Some(error.to_string());
        if let Some(channel) = from.and_then(|id| self.forget_channel(id)) {
            after.close.push(channel);
        }
    }

    fn take_outputs(
        &mut self,
        outputs: &mut Vec<ClientOutput>,
        mut descriptor: Option<OwnedFd>,
        mut replied: Option<ReplyAddress>,
        after: &mut After,
    ) {
        for output in outputs.drain(..) {
            match output {
                ClientOutput::Connect { role, at } => {
                    if role == ConnectionRole::Operations {
                        if self.phase == SessionPhase::Attached {
                            self.notice(Notice::Parted, after);
                        }
                        self.become_phase(SessionPhase::Apart, after);
                        self.recall();
                    }
                    after.connect.push((role, at));
                }
                ClientOutput::Send { channel, frame } => {
                    // The channel may have broken; the machine learns of that by a later input.
                    if let Some(channel) = self.channel(channel) {
                        channel.push(frame);
                        if !after.flush.iter().any(|known| known.id == channel.id) {
                            after.flush.push(Arc::clone(channel));
                        }
                    }
                }
                ClientOutput::Close { channel } => after.close.extend(self.forget_channel(channel)),
                ClientOutput::Keep(keeping) => self.keep(&keeping),
                ClientOutput::Done { id, mut result, descriptor: with, landing } => {
                    let body = if with { descriptor.take() } else { None };
                    let pending = self.calls.remove(&id);
                    self.orphans.answered(id);
                    if pending.as_ref().is_some_and(|pending| pending.is_withdrawn()) {
                        result = Err(CallFailure::SessionLost);
                    }
                    let keeps = pending.as_ref().is_some_and(|pending| pending.keeps_answer);
                    let receipt = self.land(id, &result, landing, keeps && body.is_none());
                    // The calls behind a failed member of a chain end in the same step.
                    let origin = replied.take();
                    if let Some(pending) = pending {
                        self.note_change(&pending, origin, result.as_ref().ok());
                        pending.finish_with(to_reply(result, body, self.verifier), receipt);
                    }
                }
                ClientOutput::Break { id, items } => {
                    self.notice(Notice::Break(self.association, id, items), after);
                }
                ClientOutput::Renewed { sent_at, .. } => {
                    self.notice(Notice::Renewed(sent_at), after);
                }
                ClientOutput::SessionLost => {
                    debug_assert!(self.attached_once, "LK-4: what is lost was there");
                    self.notice(Notice::LeaseLost, after);
                    self.association += 1;
                    self.gate = ReclaimGate::Open;
                    self.reclaims_later = false;
                    if let Some(place) = &mut self.place {
                        place.lost();
                    }
                    after.changed = true;
                }
                ClientOutput::Established { resumed, restarted, session, boot_verifier } => {
                    self.verifier = Some(boot_verifier);
                    tracing::info!(session = session.0, resumed, restarted, "attached");
                    self.become_phase(SessionPhase::Attached, after);
                    self.attached_once = true;
                    self.association += u64::from(!resumed || restarted);
                    if !resumed {
                        // No server knows the replies of a session that ended.
                        self.changes.clear();
                    }
                    if resumed && restarted && self.is_restoring {
                        self.reclaims_later = true;
                    } else if resumed && restarted {
                        self.begin_reclaim(after);
                    }
                }
                ClientOutput::Refused(fault) => self.refuse(&fault, after),
                ClientOutput::Closed => {
                    if let Some(place) = self.place.take() {
                        place.end();
                    }
                    self.become_phase(SessionPhase::Closed, after);
                }
                ClientOutput::WakeAt(time) => {
                    self.wake_at = time;
                    after.wake_at = Some(time);
                }
            }
        }
    }

    /// Notes a change that was acknowledged, or where one was that failed or was withdrawn.
    fn note_change(
        &mut self,
        pending: &PendingCall,
        origin: Option<ReplyAddress>,
        answer: Option<&Answer>,
    ) {
        let Some((change, origin)) = pending.change.zip(origin) else { return };
        let Some(answer) = answer else { return pending.sent_at(Some(origin)) };
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        let is_certain = change.is_certain(answer);
        self.changes.push_back(DoneChange { origin, fid: change.fid, is_certain });
    }

    /// The connection broke: notes the calls of the session that were not sent.
    fn recall(&mut self) {
        let of_session = self.calls.iter().filter(|(_, pending)| pending.is_of_session);
        let ids = of_session.map(|(id, _)| *id);
        self.recalled.extend(ids.filter(|id| dafs::client::place_of(&self.machine, *id).is_none()));
    }

    /// See [`crate::Remote::withdraw_changes`].
    pub fn withdraw_changes(&self, volume: VolumeId) {
        for pending in self.calls.values() {
            if pending.change.is_some_and(|change| change.fid.volume == volume) {
                pending.withdraw();
            }
        }
    }

    /// See [`crate::Remote::take_changes`].
    pub fn take_changes(&mut self, volume: VolumeId) -> Vec<DoneChange> {
        let taken = self.changes.iter().filter(|done| done.fid.volume == volume).copied().collect();
        self.changes.retain(|done| done.fid.volume != volume);
        taken
    }

    /// Takes what a predecessor left: the machine goes on with its session.
    pub fn inherit(&mut self, legacy: Legacy) {
        self.next_call = legacy.last_call + 1;
        for Answered { request, outcome, verifier } in legacy.answered {
            let (Some(place), Ok(call)) = (&self.place, request.call()) else { continue };
            let pending = Arc::new(PendingCall::keeping());
            let result = to_reply(outcome.map_err(CallFailure::Fault), None, verifier);
            pending.finish_with(result, Some(place.receipt(request.id)));
            self.orphans.add(request.id, request.caller, call, pending);
        }
        for request in legacy.lost {
            let Some(place) = &self.place else { continue };
            match request.call() {
                Ok(call) if !call.leaves_nothing() => {
                    let pending = Arc::new(PendingCall::keeping());
                    let lost = to_reply(Err(CallFailure::SessionLost), None, None);
                    pending.finish_with(lost, Some(place.receipt(request.id)));
                    self.orphans.add(request.id, request.caller, call, pending);
                }
                _ => place.drop_request(request.id),
            }
        }
        let Some(kept) = legacy.session else { return };
        (self.is_restoring, self.attached_once) = (true, true);
        for request in kept.requests {
            self.orphans.wait_for(request.id);
            if let Ok(call) = request.call()
                && !call.leaves_nothing()
            {
                let pending = Arc::new(PendingCall::keeping());
                self.calls.insert(request.id, Arc::clone(&pending));
                self.orphans.add(request.id, request.caller, call, pending);
            }
        }
        tracing::info!(
            session = kept.terms.session.0,
            unanswered = self.orphans.len(),
            "goes on with the session of the process before"
        );
    }

    fn keep(&mut self, keeping: &Keeping) {
        let Some(place) = &mut self.place else { return };
        match keeping {
            Keeping::Session(terms) => place.put_terms(terms),
            Keeping::Request(request) => place.put_request(request),
        }
    }

    /// Notes the end of a call for a successor, before any thread has the answer.
    fn land(
        &mut self,
        id: CallId,
        result: &Result<Answer, CallFailure>,
        landing: Option<Landing>,
        keeps_answer: bool,
    ) -> Option<Receipt> {
        let place = self.place.as_mut()?;
        let Some(landing) = landing else {
            return match result {
                // A successor says so, too.
                Err(CallFailure::SessionLost) if keeps_answer => Some(place.receipt(id)),
                Err(CallFailure::SessionLost) => {
                    place.drop_request(id);
                    None
                }
                _ => None,
            };
        };
        let outcome = match result {
            // Without its effect it can be made again.
            Err(CallFailure::Fault(Fault::Cancelled)) => None,
            Err(CallFailure::Fault(fault)) => Some(Err(*fault)),
            // The copy is made only if it is kept.
            Ok(answer) if keeps_answer => Some(Ok(answer.clone())),
            _ => None,
        };
        let outcome = outcome.filter(|_| keeps_answer);
        place.land(id, &landing, outcome.as_ref().map(|outcome| (outcome, self.verifier)))
    }

    /// This process knows what it has in its predecessor's session.
    pub fn restored(&mut self) -> After {
        let mut after = After::default();
        if std::mem::take(&mut self.is_restoring) {
            after.notices = !self.notices.is_empty();
            if std::mem::take(&mut self.reclaims_later) {
                self.begin_reclaim(&mut after);
            }
        }
        after
    }

    /// Is there something of a predecessor that this process has not gone on with?
    pub fn has_legacy(&self) -> bool {
        self.is_restoring || self.orphans.len() > 0
    }

    /// The channel of operations, if there is one.
    pub fn operations(&self) -> Option<Arc<FrameChannel>> {
        self.channels
            .iter()
            .rev()
            .find(|channel| channel.role == ConnectionRole::Operations)
            .cloned()
    }

    /// The back channel, if there is one.
    pub fn back(&self) -> Option<Arc<FrameChannel>> {
        self.channels.iter().rev().find(|channel| channel.role == ConnectionRole::Back).cloned()
    }

    /// Does the channel (still) belong to the session?
    pub fn knows(&self, id: ChannelId) -> bool {
        self.channel(id).is_some()
    }

    /// Removes a channel.
    pub fn forget_channel(&mut self, id: ChannelId) -> Option<Arc<FrameChannel>> {
        let at = self.channels.iter().position(|channel| channel.id == id)?;
        Some(self.channels.remove(at))
    }

    fn channel(&self, id: ChannelId) -> Option<&Arc<FrameChannel>> {
        self.channels.iter().find(|channel| channel.id == id)
    }

    fn notice(&mut self, notice: Notice, after: &mut After) {
        self.notices.push_back(notice);
        after.notices = true;
    }

    /// Ends every call that waits.
    pub fn finish_all(&mut self, why: &CallError) {
        for (_, pending) in self.calls.drain() {
            pending.finish(Err(why.clone()));
        }
    }

    fn refuse(&mut self, fault: &Fault, after: &mut After) {
        let why = match fault {
            Fault::Expired => "a later incarnation of this client is attached".to_owned(),
            other => other.to_string(),
        };
        self.become_phase(SessionPhase::Refused(why.clone()), after);
        self.finish_all(&CallError::Refused(why));
    }

    fn begin_reclaim(&mut self, after: &mut After) {
        self.restarts += 1;
        self.gate = ReclaimGate::Reclaiming(self.restarts);
        after.reclaim = !std::mem::replace(&mut self.reclaiming, true);
        after.changed = true;
    }

    fn become_phase(&mut self, to: SessionPhase, after: &mut After) {
        // A refused or closed session stays so.
        if matches!(self.phase, SessionPhase::Closed | SessionPhase::Refused(_)) {
            return;
        }
        tracing::debug!(from = ?self.phase, ?to, "session");
        self.phase = to;
        after.changed = true;
    }
}

fn to_reply(
    result: Result<Answer, CallFailure>,
    body: Option<OwnedFd>,
    verifier: Option<BootVerifier>,
) -> Result<Reply, CallError> {
    match result {
        Ok(answer) => Ok(Reply { answer, body, verifier }),
        Err(CallFailure::Fault(Fault::Cancelled)) => Err(CallError::Cancelled),
        Err(CallFailure::Fault(fault)) => Err(CallError::Fault(fault)),
        Err(CallFailure::SessionLost) => Err(CallError::Lost),
        Err(CallFailure::QueueFull) => Err(CallError::Fault(Fault::Busy)),
        // Credits were withdrawn in between: nothing of the chain was sent.
        Err(CallFailure::BadChain) => Err(CallError::Fault(Fault::ChainAborted)),
        Err(CallFailure::Unsendable(error)) => {
            tracing::warn!(%error, "a call breaks a limit of the protocol");
            Err(CallError::Fault(Fault::Invalid))
        }
        Err(CallFailure::Unreadable(error)) => {
            tracing::warn!(
                %error,
                cause = "the server is newer than this program, or faulty",
                consequence = "the call fails, and whether it was applied is unknown",
                remedy = "compare the versions of both ('rialto status', 'rialto --version')",
                "an answer cannot be read"
            );
            Err(CallError::Unreadable)
        }
        Err(CallFailure::Closed) => Err(CallError::Closed),
    }
}
