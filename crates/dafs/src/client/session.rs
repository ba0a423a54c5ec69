//! The machine itself; see the head of `client/mod.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use types::ReplyAddress;
use types::limits::SLOTS_MAX;
use types::{Answer, BreakId, Call, Fault, Fid, SessionId, Time};

use super::credentials::Credentials;
use super::flight::{Flight, Flights};
use super::keepalive::KeepAlive;
use super::keeper::Keeper;
use super::kept::{KeptError, KeptSession, KeptTerms};
use super::queue::{Queue, ReadyCall};
use super::{CallFailure, CallId, ClientConfig, ClientInput, ClientOutput, ConnectionRole};
use crate::credentials::{self, Hash};
use crate::limits::{
    BREAKS_MAX, CREDITS_MIN, DISPLAY_BYTES_MAX, RECONNECT_FIRST, RECONNECT_LAST, RENEWAL_TIME,
};
use crate::message::{Attach, AttachAnswer, Bind, Message, cut};
use crate::{ChannelId, Frame, FrameKind, PeerError, Terms, WireError};

#[derive(Clone, Copy, Debug)]
pub(super) struct SessionConnection {
    pub channel: ChannelId,
    pub terms: Terms,
    pub certificate: Option<Hash>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionState {
    Off,
    /// The driver was ordered to make it.
    Wanted,
    /// Attach or bind was sent.
    Joining {
        line: SessionConnection,
        sent_at: Time,
    },
    Up(SessionConnection),
}

impl ConnectionState {
    fn line(&self) -> Option<SessionConnection> {
        match self {
            ConnectionState::Joining { line, .. } | ConnectionState::Up(line) => Some(*line),
            ConnectionState::Off | ConnectionState::Wanted => None,
        }
    }

    pub fn up(&self) -> Option<SessionConnection> {
        match self {
            ConnectionState::Up(line) => Some(*line),
            _ => None,
        }
    }

    fn is(&self, channel: ChannelId) -> bool {
        self.line().is_some_and(|line| line.channel == channel)
    }

    fn overdue(&self, now: Time) -> Option<ChannelId> {
        match self {
            ConnectionState::Joining { line, sent_at } if now >= *sent_at + RENEWAL_TIME => {
                Some(line.channel)
            }
            _ => None,
        }
    }

    fn wake_at(&self) -> Time {
        match self {
            ConnectionState::Joining { sent_at, .. } => *sent_at + RENEWAL_TIME,
            _ => Time::NEVER,
        }
    }
}

/// The terms of the session, from the server's attach answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub id: SessionId,
    pub server: u64,
    bind_key: u128,
    lease: Duration,
}

/// See the head of `client/mod.rs`.
#[derive(Debug)]
pub struct ClientSession {
    pub(super) config: ClientConfig,
    pub(super) operations: ConnectionState,
    back: ConnectionState,
    pub(super) known: Option<Known>,
    pub(super) keeper: Keeper,
    pub(super) queue: Queue,
    pub(super) flights: Flights,
    pub(super) credentials: Credentials,
    /// Breaks in progress at the driver, and the connection that carried each last.
    breaks: BTreeMap<BreakId, ChannelId>,
    keep_alive: KeepAlive,
    pub(super) pause: Duration,
    wake_at: Time,
    closed: bool,
}

impl ClientSession {
    /// A session without a connection; orders its first connection.
    pub fn new(now: Time, config: ClientConfig, out: &mut Vec<ClientOutput>) -> ClientSession {
        out.push(ClientOutput::Connect { role: ConnectionRole::Operations, at: now });
        let credentials = Credentials::new(config.wallet.clone());
        ClientSession {
            keeper: Keeper::new(config.keeps),
            config,
            operations: ConnectionState::Wanted,
            back: ConnectionState::Off,
            known: None,
            queue: Queue::default(),
            flights: Flights::new(),
            credentials,
            breaks: BTreeMap::new(),
            keep_alive: KeepAlive::new(),
            pause: RECONNECT_FIRST,
            wake_at: Time::NEVER,
            closed: false,
        }
    }

    /// Members of the longest chain that the credits allow.
    pub fn chain_max(&self) -> usize {
        self.flights.chain_max()
    }

    /// The session's number, once attached.
    pub fn id(&self) -> Option<SessionId> {
        self.known.map(|known| known.id)
    }

    /// True if requests can be sent at present.
    pub fn is_connected(&self) -> bool {
        self.operations.up().is_some()
    }

    /// Number of calls that wait for a credit or for their answer.
    pub fn calls_waiting(&self) -> usize {
        self.queue.len() + self.flights.len()
    }

    /// Takes one event.
    ///
    /// # Errors
    /// [`PeerError`]: close the connection that the input came from; the machine has removed it and
    /// orders another.
    pub fn step(
        &mut self,
        now: Time,
        input: ClientInput,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        let source = match &input {
            ClientInput::Arrived { channel, .. } => Some(*channel),
            _ => None,
        };
        let result = self.take(now, input, out);
        if let (Err(error), Some(channel)) = (&result, source) {
            tracing::debug!(
                session = ?self.id(),
                ?now,
                %error,
                "connection closed after an error or goodbye of the server"
            );
            self.on_lost(now, channel, out);
        }
        self.flights.check();
        self.wake(out);
        result
    }

    fn take(
        &mut self,
        now: Time,
        input: ClientInput,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        if self.closed {
            return self.take_closed(input, out);
        }
        match input {
            ClientInput::Connected { role, channel, terms, certificate } => {
                self.on_connected(
                    now,
                    role,
                    SessionConnection { channel, terms, certificate },
                    out,
                );
            }
            ClientInput::ConnectFailed { role } => self.on_connect_failed(now, role, out),
            ClientInput::Arrived { channel, frame } => {
                return self.on_arrived(now, channel, frame, out);
            }
            ClientInput::Lost { channel } => self.on_lost(now, channel, out),
            ClientInput::Submit { id, caller, call, region, urgent } => {
                let ready = ReadyCall::new(id, caller, call, region, true);
                self.on_submit(
                    id,
                    ready.map(|ready| ReadyCall { urgent: ready.urgent || urgent, ..ready }),
                    out,
                );
            }
            ClientInput::SubmitChain { caller, members } => {
                self.on_submit_chain(&caller, members, out);
            }
            ClientInput::Cancel(id) => self.on_cancel(id, out),
            ClientInput::BreakHandled { id, held } => self.on_break_handled(id, held, out),
            ClientInput::Detach => self.on_detach(out),
            ClientInput::Tick => self.on_tick(now, out),
        }
        Ok(())
    }

    fn take_closed(
        &mut self,
        input: ClientInput,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        match input {
            ClientInput::Connected { channel, .. } => out.push(ClientOutput::Close { channel }),
            ClientInput::Submit { id, .. } => fail(&[id], &CallFailure::Closed, out),
            ClientInput::SubmitChain { members, .. } => {
                fail(&ids(&members), &CallFailure::Closed, out);
            }
            ClientInput::Arrived { .. } => return Err(PeerError::UnknownChannel),
            ClientInput::ConnectFailed { .. }
            | ClientInput::Lost { .. }
            | ClientInput::Cancel(_)
            | ClientInput::BreakHandled { .. }
            | ClientInput::Detach
            | ClientInput::Tick => {}
        }
        Ok(())
    }

    // Connections.

    fn on_connected(
        &mut self,
        now: Time,
        role: ConnectionRole,
        line: SessionConnection,
        out: &mut Vec<ClientOutput>,
    ) {
        match (role, self.operations, self.back, self.known) {
            (ConnectionRole::Operations, ConnectionState::Wanted, _, _) => {
                self.operations = ConnectionState::Joining { line, sent_at: now };
                let attach = Attach {
                    client: self.config.client,
                    incarnation: self.config.incarnation,
                    resume: self.id(),
                    display: cut(&self.config.display, DISPLAY_BYTES_MAX).to_owned(),
                    pid: self.config.pid,
                };
                self.send(line, &Message::Attach(attach), out);
            }
            (
                ConnectionRole::Back,
                ConnectionState::Up(_),
                ConnectionState::Wanted,
                Some(known),
            ) => {
                self.back = ConnectionState::Joining { line, sent_at: now };
                self.send(
                    line,
                    &Message::Bind(Bind { session: known.id, key: known.bind_key }),
                    out,
                );
            }
            _ => {
                out.push(ClientOutput::Close { channel: line.channel });
                if role == ConnectionRole::Back && matches!(self.back, ConnectionState::Wanted) {
                    self.back = ConnectionState::Off;
                }
            }
        }
    }

    fn on_connect_failed(&mut self, now: Time, role: ConnectionRole, out: &mut Vec<ClientOutput>) {
        match role {
            ConnectionRole::Operations if matches!(self.operations, ConnectionState::Wanted) => {
                self.want(now, role, out);
            }
            ConnectionRole::Back if matches!(self.back, ConnectionState::Wanted) => {
                self.want(now, role, out);
            }
            _ => {}
        }
    }

    /// Orders a connection after a pause that doubles until a connection succeeds.
    fn want(&mut self, now: Time, role: ConnectionRole, out: &mut Vec<ClientOutput>) {
        match role {
            ConnectionRole::Operations => self.operations = ConnectionState::Wanted,
            // A back connection needs a session to join; it is ordered after the attach.
            ConnectionRole::Back if self.operations.up().is_none() => {
                self.back = ConnectionState::Off;
                return;
            }
            ConnectionRole::Back => self.back = ConnectionState::Wanted,
        }
        out.push(ClientOutput::Connect { role, at: now + self.pause });
        self.pause = (self.pause * 2).min(RECONNECT_LAST);
    }

    fn on_lost(&mut self, now: Time, channel: ChannelId, out: &mut Vec<ClientOutput>) {
        if self.closed {
            return;
        }
        self.keep_alive.on_lost(now, channel);
        if self.operations.is(channel) {
            self.want(now, ConnectionRole::Operations, out);
        } else if self.back.is(channel) {
            self.want(now, ConnectionRole::Back, out);
        }
        self.pulse(now, out);
    }

    /// Frames that still arrive over it belong to the ended session.
    fn drop_back(&mut self, now: Time, out: &mut Vec<ClientOutput>) {
        if let Some(back) = self.back.line() {
            self.back = ConnectionState::Off;
            self.keep_alive.on_lost(now, back.channel);
            out.push(ClientOutput::Close { channel: back.channel });
        }
    }

    /// Closes a connection from this side.
    fn drop_line(&mut self, now: Time, channel: ChannelId, out: &mut Vec<ClientOutput>) {
        out.push(ClientOutput::Close { channel });
        self.on_lost(now, channel, out);
    }

    pub(super) fn send(
        &self,
        line: SessionConnection,
        message: &Message,
        out: &mut Vec<ClientOutput>,
    ) {
        let session = self.id().unwrap_or(SessionId(0));
        let frame = message.to_frame(session).expect("session messages are within the limits");
        out.push(ClientOutput::Send {
            channel: line.channel,
            frame: frame.sealed(line.terms.features),
        });
    }

    // Frames.

    fn on_arrived(
        &mut self,
        now: Time,
        channel: ChannelId,
        frame: Frame,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        let links =
            [(self.operations, ConnectionRole::Operations), (self.back, ConnectionRole::Back)];
        let (link, role) = links
            .into_iter()
            .find(|(link, _)| link.is(channel))
            .ok_or(PeerError::UnknownChannel)?;
        let line = link.line().ok_or(PeerError::UnknownChannel)?;
        frame.verify(&line.terms)?;
        let kind = frame.header.kind;
        let speaks_of_ours = Some(frame.header.session) == self.id();
        if !speaks_of_ours && !matches!(kind, FrameKind::Attached | FrameKind::Goodbye) {
            return Err(PeerError::WrongSession);
        }
        if kind == FrameKind::Reply && role == ConnectionRole::Operations && link.up().is_some() {
            return self.on_reply(frame, out);
        }
        match (Message::of_frame(&frame)?, role, link) {
            (
                Some(Message::Attached(attached)),
                ConnectionRole::Operations,
                ConnectionState::Joining { line, sent_at },
            ) => {
                self.on_attached(now, line, sent_at, &attached, out)?;
            }
            (Some(Message::Bound), ConnectionRole::Back, ConnectionState::Joining { line, .. }) => {
                self.back = ConnectionState::Up(line);
                self.keep_alive.begin_probes(now);
                self.pulse(now, out);
            }
            (Some(Message::Break { id, items }), _, ConnectionState::Up(_)) => {
                if self.breaks.insert(id, channel).is_none() {
                    out.push(ClientOutput::Break { id, items });
                }
                if self.breaks.len() > BREAKS_MAX {
                    return Err(PeerError::Unasked);
                }
            }
            (Some(Message::Renewed { number, renewed }), _, ConnectionState::Up(_)) => {
                self.on_renewed(now, channel, number, renewed, out)?;
            }
            (Some(Message::Probed(number)), _, ConnectionState::Up(_)) => {
                self.keep_alive.on_probed(channel, number)?;
            }
            (
                Some(Message::Credits { credits, grant }),
                ConnectionRole::Operations,
                ConnectionState::Up(line),
            ) => {
                self.on_credits(line, credits, grant)?;
                self.pump(out);
            }
            (Some(Message::Goodbye { fault, reason }), role, link) => {
                return self.on_goodbye(now, role, link, fault, reason, out);
            }
            _ => return Err(PeerError::Unexpected(kind)),
        }
        Ok(())
    }

    fn on_attached(
        &mut self,
        now: Time,
        line: SessionConnection,
        sent_at: Time,
        attached: &AttachAnswer,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        check_credits(line, attached.credits)?;
        if attached.lease.is_zero() || attached.session == SessionId(0) {
            return Err(WireError::BadValue { what: "lease or session", value: 0 }.into());
        }
        let before = self.known;
        let resumed = attached.resumed && before.is_some_and(|known| known.id == attached.session);
        let restarted = before.is_some_and(|known| known.server != attached.server);
        self.operations = ConnectionState::Up(line);
        self.known = Some(Known {
            id: attached.session,
            server: attached.server,
            bind_key: attached.bind_key,
            lease: attached.lease,
        });
        self.credentials.clear(credentials::ProofContext {
            certificate: line.certificate,
            challenge: attached.challenge,
        });
        if !resumed || restarted {
            self.breaks.clear();
            self.drop_back(now, out);
        }
        if before.is_some() && !resumed {
            self.lose_session(out);
        }
        if !resumed {
            self.keeper.reclaimed = attached.server;
        }
        self.flights.set_credits(attached.credits, attached.grant);
        if resumed {
            self.flights.require_confirmation();
        }
        let boot_verifier = attached.boot_verifier;
        out.push(ClientOutput::Established {
            session: attached.session,
            resumed,
            restarted,
            boot_verifier,
        });
        self.keep_alive.on_attached(now, attached.lease, attached.renewed.then_some(sent_at));
        if attached.renewed {
            out.push(ClientOutput::Renewed { sent_at, lease: attached.lease });
        }
        if restarted {
            self.drop_reclaim_done(out);
        }
        // Behind the dropped end of an earlier reclaim: a successor would take it for this one's.
        self.keeper.keep_session(attached.session, attached.server, out);
        self.resend(line, out);
        self.pump(out);
        if self.config.back_channel && matches!(self.back, ConnectionState::Off) {
            self.back = ConnectionState::Wanted;
            out.push(ClientOutput::Connect { role: ConnectionRole::Back, at: now });
        }
        Ok(())
    }

    /// The end of an earlier server instance's reclaim, sent or not, would end the present reclaim
    /// before it began (LK-4), and no caller needs its answer: the machine reports it done.
    fn drop_reclaim_done(&mut self, out: &mut Vec<ClientOutput>) {
        let unsent = self.queue.take_ends_of_reclaim();
        let mut ended: Vec<_> = unsent.into_iter().map(|id| (id, None)).collect();
        for slot in self.flights.unanswered().into_iter().flatten() {
            let ends = |flight: &Flight| {
                flight.chain.is_none() && matches!(flight.ready.call, Call::ReclaimDone)
            };
            if self.flights.get(slot).is_some_and(|(flight, _)| ends(flight))
                && let Some((flight, landing)) = self.flights.land(slot, &Ok(Answer::Done))
            {
                ended.push((flight.ready.id, self.keeper.landing(landing)));
            }
        }
        let done = |(id, landing)| ClientOutput::Done {
            id,
            result: Ok(Answer::Done),
            descriptor: false,
            landing,
        };
        out.extend(ended.into_iter().map(done));
    }

    fn on_goodbye(
        &mut self,
        now: Time,
        role: ConnectionRole,
        link: ConnectionState,
        fault: Option<Fault>,
        reason: String,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        match (role, link, fault) {
            // The server refused the attach: another incarnation of this client has attached, for
            // good (EO-2).
            (
                ConnectionRole::Operations,
                ConnectionState::Joining { .. },
                Some(fault @ Fault::Expired),
            ) => {
                out.push(ClientOutput::Refused(fault));
                self.close_all(out);
            }
            (ConnectionRole::Operations, ConnectionState::Up(_), Some(Fault::Expired)) => {
                self.known = None;
                self.breaks.clear();
                self.drop_back(now, out);
                self.lose_session(out);
            }
            _ => {}
        }
        Err(PeerError::Goodbye { fault, reason })
    }

    fn lose_session(&mut self, out: &mut Vec<ClientOutput>) {
        out.push(ClientOutput::SessionLost);
        let mut lost = self.flights.lose_all();
        debug_assert_eq!(self.flights.len(), 0, "EO-1: no call goes on in another session");
        // Calls that were to follow a lost one must not run in another session.
        let behind: Vec<CallId> = lost.iter().flat_map(|id| self.queue.led(*id, false)).collect();
        lost.extend(behind);
        fail(&lost, &CallFailure::SessionLost, out);
    }

    // Breaks, renewals, time.

    fn on_break_handled(&mut self, id: BreakId, held: Vec<Fid>, out: &mut Vec<ClientOutput>) {
        let Some(channel) = self.breaks.remove(&id) else { return };
        // Over the connection that carried the break: the server sends it again when that one ends.
        // Over another one, which the server may have dropped already, the acknowledgement could be
        // lost unnoticed.
        let lines = [self.back.up(), self.operations.up()];
        if let Some(line) = lines.into_iter().flatten().find(|line| line.channel == channel) {
            self.send(line, &Message::BreakAck { id, held }, out);
        }
    }

    fn on_renewed(
        &mut self,
        now: Time,
        channel: ChannelId,
        number: u64,
        renewed: bool,
        out: &mut Vec<ClientOutput>,
    ) -> Result<(), PeerError> {
        let sent_at = self.keep_alive.on_renewed(now, channel, number, renewed)?;
        self.pause = RECONNECT_FIRST;
        if renewed {
            let lease = self.known.map_or(Duration::ZERO, |known| known.lease);
            out.push(ClientOutput::Renewed { sent_at, lease });
        }
        Ok(())
    }

    fn on_tick(&mut self, now: Time, out: &mut Vec<ClientOutput>) {
        let joining = [self.operations.overdue(now), self.back.overdue(now)];
        let silent = joining.into_iter().chain(self.keep_alive.overdue(now));
        for channel in silent.flatten() {
            self.drop_line(now, channel, out);
        }
        self.pulse(now, out);
    }

    /// Sends renewals and probes that are due.
    fn pulse(&mut self, now: Time, out: &mut Vec<ClientOutput>) {
        let renewing = self.back.up().or(self.operations.up()).filter(|_| self.known.is_some());
        if let Some(line) = renewing
            && let Some(number) = self.keep_alive.renewal_due(now, line.channel)
        {
            self.send(line, &Message::Renew(number), out);
        }
        if let Some(line) = self.probing()
            && let Some(number) = self.keep_alive.probe_due(now, line.channel)
        {
            self.send(line, &Message::Probe(number), out);
        }
    }

    /// The operations connection, if it needs probes because renewals run over the back connection.
    fn probing(&self) -> Option<SessionConnection> {
        self.back.up().and(self.operations.up())
    }

    fn wake(&mut self, out: &mut Vec<ClientOutput>) {
        if self.closed {
            return;
        }
        let can_renew =
            self.known.is_some() && (self.back.up().is_some() || self.operations.up().is_some());
        let wake_at = [
            self.operations.wake_at(),
            self.back.wake_at(),
            self.keep_alive.wake_at(can_renew, self.probing().is_some()),
        ];
        let wake_at = wake_at.into_iter().min().unwrap_or(Time::NEVER);
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.push(ClientOutput::WakeAt(wake_at));
        }
    }

    // End of the session.

    fn on_detach(&mut self, out: &mut Vec<ClientOutput>) {
        if let Some(line) = self.operations.up() {
            self.send(line, &Message::Detach, out);
        }
        self.close_all(out);
    }

    fn close_all(&mut self, out: &mut Vec<ClientOutput>) {
        self.closed = true;
        for link in [self.back, self.operations] {
            if let Some(line) = link.line() {
                out.push(ClientOutput::Close { channel: line.channel });
            }
        }
        (self.back, self.operations) = (ConnectionState::Off, ConnectionState::Off);
        let lost = self.flights.lose_all();
        fail(&lost, &CallFailure::SessionLost, out);
        let unsent = self.queue.drain();
        fail(&unsent, &CallFailure::Closed, out);
        debug_assert_eq!(self.calls_waiting(), 0, "DA-4: every call has ended");
        out.push(ClientOutput::Closed);
    }
}

impl KeptSession {
    /// The successor of a machine whose process is gone: goes on with its session and its requests.
    ///
    /// # Errors
    /// [`KeptError`]: what was kept is damaged; the session cannot be resumed.
    pub fn succeed(
        &self,
        now: Time,
        config: ClientConfig,
        out: &mut Vec<ClientOutput>,
    ) -> Result<ClientSession, KeptError> {
        let flights = Flights::succeed(self)?;
        let KeptTerms { session, server, reclaiming } = self.terms;
        // The claims were answered before their end was sent. If the server is still that instance
        // the reclaim ends with the answer; it may not be made again (LK-4).
        let claimed = reclaiming.filter(|_| flights.end_of_reclaim());
        let known = Known {
            id: session,
            server: claimed.unwrap_or(server),
            // The attach answers the rest.
            bind_key: 0,
            lease: Duration::ZERO,
        };
        let mut machine = ClientSession::new(now, config, out);
        machine.keeper.reclaimed = server;
        Ok(ClientSession { known: Some(known), flights, ..machine })
    }
}

/// The place of a call that was sent and is not answered.
pub fn place_of(session: &ClientSession, id: CallId) -> Option<ReplyAddress> {
    let slot = session.flights.find(id)?;
    let (_, request) = session.flights.get(slot)?;
    Some(ReplyAddress { session: session.id()?, slot, request })
}

pub(super) fn check_credits(line: SessionConnection, credits: u32) -> Result<(), PeerError> {
    match (CREDITS_MIN..=SLOTS_MAX.min(line.terms.slots)).contains(&credits) {
        true => Ok(()),
        false => Err(WireError::BadValue { what: "credits", value: credits.into() }.into()),
    }
}

pub(super) fn ids(members: &[(CallId, Call)]) -> Vec<CallId> {
    members.iter().map(|(id, _)| *id).collect()
}

pub(super) fn fail(ids: &[CallId], why: &CallFailure, out: &mut Vec<ClientOutput>) {
    out.extend(ids.iter().map(|id| ClientOutput::Done {
        id: *id,
        result: Err(*why),
        descriptor: false,
        landing: None,
    }));
}
