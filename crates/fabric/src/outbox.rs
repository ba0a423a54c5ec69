//! Frames that wait to be sent over one connection, in order.
//!
//! [`Outbox::flush`] passes as many parts as fit to one `sendmsg`: a large frame costs one system
//! call, a queue of small frames costs one together. A descriptor goes with the first byte of its
//! frame, so it arrives no later than the frame.
//!
//! Over TLS, frames are sealed just before they are sent, a few records at a time, small frames
//! together in one record. A payload that fills records begins with a record of its own, so that
//! the receiver opens it next to its destination.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use smallvec::SmallVec;

use crate::tls::{CONTENT_BYTES_MAX, Sealer, TlsError};
use crate::{Connection, HEADER_BYTES};

/// Parts that one system call takes: enough for 21 frames, far below the system's 1,024.
const PARTS_MAX: usize = 64;

/// Records that are sealed before the first of them is sent: sealed bytes should still be in the
/// processor's cache when the kernel copies them.
const RECORDS: usize = 16;
/// Most parts of one record, which may hold many small frames.
const RECORD_PARTS_MAX: usize = 64;

/// A frame to send. Message and payload are shared, never copied.
#[derive(Debug)]
pub struct OutFrame {
    header: Option<[u8; HEADER_BYTES]>,
    message: Bytes,
    payload: Bytes,
    descriptor: Option<OwnedFd>,
}

impl OutFrame {
    /// A frame, with an optional descriptor (only over Unix connections).
    pub fn new(
        header: [u8; HEADER_BYTES],
        message: Bytes,
        payload: Bytes,
        descriptor: Option<OwnedFd>,
    ) -> Self {
        OutFrame { header: Some(header), message, payload, descriptor }
    }

    /// Bytes that are not a frame, such as a greeting before the first one.
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

/// A queue of frames; the first may be partly sent.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<OutFrame>,
    /// Bytes of the first frame that are sent.
    sent: usize,
    /// Bytes of all queued frames that are not sent, or not sealed.
    bytes: usize,
    sealed: Option<Box<Sealed>>,
}

/// Sealed records that are not sent.
#[derive(Debug)]
struct Sealed {
    sealer: Sealer,
    records: VecDeque<Vec<u8>>,
    /// Bytes of the first record that are sent.
    sent: usize,
    bytes: usize,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a frame, which must not be empty.
    pub fn push(&mut self, frame: OutFrame) {
        debug_assert!(frame.len() > 0, "nothing would ever be sent of it");
        self.bytes += frame.len();
        self.queue.push_back(frame);
    }

    /// Bytes that wait to be sent.
    pub fn bytes(&self) -> usize {
        self.bytes + self.sealed.as_ref().map_or(0, |sealed| sealed.bytes)
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sealed.as_ref().is_none_or(|sealed| sealed.records.is_empty())
    }

    /// Drops all that waits. The connection cannot be used any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Seals everything that is queued from now on; bytes queued before are sent unsealed first.
    pub fn secure(&mut self, sealer: Sealer) {
        assert!(self.sealed.is_none(), "AC-5: a connection begins TLS once");
        let mut waiting: Vec<u8> =
            self.queue.drain(..).flat_map(|frame| frame.parts().concat()).collect();
        waiting.drain(..std::mem::take(&mut self.sent));
        let bytes = std::mem::take(&mut self.bytes);
        let records = if waiting.is_empty() { VecDeque::new() } else { VecDeque::from([waiting]) };
        self.sealed = Some(Box::new(Sealed { sealer, records, sent: 0, bytes }));
    }

    /// Sends as much as the socket accepts without blocking. `true`: everything was sent.
    ///
    /// # Errors
    /// The end of the connection, by any cause. The connection cannot be used any more.
    pub fn flush(&mut self, connection: &Connection) -> io::Result<bool> {
        if self.sealed.is_some() {
            return self.flush_sealed(connection);
        }
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
            // A descriptor goes with the first byte of a call: its frame must be the first of one.
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
                assert!(
                    control.push(SendAncillaryMessage::ScmRights(&descriptors)),
                    "the space is for one descriptor"
                );
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
        debug_assert_eq!(
            self.bytes,
            self.queue.iter().map(OutFrame::len).sum::<usize>() - self.sent,
            "the count is that of the queued bytes"
        );
    }

    fn flush_sealed(&mut self, connection: &Connection) -> io::Result<bool> {
        loop {
            self.seal_some()?;
            let sealed = self.sealed.as_mut().expect("flush_sealed is called only with TLS");
            if sealed.records.is_empty() {
                return Ok(true);
            }
            match sealed.send_some(connection) {
                Ok(count) => sealed.advance(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Seals the next records, if the earlier ones are sent.
    fn seal_some(&mut self) -> Result<(), TlsError> {
        let Some(sealed) = self.sealed.as_mut().filter(|sealed| sealed.records.is_empty()) else {
            return Ok(());
        };
        let mut taken = 0;
        let mut records = 0;
        let mut parts = Record::default();
        let mut skip = self.sent;
        for frame in &self.queue {
            for mut rest in frame.parts() {
                let skipped = skip.min(rest.len());
                skip -= skipped;
                rest = &rest[skipped..];
                if rest.len() >= CONTENT_BYTES_MAX && parts.bytes > 0 {
                    taken += parts.seal(sealed)?;
                    records += 1;
                }
                while !rest.is_empty() && records < RECORDS {
                    rest = parts.take(rest);
                    if parts.is_full() {
                        taken += parts.seal(sealed)?;
                        records += 1;
                    }
                }
            }
            if records >= RECORDS {
                break;
            }
        }
        if parts.bytes > 0 {
            taken += parts.seal(sealed)?;
        }
        drop(parts);
        self.advance(taken);
        Ok(())
    }
}

/// The record that is being filled.
#[derive(Default)]
struct Record<'a> {
    parts: SmallVec<[&'a [u8]; 8]>,
    bytes: usize,
}

impl<'a> Record<'a> {
    /// Adds as much of `part` as fits and returns the rest.
    fn take(&mut self, part: &'a [u8]) -> &'a [u8] {
        let (first, rest) = part.split_at(part.len().min(CONTENT_BYTES_MAX - self.bytes));
        self.parts.push(first);
        self.bytes += first.len();
        debug_assert!(self.bytes <= CONTENT_BYTES_MAX, "a record has a limit");
        rest
    }

    fn is_full(&self) -> bool {
        self.bytes == CONTENT_BYTES_MAX || self.parts.len() == RECORD_PARTS_MAX
    }

    fn seal(&mut self, sealed: &mut Sealed) -> Result<usize, TlsError> {
        let before = sealed.records.len();
        sealed.sealer.seal(&self.parts, &mut sealed.records)?;
        sealed.bytes += sealed.records.iter().skip(before).map(Vec::len).sum::<usize>();
        self.parts.clear();
        Ok(std::mem::take(&mut self.bytes))
    }
}

impl Sealed {
    fn send_some(&self, connection: &Connection) -> Result<usize, Errno> {
        let mut skip = self.sent;
        let rest = |record| {
            let record: &Vec<u8> = record;
            IoSlice::new(&record[std::mem::take(&mut skip)..])
        };
        let parts: SmallVec<[IoSlice<'_>; 32]> =
            self.records.iter().take(PARTS_MAX).map(rest).collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(connection, &parts, &mut SendAncillaryBuffer::default(), flags)
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "the socket took {count} of {} bytes", self.bytes);
        self.bytes -= count;
        self.sent += count;
        while let Some(first) = self.records.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.records.pop_front();
        }
        debug_assert_eq!(
            self.bytes,
            self.records.iter().map(Vec::len).sum::<usize>() - self.sent,
            "the count is that of the sealed bytes"
        );
    }
}
