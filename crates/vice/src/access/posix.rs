//! Mode bits.
//!
//! The caller is judged by one of three classes: the owner by the owner's bits, even where the group's would allow more; then a member of
//! the file's group; then everybody else. A caller who did not show supplementary groups is of one of the last two
//! classes, we do not know which: where both come to the same, that is the answer, otherwise the groups are asked for.

use types::{Caller, Fault, Kind, Status};

use super::Right;

const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;

const SET_UID: u16 = 0o4000;
pub(crate) const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
pub(crate) const GROUP_EXECUTE: u16 = 0o010;

pub(super) fn need(caller: &Caller, status: &Status, right: Right) -> Result<(), Fault> {
    let wanted = match right {
        Right::List | Right::Read => READ,
        Right::Search => EXECUTE,
        Right::Insert | Right::Delete => WRITE | EXECUTE,
        Right::Write | Right::Move => WRITE,
        // Whoever sees a file knows its name; what it holds was asked for when it was opened.
        Right::See | Right::ReadData | Right::WriteData | Right::LockShared | Right::LockExclusive => return Ok(()),
        Right::Administer if owns(caller, status) => return Ok(()),
        Right::Administer => return Err(Fault::AccessDenied),
    };
    let class = |shift: u16| (status.mode >> shift) & wanted == wanted;
    let granted = if caller.is_root() {
        true
    } else if caller.uid == status.uid {
        class(6)
    } else if class(3) == class(0) {
        class(0)
    } else {
        class(if in_group(caller, status.gid)? { 3 } else { 0 })
    };
    if granted { Ok(()) } else { Err(Fault::AccessDenied) }
}

pub(super) fn need_unstuck(caller: &Caller, dir: &Status, victim: &Status) -> Result<(), Fault> {
    let stuck = dir.mode & STICKY != 0 && !owns(caller, dir) && !owns(caller, victim);
    if stuck { Err(Fault::NotPermitted) } else { Ok(()) }
}

/// Whether the caller is in the group.
///
/// # Errors
/// `GroupsNeeded` if the caller did not say.
pub(crate) fn in_group(caller: &Caller, gid: u32) -> Result<bool, Fault> {
    match &caller.groups {
        _ if caller.gid == gid => Ok(true),
        Some(groups) => Ok(groups.contains(&gid)),
        None => Err(Fault::GroupsNeeded),
    }
}

/// Whether the caller may do what owners may.
pub(crate) fn owns(caller: &Caller, status: &Status) -> bool {
    caller.is_root() || caller.uid == status.uid
}

/// In a sticky directory only the owner changes what hangs on the directory itself.
pub(crate) fn is_sticky(status: &Status) -> bool {
    status.mode & STICKY != 0
}

/// What a change by somebody without privileges leaves of the mode: a program that somebody else wrote into does not run
/// as its owner or, where the group may execute, as its group.
pub(crate) fn without_privileges(status: &Status) -> u16 {
    match status.kind {
        Kind::Directory => status.mode,
        _ if status.mode & GROUP_EXECUTE != 0 => status.mode & !(SET_UID | SET_GID),
        _ => status.mode & !SET_UID,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Fid, Timestamp, VnodeNo};

    fn file(mode: u16) -> Status {
        store::Vnode::new(Fid::new(1, 2, 3), Kind::File, mode, 10, 20, VnodeNo::ROOT, Timestamp::default()).status
    }

    fn who(uid: u32, gid: u32, groups: Option<&[u32]>) -> Caller {
        Caller { uid, gid, groups: groups.map(Into::into), who: types::Who::NAMED }
    }

    #[test]
    fn each_class_is_judged_by_its_own_bits() {
        let denied = Err(Fault::AccessDenied);
        type Row = (&'static str, u16, Caller, Right, Result<(), Fault>);
        let rows: &[Row] = &[
            ("owner by owner's bits", 0o600, who(10, 1, None), Right::Read, Ok(())),
            ("owner not by others' bits", 0o077, who(10, 20, None), Right::Read, denied),
            ("primary group", 0o040, who(11, 20, None), Right::Read, Ok(())),
            ("primary group, no bit", 0o604, who(11, 20, None), Right::Read, denied),
            ("supplementary group", 0o040, who(11, 1, Some(&[7, 20])), Right::Read, Ok(())),
            ("supplementary group is denied", 0o604, who(11, 1, Some(&[20])), Right::Read, denied),
            ("others", 0o604, who(11, 1, Some(&[7])), Right::Read, Ok(())),
            ("others, no bit", 0o660, who(11, 1, Some(&[])), Right::Read, denied),
            ("groups would grant", 0o660, who(11, 1, None), Right::Read, Err(Fault::GroupsNeeded)),
            ("groups would deny", 0o606, who(11, 1, None), Right::Read, Err(Fault::GroupsNeeded)),
            ("groups decide nothing", 0o600, who(11, 1, None), Right::Read, denied),
            ("groups decide nothing, open", 0o666, who(11, 1, None), Right::Read, Ok(())),
            ("superuser", 0o000, who(0, 0, None), Right::Insert, Ok(())),
            ("entries need write and search", 0o200, who(10, 1, None), Right::Insert, denied),
            ("write and search", 0o300, who(10, 1, None), Right::Insert, Ok(())),
        ];
        for (name, mode, caller, right, result) in rows {
            assert_eq!(need(caller, &file(*mode), *right), *result, "{name}");
        }
    }

    #[test]
    fn set_id_bits_go_but_a_locking_mark_stays() {
        assert_eq!(without_privileges(&file(0o6755)), 0o755);
        assert_eq!(without_privileges(&file(0o6745)), 0o2745);
    }
}
