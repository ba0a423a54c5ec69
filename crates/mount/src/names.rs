//! Operations on names: look-up, creation, rename, removal.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use types::{Fault, Fid, Kind, Name, NewKind, RenameMode};
use venus::{EntryReply, Error, LookupReply, OpenReply, RequestContext, Venus};
use zerocopy::IntoBytes;

use crate::attributes::Validity;
use crate::calling::Intent;
use crate::errno::RequestRefusal;
use crate::flat_tree::Flat;
use crate::nodes::{HIDDEN_DIR, HIDDEN_DIR_NODE, ROOT_NAME, SHOWN_ROOT};
use crate::submounts::{ATTACHING, ATTACHING_AT_LAST, Edges};
use crate::sysname::Sysnames;
use crate::task::{Task, walking};
use crate::{abi, attributes, mounting, sysname};

/// Flags of `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Task<'_> {
    /// Replies with the entry of this name, and the file opened with it; the kernel counts one
    /// reference.
    pub(crate) fn entry(&self, name: &[u8], entry: &EntryReply, opened: Option<&OpenReply>) {
        let (parent, may_cache) = (self.header.nodeid, sysname::stem(name).is_none());
        let fid = entry.status.fid;
        if !self.on.nodes.has_room(fid) {
            take_back(self.venus(), &self.request(), fid, opened);
            return self.reply.refuse(Errno::OVERFLOW);
        }
        let dir = self.on.nodes.fid(parent);
        let status = self.access().permitted(entry.status, dir.map(|dir| (dir, entry.stamp)));
        let number = self.on.nodes.number(fid);
        self.on.remember(fid, parent);
        let mut may_cache = may_cache;
        if entry.status.kind == Kind::MountPoint
            && let Some(edges) = &self.mount.edges
        {
            edges.remember(number, fid);
            // A later walk through it must send a request.
            may_cache &= edges.was_entered(number);
            if edges.was_entered(number)
                || self.mount.walks.intent_of(self.header.pid) == Intent::Enter
            {
                let is_last = self.mount.walks.is_repeated(self.header.pid);
                let patience = if is_last { ATTACHING_AT_LAST } else { ATTACHING };
                // A mount point without a volume reports the error when it is entered.
                let _ = walking(self, |walk| match is_last {
                    true => edges.enter(walk, number, patience),
                    false => walk.soon(|walk| edges.enter(walk, number, patience)),
                });
            }
        }
        self.on.notifier.tells_size(fid, status.size);
        let sent = self.venus().answering(entry.stamp, |still| {
            let out = attributes::entry(
                number,
                &status,
                self.validity(
                    still && may_cache && entry.name_cacheable && self.mount.agreement.has_epochs(),
                ),
                self.validity(still && entry.cacheable),
            );
            match opened {
                None => self.reply.value(&out),
                Some(opened) => {
                    let open = self.open_out(fid, opened, false);
                    self.reply.parts(&[IoSlice::new(out.as_bytes()), IoSlice::new(open.as_bytes())])
                }
            }
        });
        if sent.is_err() {
            self.on.nodes.forget(number, 1);
            take_back(self.venus(), &self.request(), fid, opened);
        }
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        // Only this process, or one as privileged, sees it.
        let sees_hidden_dir = self.mount.edges.is_some()
            && self.header.uid == 0
            && self.header.nodeid == self.on.nodes.root_number();
        if name == HIDDEN_DIR.as_bytes() && sees_hidden_dir {
            let _ = self.reply.value(&attributes::hidden_dir());
            return Ok(());
        }
        if name == ROOT_NAME.as_bytes()
            && self.header.nodeid == abi::ROOT_ID
            && self.on.nodes.root_number() == SHOWN_ROOT
        {
            let status = self.venus().getattr(&self.request(), self.on.nodes.root())?.status;
            let _ = self.reply.value(&attributes::entry(
                SHOWN_ROOT,
                &self.access().permitted(status, None),
                Validity::NONE,
                Validity::NONE,
            ));
            return Ok(());
        }
        let dir = self.fid()?;
        self.access().need_bits(dir, 1)?;
        match find(self.venus(), &self.request(), &self.mount.sysnames, dir, name)? {
            LookupReply::Entry(entry) => match &self.mount.flat {
                Some(flat) if entry.status.kind == Kind::MountPoint => {
                    self.enter(flat, name, &entry);
                }
                _ => self.entry(name, &entry, None),
            },
            LookupReply::Absent { cacheable, stamp } => {
                let cacheable =
                    cacheable && sysname::stem(name).is_none() && self.mount.agreement.has_epochs();
                self.venus().answering(stamp, |still| {
                    if still && cacheable {
                        let _ = self.reply.value(&attributes::no_entry(self.validity(true)));
                    } else {
                        self.reply.refuse(Errno::NOENT);
                    }
                });
            }
        }
        Ok(())
    }

    /// Replies with the root of the volume that a mount point leads to (`flat_tree.rs`), which was
    /// found under this name.
    fn enter(&self, flat: &Arc<Flat>, name: &[u8], point: &EntryReply) {
        let fid = point.status.fid;
        let looks = || self.mount.walks.intent_of(self.header.pid) == Intent::Look;
        let entered = if !flat.was_entered(self.on, fid) && looks() {
            None
        } else {
            let entered = walking(self, |walk| flat.enter(walk, self.on, fid));
            let report =
                |errno: &Errno| tracing::debug!(%fid, %errno, "a mount point leads nowhere");
            entered.inspect_err(report).ok()
        };
        let Some(visit) = entered else {
            flat.shows_point(self.on.nodes.number(fid));
            let uncached = EntryReply { name_cacheable: false, ..*point };
            return self.entry(name, &uncached, None);
        };
        // The look-up counted a reference that the kernel does not get.
        self.venus().forget(fid, 1);
        let below = self.in_volume(visit.view());
        if let Err(RequestRefusal(errno)) =
            self.entry_of(&below, point, sysname::stem(name).is_none())
        {
            self.reply.refuse(self.mount.unless_removed(&below, errno));
        }
    }

    /// The kernel caches the name as this volume promises, and the root's status as its own does.
    fn entry_of(
        &self,
        below: &Task<'_>,
        point: &EntryReply,
        may_cache: bool,
    ) -> Result<(), RequestRefusal> {
        let (nodes, venus) = (&below.on.nodes, below.venus());
        let found = venus.getattr(&below.request(), nodes.root())?;
        let status = below.access().permitted(found.status, None);
        venus.remember(nodes.root());
        below.on.remember(nodes.root(), self.header.nodeid);
        let number = nodes.number(nodes.root());
        let named = may_cache && point.name_cacheable && self.mount.agreement.has_epochs();
        let sent = self.venus().answering(point.stamp, |name_still| {
            venus.answering(found.stamp, |still| {
                self.reply.value(&attributes::entry(
                    number,
                    &status,
                    self.validity(name_still && named),
                    below.validity(still && found.cacheable),
                ))
            })
        });
        if sent.is_err() {
            below.forget(number);
        }
        Ok(())
    }

    /// Looks a mount point up by its number.
    pub(crate) fn lookup_in_hidden_dir(
        &self,
        edges: &Edges,
        name: &[u8],
    ) -> Result<(), RequestRefusal> {
        let number = std::str::from_utf8(name).ok().and_then(|text| text.parse().ok());
        let fid = number.and_then(|node| edges.point(node)).ok_or(Errno::NOENT)?;
        let found = self.venus().getattr(&self.request(), fid)?;
        self.venus().remember(fid);
        self.on.remember(fid, HIDDEN_DIR_NODE);
        let number = self.on.nodes.number(fid);
        if self
            .reply
            .value(&attributes::entry(number, &found.status, Validity::NONE, Validity::NONE))
            .is_err()
        {
            self.forget(number);
        }
        Ok(())
    }

    fn make(&self, name: &[u8], kind: NewKind, mode: u32) -> Result<(), RequestRefusal> {
        let dir = self.fid()?;
        let entry = self.venus().changes().make(
            &self.request(),
            dir,
            &self.name(name)?,
            kind,
            attributes::permissions(mode),
        )?;
        self.entry(name, &entry, None);
        Ok(())
    }

    pub(crate) fn symlink(&self, name: &[u8], target: &[u8]) -> Result<(), RequestRefusal> {
        self.make(name, NewKind::Symlink(Bytes::copy_from_slice(target)), 0o777)
    }

    pub(crate) fn mknod(&self, of: &abi::MknodIn, name: &[u8]) -> Result<(), RequestRefusal> {
        let kind = attributes::new_kind(of.mode, of.rdev).ok_or(Errno::INVAL)?;
        self.make(name, kind, of.mode)
    }

    pub(crate) fn mkdir(&self, of: &abi::MkdirIn, name: &[u8]) -> Result<(), RequestRefusal> {
        self.make(name, NewKind::Directory, of.mode)
    }

    pub(crate) fn link(&self, oldnodeid: u64, name: &[u8]) -> Result<(), RequestRefusal> {
        let (fid, dir) = (self.fid_beside(oldnodeid)?, self.fid()?);
        let entry = self.venus().changes().link(&self.request(), fid, dir, &self.name(name)?)?;
        self.entry(name, &entry, None);
        Ok(())
    }
}

/// Finds the file that a file handle names, by its number, or the directory that has it. Only
/// the kernel asks so (no walk looks these names up), for `open_by_handle_at` or a file server;
/// it compares the generation with the handle's.
pub(crate) fn lookup_by_number(task: &Task<'_>, parent: bool) -> Result<(), RequestRefusal> {
    if mounting::is_placing(task.header.pid) {
        return Err(Errno::STALE.into());
    }
    let asked = task.on.nodes.masked_fid(task.header.nodeid);
    // The directory above a volume's root is in another volume, or outside of the mount.
    if parent && asked.vnode == task.on.nodes.root().vnode {
        return Err(Errno::STALE.into());
    }
    let found = task.venus().control().by_vnode(&task.request(), asked, parent);
    let found = found.map_err(|error| match error {
        // A caller without the right, or an older server, has no file of that handle.
        Error::Fault(Fault::NotPermitted | Fault::Unsupported | Fault::NotDirectory) => {
            RequestRefusal(Errno::STALE)
        }
        error => error.into(),
    })?;
    let fid = found.status.fid;
    if found.status.kind == Kind::MountPoint || !task.on.nodes.has_room(fid) {
        task.venus().forget(fid, 1);
        return Err(Errno::STALE.into());
    }
    let number = task.on.nodes.number(fid);
    let status = task.access().permitted(found.status, None);
    if task.on.nodes.refer(fid) {
        task.on.notifier.end_former(&[number]);
    }
    if parent {
        task.on.nodes.set_parent(task.header.nodeid, number);
    }
    let sent = task.venus().answering(found.stamp, |still| {
        let of_status = task.validity(still && found.cacheable);
        task.reply.value(&attributes::entry(number, &status, Validity::NONE, of_status))
    });
    if sent.is_err() {
        task.forget(number);
    }
    Ok(())
}

/// Undoes the look-up and the open, which the kernel does not get.
fn take_back(venus: &Venus, request: &RequestContext<'_>, fid: Fid, opened: Option<&OpenReply>) {
    venus.forget(fid, 1);
    if let Some(opened) = opened {
        let _ = venus.release(request, opened.handle, None);
    }
}

/// Looks a name up, which may end with `@sys`.
fn find(
    venus: &Venus,
    request: &RequestContext<'_>,
    sysnames: &Sysnames,
    dir: Fid,
    name: &[u8],
) -> Result<LookupReply, RequestRefusal> {
    for meant in sysname::stem(name).into_iter().flat_map(|stem| sysnames.meant(stem)) {
        if let found @ LookupReply::Entry(_) = venus.lookup(request, dir, &meant)? {
            return Ok(found);
        }
    }
    Ok(venus.lookup(request, dir, &Name::new(name)?)?)
}

pub(crate) fn unlink(
    venus: &Venus,
    request: &RequestContext<'_>,
    dir: Fid,
    name: &[u8],
) -> Result<(), RequestRefusal> {
    venus.changes().unlink(request, dir, &Name::new(name)?)?;
    Ok(())
}

pub(crate) fn rmdir(
    venus: &Venus,
    request: &RequestContext<'_>,
    dir: Fid,
    name: &[u8],
) -> Result<(), RequestRefusal> {
    venus.changes().rmdir(request, dir, &Name::new(name)?)?;
    Ok(())
}

pub(crate) fn rename(
    venus: &Venus,
    request: &RequestContext<'_>,
    flags: u32,
    (from_dir, from): (Result<Fid, RequestRefusal>, &[u8]),
    (to_dir, to): (Result<Fid, RequestRefusal>, &[u8]),
) -> Result<(), RequestRefusal> {
    let mode = match flags {
        0 => RenameMode::Replace,
        RENAME_NOREPLACE => RenameMode::NoReplace,
        RENAME_EXCHANGE => RenameMode::Exchange,
        RENAME_WHITEOUT => RenameMode::Whiteout,
        _ => return Err(RequestRefusal(Errno::INVAL)),
    };
    let (from_dir, to_dir) = (from_dir?, to_dir?);
    let (from, to) = (Name::new(from)?, Name::new(to)?);
    venus.changes().rename(request, (from_dir, &from), (to_dir, &to), mode)?;
    Ok(())
}
