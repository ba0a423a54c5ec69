//! Output of an endpoint for its driver: datagrams, events and bytes.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::RxError;
use crate::ids::{RxCallId, RxConnectionId, ServiceId};
use crate::level::RxkadLevel;
use crate::wire::PacketHeader;

/// A datagram to send. Header and body are apart because the body of a data packet is shared with
/// the queue from which it may be sent again: nothing is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// The first bytes of the datagram.
    pub header: [u8; PacketHeader::BYTES],
    /// The bytes after the header.
    pub body: Bytes,
}

impl Transmit {
    /// Bytes of the datagram.
    pub fn size(&self) -> usize {
        self.header.len() + self.body.len()
    }

    /// The number of its kind.
    pub(crate) fn kind(&self) -> u8 {
        self.header[PacketHeader::KIND_AT]
    }

    /// The datagram in one piece, for a socket that takes only that.
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.header[..], &self.body[..]].concat()
    }
}

/// Something that the application of an endpoint must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RxEvent {
    /// A peer made a call. Its caller is proved, if the security class proves callers.
    Incoming {
        /// The call.
        call: RxCallId,
        /// The service that is called.
        service: ServiceId,
        /// The address that answers go to.
        peer: SocketAddr,
        /// Its caller.
        caller: RxCaller,
        /// The connection of the call.
        connection: RxConnectionId,
        /// The byte of the application in the first packet.
        user_status: u8,
    },
    /// There may be more to read since a read returned nothing.
    Readable(RxCallId),
    /// There may be room since a write took less than it was given.
    Writable(RxCallId),
    /// The call is over: the peer has everything, or there is a code.
    Over(RxCallId, Result<(), RxError>),
}

/// The caller on a connection, as its security class proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RxCaller {
    /// Nothing was proved.
    Anybody,
    /// A Kerberos principal.
    Krb {
        /// First part of the name.
        name: String,
        /// Second part, or nothing.
        instance: String,
        /// The cell or realm as the ticket has it; empty in a ticket that a server printed.
        cell: String,
        /// How packets are protected.
        level: RxkadLevel,
        /// Begin of the ticket, in seconds since 1970.
        issued: u32,
        /// End of the ticket, in seconds since 1970.
        expires: u32,
        /// The ticket was printed by a server with the cell's key.
        is_local_auth: bool,
    },
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RxRead {
    /// The next bytes.
    Bytes(Bytes),
    /// Nothing is here yet; [`RxEvent::Readable`] follows.
    Nothing,
    /// All bytes of this direction were read.
    End,
}
