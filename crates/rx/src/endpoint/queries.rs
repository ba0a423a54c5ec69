//! Answers to packets that belong to no connection: versions, debug questions, refusals.
//!
//! Answers to version and debug packets are larger than the question, and whoever asks has proved
//! nothing. So their number in a second is limited, for all askers together: what an attacker can
//! make us send is then less than what the attack costs. Refusals are sent only if they are not
//! larger than what they answer (RX-1).

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use types::Time;

use crate::event::Transmit;
use crate::limits::STRAYS_MAX;
use crate::wire::{PacketHeader, PacketType, flags};

/// Datagrams that belong to no connection, and how many may be larger than what they answer.
#[derive(Debug, Default)]
pub(crate) struct StrayQueue {
    queue: VecDeque<Transmit>,
    /// The second that is counted.
    second: u64,
    answered: u32,
}

impl StrayQueue {
    /// Sends `packet` when it is its turn, if there is room.
    pub(crate) fn push(&mut self, packet: Transmit) -> bool {
        let has_room = self.queue.len() < STRAYS_MAX;
        if has_room {
            self.queue.push_back(packet);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Transmit> {
        self.queue.pop_front()
    }

    /// Whether one more answer in this second is within the limit; it counts then.
    pub(crate) fn may_answer(&mut self, now: Time, per_second: u32) -> bool {
        let second = now.since_start().as_secs();
        if second != self.second {
            (self.second, self.answered) = (second, 0);
        }
        let is_within = self.answered < per_second;
        self.answered += u32::from(is_within);
        is_within
    }

    /// Answers a question with the same header and this body.
    pub(crate) fn answer(&mut self, to: SocketAddr, question: &PacketHeader, body: Vec<u8>) {
        let header = PacketHeader { flags: question.flags & !flags::CLIENT_INITIATED, ..*question };
        self.push(Transmit { to, header: header.to_bytes(), body: Bytes::from(body) });
    }

    /// Refuses a packet for which there is no service.
    pub(crate) fn refuse(
        &mut self,
        to: SocketAddr,
        refused: &PacketHeader,
        refused_bytes: usize,
        code: i32,
    ) -> bool {
        let header = PacketHeader {
            seq: 0,
            serial: 0,
            kind: PacketType::Abort as u8,
            flags: !refused.flags & flags::CLIENT_INITIATED,
            user_status: 0,
            checksum: 0,
            ..*refused
        };
        let body = Bytes::copy_from_slice(&code.to_be_bytes());
        let packet = Transmit { to, header: header.to_bytes(), body };
        packet.size() <= refused_bytes && self.push(packet)
    }
}
