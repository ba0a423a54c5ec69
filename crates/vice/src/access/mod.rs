//! Who may: the seam behind which access models lie. Which model rules is a property of the volume.

mod posix;

use types::{Caller, Fault, Status};

pub(crate) use posix::{GROUP_EXECUTE, SET_GID, in_group, is_sticky, owns, without_privileges};

/// What somebody wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// See a directory's entries.
    List,
    /// Find one entry of a directory.
    Search,
    /// Make, move or remove entries of a directory.
    ChangeEntries,
    /// See a file's bytes or its attributes.
    Read,
    /// Change them.
    Write,
}

/// An access model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessModel {
    /// Mode bits, owner and groups.
    Posix,
}

impl AccessModel {
    /// # Errors
    /// `AccessDenied`; `GroupsNeeded` if that depends on groups that the caller did not show.
    pub fn need(self, caller: &Caller, status: &Status, right: Right) -> Result<(), Fault> {
        match self {
            AccessModel::Posix => posix::need(caller, status, right),
        }
    }

    /// Whether `caller` may take `victim`'s entry out of `dir` (or put another in its place).
    ///
    /// # Errors
    /// As `need`, and `NotPermitted` in a sticky directory where neither is the caller's.
    pub fn need_delete(self, caller: &Caller, dir: &Status, victim: &Status) -> Result<(), Fault> {
        self.need(caller, dir, Right::ChangeEntries)?;
        match self {
            AccessModel::Posix => posix::need_unstuck(caller, dir, victim),
        }
    }

    /// As `need`, as a question.
    ///
    /// # Errors
    /// `GroupsNeeded`.
    pub fn may(self, caller: &Caller, status: &Status, right: Right) -> Result<bool, Fault> {
        match self.need(caller, status, right) {
            Ok(()) => Ok(true),
            Err(Fault::AccessDenied) => Ok(false),
            Err(other) => Err(other),
        }
    }
}
