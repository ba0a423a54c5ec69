//! TLS 1.3 below the frames.
//!
//! `rustls` shakes hands ([`Handshake`], without I/O) and then gives its keys away, one for each
//! direction: the [`Sealer`] belongs to the [`crate::Outbox`], the [`Opener`] to the
//! [`crate::Inbox`]. So who sends and who receives over one connection share no state and wait for
//! no lock, and a received payload is copied once, from where it was opened to its place. What
//! seals and opens is `rustls`'s own record protection; here are only lengths, numbers, and the
//! renewal of keys, which a direction does by itself long before its cipher's limit.
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
pub use handshake::{Handshake, Secured, secure};
#[cfg(test)]
pub(crate) use records::HEAD_BYTES;
pub(crate) use records::{CONTENT_BYTES_MAX, RECORD_BYTES_MAX, TlsRecord, record_bytes};
pub use records::{Opener, Sealer};
pub use shown::{ClientCertificate, key_print, print_of};
pub use trust::{Fingerprint, Judge, Trust};

/// Name that every server's certificate of a cell has beside its addresses: who trusts the cell's
/// own authority asks for no more.
pub const CELL_SERVER: &str = "server.rialto.internal";

pub use rustls::pki_types;

/// The first byte of every TLS connection: a handshake record.
pub const FIRST_BYTE: u8 = 0x16;

/// Why a connection is not, or no longer, secured. It is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(pub(crate) String);

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            // What our own verifier says is for people.
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
