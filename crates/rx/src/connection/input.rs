//! Packets that arrive for a connection.

use bytes::Bytes;
use types::Time;

use super::RxConnection;
use crate::call::{CallNews, RxCall};
use crate::common::{BufferRoom, CommonState};
use crate::error::code;
use crate::event::RxEvent;
use crate::limits::{ABORT_INTERVAL, BAD_SEALS_MAX, UNPROVED_BYTES, UNPROVED_PACKETS};
use crate::rxkad;
use crate::security::ConnectionSecurity;
use crate::wire::{AckPacket, PacketHeader, PacketType, Subpackets};
use crate::{RxCallId, RxError};

/// Numbers of packets that nothing uses.
const PARAMETERS: std::ops::RangeInclusive<u8> = 9..=11;

impl RxConnection {
    /// Takes in a packet of this connection.
    pub(crate) fn on_packet(
        &mut self,
        now: Time,
        header: &PacketHeader,
        body: &[u8],
        common: &mut CommonState,
    ) {
        self.withheld_until = Time::ZERO;
        let kind = header.packet_type();
        if self.failed.is_some() {
            if kind != Some(PacketType::Abort) && self.abort.is_some() && now >= self.abort_at {
                self.abort_owed = true;
                self.abort_at = now + ABORT_INTERVAL;
            }
            return;
        }
        match kind {
            Some(PacketType::Data) => {
                for (header, body) in Subpackets::new(*header, body) {
                    self.on_data(now, &header, body, common);
                }
            }
            Some(PacketType::Ack) => self.on_ack(now, header, body, common),
            Some(PacketType::AckAll) => {
                let packets_max = common.packets_max();
                let call = self.channels[header.channel()].call_numbered(header.call);
                let Some(call) = call else { return common.stale() };
                let news = call.on_ack_all(now, packets_max);
                self.take_news(now, header, news, common);
            }
            Some(PacketType::Busy) if self.is_client() => {
                self.channels[header.channel()].busy_at = now;
            }
            Some(PacketType::Abort) => self.on_abort(header, body, common),
            Some(PacketType::Challenge) => self.on_challenge(now, body, common),
            Some(PacketType::Response) => self.on_response(now, body, common),
            None if header.call == 0 && !PARAMETERS.contains(&header.kind) => {
                let code = code::PROTOCOL_ERROR;
                self.fail(RxError::Aborted(code), Some(code), common);
            }
            _ => common.statistics.dropped_malformed += 1,
        }
    }

    fn on_data(&mut self, now: Time, header: &PacketHeader, body: &[u8], common: &mut CommonState) {
        let place = header.channel();
        let number = self.channels[place].number;
        if header.call == 0 || header.call < number || (self.is_client() && header.call > number) {
            return common.stale();
        }
        if self.security.is_pending() {
            return self.keep(now, header, body, common);
        }
        if !self.security.verify(header) {
            return self.on_bad_seal(common);
        }
        // Without a record of the channel's latest call, that call may still be to come.
        let mut opened = None;
        if header.call > number || self.channels[place].call.is_none() {
            let Ok(data) = self.security.open(header, body) else {
                return self.on_bad_seal(common);
            };
            opened = Some(data);
            if !self.start(now, header, common) {
                return;
            }
        }
        let room = self.room(body.len(), common);
        let Some(call) = self.channels[place].call_numbered(header.call) else {
            return common.stale();
        };
        let security = &self.security;
        let open = || opened.map_or_else(|| security.open(header, body), Ok);
        let news = call.on_data(now, header, open, room, &mut common.statistics);
        self.take_news(now, header, news, common);
    }

    /// A connection that nothing is proved of may hold only some packets.
    fn room(&self, bytes: usize, common: &CommonState) -> BufferRoom {
        let all = common.room(bytes);
        let is_little = self.is_proved || self.load().bytes + bytes <= UNPROVED_BYTES;
        BufferRoom { next: all.next && is_little, later: all.later && is_little }
    }

    /// Keeps a packet of a caller that is not proved.
    fn keep(&mut self, now: Time, header: &PacketHeader, body: &[u8], common: &mut CommonState) {
        let channel = &mut self.channels[header.channel()];
        if header.call > channel.number {
            channel.number = header.call;
            channel.call = None;
        }
        let bytes = self.load().bytes + body.len();
        if !common.room(body.len()).next || bytes > UNPROVED_BYTES {
            common.statistics.dropped_full += 1;
            return;
        }
        self.authentication.on_waiting();
        let channel = &mut self.channels[header.channel()];
        let call = channel.call.get_or_insert_with(|| {
            let id = RxCallId {
                connection: self.id,
                channel: header.channel() as u8,
                number: header.call,
            };
            let (limits, window) = (self.limits, common.config.window);
            let call = RxCall::new(now, id, false, limits, window, self.round_trip);
            Box::new(call.into_waiting())
        });
        if !call.keep(*header, body, UNPROVED_PACKETS) {
            common.statistics.dropped_full += 1;
        }
    }

    /// A packet, whose seal is right, of a later call than the channel has. Whether that call may
    /// begin.
    fn start(&mut self, now: Time, header: &PacketHeader, common: &mut CommonState) -> bool {
        if self.security.is_expired(common.wall_secs(now)) {
            let code = rxkad::code::EXPIRED;
            self.fail(RxError::Aborted(code), Some(code), common);
            return false;
        }
        let channel = &mut self.channels[header.channel()];
        if header.seq == 0 || header.seq > u32::from(common.config.window) {
            common.stale();
            return false;
        }
        if !common.may_serve() {
            channel.refused = Some(header.call);
            common.statistics.calls_refused += 1;
            return false;
        }
        if let Some(call) = channel.call.as_deref_mut() {
            self.round_trip = call.round_trip();
            // A client that has gone on to the next call has the whole answer, or gave up.
            let result = if call.is_answered() { Ok(()) } else { Err(RxError::Dead) };
            if call.fail(None, false) {
                common.events.push_back(RxEvent::Over(call.id, result));
            }
        }
        channel.number = header.call;
        let id =
            RxCallId { connection: self.id, channel: header.channel() as u8, number: header.call };
        let window = common.config.window;
        let call = RxCall::new(now, id, false, self.limits, window, self.round_trip);
        channel.call = Some(Box::new(call));
        self.used_at = now;
        true
    }

    fn on_ack(&mut self, now: Time, header: &PacketHeader, body: &[u8], common: &mut CommonState) {
        let Some(ack) = AckPacket::parse(body) else {
            common.statistics.dropped_malformed += 1;
            return;
        };
        let packets_max = common.packets_max();
        let Some(call) = self.channels[header.channel()].call_numbered(header.call) else {
            return common.stale();
        };
        if call.is_waiting() {
            return common.stale();
        }
        let before = common.statistics.acks_received;
        let news = call.on_ack(now, header, &ack, packets_max, &mut common.statistics);
        if common.statistics.acks_received > before {
            self.take_terms(&ack.trailers, common);
        }
        self.take_news(now, header, news, common);
    }

    fn on_abort(&mut self, header: &PacketHeader, body: &[u8], common: &mut CommonState) {
        let Some(bytes) = body.first_chunk::<4>() else {
            common.statistics.dropped_malformed += 1;
            return;
        };
        let error = RxError::PeerAborted(i32::from_be_bytes(*bytes));
        if header.call == 0 {
            return self.fail(error, None, common);
        }
        let Some(call) = self.channels[header.channel()].call_numbered(header.call) else {
            return common.stale();
        };
        if call.fail(None, false) {
            common.events.push_back(RxEvent::Over(call.id, Err(error)));
        }
    }

    fn on_challenge(&mut self, now: Time, body: &[u8], common: &mut CommonState) {
        let numbers = self.channels.each_ref().map(|channel| channel.number);
        let is_calling = self.channels.iter().any(|channel| !channel.is_free());
        let ConnectionSecurity::Client(client) = &self.security else { return common.stale() };
        if !is_calling || !self.authentication.may_respond(now) {
            return common.stale();
        }
        match client.respond(body, numbers) {
            Ok(response) => self.authentication.respond(Bytes::from(response)),
            Err(code) => self.fail(RxError::Aborted(code), Some(code), common),
        }
    }

    fn on_response(&mut self, now: Time, body: &[u8], common: &mut CommonState) {
        let wall_secs = common.wall_secs(now);
        let ConnectionSecurity::Server(server) = &mut self.security else { return common.stale() };
        if server.seal().is_some() || !self.authentication.has_challenged() {
            return common.stale();
        }
        match server.accept(body, wall_secs) {
            Ok(numbers) => {
                common.statistics.responses_good += 1;
                self.is_proved = true;
                self.address_is_open = true;
                self.used_at = now;
                self.release(now, numbers, common);
            }
            Err(code) => {
                common.statistics.responses_bad += 1;
                self.fail(RxError::Aborted(code), Some(code), common);
            }
        }
    }

    /// The caller is proved: takes in what waited, unless it is older than the client's own count
    /// of its calls.
    fn release(&mut self, now: Time, numbers: [u32; 4], common: &mut CommonState) {
        for (place, number) in numbers.into_iter().enumerate() {
            let channel = &mut self.channels[place];
            channel.number = number;
            let Some(mut call) = channel.call.take() else { continue };
            for (header, body) in call.activate(now) {
                self.on_data(now, &header, &body, common);
            }
        }
    }

    /// Tells the application, and the endpoint.
    fn take_news(
        &mut self,
        now: Time,
        header: &PacketHeader,
        news: CallNews,
        common: &mut CommonState,
    ) {
        let place = header.channel();
        let Some(id) = self.channels[place].call.as_ref().map(|call| call.id) else { return };
        if news.bad_seal {
            return self.on_bad_seal(common);
        }
        if news.is_echo && self.key.is_served {
            self.address_is_open = true;
        }
        if news.begins {
            self.used_at = now;
            common.statistics.calls_served += 1;
            common.events.push_back(RxEvent::Incoming {
                call: id,
                service: self.service,
                peer: self.peer,
                caller: self.security.caller(),
                connection: self.id,
                user_status: header.user_status,
            });
        }
        if news.readable {
            common.events.push_back(RxEvent::Readable(id));
        }
        if news.writable {
            common.events.push_back(RxEvent::Writable(id));
        }
        if let Some(result) = news.over {
            self.used_at = now;
            common.events.push_back(RxEvent::Over(id, result));
        }
        common.is_stream |= news.is_stream;
        if header.kind == PacketType::Data as u8 {
            self.bad_seals = 0;
        }
    }

    fn on_bad_seal(&mut self, common: &mut CommonState) {
        common.statistics.dropped_seal += 1;
        self.bad_seals += 1;
        if self.bad_seals >= BAD_SEALS_MAX {
            let code = rxkad::code::SEALED_INCONSISTENTLY;
            self.fail(RxError::Aborted(code), Some(code), common);
        }
    }
}
