//! Whether the server is nearly full. Then writes go through, so that the error arrives at the
//! write that caused it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::VolumeStatus;

/// How long writes go through after a sign of fullness.
const CAREFUL: Duration = Duration::from_secs(30);

/// The client asks for the volume's status after so many bytes, but not more often than once in
/// [`ASK_EVERY`].
const ASK_BYTES: u64 = 16 << 20;

const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    careful_until: Option<Instant>,
    written: u64,
    asked: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct Space(Mutex<State>);

impl Space {
    pub fn refused(&self) {
        self.0.lock().careful_until = Some(Instant::now() + CAREFUL);
    }

    pub fn is_scarce(&self) -> bool {
        self.0.lock().careful_until.is_some_and(|until| Instant::now() < until)
    }

    /// `bytes` more were sent. True: ask for the volume's status now.
    pub fn sent(&self, bytes: usize) -> bool {
        let mut state = self.0.lock();
        state.written += bytes as u64;
        let ask =
            state.written >= ASK_BYTES && state.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if ask {
            state.written = 0;
            state.asked = Some(Instant::now());
        }
        ask
    }

    /// Takes the volume's status; unsent writes may have up to `budget` bytes.
    pub fn learn(&self, volume: &VolumeStatus, budget: u64) {
        let by_quota = if volume.quota_bytes == 0 {
            u64::MAX
        } else {
            volume.quota_bytes.saturating_sub(volume.used_bytes)
        };
        if by_quota.min(volume.partition_free_bytes) < budget {
            self.refused();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scarce_is_less_than_the_dirty_bytes_allowed() {
        let volume = VolumeStatus { partition_free_bytes: 100, ..VolumeStatus::default() };
        let space = Space::default();
        space.learn(&volume, 100);
        assert!(!space.is_scarce());
        space.learn(&VolumeStatus { quota_bytes: 1000, used_bytes: 901, ..volume }, 100);
        assert!(space.is_scarce());
        assert!(!space.sent(1));
        assert!(space.sent(ASK_BYTES as usize));
        assert!(!space.sent(ASK_BYTES as usize), "not twice in a second");
    }
}
