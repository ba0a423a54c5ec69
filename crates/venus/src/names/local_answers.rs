//! Answering changes here: the service's answer, computed from the client's tables
//! (`docs/spec/delegation.md`).
//!
//! The rules are those of `vice` (`calls/make.rs`, `remove.rs`, `rename.rs`, `status.rs`,
//! `data.rs`), for the cases where all their inputs are known here for certain: this client has the
//! directory's delegation, the file is a sole child, its status is valid, no own call that changes
//! it is under way at the server, and the deciding right is known: the caller's class without
//! groups that the caller did not show or, where access lists decide, the caller's rights in the
//! directory (`delegation/rights.rs`). In all other cases, refusals among them, there is no answer
//! here, and the service is asked.
//!
//! Times, versions and charges are exactly the service's (DE-5): they stay when it executes the
//! change.

use std::borrow::Cow;

use guard::Rights;
use types::posix::{
    self, EXECUTE, SET_GID, SET_IDS, WRITE, in_group, inherit, kills_privileges, lose_name, may,
    may_make, new_status, removable_as, settable_mode, touch_data, touch_status,
    without_privileges,
};
use types::{
    Answer, BootVerifier, Call, Caller, Fid, Kind, Name, NewKind, RemoveWhat, RenameMode, SetTime,
    Status, StatusChange, Timestamp, limits,
};

use super::{CachedName, KnownRights, Nodes, Slots};

/// Access lists give no ownership to a caller without proof of identity, which has this number.
/// Source: docs/spec/access.md.
const NOBODY_ID: u32 = 65534;

/// Bodies up to here are charged by their bytes, larger ones by blocks of this size. Source:
/// docs/spec/store.md.
const BLOCK_BYTES: u64 = 16 << 10;

/// An answer that was computed here.
pub(crate) struct Local {
    pub answer: Answer,
    /// Slot of the new file; 0: none.
    pub slot: u64,
}

/// The caller, as the cell and as this machine see it.
pub(crate) struct LocalCaller<'c> {
    /// The effective identity for the cell's mode bits.
    pub caller: Cow<'c, Caller>,
    /// The user number on this machine, which keys the cached rights.
    pub uid: u32,
    /// The server does not trust this host's user numbers.
    pub is_doubted: bool,
}

impl From<Answer> for Local {
    fn from(answer: Answer) -> Self {
        Local { answer, slot: 0 }
    }
}

/// One change that may be answered here, and what decides it.
pub(crate) struct LocalAnswers<'a> {
    pub nodes: &'a Nodes,
    pub rights: &'a mut KnownRights,
    pub slots: &'a mut Slots,
    pub caller: &'a LocalCaller<'a>,
    pub at: Timestamp,
}

impl LocalAnswers<'_> {
    /// The service's future answer to this call; `None` if the service must be asked. Changes only
    /// the free slots and the cached rights, which gain those in a new file.
    pub fn answer(mut self, call: &Call) -> Option<Local> {
        // The server has rules of its own for a caller without a token.
        if self.caller.caller.uid == NOBODY_ID {
            return None;
        }
        match call {
            Call::Make { dir, name, kind, mode, .. } => self.make_here(*dir, name, kind, *mode),
            Call::Remove { dir, name, what, .. } => self.remove_here(*dir, name, *what),
            Call::Rename { from_dir, from, to_dir, to, mode, .. } => {
                self.rename_here((*from_dir, from), (*to_dir, to), *mode)
            }
            Call::SetStatus { fid, change } => self.set_here(*fid, change),
            Call::Write { fid, offset: Some(offset), data, stable: false, kill_privileges } => {
                self.write_here(*fid, *offset, data.len() as u64, *kill_privileges)
            }
            _ => None,
        }
    }

    fn covered_status(&self, fid: Fid) -> Option<Status> {
        let node = self
            .nodes
            .get(&fid)
            .filter(|node| node.valid && node.away == 0 && !node.is_loaned())?;
        node.status.filter(|_| self.nodes.covers(fid))
    }

    /// The status of a directory whose entries this caller may change here; where lists decide,
    /// with the `needed` rights.
    fn changeable(&self, dir: Fid, needed: Rights) -> Option<Status> {
        let node = self.nodes.whole(&dir).filter(|node| node.valid && node.away == 0)?;
        let status =
            node.status.filter(|status| status.kind == Kind::Directory && status.links > 0)?;
        self.nodes.delegation(dir)?;
        let allowed = match status.by_list {
            true => self.rights.of(dir, self.caller.uid)?.has(needed),
            false => may(&self.caller.caller, &status, WRITE | EXECUTE).ok()?,
        };
        (allowed && node.names.as_ref()?.valid).then_some(status)
    }

    /// Whether a list lets the caller change a file, or a directory's status.
    fn list_lets_write(&self, status: &Status) -> Option<bool> {
        let rights = self.rights.of(status.fid, self.caller.uid)?;
        let owns = self.caller.caller.uid == status.uid && status.uid != NOBODY_ID;
        let dropped = status.kind != Kind::Directory && owns && rights.has(Rights::INSERT);
        Some(rights.has(Rights::WRITE) || dropped)
    }

    fn make_here(&mut self, dir: Fid, name: &Name, new: &NewKind, mode: u16) -> Option<Local> {
        let caller = &*self.caller.caller;
        let mut parent = self.changeable(dir, Rights::LOOKUP.with(Rights::INSERT))?;
        if self.nodes.known(dir, name) != CachedName::Absent
            || !may_make(caller, new)
            || new.check_target().is_err()
            || parent.links >= limits::LINKS_MAX
        {
            return None;
        }
        let kind = new.kind();
        let (mode, gid) = inherit(caller, &parent, kind, mode).ok()?;
        if parent.by_list && mode & SET_IDS != 0 && !caller.is_root() {
            // Only administrators may, and this client does not know them.
            return None;
        }
        let (slot, fid) = self.slots.take(dir.volume, kind == Kind::Directory)?;
        let mut status = new_status(fid, kind, mode, (caller.uid, gid), self.at);
        status.read_times = parent.read_times;
        if parent.by_list {
            status.by_list = true;
            self.rights.made_in(dir, &status, self.caller.uid);
        }
        match new {
            NewKind::Symlink(target) | NewKind::MountPoint(target) => {
                status.size = target.len() as u64;
                status.used = status.size;
            }
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => status.device = *device,
            NewKind::File | NewKind::Directory | NewKind::Fifo | NewKind::Socket => {}
        }
        touch_data(&mut parent, self.at);
        if kind == Kind::Directory {
            parent.links += 1;
        }
        Some(Local { answer: Answer::Made { status, dir: parent, existed: false }, slot })
    }

    fn remove_here(&self, dir: Fid, name: &Name, what: RemoveWhat) -> Option<Local> {
        let mut parent = self.changeable(dir, Rights::LOOKUP.with(Rights::DELETE))?;
        let CachedName::File(fid) = self.nodes.known(dir, name) else { return None };
        let mut victim = self.covered_status(fid)?;
        let empty = || {
            self.nodes
                .whole(&fid)
                .and_then(|node| node.names.as_ref())
                .is_some_and(|names| names.is_empty())
        };
        if is_stuck(&self.caller.caller, &parent, &victim)
            || what != removable_as(victim.kind)
            || what == RemoveWhat::Directory && !empty()
            || victim.links == 0
        {
            return None;
        }
        touch_data(&mut parent, self.at);
        if what == RemoveWhat::Directory {
            parent.links -= 1;
        }
        lose_name(&mut victim, self.at);
        Some(Answer::Removed { status: victim, dir: parent }.into())
    }

    fn rename_here(&self, from: (Fid, &Name), to: (Fid, &Name), mode: RenameMode) -> Option<Local> {
        let caller = &*self.caller.caller;
        let (leave, enter) =
            (Rights::LOOKUP.with(Rights::DELETE), Rights::LOOKUP.with(Rights::INSERT));
        let mut from_dir = self.changeable(from.0, leave)?;
        let replaces = self.nodes.known(to.0, to.1) != CachedName::Absent;
        let mut to_dir = self.changeable(to.0, if replaces { enter.with(leave) } else { enter })?;
        if from_dir.by_list && from.0 != to.0 {
            // Another list decides from then on, which breaks promises on rights everywhere.
            return None;
        }
        let CachedName::File(moved) = self.nodes.known(from.0, from.1) else { return None };
        let mut moved = self.covered_status(moved)?;
        let mut other = match (mode, self.nodes.known(to.0, to.1)) {
            (
                RenameMode::Replace | RenameMode::NoReplace | RenameMode::MountPoint,
                CachedName::Absent,
            ) => None,
            (RenameMode::Replace, CachedName::File(other)) => Some(self.covered_status(other)?),
            _ => return None,
        };
        let mount_point = |status: &Status| status.kind == Kind::MountPoint;
        if mount_point(&moved) != (mode == RenameMode::MountPoint)
            || other.as_ref().is_some_and(mount_point)
        {
            return None;
        }
        let directory = moved.kind == Kind::Directory;
        let unfit = |other: &Status| {
            directory
                || other.kind == Kind::Directory
                || other.fid == moved.fid
                || is_stuck(caller, &to_dir, other)
        };
        if is_stuck(caller, &from_dir, &moved)
            || directory && from.0 != to.0
            || other.as_ref().is_some_and(unfit)
        {
            return None;
        }
        touch_status(&mut moved, self.at);
        if let Some(other) = &mut other {
            lose_name(other, self.at);
        }
        touch_data(&mut from_dir, self.at);
        if from.0 == to.0 {
            to_dir = from_dir;
        } else {
            touch_data(&mut to_dir, self.at);
        }
        Some(Answer::Renamed { status: moved, other, from_dir, to_dir }.into())
    }

    fn set_here(&self, fid: Fid, wanted: &StatusChange) -> Option<Local> {
        let caller = &*self.caller.caller;
        let mut status = self.covered_status(fid)?;
        if status.kind == Kind::Directory && status.links == 0 {
            return None;
        }
        if (StatusChange { through_handle: false, hold: false, ..*wanted })
            == StatusChange::default()
        {
            return None;
        }
        if !(caller.is_root() || caller.uid == status.uid)
            || wanted.mode.is_some() && status.kind.has_target()
            || wanted.uid.is_some_and(|uid| !caller.is_root() && uid != status.uid)
        {
            return None;
        }
        if status.by_list && !caller.is_root() {
            // Only administrators change owners, groups and set-id bits.
            let privileged = wanted.uid.is_some()
                || wanted.gid.is_some()
                || wanted.mode.is_some_and(|mode| mode & SET_IDS != 0);
            if privileged || !self.list_lets_write(&status)? {
                return None;
            }
        }
        if let Some(gid) = wanted.gid
            && !(caller.is_root() || gid == status.gid || in_group(caller, gid).ok()?)
        {
            return None;
        }
        if let Some(size) = wanted.size {
            let allowed =
                wanted.through_handle || status.by_list || may(caller, &status, WRITE).ok()?;
            if size != 0 || status.kind != Kind::File || !allowed {
                return None;
            }
        }
        let gid = wanted.gid.unwrap_or(status.gid);
        let mode = match wanted.mode {
            Some(mode) => Some(settable_mode(caller, gid, mode).ok()?),
            None => None,
        };
        if kills_privileges(caller, wanted) {
            status.mode = without_privileges(caller, &status).ok()?;
        }
        status.uid = wanted.uid.unwrap_or(status.uid);
        status.gid = wanted.gid.unwrap_or(status.gid);
        status.mode = mode.unwrap_or(status.mode);
        if wanted.size.is_some() {
            (status.size, status.used) = (0, 0);
            touch_data(&mut status, self.at);
        } else {
            touch_status(&mut status, self.at);
        }
        let time = |time| match time {
            SetTime::Now => self.at,
            SetTime::To(time) => time,
        };
        status.accessed = wanted.accessed.map_or(status.accessed, time);
        status.modified = wanted.modified.map_or(status.modified, time);
        Some(Answer::Status(status).into())
    }

    fn write_here(&self, fid: Fid, offset: u64, length: u64, kill: bool) -> Option<Local> {
        let mut status = self.covered_status(fid)?;
        let end = offset.checked_add(length).filter(|end| *end <= limits::FILE_BYTES_MAX)?;
        if status.kind != Kind::File || length == 0 || offset > status.size {
            return None;
        }
        if status.by_list && !self.list_lets_write(&status)? {
            return None;
        }
        // The server judges each write of a machine that it does not believe, and knows what the
        // file allowed at the open.
        let owns = self.caller.caller.is_root() || self.caller.caller.uid == status.uid;
        if self.caller.is_doubted
            && !status.by_list
            && !owns
            && !may(&self.caller.caller, &status, WRITE).ok()?
        {
            return None;
        }
        let previous_version = status.data_version;
        let size = status.size.max(end);
        status.used = dense(&status, size)?;
        status.size = size;
        if kill || !self.caller.caller.is_root() {
            status.mode = without_privileges(&self.caller.caller, &status).ok()?;
        }
        touch_data(&mut status, self.at);
        let verifier = BootVerifier::default();
        Some(
            Answer::Written { count: length as u32, offset, status, previous_version, verifier }
                .into(),
        )
    }
}

/// One change of status with the effect of two in a row, if there is one; `after` is the status
/// after both.
pub(crate) fn merged(
    caller: &Caller,
    first: &StatusChange,
    first_at: Timestamp,
    then: &StatusChange,
    then_at: Timestamp,
    after: &Status,
) -> Option<StatusChange> {
    // The rights of an open file between the two would not be recorded.
    if then.hold
        || first.size.is_some()
        || then.size.is_some()
        || !(caller.is_root() || after.mode & SET_GID == 0)
    {
        return None;
    }
    let fixed = |time: Option<SetTime>, at| match time {
        Some(SetTime::Now) => Some(SetTime::To(at)),
        other => other,
    };
    Some(StatusChange {
        mode: first.mode.or(then.mode).map(|_| after.mode),
        uid: then.uid.or(first.uid),
        gid: then.gid.or(first.gid),
        size: None,
        accessed: fixed(then.accessed, then_at).or(fixed(first.accessed, first_at)),
        modified: fixed(then.modified, then_at).or(fixed(first.modified, first_at)),
        kill_privileges: first.kill_privileges || then.kill_privileges,
        through_handle: false,
        hold: first.hold,
    })
}

/// The charge of a body of this `size` that had no holes and gets none; `None` if it has holes.
fn dense(status: &Status, size: u64) -> Option<u64> {
    let blocks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
    let inline = status.used == status.size && status.size <= BLOCK_BYTES;
    match () {
        () if inline && size <= BLOCK_BYTES => Some(size),
        () if inline || status.used == blocks(status.size) => Some(blocks(size)),
        () => None,
    }
}

/// Whether a sticky directory keeps the caller from taking the name away. Lists replace the bit.
fn is_stuck(caller: &Caller, dir: &Status, victim: &Status) -> bool {
    !dir.by_list && posix::is_stuck(caller, dir, victim)
}
