//! When challenges and responses are sent.
//!
//! A server's challenge is owed from the first data packet, and again after
//! [`CHALLENGE_INTERVAL`] while calls wait. It is sent only if it is not larger than what the
//! address has sent (RX-1). A client answers a challenge at most once in [`RESPONSE_INTERVAL`], so
//! replayed challenges cost little.

use bytes::Bytes;
use types::Time;

use crate::limits::{CHALLENGE_INTERVAL, CHALLENGE_PATIENCE, RESPONSE_INTERVAL};

#[derive(Debug)]
pub(crate) struct Authentication {
    made_at: Time,
    challenge_owed: bool,
    challenged_at: Option<Time>,
    /// The response to send.
    response: Option<Bytes>,
    responded_at: Option<Time>,
}

impl Authentication {
    pub(crate) fn new(now: Time) -> Self {
        Authentication {
            made_at: now,
            challenge_owed: false,
            challenged_at: None,
            response: None,
            responded_at: None,
        }
    }

    /// A call waits for a proof.
    pub(crate) fn on_waiting(&mut self) {
        self.challenge_owed |= self.challenged_at.is_none();
    }

    /// Time went by. Whether the peer has had time enough.
    pub(crate) fn on_tick(&mut self, now: Time, calls_wait: bool) -> bool {
        if let Some(at) = self.challenged_at {
            self.challenge_owed |= calls_wait && now >= at + CHALLENGE_INTERVAL;
        }
        now >= self.made_at + CHALLENGE_PATIENCE
    }

    pub(crate) fn deadline(&self) -> Time {
        let patience = self.made_at + CHALLENGE_PATIENCE;
        match self.challenged_at {
            Some(at) if !self.challenge_owed => patience.min(at + CHALLENGE_INTERVAL),
            _ => patience,
        }
    }

    pub(crate) fn owes_challenge(&self) -> bool {
        self.challenge_owed
    }

    pub(crate) fn on_challenge_sent(&mut self, now: Time) {
        self.challenge_owed = false;
        self.challenged_at = Some(now);
    }

    /// Whether a challenge was ever sent; without one no response is looked at.
    pub(crate) fn has_challenged(&self) -> bool {
        self.challenged_at.is_some()
    }

    /// Whether a challenge may be answered now.
    pub(crate) fn may_respond(&self, now: Time) -> bool {
        self.response.is_none() && self.responded_at.is_none_or(|at| now >= at + RESPONSE_INTERVAL)
    }

    pub(crate) fn respond(&mut self, response: Bytes) {
        self.response = Some(response);
    }

    pub(crate) fn response(&self) -> Option<&Bytes> {
        self.response.as_ref()
    }

    pub(crate) fn on_response_sent(&mut self, now: Time) {
        self.response = None;
        self.responded_at = Some(now);
    }
}
