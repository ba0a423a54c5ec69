//! Operations on names: look-up, creation, rename, removal.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use types::{Fid, Kind, Name, NewKind, RenameMode};
use venus::{EntryReply, LookupReply, OpenReply};
use zerocopy::IntoBytes;

use crate::attributes::Validity;
use crate::dispatch::{RequestRefusal, Task};
use crate::flat_tree::Flat;
use crate::nodes::{ROOT_NAME, SHOWN_ROOT};
use crate::submounts::{Edges, HIDDEN_DIR, HIDDEN_DIR_NODE};
use crate::{abi, attributes, sysname};

/// Flags of `renameat2`.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Task<'_> {
    /// Replies with the entry of this name, and the file opened with it; the kernel counts one
    /// reference.
    pub(crate) fn entry(&self, name: &[u8], entry: &EntryReply, opened: Option<&OpenReply>) {
        let (parent, may_cache) = (self.header.nodeid, sysname::stem(name).is_none());
        let fid = entry.status.fid;
        if !self.on.nodes.has_room(fid) {
            self.take_back(fid, opened);
            return self.refuse(Errno::OVERFLOW);
        }
        let number = self.on.nodes.number(fid);
        self.on.nodes.remember(fid, parent);
        if entry.status.kind == Kind::MountPoint
            && let Some(edges) = &self.on.edges
        {
            edges.remember(number, fid);
            // A mount point without a volume reports the error when its status is read.
            let _ = edges.enter(&self.request(), number);
        }
        let dir = self.on.nodes.fid(parent);
        let status = self.permitted(entry.status, dir.map(|dir| (dir, entry.stamp)));
        let sent = self.venus().answering(entry.stamp, |still| {
            let out = attributes::entry(
                number,
                &status,
                self.validity(
                    still && may_cache && entry.name_cacheable && self.on.agreement.has_epochs(),
                ),
                self.validity(still && entry.cacheable),
            );
            match opened {
                None => self.value(&out),
                Some(opened) => {
                    let open = self.open_out(fid, opened, false);
                    self.parts(&[IoSlice::new(out.as_bytes()), IoSlice::new(open.as_bytes())])
                }
            }
        });
        if sent.is_err() {
            self.on.nodes.forget(number, 1);
            self.take_back(fid, opened);
        }
    }

    /// Undoes the look-up and the open, which the kernel does not get.
    fn take_back(&self, fid: Fid, opened: Option<&OpenReply>) {
        self.venus().forget(fid, 1);
        if let Some(opened) = opened {
            let _ = self.venus().release(&self.request(), opened.handle, None);
        }
    }

    pub(crate) fn lookup(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        if name == HIDDEN_DIR.as_bytes() && self.sees_hidden_dir() {
            let _ = self.value(&attributes::hidden_dir());
            return Ok(());
        }
        if name == ROOT_NAME.as_bytes()
            && self.header.nodeid == abi::ROOT_ID
            && self.on.nodes.root_number() == SHOWN_ROOT
        {
            let status = self.venus().getattr(&self.request(), self.on.nodes.root())?.status;
            let _ = self.value(&attributes::entry(
                SHOWN_ROOT,
                &self.permitted(status, None),
                Validity::NONE,
                Validity::NONE,
            ));
            return Ok(());
        }
        let dir = self.fid()?;
        self.need_bits(dir, 1)?;
        match self.find(dir, name)? {
            LookupReply::Entry(entry) => match &self.on.flat {
                Some(flat) if entry.status.kind == Kind::MountPoint => {
                    self.enter(flat, name, &entry);
                }
                _ => self.entry(name, &entry, None),
            },
            LookupReply::Absent { cacheable, stamp } => {
                let cacheable =
                    cacheable && sysname::stem(name).is_none() && self.on.agreement.has_epochs();
                self.venus().answering(stamp, |still| {
                    if still && cacheable {
                        let _ = self.value(&attributes::no_entry(self.validity(true)));
                    } else {
                        self.refuse(Errno::NOENT);
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
        let visit = match flat.enter(self, fid) {
            Ok(visit) => visit,
            Err(errno) => {
                tracing::debug!(%fid, %errno, "a mount point leads nowhere");
                flat.is_dead_end(self.on.nodes.number(fid));
                let uncached = EntryReply { name_cacheable: false, ..*point };
                return self.entry(name, &uncached, None);
            }
        };
        // The look-up counted a reference that the kernel does not get.
        self.venus().forget(fid, 1);
        let below = self.in_volume(visit.dispatch());
        if let Err(RequestRefusal(errno)) =
            self.entry_of(&below, point, sysname::stem(name).is_none())
        {
            self.refuse(errno);
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
        let status = below.permitted(found.status, None);
        venus.remember(nodes.root());
        nodes.remember(nodes.root(), self.header.nodeid);
        let number = nodes.number(nodes.root());
        let named = may_cache && point.name_cacheable && self.on.agreement.has_epochs();
        let sent = self.venus().answering(point.stamp, |name_still| {
            venus.answering(found.stamp, |still| {
                self.value(&attributes::entry(
                    number,
                    &status,
                    self.validity(name_still && named),
                    below.validity(still && found.cacheable),
                ))
            })
        });
        if sent.is_err() {
            below.on.forget(number, 1);
        }
        Ok(())
    }

    /// Looks a name up.
    fn find(&self, dir: Fid, name: &[u8]) -> Result<LookupReply, RequestRefusal> {
        for meant in sysname::stem(name).into_iter().flat_map(|stem| self.on.sysnames.meant(stem)) {
            if let found @ LookupReply::Entry(_) =
                self.venus().lookup(&self.request(), dir, &meant)?
            {
                return Ok(found);
            }
        }
        Ok(self.venus().lookup(&self.request(), dir, &self.name(name)?)?)
    }

    /// Whether the directory is the root of a mount with a hidden directory, and the caller is this
    /// process or as privileged.
    fn sees_hidden_dir(&self) -> bool {
        self.header.nodeid == self.on.nodes.root_number()
            && self.header.uid == 0
            && self.on.edges.is_some()
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
        self.on.nodes.remember(fid, HIDDEN_DIR_NODE);
        let number = self.on.nodes.number(fid);
        if self
            .value(&attributes::entry(number, &found.status, Validity::NONE, Validity::NONE))
            .is_err()
        {
            self.on.forget(number, 1);
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

    pub(crate) fn unlink(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        self.venus().changes().unlink(&self.request(), self.fid()?, &self.name(name)?)?;
        self.done();
        Ok(())
    }

    pub(crate) fn rmdir(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        self.venus().changes().rmdir(&self.request(), self.fid()?, &self.name(name)?)?;
        self.done();
        Ok(())
    }

    pub(crate) fn rename(
        &self,
        newdir: u64,
        flags: u32,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), RequestRefusal> {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(RequestRefusal(Errno::INVAL)),
        };
        let (from_dir, to_dir): (_, _) = (self.fid()?, self.fid_beside(newdir)?);
        let (from, to): (Name, Name) = (self.name(from)?, self.name(to)?);
        self.venus().changes().rename(&self.request(), (from_dir, &from), (to_dir, &to), mode)?;
        self.done();
        Ok(())
    }

    pub(crate) fn readlink(&self) -> Result<(), RequestRefusal> {
        let target = self.venus().readlink(&self.request(), self.fid()?)?;
        let _ = self.parts(&[IoSlice::new(&target)]);
        Ok(())
    }
}
