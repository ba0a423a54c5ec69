//! Data that a server has put where its request wanted it.
//!
//! The session's machine checks the length of an answer's data and passes it on, so it gets as many
//! zeros in its place; nothing reads them.

use bytes::Bytes;
use types::limits::PAYLOAD_BYTES_MAX;

static PLACED: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];

/// Stands for so many bytes, at most [`PAYLOAD_BYTES_MAX`].
pub(super) fn placed(bytes: usize) -> Bytes {
    Bytes::from_static(&PLACED[..bytes])
}

/// Does it stand for bytes that are elsewhere?
pub(super) fn is_placed(data: &[u8]) -> bool {
    PLACED.as_ptr_range().contains(&data.as_ptr())
}
