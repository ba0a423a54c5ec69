//! Calls of a [`ClientSession`]: accepted, sent when there are credits, sent again after a
//! reconnect, answered.

use bytes::Bytes;
use types::{Answer, Call, Caller, Fault};

use super::credentials::CallerHandle;
use super::queue::{ReadyCall, Unit};
use super::session::{Known, SessionConnection, check_credits, fail, ids};
use super::{CallFailure, CallId, ClientOutput, ClientSession};
use crate::codec::{AnswerKind, Procedure, check_payload, decode_answer};
use crate::limits::{CHAIN_MAX, RECONNECT_FIRST};
use crate::message::Message;
use crate::{Features, Flags, Frame, FrameHeader, FrameKind, PeerError, WireError};

impl ClientSession {
    pub(super) fn on_submit(
        &mut self,
        id: CallId,
        ready: Result<ReadyCall, WireError>,
        out: &mut Vec<ClientOutput>,
    ) {
        if self.queue.len() >= self.config.queue_max {
            return fail(&[id], &CallFailure::QueueFull, out);
        }
        match ready {
            Ok(ready) => {
                self.queue.push(ready);
                self.pump(out);
            }
            Err(error) => fail(&[id], &CallFailure::Unsendable(error), out),
        }
    }

    pub(super) fn on_submit_chain(
        &mut self,
        caller: &Caller,
        members: Vec<(CallId, Call)>,
        out: &mut Vec<ClientOutput>,
    ) {
        let ids = ids(&members);
        if members.len() > CHAIN_MAX {
            return fail(&ids, &CallFailure::BadChain, out);
        }
        if self.queue.len() + members.len() > self.config.queue_max {
            return fail(&ids, &CallFailure::QueueFull, out);
        }
        let ready =
            |(index, (id, call))| ReadyCall::new(id, caller.clone(), call, None, index == 0);
        match members.into_iter().enumerate().map(ready).collect::<Result<Vec<_>, _>>() {
            Ok(mut one) if one.len() == 1 => self.queue.push(one.remove(0)),
            Ok(members) if !members.is_empty() => self.queue.push_chain(members),
            Ok(_) => {}
            Err(error) => return fail(&ids, &CallFailure::Unsendable(error), out),
        }
        self.pump(out);
    }

    pub(super) fn on_cancel(&mut self, id: CallId, out: &mut Vec<ClientOutput>) {
        let waiting = self.queue.remove(id);
        fail(&waiting, &CallFailure::Fault(Fault::Cancelled), out);
        let Some(slot) = self.flights.find(id) else { return };
        if let Some(flight) = self.flights.get_mut(slot) {
            flight.cancelled = true;
        }
        if let (Some(line), Some((_, request))) = (self.operations.up(), self.flights.get(slot)) {
            self.send(line, &Message::Cancel { slot, request }, out);
        }
    }

    /// Sends waiting calls, as far as there are credits.
    pub(super) fn pump(&mut self, out: &mut Vec<ClientOutput>) {
        let Some(line) = self.operations.up() else { return };
        while self.flights.has_urgent_room() {
            let Some(ready) = self.queue.pop_urgent() else { break };
            self.launch(line, ready, out);
        }
        self.pump_delegated(line, out);
        while self.flights.has_lock_room() {
            let Some(ready) = self.queue.pop_lock() else { break };
            self.launch(line, ready, out);
        }
        while self.queue.next_fits(self.flights.chain_max(), |count| self.flights.has_room(count)) {
            match self.queue.pop_other() {
                Some(Unit::Single(ready)) => self.launch(line, ready, out),
                Some(Unit::Chain(members)) => self.launch_chain(line, members, out),
                None => break,
            }
        }
        if let Some(grant) = self.flights.grant_taken() {
            self.send(line, &Message::CreditsTaken(grant), out);
        }
    }

    fn pump_delegated(&mut self, line: SessionConnection, out: &mut Vec<ClientOutput>) {
        while let Some(count) = self.queue.next_delegated() {
            if count <= self.flights.chain_max() && self.flights.has_room(count) {
                match (self.queue.pop_delegated(), count) {
                    (mut members, 1) => self.launch(line, members.remove(0), out),
                    (members, _) => self.launch_chain(line, members, out),
                }
            } else if self.flights.has_urgent_room() {
                let Some(ready) = self.queue.lead_delegated() else { return };
                let (id, before) = (ready.id, self.flights.len());
                self.launch(line, ready, out);
                if self.flights.len() == before {
                    let behind = self.queue.led(id, false);
                    fail(&behind, &CallFailure::Fault(Fault::ChainAborted), out);
                }
            } else {
                return;
            }
        }
    }

    fn launch(&mut self, line: SessionConnection, ready: ReadyCall, out: &mut Vec<ClientOutput>) {
        if let Err(error) = check_payload(&ready.call, line.terms.payload_bytes_max) {
            return fail(&[ready.id], &CallFailure::Unsendable(error), out);
        }
        let slot = self.flights.launch(ready, None);
        self.keeper.keep_requests(self.id(), (&self.flights, &[slot]), out);
        self.send_request(line, slot, Flags::NONE, out);
    }

    fn launch_chain(
        &mut self,
        line: SessionConnection,
        members: Vec<ReadyCall>,
        out: &mut Vec<ClientOutput>,
    ) {
        let ids: Vec<CallId> = members.iter().map(|ready| ready.id).collect();
        if members.len() > self.flights.chain_max() {
            return fail(&ids, &CallFailure::BadChain, out);
        }
        let fits = |ready: &ReadyCall| check_payload(&ready.call, line.terms.payload_bytes_max);
        if let Err(error) = members.iter().try_for_each(fits) {
            return fail(&ids, &CallFailure::Unsendable(error), out);
        }
        let chain = self.flights.begin_chain();
        let slots: Vec<u32> =
            members.into_iter().map(|ready| self.flights.launch(ready, Some(chain))).collect();
        self.keeper.keep_requests(self.id(), (&self.flights, &slots), out);
        self.send_unit(line, &slots, out);
    }

    /// Sends requests as one chain, or a single one without chain flags.
    fn send_unit(&mut self, line: SessionConnection, slots: &[u32], out: &mut Vec<ClientOutput>) {
        for (index, slot) in slots.iter().enumerate() {
            let flags = match index {
                _ if slots.len() == 1 => Flags::NONE,
                0 => Flags::CHAIN_START,
                last if last + 1 == slots.len() => Flags::CHAIN_END,
                _ => Flags::CHAIN_MIDDLE,
            };
            self.send_request(line, *slot, flags, out);
        }
    }

    pub(super) fn resend(&mut self, line: SessionConnection, out: &mut Vec<ClientOutput>) {
        for slots in self.flights.unanswered() {
            self.flights.settle_current(&slots);
            self.send_unit(line, &slots, out);
            for slot in slots {
                if let Some((flight, request)) =
                    self.flights.get(slot).filter(|(flight, _)| flight.cancelled)
                {
                    debug_assert!(flight.cancelled);
                    self.send(line, &Message::Cancel { slot, request }, out);
                }
            }
        }
    }

    fn send_request(
        &mut self,
        line: SessionConnection,
        slot: u32,
        flags: Flags,
        out: &mut Vec<ClientOutput>,
    ) {
        let session = self.id().expect("requests are sent only in a session");
        let wanted = self.queue.len() + self.flights.len();
        let (flight, request) = self.flights.get(slot).expect("callers name a slot with a call");
        let credential = match self.credentials.handle(&flight.ready.caller) {
            CallerHandle::Known(handle) => handle,
            CallerHandle::New(handle) => {
                let caller = flight.ready.caller.clone();
                let message = match self.credentials.show(&caller) {
                    Some(shown) => Message::Token { handle, shown },
                    None => Message::Credential { handle, caller },
                };
                self.send(line, &message, out);
                handle
            }
        };
        let failed =
            flight.chain.and_then(|chain| self.flights.rest(chain)).is_some_and(|rest| rest.failed);
        let region = flight.ready.region.filter(|_| line.terms.features.has(Features::DIRECT));
        let bit = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
        let packed =
            flight.ready.may_be_packed() && line.terms.features.has(Features::PACKED_READS);
        // The memory that a direct request names gets the file's bytes.
        let packed = packed && flight.ready.region.is_none();
        let header = FrameHeader {
            procedure: if packed { Procedure::ReadPacked as u16 } else { flight.ready.number },
            flags: flags
                .with(bit(failed, Flags::ABORTED))
                .with(bit(region.is_some(), Flags::DIRECT)),
            credits: u16::try_from(wanted).unwrap_or(u16::MAX),
            request,
            slot,
            credential,
            region: region.unwrap_or_default(),
            ..FrameHeader::new(FrameKind::Request, session)
        };
        let frame = Frame::new(header, flight.ready.message.clone(), flight.ready.payload.clone());
        out.push(ClientOutput::Send {
            channel: line.channel,
            frame: frame.sealed(line.terms.features),
        });
    }

    pub(super) fn on_reply(
        &mut self,
        frame: Frame,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        let header = frame.header;
        let (flight, request) = self.flights.get(header.slot).ok_or(PeerError::Unasked)?;
        if request != header.request {
            return Err(PeerError::Unasked);
        }
        self.flights.check_turn(header.slot)?;
        let direct = header.flags.has(Flags::DIRECT);
        if direct && flight.ready.region != Some(header.region) {
            return Err(PeerError::WrongAnswer);
        }
        let (slot, descriptor) = (header.slot, header.flags.has(Flags::DESCRIPTOR));
        if descriptor && !matches!(flight.ready.expects(), AnswerKind::Body | AnswerKind::Blank) {
            return Err(PeerError::WrongAnswer);
        }
        let result = read_reply(frame, &flight.ready)?;
        let (flight, landing) =
            self.flights.land(slot, &result).expect("the slot's call was checked above");
        self.pause = RECONNECT_FIRST;
        let behind = self.queue.led(flight.ready.id, result.is_ok());
        let landing = self.keeper.landing(landing);
        if matches!(flight.ready.call, Call::ReclaimDone)
            && result.is_ok()
            && let Some(Known { id, server, .. }) = self.known
        {
            self.keeper.on_reclaimed(id, server, out);
        }
        out.push(ClientOutput::Done { id: flight.ready.id, result, descriptor, landing });
        fail(&behind, &CallFailure::Fault(Fault::ChainAborted), out);
        self.pump(out);
        Ok(())
    }

    pub(super) fn on_credits(
        &mut self,
        line: SessionConnection,
        credits: u32,
        grant: u64,
    ) -> Result<(), PeerError> {
        check_credits(line, credits)?;
        self.flights.set_credits(credits, grant);
        Ok(())
    }
}

/// The answer of a reply to `sent`. An unreadable answer ends the call and not the connection: a
/// newer server would only repeat it.
fn read_reply(frame: Frame, sent: &ReadyCall) -> Result<Result<Answer, CallFailure>, PeerError> {
    let Frame { header, message, payload } = frame;
    if let Some(code) = header.fault {
        let empty = message.is_empty() && payload.is_empty() && header.procedure == 0;
        return if empty {
            Ok(Err(code.fault().into()))
        } else {
            Err(WireError::Trailing(message.len()).into())
        };
    }
    let packed = header.procedure == AnswerKind::Packed as u16 && sent.may_be_packed();
    // The server answers a packed read with plain data where plain data is shorter.
    let plain = header.procedure == AnswerKind::Data as u16 && sent.expects() == AnswerKind::Packed;
    if header.procedure != sent.expects() as u16 && !packed && !plain {
        return Err(PeerError::WrongAnswer);
    }
    let answer = match decode_answer(header.procedure, &message, payload) {
        Ok(answer) => answer,
        Err(error) => return Ok(Err(CallFailure::Unreadable(error))),
    };
    match (&answer, &sent.call) {
        (
            Answer::Data { data, .. },
            Call::Read { length, .. } | Call::ReadPacked { length, .. },
        ) if data.len() > *length as usize => Err(PeerError::WrongAnswer),
        (
            Answer::Packed { run, status, .. },
            Call::Read { offset, length, .. } | Call::ReadPacked { offset, length, .. },
        ) if !run.answers(*offset, *length, status.size) => Err(PeerError::WrongAnswer),
        (Answer::Written { count, .. }, call) if *count as usize > bytes_of(call).len() => {
            Err(PeerError::WrongAnswer)
        }
        _ => Ok(Ok(answer)),
    }
}

fn bytes_of(call: &Call) -> &Bytes {
    static NONE: Bytes = Bytes::new();
    match call {
        Call::Write { data, .. } => data,
        Call::Delegated { call, .. } => bytes_of(call),
        _ => &NONE,
    }
}
