//! The rules of POSIX that the server and a client with a delegation share.
//!
//! Model: pure functions of a caller, a status and a wish. A client answers a change under a
//! delegation exactly as the server would (DE-5) because both ask here. A rule that needs the
//! caller's supplementary groups, which the caller did not send, fails with [`GroupsUnknown`]: the
//! server then asks the client for them, and a client asks the server for the answer. The reference
//! model (`crates/model`) does not use this module.

use std::time::Duration;

use crate::{
    Caller, DataVersion, Fault, Fid, Kind, NewKind, RemoveWhat, Status, StatusChange,
    StatusVersion, Timestamp,
};

/// Mode bit: read, of one class.
pub const READ: u16 = 4;
/// Mode bit: write, of one class.
pub const WRITE: u16 = 2;
/// Mode bit: execute or search, of one class.
pub const EXECUTE: u16 = 1;
/// Mode bit: run as the owner.
pub const SET_UID: u16 = 0o4000;
/// Mode bit: run as the group; in a directory, new files get its group.
pub const SET_GID: u16 = 0o2000;
/// Both of them.
pub const SET_IDS: u16 = SET_UID | SET_GID;
/// Mode bit: in a directory, only owners take names away.
pub const STICKY: u16 = 0o1000;
/// Mode bit: the group may execute.
pub const GROUP_EXECUTE: u16 = 0o010;
/// The size and the charge of a directory, in bytes.
pub const DIRECTORY_BYTES: u64 = 4096;

/// The caller did not send its supplementary groups, and they decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupsUnknown;

impl From<GroupsUnknown> for Fault {
    fn from(GroupsUnknown: GroupsUnknown) -> Fault {
        Fault::GroupsNeeded
    }
}

/// Whether the caller may do what the file's owner may.
pub fn owns(caller: &Caller, status: &Status) -> bool {
    caller.is_root() || caller.uid == status.uid && caller.who.level.is_proved()
}

/// Whether the caller is in the group. A caller without accepted credential is in none.
///
/// # Errors
/// [`GroupsUnknown`].
pub fn in_group(caller: &Caller, gid: u32) -> Result<bool, GroupsUnknown> {
    match &caller.groups {
        _ if !caller.who.level.is_proved() => Ok(false),
        _ if caller.gid == gid => Ok(true),
        Some(groups) => Ok(groups.contains(&gid)),
        None => Err(GroupsUnknown),
    }
}

/// Whether the mode bits of the caller's class have all of `wanted`. The owner is judged by the
/// owner's bits alone, a member of the group by the group's, others and callers without accepted
/// credential by the last ones.
///
/// # Errors
/// [`GroupsUnknown`], if the group's bits and those of others differ.
pub fn has_bits(caller: &Caller, status: &Status, wanted: u16) -> Result<bool, GroupsUnknown> {
    let class = |shift: u16| (status.mode >> shift) & wanted == wanted;
    Ok(if !caller.who.level.is_proved() {
        class(0)
    } else if caller.uid == status.uid {
        class(6)
    } else if class(3) == class(0) {
        class(0)
    } else {
        class(if in_group(caller, status.gid)? { 3 } else { 0 })
    })
}

/// The same, or the caller is not bound by mode bits.
///
/// # Errors
/// [`GroupsUnknown`].
pub fn may(caller: &Caller, status: &Status, wanted: u16) -> Result<bool, GroupsUnknown> {
    if caller.is_root() { Ok(true) } else { has_bits(caller, status, wanted) }
}

/// Whether the sticky bit of the directory keeps the caller from taking the victim's name away.
pub fn is_stuck(caller: &Caller, dir: &Status, victim: &Status) -> bool {
    dir.mode & STICKY != 0 && !owns(caller, dir) && !owns(caller, victim)
}

/// Mode and group of a new file. In a set-group-id directory the group is the directory's; a new
/// directory passes the bit on, and a program does not run as a group that its maker is not in.
///
/// # Errors
/// [`GroupsUnknown`].
pub fn inherit(
    caller: &Caller,
    dir: &Status,
    kind: Kind,
    mode: u16,
) -> Result<(u16, u32), GroupsUnknown> {
    let mut mode = if kind.has_target() { 0o777 } else { mode & 0o7777 };
    if dir.mode & SET_GID == 0 {
        return Ok((mode, caller.gid));
    }
    let runs_as_group = mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
    if kind == Kind::Directory {
        mode |= SET_GID;
    } else if runs_as_group && !caller.is_root() && !in_group(caller, dir.gid)? {
        mode &= !SET_GID;
    }
    Ok((mode, dir.gid))
}

/// The mode that a caller may set on a file that has, or gets, the group `gid`: a caller outside of
/// the group cannot make a file run as the group.
///
/// # Errors
/// [`GroupsUnknown`].
pub fn settable_mode(caller: &Caller, gid: u32, mode: u16) -> Result<u16, GroupsUnknown> {
    let mode = mode & 0o7777;
    let keeps = mode & SET_GID == 0 || caller.is_root() || in_group(caller, gid)?;
    Ok(if keeps { mode } else { mode & !SET_GID })
}

/// Whether a change of status takes set-id bits away: a new owner or group does not inherit
/// privileges, and a writer without privileges leaves none behind.
pub fn kills_privileges(caller: &Caller, wanted: &StatusChange) -> bool {
    let gains_owner = wanted.uid.is_some() || wanted.gid.is_some();
    gains_owner || wanted.kill_privileges || wanted.size.is_some() && !caller.is_root()
}

/// The mode after a write by a caller without privileges: a program that another user wrote into
/// does not run as its owner or group. Where the group may not execute, the bit gives no privilege,
/// and stays for the superuser and members of the group. Source: Linux
/// `setattr_should_drop_suidgid`.
///
/// # Errors
/// The bit depends on groups that the caller did not show.
pub fn without_privileges(caller: &Caller, status: &Status) -> Result<u16, GroupsUnknown> {
    let mode = status.mode;
    if status.kind == Kind::Directory || mode & SET_IDS == 0 {
        return Ok(mode);
    }
    let keeps_group = mode & SET_GID == 0
        || mode & GROUP_EXECUTE == 0 && (caller.is_root() || in_group(caller, status.gid)?);
    Ok(mode & !if keeps_group { SET_UID } else { SET_IDS })
}

/// Whether the caller may make a file of this kind at all: devices are the superuser's.
pub fn may_make(caller: &Caller, new: &NewKind) -> bool {
    match new {
        NewKind::CharDevice(_) | NewKind::BlockDevice(_) => caller.is_root(),
        NewKind::File
        | NewKind::Directory
        | NewKind::Fifo
        | NewKind::Socket
        | NewKind::Symlink(_)
        | NewKind::MountPoint(_) => true,
    }
}

/// The argument that `Remove` needs for a file of this kind.
pub fn removable_as(kind: Kind) -> RemoveWhat {
    match kind {
        Kind::Directory => RemoveWhat::Directory,
        Kind::MountPoint => RemoveWhat::MountPoint,
        Kind::File
        | Kind::Symlink
        | Kind::Fifo
        | Kind::Socket
        | Kind::CharDevice
        | Kind::BlockDevice => RemoveWhat::File,
    }
}

/// The status of a new file with nothing in it: one link (a directory two), all times `at`,
/// versions 1.
pub fn new_status(
    fid: Fid,
    kind: Kind,
    mode: u16,
    (uid, gid): (u32, u32),
    at: Timestamp,
) -> Status {
    let is_directory = kind == Kind::Directory;
    let bytes = if is_directory { DIRECTORY_BYTES } else { 0 };
    Status {
        fid,
        kind,
        mode,
        by_list: false,
        read_times: false,
        own_list: false,
        uid,
        gid,
        links: if is_directory { 2 } else { 1 },
        size: bytes,
        used: bytes,
        device: 0,
        accessed: at,
        modified: at,
        changed: at,
        created: at,
        data_version: DataVersion::FIRST,
        status_version: StatusVersion::FIRST,
    }
}

/// Notes a change of anything of the file.
pub fn touch_status(status: &mut Status, at: Timestamp) {
    status.changed = at;
    status.status_version = status.status_version.next();
}

/// Notes a change of its data or entries.
pub fn touch_data(status: &mut Status, at: Timestamp) {
    touch_status(status, at);
    status.modified = at;
    status.data_version = status.data_version.next();
}

/// Makes all that clients have of its data old, though it is as it was: no time changes.
pub fn age_data(status: &mut Status) {
    status.status_version = status.status_version.next();
    status.data_version = status.data_version.next();
}

/// Takes one of its names away; a directory has only one.
pub fn lose_name(status: &mut Status, at: Timestamp) {
    status.links = if status.kind == Kind::Directory { 0 } else { status.links - 1 };
    touch_status(status, at);
}

/// After so long a read is recorded although the file did not change since the last one.
const READ_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether a read at `now` is to be recorded, as Linux's `relatime` decides: the last one was
/// before the last change of the file, or is a day old.
pub fn is_read_due(status: &Status, now: Timestamp) -> bool {
    let changed = status.modified.max(status.changed);
    status.accessed <= changed || status.accessed.later(READ_AGE) <= now
}

/// Whether a read at `at` is recorded, by a client that knew the access time `was`: it is later
/// than the recorded one. A change of the status behind the read may have set the access time: then
/// only `was` shows that it did not.
pub fn is_newer_read(status: &Status, was: Timestamp, at: Timestamp) -> bool {
    at > status.accessed && (status.accessed == was || at > status.changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestIdentity;

    fn file(mode: u16) -> Status {
        new_status(Fid::new(1, 2, 3), Kind::File, mode, (10, 20), Timestamp::default())
    }

    fn who(uid: u32, gid: u32, groups: Option<&[u32]>) -> Caller {
        Caller { uid, gid, groups: groups.map(Into::into), who: RequestIdentity::NAMED }
    }

    #[test]
    fn set_id_bits_go_but_a_members_locking_mark_stays() {
        let (member, other, root) = (who(11, 20, None), who(11, 1, Some(&[7])), Caller::ROOT);
        for caller in [&member, &other, &root] {
            assert_eq!(without_privileges(caller, &file(0o6755)), Ok(0o755));
            assert_eq!(without_privileges(caller, &file(0o4745)), Ok(0o745));
        }
        assert_eq!(without_privileges(&member, &file(0o6745)), Ok(0o2745));
        assert_eq!(without_privileges(&root, &file(0o6745)), Ok(0o2745));
        assert_eq!(without_privileges(&other, &file(0o6745)), Ok(0o745));
        assert_eq!(without_privileges(&who(11, 1, None), &file(0o6745)), Err(GroupsUnknown));
    }

    #[test]
    fn groups_are_asked_for_only_where_they_decide() {
        let other = who(11, 1, None);
        assert_eq!(may(&other, &file(0o660), READ), Err(GroupsUnknown));
        assert_eq!(may(&other, &file(0o666), READ), Ok(true));
        assert_eq!(may(&other, &file(0o600), READ), Ok(false));
        assert_eq!(settable_mode(&other, 20, 0o755), Ok(0o755));
        assert_eq!(settable_mode(&other, 20, 0o2755), Err(GroupsUnknown));
        assert_eq!(settable_mode(&who(11, 1, Some(&[])), 20, 0o2755), Ok(0o755));
    }

    #[test]
    fn a_set_group_id_directory_gives_its_group() {
        let dir = Status { kind: Kind::Directory, ..file(0o2777) };
        let maker = who(11, 1, Some(&[]));
        assert_eq!(inherit(&maker, &dir, Kind::Directory, 0o755), Ok((0o2755, 20)));
        assert_eq!(inherit(&maker, &dir, Kind::File, 0o2755), Ok((0o755, 20)));
        assert_eq!(inherit(&maker, &dir, Kind::File, 0o2745), Ok((0o2745, 20)));
        assert_eq!(inherit(&maker, &dir, Kind::Symlink, 0), Ok((0o777, 20)));
    }
}
