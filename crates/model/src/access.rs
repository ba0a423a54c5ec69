//! Who may: the classic rules of mode bits, with every group of the caller known.

use types::{Caller, Fault, Kind, Status};

pub const READ: u16 = 4;
pub const WRITE: u16 = 2;
pub const SEARCH: u16 = 1;

pub const SET_UID: u16 = 0o4000;
pub const SET_GID: u16 = 0o2000;
pub const STICKY: u16 = 0o1000;
pub const GROUP_EXECUTE: u16 = 0o010;

pub fn in_group(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.as_deref().unwrap_or_default().contains(&gid)
}

pub fn owns(caller: &Caller, status: &Status) -> bool {
    caller.is_root() || caller.uid == status.uid
}

/// The three classes: the owner is judged by the owner's bits even if the group's would allow more, and so on.
pub fn allowed(caller: &Caller, status: &Status, wanted: u16) -> bool {
    let class = if caller.uid == status.uid {
        6
    } else if in_group(caller, status.gid) {
        3
    } else {
        0
    };
    caller.is_root() || (status.mode >> class) & wanted == wanted
}

pub fn need(caller: &Caller, status: &Status, wanted: u16) -> Result<(), Fault> {
    if allowed(caller, status, wanted) { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// To take `victim`'s entry out of `dir`: write and search, and in a sticky directory one of the two must be one's own.
pub fn need_delete(caller: &Caller, dir: &Status, victim: &Status) -> Result<(), Fault> {
    need(caller, dir, WRITE | SEARCH)?;
    let sticky = dir.mode & STICKY != 0;
    if sticky && !owns(caller, dir) && !owns(caller, victim) { Err(Fault::NotPermitted) } else { Ok(()) }
}

/// What a change by somebody without privileges leaves of the mode.
pub fn without_privileges(status: &Status) -> u16 {
    let mut mode = status.mode;
    if status.kind != Kind::Directory {
        mode &= !SET_UID;
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GID;
        }
    }
    mode
}
