//! Changes of status.

use types::{Answer, Caller, Fault, Fid, Kind, SetTime, Status, StatusChange, Timestamp, limits};

use crate::access::{RequestedAccess, SET_GID, SET_IDS, in_group, owns, without_privileges};
use crate::tree::{Content, ModelContext, ModelNode, ModelTree};
use crate::xattr::CAPABILITY;

impl ModelTree {
    pub(crate) fn set_status(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        change: &StatusChange,
    ) -> Result<Answer, Fault> {
        if is_nothing(change) {
            self.need(ask, fid, RequestedAccess::See)?;
            return Ok(Answer::Status(self.node(fid)?.status));
        }
        self.need_change(ask, fid, change)?;
        let (decides, is_administrator) = (self.decides(), self.is_administrator(ask.caller));
        let was = self.node(fid)?.status;
        if change.hold && was.kind == Kind::File {
            self.holds.entry(fid).or_default().insert(ask.session);
        }
        let node = self.node_mut(fid)?;
        let gains_owner = change.uid.is_some() || change.gid.is_some();
        if gains_owner || change.kill_privileges || (change.size.is_some() && !ask.caller.is_root())
        {
            node.kill_privileges(ask.caller);
        }
        node.status.uid = change.uid.unwrap_or(node.status.uid);
        node.status.gid = change.gid.unwrap_or(node.status.gid);
        if let Some(mode) = change.mode {
            let may_keep = ask.caller.is_root() || in_group(ask.caller, node.status.gid);
            let lost = match (decides, is_administrator) {
                (false, _) if !may_keep => SET_GID,
                (true, false) => SET_IDS,
                _ => 0,
            };
            node.status.mode = mode & 0o7777 & !lost;
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
        let now = node.status;
        let rights = |status: &Status| (status.mode, status.uid, status.gid);
        if was.kind == Kind::File && !decides && rights(&was) != rights(&now) {
            let holders = self.holds.get(&fid).cloned().unwrap_or_default();
            for session in
                holders.into_iter().filter(|session| change.hold || *session != ask.session)
            {
                let noted = self.opened.entry((session, fid)).or_default();
                if noted.len() < 4 && !noted.contains(&rights(&was)) {
                    noted.push(rights(&was));
                }
            }
        }
        Ok(Answer::Status(now))
    }

    /// Records a read, if the volume records reads.
    pub(crate) fn note_read(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        was: Timestamp,
        at: Timestamp,
    ) -> Result<Answer, Fault> {
        let right = match self.node(fid)?.status.kind {
            Kind::File => RequestedAccess::ReadData,
            Kind::Directory => RequestedAccess::List,
            _ => RequestedAccess::See,
        };
        self.need(ask, fid, right)?;
        let status = &mut self.node_mut(fid)?.status;
        let at = at.min(ask.wall);
        let is_first = status.accessed == was || status.changed < at;
        if status.read_times && status.accessed < at && is_first {
            status.accessed = at;
        }
        Ok(Answer::Done)
    }

    fn need_change(
        &self,
        ask: ModelContext<'_>,
        fid: Fid,
        change: &StatusChange,
    ) -> Result<(), Fault> {
        let status = &self.node(fid)?.status;
        if let Some(size) = change.size {
            match status.kind {
                Kind::File if size > limits::FILE_BYTES_MAX => return Err(Fault::TooBig),
                Kind::File => {}
                Kind::Directory => return Err(Fault::IsDirectory),
                _ => return Err(Fault::Invalid),
            }
            self.need(
                ask,
                fid,
                if change.through_handle {
                    RequestedAccess::WriteData
                } else {
                    RequestedAccess::Write
                },
            )?;
        }
        let root = ask.caller.is_root();
        let owner = owns(ask.caller, status);
        let uid_fine = change.uid.is_none_or(|uid| root || (owner && uid == status.uid));
        let gid_fine = change
            .gid
            .is_none_or(|gid| root || (owner && (gid == status.gid || in_group(ask.caller, gid))));
        let mode_fine = change.mode.is_none() || owner;
        if !uid_fine || !gid_fine || !mode_fine {
            return Err(Fault::NotPermitted);
        }
        let killing = StatusChange { kill_privileges: false, ..*change };
        if change.kill_privileges && is_nothing(&killing) {
            self.need(ask, fid, RequestedAccess::WriteData)?;
        }
        if self.decides() {
            if (change.uid.is_some() || change.gid.is_some()) && !self.is_administrator(ask.caller)
            {
                return Err(Fault::NotPermitted);
            }
            if change.mode.is_some() || change.accessed.is_some() || change.modified.is_some() {
                self.need(ask, fid, RequestedAccess::WriteData)?;
            }
        }
        if change.mode.is_some() && status.kind.has_target() {
            return Err(Fault::Unsupported);
        }
        let times = [change.accessed, change.modified];
        if times.iter().flatten().any(|time| matches!(time, SetTime::To(_))) && !owner {
            return Err(Fault::NotPermitted);
        }
        if times.iter().flatten().next().is_some()
            && !owner
            && !self.may(ask, fid, RequestedAccess::Write)?
        {
            return Err(Fault::AccessDenied);
        }
        Ok(())
    }
}

fn is_nothing(change: &StatusChange) -> bool {
    let rest = StatusChange { through_handle: false, hold: false, ..*change };
    rest == StatusChange::default()
}

impl ModelNode {
    /// Removes set-id bits and file capabilities, which give the same privileges as an attribute.
    pub(crate) fn kill_privileges(&mut self, caller: &Caller) {
        self.status.mode = without_privileges(caller, &self.status);
        self.drop_capabilities();
    }

    pub(crate) fn drop_capabilities(&mut self) {
        if self.status.kind == Kind::File {
            self.xattrs.remove(CAPABILITY);
        }
    }
}
