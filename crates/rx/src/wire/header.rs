//! The header of every packet: 28 bytes, big-endian.

/// Kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketType {
    /// Bytes of a call.
    Data = 1,
    /// Says which packets arrived.
    Ack = 2,
    /// The server cannot take this call now.
    Busy = 3,
    /// Ends a call, or a connection, with a code.
    Abort = 4,
    /// All packets arrived.
    AckAll = 5,
    /// The server asks the client for its proof.
    Challenge = 6,
    /// The client's proof.
    Response = 7,
    /// A question about the state of the endpoint.
    Debug = 8,
    /// A question about the version of the program.
    Version = 13,
}

impl PacketType {
    /// The kind with this number. Numbers 9, 10 and 11 are parameters that nothing uses.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => PacketType::Data,
            2 => PacketType::Ack,
            3 => PacketType::Busy,
            4 => PacketType::Abort,
            5 => PacketType::AckAll,
            6 => PacketType::Challenge,
            7 => PacketType::Response,
            8 => PacketType::Debug,
            13 => PacketType::Version,
            _ => return None,
        })
    }
}

/// Bits of [`PacketHeader::flags`].
pub mod flags {
    /// Sent by the side that made the connection. It alone decides the direction.
    pub const CLIENT_INITIATED: u8 = 0x01;
    /// Data: acknowledge this at once. Acknowledgement: it is a ping.
    pub const REQUEST_ACK: u8 = 0x02;
    /// The last data of this direction of the call.
    pub const LAST_PACKET: u8 = 0x04;
    /// More data follows at once.
    pub const MORE_PACKETS: u8 = 0x08;
    /// Data: another packet follows in the same datagram.
    pub const JUMBO_PACKET: u8 = 0x20;
    /// Acknowledgement: the sender may use slow start.
    pub const SLOW_START_OK: u8 = 0x20;
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHeader {
    /// Number of the client program's run. Random, with the highest bit set.
    pub epoch: u32,
    /// The connection, with the channel in the two lowest bits.
    pub cid: u32,
    /// Number of the call on its channel, from 1. Zero: the packet concerns the connection.
    pub call: u32,
    /// Number of the data packet in its direction of the call, from 1. Zero for other kinds.
    pub seq: u32,
    /// Number of this transmission on the connection, in this direction.
    pub serial: u32,
    /// Kind of the packet, a number of [`PacketType`].
    pub kind: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// A byte of the application; zero in AFS.
    pub user_status: u8,
    /// The security class of the connection.
    pub security: u8,
    /// Checksum of the security class; zero: none.
    pub checksum: u16,
    /// The service that is addressed.
    pub service: u16,
}

impl PacketHeader {
    /// Size on the wire.
    pub const BYTES: usize = 28;
    /// Where the kind is.
    pub(crate) const KIND_AT: usize = 20;

    /// Reads the header at the start of `datagram`, and returns the rest too.
    pub fn parse(datagram: &[u8]) -> Option<(PacketHeader, &[u8])> {
        let (bytes, rest) = datagram.split_first_chunk::<{ Self::BYTES }>()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let header = PacketHeader {
            epoch: word(0),
            cid: word(4),
            call: word(8),
            seq: word(12),
            serial: word(16),
            kind: bytes[20],
            flags: bytes[21],
            user_status: bytes[22],
            security: bytes[23],
            checksum: half(24),
            service: half(26),
        };
        Some((header, rest))
    }

    /// The bytes on the wire.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.epoch, self.cid, self.call, self.seq, self.serial];
        for (at, word) in words.iter().enumerate() {
            bytes[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes[20..24].copy_from_slice(&[self.kind, self.flags, self.user_status, self.security]);
        bytes[24..26].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.service.to_be_bytes());
        bytes
    }

    /// The kind, if it is known.
    pub fn packet_type(&self) -> Option<PacketType> {
        PacketType::from_number(self.kind)
    }

    /// Whether all `bits` are set.
    pub fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// The channel, 0 to 3.
    pub fn channel(&self) -> usize {
        (self.cid & 3) as usize
    }

    /// The connection without the channel.
    pub fn connection(&self) -> u32 {
        self.cid & !3
    }
}
