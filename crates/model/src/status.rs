//! Changes of status.

use types::{Answer, Fault, Fid, Kind, SetTime, StatusChange, limits};

use crate::access::{SET_GID, WRITE, allowed, in_group, need, owns, without_privileges};
use crate::tree::{Ask, Content, Node, Tree};
use crate::xattr::CAPABILITY;

impl Tree {
    pub(crate) fn set_status(&mut self, ask: Ask<'_>, fid: Fid, change: &StatusChange) -> Result<Answer, Fault> {
        let node = self.node_mut(fid)?;
        if is_nothing(change) {
            return Ok(Answer::Status(node.status));
        }
        need_change(ask, node, change)?;
        let gains_owner = change.uid.is_some() || change.gid.is_some();
        if gains_owner || change.kill_privileges || (change.size.is_some() && !ask.caller.is_root()) {
            node.kill_privileges();
        }
        node.status.uid = change.uid.unwrap_or(node.status.uid);
        node.status.gid = change.gid.unwrap_or(node.status.gid);
        if let Some(mode) = change.mode {
            let keeps = ask.caller.is_root() || in_group(ask.caller, node.status.gid);
            node.status.mode = mode & if keeps { 0o7777 } else { 0o7777 & !SET_GID };
        }
        match (change.size, &mut node.content) {
            (Some(size), Content::File(body)) => {
                body.resize(size);
                node.status.size = size;
                node.touch_data(ask.wall);
            }
            _ => node.touch_status(ask.wall),
        }
        let at = |time| match time {
            SetTime::Now => ask.wall,
            SetTime::To(time) => time,
        };
        node.status.accessed = change.accessed.map_or(node.status.accessed, at);
        node.status.modified = change.modified.map_or(node.status.modified, at);
        Ok(Answer::Status(node.status))
    }
}

fn is_nothing(change: &StatusChange) -> bool {
    let rest = StatusChange { through_handle: false, ..*change };
    rest == StatusChange::default()
}

fn need_change(ask: Ask<'_>, node: &Node, change: &StatusChange) -> Result<(), Fault> {
    let status = &node.status;
    if let Some(size) = change.size {
        match status.kind {
            Kind::File if size > limits::FILE_BYTES_MAX => return Err(Fault::TooBig),
            Kind::File => {}
            Kind::Directory => return Err(Fault::IsDirectory),
            _ => return Err(Fault::Invalid),
        }
        if !change.through_handle {
            need(ask.caller, status, WRITE)?;
        }
    }
    let root = ask.caller.is_root();
    let owner = owns(ask.caller, status);
    let uid_fine = change.uid.is_none_or(|uid| root || (owner && uid == status.uid));
    let gid_fine = change.gid.is_none_or(|gid| root || (owner && (gid == status.gid || in_group(ask.caller, gid))));
    let mode_fine = change.mode.is_none() || owner;
    if !uid_fine || !gid_fine || !mode_fine {
        return Err(Fault::NotPermitted);
    }
    if change.mode.is_some() && status.kind.has_target() {
        return Err(Fault::Unsupported);
    }
    let times = [change.accessed, change.modified];
    if times.iter().flatten().any(|time| matches!(time, SetTime::To(_))) && !owner {
        return Err(Fault::NotPermitted);
    }
    if times.iter().flatten().next().is_some() && !owner && !allowed(ask.caller, status, WRITE) {
        return Err(Fault::AccessDenied);
    }
    Ok(())
}

impl Node {
    /// Set-id bits go, and so do file capabilities, which are the same thing as an attribute.
    pub(crate) fn kill_privileges(&mut self) {
        self.status.mode = without_privileges(&self.status);
        self.drop_capabilities();
    }

    pub(crate) fn drop_capabilities(&mut self) {
        if self.status.kind == Kind::File {
            self.xattrs.remove(CAPABILITY);
        }
    }
}
