//! Which acknowledgements a call owes to its peer.
//!
//! One is owed at once when the peer asked, when something is out of order, when two packets came,
//! or when the reader took more than two; otherwise after a delay, because an answer or the next
//! call may say the same. Several reasons before the next transmission make one acknowledgement,
//! with the reason of highest rank. A ping has its own answer, because the peer measures by it.

use types::Time;

use crate::limits::{ACK_DELAY, ACK_EVERY, HARD_ACK_EVERY};
use crate::wire::AckReason;

/// An acknowledgement to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedAck {
    pub(crate) reason: AckReason,
    /// Serial of the packet that provoked it.
    pub(crate) serial: u32,
}

#[derive(Debug)]
pub(crate) struct AckDebt {
    now: Option<OwedAck>,
    ping: Option<u32>,
    /// When a delayed one is due.
    at: Time,
    /// Packets since the latest acknowledgement.
    packets: u32,
    /// The hard acknowledgement that the peer has.
    told: u32,
}

impl AckDebt {
    pub(crate) fn new() -> Self {
        AckDebt { now: None, ping: None, at: Time::NEVER, packets: 0, told: 1 }
    }

    /// One is owed at once.
    pub(crate) fn owe(&mut self, reason: AckReason, serial: u32) {
        let rank = |reason| match reason {
            AckReason::Requested => 3,
            AckReason::Duplicate | AckReason::OutOfSequence => 2,
            AckReason::ExceedsWindow | AckReason::NoSpace => 1,
            _ => 0,
        };
        if self.now.is_none_or(|owed| rank(owed.reason) <= rank(reason)) {
            self.now = Some(OwedAck { reason, serial });
        }
    }

    /// A packet arrived in order, and did not ask.
    pub(crate) fn on_packet(&mut self, now: Time, serial: u32) {
        self.packets += 1;
        if self.packets >= ACK_EVERY {
            self.owe(AckReason::Idle, serial);
        } else {
            self.at = self.at.min(now + ACK_DELAY);
        }
    }

    /// The reader took packets: all before `taken`.
    pub(crate) fn on_taken(&mut self, now: Time, taken: u32) {
        if taken - self.told > HARD_ACK_EVERY {
            self.owe(AckReason::Delay, 0);
        } else if taken > self.told {
            self.at = self.at.min(now + ACK_DELAY);
        }
    }

    /// A ping arrived.
    pub(crate) fn on_ping(&mut self, serial: u32) {
        self.ping = Some(serial);
    }

    /// The acknowledgement to send now; [`Self::on_sent`] follows if it is sent.
    pub(crate) fn due(&self, now: Time) -> Option<OwedAck> {
        if let Some(serial) = self.ping {
            return Some(OwedAck { reason: AckReason::PingResponse, serial });
        }
        let delayed = OwedAck { reason: AckReason::Delay, serial: 0 };
        self.now.or((self.at <= now).then_some(delayed))
    }

    /// An acknowledgement was sent, with this hard acknowledgement.
    pub(crate) fn on_sent(&mut self, sent: OwedAck, taken: u32) {
        if sent.reason == AckReason::PingResponse {
            self.ping = None;
        } else {
            self.now = None;
        }
        self.at = Time::NEVER;
        self.packets = 0;
        self.told = taken;
    }

    /// The peer learned by other means that everything arrived.
    pub(crate) fn settle(&mut self) {
        *self = AckDebt { told: self.told, ..AckDebt::new() };
    }

    /// When a delayed acknowledgement is due.
    pub(crate) fn deadline(&self) -> Time {
        self.at
    }
}
