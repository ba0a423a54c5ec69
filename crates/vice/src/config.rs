//! Settings of a file service, beside its partitions.

use lease::LeaseConfig;
use types::{Answer, limits};

/// Settings of a [`crate::Vice`].
#[derive(Clone, Copy, Debug)]
pub struct ViceConfig {
    /// Encodes an answer as the native protocol does: reply records on the partition contain these
    /// bytes.
    pub encode: fn(&Answer) -> Vec<u8>,
    /// Decodes it after a restart; `None` for bytes that are no answer.
    pub decode: fn(&[u8]) -> Option<Answer>,
    /// Times and tables of promises and locks.
    pub lease: LeaseConfig,
    /// Slots of one session.
    pub slots_max: u32,
    /// Calls that may wait for the end of the grace period; more are refused with `Busy`.
    pub waiting_calls_max: usize,
    /// Bytes of data of all these calls together.
    pub waiting_bytes_max: usize,
}

impl ViceConfig {
    /// The usual limits, with the given pair of functions for reply records.
    pub fn new(encode: fn(&Answer) -> Vec<u8>, decode: fn(&[u8]) -> Option<Answer>) -> Self {
        ViceConfig {
            encode,
            decode,
            lease: LeaseConfig::default(),
            slots_max: limits::SLOTS_MAX,
            waiting_calls_max: WAITING_CALLS_MAX,
            waiting_bytes_max: WAITING_BYTES_MAX,
        }
    }
}

/// A thousand clients with a few threads each, all stopped by one restart.
const WAITING_CALLS_MAX: usize = 8192;
/// Enough for the write-back of some clients, and no more memory than a small server has.
const WAITING_BYTES_MAX: usize = 128 << 20;
