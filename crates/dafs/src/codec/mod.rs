//! Calls and answers as bytes. Layouts: `docs/protocol.md`.

use bytes::Bytes;
use types::{Answer, Call};

use crate::WireError;

/// A call as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedCall {
    /// Which call.
    pub procedure: u16,
    /// Everything but bulk data.
    pub message: Vec<u8>,
    /// Bulk data, not copied.
    pub payload: Bytes,
}

/// An answer as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedAnswer {
    /// Which kind of answer.
    pub procedure: u16,
    /// Everything but bulk data.
    pub message: Vec<u8>,
    /// Bulk data, not copied.
    pub payload: Bytes,
}

/// The bytes of a call.
///
/// # Errors
/// [`WireError`]: the call breaks a limit.
pub fn encode_call(_call: &Call) -> Result<EncodedCall, WireError> {
    Err(WireError::Truncated)
}

/// The call that some bytes are.
///
/// # Errors
/// [`WireError`]: they are none.
pub fn decode_call(_procedure: u16, _message: &[u8], _payload: Bytes) -> Result<Call, WireError> {
    Err(WireError::Truncated)
}

/// The bytes of an answer. Listings and sums that do not fit are cut at the last element that does.
///
/// # Errors
/// [`WireError`]: the answer breaks a limit.
pub fn encode_answer(_answer: &Answer) -> Result<EncodedAnswer, WireError> {
    Err(WireError::Truncated)
}

/// The answer that some bytes are.
///
/// # Errors
/// [`WireError`]: they are none.
pub fn decode_answer(_procedure: u16, _message: &[u8], _payload: Bytes) -> Result<Answer, WireError> {
    Err(WireError::Truncated)
}

/// An answer as the store keeps it for exactly-once: one run of bytes. `Data` is never recorded.
pub fn encode_answer_record(_answer: &Answer) -> Vec<u8> {
    Vec::new()
}

/// The answer of a record.
///
/// # Errors
/// [`WireError`]: it is none.
pub fn decode_answer_record(_record: &[u8]) -> Result<Answer, WireError> {
    Err(WireError::Truncated)
}
