//! A connection's lane, from the server's side: requests that lie in shared memory.
//!
//! Everything in that memory is the client's, at any time. A request is copied before it is looked
//! at, its payload before it is decoded; where the payload of a reply goes is noted here when the
//! request is taken, and never read again (RG-2).

use std::sync::Arc;

use bytes::Bytes;
use dafs::{Features, Flags, Frame, FrameHeader, FrameKind};
use fabric::lane::{LANE_BYTES, LaneEntry, LaneReceiver, LaneSender, server_lane};
use fabric::region::Regions;
use mem::shared::SharedMemory;
use rustix::fd::OwnedFd;
use types::limits::SLOTS_MAX;
use types::{AnswerKind, Fault};

use crate::direct_reads::FoundRead;

/// See the head of the file.
///
/// `S` is the share of its host's limits that mapped memory takes.
pub(crate) struct ConnectionLane<S> {
    receiver: LaneReceiver,
    pub regions: Regions<S>,
    /// Of the lane's own memory.
    _share: S,
}

/// The sending half, which belongs to the link.
pub(crate) struct ReplyLane {
    sender: LaneSender,
    /// For each slot whose request came through the lane: the memory that it named.
    slots: Vec<Option<Arc<SharedMemory>>>,
    queue: Vec<QueuedReply>,
}

/// A request that was copied out of the lane.
pub(crate) struct LaneRequest {
    pub header: FrameHeader,
    entry: LaneEntry,
    memory: Arc<SharedMemory>,
}

/// A reply that waits to be sent.
enum QueuedReply {
    /// Its payload is not in the client's memory yet.
    Whole(Frame),
    /// Its payload is where it belongs.
    Placed(FrameHeader, [u8; READ_MESSAGE]),
}

/// Bytes of the message that answers a read.
const READ_MESSAGE: usize = dafs::STATUS_BYTES + 5;

impl<S> ConnectionLane<S> {
    /// # Errors
    /// The memory is not safe to map, or of another length.
    pub fn open(memory: OwnedFd, share: S) -> Result<(ConnectionLane<S>, ReplyLane), String> {
        let memory = SharedMemory::open_sealed(memory, LANE_BYTES)
            .ok()
            .filter(|memory| memory.len() == LANE_BYTES)
            .ok_or("no memory of a lane")?;
        let (sender, receiver) = server_lane(Arc::new(memory));
        let slots = vec![None; SLOTS_MAX as usize];
        let lane = ConnectionLane { receiver, regions: Regions::default(), _share: share };
        Ok((lane, ReplyLane { sender, slots, queue: Vec::new() }))
    }

    /// The next request.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn take(&mut self) -> Result<Option<LaneRequest>, String> {
        let Some(entry) = self.receiver.take().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let header = FrameHeader::parse(entry.header()).map_err(|error| error.to_string())?;
        let is_direct = header.kind == FrameKind::Request && header.flags.has(Flags::DIRECT);
        if !is_direct || header.flags.has_any(Flags::CHAIN) {
            return Err("only single direct requests go through a lane".to_owned());
        }
        entry.message(header.message_bytes as usize).ok_or("too long a message")?;
        let (region, bytes) = (header.region, header.payload_bytes as usize);
        let memory =
            self.regions.find(region.handle, region.offset, bytes).ok_or("no such region")?;
        let memory = Arc::clone(memory);
        Ok(Some(LaneRequest { header, entry, memory }))
    }

    /// Does it wait for a bell from now on? `false`: a request has come.
    pub fn sleep(&self) -> bool {
        self.receiver.sleep()
    }

    /// It waits for no bell.
    pub fn wake(&self) {
        self.receiver.wake();
    }
}

impl LaneRequest {
    /// The request's message.
    pub fn message(&self) -> &[u8] {
        self.entry.message(self.header.message_bytes as usize).expect("checked when it was taken")
    }

    /// The memory that it names.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The request as a frame.
    pub fn to_frame(&self) -> Frame {
        let mut payload = vec![0; self.header.payload_bytes as usize];
        self.memory.get(self.header.region.offset as usize, &mut payload);
        let message = Bytes::copy_from_slice(self.message());
        Frame { header: self.header, message, payload: Bytes::from(payload) }
    }

    /// Puts what a read found where the request said. `false`: there is not so much room.
    fn place(&self, found: &FoundRead) -> bool {
        let Ok(mut at) = usize::try_from(self.header.region.offset) else { return false };
        if at.checked_add(found.bytes).is_none_or(|end| end > self.memory.len()) {
            return false;
        }
        let (mut skip, mut left) = (found.skip, found.bytes);
        for block in &found.blocks {
            let part = &block[skip..block.len().min(skip + left)];
            self.memory.put(at, part);
            (at, left, skip) = (at + part.len(), left - part.len(), 0);
        }
        debug_assert_eq!(left, 0, "ST-3: the blocks hold all that was found");
        true
    }
}

impl ReplyLane {
    /// Answers a read from memory. `false`: nothing was done.
    pub fn answer(&mut self, request: &LaneRequest, found: &FoundRead) -> bool {
        if !request.place(found) {
            return false;
        }
        let asked = &request.header;
        let header = FrameHeader {
            procedure: AnswerKind::Data as u16,
            slot: asked.slot,
            request: asked.request,
            region: asked.region,
            message_bytes: READ_MESSAGE as u32,
            payload_bytes: found.bytes as u32,
            ..FrameHeader::new(FrameKind::Reply, asked.session)
        };
        let header = FrameHeader { flags: header.flags.with(Flags::DIRECT), ..header };
        self.queue.push(QueuedReply::Placed(header, found.message));
        true
    }

    /// The request in this slot came through the lane.
    ///
    /// # Errors
    /// There is no such slot.
    pub fn begin(&mut self, slot: u32, memory: &Arc<SharedMemory>) -> Result<(), String> {
        let place = self.slots.get_mut(slot as usize).ok_or("no such slot")?;
        *place = Some(Arc::clone(memory));
        Ok(())
    }

    /// Queues a reply if its request came through the lane and it fits; otherwise gives it back.
    pub fn push(&mut self, frame: Frame) -> Option<Frame> {
        let is_reply = frame.header.kind == FrameKind::Reply;
        let slot = self.slots.get(frame.header.slot as usize).filter(|_| is_reply);
        if slot.is_none_or(Option::is_none) || frame.message.len() > fabric::lane::LANE_MESSAGE_MAX
        {
            return Some(frame);
        }
        self.queue.push(QueuedReply::Whole(frame));
        None
    }

    /// Puts queued replies into the lane, each behind its payload. Returns whether the client must
    /// be told.
    ///
    /// # Errors
    /// The client broke the lane.
    pub fn send(&mut self) -> Result<bool, fabric::lane::LaneError> {
        let mut rings = false;
        for reply in self.queue.drain(..) {
            let frame = match reply {
                QueuedReply::Whole(frame) => frame,
                QueuedReply::Placed(header, message) => {
                    rings |= self.sender.put(&header.to_bytes(), &message)?;
                    continue;
                }
            };
            let Frame { header, message, payload } = &frame;
            let memory = self.slots[header.slot as usize].take();
            let is_placed =
                payload.is_empty() || memory.is_some_and(|m| place(&m, header, payload));
            rings |= if is_placed {
                self.sender.put(&header.to_bytes(), message)?
            } else {
                let refusal = FrameHeader {
                    procedure: 0,
                    flags: header.flags.without(Flags::DIRECT),
                    region: dafs::Region::default(),
                    fault: Some(Fault::Invalid.into()),
                    ..*header
                };
                let frame = Frame::plain(refusal, Bytes::new()).sealed(Features::NONE);
                self.sender.put(&frame.header.to_bytes(), &[])?
            };
        }
        Ok(rings)
    }
}

/// Puts a payload where the request said. `false`: there is not so much room.
fn place(memory: &SharedMemory, header: &FrameHeader, payload: &[u8]) -> bool {
    let Ok(offset) = usize::try_from(header.region.offset) else { return false };
    let fits = offset.checked_add(payload.len()).is_some_and(|end| end <= memory.len());
    if fits {
        memory.put(offset, payload);
    }
    fits
}
