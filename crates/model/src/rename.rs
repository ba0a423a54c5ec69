//! Renames, and exchanges of two names.

use types::{Answer, Fault, Fid, Kind, Name, NewKind, RenameMode};

use crate::access::RequestedAccess;
use crate::tree::{Content, ModelContext, ModelNode, ModelTree};

impl ModelTree {
    pub(crate) fn rename(
        &mut self,
        ask: ModelContext<'_>,
        (from_dir, from): (Fid, &Name),
        (to_dir, to): (Fid, &Name),
        mode: RenameMode,
        hold: bool,
    ) -> Result<Answer, Fault> {
        let moved = self.searched(ask, from_dir)?.entries()?.get(from).copied();
        let target = self.searched(ask, to_dir)?.entries()?.get(to).copied();
        let moved = moved.ok_or(Fault::NotFound)?;
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::MountPoint, Some(_)) => return Err(Fault::Exists),
            (RenameMode::Exchange, None) => return Err(Fault::NotFound),
            _ => {}
        }
        self.refuse_loops(moved, target, from_dir, to_dir, mode)?;
        if target == Some(moved) {
            return self.renamed(moved, None, from_dir, to_dir);
        }
        self.need_rename(ask, moved, target, from_dir, to_dir, mode)?;
        if mode == RenameMode::Exchange {
            self.exchange(ask, (from_dir, from), (to_dir, to))?;
            return self.renamed(moved, target, from_dir, to_dir);
        }
        let stays = match mode {
            RenameMode::Whiteout => {
                Some(self.add_node(ask, from_dir, &NewKind::CharDevice(0), 0, None)?)
            }
            _ => None,
        };
        self.set_entry(ask, from_dir, from, stays)?;
        self.set_entry(ask, to_dir, to, Some(moved))?;
        if from_dir == to_dir {
            self.count_once(from_dir)?;
        }
        self.update_moved(ask, moved, from_dir, to_dir)?;
        let lost = target.map(|fid| self.lose_name(ask, to_dir, fid, hold)).transpose()?;
        let answer = self.renamed(moved, None, from_dir, to_dir)?;
        let Answer::Renamed { status, from_dir, to_dir, .. } = answer else {
            return Err(Fault::Invalid);
        };
        Ok(Answer::Renamed { status, other: lost, from_dir, to_dir })
    }

    fn refuse_loops(
        &self,
        moved: Fid,
        target: Option<Fid>,
        from_dir: Fid,
        to_dir: Fid,
        mode: RenameMode,
    ) -> Result<(), Fault> {
        if self.lies_in(to_dir, moved) {
            return Err(Fault::Invalid);
        }
        match target {
            Some(target) if self.lies_in(from_dir, target) => {
                Err(if mode == RenameMode::Exchange { Fault::Invalid } else { Fault::NotEmpty })
            }
            _ => Ok(()),
        }
    }

    /// Whether directory `inner` is `outer` or somewhere below it.
    fn lies_in(&self, inner: Fid, outer: Fid) -> bool {
        let mut at = inner;
        loop {
            let parent = match self.nodes.get(&at) {
                _ if at == outer => return true,
                Some(node) if node.parent != at => node.parent,
                _ => return false,
            };
            at = parent;
        }
    }

    fn need_rename(
        &self,
        ask: ModelContext<'_>,
        moved: Fid,
        target: Option<Fid>,
        from_dir: Fid,
        to_dir: Fid,
        mode: RenameMode,
    ) -> Result<(), Fault> {
        let source = self.node(moved)?;
        let is_directory = source.status.kind == Kind::Directory;
        self.need_delete(ask, from_dir, moved)?;
        if mode == RenameMode::Whiteout {
            self.need_room(ask, from_dir)?;
        }
        match target {
            None => self.need_room(ask, to_dir)?,
            Some(target) => {
                self.need_delete(ask, to_dir, target)?;
                self.need(ask, to_dir, RequestedAccess::Insert)?;
                if mode == RenameMode::Exchange {
                    self.need(ask, from_dir, RequestedAccess::Insert)?;
                }
            }
        }
        let target = target.map(|fid| self.node(fid)).transpose()?;
        let is_mount_point = |node: &ModelNode| node.status.kind == Kind::MountPoint;
        match (mode, is_mount_point(source), target.is_some_and(is_mount_point)) {
            (RenameMode::MountPoint, false, _) => return Err(Fault::Invalid),
            (RenameMode::MountPoint, true, _) | (_, false, false) => {}
            (_, true, _) | (_, _, true) => return Err(Fault::Busy),
        }
        if let Some(target) = target.filter(|_| mode.replaces()) {
            match (is_directory, target.status.kind == Kind::Directory) {
                (true, false) => return Err(Fault::NotDirectory),
                (false, true) => return Err(Fault::IsDirectory),
                _ => {}
            }
        }
        if from_dir != to_dir {
            if is_directory {
                self.need(ask, moved, RequestedAccess::Move)?;
            }
            match target {
                Some(other)
                    if mode == RenameMode::Exchange && other.status.kind == Kind::Directory =>
                {
                    self.need(ask, other.status.fid, RequestedAccess::Move)?;
                }
                _ => {}
            }
        }
        match target.map(|target| &target.content) {
            Some(Content::Directory(entries)) if mode.replaces() && !entries.is_empty() => {
                return Err(Fault::NotEmpty);
            }
            _ => {}
        }
        // All names of a file are in one directory, whose list decides for it.
        let linked =
            |node: &ModelNode| node.status.kind != Kind::Directory && node.status.links > 1;
        let both = mode == RenameMode::Exchange && target.is_some_and(linked);
        if self.decides() && from_dir != to_dir && (linked(source) || both) {
            return Err(Fault::CrossVolume);
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        ask: ModelContext<'_>,
        a: (Fid, &Name),
        b: (Fid, &Name),
    ) -> Result<(), Fault> {
        let at = |tree: &ModelTree, (dir, name): (Fid, &Name)| {
            tree.node(dir)?.entries()?.get(name).copied().ok_or(Fault::NotFound)
        };
        let (first, second) = (at(self, a)?, at(self, b)?);
        self.set_entry(ask, a.0, a.1, Some(second))?;
        self.set_entry(ask, b.0, b.1, Some(first))?;
        if a.0 == b.0 {
            self.count_once(a.0)?;
        }
        self.update_moved(ask, first, a.0, b.0)?;
        self.update_moved(ask, second, b.0, a.0)
    }

    /// Two entries of one directory change in one step.
    fn count_once(&mut self, dir: Fid) -> Result<(), Fault> {
        let status = &mut self.node_mut(dir)?.status;
        status.data_version.0 -= 1;
        status.status_version.0 -= 1;
        Ok(())
    }

    /// Updates `fid` after its move; a directory's link to its parent moves along.
    fn update_moved(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        from_dir: Fid,
        to_dir: Fid,
    ) -> Result<(), Fault> {
        let node = self.node_mut(fid)?;
        node.touch_status(ask.wall);
        node.parent = to_dir;
        if node.status.kind == Kind::Directory {
            self.node_mut(from_dir)?.status.links -= 1;
            self.node_mut(to_dir)?.status.links += 1;
        }
        Ok(())
    }

    fn renamed(
        &self,
        moved: Fid,
        other: Option<Fid>,
        from_dir: Fid,
        to_dir: Fid,
    ) -> Result<Answer, Fault> {
        let other = other.map(|fid| self.node(fid).map(|node| node.status)).transpose()?;
        let status = |fid| self.node(fid).map(|node| node.status);
        Ok(Answer::Renamed {
            status: status(moved)?,
            other,
            from_dir: status(from_dir)?,
            to_dir: status(to_dir)?,
        })
    }
}
