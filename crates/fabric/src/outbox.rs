//! Frames that wait to leave through one connection, in order.
//!
//! [`Outbox::flush`] hands as many parts as fit to one `sendmsg`: a frame costs one system call, a queue of small frames costs
//! one together. A descriptor goes with the first byte of its own frame, so it is at the other end not later than the frame.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::{Connection, HEADER_BYTES};

/// Parts that one system call takes: enough for 21 frames, far below the system's 1,024.
const PARTS_MAX: usize = 64;

/// A frame on its way out. Message and payload are shared, never copied.
#[derive(Debug)]
pub struct OutFrame {
    header: Option<[u8; HEADER_BYTES]>,
    message: Bytes,
    payload: Bytes,
    descriptor: Option<OwnedFd>,
}

impl OutFrame {
    /// A frame. The descriptor goes beside it, over Unix connections only.
    pub fn new(header: [u8; HEADER_BYTES], message: Bytes, payload: Bytes, descriptor: Option<OwnedFd>) -> Self {
        OutFrame { header: Some(header), message, payload, descriptor }
    }

    /// Bytes that are no frame, such as a greeting before the first one.
    pub fn raw(bytes: Bytes) -> Self {
        OutFrame { header: None, message: bytes, payload: Bytes::new(), descriptor: None }
    }

    fn parts(&self) -> [&[u8]; 3] {
        [self.header.as_ref().map_or(&[], |header| &header[..]), &self.message, &self.payload]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

/// A queue of frames, the first perhaps sent in part.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<OutFrame>,
    /// Bytes of the first frame that are out already.
    sent: usize,
    /// Bytes of all queued frames that are not out.
    bytes: usize,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a frame. Not an empty one.
    pub fn push(&mut self, frame: OutFrame) {
        debug_assert!(frame.len() > 0, "nothing would ever be sent of it");
        self.bytes += frame.len();
        self.queue.push_back(frame);
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets all that waits.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends what the socket takes without waiting. `true`: everything is out.
    ///
    /// # Errors
    /// The connection's end, however it came. It is of no use any more.
    pub fn flush(&mut self, connection: &Connection) -> io::Result<bool> {
        while !self.queue.is_empty() {
            match self.send_some(connection) {
                Ok(count) => self.advance(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn send_some(&self, connection: &Connection) -> Result<usize, Errno> {
        let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity((3 * self.queue.len()).min(PARTS_MAX));
        let mut skip = self.sent;
        for (index, frame) in self.queue.iter().enumerate() {
            // A descriptor would go with the first byte of the call: its frame must be the first of one.
            if index > 0 && frame.descriptor.is_some() || parts.len() + 3 > PARTS_MAX {
                break;
            }
            for part in frame.parts() {
                let rest = &part[skip.min(part.len())..];
                skip = skip.saturating_sub(part.len());
                if !rest.is_empty() {
                    parts.push(IoSlice::new(rest));
                }
            }
        }
        let first = self.queue.front().and_then(|frame| frame.descriptor.as_ref());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        match first {
            Some(descriptor) if self.sent == 0 && connection.passes_descriptors() => {
                let descriptors = [descriptor.as_fd()];
                let mut control = SendAncillaryBuffer::new(&mut space);
                assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "the space is for one descriptor");
                sendmsg(connection, &parts, &mut control, flags)
            }
            _ => sendmsg(connection, &parts, &mut SendAncillaryBuffer::default(), flags),
        }
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "the socket took {count} of {} bytes", self.bytes);
        self.bytes -= count;
        self.sent += count;
        while let Some(first) = self.queue.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.queue.pop_front();
        }
    }
}
