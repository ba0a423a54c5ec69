//! How many packets may be in flight.
//!
//! As TCP: the window grows by one for each packet that arrives until the first loss (slow start),
//! then by some packets for each round trip, and is made smaller once for each loss (RFC 5681,
//! 6675). How much is by how long packets wait in queues, as in TCP-Illinois (Liu, Basar, Srikant
//! 2006): a loss while the round trip is at its shortest is not a full queue, so the window then
//! falls by an eighth and grows by as much a round trip; otherwise by a half, and by one. Without
//! this a loss of 0.1 % would hold the window down to 40 packets. For the same reason slow start
//! ends when packets begin to wait in queues, and not only at a loss (after RFC 9406).

use super::round_trip::RoundTrip;
use crate::limits::CONGESTION_FIRST;

/// While nothing waits in queues a round trip makes the window larger by this part of it, and a
/// loss smaller; by so many packets at least.
const PART_FREE: u32 = 8;
const STEP_FREE_MIN: u32 = 8;
const WINDOW_MIN: u32 = 2;

/// The congestion window of a call, in packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: u32,
    /// Slow start goes up to here.
    threshold: u32,
    /// Acknowledged packets that have not made the window larger yet.
    credit: u32,
    max: u32,
}

impl Congestion {
    /// The window of a new call; `max` is the largest that the protocol has.
    pub(crate) fn new(max: u32) -> Self {
        Congestion { window: CONGESTION_FIRST.min(max), threshold: max, credit: 0, max }
    }

    /// The largest window of this side.
    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// `count` packets arrived while the window was in use.
    pub(crate) fn on_acked(&mut self, count: u32, round_trip: &RoundTrip) {
        if self.window < self.threshold && round_trip.is_queueing() {
            self.threshold = self.window;
        }
        if self.window < self.threshold {
            self.window = (self.window + count).min(self.max);
            return;
        }
        let free = (self.window / PART_FREE).max(STEP_FREE_MIN);
        self.credit += count * if round_trip.is_queueing() { 1 } else { free };
        while self.credit >= self.window {
            self.credit -= self.window;
            self.window = (self.window + 1).min(self.max);
        }
    }

    /// A packet was lost, the first one of its round trip.
    pub(crate) fn on_loss(&mut self, round_trip: &RoundTrip) {
        let cut = if round_trip.is_queueing() { self.window / 2 } else { self.window / PART_FREE };
        self.window = (self.window - cut.max(1)).max(WINDOW_MIN);
        self.threshold = self.window;
        self.credit = 0;
    }

    /// Nothing was heard for the resend time, with so many packets in flight.
    pub(crate) fn on_timeout(&mut self, in_flight: u32) {
        self.threshold = (in_flight.min(self.window) / 2).max(WINDOW_MIN);
        self.window = 1;
        self.credit = 0;
    }
}
