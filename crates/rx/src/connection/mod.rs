//! One connection: its four channels, its security class, and what it owes to its peer.
//!
//! A connection of a server starts *unproved*. With rxkad it is proved by a response; with the null
//! class, when its peer has shown that it receives at its address. Until the address is proved
//! (`address_is_open`) it sends no more bytes than the address has sent (RX-1).
//!
//! Source for the rules of channels: OpenAFS `src/rx/rx.c` (`rxi_ReceivePacket`).

mod authentication;
mod channel;
mod debug;
mod input;
mod output;

use std::net::SocketAddr;

use types::Time;

use crate::call::{Framing, Polled, RoundTrip, RxCall};
use crate::common::CommonState;
use crate::config::CallLimits;
use crate::debug::RxTraffic;
use crate::error::code;
use crate::event::{RxEvent, RxRead, Transmit};
use crate::limits::{ACK_DELAY, CHANNELS, PACKET_DEFAULT, PACKET_MAX, PACKET_MIN};
use crate::security::ConnectionSecurity;
use crate::wire::{AckTrailers, PacketHeader};
use crate::{RxCallId, RxConnectionId, RxError, ServiceId};
use authentication::Authentication;
use channel::RxChannel;

/// The name of a connection in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionKey {
    pub(crate) epoch: u32,
    /// With the channel's bits zero.
    pub(crate) cid: u32,
    /// The peer made it.
    pub(crate) is_served: bool,
    /// Part of the name only if the epoch lacks its highest bit; other clients may change their
    /// address.
    pub(crate) address: Option<SocketAddr>,
}

/// Resources that a connection holds, for the endpoint's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionLoad {
    pub(crate) bytes: usize,
    /// Calls that are not over.
    pub(crate) calls: usize,
}

#[derive(Debug)]
pub(crate) struct RxConnection {
    pub(crate) id: RxConnectionId,
    pub(crate) key: ConnectionKey,
    pub(crate) peer: SocketAddr,
    service: ServiceId,
    security: ConnectionSecurity,
    authentication: Authentication,
    channels: [RxChannel; CHANNELS],
    /// Serial of the next packet.
    serial: u32,
    /// Set once: every call fails with this.
    failed: Option<RxError>,
    /// The code that the peer is told, and when it may be told again.
    abort: Option<i32>,
    abort_owed: bool,
    abort_at: Time,
    limits: CallLimits,
    used_at: Time,
    /// Size of the packets that we make.
    packet_send: u16,
    bad_seals: u32,
    /// The channel that sends next.
    turn: usize,
    /// It does not count as unproved.
    pub(crate) is_proved: bool,
    /// The peer receives at its address, so the size of answers is not limited.
    pub(crate) address_is_open: bool,
    /// Something is withheld: no timer is looked at before this.
    withheld_until: Time,
    /// The start for the next call on this path.
    round_trip: RoundTrip,
    pub(crate) traffic: RxTraffic,
}

/// The parts of a new connection.
pub(crate) struct ConnectionStart {
    pub(crate) id: RxConnectionId,
    pub(crate) key: ConnectionKey,
    pub(crate) peer: SocketAddr,
    pub(crate) service: ServiceId,
    pub(crate) security: ConnectionSecurity,
    pub(crate) limits: CallLimits,
    /// Serial of the first packet.
    pub(crate) serial: u32,
    pub(crate) is_proved: bool,
    pub(crate) address_is_open: bool,
}

impl RxConnection {
    pub(crate) fn new(now: Time, start: ConnectionStart, packet_send: u16) -> Self {
        RxConnection {
            id: start.id,
            key: start.key,
            peer: start.peer,
            service: start.service,
            security: start.security,
            authentication: Authentication::new(now),
            channels: Default::default(),
            serial: start.serial,
            failed: None,
            abort: None,
            abort_owed: false,
            abort_at: Time::ZERO,
            limits: start.limits,
            used_at: now,
            packet_send: packet_send.min(PACKET_DEFAULT),
            bad_seals: 0,
            turn: 0,
            is_proved: start.is_proved,
            address_is_open: start.address_is_open,
            withheld_until: Time::ZERO,
            round_trip: RoundTrip::default(),
            traffic: RxTraffic::default(),
        }
    }

    pub(crate) fn is_client(&self) -> bool {
        !self.key.is_served
    }

    /// The number of its security class on the wire.
    pub(crate) fn security_index(&self) -> u8 {
        self.security.index()
    }

    pub(crate) fn load(&self) -> ConnectionLoad {
        let calls = self.channels.iter().filter_map(|channel| channel.call.as_ref());
        calls.fold(ConnectionLoad::default(), |load, call| ConnectionLoad {
            bytes: load.bytes + call.bytes(),
            calls: load.calls + usize::from(!call.is_over()),
        })
    }

    /// Starts a call on a free channel.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        user_status: u8,
        common: &mut CommonState,
    ) -> Result<RxCallId, RxError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.is_client() {
            return Err(RxError::NoConnection);
        }
        let place = (0..CHANNELS)
            .filter(|place| self.channels[*place].is_free())
            .min_by_key(|place| self.channels[*place].busy_at)
            .ok_or(RxError::Busy)?;
        let channel = &mut self.channels[place];
        if let Some(call) = &channel.call {
            self.round_trip = call.round_trip();
        }
        channel.number = channel.number.checked_add(1).ok_or(RxError::NoConnection)?;
        let id = RxCallId { connection: self.id, channel: place as u8, number: channel.number };
        let window = common.config.window;
        let mut call = RxCall::new(now, id, true, self.limits, window, self.round_trip);
        call.user_status = user_status;
        channel.call = Some(Box::new(call));
        common.statistics.calls_made += 1;
        self.used_at = now;
        Ok(id)
    }

    /// The call with this name, if the application may use it.
    fn call(&mut self, id: RxCallId) -> Result<&mut RxCall, RxError> {
        let channel = self.channels.get_mut(usize::from(id.channel)).ok_or(RxError::NoCall)?;
        let call = channel.call.as_deref_mut().filter(|call| call.id == id);
        call.filter(|call| call.is_announced()).ok_or(RxError::NoCall)
    }

    /// Runs `write` with the call and what it needs to make packets.
    pub(crate) fn with_framing<R>(
        &mut self,
        id: RxCallId,
        packets_max: usize,
        write: impl FnOnce(&mut RxCall, &Framing<'_>) -> R,
    ) -> Result<R, RxError> {
        self.call(id)?;
        let framing = Framing {
            security: &self.security,
            body_max: usize::from(self.packet_send) - PacketHeader::BYTES,
            packets_max,
        };
        let call = self.channels[usize::from(id.channel)].call.as_deref_mut();
        Ok(write(call.ok_or(RxError::NoCall)?, &framing))
    }

    pub(crate) fn read(
        &mut self,
        now: Time,
        id: RxCallId,
        max: usize,
        common: &mut CommonState,
    ) -> Result<RxRead, RxError> {
        let (read, is_over) = self.call(id)?.read(now, max);
        if is_over {
            self.used_at = now;
            common.events.push_back(RxEvent::Over(id, Ok(())));
        }
        Ok(read)
    }

    /// Bytes of a call that were not read yet; `None` if there will be no more of them.
    pub(crate) fn unread(&self, id: RxCallId) -> Option<usize> {
        self.channels[usize::from(id.channel)].call.as_deref()?.unread(id)
    }

    /// The application ends a call with a code.
    pub(crate) fn abort_call(
        &mut self,
        now: Time,
        id: RxCallId,
        code: i32,
        common: &mut CommonState,
    ) {
        self.used_at = now;
        let Ok(call) = self.call(id) else { return };
        if call.fail(Some(code), true) {
            common.events.push_back(RxEvent::Over(id, Err(RxError::Aborted(code))));
        }
    }

    /// Ends all calls, and all that may come.
    pub(crate) fn fail(&mut self, error: RxError, tell: Option<i32>, common: &mut CommonState) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.abort = tell;
        self.abort_owed = tell.is_some();
        self.fail_calls(error, None, common);
    }

    /// Ends all calls.
    pub(crate) fn fail_calls(
        &mut self,
        error: RxError,
        tell: Option<i32>,
        common: &mut CommonState,
    ) {
        let calls = self.channels.iter_mut().filter_map(|channel| channel.call.as_deref_mut());
        for call in calls {
            if call.fail(tell, true) {
                common.events.push_back(RxEvent::Over(call.id, Err(error)));
            }
        }
    }

    /// The peer told what it accepts.
    fn take_terms(&mut self, terms: &AckTrailers, common: &CommonState) {
        if let (Some(packet_max), Some(preferred)) = (terms.packet_max, terms.packet_preferred) {
            let peer = packet_max.min(preferred.max(u32::from(PACKET_DEFAULT)));
            let peer = peer.clamp(u32::from(PACKET_MIN), u32::from(PACKET_MAX)) as u16;
            self.packet_send = peer.min(common.config.packet_send);
        }
    }

    /// Time went by. Whether the connection is to be forgotten.
    pub(crate) fn on_tick(&mut self, now: Time, common: &mut CommonState) -> bool {
        for place in 0..CHANNELS {
            let Some(call) = self.channels[place].call.as_deref_mut() else { continue };
            let Some(error) = call.on_tick(now, &mut common.statistics) else { continue };
            if call.fail(Some(error.code()), error == RxError::TimedOut) {
                common.events.push_back(RxEvent::Over(call.id, Err(error)));
            }
            self.channels[place].busy_at = now;
        }
        if self.security.is_pending() && self.failed.is_none() {
            let waits = self.channels.iter().any(RxChannel::is_waiting);
            if self.authentication.on_tick(now, waits) {
                return true;
            }
        }
        now >= self.idle_at(common)
    }

    fn idle_at(&self, common: &CommonState) -> Time {
        let is_used = self.channels.iter().any(|channel| !channel.is_free());
        if self.is_client() || is_used {
            return Time::NEVER;
        }
        self.used_at + common.config.idle_connection
    }

    /// When something is to be done.
    pub(crate) fn deadline(&self, common: &CommonState) -> Time {
        let calls = self.channels.iter().filter_map(|channel| channel.call.as_deref());
        let mut deadline = calls.map(RxCall::deadline).min().unwrap_or(Time::NEVER);
        deadline = deadline.min(self.idle_at(common));
        if self.security.is_pending() && self.failed.is_none() {
            deadline = deadline.min(self.authentication.deadline());
        }
        deadline.max(self.withheld_until)
    }

    /// Whether nothing but its address can be proved of the peer, and that is not.
    pub(crate) fn needs_address_proof(&self) -> bool {
        !self.address_is_open && matches!(self.security, ConnectionSecurity::Null)
    }

    /// The peer receives at its address.
    pub(crate) fn open_address(&mut self) {
        self.address_is_open = true;
        self.withheld_until = Time::ZERO;
    }

    /// A connection that proves nothing about names is proved with its address.
    pub(crate) fn settle_proof(&mut self) {
        self.is_proved |= self.address_is_open && matches!(self.security, ConnectionSecurity::Null);
    }

    /// Closes the connection: all calls end, and what the peer should still get is in `last`.
    pub(crate) fn close(&mut self, now: Time, common: &mut CommonState) -> Vec<Transmit> {
        let code = code::USER_ABORT;
        self.fail_calls(RxError::Aborted(code), Some(code), common);
        let mut last = Vec::new();
        // Delayed acknowledgements are sent too: no later call will say the same.
        while let Polled::Packet(packet) = self.poll(now + ACK_DELAY, usize::MAX, common)
            && last.len() < 2 * CHANNELS
        {
            last.push(packet);
        }
        last
    }
}
