//! When to renew, when to probe, and when a connection that does not answer is given up.

use std::time::Duration;

use types::Time;
use types::limits::KEEP_ALIVE;

use crate::ChannelId;
use crate::limits::RENEWAL_TIME;

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub number: u64,
    pub channel: ChannelId,
    pub at: Time,
}

/// One kind of question that is asked again and again.
#[derive(Debug)]
pub(super) struct Pulse {
    due: Time,
    asked: Option<Asked>,
    asked_ever: u64,
}

impl Pulse {
    pub fn new() -> Pulse {
        Pulse { due: Time::NEVER, asked: None, asked_ever: 0 }
    }

    /// The next question is due then.
    pub fn set_due(&mut self, due: Time) {
        self.due = due;
    }

    /// Whether to ask now.
    pub fn is_due(&self, now: Time) -> bool {
        self.asked.is_none() && now >= self.due
    }

    /// Asks over `channel`; returns the question's number.
    pub fn ask(&mut self, now: Time, channel: ChannelId) -> u64 {
        self.asked_ever += 1;
        self.asked = Some(Asked { number: self.asked_ever, channel, at: now });
        self.asked_ever
    }

    /// An answer came; returns its question if that is the one that waits.
    pub fn answered(&mut self, number: u64, channel: ChannelId) -> Option<Asked> {
        self.asked.take_if(|asked| asked.number == number && asked.channel == channel)
    }

    /// The connection that has not answered in time.
    pub fn overdue(&self, now: Time) -> Option<ChannelId> {
        self.asked.filter(|asked| now >= asked.at + RENEWAL_TIME).map(|asked| asked.channel)
    }

    /// A connection is gone: what was asked over it is asked again at once.
    pub fn on_lost(&mut self, now: Time, channel: ChannelId) {
        if self.asked.take_if(|asked| asked.channel == channel).is_some() {
            self.due = now;
        }
    }

    /// When something is to be done; `can_ask`: there is a connection to ask over.
    pub fn wake_at(&self, can_ask: bool) -> Time {
        match self.asked {
            Some(asked) => asked.at + RENEWAL_TIME,
            None if can_ask => self.due,
            None => Time::NEVER,
        }
    }
}

/// How often to renew: three times in a lease, and not more rarely than [`KEEP_ALIVE`].
pub(super) fn period(lease: Duration) -> Duration {
    KEEP_ALIVE.min(lease / 3)
}
