//! Security classes of connections: null, and rxkad.
//!
//! A class adds a head to each data packet's body, seals it, and puts a checksum into the header.
//! The two ends of a connection differ only in how the session is made: the server asks for a
//! proof, the client gives it.

use std::sync::Arc;

use bytes::Bytes;

use crate::event::RxCaller;
use crate::level::RxkadLevel;
use crate::rxkad::{BadSeal, PacketSeal, RxkadClient, RxkadKeys, RxkadServer, RxkadToken};
use crate::wire::PacketHeader;

/// Security index of the null class.
const NULL_INDEX: u8 = 0;

/// A security class that a service accepts.
#[derive(Clone, Debug)]
pub enum ServerSecurity {
    /// Callers prove nothing.
    Null,
    /// Kerberos.
    Rxkad {
        /// Keys of the cell.
        keys: Arc<RxkadKeys>,
        /// The least protection of packets that is accepted.
        level_min: RxkadLevel,
        /// The number of the class on the wire: 2, or 3 for a class that always encrypts.
        index: u8,
    },
}

impl ServerSecurity {
    /// Its number on the wire.
    pub fn index(&self) -> u8 {
        match self {
            ServerSecurity::Null => NULL_INDEX,
            ServerSecurity::Rxkad { index, .. } => *index,
        }
    }
}

/// The security class of a connection that this side makes.
#[derive(Clone, Debug)]
pub enum ClientSecurity {
    /// Proves nothing.
    Null,
    /// Kerberos.
    Rxkad {
        /// The token for the server's cell.
        token: RxkadToken,
        /// How packets are protected.
        level: RxkadLevel,
    },
}

/// The security class of one connection.
#[derive(Debug)]
pub(crate) enum ConnectionSecurity {
    Null,
    Client(Box<RxkadClient>),
    Server(Box<RxkadServer>),
}

impl ConnectionSecurity {
    pub(crate) fn for_client(security: ClientSecurity, epoch: u32, cid: u32) -> Self {
        match security {
            ClientSecurity::Null => ConnectionSecurity::Null,
            ClientSecurity::Rxkad { token, level } => {
                let client = RxkadClient::new(token, level, epoch, cid);
                ConnectionSecurity::Client(Box::new(client))
            }
        }
    }

    pub(crate) fn for_server(security: &ServerSecurity, epoch: u32, cid: u32) -> Self {
        match security {
            ServerSecurity::Null => ConnectionSecurity::Null,
            ServerSecurity::Rxkad { keys, level_min, index } => {
                let server = RxkadServer::new(Arc::clone(keys), *level_min, *index, epoch, cid);
                ConnectionSecurity::Server(Box::new(server))
            }
        }
    }

    /// Its number on the wire.
    pub(crate) fn index(&self) -> u8 {
        match self {
            ConnectionSecurity::Null => NULL_INDEX,
            ConnectionSecurity::Client(_) => crate::rxkad::INDEX,
            ConnectionSecurity::Server(server) => server.index(),
        }
    }

    /// Whether the caller has yet to prove its name.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, ConnectionSecurity::Server(server) if server.seal().is_none())
    }

    /// The caller on this connection.
    pub(crate) fn caller(&self) -> RxCaller {
        match self {
            ConnectionSecurity::Server(server) => server.caller().clone(),
            ConnectionSecurity::Null | ConnectionSecurity::Client(_) => RxCaller::Anybody,
        }
    }

    /// Whether what the caller proved is not true any more.
    pub(crate) fn is_expired(&self, wall_secs: i64) -> bool {
        matches!(self, ConnectionSecurity::Server(server) if server.is_expired(wall_secs))
    }

    fn packet_seal(&self) -> Option<&PacketSeal> {
        match self {
            ConnectionSecurity::Null => None,
            ConnectionSecurity::Client(client) => Some(client.seal()),
            ConnectionSecurity::Server(server) => server.seal(),
        }
    }

    /// How packets are protected by rxkad; `None`: they are not, or not yet.
    pub(crate) fn level(&self) -> Option<RxkadLevel> {
        self.packet_seal().map(PacketSeal::level)
    }

    /// Bytes before the data in each body.
    pub(crate) fn head_bytes(&self) -> usize {
        self.packet_seal().map_or(0, PacketSeal::head_bytes)
    }

    /// Most bytes that sealing adds after the data.
    pub(crate) fn tail_bytes_max(&self) -> usize {
        self.packet_seal().map_or(0, PacketSeal::tail_bytes_max)
    }

    /// Head and data of a body of `body_max` bytes.
    pub(crate) fn filled_max(&self, body_max: usize) -> usize {
        self.packet_seal().map_or(body_max, |seal| seal.filled_max(body_max))
    }

    /// Seals a body that begins with an empty head; the place is call, channel and sequence number.
    /// Returns the checksum for the header.
    pub(crate) fn seal(&self, place: (u32, u8, u32), body: &mut Vec<u8>) -> u16 {
        self.packet_seal().map_or(0, |seal| seal.seal(place, body))
    }

    /// Whether the checksum of a data packet is right.
    pub(crate) fn verify(&self, header: &PacketHeader) -> bool {
        match self {
            ConnectionSecurity::Null => true,
            _ => self.packet_seal().is_some_and(|seal| seal.verify(header)),
        }
    }

    /// The data in a body.
    ///
    /// # Errors
    /// The seal is wrong.
    pub(crate) fn open(&self, header: &PacketHeader, body: &[u8]) -> Result<Bytes, BadSeal> {
        match self {
            ConnectionSecurity::Null => Ok(Bytes::copy_from_slice(body)),
            _ => self.packet_seal().ok_or(BadSeal)?.open(header, body),
        }
    }
}
