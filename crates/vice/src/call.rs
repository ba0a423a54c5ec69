//! One execution of a call: its circumstances, its effects beside the answer, and its result.

use std::os::fd::OwnedFd;

use lease::Output;
use store::{CommitScope, Feed};
use types::{Answer, Caller, Fault, FeedPlace, Fid, ReplyAddress, Time, Timestamp, VolumeId};

use crate::cell::Principals;

/// The circumstances of one execution of a call.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// The steady clock.
    pub now: Time,
    /// The time that files get.
    pub wall: Timestamp,
    /// The credential under which the call came.
    pub caller: &'a Caller,
    /// The address of its reply.
    pub origin: ReplyAddress,
    /// Gathers its changes. Consequences that come later, of this call or another, are not
    /// gathered.
    pub scope: Option<&'a CommitScope>,
}

impl<'a> Execution<'a> {
    /// One whose changes are not gathered.
    pub fn new(
        now: Time,
        wall: Timestamp,
        caller: &'a Caller,
        origin: ReplyAddress,
    ) -> Execution<'a> {
        Execution { now, wall, caller, origin, scope: None }
    }
}

/// The circumstances of an execution, and its effects beside the answer.
pub(crate) struct CallContext<'a> {
    pub now: Time,
    pub wall: Timestamp,
    pub caller: &'a Caller,
    pub principals: &'a dyn Principals,
    pub origin: ReplyAddress,
    pub scope: Option<&'a CommitScope>,
    /// Handled once no lock is held.
    pub events: Vec<Output>,
    /// The session answered the change itself, with this slot for its new file (0: none).
    pub delegated: Option<u64>,
    /// The session claims a lock that it had before.
    pub reclaims: bool,
    /// Directories that other sessions cover: the call is repeated when one of them is back. A call
    /// that adds to it fails with `Busy`, which is then not sent.
    pub waits: Vec<Fid>,
    /// Number of changes of the volume's access model when the call began.
    pub models: u64,
    /// Number of changes of rights when the call began.
    pub rights_changes: u64,
    /// The call must be executed again: what it read is stale.
    pub again: bool,
    /// The part of a feed that standbys must have before its answer is sent.
    pub fed: Option<Fed>,
}

/// The part of a volume's feed that standbys must have before a reply is sent (SB-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fed {
    pub volume: VolumeId,
    /// The entries of the volume's feed before this place.
    pub place: FeedPlace,
    /// They must have it on disk.
    pub stable: bool,
}

impl Fed {
    /// All that a volume has fed so far. Without a feed no standby can ever have it: then the reply
    /// waits until no standby may take over.
    pub fn by(volume: &store::Volume, stable: bool) -> Fed {
        let never = FeedPlace { feed: 0, position: u64::MAX };
        let place = Feed::of(volume).map_or(never, |feed| feed.end());
        Fed { volume: volume.id(), place, stable }
    }
}

impl<'a> CallContext<'a> {
    /// An execution from the beginning.
    pub fn new(
        Execution { now, wall, caller, origin, scope }: Execution<'a>,
        principals: &'a dyn Principals,
    ) -> CallContext<'a> {
        CallContext {
            now,
            wall,
            caller,
            principals,
            origin,
            scope,
            events: Vec::new(),
            delegated: None,
            reclaims: false,
            waits: Vec::new(),
            models: 0,
            rights_changes: 0,
            again: false,
            fed: None,
        }
    }

    /// Whether the session had what it asks for, or has answered the change itself, before the
    /// volume came here.
    pub fn is_claim(&self) -> bool {
        self.delegated.is_some() || self.reclaims
    }

    /// The caller, with the source of its principals.
    pub fn asker(&self) -> CallerView<'a> {
        CallerView { caller: self.caller, principals: self.principals }
    }
}

/// The caller, and the source of its principals.
#[derive(Clone, Copy)]
pub(crate) struct CallerView<'a> {
    pub caller: &'a Caller,
    pub principals: &'a dyn Principals,
}

impl CallerView<'_> {
    /// Whether the caller is an administrator of the cell.
    ///
    /// # Errors
    /// As [`Principals::cps`].
    pub fn is_administrator(self) -> Result<bool, Fault> {
        Ok(self.caller.is_root() || self.principals.cps(self.caller)?.is_administrator())
    }
}

/// Result of a call that was not refused.
pub(crate) enum CallOutcome {
    /// The call is done.
    Answer(Answer),
    /// The call is done, and a descriptor goes with the answer.
    Body(Answer, OwnedFd),
    /// The answer comes later: when a ticket is done or a lock is granted.
    Waits,
}
