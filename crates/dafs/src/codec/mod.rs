//! Calls and answers as bytes. Layouts: `docs/spec/protocol.md`.
//!
//! Each value has exactly one form on the wire: absent fields are zero, choices are known numbers,
//! nothing follows the last field. So decoding and encoding again gives the same bytes, which
//! golden vectors and fuzzers check.

mod answer;
pub(crate) mod auth;
pub(crate) mod call;
mod cell;
pub(crate) mod layout;
mod pts;
mod rules;
mod standby;
mod status;
#[cfg(test)]
mod tests;
mod transfer;
mod volume;

use bytes::Bytes;

pub use answer::{
    ENTRIES_HEAD_BYTES, ENTRY_BYTES, decode_answer, decode_answer_record, encode_answer,
    encode_answer_record,
};
pub(crate) use call::{check_payload, resolve_current, uses_current};
pub use call::{decode_call, encode_call};
pub use status::STATUS_BYTES;
pub use types::{AnswerKind, Procedure};

/// A call, encoded for the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedCall {
    /// A [`Procedure`].
    pub procedure: u16,
    /// Everything but bulk data.
    pub message: Vec<u8>,
    /// Bulk data, not copied.
    pub payload: Bytes,
}

/// An answer, encoded for the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedAnswer {
    /// An [`AnswerKind`].
    pub procedure: u16,
    /// Everything but bulk data.
    pub message: Vec<u8>,
    /// Bulk data, not copied.
    pub payload: Bytes,
}
