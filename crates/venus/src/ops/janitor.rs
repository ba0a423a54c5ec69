//! The janitor: work that no caller waits for: old dirty bytes, the journal, commits, ends of
//! holds, the end of the lease.
//!
//! It runs on the thread of the client's scheduler, which all volumes share, and so waits for
//! nothing (`base/scheduler.rs`): what may wait, for the server or for the journal, is a job of the
//! volume's workers.

use std::sync::Arc;

use types::limits::HOLD_FIDS_MAX;
use types::{Call, Caller, Fid, Time};

use crate::base::{Chore, RequestContext};
use crate::calls::Look;
use crate::core::Core;

impl Chore for Core {
    fn run_due(self: Arc<Self>, now: Time) -> Option<Time> {
        let (chores, workers) = (&self.ground.chores, &self.ground.workers);
        let due = chores.take_due(now, || self.unstable.is_any());
        if due.lease {
            self.check_lease();
        }
        if due.journal {
            match self.journal.look(self.ground.config.dirty_age) {
                Look::Send => {
                    let flusher = Arc::clone(&self.flusher);
                    workers.send_journal(move || flusher.flush_journal());
                }
                Look::Again => chores.look_at_journal(false),
                Look::Asleep => {}
            }
        }
        if !due.aged.is_empty() {
            let core = Arc::clone(&self);
            workers.send(move || {
                for file in &due.aged {
                    core.writeback.flush_now(file);
                    core.preallocated.check_blank(file);
                }
            });
        }
        if !due.unhold.is_empty() {
            let core = Arc::clone(&self);
            workers.send(move || core.unhold(due.unhold));
        }
        if !due.hold.is_empty() {
            // Only a new session: loans last while a session goes on, and preallocated bodies are
            // adopted in their turn.
            let core = Arc::clone(&self);
            workers.send(move || core.hold_again(&due.hold));
        }
        if due.tend {
            let core = Arc::clone(&self);
            workers.follow(move || core.cache_bodies.tend());
        }
        if due.reads {
            let core = Arc::clone(&self);
            workers.send(move || core.send_reads());
        }
        if due.commit {
            let core = Arc::clone(&self);
            workers.send(move || core.writeback.commit_all(&RequestContext::of(&Caller::ROOT)));
        }
        chores.due_at()
    }
}

impl Core {
    /// Ends the holds of files that are not open again.
    pub fn unhold(&self, fids: Vec<Fid>) {
        let fids = self.ground.names.end_holds(fids);
        fids.iter().for_each(|fid| self.writeback.drop_removed(*fid));
        self.report_unheld(&fids);
    }

    /// Ends the holds of files that have no name and are not open here without waiting for the
    /// janitor, and drops their written bytes.
    pub fn drop_all_removed(self: &Arc<Self>) {
        let ended = self.ground.names.end_removed_holds();
        if !ended.is_empty() {
            ended.iter().for_each(|fid| self.writeback.drop_removed(*fid));
            let core = Arc::clone(self);
            self.ground.workers.send(move || core.report_unheld(&ended));
        }
    }

    fn report_unheld(&self, fids: &[Fid]) {
        for fids in fids.chunks(HOLD_FIDS_MAX) {
            let call = Call::Unhold { fids: fids.to_vec() };
            if let Err(error) = self.calls.call(&RequestContext::of(&Caller::ROOT), call) {
                tracing::warn!(%error, "cannot end holds of closed files");
            }
        }
    }

    /// The session is new: claims the files that are open here again, as far as they still exist.
    fn hold_again(&self, fids: &[Fid]) {
        if let Err(error) = self.report_held(self.ground.server.remote(), fids) {
            tracing::warn!(%error, "cannot claim holds of open files; removed ones may be lost");
        }
        self.preallocated.borrow_again(self.ground.server.remote());
    }
}
