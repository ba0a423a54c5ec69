//! Clocks that run apart: each machine has its own, at most 0.5 % fast or slow, so that two differ
//! by 1 % at most ([`types::limits::LEASE_GRACE`] covers that, with room).

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use types::Time;

const SKEW_PPM_MAX: i64 = 5_000;

/// One machine's steady clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ppm: i64,
    offset: Duration,
}

impl Clock {
    /// A clock with a random offset and rate.
    pub fn random(rng: &mut SmallRng) -> Self {
        let ppm = match rng.random_range(0..3) {
            0 => -SKEW_PPM_MAX,
            1 => SKEW_PPM_MAX,
            _ => rng.random_range(-SKEW_PPM_MAX..=SKEW_PPM_MAX),
        };
        Clock { ppm, offset: Duration::from_secs(rng.random_range(0..1_000_000)) }
    }

    /// The clock's reading at a moment of the simulation.
    pub fn read(&self, at: Time) -> Time {
        let nanos = at.since_start().as_nanos() as i128;
        let shown = nanos + nanos * i128::from(self.ppm) / 1_000_000;
        Time::from_start(self.offset + Duration::from_nanos(shown as u64))
    }

    /// The first moment at which it shows `local`, or a nanosecond or two later.
    pub fn when(&self, local: Time) -> Time {
        if local == Time::NEVER {
            return Time::NEVER;
        }
        let shown = local.since_start().saturating_sub(self.offset).as_nanos() as i128;
        let nanos = shown * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        Time::from_start(Duration::from_nanos(nanos as u64 + 2))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_clock_shows_a_time_when_it_says() {
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..1000 {
            let clock = Clock::random(&mut rng);
            let at = Time::from_start(Duration::from_nanos(rng.random_range(0..300_000_000_000)));
            let again = clock.when(clock.read(at));
            assert!(clock.read(again) >= clock.read(at), "{clock:?} {at:?}");
            assert!(again.since(at) < Duration::from_nanos(5));
        }
    }
}
