//! The received bytes of one connection, cut into frames.
//!
//! Bytes go first into a buffer that is reused: one receive takes a header, its message, and the
//! small frames that follow. A payload that is not completely in the buffer gets memory of exactly
//! its size; the buffer's part of it is copied there, and the rest is received straight into it.
//! The inbox allocates for a frame only after it has measured the frame's header and found it
//! within the limits.
//!
//! ```text
//! buffer: [.. used ..|header|message|start of payload...]  payload: [copied|received straight ..]
//!                    ^start                           ^end
//! ```
//!
//! Over TLS a receive brings records, which have a buffer of their own. [`Inbox::next_frame`] opens
//! them one after the other until it has a whole frame: opened bytes reach their destination in the
//! same way, and all received records are processed before a thread waits for more.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};

use crate::tls::{self, Opener, RECORD_BYTES_MAX, TlsError, TlsRecord};
use crate::{Connection, HEADER_BYTES};

/// Bytes of the buffer: a hundred small frames, or a small write with its payload; at most this
/// much of a large payload is copied (16 KiB take about a microsecond).
const BUFFER_BYTES: usize = 16 << 10;
/// Least bytes of one receive with descriptors: they must be zeroed each time, and a small read
/// fits.
const WINDOW_BYTES: usize = 8 << 10;
/// Bytes of records that one receive requests while a payload arrives: more does not fit the
/// processor's nearer caches.
const RECORDS_BYTES: usize = 256 << 10;
/// Records of a handshake are shorter: certificates are the longest.
const HANDSHAKE_BYTES_MAX: usize = BUFFER_BYTES;
/// Descriptors that one receive may bring. A peer sends one with a frame, and the kernel ends a
/// receive after it.
const DESCRIPTORS_MAX: usize = 4;
/// Descriptors whose frames have not arrived completely: a peer sends one with a frame, so others
/// are sent for nothing.
const DESCRIPTORS_WAITING_MAX: usize = 4;

/// Lengths of the parts after a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the message.
    pub message: usize,
    /// Bytes of the payload.
    pub payload: usize,
}

/// Measures a header, or returns the reason why it is malformed.
pub type Measure = fn(&[u8; HEADER_BYTES]) -> Result<Extent, &'static str>;

/// The largest accepted parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Bytes of a message.
    pub message: usize,
    /// Bytes of a payload.
    pub payload: usize,
}

/// The bytes are not a frame. The connection cannot be used any more: the beginning of the next
/// frame is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header is malformed.
    #[error("malformed header: {0}")]
    Header(&'static str),
    /// A part is above its limit.
    #[error("frame of {} + {} bytes is too large", .0.message, .0.payload)]
    TooLarge(Extent),
    /// A record is not one that the peer sealed.
    #[error("{0}")]
    Tls(#[from] TlsError),
}

/// A whole frame, borrowed until the inbox is used again.
#[derive(Debug)]
pub struct ReceivedFrame<'a> {
    /// The frame's header.
    pub header: &'a [u8; HEADER_BYTES],
    /// The frame's message.
    pub message: &'a [u8],
    /// The frame's payload, in memory of its own.
    pub payload: Bytes,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Some bytes were received.
    Some,
    /// No bytes are available (only without `wait`).
    Nothing,
    /// The peer has closed the connection.
    End,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Inbox {
    measure: Measure,
    limits: FrameLimits,
    /// False: the kernel drops descriptors that come with frames.
    takes_descriptors: bool,
    descriptors: VecDeque<OwnedFd>,
    /// Its length is the filled part: `end` in the picture above.
    buffer: Vec<u8>,
    start: usize,
    /// Bytes after `start` that the last returned frame occupies.
    borrowed: usize,
    extent: Option<Extent>,
    payload: Option<Vec<u8>>,
    sealed: Option<Box<Sealed>>,
}

/// Records that were received over TLS and are not opened.
#[derive(Debug)]
struct Sealed {
    opener: Opener,
    buffer: Vec<u8>,
    start: usize,
    /// The peer announced the end of the stream.
    ended: bool,
}

impl Inbox {
    /// An empty inbox; allocates nothing before the first receive.
    pub fn new(measure: Measure, limits: FrameLimits, takes_descriptors: bool) -> Self {
        Inbox {
            measure,
            limits,
            takes_descriptors,
            descriptors: VecDeque::new(),
            buffer: Vec::new(),
            start: 0,
            borrowed: 0,
            extent: None,
            payload: None,
            sealed: None,
        }
    }

    /// Switches to TLS: records follow, beginning with the received bytes that were not consumed.
    pub fn secure(&mut self, opener: Opener) {
        self.start += std::mem::take(&mut self.borrowed);
        assert!(self.sealed.is_none(), "AC-5: a connection begins TLS once");
        let buffer = self.buffer.split_off(self.start);
        self.buffer.clear();
        self.start = 0;
        self.sealed = Some(Box::new(Sealed { opener, buffer, start: 0, ended: false }));
    }

    /// The next byte, if there is one, without consuming it.
    pub fn peek(&self) -> Option<u8> {
        self.buffer.get(self.start + self.borrowed).copied()
    }

    /// The next whole record of a handshake, if it has arrived.
    ///
    /// # Errors
    /// The bytes are not a record.
    pub fn take_record(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        self.start += std::mem::take(&mut self.borrowed);
        let there = &self.buffer[self.start..];
        let Some(whole) = tls::record_bytes(there)? else { return Ok(None) };
        if whole > HANDSHAKE_BYTES_MAX {
            return Err(FrameError::TooLarge(Extent { message: whole, payload: 0 }));
        }
        let record = there.get(..whole).map(<[u8]>::to_vec);
        self.borrowed = record.as_ref().map_or(0, Vec::len);
        Ok(record)
    }

    /// Takes descriptors that come with frames from now on.
    pub fn take_descriptors(&mut self) {
        self.takes_descriptors = true;
    }

    /// Sets the limits for the next header on.
    pub fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// The oldest received descriptor that was not taken. It arrives no later than its frame.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// True if a frame has arrived in part.
    pub fn is_partial(&self) -> bool {
        let sealed = self.sealed.as_ref().is_some_and(|sealed| sealed.buffer.len() > sealed.start);
        sealed || self.buffer.len() > self.start + self.borrowed
    }

    /// Bytes of memory for received and unconsumed bytes.
    pub fn bytes(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.buffer.capacity());
        let payload = self.payload.as_ref().map_or(0, Vec::len);
        self.buffer.capacity() + sealed + payload
    }

    /// The next whole frame, if it has arrived.
    ///
    /// # Errors
    /// [`FrameError`]: the bytes are not a frame.
    pub fn next_frame(&mut self) -> Result<Option<ReceivedFrame<'_>>, FrameError> {
        self.start += std::mem::take(&mut self.borrowed);
        while !self.is_whole()? {
            if !self.open_one()? {
                return Ok(None);
            }
        }
        let payload = self.payload.take().map_or_else(Bytes::new, types::buffer::freeze);
        let extent = self.extent.take().expect("a whole frame was measured");
        assert_eq!(
            payload.len(),
            extent.payload,
            "DA-6: a frame has the payload that it announces"
        );
        let (header, rest) = self.buffer[self.start..]
            .split_first_chunk()
            .expect("the buffer contains the whole header");
        Ok(Some(ReceivedFrame { header, message: &rest[..extent.message], payload }))
    }

    /// True if the next frame is whole; its payload is then in its own memory.
    fn is_whole(&mut self) -> Result<bool, FrameError> {
        let Some(extent) = self.measured()? else { return Ok(false) };
        let head = HEADER_BYTES + extent.message;
        let there = self.buffer.len() - self.start;
        if there < head {
            return Ok(false);
        }
        let begun = self.payload.is_some();
        let payload = self.payload.get_or_insert_with(|| types::buffer::take(extent.payload));
        let mut copied = 0;
        if !begun {
            copied = (there - head).min(extent.payload);
            payload.extend_from_slice(&self.buffer[self.start + head..][..copied]);
        }
        if payload.len() < extent.payload {
            // The copied part leaves the buffer, so that a returned frame occupies only the head.
            self.buffer.truncate(self.start + head);
            return Ok(false);
        }
        self.borrowed = head + copied;
        Ok(true)
    }

    /// Opens the next record, if a whole one has arrived, and stores its content.
    fn open_one(&mut self) -> Result<bool, FrameError> {
        let Some(sealed) = &mut self.sealed else { return Ok(false) };
        let Some(record) = sealed.next_record()? else { return Ok(false) };
        match sealed.opener.open(&mut sealed.buffer[record])? {
            TlsRecord::Nothing => {}
            TlsRecord::End => {
                sealed.ended = true;
                return Ok(false);
            }
            TlsRecord::Content(content) => {
                let missing = match (self.extent, &self.payload) {
                    (Some(extent), Some(payload)) => extent.payload - payload.len(),
                    _ => 0,
                };
                debug_assert!(
                    missing == 0 || self.payload.is_some(),
                    "a payload is continued only where one began"
                );
                let (first, rest) = content.split_at(missing.min(content.len()));
                if let Some(payload) = &mut self.payload {
                    payload.extend_from_slice(first);
                }
                if self.start > 0 && self.payload.is_none() {
                    self.buffer.drain(..self.start);
                    self.start = 0;
                }
                self.buffer.extend_from_slice(rest);
            }
        }
        Ok(true)
    }

    /// Up to `count` bytes that are not part of a frame, such as a greeting before the first one.
    ///
    /// # Errors
    /// A record is not one that the peer sealed.
    pub fn take_raw(&mut self, count: usize) -> Result<&[u8], FrameError> {
        self.start += std::mem::take(&mut self.borrowed);
        while self.buffer.len() == self.start && self.open_one()? {}
        let there = &self.buffer[self.start..];
        let taken = &there[..count.min(there.len())];
        self.borrowed = taken.len();
        Ok(taken)
    }

    fn measured(&mut self) -> Result<Option<Extent>, FrameError> {
        if self.extent.is_none()
            && let Some(header) = self.buffer[self.start..].first_chunk()
        {
            let extent = (self.measure)(header).map_err(FrameError::Header)?;
            if extent.message > self.limits.message || extent.payload > self.limits.payload {
                return Err(FrameError::TooLarge(extent));
            }
            self.extent = Some(extent);
        }
        Ok(self.extent)
    }

    /// Receives the available bytes, once. With `wait` the thread blocks until there are some. Ends
    /// the borrow of the last returned frame.
    ///
    /// # Errors
    /// The connection's: it cannot be used any more.
    pub fn fill(&mut self, connection: &Connection, wait: bool) -> io::Result<Filled> {
        self.start += std::mem::take(&mut self.borrowed);
        debug_assert!(self.start <= self.buffer.len(), "consumed bytes were received");
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        if self.sealed.is_some() {
            return self.fill_sealed(connection, flags);
        }
        loop {
            let received = match (self.extent, self.payload.as_mut()) {
                (Some(extent), Some(payload)) if payload.len() < extent.payload => {
                    // A thread that blocks anyway waits for all of it: one call, and fewer
                    // wake-ups.
                    let flags = if wait { flags | RecvFlags::WAITALL } else { flags };
                    receive_exactly(connection, payload, extent.payload, flags)
                }
                (Some(_), Some(_)) => return Ok(Filled::Some),
                _ => {
                    self.make_room();
                    let head = HEADER_BYTES + self.extent.map_or(0, |extent| extent.message);
                    let window =
                        (self.start + head).saturating_sub(self.buffer.len()).max(WINDOW_BYTES);
                    if self.takes_descriptors && connection.passes_descriptors() {
                        receive_with_descriptors(
                            connection,
                            &mut self.buffer,
                            window,
                            &mut self.descriptors,
                            flags,
                        )
                    } else {
                        recv(connection, spare_capacity(&mut self.buffer), flags)
                            .map(|(count, _)| count)
                    }
                }
            };
            match received {
                Ok(0) => return Ok(Filled::End),
                Ok(_) => return Ok(Filled::Some),
                Err(Errno::AGAIN) => return Ok(Filled::Nothing),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn fill_sealed(&mut self, connection: &Connection, flags: RecvFlags) -> io::Result<Filled> {
        let missing = match (self.extent, &self.payload) {
            (Some(extent), Some(payload)) => extent.payload - payload.len(),
            _ => 0,
        };
        let sealed = self.sealed.as_mut().expect("fill_sealed is called only with TLS");
        if sealed.ended {
            return Ok(Filled::End);
        }
        sealed.make_room(missing);
        loop {
            match recv(connection, spare_capacity(&mut sealed.buffer), flags) {
                Ok((0, _)) => return Ok(Filled::End),
                Ok(_) => return Ok(Filled::Some),
                Err(Errno::AGAIN) => return Ok(Filled::Nothing),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// True if the last receive left room in the buffer: no more bytes were available, so another
    /// receive at once is useless.
    pub fn has_room(&self) -> bool {
        if let Some(sealed) = &self.sealed {
            return sealed.buffer.len() < sealed.buffer.capacity();
        }
        self.payload.is_none() && self.buffer.len() < self.buffer.capacity()
    }

    /// Makes room in the buffer for at least the rest of the current head.
    fn make_room(&mut self) {
        let there = self.buffer.len() - self.start;
        if there == 0 {
            self.buffer.clear();
            self.start = 0;
            if self.buffer.capacity() > 2 * BUFFER_BYTES {
                self.buffer = Vec::new();
            }
        }
        let head = HEADER_BYTES + self.extent.map_or(0, |extent| extent.message);
        let wanted = head.max(BUFFER_BYTES);
        let room = self.buffer.capacity() - self.start;
        if room < head.max(BUFFER_BYTES / 4) || self.buffer.len() == self.buffer.capacity() {
            self.buffer.copy_within(self.start.., 0);
            self.buffer.truncate(there);
            self.start = 0;
            self.buffer.reserve_exact(wanted.saturating_sub(there).max(1));
        }
    }
}

impl Sealed {
    /// The range of the next whole record, which is consumed.
    fn next_record(&mut self) -> Result<Option<std::ops::Range<usize>>, TlsError> {
        let there = &self.buffer[self.start..];
        let Some(whole) = tls::record_bytes(there)?.filter(|whole| *whole <= there.len()) else {
            return Ok(None);
        };
        let begin = self.start;
        self.start += whole;
        Ok(Some(begin..self.start))
    }

    /// Makes room for one record at least, and for many while much is `missing`, so that an idle
    /// connection uses little memory.
    fn make_room(&mut self, missing: usize) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let wanted = (missing + missing / 512 + RECORD_BYTES_MAX).min(RECORDS_BYTES);
        if self.buffer.capacity() < wanted
            || self.buffer.is_empty() && self.buffer.capacity() > 2 * wanted
        {
            let mut buffer = Vec::with_capacity(wanted.max(self.buffer.len()));
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
        }
    }
}

/// Receives straight into the payload's memory, never past its end.
fn receive_exactly(
    connection: &Connection,
    payload: &mut Vec<u8>,
    whole: usize,
    flags: RecvFlags,
) -> Result<usize, Errno> {
    if payload.capacity() == whole {
        return recv(connection, spare_capacity(payload), flags).map(|(count, _)| count);
    }
    // The allocator may return more capacity than requested, and a receive into all of it could
    // take bytes of the next frame.
    let had = payload.len();
    payload.resize(whole, 0);
    let received = recv(connection, &mut payload[had..], flags).map(|(count, _)| count);
    payload.truncate(had + received.unwrap_or(0));
    received
}

fn receive_with_descriptors(
    connection: &Connection,
    buffer: &mut Vec<u8>,
    window: usize,
    descriptors: &mut VecDeque<OwnedFd>,
    flags: RecvFlags,
) -> Result<usize, Errno> {
    let had = buffer.len();
    buffer.resize(buffer.capacity().min(had + window), 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer[had..])];
    let received = recvmsg(connection, &mut parts, &mut control, flags | RecvFlags::CMSG_CLOEXEC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // More belong to no frame; they are closed.
    descriptors.truncate(DESCRIPTORS_WAITING_MAX);
    let count = received.as_ref().map_or(0, |received| received.bytes);
    buffer.truncate(had + count);
    received.map(|received| received.bytes)
}
