//! Changing directories: make, link, remove, rename. Each is one call, and its answer updates the
//! cache.
//!
//! A removal reports whether the file is open here (`hold`), and an open makes no call. So that
//! both are right, a removal that reports "not open" marks the file, and opens wait for it. The
//! server holds an unknown victim to be safe; the client ends the hold if the file was not open.

use types::{Answer, Call, CreateHow, Fid, Kind, Name, NewKind, RemoveWhat, RenameMode};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::{EntryReply, OpenMode, OpenReply};
use crate::names::dir_names::DirNames;
use crate::names::names::Victim;
use crate::ops::venus::Venus;

impl Venus {
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
        self.core.changes.made(request, dir, name, call).map(|(entry, _)| entry)
    }

    /// Makes a plain file, or finds it unless `exclusive`, and opens it.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn create(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<(EntryReply, OpenReply), Error> {
        let how =
            if exclusive { CreateHow::Exclusive(rand::random()) } else { CreateHow::Unchecked };
        let call = Call::Make { dir, name: name.clone(), kind: NewKind::File, mode, how };
        let (entry, existed) = match self.core.changes.made(request, dir, name, call.clone()) {
            // The verifier identifies a repeated request: whether the first one was applied no
            // longer matters.
            Err(Error::Lost) => self.core.changes.made(request, dir, name, call)?,
            first => first?,
        };
        let fid = entry.status.fid;
        // A file that was just made is empty; also one that another client made a moment ago.
        let opened = if existed && !exclusive {
            self.open(request, fid, open)?
        } else {
            self.core.open_made(request, fid, open)?
        };
        Ok((entry, opened))
    }

    /// Makes and opens a file without a name; `dir` gives the volume.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn make_unnamed(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        mode: u16,
        open: OpenMode,
    ) -> Result<(EntryReply, OpenReply), Error> {
        let core = &self.core;
        let mut call = Call::MakeUnnamed { dir, mode };
        let _away = core.ground.names.away(&mut call);
        let snapshot = core.ground.names.begin();
        let Answer::Status(status) = core.calls.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let mut tables = core.ground.names.lock();
        let (shown, cacheable) = tables.put(snapshot, status);
        tables.nodes.node(status.fid).held = true;
        let entry = core.ground.names.entry(&mut tables, shown, cacheable, false);
        drop(tables);
        Ok((entry, core.open_made(request, status.fid, open)?))
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
        if let Some(file) = self.core.ground.names.file_of(fid) {
            self.core.writeback.send_all(&file, request.cancel)?;
        }
        let call = Call::Link { fid, dir, name: name.clone() };
        self.core.changes.made(request, dir, name, call).map(|(entry, _)| entry)
    }

    /// Removes a name of something other than a directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn unlink(&self, request: &RequestContext<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.core.changes.remove(request, dir, name, RemoveWhat::File)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rmdir(&self, request: &RequestContext<'_>, dir: Fid, name: &Name) -> Result<(), Error> {
        self.core.changes.remove(request, dir, name, RemoveWhat::Directory)
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
        self.core.changes.remove(request, dir, name, RemoveWhat::MountPoint)
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
        let core = &self.core;
        let (moved, there) = {
            let tables = core.ground.names.lock();
            (tables.resolve(from.0, from.1), tables.resolve(to.0, to.1))
        };
        if let Some(file) = moved.and_then(|fid| core.ground.names.file_of(fid)) {
            core.writeback.send_all(&file, request.cancel)?;
        }
        let victim = match mode {
            RenameMode::Replace => core.ground.names.mark_replaced(to.0, to.1),
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
        let renamed = core.changes.change(request, &dirs, call, |tables, snapshot, answer| {
            let Answer::Renamed { status, other, from_dir, to_dir } = answer else {
                return Err(Error::Protocol);
            };
            tables.put(snapshot, status);
            if let Some(other) = other {
                tables.put(snapshot, other);
                if mode == RenameMode::Replace && other.fid != status.fid {
                    core.changes.lost_name(tables, &other, hold);
                }
            }
            // A rename onto another name of the same file does nothing, and its answer does not
            // show that.
            let nothing = match (moved, there) {
                _ if status.links < 2 || status.kind == Kind::Directory || other.is_some() => {
                    Some(false)
                }
                (Some(moved), Some(there)) => Some(moved == there),
                _ => None,
            };
            match nothing {
                Some(false) => {}
                Some(true) => return Ok(()),
                None => {
                    dirs.iter().for_each(|dir| tables.unsure(*dir));
                    return Ok(());
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
            Ok(())
        });
        core.ground.names.unmark(&victim);
        renamed
    }
}
