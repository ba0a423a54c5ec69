//! The lane of an operations connection, from the client's side.
//!
//! The first direct request goes over the socket. Its answer shows that the server knows the
//! caller; then this side gives the server a lane and its regions, and each that the server opens
//! is used from its answer on. So a request in the lane never overtakes a frame that it refers to:
//! a credential counts as known only after a request with it was answered over this connection.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dafs::message::Message;
use dafs::{Features, Flags, Frame, FrameHeader, FrameKind};
use fabric::lane::{LANE_BYTES, LANE_MESSAGE_MAX, LaneReceiver, LaneSender, client_lane};
use mem::shared::SharedMemory;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use types::SessionId;
use types::limits::SLOTS_MAX;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct ChannelLane {
    sending: Mutex<Sending>,
    pub receiver: Mutex<Option<LaneReceiver>>,
    /// The last answer came while this side looked for it.
    pub is_quick: AtomicBool,
}

#[derive(Debug)]
struct Sending {
    stage: LaneStage,
    sender: Option<LaneSender>,
    /// Regions that the server opened.
    regions: HashSet<u32>,
    /// Handles of credentials that the server knows.
    known: HashSet<u32>,
    /// The credential of the direct request in each slot, if it went over the socket.
    asked: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneStage {
    /// The server has no lane.
    Closed,
    /// It was given one.
    Offered,
    Open,
}

/// How a frame leaves.
#[derive(Debug)]
pub(super) enum Way {
    /// It has left through the lane; the server sleeps and must be told, or not.
    Lane {
        rings: bool,
    },
    Socket(Frame),
}

/// A frame with the descriptor that goes beside it.
pub(super) type WithDescriptor = (Frame, Option<OwnedFd>);

impl ChannelLane {
    pub fn new() -> Self {
        let asked = vec![None; SLOTS_MAX as usize];
        let sending = Sending {
            stage: LaneStage::Closed,
            sender: None,
            regions: HashSet::new(),
            known: HashSet::new(),
            asked,
        };
        let is_quick = AtomicBool::new(true);
        ChannelLane { sending: Mutex::new(sending), receiver: Mutex::new(None), is_quick }
    }

    /// Chooses the way of a frame.
    pub fn push(&self, frame: Frame) -> Way {
        let header = frame.header;
        match header.kind {
            FrameKind::Request if header.flags.has(Flags::DIRECT) => {}
            FrameKind::Credential | FrameKind::Token => {
                self.sending.lock().known.remove(&header.credential);
                return Way::Socket(frame);
            }
            _ => return Way::Socket(frame),
        }
        let mut sending = self.sending.lock();
        let is_ready = sending.stage == LaneStage::Open
            && sending.regions.contains(&header.region.handle)
            && sending.known.contains(&header.credential)
            && !header.flags.has_any(Flags::CHAIN)
            && frame.message.len() <= LANE_MESSAGE_MAX;
        if is_ready && let Some(sender) = &mut sending.sender {
            // The ring has an entry for each slot: it is full only if the server breaks the lane.
            match sender.put(&header.to_bytes(), &frame.message) {
                Ok(rings) => return Way::Lane { rings },
                Err(error) => {
                    tracing::warn!(%error, "the server broke the lane; the socket is used");
                    sending.stage = LaneStage::Offered;
                }
            }
        }
        if let Some(asked) = sending.asked.get_mut(header.slot as usize) {
            *asked = Some(header.credential);
        }
        Way::Socket(frame)
    }

    /// Whether the server looks into the lane now, as far as can be said without waiting.
    pub fn is_watched(&self) -> bool {
        let sending = self.sending.try_lock();
        sending.is_none_or(|it| it.sender.as_ref().is_some_and(LaneSender::is_watched))
    }

    /// A reply came over the socket. Returns whether a lane can be offered now.
    pub fn on_reply(&self, header: &FrameHeader) -> bool {
        let mut sending = self.sending.lock();
        let Some(credential) = sending.asked.get_mut(header.slot as usize).and_then(Option::take)
        else {
            return false;
        };
        sending.known.insert(credential);
        sending.stage == LaneStage::Closed
    }

    /// Offers a lane with these regions; frames to send, each with its descriptor.
    ///
    /// # Errors
    /// The system has no memory or descriptors left.
    pub fn offer(
        &self,
        session: SessionId,
        regions: &[(u32, OwnedFd)],
    ) -> std::io::Result<Vec<WithDescriptor>> {
        let mut sending = self.sending.lock();
        if sending.stage != LaneStage::Closed {
            return Ok(Vec::new());
        }
        let memory = SharedMemory::create_sealed("rialto-lane", LANE_BYTES)?;
        let descriptor = memory.file().try_clone()?;
        let mut frames = vec![with_descriptor(&Message::Lane, session, descriptor)];
        for (handle, file) in regions {
            frames.push(region_frame(*handle, file, session)?);
        }
        let (sender, receiver) = client_lane(Arc::new(memory));
        sending.stage = LaneStage::Offered;
        sending.sender = Some(sender);
        *self.receiver.lock() = Some(receiver);
        Ok(frames)
    }

    /// Gives the server one more region, if it has a lane.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn add_region(
        &self,
        session: SessionId,
        (handle, file): (u32, &OwnedFd),
    ) -> std::io::Result<Option<WithDescriptor>> {
        if self.sending.lock().stage == LaneStage::Closed {
            return Ok(None);
        }
        region_frame(handle, file, session).map(Some)
    }

    /// Takes a region back: the frame that says so, if the server has it.
    pub fn end_region(&self, session: SessionId, handle: u32) -> Option<Frame> {
        let had = self.sending.lock().regions.remove(&handle);
        had.then(|| frame_of(&Message::Region { handle, begins: false }, session))
    }

    /// The server's answer about lane or region.
    pub fn on_answer(&self, message: &Message) {
        let mut sending = self.sending.lock();
        match message {
            Message::LaneOpen if sending.stage == LaneStage::Offered => {
                sending.stage = LaneStage::Open;
            }
            Message::RegionOpen { handle, is_open: true } => _ = sending.regions.insert(*handle),
            Message::RegionOpen { handle, is_open: false } => {
                tracing::debug!(handle, "the server has not, or no longer, mapped a region");
                sending.regions.remove(handle);
            }
            _ => {}
        }
    }

    /// Is it in use?
    pub fn is_open(&self) -> bool {
        self.sending.lock().stage == LaneStage::Open
    }
}

/// Tells the server that there is something in the lane.
pub(super) fn bell(session: SessionId) -> Frame {
    frame_of(&Message::Bell, session)
}

fn region_frame(
    handle: u32,
    file: &OwnedFd,
    session: SessionId,
) -> std::io::Result<WithDescriptor> {
    let message = Message::Region { handle, begins: true };
    Ok(with_descriptor(&message, session, file.try_clone()?))
}

fn with_descriptor(message: &Message, session: SessionId, file: OwnedFd) -> WithDescriptor {
    let mut frame = frame_of(message, session);
    frame.header.flags = frame.header.flags.with(Flags::DESCRIPTOR);
    (frame, Some(file))
}

/// Connections with a lane have no checksums.
fn frame_of(message: &Message, session: SessionId) -> Frame {
    message.to_frame(session).expect("such messages are short").sealed(Features::NONE)
}
