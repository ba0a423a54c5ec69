//! New files.

use std::collections::BTreeMap;

use types::{
    Answer, CreateHow, DataVersion, Fault, Fid, Kind, Name, NewKind, Status, StatusVersion,
};

use crate::ModelBody;
use crate::access::{GROUP_EXECUTE, SET_GID, SET_IDS, in_group};
use crate::tree::{Content, ModelContext, ModelNode, ModelTree};

impl ModelTree {
    pub(crate) fn make(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        name: &Name,
        kind: &NewKind,
        mode: u16,
        how: CreateHow,
    ) -> Result<Answer, Fault> {
        kind.check_target()?;
        if let Some(fid) = self.searched(ask, dir)?.entries()?.get(name) {
            return self.existing(*fid, dir, kind, how);
        }
        self.need_room(ask, dir)?;
        if matches!(kind, NewKind::CharDevice(_) | NewKind::BlockDevice(_)) && !ask.caller.is_root()
        {
            return Err(Fault::NotPermitted);
        }
        let exclusive =
            if let CreateHow::Exclusive(verifier) = how { Some(verifier) } else { None };
        let fid = self.add_node(ask, dir, kind, mode, exclusive)?;
        if kind.kind() == Kind::Directory {
            self.node_mut(dir)?.status.links += 1;
        }
        self.set_entry(ask, dir, name, Some(fid))?;
        Ok(Answer::Made {
            status: self.node(fid)?.status,
            dir: self.node(dir)?.status,
            existed: false,
        })
    }

    pub(crate) fn make_unnamed(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        mode: u16,
    ) -> Result<Answer, Fault> {
        self.directory(dir)?;
        self.need_room(ask, dir)?;
        let fid = self.add_node(ask, dir, &NewKind::File, mode, None)?;
        let node = self.node_mut(fid)?;
        node.status.links = 0;
        let status = node.status;
        self.holds.entry(fid).or_default().insert(ask.session);
        Ok(Answer::Status(status))
    }

    fn existing(
        &self,
        fid: Fid,
        dir: Fid,
        kind: &NewKind,
        how: CreateHow,
    ) -> Result<Answer, Fault> {
        let node = self.node(fid)?;
        let same = match how {
            CreateHow::Unchecked => *kind == NewKind::File && node.status.kind == Kind::File,
            CreateHow::Guarded => false,
            CreateHow::Exclusive(verifier) => {
                verifier != 0 && node.status.kind == kind.kind() && node.exclusive == Some(verifier)
            }
        };
        if !same {
            return Err(Fault::Exists);
        }
        Ok(Answer::Made { status: node.status, dir: self.node(dir)?.status, existed: true })
    }

    pub(crate) fn add_node(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        new: &NewKind,
        mode: u16,
        exclusive: Option<u64>,
    ) -> Result<Fid, Fault> {
        let kind = new.kind();
        let (mut mode, gid) = inherit(ask, &self.node(dir)?.status, kind, mode);
        let decides = self.decides();
        if !decides && !ask.caller.who.level.is_proved() {
            mode |= (mode & 0o700) >> 6;
        }
        if decides && !self.is_administrator(ask.caller) {
            mode &= !SET_IDS;
        }
        // A copy, so that later changes of the parent's list do not matter.
        let list = if decides && kind == Kind::Directory { self.ruling(dir) } else { None };
        let fid = self.new_fid(kind);
        let read_times = self.node(dir)?.status.read_times;
        let status = Status {
            fid,
            kind,
            mode,
            by_list: decides,
            read_times,
            own_list: false,
            uid: ask.caller.uid,
            gid,
            links: if kind == Kind::Directory { 2 } else { 1 },
            size: match new {
                NewKind::Directory => 4096,
                NewKind::Symlink(target) | NewKind::MountPoint(target) => target.len() as u64,
                _ => 0,
            },
            used: 0,
            device: match new {
                NewKind::CharDevice(device) | NewKind::BlockDevice(device) => *device,
                _ => 0,
            },
            accessed: ask.wall,
            modified: ask.wall,
            changed: ask.wall,
            created: ask.wall,
            data_version: DataVersion::FIRST,
            status_version: StatusVersion::FIRST,
        };
        let content = match new {
            NewKind::File => Content::File(ModelBody::default()),
            NewKind::Directory => Content::Directory(BTreeMap::new()),
            NewKind::Symlink(target) | NewKind::MountPoint(target) => {
                Content::Target(target.clone())
            }
            _ => Content::Nothing,
        };
        self.nodes.insert(
            fid,
            ModelNode { status, content, parent: dir, exclusive, xattrs: BTreeMap::new(), list },
        );
        Ok(fid)
    }
}

/// Mode and group of a new file. In a set-group-id directory the group is the directory's; a new
/// directory inherits the bit, and a program does not run as a group that its maker is not in.
fn inherit(ask: ModelContext<'_>, dir: &Status, kind: Kind, mode: u16) -> (u16, u32) {
    let mut mode = if kind.has_target() { 0o777 } else { mode & 0o7777 };
    if dir.mode & SET_GID == 0 {
        return (mode, ask.caller.gid);
    }
    if kind == Kind::Directory {
        mode |= SET_GID;
    } else if mode & GROUP_EXECUTE != 0 && !ask.caller.is_root() && !in_group(ask.caller, dir.gid) {
        mode &= !SET_GID;
    }
    (mode, dir.gid)
}
