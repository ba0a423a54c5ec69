//! Access lists: shown, changed, and what they give to who asks.

use guard::Acl;
use types::{Answer, Fault, Fid, VnodeNo};

use super::Outcome;
use crate::Vice;
use crate::access::{self, ATTRIBUTE, Right};
use crate::change::{Change, touch_status};
use crate::service::Ask;
use crate::volumes::ViceVolume;

impl Vice {
    pub(super) fn get_acl(&self, ask: &mut Ask<'_>, fid: Fid) -> Result<Outcome, Fault> {
        let volume = self.volume(fid.volume)?;
        let _seen = self.stripes.read(fid);
        self.promise(ask, &[fid])?;
        if !volume.lists.decide() {
            return Err(Fault::Unsupported);
        }
        let dir = volume.ruled_by(&volume.vnode(fid)?)?;
        access::need(ask.asker(), &volume, &dir, Right::Search)?;
        let ruling = volume.ruling(&dir)?;
        Ok(Outcome::Answer(Answer::Acl { of: ruling.of, list: ruling.list.encode().into() }))
    }

    pub(super) fn set_acl(&self, ask: &mut Ask<'_>, fid: Fid, list: Option<&[u8]>) -> Result<Outcome, Fault> {
        let volume = self.volume(fid.volume)?;
        volume.need_writable()?;
        // One form for each list, whoever sent it.
        let list = list.map(|list| Acl::decode(list).map_err(|_| Fault::Invalid)).transpose()?;
        let is_root = fid.vnode == VnodeNo::ROOT;
        if is_root && volume.lists.decide() != list.is_some() {
            return self.set_model(ask, &volume, fid, list);
        }
        if !volume.lists.decide() {
            return Err(Fault::Unsupported);
        }
        let _held = self.stripes.write(&[fid]);
        self.promise(ask, &[fid])?;
        access::need(ask.asker(), &volume, &volume.directory(fid)?, Right::Administer)?;
        let mut change = put_list(ask, &volume, fid, list)?;
        change.change_rights();
        self.commit(ask, change, Answer::Done)
    }

    /// From now on lists decide, or mode bits do. Whatever clients know of the volume was said under the other rule.
    fn set_model(
        &self,
        ask: &mut Ask<'_>,
        volume: &ViceVolume,
        root: Fid,
        list: Option<Acl>,
    ) -> Result<Outcome, Fault> {
        if !ask.asker().is_administrator()? {
            return Err(Fault::NotPermitted);
        }
        self.bring_in(ask, volume)?;
        let _held = self.stripes.write(&[root]);
        self.promise(ask, &[root])?;
        let by_list = list.is_some();
        let mut change = put_list(ask, volume, root, list)?;
        change.change_model(by_list);
        let outcome = self.commit(ask, change, Answer::Done);
        volume.hush(types::Time::ZERO);
        outcome
    }

    pub(super) fn tell_rights(&self, ask: &mut Ask<'_>, fid: Fid) -> Result<Outcome, Fault> {
        let volume = self.volume(fid.volume)?;
        let _seen = self.stripes.read(fid);
        self.promise(ask, &[fid, Fid::rights(fid.volume)])?;
        self.core.lock().told_rights.insert(fid.volume);
        if !volume.lists.decide() {
            return Err(Fault::Unsupported);
        }
        let dir = volume.ruled_by(&volume.vnode(fid)?)?;
        let rights = volume.rights(ask.asker(), &dir)?;
        Ok(Outcome::Answer(Answer::Rights { of: dir.status.fid, rights: rights.0 }))
    }
}

/// The change of one directory's list. The caller holds its stripe.
fn put_list<'v>(ask: &Ask<'_>, volume: &'v ViceVolume, fid: Fid, list: Option<Acl>) -> Result<Change<'v>, Fault> {
    let mut vnode = volume.directory(fid)?;
    let mut change = Change::new(volume);
    match list {
        Some(list) => volume.store.put_xattr(&mut vnode, ATTRIBUTE, &list.encode(), &mut change.update)?,
        None => {
            volume.store.remove_xattr(&mut vnode, ATTRIBUTE, &mut change.update)?;
        }
    }
    touch_status(&mut vnode, ask.wall);
    change.put_status(&vnode);
    Ok(change)
}
