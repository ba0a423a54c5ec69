//! When the client renews, when it probes, and when it drops a connection that does not answer.

use std::time::Duration;

use types::Time;
use types::limits::KEEP_ALIVE;

use crate::ChannelId;
use crate::limits::RENEWAL_TIME;

/// A renewal or probe that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub number: u64,
    pub channel: ChannelId,
    pub at: Time,
}

/// One kind of periodic message: renewals or probes.
#[derive(Debug)]
pub(super) struct Pulse {
    due: Time,
    outstanding: Option<Outstanding>,
    sent: u64,
}

impl Pulse {
    pub fn new() -> Pulse {
        Pulse { due: Time::NEVER, outstanding: None, sent: 0 }
    }

    pub fn set_due(&mut self, due: Time) {
        self.due = due;
    }

    pub fn is_due(&self, now: Time) -> bool {
        self.outstanding.is_none() && now >= self.due
    }

    /// Starts a message over `channel`; returns its number.
    pub fn start(&mut self, now: Time, channel: ChannelId) -> u64 {
        self.sent += 1;
        self.outstanding = Some(Outstanding { number: self.sent, channel, at: now });
        self.sent
    }

    /// Handles an answer; returns the message that it belongs to, if that is outstanding.
    pub fn answered(&mut self, number: u64, channel: ChannelId) -> Option<Outstanding> {
        self.outstanding.take_if(|sent| sent.number == number && sent.channel == channel)
    }

    /// The connection that has not answered in time.
    pub fn overdue(&self, now: Time) -> Option<ChannelId> {
        self.outstanding
            .filter(|outstanding| now >= outstanding.at + RENEWAL_TIME)
            .map(|outstanding| outstanding.channel)
    }

    /// A connection ended: its outstanding message is due again at once.
    pub fn on_lost(&mut self, now: Time, channel: ChannelId) {
        if self.outstanding.take_if(|sent| sent.channel == channel).is_some() {
            self.due = now;
        }
    }

    /// The next time to act; `can_send`: there is a connection to use.
    pub fn wake_at(&self, can_send: bool) -> Time {
        match self.outstanding {
            Some(outstanding) => outstanding.at + RENEWAL_TIME,
            None if can_send => self.due,
            None => Time::NEVER,
        }
    }
}

/// Interval between renewals: a third of the lease, and at most [`KEEP_ALIVE`].
pub(super) fn period(lease: Duration) -> Duration {
    KEEP_ALIVE.min(lease / 3)
}
