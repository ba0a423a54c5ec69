//! The next packet of a call: a code, an acknowledgement, data, or a ping, in this order.

use bytes::Bytes;
use types::Time;

use super::RxCall;
use super::acks::OwedAck;
use crate::limits::PACKET_DEFAULT;
use crate::statistics::RxStatistics;
use crate::wire::{AckPacket, AckReason, AckTrailers, PacketHeader, PacketType, flags};

/// Limits that we tell peers in acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckTerms {
    pub(crate) packet_max: u16,
    pub(crate) window: u16,
}

/// A packet without the fields that all packets of the connection share.
#[derive(Debug)]
pub(crate) struct CallPacket {
    pub(crate) kind: PacketType,
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) checksum: u16,
    pub(crate) user_status: u8,
    pub(crate) body: Bytes,
}

/// The result of asking for something to send.
#[derive(Debug)]
pub(crate) enum Polled<P> {
    Packet(P),
    /// There is something, but it is larger than what may be sent to this address (RX-1).
    Withheld,
    Nothing,
}

impl RxCall {
    /// The next packet, of at most `allowance` bytes, which will have this serial.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        serial: u32,
        allowance: usize,
        terms: AckTerms,
        statistics: &mut RxStatistics,
    ) -> Polled<CallPacket> {
        let room = allowance.saturating_sub(PacketHeader::BYTES);
        if self.abort_owed
            && let Some(code) = self.abort
        {
            let body = Bytes::copy_from_slice(&code.to_be_bytes());
            if body.len() > room {
                return Polled::Withheld;
            }
            self.on_abort_sent(now);
            return Polled::Packet(CallPacket::new(PacketType::Abort, 0, body));
        }
        if self.is_waiting() {
            return Polled::Nothing;
        }
        if let Some(owed) = self.acks.due(now) {
            return self.poll_ack(now, owed, room, terms, statistics);
        }
        if let Some(size) = self.send.peek() {
            if size > room {
                return Polled::Withheld;
            }
            if let Some(packet) = self.poll_data(now, serial, statistics) {
                return Polled::Packet(packet);
            }
        }
        if self.ping_wanted && !self.is_over() {
            let ping = OwedAck { reason: AckReason::Ping, serial: 0 };
            let polled = self.poll_ack(now, ping, room, terms, statistics);
            if let Polled::Packet(_) = polled {
                self.ping = Some((serial, now));
            }
            return polled;
        }
        Polled::Nothing
    }

    fn poll_data(
        &mut self,
        now: Time,
        serial: u32,
        statistics: &mut RxStatistics,
    ) -> Option<CallPacket> {
        let data = self.send.send(now, serial)?;
        if data.is_resend {
            statistics.data_resent += 1;
        } else {
            statistics.data_sent += 1;
        }
        (self.sent_at, self.ping_wanted) = (now, false);
        let mut packet = CallPacket::new(PacketType::Data, data.flags, data.body);
        (packet.seq, packet.checksum) = (data.seq, data.checksum);
        if data.seq == 1 {
            packet.user_status = self.user_status;
        }
        Some(packet)
    }

    fn poll_ack(
        &mut self,
        now: Time,
        owed: OwedAck,
        room: usize,
        terms: AckTerms,
        statistics: &mut RxStatistics,
    ) -> Polled<CallPacket> {
        let mut acks = [0; AckPacket::ACKS_MAX];
        let count = self.receive.soft_acks(&mut acks);
        let taken = self.receive.taken();
        let body = AckPacket {
            first: taken,
            previous: self.receive.previous(),
            serial: owed.serial,
            reason: owed.reason as u8,
            acks: &acks[..count],
            trailers: AckTrailers {
                packet_max: Some(u32::from(terms.packet_max)),
                packet_preferred: Some(u32::from(terms.packet_max.min(PACKET_DEFAULT))),
                window: Some(u32::from(terms.window)),
                jumbo_max: Some(1),
            },
        }
        .to_bytes();
        if body.len() > room {
            return Polled::Withheld;
        }
        let mut bits = flags::SLOW_START_OK;
        if owed.reason == AckReason::Ping {
            bits |= flags::REQUEST_ACK;
            self.ping_wanted = false;
        } else {
            self.acks.on_sent(owed, taken);
        }
        self.sent_at = now;
        statistics.acks_sent += 1;
        Polled::Packet(CallPacket::new(PacketType::Ack, bits, Bytes::from(body)))
    }
}

impl CallPacket {
    pub(crate) fn new(kind: PacketType, flags: u8, body: Bytes) -> Self {
        CallPacket { kind, flags, seq: 0, checksum: 0, user_status: 0, body }
    }
}
