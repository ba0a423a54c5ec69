//! One of the four channels of a connection: one call at a time, counted.

use types::Time;

use crate::call::RxCall;

#[derive(Debug, Default)]
pub(crate) struct RxChannel {
    /// The latest call's number; zero before the first one.
    pub(crate) number: u32,
    pub(crate) call: Option<Box<RxCall>>,
    /// The call that the peer is told we cannot take.
    pub(crate) refused: Option<u32>,
    /// When a call on it last failed, or was refused by the peer.
    pub(crate) busy_at: Time,
}

impl RxChannel {
    /// Whether its call, if any, is over.
    pub(crate) fn is_free(&self) -> bool {
        self.call.as_ref().is_none_or(|call| call.is_over())
    }

    /// Whether its call waits for a proof.
    pub(crate) fn is_waiting(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.is_waiting())
    }

    /// The call with this number.
    pub(crate) fn call_numbered(&mut self, number: u32) -> Option<&mut RxCall> {
        self.call.as_deref_mut().filter(|call| call.id.number == number)
    }
}
