//! The round trip of a path, and the time until a packet is sent again (RFC 6298).

use std::time::Duration;

use types::Time;

use crate::limits::{RESEND_FIRST, RESEND_FLOOR, RESEND_MAX, RESEND_SLACK};

/// The shortest round trip is measured anew after this time, because paths change.
const FLOOR_AGE: Duration = Duration::from_secs(10);

/// Measurements of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    deviation: Duration,
    /// The shortest of late, and when it was measured.
    floor: Option<(Duration, Time)>,
}

impl RoundTrip {
    /// Takes in one measurement.
    pub(crate) fn sample(&mut self, now: Time, took: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(took);
                self.deviation = took / 2;
            }
            Some(smoothed) => {
                self.deviation = (self.deviation * 3 + smoothed.abs_diff(took)) / 4;
                self.smoothed = Some((smoothed * 7 + took) / 8);
            }
        }
        let older = self.floor.filter(|(_, at)| now.since(*at) < FLOOR_AGE);
        self.floor = match older {
            Some((floor, at)) if floor < took => Some((floor, at)),
            _ => Some((took, now)),
        };
    }

    /// The smoothed round trip, or zero before the first measurement.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// Time until a packet without an answer is sent again, after `backoff` such times.
    pub(crate) fn resend_after(&self, backoff: u32) -> Duration {
        let base = match self.smoothed {
            None => RESEND_FIRST,
            Some(smoothed) => (smoothed + self.deviation * 4).max(RESEND_FLOOR) + RESEND_SLACK,
        };
        base.saturating_mul(1 << backoff.min(16)).min(RESEND_MAX)
    }

    /// Whether packets wait in a queue on the way: the round trip is well above its shortest.
    pub(crate) fn is_queueing(&self) -> bool {
        let (Some(smoothed), Some((floor, _))) = (self.smoothed, self.floor) else { return false };
        smoothed > floor + floor / 8 + Duration::from_millis(1)
    }
}
