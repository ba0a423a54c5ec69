//! The next datagram of a connection.

use bytes::Bytes;
use types::Time;

use super::RxConnection;
use crate::call::{AckTerms, CallPacket, Polled};
use crate::common::CommonState;
use crate::event::Transmit;
use crate::limits::{CHANNELS, PROBE_INTERVAL};
use crate::security::ConnectionSecurity;
use crate::wire::{PacketHeader, PacketType, flags};

impl RxConnection {
    /// The next datagram, of at most `allowance` bytes.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        allowance: usize,
        common: &mut CommonState,
    ) -> Polled<Transmit> {
        let mut is_withheld = false;
        match self.poll_connection(now, allowance, common) {
            Polled::Packet(packet) => return Polled::Packet(self.seal(0, 0, packet)),
            Polled::Withheld => is_withheld = true,
            Polled::Nothing => {}
        }
        let terms = AckTerms { packet_max: common.config.packet_max, window: common.config.window };
        for step in 0..CHANNELS {
            let place = (self.turn + step) % CHANNELS;
            let channel = &mut self.channels[place];
            if let Some(number) = channel.refused {
                if allowance >= PacketHeader::BYTES {
                    channel.refused = None;
                    let busy = CallPacket::new(PacketType::Busy, 0, Bytes::new());
                    return Polled::Packet(self.seal(place, number, busy));
                }
                is_withheld = true;
            }
            let Some(call) = channel.call.as_deref_mut() else { continue };
            let number = call.id.number;
            match call.poll(now, self.serial, allowance, terms, &mut common.statistics) {
                Polled::Packet(packet) => {
                    self.turn = (place + 1) % CHANNELS;
                    return Polled::Packet(self.seal(place, number, packet));
                }
                Polled::Withheld => is_withheld = true,
                Polled::Nothing => {}
            }
        }
        if !is_withheld {
            return Polled::Nothing;
        }
        self.withheld_until = now + PROBE_INTERVAL;
        Polled::Withheld
    }

    /// The connection's own packets: its end, its proof, its challenge.
    fn poll_connection(
        &mut self,
        now: Time,
        allowance: usize,
        common: &mut CommonState,
    ) -> Polled<CallPacket> {
        let room = allowance.saturating_sub(PacketHeader::BYTES);
        if self.abort_owed
            && let Some(code) = self.abort
        {
            let body = Bytes::copy_from_slice(&code.to_be_bytes());
            if body.len() > room {
                return Polled::Withheld;
            }
            self.abort_owed = false;
            return Polled::Packet(CallPacket::new(PacketType::Abort, 0, body));
        }
        if self.failed.is_some() {
            return Polled::Nothing;
        }
        if let Some(body) = self.authentication.response().cloned() {
            self.authentication.on_response_sent(now);
            common.statistics.responses_sent += 1;
            return Polled::Packet(CallPacket::new(PacketType::Response, 0, body));
        }
        if self.authentication.owes_challenge()
            && let ConnectionSecurity::Server(server) = &mut self.security
        {
            let body = server.challenge(&mut common.random);
            if body.len() > room {
                return Polled::Withheld;
            }
            self.authentication.on_challenge_sent(now);
            common.statistics.challenges_sent += 1;
            let body = Bytes::copy_from_slice(&body);
            return Polled::Packet(CallPacket::new(PacketType::Challenge, 0, body));
        }
        Polled::Nothing
    }

    /// Puts the header before a packet.
    fn seal(&mut self, place: usize, number: u32, packet: CallPacket) -> Transmit {
        let direction = if self.is_client() { flags::CLIENT_INITIATED } else { 0 };
        let header = PacketHeader {
            epoch: self.key.epoch,
            cid: self.key.cid | place as u32,
            call: number,
            seq: packet.seq,
            serial: self.serial,
            kind: packet.kind as u8,
            flags: packet.flags | direction,
            user_status: packet.user_status,
            security: self.security.index(),
            checksum: packet.checksum,
            service: self.service.0,
        };
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        Transmit { to: self.peer, header: header.to_bytes(), body: packet.body }
    }
}
