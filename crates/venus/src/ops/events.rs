//! Messages of the server: broken promises, lost leases, restarts. First the client's cache is
//! changed, then the kernel's, then the message is acknowledged: on return, or when the bodies that
//! the kernel has are up to date (`passthrough/cache_bodies.rs`).
//!
//! The handlers run on a thread of the session and wait for nothing that waits for the session:
//! other threads hold the locks used here only for moments. A writer that waits in venus holds
//! pages locked in the kernel, so writers of a broken file stop waiting before the kernel is
//! notified (`breaks`).

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::{BreakAck, Events, Remote};
use lease::Holder;
use types::{BreakItem, BreakReason, Call, Caller, Fid, Time};

use super::SparedEntries;
use crate::base::Error;
use crate::core::Core;
use crate::data::FileBytes;

/// How long the end of all promises waits for the kernel.
const KERNEL_WAIT_MAX: Duration = Duration::from_millis(500);

/// Whether the break ends the cached rights in the volume.
fn is_rights(item: &BreakItem) -> bool {
    item.fid == Fid::rights(item.fid.volume)
}

/// Receives messages for a [`Core`] without owning it.
pub(crate) struct EventListener(pub Weak<Core>);

impl Events for EventListener {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        match self.0.upgrade() {
            Some(core) => core.on_break(items, ack),
            None => ack.acknowledge(),
        }
    }

    fn on_renewed(&self, sent_at: Time) {
        if let Some(core) = self.0.upgrade() {
            core.ground.chores.watch_lease(core.ground.names.on_renewed(sent_at));
        }
    }

    fn on_lease_lost(&self) {
        if let Some(core) = self.0.upgrade() {
            core.on_lease_lost();
        }
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        if let Some(core) = self.0.upgrade() {
            if let Some(now) = reclaim.boot_verifier() {
                core.unstable.learn(None, now);
            }
            core.void(Holder::on_server_restarted);
            core.claim(reclaim);
        }
    }

    fn on_moved(&self, reclaim: &dyn Remote) {
        if let Some(core) = self.0.upgrade() {
            core.on_moved(reclaim);
        }
    }

    fn on_taken_over(&self, reclaim: &dyn Remote) {
        if let Some(core) = self.0.upgrade() {
            core.on_taken_over(reclaim);
        }
    }

    fn on_changes_lost(&self, fids: &[Fid]) {
        if let Some(core) = self.0.upgrade() {
            core.unstable.lose(fids);
        }
    }
}

impl Core {
    fn on_break(self: &Arc<Self>, items: &[BreakItem], mut ack: BreakAck) {
        // A recall ends no promise.
        let (recalls, items): (Vec<BreakItem>, Vec<BreakItem>) =
            items.iter().cloned().partition(|item| item.reason == BreakReason::Recall);
        let recalls: Vec<Fid> = recalls.into_iter().map(|item| item.fid).collect();
        self.writeback.recalled(&recalls);
        if items.is_empty() {
            return ack.acknowledge();
        }
        let items = &items[..];
        let kernel = self.ground.kernel.port();
        let spared: Vec<SparedEntries> =
            items.iter().filter_map(|item| SparedEntries::of(&*kernel, item)).collect();
        ack.hold(self.ground.names.on_break(items));
        let files: Vec<Arc<FileBytes>> =
            items.iter().filter_map(|item| self.ground.names.file_of(item.fid)).collect();
        files.iter().for_each(|file| self.let_writers_go(file));
        if items.iter().any(is_rights) {
            kernel.rights();
        }
        for item in items.iter().filter(|item| !is_rights(item)) {
            if spared.iter().any(|spared| spared.dir == item.fid) {
                continue;
            } else if item.fid.vnode.is_directory() {
                kernel.directory(item.fid);
            } else {
                // For any reason of the break: the server will not report the next change of the
                // data.
                kernel.inode_data(item.fid);
            }
        }
        for file in &files {
            let mut data = file.data.lock();
            assert!(data.breaking > 0, "CB-1: a break that reached the kernel was under way");
            data.breaking -= 1;
        }
        let passed: Vec<_> = files.iter().filter_map(|file| Some((file, file.pinned()?))).collect();
        let mut acks = ack.split(1 + usize::from(!spared.is_empty()) + passed.len()).into_iter();
        if !spared.is_empty() {
            let (core, ack) = (Arc::clone(self), acks.next());
            self.ground.workers.follow_or_end(move |runs| {
                if runs {
                    spared.iter().for_each(|spared| core.spare(spared));
                }
                ack.into_iter().for_each(BreakAck::acknowledge);
            });
        }
        // Bodies that the kernel has open are brought up to date before the last part is
        // acknowledged.
        for ((file, pinned), ack) in passed.iter().zip(acks.by_ref()) {
            self.cache_bodies.follow(file, pinned, Some(ack));
        }
        acks.for_each(BreakAck::acknowledge);
    }

    fn let_writers_go(self: &Arc<Self>, file: &Arc<FileBytes>) {
        let mut data = file.data.lock();
        data.breaks += 1;
        data.breaking += 1;
        data.urgent = data.clock;
        file.moved.notify_all();
        let dirty = data.has_unsent();
        drop(data);
        self.unstable.unsent().wake_waiters();
        if dirty {
            self.sender.send_soon(file);
        }
    }

    /// Promises are void: the client and the kernel forget everything.
    pub fn void(&self, mark: impl FnOnce(&mut Holder)) {
        self.void_here(mark);
        self.invalidate_all();
    }

    fn void_here(&self, mark: impl FnOnce(&mut Holder)) {
        let ended = self.ground.names.void(mark);
        self.writeback.give_back_soon(ended);
        self.siblings.clear();
        for file in self.ground.names.files() {
            let mut data = file.data.lock();
            data.breaks += 1;
            self.cache.forget_data(&mut data);
            file.moved.notify_all();
            drop(data);
            if let Some(pinned) = file.pinned() {
                pinned.doubt();
                self.cache_bodies.follow(&file, &pinned, None);
            }
        }
    }

    /// Has the kernel forget everything. That can wait for a read that waits for the server, and
    /// the server may be waiting for this thread (to claim its locks after the restart): so this
    /// waits for the kernel only for a while.
    fn invalidate_all(&self) {
        let notified =
            self.start_to_invalidate_all().map(|done| done.recv_timeout(KERNEL_WAIT_MAX));
        if matches!(notified, Some(Err(_))) {
            tracing::warn!(
                "a read delays the end of the kernel's cache; the rest is dropped after it"
            );
        }
    }

    /// The same in a separate thread, which reports its end.
    fn start_to_invalidate_all(&self) -> Option<Receiver<()>> {
        let kernel = self.ground.kernel.port();
        let (done, wait) = std::sync::mpsc::channel();
        let notifying = std::thread::Builder::new().name("venus-void".into()).spawn(move || {
            kernel.all();
            // The receiver is gone if the kernel took too long.
            let _ = done.send(());
        });
        notifying
            .inspect_err(|error| {
                tracing::error!(%error, "cannot start a thread to invalidate the kernel's cache");
            })
            .is_ok()
            .then_some(wait)
    }

    /// CB-4: at the end of the lease the kernel must forget too, whether or not the session has
    /// noticed the end. Waits neither for the server nor for the kernel.
    pub fn check_lease(&self) {
        let (expired, until) = self.ground.names.expire();
        self.ground.chores.watch_lease(until);
        if expired {
            tracing::warn!("lease expired; cache is dropped");
            self.void_here(|_| {});
            self.start_to_invalidate_all();
        }
    }

    pub fn on_lease_lost(&self) {
        tracing::warn!("lease lost; cache, locks and unsent delegated changes are dropped");
        self.flusher.lose_journal(Vec::new(), &Error::Lost);
        self.blanks.forget_blanks();
        self.void(Holder::on_lease_lost);
        for file in self.ground.names.files() {
            let mut data = file.data.lock();
            if !data.locks.is_empty() && !self.own_locks {
                tracing::warn!(fid = %file.fid, "lease lost; locks of the file are lost");
                data.locks.clear();
                data.locks_record = None;
                data.locks_lost += 1;
            }
        }
        self.ground.chores.claim_holds(self.ground.names.hold_open_files());
    }

    /// The volume moved to another server. The old server has ended all its promises, so the kernel
    /// has nothing that must be invalidated at once.
    fn on_moved(&self, reclaim: &dyn Remote) {
        self.blanks.forget_blanks();
        // Everything that the old server had is stable at the new one, where other clients may have
        // written since.
        self.unstable.moved();
        self.ground.server.moved();
        self.void_here(Holder::on_lease_lost);
        let kernel = self.ground.kernel.port();
        self.ground.workers.fill(move || kernel.all());
        self.claim(reclaim);
    }

    /// A copy of the volume took over at another server. Bytes that the lost one had not committed
    /// are sent again; other changes of names and status, and the delegated ones that it never got,
    /// are lost, which the next sync reports.
    fn on_taken_over(&self, reclaim: &dyn Remote) {
        self.flusher.lose_journal(Vec::new(), &Error::Lost);
        self.unstable.taken_over();
        self.on_moved(reclaim);
    }

    /// Claims the locks and holds of this client from a server that does not know them.
    fn claim(&self, reclaim: &dyn Remote) {
        // Before the server forgets the delegations: delegated changes do not wait for the end of
        // the reclaim.
        let _ = self.flusher.flush_all(None);
        if !self.own_locks {
            self.ground.names.files().iter().for_each(|file| self.reclaim_locks(file, reclaim));
        }
        if let Err(error) = self.report_held(reclaim, &self.ground.names.hold_open_files()) {
            tracing::warn!(%error, "cannot reclaim holds of open files; removed ones may be lost");
        }
        self.preallocated.borrow_again(reclaim);
        self.ground.chores.commit_soon();
    }

    fn reclaim_locks(&self, file: &FileBytes, reclaim: &dyn Remote) {
        let locks = file.data.lock().locks.clone();
        for lock in locks {
            let call = Call::Lock {
                fid: file.fid,
                owner: lock.owner,
                pid: lock.pid,
                family: lock.family,
                range: lock.range,
                mode: lock.mode,
                wait: false,
                reclaim: true,
            };
            let caller =
                self.handles.open_of(lock.handle).map_or(Caller::ROOT, |open| open.caller.clone());
            if let Err(error) = reclaim.call(&caller, call, None) {
                tracing::warn!(
                    fid = %file.fid, %error,
                    "cannot reclaim a lock after a server restart; locks of the file are lost"
                );
                let mut data = file.data.lock();
                data.locks.clear();
                data.locks_record = None;
                data.locks_lost += 1;
                return;
            }
        }
    }
}
