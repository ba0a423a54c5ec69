//! The raw bytes of a call that carries data.

use bytes::Bytes;

/// The peer or its connection is gone, or sent too little: the call is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call's stream has ended early")]
pub struct StreamBroken;

/// The stream of a call.
pub trait CallStream {
    /// Between 1 and `max` bytes from the peer.
    ///
    /// # Errors
    /// [`StreamBroken`], also if the peer has sent all.
    fn take(&mut self, max: usize) -> Result<Bytes, StreamBroken>;

    /// Sends bytes to the peer; waits while it has not room for them.
    ///
    /// # Errors
    /// [`StreamBroken`].
    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken>;
}
