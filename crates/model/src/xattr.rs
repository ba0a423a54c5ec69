//! Extended attributes: `user.` follows the mode bits, only the superuser changes `trusted.` and
//! `security.`, and nothing of `system.` is stored.

use bytes::Bytes;
use types::{Answer, Fault, Fid, Kind, Status, XattrMode, limits};

use crate::access::{RequestedAccess, STICKY, owns};
use crate::tree::{ModelContext, ModelTree};

/// File capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

impl ModelTree {
    pub(crate) fn xattr_get(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        name: &Bytes,
    ) -> Result<Answer, Fault> {
        let node = self.node(fid)?;
        match space(name)? {
            Space::User if carries_user(&node.status) => {
                self.need(ask, fid, RequestedAccess::ReadXattr)?;
            }
            Space::User => {
                self.need(ask, fid, RequestedAccess::See)?;
                return Err(Fault::NoXattr);
            }
            Space::Trusted | Space::Security => self.need(ask, fid, RequestedAccess::See)?,
        }
        if space(name)? == Space::Trusted && !ask.caller.is_root() {
            return Err(Fault::NoXattr);
        }
        node.xattrs.get(name).cloned().map(Answer::Xattr).ok_or(Fault::NoXattr)
    }

    pub(crate) fn xattr_set(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        name: &Bytes,
        value: &Bytes,
        mode: XattrMode,
    ) -> Result<Answer, Fault> {
        self.need_xattr_change(ask, fid, name)?;
        let node = self.node_mut(fid)?;
        if value.len() > limits::XATTR_VALUE_BYTES_MAX {
            return Err(Fault::XattrTooBig);
        }
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Fault::Exists),
            (XattrMode::Replace, false) => return Err(Fault::NoXattr),
            _ => {}
        }
        let others = node.xattrs.iter().filter(|(other, _)| *other != name);
        let total = others.map(|(name, value)| name.len() + value.len()).sum::<usize>()
            + name.len()
            + value.len();
        let names = node.xattrs.keys().map(|other| other.len() + 1).sum::<usize>() + name.len() + 1;
        if total > limits::XATTR_TOTAL_BYTES_MAX || names > limits::XATTR_NAMES_BYTES_MAX {
            return Err(Fault::XattrTooBig);
        }
        node.xattrs.insert(name.clone(), value.clone());
        node.touch_status(ask.wall);
        Ok(Answer::Status(node.status))
    }

    pub(crate) fn xattr_list(&self, ask: ModelContext<'_>, fid: Fid) -> Result<Answer, Fault> {
        self.need(ask, fid, RequestedAccess::See)?;
        let shown = |name: &&Bytes| ask.caller.is_root() || !name.starts_with(b"trusted.");
        Ok(Answer::XattrNames(self.node(fid)?.xattrs.keys().filter(shown).cloned().collect()))
    }

    pub(crate) fn xattr_remove(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        name: &Bytes,
    ) -> Result<Answer, Fault> {
        self.need_xattr_change(ask, fid, name)?;
        let node = self.node_mut(fid)?;
        node.xattrs.remove(name).ok_or(Fault::NoXattr)?;
        node.touch_status(ask.wall);
        Ok(Answer::Status(node.status))
    }

    fn need_xattr_change(&self, ask: ModelContext<'_>, fid: Fid, name: &[u8]) -> Result<(), Fault> {
        let status = &self.node(fid)?.status;
        match space(name)? {
            Space::User if !carries_user(status) => Err(Fault::NotPermitted),
            Space::User => {
                let shared = status.kind == Kind::Directory && status.mode & STICKY != 0;
                if shared && !owns(ask.caller, status) {
                    return Err(Fault::NotPermitted);
                }
                self.need(ask, fid, RequestedAccess::Write)
            }
            Space::Trusted | Space::Security if ask.caller.is_root() => Ok(()),
            Space::Trusted | Space::Security => Err(Fault::NotPermitted),
        }
    }
}

fn carries_user(status: &Status) -> bool {
    matches!(status.kind, Kind::File | Kind::Directory)
}

fn space(name: &[u8]) -> Result<Space, Fault> {
    if name.len() > limits::XATTR_NAME_BYTES_MAX {
        return Err(Fault::NameTooLong);
    }
    let spaces = [
        (&b"user."[..], Space::User),
        (b"trusted.", Space::Trusted),
        (b"security.", Space::Security),
    ];
    let (prefix, space) = spaces
        .into_iter()
        .find(|(prefix, _)| name.starts_with(prefix))
        .ok_or(Fault::Unsupported)?;
    if name.len() == prefix.len() || name.contains(&0) { Err(Fault::Invalid) } else { Ok(space) }
}
