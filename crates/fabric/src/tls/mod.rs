//! TLS 1.3 below the frames.
//!
//! `rustls` does the handshake ([`Handshake`], without I/O) and then hands over its keys, one for
//! each direction: the [`Sealer`] belongs to the [`crate::Outbox`], the [`Opener`] to the
//! [`crate::Inbox`]. So the sending and the receiving thread of one connection share no state and
//! wait for no lock, and a received payload is copied once, from the opened record to its
//! destination. `rustls`'s own record protection seals and opens; this module handles only lengths,
//! numbers, and the renewal of keys, which a direction does by itself long before its cipher's
//! limit.
//!
//! No session tickets, no early data, no earlier version: a reconnect is a full handshake.

mod config;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handshake;
mod records;
mod shown;
#[cfg(test)]
mod tests;
mod trust;

pub use config::{ClientTls, ServerTls, TlsIdentity};
pub use handshake::{Handshake, Secured};
pub(crate) use records::{
    CONTENT_BYTES_MAX, HEAD_BYTES, RECORD_BYTES_MAX, TlsRecord, record_bytes,
};
pub use records::{Opener, Sealer};
pub use shown::{ClientCertificate, key_print, print_of};
pub use trust::{Fingerprint, Judge, RefusedKeys, Trust};

/// Name in the certificates of a cell's servers beside their addresses: a client that trusts the
/// cell's own authority requires nothing more.
pub const CELL_SERVER: &str = "server.rialto.internal";

pub use rustls::pki_types;

/// The first byte of every TLS connection: a handshake record.
pub const FIRST_BYTE: u8 = 0x16;

/// The connection is not, or no longer, secured. It cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(pub(crate) String);

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            // Text of this crate's own verifier is for people.
            rustls::Error::General(text) => TlsError(text),
            error => TlsError(error.to_string()),
        }
    }
}

impl From<TlsError> for std::io::Error {
    fn from(error: TlsError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}
