//! Mode bits.
//!
//! The caller is judged by one of three classes: the owner by the owner's bits, even where the
//! group's would allow more; then a member of the file's group; then all others. A caller without
//! supplementary groups in its request is in one of the last two classes: where both give the same
//! answer, that is the answer, otherwise the server requests the groups.
//!
//! *Data.* A trusted host checks the bits itself when a file is opened, and its calls are not
//! checked again. Any other caller is checked here at each call, as NFS servers do: the owner may
//! read and write whatever the bits are (a program makes a file of mode 0444 and writes it), and a
//! caller that may execute a program may read it. The rights at the time of the open stay in force
//! (`sessions/open_rights.rs`). A caller without any proof owns no file and is in no group: the
//! bits of others decide.
//!
//! *The path.* A file's status needs no bits of its own, but its fid, which only callers learn that
//! may search the directory that it is in ([`types::RunKey`]).

use types::posix::{EXECUTE, READ, WRITE, has_bits, is_stuck, may, owns};
use types::{Caller, Fault, Status};

use super::Right;

pub(super) fn need(caller: &Caller, status: &Status, right: Right) -> Result<(), Fault> {
    let wanted = match right {
        Right::List | Right::Read => READ,
        Right::Search => EXECUTE,
        Right::Insert | Right::Delete => WRITE | EXECUTE,
        Right::Write | Right::Move => WRITE,
        Right::See => return Ok(()),
        Right::ReadData => return need_data(caller, status, &[READ, EXECUTE]),
        Right::WriteData | Right::LockExclusive => return need_data(caller, status, &[WRITE]),
        Right::LockShared => return need_data(caller, status, &[READ, WRITE]),
        Right::Administer if owns(caller, status) => return Ok(()),
        Right::Administer => return Err(Fault::AccessDenied),
    };
    if may(caller, status, wanted)? { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// One of these bits is enough to use a file's content; its owner and trusted hosts need none.
fn need_data(caller: &Caller, status: &Status, enough: &[u16]) -> Result<(), Fault> {
    if caller.who.level.is_trusted() || owns(caller, status) {
        return Ok(());
    }
    for wanted in enough {
        if has_bits(caller, status, *wanted)? {
            return Ok(());
        }
    }
    Err(Fault::AccessDenied)
}

pub(super) fn need_unstuck(caller: &Caller, dir: &Status, victim: &Status) -> Result<(), Fault> {
    if is_stuck(caller, dir, victim) { Err(Fault::NotPermitted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{AuthLevel, Fid, Kind, Timestamp, VnodeNo};

    fn file(mode: u16) -> Status {
        store::Vnode::new(
            Fid::new(1, 2, 3),
            Kind::File,
            mode,
            10,
            20,
            VnodeNo::ROOT,
            Timestamp::default(),
        )
        .status
    }

    fn who(uid: u32, gid: u32, groups: Option<&[u32]>) -> Caller {
        Caller { uid, gid, groups: groups.map(Into::into), who: types::RequestIdentity::NAMED }
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
    fn data_is_judged_here_for_callers_that_are_not_believed() {
        let denied = Err(Fault::AccessDenied);
        let with = |uid, level| Caller {
            who: types::RequestIdentity { level, ..types::RequestIdentity::NOBODY },
            ..who(uid, 1, Some(&[]))
        };
        let (owner, other) = (with(10, AuthLevel::Password), with(11, AuthLevel::Password));
        let nobody = Caller { gid: 20, ..with(10, AuthLevel::Nobody) };
        type Row<'a> = (&'static str, u16, &'a Caller, Right, Result<(), Fault>);
        let rows: &[Row<'_>] = &[
            ("a believed host asked", 0o000, &who(11, 1, None), Right::ReadData, Ok(())),
            ("owner reads whatever the bits say", 0o000, &owner, Right::ReadData, Ok(())),
            ("owner writes whatever the bits say", 0o444, &owner, Right::WriteData, Ok(())),
            ("others do not read", 0o600, &other, Right::ReadData, denied),
            ("others read", 0o604, &other, Right::ReadData, Ok(())),
            ("others execute", 0o701, &other, Right::ReadData, Ok(())),
            ("others do not write what they read", 0o604, &other, Right::WriteData, denied),
            ("others write", 0o602, &other, Right::WriteData, Ok(())),
            ("an exclusive lock is for writers", 0o604, &other, Right::LockExclusive, denied),
            ("a shared lock is for readers", 0o604, &other, Right::LockShared, Ok(())),
            ("a shared lock is for writers", 0o602, &other, Right::LockShared, Ok(())),
            ("a shared lock is not for others", 0o600, &other, Right::LockShared, denied),
            ("a number proves nothing", 0o660, &nobody, Right::ReadData, denied),
            ("nor of a name", 0o700, &nobody, Right::Search, denied),
            (
                "a caller without proof is judged as others are",
                0o007,
                &nobody,
                Right::WriteData,
                Ok(()),
            ),
            ("and owns nothing", 0o777, &nobody, Right::Administer, denied),
        ];
        for (name, mode, caller, right, result) in rows {
            assert_eq!(need(caller, &file(*mode), *right), *result, "{name}");
        }
    }
}
