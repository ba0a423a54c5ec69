//! The session machine with its tables, and what its outputs ask for.
//!
//! Everything in here happens under one lock and does no I/O: frames are queued on their channels
//! in the order in which the machine puts them out, notices are queued in the same order, and
//! [`After`] says what is left to do without the lock.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dafs::{
    CallFailure, CallId, ChannelId, ClientInput, ClientOutput, ClientSession, ConnectionRole,
    PeerError,
};
use types::{Answer, BootVerifier, BreakId, BreakItem, Fault, Time};

use crate::channel::FrameChannel;
use crate::pending::PendingCall;
use crate::{CallError, Reply};

/// How the session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// No session, or its connection is being made again.
    Apart,
    /// Attached.
    Attached,
    /// The server wants us never again.
    Refused(String),
    /// Closed by its owner.
    Closed,
}

/// Whether calls go on after a server's restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReclaimGate {
    Open,
    /// Locks and holds are being claimed, for this restart (they are counted).
    Reclaiming(u64),
}

/// Something for [`crate::Events`].
#[derive(Debug)]
pub(crate) enum Notice {
    /// With the [`ClientCore::association`] that it belongs to.
    Break(u64, BreakId, Vec<BreakItem>),
    Renewed(Time),
    /// The connection is gone.
    Parted,
    LeaseLost,
}

pub(crate) struct ClientCore {
    pub machine: ClientSession,
    pub calls: HashMap<CallId, Arc<PendingCall>>,
    pub channels: Vec<Arc<FrameChannel>>,
    pub phase: SessionPhase,
    pub gate: ReclaimGate,
    /// A thread claims what was held; it sees by itself when it must do so again.
    pub reclaiming: bool,
    /// There was a session: its server was right then.
    pub attached_once: bool,
    restarts: u64,
    /// Counts sessions and lives of the server: breaks of an earlier one need no acknowledgement,
    /// and their numbers come again.
    pub association: u64,
    pub notices: VecDeque<Notice>,
    /// When the machine wants a tick. It says so only when that changes, so the last word counts,
    /// in the machine's order.
    pub wake_at: Time,
    pub next_call: u64,
    pub next_channel: u64,
    /// The server's, when it was attached to last.
    pub verifier: Option<BootVerifier>,
    /// Why the last attempt to connect failed, for people.
    pub last_error: Option<String>,
    outputs: Vec<ClientOutput>,
}

/// What is left to do after a step, without the lock.
#[derive(Default)]
pub(crate) struct After {
    /// Channels with new frames.
    pub flush: Vec<Arc<FrameChannel>>,
    /// Channels to close behind their last frame.
    pub close: Vec<Arc<FrameChannel>>,
    /// Connections to make.
    pub connect: Vec<(ConnectionRole, Time)>,
    /// A tick is due then, as far as this step knew.
    pub wake_at: Option<Time>,
    /// Notices were queued.
    pub notices: bool,
    /// Phase or gate changed.
    pub changed: bool,
    /// A thread for the reclaim is needed.
    pub reclaim: bool,
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
            last_error: None,
            outputs: Vec::new(),
        }
    }

    /// Gives the machine one input, which came over `from` if over any, with the descriptor that
    /// came beside it.
    pub fn step(
        &mut self,
        now: Time,
        input: ClientInput,
        from: Option<ChannelId>,
        descriptor: Option<OwnedFd>,
    ) -> After {
        let mut outputs = std::mem::take(&mut self.outputs);
        let mut after = After::default();
        let result = self.machine.step(now, input, &mut outputs);
        self.take_outputs(&mut outputs, descriptor, &mut after);
        self.outputs = outputs;
        if let Err(error) = result {
            self.on_peer_error(&error, from, &mut after);
        }
        after
    }

    /// What a new machine puts out.
    pub fn begin(&mut self, mut outputs: Vec<ClientOutput>) -> After {
        let mut after = After::default();
        self.take_outputs(&mut outputs, None, &mut after);
        after
    }

    fn on_peer_error(&mut self, error: &PeerError, from: Option<ChannelId>, after: &mut After) {
        if self.phase == SessionPhase::Closed {
            // A frame that was on its way when we closed.
            tracing::debug!(%error, "after closing");
        } else {
            tracing::warn!(%error, "the server misbehaved; connecting anew");
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
                    }
                    after.connect.push((role, at));
                }
                ClientOutput::Send { channel, frame } => {
                    // A channel that broke meanwhile: its loss is on its way to the machine.
                    if let Some(channel) = self.channel(channel) {
                        channel.push(frame);
                        if !after.flush.iter().any(|known| known.id == channel.id) {
                            after.flush.push(Arc::clone(channel));
                        }
                    }
                }
                ClientOutput::Close { channel } => after.close.extend(self.forget_channel(channel)),
                ClientOutput::Done { id, result, descriptor: with } => {
                    if let Some(pending) = self.calls.remove(&id) {
                        let body = if with { descriptor.take() } else { None };
                        pending.finish(to_reply(result, body, self.verifier));
                    }
                }
                ClientOutput::Break { id, items } => {
                    self.notice(Notice::Break(self.association, id, items), after);
                }
                ClientOutput::Renewed { sent_at, .. } => {
                    self.notice(Notice::Renewed(sent_at), after);
                }
                ClientOutput::SessionLost => {
                    self.notice(Notice::LeaseLost, after);
                    self.association += 1;
                    self.gate = ReclaimGate::Open;
                    after.changed = true;
                }
                ClientOutput::Established { resumed, restarted, session, boot_verifier } => {
                    self.verifier = Some(boot_verifier);
                    tracing::info!(session = session.0, resumed, restarted, "attached");
                    self.become_phase(SessionPhase::Attached, after);
                    self.attached_once = true;
                    self.association += u64::from(!resumed || restarted);
                    if resumed && restarted {
                        self.begin_reclaim(after);
                    }
                }
                ClientOutput::Refused(fault) => self.refuse(&fault, after),
                ClientOutput::Closed => self.become_phase(SessionPhase::Closed, after),
                ClientOutput::WakeAt(time) => {
                    self.wake_at = time;
                    after.wake_at = Some(time);
                }
            }
        }
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

    /// Whether the channel is (still) the session's.
    pub fn knows(&self, id: ChannelId) -> bool {
        self.channel(id).is_some()
    }

    /// Takes a channel out.
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
            Fault::Expired => "a younger life of this client is attached".to_owned(),
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
        // What was refused or closed stays so.
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
        // Credits were taken away meanwhile: nothing of it was sent.
        Err(CallFailure::BadChain) => Err(CallError::Fault(Fault::ChainAborted)),
        Err(CallFailure::Unsendable(error)) => {
            tracing::warn!(%error, "a call breaks a limit of the protocol");
            Err(CallError::Fault(Fault::Invalid))
        }
        Err(CallFailure::Unreadable(error)) => {
            tracing::warn!(
                %error,
                cause = "the server is newer than this program, or in error",
                consequence = "the call fails, and whether it was applied is unknown",
                remedy = "see which versions both have ('rialto status', 'rialto --version')",
                "an answer cannot be read"
            );
            Err(CallError::Unreadable)
        }
        Err(CallFailure::Closed) => Err(CallError::Closed),
    }
}
