//! Rights by access lists (`volumes/acls.rs`).

use guard::{Cps, Rights};
use store::Vnode;
use types::{Fault, Fid, Kind, VnodeNo};

use super::Right;
use crate::call::CallerView;
use crate::volumes::ViceVolume;

/// Rights of the caller in a directory or on a file, and whose list gives them: the file
/// itself, if it has a list of its own, otherwise its directory.
///
/// # Errors
/// As [`crate::volumes::VolumeAcls::ruling`], and [`crate::cell::Principals::cps`].
pub(crate) fn rights(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
) -> Result<(Rights, Fid), Fault> {
    let cps = if asker.caller.is_root() { None } else { Some(asker.principals.cps(asker.caller)?) };
    if vnode.status.kind == Kind::Directory {
        return Ok((rights_in(asker, volume, cps.as_ref(), vnode)?, vnode.status.fid));
    }
    let dir = volume.lists.above(vnode)?;
    let in_dir = rights_in(asker, volume, cps.as_ref(), &dir)?;
    let own = if vnode.has_xattr { Some(volume.lists.ruling(vnode)?) } else { None };
    let Some(ruling) = own.filter(|ruling| ruling.of == vnode.status.fid) else {
        return Ok((in_dir, dir.status.fid));
    };
    let Some(cps) = cps else { return Ok((in_dir, vnode.status.fid)) };
    let mut own = ruling.list.rights(&cps).of_file();
    if owns(asker, vnode) || cps.is_administrator() {
        own = own.with(Rights::ADMINISTER);
    }
    Ok((if in_dir.has(Rights::LOOKUP) { own.with(Rights::LOOKUP) } else { own }, vnode.status.fid))
}

/// Rights in a directory. Without a CPS: the superuser.
fn rights_in(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    cps: Option<&Cps>,
    dir: &Vnode,
) -> Result<Rights, Fault> {
    let Some(cps) = cps else { return Ok(Rights::ALL) };
    let given = volume.lists.ruling(dir)?.list.rights(cps);
    let implied = Rights::LOOKUP.with(Rights::ADMINISTER);
    Ok(if owns(asker, dir) || cps.is_administrator() { given.with(implied) } else { given })
}

pub(super) fn need(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    right: Right,
) -> Result<(), Fault> {
    if asker.caller.is_root() {
        return Ok(());
    }
    let is_directory = vnode.status.kind == Kind::Directory;
    let (rights, _) = self::rights(asker, volume, vnode)?;
    // A caller that may insert files into a drop box may write the files that it owns.
    let dropped = !is_directory && owns(asker, vnode) && rights.has(Rights::INSERT);
    let granted = match right {
        Right::See if is_directory => {
            vnode.no() == VnodeNo::ROOT
                || rights.has(Rights::LOOKUP)
                || sees_from_above(asker, volume, vnode)?
        }
        Right::See | Right::List | Right::Search => rights.has(Rights::LOOKUP),
        Right::Read if is_directory => rights.has(Rights::LOOKUP),
        Right::Read | Right::ReadData => rights.has(Rights::READ),
        Right::Insert => rights.has(Rights::INSERT),
        Right::Delete => rights.has(Rights::DELETE),
        Right::Move => true,
        Right::Write | Right::WriteData | Right::LockExclusive => {
            rights.has(Rights::WRITE) || dropped
        }
        Right::LockShared => rights.has(Rights::LOCK) || rights.has(Rights::WRITE) || dropped,
        Right::Administer => rights.has(Rights::ADMINISTER),
    };
    if granted { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// Whether the caller may list the parent of this directory, which shows its status.
fn sees_from_above(asker: CallerView<'_>, volume: &ViceVolume, dir: &Vnode) -> Result<bool, Fault> {
    let Some(above) = volume.store.vnode(dir.parent)? else { return Ok(false) };
    Ok(self::rights(asker, volume, &above)?.0.has(Rights::LOOKUP))
}

fn owns(asker: CallerView<'_>, vnode: &Vnode) -> bool {
    asker.caller.uid == vnode.status.uid && asker.caller.who.level.is_proved()
}
