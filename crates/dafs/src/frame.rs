//! The frame: a fixed header of 64 bytes, a message, and bulk payload after it.
//!
//! A driver reads 64 bytes, calls [`FrameHeader::parse`], which checks both lengths against their
//! limits, and only then allocates for the message and finds the destination of the payload.
//! Message and payload are [`Bytes`], so that a frame is sent with one vectored write and bulk data
//! is never copied. Layout: `docs/spec/protocol.md`, "Frame".

use bytes::Bytes;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use types::{Fault, SessionId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::hello::VERSION;
use crate::wire::limit;
use crate::{Features, Terms, WireError};

/// First four bytes of each frame.
const MAGIC: u32 = u32::from_le_bytes(*b"RiaF");

/// The kind of a frame. Wire values. The client sends those below 64, the server the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of an operations connection.
    Attach = 1,
    /// First frame of a back connection.
    Bind = 2,
    /// Registers a credential, by name, under a handle.
    Credential = 3,
    /// A call.
    Request = 4,
    /// Cancels a request.
    Cancel = 5,
    /// The client has handled a break.
    BreakAck = 6,
    /// Extends the lease.
    Renew = 7,
    /// The client uses no slot at or above the new grant any more.
    CreditsTaken = 8,
    /// Ends the session.
    Detach = 9,
    /// Asks whether the server is alive.
    Probe = 10,
    /// Registers a credential, by token, under a handle.
    Token = 11,
    /// Gives the server a lane beside this connection: `docs/spec/direct-access.md`.
    Lane = 12,
    /// Gives the server a region, or takes one back.
    Region = 13,
    /// There is something in the lane.
    Bell = 14,
    /// Answers [`FrameKind::Attach`].
    Attached = 65,
    /// The back connection belongs to the session.
    Bound = 66,
    /// An answer or a fault.
    Reply = 67,
    /// Promises end.
    Break = 68,
    /// The lease is extended.
    Renewed = 69,
    /// Another number of credits.
    Credits = 70,
    /// The server ends the connection, or the session, with a reason.
    Goodbye = 71,
    /// Answers [`FrameKind::Probe`].
    Probed = 72,
    /// Answers [`FrameKind::Lane`].
    LaneOpen = 73,
    /// Answers [`FrameKind::Region`].
    RegionOpen = 74,
    /// There is something in the lane.
    Rung = 75,
}

impl FrameKind {
    /// Every kind.
    pub const ALL: [FrameKind; 25] = [
        FrameKind::Attach,
        FrameKind::Bind,
        FrameKind::Credential,
        FrameKind::Request,
        FrameKind::Cancel,
        FrameKind::BreakAck,
        FrameKind::Renew,
        FrameKind::CreditsTaken,
        FrameKind::Detach,
        FrameKind::Probe,
        FrameKind::Token,
        FrameKind::Lane,
        FrameKind::Region,
        FrameKind::Bell,
        FrameKind::Attached,
        FrameKind::Bound,
        FrameKind::Reply,
        FrameKind::Break,
        FrameKind::Renewed,
        FrameKind::Credits,
        FrameKind::Goodbye,
        FrameKind::Probed,
        FrameKind::LaneOpen,
        FrameKind::RegionOpen,
        FrameKind::Rung,
    ];

    /// A frame of the connection, which its drivers handle: the session's machines never see it.
    pub fn is_of_connection(self) -> bool {
        use FrameKind::{Bell, Lane, LaneOpen, Region, RegionOpen, Rung};
        matches!(self, Lane | Region | Bell | LaneOpen | RegionOpen | Rung)
    }

    /// A descriptor may travel beside it.
    fn may_have_descriptor(self) -> bool {
        matches!(self, FrameKind::Reply | FrameKind::Lane | FrameKind::Region)
    }

    fn has_credits(self) -> bool {
        matches!(self, FrameKind::Request | FrameKind::Attached | FrameKind::Credits)
    }

    fn from_wire(value: u8) -> Option<Self> {
        FrameKind::ALL.into_iter().find(|kind| *kind as u8 == value)
    }
}

/// A set of properties of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No property.
    pub const NONE: Flags = Flags(0);
    /// From the server.
    pub const REPLY: Flags = Flags(1 << 0);
    /// First member of a chain.
    pub const CHAIN_START: Flags = Flags(1 << 1);
    /// Neither first nor last member.
    pub const CHAIN_MIDDLE: Flags = Flags(1 << 2);
    /// Last member.
    pub const CHAIN_END: Flags = Flags(1 << 3);
    /// The checksum covers header and message.
    pub const CHECKSUM: Flags = Flags(1 << 4);
    /// ... and the payload.
    pub const PAYLOAD_CHECKSUM: Flags = Flags(1 << 5);
    /// A descriptor travels beside the frame.
    pub const DESCRIPTOR: Flags = Flags(1 << 6);
    /// `region` names the place in the client's memory of the payload: the request's own, or that
    /// of its reply.
    pub const DIRECT: Flags = Flags(1 << 7);
    /// A member of a chain that has failed already: the server answers it with `ChainAborted` and
    /// does not execute it.
    pub const ABORTED: Flags = Flags(1 << 8);

    const ALL: u16 = (1 << 9) - 1;
    const SUMS: Flags = Flags(Flags::CHECKSUM.0 | Flags::PAYLOAD_CHECKSUM.0);
    /// The three positions in a chain.
    pub const CHAIN: Flags =
        Flags(Flags::CHAIN_START.0 | Flags::CHAIN_MIDDLE.0 | Flags::CHAIN_END.0);

    /// True if this contains all of `other`.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if this contains any of `other`.
    pub const fn has_any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// This without `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The wire value.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// A place in memory that the client has registered with its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Region {
    /// The client's number for the memory.
    pub handle: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// A peer's reason for a refusal, as the header carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCode {
    /// A fault that this program knows.
    Known(Fault),
    /// A fault of a newer peer, by its number, which no [`Fault`] has.
    Unknown(u16),
}

impl FaultCode {
    /// `None`: no refusal.
    pub(crate) fn from_wire(status: u16) -> Option<FaultCode> {
        match (status, Fault::from_wire(status)) {
            (0, _) => None,
            (_, Some(fault)) => Some(FaultCode::Known(fault)),
            (status, None) => Some(FaultCode::Unknown(status)),
        }
    }

    pub(crate) fn to_wire(self) -> u16 {
        match self {
            FaultCode::Known(fault) => fault as u16,
            FaultCode::Unknown(status) => status,
        }
    }

    /// The fault; `Unsupported` for one that this program does not know.
    pub fn fault(self) -> Fault {
        match self {
            FaultCode::Known(fault) => fault,
            FaultCode::Unknown(_) => Fault::Unsupported,
        }
    }
}

impl From<Fault> for FaultCode {
    fn from(fault: Fault) -> FaultCode {
        FaultCode::Known(fault)
    }
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Protocol version of the connection.
    pub version: u16,
    /// The frame's kind.
    pub kind: FrameKind,
    /// Of a request the number of the call, of a reply that of the answer (see `codec`); otherwise
    /// 0.
    pub procedure: u16,
    /// Properties of the frame.
    pub flags: Flags,
    /// Of a reply: the reason for refusing the call.
    pub fault: Option<FaultCode>,
    /// Of an attached and a credits the credits granted, of a request those wanted; otherwise 0.
    pub credits: u16,
    /// Session of the frame; 0 before the attach.
    pub session: SessionId,
    /// Request number within the slot; for breaks, renewals, probes, grants and their answers their
    /// number.
    pub request: u64,
    /// Slot of a request, a reply, a cancel.
    pub slot: u32,
    /// Handle of the credential that the call runs under.
    pub credential: u32,
    /// With [`Flags::DIRECT`]: the destination of the payload.
    pub region: Region,
    /// Bytes of the message, at most [`MESSAGE_BYTES_MAX`].
    pub message_bytes: u32,
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: u32,
    /// crc32c over the header (this field as 0), the message and, if flagged, the payload; 0
    /// without [`Flags::CHECKSUM`].
    pub checksum: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U16,
    kind: u8,
    reserved: u8,
    procedure: U16,
    flags: U16,
    status: U16,
    credits: U16,
    session: U64,
    request: U64,
    slot: U32,
    credential: U32,
    region_offset: U64,
    region_handle: U32,
    message_bytes: U32,
    payload_bytes: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<Raw>() == FrameHeader::BYTES);

impl FrameHeader {
    /// Bytes of a header on the wire.
    pub const BYTES: usize = 64;

    /// A header of `kind` with everything else empty.
    pub const fn new(kind: FrameKind, session: SessionId) -> FrameHeader {
        let flags = if kind as u8 > 64 { Flags::REPLY } else { Flags::NONE };
        FrameHeader {
            version: VERSION,
            kind,
            procedure: 0,
            flags,
            fault: None,
            credits: 0,
            session,
            request: 0,
            slot: 0,
            credential: 0,
            region: Region { handle: 0, offset: 0 },
            message_bytes: 0,
            payload_bytes: 0,
            checksum: 0,
        }
    }

    /// Checks the bytes of a header, its lengths above all, before the caller allocates for the
    /// rest.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no frame of this protocol, or claim more than the limits allow.
    pub fn parse(bytes: &[u8; FrameHeader::BYTES]) -> Result<FrameHeader, WireError> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        if raw.magic.get() != MAGIC {
            return Err(WireError::BadMagic);
        }
        if raw.version.get() != VERSION {
            return Err(WireError::BadVersion(raw.version.get()));
        }
        let bad = |what, value: u64| WireError::BadValue { what, value };
        let kind = FrameKind::from_wire(raw.kind).ok_or(bad("kind", raw.kind.into()))?;
        let header = FrameHeader {
            version: raw.version.get(),
            kind,
            procedure: raw.procedure.get(),
            flags: Flags(raw.flags.get()),
            fault: FaultCode::from_wire(raw.status.get()),
            credits: raw.credits.get(),
            session: SessionId(raw.session.get()),
            request: raw.request.get(),
            slot: raw.slot.get(),
            credential: raw.credential.get(),
            region: Region { handle: raw.region_handle.get(), offset: raw.region_offset.get() },
            message_bytes: raw.message_bytes.get(),
            payload_bytes: raw.payload_bytes.get(),
            checksum: raw.checksum.get(),
        };
        if raw.reserved != 0 {
            return Err(bad("reserved byte", raw.reserved.into()));
        }
        header.check().map(|()| header)
    }

    /// Checks the rules for every header, sent or received.
    fn check(&self) -> Result<(), WireError> {
        let limit = |what, value: u32, max: usize| match value as usize > max {
            true => Err(WireError::TooMuch { what, value: value.into(), max: max as u64 }),
            false => Ok(()),
        };
        limit("message bytes", self.message_bytes, MESSAGE_BYTES_MAX)?;
        limit("payload bytes", self.payload_bytes, PAYLOAD_BYTES_MAX)?;
        let flags = self.flags;
        let bulk = matches!(self.kind, FrameKind::Request | FrameKind::Reply);
        let chain = flags.0 & Flags::CHAIN.0;
        let good = flags.0 & !Flags::ALL == 0
            && flags.has(Flags::REPLY) == (self.kind as u8 > 64)
            && chain.count_ones() <= 1
            && (chain == 0 || self.kind == FrameKind::Request)
            && (!flags.has(Flags::ABORTED) || self.kind == FrameKind::Request)
            && (!flags.has(Flags::PAYLOAD_CHECKSUM) || flags.has(Flags::CHECKSUM))
            && (!flags.has(Flags::DESCRIPTOR) || self.kind.may_have_descriptor())
            && (!flags.has(Flags::DIRECT) || bulk);
        if !good {
            return Err(WireError::BadValue { what: "flags", value: flags.0.into() });
        }
        let bad = |what, value| Err(WireError::BadValue { what, value });
        match self {
            _ if !bulk && self.payload_bytes > 0 => Err(WireError::BadPayload),
            _ if !bulk && self.procedure != 0 => bad("procedure", self.procedure.into()),
            _ if self.fault.is_some()
                && !matches!(self.kind, FrameKind::Reply | FrameKind::Goodbye) =>
            {
                bad("status", self.fault.map_or(0, FaultCode::to_wire).into())
            }
            _ if self.credits != 0 && !self.kind.has_credits() => {
                bad("credits", self.credits.into())
            }
            _ if !flags.has(Flags::DIRECT) && self.region != Region::default() => {
                bad("region", self.region.offset)
            }
            _ if !flags.has(Flags::CHECKSUM) && self.checksum != 0 => {
                bad("checksum", self.checksum.into())
            }
            _ => Ok(()),
        }
    }

    /// The bytes of this header.
    pub fn to_bytes(&self) -> [u8; FrameHeader::BYTES] {
        let raw = Raw {
            magic: MAGIC.into(),
            version: self.version.into(),
            kind: self.kind as u8,
            reserved: 0,
            procedure: self.procedure.into(),
            flags: self.flags.0.into(),
            status: self.fault.map_or(0, FaultCode::to_wire).into(),
            credits: self.credits.into(),
            session: self.session.0.into(),
            request: self.request.into(),
            slot: self.slot.into(),
            credential: self.credential.into(),
            region_offset: self.region.offset.into(),
            region_handle: self.region.handle.into(),
            message_bytes: self.message_bytes.into(),
            payload_bytes: self.payload_bytes.into(),
            checksum: self.checksum.into(),
        };
        zerocopy::transmute!(raw)
    }
}

/// One frame, cut out of a stream or ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header; its lengths are those of the other two fields.
    pub header: FrameHeader,
    /// The message.
    pub message: Bytes,
    /// Bulk data, up to [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: Bytes,
}

impl Frame {
    /// A frame whose header gets the lengths of its parts. Encoders keep them within the limits.
    pub fn new(mut header: FrameHeader, message: impl Into<Bytes>, payload: Bytes) -> Frame {
        let message = message.into();
        header.message_bytes =
            u32::try_from(message.len()).expect("encoders limit a message to MESSAGE_BYTES_MAX");
        header.payload_bytes =
            u32::try_from(payload.len()).expect("encoders limit a payload to PAYLOAD_BYTES_MAX");
        let frame = Frame { header, message, payload };
        debug_assert_eq!(frame.header.check(), Ok(()), "{frame:?}");
        frame
    }

    /// A frame without payload.
    pub fn plain(header: FrameHeader, message: impl Into<Bytes>) -> Frame {
        Frame::new(header, message, Bytes::new())
    }
}

/// Checksums, as the connection's features require them.
impl Frame {
    /// Computes the checksums, as the last step before sending.
    #[must_use]
    pub fn sealed(mut self, features: Features) -> Frame {
        self.header.flags =
            self.header.flags.without(Flags::SUMS).with(sums_wanted(features, &self.payload));
        self.header.checksum = 0;
        if self.header.flags.has(Flags::CHECKSUM) {
            self.header.checksum = self.sum();
        }
        self
    }

    /// Checks a received frame: its checksums as the connection's features require them, and no
    /// flag that the hello did not agree on.
    ///
    /// # Errors
    /// [`WireError`]: the frame is damaged, or breaks the terms.
    pub fn verify(&self, terms: &Terms) -> Result<(), WireError> {
        let Frame { header, message, payload } = self;
        if header.message_bytes as usize != message.len()
            || header.payload_bytes as usize != payload.len()
        {
            return Err(WireError::Truncated);
        }
        limit("payload bytes", payload.len(), terms.payload_bytes_max as usize)?;
        let flags = header.flags;
        let agreed = (!flags.has(Flags::DESCRIPTOR) || terms.features.has(Features::DESCRIPTORS))
            && (!flags.has(Flags::DIRECT) || terms.features.has(Features::DIRECT))
            && flags.bits() & Flags::SUMS.bits() == sums_wanted(terms.features, payload).bits();
        if !agreed || header.version != terms.version {
            return Err(WireError::BadValue { what: "flags", value: flags.bits().into() });
        }
        match flags.has(Flags::CHECKSUM) && self.sum() != header.checksum {
            true => Err(WireError::BadChecksum),
            false => Ok(()),
        }
    }

    fn sum(&self) -> u32 {
        let header = FrameHeader { checksum: 0, ..self.header }.to_bytes();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&header), &self.message);
        match self.header.flags.has(Flags::PAYLOAD_CHECKSUM) {
            true => crc32c::crc32c_append(sum, &self.payload),
            false => sum,
        }
    }
}

fn sums_wanted(features: Features, payload: &Bytes) -> Flags {
    match (
        features.has(Features::CHECKSUMS),
        features.has(Features::PAYLOAD_CHECKSUMS) && !payload.is_empty(),
    ) {
        (false, _) => Flags::NONE,
        (true, false) => Flags::CHECKSUM,
        (true, true) => Flags::SUMS,
    }
}

#[cfg(test)]
mod tests {
    use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};

    use super::*;

    fn terms(features: Features) -> Terms {
        Terms { version: VERSION, features, slots: 8, payload_bytes_max: PAYLOAD_BYTES_MAX as u32 }
    }

    fn write(features: Features) -> Frame {
        let header = FrameHeader {
            slot: 3,
            request: 9,
            ..FrameHeader::new(FrameKind::Request, SessionId(7))
        };
        Frame::new(header, &b"message"[..], Bytes::from_static(b"payload")).sealed(features)
    }

    #[test]
    fn lengths_are_refused_from_the_header_alone() {
        let parse = |message_bytes, payload_bytes| {
            let header = FrameHeader {
                message_bytes,
                payload_bytes,
                ..FrameHeader::new(FrameKind::Request, SessionId(7))
            };
            FrameHeader::parse(&header.to_bytes())
        };
        assert!(parse(MESSAGE_BYTES_MAX as u32, PAYLOAD_BYTES_MAX as u32).is_ok());
        assert!(matches!(parse(MESSAGE_BYTES_MAX as u32 + 1, 0), Err(WireError::TooMuch { .. })));
        assert!(matches!(parse(0, PAYLOAD_BYTES_MAX as u32 + 1), Err(WireError::TooMuch { .. })));
        assert!(matches!(parse(u32::MAX, u32::MAX), Err(WireError::TooMuch { .. })));
    }

    #[test]
    fn payload_belongs_to_requests_and_replies_only() {
        for kind in FrameKind::ALL {
            let bytes =
                FrameHeader { payload_bytes: 1, ..FrameHeader::new(kind, SessionId(7)) }.to_bytes();
            let bulk = matches!(kind, FrameKind::Request | FrameKind::Reply);
            assert_eq!(FrameHeader::parse(&bytes).is_ok(), bulk, "{kind:?}");
        }
    }

    #[test]
    fn a_flag_that_contradicts_the_kind_is_refused() {
        let refused = |kind, flags: Flags| {
            let header = FrameHeader::new(kind, SessionId(7));
            FrameHeader::parse(
                &FrameHeader { flags: header.flags.with(flags), ..header }.to_bytes(),
            )
            .is_err()
        };
        assert!(refused(FrameKind::Request, Flags::REPLY));
        assert!(refused(FrameKind::Request, Flags::CHAIN_START.with(Flags::CHAIN_END)));
        assert!(refused(FrameKind::Reply, Flags::ABORTED));
        assert!(refused(FrameKind::Request, Flags::DESCRIPTOR));
        assert!(refused(FrameKind::Request, Flags::PAYLOAD_CHECKSUM));
        assert!(refused(FrameKind::Reply, Flags::CHAIN_START));
        assert!(refused(FrameKind::Renew, Flags::DIRECT));
        assert!(refused(FrameKind::Request, Flags(1 << 15)));
        assert!(!refused(FrameKind::Request, Flags::CHAIN_END.with(Flags::ABORTED)));
        assert!(!refused(FrameKind::Reply, Flags::DESCRIPTOR.with(Flags::DIRECT)));
    }

    #[test]
    fn m14_an_unknown_status_is_preserved() {
        let mut bytes = FrameHeader {
            fault: Some(Fault::NoSpace.into()),
            ..FrameHeader::new(FrameKind::Reply, SessionId(7))
        };
        assert_eq!(FrameHeader::parse(&bytes.to_bytes()), Ok(bytes));
        bytes.fault = Some(FaultCode::Unknown(60_000));
        let parsed = FrameHeader::parse(&bytes.to_bytes()).unwrap();
        assert_eq!((parsed, parsed.fault.map(FaultCode::fault)), (bytes, Some(Fault::Unsupported)));
        let request = FrameHeader {
            fault: Some(FaultCode::Unknown(60_000)),
            ..FrameHeader::new(FrameKind::Request, SessionId(7))
        };
        assert!(FrameHeader::parse(&request.to_bytes()).is_err(), "a request refuses nothing");
    }

    #[test]
    fn each_flipped_bit_of_a_summed_frame_is_noticed() {
        let all = Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS);
        let frame = write(all);
        assert_eq!(frame.verify(&terms(all)), Ok(()));
        for bit in 0..FrameHeader::BYTES * 8 {
            let mut bytes = frame.header.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let noticed = match FrameHeader::parse(&bytes) {
                Ok(header) => Frame { header, ..frame.clone() }.verify(&terms(all)).is_err(),
                Err(_) => true,
            };
            assert!(noticed, "bit {bit}");
        }
        for bit in 0..7 * 8 {
            let mut bytes = frame.message.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = Frame { message: bytes.into(), ..frame.clone() };
            assert_eq!(damaged.verify(&terms(all)), Err(WireError::BadChecksum));
            let mut bytes = frame.payload.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = Frame { payload: bytes.into(), ..frame.clone() };
            assert_eq!(damaged.verify(&terms(all)), Err(WireError::BadChecksum));
        }
    }

    #[test]
    fn sums_are_there_exactly_if_agreed_on() {
        let all = Features::CHECKSUMS.with(Features::PAYLOAD_CHECKSUMS);
        let choices = [Features::NONE, Features::CHECKSUMS, all];
        for sent in choices {
            for agreed in choices {
                assert_eq!(
                    write(sent).verify(&terms(agreed)).is_ok(),
                    sent == agreed,
                    "{sent:?} {agreed:?}"
                );
            }
        }
    }
}
