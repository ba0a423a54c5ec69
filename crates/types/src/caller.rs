//! Who asks.

/// The identity that a request runs under, as the `posix` access model sees it.
///
/// `groups` is `None` when the client did not look the supplementary groups up; the service then answers
/// [`crate::Fault::GroupsNeeded`] instead of a refusal that the groups could turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups, at most [`crate::limits::GROUPS_MAX`].
    pub groups: Option<Box<[u32]>>,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: None };

    /// Whether mode bits do not bind this caller.
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }
}
