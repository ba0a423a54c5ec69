//! A lock that is held.

use types::{ByteRange, LockMode, LockOwner, SessionId};

use super::intervals::Ranged;
use super::{LockFamilyOrd, SessionOwner};

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLock {
    pub owner: SessionOwner,
    pub pid: u32,
    pub range: ByteRange,
    pub mode: LockMode,
}

impl Ranged for HeldLock {
    type Key = SessionOwner;
    const FIRST: SessionOwner =
        SessionOwner { session: SessionId(0), owner: LockOwner(0), family: LockFamilyOrd::Posix };
    const LAST: SessionOwner = SessionOwner {
        session: SessionId(u64::MAX),
        owner: LockOwner(u64::MAX),
        family: LockFamilyOrd::Flock,
    };

    fn key(&self) -> SessionOwner {
        self.owner
    }

    fn range(&self) -> ByteRange {
        self.range
    }
}
