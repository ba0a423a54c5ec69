//! Changing directories: make, link, remove, rename. Each is one call, and its answer updates the
//! cache.
//!
//! A removal reports whether the file is open here (`hold`), and an open makes no call. So that
//! both are right, a removal that reports "not open" marks the file, and opens wait for it. The
//! server holds an unknown victim to be safe; the client ends the hold if the file was not open.

use std::sync::Arc;

use lease::CallStart;
use types::{Answer, Call, Fault, Fid, Kind, Name, RemoveWhat, Status};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::EntryReply;
use crate::cache::cache::Cache;
use crate::delegation::delegations::Delegations;
use crate::names::names::Victim;
use crate::names::node_tables::Tables;
use crate::passthrough::preallocated::Preallocated;
use crate::session::ground::Ground;
use crate::writeback::calls::Calls;
use crate::writeback::flusher::Flusher;

/// Changes of directories.
pub(crate) struct Changes {
    ground: Ground,
    cache: Arc<Cache>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    delegations: Arc<Delegations>,
    preallocated: Arc<Preallocated>,
}

impl Changes {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        delegations: &Arc<Delegations>,
        preallocated: &Arc<Preallocated>,
    ) -> Self {
        Changes {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            delegations: Arc::clone(delegations),
            preallocated: Arc::clone(preallocated),
        }
    }

    /// Runs a change of these directories, which distinguishes it from other clients' changes;
    /// `take` enters the answer.
    pub fn change<R>(
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
            Ok(_) => dirs.iter().for_each(|dir| tables.own_change(*dir, removes)),
            Err(error) if unsure(error) || contradicts(error) => {
                dirs.iter().for_each(|dir| tables.unsure(*dir));
            }
            Err(_) => {}
        }
        result
    }

    /// The file that was made, and whether it existed already.
    pub fn made(
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
                tables.own_change(status.fid, false);
            }
            let (shown, cacheable) = tables.put(snapshot, status);
            tables.nodes.node(status.fid).bare |= new && !existed && cacheable;
            tables.changed(snapshot, &dir_status, |names| names.insert(name, status.fid));
            let named = tables.resolve(dir, name) == Some(status.fid);
            Ok((self.ground.names.entry(tables, shown, cacheable, named), existed))
        })
    }

    /// A file lost a name; if it was the last one it is gone, or held.
    pub fn lost_name(&self, tables: &mut Tables, status: &Status, hold: bool) {
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

    pub fn remove(
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
            Ok(())
        });
        self.ground.names.unmark(&victim);
        self.flusher.drop_cuts();
        removed
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
