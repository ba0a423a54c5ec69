//! The one steady clock of a client process. Lease times, breaks and calls are all told on it.

use std::sync::OnceLock;
use std::time::Instant;

use types::Time;

static START: OnceLock<Instant> = OnceLock::new();

/// Steady time since this process first asked.
pub fn now() -> Time {
    let start = *START.get_or_init(Instant::now);
    Time::from_start(start.elapsed())
}

#[cfg(test)]
mod tests {
    #[test]
    fn never_runs_backwards() {
        let first = super::now();
        assert!(super::now() >= first);
    }
}
