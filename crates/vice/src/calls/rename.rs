//! Renames. The order of the checks is Linux's, so that of several reasons to refuse applications
//! get the one that they expect.

use smallvec::SmallVec;
use store::{EntryTarget, Vnode};
use types::posix::{touch_data, touch_status};
use types::{Answer, Fault, Fid, Kind, Name, RenameMode, Status, limits};

use super::make::make_whiteout;
use super::remove::{counted, lock_entries, lose_name};
use crate::access::{self, Right};
use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::sessions::GivenSlots;
use crate::volumes::ViceVolume;

/// The vnodes of a rename. Within one directory `to_dir` is `None`.
struct Scene {
    from_dir: Vnode,
    to_dir: Option<Vnode>,
    moved: Vnode,
    target: Option<Vnode>,
}

pub(crate) fn rename(
    files: &Files,
    given: &GivenSlots,
    ask: &mut CallContext<'_>,
    from: (Fid, &Name),
    to: (Fid, &Name),
    mode: RenameMode,
    hold: bool,
) -> Result<CallOutcome, Fault> {
    if from.0.volume != to.0.volume {
        return Err(Fault::CrossVolume);
    }
    let volume = files.volume_for(ask, from.0.volume)?;
    volume.need_writable()?;
    let (mut change, mut moves) = (Change::new(ask.scope, &volume), None);
    let (_held, [moved, target]) = loop {
        let (held, found) = lock_entries(files, &mut change, [from, to])?;
        // A directory that changes its parent could come to lie in itself: one such move at a
        // time.
        let loops = from.0 != to.0 && found.iter().flatten().any(|fid| fid.vnode.is_directory());
        if !loops || moves.is_some() {
            break (held, found);
        }
        drop(held);
        moves = Some(volume.moves.lock());
    };
    let named: SmallVec<[Fid; 4]> = [from.0, to.0].into_iter().chain(moved).chain(target).collect();
    files.need_back(ask, &volume, &named)?;
    let directory = named[2..].iter().any(|fid| fid.vnode.is_directory());
    if ask.delegated.is_some() && from.0 != to.0 && directory {
        // Whether it would come to lie in itself depends on ancestors that the session may not
        // cover.
        return Err(Fault::NotDelegated);
    }
    if ask.delegated.is_some() && mode == RenameMode::Whiteout {
        // The session could not tell which file the whiteout is.
        return Err(Fault::NotDelegated);
    }
    let from_dir = searched(ask, &volume, from.0)?;
    let to_dir = if from.0 == to.0 { None } else { Some(searched(ask, &volume, to.0)?) };
    let moved = moved.ok_or(Fault::NotFound)?;
    match (mode, target) {
        (RenameMode::NoReplace | RenameMode::MountPoint, Some(_)) => return Err(Fault::Exists),
        (RenameMode::Exchange, None) => return Err(Fault::NotFound),
        _ => {}
    }
    if from.0 != to.0 {
        refuse_loops(&volume, moved, target, from.0, to.0, mode)?;
    }
    let same = target == Some(moved);
    let target = target.filter(|_| !same).map(|fid| volume.vnode(fid)).transpose()?;
    let scene = Scene { from_dir, to_dir, moved: volume.vnode(moved)?, target };
    if same {
        return nothing_to_do(files, ask, &volume, &scene);
    }
    scene.check(ask, &volume, mode)?;
    let other_list = volume.lists.decide() && scene.to_dir.is_some();
    if other_list {
        scene.check_names(mode)?;
    }
    files.promise(ask, &volume, &named)?;
    if other_list {
        // A moved file without a list of its own is now under another one.
        change.change_rights();
    }
    let whiteout = match mode {
        RenameMode::Whiteout => {
            Some(make_whiteout(files, given, ask, &volume, &mut change, &scene.from_dir)?)
        }
        _ => None,
    };
    let stays =
        scene.target.as_ref().filter(|_| mode == RenameMode::Exchange).or(whiteout.as_ref());
    let stays = stays.map(Vnode::target);
    let answer = scene.act(ask, &mut change, (from.1, stays), to.1, mode, hold)?;
    files.commit(ask, change, answer)
}

/// Whether both names are of the same file: POSIX then requires that nothing happens.
fn nothing_to_do(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    scene: &Scene,
) -> Result<CallOutcome, Fault> {
    let (from_dir, to_dir) = (scene.from_dir.status, scene.to_dir_status());
    let status = scene.moved.status;
    files.promise(ask, volume, &[status.fid, from_dir.fid, to_dir.fid])?;
    Ok(CallOutcome::Answer(Answer::Renamed { status, other: None, from_dir, to_dir }))
}

fn searched(ask: &CallContext<'_>, volume: &ViceVolume, dir: Fid) -> Result<Vnode, Fault> {
    let vnode = volume.directory(dir)?;
    access::need(ask.asker(), volume, &vnode, Right::Search)?;
    Ok(vnode)
}

/// Refuses to move a directory into itself, or to replace one that it lies in. The caller holds
/// `moves`.
fn refuse_loops(
    volume: &ViceVolume,
    moved: Fid,
    target: Option<Fid>,
    from_dir: Fid,
    to_dir: Fid,
    mode: RenameMode,
) -> Result<(), Fault> {
    if lies_in(volume, to_dir, moved)? {
        return Err(Fault::Invalid);
    }
    match target {
        Some(target) if lies_in(volume, from_dir, target)? => {
            Err(if mode == RenameMode::Exchange { Fault::Invalid } else { Fault::NotEmpty })
        }
        _ => Ok(()),
    }
}

/// Whether directory `inner` is `outer` or lies somewhere below it.
fn lies_in(volume: &ViceVolume, inner: Fid, outer: Fid) -> Result<bool, Fault> {
    if !outer.vnode.is_directory() {
        return Ok(false);
    }
    let mut at = inner.vnode;
    while at != outer.vnode {
        let parent = volume.store.vnode(at)?.ok_or(Fault::Stale)?.parent;
        if parent == at {
            return Ok(false);
        }
        at = parent;
    }
    Ok(true)
}

impl Scene {
    fn to_dir_status(&self) -> Status {
        self.to_dir.as_ref().unwrap_or(&self.from_dir).status
    }

    fn check(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
        mode: RenameMode,
    ) -> Result<(), Fault> {
        let asker = ask.asker();
        let is_directory = |vnode: &Vnode| vnode.status.kind == Kind::Directory;
        let moves_directory = is_directory(&self.moved);
        let to_dir = self.to_dir.as_ref().unwrap_or(&self.from_dir);
        access::need_delete(asker, volume, &self.from_dir, &self.moved)?;
        if mode == RenameMode::Whiteout {
            access::need_room(asker, volume, &self.from_dir)?;
        }
        match &self.target {
            None => access::need_room(asker, volume, to_dir)?,
            Some(target) => {
                access::need_delete(asker, volume, to_dir, target)?;
                access::need(asker, volume, to_dir, Right::Insert)?;
                if mode == RenameMode::Exchange {
                    access::need(asker, volume, &self.from_dir, Right::Insert)?;
                }
            }
        }
        self.check_mount_points(mode)?;
        match &self.target {
            None => {}
            Some(target) => match (mode, moves_directory, is_directory(target)) {
                (RenameMode::Exchange, ..) => {}
                (_, true, false) => return Err(Fault::NotDirectory),
                (_, false, true) => return Err(Fault::IsDirectory),
                _ => {}
            },
        }
        // A directory's link to its parent is an entry of its own, which changes.
        if self.to_dir.is_some() {
            if moves_directory {
                access::need(asker, volume, &self.moved, Right::Move)?;
            }
            if let (Some(other), RenameMode::Exchange) = (&self.target, mode)
                && is_directory(other)
            {
                access::need(asker, volume, other, Right::Move)?;
            }
        }
        match &self.target {
            Some(target) if mode.replaces() && target.entries > 0 => Err(Fault::NotEmpty),
            None if moves_directory && to_dir.status.links >= limits::LINKS_MAX => {
                Err(Fault::TooManyLinks)
            }
            _ => Ok(()),
        }
    }

    /// Where lists decide, all names of a file are in one directory, whose list it uses. Otherwise
    /// a further name in the old directory could give the file the list of another.
    fn check_names(&self, mode: RenameMode) -> Result<(), Fault> {
        let linked = |vnode: &Vnode| vnode.status.kind != Kind::Directory && vnode.status.links > 1;
        let comes_back = mode == RenameMode::Exchange && self.target.as_ref().is_some_and(linked);
        if linked(&self.moved) || comes_back { Err(Fault::CrossVolume) } else { Ok(()) }
    }

    /// A mount point moves only if the call says so, and is never replaced.
    fn check_mount_points(&self, mode: RenameMode) -> Result<(), Fault> {
        let is_mount_point = |vnode: &Vnode| vnode.status.kind == Kind::MountPoint;
        let moves = is_mount_point(&self.moved);
        match mode {
            RenameMode::MountPoint if moves => Ok(()),
            RenameMode::MountPoint => Err(Fault::Invalid),
            _ if moves || self.target.as_ref().is_some_and(is_mount_point) => Err(Fault::Busy),
            _ => Ok(()),
        }
    }

    fn act(
        mut self,
        ask: &CallContext<'_>,
        change: &mut Change<'_>,
        (from, stays): (&Name, Option<EntryTarget>),
        to: &Name,
        mode: RenameMode,
        hold: bool,
    ) -> Result<Answer, Fault> {
        let store = &change.volume.store;
        let mut names = store.edit(&mut self.from_dir, &mut change.update);
        match stays {
            Some(other) => names.put_entry(from, other)?,
            None => drop(names.remove_entry(from.as_bytes())?),
        }
        let to_dir = self.to_dir.as_mut().unwrap_or(&mut self.from_dir);
        store.edit(to_dir, &mut change.update).put_entry(to, self.moved.target())?;
        self.update_moved(ask, change, mode)?;
        let other = match self.target.take() {
            Some(mut other) if mode == RenameMode::Exchange => {
                touch_status(&mut other.status, ask.wall);
                if self.to_dir.is_some() {
                    other.parent = self.from_dir.no();
                }
                change.put_status(&other);
                Some(other.status)
            }
            Some(mut lost) => Some(lose_name(ask, change, &mut lost, hold)?),
            None => None,
        };
        self.put_directories(ask, change, from, to);
        let (from_dir, to_dir) = (self.from_dir.status, self.to_dir_status());
        Ok(Answer::Renamed { status: self.moved.status, other, from_dir, to_dir })
    }

    /// Updates the moved file's own status, and the links of the parents of moved directories.
    ///
    /// # Errors
    /// `Damaged`.
    fn update_moved(
        &mut self,
        ask: &CallContext<'_>,
        change: &mut Change<'_>,
        mode: RenameMode,
    ) -> Result<(), Fault> {
        touch_status(&mut self.moved.status, ask.wall);
        let links = |vnode: &Vnode| u32::from(vnode.status.kind == Kind::Directory);
        let comes = links(&self.moved);
        let goes = self.target.as_ref().map_or(0, links);
        let comes_back = if mode == RenameMode::Exchange { goes } else { 0 };
        let from_links = &mut self.from_dir.status.links;
        match &mut self.to_dir {
            None => *from_links = counted(*from_links, comes_back, goes)?,
            Some(to_dir) => {
                self.moved.parent = to_dir.no();
                to_dir.status.links = counted(to_dir.status.links, comes, goes)?;
                *from_links = counted(*from_links, comes_back, comes)?;
            }
        }
        change.put_status(&self.moved);
        Ok(())
    }

    fn put_directories(
        &mut self,
        ask: &CallContext<'_>,
        change: &mut Change<'_>,
        from: &Name,
        to: &Name,
    ) {
        touch_data(&mut self.from_dir.status, ask.wall);
        match &mut self.to_dir {
            None => change.put_directory(&self.from_dir, None),
            Some(to_dir) => {
                touch_data(&mut to_dir.status, ask.wall);
                change.put_directory(&self.from_dir, Some(from));
                change.put_directory(to_dir, Some(to));
            }
        }
    }
}
