//! The janitor: the thread for work that no caller waits for: old dirty bytes, commits, ends of
//! holds, the end of the lease.
//!
//! It makes no calls itself: while the server is away a call takes as long as that, and the end of
//! the lease must not wait (CB-4).

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::clock;
use types::limits::HOLD_FIDS_MAX;
use types::{Call, Caller, Fid, Time};

use crate::base::request::RequestContext;
use crate::core::Core;
use crate::data::file_data::FileBytes;
use crate::writeback::chores::Chores;

/// Ends of holds are sent in batches this far apart.
const BATCH: Duration = Duration::from_millis(50);

/// Without work it checks this often.
const IDLE: Duration = Duration::from_secs(3600);

/// Unstable writes and metadata are committed at the latest after this.
const COMMIT_AGE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Due {
    aged: Vec<Arc<FileBytes>>,
    unhold: Vec<Fid>,
    hold: Vec<Fid>,
    commit: bool,
    tend: bool,
}

impl Core {
    pub fn run_janitor(self: &Arc<Self>) {
        while let Some(mut due) = self.wait_for_work() {
            self.check_lease();
            for file in &due.aged {
                self.flush_now(file);
                self.check_blank(file);
            }
            if !due.unhold.is_empty() || !due.hold.is_empty() {
                std::thread::sleep(BATCH);
                due.unhold.append(&mut self.chores.lock().unhold);
                let core = Arc::clone(self);
                self.senders.run(move || {
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
                self.followers.run(move || core.tend_pinned());
            }
            if due.commit {
                self.chores.lock().committed = Some(Instant::now());
                let core = Arc::clone(self);
                self.senders.run(move || core.commit_all(&RequestContext::of(&Caller::ROOT)));
            }
        }
    }

    /// Waits until something is due; `None`: it is time to stop.
    fn wait_for_work(&self) -> Option<Due> {
        let mut chores = self.chores.lock();
        loop {
            if chores.stop {
                return None;
            }
            let due = self.due(&mut chores);
            let lease = chores.lease.map(|until| until.since(clock::now()));
            let any = !due.aged.is_empty()
                || !due.unhold.is_empty()
                || !due.hold.is_empty()
                || due.commit
                || due.tend;
            if any || lease == Some(Duration::ZERO) {
                return Some(due);
            }
            let age = chores
                .aging
                .front()
                .map(|(since, _)| self.config.dirty_age.saturating_sub(since.elapsed()));
            let commit = self.commit_left(&chores);
            let tend = chores.tend.map(|at| at.saturating_duration_since(Instant::now()));
            let wait =
                [Some(IDLE), age, lease, commit, tend].into_iter().flatten().min().unwrap_or(IDLE);
            self.poke.wait_for(&mut chores, wait);
        }
    }

    /// Has the janitor check the lease at once: the machine has slept, which threads do not count
    /// as waiting. `false`: the janitor has ended.
    pub fn wake_janitor(&self) -> bool {
        // Under its lock, so that the wake-up does not fall between its check and its wait.
        let chores = self.chores.lock();
        self.poke.notify_one();
        !chores.stop
    }

    /// How long until unstable changes must be committed; `None` if there are none.
    fn commit_left(&self, chores: &Chores) -> Option<Duration> {
        let since = chores.committed.map_or(COMMIT_AGE, |at| at.elapsed());
        (self.unstable.bytes() > 0).then(|| COMMIT_AGE.saturating_sub(since))
    }

    fn due(&self, chores: &mut Chores) -> Due {
        let mut due = Due {
            aged: Vec::new(),
            unhold: std::mem::take(&mut chores.unhold),
            hold: std::mem::take(&mut chores.hold),
            commit: std::mem::take(&mut chores.commit)
                || self.commit_left(chores) == Some(Duration::ZERO),
            tend: chores.tend.take_if(|at| *at <= Instant::now()).is_some(),
        };
        // Files that are nearly old enough go along, so that many small files do not wake the
        // janitor one by one.
        let nearly = self.config.dirty_age - self.config.dirty_age / 8;
        while chores.aging.front().is_some_and(|(since, _)| since.elapsed() >= nearly) {
            due.aged.extend(chores.aging.pop_front().map(|(_, file)| file));
        }
        due
    }

    /// CB-4: at the end of the lease the kernel must forget too, whether or not the session has
    /// noticed the end.
    fn check_lease(&self) {
        let (expired, until) = {
            let mut tables = self.tables.lock();
            let expired = tables.holder.expire(clock::now());
            self.note_trust(&tables);
            (expired, tables.holder.trusted_until())
        };
        self.chores.lock().lease = (until > Time::ZERO).then_some(until);
        if expired {
            tracing::warn!("lease expired; cache is dropped");
            self.void(|_| {});
        }
    }

    /// Ends the holds of files that are not open again.
    pub fn unhold(&self, mut fids: Vec<Fid>) {
        {
            let mut tables = self.tables.lock();
            fids.sort_unstable();
            fids.dedup();
            fids.retain(|fid| {
                let Some(node) = tables.nodes.whole_mut(fid) else { return true };
                let idle = node.held && node.opens == 0;
                node.held &= !idle;
                idle
            });
        }
        for fids in fids.chunks(HOLD_FIDS_MAX) {
            let call = Call::Unhold { fids: fids.to_vec() };
            if let Err(error) = self.call(&RequestContext::of(&Caller::ROOT), call) {
                tracing::warn!(%error, "cannot end holds of closed files");
            }
        }
    }

    /// The session is new: claims the files that are open here again, as far as they still exist.
    fn hold_again(&self, fids: &[Fid]) {
        if let Err(error) = self.report_held(&*self.remote, fids) {
            tracing::warn!(%error, "cannot claim holds of open files; removed ones may be lost");
        }
        self.borrow_again(&*self.remote);
    }
}
