//! Messages that maintain a session: all but requests and replies. Layouts:
//! `docs/spec/protocol.md`, "Session messages".

use std::time::Duration;

use types::limits::{GROUPS_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use types::{
    BootVerifier, BreakId, BreakItem, Caller, ClientId, Fault, Fid, RequestIdentity, SessionId,
};

use crate::codec::auth::TOKEN;
use crate::codec::call::FIDS;
use crate::codec::layout::{Layout, Plain, Short, get_all, layout, record};
use crate::credentials::{Hash, TokenProof};
use crate::limits::{BREAK_HINT_BYTES_MAX, BREAK_ITEMS_MAX, DISPLAY_BYTES_MAX, REASON_BYTES_MAX};
use crate::wire::{FieldReader, Writer, limit};
use crate::{FaultCode, Frame, FrameHeader, FrameKind, Terms, WireError};

/// First message on an operations connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The client that attaches.
    pub client: ClientId,
    /// Rises with each start of the client; the server refuses a lower one than it knows (EO-2).
    pub incarnation: u64,
    /// The session to resume.
    pub resume: Option<SessionId>,
    /// Host and program, for people to read. UTF-8, at most [`crate::limits::DISPLAY_BYTES_MAX`]
    /// bytes.
    pub display: String,
    /// Process id of the program.
    pub pid: u32,
}

/// Answer to [`Attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachAnswer {
    /// The session, new or resumed.
    pub session: SessionId,
    /// The session existed before: its slots remember their requests.
    pub resumed: bool,
    /// The attach counts as a renewal. False: a break is overdue, and the client must acknowledge
    /// it first.
    pub renewed: bool,
    /// The server instance: another number means that the server restarted.
    pub server: u64,
    /// See [`BootVerifier`].
    pub boot_verifier: BootVerifier,
    /// How long the session lives without a renewal.
    pub lease: Duration,
    /// Credits from now on.
    pub credits: u32,
    /// The number of the grant of these credits.
    pub grant: u64,
    /// Proves that a back connection belongs to the session.
    pub bind_key: u128,
    /// The challenge for proofs over this connection, beside the server's certificate.
    pub challenge: Hash,
}

/// First message on a back connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The session to join.
    pub session: SessionId,
    /// As [`AttachAnswer::bind_key`].
    pub key: u128,
}

/// Any message of a session but requests and replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the server: see [`Attach`].
    Attach(Attach),
    /// To the server: see [`Bind`].
    Bind(Bind),
    /// To the server: the handle stands for this caller from now on.
    Credential {
        /// 1 to [`crate::limits::CREDENTIALS_MAX`].
        handle: u32,
        /// The caller of requests with this handle.
        caller: Caller,
    },
    /// To the server: the handle stands for the principal of this token from now on.
    Token {
        /// As of [`Message::Credential`].
        handle: u32,
        /// Token and proof.
        shown: TokenProof,
    },
    /// To the server: cancel a request.
    Cancel {
        /// The request's slot.
        slot: u32,
        /// The request's number.
        request: u64,
    },
    /// To the server: the client has handled a break.
    BreakAck {
        /// The break's number.
        id: BreakId,
        /// Removed files that are open at the client.
        held: Vec<Fid>,
    },
    /// To the server: extend the lease.
    Renew(u64),
    /// To the server: the client follows the grant with this number and uses no slot at or above
    /// its credits.
    CreditsTaken(u64),
    /// To the server: the descriptor beside it is the memory of a lane.
    Lane,
    /// To the server: the descriptor beside it is the memory of the region from now on; without
    /// one, the region ends.
    Region {
        /// The client's number for the memory.
        handle: u32,
        /// It begins.
        begins: bool,
    },
    /// To the server: there is something in the lane.
    Bell,
    /// To the server: the session is over.
    Detach,
    /// To the server: answer, to show that you are alive.
    Probe(u64),
    /// To the client: see [`AttachAnswer`].
    Attached(AttachAnswer),
    /// To the client: the back connection is bound.
    Bound,
    /// To the client: the lane is in use from now on.
    LaneOpen,
    /// To the client: the region can be named in requests, or will not be accessed any more.
    RegionOpen {
        /// The client's number for the memory.
        handle: u32,
        /// False: the server does not map the memory; the region is as one that ended.
        is_open: bool,
    },
    /// To the client: there is something in the lane.
    Rung,
    /// To the client: promises end.
    Break {
        /// The break's number.
        id: BreakId,
        /// The promises that end.
        items: Vec<BreakItem>,
    },
    /// To the client: answers the renewal with this number. `renewed` as in
    /// [`AttachAnswer::renewed`].
    Renewed {
        /// The renewal's number.
        number: u64,
        /// True if the lease was extended.
        renewed: bool,
    },
    /// To the client: the session's credits from now on.
    Credits {
        /// Number of credits.
        credits: u32,
        /// The number of this grant; rises.
        grant: u64,
    },
    /// To the client: the connection ends; with `Expired` the session does too.
    Goodbye {
        /// The reason, for programs.
        fault: Option<Fault>,
        /// The reason, for people: at most [`REASON_BYTES_MAX`] bytes.
        reason: String,
    },
    /// To the client: answers the probe with this number.
    Probed(u64),
}

const DISPLAY: Short = Short("display bytes", DISPLAY_BYTES_MAX);
const REASON: Short = Short("reason bytes", REASON_BYTES_MAX);

record!(TokenProof { token: TOKEN, proof });

/// The client did not look up the supplementary groups.
const GROUPS_UNKNOWN: u32 = u32::MAX;
/// Bytes of an item of a break without its hint.
const ITEM_BYTES: usize = 28;

impl Message {
    /// The frame of this message in `session` (of an [`Attach`] and an [`AttachAnswer`] their own
    /// session), without checksums.
    ///
    /// # Errors
    /// [`WireError`]: a limit is broken.
    pub fn to_frame(&self, session: SessionId) -> Result<Frame, WireError> {
        let mut to = Writer::new();
        let mut header = FrameHeader::new(self.kind(), session);
        self.put(&mut header, &mut to);
        Ok(Frame::plain(header, to.end()?))
    }

    /// The frame that ends a connection without a session: the server refused an attach, or a bind
    /// names no session. `reason` is cut to [`REASON_BYTES_MAX`] bytes. The caller closes the
    /// connection after it.
    pub fn goodbye(terms: &Terms, session: SessionId, fault: Option<Fault>, reason: &str) -> Frame {
        let reason = cut(reason, REASON_BYTES_MAX).to_owned();
        let frame = Message::Goodbye { fault, reason }.to_frame(session);
        frame.expect("a reason of REASON_BYTES_MAX is within the limits").sealed(terms.features)
    }

    /// The kind of frame that carries it.
    pub fn kind(&self) -> FrameKind {
        match self {
            Message::Attach(_) => FrameKind::Attach,
            Message::Bind(_) => FrameKind::Bind,
            Message::Credential { .. } => FrameKind::Credential,
            Message::Token { .. } => FrameKind::Token,
            Message::Cancel { .. } => FrameKind::Cancel,
            Message::BreakAck { .. } => FrameKind::BreakAck,
            Message::Renew(_) => FrameKind::Renew,
            Message::CreditsTaken(_) => FrameKind::CreditsTaken,
            Message::Lane => FrameKind::Lane,
            Message::Region { .. } => FrameKind::Region,
            Message::Bell => FrameKind::Bell,
            Message::LaneOpen => FrameKind::LaneOpen,
            Message::RegionOpen { .. } => FrameKind::RegionOpen,
            Message::Rung => FrameKind::Rung,
            Message::Detach => FrameKind::Detach,
            Message::Probe(_) => FrameKind::Probe,
            Message::Attached(_) => FrameKind::Attached,
            Message::Bound => FrameKind::Bound,
            Message::Break { .. } => FrameKind::Break,
            Message::Renewed { .. } => FrameKind::Renewed,
            Message::Credits { .. } => FrameKind::Credits,
            Message::Goodbye { .. } => FrameKind::Goodbye,
            Message::Probed(_) => FrameKind::Probed,
        }
    }

    fn put(&self, header: &mut FrameHeader, to: &mut Writer) {
        match self {
            Message::Attach(attach) => {
                header.session = attach.resume.unwrap_or(SessionId(0));
                to.u128(attach.client.0).u64(attach.incarnation).u32(attach.pid);
                DISPLAY.put(to, &attach.display);
            }
            Message::Bind(bind) => {
                header.session = bind.session;
                to.u128(bind.key);
            }
            Message::Credential { handle, caller } => {
                header.credential = *handle;
                put_caller(to, caller);
            }
            Message::Token { handle, shown } => {
                header.credential = *handle;
                Plain.put(to, shown);
            }
            Message::Cancel { slot, request } => (header.slot, header.request) = (*slot, *request),
            Message::BreakAck { id, held } => {
                header.request = id.0;
                FIDS.put(to, held);
            }
            Message::Renew(number) | Message::Probe(number) | Message::Probed(number) => {
                header.request = *number;
            }
            Message::CreditsTaken(grant) => header.request = *grant,
            Message::Credits { credits, grant } => {
                header.request = *grant;
                header.credits = put_credits(to, *credits);
            }
            Message::Detach
            | Message::Bound
            | Message::Lane
            | Message::Bell
            | Message::LaneOpen
            | Message::Rung => {}
            Message::Region { handle, begins: flag }
            | Message::RegionOpen { handle, is_open: flag } => {
                to.u32(*handle).bool(*flag);
            }
            Message::Attached(attached) => {
                header.session = attached.session;
                header.request = attached.grant;
                header.credits = put_credits(to, attached.credits);
                put_attached(to, attached);
            }
            Message::Break { id, items } => {
                header.request = id.0;
                put_items(to, items);
            }
            Message::Renewed { number, renewed } => {
                header.request = *number;
                to.bool(*renewed);
            }
            Message::Goodbye { fault, reason } => {
                header.fault = fault.map(FaultCode::Known);
                REASON.put(to, reason);
            }
        }
    }

    /// The message of a frame; `None` for a request or reply. Header fields that the message does
    /// not use must be empty.
    ///
    /// # Errors
    /// [`WireError`]: the frame holds no message of the kind that its header names.
    pub fn of_frame(frame: &Frame) -> Result<Option<Message>, WireError> {
        let header = &frame.header;
        let mut from = FieldReader::new(&frame.message);
        let message = match header.kind {
            FrameKind::Request | FrameKind::Reply => return Ok(None),
            FrameKind::Attach => Message::Attach(get_attach(header, &mut from)?),
            FrameKind::Bind => Message::Bind(Bind { session: header.session, key: from.u128()? }),
            FrameKind::Credential => {
                Message::Credential { handle: header.credential, caller: get_caller(&mut from)? }
            }
            FrameKind::Token => {
                Message::Token { handle: header.credential, shown: Plain.get(&mut from)? }
            }
            FrameKind::Cancel => Message::Cancel { slot: header.slot, request: header.request },
            FrameKind::BreakAck => {
                Message::BreakAck { id: BreakId(header.request), held: FIDS.get(&mut from)? }
            }
            FrameKind::Renew => Message::Renew(header.request),
            FrameKind::CreditsTaken => Message::CreditsTaken(header.request),
            FrameKind::Detach => Message::Detach,
            FrameKind::Probe => Message::Probe(header.request),
            FrameKind::Attached => Message::Attached(get_attached(header, &mut from)?),
            FrameKind::Bound => Message::Bound,
            FrameKind::Break => {
                Message::Break { id: BreakId(header.request), items: get_items(&mut from)? }
            }
            FrameKind::Renewed => {
                Message::Renewed { number: header.request, renewed: from.bool("renewed")? }
            }
            FrameKind::Credits => {
                Message::Credits { credits: header.credits.into(), grant: header.request }
            }
            FrameKind::Goodbye => {
                let fault = match header.fault {
                    None => None,
                    Some(FaultCode::Known(fault)) => Some(fault),
                    Some(FaultCode::Unknown(status)) => {
                        return Err(WireError::BadValue { what: "status", value: status.into() });
                    }
                };
                Message::Goodbye { fault, reason: REASON.get(&mut from)? }
            }
            FrameKind::Probed => Message::Probed(header.request),
            FrameKind::Lane => Message::Lane,
            FrameKind::Region => {
                Message::Region { handle: from.u32()?, begins: from.bool("begins")? }
            }
            FrameKind::Bell => Message::Bell,
            FrameKind::LaneOpen => Message::LaneOpen,
            FrameKind::RegionOpen => {
                Message::RegionOpen { handle: from.u32()?, is_open: from.bool("is open")? }
            }
            FrameKind::Rung => Message::Rung,
        };
        from.end()?;
        message.check_header(header).map(|()| Some(message))
    }

    /// Enforces one form on the wire: the header is exactly what [`Message::to_frame`] would make.
    fn check_header(&self, header: &FrameHeader) -> Result<(), WireError> {
        let mut expected = FrameHeader::new(self.kind(), header.session);
        self.put(&mut expected, &mut Writer::new());
        let bad = |what, value| Err(WireError::BadValue { what, value });
        match () {
            () if expected.request != header.request => bad("request", header.request),
            () if expected.slot != header.slot => bad("slot", header.slot.into()),
            () if expected.credential != header.credential => {
                bad("credential", header.credential.into())
            }
            () if expected.credits != header.credits => bad("credits", header.credits.into()),
            () => Ok(()),
        }
    }
}

/// The longest beginning of `text` with at most `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=bytes_max.min(text.len())).rev().find(fits);
    &text[..end.unwrap_or(0)]
}

fn put_credits(to: &mut Writer, credits: u32) -> u16 {
    to.break_on(limit("credits", credits as usize, usize::from(u16::MAX)));
    credits as u16
}

fn get_attach(header: &FrameHeader, from: &mut FieldReader<'_>) -> Result<Attach, WireError> {
    let (client, incarnation, pid) = (ClientId(from.u128()?), from.u64()?, from.u32()?);
    let resume = (header.session != SessionId(0)).then_some(header.session);
    Ok(Attach { client, incarnation, resume, display: DISPLAY.get(from)?, pid })
}

pub(crate) fn put_caller(to: &mut Writer, caller: &Caller) {
    to.u32(caller.uid).u32(caller.gid);
    let Some(groups) = &caller.groups else {
        to.u32(GROUPS_UNKNOWN);
        return;
    };
    to.length32("groups", groups.len(), GROUPS_MAX);
    groups.iter().for_each(|group| Plain.put(to, group));
}

pub(crate) fn get_caller(from: &mut FieldReader<'_>) -> Result<Caller, WireError> {
    let (uid, gid, count) = (from.u32()?, from.u32()?, from.u32()?);
    if count == GROUPS_UNKNOWN {
        return Ok(Caller { uid, gid, groups: None, who: RequestIdentity::NAMED });
    }
    limit("groups", count as usize, GROUPS_MAX)?;
    let groups = get_all(from, count as usize, size_of::<u32>(), &Plain)?;
    Ok(Caller { uid, gid, groups: Some(groups.into()), who: RequestIdentity::NAMED })
}

fn put_attached(to: &mut Writer, attached: &AttachAnswer) {
    let lease = attached.lease.as_millis();
    to.require(lease <= u128::from(u32::MAX), "lease", lease as u64)
        .u64(attached.server)
        .u64(attached.boot_verifier.0)
        .u128(attached.bind_key)
        .u32(lease as u32)
        .bool(attached.resumed)
        .bool(attached.renewed)
        .raw(&attached.challenge);
}

fn get_attached(
    header: &FrameHeader,
    from: &mut FieldReader<'_>,
) -> Result<AttachAnswer, WireError> {
    Ok(AttachAnswer {
        session: header.session,
        credits: header.credits.into(),
        grant: header.request,
        server: from.u64()?,
        boot_verifier: BootVerifier(from.u64()?),
        bind_key: from.u128()?,
        lease: Duration::from_millis(from.u32()?.into()),
        resumed: from.bool("resumed")?,
        renewed: from.bool("renewed")?,
        challenge: from.array()?,
    })
}

fn put_items(to: &mut Writer, items: &[BreakItem]) {
    to.length32("items", items.len(), BREAK_ITEMS_MAX);
    let mut hint_bytes = 0;
    for item in items {
        let hint = item.name.as_ref().map_or(&[][..], |name| name.as_bytes());
        hint_bytes += hint.len();
        let hint = if hint_bytes > BREAK_HINT_BYTES_MAX { &[][..] } else { hint };
        to.fid(item.fid).u16(hint.len() as u16).u8(item.reason as u8).u8(0).raw(hint);
    }
}

fn get_items(from: &mut FieldReader<'_>) -> Result<Vec<BreakItem>, WireError> {
    let count = from.length32("items", BREAK_ITEMS_MAX)?;
    from.check_room(count, ITEM_BYTES)?;
    let items: Vec<BreakItem> = (0..count).map(|_| get_item(from)).collect::<Result<_, _>>()?;
    let hint_bytes =
        items.iter().flat_map(|item| &item.name).map(|name| name.as_bytes().len()).sum();
    limit("hint bytes", hint_bytes, BREAK_HINT_BYTES_MAX).map(|()| items)
}

fn get_item(from: &mut FieldReader<'_>) -> Result<BreakItem, WireError> {
    let fid = from.fid()?;
    let hint_length = from.length16("hint bytes", NAME_BYTES_MAX)?;
    let reason = Plain.get(from)?;
    from.padding()?;
    let name = (hint_length > 0).then(|| from.name(hint_length)).transpose()?;
    Ok(BreakItem { fid, reason, name })
}

const _: () = assert!(4 + BREAK_ITEMS_MAX * ITEM_BYTES + BREAK_HINT_BYTES_MAX <= MESSAGE_BYTES_MAX);
