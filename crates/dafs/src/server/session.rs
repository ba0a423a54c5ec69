//! The machine itself; see the head of `server/mod.rs`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use types::limits::SLOTS_MAX;
use types::{
    Answer, BreakId, BreakItem, Call, Caller, Fault, Fid, ReplyAddress, SHORT_SLOT, SessionId, Time,
};

use super::breaks::{Breaks, Overrun};
use super::chain::{Chain, Member, Turn};
use super::slot::{Arrival, ChainNo, Slot, SlotProgress, SlotReply};
use super::{ServerInput, ServerOutput, SessionSetup};
use crate::codec::{AnswerKind, check_payload, decode_call, encode_answer, uses_current};
use crate::credentials::{CredentialVerifier, Trusting};
use crate::limits::{CREDENTIALS_MAX, CREDITS_MIN};
use crate::message::{AttachAnswer, Message};
use crate::{
    ChannelId, Features, Flags, Frame, FrameHeader, FrameKind, PeerError, Terms, WireError,
};

#[derive(Clone, Copy, Debug)]
struct SessionConnection {
    channel: ChannelId,
    terms: Terms,
}

/// See the head of `server/mod.rs`.
#[derive(Debug)]
pub struct ServerSession {
    setup: SessionSetup,
    operations: Option<SessionConnection>,
    back: Option<SessionConnection>,
    /// Verifies credentials of the operations connection.
    verifier: Arc<dyn CredentialVerifier>,
    credentials: BTreeMap<u32, Result<Caller, Fault>>,
    slots: Vec<Slot>,
    granted: u32,
    /// Number of the last grant.
    grant: u64,
    enforced: u32,
    chains: BTreeMap<ChainNo, Chain>,
    chains_begun: u64,
    /// The chain whose members still arrive.
    receiving: Option<ChainNo>,
    breaks: Breaks,
    over: bool,
}

impl ServerSession {
    /// A session that no client is attached to yet.
    pub fn new(setup: SessionSetup) -> ServerSession {
        let count = setup.slots.clamp(CREDITS_MIN, SLOTS_MAX);
        let last = if setup.recorded.is_some() { None } else { Some(0) };
        let mut slots: Vec<Slot> = (0..count).map(|_| Slot::new(last, 0)).collect();
        for (slot, request) in setup.recorded.iter().flatten() {
            if let Some(slot) = slots.get_mut(*slot as usize) {
                slot.recorded = *request;
            }
        }
        ServerSession {
            setup,
            operations: None,
            back: None,
            verifier: Arc::new(Trusting),
            credentials: BTreeMap::new(),
            slots,
            granted: count,
            grant: 0,
            enforced: count,
            chains: BTreeMap::new(),
            chains_begun: 0,
            receiving: None,
            breaks: Breaks::default(),
            over: false,
        }
    }

    /// Sets the initial credits, before a client attaches; [`ServerInput::Grant`] raises them
    /// later.
    #[must_use]
    pub fn with_credits(mut self, credits: u32) -> ServerSession {
        let credits = credits.clamp(CREDITS_MIN, self.granted);
        (self.granted, self.enforced) = (credits, credits);
        self
    }

    /// The session's number.
    pub fn id(&self) -> SessionId {
        self.setup.session
    }

    /// True if a client is connected.
    pub fn is_connected(&self) -> bool {
        self.operations.is_some()
    }

    /// True if the session was ended or detached: it accepts no more inputs.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes a single request that the caller answers at once, from state that it has; `false`: it
    /// is not such a request, and has changed nothing. For questions only: if the answer is lost
    /// the client repeats the request, and the service is asked.
    pub fn take_at_once(&mut self, channel: ChannelId, header: &FrameHeader) -> bool {
        let index = header.slot as usize;
        let odd = Flags::CHAIN.with(Flags::ABORTED).with(Flags::CHECKSUM);
        let is_fit = !self.over
            && self.operations.is_some_and(|line| line.channel == channel)
            && header.session == self.setup.session
            && header.kind == FrameKind::Request
            && !header.flags.has_any(odd)
            && self.receiving.is_none()
            && header.slot < self.enforced
            && matches!(self.credentials.get(&header.credential), Some(Ok(_)));
        let Some(slot) = self.slots.get_mut(index).filter(|_| is_fit) else { return false };
        if slot.arrival(header.slot, header.request, channel) != Ok(Arrival::New) {
            return false;
        }
        slot.last = Some(header.request);
        slot.done = SlotReply::Executed { resolved: None };
        (slot.came_on, slot.region, slot.chain) = (channel, None, None);
        true
    }

    /// Takes one event. (The session has no timers; `now` serves traces.)
    ///
    /// # Errors
    /// [`PeerError`]: close the connection that the input came from; the machine has removed it.
    pub fn step(
        &mut self,
        now: Time,
        input: ServerInput,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), PeerError> {
        let source = match &input {
            ServerInput::Arrived { channel, .. } | ServerInput::Bind { channel, .. } => {
                Some(*channel)
            }
            _ => None,
        };
        let result = self.take(input, out);
        if let (Err(error), Some(channel)) = (&result, source) {
            tracing::debug!(
                session = self.setup.session.0,
                ?now,
                %error,
                "connection closed after an error of the client"
            );
            self.on_lost(channel, out);
        }
        self.check();
        result
    }

    fn take(&mut self, input: ServerInput, out: &mut Vec<ServerOutput>) -> Result<(), PeerError> {
        if self.over {
            return match input {
                ServerInput::Arrived { .. } | ServerInput::Bind { .. } => {
                    Err(PeerError::UnknownChannel)
                }
                _ => Ok(()),
            };
        }
        match input {
            ServerInput::Attached { channel, terms, resumed, renewed, door } => {
                self.verifier = door;
                self.on_attached(SessionConnection { channel, terms }, resumed, renewed, out);
            }
            ServerInput::Bind { channel, terms, key } => {
                self.on_bind(SessionConnection { channel, terms }, key, out)?;
            }
            ServerInput::Arrived { channel, frame } => self.on_arrived(channel, frame, out)?,
            ServerInput::Lost { channel } => self.on_lost(channel, out),
            ServerInput::Answered { origin, result, descriptor } => {
                self.on_answered(origin, result, descriptor, out);
            }
            ServerInput::Executed { origin, current } => self.on_executed(origin, current, out),
            ServerInput::Break { id, items } => self.on_break(id, items, out),
            ServerInput::Renewed { channel, number, renewed } => {
                if let Some(line) = self.line(channel) {
                    self.send(line, &Message::Renewed { number, renewed }, out);
                }
            }
            ServerInput::Grant(credits) => self.on_grant(credits, out),
            ServerInput::End(fault) => {
                self.end(Some(fault), &format!("the session ends: {fault}"), out);
            }
        }
        Ok(())
    }

    /// Checks the invariants between two steps.
    fn check(&self) {
        assert!(
            self.granted <= self.enforced,
            "DA-1: {} granted, {} enforced",
            self.granted,
            self.enforced
        );
        assert!(self.enforced as usize <= self.slots.len(), "DA-1: {} enforced", self.enforced);
        debug_assert!(self.chains.len() <= self.slots.len(), "each chain has a member in a slot");
    }

    // Connections.

    fn line(&self, channel: ChannelId) -> Option<SessionConnection> {
        [self.operations, self.back].into_iter().flatten().find(|line| line.channel == channel)
    }

    fn on_attached(
        &mut self,
        line: SessionConnection,
        resumed: bool,
        renewed: bool,
        out: &mut Vec<ServerOutput>,
    ) {
        if let Some(old) = self.operations {
            self.close(old, None, "replaced by a newer connection", out);
        }
        self.credentials.clear();
        self.operations = Some(line);
        let attached = AttachAnswer {
            session: self.setup.session,
            resumed,
            renewed,
            server: self.setup.server,
            boot_verifier: self.setup.boot_verifier,
            lease: self.setup.lease,
            credits: self.granted,
            grant: self.grant,
            bind_key: self.setup.bind_key,
            challenge: self.verifier.challenge(),
        };
        self.send(line, &Message::Attached(attached), out);
        self.send_breaks(out);
    }

    fn on_bind(
        &mut self,
        line: SessionConnection,
        key: u128,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), PeerError> {
        if key != self.setup.bind_key {
            return Err(PeerError::WrongKey);
        }
        if let Some(old) = self.back {
            self.close(old, None, "replaced by a newer connection", out);
        }
        self.back = Some(line);
        self.send(line, &Message::Bound, out);
        self.send_breaks(out);
        Ok(())
    }

    /// Sends the reason, closes and removes a connection.
    fn close(
        &mut self,
        line: SessionConnection,
        fault: Option<Fault>,
        reason: &str,
        out: &mut Vec<ServerOutput>,
    ) {
        let frame = Message::goodbye(&line.terms, self.setup.session, fault, reason);
        out.push(ServerOutput::Send { channel: line.channel, frame });
        out.push(ServerOutput::Close { channel: line.channel });
        self.on_lost(line.channel, out);
    }

    fn on_lost(&mut self, channel: ChannelId, out: &mut Vec<ServerOutput>) {
        self.breaks.on_lost(channel);
        if self.operations.is_some_and(|line| line.channel == channel) {
            self.operations = None;
            self.drop_chains();
        }
        if self.back.is_some_and(|line| line.channel == channel) {
            self.back = None;
        }
        self.send_breaks(out);
    }

    /// Drops waiting members as if they had never come. A running member goes on; its client sends
    /// it again.
    fn drop_chains(&mut self) {
        self.receiving = None;
        for mut chain in std::mem::take(&mut self.chains).into_values() {
            for member in chain.drop_waiting() {
                let slot = &mut self.slots[member.slot as usize];
                slot.chain = None;
                match member.arrival {
                    Arrival::New => {
                        (slot.progress, slot.last) = (SlotProgress::Idle, member.before);
                    }
                    Arrival::Repeat => slot.progress = SlotProgress::Idle,
                    Arrival::InProgress => {}
                }
            }
            if let Some(slot) = chain.active {
                self.slots[slot as usize].chain = None;
            }
        }
    }

    fn end(&mut self, fault: Option<Fault>, reason: &str, out: &mut Vec<ServerOutput>) {
        self.over = true;
        for line in [self.back, self.operations].into_iter().flatten() {
            self.close(line, fault, reason, out);
        }
        self.credentials.clear();
    }

    fn send(&self, line: SessionConnection, message: &Message, out: &mut Vec<ServerOutput>) {
        let frame =
            message.to_frame(self.setup.session).expect("session messages are within the limits");
        out.push(ServerOutput::Send {
            channel: line.channel,
            frame: frame.sealed(line.terms.features),
        });
    }

    // Frames.

    fn on_arrived(
        &mut self,
        channel: ChannelId,
        frame: Frame,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), PeerError> {
        let line = self.line(channel).ok_or(PeerError::UnknownChannel)?;
        frame.verify(&line.terms)?;
        if frame.header.session != self.setup.session {
            return Err(PeerError::WrongSession);
        }
        let on_operations = self.operations.is_some_and(|line| line.channel == channel);
        let kind = frame.header.kind;
        if kind == FrameKind::Request && on_operations {
            return self.on_request(line, frame, out);
        }
        match Message::of_frame(&frame)? {
            Some(Message::Renew(number)) => self.on_renew(line, on_operations, number, out),
            Some(Message::Probe(number)) => self.send(line, &Message::Probed(number), out),
            Some(Message::BreakAck { id, held }) => {
                if self.breaks.acknowledge(id)? {
                    out.push(ServerOutput::Acknowledged { id, held });
                }
            }
            Some(Message::Credential { handle, caller }) if on_operations => {
                let caller = self.verifier.named(caller);
                self.register(handle, Ok(caller))?;
            }
            Some(Message::Token { handle, shown }) if on_operations => {
                let caller = self.verifier.shown(&shown);
                self.register(handle, caller)?;
            }
            Some(Message::Cancel { slot, request }) if on_operations => {
                self.on_cancel(slot, request, out)?;
            }
            Some(Message::CreditsTaken(grant)) if on_operations => self.on_credits_taken(grant)?,
            Some(Message::Detach) if on_operations => {
                self.end(None, "detached", out);
                out.push(ServerOutput::Detached);
            }
            _ => return Err(PeerError::Unexpected(kind)),
        }
        Ok(())
    }

    fn register(&mut self, handle: u32, caller: Result<Caller, Fault>) -> Result<(), PeerError> {
        if !(1..=CREDENTIALS_MAX).contains(&(handle as usize)) {
            return Err(PeerError::TooManyCredentials);
        }
        self.credentials.insert(handle, caller);
        Ok(())
    }

    /// A renewal over operations means that the client has no, or no more, back connection: breaks
    /// must use operations.
    fn on_renew(
        &mut self,
        line: SessionConnection,
        on_operations: bool,
        number: u64,
        out: &mut Vec<ServerOutput>,
    ) {
        if let (true, Some(back)) = (on_operations, self.back) {
            self.close(back, None, "the client renews over operations", out);
        }
        out.push(ServerOutput::Renew { channel: line.channel, number });
    }

    // Requests.

    fn on_request(
        &mut self,
        line: SessionConnection,
        frame: Frame,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), PeerError> {
        let header = frame.header;
        let chain = self.position(header.flags)?;
        let member = self.check_request(line, frame, chain.is_some())?;
        let slot = &mut self.slots[header.slot as usize];
        if member.arrival != Arrival::InProgress {
            slot.progress = SlotProgress::Held;
            slot.last = Some(header.request);
        }
        slot.came_on = line.channel;
        slot.region = header.flags.has(Flags::DIRECT).then_some(header.region);
        slot.chain = chain;
        let Some(number) = chain else {
            self.run_single(member, out);
            return Ok(());
        };
        let chain = self.chains.entry(number).or_default();
        chain.complete = header.flags.has(Flags::CHAIN_END);
        chain.push(member)?;
        self.receiving = (!chain.complete).then_some(number);
        self.advance(number, out);
        Ok(())
    }

    fn position(&mut self, flags: Flags) -> Result<Option<ChainNo>, PeerError> {
        match (flags.has_any(Flags::CHAIN), self.receiving) {
            (false, None) => Ok(None),
            (true, None) if flags.has(Flags::CHAIN_START) => {
                self.chains_begun += 1;
                Ok(Some(ChainNo(self.chains_begun)))
            }
            (true, Some(chain)) if !flags.has(Flags::CHAIN_START) => Ok(Some(chain)),
            _ => Err(PeerError::BrokenChain),
        }
    }

    /// Finds every error of a request before the request changes any state.
    fn check_request(
        &mut self,
        line: SessionConnection,
        frame: Frame,
        chained: bool,
    ) -> Result<Member, PeerError> {
        let header = frame.header;
        if header.slot >= self.enforced {
            return Err(PeerError::NoCredit { slot: header.slot, credits: self.enforced });
        }
        let slot = &self.slots[header.slot as usize];
        let arrival = slot.arrival(header.slot, header.request, line.channel)?;
        // A newer client may send a call that this program does not know. Its frame is sound, and
        // names the slot that gets the refusal.
        let decoded = decode_call(header.procedure, &frame.message, frame.payload);
        let unknown = decoded.as_ref().err().copied();
        if let Some(error) = unknown {
            tracing::debug!(
                session = self.setup.session.0,
                procedure = header.procedure,
                %error,
                "request has an unknown call and is refused"
            );
        }
        let mut call = decoded.unwrap_or(UNKNOWN);
        check_payload(&call, line.terms.payload_bytes_max)?;
        let first = !chained || header.flags.has(Flags::CHAIN_START);
        let listed = matches!(call, Call::Hold { .. } | Call::Unhold { .. } | Call::Return { .. });
        if (first || listed) && uses_current(&mut call) {
            return Err(PeerError::NoCurrent);
        }
        let caller = self.credentials.get(&header.credential);
        let no_descriptors =
            !line.terms.features.has(Features::DESCRIPTORS) || !self.verifier.hands_out_bodies();
        let no_delegations = !line.terms.features.has(Features::DELEGATIONS);
        let refuse = match (caller, &call) {
            _ if header.flags.has(Flags::ABORTED) => Some(Fault::ChainAborted),
            (None, _) => Some(Fault::NoCredential),
            (Some(Err(fault)), _) => Some(*fault),
            _ if unknown.is_some() => Some(Fault::Unsupported),
            (_, Call::OpenBody { .. } | Call::LendBody { .. } | Call::LendBlank { .. })
                if no_descriptors =>
            {
                Some(Fault::Unsupported)
            }
            (_, Call::Delegate { .. } | Call::Delegated { .. } | Call::Return { .. })
                if no_delegations =>
            {
                Some(Fault::Unsupported)
            }
            _ => None,
        };
        let caller = caller.and_then(|caller| caller.clone().ok()).unwrap_or(NOBODY);
        Ok(Member { slot: header.slot, arrival, before: slot.last, refuse, caller, call })
    }

    fn run_single(&mut self, member: Member, out: &mut Vec<ServerOutput>) {
        let index = member.slot;
        let slot = &self.slots[index as usize];
        match (member.arrival, slot.done, member.refuse) {
            (Arrival::InProgress, _, _) => {}
            (Arrival::Repeat, SlotReply::Refused(fault), _) | (Arrival::New, _, Some(fault)) => {
                self.refuse(index, fault, out);
            }
            (Arrival::Repeat, SlotReply::Executed { resolved }, _) => {
                self.run(member, resolved, out);
            }
            (Arrival::Repeat, SlotReply::Unknown, _) | (Arrival::New, _, None) => {
                self.run(member, None, out);
            }
        }
    }

    /// Runs members of a chain in order, up to one that must be waited for.
    fn advance(&mut self, number: ChainNo, out: &mut Vec<ServerOutput>) {
        while let Some(turn) =
            self.chains.get_mut(&number).and_then(|chain| chain.next(&self.slots))
        {
            match turn {
                Turn::Run { member, resolved } => self.run(member, resolved, out),
                Turn::Refuse { slot, fault } => self.refuse(slot, fault, out),
                Turn::Await => {}
            }
        }
        if self.chains.get(&number).is_some_and(Chain::is_over) {
            self.chains.remove(&number);
        }
    }

    fn run(&mut self, member: Member, resolved: Option<Fid>, out: &mut Vec<ServerOutput>) {
        let slot = &mut self.slots[member.slot as usize];
        assert!(
            slot.progress != SlotProgress::Running,
            "DA-2: the request of slot {} is in progress, and is passed up again",
            member.slot
        );
        slot.progress = SlotProgress::Running;
        slot.done = SlotReply::Executed { resolved };
        let request = slot.last.expect("an accepted request has set its slot's number");
        let origin = ReplyAddress { session: self.setup.session, slot: member.slot, request };
        let repeated = member.arrival == Arrival::Repeat;
        let chained = slot.chain.is_some();
        out.push(ServerOutput::Execute {
            origin,
            caller: member.caller,
            call: member.call,
            repeated,
            chained,
        });
    }

    /// Answers a request without executing it.
    fn refuse(&mut self, index: u32, fault: Fault, out: &mut Vec<ServerOutput>) {
        let slot = &mut self.slots[index as usize];
        slot.progress = SlotProgress::Idle;
        slot.done = SlotReply::Refused(fault);
        slot.chain = None;
        self.reply(index, Err(fault), false, out);
    }

    fn on_answered(
        &mut self,
        origin: ReplyAddress,
        result: Result<Answer, Fault>,
        descriptor: bool,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(slot) = self.slots.get_mut(origin.slot as usize) else { return };
        let expected = slot.progress == SlotProgress::Running && slot.last == Some(origin.request);
        if origin.session != self.setup.session || !expected {
            return;
        }
        slot.progress = SlotProgress::Idle;
        let Some(number) = slot.chain else {
            return self.reply(origin.slot, result, descriptor, out);
        };
        let chain = self
            .chains
            .get_mut(&number)
            .expect("the chain of a slot is stored while the slot is in use");
        if chain.active != Some(origin.slot) {
            slot.progress = SlotProgress::Held;
            return chain.on_early_answer(origin.slot);
        }
        slot.chain = None;
        chain.on_result(&result);
        self.reply(origin.slot, result, descriptor, out);
        self.advance(number, out);
    }

    /// The answer of a member that was executed comes later, and is then that of a single request.
    fn on_executed(
        &mut self,
        origin: ReplyAddress,
        current: Option<Fid>,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(slot) = self.slots.get_mut(origin.slot as usize) else { return };
        let expected = slot.progress == SlotProgress::Running && slot.last == Some(origin.request);
        if origin.session != self.setup.session || !expected {
            return;
        }
        let Some(number) = slot.chain else { return };
        // A chain that came again waits for the answer.
        let Some(chain) = self.chains.get_mut(&number) else { return };
        if chain.active != Some(origin.slot) {
            return;
        }
        slot.chain = None;
        chain.on_executed(current);
        self.advance(number, out);
    }

    fn reply(
        &self,
        index: u32,
        result: Result<Answer, Fault>,
        descriptor: bool,
        out: &mut Vec<ServerOutput>,
    ) {
        let slot = &self.slots[index as usize];
        // If the request has not come again over this connection, its reply is not sent: the client
        // will repeat the request.
        let Some(line) = self.operations.filter(|line| line.channel == slot.came_on) else {
            return;
        };
        let mut header = FrameHeader::new(FrameKind::Reply, self.setup.session);
        header.slot = index;
        header.request = slot.last.expect("an answered request has set its slot's number");
        let features = line.terms.features;
        let result = result.map(|mut answer| {
            if !features.has(Features::READ_TIMES) {
                answer.statuses_mut().into_iter().for_each(|status| status.read_times = false);
            }
            if let Answer::Delegation { slots, .. } = &mut answer
                && !features.has(Features::SHORT_SLOTS)
            {
                slots.first &= !SHORT_SLOT;
            }
            answer
        });
        let encoded = result
            .and_then(|answer| encode_answer(&answer).map_err(|error| unsendable(&answer, &error)));
        let frame = match encoded {
            Ok(encoded) => {
                header.procedure = encoded.procedure;
                if let (Some(region), false) = (slot.region, encoded.payload.is_empty()) {
                    header.flags = header.flags.with(Flags::DIRECT);
                    header.region = region;
                }
                if descriptor && line.terms.features.has(Features::DESCRIPTORS) {
                    header.flags = header.flags.with(Flags::DESCRIPTOR);
                }
                Frame::new(header, encoded.message, encoded.payload)
            }
            Err(fault) => {
                Frame::plain(FrameHeader { fault: Some(fault.into()), ..header }, Vec::new())
            }
        };
        out.push(ServerOutput::Send {
            channel: line.channel,
            frame: frame.sealed(line.terms.features),
        });
    }

    fn on_cancel(
        &mut self,
        index: u32,
        request: u64,
        out: &mut Vec<ServerOutput>,
    ) -> Result<(), PeerError> {
        let credits = self.enforced;
        let no_credit = PeerError::NoCredit { slot: index, credits };
        let slot = self.slots.get(index as usize).filter(|_| index < credits).ok_or(no_credit)?;
        match slot.last {
            Some(last) if request > last => {
                Err(PeerError::WrongNumber { slot: index, got: request, last })
            }
            Some(last) if request == last => {
                let chain = slot.chain.and_then(|number| self.chains.get_mut(&number));
                match slot.progress {
                    SlotProgress::Running => {
                        out.push(ServerOutput::Cancel(ReplyAddress {
                            session: self.setup.session,
                            slot: index,
                            request,
                        }));
                    }
                    SlotProgress::Held => drop(chain.map(|chain| chain.cancel(index))),
                    SlotProgress::Idle => {}
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // Credits.

    fn on_grant(&mut self, credits: u32, out: &mut Vec<ServerOutput>) {
        let credits = credits.clamp(CREDITS_MIN, self.slots.len() as u32);
        if credits == self.granted {
            return;
        }
        self.granted = credits;
        self.grant += 1;
        self.enforced = self.enforced.max(credits);
        if let Some(line) = self.operations {
            self.send(line, &Message::Credits { credits, grant: self.grant }, out);
        }
    }

    /// Only the last grant counts: a client that confirms an earlier one may still use slots that
    /// one in between allowed.
    fn on_credits_taken(&mut self, grant: u64) -> Result<(), PeerError> {
        match grant.cmp(&self.grant) {
            Ordering::Greater => return Err(PeerError::Unasked),
            Ordering::Equal => self.enforced = self.granted,
            Ordering::Less => {}
        }
        Ok(())
    }

    // Breaks.

    fn on_break(&mut self, id: BreakId, items: Vec<BreakItem>, out: &mut Vec<ServerOutput>) {
        match self.breaks.add(id, items) {
            Ok(()) => self.send_breaks(out),
            Err(Overrun) => out.push(ServerOutput::Overrun),
        }
    }

    fn send_breaks(&mut self, out: &mut Vec<ServerOutput>) {
        let Some(line) = self.back.or(self.operations).filter(|_| !self.over) else { return };
        let unsent: Vec<_> = self.breaks.send_over(line.channel).collect();
        for (id, items) in unsent {
            self.send(line, &Message::Break { id, items }, out);
        }
    }
}

/// Stands for a request that cannot be decoded. The server refuses it without execution; but if the
/// slot has a reply record of an earlier server instance, which knew the call, the request goes to
/// the service and is answered from there (EO-1).
const UNKNOWN: Call = Call::GetStatus { fid: NO_FILE };
const NO_FILE: Fid =
    Fid { volume: types::VolumeId(0), vnode: types::VnodeNo(0), unique: types::Uniquifier(0) };

/// Stands for the caller of a refused request without credential; no call runs with it.
const NOBODY: Caller =
    Caller { uid: u32::MAX, gid: u32::MAX, groups: None, who: types::RequestIdentity::NOBODY };

/// The fault for an answer that the protocol cannot carry.
fn unsendable(answer: &Answer, error: &WireError) -> Fault {
    tracing::warn!(
        kind = ?AnswerKind::of(answer),
        %error,
        "answer breaks a limit of the protocol; the client gets a fault instead"
    );
    match answer {
        Answer::Xattr(_) | Answer::XattrNames(_) => Fault::XattrTooBig,
        _ => Fault::Invalid,
    }
}
