//! Access checks: the classic rules of mode bits, with every group of the caller known, or lists
//! (`lists.rs`) where the root has one.

use types::{AuthLevel, Caller, Fault, Fid, Kind, Status};

use crate::tree::{ModelContext, ModelTree};

const READ: u16 = 4;
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

pub const SET_UID: u16 = 0o4000;
pub const SET_GID: u16 = 0o2000;
pub const STICKY: u16 = 0o1000;
pub const SET_IDS: u16 = 0o6000;
pub const GROUP_EXECUTE: u16 = 0o010;

/// The access that a call requests to a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedAccess {
    See,
    List,
    Search,
    Insert,
    Delete,
    Move,
    ReadXattr,
    Write,
    ReadData,
    WriteData,
    Administer,
}

/// A caller without proof: it owns no file and is in no group.
fn is_unknown(caller: &Caller) -> bool {
    !caller.who.level.is_proved()
}

/// A caller whose host checks the mode bits itself when a file is opened.
pub fn is_trusted(caller: &Caller) -> bool {
    matches!(caller.who.level, AuthLevel::Named | AuthLevel::Server | AuthLevel::Host)
}

pub fn in_group(caller: &Caller, gid: u32) -> bool {
    !is_unknown(caller)
        && (caller.gid == gid || caller.groups.as_deref().unwrap_or_default().contains(&gid))
}

pub fn owns(caller: &Caller, status: &Status) -> bool {
    caller.is_root() || !is_unknown(caller) && caller.uid == status.uid
}

/// The three classes: the owner is judged by the owner's bits even if the group's would allow more,
/// and so on.
fn allowed(caller: &Caller, status: &Status, wanted: u16) -> bool {
    let class = if is_unknown(caller) {
        0
    } else if caller.uid == status.uid {
        6
    } else if in_group(caller, status.gid) {
        3
    } else {
        0
    };
    caller.is_root() || (status.mode >> class) & wanted == wanted
}

impl ModelTree {
    pub(crate) fn may(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        want: RequestedAccess,
    ) -> Result<bool, Fault> {
        let status = &self.node(fid)?.status;
        if self.decides() {
            return Ok(self.listed(ask.caller, fid, want));
        }
        let wanted = match want {
            // A caller learns a fid only from a directory that it may search.
            RequestedAccess::See => 0,
            RequestedAccess::ReadData | RequestedAccess::WriteData
                if is_trusted(ask.caller) || owns(ask.caller, status) =>
            {
                0
            }
            RequestedAccess::ReadData => return Ok(self.allows_data(ask, fid, &[READ, SEARCH])),
            RequestedAccess::WriteData => return Ok(self.allows_data(ask, fid, &[WRITE])),
            RequestedAccess::List | RequestedAccess::ReadXattr => READ,
            RequestedAccess::Search => SEARCH,
            RequestedAccess::Insert | RequestedAccess::Delete => WRITE | SEARCH,
            RequestedAccess::Move | RequestedAccess::Write => WRITE,
            RequestedAccess::Administer => return Ok(owns(ask.caller, status)),
        };
        Ok(allowed(ask.caller, status, wanted))
    }

    /// Whether the mode allows any of these bits, as it is or as it was while the session had the
    /// file open.
    fn allows_data(&self, ask: ModelContext<'_>, fid: Fid, any: &[u16]) -> bool {
        let now = self.nodes[&fid].status;
        let before = self.opened.get(&(ask.session, fid)).into_iter().flatten();
        let states = before
            .map(|(mode, uid, gid)| Status { mode: *mode, uid: *uid, gid: *gid, ..now })
            .chain([now]);
        states.into_iter().any(|status| {
            owns(ask.caller, &status)
                || any.iter().any(|wanted| allowed(ask.caller, &status, *wanted))
        })
    }

    pub(crate) fn need(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        want: RequestedAccess,
    ) -> Result<(), Fault> {
        if self.may(ask, fid, want)? { Ok(()) } else { Err(Fault::AccessDenied) }
    }

    /// Checks the removal of `victim`'s entry from `dir`: where mode bits decide, the caller must
    /// own one of the two in a sticky directory.
    pub(crate) fn need_delete(
        &self,
        ask: ModelContext<'_>,
        dir: Fid,
        victim: Fid,
    ) -> Result<(), Fault> {
        self.need(ask, dir, RequestedAccess::Delete)?;
        let (status, victim) = (self.node(dir)?.status, self.node(victim)?.status);
        let sticky = status.mode & STICKY != 0 && !self.decides();
        if sticky && !owns(ask.caller, &status) && !owns(ask.caller, &victim) {
            Err(Fault::NotPermitted)
        } else {
            Ok(())
        }
    }
}

/// The mode after a change by a caller without privileges.
pub fn without_privileges(caller: &Caller, status: &Status) -> u16 {
    let mut mode = status.mode;
    if status.kind != Kind::Directory {
        mode &= !SET_UID;
        let is_member = caller.is_root() || in_group(caller, status.gid);
        if mode & GROUP_EXECUTE != 0 || !is_member {
            mode &= !SET_GID;
        }
    }
    mode
}
