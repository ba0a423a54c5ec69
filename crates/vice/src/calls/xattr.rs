//! Extended attributes. `user.` follows the mode bits, and only files and directories have them;
//! only the superuser changes `trusted.` and `security.`, and only the superuser sees `trusted.`;
//! nothing of `system.` is stored.

use bytes::Bytes;
use store::Vnode;
use types::posix::{STICKY, owns, touch_status};
use types::{Answer, Fault, Fid, Kind, Status, XattrMode, limits};

use crate::access::{self, Right};
use crate::call::CallerView;
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::volumes::ViceVolume;
use crate::volumes::{VolumeOptions, is_hidden};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

const TRUSTED: &[u8] = b"trusted.";
const SPACES: [(&[u8], Space); 3] =
    [(b"user.", Space::User), (TRUSTED, Space::Trusted), (b"security.", Space::Security)];

pub(crate) fn xattr_get(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    name: &[u8],
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    let space = if VolumeOptions::is_attribute(name) { Space::Security } else { space(name)? };
    let (right, shown) = match space {
        Space::User if !carries_user(&vnode.status) => (Right::See, false),
        Space::User => (Right::Read, true),
        Space::Trusted => (Right::See, ask.caller.is_root()),
        Space::Security => (Right::See, true),
    };
    access::need(ask.asker(), &volume, &vnode, right)?;
    files.promise(ask, &volume, &[fid])?;
    let value = if shown { volume.store.xattr(&vnode, name)? } else { None };
    let value = value.ok_or(Fault::NoXattr)?;
    Ok(CallOutcome::Answer(Answer::Xattr(value)))
}

pub(crate) fn xattr_set(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_change(ask.asker(), &volume, &vnode, name)?;
    files.promise(ask, &volume, &[fid])?;
    if value.len() > limits::XATTR_VALUE_BYTES_MAX {
        return Err(Fault::XattrTooBig);
    }
    let mut present = volume.store.xattrs(&vnode)?;
    present.retain(|(name, _)| !is_hidden(name));
    match (mode, present.iter().any(|(other, _)| other == name)) {
        (XattrMode::Create, true) => return Err(Fault::Exists),
        (XattrMode::Replace, false) => return Err(Fault::NoXattr),
        _ => {}
    }
    let others = present.iter().filter(|(other, _)| other != name);
    let total =
        others.map(|(name, bytes)| name.len() + bytes).sum::<usize>() + name.len() + value.len();
    let names = present.iter().map(|(other, _)| other.len() + 1).sum::<usize>() + name.len() + 1;
    if total > limits::XATTR_TOTAL_BYTES_MAX || names > limits::XATTR_NAMES_BYTES_MAX {
        return Err(Fault::XattrTooBig);
    }
    let mut change = Change::new(ask.scope, &volume);
    volume.store.edit(&mut vnode, &mut change.update).put_xattr(name, value)?;
    touch_status(&mut vnode.status, ask.wall);
    change.put_status(&vnode);
    files.commit(ask, change, Answer::Status(vnode.status))
}

pub(crate) fn xattr_list(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    access::need(ask.asker(), &volume, &vnode, Right::See)?;
    files.promise(ask, &volume, &[fid])?;
    let mut names: Vec<Bytes> =
        volume.store.xattrs(&vnode)?.into_iter().map(|(name, _)| name).collect();
    names.retain(|name| !is_hidden(name));
    names.retain(|name| ask.caller.is_root() || !name.starts_with(TRUSTED));
    names.sort_unstable();
    Ok(CallOutcome::Answer(Answer::XattrNames(names)))
}

pub(crate) fn xattr_remove(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    name: &[u8],
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_change(ask.asker(), &volume, &vnode, name)?;
    files.promise(ask, &volume, &[fid])?;
    let mut change = Change::new(ask.scope, &volume);
    if !volume.store.edit(&mut vnode, &mut change.update).remove_xattr(name)? {
        return Err(Fault::NoXattr);
    }
    touch_status(&mut vnode.status, ask.wall);
    change.put_status(&vnode);
    files.commit(ask, change, Answer::Status(vnode.status))
}

fn carries_user(status: &Status) -> bool {
    matches!(status.kind, Kind::File | Kind::Directory)
}

fn need_change(
    asker: CallerView<'_>,
    volume: &ViceVolume,
    vnode: &Vnode,
    name: &[u8],
) -> Result<(), Fault> {
    let (caller, status) = (asker.caller, &vnode.status);
    match space(name)? {
        Space::User if !carries_user(status) => Err(Fault::NotPermitted),
        // Otherwise any caller could use up the room for attributes of a shared directory.
        Space::User
            if status.kind == Kind::Directory
                && status.mode & STICKY != 0
                && !owns(caller, status) =>
        {
            Err(Fault::NotPermitted)
        }
        Space::User => access::need(asker, volume, vnode, Right::Write),
        Space::Trusted | Space::Security if caller.is_root() => Ok(()),
        Space::Trusted | Space::Security => Err(Fault::NotPermitted),
    }
}

fn space(name: &[u8]) -> Result<Space, Fault> {
    if name.len() > limits::XATTR_NAME_BYTES_MAX {
        return Err(Fault::NameTooLong);
    }
    let found = SPACES.into_iter().find(|(prefix, _)| name.starts_with(prefix));
    let (prefix, space) = found.ok_or(Fault::Unsupported)?;
    if name.len() == prefix.len() || name.contains(&0) { Err(Fault::Invalid) } else { Ok(space) }
}
