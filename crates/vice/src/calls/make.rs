//! Calls that make files, and new names of files.

use smallvec::SmallVec;
use store::Vnode;
use types::posix::{SET_IDS, inherit, may_make, owns, touch_data, touch_status};
use types::{Answer, CreateHow, Fault, Fid, Kind, Name, NewKind, limits};

use super::delegate::given_slot;
use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::sessions::GivenSlots;
use crate::volumes::ATTRIBUTE;
use crate::volumes::ViceVolume;

pub(crate) fn make(
    files: &Files,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    (dir, name): (Fid, &Name),
    kind: &NewKind,
    mode: u16,
    how: CreateHow,
) -> Result<CallOutcome, Fault> {
    kind.check_target()?;
    let (volume, _held) = files.change(ask, dir)?;
    let mut parent = volume.directory(dir)?;
    access::need(ask.asker(), &volume, &parent, Right::Search)?;
    let mut change = Change::new(ask.scope, &volume);
    if let Some(fid) = volume.entry_to_change(dir, name, &mut change.update)? {
        return existing(files, ask, &volume, fid, &parent, kind, how);
    }
    access::need_room(ask.asker(), &volume, &parent)?;
    if !may_make(ask.caller, kind) {
        return Err(Fault::NotPermitted);
    }
    let is_directory = kind.kind() == Kind::Directory;
    if is_directory && parent.status.links >= limits::LINKS_MAX {
        return Err(Fault::TooManyLinks);
    }
    files.promise(ask, &volume, &[dir])?;
    let mut vnode = new_vnode(files, given, ask, &volume, &parent, kind, mode)?;
    if let CreateHow::Exclusive(verifier) = how {
        vnode.exclusive = verifier;
    }
    add(files, ask, &volume, &mut change, &mut vnode, kind)?;
    if is_directory && volume.lists.decide() {
        // A copy, so that later changes of the parent's list do not matter.
        let list = volume.lists.ruling(&parent)?.list.encode();
        volume.store.edit(&mut vnode, &mut change.update).put_xattr(ATTRIBUTE, &list)?;
        change.update.put_vnode(&vnode);
    }
    change.make(dir, vnode.status.fid);
    volume.store.edit(&mut parent, &mut change.update).put_entry(name, vnode.target())?;
    touch_data(&mut parent.status, ask.wall);
    if is_directory {
        parent.status.links += 1;
    }
    change.put_directory(&parent, Some(name));
    let answer = Answer::Made { status: vnode.status, dir: parent.status, existed: false };
    files.commit(ask, change, answer)
}

/// Makes a file without a name that the caller's session holds.
pub(crate) fn make_unnamed(
    files: &Files,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    dir: Fid,
    mode: u16,
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, dir)?;
    let parent = volume.directory(dir)?;
    access::need_room(ask.asker(), &volume, &parent)?;
    files.promise(ask, &volume, &[dir])?;
    let mut change = Change::new(ask.scope, &volume);
    let mut vnode = new_vnode(files, given, ask, &volume, &parent, &NewKind::File, mode)?;
    vnode.status.links = 0;
    add(files, ask, &volume, &mut change, &mut vnode, &NewKind::File)?;
    change.update.add_orphan(vnode.no());
    let (session, fid) = (ask.origin.session, vnode.status.fid);
    files.coherence().leases().hold(session, fid)?;
    let made = files.commit(ask, change, Answer::Status(vnode.status));
    if made.is_err() {
        files.coherence().leases().unhold(session, fid);
    }
    made
}

pub(crate) fn link(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    dir: Fid,
    name: &Name,
) -> Result<CallOutcome, Fault> {
    if fid.volume != dir.volume {
        return Err(Fault::CrossVolume);
    }
    let volume = files.volume_for(ask, dir.volume)?;
    volume.need_writable()?;
    let _held = files.write_lock(&[dir, fid]);
    files.need_back(ask, &volume, &[dir, fid])?;
    let mut vnode = volume.vnode(fid)?;
    let mut parent = volume.directory(dir)?;
    access::need(ask.asker(), &volume, &parent, Right::Search)?;
    let mut change = Change::new(ask.scope, &volume);
    if volume.entry_to_change(dir, name, &mut change.update)?.is_some() {
        return Err(Fault::Exists);
    }
    access::need_room(ask.asker(), &volume, &parent)?;
    if matches!(vnode.status.kind, Kind::Directory | Kind::MountPoint) {
        return Err(Fault::NotPermitted);
    }
    if volume.lists.decide() && vnode.status.links > 0 && vnode.parent != parent.no() {
        // A file uses the list of one directory.
        return Err(Fault::CrossVolume);
    }
    if vnode.status.links >= limits::LINKS_MAX {
        return Err(Fault::TooManyLinks);
    }
    let judged = !volume.lists.decide() && !ask.caller.who.level.is_trusted();
    if judged || vnode.status.links == 0 {
        need_to_name(files, ask, &volume, &vnode)?;
    }
    files.promise(ask, &volume, &[dir, fid])?;
    if vnode.status.links == 0 {
        change.update.remove_orphan(vnode.no());
        // An unnamed file belongs to the directory of its first name.
        vnode.parent = parent.no();
    }
    vnode.status.links += 1;
    touch_status(&mut vnode.status, ask.wall);
    change.put_status(&vnode);
    volume.store.edit(&mut parent, &mut change.update).put_entry(name, vnode.target())?;
    touch_data(&mut parent.status, ask.wall);
    change.put_directory(&parent, Some(name));
    let answer = Answer::Made { status: vnode.status, dir: parent.status, existed: false };
    files.commit(ask, change, answer)
}

/// A file gets one more name from its owner, or from a caller that may read and write it, as on
/// Linux (`protected_hardlinks`); trusted hosts judge that themselves. A file without names
/// gets its first one likewise, judged in the directory where it was made: in another directory
/// another list decides.
fn need_to_name(
    files: &Files,
    ask: &CallContext<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
) -> Result<(), Fault> {
    let is_judged_there = !volume.lists.decide() && ask.caller.who.level.is_trusted();
    if is_judged_there || owns(ask.caller, &vnode.status) {
        return Ok(());
    }
    // A caller that may only execute the file may read its data, but does not count as a reader
    // here.
    access::need(ask.asker(), volume, vnode, Right::Read)?;
    files.need_data(ask, volume, vnode, Right::WriteData)
}

/// The entry exists: it is the answer if the caller accepts that, or if the caller itself made
/// it.
fn existing(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    fid: Fid,
    parent: &Vnode,
    kind: &NewKind,
    how: CreateHow,
) -> Result<CallOutcome, Fault> {
    let found: SmallVec<[Fid; 2]> = SmallVec::from_slice(&[fid, parent.status.fid]);
    files.promise(ask, volume, &found)?;
    let vnode = volume.vnode(fid)?;
    let same = match how {
        CreateHow::Unchecked => *kind == NewKind::File && vnode.status.kind == Kind::File,
        CreateHow::Guarded => false,
        CreateHow::Exclusive(verifier) => {
            verifier != 0 && vnode.status.kind == kind.kind() && vnode.exclusive == verifier
        }
    };
    if !same {
        return Err(Fault::Exists);
    }
    Ok(CallOutcome::Answer(Answer::Made {
        status: vnode.status,
        dir: parent.status,
        existed: true,
    }))
}

/// Adds the new vnode to the change, within the quota.
fn add<'v>(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &'v ViceVolume,
    change: &mut Change<'v>,
    vnode: &mut Vnode,
    kind: &NewKind,
) -> Result<(), Fault> {
    let target_bytes = kind.target().map_or(0, |target| target.len() as u64);
    change.take_room(files.room(ask, volume, vnode.status.used + target_bytes, 1)?);
    change.update.create_vnode(vnode);
    if let Some(target) = kind.target() {
        volume.store.body(vnode, &mut change.update)?.write(0, target)?;
    }
    change.update.put_vnode(vnode);
    change.promise(vnode.status.fid);
    Ok(())
}

/// Makes the file that takes the place of a renamed one in an overlay's directory. The caller gives
/// it its name.
pub(crate) fn make_whiteout<'v>(
    files: &Files,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    volume: &'v ViceVolume,
    change: &mut Change<'v>,
    parent: &Vnode,
) -> Result<Vnode, Fault> {
    let kind = NewKind::CharDevice(0);
    let mut vnode = new_vnode(files, given, ask, volume, parent, &kind, 0)?;
    add(files, ask, volume, change, &mut vnode, &kind)?;
    Ok(vnode)
}

fn new_vnode(
    files: &Files,
    given: &GivenSlots,
    ask: &CallContext<'_>,
    volume: &ViceVolume,
    parent: &Vnode,
    new: &NewKind,
    mode: u16,
) -> Result<Vnode, Fault> {
    let kind = new.kind();
    let (mut mode, gid) = inherit(ask.caller, &parent.status, kind, mode)?;
    if !ask.caller.who.level.is_proved() && !volume.lists.decide() {
        // An unauthenticated maker does not own the file: the bits of others become those that
        // it requested for the owner.
        mode |= mode >> 6 & 0o7;
    }
    if mode & SET_IDS != 0 && volume.lists.decide() && !ask.asker().is_administrator()? {
        mode &= !SET_IDS;
    }
    let slot = match ask.delegated {
        Some(slot) if slot > 0 => given_slot(files, given, ask.origin.session, volume, slot)?,
        _ => volume.slot_as_lists_say(volume.store.slots()?.allocate_slot()?),
    };
    let fid = volume.store.fid_of_slot(slot, kind == Kind::Directory);
    let vnode = Vnode::new(fid, kind, mode, ask.caller.uid, gid, parent.no(), ask.wall);
    let mut vnode = volume.marked(vnode);
    if let NewKind::CharDevice(device) | NewKind::BlockDevice(device) = new {
        vnode.status.device = *device;
    }
    Ok(vnode)
}
