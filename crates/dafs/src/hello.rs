//! The first bytes of a connection: what the client can do, and what the server chose. Layouts:
//! `docs/spec/protocol.md`, "Hello".
//!
//! The hello begins with text, so that a person or program on the wrong port can see the protocol's
//! name, and with bytes that break if a transport changes line ends or cuts the eighth bit. Its
//! layout never changes: the two sides agree on a version inside it.

use types::ServerId;
use types::limits::{PAYLOAD_BYTES_MAX, SLOTS_MAX};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;
use crate::limits::{CREDITS_MIN, PAYLOAD_BYTES_LEAST};

/// The version that this code speaks.
pub(crate) const VERSION: u16 = 1;
/// First bytes of both directions.
pub(crate) const MAGIC: [u8; 16] = *b"RIALTO-DAFS\r\n\x1a\n\0";
/// Reads as 01 02 03 04 from the top in the sender's byte order.
const ORDER: u32 = 0x0102_0304;

/// A set of optional features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// No optional feature.
    pub const NONE: Features = Features(0);
    /// Each frame carries a checksum over header and message.
    pub const CHECKSUMS: Features = Features(1 << 0);
    /// ... and over the payload. Has no effect without [`Features::CHECKSUMS`].
    pub const PAYLOAD_CHECKSUMS: Features = Features(1 << 1);
    /// The connection can pass descriptors (Unix sockets).
    pub const DESCRIPTORS: Features = Features(1 << 2);
    /// Requests may name a region that receives their reply's payload.
    pub const DIRECT: Features = Features(1 << 3);
    /// Directories can be delegated: `docs/spec/delegation.md`.
    pub const DELEGATIONS: Features = Features(1 << 4);

    /// Parts of volumes may have packed bodies, if the caller asks for them.
    pub const PACKED: Features = Features(1 << 5);

    /// Reads may be answered with packed chunks ([`types::PackedRun`]), if the client asks for
    /// them.
    pub const PACKED_READS: Features = Features(1 << 6);

    /// Another process may succeed the client's and resume the session, so the session does not end
    /// with the process.
    pub const SUCCESSORS: Features = Features(1 << 7);

    /// A status says whether reads of the file are recorded ([`types::Status::read_times`]).
    /// Without it such a volume looks like any other.
    pub const READ_TIMES: Features = Features(1 << 8);

    /// Slots for new files may be marked ([`types::SHORT_SLOT`]). Without it none is.
    pub const SHORT_SLOTS: Features = Features(1 << 9);

    /// The client may give the server memory of its own, and a lane beside the connection
    /// (`docs/spec/direct-access.md`). Only with [`Features::DESCRIPTORS`] and without checksums.
    pub const LANES: Features = Features(1 << 10);

    /// True if this contains all of `other`.
    pub const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// The intersection of both.
    #[must_use]
    pub const fn common(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

/// The result of the hello for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Protocol version.
    pub version: u16,
    /// Features in force.
    pub features: Features,
    /// Slots that a session over this connection may have.
    pub slots: u32,
    /// Bytes of payload in one frame.
    pub payload_bytes_max: u32,
}

/// The client's first [`Hello::BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Lowest version that it speaks.
    pub version_min: u16,
    /// Highest version that it speaks.
    pub version_max: u16,
    /// Features that the client has.
    pub features: Features,
    /// Slots that it wants.
    pub slots: u32,
    /// Bytes of payload that it can take in one frame.
    pub payload_bytes_max: u32,
    /// The server that the client asks for; `None`: any.
    pub server: Option<ServerId>,
}

/// A server's reason for refusing a connection. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum HelloRefusal {
    /// Another protocol, or noise.
    #[error("this port speaks the Rialto protocol, and what came does not")]
    NotOurs = 1,
    /// No version in common.
    #[error("no protocol version in common")]
    Version = 2,
    /// A byte order that this code does not support.
    #[error("byte order not spoken here")]
    ByteOrder = 3,
    /// Limits that are too small to work with.
    #[error("limits too small to work with")]
    Limits = 4,
    /// The server has no room for one more connection.
    #[error("too many connections")]
    Crowded = 5,
    /// The client sent no hello, or no attach, in time.
    #[error("said nothing for too long")]
    Silent = 6,
    /// Clear text where only TLS is allowed.
    #[error("this port speaks TLS only")]
    NeedsTls = 7,
    /// The client asked for another server.
    #[error("another server is here than the one that is meant")]
    Another = 8,
}

impl HelloRefusal {
    /// Every reason.
    pub const ALL: [HelloRefusal; 8] = [
        HelloRefusal::NotOurs,
        HelloRefusal::Version,
        HelloRefusal::ByteOrder,
        HelloRefusal::Limits,
        HelloRefusal::Crowded,
        HelloRefusal::Silent,
        HelloRefusal::NeedsTls,
        HelloRefusal::Another,
    ];

    fn from_wire(value: u16) -> Option<Self> {
        HelloRefusal::ALL.into_iter().find(|refusal| *refusal as u16 == value)
    }
}

/// The server's answer: [`HelloAnswer::BYTES`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloAnswer {
    /// The client may attach or bind.
    Welcome(Terms),
    /// The connection closes. The bytes hold the reason as readable text too.
    Refused(HelloRefusal),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    magic: [u8; 16],
    order: U32,
    version_min: U16,
    version_max: U16,
    features: U64,
    slots: U32,
    payload_bytes_max: U32,
    server: U128,
    reserved: [u8; 4],
    checksum: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAnswer {
    magic: [u8; 16],
    refusal: U16,
    version: U16,
    slots: U32,
    features: U64,
    payload_bytes_max: U32,
    text: [u8; TEXT_BYTES],
    checksum: U32,
}

/// Room for a readable reason.
const TEXT_BYTES: usize = 88;
const _: () = assert!(size_of::<RawHello>() == Hello::BYTES);
const _: () = assert!(size_of::<RawAnswer>() == HelloAnswer::BYTES);

impl Hello {
    /// Bytes of a hello on the wire.
    pub const BYTES: usize = 64;

    /// The most that this code can do, over a connection with these features.
    pub const fn full(features: Features) -> Hello {
        Hello {
            version_min: VERSION,
            version_max: VERSION,
            features,
            slots: SLOTS_MAX,
            payload_bytes_max: PAYLOAD_BYTES_MAX as u32,
            server: None,
        }
    }

    /// The bytes of this hello.
    pub fn to_bytes(&self) -> [u8; Hello::BYTES] {
        let raw = RawHello {
            magic: MAGIC,
            order: ORDER.into(),
            version_min: self.version_min.into(),
            version_max: self.version_max.into(),
            features: self.features.0.into(),
            slots: self.slots.into(),
            payload_bytes_max: self.payload_bytes_max.into(),
            server: self.server.map_or(0, |server| server.0).into(),
            reserved: [0; 4],
            checksum: 0.into(),
        };
        let mut bytes: [u8; Hello::BYTES] = zerocopy::transmute!(raw);
        seal(&mut bytes);
        bytes
    }

    /// Reads a hello. Later versions may use the reserved bytes, so `parse` ignores them.
    ///
    /// # Errors
    /// [`HelloRefusal`]: the answer to send.
    pub fn parse(bytes: &[u8; Hello::BYTES]) -> Result<Hello, HelloRefusal> {
        let raw: RawHello = zerocopy::transmute!(*bytes);
        if raw.magic != MAGIC {
            return Err(HelloRefusal::NotOurs);
        }
        if raw.order.get() == ORDER.swap_bytes() {
            return Err(HelloRefusal::ByteOrder);
        }
        if raw.order.get() != ORDER || !is_sealed(bytes) {
            return Err(HelloRefusal::NotOurs);
        }
        Ok(Hello {
            version_min: raw.version_min.get(),
            version_max: raw.version_max.get(),
            features: Features(raw.features.get()),
            slots: raw.slots.get(),
            payload_bytes_max: raw.payload_bytes_max.get(),
            server: Some(ServerId(raw.server.get())).filter(|server| server.0 != 0),
        })
    }

    /// The terms for this client of a server that offers `offered`.
    ///
    /// # Errors
    /// [`HelloRefusal`]: nothing in common.
    pub fn agree(&self, offered: &Terms) -> Result<Terms, HelloRefusal> {
        if !(self.version_min..=self.version_max).contains(&offered.version) {
            return Err(HelloRefusal::Version);
        }
        let terms = Terms {
            version: offered.version,
            features: self.features.common(offered.features),
            slots: self.slots.min(offered.slots),
            payload_bytes_max: self.payload_bytes_max.min(offered.payload_bytes_max),
        };
        match terms.are_workable() {
            true => Ok(terms),
            false => Err(HelloRefusal::Limits),
        }
    }
}

impl Terms {
    /// The most that this code can do, over a connection with these features.
    pub const fn full(features: Features) -> Terms {
        Terms {
            version: VERSION,
            features,
            slots: SLOTS_MAX,
            payload_bytes_max: PAYLOAD_BYTES_MAX as u32,
        }
    }

    fn are_workable(&self) -> bool {
        (CREDITS_MIN..=SLOTS_MAX).contains(&self.slots)
            && (PAYLOAD_BYTES_LEAST..=PAYLOAD_BYTES_MAX as u32).contains(&self.payload_bytes_max)
    }
}

impl HelloAnswer {
    /// Bytes of an answer on the wire.
    pub const BYTES: usize = 128;

    /// The bytes of this answer.
    pub fn to_bytes(&self) -> [u8; HelloAnswer::BYTES] {
        let (refusal, terms) = match self {
            HelloAnswer::Welcome(terms) => (None, *terms),
            HelloAnswer::Refused(refusal) => {
                let nothing = Terms {
                    version: VERSION,
                    features: Features::NONE,
                    slots: 0,
                    payload_bytes_max: 0,
                };
                (Some(*refusal), nothing)
            }
        };
        let mut text = [0; TEXT_BYTES];
        let words = refusal.map_or_else(String::new, |refusal| format!("{refusal}\r\n"));
        text[..words.len()].copy_from_slice(words.as_bytes());
        let raw = RawAnswer {
            magic: MAGIC,
            refusal: refusal.map_or(0, |refusal| refusal as u16).into(),
            version: terms.version.into(),
            slots: terms.slots.into(),
            features: terms.features.0.into(),
            payload_bytes_max: terms.payload_bytes_max.into(),
            text,
            checksum: 0.into(),
        };
        let mut bytes: [u8; HelloAnswer::BYTES] = zerocopy::transmute!(raw);
        seal(&mut bytes);
        bytes
    }

    /// Reads an answer and checks that it grants nothing that `hello` did not ask for.
    ///
    /// # Errors
    /// [`WireError`]: not an answer of this protocol, or one that does not fit.
    pub fn parse(
        bytes: &[u8; HelloAnswer::BYTES],
        hello: &Hello,
    ) -> Result<HelloAnswer, WireError> {
        let raw: RawAnswer = zerocopy::transmute!(*bytes);
        if raw.magic != MAGIC {
            return Err(WireError::BadMagic);
        }
        if !is_sealed(bytes) {
            return Err(WireError::BadChecksum);
        }
        if raw.refusal.get() != 0 {
            let bad = WireError::BadValue { what: "refusal", value: raw.refusal.get().into() };
            return HelloRefusal::from_wire(raw.refusal.get()).map(HelloAnswer::Refused).ok_or(bad);
        }
        let terms = Terms {
            version: raw.version.get(),
            features: Features(raw.features.get()),
            slots: raw.slots.get(),
            payload_bytes_max: raw.payload_bytes_max.get(),
        };
        if terms.version != VERSION
            || !(hello.version_min..=hello.version_max).contains(&terms.version)
        {
            return Err(WireError::BadVersion(terms.version));
        }
        match hello.agree(&terms) {
            Ok(agreed) if agreed == terms => Ok(HelloAnswer::Welcome(terms)),
            _ => Err(WireError::BadValue { what: "terms", value: terms.features.0 }),
        }
    }
}

/// Writes the checksum of all earlier bytes into the last four bytes.
fn seal(bytes: &mut [u8]) {
    let (body, sum) = bytes.split_at_mut(bytes.len() - 4);
    sum.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let (body, sum) = bytes.split_at(bytes.len() - 4);
    *sum == crc32c::crc32c(body).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_are_the_smaller_limits_and_the_common_features() {
        let hello = Hello { slots: 16, ..Hello::full(Features::CHECKSUMS.with(Features::DIRECT)) };
        let offered = Terms {
            payload_bytes_max: 65536,
            ..Terms::full(Features::CHECKSUMS.with(Features::DESCRIPTORS))
        };
        let agreed = Terms {
            version: VERSION,
            features: Features::CHECKSUMS,
            slots: 16,
            payload_bytes_max: 65536,
        };
        assert_eq!(hello.agree(&offered), Ok(agreed));
        let answer = HelloAnswer::Welcome(agreed);
        assert_eq!(HelloAnswer::parse(&answer.to_bytes(), &hello), Ok(answer));
    }

    #[test]
    fn every_refusal_can_be_read_by_people_and_programs() {
        for refusal in HelloRefusal::ALL {
            let bytes = HelloAnswer::Refused(refusal).to_bytes();
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains("RIALTO-DAFS") && text.contains(&refusal.to_string()), "{text}");
            assert_eq!(
                HelloAnswer::parse(&bytes, &Hello::full(Features::NONE)),
                Ok(HelloAnswer::Refused(refusal))
            );
        }
    }

    #[test]
    fn an_unfit_version_order_or_limit_is_refused_with_the_reason() {
        let offered = Terms::full(Features::NONE);
        let full = Hello::full(Features::NONE);
        let later = Hello { version_min: VERSION + 1, version_max: VERSION + 9, ..full };
        assert_eq!(later.agree(&offered), Err(HelloRefusal::Version));
        assert_eq!(
            Hello { slots: CREDITS_MIN - 1, ..full }.agree(&offered),
            Err(HelloRefusal::Limits)
        );
        assert_eq!(
            Hello { payload_bytes_max: 0, ..full }.agree(&offered),
            Err(HelloRefusal::Limits)
        );
        let mut swapped = full.to_bytes();
        swapped[16..20].reverse();
        assert_eq!(Hello::parse(&swapped), Err(HelloRefusal::ByteOrder));
    }

    #[test]
    fn a_server_cannot_grant_what_was_not_asked_for() {
        let hello =
            Hello { slots: 16, payload_bytes_max: 65536, ..Hello::full(Features::CHECKSUMS) };
        let fair = hello.agree(&Terms::full(Features::CHECKSUMS)).unwrap();
        for terms in [
            Terms { slots: 17, ..fair },
            Terms { slots: 0, ..fair },
            Terms { payload_bytes_max: 65537, ..fair },
            Terms { features: Features::DIRECT, ..fair },
            Terms { version: 2, ..fair },
        ] {
            assert!(
                HelloAnswer::parse(&HelloAnswer::Welcome(terms).to_bytes(), &hello).is_err(),
                "{terms:?}"
            );
        }
    }

    #[test]
    fn each_flipped_bit_of_a_hello_is_noticed() {
        let bytes = Hello::full(Features::CHECKSUMS).to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::parse(&damaged).is_err(), "bit {bit}");
        }
    }
}
