//! Access checks, for both access models. The volume decides which one applies: lists where its
//! root has one, otherwise mode bits. Imports `call` and `volumes`.

mod acl;
mod posix;

use store::Vnode;
use types::{Caller, Fault, Status};

use crate::call::CallerView;
use crate::volumes::ViceVolume;

pub(crate) use acl::rights;

/// The access that a call requests to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// See a file's status.
    See,
    /// See a directory's entries.
    List,
    /// Find one entry of a directory.
    Search,
    /// Make entries of a directory.
    Insert,
    /// Remove entries of a directory.
    Delete,
    /// Give a directory another parent.
    Move,
    /// Read attributes of a file or directory.
    Read,
    /// Change a file's size or attributes by name.
    Write,
    /// Read a file's bytes.
    ReadData,
    /// Change a file's bytes.
    WriteData,
    /// Lock a file against changes.
    LockShared,
    /// Lock a file against any use.
    LockExclusive,
    /// Change owner, mode or access list.
    Administer,
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

/// As [`need`] of a volume where mode bits decide, for another status than the present one.
///
/// # Errors
/// As [`need`].
pub(crate) fn need_by_mode(caller: &Caller, status: &Status, right: Right) -> Result<(), Fault> {
    posix::need(caller, status, right)
}

/// Checks that the caller may remove `victim`'s entry from `dir` (or replace it).
///
/// # Errors
/// As [`need`], and `NotPermitted` in a sticky directory where the caller owns neither.
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

/// As [`need`], but returns whether the access is allowed.
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

/// Checks that the caller may make an entry in this directory, which must have a name itself.
///
/// # Errors
/// `NotFound`, `AccessDenied`, `GroupsNeeded`.
pub(crate) fn need_room(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    dir: &Vnode,
) -> Result<(), Fault> {
    if dir.status.links == 0 {
        return Err(Fault::NotFound);
    }
    need(asker, volume, dir, Right::Insert)
}
