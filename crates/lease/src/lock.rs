//! Locks. (The table is under construction; signatures are final.)

use types::{ByteRange, Fault, Fid, LockConflict, LockFamily, LockMode, LockOwner, Origin, SessionId};

use crate::output::Output;

/// A lock that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Of which file.
    pub fid: Fid,
    /// Who asks.
    pub session: SessionId,
    /// For whom within the session.
    pub owner: LockOwner,
    /// That owner's process id, for `test`.
    pub pid: u32,
    /// Which family.
    pub family: LockFamily,
    /// Which bytes; `flock` locks always cover all.
    pub range: ByteRange,
    /// How.
    pub mode: LockMode,
}

/// What became of a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// Locked.
    Granted,
    /// The answer is an [`Output::LockDone`] to come.
    Waiting,
    /// Refused.
    Refused(Fault),
}

#[derive(Debug, Default)]
pub(crate) struct Locks {}

impl Locks {
    pub fn lock(&mut self, _origin: Origin, _request: &LockRequest, _wait: bool) -> LockOutcome {
        LockOutcome::Refused(Fault::Unsupported)
    }
    pub fn defer(&mut self, _origin: Origin, _request: &LockRequest, _wait: bool) {}
    pub fn undefer(&mut self, _out: &mut Vec<Output>) {}
    pub fn unlock(&mut self, _request: &LockRequest, _out: &mut Vec<Output>) {}
    pub fn release_owner(&mut self, _session: SessionId, _fid: Fid, _owner: LockOwner, _out: &mut Vec<Output>) {}
    pub fn test(&self, _request: &LockRequest) -> Option<LockConflict> {
        None
    }
    pub fn cancel(&mut self, _origin: Origin, _out: &mut Vec<Output>) -> bool {
        false
    }
    pub fn end(&mut self, _session: SessionId, _out: &mut Vec<Output>) {}
    pub fn len(&self) -> usize {
        0
    }
    pub fn waiting(&self) -> usize {
        0
    }
}
