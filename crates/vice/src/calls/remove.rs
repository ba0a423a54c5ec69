//! Calls that remove names.

use smallvec::SmallVec;
use store::Vnode;
use types::posix::{touch_data, touch_status};
use types::{Answer, DataVersion, Fault, Fid, Kind, Name, RemoveWhat, Status};

use crate::access::{self, Right};
use crate::base::StripeGuards;
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};

pub(crate) fn remove(
    files: &Files,
    ask: &mut CallContext<'_>,
    dir: Fid,
    name: &Name,
    what: RemoveWhat,
    hold: bool,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume_for(ask, dir.volume)?;
    volume.need_writable()?;
    let mut change = Change::new(ask.scope, &volume);
    let (_held, found) = lock_entries(files, &mut change, [(dir, name)])?;
    let named: SmallVec<[Fid; 2]> = found.into_iter().flatten().chain([dir]).collect();
    files.need_back(ask, &volume, &named)?;
    let mut parent = volume.directory(dir)?;
    access::need(ask.asker(), &volume, &parent, Right::Search)?;
    let [Some(fid)] = found else { return Err(Fault::NotFound) };
    let mut victim = volume.vnode(fid)?;
    access::need_delete(ask.asker(), &volume, &parent, &victim)?;
    match (what, victim.status.kind) {
        (RemoveWhat::MountPoint, Kind::MountPoint) => {}
        (RemoveWhat::MountPoint, _) => return Err(Fault::Invalid),
        (_, Kind::MountPoint) => return Err(Fault::Busy),
        (RemoveWhat::Directory, Kind::Directory) if victim.entries > 0 => {
            return Err(Fault::NotEmpty);
        }
        (RemoveWhat::Directory, Kind::Directory) => {}
        (RemoveWhat::Directory, _) => return Err(Fault::NotDirectory),
        (RemoveWhat::File, Kind::Directory) => return Err(Fault::IsDirectory),
        (RemoveWhat::File, _) => {}
    }
    files.promise(ask, &volume, &named)?;
    volume.store.edit(&mut parent, &mut change.update).remove_entry(name.as_bytes())?;
    touch_data(&mut parent.status, ask.wall);
    if what == RemoveWhat::Directory {
        parent.status.links = counted(parent.status.links, 0, 1)?;
    }
    let status = lose_name(ask, &mut change, &mut victim, hold)?;
    change.put_directory(&parent, Some(name));
    files.commit(ask, change, Answer::Removed { status, dir: parent.status })
}

/// Locks directories and the present targets of some of their entries, for writing, all at
/// once. Entries are looked up before locking, and again where a directory changed meanwhile,
/// until both agree. A vnode that is no directory has no entries.
pub(crate) fn lock_entries<'f, const N: usize>(
    files: &'f Files,
    change: &mut Change<'_>,
    names: [(Fid, &Name); N],
) -> Result<(StripeGuards<'f>, [Option<Fid>; N]), Fault> {
    let volume = change.volume;
    let mut look = || -> Result<[Option<Fid>; N], Fault> {
        let mut found = [None; N];
        for (slot, (dir, name)) in found.iter_mut().zip(names) {
            if dir.vnode.is_directory() {
                *slot = volume.entry_to_change(dir, name, &mut change.update)?;
            }
        }
        Ok(found)
    };
    // Every change of an entry is one of the directory's data.
    let versions = || -> Result<[Option<DataVersion>; N], Fault> {
        let mut versions = [None; N];
        for (version, (dir, _)) in versions.iter_mut().zip(names) {
            *version = volume.store.vnode(dir.vnode)?.map(|vnode| vnode.status.data_version);
        }
        Ok(versions)
    };
    let before = versions()?;
    let mut expected = look()?;
    let mut unchanged = |found| Ok::<_, Fault>(if versions()? == before { found } else { look()? });
    loop {
        let fids: SmallVec<[Fid; 4]> =
            names.iter().map(|(dir, _)| *dir).chain(expected.into_iter().flatten()).collect();
        let held = files.write_lock(&fids);
        let found = unchanged(expected)?;
        if found == expected {
            return Ok((held, found));
        }
        expected = found;
    }
}

/// The number of links after `came` were added and `went` removed.
///
/// # Errors
/// `Damaged`: there were fewer links than `went`.
pub(crate) fn counted(links: u32, came: u32, went: u32) -> Result<u32, Fault> {
    links.checked_add(came).and_then(|links| links.checked_sub(went)).ok_or(Fault::Damaged)
}

/// Removes a name of the vnode. A directory has only one. Returns the status for the answer.
///
/// # Errors
/// `Damaged`: it had no name.
pub(crate) fn lose_name(
    ask: &CallContext<'_>,
    change: &mut Change<'_>,
    vnode: &mut Vnode,
    hold: bool,
) -> Result<Status, Fault> {
    let is_directory = vnode.status.kind == Kind::Directory;
    vnode.status.links = if is_directory { 0 } else { counted(vnode.status.links, 0, 1)? };
    touch_status(&mut vnode.status, ask.wall);
    if vnode.status.links == 0 {
        change.remove(vnode, hold);
    } else {
        change.put_status(vnode);
    }
    Ok(vnode.status)
}
