//! The janitor: the thread for work that no caller waits for: old dirty bytes, commits, ends of
//! holds, the end of the lease.
//!
//! It makes no calls itself: while the server is away a call takes as long as that, and the end of
//! the lease must not wait (CB-4).

use std::sync::Arc;
use std::time::Duration;

use types::limits::HOLD_FIDS_MAX;
use types::{Call, Caller, Fid};

use crate::base::RequestContext;
use crate::core::Core;

/// Ends of holds are sent in batches this far apart.
const BATCH: Duration = Duration::from_millis(50);

impl Core {
    pub fn run_janitor(self: &Arc<Self>) {
        let has_unstable = || self.unstable.is_any();
        while let Some(mut due) =
            self.ground.chores.wait(self.ground.config.dirty_age, has_unstable)
        {
            self.check_lease();
            for file in &due.aged {
                self.writeback.flush_now(file);
                self.preallocated.check_blank(file);
            }
            if !due.unhold.is_empty() || !due.hold.is_empty() {
                std::thread::sleep(BATCH);
                due.unhold.append(&mut self.ground.chores.more_unholds());
                let core = Arc::clone(self);
                self.ground.workers.send(move || {
                    // Only a new session: loans last while a session goes on, and preallocated
                    // bodies are adopted in their turn.
                    if !due.hold.is_empty() {
                        core.hold_again(&due.hold);
                    }
                    core.unhold(due.unhold);
                });
            }
            if due.tend {
                let core = Arc::clone(self);
                self.ground.workers.follow(move || core.cache_bodies.tend());
            }
            if due.commit {
                self.ground.chores.count_commit_age();
                let core = Arc::clone(self);
                self.ground
                    .workers
                    .send(move || core.writeback.commit_all(&RequestContext::of(&Caller::ROOT)));
            }
        }
    }

    /// CB-4: at the end of the lease the kernel must forget too, whether or not the session has
    /// noticed the end.
    fn check_lease(&self) {
        let (expired, until) = self.ground.names.expire();
        self.ground.chores.set_lease(until);
        if expired {
            tracing::warn!("lease expired; cache is dropped");
            self.void(|_| {});
        }
    }

    /// Ends the holds of files that are not open again.
    pub fn unhold(&self, fids: Vec<Fid>) {
        let fids = self.ground.names.end_holds(fids);
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
