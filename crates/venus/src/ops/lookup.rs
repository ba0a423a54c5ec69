//! Lookups: names, statuses, links' targets, extended attributes. The cache answers while promises
//! hold.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use types::{Answer, Call, Fault, Fid, Name, StatusChange};

use super::Venus;
use crate::base::{Attributes, Error, LookupReply, RequestContext};
use crate::core::Core;
use crate::data::Cut;
use crate::names::{Cached, is_made_up};

impl Venus {
    /// The root of a volume; counts one more reference of the kernel.
    ///
    /// # Errors
    /// The service's refusal; so in all operations.
    pub fn root(&self, request: &RequestContext<'_>, volume: &Name) -> Result<Attributes, Error> {
        let root = self.core.calls.status_by(request, Call::Root { volume: volume.clone() })?;
        self.remember(root.status.fid);
        Ok(root)
    }

    /// Looks up one name; counts one more reference of the kernel to what it finds.
    ///
    /// # Errors
    /// The service's refusal; an absent entry is no error.
    pub fn lookup(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
    ) -> Result<LookupReply, Error> {
        if is_made_up(dir) {
            return self
                .core
                .snapshots
                .find_snapshot(request, dir, name)?
                .ok_or(Fault::Stale.into());
        }
        match self.find(request, dir, name)? {
            LookupReply::Absent { cacheable, stamp } => {
                let made_up = self.core.snapshots.find_snapshot(request, dir, name)?;
                Ok(made_up.unwrap_or(LookupReply::Absent { cacheable, stamp }))
            }
            found => Ok(found),
        }
    }

    fn find(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
    ) -> Result<LookupReply, Error> {
        let core = &self.core;
        if let Some(found) = core.cached_lookup(dir, name) {
            return Ok(found);
        }
        core.directories.list_ahead(request, dir);
        if let Some(found) = core.cached_lookup(dir, name) {
            return Ok(found);
        }
        let (before, delegation) = {
            let tables = core.ground.names.lock();
            (tables.before(dir), tables.nodes.delegation(dir))
        };
        match core.calls.call(request, Call::Lookup { dir, name: name.clone() }) {
            Ok(Answer::Entry { status, dir_version, sole }) => {
                let mut tables = core.ground.names.lock();
                let (status, cacheable) = tables.put(before.snapshot, status);
                let named = tables.put_name(&before, dir, dir_version, name, status.fid);
                if sole {
                    tables.nodes.put_sole(dir, delegation, status.fid);
                }
                Ok(LookupReply::Entry(core.ground.names.entry(
                    &mut tables,
                    status,
                    cacheable,
                    named,
                )))
            }
            Ok(_) => Err(Error::Protocol),
            Err(Error::Fault(Fault::NotFound)) => {
                let mut tables = core.ground.names.lock();
                let cacheable = tables.put_absent(&before, dir, name);
                Ok(LookupReply::Absent { cacheable, stamp: core.ground.names.stamp() })
            }
            Err(error) => Err(error),
        }
    }

    /// The kernel received one more reference to `fid` from a listing, and not by lookup, make,
    /// create or link.
    pub fn remember(&self, fid: Fid) {
        self.core.ground.names.lock().nodes.refer(fid);
    }

    /// The kernel has `count` references to `fid` less.
    pub fn forget(&self, fid: Fid, count: u64) {
        let ends_map = self.core.ground.names.lock().nodes.forget(fid, count);
        if ends_map && let Some(legacy) = &self.core.legacy {
            legacy.remove_mapped(fid);
        }
    }

    /// The status. For a file with unsent bytes the client sends these first and then asks, so that
    /// the times which an application sees are final.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn getattr(&self, request: &RequestContext<'_>, fid: Fid) -> Result<Attributes, Error> {
        let core = &self.core;
        if is_made_up(fid) {
            return core.snapshots.snapshot_status(request, fid);
        }
        if let Some(file) = core.ground.names.file_of(fid) {
            let pinned = file.pinned();
            if let Some(pinned) = &pinned {
                pinned.wait(request.cancel)?;
            }
            if !file.is_clean() || file.loaned.load(Ordering::Acquire) || pinned.is_some() {
                core.writeback.send_all(&file, request.cancel)?;
            }
        }
        let mut tables = core.ground.names.lock();
        if let Some((status, cacheable)) = tables.status(fid) {
            return Ok(core.ground.names.attributes(status, cacheable));
        }
        drop(tables);
        core.calls.status_by(request, Call::GetStatus { fid })
    }

    /// Changes the status, after earlier writes have been sent.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn setattr(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        mut change: StatusChange,
    ) -> Result<Attributes, Error> {
        let core = &self.core;
        if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            change.hold = core.hold_for_others(fid);
        }
        let (mut has_blank, mut cut) = (false, Cut::default());
        let file = core.ground.names.file_of(fid);
        if let Some(file) = &file {
            core.writeback.send_all(file, request.cancel)?;
            if let Some(size) = change.size {
                cut = core.writeback.cut_unstable(request, file, size, u64::MAX)?;
                has_blank = match core.preallocated.begin_cut(file, request.cancel) {
                    Ok(has_blank) => has_blank,
                    Err(why) => {
                        core.unstable.restore(file, cut, &why);
                        return Err(why);
                    }
                };
            }
        }
        if change.accessed.is_some() {
            core.ground.names.lock().reads.forget(fid);
        }
        let call = Call::SetStatus { fid, change };
        let mut set = match core.set_here(request, &call) {
            Some(set) => Ok(set),
            None => core.calls.status_by(request, call.clone()),
        };
        if let Some(file) = file.as_ref().filter(|_| has_blank)
            && !core.preallocated.cut_blank(file, change.size.filter(|_| set.is_ok()))
        {
            // The server restarted in between.
            set = core.calls.status_by(request, call);
        }
        if let (Some(file), Err(why)) = (&file, &set) {
            core.unstable.restore(file, cut, why);
        }
        let set = set?;
        if change.size.is_some() {
            // A thread that gives the kernel bytes of the earlier version must finish before the
            // kernel cuts them off.
            core.ground.names.let_replies_end();
            if let Some(file) = core.ground.names.file_of(fid) {
                file.data.lock().reads.known.reset(set.status.data_version);
                core.cache_bodies.follow_now(&file, request.cancel)?;
            }
        }
        Ok(set)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn readlink(&self, request: &RequestContext<'_>, fid: Fid) -> Result<Bytes, Error> {
        if is_made_up(fid) {
            return self.core.snapshots.snapshot_target(request, fid);
        }
        if let Some(target) =
            self.core.ground.names.lock().nodes.whole(&fid).and_then(|node| node.target.clone())
        {
            return Ok(target);
        }
        let Answer::Target(target) = self.core.calls.call(request, Call::ReadLink { fid })? else {
            return Err(Error::Protocol);
        };
        self.core.ground.names.lock().nodes.node(fid).target = Some(target.clone());
        Ok(target)
    }
}

impl Core {
    /// Answers a change of status here if a delegation covers it.
    fn set_here(&self, request: &RequestContext<'_>, call: &Call) -> Option<Attributes> {
        let Call::SetStatus { fid, change } = call else { return None };
        if !self.ground.config.delegations || change.size.is_some() && !self.may_cut_here(*fid) {
            return None;
        }
        let (mut tables, snapshot, answer) = self.flusher.answer_here(request.caller, call)?;
        let Answer::Status(status) = answer else { return None };
        let (status, cacheable) = tables.put(snapshot, status);
        Some(self.ground.names.attributes(status, cacheable))
    }

    /// Whether the file has no bytes in the journal, which would still show what a truncation cuts
    /// off, nor in a body that the kernel has.
    fn may_cut_here(&self, fid: Fid) -> bool {
        self.ground
            .names
            .file_of(fid)
            .is_none_or(|file| file.is_landed() && file.pinned().is_none())
    }

    fn cached_lookup(&self, dir: Fid, name: &Name) -> Option<LookupReply> {
        let mut tables = self.ground.names.lock();
        match tables.lookup(dir, name) {
            Cached::Entry { status, cacheable } => Some(LookupReply::Entry(
                self.ground.names.entry(&mut tables, status, cacheable, true),
            )),
            Cached::Absent => {
                Some(LookupReply::Absent { cacheable: true, stamp: self.ground.names.stamp() })
            }
            Cached::Unknown => None,
        }
    }
}
