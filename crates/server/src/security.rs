//! The other end of a connection: what its bytes are protected by, and the worth of what it showed.

use fabric::PeerProcess;
use fabric::tls::{ClientCertificate, Fingerprint};
use types::KeyPrint;

/// The security of the connection, and the certificate of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// A process of this machine, as the kernel reports it.
    Local(PeerProcess),
    /// Clear text: others may read and change it.
    Clear,
    /// Others can neither read nor change the bytes.
    Tls {
        /// Of the certificate that this server showed.
        server: Fingerprint,
        /// The certificate of the other end.
        shown: ClientCertificate,
    },
}

/// The worth of the certificate that the other end showed, by the list of server keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certified {
    /// It has none, or one of no worth.
    No,
    /// It is one of a host.
    Host,
    /// The other end may enter this key in the cell database, which does not list it.
    Enrolling(KeyPrint),
    /// The other end is a server of the cell, by this key.
    Server(KeyPrint),
}
