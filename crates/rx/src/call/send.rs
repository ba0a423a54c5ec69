//! The sending half of a call: packets that the peer does not have for sure, and which to send.
//!
//! `packets[0]` is packet `first`, the first one without a hard acknowledgement; only that frees a
//! packet (RX-3). Packets before `unsent` were sent, each with an *order*, which counts the
//! transmissions of the call. A packet is lost when one with an order larger by [`REORDER_MAX`] has
//! arrived. The serial in an acknowledgement tells which of several transmissions arrived. So a
//! hole is seen one round trip after it was made, also when a packet that was sent again is lost
//! again, and is repaired once for each round trip (RX-6). This is the rule of QUIC, RFC 9002.
//!
//! An acknowledgement tells of 255 packets and a window may have more. Of those beyond
//! nothing is known until the hard acknowledgement rises, so none of them counts as lost before. If
//! all that it tells of has arrived the peer's reader is slow, and is asked, as a full window is.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use types::Time;

use super::congestion::Congestion;
use super::round_trip::RoundTrip;
use crate::limits::{QUEUE_MIN, REORDER_MAX, RESEND_SLACK_LAST, WINDOW_ASSUMED, WINDOW_MAX};
use crate::wire::{AckPacket, AckReason, flags};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unsent,
    InFlight,
    /// Soft acknowledged.
    Arrived,
    Lost,
}

/// A data packet as it was sealed.
#[derive(Clone, Debug)]
pub(crate) struct SealedPacket {
    pub(crate) body: Bytes,
    pub(crate) checksum: u16,
    pub(crate) is_last: bool,
}

#[derive(Debug)]
struct Outgoing {
    sealed: SealedPacket,
    fate: Fate,
    /// Order of the latest transmission.
    order: u64,
    /// Serial and time of the first and of the latest transmission.
    sent: [(u32, Time); 2],
    tries: u32,
}

/// A data packet to put on the wire.
#[derive(Debug)]
pub(crate) struct DataPacket {
    pub(crate) seq: u32,
    pub(crate) flags: u8,
    pub(crate) checksum: u16,
    pub(crate) body: Bytes,
    pub(crate) is_resend: bool,
}

/// The changes that an acknowledgement made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckProgress {
    /// Packets of which it was the first word.
    pub(crate) newly: u32,
    /// It names the serial of a packet that we sent.
    pub(crate) is_echo: bool,
    pub(crate) round_trip: Option<Duration>,
    /// The congestion window was made smaller.
    pub(crate) is_loss: bool,
    /// The hard acknowledgement rose.
    pub(crate) freed: u32,
}

/// The demand of the resend timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResendTimer {
    Nothing,
    /// Packets are sent again.
    Resend,
    /// The peer's reader is slow: ask whether it still is.
    Probe,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    first: u32,
    packets: VecDeque<Outgoing>,
    /// Place of the first packet that was never sent.
    unsent: usize,
    ended: bool,
    peer_window: u32,
    /// The largest `previous` of the peer's acknowledgements.
    peer_previous: u32,
    in_flight: u32,
    lost: u32,
    arrived: u32,
    order_next: u64,
    order_arrived: u64,
    /// Losses of packets with a smaller order belong to a round trip that was counted.
    recovery: u64,
    congestion: Congestion,
    round_trip: RoundTrip,
    resend_at: Time,
    backoff: u32,
    bytes: usize,
}

impl SendHalf {
    pub(crate) fn new(window: u16, round_trip: RoundTrip) -> Self {
        SendHalf {
            first: 1,
            packets: VecDeque::new(),
            unsent: 0,
            ended: false,
            peer_window: WINDOW_ASSUMED,
            peer_previous: 0,
            in_flight: 0,
            lost: 0,
            arrived: 0,
            order_next: 1,
            order_arrived: 0,
            recovery: 0,
            congestion: Congestion::new(u32::from(window)),
            round_trip,
            resend_at: Time::NEVER,
            backoff: 0,
            bytes: 0,
        }
    }

    /// The number of the next packet that is made.
    pub(crate) fn next_seq(&self) -> u32 {
        self.first + self.packets.len() as u32
    }

    /// Packets that are kept.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Packets that may be kept, of `max` at most: the peer's window and a part behind it.
    pub(crate) fn queue_max(&self, max: usize) -> usize {
        let window = self.peer_window.min(self.congestion.max()) as usize;
        (window + (window / 4).max(QUEUE_MIN) + 4).min(max)
    }

    /// Whether a writer that waits may write again. It is told only when there is room for some
    /// packets: otherwise it would be woken for each.
    pub(crate) fn has_room(&self, max: usize) -> bool {
        let window = self.peer_window.min(self.congestion.max()) as usize;
        let full = self.queue_max(max);
        self.packets.len() < full && self.packets.len() <= window + 4
    }

    /// Packets that were sent and of which nothing was heard.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Puts the next packet at the end of the queue.
    pub(crate) fn push(&mut self, sealed: SealedPacket) {
        assert!(!self.ended, "RX-3: nothing follows the last packet");
        self.ended = sealed.is_last;
        self.bytes += sealed.body.len();
        self.packets.push_back(Outgoing {
            sealed,
            fate: Fate::Unsent,
            order: 0,
            sent: [(0, Time::ZERO); 2],
            tries: 0,
        });
    }

    /// Size of the body that [`Self::send`] would send, if something may be sent.
    pub(crate) fn peek(&self) -> Option<usize> {
        Some(self.packets[self.choose()?].sealed.body.len())
    }

    fn choose(&self) -> Option<usize> {
        if self.in_flight >= self.congestion.window() {
            return None;
        }
        if self.lost > 0 {
            return self.packets.iter().position(|packet| packet.fate == Fate::Lost);
        }
        let has_room = (self.unsent as u32) < self.peer_window;
        (self.unsent < self.packets.len() && has_room).then_some(self.unsent)
    }

    /// Takes the packet to send now.
    pub(crate) fn send(&mut self, now: Time, serial: u32) -> Option<DataPacket> {
        let place = self.choose()?;
        let is_resend = place < self.unsent;
        let packet = &mut self.packets[place];
        packet.fate = Fate::InFlight;
        packet.order = self.order_next;
        packet.tries += 1;
        packet.sent[1] = (serial, now);
        if packet.tries == 1 {
            packet.sent[0] = (serial, now);
        }
        self.order_next += 1;
        self.in_flight += 1;
        if is_resend {
            self.lost -= 1;
        } else {
            self.unsent += 1;
        }
        if self.resend_at == Time::NEVER {
            self.restart_timer(now);
        }
        let sealed = self.packets[place].sealed.clone();
        let is_stuck = self.choose().is_none() && self.unsent < self.packets.len();
        let asks = is_resend || is_stuck || self.congestion.window() <= 2;
        let mut bits = if asks && (is_resend || !sealed.is_last) { flags::REQUEST_ACK } else { 0 };
        if sealed.is_last {
            bits |= flags::LAST_PACKET;
        }
        Some(DataPacket {
            seq: self.first + place as u32,
            flags: bits,
            checksum: sealed.checksum,
            body: sealed.body,
            is_resend,
        })
    }

    /// Takes in an acknowledgement; `None` if it is older than an earlier one, or is about packets
    /// that were never sent, and so changed nothing.
    ///
    /// One with the same `first` and a smaller `previous` is late: what it says is there is there,
    /// what it says is missing may have come since.
    pub(crate) fn on_ack(&mut self, now: Time, ack: &AckPacket<'_>) -> Option<AckProgress> {
        let freed = ack.first.checked_sub(self.first).filter(|n| *n as usize <= self.unsent)?;
        let is_bogus = self.peer_previous >= self.first.saturating_add(self.peer_window);
        let is_late = freed == 0 && ack.previous < self.peer_previous && !is_bogus;
        if !is_late {
            self.peer_previous = ack.previous;
        }
        let was_limited = 2 * self.in_flight >= self.congestion.window();
        let mut progress = AckProgress { freed, ..AckProgress::default() };
        self.on_echo(now, ack, &mut progress);
        for place in 0..freed as usize {
            progress.newly += u32::from(self.on_arrived(place));
        }
        for packet in self.packets.drain(..freed as usize) {
            self.bytes -= packet.sealed.body.len();
        }
        self.first += freed;
        self.unsent -= freed as usize;
        self.arrived -= freed;
        for (place, bits) in ack.acks.iter().enumerate().take(self.unsent) {
            if bits & 1 == 1 {
                progress.newly += u32::from(self.on_arrived(place));
            } else if !is_late && self.packets[place].fate == Fate::Arrived {
                self.packets[place].fate = Fate::InFlight;
                self.arrived -= 1;
                self.in_flight += 1;
            }
        }
        progress.is_loss = self.find_losses();
        if progress.newly > 0 {
            if was_limited && self.order_arrived >= self.recovery {
                self.congestion.on_acked(progress.newly, &self.round_trip);
            }
            self.backoff = 0;
        }
        if progress.newly > 0 || freed > 0 {
            self.restart_timer(now);
        }
        Some(progress)
    }

    /// Measures the round trip, and learns which transmission arrived.
    fn on_echo(&mut self, now: Time, ack: &AckPacket<'_>, progress: &mut AckProgress) {
        if ack.serial == 0 {
            return;
        }
        let is_it = |packet: &Outgoing| {
            packet.tries > 0 && packet.sent.iter().any(|(serial, _)| *serial == ack.serial)
        };
        let Some(packet) = self.packets.iter().take(self.unsent).find(|packet| is_it(packet))
        else {
            return;
        };
        progress.is_echo = true;
        if packet.sent[1].0 == ack.serial {
            self.order_arrived = self.order_arrived.max(packet.order);
        }
        let sent_at = packet.sent.iter().find(|(serial, _)| *serial == ack.serial);
        if packet.fate != Fate::Arrived
            && !ack.is(AckReason::Delay)
            && let Some((_, at)) = sent_at
        {
            let took = now.since(*at);
            self.round_trip.sample(now, took);
            progress.round_trip = Some(took);
        }
    }

    /// A packet that was sent is with the peer. Whether that is news.
    fn on_arrived(&mut self, place: usize) -> bool {
        let packet = &mut self.packets[place];
        match packet.fate {
            Fate::InFlight => self.in_flight -= 1,
            Fate::Lost => self.lost -= 1,
            Fate::Arrived | Fate::Unsent => return false,
        }
        if packet.tries == 1 {
            self.order_arrived = self.order_arrived.max(packet.order);
        }
        packet.fate = Fate::Arrived;
        self.arrived += 1;
        true
    }

    /// Whether the congestion window was made smaller.
    fn find_losses(&mut self) -> bool {
        let mut newest_lost = 0;
        for packet in self.packets.iter_mut().take(self.unsent.min(AckPacket::ACKS_MAX)) {
            if packet.fate == Fate::InFlight && packet.order + REORDER_MAX <= self.order_arrived {
                packet.fate = Fate::Lost;
                self.in_flight -= 1;
                self.lost += 1;
                newest_lost = newest_lost.max(packet.order);
            }
        }
        let is_new = newest_lost > self.recovery;
        if is_new {
            self.congestion.on_loss(&self.round_trip);
            self.recovery = self.order_next - 1;
        }
        is_new
    }

    fn restart_timer(&mut self, now: Time) {
        let is_waiting = self.in_flight + self.lost > 0 || self.is_window_full();
        self.resend_at = if is_waiting {
            let is_last = self.ended && self.unsent == self.packets.len();
            let slack = if is_last { RESEND_SLACK_LAST } else { Duration::ZERO };
            now + self.round_trip.resend_after(self.backoff) + slack
        } else {
            Time::NEVER
        };
    }

    /// Nothing is in flight, and the peer has no room for what is to be sent.
    fn is_window_full(&self) -> bool {
        self.in_flight + self.lost == 0
            && self.unsent < self.packets.len()
            && self.unsent as u32 >= self.peer_window
    }

    /// All packets have arrived that an acknowledgement tells of, and more were sent.
    fn is_beyond_acks(&self) -> bool {
        self.unsent > AckPacket::ACKS_MAX
            && self
                .packets
                .iter()
                .take(AckPacket::ACKS_MAX)
                .all(|packet| packet.fate == Fate::Arrived)
    }

    /// The time went by.
    pub(crate) fn on_tick(&mut self, now: Time) -> ResendTimer {
        if now < self.resend_at {
            return ResendTimer::Nothing;
        }
        let is_probe = self.is_window_full() || self.is_beyond_acks();
        self.backoff = (self.backoff + 1).min(16);
        if !is_probe && self.in_flight > 0 {
            self.congestion.on_timeout(self.in_flight);
            for packet in self.packets.iter_mut().take(self.unsent) {
                if packet.fate == Fate::InFlight {
                    packet.fate = Fate::Lost;
                }
            }
            self.lost += self.in_flight;
            self.in_flight = 0;
            self.recovery = self.order_next - 1;
        }
        self.restart_timer(now);
        if is_probe { ResendTimer::Probe } else { ResendTimer::Resend }
    }

    /// A ping was answered.
    pub(crate) fn on_ping_answer(&mut self, now: Time, took: Duration) {
        self.round_trip.sample(now, took);
    }

    /// The peer told its window.
    pub(crate) fn set_peer_window(&mut self, window: u32) {
        self.peer_window = window.min(u32::from(WINDOW_MAX));
    }

    /// The peer has everything, or wants no more: nothing is kept.
    pub(crate) fn finish(&mut self) {
        self.first += self.packets.len() as u32;
        self.packets.clear();
        (self.unsent, self.in_flight, self.lost, self.arrived) = (0, 0, 0, 0);
        self.bytes = 0;
        self.ended = true;
        self.resend_at = Time::NEVER;
    }

    /// Whether the last packet was made.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether every packet was sent, the last one too.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.ended && self.unsent == self.packets.len()
    }

    /// Whether the peer has everything, the last packet too.
    pub(crate) fn is_all_arrived(&self) -> bool {
        self.ended && self.arrived as usize == self.packets.len()
    }

    /// Whether the peer lacks something that was sent, or has no room for more.
    pub(crate) fn is_waiting(&self) -> bool {
        self.in_flight + self.lost > 0 || self.is_window_full()
    }

    pub(crate) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    pub(crate) fn deadline(&self) -> Time {
        self.resend_at
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
