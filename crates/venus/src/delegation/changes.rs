//! Changing directories: make, link, remove, rename. Each is one call, and its answer updates the
//! cache.
//!
//! A removal reports whether the file is open here (`hold`), and an open makes no call. So that
//! both are right, a removal that reports "not open" marks the file, and opens wait for it. The
//! server holds an unknown victim to be safe; the client ends the hold if the file was not open.

use std::sync::Arc;

use lease::CallStart;
use types::{
    Answer, Call, CreateHow, Fault, Fid, Kind, Name, NewKind, RemoveWhat, RenameMode, Status,
};

use super::Delegations;
use crate::base::{EntryReply, Error, RequestContext};
use crate::cache::Cache;
use crate::calls::{Calls, Flusher};
use crate::names::{DirNames, Tables, Victim};
use crate::passthrough::Preallocated;
use crate::session::Ground;
use crate::writeback::Writeback;

/// Changes of directories.
pub struct Changes {
    ground: Ground,
    writeback: Arc<Writeback>,
    cache: Arc<Cache>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    delegations: Arc<Delegations>,
    preallocated: Arc<Preallocated>,
}

impl Changes {
    pub(crate) fn new(
        ground: &Ground,
        writeback: &Arc<Writeback>,
        cache: &Arc<Cache>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        delegations: &Arc<Delegations>,
        preallocated: &Arc<Preallocated>,
    ) -> Self {
        Changes {
            ground: ground.clone(),
            writeback: Arc::clone(writeback),
            cache: Arc::clone(cache),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            delegations: Arc::clone(delegations),
            preallocated: Arc::clone(preallocated),
        }
    }

    /// Runs a change of these directories, which distinguishes it from other clients' changes;
    /// `take` enters the answer.
    pub(crate) fn change<R>(
        &self,
        request: &RequestContext<'_>,
        dirs: &[Fid],
        mut call: Call,
        take: impl FnOnce(&mut Tables, CallStart, Answer) -> Result<R, Error>,
    ) -> Result<R, Error> {
        if let Some((mut tables, snapshot, answer)) =
            self.delegations.answer_under_delegation(request, &call)
        {
            dirs.iter().for_each(|dir| tables.change_begins(*dir));
            dirs.iter().for_each(|dir| tables.change_ends(*dir));
            return take(&mut tables, snapshot, answer);
        }
        let removes = matches!(call, Call::Remove { .. });
        let _away = self.ground.names.away(&mut call);
        let snapshot = {
            let mut tables = self.ground.names.lock();
            dirs.iter().for_each(|dir| tables.change_begins(*dir));
            tables.holder.begin()
        };
        let answer = self.calls.call(request, call);
        let mut tables = self.ground.names.lock();
        dirs.iter().for_each(|dir| tables.change_ends(*dir));
        let result = answer.and_then(|answer| take(&mut tables, snapshot, answer));
        match &result {
            Ok(_) => dirs.iter().for_each(|dir| tables.nodes.own_change(*dir, removes)),
            Err(error) if unsure(error) || contradicts(error) => {
                dirs.iter().for_each(|dir| tables.unsure(*dir));
            }
            Err(_) => {}
        }
        result
    }

    /// The file that was made, and whether it existed already.
    pub(crate) fn made(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
        call: Call,
    ) -> Result<(EntryReply, bool), Error> {
        let new = matches!(call, Call::Make { .. });
        self.change(request, &[dir], call, |tables, snapshot, answer| {
            let Answer::Made { status, dir: dir_status, existed } = answer else {
                return Err(Error::Protocol);
            };
            if !existed && status.kind == Kind::Directory {
                tables.made_directory(snapshot, &status);
                // The maker of a directory is likely to fill it.
                tables.nodes.own_change(status.fid, false);
            }
            let (shown, cacheable) = tables.put(snapshot, status);
            tables.nodes.node(status.fid).bare |= new && !existed && cacheable;
            tables.changed(snapshot, &dir_status, |names| names.insert(name, status.fid));
            let named = tables.resolve(dir, name) == Some(status.fid);
            Ok((self.ground.names.entry(tables, shown, cacheable, named), existed))
        })
    }

    /// A file lost a name; if it was the last one it is gone, or held.
    fn lost_name(&self, tables: &mut Tables, status: &Status, hold: bool) {
        if status.links > 0 || status.kind == Kind::Directory {
            return;
        }
        let node = tables.nodes.node(status.fid);
        if hold {
            node.held = true;
            if node.opens == 0 {
                self.ground.chores.end_hold(status.fid);
            }
        }
        if let Some(disk) = self.cache.disk() {
            disk.remove(status.fid);
        }
    }

    pub(crate) fn remove(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
        what: RemoveWhat,
    ) -> Result<(), Error> {
        if what == RemoveWhat::Directory
            && let Some(gone) = self.ground.names.resolve(dir, name)
        {
            self.preallocated.withdraw_children(gone);
        }
        let victim = match what {
            RemoveWhat::Directory | RemoveWhat::MountPoint => Victim::NONE,
            RemoveWhat::File => self.ground.names.mark_victim(dir, name),
        };
        let hold = victim.hold;
        let call = Call::Remove { dir, name: name.clone(), what, hold };
        let removed = self.change(request, &[dir], call, |tables, snapshot, answer| {
            let Answer::Removed { status, dir: dir_status } = answer else {
                return Err(Error::Protocol);
            };
            tables.put(snapshot, status);
            tables.changed(snapshot, &dir_status, |names| names.insert_absent(name));
            self.lost_name(tables, &status, hold);
            Ok(status.fid)
        });
        self.ground.names.unmark(&victim);
        self.flusher.drop_cuts();
        removed.map(|fid| self.writeback.drop_removed(fid))
    }

    /// Makes a file, directory, link or node; refused if the name exists.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn make(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
        kind: NewKind,
        mode: u16,
    ) -> Result<EntryReply, Error> {
        let call = Call::Make { dir, name: name.clone(), kind, mode, how: CreateHow::Guarded };
        self.made(request, dir, name, call).map(|(entry, _)| entry)
    }

    /// Adds a name for `fid`.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn link(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        dir: Fid,
        name: &Name,
    ) -> Result<EntryReply, Error> {
        if let Some(file) = self.ground.names.file_of(fid) {
            self.writeback.send_all(&file, request.cancel)?;
        }
        let call = Call::Link { fid, dir, name: name.clone() };
        self.made(request, dir, name, call).map(|(entry, _)| entry)
    }

    /// Removes a name of something other than a directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn unlink(&self, request: &RequestContext<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.remove(request, dir, name, RemoveWhat::File)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rmdir(&self, request: &RequestContext<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.remove(request, dir, name, RemoveWhat::Directory)
    }

    /// Removes a mount point; the volume that it names stays.
    ///
    /// # Errors
    /// The service's refusal; `Invalid` if it is none.
    pub fn remove_mount_point(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
    ) -> Result<(), Error> {
        self.remove(request, dir, name, RemoveWhat::MountPoint)
    }

    /// Moves a name, after the file's writes have been sent: an application that replaces a file by
    /// a rename must not lose both.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rename(
        &self,
        request: &RequestContext<'_>,
        from: (Fid, &Name),
        to: (Fid, &Name),
        mode: RenameMode,
    ) -> Result<(), Error> {
        let (moved, there) = {
            let tables = self.ground.names.lock();
            (tables.resolve(from.0, from.1), tables.resolve(to.0, to.1))
        };
        if let Some(file) = moved.and_then(|fid| self.ground.names.file_of(fid)) {
            self.writeback.send_all(&file, request.cancel)?;
        }
        let victim = match mode {
            RenameMode::Replace | RenameMode::Whiteout => {
                self.ground.names.mark_replaced(to.0, to.1)
            }
            RenameMode::NoReplace | RenameMode::Exchange | RenameMode::MountPoint => {
                Victim { hold: false, marked: None }
            }
        };
        let hold = victim.hold;
        let call = Call::Rename {
            from_dir: from.0,
            from: from.1.clone(),
            to_dir: to.0,
            to: to.1.clone(),
            mode,
            hold,
        };
        let dirs = if from.0 == to.0 { vec![from.0] } else { vec![from.0, to.0] };
        let renamed = self.change(request, &dirs, call, |tables, snapshot, answer| {
            let Answer::Renamed { status, other, from_dir, to_dir } = answer else {
                return Err(Error::Protocol);
            };
            tables.put(snapshot, status);
            let replaced = other.filter(|_| mode.replaces()).map(|other| other.fid);
            if let Some(other) = other {
                tables.put(snapshot, other);
                if mode.replaces() && other.fid != status.fid {
                    self.lost_name(tables, &other, hold);
                }
            }
            // A rename onto another name of the same file does nothing, and its answer does not
            // show that.
            let nothing = match (moved, there) {
                // Nor does it show the whiteout.
                _ if mode == RenameMode::Whiteout => None,
                _ if status.links < 2 || status.kind == Kind::Directory || other.is_some() => {
                    Some(false)
                }
                (Some(moved), Some(there)) => Some(moved == there),
                _ => None,
            };
            match nothing {
                Some(false) => {}
                Some(true) => return Ok(None),
                None => {
                    dirs.iter().for_each(|dir| tables.unsure(*dir));
                    return Ok(replaced);
                }
            }
            let left = |names: &mut DirNames| match (mode, other) {
                (RenameMode::Exchange, Some(other)) => names.insert(from.1, other.fid),
                _ => names.insert_absent(from.1),
            };
            if from.0 == to.0 {
                tables.changed(snapshot, &to_dir, |names| {
                    left(names);
                    names.insert(to.1, status.fid);
                });
            } else {
                tables.changed(snapshot, &from_dir, left);
                tables.changed(snapshot, &to_dir, |names| names.insert(to.1, status.fid));
            }
            Ok(replaced)
        });
        self.ground.names.unmark(&victim);
        renamed?.into_iter().for_each(|fid| self.writeback.drop_removed(fid));
        Ok(())
    }
}

/// Whether the call may have been applied although there is no answer.
fn unsure(error: &Error) -> bool {
    matches!(error, Error::Lost | Error::TimedOut | Error::Closed(_) | Error::Protocol)
}

/// Whether the refusal may contradict the cache: another client's change was quicker, and its break
/// is on its way. The refused caller must not see the state before that change.
fn contradicts(error: &Error) -> bool {
    matches!(error.fault(), Some(Fault::Exists | Fault::NotFound | Fault::Stale))
}
