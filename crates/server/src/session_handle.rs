//! A session's state in the server: its machine, and its links.
//!
//! Frames are queued on their links under the handle's lock, in the order in which the machine puts
//! them out, and sent without it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dafs::{ChannelId, Frame, FrameKind, PeerError, ServerInput, ServerOutput, ServerSession};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use types::{Call, ReplyAddress, SessionId, Time};

use crate::connection_lane::LaneRequest;
use crate::direct_reads::{DirectReads, FoundRead};
use crate::link::Link;
use crate::poll::Poll;
use crate::process::PeerLifetime;
use crate::security::Security;

pub(crate) struct SessionHandle {
    pub id: SessionId,
    /// No user has called through it yet.
    of_nobody: AtomicBool,
    /// The files that it may read without a call of the service.
    pub direct: DirectReads,
    cell: Mutex<Cell>,
}

struct Cell {
    machine: ServerSession,
    links: Vec<Arc<Link>>,
    /// For each request in progress that moves data: its link, and the number of bytes.
    moving: HashMap<u32, (Arc<Link>, usize)>,
    /// The process at the other end, if the kernel reported it.
    process: Option<PeerLifetime>,
    outputs: Vec<ServerOutput>,
    panics: Arc<AtomicU64>,
    /// The machine panicked.
    broken: bool,
}

/// The actions after a step, to be done without the lock.
#[derive(Default)]
pub(crate) struct StepOutcome {
    /// Links with new frames.
    pub flush: Vec<Arc<Link>>,
    /// Links to close after their last frame.
    pub close: Vec<Arc<Link>>,
    /// For the service.
    pub work: Vec<ServerOutput>,
    /// The peer's error.
    pub error: Option<PeerError>,
}

impl SessionHandle {
    /// `panics` counts those of its machine.
    pub fn new(machine: ServerSession, of_nobody: bool, panics: Arc<AtomicU64>) -> Self {
        SessionHandle {
            id: machine.id(),
            of_nobody: AtomicBool::new(of_nobody),
            direct: DirectReads::default(),
            cell: Mutex::new(Cell {
                machine,
                links: Vec::new(),
                moving: HashMap::new(),
                process: None,
                outputs: Vec::new(),
                panics,
                broken: false,
            }),
        }
    }

    /// A connection joins with this input, which may refuse it.
    pub fn join(
        &self,
        now: Time,
        link: &Arc<Link>,
        process: Option<PeerLifetime>,
        input: ServerInput,
    ) -> StepOutcome {
        let mut cell = self.cell.lock();
        if matches!(input, ServerInput::Attached { .. }) {
            cell.process = process;
            self.direct.clear();
        }
        let joins = cell.links.iter().all(|other| other.id != link.id);
        assert!(joins, "DA-3: {:?} would be taken for another connection", link.id);
        cell.links.push(Arc::clone(link));
        cell.step(now, input, Some(link.id), None)
    }

    /// A frame came over a link.
    pub fn arrived(&self, now: Time, link: &Arc<Link>, frame: Frame) -> StepOutcome {
        if matches!(frame.header.kind, FrameKind::Credential | FrameKind::Token) {
            self.direct.forget_credential(frame.header.credential);
        }
        let input = ServerInput::Arrived { channel: link.id, frame };
        self.cell.lock().step(now, input, Some(link.id), None)
    }

    /// Answers a read, which came through the link's lane, if `find` has what it wants in memory;
    /// `false`: nothing was done.
    pub fn answer_at_once(
        &self,
        link: &Link,
        request: &LaneRequest,
        find: impl FnOnce() -> Option<FoundRead>,
    ) -> bool {
        let Some(found) = find() else { return false };
        let mut cell = self.cell.lock();
        cell.machine.take_at_once(link.id, &request.header) && link.answer_read(request, &found)
    }

    /// A link is lost. Returns whether it still belonged to this session.
    pub fn lost(&self, now: Time, channel: ChannelId) -> (bool, StepOutcome) {
        let mut cell = self.cell.lock();
        match cell.forget(channel) {
            Some(_) => (true, cell.step(now, ServerInput::Lost { channel }, None, None)),
            None => (false, StepOutcome::default()),
        }
    }

    /// Any other input; the descriptor goes beside the frame that results.
    pub fn step(&self, now: Time, input: ServerInput, descriptor: Option<OwnedFd>) -> StepOutcome {
        self.cell.lock().step(now, input, None, descriptor)
    }

    /// Has no user called through it yet?
    pub fn is_of_nobody(&self) -> bool {
        self.of_nobody.load(Ordering::Acquire)
    }

    /// The poll of the worker for *nobody*, if that has the session's connection.
    pub fn poll_of_nobody(&self) -> Option<Arc<Poll>> {
        if !self.is_of_nobody() {
            return None;
        }
        self.cell.lock().links.first().map(|link| link.poll())
    }

    /// It is a user's from now on. Returns its links.
    pub fn become_users(&self) -> Vec<Arc<Link>> {
        self.of_nobody.store(false, Ordering::Release);
        self.cell.lock().links.clone()
    }

    /// Is a client connected?
    pub fn is_connected(&self) -> bool {
        !self.cell.lock().links.is_empty()
    }

    /// The security of its first link; `None`: no client is connected.
    pub fn security(&self) -> Option<Security> {
        self.cell.lock().links.first().map(|link| link.security())
    }

    /// The process at the other end, as of the attach.
    pub fn process(&self) -> Option<PeerLifetime> {
        self.cell.lock().process.clone()
    }

    /// A request that moves data begins.
    pub fn begin(&self, origin: ReplyAddress, link: &Arc<Link>, call: &Call) {
        let bytes = call.data().bytes();
        if bytes > 0 {
            link.begin(bytes);
            let before = self.cell.lock().moving.insert(origin.slot, (Arc::clone(link), bytes));
            if let Some((link, bytes)) = before {
                link.finish(bytes);
            }
        }
    }

    /// All its links.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.cell.lock().links.clone()
    }

    /// Takes all links away.
    pub fn clear(&self) -> Vec<Arc<Link>> {
        std::mem::take(&mut self.cell.lock().links)
    }
}

impl Cell {
    fn step(
        &mut self,
        now: Time,
        input: ServerInput,
        from: Option<ChannelId>,
        mut descriptor: Option<OwnedFd>,
    ) -> StepOutcome {
        let mut outcome = StepOutcome::default();
        let answered = match &input {
            ServerInput::Answered { origin, .. } => Some(origin.slot),
            _ => None,
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        let Some(result) = self.step_machine(now, input, &mut outputs) else {
            outcome.close.append(&mut self.links);
            outcome.work.push(ServerOutput::Overrun);
            return outcome;
        };
        for output in outputs.drain(..) {
            match output {
                ServerOutput::Send { channel, frame } => {
                    if let Some(link) = self.links.iter().find(|link| link.id == channel) {
                        link.push(frame, descriptor.take());
                        if !outcome.flush.iter().any(|known| known.id == channel) {
                            outcome.flush.push(Arc::clone(link));
                        }
                    }
                }
                ServerOutput::Close { channel } => outcome.close.extend(self.forget(channel)),
                work => outcome.work.push(work),
            }
        }
        self.outputs = outputs;
        if let Some((link, bytes)) = answered.and_then(|slot| self.moving.remove(&slot)) {
            link.finish(bytes);
            if !outcome.flush.iter().any(|known| known.id == link.id) {
                outcome.flush.push(link);
            }
        }
        if let Err(error) = result {
            outcome.close.extend(from.and_then(|channel| self.forget(channel)));
            outcome.error = Some(error);
        }
        outcome
    }

    /// A broken assertion of this machine ends this session and no other: the machine is never
    /// stepped again.
    fn step_machine(
        &mut self,
        now: Time,
        input: ServerInput,
        outputs: &mut Vec<ServerOutput>,
    ) -> Option<Result<(), PeerError>> {
        if self.broken {
            return Some(Ok(()));
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| self.machine.step(now, input, outputs)));
        if stepped.is_err() {
            tracing::error!(session = self.machine.id().0, "the session's machine panicked");
            self.panics.fetch_add(1, Ordering::Relaxed);
            self.broken = true;
        }
        stepped.ok()
    }

    fn forget(&mut self, channel: ChannelId) -> Option<Arc<Link>> {
        let at = self.links.iter().position(|link| link.id == channel)?;
        let link = self.links.remove(at);
        // From here on a request may be answered over another connection, and the client use the
        // memory that it named for something else.
        link.end_lane();
        Some(link)
    }
}
