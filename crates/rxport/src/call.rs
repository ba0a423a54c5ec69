//! One call: two streams of bytes, for the thread that has it.
//!
//! Rx has no call in which both sides send at once: the first byte of an answer says that the whole
//! request has arrived, and the caller then keeps nothing of it. So a served call is read to its
//! end, or as far as its arguments say, before anything is written into it.

use std::sync::Arc;

use bytes::Bytes;
use rx::{RxCallId, RxEndpoint, RxError, RxRead};
use types::Time;

use crate::core::{Amount, ENOUGH_BYTES, PortCore};

/// A call that a thread has. One that is dropped before its end is aborted: the peer is told.
pub struct PortCall {
    core: Arc<PortCore>,
    id: RxCallId,
    /// A peer made it.
    is_served: bool,
    /// This side has written all.
    is_ended: bool,
    /// This side has read all.
    is_read: bool,
}

/// The bytes that one read takes.
#[derive(Default)]
struct Parts {
    max: usize,
    parts: Vec<Bytes>,
    bytes: usize,
    /// The last one is taken.
    is_over: bool,
}

impl Parts {
    /// Takes what is there.
    fn take(&mut self, endpoint: &mut RxEndpoint, now: Time, id: RxCallId) -> Result<(), RxError> {
        while self.bytes < self.max && !self.is_over {
            match endpoint.read(now, id, self.max - self.bytes)? {
                RxRead::Bytes(part) => {
                    self.bytes += part.len();
                    self.parts.push(part);
                }
                RxRead::End => self.is_over = true,
                RxRead::Nothing => break,
            }
        }
        Ok(())
    }

    fn joined(mut self) -> Bytes {
        match &mut self.parts[..] {
            [part] => std::mem::take(part),
            parts => Bytes::from(parts.concat()),
        }
    }
}

impl PortCall {
    pub(crate) fn of(core: Arc<PortCore>, id: RxCallId, is_served: bool) -> PortCall {
        PortCall { core, id, is_served, is_ended: false, is_read: false }
    }

    /// Between 1 and `max` bytes, soon after there are any; `None` at the end.
    ///
    /// # Errors
    /// What ended the call.
    pub fn read(&mut self, max: usize) -> Result<Option<Bytes>, RxError> {
        if self.is_read {
            return Ok(None);
        }
        let id = self.id;
        let mut parts = Parts { max, ..Parts::default() };
        self.core.read(id, |endpoint, now| match parts.take(endpoint, now, id) {
            // The next read says so.
            Err(_) if parts.bytes > 0 => Ok(Amount::Enough),
            Err(error) => Err(error),
            Ok(()) if parts.is_over || parts.bytes >= ENOUGH_BYTES.min(max) => Ok(Amount::Enough),
            Ok(()) if parts.bytes > 0 => Ok(Amount::Few),
            Ok(()) => {
                // The peer may wait for what was written so far.
                endpoint.flush(now, id)?;
                Ok(Amount::Nothing)
            }
        })?;
        self.is_read = parts.is_over;
        Ok(if parts.bytes == 0 { None } else { Some(parts.joined()) })
    }

    /// Writes all of the bytes; waits while there is no room.
    ///
    /// # Errors
    /// What ended the call.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), RxError> {
        let (id, mut written) = (self.id, 0);
        self.core.wait_for(id, |endpoint, now| {
            written += endpoint.write(now, id, &bytes[written..])?;
            Ok((written == bytes.len()).then_some(()))
        })
    }

    /// This side has written all.
    ///
    /// # Errors
    /// What ended the call.
    pub fn end(&mut self) -> Result<(), RxError> {
        self.is_ended = true;
        let id = self.id;
        self.core.wait_for(id, |endpoint, now| endpoint.end(now, id).map(Some))
    }

    /// A handle by which another thread ends the call, whatever this one waits for.
    pub fn ender(&self) -> CallEnder {
        CallEnder { core: Arc::clone(&self.core), id: self.id }
    }

    /// Ends the call with a code, which the peer is told.
    pub fn abort(mut self, code: i32) {
        self.end_with(code);
    }

    fn end_with(&mut self, code: i32) {
        (self.is_ended, self.is_read) = (true, true);
        let id = self.id;
        self.core.step(|endpoint, now| endpoint.abort(now, id, code));
    }
}

/// Ends a call from another thread.
#[derive(Clone)]
pub struct CallEnder {
    core: Arc<PortCore>,
    id: RxCallId,
}

impl CallEnder {
    /// Ends the call; the thread that has it gets an error soon. Nothing happens if it is over.
    pub fn end(&self) {
        self.core.step(|endpoint, now| endpoint.abort(now, self.id, rx::code::USER_ABORT));
        self.core.notify();
    }
}

impl Drop for PortCall {
    fn drop(&mut self) {
        // The endpoint brings an answer to its end by itself.
        let is_over = if self.is_served { self.is_ended } else { self.is_read };
        if !is_over {
            self.end_with(rx::code::USER_ABORT);
        }
        self.core.forget(self.id);
    }
}
