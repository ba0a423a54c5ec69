//! Cuts frames out of a stream of bytes, as a driver over sockets does.

use bytes::Bytes;
use dafs::{Frame, FrameHeader, WireError};

/// Bytes that have arrived and are not yet taken.
#[derive(Debug, Default)]
pub struct ArrivedBytes {
    bytes: Vec<u8>,
}

impl ArrivedBytes {
    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes up to `count` bytes outside of frames, as of a greeting.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.bytes.len());
        self.bytes.drain(..count).collect()
    }

    /// Number of bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether no byte waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next frame, once all of it has arrived.
    ///
    /// # Errors
    /// If the bytes are no frame.
    pub fn frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some(head) = self.bytes.first_chunk::<{ FrameHeader::BYTES }>() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(head)?;
        let message = header.message_bytes as usize;
        let whole = FrameHeader::BYTES + message + header.payload_bytes as usize;
        if self.bytes.len() < whole {
            return Ok(None);
        }
        let taken = Bytes::from(self.take(whole));
        let (message, payload) = (
            taken.slice(FrameHeader::BYTES..FrameHeader::BYTES + message),
            taken.slice(FrameHeader::BYTES + message..),
        );
        Ok(Some(Frame { header, message, payload }))
    }
}

/// A frame as the bytes of a stream.
pub fn to_bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.header.to_bytes().to_vec();
    bytes.extend_from_slice(&frame.message);
    bytes.extend_from_slice(&frame.payload);
    bytes
}
