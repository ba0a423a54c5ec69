//! Changes of status: owner, group, mode, times, size.

use store::Vnode;
use types::posix::{
    self, SET_IDS, in_group, kills_privileges, owns, settable_mode, touch_data, touch_status,
    without_privileges,
};
use types::{
    Answer, Caller, DataUse, Fault, Fid, Kind, SetTime, Status, StatusChange, Timestamp, limits,
};

use crate::access::{self, Right};
use crate::call::CallerView;
use crate::call::{CallContext, CallOutcome};
use crate::files::quota_charge;
use crate::files::{Change, Files};
use crate::sessions::ModeRights;
use crate::volumes::ViceVolume;

/// File capabilities: privileges that are stored as an attribute.
const CAPABILITY: &[u8] = b"security.capability";

pub(crate) fn set_status(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    wanted: &StatusChange,
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    if is_nothing(wanted) {
        access::need(ask.asker(), &volume, &vnode, Right::See)?;
        files.promise(ask, &volume, &[fid])?;
        return Ok(CallOutcome::Answer(Answer::Status(vnode.status)));
    }
    check_change(files, ask, &volume, &vnode, wanted)?;
    let mode = wanted
        .mode
        .map(|mode| allowed_mode(ask.asker(), &volume, &vnode.status, wanted, mode))
        .transpose()?;
    let kept_mode = match kills_privileges(ask.caller, wanted) {
        true => unprivileged_mode(ask.caller, &vnode.status),
        false => vnode.status.mode,
    };
    files.promise(ask, &volume, &[fid])?;
    if wanted.hold && vnode.status.kind == Kind::File {
        // The hold may be refused, so it comes before the body is cut.
        files.coherence().leases().hold(ask.origin.session, fid)?;
    }
    let mut change = Change::new(ask.scope, &volume);
    let was = ModeRights::of(&vnode.status);
    if kills_privileges(ask.caller, wanted) {
        drop_capabilities(&mut vnode, &mut change)?;
    }
    vnode.status.mode = kept_mode;
    vnode.status.uid = wanted.uid.unwrap_or(vnode.status.uid);
    vnode.status.gid = wanted.gid.unwrap_or(vnode.status.gid);
    vnode.status.mode = mode.unwrap_or(vnode.status.mode);
    if let Some(size) = wanted.size {
        change.take_room(files.room(ask, &volume, quota_charge::of_resize(&vnode, size), 0)?);
        volume.store.body(&mut vnode, &mut change.update)?.truncate(size)?;
        touch_data(&mut vnode.status, ask.wall);
        set_times(ask, &mut vnode, wanted);
        change.put_data(&vnode);
    } else {
        touch_status(&mut vnode.status, ask.wall);
        set_times(ask, &mut vnode, wanted);
        change.put_status(&vnode);
    }
    let is_file = vnode.status.kind == Kind::File;
    if is_file && ModeRights::of(&vnode.status) != was && !volume.lists.decide() {
        files.note_opened(ask, fid, was, wanted.hold);
    }
    files.commit(ask, change, Answer::Status(vnode.status))
}

/// Records that the caller read the file. Nothing but the access time changes, neither `ctime` nor
/// a version, and no promise is made or broken. Under another session's delegation that session
/// answers for the status, so nothing is recorded, and nothing recalled for it.
pub(crate) fn note_read(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    was: Timestamp,
    at: Timestamp,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    volume.need_writable()?;
    let _held = files.write_lock(&[fid]);
    let is_covered =
        files.coherence().leases().delegations().covers_elsewhere(ask.origin.session, fid);
    if is_covered {
        return Ok(CallOutcome::Answer(Answer::Done));
    }
    files.need_back(ask, &volume, &[fid])?;
    let mut vnode = volume.vnode(fid)?;
    match vnode.status.kind {
        Kind::File => files.need_data(ask, &volume, &vnode, Right::ReadData)?,
        Kind::Directory => access::need(ask.asker(), &volume, &vnode, Right::List)?,
        _ => access::need(ask.asker(), &volume, &vnode, Right::See)?,
    }
    // A client's clock may be ahead.
    let at = at.min(ask.wall);
    if !volume.records_reads() || !posix::is_newer_read(&vnode.status, was, at) {
        return Ok(CallOutcome::Answer(Answer::Done));
    }
    vnode.status.accessed = at;
    let mut change = Change::new(ask.scope, &volume);
    change.update.put_vnode(&vnode);
    files.commit(ask, change, Answer::Done)
}

/// Everything is checked before anything is changed.
fn check_change(
    files: &Files,
    ask: &CallContext<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    wanted: &StatusChange,
) -> Result<(), Fault> {
    let (asker, status) = (ask.asker(), &vnode.status);
    if let Some(size) = wanted.size {
        check_size(status, size)?;
        match wanted.through_handle {
            true => files.need_data(ask, volume, vnode, Right::WriteData)?,
            false => access::need(asker, volume, vnode, Right::Write)?,
        }
        files.need_share(ask, status.fid, DataUse::Write)?;
    }
    check_owner(asker.caller, status, wanted)?;
    if wanted.kill_privileges && *wanted == only_killing(wanted) {
        // A change of size needs the right of a write.
        files.need_data(ask, volume, vnode, Right::WriteData)?;
    }
    if volume.lists.decide() {
        check_listed(asker, volume, vnode, wanted)?;
    }
    if wanted.mode.is_some() && status.kind.has_target() {
        return Err(Fault::Unsupported);
    }
    check_times(asker, volume, vnode, wanted)
}

/// The same change without the parts that need rights of their own.
fn only_killing(wanted: &StatusChange) -> StatusChange {
    let StatusChange { kill_privileges, through_handle, hold, .. } = *wanted;
    StatusChange { kill_privileges, through_handle, hold, ..StatusChange::default() }
}

fn is_nothing(wanted: &StatusChange) -> bool {
    StatusChange { through_handle: false, hold: false, ..*wanted } == StatusChange::default()
}

/// Lists require more than mode bits: a caller without the right to write the file changes no other
/// part of its status, and only administrators change owners.
fn check_listed(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    wanted: &StatusChange,
) -> Result<(), Fault> {
    if (wanted.uid.is_some() || wanted.gid.is_some()) && !asker.is_administrator()? {
        return Err(Fault::NotPermitted);
    }
    let others = wanted.mode.is_some() || wanted.accessed.is_some() || wanted.modified.is_some();
    if others { access::need(asker, volume, vnode, Right::WriteData) } else { Ok(()) }
}

fn check_size(status: &Status, size: u64) -> Result<(), Fault> {
    match status.kind {
        Kind::File if size > limits::FILE_BYTES_MAX => Err(Fault::TooBig),
        Kind::File => Ok(()),
        Kind::Directory => Err(Fault::IsDirectory),
        _ => Err(Fault::Invalid),
    }
}

/// The owner may change to a group that it is in; only the superuser changes the owner.
fn check_owner(caller: &Caller, status: &Status, wanted: &StatusChange) -> Result<(), Fault> {
    let root = caller.is_root();
    let owner = owns(caller, status);
    if wanted.uid.is_some_and(|uid| !(root || owner && uid == status.uid)) {
        return Err(Fault::NotPermitted);
    }
    if let Some(gid) = wanted.gid
        && !root
        && !(owner && (gid == status.gid || in_group(caller, gid)?))
    {
        return Err(Fault::NotPermitted);
    }
    if wanted.mode.is_some() && !owner { Err(Fault::NotPermitted) } else { Ok(()) }
}

fn check_times(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    wanted: &StatusChange,
) -> Result<(), Fault> {
    let times = [wanted.accessed, wanted.modified];
    if owns(asker.caller, &vnode.status) || times == [None, None] {
        return Ok(());
    }
    if times.iter().flatten().any(|time| matches!(time, SetTime::To(_))) {
        return Err(Fault::NotPermitted);
    }
    access::need(asker, volume, vnode, Right::Write)
}

/// A caller outside of the file's group cannot make it run as that group.
fn allowed_mode(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    status: &Status,
    wanted: &StatusChange,
    mode: u16,
) -> Result<u16, Fault> {
    let (caller, mode) = (asker.caller, mode & 0o7777);
    if volume.lists.decide() {
        let keeps = mode & SET_IDS == 0 || asker.is_administrator()?;
        return Ok(if keeps { mode } else { mode & !SET_IDS });
    }
    Ok(settable_mode(caller, wanted.gid.unwrap_or(status.gid), mode)?)
}

/// The mode without privileges. A write comes without the writer's groups, and must not fail for
/// them: if the bit depends on a group that the caller did not show, it goes.
fn unprivileged_mode(caller: &Caller, status: &Status) -> u16 {
    without_privileges(caller, status).unwrap_or(status.mode & !SET_IDS)
}

/// A written body loses its file capabilities, and its set-id bits unless the superuser writes it
/// and does not set `kill`.
pub(crate) fn written_by(
    caller: &Caller,
    kill: bool,
    vnode: &mut Vnode,
    change: &mut Change<'_>,
) -> Result<(), Fault> {
    if kill || !caller.is_root() {
        vnode.status.mode = unprivileged_mode(caller, &vnode.status);
    }
    drop_capabilities(vnode, change)
}

fn drop_capabilities(vnode: &mut Vnode, change: &mut Change<'_>) -> Result<(), Fault> {
    if vnode.has_xattr && vnode.status.kind == Kind::File {
        change.volume.store.edit(vnode, &mut change.update).remove_xattr(CAPABILITY)?;
    }
    Ok(())
}

fn set_times(ask: &CallContext<'_>, vnode: &mut Vnode, wanted: &StatusChange) {
    let at = |time| match time {
        SetTime::Now => ask.wall,
        SetTime::To(time) => time,
    };
    vnode.status.accessed = wanted.accessed.map_or(vnode.status.accessed, at);
    vnode.status.modified = wanted.modified.map_or(vnode.status.modified, at);
}
