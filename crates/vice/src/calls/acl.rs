//! Access lists: reading, changing, and the rights that they give to the caller.

use guard::Acl;
use store::Vnode;
use types::posix::touch_status;
use types::{Answer, Fault, Fid, VnodeNo};

use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::volumes::ATTRIBUTE;
use crate::volumes::ViceVolume;

pub(crate) fn get_acl(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    if !volume.lists.decide() {
        return Err(Fault::Unsupported);
    }
    let vnode = volume.vnode(fid)?;
    access::need(ask.asker(), &volume, &vnode, Right::Search)?;
    files.promise(ask, &volume, &[fid])?;
    let ruling = volume.lists.ruling(&vnode)?;
    Ok(CallOutcome::Answer(Answer::Acl { of: ruling.of, list: ruling.list.encode().into() }))
}

pub(crate) fn set_acl(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    list: Option<&[u8]>,
    instead_of: Option<&[u8; 32]>,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    volume.need_writable()?;
    // One encoding for each list, independent of the client.
    let list = list.map(|list| Acl::decode(list).map_err(|_| Fault::Invalid)).transpose()?;
    let is_root = fid.vnode == VnodeNo::ROOT;
    if is_root && volume.lists.decide() != list.is_some() {
        return set_model(files, ask, &volume, fid, list, instead_of);
    }
    if !volume.lists.decide() {
        return Err(Fault::Unsupported);
    }
    let _held = files.write_lock(&[fid]);
    files.need_back(ask, &volume, &[fid])?;
    let vnode = volume.vnode(fid)?;
    if vnode.status.kind.has_target() {
        // A caller that sees a link may read its target, and no call writes it.
        return Err(Fault::Invalid);
    }
    access::need(ask.asker(), &volume, &vnode, Right::Administer)?;
    files.promise(ask, &volume, &[fid])?;
    need_seen(&volume, &vnode, instead_of)?;
    // Changes that sessions have answered under the old rights come first.
    files.need_all_back(ask, volume.store.id())?;
    let mut change = put_list(ask, &volume, vnode, list)?;
    change.change_rights();
    files.commit(ask, change, Answer::Done)
}

/// Sets whether lists or mode bits decide. Clients' knowledge of the volume becomes stale.
fn set_model(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    root: Fid,
    list: Option<Acl>,
    instead_of: Option<&[u8; 32]>,
) -> Result<CallOutcome, Fault> {
    if !ask.asker().is_administrator()? {
        return Err(Fault::NotPermitted);
    }
    files.bring_in(ask, volume)?;
    let _held = files.write_lock(&[root]);
    files.need_back(ask, volume, &[root])?;
    files.promise(ask, volume, &[root])?;
    let by_list = list.is_some();
    if volume.lists.decide() == by_list {
        // Another caller changed it first.
        return Err(Fault::Conflict);
    }
    let vnode = volume.vnode(root)?;
    need_seen(volume, &vnode, instead_of)?;
    let mut change = put_list(ask, volume, vnode, list)?;
    change.change_model(by_list);
    let outcome = files.commit(ask, change, Answer::Done);
    volume.allow_delegations();
    outcome
}

pub(crate) fn tell_rights(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let (volume, _seen) = files.look_at(ask, fid)?;
    let vnode = volume.vnode(fid)?;
    // Before the rights are read, so that a change of them causes a break.
    files.promise(ask, &volume, &[Fid::rights(fid.volume)])?;
    files.coherence().show_rights(fid.volume);
    if !volume.lists.decide() {
        return Err(Fault::Unsupported);
    }
    let (rights, of) = access::rights(ask.asker(), &volume, &vnode)?;
    if access::may(ask.asker(), &volume, &vnode, Right::See)? {
        files.promise(ask, &volume, &[fid])?;
    }
    Ok(CallOutcome::Answer(Answer::Rights { of, rights: rights.0 }))
}

/// Checks that the deciding list is the one that the caller saw, if the call names one. The change
/// is made under the stripe, so no concurrent change of the same list is lost.
fn need_seen(volume: &ViceVolume, vnode: &Vnode, seen: Option<&[u8; 32]>) -> Result<(), Fault> {
    match seen {
        Some(sum) if volume.lists.ruling(vnode)?.list.sum() != *sum => Err(Fault::Conflict),
        _ => Ok(()),
    }
}

/// Changes one list. The caller holds the vnode's stripe.
fn put_list<'v>(
    ask: &CallContext<'v>,
    volume: &'v ViceVolume,
    mut vnode: Vnode,
    list: Option<Acl>,
) -> Result<Change<'v>, Fault> {
    let mut change = Change::new(ask.scope, volume);
    match list {
        Some(list) => {
            volume
                .store
                .edit(&mut vnode, &mut change.update)
                .put_xattr(ATTRIBUTE, &list.encode())?;
        }
        None => {
            volume.store.edit(&mut vnode, &mut change.update).remove_xattr(ATTRIBUTE)?;
        }
    }
    touch_status(&mut vnode.status, ask.wall);
    change.put_status(&vnode);
    Ok(change)
}
