//! The effect of a write at the server.

use types::{BootVerifier, Status};

pub(crate) struct Landed {
    pub count: u32,
    pub status: Status,
    pub previous: u64,
    pub verifier: BootVerifier,
}
