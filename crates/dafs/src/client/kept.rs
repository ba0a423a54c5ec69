//! The state that a session leaves to the process that succeeds the client's.
//!
//! Model. With [`ClientConfig::keeps`](super::ClientConfig::keeps) the machine puts out what a
//! successor needs before the frame that makes it needed:
//!
//! - [`Keeping::Session`]: the session's number, and up to which server instance it has reclaimed;
//! - [`Keeping::Request`]: a request with its slot and number, before its frame is sent;
//! - [`Landing`], with the end of each request: from then on the slot's number is used up and the
//!   request needs no answer. Of a chain it has the state that the rest of the chain needs.
//!
//! A driver stores each before it carries out the next output; [`KeptState::note`] says what
//! follows from them. [`KeptSession::succeed`] makes a machine of it that behaves as one that lost
//! its connections: it resumes the session and sends each unanswered request again under its slot
//! and number, and the server answers what it executed from its replies (EO-1). All requests are
//! kept, those too that change nothing: the server accepts a slot's next number only after it saw
//! the last one.
//!
//! A request outlives a lost session: until its caller knows that the outcome is unknown, a
//! successor must not take it for one that was never sent.

use bytes::Bytes;
use types::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, SLOTS_MAX};
use types::{Answer, BootVerifier, Call, Caller, Fault, Fid, SessionId};

use super::{CallId, ClientOutput};
use crate::message::{get_caller, put_caller};
use crate::wire::{FieldReader, Writer, limit};
use crate::{FaultCode, WireError, decode_answer, decode_call, encode_answer};

/// Something that a successor needs; see the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// The session. Another number than before: everything that was kept of the earlier session is
    /// void.
    Session(KeptTerms),
    /// A request that is about to be sent.
    Request(Box<KeptRequest>),
}

/// A session that a successor can resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTerms {
    /// The session's number.
    pub session: SessionId,
    /// The server instance at which the client has its locks and holds.
    pub server: u64,
    /// The later instance at which it claims them.
    pub reclaiming: Option<u64>,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRequest {
    /// The driver's number of the call.
    pub id: CallId,
    /// Its session.
    pub session: SessionId,
    /// Its slot.
    pub slot: u32,
    /// Its number in the slot.
    pub number: u64,
    /// Its chain, and its place in the chain.
    pub chain: Option<(u64, u32)>,
    /// The credential of the call.
    pub caller: Caller,
    /// The number of the call; see [`crate::EncodedCall`].
    pub procedure: u16,
    /// The call's message.
    pub message: Bytes,
    /// The call's payload.
    pub payload: Bytes,
}

/// A chain with unanswered members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptChain {
    /// The machine's number of the chain.
    pub number: u64,
    /// So many members are answered.
    pub answered: u32,
    /// The file that they led to.
    pub current: Option<Fid>,
    /// One of them failed.
    pub failed: bool,
}

/// The end of a request; see the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Its slot.
    pub slot: u32,
    /// Its number, the last of the slot that is used up.
    pub number: u64,
    /// Its chain.
    pub chain: ChainLanding,
}

/// The state of a landed request's chain. It is stored before the slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainLanding {
    /// It was no member of one.
    Single,
    /// Members are left.
    Goes(KeptChain),
    /// It was the last member of the chain with this number.
    Over(u64),
}

/// The state that a successor has of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSession {
    /// The session.
    pub terms: KeptTerms,
    /// By slot: its last number that is used up.
    pub landed: Vec<u64>,
    /// The requests without answers.
    pub requests: Vec<KeptRequest>,
    /// The chains with such requests.
    pub chains: Vec<KeptChain>,
}

/// The state that a client's process leaves to a successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The session that can be resumed.
    pub session: Option<KeptSession>,
    /// Requests of lost sessions, whose callers do not know yet that the outcome is unknown.
    pub lost: Vec<KeptRequest>,
}

/// Why a kept session cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptError {
    /// A record cannot be read.
    #[error("a record is damaged: {0}")]
    Damaged(#[from] WireError),
    /// Records contradict each other.
    #[error("records contradict each other: {0}")]
    Contradiction(&'static str),
}

impl KeptSession {
    /// A session that has sent nothing yet.
    pub fn new(terms: KeptTerms) -> Self {
        let landed = vec![0; SLOTS_MAX as usize];
        KeptSession { terms, landed, requests: Vec::new(), chains: Vec::new() }
    }
}

impl KeptState {
    /// Takes an output into what is kept.
    pub fn note(&mut self, output: &ClientOutput) {
        match (output, &mut self.session) {
            (ClientOutput::Keep(Keeping::Session(terms)), Some(same))
                if same.terms.session == terms.session =>
            {
                same.terms = *terms;
            }
            (ClientOutput::Keep(Keeping::Session(terms)), _) => {
                self.lose();
                self.session = Some(KeptSession::new(*terms));
            }
            (ClientOutput::Keep(Keeping::Request(request)), Some(kept)) => {
                kept.requests.push((**request).clone());
            }
            (ClientOutput::Done { id, landing: Some(landing), .. }, Some(kept)) => {
                let (goes, over) = match landing.chain {
                    ChainLanding::Single => (None, None),
                    ChainLanding::Goes(chain) => (Some(chain), Some(chain.number)),
                    ChainLanding::Over(number) => (None, Some(number)),
                };
                kept.chains.retain(|chain| Some(chain.number) != over);
                kept.chains.extend(goes);
                kept.landed[landing.slot as usize] = landing.number;
                kept.requests.retain(|request| request.id != *id);
            }
            (ClientOutput::Done { id, .. }, _) => self.lost.retain(|request| request.id != *id),
            (ClientOutput::SessionLost, _) => self.lose(),
            // All calls have ended.
            (ClientOutput::Closed, _) => self.session = None,
            _ => {}
        }
    }

    fn lose(&mut self) {
        self.lost.extend(self.session.take().into_iter().flat_map(|kept| kept.requests));
    }
}

impl KeptTerms {
    /// Its bytes; `owner` and `incarnation` are the client's.
    pub fn encode(&self, owner: u128, incarnation: u64) -> Vec<u8> {
        let mut to = Writer::new();
        to.u32(0).u128(owner).u64(incarnation).u64(self.session.0).u64(self.server);
        to.bool(self.reclaiming.is_some()).u64(self.reclaiming.unwrap_or_default());
        summed(to.end().expect("a few words are within the limits"), &[])
    }

    /// The terms, the client and its incarnation of [`Self::encode`].
    ///
    /// # Errors
    /// [`WireError`]: the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<(KeptTerms, u128, u64), WireError> {
        let mut from = checked(bytes)?;
        let (owner, incarnation) = (from.u128()?, from.u64()?);
        let (session, server) = (SessionId(from.u64()?), from.u64()?);
        let (reclaims, instance) = (from.bool("reclaiming")?, from.u64()?);
        from.end()?;
        let terms = KeptTerms { session, server, reclaiming: reclaims.then_some(instance) };
        Ok((terms, owner, incarnation))
    }
}

impl KeptRequest {
    /// Its bytes: those of a whole number of words, and its payload behind them.
    ///
    /// # Errors
    /// [`WireError`]: a limit of the protocol is broken.
    pub fn encode(&self) -> Result<(Vec<u8>, &Bytes), WireError> {
        let mut to = Writer::new();
        let (chain, place) = self.chain.unwrap_or_default();
        to.u32(0).u64(self.session.0).u64(self.number).u32(self.slot);
        to.bool(self.chain.is_some()).u64(chain).u32(place).u16(self.procedure);
        put_caller(&mut to, &self.caller);
        to.length32("message bytes", self.message.len(), MESSAGE_BYTES_MAX);
        to.length32("payload bytes", self.payload.len(), PAYLOAD_BYTES_MAX);
        let mut head = to.end()?;
        head.extend_from_slice(&self.message);
        head.resize(head.len().next_multiple_of(size_of::<u64>()), 0);
        Ok((summed(head, &self.payload), &self.payload))
    }

    /// The request of [`Self::encode`].
    ///
    /// # Errors
    /// [`WireError`]: the bytes are damaged.
    pub fn decode(id: CallId, bytes: &Bytes) -> Result<KeptRequest, WireError> {
        let mut from = checked(bytes)?;
        let (session, number, slot) = (SessionId(from.u64()?), from.u64()?, from.u32()?);
        let (chained, chain, place) = (from.bool("chained")?, from.u64()?, from.u32()?);
        let procedure = from.u16()?;
        let caller = get_caller(&mut from)?;
        let length = from.length32("message bytes", MESSAGE_BYTES_MAX)?;
        let payload = from.length32("payload bytes", PAYLOAD_BYTES_MAX)?;
        let at = bytes.len() - from.left();
        let behind = (at + length).next_multiple_of(size_of::<u64>());
        if behind.checked_add(payload) != Some(bytes.len()) {
            return Err(WireError::BadPayload);
        }
        Ok(KeptRequest {
            id,
            session,
            slot,
            number,
            chain: chained.then_some((chain, place)),
            caller,
            procedure,
            message: bytes.slice(at..at + length),
            payload: bytes.slice(behind..),
        })
    }

    /// The call.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are none.
    pub fn call(&self) -> Result<Call, WireError> {
        decode_call(self.procedure, &self.message, self.payload.clone())
    }
}

impl KeptChain {
    /// Its bytes.
    pub fn encode(&self, session: SessionId) -> Vec<u8> {
        let mut to = Writer::new();
        to.u32(0).u64(session.0).u64(self.number).u32(self.answered).bool(self.failed);
        to.bool(self.current.is_some()).fid(self.current.unwrap_or_default());
        summed(to.end().expect("a few words are within the limits"), &[])
    }

    /// The chain and its session of [`Self::encode`].
    ///
    /// # Errors
    /// [`WireError`]: the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<(KeptChain, SessionId), WireError> {
        let mut from = checked(bytes)?;
        let (session, number) = (SessionId(from.u64()?), from.u64()?);
        let (answered, failed) = (from.u32()?, from.bool("failed")?);
        let (led, fid) = (from.bool("current")?, from.fid()?);
        from.end()?;
        Ok((KeptChain { number, answered, current: led.then_some(fid), failed }, session))
    }
}

/// The bytes of an answer that a successor may have to give again.
///
/// # Errors
/// [`WireError`]: a limit of the protocol is broken.
pub fn encode_outcome(
    outcome: &Result<Answer, Fault>,
    verifier: Option<BootVerifier>,
) -> Result<Vec<u8>, WireError> {
    let mut to = Writer::new();
    to.u32(0).bool(verifier.is_some()).u64(verifier.unwrap_or_default().0);
    let (status, encoded) = match outcome {
        Ok(answer) => (0, Some(encode_answer(answer)?)),
        Err(fault) => (FaultCode::from(*fault).to_wire(), None),
    };
    let (procedure, message, payload) = encoded.map_or_else(Default::default, |encoded| {
        (encoded.procedure, encoded.message, encoded.payload)
    });
    to.u16(status).u16(procedure);
    to.length32("message bytes", message.len(), MESSAGE_BYTES_MAX);
    let mut bytes = to.end()?;
    bytes.extend_from_slice(&message);
    bytes.extend_from_slice(&payload);
    Ok(summed(bytes, &[]))
}

/// The outcome of [`encode_outcome`].
///
/// # Errors
/// [`WireError`]: the bytes are damaged.
pub fn decode_outcome(
    bytes: &Bytes,
) -> Result<(Result<Answer, Fault>, Option<BootVerifier>), WireError> {
    let mut from = checked(bytes)?;
    let (known, verifier) = (from.bool("verifier")?, BootVerifier(from.u64()?));
    let (status, procedure) = (from.u16()?, from.u16()?);
    let length = from.length32("message bytes", MESSAGE_BYTES_MAX)?;
    let at = bytes.len() - from.left();
    limit("message bytes", length, bytes.len() - at)?;
    let outcome = match FaultCode::from_wire(status) {
        Some(code) => Err(code.fault()),
        None => {
            let message = &bytes[at..at + length];
            Ok(decode_answer(procedure, message, bytes.slice(at + length..))?)
        }
    };
    Ok((outcome, known.then_some(verifier)))
}

/// Puts the checksum over the bytes behind it, and over the payload, into the first four bytes.
fn summed(mut bytes: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[4..]), payload);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A reader of the bytes behind the checksum, if that is right.
fn checked(bytes: &[u8]) -> Result<FieldReader<'_>, WireError> {
    let mut from = FieldReader::new(bytes);
    let sum = from.u32()?;
    if sum != crc32c::crc32c(&bytes[4..]) {
        return Err(WireError::BadChecksum);
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::strategies::{answer, call, caller, fault, fid};
    use crate::{EncodedCall, encode_call};

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_or_refused(
            call in call(),
            caller in caller(),
            outcome in prop_oneof![answer().prop_map(Ok), fault().prop_map(Err)],
            current in proptest::option::of(fid()),
            number in any::<u64>(),
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let session = SessionId(number / 3);
            let EncodedCall { procedure, message, payload } = encode_call(&call).unwrap();
            let request = KeptRequest {
                id: CallId(5),
                session,
                slot: 7,
                number,
                chain: number.is_multiple_of(2).then_some((number, 3)),
                caller,
                procedure,
                message: message.into(),
                payload,
            };
            let (head, payload) = request.encode().unwrap();
            prop_assert!(head.len().is_multiple_of(size_of::<u64>()));
            let bytes = Bytes::from([&head, &payload[..]].concat());
            prop_assert_eq!(KeptRequest::decode(CallId(5), &bytes), Ok(request.clone()));
            prop_assert_eq!(request.call(), Ok(call));
            let verifier = number.is_multiple_of(3).then_some(BootVerifier(number));
            let answered = Bytes::from(encode_outcome(&outcome, verifier).unwrap());
            prop_assert_eq!(decode_outcome(&answered), Ok((outcome, verifier)));
            let chain = KeptChain { number, answered: 2, current, failed: verifier.is_some() };
            let chained = chain.encode(session);
            prop_assert_eq!(KeptChain::decode(&chained), Ok((chain, session)));
            let terms = KeptTerms { session, server: number, reclaiming: verifier.map(|at| at.0) };
            let kept = terms.encode(u128::from(number) << 7, number);
            let expected = (terms, u128::from(number) << 7, number);
            prop_assert_eq!(KeptTerms::decode(&kept), Ok(expected));

            let damaged = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                Bytes::from(bytes)
            };
            prop_assert!(KeptRequest::decode(CallId(5), &damaged(&bytes)).is_err());
            prop_assert!(decode_outcome(&damaged(&answered)).is_err());
            prop_assert!(KeptChain::decode(&damaged(&chained)).is_err());
            prop_assert!(KeptTerms::decode(&damaged(&kept)).is_err());
            prop_assert!(KeptTerms::decode(&kept[..kept.len() - 1]).is_err());
        }
    }
}
