//! Who may: the seam behind which access models lie. Which one rules is a property of the volume:
//! lists where its root has one, otherwise mode bits.

mod acl;
mod posix;
mod principals;

use store::Vnode;
use types::{Caller, Fault, Status};

use crate::volumes::ViceVolume;

pub(crate) use acl::{ATTRIBUTE, VolumeAcls};
pub use principals::Principals;

/// What somebody wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// See what it is.
    See,
    /// See a directory's entries.
    List,
    /// Find one entry of a directory.
    Search,
    /// Make entries of a directory.
    Insert,
    /// Take entries of a directory away.
    Delete,
    /// Give a directory another parent.
    Move,
    /// See a file's attributes, or a directory's.
    Read,
    /// Change a file's size or attributes by name.
    Write,
    /// See a file's bytes.
    ReadData,
    /// Change them.
    WriteData,
    /// Keep others from changing it.
    LockShared,
    /// Keep others from using it.
    LockExclusive,
    /// Change who may do what.
    Administer,
}

/// Who asks, and whoever knows what that means.
#[derive(Clone, Copy)]
pub(crate) struct CallerView<'a> {
    pub caller: &'a Caller,
    pub principals: &'a dyn Principals,
}

impl CallerView<'_> {
    /// Whether he is an administrator of the cell.
    ///
    /// # Errors
    /// As [`Principals::cps`].
    pub fn is_administrator(self) -> Result<bool, Fault> {
        Ok(self.caller.is_root() || self.principals.cps(self.caller)?.is_administrator())
    }
}

/// # Errors
/// `AccessDenied`; `GroupsNeeded` if that depends on groups that the caller did not show.
pub(crate) fn need(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    right: Right,
) -> Result<(), Fault> {
    if volume.lists.decide() {
        acl::need(asker, volume, vnode, right)
    } else {
        posix::need(asker.caller, &vnode.status, right)
    }
}

/// As [`need`] of a volume where mode bits decide, by another status than the present one.
///
/// # Errors
/// As [`need`].
pub(crate) fn need_by_mode(caller: &Caller, status: &Status, right: Right) -> Result<(), Fault> {
    posix::need(caller, status, right)
}

/// Whether the caller may take `victim`'s entry out of `dir` (or put another in its place).
///
/// # Errors
/// As [`need`], and `NotPermitted` in a sticky directory where neither is the caller's.
pub(crate) fn need_delete(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    dir: &Vnode,
    victim: &Vnode,
) -> Result<(), Fault> {
    need(asker, volume, dir, Right::Delete)?;
    if volume.lists.decide() {
        Ok(())
    } else {
        posix::need_unstuck(asker.caller, &dir.status, &victim.status)
    }
}

/// As [`need`], as a question.
///
/// # Errors
/// `GroupsNeeded`.
pub(crate) fn may(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    right: Right,
) -> Result<bool, Fault> {
    match need(asker, volume, vnode, right) {
        Ok(()) => Ok(true),
        Err(Fault::AccessDenied) => Ok(false),
        Err(other) => Err(other),
    }
}
