//! The other end of a connection: what its bytes are protected by, and the worth of what it showed.

use fabric::PeerProcess;
use fabric::tls::{ClientCertificate, Fingerprint};
use types::{Host, KeyPrint};

/// The security of the connection, and the certificate of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// A process of the superuser or of the server's own user, at the server's own socket.
    Local,
    /// Another process of this machine, as the kernel reports it.
    User(PeerProcess),
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

impl Security {
    /// The uid that the kernel reports of a user that this process cannot name: one of another user
    /// name space. Nothing is known of such a user.
    const UNMAPPED: u32 = 65534;

    /// The security of a connection with this other end; `None`: it comes over the network.
    pub fn of(door: Door, peer: Option<PeerProcess>) -> Option<Security> {
        let own = rustix::process::geteuid().as_raw();
        peer.map(|peer| match door {
            Door::Own if peer.uid == 0 || peer.uid == own => Security::Local,
            Door::Own | Door::Users => Security::User(peer),
        })
    }

    /// The host of the other end for the limits, where it is a user of this machine.
    pub fn local_user(self) -> Option<Host> {
        match self {
            Security::User(peer) => Some(Host::LocalUser(peer.uid)),
            _ => None,
        }
    }

    /// Is the other end a user whom the kernel can name?
    pub fn is_of_known_user(self) -> bool {
        matches!(self, Security::User(peer) if peer.uid != Self::UNMAPPED)
    }
}

/// Where a connection came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// At the server's own socket, or over the network.
    Own,
    /// At the socket for users of this machine.
    Users,
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
