//! A file's record of its preallocated body (`passthrough/preallocated.rs`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::BodyStamp;

/// A file's record of its blank. A leaf among the locks.
pub(crate) struct ScratchBody {
    pub body: Arc<OwnedFd>,
    /// The state at the last seal.
    pub sealed: Option<BodyStamp>,
    pub seals: u32,
    pub idle: bool,
    /// It was idle all the time since the seal, so nothing wrote to it. Saves asking for its times.
    pub still: bool,
    /// The file was read otherwise than from the blank, by advice to read ahead.
    pub read_beside: bool,
    /// It could not be adopted: the written bytes are lost.
    pub lost: bool,
}

impl ScratchBody {
    pub fn new(body: Arc<OwnedFd>) -> Self {
        let sealed = BodyStamp::of(&body);
        ScratchBody {
            body,
            sealed,
            seals: 0,
            idle: false,
            still: false,
            read_beside: false,
            lost: false,
        }
    }

    /// The bytes written since the seal are worth nothing any more.
    pub fn drop_unsealed(&mut self) {
        self.sealed = BodyStamp::of(&self.body);
        self.still = self.idle;
    }

    pub fn is_behind(&mut self) -> bool {
        if self.lost || self.still {
            return false;
        }
        let behind = BodyStamp::of(&self.body) != self.sealed;
        self.still = self.idle && !behind;
        behind
    }
}

/// Sets a blank's length. Our descriptor cannot write, so that the kernel's leases distinguish it
/// from others'.
pub(crate) fn set_length(body: &OwnedFd, length: u64) -> rustix::io::Result<()> {
    mem::length::set(body.as_fd(), length)
}
