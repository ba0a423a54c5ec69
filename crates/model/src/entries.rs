//! Names of existing files: find, list, link, remove.

use types::limits::TARGET_LISTED_BYTES_MAX;
use types::{Answer, Cookie, DirEntry, Fault, Fid, Kind, Name, RemoveWhat};

use crate::access::{RequestedAccess, is_trusted, owns};
use crate::tree::{Content, ModelContext, ModelTree};

impl ModelTree {
    pub(crate) fn lookup(
        &self,
        ask: ModelContext<'_>,
        dir: Fid,
        name: &Name,
    ) -> Result<Answer, Fault> {
        let node = self.searched(ask, dir)?;
        let fid = *node.entries()?.get(name).ok_or(Fault::NotFound)?;
        Ok(Answer::Entry {
            status: self.node(fid)?.status,
            dir_version: node.status.data_version,
            sole: false,
        })
    }

    /// All remaining entries, in the order of names; a cookie is the entry's place.
    pub(crate) fn read_dir(
        &self,
        ask: ModelContext<'_>,
        dir: Fid,
        cookie: Cookie,
        plus: bool,
    ) -> Result<Answer, Fault> {
        let node = self.directory(dir)?;
        self.need(ask, dir, RequestedAccess::List)?;
        let searches = self.may(ask, dir, RequestedAccess::Search)?;
        let plus = plus && searches;
        let shows_fids = searches || is_trusted(ask.caller);
        let mut entries = Vec::new();
        for ((name, fid), cookie) in node.entries()?.iter().zip(1..).skip(cookie.0 as usize) {
            let node = self.node(*fid)?;
            let status = node.status;
            let shown = plus.then_some(status);
            let target = match &node.content {
                Content::Target(target) if plus && status.kind == Kind::Symlink => {
                    Some(target.clone())
                }
                _ => None,
            };
            entries.push(DirEntry {
                name: name.clone(),
                fid: if shows_fids { *fid } else { fid.masked() },
                kind: status.kind,
                cookie: Cookie(cookie),
                status: shown,
                sole: false,
                target: target.filter(|target| target.len() <= TARGET_LISTED_BYTES_MAX),
            });
        }
        Ok(Answer::Entries { entries, end: true, dir_version: node.status.data_version })
    }

    pub(crate) fn read_link(&self, ask: ModelContext<'_>, fid: Fid) -> Result<Answer, Fault> {
        self.need(ask, fid, RequestedAccess::See)?;
        match &self.node(fid)?.content {
            Content::Target(target) => Ok(Answer::Target(target.clone())),
            _ => Err(Fault::Invalid),
        }
    }

    /// Checks that an entry may be made in `dir`, which must still have a name itself.
    pub(crate) fn need_room(&self, ask: ModelContext<'_>, dir: Fid) -> Result<(), Fault> {
        let status = self.node(dir)?.status;
        if status.links == 0 {
            return Err(Fault::NotFound);
        }
        self.need(ask, dir, RequestedAccess::Insert)
    }

    pub(crate) fn link(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        dir: Fid,
        name: &Name,
    ) -> Result<Answer, Fault> {
        self.node(fid)?;
        if self.searched(ask, dir)?.entries()?.contains_key(name) {
            return Err(Fault::Exists);
        }
        self.need_room(ask, dir)?;
        let decides = self.decides();
        let node = self.node_mut(fid)?;
        if matches!(node.status.kind, Kind::Directory | Kind::MountPoint) {
            return Err(Fault::NotPermitted);
        }
        let status = node.status;
        match status.links {
            0 => self.need_to_name(ask, fid)?,
            _ if decides && node.parent != dir => return Err(Fault::CrossVolume),
            _ if !decides && !is_trusted(ask.caller) => self.need_to_name(ask, fid)?,
            _ => {}
        }
        let node = self.node_mut(fid)?;
        if status.links == 0 {
            node.parent = dir;
        }
        node.status.links += 1;
        node.touch_status(ask.wall);
        self.set_entry(ask, dir, name, Some(fid))?;
        Ok(Answer::Made {
            status: self.node(fid)?.status,
            dir: self.node(dir)?.status,
            existed: false,
        })
    }

    fn need_to_name(&self, ask: ModelContext<'_>, fid: Fid) -> Result<(), Fault> {
        let is_judged_there = !self.decides() && is_trusted(ask.caller);
        if is_judged_there || owns(ask.caller, &self.node(fid)?.status) {
            return Ok(());
        }
        self.need(ask, fid, RequestedAccess::ReadXattr)?;
        self.need(ask, fid, RequestedAccess::WriteData)
    }

    pub(crate) fn remove(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        name: &Name,
        what: RemoveWhat,
        hold: bool,
    ) -> Result<Answer, Fault> {
        let node = self.searched(ask, dir)?;
        let fid = *node.entries()?.get(name).ok_or(Fault::NotFound)?;
        let victim = self.node(fid)?;
        self.need_delete(ask, dir, fid)?;
        match (what, victim.status.kind) {
            (RemoveWhat::MountPoint, Kind::MountPoint) => {}
            (RemoveWhat::MountPoint, _) => return Err(Fault::Invalid),
            (_, Kind::MountPoint) => return Err(Fault::Busy),
            (RemoveWhat::Directory, Kind::Directory) if !victim.entries()?.is_empty() => {
                return Err(Fault::NotEmpty);
            }
            (RemoveWhat::Directory, Kind::Directory) => {}
            (RemoveWhat::Directory, _) => return Err(Fault::NotDirectory),
            (RemoveWhat::File, Kind::Directory) => return Err(Fault::IsDirectory),
            (RemoveWhat::File, _) => {}
        }
        self.set_entry(ask, dir, name, None)?;
        let status = self.lose_name(ask, dir, fid, hold)?;
        Ok(Answer::Removed { status, dir: self.node(dir)?.status })
    }

    /// `fid` lost a name in `dir`. A file without names stays only while a session holds it.
    pub(crate) fn lose_name(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        fid: Fid,
        hold: bool,
    ) -> Result<types::Status, Fault> {
        let node = self.node_mut(fid)?;
        let is_directory = node.status.kind == Kind::Directory;
        node.status.links = if is_directory { 0 } else { node.status.links - 1 };
        node.touch_status(ask.wall);
        let status = node.status;
        if is_directory {
            self.node_mut(dir)?.status.links -= 1;
        }
        if hold && status.links == 0 {
            self.holds.entry(fid).or_default().insert(ask.session);
        }
        self.drop_if_gone(fid);
        Ok(status)
    }

    /// Sets or removes one entry of one directory.
    pub(crate) fn set_entry(
        &mut self,
        ask: ModelContext<'_>,
        dir: Fid,
        name: &Name,
        fid: Option<Fid>,
    ) -> Result<(), Fault> {
        let node = self.node_mut(dir)?;
        node.touch_data(ask.wall);
        let Content::Directory(entries) = &mut node.content else {
            return Err(Fault::NotDirectory);
        };
        match fid {
            Some(fid) => entries.insert(name.clone(), fid),
            None => entries.remove(name),
        };
        Ok(())
    }
}
