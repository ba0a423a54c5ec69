//! When the client renews, when it probes, and when it drops a connection that does not answer.

use std::time::Duration;

use types::Time;
use types::limits::KEEP_ALIVE;

use crate::limits::RENEWAL_TIME;
use crate::{ChannelId, PeerError};

/// First pause before asking again for a renewal that the server withheld, because a break is
/// overdue or no user has called through the session yet: short after an attach, when a user is
/// about to call, then doubled each time up to the last pause.
const WITHHELD_FIRST: Duration = Duration::from_millis(25);
const WITHHELD_LAST: Duration = Duration::from_millis(500);

/// A renewal or probe that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outstanding {
    number: u64,
    channel: ChannelId,
    at: Time,
}

/// One kind of periodic message: renewals or probes.
#[derive(Debug)]
struct Pulse {
    due: Time,
    outstanding: Option<Outstanding>,
    sent: u64,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse { due: Time::NEVER, outstanding: None, sent: 0 }
    }

    fn set_due(&mut self, due: Time) {
        self.due = due;
    }

    fn is_due(&self, now: Time) -> bool {
        self.outstanding.is_none() && now >= self.due
    }

    /// Starts a message over `channel`; returns its number.
    fn start(&mut self, now: Time, channel: ChannelId) -> u64 {
        debug_assert!(self.outstanding.is_none(), "CB-4: one message at a time is timed");
        self.sent += 1;
        self.outstanding = Some(Outstanding { number: self.sent, channel, at: now });
        self.sent
    }

    /// Handles an answer; returns the message that it belongs to, if that is outstanding.
    fn answered(&mut self, number: u64, channel: ChannelId) -> Option<Outstanding> {
        self.outstanding.take_if(|sent| sent.number == number && sent.channel == channel)
    }

    /// The connection that has not answered in time.
    fn overdue(&self, now: Time) -> Option<ChannelId> {
        self.outstanding
            .filter(|outstanding| now >= outstanding.at + RENEWAL_TIME)
            .map(|outstanding| outstanding.channel)
    }

    /// A connection ended: its outstanding message is due again at once.
    fn on_lost(&mut self, now: Time, channel: ChannelId) {
        if self.outstanding.take_if(|sent| sent.channel == channel).is_some() {
            self.due = now;
        }
    }

    /// The next time to act; `can_send`: there is a connection to use.
    fn wake_at(&self, can_send: bool) -> Time {
        match self.outstanding {
            Some(outstanding) => outstanding.at + RENEWAL_TIME,
            None if can_send => self.due,
            None => Time::NEVER,
        }
    }
}

/// The renewals of the lease, and the probes of the operations connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    renewal: Pulse,
    probe: Pulse,
    /// Interval between two of the same kind: a third of the lease, and at most [`KEEP_ALIVE`].
    period: Duration,
    /// The last pause before asking again for a withheld renewal.
    withheld: Duration,
}

impl KeepAlive {
    pub fn new() -> KeepAlive {
        let (renewal, probe) = (Pulse::new(), Pulse::new());
        KeepAlive { renewal, probe, period: Duration::MAX, withheld: WITHHELD_LAST }
    }

    /// The session is attached. `renewed`: when the request was sent that renewed the lease;
    /// `None`: the server withheld that.
    pub fn on_attached(&mut self, now: Time, lease: Duration, renewed: Option<Time>) {
        self.period = KEEP_ALIVE.min(lease / 3);
        self.withheld = WITHHELD_FIRST;
        let period = self.period;
        self.renewal.set_due(renewed.map_or(now + WITHHELD_FIRST, |sent_at| sent_at + period));
    }

    /// Renewals run over the back connection from now on.
    pub fn begin_probes(&mut self, now: Time) {
        self.probe.set_due(now + self.period);
    }

    /// The number of a renewal to send, if one is due.
    pub fn renewal_due(&mut self, now: Time, channel: ChannelId) -> Option<u64> {
        self.renewal.is_due(now).then(|| self.renewal.start(now, channel))
    }

    /// The number of a probe to send, if one is due.
    pub fn probe_due(&mut self, now: Time, channel: ChannelId) -> Option<u64> {
        self.probe.is_due(now).then(|| self.probe.start(now, channel))
    }

    /// A renewal was answered; returns when it was sent.
    ///
    /// # Errors
    /// `Unasked`.
    pub fn on_renewed(
        &mut self,
        now: Time,
        channel: ChannelId,
        number: u64,
        renewed: bool,
    ) -> Result<Time, PeerError> {
        let sent = self.renewal.answered(number, channel).ok_or(PeerError::Unasked)?;
        if renewed {
            self.renewal.set_due(sent.at + self.period);
        } else {
            self.withheld = (self.withheld * 2).min(WITHHELD_LAST);
            self.renewal.set_due(now + self.withheld);
        }
        Ok(sent.at)
    }

    /// A probe was answered.
    ///
    /// # Errors
    /// `Unasked`.
    pub fn on_probed(&mut self, channel: ChannelId, number: u64) -> Result<(), PeerError> {
        let sent = self.probe.answered(number, channel).ok_or(PeerError::Unasked)?;
        self.probe.set_due(sent.at + self.period);
        Ok(())
    }

    /// The connections that have not answered in time.
    pub fn overdue(&self, now: Time) -> [Option<ChannelId>; 2] {
        [self.renewal.overdue(now), self.probe.overdue(now)]
    }

    /// A connection ended.
    pub fn on_lost(&mut self, now: Time, channel: ChannelId) {
        self.renewal.on_lost(now, channel);
        self.probe.on_lost(now, channel);
    }

    /// The next time to act, if there is a connection to renew or to probe over.
    pub fn wake_at(&self, can_renew: bool, can_probe: bool) -> Time {
        self.renewal.wake_at(can_renew).min(self.probe.wake_at(can_probe))
    }
}
