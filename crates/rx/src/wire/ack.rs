//! The payload of an acknowledgement.
//!
//! `first` is the hard acknowledgement: the reader has every packet before it, and the sender may
//! free those. Byte i of `acks` is the soft acknowledgement of packet `first + i`: it is held, but
//! the sender keeps it. Four words may follow, after three bytes of zero; old peers leave some out.

/// Why an acknowledgement was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AckReason {
    /// The packet asked for it.
    Requested = 1,
    /// The packet was here already.
    Duplicate = 2,
    /// A packet before it is missing.
    OutOfSequence = 3,
    /// The packet is beyond the receive window, and was dropped.
    ExceedsWindow = 4,
    /// There was no room for the packet.
    NoSpace = 5,
    /// Asks the peer for an answer.
    Ping = 6,
    /// Answers a ping.
    PingResponse = 7,
    /// Some time passed since the packet arrived, so this says nothing about the round trip.
    Delay = 8,
    /// Several packets have arrived.
    Idle = 9,
}

/// Words at the end of an acknowledgement. `None`: the peer did not send it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckTrailers {
    /// The largest packet, header included, that the sender accepts.
    pub packet_max: Option<u32>,
    /// The packet size that it prefers.
    pub packet_preferred: Option<u32>,
    /// Its receive window, in packets.
    pub window: Option<u32>,
    /// How many packets of a jumbogram it accepts.
    pub jumbo_max: Option<u32>,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPacket<'a> {
    /// Every packet before this one is with the reader.
    pub first: u32,
    /// The latest packet that arrived.
    pub previous: u32,
    /// Serial of the packet that provoked this; zero: none.
    pub serial: u32,
    /// An [`AckReason`], as a number.
    pub reason: u8,
    /// Bit 0 of byte i: packet `first + i` is held.
    pub acks: &'a [u8],
    /// Limits of the sender.
    pub trailers: AckTrailers,
}

/// Bytes before the soft acknowledgements.
const FIXED_BYTES: usize = 18;
/// Bytes after them.
const PADDING_BYTES: usize = 3;
const TRAILER_BYTES: usize = 16;

impl<'a> AckPacket<'a> {
    /// Most packets that one acknowledgement tells of.
    pub const ACKS_MAX: usize = 255;

    /// Reads the payload of a packet. Bytes after the trailers are padding of any length.
    pub fn parse(payload: &'a [u8]) -> Option<AckPacket<'a>> {
        let (fixed, rest) = payload.split_first_chunk::<FIXED_BYTES>()?;
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let count = usize::from(fixed[17]);
        let acks = rest.get(..count)?;
        let trailers = rest.get(count + PADDING_BYTES..).unwrap_or_default();
        Some(AckPacket {
            first: word(4),
            previous: word(8),
            serial: word(12),
            reason: fixed[16],
            acks,
            trailers: AckTrailers::parse(trailers),
        })
    }

    /// The payload of a packet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let acks = &self.acks[..self.acks.len().min(Self::ACKS_MAX)];
        let mut bytes =
            Vec::with_capacity(FIXED_BYTES + acks.len() + PADDING_BYTES + TRAILER_BYTES);
        bytes.extend_from_slice(&[0; 4]); // Free buffers and skew: not used.
        bytes.extend_from_slice(&self.first.to_be_bytes());
        bytes.extend_from_slice(&self.previous.to_be_bytes());
        bytes.extend_from_slice(&self.serial.to_be_bytes());
        bytes.push(self.reason);
        bytes.push(acks.len() as u8);
        bytes.extend_from_slice(acks);
        bytes.extend_from_slice(&[0; PADDING_BYTES]);
        let t = &self.trailers;
        for word in [t.packet_max, t.packet_preferred, t.window, t.jumbo_max].iter().flatten() {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Whether it was sent for this reason.
    pub fn is(&self, reason: AckReason) -> bool {
        self.reason == reason as u8
    }
}

impl AckTrailers {
    /// A peer sends two words, three or four; anything else after them is padding.
    fn parse(bytes: &[u8]) -> AckTrailers {
        let word = |index: usize| {
            let bytes = bytes.get(4 * index..4 * index + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        if bytes.len() < 8 {
            return AckTrailers::default();
        }
        AckTrailers {
            packet_max: word(0),
            packet_preferred: word(1),
            window: word(2),
            jumbo_max: word(3),
        }
    }
}
