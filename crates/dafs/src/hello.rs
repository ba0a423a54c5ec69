//! The first bytes of a connection: what the client can speak, and what the server chose.

use crate::WireError;

/// A set of optional abilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// Nothing optional.
    pub const NONE: Features = Features(0);
    /// Each frame carries a checksum over header and message.
    pub const CHECKSUMS: Features = Features(1 << 0);
    /// ... and over the payload.
    pub const PAYLOAD_CHECKSUMS: Features = Features(1 << 1);
    /// The connection can pass descriptors (Unix sockets).
    pub const DESCRIPTORS: Features = Features(1 << 2);
    /// Requests may name a region that their reply's payload is placed into.
    pub const DIRECT: Features = Features(1 << 3);

    /// Whether all of `other` is in here.
    pub const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn common(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

/// What both sides agreed on for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Protocol version.
    pub version: u16,
    /// Abilities in force.
    pub features: Features,
    /// Slots that a session over this connection may have.
    pub slots: u32,
    /// Bytes of payload in one frame.
    pub payload_bytes_max: u32,
}

/// What a client says first: [`Hello::BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest version that it speaks.
    pub version_min: u16,
    /// Highest version that it speaks.
    pub version_max: u16,
    /// Abilities that it has.
    pub features: Features,
    /// Slots that it wants.
    pub slots: u32,
    /// Bytes of payload that it can take in one frame.
    pub payload_bytes_max: u32,
}

/// Why a server wants nothing of a connection. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum Refusal {
    /// Another protocol, or noise.
    #[error("this port speaks the Rialto protocol, and what came does not")]
    NotOurs = 1,
    /// No version in common.
    #[error("no protocol version in common")]
    Version = 2,
    /// Bytes in an order that is not spoken here.
    #[error("byte order not spoken here")]
    ByteOrder = 3,
    /// Limits that leave nothing to work with.
    #[error("limits too small to work with")]
    Limits = 4,
    /// No room for one more connection.
    #[error("too many connections")]
    Crowded = 5,
    /// Did not say hello, or did not attach, in time.
    #[error("said nothing for too long")]
    Silent = 6,
}

/// What the server answers: [`HelloAnswer::BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloAnswer {
    /// Go on with an attach or a bind.
    Welcome(Terms),
    /// The connection closes. The bytes hold the reason as readable text too.
    Refused(Refusal),
}

impl Hello {
    /// Bytes of a hello on the wire.
    pub const BYTES: usize = 64;
}

impl HelloAnswer {
    /// Bytes of an answer on the wire.
    pub const BYTES: usize = 128;
}

impl Hello {
    /// The bytes of this hello.
    pub fn to_bytes(&self) -> [u8; Hello::BYTES] {
        [0; Hello::BYTES]
    }
}

impl HelloAnswer {
    /// The bytes of this answer.
    pub fn to_bytes(&self) -> [u8; HelloAnswer::BYTES] {
        [0; HelloAnswer::BYTES]
    }

    /// Reads an answer and checks that it grants nothing that `hello` did not ask for.
    ///
    /// # Errors
    /// [`WireError`]: not an answer of this protocol, or one that does not fit.
    pub fn parse(_bytes: &[u8; HelloAnswer::BYTES], _hello: &Hello) -> Result<HelloAnswer, WireError> {
        Err(WireError::BadMagic)
    }
}
