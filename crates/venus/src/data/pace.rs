//! The speed of one handle's stream.

use std::time::{Duration, Instant};

/// The speed of one handle's stream, since its first read.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    began: Option<(Instant, u64)>,
}

impl Pace {
    /// A read of `start..end` that follows the last one or not. Returns whether the stream has come
    /// so far as `far` bytes at `rate` bytes a second or more.
    pub fn is_fast(
        &mut self,
        now: Instant,
        follows: bool,
        (start, end): (u64, u64),
        far: u64,
        rate: u64,
    ) -> bool {
        let began = self.began.filter(|_| follows);
        let (since, from) = *self.began.insert(began.unwrap_or((now, start)));
        let bytes = end.saturating_sub(from);
        bytes >= far
            && Duration::from_millis(bytes.saturating_mul(1000) / rate.max(1))
                >= now.saturating_duration_since(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_stream_is_fast_when_it_went_far_in_little_time() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::default();
        let read = |pace: &mut Pace, now, at: u64| {
            pace.is_fast(now, true, (at * MIB, (at + 1) * MIB), 32 * MIB, 16 * MIB)
        };
        assert!(!read(&mut pace, start, 0));
        assert!(!read(&mut pace, after(10), 30), "not far enough");
        assert!(read(&mut pace, after(20), 31));
        assert!(!read(&mut pace, after(9000), 63), "64 MiB in nine seconds");
        assert!(
            !pace.is_fast(after(9010), false, (500 * MIB, 600 * MIB), 200 * MIB, 16 * MIB),
            "begins anew"
        );
    }
}
