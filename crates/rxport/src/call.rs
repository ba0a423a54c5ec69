//! One call: two streams of bytes, for the thread that has it.
//!
//! Rx has no call in which both sides send at once: the first byte of an answer says that the whole
//! request has arrived, and the caller then keeps nothing of it. So a served call is read to its
//! end, or as far as its arguments say, before anything is written into it.

use std::sync::Arc;

use bytes::Bytes;
use rx::{RxCallId, RxError, RxRead};

use crate::core::PortCore;

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

impl PortCall {
    pub(crate) fn of(core: Arc<PortCore>, id: RxCallId, is_served: bool) -> PortCall {
        PortCall { core, id, is_served, is_ended: false, is_read: false }
    }

    /// Between 1 and `max` bytes, as soon as there are any; `None` at the end.
    ///
    /// # Errors
    /// What ended the call.
    pub fn read(&mut self, max: usize) -> Result<Option<Bytes>, RxError> {
        let id = self.id;
        let read =
            self.core.wait_for(id, |endpoint, now| match endpoint.read(now, id, max)? {
                RxRead::Bytes(part) => Ok(Some(Some(part))),
                RxRead::End => Ok(Some(None)),
                RxRead::Nothing => {
                    // The peer may wait for what was written so far.
                    endpoint.flush(now, id)?;
                    Ok(None)
                }
            })?;
        self.is_read |= read.is_none();
        Ok(read)
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
