//! The effect of a write at the server.

use types::{BootVerifier, DataVersion, Status};

pub(crate) struct Landed {
    pub count: u32,
    pub status: Status,
    pub previous: DataVersion,
    pub verifier: BootVerifier,
}
