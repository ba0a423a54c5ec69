//! The credential under which a request comes.

use crate::RequestIdentity;

/// The identity that a request runs under: user and groups for the `posix` access model, and the
/// principal in the cell.
///
/// `groups` is `None` when the client did not look the supplementary groups up; the service then
/// answers [`crate::Fault::GroupsNeeded`] instead of a refusal that the groups could change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups, at most [`crate::limits::GROUPS_MAX`].
    pub groups: Option<Box<[u32]>>,
    /// The caller's identity in the cell. The server decides it; at a client it is always
    /// [`RequestIdentity::NAMED`].
    pub who: RequestIdentity,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: None, who: RequestIdentity::NAMED };

    /// Whether mode bits do not bind this caller: the superuser, if its authentication level is
    /// trusted.
    pub const fn is_root(&self) -> bool {
        self.uid == 0 && self.who.level.is_trusted()
    }

    /// Whether this is the superuser of the cell, an administrator with the rights of a server:
    /// root of a trusted host is not.
    pub const fn is_superuser(&self) -> bool {
        self.uid == 0 && self.who.level.is_own()
    }
}
